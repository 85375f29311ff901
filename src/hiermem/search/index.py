"""The index of one session in memory: which units hold a term, and how units are grouped.

An index is a function of its postings alone, so it is the same whatever store they came from and in
however many parts they arrived. It keeps the units sorted by term, their windows of two sizes, and
their neighbours; a window never crosses a thread or a sitting (a pause of some hours). Scoring is
done by ``ranking``.

The results of a search: hits, and evidence packed into a budget.

``text`` is verbatim, character for character; if a hit is a part of a long message, its span has
the offsets. Nothing is decided here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, overload

import numpy as np

from hiermem.search.postings import Array, Postings, join
from hiermem.types import ROLES, Role, Span, StoredMessage, Summary
from hiermem.types.brief import Brief


@dataclass(frozen=True, slots=True)
class Hit(Brief):
    """A message, a passage of a long message, or a summary that answers a question.

    ``level`` is 0 for a message. ``score`` is from 0 to 1: that of the best message is the share of
    the question that it holds, each word counted by how rare it is, so a low one says that nobody
    spoke of that; with an embedder it is 1. The others are in relation to it. ``found`` are the
    messages that the hit rests on, best first: a message itself, or the messages below a summary
    that answer best. ``message`` or ``summary`` is the whole message or summary that was found.
    """

    _brief = "session_id id role score text"

    session_id: str
    kind: Literal["message", "summary"]
    level: int
    span: Span
    score: float
    text: str
    tokens: int
    time_range: tuple[datetime, datetime]
    thread: str | None
    found: tuple[int, ...] = ()
    message: StoredMessage | None = None
    summary: Summary | None = None

    @property
    def id(self) -> str:
        """Return the summary's id, or a message's name, such as ``m12``."""
        return self.summary.id if self.summary else f"m{self.span.start}"

    def _below(self) -> str:
        return self.text

    @property
    def content(self) -> str:
        """Return the text, under the name that it has in a message; of a long one the passage."""
        return self.text

    @property
    def index(self) -> int | None:
        """Return the message's index, None for a summary."""
        return self.message.index if self.message else None

    @property
    def role(self) -> Role | None:
        """Return the message's role, None for a summary."""
        return self.message.role if self.message else None

    @property
    def created_at(self) -> datetime:
        """Return the message's time, or the latest that the summary covers."""
        return self.time_range[1]


@dataclass(frozen=True, slots=True)
class Evidence(Brief, Sequence[Hit]):
    """Verbatim passages in the order they were said: a sequence of message hits.

    ``text`` is their rendering, with the speakers' names and a date where it changes; it costs
    ``total_tokens``, at most ``max_tokens``. ``session_id`` is None where all sessions of a tenant
    were searched; then each hit has its own, and the headers of ``text`` name it.
    """

    _brief = "session_id total_tokens max_tokens hits"

    session_id: str | None
    max_tokens: int
    total_tokens: int
    text: str
    hits: tuple[Hit, ...] = ()

    @property
    def messages(self) -> tuple[Hit, ...]:
        """Return the passages as hits, each with ``index``, ``content`` and ``span``.

        A message of which several parts are included occurs once for each part.
        """
        return self.hits

    @property
    def sources(self) -> tuple[StoredMessage, ...]:
        """Return the messages of the passages, each once and whole."""
        seen = {
            (hit.session_id, hit.message.index): hit.message for hit in self.hits if hit.message
        }
        return tuple(seen.values())

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __str__(self) -> str:
        return self.text

    def _below(self) -> str:
        return self.text


