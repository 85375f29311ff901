"""Scores how well each unit of a session answers a question.

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
``forms``) and, if it names a kind, the members of that kind (.7; ``query.members``); each set
counts as one term with its own frequency.

A question addresses a speaker if it contains the name; the user, if it is in the first person; the
assistant, if it asks what "you" said. A question for an overview addresses nobody. For an overview,
and for what the assistant said, the best unit of each reply is raised to the best unit of the
message that it replies to: a summary of a matter needs both sides of the exchange, and a question
about advice is worded like the question that led to the advice. If the user is addressed, the best
unit of each reply gains .4 of the best ``own`` of the message that it replies to, but does not
overtake it: question and answer belong together, and the answer repeats few of the words.

The constants were chosen on LoCoMo and BEAM development chats, where the optimum is flat;
``benchmarks/recall.py`` measures the results.

The index of a session's made summaries, and the boost that their matches give to messages.

A matching summary says where to look, not what was said. Each level is scored by itself, because
its texts are of one length and every level repeats the one below. A summary boosts the units below
it in inverse proportion to their own length, like a window (``ranking``), so that long answers are
scored by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from hiermem.search import postings
from hiermem.search.index import Index
from hiermem.search.postings import (
    ASKS,
    NAMES_TIME,
    SPEAKS_OF_SELF,
    Array,
    Postings,
    collect,
    is_generic,
    join,
)
from hiermem.search.query import Query
from hiermem.text.terms import number, terms
from hiermem.types import ROLES, Message, StoredMessage, Summary

_USER = ROLES.index("user")
_ASSISTANT = ROLES.index("assistant")


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
    window of such units. By vectors, a unit or window without a vector yet is NaN; its score by
    words is used instead. ``weight`` is that of the leg by vectors beside the one by words.
    """

    own: Array
    levels: tuple[Array, ...]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is known of all units of a tenant, where an index has only those of some blocks.

    ``mean`` is how many terms a unit has, and ``sets`` are the sets of terms of one question, each
    with what it weighs by its part in the question and by its rarity.
    """

    mean: float
    sets: tuple[tuple[tuple[int, ...], float], ...]


def score(
    index: Index,
    query: Query,
    *,
    dense: Leg | None = None,
    weights: RankingWeights = WEIGHTS,
    corpus: Corpus | None = None,
) -> tuple[Array, Array, Array]:
    """Return the score of each unit of the index, and whether it matches, and lies near a match.

    Only the order of the scores is meaningful. A unit matches if it contains what is asked for: a
    word, a form or a part of it, or a member of its kind. It lies near a match if it is one or
    shares a window with one. Other units are ranked by their speaker only. How rare a term is,
    ``corpus`` says, if it is given.
    """
    words = lexical(index, query, weights=weights, corpus=corpus)
    own, levels = words.own, list(words.levels)
    matching = own > 0
    nearby = matching.copy()
    for window, value in zip(index.windows, levels, strict=True):
        nearby |= (value > 0)[window]
    legs = 1.0
    if dense is not None:
        own = _joined(own, dense.own, dense.weight)
        levels = [
            _joined(level, seen, dense.weight)
            for level, seen in zip(levels, dense.levels, strict=True)
        ]
        legs += dense.weight
    context = np.zeros(len(index))
    for window, value in zip(index.windows, levels, strict=True):
        context += value[window] / len(levels)
    # Place -1, where there is no neighbour, is the zero at the end.
    padded = np.append(own, 0.0)
    near = padded[index.before] + padded[index.after]
    flags = index.units.flags
    said = (flags & SPEAKS_OF_SELF != 0).astype(np.float64) - (flags & ASKS != 0)
    lone = 1 / (1 + (index.units.whole / weights.lone) ** 2)
    result: Array = own + lone * (weights.context * context + weights.near * near)
    result += legs * weights.who * _addressed(index, query)
    result += legs * weights.said * said
    if query.for_time:
        result += legs * weights.time * (flags & NAMES_TIME != 0)
    if query.overview or query.to_assistant:
        chosen, asked = _replies(index, result, result)
        result[chosen] = np.maximum(result[chosen], asked)
    elif query.first_person:
        # A reply may reach the score of the message that it answers but not pass it.
        chosen, asked = _replies(index, result, own)
        _, most = _replies(index, result, result)
        leaning = np.minimum(result[chosen] + weights.reply * asked, most)
        result[chosen] = np.maximum(result[chosen], leaning)
    return result, matching, nearby


def best(scores: Array, limit: int, *, allowed: Array | None = None) -> Array:
    """Return the ``limit`` best units, best first; of equals, the older first.

    ``allowed`` says which units may be returned.
    """
    places = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed)
    if not len(places) or limit <= 0:
        return places[:0]
    found = scores[places]
    if limit < len(places):
        # All that are as good as the last one returned, so that ties are decided by age.
        least = np.partition(found, len(found) - limit)[len(found) - limit]
        places = places[found >= least]
        found = scores[places]
    return places[np.argsort(-found, kind="stable")][:limit]


# ---------------------------------------------------------------------------------------------
# The lexical leg


def lexical(
    index: Index,
    query: Query,
    *,
    weights: RankingWeights = WEIGHTS,
    corpus: Corpus | None = None,
) -> Leg:
    """Score units and windows by their terms, each scaled to at most 1."""
    own = np.zeros(len(index))
    levels = [np.zeros(len(lengths)) for lengths in index.window_lengths]
    mean = index.length.mean() if len(index) else 1.0
    if corpus is None:
        found = _matching(index, query, weights)
    else:
        mean = corpus.mean
        found = ((*index.find(numbers), weight, 0) for numbers, weight in corpus.sets)
    for rows, counts, weight, total in found:
        if not len(rows):
            continue
        own[rows] += weight * _bm25(counts, index.length[rows] / mean, total, weights)
        for window, lengths, values in zip(
            index.windows, index.window_lengths, levels, strict=True
        ):
            held = np.bincount(window[rows], counts, len(values))
            nodes = np.flatnonzero(held)
            relative = lengths[nodes] / lengths.mean()
            many = len(values) if total else 0
            values[nodes] += weight * _bm25(held[nodes], relative, many, weights)
    return Leg(_scaled(own), tuple(_scaled(values) for values in levels))


def _matching(
    index: Index, query: Query, weights: RankingWeights
) -> Iterator[tuple[Array, Array, float, int]]:
    """Yield for each set of terms the units that hold it, how often, its weight, and all units."""
    for numbers, weight in term_sets(query, weights=weights):
        yield *index.find(numbers), weight, len(index)


def term_sets(
    query: Query, *, weights: RankingWeights = WEIGHTS
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield the sets of terms that are looked for, each with its weight."""
    for term in query.terms:
        weight = term.count * (weights.form if term.of_form else 1.0)
        weight *= weights.asker if term.of_asker else 1.0
        yield (term.number, *term.forms), weight
        for numbers, share in ((term.parts, weights.parts), (term.members, weights.members)):
            if numbers:
                yield numbers, weight * share


