"""Reads the vectors of a session's passages and summaries, and runs the passes that make them.

::

    identity agreed ──▶ level by level: summaries without a vector, L1 first ──▶ embedder ──▶ block
                        then stride by stride: passages of messages          ──▶    "     ──▶   "

All vectors of a session belong to one embedder, and each to exactly the text that it was made from;
a vector that does not fit its units counts as missing. Vectors stay in memory with the index that
they belong to, so after an append only the new ones are read.

A pass that ends early loses nothing that it has committed, and the next one continues from there. A
result of one epoch of a session is never written in another.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from hiermem.calls.report import with_current_outcome
from hiermem.calls.run import JournalledRun
from hiermem.errors import BusyError, ConflictError, HiermemError, UsageError
from hiermem.handle import Handle
from hiermem.search import vectors
from hiermem.search.embedder_client import EMBED_TIMEOUT, EmbedderClient
from hiermem.search.index import Array, Index, runs, spoken
from hiermem.search.indexes import STRIDE, SessionIndex, stored_blocks
from hiermem.search.results import EmbeddingReport
from hiermem.search.summaries import by_stretch, journal_mark, may_be_stored, refresh, with_texts
from hiermem.search.summary_index import SummaryLevel, name_of
from hiermem.search.vectors import EMBEDDER, Identity, SummaryVectors, Vectors
from hiermem.text.measure import body
from hiermem.types import SessionRecord, Summary
from hiermem.types.transaction import Block, RecordWrite

_log = logging.getLogger("hiermem.search")
#: How often a pass is restarted because the session changed meanwhile.
_TRIES: Final = 5
#: The key of the record with the state in which a session had all its vectors.
EMBEDDED_STATE: Final = "reached"
#: How many of the newest runs are searched for a run that is not an embedding pass.
_RUNS: Final = 8
#: Blocks of vectors read in one go.
_AT_ONCE: Final = 32


async def load_vectors(
    handle: Handle, index: SessionIndex, record: SessionRecord, client: EmbedderClient
) -> None:
    """Read the vectors of ``index``, or read them again if a pass may have made more since.

    Call it under the index's lock. Raises ConflictError.
    """
    mark = (index.messages, await journal_mark(handle, record), index.summary_index)
    if index.vectors_mark == mark:
        return
    identity = await identity_of(handle, record.id)
    agree(record.id, identity, client.identity)
    if identity is None:
        index.vectors, index.summary_vectors = None, {}
    else:
        index.vectors = await _unit_vectors(handle, index, identity)
        index.summary_vectors = {
            level: await _level_vectors(handle, index, identity, row)
            for level, row in index.summary_index.levels.items()
        }
    index.vectors_mark = mark


async def lacks(handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session may lack vectors of this handle's embedder.

    A session with another embedder's vectors lacks none: they are dropped on request only. It costs
    two short reads.
    """
    client = handle.embedder_client
    if client is None or not record.messages or record.counter != handle.counter.name:
        return False
    records = await handle.store.records(EMBEDDER, scope=record.id)
    stored = {each.key: each.body for each in records}
    if "identity" in stored and Identity.from_json(stored["identity"]) != client.identity:
        return False
    return stored.get(EMBEDDED_STATE) != await embedded_state(handle, record)


async def identity_of(handle: Handle, session_id: str) -> Identity | None:
    """Return the embedder of a session's vectors; None if it has none."""
    records = await handle.store.records(EMBEDDER, scope=session_id, key="identity")
    return Identity.from_json(records[0].body) if records else None


async def embedded_state(handle: Handle, record: SessionRecord) -> str:
    """Return the part of a session's state that decides which vectors it should have.

    A complete pass stores it. It holds the number of messages, 0 if messages get no vectors, and
    the newest run that may have made summaries, with its outcome.
    """
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    newest = next((f"{run.id} {run.outcome}" for run in runs if run.kind != "embedding"), "")
    messages = record.messages if handle.search_policy.embed_messages else 0
    return json.dumps([record.epoch, record.tree, messages, newest])


