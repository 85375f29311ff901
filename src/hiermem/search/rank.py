"""Decides how well each unit of a session answers a question.

A score is a function of the index, the question and the cosines alone, so every store and every
process ranks alike. Filters and budgets come later and never change a score.

For unit i with the terms of its text, its speaker's name and its date:

    own_i     = bm25_i / max bm25  [+ w * cosine_i, scaled to 0..1]
    level_n   = the same for each window, from the summed terms [and the mean vector] of its units
    context_i = mean over the window sizes of i's window
    near_i    = own of the unit before + own of the unit after, in the same sitting
    lone_i    = 1 / (1 + (m_i / 130) ** 2)            m_i: tokens of the whole message
    who_i     = 1 if the question addresses i's speaker
    said_i    = (i holds a first-person word) - (i ends as a question)
    time_i    = 1 if the question asks when, and i names a time
    score_i   = own_i + lone_i * (.7 * context_i + .3 * near_i)
                + legs * (.3 * who_i + .1 * said_i + .1 * time_i)

The score of a short turn includes its surroundings, a long answer is scored by itself; this lets
one default serve both. ``legs`` is 1, and 1 + w with vectors. BM25 (Robertson and Zaragoza 2009)
has k1 = .8, b = .75 and the statistics of the session. Words of the question about the form of the
answer ("list", "summary") weigh .3, and those about whose matter it is ("I", "our") .6; being rare,
they would otherwise outweigh the subject. A word also matches parts of words (.4;
``query.looked_for``) and, if it names a kind, the members of that kind (.7; ``query.members``);
each set counts as one term with its own frequency.

A question addresses a speaker if it contains the name; the user, if it is in the first person; the
assistant, if it asks what "you" said. A question for an overview addresses nobody. For an overview,
and for what the assistant said, the best unit of each reply is raised to the best unit of the
message that it replies to: a summary of a matter needs both sides of the exchange, and a question
about advice is worded like the question that led to the advice. If the user is addressed, the best
unit of each reply gains .4 of the best ``own`` of the message that it replies to, but does not
overtake it: question and answer belong together, and the answer repeats few of the words.

The constants were chosen on LoCoMo and BEAM development chats, where the optimum is flat;
``benchmarks/recall.py`` measures the results.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

import numpy as np

from hiermem.search.index import (
    ASKS,
    NAMES_TIME,
    SPEAKS_OF_SELF,
    Array,
    Index,
    Postings,
    is_generic,
    term_lists,
)
from hiermem.search.query import Query
from hiermem.text.terms import number, terms
from hiermem.types import ROLES

_USER = ROLES.index("user")
_ASSISTANT = ROLES.index("assistant")
#: Two units that share this part of their terms say the same; very short ones may by chance.
_ALIKE: Final = 0.9
_LEAST_TERMS: Final = 6


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The constants of the formula above."""

    saturation: float = 0.8
    length: float = 0.75
    form: float = 0.3
    asker: float = 0.6
    parts: float = 0.4
    members: float = 0.7
    context: float = 0.7
    near: float = 0.3
    lone: float = 130.0
    who: float = 0.3
    said: float = 0.1
    time: float = 0.1
    reply: float = 0.4


WEIGHTS = RankingWeights()


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """The scores by words or by vectors: for each unit, and for each window of each level.

    They are from 0 to 1. By words, a unit that contains nothing of the question has 0, and so has a
    window of such units. By vectors, a unit or window without a vector yet is NaN, and its score
    by words is used. ``weight`` is that of the leg by vectors beside the one by words.
    """

    own: Array
    levels: tuple[Array, ...]
    weight: float = 1.0


#: Statistics over all units of a tenant, for an index that has only some blocks of them: how many
#: terms a unit has on average; and the sets of terms of one question, each with its weight by its
#: part in the question and by its rarity.
Corpus: TypeAlias = tuple[float, Sequence[tuple[tuple[int, ...], float]]]


