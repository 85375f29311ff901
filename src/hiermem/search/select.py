"""Decides which messages, summaries and passages a search returns.

A filter only excludes and never changes a score. Within one filter any of its values is enough;
several filters must all be met. A message has the tags and entities of the summary of its window. A
summary never meets a filter on something that only messages have, such as a role.

Nothing unrelated to the question is returned. A hit contains a word of the question (or, with
vectors, is close to it); evidence may also be adjacent to such a hit. A search returns only the
best passage of a message, and the best of several passages that say the same.

The score of the best hit says how much of the question it holds: the share of the question's words
in one passage, each weighed by its rarity. If the question names a speaker, the name itself does
not count, and passages of others count little: Ben's words do not answer what Ada said. The other
scores are relative to the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from hiermem import arguments, data
from hiermem.errors import UsageError
from hiermem.search import rank
from hiermem.search.evidence import HEADER, around, candidates, fill
from hiermem.search.index import Array, Index, frame_of, term_lists
from hiermem.search.query import Query, QueryTerm
from hiermem.search.rank import Corpus, Leg, distinct
from hiermem.search.results import Hit, SearchFilters
from hiermem.search.summary_index import BOOST, SummaryIndex, boost
from hiermem.text.policy import check
from hiermem.text.terms import STOP_WORDS, cased, number, stem, terms, words
from hiermem.types import ROLES, Node, Revision, Span, Summary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_WORD: Final = 512


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a search. None allows everything; times are ``since <= at < until``.

    ``dedup``: exclude passages that repeat a better one.
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
            None if moment is None else (moment - _EPOCH) // _MICROSECOND
            for moment in (self.since, self.until)
        )
        return since, until

    def level(self, number: int) -> bool:
        """Return whether anything of that level may be returned; 0 is messages."""
        return self.levels is None or number in self.levels

    def summary(self, node: Node, revision: Revision | None) -> bool:
        """Return whether a summary may be returned: it covers a message that the filters allow.

        ``revision`` matters only if ``by_window`` is true.
        """
        start, stop = self.span or (0, _END)
        return (
            self.roles is None
            and self.level(node.level)
            and node.span.start < stop
            and start < node.span.stop
            and (self.since is None or node.last_at >= self.since)
            and (self.until is None or node.first_at < self.until)
            and (self.threads is None or node.thread in self.threads)
            and (not self.by_window or (revision is not None and self.bears(revision)))
        )

    def bears(self, revision: Revision) -> bool:
        """Return whether a revision has one of the tags and one of the entities."""
        return all(
            wanted is None or not wanted.isdisjoint(map(_folded, borne))
            for wanted, borne in ((self.tags, revision.tags), (self.entities, revision.entities))
        )


def read_filters(filters: Mapping[str, Any], *, accepted: type = SearchFilters) -> Filters:
    """Check the filters of a call, which are those of the TypedDict ``accepted``.

    Raises UsageError, naming the argument, also for an unknown one.
    """
    names = accepted.__annotations__
    for name in filters:
        if name not in names:
            raise UsageError(f"filter {name!r} does not exist; use {', '.join(sorted(names))}")
    dedup = arguments.switch(filters.get("semantic_dedup", True), "semantic_dedup")
    fields = {
        name: read(filters[name])
        for name, read in _READERS.items()
        if filters.get(name) is not None
    }
    return Filters(**fields, dedup=dedup)


def _levels(value: Any) -> frozenset[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value,)
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"levels is {type(value).__name__}; it must be whole numbers, or None")
    return frozenset(arguments.whole(number, "a level in levels") for number in value)


def _roles(value: Any) -> frozenset[str]:
    roles = _texts(value, "roles")
    if not roles <= frozenset(ROLES):
        raise UsageError(f"roles holds an unknown role; use {', '.join(ROLES)}")
    return roles


def _texts(value: Any, what: str) -> frozenset[str]:
    """Return the texts of a filter; a single text is a filter with one value."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {type(value).__name__}; it must be a sequence of texts")
    return frozenset(check(text, what=f"a value in {what}", cap=_MAX_WORD) for text in value)


