"""Decides which units of a session hold a term, and how units are grouped.

An index is a function of its postings alone, so it is the same whatever store they came from and in
however many parts they arrived. It keeps the units sorted by term, their windows of two sizes, and
their neighbours; a window never crosses a thread or a sitting (a pause of some hours). ``rank``
scores the units.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hiermem.search.postings import Array, Postings, join
from hiermem.types import ROLES, Span

#: The tokens of a window, level by level. Larger windows help navigation but not scoring.
LEVELS: Final = (400, 1_600)
#: A longer pause begins a new sitting, in microseconds: four hours.
SITTING: Final = 4 * 3_600 * 1_000_000
#: Terms that arrived since the last sorting are scanned. Beyond this share all are sorted again,
#: but only after ``_SCANS`` scans, because sorting takes as long as some hundred of them.
_TAIL: Final = 0.1
_LEAST_TAIL: Final = 2_048
_SCANS: Final = 128

_USER: Final = ROLES.index("user")
_ASSISTANT: Final = ROLES.index("assistant")


@dataclass(frozen=True, slots=True, eq=False)
class Inverted:
    """Units by term: ``terms[k]`` is in ``units[ends[k - 1]:ends[k]]``.

    ``counts`` say for each of these units how often it holds the term, or how much that counts.
    """

    terms: Array
    ends: Array
    units: Array
    counts: Array

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(a.nbytes for a in (self.terms, self.ends, self.units, self.counts))

    def entry(self, position: int) -> tuple[Array, Array]:
        """Return the units that hold the term at a position, rising, and its counts in them."""
        entries = slice(self.ends[position - 1] if position else 0, self.ends[position])
        return self.units[entries], self.counts[entries]

    def find(self, number: int) -> tuple[Array, Array] | None:
        """Return the units that hold a term, rising, and its counts; None if none holds it."""
        position = int(np.searchsorted(self.terms, number))
        if position >= len(self.terms) or self.terms[position] != number:
            return None
        return self.entry(position)


class Index:
    """All units of a session, ready for queries.

    ``sitting`` numbers the sittings; ``before`` and ``after`` are the neighbouring units of the
    same sitting, or -1; ``opener`` is, for the units of a reply, a unit of the user's message that
    it answers, or -1. ``windows`` are, for each size, each unit's window, and ``window_lengths``
    the terms of each window. An index is immutable: ``extended`` returns a longer one.
    """

    def __init__(self, units: Postings, *, _main: Inverted | None = None, _scans: int = 0) -> None:
        self.units = units
        # Threads may search at once, and each reads both parts as they belong together.
        self._terms = _parts(units, _main)
        self._scans = _scans
        self.length = np.maximum(units.length, 1).astype(np.float64)
        order = np.argsort(units.thread, kind="stable")
        self.sitting = _sittings(units, order)
        self.before, self.after = _neighbours(self.sitting, order)
        self.opener = _openers(units, order)
        self.windows = tuple(_windows(units, self.sitting, order, limit) for limit in LEVELS)
        self.window_lengths = tuple(np.bincount(node, self.length) for node in self.windows)

    def __len__(self) -> int:
        return len(self.units)

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the index in bytes."""
        columns = (self.length, self.sitting, self.before, self.after, self.opener)
        arrays = (*columns, *self.windows, *self.window_lengths)
        terms = sum(part.nbytes for part in self._terms)
        return self.units.nbytes + terms + sum(array.nbytes for array in arrays)

    def extended(self, more: Postings) -> Index:
        """Return the index with the postings of the following messages added."""
        return Index(join([self.units, more]), _main=self._terms[0], _scans=self._scans)

    def covered(self, span: Span, thread: str | None) -> slice | Array:
        """Return the units of the messages of a span; with a ``thread``, only that thread's."""
        units = self.units
        inside = slice(*np.searchsorted(units.message, (span.start, span.stop)).tolist())
        if thread is None:
            return inside
        wanted = units.threads.index(thread) if thread in units.threads else -1
        units_of_thread: Array = inside.start + np.flatnonzero(units.thread[inside] == wanted)
        return units_of_thread

    def find(self, numbers: Sequence[int]) -> tuple[Array, Array]:
        """Return the units that hold any of the terms, and how often each does.

        Each unit occurs once; the counts of several terms are added.
        """
        if not len(numbers):
            return np.empty(0, dtype=np.uint32), np.empty(0)
        rows, counts, occurring = self._gather(np.unique(np.array(numbers, dtype=np.uint32)))
        if occurring <= 1:
            return rows, counts
        total = np.bincount(rows, counts, len(self))
        rows = np.flatnonzero(total)
        return rows, total[rows]

    def _gather(self, numbers: Array) -> tuple[Array, Array, int]:
        """Return the units of each term in turn, the counts, and how many terms may occur."""
        main, tail = self._terms
        if len(tail.terms) > max(_LEAST_TAIL, _TAIL * len(main.units)):
            self._scans += len(numbers)
            if self._scans > _SCANS:
                units = self.units
                every = inverted(units.terms, rows_of(units), units.counts)
                main, tail = self._terms = _parts(units, every)
                self._scans = 0
        entries: list[tuple[Array, Array]] = []
        if len(main.terms):
            places = np.minimum(np.searchsorted(main.terms, numbers), len(main.terms) - 1)
            entries += map(main.entry, places[main.terms[places] == numbers].tolist())
        if len(tail.terms):
            if len(numbers) == 1:
                hits = np.flatnonzero(tail.terms == numbers[0])
            else:
                hits = np.flatnonzero(np.isin(tail.terms, numbers))
            entries.append((tail.units[hits], tail.counts[hits]))
        if not entries:
            return np.empty(0, dtype=np.uint32), np.empty(0), 0
        occurring = len(numbers) if len(tail.terms) else len(entries)
        rows, counts = map(np.concatenate, zip(*entries, strict=True))
        return rows, counts.astype(np.float64), occurring