#: The tokens of a window, level by level. Larger windows help navigation but not scoring.
LEVELS: Final = (400, 1_600)
#: A longer pause begins a new sitting, in microseconds: four hours.
SITTING: Final = 4 * 3_600 * 1_000_000
#: Terms that arrived since the last sorting are scanned; beyond this share all are sorted again,
#: but only after so many scans: sorting takes as long as some hundred of them.
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

    def at(self, place: int) -> tuple[Array, Array]:
        """Return the units that hold the term at a place, rising, and its counts in them."""
        held = slice(self.ends[place - 1] if place else 0, self.ends[place])
        return self.units[held], self.counts[held]

    def find(self, number: int) -> tuple[Array, Array] | None:
        """Return the units that hold a term, rising, and its counts; None if none holds it."""
        place = int(np.searchsorted(self.terms, number))
        if place >= len(self.terms) or self.terms[place] != number:
            return None
        return self.at(place)


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
        own = (self.length, self.sitting, self.before, self.after, self.opener)
        arrays = (*own, *self.windows, *self.window_lengths)
        terms = sum(part.nbytes for part in self._terms)
        return self.units.nbytes + terms + sum(array.nbytes for array in arrays)

    def extended(self, more: Postings) -> Index:
        """Return the index with the postings of the following messages added."""
        return Index(join([self.units, more]), _main=self._terms[0], _scans=self._scans)

    def covered(self, span: Span, thread: str | None) -> slice | Array:
        """Return the units of the messages of a span, of one thread where it is given."""
        units = self.units
        inside = slice(*np.searchsorted(units.message, (span.start, span.stop)).tolist())
        if thread is None:
            return inside
        own = units.threads.index(thread) if thread in units.threads else -1
        found: Array = inside.start + np.flatnonzero(units.thread[inside] == own)
        return found

    def find(self, numbers: Sequence[int]) -> tuple[Array, Array]:
        """Return the units that hold any of the terms, and how often each does.

        Each unit occurs once; the counts of several terms are added.
        """
        if not len(numbers):
            return np.empty(0, dtype=np.uint32), np.empty(0)
        rows, counts, found = self._gather(np.unique(np.array(numbers, dtype=np.uint32)))
        if found <= 1:
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
        held: list[tuple[Array, Array]] = []
        if len(main.terms):
            places = np.minimum(np.searchsorted(main.terms, numbers), len(main.terms) - 1)
            held += map(main.at, places[main.terms[places] == numbers].tolist())
        if len(tail.terms):
            if len(numbers) == 1:
                hits = np.flatnonzero(tail.terms == numbers[0])
            else:
                hits = np.flatnonzero(np.isin(tail.terms, numbers))
            held.append((tail.units[hits], tail.counts[hits]))
        if not held:
            return np.empty(0, dtype=np.uint32), np.empty(0), 0
        found = len(numbers) if len(tail.terms) else len(held)
        rows, counts = map(np.concatenate, zip(*held, strict=True))
        return rows, counts.astype(np.float64), found


# ---------------------------------------------------------------------------------------------
# Sorting


def _parts(units: Postings, main: Inverted | None) -> tuple[Inverted, Inverted]:
    """Return the sorted terms, which are the first ones of ``units``, and the others as they are.

    The others have no ends.
    """
    none = np.empty(0, dtype=np.uint32)
    main = main or Inverted(none, none, none, none)
    start, rows = len(main.units), rows_of(units)
    rows = rows[start:].copy() if start else rows
    return main, Inverted(units.terms[start:], none, rows, units.counts[start:])


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


# ---------------------------------------------------------------------------------------------
# How units lie together


def _sittings(units: Postings, order: Array) -> Array:
    """Return each unit's sitting as a number; ``order`` has each thread's units together."""
    sitting = np.zeros(len(units), dtype=np.int64)
    if len(units):
        at, thread = units.at[order], units.thread[order]
        begins = (np.abs(np.diff(at)) > SITTING) | (np.diff(thread.astype(np.int64)) != 0)
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
    place = np.arange(len(order))
    last = np.maximum.accumulate(np.where(role == _USER, place, -1)) if len(order) else place
    found = (role == _ASSISTANT) & (last >= 0)
    found[found] = thread[last[found]] == thread[found]
    opener[order[found]] = order[last[found]]
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
