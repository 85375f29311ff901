"""Decides which summaries match a question, and how far their matches raise the messages below.

A matching summary says where to look, not what was said. Each level is scored by itself, because
its texts are of one length and every level repeats the one below. A summary boosts the units below
it in inverse proportion to their own length, like a window (``rank``), so that long answers are
scored by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from hiermem.search import rank
from hiermem.search.index import (
    COLUMNS,
    Array,
    Index,
    Postings,
    collect,
    join,
    pack,
    titled,
    unpack,
    untitled,
)
from hiermem.search.query import Query
from hiermem.search.rank import WEIGHTS
from hiermem.types import Message, StoredMessage, Summary

#: The postings of texts, by node id and revision number.
SummaryPostings: TypeAlias = Mapping[tuple[str, int], Postings]

#: The weight of a summary's score in the score of a unit below it.
BOOST: Final = 0.1
#: How many of the best summaries of a level boost their messages.
_BOOSTERS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class SummaryLevel:
    """The made summaries of one level, by ordinal, with the index of their texts.

    A summary whose postings were stored has no text here: only a hit needs it.
    """

    summaries: tuple[Summary, ...]
    index: Index

    @classmethod
    def of(cls, summaries: Sequence[Summary], parts: Sequence[Postings]) -> SummaryLevel:
        """Build a level from summaries and the postings of each."""
        index = Index(join(parts))
        places = np.repeat(np.arange(len(parts)), list(map(len, parts)))
        # A summary counts as a whole: one window each, however many passages it has.
        index.windows = (places,)
        index.window_lengths = (np.bincount(places, index.length, len(parts)),)
        return cls(tuple(summaries), index)

    def ask(self, query: Query) -> Array:
        """Return each summary's score from 0, for no match, to 1."""
        if not len(self.index):
            return np.zeros(len(self.summaries))
        return rank.lexical(self.index, query).levels[0]


@dataclass(frozen=True, slots=True, eq=False)
class SummaryIndex:
    """The summaries of a session by level.

    ``parts`` are the postings of each text, by node and revision, so that a text is read once.
    """

    levels: Mapping[int, SummaryLevel] = field(default_factory=dict)
    parts: SummaryPostings = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the levels in bytes."""
        texts = sum(summary.tokens for row in self.levels.values() for summary in row.summaries)
        return 8 * texts + sum(2 * row.index.nbytes for row in self.levels.values())

    def refreshed(self, summaries: Sequence[Summary], stored: SummaryPostings) -> SummaryIndex:
        """Return an index of exactly these summaries, which are made, by level and ordinal.

        ``stored`` are postings that were stored before. A summary without any has its text.
        """
        parts: dict[tuple[str, int], Postings] = {}
        by_level: dict[int, tuple[list[Summary], list[tuple[str, int]]]] = {}
        for summary in summaries:
            name = name_of(summary)
            parts[name] = self.parts.get(name) or stored.get(name) or _read(summary)
            group, group_names = by_level.setdefault(summary.level, ([], []))
            group.append(summary)
            group_names.append(name)
        levels = {}
        for level, (group, group_names) in by_level.items():
            current = self.levels.get(level)
            unchanged = current is not None and list(map(name_of, current.summaries)) == group_names
            if current and unchanged:
                levels[level] = SummaryLevel(tuple(group), current.index)
            else:
                levels[level] = SummaryLevel.of(group, [parts[name] for name in group_names])
        return SummaryIndex(levels, parts)


def name_of(summary: Summary) -> tuple[str, int]:
    """Return the node id and the revision number of a summary's text."""
    return summary.node.id, summary.node.revision


def _read(summary: Summary) -> Postings:
    message = Message.assistant(summary.text, created_at=summary.created_at)
    stored = StoredMessage(index=summary.node.ordinal, message=message, tokens=0, size=0, hash="")
    return collect([stored], _roughly)


def _roughly(text: str) -> int:
    """Estimate tokens; here they only decide where a text is cut into passages."""
    return len(text) // 4


_MAGIC: Final = b"hmR1"


def pack_texts(parts: SummaryPostings) -> bytes:
    """Write the postings of one level with the revisions that they belong to, by rising ordinal."""
    sizes = [(*name, len(part)) for name, part in parts.items()]
    return titled(_MAGIC, sizes, pack(join([*parts.values()])))


def unpack_texts(data: bytes) -> SummaryPostings:
    """Read a block; {} if it is damaged."""
    try:
        title, block = untitled(_MAGIC, data)
        names = [(str(a), int(b), int(c)) for a, b, c in title]
    except (ValueError, TypeError, RecursionError):
        return {}
    whole = unpack(block)
    if whole is None or sum(units for *_, units in names) != len(whole):
        return {}
    parts: dict[tuple[str, int], Postings] = {}
    low = begin = 0
    for node, number, units in names:
        rows = slice(low, low + units)
        entries = slice(begin, begin + int(whole.sizes[rows].sum(dtype=np.int64)))
        columns = {name: getattr(whole, name)[rows] for name in COLUMNS}
        parts[node, number] = replace(
            whole, **columns, terms=whole.terms[entries], counts=whole.counts[entries]
        )
        low, begin = rows.stop, entries.stop
    return parts


def boost(index: Index, row: SummaryLevel, scores: Array) -> Array:
    """Return for each unit the best score among the summaries of the level that cover it."""
    boosts = np.zeros(len(index))
    many = min(_BOOSTERS, len(scores))
    best = np.argsort(-scores, kind="stable")[:many]
    for position in best[scores[best] > 0].tolist():
        summary = row.summaries[position]
        inside = index.covered(summary.span, summary.thread)
        boosts[inside] = np.maximum(boosts[inside], scores[position])
    lone: Array = 1 / (1 + (index.units.whole / WEIGHTS.lone) ** 2)
    return boosts * lone