def agree(session_id: str, stored: Identity | None, identity: Identity) -> None:
    """Refuse to mix embedders. Raises ConflictError."""
    if stored is not None and stored != identity:
        raise ConflictError(
            f"session {session_id!r} has vectors of {stored.name!r} ({stored.dimension} "
            f"dimensions), not of {identity.name!r} ({identity.dimension} dimensions); call "
            "memory.reembed(), or open it with that embedder",
            kind="embedder",
            session_id=session_id,
        )


async def _unit_vectors(handle: Handle, session: SessionIndex, identity: Identity) -> Vectors:
    """Read the vectors of units that were added to an index, or were made, since the last read."""
    index, current = session.index, session.vectors
    units = Vectors.none(identity.dimension) if current is None else current
    parts: list[tuple[int, Array]] = []
    for stretch in runs(_lacking(session), size=STRIDE, most=_AT_ONCE * STRIDE):
        for block in await stored_blocks(handle.store, session.record.id, identity.kind, *stretch):
            first, stop = np.searchsorted(index.units.message, (block.start, block.stop)).tolist()
            part = vectors.unpack(block.data, many=stop - first, dimension=identity.dimension)
            if part is not None:
                parts.append((first, part))
    # Vectors have the levels of the index, even of an index without units.
    if current is None or len(index) > len(units.present) or parts:
        units = await asyncio.to_thread(units.extended, index, parts)
    return units


