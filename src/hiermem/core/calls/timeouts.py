"""Decides what follows where a model does not answer in time: more patience for one more call.

A slow server works on after its caller has gone. The same call with the same patience would wait
behind the abandoned one and end as that did; so would the others beside it.
"""

from __future__ import annotations

from typing import Final

#: How often a call that was not answered in time is repeated at once, with twice the patience.
REPEATS: Final = 1


def patience(timeouts: int) -> float:
    """Return by how much a call is given more time, after so many that were not answered in it."""
    return float(2 ** min(timeouts, REPEATS))
