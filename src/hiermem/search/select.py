"""Runs a query against the index and the summaries of a session, and selects the results.

Nothing unrelated to the question is returned. A hit contains a word of the question (or, with
vectors, is close to it); evidence may also be adjacent to such a hit. A search returns only the
best passage of a message, and the best of several passages that say the same.

The score of the best hit says how much of the question was found: the share of its words, each by
how rare it is, that one passage holds. Where the question names a speaker, only passages of that
speaker count, and the name itself does not: who asks what Ada said is not answered by Ben's words.
The other scores are in relation to the best one.

Decides which messages and summaries a search may return.

A filter only excludes and never changes a score. Within one filter any of its values is enough;
several filters must all be met. A message has the tags and entities of the summary of its window. A
summary never meets a filter on something that only messages have, such as a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypedDict

import numpy as np

from hiermem import arguments
from hiermem.errors import UsageError
from hiermem.search import postings, ranking
from hiermem.search.evidence import HEADER, around, candidates, distinct, fill
from hiermem.search.index import Hit, Index
from hiermem.search.postings import Array, frame_of
from hiermem.search.query import Query, QueryTerm
from hiermem.search.ranking import BOOST, Corpus, Leg, SummaryIndex, boost
from hiermem.text.policy import check
from hiermem.text.terms import STOP_WORDS, number, stem, terms, words
from hiermem.types import ROLES, Node, Revision, Role, Span, Summary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_WORD: Final = 512


@dataclass(frozen=True, slots=True)
class Filters:
    """What may be returned. None allows everything; times are ``since <= at < until``.

    ``dedup``: exclude what repeats something better.
    """

    levels: frozenset[int] | None = None
    span: tuple[int, int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    threads: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    entities: frozenset[str] | None = None
    dedup: bool = True

    @property
    def by_window(self) -> bool:
        """Return whether messages are filtered by the labels of the summary of their window."""
        return self.tags is not None or self.entities is not None

    @property
    def between(self) -> tuple[int | None, int | None]:
        """Return ``since`` and ``until`` in microseconds since 1970."""
        since, until = (
            None if at is None else (at - _EPOCH) // _MICROSECOND for at in (self.since, self.until)
        )
        return since, until

    def level(self, number: int) -> bool:
        """Return whether anything of that level may be returned; 0 is messages."""
        return self.levels is None or number in self.levels

    def summary(self, node: Node, revision: Revision | None) -> bool:
        """Return whether a summary may be returned: it covers something that the filters allow.

        ``revision`` matters only if ``by_window`` is true.
        """
        if self.roles is not None or not self.level(node.level):
            return False
        if self.span is not None and not (
            node.span.start < self.span[1] and self.span[0] < node.span.stop
        ):
            return False
        if self.since is not None and node.last_at < self.since:
            return False
        if self.until is not None and node.first_at >= self.until:
            return False
        if self.threads is not None and node.thread not in self.threads:
            return False
        return not self.by_window or (revision is not None and self.bears(revision))

    def bears(self, revision: Revision) -> bool:
        """Return whether a summary's text has the labels that are asked for."""
        return all(
            wanted is None or not wanted.isdisjoint(map(_folded, borne))
            for wanted, borne in ((self.tags, revision.tags), (self.entities, revision.entities))
        )


class RecallFilters(TypedDict, total=False):
    """The filters of a search for messages; each may be left out, or be None.

    ``span`` is a range of message indices, start and stop; ``since`` and ``until`` are moments, the
    latter not included. ``tags`` and ``entities`` are those of the summary of a message's window.
    ``semantic_dedup`` (True by default) excludes what repeats something better.
    """

    span: tuple[int, int] | None
    since: datetime | None
    until: datetime | None
    threads: Iterable[str] | None
    roles: Iterable[Role] | None
    tags: Iterable[str] | None
    entities: Iterable[str] | None
    semantic_dedup: bool


class SearchFilters(RecallFilters, total=False):
    """The filters of a search for messages and summaries.

    They add ``levels``, the numbers of levels (0 for messages), to RecallFilters.
    """

    levels: Iterable[int] | None


class TenantFilters(TypedDict, total=False):
    """The filters of a search over all sessions of a tenant; see RecallFilters.

    ``entities`` selects the messages that name one of them in their text.
    """

    since: datetime | None
    until: datetime | None
    threads: Iterable[str] | None
    roles: Iterable[Role] | None
    entities: Iterable[str] | None
    semantic_dedup: bool