def score(
    index: Index,
    query: Query,
    *,
    dense: Leg | None = None,
    corpus: Corpus | None = None,
) -> tuple[Array, Array, Array]:
    """Return the score of each unit of the index, and whether it matches, and lies near a match.

    Only the order of the scores is meaningful. A unit matches if it contains what is asked for: a
    word, a form or a part of it, or a member of its kind. It lies near a match if it is one or
    shares a window with one. Other units are ranked by their speaker only. ``corpus`` gives the
    rarity of terms; without it, the index does.
    """
    words = lexical(index, query, corpus=corpus)
    own, levels = words.own, list(words.levels)
    matching = own > 0
    nearby = matching.copy()
    for window, value in zip(index.windows, levels, strict=True):
        nearby |= (value > 0)[window]
    legs = 1.0
    if dense is not None:
        own = _combined(own, dense.own, dense.weight)
        levels = [
            _combined(level, seen, dense.weight)
            for level, seen in zip(levels, dense.levels, strict=True)
        ]
        legs += dense.weight
    context = np.zeros(len(index))
    for window, value in zip(index.windows, levels, strict=True):
        context += value[window] / len(levels)
    # A unit without a neighbour has -1 there, which is the zero at the end.
    padded = np.append(own, 0.0)
    near = padded[index.before] + padded[index.after]
    flags = index.units.flags
    said = (flags & SPEAKS_OF_SELF != 0).astype(np.float64) - (flags & ASKS != 0)
    lone = 1 / (1 + (index.units.whole / WEIGHTS.lone) ** 2)
    result: Array = own + lone * (WEIGHTS.context * context + WEIGHTS.near * near)
    result += legs * WEIGHTS.who * _addressed(index, query)
    result += legs * WEIGHTS.said * said
    if query.for_time:
        result += legs * WEIGHTS.time * (flags & NAMES_TIME != 0)
    if query.overview or query.to_assistant:
        chosen, asked = _replies(index, result, result)
        result[chosen] = np.maximum(result[chosen], asked)
    elif query.first_person:
        # A reply may reach the score of the message that it answers but not pass it.
        chosen, asked = _replies(index, result, own)
        _, most = _replies(index, result, result)
        leaning = np.minimum(result[chosen] + WEIGHTS.reply * asked, most)
        result[chosen] = np.maximum(result[chosen], leaning)
    return result, matching, nearby


def best(scores: Array, limit: int, *, allowed: Array | None = None) -> Array:
    """Return the ``limit`` best units, best first; of equals, the older ones first.

    ``allowed`` says which units may be returned.
    """
    places = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed)
    if 0 < limit < len(places):
        # Keep all units as good as the last one returned, so that age decides ties.
        cut = len(places) - limit
        places = places[scores[places] >= np.partition(scores[places], cut)[cut]]
    return places[np.argsort(-scores[places], kind="stable")][: max(0, limit)]


def lexical(index: Index, query: Query, *, corpus: Corpus | None = None) -> Leg:
    """Score units and windows by their terms, each scaled to at most 1."""
    own = np.zeros(len(index))
    levels = [np.zeros(len(lengths)) for lengths in index.window_lengths]
    mean = index.length.mean() if len(index) else 1.0
    mean, sets = (mean, term_sets(query)) if corpus is None else corpus
    # With statistics of all, the weights hold how rare the terms are.
    total = len(index) if corpus is None else 0
    for numbers, weight in sets:
        rows, counts = index.find(numbers)
        if not len(rows):
            continue
        own[rows] += weight * _bm25(counts, index.length[rows] / mean, total)
        for window, lengths, values in zip(
            index.windows, index.window_lengths, levels, strict=True
        ):
            occurrences = np.bincount(window[rows], counts, len(values))
            nodes = np.flatnonzero(occurrences)
            relative = lengths[nodes] / lengths.mean()
            many = len(values) if total else 0
            values[nodes] += weight * _bm25(occurrences[nodes], relative, many)
    return Leg(_scaled(own), tuple(_scaled(values) for values in levels))


