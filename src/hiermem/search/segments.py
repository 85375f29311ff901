"""Decides which blocks of all sessions of a tenant may answer a question.

The index over all sessions consists of segments (as in Lucene), each made of the blocks of many
sessions and never changed. A segment's units are numbered through; for each term it has the units
that hold it, with how much that counts. Both lie in pages by the first bits of the term's number,
so that a question reads few of them. Blocks in no segment are indexed in memory, in the same form.

Scores here only choose blocks: each is worth what its best unit is by the words of the question
(BM25 with one length for all, in 255 steps). ``combined`` makes one index of the chosen blocks, and
``rank`` scores that as the index of a session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from hiermem.search import rank
from hiermem.search.index import (
    STEMS,
    Array,
    Index,
    Inverted,
    Postings,
    inverted,
    join,
    opened,
    rows_of,
    sealed,
)
from hiermem.search.query import Query
from hiermem.search.rank import Corpus

#: The pages of terms; their numbers are the first bits of those of their terms.
_PAGE_BITS: Final = 8
_SHIFT: Final = 32 - _PAGE_BITS
#: The page with the blocks of a segment.
HEAD: Final = 1 << _PAGE_BITS
#: A segment is complete with this many units, and has more than ``MOST`` only if one block has.
FULL: Final = 32_768
MOST: Final = 65_536
#: The terms of a unit of middling length, and the steps in which its share of a score is kept.
_TYPICAL: Final = 24.0
_STEPS: Final = 255
#: The version of the layout and of the stems; a segment of another one is dissolved.
_MAGIC: Final = b"S2" + STEMS
_IMPACT: Final = (1 + rank.WEIGHTS.saturation) / _STEPS


class Member(NamedTuple):
    """A block in a part of the index: its session, its messages, its number of units, their times.

    Times are microseconds since 1970. It is stored in this form.
    """

    session_id: str
    start: int
    stop: int
    units: int
    first_at: int
    last_at: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of the index: the blocks of a segment, or of ``number`` 0, those in memory.

    ``length`` counts the terms of all its ``units``; ``sizes`` are the units of each member, and
    ``first_at`` and ``last_at`` their times. ``pages`` are the ones that were read; their
    counts are impacts: how much each term counts in a unit.
    """

    number: int
    members: tuple[Member, ...]
    length: int
    units: int
    sizes: Array
    first_at: Array
    last_at: Array
    pages: Mapping[int, Inverted]
    dead: tuple[int, ...] = ()

    @classmethod
    def of(cls, members: Sequence[Member], length: int, *, number: int = 0) -> Part:
        """Return a part without pages."""
        sizes, first_at, last_at = (
            np.array([getattr(member, name) for member in members], dtype=np.int64)
            for name in ("units", "first_at", "last_at")
        )
        units = int(sizes.sum())
        return cls(number, tuple(members), length, units, sizes, first_at, last_at, {})

    @property
    def live(self) -> int:
        """Return the number of units in blocks that are not dead."""
        return self.units - int(self.sizes[list(self.dead)].sum())

    def find(self, numbers: Iterable[int]) -> tuple[Array, Array]:
        """Return the units that hold one of the terms, and the greatest impact in each."""
        matches = [
            entries
            for term in numbers
            if (page := self.pages.get(term >> _SHIFT)) and (entries := page.find(term))
        ]
        if len(matches) == 1:
            return matches[0]
        most = np.zeros(self.units if matches else 0, dtype=np.uint8)
        for units, impacts in matches:
            most[units] = np.maximum(most[units], impacts)
        rows = np.flatnonzero(most)
        return rows, most[rows]


def member_of(session_id: str, start: int, stop: int, postings: Postings) -> Member:
    """Describe a block."""
    times = postings.at
    first, last = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    return Member(session_id, start, stop, len(postings), first, last)


