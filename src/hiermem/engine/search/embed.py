"""Makes the vectors of a session's passages and summaries, behind everything else.

::

    identity agreed ──▶ stride by stride: passages without a vector ──▶ embedder ──▶ block committed
                        then level by level: summaries, L1 first    ──▶    "     ──▶    "

The one rule: a pass that ends early loses nothing that it has committed, and the next one goes on
from there. What was worked out in one epoch of a session lands in no other. A session has vectors
of one embedder only.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import numpy as np

from hiermem.core.calls.run_report import with_current_outcome
from hiermem.core.search import summary_vectors
from hiermem.core.search import vectors as packed
from hiermem.core.search.embedding_state import EMBEDDER, EmbeddingReport, Identity
from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array, spoken
from hiermem.core.search.summary_index import Row
from hiermem.core.search.summary_vectors import Told
from hiermem.core.text.measure import body
from hiermem.engine.calls.cut_off import note_cut_off
from hiermem.engine.calls.embedder_client import EmbedderClient
from hiermem.engine.handle import Handle
from hiermem.engine.index import STRIDE, SessionIndex
from hiermem.engine.search.fork_vectors import Source
from hiermem.engine.search.summary_index import by_stretch, kept_beside, stocked
from hiermem.engine.search.vectors import (
    REACHED,
    agree,
    identity_of,
    place_of,
    reached_by,
    read_blocks,
    vectors_in,
)
from hiermem.errors import (
    HiermemError,
    SessionChangedError,
    UsageError,
)
from hiermem.types import SessionRecord, Summary
from hiermem.types.transaction import Block, RecordWrite, RunRecord

_log = logging.getLogger("hiermem.search")
#: How often a session is begun with again that was changed meanwhile.
_TRIES: Final = 5


def _asker(handle: Handle) -> EmbedderClient:
    """Give the way to this handle's embedder. Raises UsageError where it has none."""
    asker = handle.embedder_client
    if asker is None:
        raise UsageError("this memory has no embedder; open it with embedder=...")
    return asker


async def _claim(handle: Handle, record: SessionRecord, given: Identity) -> None:
    """Name the session's embedder, once. Raises EmbedderMismatchError, SessionChangedError."""
    kept = await identity_of(handle, record.id)
    if kept is None:
        write = RecordWrite(EMBEDDER, record.id, "identity", given.to_json(), 0)
        if await handle.store.put_records([write], epochs={record.id: record.epoch}):
            return
        kept = await identity_of(handle, record.id)
        if kept is None:
            raise SessionChangedError(record.id)
    agree(record.id, kept, given)


# ---------------------------------------------------------------------------------------------
# A pass


async def quietly(
    handle: Handle, session_id: str, *, stopped: Callable[[], object] = lambda: None
) -> bool:
    """Run a pass in the background, where there is an embedder; its failure is logged.

    Says whether the session has all its vectors now.
    """
    if handle.embedder_client is None:
        return False
    try:
        return (await embed(handle, session_id, stopped=stopped)).stopped is None
    except HiermemError as error:
        _log.warning("session %r has vectors missing: %s", session_id, type(error).__name__)
    return False


async def embed(
    handle: Handle, session_id: str, *, stopped: Callable[[], object] = lambda: None
) -> EmbeddingReport:
    """Make the vectors that a session lacks, one pass at a time; give what was done.

    ``stopped`` says whether to end early. Raises UsageError without an embedder,
    EmbedderMismatchError, and what the embedder raises in the end.
    """
    asker = _asker(handle)
    await note_cut_off(handle.store, session_id, kind="embedding", now=handle.clock())
    async with handle.indexes.lock(f"embedding/{session_id}"):
        if await _busy(handle, session_id):
            return EmbeddingReport(session_id, stopped="busy")
        work = _Pass(handle, asker, session_id, stopped)
        try:
            for _ in range(_TRIES):
                record = await handle.record(session_id)
                await _claim(handle, record, asker.identity)
                if await work.once(record):
                    break
        except BaseException as error:
            await work.break_off(error)
            raise
        return await work.end()


async def _busy(handle: Handle, session_id: str) -> bool:
    """Say whether a pass of another process is at it, and alive."""
    now = handle.clock()
    for run in await handle.store.runs(subject=session_id, limit=20):
        if run.kind == "embedding" and with_current_outcome(run, now).outcome == "running":
            return True
    return False


@dataclass(slots=True)
class _Seen:
    """What a session was seen to have: vectors up to ``messages``, and of summaries by name.

    It belongs to one index in memory, and so to one epoch.
    """

    kind: str
    messages: int = 0
    told: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