def _parts(units: Postings, main: Inverted | None) -> tuple[Inverted, Inverted]:
    """Return the sorted terms, which come first in ``units``, and the unsorted ones after them.

    The unsorted ones have no ends.
    """
    empty = np.empty(0, dtype=np.uint32)
    main = main or Inverted(empty, empty, empty, empty)
    start, rows = len(main.units), rows_of(units)
    rows = rows[start:].copy() if start else rows
    return main, Inverted(units.terms[start:], empty, rows, units.counts[start:])


def rows_of(units: Postings) -> Array:
    """Return for each term of ``units`` the unit that holds it."""
    return np.repeat(np.arange(len(units), dtype=np.uint32), units.sizes)


def inverted(terms: Array, units: Array, counts: Array) -> Inverted:
    """Sort the terms of units, which are numbers of 32 bits.

    numpy sorts 16 bits several times faster than 32, in linear time.
    """
    low = np.argsort(terms.astype(np.uint16), kind="stable")
    high = (terms >> 16).astype(np.uint16)
    order = low[np.argsort(high[low], kind="stable")]
    ordered = terms[order]
    last = np.flatnonzero(np.r_[ordered[1:] != ordered[:-1], True]) if len(ordered) else order
    return Inverted(ordered[last], last + 1, units[order], counts[order])


def _sittings(units: Postings, order: Array) -> Array:
    """Return each unit's sitting as a number; ``order`` has each thread's units together."""
    sitting = np.zeros(len(units), dtype=np.int64)
    if len(units):
        times, thread = units.at[order], units.thread[order]
        begins = (np.abs(np.diff(times)) > SITTING) | (np.diff(thread.astype(np.int64)) != 0)
        sitting[order] = np.r_[0, np.cumsum(begins)]
    return sitting


def _neighbours(sitting: Array, order: Array) -> tuple[Array, Array]:
    before = np.full(len(order), -1, dtype=np.int64)
    after = before.copy()
    together = sitting[order][1:] == sitting[order][:-1]
    before[order[1:][together]] = order[:-1][together]
    after[order[:-1][together]] = order[1:][together]
    return before, after


def _openers(units: Postings, order: Array) -> Array:
    """Return for each unit of a reply the last unit of the user's message before it."""
    opener = np.full(len(order), -1, dtype=np.int64)
    role, thread = units.role[order], units.thread[order]
    positions = np.arange(len(order))
    last = (
        np.maximum.accumulate(np.where(role == _USER, positions, -1)) if len(order) else positions
    )
    replies = (role == _ASSISTANT) & (last >= 0)
    replies[replies] = thread[last[replies]] == thread[replies]
    opener[order[replies]] = order[last[replies]]
    return opener


def _windows(units: Postings, sitting: Array, order: Array, limit: int) -> Array:
    """Return each unit's window as a number; each has at most ``limit`` tokens of one sitting."""
    total = np.cumsum(units.tokens[order], dtype=np.int64).tolist()
    edges = [*(np.flatnonzero(np.diff(sitting[order])) + 1).tolist(), len(total)]
    starts: list[int] = []
    start = edge = 0
    while start < len(total):
        starts.append(start)
        room = (total[start - 1] if start else 0) + limit
        stop = max(start + 1, bisect_right(total, room, start))
        edge += edges[edge] <= start
        start = min(stop, edges[edge])
    begins = np.zeros(len(total), dtype=np.int64)
    begins[starts[1:]] = 1
    window = np.empty(len(total), dtype=np.int64)
    window[order] = np.cumsum(begins)
    return window