def read_filters(given: Mapping[str, Any], *, known: type = SearchFilters) -> Filters:
    """Check the filters of a call, which are those of the TypedDict ``known``.

    Raises UsageError, naming the argument, also for an unknown one.
    """
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise UsageError(f"there is no filter {name!r}; use {', '.join(sorted(names))}")
    found: dict[str, Any] = {name: given.get(name) for name in names}
    found["dedup"] = arguments.switch(given.get("semantic_dedup", True), "semantic_dedup")
    del found["semantic_dedup"]
    for name, read in _READERS.items():
        if found.get(name) is not None:
            found[name] = read(found[name])
    return Filters(**found)


def _levels(value: Any) -> frozenset[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"levels is {type(value).__name__}; it must be whole numbers, or None")
    return frozenset(arguments.whole(number, "a level in levels") for number in value)


def _roles(value: Any) -> frozenset[str]:
    found = frozenset(_texts(value, "roles"))
    if not found <= frozenset(ROLES):
        raise UsageError(f"roles holds an unknown role; use {', '.join(ROLES)}")
    return found


def _texts(value: Any, what: str) -> tuple[str, ...]:
    """Return the texts of a filter; a single text is a filter with one value."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a sequence of texts")
    return tuple(check(each, what=f"a value in {what}", cap=_MAX_WORD) for each in value)


def _folded(word: str) -> str:
    return word.strip().casefold()


def _labels(what: str) -> Callable[[Any], frozenset[str]]:
    return lambda value: frozenset(map(_folded, _texts(value, what)))


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "levels": _levels,
    "span": lambda value: arguments.stretch(value, "span"),
    "since": lambda value: arguments.moment(value, "since"),
    "until": lambda value: arguments.moment(value, "until"),
    "threads": lambda value: frozenset(_texts(value, "threads")),
    "roles": _roles,
    "tags": _labels("tags"),
    "entities": _labels("entities"),
}


#: The score of the best summary in relation to the best message.
_SUMMARY_WEIGHT: Final = 0.75
#: The number of units examined for each wanted one; the factor of growth where units repeat others.
_LOOK: Final = 8
#: If units repeat others, this share of the units that may fill a budget is enough.
_ENOUGH: Final = 0.75
#: The most words of a question that may be a phrase.
_LONGEST_PHRASE: Final = 8
#: The most messages that are named below a summary.
_BELOW: Final = 3
#: From this score on, between the farthest (0) and the nearest (1), a unit is a hit by its vector.
_CLOSE: Final = 0.5
#: Greater than any index that a store can hold.
_END: Final = 1 << 32
_NOTHING: Final[Mapping[int, Array]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class ScoredQuery:
    """A query with the scores of a session.

    ``scores`` are those of the units; the best one is the share of the question that was found, or
    1 where vectors were compared, by which nothing is found or not. ``hit`` says which units match
    the question, ``near`` which match it or are adjacent to a match. ``summary_scores`` are the
    scores of the summaries by level. ``of_one``: the index is that of one session. ``overview``:
    the question asks for a summary of a matter.
    """

    index: Index
    summary_index: SummaryIndex
    scores: Array
    hit: Array
    near: Array
    summary_scores: Mapping[int, Array]
    of_one: bool = True
    overview: bool = False


def ask(
    index: Index,
    summary_index: SummaryIndex,
    query: Query,
    *,
    dense: Leg | None = None,
    summaries_near: Mapping[int, Array] = _NOTHING,
    corpus: Corpus | None = None,
) -> ScoredQuery:
    """Score all units and summaries; filters are applied later.

    ``dense`` are the scores of the units by vectors, ``summaries_near`` those of the summaries by
    level. ``corpus`` is what the index is a part of.
    """
    scores, hit, near = ranking.score(index, query, dense=dense, corpus=corpus)
    share, whole = _found(index, query, corpus)
    if corpus is not None:
        # In many sessions, what holds the whole question is before what surrounds a part of it.
        scores = scores + scores.max(initial=0.0) * whole
    summary_scores = {level: row.ask(query) for level, row in summary_index.levels.items()}
    if dense is not None:
        for level, seen in summaries_near.items():
            own = summary_scores[level]
            summary_scores[level] = (own + dense.weight * np.where(np.isnan(seen), own, seen)) / (
                1 + dense.weight
            )
    if summary_scores and len(index):
        given = sum(
            boost(index, summary_index.levels[level], row) for level, row in summary_scores.items()
        )
        scores = scores + BOOST * given / len(summary_scores)
    if dense is not None:
        # NaN compares as false: a unit without a vector is a hit by its words alone.
        hit, near = hit | (dense.own >= _CLOSE), near | ~np.isnan(dense.own)
    top = scores[near].max(initial=0.0)
    share = share if dense is None else 1.0
    scores = share * scores / top if top > 0 else scores
    summary_scores = {level: share * row for level, row in summary_scores.items()}
    return ScoredQuery(
        index,
        summary_index,
        scores,
        hit,
        near,
        summary_scores,
        of_one=corpus is None,
        overview=query.overview,
    )


def _found(index: Index, query: Query, corpus: Corpus | None) -> tuple[float, Array]:
    """Return how much of the question one passage holds, from 0 to 1, and which hold all of it."""
    units = index.units
    names = [
        set() if postings.is_generic(name) else set(map(number, terms(name)))
        for name in units.speakers
    ]
    named = np.array([not one.isdisjoint(query.numbers) for one in names], dtype=bool)
    asked = list(_rarities(index, query, corpus))
    every = set[int]().union(*names)
    by_name = named.any() and any(one.number not in every for one, _ in asked)
    held, times, total = np.zeros(len(index)), np.zeros(len(index), dtype=np.int64), 0.0
    for one, rare in asked:
        rows, _ = index.find((one.number, *one.forms))
        times[rows] += 1
        if not (by_name and one.number in every):
            held[rows] += rare
            total += rare
    if by_name:
        held[~named[units.speaker]] = 0
    whole = (times == len(asked)) & (len(asked) > 1)
    return float(held.max(initial=0.0)) / max(total, 1e-9), whole


def _rarities(
    index: Index, query: Query, corpus: Corpus | None
) -> Iterator[tuple[QueryTerm, float]]:
    """Yield the terms of a question, each with what it weighs."""
    known = {} if corpus is None else dict(corpus.sets)
    for one in query.terms:
        numbers = (one.number, *one.forms)
        if corpus is None:
            weight = ranking.WEIGHTS.form if one.of_form else 1.0
            yield one, weight * ranking.rarity(len(index), len(index.find(numbers)[0]))
        else:
            yield one, known.get(numbers, max(known.values(), default=1.0))


def with_phrase_first(hits: Sequence[Hit], text: str) -> list[Hit]:
    """Return hits, best first; those in which the words of the question follow one another lead.

    Words that carry no subject are passed over, in the question and in what was said. The first
    hits then have the score of the best one.
    """
    wanted = _subjects(text)
    if not 1 < len(wanted) <= _LONGEST_PHRASE:
        return list(hits)
    top = max((hit.score for hit in hits), default=0.0)
    leading, others = list[Hit](), list[Hit]()
    for hit in hits:
        held = _subjects(hit.text)
        follows = any(
            held[place : place + len(wanted)] == wanted
            for place, one in enumerate(held)
            if one == wanted[0]
        )
        (leading if follows else others).append(hit)
    return [*(replace(hit, score=top) for hit in leading), *others]


def _subjects(text: str) -> list[str]:
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


def hits(asked: ScoredQuery, filters: Filters, limit: int) -> list[int]:
    """Return the units that are hits, best first, one for each message."""
    index = asked.index
    allowed = asked.hit & _allowed(asked, filters)
    looked_at = _LOOK * limit + 64
    while True:
        best = ranking.best(asked.scores, looked_at, allowed=allowed)
        # Several passages of one message may rank before the next message.
        found = _first_of_message(index, best)
        found = distinct(index, found, most=limit) if filters.dedup else found[:limit]
        if len(found) >= limit or len(best) < looked_at:
            return found
        looked_at *= _LOOK


def summary_hits(
    asked: ScoredQuery, level: int, filters: Filters, limit: int
) -> list[tuple[Summary, float]]:
    """Return the summaries of a level that are hits, best first, each with its score.

    Their texts may be still to be read.
    """
    row = asked.summary_index.levels.get(level)
    if row is None or not filters.level(level):
        return []
    scores = asked.summary_scores[level]
    ranked = [place for place in np.argsort(-scores, kind="stable").tolist() if scores[place] > 0]
    found: list[tuple[Summary, float]] = []
    for place in ranked:
        if len(found) >= limit:
            break
        summary = row.summaries[place]
        if filters.summary(summary.node, summary.revision):
            found.append((summary, _SUMMARY_WEIGHT * float(scores[place])))
    return found


def found_below(asked: ScoredQuery, summary: Summary) -> tuple[int, ...]:
    """Return the messages below a summary that answer best, best first."""
    index = asked.index
    inside = np.zeros(len(index), dtype=bool)
    inside[index.covered(summary.span, summary.thread)] = True
    ranked = ranking.best(asked.scores, 8 * _BELOW, allowed=asked.near & inside)
    return tuple(
        int(index.units.message[unit]) for unit in _first_of_message(index, ranked)[:_BELOW]
    )


def evidence(
    asked: ScoredQuery,
    filters: Filters,
    budget: int,
    *,
    count: Callable[[str], int],
    neighbours: int = 0,
    shown: Iterable[Span] = (),
    header: str = HEADER,
) -> list[int]:
    """Return the units that fill a budget with evidence, best first; none that is ``shown``.

    ``header`` is as long as one that stands before some messages.
    """
    index = asked.index
    may = _allowed(asked, filters) & ~_inside(asked.index, shown)
    wanted = candidates(budget)
    looked_at = wanted
    while True:
        best = ranking.best(asked.scores, looked_at, allowed=may & asked.near)
        ranked = distinct(index, best, most=wanted) if filters.dedup else best.tolist()
        if len(ranked) >= _ENOUGH * wanted or len(best) < looked_at:
            break
        looked_at *= _LOOK
    ranked = around(index, ranked, neighbours, may)
    return fill(index, ranked, budget, count=count, overview=asked.overview, header=header)


def matter(asked: ScoredQuery, filters: Filters) -> int:
    """Return the tokens of all units that may be evidence."""
    allowed = asked.near & _allowed(asked, filters)
    return int(asked.index.units.tokens[allowed].sum())


def _allowed(asked: ScoredQuery, filters: Filters) -> Array:
    """Return for each unit of the index whether it may be returned."""
    units = asked.index.units
    found = np.full(len(units), filters.level(0))
    if filters.span is not None:
        start, stop = (min(place, _END) for place in filters.span)
        found &= (units.message >= start) & (units.message < stop)
    since, until = filters.between
    if since is not None:
        found &= units.at >= since
    if until is not None:
        found &= units.at < until
    if filters.threads is not None:
        found &= _among(units.thread, units.threads, filters.threads)
    if filters.roles is not None:
        found &= _among(units.role, ROLES, filters.roles)
    if filters.by_window and asked.of_one:
        held = np.zeros(len(units), dtype=bool)
        row = asked.summary_index.levels.get(1)
        for window in row.summaries if row else ():
            if window.revision is None or not filters.bears(window.revision):
                continue
            held[asked.index.covered(window.span, window.thread)] = True
        found &= held
    if filters.entities is not None:
        found &= _naming(asked.index, filters.entities)
    return found


def _among(column: Array, table: Sequence[str], wanted: frozenset[str]) -> Array:
    chosen = np.array([name in wanted for name in table], dtype=bool)
    found: Array = chosen[column] if len(column) else np.zeros(0, dtype=bool)
    return found


def _naming(index: Index, entities: Iterable[str]) -> Array:
    """Return for each unit whether its message names one of the entities in its text.

    It does where it holds all words of the name. The name of the speaker and the date, which are
    terms of a unit too, do not count.
    """
    units = index.units
    message = np.cumsum(np.r_[0, units.message[1:] != units.message[:-1]])[: len(units)]
    found = np.zeros(int(message[-1]) + 1 if len(units) else 0, dtype=bool)
    for entity in entities:
        wanted = set(map(number, terms(entity)))
        held = np.full(len(found), bool(wanted))
        for term in wanted:
            rows, counts = index.find((term,))
            own = np.zeros(len(found), dtype=bool)
            for row, times in zip(rows.tolist(), counts.tolist(), strict=True):
                if times > frame_of(units, row).count(term):
                    own[message[row]] = True
            held &= own
        found |= held
    result: Array = found[message]
    return result


def _first_of_message(index: Index, ranked: Array) -> list[int]:
    seen: set[int] = set()
    found: list[int] = []
    for unit, message in zip(ranked.tolist(), index.units.message[ranked].tolist(), strict=True):
        if message not in seen:
            seen.add(message)
            found.append(unit)
    return found


def _inside(index: Index, spans: Iterable[Span]) -> Array:
    """Return which units lie entirely inside one of the spans."""
    units = index.units
    found = np.zeros(len(index), dtype=bool)
    for span in spans:
        within = slice(*np.searchsorted(units.message, (span.start, span.stop)))
        message, begin, end = units.message[within], units.begin[within], units.end[within]
        own = (message > span.start) | (begin >= span.start_char)
        if span.stop_char is not None:
            own &= (message < span.stop - 1) | (end <= span.stop_char)
        found[within] |= own
    return found


def of_spans(
    asked: ScoredQuery,
    wanted: Sequence[Span],
    budget: int,
    *,
    count: Callable[[str], int],
    shown: Iterable[Span] = (),
) -> list[int]:
    """Return the units of the ``wanted`` spans that fit a budget, the first spans first."""
    index = asked.index
    may = ~_inside(index, shown)
    found = [np.flatnonzero(_inside(index, (span,)) & may).tolist() for span in wanted]
    ranked = list(dict.fromkeys(chain.from_iterable(found)))
    return fill(index, ranked, budget, count=count, overview=asked.overview)
