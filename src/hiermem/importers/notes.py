"""Counts what was assumed or left out while files are read, and what could not be read."""

from __future__ import annotations

from collections import Counter

#: The places that are kept of each kind.
_PLACES = 3


class Notes:
    """What a reading has to say, until the next conversation takes it.

    ``note`` counts what is known and meant: system lines left out, times read as UTC. ``miss``
    counts what was not understood or is damaged, with the place where that was met first.
    """

    def __init__(self) -> None:
        self._known: Counter[str] = Counter()
        self._missed: dict[str, tuple[int, list[str]]] = {}
        #: How much could not be read, in all.
        self.missed = 0

    def note(self, what: str, count: int = 1) -> None:
        """Count something that was assumed or left out."""
        self._known[what] += count

    def miss(self, what: str, where: str, count: int = 1) -> None:
        """Count something that could not be read; ``where`` is its place, and what is wrong."""
        before, places = self._missed.get(what, (0, []))
        if len(places) < _PLACES:
            places.append(where)
        self._missed[what] = (before + count, places)
        self.missed += count

    def reasons(self) -> list[str]:
        """Return the first places of what could not be read, of each kind one, then the seconds."""
        kinds = [places for _, places in self._missed.values()]
        return list(dict.fromkeys(p[n] for n in range(_PLACES) for p in kinds if n < len(p)))

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the counts of both kinds, and forget them."""
        known, missed = dict(self._known), self._missed
        self._known, self._missed = Counter(), {}
        return known, {
            f"{what} (the first: {first})": count for what, (count, (first, *_)) in missed.items()
        }
