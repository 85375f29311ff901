"""Searches a session: reads what is needed, lets the core rank, and gives what was said.

The one rule: what is given belongs to one state of the session. A search that was overtaken by an
edit or an erasure is done again, so that nothing is found that was taken back. Nothing is decided
here, and a search never waits for a model that summarises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hiermem.core import arguments
from hiermem.core.search import search as seek
from hiermem.core.search.embedding_state import IndexReport
from hiermem.core.search.evidence import write
from hiermem.core.search.filters import Filters
from hiermem.core.search.hits import Evidence, Hit
from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array
from hiermem.core.search.search import Asked
from hiermem.core.search.summary_index import Shelf
from hiermem.core.text.measure import body
from hiermem.engine.handle import Handle
from hiermem.engine.index import KIND, SessionIndex
from hiermem.engine.search.labels import labelled
from hiermem.engine.search.summary_index import kind_of, stocked
from hiermem.errors import SessionChangedError, UsageError
from hiermem.types import SessionRecord, Span, StoredMessage, Summary

if TYPE_CHECKING:
    from hiermem.engine.search.vectors import Loaded

T = TypeVar("T")
#: How often a search is done again that was overtaken.
_TRIES: Final = 5
#: Indexes of more units than this are asked on a thread.
_FEW_UNITS: Final = 20_000
#: Messages that stand this near one another are read in one go.
_GAP: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A question to one session, with what may answer it."""

    session_id: str
    text: str
    filters: Filters = field(default_factory=Filters)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(f"query is {type(self.text).__name__}; it must be text")


async def search(handle: Handle, question: Question, limit: int) -> list[Hit]:
    """Give the best ``limit`` hits of all levels that the filters let pass, best first."""
    arguments.whole(limit, "limit")
    of_level = handle.search_policy.of_level

    async def answer(asked: Asked, record: SessionRecord) -> list[Hit]:
        found = await _hits(
            handle, record, asked, question, lambda level: of_level(level) if level else limit
        )
        return found[:limit]

    return await _asked(handle, question, answer)


async def semantic(handle: Handle, question: Question) -> list[Hit]:
    """Give the candidates of every level, as many of each as the policy says, best first."""
    of_level = handle.search_policy.of_level

    async def answer(asked: Asked, record: SessionRecord) -> list[Hit]:
        return await _hits(handle, record, asked, question, of_level)

    return await _asked(handle, question, answer)


async def recall(
    handle: Handle,
    question: Question,
    max_tokens: int,
    *,
    neighbours: int = 0,
    shown: Iterable[Span] = (),
) -> Evidence:
    """Give verbatim evidence that fits ``max_tokens``, oldest first; nothing that is ``shown``."""
    arguments.whole(max_tokens, "max_tokens")
    arguments.whole(neighbours, "neighbours")
    spans = tuple(shown)

    async def answer(asked: Asked, record: SessionRecord) -> Evidence:
        units = seek.evidence(
            asked,
            question.filters,
            max_tokens,
            count=handle.counter.count,
            neighbours=neighbours,
            dedup=question.filters.dedup,
            shown=spans,
        )
        return await _written(handle, record, asked, units, max_tokens, shown=spans)

    return await _asked(handle, question, answer)


async def fill_budget(
    handle: Handle,
    session_id: str,
    hits: Iterable[Hit],
    max_tokens: int,
    *,
    neighbours: int = 1,
    shown: Iterable[Span] = (),
) -> Evidence:
    """Pack what hits rest on into ``max_tokens``, the first hit first, with what stands around it.

    Of a summary the messages that it was found for are packed.
    """
    arguments.whole(max_tokens, "max_tokens")
    arguments.whole(neighbours, "neighbours")
    wanted = _wanted(session_id, hits)
    spans = tuple(shown)

    async def answer(asked: Asked, record: SessionRecord) -> Evidence:
        units = seek.of_spans(
            asked,
            wanted,
            max_tokens,
            count=handle.counter.count,
            neighbours=neighbours,
            shown=spans,
        )
        return await _written(handle, record, asked, units, max_tokens, shown=spans)

    return await _asked(handle, Question(session_id, ""), answer)


def _wanted(session_id: str, hits: Any) -> list[Span]:
    if isinstance(hits, (str, bytes)) or not isinstance(hits, Iterable):
        raise UsageError(f"hits is {type(hits).__name__}; it must be a sequence of hits")
    found: list[Span] = []
    for hit in hits:
        if not isinstance(hit, Hit):
            raise UsageError(f"hits holds {type(hit).__name__}; it must hold what search() gives")
        if hit.session_id != session_id:
            raise UsageError("hits holds a hit of another session")
        if hit.kind == "message":
            found.append(hit.span)
        else:
            found += [Span(index, index + 1) for index in hit.found]
    return found


async def rebuild(handle: Handle) -> IndexReport:
    """Drop the indexes of all sessions and make them anew."""
    sessions = messages = passages = 0
    for record in await handle.store.sessions():
        handle.check(record)
        handle.forget(record.id)
        levels = await handle.store.levels(record.id)
        for kind in (KIND, *map(kind_of, levels)):
            await handle.store.drop_blocks(record.id, kind)
        async with handle.indexes.lock(record.id):
            try:
                held = await handle.indexes.get(record)
                await stocked(handle, held, record)
            except SessionChangedError:
                # Whoever changed it took from the index what it held; the next search sees to it.
                continue
        sessions, messages = sessions + 1, messages + held.messages
        passages += len(held.index)
    return IndexReport(sessions, messages, passages)


