"""Makes the vectors of a session's passages and summaries, in the background.

::

    identity agreed ──▶ level by level: summaries without a vector, L1 first ──▶ embedder ──▶ block
                        then stride by stride: passages of messages          ──▶    "     ──▶   "

A pass that ends early loses nothing that it has committed, and the next one continues from there. A
result of one epoch of a session is never written in another. A session has vectors of one embedder
only.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from hiermem.calls.run import JournalledRun
from hiermem.calls.run_report import with_current_outcome
from hiermem.config import LONGEST_LEASE
from hiermem.errors import HiermemError, SessionChangedError, UsageError
from hiermem.handle import Handle
from hiermem.search import keep_summary_index as vectors
from hiermem.search import vectors as packed
from hiermem.search.embedder_client import EmbedderClient
from hiermem.search.embedding_state import EMBEDDER, EmbeddingReport, Identity
from hiermem.search.index import Index
from hiermem.search.indexes import STRIDE, SessionIndex, stored_blocks
from hiermem.search.keep_summary_index import by_stretch, may_be_stored, refresh, with_texts
from hiermem.search.postings import Array, spoken
from hiermem.search.ranking import SummaryLevel, name_of
from hiermem.search.vectors import SummaryVectors
from hiermem.text.measure import body
from hiermem.types import SessionRecord, Summary
from hiermem.types.transaction import Block, RecordWrite

_log = logging.getLogger("hiermem.search")
#: How often a pass is restarted because the session changed meanwhile.
_TRIES: Final = 5


def _client_of(handle: Handle) -> EmbedderClient:
    """Return this handle's client of the embedder. Raises UsageError if it has none."""
    client = handle.embedder_client
    if client is None:
        raise UsageError("this memory has no embedder; open it with embedder=...")
    return client


async def _claim(handle: Handle, record: SessionRecord, given: Identity) -> None:
    """Record the session's embedder, once. Raises EmbedderMismatchError, SessionChangedError."""
    kept = await vectors.identity_of(handle, record.id)
    if kept is None:
        write = RecordWrite(EMBEDDER, record.id, "identity", given.to_json(), 0)
        if await handle.store.put_records([write], epochs={record.id: record.epoch}):
            return
        kept = await vectors.identity_of(handle, record.id)
        if kept is None:
            raise SessionChangedError(record.id)
    vectors.agree(record.id, kept, given)


# ---------------------------------------------------------------------------------------------
# A pass