def _lacking(session: SessionIndex) -> list[int]:
    """Return the strides, by their first messages, in which a unit has no vector yet."""
    message, without = session.index.units.message, np.ones(len(session.index), dtype=bool)
    if session.vectors is not None:
        without[: len(session.vectors.present)] = ~session.vectors.present
    strides: list[int] = (np.unique(message[without] // STRIDE) * STRIDE).tolist()
    return strides


async def _level_vectors(
    handle: Handle, index: SessionIndex, identity: Identity, row: SummaryLevel
) -> tuple[Sequence[tuple[str, int]], Array]:
    """Return the names and the vectors of a level's summaries, from memory and from the store."""
    level = row.summaries[0].level
    names = [name_of(summary) for summary in row.summaries]
    table = np.full((len(names), identity.dimension), np.nan, dtype=np.float32)
    by_name = _known(index, level)
    lacking = [summary for summary in row.summaries if name_of(summary) not in by_name]
    if lacking:
        starts = [start for start, _ in by_stretch(lacking)]
        for block in await stored_blocks(
            handle.store, index.record.id, identity.kind_of(level), starts[0], starts[-1] + 1
        ):
            by_name |= vectors.unpack_summaries(block.data, dimension=identity.dimension)
    for position, name in enumerate(names):
        if name in by_name:
            table[position] = by_name[name]
    return names, table


def _known(session: SessionIndex, level: int) -> dict[tuple[str, int], Array]:
    """Return the vectors of a level's summaries that are in memory."""
    pairs = zip(*session.summary_vectors.get(level, ((), ())), strict=True)
    return {name: vector for name, vector in pairs if not np.isnan(vector[0])}


async def quietly(
    handle: Handle, session_id: str, *, stopped: Callable[[], object] = lambda: None
) -> bool:
    """Run a pass in the background, if there is an embedder; log its failure.

    Returns whether the session now has all its vectors.
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
    """Make the vectors that a session lacks, one pass at a time; return a report.

    ``stopped`` says whether to end early. Raises UsageError without an embedder,
    ConflictError, and the embedder's last error.
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


async def reembed(handle: Handle, session_id: str) -> EmbeddingReport:
    """Drop the vectors of another embedder, and make those of this one.

    A session with this embedder's vectors gets the missing ones. The next call continues an
    interrupted one.
    """
    identity = _client_of(handle).identity
    record = await handle.record(session_id)
    stored = await identity_of(handle, session_id)
    if stored is not None and stored != identity:
        levels = await handle.store.tree(session_id).levels()
        for kind in (stored.kind, *(stored.kind_of(level) for level in levels)):
            await handle.store.drop_blocks(session_id, kind)
        write = RecordWrite(EMBEDDER, session_id, "identity", identity.to_json())
        if not await handle.store.put_records([write], epochs={session_id: record.epoch}):
            raise BusyError(session_id=session_id)
        handle.forget(session_id)
    return await embed(handle, session_id)


def _client_of(handle: Handle) -> EmbedderClient:
    """Return this handle's client of the embedder. Raises UsageError if it has none."""
    client = handle.embedder_client
    if client is None:
        raise UsageError("this memory has no embedder; open it with embedder=...")
    return client


async def _claim(handle: Handle, record: SessionRecord, identity: Identity) -> None:
    """Record the session's embedder, once. Raises ConflictError, BusyError."""
    stored = await identity_of(handle, record.id)
    if stored is None:
        write = RecordWrite(EMBEDDER, record.id, "identity", identity.to_json(), 0)
        if await handle.store.put_records([write], epochs={record.id: record.epoch}):
            return
        stored = await identity_of(handle, record.id)
        if stored is None:
            raise BusyError(session_id=record.id)
    agree(record.id, stored, identity)


async def _busy(handle: Handle, session_id: str) -> bool:
    """Return whether a live pass of another process is working on the session."""
    now = await handle.store.now()
    return any(
        run.kind == "embedding" and with_current_outcome(run, now).outcome == "running"
        for run in await handle.store.runs(subject=session_id, limit=20)
    )


class _EmbeddingPass:
    """One pass over a session."""

    def __init__(
        self, handle: Handle, client: EmbedderClient, session_id: str, stopped: Callable[[], object]
    ) -> None:
        self._handle, self._client, self._stopped = handle, client, stopped
        self._sent = client.requests
        self._session_id = session_id
        self._done: Counter[str] = Counter()
        #: Messages without vectors, if the pass was stopped early.
        self._remaining: int | None = None
        # Longer than one request may take.
        lease = 2 * EMBED_TIMEOUT + 60
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
            left=self._remaining or 0,
            stopped=None if self._remaining is None else "closing",
            **self._done,
        )

    def _detail(self, outcome: str) -> dict[str, Any]:
        identity, report = self._client.identity, self.report
        if outcome == "running":
            return {"embedder": identity.name}
        counted = ("messages", "summaries", "texts", "requests", "tokens", "stopped")
        detail = {name: getattr(report, name) for name in counted}
        return {"embedder": identity.name, "dimension": identity.dimension, **detail}

    async def once(self, record: SessionRecord) -> bool:
        """Make what is missing; return False if the session changed and must be examined again.

        A pass that was stopped early returns True.
        """
        handle = self._handle
        reached = await embedded_state(handle, record)
        try:
            async with handle.indexes.lock(record.id):
                session = await handle.indexes.get(record)
                await refresh(handle, session, record)
                if session.vectors is None:
                    session.vectors_mark = None  # the embedder may have been recorded since
                await load_vectors(handle, session, record, self._client)
                session = replace(session)
            policy = handle.search_policy
            lacking = _lacking(session) if policy.embed_messages else []
            if policy.embed_summaries and may_be_stored(record):
                for level in sorted(session.summary_index.levels):
                    if not await self._level(record, level, session):
                        self._remaining = record.messages - lacking[0] if lacking else 0
                        return True
            for start in lacking:
                if not await self._stride(record, session, start):
                    self._remaining = record.messages - start
                    return True
            # Later passes skip a session in the state in which it has all its vectors.
            states = await handle.store.records(EMBEDDER, scope=record.id, key=EMBEDDED_STATE)
            if not states or states[0].body != reached:
                write = RecordWrite(EMBEDDER, record.id, EMBEDDED_STATE, reached)
                await handle.store.put_records([write], epochs={record.id: record.epoch})
        except BusyError:
            return False
        return True

    async def _stride(self, record: SessionRecord, session: SessionIndex, start: int) -> bool:
        """Make the vectors that a stride lacks; return False if stopped before all were made."""
        index, identity, vectors_of = session.index, self._client.identity, session.vectors
        assert vectors_of is not None
        stop = min(record.messages, start + STRIDE)
        within = slice(*np.searchsorted(index.units.message, (start, stop)).tolist())
        lacking = within.start + np.flatnonzero(~vectors_of.present[within])
        new = await self._embedded(await self._texts(record, index, lacking))
        if new is None:
            return False
        rows = vectors_of.rows[within].copy()
        rows[lacking - within.start] = new
        await self._put(record, Block(identity.kind, start, stop, vectors.pack(rows)))
        self._done["messages"] += len(np.unique(index.units.message[lacking]))
        return True

    async def _texts(self, record: SessionRecord, index: Index, lacking: Array) -> list[str]:
        """Return the texts of units as an embedder receives them."""
        units = index.units
        numbers = units.message[lacking]
        read = await self._handle.messages(record.id, int(numbers[0]), int(numbers[-1]) + 1)
        bodies = {stored.index: body(stored.message) for stored in read}
        return [
            spoken(
                units.speakers[units.speaker[unit]],
                bodies[int(units.message[unit])][units.begin[unit] : units.end[unit]],
            )
            for unit in lacking
        ]

    async def _level(self, record: SessionRecord, level: int, session: SessionIndex) -> bool:
        """Make the vectors that a level's summaries lack; return False if stopped before."""
        identity, row = self._client.identity, session.summary_index.levels[level]
        known = _known(session, level)
        for start, summaries in by_stretch(row.summaries):
            missing = [summary for summary in summaries if name_of(summary) not in known]
            missing = await with_texts(self._handle, record, missing)
            missing = [summary for summary in missing if summary.revision is not None]
            if not missing:
                continue
            new = await self._summary_vectors(row, missing)
            if new is None:
                return False
            stored = {name: known[name] for name in map(name_of, summaries) if name in known}
            stop = max(summary.span.stop for summary in summaries)
            data = vectors.pack_summaries(stored | dict(new))
            await self._put(record, Block(identity.kind_of(level), start, stop, data))
            self._done["summaries"] += len(new)
        return True

    async def _summary_vectors(
        self, row: SummaryLevel, missing: Sequence[Summary]
    ) -> SummaryVectors | None:
        """Return the vectors of summaries: the means of their passages' vectors."""
        units = row.index.units
        texts: list[str] = []
        counts: list[int] = []
        for summary in missing:
            within = slice(
                *np.searchsorted(units.message, (summary.node.ordinal, summary.node.ordinal + 1))
            )
            stretches = zip(units.begin[within].tolist(), units.end[within].tolist(), strict=True)
            passages = [summary.text[begin:end] for begin, end in stretches]
            texts += passages
            counts.append(len(passages))
        rows = await self._embedded(texts)
        if rows is None:
            return None
        ends = np.cumsum(counts)
        return {
            name_of(summary): vectors.mean(rows[end - count : end])
            for summary, end, count in zip(missing, ends.tolist(), counts, strict=True)
            if count
        }

    async def _embedded(self, texts: Sequence[str]) -> Array | None:
        if texts:
            await self.run.begin()
        count = self._handle.counter.count
        rows = await self._client.passages(texts, count, self._stopped)
        if rows is not None:
            self._done.update(texts=len(texts), tokens=sum(map(count, texts)))
        return rows

    async def _put(self, record: SessionRecord, block: Block) -> None:
        # The journal tells indexes in memory that there are more vectors.
        await self.run.begin()
        if not await self._handle.store.put_blocks(record.id, [block], epoch=record.epoch):
            raise BusyError(session_id=record.id)