def rarity(total: int, holding: int) -> float:
    """Return the weight of a term that so many of all units hold (its inverse frequency)."""
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def _bm25(counts: Array, lengths: Array, total: int, weights: RankingWeights) -> Array:
    """Return BM25 of one term for all units that hold it; ``lengths`` are relative to the mean.

    With a ``total`` of 0 every term is as rare as any other.
    """
    found: Array = saturated(counts, lengths, weights)
    return rarity(total, len(counts)) * found if total else found


def saturated(counts: Array, lengths: Array, weights: RankingWeights = WEIGHTS) -> Array:
    """Return how much the occurrences of a term in a unit of that relative length count."""
    k, b = weights.saturation, weights.length
    found: Array = counts * (k + 1) / (counts + k * (1 - b + b * lengths))
    return found


def _scaled(values: Array) -> Array:
    top = values.max(initial=0.0)
    return values / top if top > 0 else values


# ---------------------------------------------------------------------------------------------
# The other parts


def _joined(lexical: Array, seen: Array, weight: float) -> Array:
    found: Array = lexical + weight * np.where(np.isnan(seen), lexical, seen)
    return found


def _addressed(index: Index, query: Query) -> Array:
    """Return for each unit whether the question addresses its speaker."""
    units = index.units
    named = np.array(
        [
            not is_generic(name) and any(number(term) in query.numbers for term in terms(name))
            for name in units.speakers
        ],
        dtype=bool,
    )
    found = named[units.speaker] if len(units) else np.zeros(0, dtype=bool)
    roles = units.role
    if len(units) and not query.overview and (roles != roles[0]).any():
        if query.to_assistant:
            found |= roles == _ASSISTANT
        elif query.first_person:
            found |= roles == _USER
    return found.astype(np.float64)


def _replies(index: Index, result: Array, value: Array) -> tuple[Array, Array]:
    """Return the best unit of each reply, and the best ``value`` of the message that it answers."""
    rows = np.flatnonzero(index.opener >= 0)
    if not len(rows):
        return rows, np.empty(0)
    message = index.units.message
    starts = np.flatnonzero(np.r_[True, message[1:] != message[:-1]])
    of = np.cumsum(np.r_[0, message[1:] != message[:-1]])
    tops, most = (np.maximum.reduceat(each, starts) for each in (result, value))
    chosen = rows[result[rows] == tops[of[rows]]]
    return chosen, most[of[index.opener[chosen]]]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The postings of one text: the units from ``low`` to ``high`` of a block's."""

    block: Postings
    low: int
    high: int

    @property
    def units(self) -> int:
        """The number of units."""
        return self.high - self.low

    def postings(self) -> Postings:
        """Return the postings of the text alone."""
        block, units = self.block, slice(self.low, self.high)
        if self.units == len(block):
            return block
        columns = {name: getattr(block, name)[units] for name in postings.COLUMNS}
        begin = int(block.sizes[: self.low].sum(dtype=np.int64))
        held = slice(begin, begin + int(block.sizes[units].sum(dtype=np.int64)))
        return replace(block, **columns, terms=block.terms[held], counts=block.counts[held])