# ---------------------------------------------------------------------------------------------
# Asking


async def _asked(
    handle: Handle,
    question: Question,
    answer: Callable[[Asked, SessionRecord], Awaitable[T]],
) -> T:
    """Put a question to a session and let ``answer`` read what it needs, in one of its states."""
    indexes = handle.indexes
    for _ in range(_TRIES):
        record = await handle.record(question.session_id)
        async with indexes.lock(record.id):
            try:
                held = await indexes.get(record)
                await stocked(handle, held, record)
                if question.filters.by_window:
                    await labelled(handle, held, record)
                vectors = await _vectors(handle, held, record)
            except SessionChangedError:
                continue
            index, shelf = held.index, held.shelf
        near = await _near(handle, question.text) if vectors is not None else None
        asking = partial(_ask, index, shelf, question.text, vectors, near)
        asked = asking() if len(index) <= _FEW_UNITS else await asyncio.to_thread(asking)
        result = await answer(asked, record)
        now = await handle.store.session(record.id)
        if now is not None and (now.created_at, now.epoch) == (record.created_at, record.epoch):
            return result
    raise SessionChangedError(question.session_id)


async def _vectors(handle: Handle, held: SessionIndex, record: SessionRecord) -> Loaded | None:
    if handle.embedder_client is None:
        return None
    from hiermem.engine.search.vectors import loaded

    return await loaded(handle, held, record)


async def _near(handle: Handle, text: str) -> tuple[Array, float] | None:
    """Give the question's vector with the weight of its embedder; None where it has none."""
    asker = handle.embedder_client
    vector = await asker.question(text, handle.counter.count) if asker else None
    return None if asker is None or vector is None else (vector, asker.weight)


def _ask(
    index: Index,
    shelf: Shelf,
    text: str,
    vectors: Loaded | None,
    near: tuple[Array, float] | None,
) -> Asked:
    query = seek.read(text)
    if vectors is None or near is None:
        return seek.ask(index, shelf, query)
    vector, weight = near
    dense, told = vectors.near(index, vector, weight=weight)
    return seek.ask(index, shelf, query, dense=dense, told_near=told)


# ---------------------------------------------------------------------------------------------
# Answering


async def _hits(
    handle: Handle,
    record: SessionRecord,
    asked: Asked,
    question: Question,
    many: Callable[[int], int],
) -> list[Hit]:
    """Give message hits and summary hits together, as ``many`` of each level, best first."""
    units = seek.hits(asked, question.filters, many(0), dedup=question.filters.dedup)
    spans = [_span(asked, unit) for unit in units]
    read = await _messages(handle, record.id, [span.start for span in spans])
    found = [
        _message_hit(handle, record, read[span.start], span, float(asked.scores[unit]))
        for unit, span in zip(units, spans, strict=True)
        if span.start in read
    ]
    for level in sorted(asked.shelf.rows):
        found += [
            _summary_hit(asked, summary, score)
            for summary, score in seek.told(asked, level, question.filters, many(level))
        ]
    return sorted(found, key=lambda hit: (-hit.score, hit.level, hit.span.start))


def _span(asked: Asked, unit: int) -> Span:
    units = asked.index.units
    number = int(units.message[unit])
    return Span(number, number + 1, int(units.begin[unit]), int(units.end[unit]))


def _message_hit(
    handle: Handle, record: SessionRecord, stored: StoredMessage, span: Span, score: float
) -> Hit:
    whole = body(stored.message)
    text = whole[span.start_char : span.stop_char]
    if span.start_char == 0 and span.stop_char == len(whole):
        span = Span(span.start, span.stop)
    return Hit(
        session_id=record.id,
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


def _summary_hit(asked: Asked, summary: Summary, score: float) -> Hit:
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
        found=seek.found_below(asked, summary),
        summary=summary,
    )


async def _written(
    handle: Handle,
    record: SessionRecord,
    asked: Asked,
    units: Sequence[int],
    max_tokens: int,
    *,
    shown: Sequence[Span],
) -> Evidence:
    """Read what was chosen, write it and say what stands where."""
    index = asked.index
    read = await _messages(handle, record.id, [int(index.units.message[unit]) for unit in units])
    units = [unit for unit in units if int(index.units.message[unit]) in read]
    written = write(index, units, max_tokens, read, count=handle.counter.count, shown=shown)
    found = tuple(
        _message_hit(
            handle,
            record,
            read[part.message],
            Span(part.message, part.message + 1, part.begin, part.end),
            max(float(asked.scores[unit]) for unit in part.units),
        )
        for part in written.stretches
    )
    return Evidence(record.id, max_tokens, written.tokens, written.text, found)


async def _messages(
    handle: Handle, session_id: str, indices: Iterable[int]
) -> dict[int, StoredMessage]:
    """Read messages that lie scattered, neighbours in one go; those not in use are left out.

    The index holds none of those. It is derived, though, and this is the last place to look.
    """
    wanted = sorted(set(indices))
    ranges: list[tuple[int, int]] = []
    for index in wanted:
        if ranges and index - ranges[-1][1] <= _GAP:
            ranges[-1] = (ranges[-1][0], index + 1)
        else:
            ranges.append((index, index + 1))
    read = await asyncio.gather(
        *(handle.store.messages(session_id, start, stop) for start, stop in ranges)
    )
    return {stored.index: stored for part in read for stored in part if stored.state == "live"}