async def quietly(
    handle: Handle, session_id: str, *, stopped: Callable[[], object] = lambda: None
) -> bool:
    """Run a pass in the background, if there is an embedder; log its failure.

    Returns whether the session has all its vectors now.
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
    """Make the vectors that a session lacks, one pass at a time; return what was done.

    ``stopped`` says whether to end early. Raises UsageError without an embedder,
    EmbedderMismatchError, and the embedder's last error.
    """
    client = _client_of(handle)
    async with handle.indexes.lock(f"embedding/{session_id}"):
        if await _busy(handle, session_id):
            return EmbeddingReport(session_id, stopped="busy")
        work = _EmbeddingPass(handle, client, session_id, stopped)
        async with work.run:
            for _ in range(_TRIES):
                record = await handle.record(session_id)
                await _claim(handle, record, client.identity)
                if await work.once(record):
                    break
            work.run.outcome = "partial" if work.report.stopped else "ok"
        return work.report


async def _busy(handle: Handle, session_id: str) -> bool:
    """Return whether a live pass of another process is working on the session."""
    now = await handle.store.now()
    for run in await handle.store.runs(subject=session_id, limit=20):
        if run.kind == "embedding" and with_current_outcome(run, now).outcome == "running":
            return True
    return False


class _EmbeddingPass:
    """One pass over a session."""

    def __init__(
        self, handle: Handle, client: EmbedderClient, session_id: str, stopped: Callable[[], object]
    ) -> None:
        self._handle, self._client, self._stopped = handle, client, stopped
        self._sent = client.requests
        self._session_id = session_id
        self._done: Counter[str] = Counter()
        #: Messages without vectors where the pass was stopped early.
        self._left: int | None = None
        # Longer than one request may take.
        lease = min(2 * handle.search_policy.embed_timeout + 60, LONGEST_LEASE)
        self.run = JournalledRun(
            store=handle.store,
            tree=handle.store.tree(session_id),
            kind="embedding",
            subject=session_id,
            lease=lease,
            now=handle.store_now,
            compare_clocks=partial(handle.compare_clocks, lease=lease),
            detail=self._detail,
        )

    @property
    def report(self) -> EmbeddingReport:
        """The work done so far; a pass that had nothing to do is not recorded as a run."""
        return EmbeddingReport(
            self._session_id,
            run_id=self.run.run_id if self.run.begun else None,
            requests=self._client.requests - self._sent,
            left=self._left or 0,
            stopped=None if self._left is None else "closing",
            **self._done,
        )

    def _detail(self, outcome: str) -> dict[str, Any]:
        identity, report = self._client.identity, self.report
        if outcome == "running":
            return {"embedder": identity.name}
        counted = ("messages", "summaries", "texts", "requests", "tokens", "stopped")
        detail = {name: getattr(report, name) for name in counted}
        return {"embedder": identity.name, "dimension": identity.dimension, **detail}

    # -- the work

    async def once(self, record: SessionRecord) -> bool:
        """Make what is missing; return whether the pass is complete or was stopped.

        False if the session was changed meanwhile: then it has to be examined again.
        """
        indexes = self._handle.indexes
        reached = await vectors.embedded_state(self._handle, record)
        try:
            async with indexes.lock(record.id):
                held = await indexes.get(record)
                await refresh(self._handle, held, record)
                kind = self._client.identity.kind
                if held.embedded_kind != kind:
                    held.embedded_kind, held.embedded, held.embedded_summaries = kind, 0, set()
                index, summary_index = held.index, held.summary_index
            policy = self._handle.search_policy
            begin = held.embedded // STRIDE * STRIDE
            if policy.embed_summaries and may_be_stored(record):
                for level in sorted(summary_index.levels):
                    if not await self._level(record, level, summary_index.levels[level], held):
                        self._left = record.messages - begin if policy.embed_messages else 0
                        return True
            for start in range(begin, record.messages if policy.embed_messages else 0, STRIDE):
                stop = min(record.messages, start + STRIDE)
                if not await self._stride(record, index, start, stop):
                    self._left = record.messages - start
                    return True
                held.embedded = stop
            # Later passes skip a session in the state in which it has all its vectors.
            store = self._handle.store
            known = await store.records(EMBEDDER, scope=record.id, key=vectors.EMBEDDED_STATE)
            if not known or known[0].body != reached:
                write = RecordWrite(EMBEDDER, record.id, vectors.EMBEDDED_STATE, reached)
                await store.put_records([write], epochs={record.id: record.epoch})
        except SessionChangedError:
            return False
        return True

    async def _stride(self, record: SessionRecord, index: Index, start: int, stop: int) -> bool:
        """Make the vectors that a stride lacks; return whether it has them all now."""
        identity = self._client.identity
        low, high = vectors.place_of(index, start), vectors.place_of(index, stop)
        kept = np.empty((0, identity.dimension), dtype=np.float32)
        for block in await stored_blocks(
            self._handle.store, record.id, identity.kind, start, start + 1
        ):
            part = vectors.vectors_in(index, block, identity)
            if part is not None and block.stop <= stop:
                kept = part
                begin = block.stop
                break
        else:
            begin = start
        if begin >= stop:
            return True
        texts = await self._texts(record, index, low + len(kept), high, (begin, stop))
        made = await self._made(texts)
        if made is None:
            return False
        rows = np.concatenate([kept, made])
        await self._put(record, Block(identity.kind, start, stop, packed.pack(rows)))
        self._done["messages"] += stop - begin
        return True

    async def _texts(
        self, record: SessionRecord, index: Index, low: int, high: int, span: tuple[int, int]
    ) -> list[str]:
        """Return the texts of units as an embedder receives them."""
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

    async def _level(
        self, record: SessionRecord, level: int, row: SummaryLevel, held: SessionIndex
    ) -> bool:
        """Make the vectors that a level's summaries lack; return whether all have one now."""
        identity = self._client.identity
        for start, summaries in by_stretch(row.summaries):
            wanted = {name_of(each): each for each in summaries}
            if wanted.keys() <= held.embedded_summaries:
                continue
            kept = await vectors.stored_summaries(
                self._handle, record.id, identity, level, start=start, stop=start + 1
            )
            missing = [each for name, each in wanted.items() if name not in kept]
            missing = await with_texts(self._handle, record, missing)
            missing = [each for each in missing if each.revision is not None]
            if missing:
                made = await self._summary_vectors(row, missing)
                if made is None:
                    return False
                vectors_of = {name: kept[name] for name in kept if name in wanted} | dict(made)
                stop = max(each.span.stop for each in summaries)
                data = packed.pack_summaries(vectors_of)
                await self._put(record, Block(identity.kind_of(level), start, stop, data))
                self._done["summaries"] += len(made)
            held.embedded_summaries |= wanted.keys()
        return True

    async def _summary_vectors(
        self, row: SummaryLevel, missing: Sequence[Summary]
    ) -> SummaryVectors | None:
        """Return the vectors of summaries: the means of their passages' vectors."""
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
            name_of(each): packed.mean(made[end - count : end])
            for each, end, count in zip(missing, ends.tolist(), many, strict=True)
            if count
        }

    async def _made(self, texts: Sequence[str]) -> Array | None:
        if texts:
            await self.run.begin()
        count = self._handle.counter.count
        made = await self._client.passages(texts, count, self._stopped)
        if made is not None:
            self._done.update(texts=len(texts), tokens=sum(map(count, texts)))
        return made

    async def _put(self, record: SessionRecord, block: Block) -> None:
        # Indexes in memory see by the journal that there are more vectors.
        await self.run.begin()
        if not await self._handle.store.put_blocks(record.id, [block], epoch=record.epoch):
            raise SessionChangedError(record.id)


# ---------------------------------------------------------------------------------------------
# Another embedder


async def reembed(handle: Handle, session_id: str) -> EmbeddingReport:
    """Drop the vectors of another embedder, and make those of this one.

    A session that has this embedder's vectors already gets the missing ones. If it is interrupted,
    the next call continues.
    """
    given = _client_of(handle).identity
    record = await handle.record(session_id)
    kept = await vectors.identity_of(handle, session_id)
    if kept is not None and kept != given:
        levels = await handle.store.tree(session_id).levels()
        for kind in (kept.kind, *(kept.kind_of(level) for level in levels)):
            await handle.store.drop_blocks(session_id, kind)
        write = RecordWrite(EMBEDDER, session_id, "identity", given.to_json())
        if not await handle.store.put_records([write], epochs={session_id: record.epoch}):
            raise SessionChangedError(session_id)
        handle.forget(session_id)
    return await embed(handle, session_id)
