"""Reads what a session's search needs, has it ranked, and returns verbatim passages.

A result belongs to one state of the session. A search during which the session was edited or erased
from is repeated, so that it returns nothing that was taken back. ``select`` decides, and no search
waits for a model that summarises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from hiermem import arguments
from hiermem.errors import BusyError, UsageError
from hiermem.handle import Handle, every_session
from hiermem.search import select
from hiermem.search.embed import load_vectors
from hiermem.search.evidence import write
from hiermem.search.index import Array, Index, join, runs
from hiermem.search.indexes import KIND, SessionIndex
from hiermem.search.query import read_query
from hiermem.search.results import Evidence, Hit, IndexReport
from hiermem.search.select import Filters, ScoredQuery
from hiermem.search.summaries import kind_of, read_texts, refresh, with_texts
from hiermem.search.vectors import compare, compare_summaries
from hiermem.text.measure import body
from hiermem.tracing import span
from hiermem.types import SessionRecord, Span, StoredMessage, Summary
from hiermem.types.tree import EVERY, SessionFilter

T = TypeVar("T", bound=Sized)
#: How often a search is repeated because the session changed meanwhile.
_TRIES: Final = 5
#: Indexes with more units than this are queried on a thread.
_FEW_UNITS: Final = 20_000
#: Messages at most this far apart are read in one go.
_GAP: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A question, with the filters for its answers: to one session, or to all of a tenant.

    ``session_id`` is "" for all sessions; only there ``sessions`` selects among them.
    """

    session_id: str
    text: str
    filters: Filters = field(default_factory=Filters)
    sessions: SessionFilter = EVERY

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(f"query is {type(self.text).__name__}; it must be text")


async def search(handle: Handle, question: Question, limit: int) -> list[Hit]:
    """Return the best ``limit`` hits of all levels that pass the filters, best first."""
    arguments.whole(limit, "limit")
    return await _asked(handle, question, partial(_hits, handle, question, limit))


async def semantic(handle: Handle, question: Question) -> list[Hit]:
    """Return the candidates of each level, as many as the policy says, best first."""
    return await _asked(handle, question, partial(_hits, handle, question, None))


async def recall(
    handle: Handle,
    question: Question,
    max_tokens: int,
    *,
    neighbours: int = 0,
    shown: Iterable[Span] = (),
) -> Evidence:
    """Return verbatim evidence that fits ``max_tokens``, oldest first; none already ``shown``."""
    arguments.whole(max_tokens, "max_tokens")
    arguments.whole(neighbours, "neighbours")
    choose = partial(
        select.evidence,
        filters=question.filters,
        count=handle.counter.count,
        neighbours=neighbours,
    )
    return await _packed(handle, question, choose, max_tokens, shown=tuple(shown))


async def pack(handle: Handle, session_id: str, hits: Sequence[Hit], max_tokens: int) -> Evidence:
    """Pack the messages of hits into ``max_tokens``, the first hit first."""
    choose = partial(select.of_spans, wanted=[hit.span for hit in hits], count=handle.counter.count)
    question = Question(session_id, "")
    return await _packed(handle, question, choose, max_tokens, shown=())


async def _packed(
    handle: Handle,
    question: Question,
    choose: partial[list[int]],
    max_tokens: int,
    *,
    shown: Sequence[Span],
) -> Evidence:
    """Write the units that ``choose`` returns for ``max_tokens``."""

    async def answer(asked: ScoredQuery, record: SessionRecord) -> Evidence:
        units = choose(asked, budget=max_tokens, shown=shown)
        read = await live_messages(handle, record.id, numbers_of(asked, units))
        return evidence_of(
            handle, asked, units, max_tokens, read, session_of=lambda _: record.id, shown=shown
        )

    return await _asked(handle, question, answer)


async def rebuild(handle: Handle) -> IndexReport:
    """Drop and rebuild the indexes of all sessions."""
    sessions = messages = passages = 0
    async for record in every_session(handle.store):
        handle.check(record)
        handle.forget(record.id)
        levels = await handle.store.tree(record.id).levels()
        for kind in (KIND, *map(kind_of, levels)):
            await handle.store.drop_blocks(record.id, kind)
        async with handle.indexes.lock(record.id):
            try:
                built = await handle.indexes.get(record)
                await refresh(handle, built, record)
            except BusyError:
                # The change has dropped the index; the next search builds it again.
                continue
        sessions, messages = sessions + 1, messages + built.messages
        passages += len(built.index)
    return IndexReport(sessions, messages, passages)


async def _asked(
    handle: Handle,
    question: Question,
    answer: Callable[[ScoredQuery, SessionRecord], Awaitable[T]],
) -> T:
    """Run a query on a session; ``answer`` reads what it needs, in one state of the session."""
    indexes = handle.indexes
    with span("search", subject=question.session_id) as note:
        for _ in range(_TRIES):
            record = await handle.record_or_new(question.session_id)
            index = SessionIndex(record, 0, Index(join([])), join([]))
            if record.messages:
                async with indexes.lock(record.id):
                    try:
                        index = await indexes.get(record)
                        await refresh(handle, index, record)
                        if question.filters.by_window:
                            await read_texts(handle, index, record)
                        if handle.embedder_client is not None:
                            await load_vectors(handle, index, record, handle.embedder_client)
                    except BusyError:
                        continue
                    # Another search may update the cached index meanwhile.
                    index = replace(index)
            vector, weight, client = None, 0.0, handle.embedder_client
            if client is not None and index.vectors is not None:
                weight = client.weight
                vector = await client.question(question.text, handle.counter.count)
            asking = partial(_ask, index, question.text, vector, weight)
            asked = asking() if len(index.index) <= _FEW_UNITS else await asyncio.to_thread(asking)
            result = await answer(asked, record)
            if not record.messages or await handle.is_unchanged(record):
                note(hits=len(result))
                return result
        raise BusyError(session_id=question.session_id)


