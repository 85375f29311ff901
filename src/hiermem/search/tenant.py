"""Reads the best blocks of all sessions of a tenant, ranks them, and returns verbatim passages.

The index over all sessions says which blocks hold something of the question; the best of them are
read, made into one index, and ranked in it as in one session. So all hits have scores on one scale.
As in a session, a result belongs to one state of each session that it is from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Final, TypeVar

from hiermem import arguments
from hiermem.errors import BusyError
from hiermem.handle import Handle, every_session
from hiermem.search import select
from hiermem.search.evidence import header
from hiermem.search.index import Postings
from hiermem.search.indexes import STRIDE
from hiermem.search.query import Query, read_query
from hiermem.search.results import Evidence, Hit
from hiermem.search.search import Question, evidence_of, live_messages, message_hits, numbers_of
from hiermem.search.segments import Member, candidates, combined
from hiermem.search.select import ScoredQuery
from hiermem.search.summary_index import SummaryIndex
from hiermem.search.tenant_index import consult, placed_blocks
from hiermem.tracing import span
from hiermem.types import SessionRecord, Span, StoredMessage
from hiermem.types.tree import SessionFilter

Answer = TypeVar("Answer", list[Hit], Evidence)
#: How often a search is repeated because a session changed meanwhile.
_TRIES: Final = 5
#: The blocks ranked at first; with a large budget, one for each ``_TOKENS`` tokens.
_BLOCKS: Final = 64
_TOKENS: Final = 32
#: Evidence is chosen from this many times the tokens of the budget.
_CHOICE: Final = 2
#: Hits read beyond those that are returned.
_MORE: Final = 20
#: At most this many sessions are selected by labels beforehand; otherwise blocks are, once read.
_FEW_SESSIONS: Final = 256
_NOTHING: Final[Mapping[str, Sequence[Span]]] = MappingProxyType({})
_NONE_SHOWN: Final[Mapping[str, set[int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class _Ranked:
    """The scored index of the ranked blocks, and the records of their sessions.

    ``blocks`` are the session of each block, and where its stride begins there.
    """

    scored: ScoredQuery
    blocks: Sequence[tuple[str, int]]
    records: Mapping[str, SessionRecord]

    def session_of(self, number: int) -> str:
        """Return the session of a message of the index."""
        return self.blocks[number // STRIDE][0]

    def numbered(self, shown: Mapping[str, Sequence[Span]]) -> tuple[Span, ...]:
        """Return spans of sessions as spans of the index."""
        spans: list[Span] = []
        for block, (session_id, begin) in enumerate(self.blocks):
            for part in shown.get(session_id, ()):
                start, stop = max(part.start, begin), min(part.stop, begin + STRIDE)
                if start < stop:
                    moved = block * STRIDE - begin
                    spans.append(
                        Span(
                            start + moved,
                            stop + moved,
                            part.start_char if start == part.start else 0,
                            part.stop_char if stop == part.stop else None,
                        )
                    )
        return tuple(spans)


async def search(handle: Handle, question: Question, limit: int) -> list[Hit]:
    """Return the best ``limit`` messages of all sessions that pass the filters, best first."""
    arguments.whole(limit, "limit")

    # Some more hits than are returned are searched for the phrase.
    many = limit + _MORE if limit else 0

    def units(ranked: _Ranked) -> list[int]:
        return select.hits(ranked.scored, question.filters, many)

    async def answer(ranked: _Ranked) -> list[Hit]:
        chosen = units(ranked)
        read = await _read(handle, ranked, numbers_of(ranked.scored, chosen))
        hits = [
            replace(hit, space=ranked.records[hit.session_id].space)
            for hit in message_hits(handle, ranked.scored, chosen, read, ranked.session_of)
        ]
        return select.with_phrase_first(hits, question.text)[:limit]

    def enough(ranked: _Ranked) -> bool:
        return len(units(ranked)) >= limit

    return await _asked(handle, question, _BLOCKS, enough, answer)


async def recall(
    handle: Handle,
    question: Question,
    max_tokens: int,
    *,
    neighbours: int = 0,
    shown: Mapping[str, Sequence[Span]] = _NOTHING,
) -> Evidence:
    """Return verbatim evidence of all sessions that fits ``max_tokens``, by session, then time.

    Of each session, nothing is returned that is ``shown``. The headers name a session by its title,
    or by its id if it has none.
    """
    arguments.whole(max_tokens, "max_tokens")
    arguments.whole(neighbours, "neighbours")

    whole = {
        session_id: {
            index for part in parts if not part.sliced for index in range(part.start, part.stop)
        }
        for session_id, parts in shown.items()
    }

    def enough(ranked: _Ranked) -> bool:
        return select.matter(ranked.scored, question.filters) >= _CHOICE * max_tokens

    async def answer(ranked: _Ranked) -> Evidence:
        names = {record.id: record.title or record.id for record in ranked.records.values()}
        longest = max(names.values(), key=len, default="")
        spans = ranked.numbered(shown)
        units = select.evidence(
            ranked.scored,
            question.filters,
            max_tokens,
            count=handle.counter.count,
            neighbours=neighbours,
            shown=spans,
            header=header("2024-12-31", longest) + "\n",
        )
        later = select.later(ranked.scored, question.filters, units)
        pairs = ((unit, later.get(unit, unit)) for unit in units)
        units = list(dict.fromkeys(chain.from_iterable(pairs)))
        read = await _read(handle, ranked, numbers_of(ranked.scored, units))
        return evidence_of(
            handle,
            ranked.scored,
            units,
            max_tokens,
            read,
            session_of=ranked.session_of,
            names=names,
            shown=spans,
            later=numbers_of(ranked.scored, [*later.values()]),
        )

    many = max(_BLOCKS, max_tokens // _TOKENS)
    return await _asked(handle, question, many, enough, answer, shown=whole)


async def _asked(
    handle: Handle,
    question: Question,
    many: int,
    enough: Callable[[_Ranked], bool],
    answer: Callable[[_Ranked], Awaitable[Answer]],
    *,
    shown: Mapping[str, set[int]] = _NONE_SHOWN,
) -> Answer:
    """Rank the best ``many`` blocks, more until there is ``enough``, and read the answer.

    A block of which all messages are ``shown``, such as one with the question alone, is left out.
    """
    query = read_query(question.text)
    with span("search") as note:
        for _ in range(_TRIES):
            try:
                ranked = await _ranked(handle, question, query, many, enough, shown=shown)
            except BusyError:
                continue
            result = await answer(ranked)
            used = sorted({hit.session_id for hit in result})
            unchanged = await asyncio.gather(
                *(handle.is_unchanged(ranked.records[name]) for name in used)
            )
            if all(unchanged):
                note(hits=len(result))
                return result
        raise BusyError


async def _ranked(
    handle: Handle,
    question: Question,
    query: Query,
    many: int,
    enough: Callable[[_Ranked], bool],
    *,
    shown: Mapping[str, set[int]],
) -> _Ranked:
    """Read ``many`` blocks, best first, and more until they hold enough.

    Raises BusyError if a session was changed meanwhile.
    """
    parts, in_memory = await consult(handle, query)
    sessions = await _selected(handle, question.sessions)
    corpus, ranking = await asyncio.to_thread(
        candidates, parts, query, sessions=sessions, between=question.filters.between
    )
    blocks: list[tuple[Member, Postings]] = []
    records: dict[str, SessionRecord] = {}
    read = 0
    while True:
        part = ranking[read : max(many, 2 * read)]
        read += len(part)
        for record, member, content in await placed_blocks(handle, in_memory, part):
            is_shown = shown.get(record.id, set()).issuperset(range(member.start, member.stop))
            if question.sessions.admits(record) and not is_shown:
                blocks.append((member, content))
                records[record.id] = record

        def score() -> _Ranked:
            index, strides = combined(blocks, STRIDE)
            scored = select.ask(index, SummaryIndex(), query, corpus=corpus)
            return _Ranked(scored, strides, records)

        ranked = await asyncio.to_thread(score)
        if read >= len(ranking) or enough(ranked):
            return ranked


async def _selected(handle: Handle, chosen: SessionFilter) -> frozenset[str] | None:
    """Return the ids of the sessions that are ``chosen``; None if they are many, or all."""
    labels = chosen.labels
    if not labels or await handle.store.count_sessions(metadata=labels) > _FEW_SESSIONS:
        return None
    return frozenset([record.id async for record in every_session(handle.store, chosen)])


async def _read(
    handle: Handle, ranked: _Ranked, numbers: Iterable[int]
) -> dict[int, StoredMessage]:
    """Read messages by their numbers in the combined index."""
    wanted: dict[str, dict[int, int]] = {}
    for number in numbers:
        session_id, start = ranked.blocks[number // STRIDE]
        wanted.setdefault(session_id, {})[start + number % STRIDE] = number
    read = await asyncio.gather(
        *(live_messages(handle, session_id, places) for session_id, places in wanted.items())
    )
    return {
        places[index]: stored
        for places, messages in zip(wanted.values(), read, strict=True)
        for index, stored in messages.items()
        if index in places
    }