def _folded(word: str) -> str:
    return cased(word.strip())


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "levels": _levels,
    "span": lambda value: arguments.stretch(value, "span"),
    "since": lambda value: arguments.moment(value, "since"),
    "until": lambda value: arguments.moment(value, "until"),
    "threads": lambda value: _texts(value, "threads"),
    "roles": _roles,
    "tags": lambda value: frozenset(map(_folded, _texts(value, "tags"))),
    "entities": lambda value: frozenset(map(_folded, _texts(value, "entities"))),
}


#: The terms of words of change; the units that are looked at for a later statement, how many units
#: hold a rare word, and how many rare words two statements about the same thing share.
_CHANGE: Final = frozenset(number(stem(word)) for word in data.word_lists("query_words")["change"])
_LOOKED: Final = 8
_RARE: Final = 8
_SHARED: Final = 2
#: The score of the best summary in relation to the best message.
_SUMMARY_WEIGHT: Final = 0.75
#: Units examined for each wanted one; also the factor of growth if units repeat others.
_LOOK: Final = 8
#: If units repeat others, this share of the units that may fill a budget is enough.
_ENOUGH: Final = 0.75
#: The most words of a question that may be a phrase.
_LONGEST_PHRASE: Final = 8
#: The most messages named below a summary.
_BELOW: Final = 3
#: What the words of others count for if the question names a speaker, and what a name alone does.
_OTHERS: Final = 0.05
_LEAST: Final = 1e-6
#: From this score on, between the farthest (0) and the nearest (1), a unit is a hit by its vector.
_CLOSE: Final = 0.5
#: Greater than any index that a store can hold.
_END: Final = 1 << 32
_NOTHING: Final[Mapping[int, Array]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class ScoredQuery:
    """A query with the scores of a session.

    ``scores`` are those of the units; the best one is the share of the question that was found, or
    1 if vectors were compared, since closeness is no share. ``hit`` says which units match
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
    level. ``corpus`` has the statistics of the tenant, if the index is a part of it.
    """
    scores, hit, near = rank.score(index, query, dense=dense, corpus=corpus)
    share, whole = _coverage(index, query, corpus)
    if corpus is not None:
        # Over many sessions, a unit with the whole question precedes one near a part of it.
        scores = scores + scores.max(initial=0.0) * whole
    summary_scores = {level: row.ask(query) for level, row in summary_index.levels.items()}
    if dense is not None:
        for level, seen in summaries_near.items():
            by_words = summary_scores[level]
            summary_scores[level] = (
                by_words + dense.weight * np.where(np.isnan(seen), by_words, seen)
            ) / (1 + dense.weight)
    if summary_scores and len(index):
        lent = sum(
            boost(index, summary_index.levels[level], row) for level, row in summary_scores.items()
        )
        scores = scores + BOOST * lent / len(summary_scores)
    if dense is not None:
        # NaN compares as false: a unit without a vector is a hit by its words alone.
        hit, near = hit | (dense.own >= _CLOSE), near | ~np.isnan(dense.own)
    top = scores[near].max(initial=0.0)
    share = share if dense is None else 1.0
    scores = share * scores / top if top > 0 else scores
    summary_scores = {level: share * row for level, row in summary_scores.items()}
    rows = (scores, hit, near, summary_scores)
    return ScoredQuery(index, summary_index, *rows, of_one=corpus is None, overview=query.overview)


def _coverage(index: Index, query: Query, corpus: Corpus | None) -> tuple[float, Array]:
    """Return the largest share of the question in one passage, and which passages hold it whole."""
    units, names = index.units, rank.names_of(index.units)
    named = np.array([not name.isdisjoint(query.numbers) for name in names], dtype=bool)
    weights = {} if corpus is None else dict(corpus[1])

    def weight_of(term: QueryTerm) -> float:
        numbers = (term.number, *term.forms)
        if corpus is not None:
            return weights.get(numbers, max(weights.values(), default=1.0))
        weight = rank.WEIGHTS.form if term.of_form else 1.0
        return weight * rank.rarity(len(index), len(index.find(numbers)[0]))

    asked = [(term, weight_of(term)) for term in query.terms]
    speaker_names = set[int]().union(*names)
    by_name = named.any() and any(term.number not in speaker_names for term, _ in asked)
    shares, times, total = np.zeros(len(index)), np.zeros(len(index), dtype=np.int64), 0.0
    for asked_term, rare in asked:
        rows, _ = index.find((asked_term.number, *asked_term.forms))
        times[rows] += 1
        if not (by_name and asked_term.number in speaker_names):
            shares[rows] += rare
            total += rare
    if by_name:
        shares[~named[units.speaker]] *= _OTHERS
    whole = (times == len(asked)) & (len(asked) > 1)
    # However little it is, it keeps the order.
    return max(float(shares.max(initial=0.0)) / max(total, 1e-9), _LEAST), whole


def with_phrase_first(hits: Sequence[Hit], text: str) -> list[Hit]:
    """Return hits, best first, but those with the question's words in sequence before all others.

    Stop words are skipped in the question and in the hits. Hits with the phrase get the score of
    the best one.
    """
    wanted = _subjects(text)
    if not 1 < len(wanted) <= _LONGEST_PHRASE:
        return list(hits)
    top = max((hit.score for hit in hits), default=0.0)
    leading, others = list[Hit](), list[Hit]()
    for hit in hits:
        subjects = _subjects(hit.text)
        follows = any(
            subjects[start : start + len(wanted)] == wanted
            for start, subject in enumerate(subjects)
            if subject == wanted[0]
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
        best = rank.best(asked.scores, looked_at, allowed=allowed)
        # Several passages of one message may rank before the next message.
        chosen = _first_of_message(index, best)
        chosen = distinct(index, chosen, most=limit) if filters.dedup else chosen[:limit]
        if len(chosen) >= limit or len(best) < looked_at:
            return chosen
        looked_at *= _LOOK


def summary_hits(
    asked: ScoredQuery, level: int, filters: Filters, limit: int
) -> list[tuple[Summary, float]]:
    """Return the summaries of a level that are hits, best first, each with its score.

    Their texts may not have been read yet.
    """
    row = asked.summary_index.levels.get(level)
    if row is None or not filters.level(level):
        return []
    scores = asked.summary_scores[level]
    chosen = (
        (row.summaries[position], _SUMMARY_WEIGHT * float(scores[position]))
        for position in rank.best(scores, len(scores), allowed=scores > 0).tolist()
        if filters.summary(row.summaries[position].node, row.summaries[position].revision)
    )
    return list(islice(chosen, limit))


def found_below(asked: ScoredQuery, summary: Summary) -> tuple[int, ...]:
    """Return the messages below a summary that answer best, best first."""
    index = asked.index
    inside = np.zeros(len(index), dtype=bool)
    inside[index.covered(summary.span, summary.thread)] = True
    ranked = rank.best(asked.scores, 8 * _BELOW, allowed=asked.near & inside)
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
    """Return the units that fill a budget with evidence, best first, none of them ``shown``.

    ``header`` is as long as the longest header between messages.
    """
    index = asked.index
    may = _allowed(asked, filters) & ~_inside(asked.index, shown)
    wanted = candidates(budget)
    looked_at = wanted
    while True:
        best = rank.best(asked.scores, looked_at, allowed=may & asked.near)
        ranked = distinct(index, best, most=wanted) if filters.dedup else best.tolist()
        if len(ranked) >= _ENOUGH * wanted or len(best) < looked_at:
            break
        looked_at *= _LOOK
    ranked = around(index, ranked, neighbours, may)
    return fill(index, ranked, budget, count=count, overview=asked.overview, header=header)


def later(asked: ScoredQuery, filters: Filters, units: Sequence[int]) -> dict[int, int]:
    """Return for the best units the newest later statement of change about the same rare words.

    It is a unit of the same speaker that is not among ``units`` and holds a word of change and
    ``_SHARED`` words of the earlier one that at most ``_RARE`` units hold.
    """
    index, rows_of = asked.index, asked.index.units
    changing = np.zeros(len(index), dtype=bool)
    changing[index.find(sorted(_CHANGE))[0]] = True
    may = changing & (rows_of.role == ROLES.index("user")) & _allowed(asked, filters)
    may[np.asarray(units, dtype=np.int64)] = False
    found: dict[int, int] = {}
    best = units[:_LOOKED] if may.any() else []
    for unit, own in zip(best, term_lists(rows_of, best), strict=True):
        subjects = set(own) - {*frame_of(rows_of, unit)} - _CHANGE
        holding = [index.find((term,))[0] for term in subjects]
        rare = [rows for rows in holding if 1 < len(rows) <= _RARE]
        sharing = np.bincount(np.concatenate(rare), minlength=len(index)) if rare else may
        newer = (rows_of.at > rows_of.at[unit]) & (rows_of.speaker == rows_of.speaker[unit])
        among = np.flatnonzero(may & newer & (sharing >= _SHARED))
        if len(among):
            found[unit] = int(among[np.argmax(rows_of.at[among])])
            may[found[unit]] = False
    return found


def matter(asked: ScoredQuery, filters: Filters) -> int:
    """Return the tokens of all units that may be evidence."""
    allowed = asked.near & _allowed(asked, filters)
    return int(asked.index.units.tokens[allowed].sum())


def _allowed(asked: ScoredQuery, filters: Filters) -> Array:
    """Return for each unit of the index whether it may be returned."""
    units = asked.index.units
    allowed = np.full(len(units), filters.level(0))
    if filters.span is not None:
        start, stop = (min(bound, _END) for bound in filters.span)
        allowed &= (units.message >= start) & (units.message < stop)
    since, until = filters.between
    if since is not None:
        allowed &= units.at >= since
    if until is not None:
        allowed &= units.at < until
    if filters.threads is not None:
        allowed &= _among(units.thread, units.threads, filters.threads)
    if filters.roles is not None:
        allowed &= _among(units.role, ROLES, filters.roles)
    if filters.by_window and asked.of_one:
        labelled = np.zeros(len(units), dtype=bool)
        row = asked.summary_index.levels.get(1)
        for window in row.summaries if row else ():
            if window.revision is None or not filters.bears(window.revision):
                continue
            labelled[asked.index.covered(window.span, window.thread)] = True
        allowed &= labelled
    if filters.entities is not None:
        allowed &= _naming(asked.index, filters.entities)
    return allowed


def _among(column: Array, table: Sequence[str], wanted: frozenset[str]) -> Array:
    chosen = np.array([name in wanted for name in table], dtype=bool)
    matching: Array = chosen[column] if len(column) else np.zeros(0, dtype=bool)
    return matching


def _naming(index: Index, entities: Iterable[str]) -> Array:
    """Return for each unit whether its message names one of the entities in its text.

    A message names an entity if it holds all words of the name. The speaker's name and the date,
    which are terms of a unit too, do not count.
    """
    units = index.units
    message = np.cumsum(np.r_[0, units.message[1:] != units.message[:-1]])[: len(units)]
    naming = np.zeros(int(message[-1]) + 1 if len(units) else 0, dtype=bool)
    for entity in entities:
        wanted = set(map(number, terms(entity)))
        complete = np.full(len(naming), bool(wanted))
        for term in wanted:
            rows, counts = index.find((term,))
            holding = np.zeros(len(naming), dtype=bool)
            for row, times in zip(rows.tolist(), counts.tolist(), strict=True):
                if times > frame_of(units, row).count(term):
                    holding[message[row]] = True
            complete &= holding
        naming |= complete
    result: Array = naming[message]
    return result


def _first_of_message(index: Index, ranked: Array) -> list[int]:
    first: dict[int, int] = {}
    for unit, message in zip(ranked.tolist(), index.units.message[ranked].tolist(), strict=True):
        first.setdefault(message, unit)
    return list(first.values())


def _inside(index: Index, spans: Iterable[Span]) -> Array:
    """Return which units lie entirely inside one of the spans."""
    units = index.units
    inside = np.zeros(len(index), dtype=bool)
    for span in spans:
        within = slice(*np.searchsorted(units.message, (span.start, span.stop)))
        message, begin, end = units.message[within], units.begin[within], units.end[within]
        whole = (message > span.start) | (begin >= span.start_char)
        if span.stop_char is not None:
            whole &= (message < span.stop - 1) | (end <= span.stop_char)
        inside[within] |= whole
    return inside


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
    by_span = [np.flatnonzero(_inside(index, (span,)) & may).tolist() for span in wanted]
    ranked = list(dict.fromkeys(chain.from_iterable(by_span)))
    return fill(index, ranked, budget, count=count, overview=asked.overview)
