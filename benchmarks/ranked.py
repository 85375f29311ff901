"""Ways to rank the passages of a conversation, all over the same passages and packed alike.

They complement what ``recall.py`` measures through the public library: only the order in which
passages are taken differs. ``formula`` is hiermem's own ranking with constants that may be changed,
which is what tuning needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import patch

import numpy as np
from conversations import Chat, Question
from minilm import MiniLM
from rivals import RIVALS, Search

from hiermem.search import evidence, rank, vectors
from hiermem.search.index import Array, Index, collect, spoken
from hiermem.search.query import read_query
from hiermem.search.rank import WEIGHTS, RankingWeights
from hiermem.text import measure
from hiermem.tokens import default_counter
from hiermem.types import StoredMessage

__all__ = [
    "BUDGETS",
    "Found",
    "IndexedChat",
    "Way",
    "bm25",
    "formula",
    "measured",
    "nearest",
    "newest",
]
__all__ += ["rivals"]

BUDGETS = (500, 1_000, 2_000, 4_000, 8_000)


@dataclass(frozen=True)
class Found:
    """For one question and each budget, the evidence that was found."""

    chat: Chat
    question: Question
    found: tuple[frozenset[int], ...]


class IndexedChat:
    """A chat with its index, its vectors if there are any, and what showing each unit costs."""

    def __init__(self, chat: Chat, model: MiniLM | None) -> None:
        self.chat = chat
        count = default_counter().count
        stored = [
            StoredMessage(index=i, message=message, tokens=0, size=0, hash="")
            for i, message in enumerate(chat.messages)
        ]
        self.index = Index(collect(stored, count))
        units = self.index.units
        self.queries = [read_query(question.text) for question in chat.questions]
        labels = np.array([count(f"{name}: ") + 1 for name in units.speakers])
        self.cost = units.tokens + labels[units.speaker]
        sittings = int(self.index.sitting.max()) + 1
        self.header = np.full(sittings, count("[2024-12-31]\n"))
        self.vectors: vectors.Vectors | None = None
        self.asked: Array | None = None
        if model is not None:
            bodies = [measure.body(message) for message in chat.messages]
            places = zip(units.speaker, units.message, units.begin, units.end, strict=True)
            self.texts = [spoken(units.speakers[s], bodies[m][b:e]) for s, m, b, e in places]
            rows = model.vectors(self.texts)
            self.vectors = vectors.Vectors.none(rows.shape[1]).extended(self.index, [(0, rows)])
            self.asked = model.vectors([question.text for question in chat.questions])

    def found(self, number: int, scores: Array) -> Found:
        """Pack each budget with the best of ``scores`` and see what evidence is in it."""
        question = self.chat.questions[number]
        found = []
        for budget in BUDGETS:
            units = evidence.pack(
                rank.best(scores, evidence.candidates(budget)),
                budget,
                cost=self.cost,
                sitting=self.index.sitting,
                header=self.header,
            )
            held = set(self.index.units.message[units].tolist())
            found.append(frozenset(question.evidence & held))
        return Found(self.chat, question, tuple(found))


Way = Callable[[IndexedChat, int], Array]


def measured(indexed_chats: Sequence[IndexedChat], way: Way) -> list[Found]:
    """Ask every question of every chat."""
    return [
        indexed.found(number, way(indexed, number))
        for indexed in indexed_chats
        for number in range(len(indexed.chat.questions))
    ]


def newest(indexed: IndexedChat, _number: int) -> Array:
    """Rank by time alone: what a sliding window shows."""
    return np.arange(len(indexed.index), dtype=float)


def bm25(indexed: IndexedChat, number: int) -> Array:
    """BM25 of each unit by itself: no windows, neighbours, replies, speakers or kinds."""
    plain = replace(WEIGHTS, form=1, asker=1, parts=0, members=0, context=0, near=0)
    plain = replace(plain, who=0, said=0, reply=0)
    query = replace(indexed.queries[number], overview=False, to_assistant=False)
    with patch.object(rank, "WEIGHTS", plain):
        return rank.score(indexed.index, query)[0]


def nearest(indexed: IndexedChat, number: int) -> Array:
    """Rank by cosine alone: what most memory libraries return."""
    assert indexed.vectors is not None
    assert indexed.asked is not None
    return indexed.vectors.rows @ indexed.asked[number]


def formula(
    indexed: IndexedChat, number: int, weights: RankingWeights = WEIGHTS, *, dense: bool
) -> Array:
    """Rank as hiermem does where nothing is summarised, with vectors or without."""
    seen = None
    if dense:
        assert indexed.vectors is not None
        assert indexed.asked is not None
        seen = vectors.compare(indexed.index, indexed.vectors, indexed.asked[number])
    with patch.object(rank, "WEIGHTS", weights):
        return rank.score(indexed.index, indexed.queries[number], dense=seen)[0]


def rivals(indexed_chats: Sequence[IndexedChat]) -> dict[str, Way]:
    """Return a way to rank for each other library that is installed."""
    found: dict[str, Way] = {}
    for name, make in RIVALS.items():
        try:
            searches = {
                id(indexed): make(indexed.texts, indexed.vectors.rows)
                for indexed in indexed_chats
                if indexed.vectors is not None
            }
        except ImportError:
            continue
        found[name] = partial(_by_rival, searches)
    return found


def _by_rival(searches: dict[int, Search], indexed: IndexedChat, number: int) -> Array:
    assert indexed.asked is not None
    wanted = evidence.candidates(BUDGETS[-1])
    places = searches[id(indexed)](
        indexed.chat.questions[number].text, indexed.asked[number], wanted
    )
    scores = np.full(len(indexed.index), -np.inf)
    scores[places] = -np.arange(len(places))
    return scores