#: The postings of texts, by node id and revision number.
SummaryPostings: TypeAlias = Mapping[tuple[str, int], Part]

#: The weight of a summary's score in the score of a unit below it.
BOOST: Final = 0.1
#: The number of best summaries of a level that boost their messages.
_BOOSTERS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class SummaryLevel:
    """The made summaries of one level, by ordinal, with the index of their texts.

    A summary whose postings were stored has no text here: only a hit needs it.
    """

    summaries: tuple[Summary, ...]
    index: Index

    @classmethod
    def of(cls, summaries: Sequence[Summary], parts: Sequence[Part]) -> SummaryLevel:
        """Build a level of summaries with the postings of each."""
        index = Index(_joined_summary_index(parts))
        places = np.repeat(np.arange(len(parts)), [part.units for part in parts])
        # A summary counts as a whole: one window each, however many passages it has.
        index.windows = (places,)
        index.window_lengths = (np.bincount(places, index.length, len(parts)),)
        return cls(tuple(summaries), index)

    def ask(self, query: Query) -> Array:
        """Return each summary's score from 0, for no match, to 1."""
        if not len(self.index):
            return np.zeros(len(self.summaries))
        return lexical(self.index, query).levels[0]


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

    def refreshed(self, summaries: Sequence[Summary], kept: SummaryPostings) -> SummaryIndex:
        """Return an index of exactly these summaries, which are made, by level and ordinal.

        ``kept`` are postings that were stored before. A summary without any has its text.
        """
        parts: dict[tuple[str, int], Part] = {}
        by_level: dict[int, tuple[list[Summary], list[tuple[str, int]]]] = {}
        for each in summaries:
            name = name_of(each)
            parts[name] = self.parts.get(name) or kept.get(name) or _read(each)
            held, names = by_level.setdefault(each.level, ([], []))
            held.append(each)
            names.append(name)
        levels = {}
        for level, (held, names) in by_level.items():
            known = self.levels.get(level)
            same = known is not None and list(map(name_of, known.summaries)) == names
            if known and same:
                levels[level] = SummaryLevel(tuple(held), known.index)
            else:
                levels[level] = SummaryLevel.of(held, [parts[name] for name in names])
        return SummaryIndex(levels, parts)


def postings_of(summaries: Iterable[Summary]) -> SummaryPostings:
    """Read the texts of summaries into postings."""
    return {name_of(each): _read(each) for each in summaries}


def name_of(summary: Summary) -> tuple[str, int]:
    """Return the node id and the revision number of a summary's text."""
    return summary.node.id, summary.node.revision


def _read(summary: Summary) -> Part:
    message = Message.assistant(summary.text, created_at=summary.created_at)
    stored = StoredMessage(index=summary.node.ordinal, message=message, tokens=0, size=0, hash="")
    read = collect([stored], _roughly)
    return Part(read, 0, len(read))


def _joined_summary_index(parts: Iterable[Part]) -> Postings:
    """Join texts; those that follow each other in one block are taken from it together."""
    rows: list[Part] = []
    for part in parts:
        last = rows[-1] if rows else None
        if last is not None and last.block is part.block and last.high == part.low:
            rows[-1] = Part(last.block, last.low, part.high)
        else:
            rows.append(part)
    return join([row.postings() for row in rows])


def _roughly(text: str) -> int:
    """Estimate tokens; here they only decide where a text is cut into passages."""
    return len(text) // 4


# ---------------------------------------------------------------------------------------------
# Blocks

_MAGIC: Final = b"hmR1"


def pack(parts: SummaryPostings) -> bytes:
    """Write the postings of one level with the revisions that they belong to, by rising ordinal."""
    sizes = [(*name, part.units) for name, part in parts.items()]
    return postings.titled(_MAGIC, sizes, postings.pack(_joined_summary_index(parts.values())))


def unpack(data: bytes) -> SummaryPostings:
    """Read a block; nothing if it is damaged."""
    try:
        title, block = postings.untitled(_MAGIC, data)
        names = [(str(a), int(b), int(c)) for a, b, c in title]
    except (ValueError, TypeError, RecursionError):
        return {}
    whole = postings.unpack(block)
    if whole is None or sum(many for *_, many in names) != len(whole):
        return {}
    found: dict[tuple[str, int], Part] = {}
    low = 0
    for node, revision, many in names:
        found[node, revision] = Part(whole, low, low + many)
        low += many
    return found


# ---------------------------------------------------------------------------------------------
# Lending


def boost(index: Index, row: SummaryLevel, scores: Array) -> Array:
    """Return for each unit the best score among the summaries of the level that cover it."""
    found = np.zeros(len(index))
    many = min(_BOOSTERS, len(scores))
    best = np.argsort(-scores, kind="stable")[:many]
    for place in best[scores[best] > 0].tolist():
        summary = row.summaries[place]
        inside = index.covered(summary.span, summary.thread)
        found[inside] = np.maximum(found[inside], scores[place])
    lone: Array = 1 / (1 + (index.units.whole / WEIGHTS.lone) ** 2)
    return found * lone