def in_memory(blocks: Sequence[tuple[Member, Postings]]) -> Part:
    """Return blocks as a part of the index, without pages to be read."""
    whole = join([postings for _, postings in blocks])
    rows = rows_of(whole)
    lengths = np.maximum(whole.length, 1)[rows] / _TYPICAL
    counted = rank.saturated(whole.counts.astype(np.float64), lengths)
    impacts = np.clip(np.rint(counted / _IMPACT), 1, _STEPS).astype(np.uint8)
    every = inverted(whole.terms, rows, impacts)
    pages: dict[int, Inverted] = {}
    numbers, starts = np.unique(every.terms >> _SHIFT, return_index=True)
    bounds = [*starts.tolist(), len(every.terms)]
    for number, (low, high) in zip(numbers.tolist(), pairwise(bounds), strict=True):
        begin = int(every.ends[low - 1]) if low else 0
        entries = slice(begin, int(every.ends[high - 1]))
        pages[number] = Inverted(
            every.terms[low:high],
            every.ends[low:high] - begin,
            every.units[entries],
            every.counts[entries],
        )
    part = Part.of([member for member, _ in blocks], int(whole.length.sum()))
    return replace(part, pages=pages)


def pages_of(part: Part) -> dict[int, bytes]:
    """Write a part as the pages of a segment."""
    head = json.dumps({"length": part.length, "blocks": part.members}, separators=(",", ":"))
    pages = {HEAD: sealed(_MAGIC, head.encode("utf-8", "surrogatepass"))}
    kind = "<u2" if part.units <= MOST else "<u4"
    for number, page in part.pages.items():
        sizes = np.array([len(page.terms), len(page.units), int(kind[-1])], dtype="<u4")
        columns = (sizes, page.terms.astype("<u4"), page.ends.astype("<u4"))
        rest = (page.units.astype(kind), page.counts)
        pages[number] = sealed(_MAGIC, b"".join(column.tobytes() for column in (*columns, *rest)))
    return pages


def read_head(number: int, pages: Mapping[int, bytes]) -> Part | None:
    """Read the head of a segment, without its pages; None if it is damaged."""
    head = opened(_MAGIC, pages.get(HEAD, b""))
    try:
        read = json.loads(head or b"")
        members = [
            Member(str(name), int(start), int(stop), int(units), int(first), int(last))
            for name, start, stop, units, first, last in read["blocks"]
        ]
        return Part.of(members, int(read["length"]), number=number)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def read_part(head: Part, pages: Mapping[int, bytes], dead: Sequence[int]) -> Part | None:
    """Return a segment with some of its pages; None if one of them is damaged."""
    by_page: dict[int, Inverted] = {}
    for page, data in pages.items():
        if page < HEAD:
            inverted = _read_page(opened(_MAGIC, data), head.units)
            if inverted is None:
                return None
            by_page[page] = inverted
    return replace(head, pages=by_page, dead=tuple(dead))


def _read_page(data: bytes | None, units: int) -> Inverted | None:
    if data is None or len(data) < 12:
        return None
    terms, entries, width = np.frombuffer(data, "<u4", 3).tolist()
    if width not in (2, 4) or len(data) != 12 + 8 * terms + (width + 1) * entries:
        return None
    offset = 12 + 8 * terms
    page = Inverted(
        np.frombuffer(data, "<u4", terms, 12),
        np.frombuffer(data, "<u4", terms, 12 + 4 * terms),
        np.frombuffer(data, f"<u{width}", entries, offset),
        np.frombuffer(data, "u1", entries, offset + width * entries),
    )
    # A store's data is not trusted: every position that a number refers to must exist.
    if terms and (page.ends[-1] != entries or (np.diff(page.ends.astype(np.int64)) <= 0).any()):
        return None
    return page if not entries or int(page.units.max()) < units else None


def page_numbers(query: Query) -> set[int]:
    """Return the pages that hold the terms of a question, forms, parts and members."""
    numbers = (
        n for term in query.terms for n in (term.number, *term.forms, *term.parts, *term.members)
    )
    return {number >> _SHIFT for number in numbers}


