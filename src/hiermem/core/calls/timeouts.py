"""Decides what follows where a model does not answer in time: more patience, fewer calls at once.

A slow server works on after its caller has gone. The same call with the same patience would wait
behind the abandoned one and end as that did; so would the others beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: How often a call that was not answered in time is repeated at once, with twice the patience.
REPEATS: Final = 1
#: After so many calls without an answer in time the concurrency is halved.
_TIMEOUTS: Final = 2
#: After so many answers in a row a halved concurrency is doubled.
_ANSWERS: Final = 20
#: More halvings than any concurrency allows.
_MOST: Final = 8


def patience(timeouts: int) -> float:
    """Return by how much a call is given more time, after so many that were not answered in it."""
    return float(2 ** min(timeouts, REPEATS))


@dataclass(slots=True)
class Slowdown:
    """How far the concurrency of one model is reduced, because it did not answer in time."""

    halvings: int = 0
    _timeouts: int = 0
    _answers: int = 0

    def limit(self, concurrency: int) -> int:
        """Return how many calls may be in flight instead of ``concurrency``."""
        return max(1, concurrency >> self.halvings)

    def time_out(self) -> None:
        """Note a call that was not answered in time."""
        self._answers = 0
        self._timeouts += 1
        if self._timeouts == _TIMEOUTS:
            self._timeouts = 0
            self.halvings = min(self.halvings + 1, _MOST)

    def answer(self) -> None:
        """Note a call that was answered."""
        self._answers += 1
        if self._answers == _ANSWERS:
            self._answers = self._timeouts = 0
            self.halvings = max(0, self.halvings - 1)