class _Pass:
    """One pass over a session."""

    def __init__(
        self, handle: Handle, asker: EmbedderClient, session_id: str, stopped: Callable[[], object]
    ) -> None:
        self._handle, self._asker, self._stopped = handle, asker, stopped
        self._begun = False
        self._sent = asker.requests
        self._source: Source
        self._record = RunRecord(uuid.uuid4().hex, "embedding", session_id, handle.clock())
        self._report = EmbeddingReport(session_id, self._record.id)

    # -- the journal

    async def _alive(self) -> None:
        """Journal that the pass is under way, for as long as one request may take and more."""
        policy = self._handle.search_policy
        alive = self._handle.clock() + timedelta(seconds=2 * policy.embed_timeout + 60)
        detail = {"embedder": self._asker.identity.name, "alive_until": alive.isoformat()}
        await self._handle.store.put_run(replace(self._record, detail=detail))
        self._begun = True

    async def end(self) -> EmbeddingReport:
        """Journal how it ended, if it had anything to do."""
        done = replace(self._report, requests=self._asker.requests - self._sent)
        if not self._begun:
            return replace(done, run_id=None)
        await self._finish("partial" if done.stopped else "ok", done)
        return done

    async def break_off(self, error: BaseException) -> None:
        """Journal that it was cancelled or met an error."""
        if self._begun:
            cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
            outcome = "interrupted" if cancelled else "error"
            await self._finish(outcome, self._report, reason=type(error).__name__)

    async def _finish(self, outcome: Any, report: EmbeddingReport, **more: str) -> None:
        detail = {
            "embedder": self._asker.identity.name,
            "dimension": self._asker.identity.dimension,
            "messages": report.messages,
            "summaries": report.summaries,
            "texts": report.texts,
            "requests": self._asker.requests - self._sent,
            "tokens": report.tokens,
            "stopped": report.stopped,
            **more,
        }
        ended = self._handle.clock()
        await self._handle.store.put_run(
            replace(self._record, outcome=outcome, ended_at=ended, detail=detail)
        )

    # -- the work

    async def once(self, record: SessionRecord) -> bool:
        """Make what is missing; say whether it is done, or was stopped.

        False where the session was changed meanwhile: what is left has to be looked for again.
        """
        indexes = self._handle.indexes
        reached = await reached_by(self._handle, record)
        self._source = Source(self._handle, record, self._asker.identity)
        try:
            async with indexes.lock(record.id):
                held = await indexes.get(record)
                await stocked(self._handle, held, record)
                index, shelf, seen = held.index, held.shelf, self._seen(held)
            for start in range(seen.messages // STRIDE * STRIDE, record.messages, STRIDE):
                stop = min(record.messages, start + STRIDE)
                if not await self._stride(record, index, start, stop):
                    left = record.messages - start
                    self._report = replace(self._report, stopped="closing", left=left)
                    return True
                seen.messages = stop
            if self._handle.search_policy.embed_summaries and kept_beside(record):
                for level in sorted(shelf.rows):
                    if not await self._level(record, level, shelf.rows[level], seen):
                        self._report = replace(self._report, stopped="closing")
                        return True
            await self._reached(record, reached.to_json())
        except SessionChangedError:
            return False
        return True

    async def _reached(self, record: SessionRecord, state: str) -> None:
        """Keep the state in which the session has all its vectors, so that none looks for more."""
        store = self._handle.store
        known = await store.records(EMBEDDER, scope=record.id, key=REACHED)
        if not known or known[0].body != state:
            write = RecordWrite(EMBEDDER, record.id, REACHED, state)
            await store.put_records([write], epochs={record.id: record.epoch})

    def _seen(self, held: SessionIndex) -> _Seen:
        """Give what is known of the vectors of a session from the passes before."""
        kind = self._asker.identity.kind
        if not isinstance(held.embedded, _Seen) or held.embedded.kind != kind:
            held.embedded = _Seen(kind)
        return held.embedded

    async def _stride(self, record: SessionRecord, index: Index, start: int, stop: int) -> bool:
        """Make the vectors of a stride that it lacks; say whether it has them all now."""
        identity = self._asker.identity
        low, high = place_of(index, start), place_of(index, stop)
        kept = np.empty((0, identity.dimension), dtype=np.float32)
        for block in await read_blocks(self._handle, record.id, identity.kind, start, start + 1):
            part = vectors_in(index, block, identity)
            if part is not None and block.stop <= stop:
                kept = part
                begin = block.stop
                break
        else:
            begin = start
        if begin >= stop:
            return True
        taken = await self._source.messages(index, begin, stop)
        low += len(kept) + len(taken)
        texts = await self._texts(record, index, low, high, (begin, stop))
        made = await self._made(texts)
        if made is None:
            return False
        rows = np.concatenate([kept, taken, made])
        await self._put(record, Block(identity.kind, start, stop, packed.pack(rows)))
        self._report = replace(self._report, messages=self._report.messages + stop - begin)
        return True

    async def _texts(
        self, record: SessionRecord, index: Index, low: int, high: int, span: tuple[int, int]
    ) -> list[str]:
        """Give the texts of units as an embedder is given them."""
        units = index.units
        read = await self._handle.messages(record.id, *span)
        bodies = {stored.index: body(stored.message) for stored in read}
        return [
            spoken(
                units.speakers[units.speaker[unit]],
                bodies[int(units.message[unit])][units.begin[unit] : units.end[unit]],
            )
            for unit in range(low, high)
        ]

    async def _level(self, record: SessionRecord, level: int, row: Row, seen: _Seen) -> bool:
        """Make the vectors of a level's summaries that lack one; say whether all have one now."""
        identity = self._asker.identity
        kind = identity.kind_of(level)
        for start, summaries in by_stretch(row.summaries):
            wanted = {_name(each): each for each in summaries}
            if wanted.keys() <= seen.told:
                continue
            held: dict[tuple[str, int], Array] = {}
            for block in await read_blocks(self._handle, record.id, kind, start, start + 1):
                held |= summary_vectors.unpack(block.data, dimension=identity.dimension)
            missing = [each for name, each in wanted.items() if name not in held]
            if missing:
                taken = await self._source.summaries(level, start, missing)
                held |= taken
                made = await self._told(row, [each for each in missing if _name(each) not in taken])
                if made is None:
                    return False
                told = {name: held[name] for name in held if name in wanted} | dict(made)
                stop = max(each.span.stop for each in summaries)
                await self._put(record, Block(kind, start, stop, summary_vectors.pack(told)))
                done = self._report.summaries + len(taken) + len(made)
                self._report = replace(self._report, summaries=done)
            seen.told |= wanted.keys()
        return True

    async def _told(self, row: Row, missing: Sequence[Summary]) -> Told | None:
        """Give the vectors of summaries: the mean of their passages'."""
        units = row.index.units
        texts: list[str] = []
        many: list[int] = []
        for each in missing:
            own = slice(*np.searchsorted(units.message, (each.node.ordinal, each.node.ordinal + 1)))
            stretches = zip(units.begin[own].tolist(), units.end[own].tolist(), strict=True)
            passages = [each.text[begin:end] for begin, end in stretches]
            texts += passages
            many.append(len(passages))
        made = await self._made(texts)
        if made is None:
            return None
        ends = np.cumsum(many)
        return {
            _name(each): summary_vectors.mean(made[end - count : end])
            for each, end, count in zip(missing, ends.tolist(), many, strict=True)
            if count
        }

    async def _made(self, texts: Sequence[str]) -> Array | None:
        if texts:
            await self._alive()
        count = self._handle.counter.count
        made = await self._asker.passages(texts, count, self._stopped)
        if made is not None:
            report = self._report
            tokens = report.tokens + sum(map(count, texts))
            self._report = replace(report, texts=report.texts + len(texts), tokens=tokens)
        return made

    async def _put(self, record: SessionRecord, block: Block) -> None:
        if not await self._handle.store.put_blocks(record.id, [block], epoch=record.epoch):
            raise SessionChangedError(record.id)


def _name(summary: Summary) -> tuple[str, int]:
    return summary.id, summary.node.revision


# ---------------------------------------------------------------------------------------------
# Another embedder


async def reembed(handle: Handle, session_id: str) -> EmbeddingReport:
    """Let go of the vectors of another embedder, and make those of this one.

    A session that has this one's already gets what it lacks. Cut off, it is gone on with by the
    next call.
    """
    given = _asker(handle).identity
    record = await handle.record(session_id)
    kept = await identity_of(handle, session_id)
    if kept is not None and kept != given:
        levels = await handle.store.levels(session_id)
        for kind in (kept.kind, *(kept.kind_of(level) for level in levels)):
            await handle.store.drop_blocks(session_id, kind)
        write = RecordWrite(EMBEDDER, session_id, "identity", given.to_json())
        if not await handle.store.put_records([write], epochs={session_id: record.epoch}):
            raise SessionChangedError(session_id)
        handle.forget(session_id)
    return await embed(handle, session_id)