def candidates(
    parts: Sequence[Part],
    query: Query,
    *,
    sessions: frozenset[str] | None = None,
    between: tuple[int | None, int | None] = (None, None),
) -> tuple[Corpus, tuple[tuple[Part, int], ...]]:
    """Rank the blocks that hold something of a question by their best units, best first.

    Returns the statistics of all units, and each block as its part and its position there. Only
    blocks of ``sessions`` are returned, and only those with a unit ``between`` two times. Neither
    filter changes a score.
    """
    total = sum(part.units for part in parts)
    scores = [np.zeros(part.units, dtype=np.float32) for part in parts]
    sets: list[tuple[tuple[int, ...], float]] = []
    for numbers, weight in rank.term_sets(query):
        matches = [part.find(numbers) for part in parts]
        holding = sum(len(units) for units, _ in matches)
        rare = weight * rank.rarity(total, holding)
        sets.append((numbers, rare))
        if holding:
            step = np.float32(rare * _IMPACT)
            for row, (units, impacts) in zip(scores, matches, strict=True):
                row[units] += step * impacts
    length = sum(part.length for part in parts)
    corpus = max(length, 1) / max(total, 1), sets
    return corpus, _ranked(parts, scores, sessions, between)


def _ranked(
    parts: Sequence[Part],
    scores: Sequence[Array],
    sessions: frozenset[str] | None,
    between: tuple[int | None, int | None],
) -> tuple[tuple[Part, int], ...]:
    """Return the blocks with a unit above 0 that may hold an answer, the best first."""
    since, until = between
    best: list[Array] = []
    for part, row in zip(parts, scores, strict=True):
        most = np.zeros(len(part.members), dtype=np.float32)
        some = np.flatnonzero(part.sizes)
        if len(some):
            starts = np.cumsum(part.sizes) - part.sizes
            most[some] = np.maximum.reduceat(row, starts[some])
        most[list(part.dead)] = 0
        if since is not None:
            most[part.last_at < since] = 0
        if until is not None:
            most[part.first_at >= until] = 0
        if sessions is not None:
            most[[member.session_id not in sessions for member in part.members]] = 0
        best.append(most)
    every = np.concatenate(best)
    order = np.argsort(-every, kind="stable")[: np.count_nonzero(every)].tolist()
    places = [(part, place) for part in parts for place in range(len(part.members))]
    return tuple(places[position] for position in order)


def combined(
    blocks: Iterable[tuple[Member, Postings]], stride: int
) -> tuple[Index, list[tuple[str, int]]]:
    """Make one index over blocks of several sessions, the session with the oldest of them first.

    Each block lies within one ``stride`` of its session's messages. In the index a message has the
    number of its block, times ``stride``, and its place in the block's stride. Returns also the
    session of each block, and the first index of its stride.
    """
    ordered = [(member, postings) for member, postings in blocks if len(postings)]
    if not ordered:
        return Index(join([])), []
    oldest: dict[str, int] = {}
    for member, _ in ordered:
        first = oldest.setdefault(member.session_id, member.first_at)
        oldest[member.session_id] = min(first, member.first_at)
    ordered.sort(key=lambda block: (oldest[block[0].session_id], *block[0][:2]))
    moved: list[Postings] = []
    columns: list[Array] = []
    threads: list[str] = []
    # A thread continues from a block to the one that follows it; elsewhere it is another thread.
    open_threads: dict[str, int] = {}
    before: Member | None = None
    starts: list[tuple[str, int]] = []
    for number, (member, postings) in enumerate(ordered):
        if before is None or (before.session_id, before.stop) != (member.session_id, member.start):
            open_threads = {}
        for name in postings.threads:
            if name not in open_threads:
                open_threads[name] = len(threads)
                threads.append(name)
        start = member.start // stride * stride
        places = np.array([open_threads[name] for name in postings.threads], dtype="<u4")
        columns.append(places[postings.thread])
        message = (postings.message - np.uint32(start)) + np.uint32(number * stride)
        moved.append(replace(postings, message=message))
        starts.append((member.session_id, start))
        before = member
    joined = replace(join(moved), thread=np.concatenate(columns), threads=tuple(threads))
    return Index(joined), starts