def term_sets(query: Query) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield the sets of terms that a question looks for, each with its weight."""
    for term in query.terms:
        weight = term.count * (WEIGHTS.form if term.of_form else 1.0)
        weight *= WEIGHTS.asker if term.of_asker else 1.0
        yield (term.number, *term.forms), weight
        for numbers, share in ((term.parts, WEIGHTS.parts), (term.members, WEIGHTS.members)):
            if numbers:
                yield numbers, weight * share


def rarity(total: int, holding: int) -> float:
    """Return the inverse frequency of a term that ``holding`` of ``total`` units contain."""
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def saturated(counts: Array, lengths: Array) -> Array:
    """Return how much the occurrences of a term in a unit of that relative length count."""
    k, b = WEIGHTS.saturation, WEIGHTS.length
    frequency: Array = counts * (k + 1) / (counts + k * (1 - b + b * lengths))
    return frequency


def _bm25(counts: Array, lengths: Array, total: int) -> Array:
    """Return BM25 of one term for all units that hold it; ``lengths`` are relative to the mean.

    With a ``total`` of 0 every term is as rare as any other.
    """
    frequency: Array = saturated(counts, lengths)
    return rarity(total, len(counts)) * frequency if total else frequency


def _scaled(values: Array) -> Array:
    top = values.max(initial=0.0)
    return values / top if top > 0 else values


def _combined(lexical: Array, seen: Array, weight: float) -> Array:
    combined: Array = lexical + weight * np.where(np.isnan(seen), lexical, seen)
    return combined


def _addressed(index: Index, query: Query) -> Array:
    """Return for each unit whether the question addresses its speaker."""
    units = index.units
    named = [not name.isdisjoint(query.numbers) for name in names_of(units)]
    addressed = np.array(named, dtype=bool)[units.speaker] if len(units) else np.zeros(0, bool)
    roles = units.role
    if len(units) and not query.overview and (roles != roles[0]).any():
        if query.to_assistant:
            addressed |= roles == _ASSISTANT
        elif query.first_person:
            addressed |= roles == _USER
    return addressed.astype(np.float64)


def names_of(units: Postings) -> list[set[int]]:
    """Return the numbers of the terms of each speaker's name; the name of a role has none."""
    return [set() if is_generic(name) else set(map(number, terms(name))) for name in units.speakers]


def _replies(index: Index, result: Array, value: Array) -> tuple[Array, Array]:
    """Return the best unit of each reply, and the best ``value`` of the message that it answers."""
    rows = np.flatnonzero(index.opener >= 0)
    if not len(rows):
        return rows, np.empty(0)
    message = index.units.message
    starts = np.flatnonzero(np.r_[True, message[1:] != message[:-1]])
    of = np.cumsum(np.r_[0, message[1:] != message[:-1]])
    tops, most = (np.maximum.reduceat(column, starts) for column in (result, value))
    chosen = rows[result[rows] == tops[of[rows]]]
    return chosen, most[of[index.opener[chosen]]]


def distinct(index: Index, ranked: Sequence[int] | Array, *, most: int) -> list[int]:
    """Keep the first ``most`` units of ``ranked`` (best first) that repeat no unit before them.

    Two units repeat one another if their terms are nearly the same, whoever says them and whenever,
    as long as date and name are a small part of their terms. Two such sets share one of their
    first terms in any fixed order (prefix filtering: Chaudhuri, Ganti and Kaushik 2006); with the
    rarest terms first, few pairs have to be compared.
    """
    chosen: list[int] = []
    wanted = np.asarray(ranked, dtype=np.int64)
    holding: dict[int, list[frozenset[int]]] = {}
    numbers_of = term_lists(index.units, wanted)
    shared = Counter(chain.from_iterable(numbers_of))
    for unit, numbers in zip(wanted.tolist(), numbers_of, strict=True):
        if len(chosen) >= most:
            break
        # Other forms of its words make a text no longer.
        if min(len(numbers), int(index.units.length[unit])) >= _LEAST_TERMS:
            unit_terms = frozenset(numbers)
            rarest = sorted(numbers, key=lambda number: (shared[number], number))
            first = rarest[: len(rarest) - math.ceil(_ALIKE * len(rarest)) + 1]
            if any(_alike(unit_terms, other) for term in first for other in holding.get(term, ())):
                continue
            for term in first:
                holding.setdefault(term, []).append(unit_terms)
        chosen.append(unit)
    return chosen


def _alike(first: frozenset[int], other: frozenset[int]) -> bool:
    smaller, larger = sorted((len(first), len(other)))
    # Sets of too different a size are skipped: their overlap cannot be large enough.
    return smaller >= _ALIKE * larger and len(first & other) >= _ALIKE * len(first | other)
