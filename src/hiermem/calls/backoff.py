"""Decides how long to wait after a failure, or where nothing can be done for a while.

The pause doubles each time in a row, from a first to a longest one. For texts and sessions the
pairs below say which; others bring a pair of their own. Only the retries of one model call are not
decided here: they follow the provider's wish, and are spread at random (``calls.ask``).
A model that failed too often in a row is down, and is not asked for a while. A call that was not
answered in time is repeated with more patience: a slow server works on after its caller has gone,
and the same patience would wait behind the abandoned call and end as that did.
"""

from __future__ import annotations

from typing import Final, TypeAlias

#: The first and the longest pause, in seconds.
Pauses: TypeAlias = tuple[float, float]

#: A text that the model did not make, or for which only the stand-in serves.
TEXT: Final[Pauses] = (15.0, 3600.0)
#: A session whose vectors could not all be made.
VECTORS: Final[Pauses] = (60.0, 3600.0)
#: A session whose turn ended in an error.
TROUBLE: Final[Pauses] = (2.0, 300.0)
#: A cap of the session or the tenant: only time, or a raised cap, helps.
CAPPED: Final[Pauses] = (300.0, 300.0)
#: A session for which nothing could be done.
IDLE: Final[Pauses] = (1.0, 30.0)
#: A model that is down.
DOWN: Final[Pauses] = (15.0, 600.0)
#: Where a provider asks for a longer pause than this, in seconds, its model is down for that time.
#: A shorter pause is waited out.
LONGEST_HOLD: Final = 120.0
#: The longest pause, in seconds, that a provider is believed to ask for. A date far off or a wrong
#: number would otherwise stop all requests until the process ends.
LONGEST_BELIEVED: Final = 3_600.0


def back_off(failures: int, pauses: Pauses) -> float:
    """Return the pause after ``failures`` failures in a row, in seconds.

    >>> [back_off(failures, TROUBLE) for failures in (1, 2, 3, 99)]
    [2.0, 4.0, 8.0, 300.0]
    """
    first, longest = pauses
    return min(longest, first * 2.0 ** min(max(0, failures - 1), 30))


def down_for(failures: int) -> float:
    """Return the seconds for which a model is down, ``failures`` beyond those that make it so."""
    return back_off(failures + 1, DOWN)


#: How often a call that was not answered in time is repeated at once, with twice the patience.
REPEATS: Final = 1


def patience(timeouts: int) -> float:
    """Return by how much a call is given more time, after so many that were not answered in it."""
    return float(2 ** min(timeouts, REPEATS))