def _ask(index: SessionIndex, text: str, vector: Array | None, weight: float) -> ScoredQuery:
    query, near = read_query(text), {}
    dense = None
    if index.vectors is not None and vector is not None:
        dense = compare(index.index, index.vectors, vector, weight=weight)
        near = compare_summaries(index.summary_vectors, vector)
    return select.ask(index.index, index.summary_index, query, dense=dense, summaries_near=near)


async def _hits(
    handle: Handle,
    question: Question,
    limit: int | None,
    asked: ScoredQuery,
    record: SessionRecord,
) -> list[Hit]:
    """Return the best ``limit`` hits; the policy bounds the summaries of each level.

    With None it bounds the messages too, and all hits are returned.
    """
    many = handle.search_policy.of_level
    units = select.hits(asked, question.filters, many(0) if limit is None else limit)
    read = await live_messages(handle, record.id, numbers_of(asked, units))
    hits = message_hits(handle, asked, units, read, lambda _: record.id)
    chosen = [
        candidate
        for level in sorted(asked.summary_index.levels)
        for candidate in select.summary_hits(asked, level, question.filters, many(level))
    ]
    summaries = await with_texts(handle, record, [summary for summary, _ in chosen])
    hits += [
        _summary_hit(asked, summary, score)
        for summary, (_, score) in zip(summaries, chosen, strict=True)
        if summary.revision is not None
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.level, hit.span.start))[:limit]


def numbers_of(asked: ScoredQuery, units: Sequence[int]) -> list[int]:
    """Return the number of each unit's message in the index."""
    return [int(asked.index.units.message[unit]) for unit in units]


def message_hits(
    handle: Handle,
    asked: ScoredQuery,
    units: Sequence[int],
    read: Mapping[int, StoredMessage],
    session_of: Callable[[int], str],
) -> list[Hit]:
    """Return the hits of units whose messages were ``read``, by their numbers in the index."""
    columns = asked.index.units
    return [
        _message_hit(
            handle,
            session_of(number),
            read[number],
            (int(columns.begin[unit]), int(columns.end[unit])),
            float(asked.scores[unit]),
        )
        for unit, number in zip(units, numbers_of(asked, units), strict=True)
        if number in read
    ]


def _message_hit(
    handle: Handle, session_id: str, stored: StoredMessage, part: tuple[int, int], score: float
) -> Hit:
    """Return the hit of a message, or of a ``part`` of it."""
    whole = body(stored.message)
    text = whole[slice(*part)]
    span = Span(stored.index, stored.index + 1, *(() if part == (0, len(whole)) else part))
    return Hit(
        session_id=session_id,
        kind="message",
        level=0,
        span=span,
        score=score,
        text=text,
        tokens=handle.counter.count(text),
        time_range=(stored.created_at, stored.created_at),
        thread=stored.thread,
        found=(stored.index,),
        message=stored,
    )


def _summary_hit(asked: ScoredQuery, summary: Summary, score: float) -> Hit:
    return Hit(
        session_id=summary.session_id,
        kind="summary",
        level=summary.level,
        span=summary.span,
        score=score,
        text=summary.text,
        tokens=summary.tokens,
        time_range=summary.time_range,
        thread=summary.thread,
        found=select.found_below(asked, summary),
        summary=summary,
    )


def evidence_of(
    handle: Handle,
    asked: ScoredQuery,
    units: Sequence[int],
    max_tokens: int,
    read: Mapping[int, StoredMessage],
    *,
    session_of: Callable[[int], str],
    names: Mapping[str, str] | None = None,
    shown: Sequence[Span] = (),
    later: Sequence[int] = (),
) -> Evidence:
    """Write the chosen units whose messages were ``read``, and return them with their hits.

    ``session_of`` returns a message's session. If the index is of several, the headers call them by
    ``names``. The messages of ``later`` are marked as such.
    """

    def title_of(number: int) -> str:
        return names[session_of(number)] if names else ""

    numbers = numbers_of(asked, units)
    stretches, text, tokens = write(
        asked.index,
        [unit for unit, number in zip(units, numbers, strict=True) if number in read],
        max_tokens,
        read,
        count=handle.counter.count,
        shown=shown,
        session_of=None if names is None else title_of,
        overview=asked.overview,
        later=later,
    )
    hits = tuple(
        _message_hit(
            handle,
            session_of(part.message),
            read[part.message],
            (part.begin, part.end),
            max(float(asked.scores[unit]) for unit in part.units),
        )
        for part in stretches
    )
    session_id = session_of(0) if names is None else None
    return Evidence(session_id, max_tokens, tokens, text, hits)


async def live_messages(
    handle: Handle, session_id: str, indices: Iterable[int]
) -> dict[int, StoredMessage]:
    """Read scattered messages, neighbours together; leave out messages that are not live.

    The index holds no such messages. But it is derived data, and this is the last check.
    """
    ranges = runs(sorted(set(indices)), gap=_GAP)
    read = await asyncio.gather(*(handle.store.messages(session_id, *span) for span in ranges))
    return {stored.index: stored for part in read for stored in part if stored.state == "live"}
