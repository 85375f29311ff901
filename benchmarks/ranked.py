"""Ways to rank the passages of a conversation, all over the same passages and packed alike.

They stand beside what ``recall.py`` measures through the public library: only the order in which
passages are taken differs. ``formula`` is hiermem's own ranking with constants that may be changed,
which is what tuning needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from conversations import Chat, Question
from minilm import MiniLM
from rivals import RIVALS, Search

from hiermem.core.search import packing, ranking, vectors
from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array, collect, spoken
from hiermem.core.search.query import read_query
from hiermem.core.search.ranking import WEIGHTS, RankingWeights
from hiermem.core.text import measure
from hiermem.tokens import default_counter
from hiermem.types import StoredMessage

__all__ = ["BUDGETS", "Desk", "Found", "Way", "bm25", "formula", "measured", "nearest", "newest"]
__all__ += ["rivals"]

BUDGETS = (500, 1_000, 2_000, 4_000, 8_000)


@dataclass(frozen=True)
class Found:
    """For one question and each budget, the evidence that was found."""

    chat: Chat
    question: Question
    found: tuple[frozenset[int], ...]


class Desk:
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
            self.vectors = vectors.Vectors.of(self.index, [(0, rows)], dimension=rows.shape[1])
            self.asked = model.vectors([question.text for question in chat.questions])

    def found(self, number: int, scores: Array) -> Found:
        """Pack each budget with the best of ``scores`` and see what evidence is in it."""
        question = self.chat.questions[number]
        found = []
        for budget in BUDGETS:
            units = packing.pack(
                ranking.best(scores, packing.candidates(budget)),
                budget,
                cost=self.cost,
                sitting=self.index.sitting,
                header=self.header,
            )
            held = set(self.index.units.message[units].tolist())
            found.append(frozenset(question.evidence & held))
        return Found(self.chat, question, tuple(found))


Way = Callable[[Desk, int], Array]


def measured(desks: Sequence[Desk], way: Way) -> list[Found]:
    """Ask every question of every desk."""
    return [
        desk.found(number, way(desk, number))
        for desk in desks
        for number in range(len(desk.chat.questions))
    ]


def newest(desk: Desk, _number: int) -> Array:
    """Rank by time alone: what a sliding window shows."""
    return np.arange(len(desk.index), dtype=float)


def bm25(desk: Desk, number: int) -> Array:
    """BM25 of each unit by itself: no windows, neighbours, replies, speakers or kinds."""
    plain = replace(WEIGHTS, form=1, asker=1, synonyms=0, members=0, context=0, near=0)
    plain = replace(plain, who=0, said=0, reply=0)
    query = replace(desk.queries[number], overview=False, to_assistant=False)
    return ranking.score(desk.index, query, weights=plain).total


def nearest(desk: Desk, number: int) -> Array:
    """Rank by cosine alone: what most memory libraries return."""
    assert desk.vectors is not None
    assert desk.asked is not None
    return desk.vectors.rows @ desk.asked[number]


def formula(desk: Desk, number: int, weights: RankingWeights = WEIGHTS, *, dense: bool) -> Array:
    """Rank as hiermem does where nothing is summarised, with vectors or without."""
    seen = None
    if dense:
        assert desk.vectors is not None
        assert desk.asked is not None
        seen = vectors.compare(desk.index, desk.vectors, desk.asked[number])
    return ranking.score(desk.index, desk.queries[number], dense=seen, weights=weights).total


def rivals(desks: Sequence[Desk]) -> dict[str, Way]:
    """Give a way to rank for each other library that is installed."""
    found: dict[str, Way] = {}
    for name, make in RIVALS.items():
        try:
            searches = {
                id(desk): make(desk.texts, desk.vectors.rows)
                for desk in desks
                if desk.vectors is not None
            }
        except ImportError:
            continue
        found[name] = partial(_by_rival, searches)
    return found


def _by_rival(searches: dict[int, Search], desk: Desk, number: int) -> Array:
    assert desk.asked is not None
    wanted = packing.candidates(BUDGETS[-1])
    places = searches[id(desk)](desk.chat.questions[number].text, desk.asked[number], wanted)
    scores = np.full(len(desk.index), -np.inf)
    scores[places] = -np.arange(len(places))
    return scores
