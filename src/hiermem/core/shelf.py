"""The made summaries of a session, ready to be asked, and what their matches lend to messages.

The one rule: a summary that matches says where to look, not what was said. Each level is scored by
itself, since its texts are of one length and retell one another level by level. A summary lends its
score to the units below it in inverse proportion to their own length, like a window (``ranking``),
so that long answers stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hiermem.core import ranking
from hiermem.core.inverted import Index, Level
from hiermem.core.postings import Array, Postings, collect, join
from hiermem.core.query import Query
from hiermem.core.ranking import WEIGHTS
from hiermem.types import Message, StoredMessage, Summary

__all__ = ["LENT", "Row", "Shelf", "lent"]

#: What a summary's score counts for in the score of a unit below it.
LENT: Final = 0.1
#: So many of the best summaries of a level lend.
_LENDERS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The made summaries of one level, by ordinal, with the index of their texts."""

    summaries: tuple[Summary, ...]
    index: Index

    @classmethod
    def of(cls, summaries: Sequence[Summary], parts: Sequence[Postings]) -> Row:
        """Put summaries with what ``read`` found in each on one row."""
        index = Index(join(parts))
        places = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        # A summary counts as a whole: one window each, however many passages it has.
        index.levels = (Level(places, np.bincount(places, index.length, len(parts))),)
        return cls(tuple(summaries), index)

    def ask(self, query: Query) -> Array:
        """Give each summary's score from 0, for none of what was asked, to 1."""
        if not len(self.index):
            return np.zeros(len(self.summaries))
        return ranking.lexical(self.index, query).levels[0]


class Shelf:
    """The rows of a session by level.

    ``parts`` are what was read of each text, by node and revision, so that a text is read once.
    """

    def __init__(self, rows: Mapping[int, Row], parts: Mapping[tuple[str, int], Postings]) -> None:
        self.rows = dict(rows)
        self.parts = dict(parts)

    @property
    def nbytes(self) -> int:
        """Give about how many bytes the rows take."""
        texts = sum(len(summary.text) for row in self.rows.values() for summary in row.summaries)
        return 2 * texts + sum(2 * row.index.nbytes for row in self.rows.values())

    def wants(self, summaries: Iterable[Summary]) -> list[Summary]:
        """Give those of ``summaries`` whose text was not read yet."""
        return [each for each in summaries if _name(each) not in self.parts]

    def restocked(self, summaries: Sequence[Summary], count: Callable[[str], int]) -> Shelf:
        """Give the shelf with exactly these summaries, which are made, by level and ordinal."""
        parts = {
            _name(each): self.parts.get(_name(each)) or _read(each, count) for each in summaries
        }
        by_level: dict[int, list[Summary]] = {}
        for each in summaries:
            by_level.setdefault(each.level, []).append(each)
        rows = {}
        for level, held in by_level.items():
            known = self.rows.get(level)
            same = known is not None and list(map(_name, known.summaries)) == list(map(_name, held))
            if known and same:
                rows[level] = Row(tuple(held), known.index)
            else:
                rows[level] = Row.of(held, [parts[_name(each)] for each in held])
        return Shelf(rows, parts)


def _name(summary: Summary) -> tuple[str, int]:
    return summary.id, summary.node.revision


def _read(summary: Summary, count: Callable[[str], int]) -> Postings:
    told = Message.assistant(summary.text, created_at=summary.created_at)
    return collect(
        [StoredMessage(index=summary.node.ordinal, message=told, tokens=0, size=0, hash="")], count
    )


def lent(index: Index, row: Row, scores: Array) -> Array:
    """Give each unit the best score among the summaries of the row that cover it."""
    units = index.units
    found = np.zeros(len(index))
    many = min(_LENDERS, len(scores))
    best = np.argsort(-scores, kind="stable")[:many]
    for place in best[scores[best] > 0].tolist():
        summary = row.summaries[place]
        inside = slice(*np.searchsorted(units.message, (summary.span.start, summary.span.stop)))
        if summary.thread is None:
            found[inside] = np.maximum(found[inside], scores[place])
        elif summary.thread in units.threads:
            own = units.thread[inside] == units.threads.index(summary.thread)
            found[inside] = np.where(own, np.maximum(found[inside], scores[place]), found[inside])
    lone: Array = 1 / (1 + (units.whole / WEIGHTS.lone) ** 2)
    return found * lone
