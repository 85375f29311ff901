"""Reads the indexes of sessions from the store, extends them, and writes missing blocks.

::

    blocks in the store ──▶ missing or damaged? made from messages, put back ─┐
    messages after the last full stride ───────────────────────────────────────┴─▶ index in memory

An index is derived data. It is compared with the session's record each time, so any process may
write. A part that is lost, damaged or stale is made again from the messages. A store that cannot
keep a block costs time and nothing else. ``search.rank`` decides what a search returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from hiermem.errors import BusyError, StoreCorruptError, StoreError
from hiermem.process import IndexCache
from hiermem.protocols import TenantStore, TokenCounter
from hiermem.search.index import Index, Postings, collect, join, pack, unpack
from hiermem.search.segments import Part
from hiermem.search.summary_index import SummaryIndex
from hiermem.search.vectors import SummaryTables, Vectors
from hiermem.tokens import LONG
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.transaction import TERMS, Block

_log = logging.getLogger("hiermem.search")
#: The kind of the blocks that hold terms.
KIND: Final = TERMS
#: Messages in a block. Messages that do not fill one yet are indexed only in memory.
STRIDE: Final = 256
#: Strides read, and blocks written, at a time.
_AT_ONCE: Final = 32
#: Fewer messages, or units, than this are processed in place; more on a thread.
_FEW_MESSAGES: Final = 32
_FEW_UNITS: Final = 4_096

Read: TypeAlias = Callable[[str, int, int], Awaitable[list[StoredMessage]]]


@dataclass(slots=True, eq=False)
class SessionIndex:
    """The index of one session up to ``messages``, in one of its epochs.

    ``tail`` holds the postings after the last full stride. ``summary_index`` indexes the summaries
    as they were at ``summary_mark``, which changes with them. ``vectors`` cover this index, or an
    earlier state of it, and ``summary_vectors`` the summaries; ``search.embed`` loads them.
    """

    record: SessionRecord
    messages: int
    index: Index
    tail: Postings
    summary_index: SummaryIndex = field(default_factory=SummaryIndex)
    summary_mark: object = None
    summary_until: float = 0.0
    vectors: Vectors | None = None
    summary_vectors: SummaryTables = field(default_factory=dict)
    vectors_mark: object = None

    def serves(self, record: SessionRecord) -> bool:
        """Return whether it was read from this or an earlier version of ``record``'s session."""
        seen = self.record
        return (
            (seen.created_at, seen.epoch) == (record.created_at, record.epoch)
            and seen.version <= record.version
            and self.messages <= record.messages
        )

    @property
    def nbytes(self) -> int:
        """Return the approximate size in bytes."""
        vectors = 0 if self.vectors is None else self.vectors.nbytes
        vectors += sum(table.nbytes for _, table in self.summary_vectors.values())
        return self.index.nbytes + self.tail.nbytes + self.summary_index.nbytes + vectors


class Indexes:
    """The indexes of one tenant's sessions. ``cache`` holds the indexes that are in memory."""

    def __init__(
        self, store: TenantStore, counter: TokenCounter, read: Read, cache: IndexCache[SessionIndex]
    ) -> None:
        self._store, self._counter, self._read = store, counter, read
        self._cache = cache
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: The parts of the index over all sessions that its segments store, by their numbers.
        self.segments: dict[int, Part] = {}
        #: Whether updates keep that index, and how many ended since one last looked at it.
        self.kept_by_updates = False
        self.updates = 0
        #: The part and the postings of what was in no segment, with the state that it was read in.
        self.loose: tuple[object, Part, list[Postings]] | None = None

    @asynccontextmanager
    async def lock(self, session_id: str) -> AsyncGenerator[None]:
        """Hold the lock under which a session's index is read and changed."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            try:
                yield
            finally:
                # The index may have grown in use.
                used = self._cache.get(self._store.tenant, session_id)
                if used is not None:
                    self._cache.put(self._store.tenant, session_id, used, used.nbytes)

    async def get(self, record: SessionRecord) -> SessionIndex:
        """Return the index of a session as its record shows it; call it under its lock.

        Raises BusyError if the session was changed meanwhile: read the record, and try
        again.
        """
        index = self._cache.get(self._store.tenant, record.id)
        if index is None or not index.serves(record):
            index = await self._build(record)
        elif index.messages < record.messages:
            await self._extend(index, record)
        self._cache.put(self._store.tenant, record.id, index, index.nbytes)
        return index

    async def store_ahead(self, record: SessionRecord) -> None:
        """Store the blocks of the newest full strides, back to one that is stored.

        The first search then need not build them. The search that misses an older block makes it.
        """
        high = record.messages // STRIDE
        while high:
            start = (high - 1) * STRIDE
            # A search over all sessions also stores strides that are not full yet.
            stored = await stored_blocks(self._store, record.id, KIND, start, start + 1)
            if any(block.stop == start + STRIDE for block in stored):
                break
            await self._strides(record, max(0, high - _AT_ONCE), high)
            high = max(0, high - _AT_ONCE)

    async def _build(self, record: SessionRecord) -> SessionIndex:
        full = record.messages // STRIDE
        parts: list[Postings] = []
        for first in range(0, full, _AT_ONCE):
            parts += await self._strides(record, first, min(full, first + _AT_ONCE))
        tail = await self.collect(record.id, full * STRIDE, record.messages)
        await self._check(record)
        index = await _extended(Index(join([])), [*parts, tail])
        return SessionIndex(record, record.messages, index, tail)

    async def _strides(self, record: SessionRecord, first: int, stop: int) -> list[Postings]:
        """Return the postings of strides by number; missing blocks are made and stored."""
        strides: dict[int, Postings] = {}
        for block in await stored_blocks(
            self._store, record.id, KIND, first * STRIDE, stop * STRIDE
        ):
            part = read_block(block)
            if part is not None and block.stop == block.start + STRIDE:
                strides[block.start // STRIDE] = part
        missing = [number for number in range(first, stop) if number not in strides]
        for number in missing:
            start = number * STRIDE
            strides[number] = await self.collect(record.id, start, start + STRIDE)
        await self._put(record, [(number * STRIDE, strides[number]) for number in missing])
        return [strides[number] for number in range(first, stop)]

    async def stride(self, record: SessionRecord, start: int) -> Postings:
        """Return the postings of the stride from ``start``, as far as there are messages.

        If a part of it is stored, only the following messages are read.
        """
        stop = min(start + STRIDE, record.messages)
        parts: list[Postings] = []
        reached = start
        for block in await stored_blocks(self._store, record.id, KIND, start, start + 1):
            part = read_block(block)
            if part is not None and block.stop <= stop:
                parts, reached = [part], block.stop
        parts.append(await self.collect(record.id, reached, stop))
        return join(parts)

    async def _extend(self, current: SessionIndex, record: SessionRecord) -> None:
        """Add the messages since; full strides are read as they are stored, not made again."""
        begun, full = -(-current.messages // STRIDE), record.messages // STRIDE
        stop = min(record.messages, begun * STRIDE)
        new = [await self.collect(record.id, current.messages, stop)]
        tail = join([current.tail, *new])
        if stop == begun * STRIDE:
            if current.messages < stop:
                # The stride is full now; an update may have stored it.
                start = stop - STRIDE
                stored = await stored_blocks(self._store, record.id, KIND, start, start + 1)
                if all(block.stop < stop for block in stored):
                    await self._put(record, [(start, tail)])
            for first in range(begun, full, _AT_ONCE):
                new += await self._strides(record, first, min(full, first + _AT_ONCE))
            tail = await self.collect(record.id, full * STRIDE, record.messages)
            new.append(tail)
        await self._check(record)
        current.index = await _extended(current.index, new)
        current.record, current.messages, current.tail = record, record.messages, tail

    async def collect(self, session_id: str, start: int, stop: int) -> Postings:
        """Read messages into postings; withdrawn messages yield none."""
        if start >= stop:
            return join([])
        read = await self._read(session_id, start, stop)
        live = [stored for stored in read if stored.state == "live"]
        count = self._counter.count
        if len(live) <= _FEW_MESSAGES and sum(len(message.content) for message in live) <= LONG:
            return collect(live, count)
        return await asyncio.to_thread(collect, live, count)

    async def _put(self, record: SessionRecord, parts: Sequence[tuple[int, Postings]]) -> None:
        blocks = [Block(KIND, start, start + STRIDE, pack(part)) for start, part in parts]
        if not blocks:
            return
        try:
            await self._store.put_blocks(record.id, blocks, epoch=record.epoch)
        except StoreError as error:
            _log.info("an index was not kept: %s", type(error).__name__)

    async def _check(self, record: SessionRecord) -> None:
        """Check that the session is still in the record's epoch. Raises BusyError."""
        now = await self._store.session(record.id)
        if now is None or (now.created_at, now.epoch) != (record.created_at, record.epoch):
            raise BusyError(session_id=record.id)


async def _extended(index: Index, more: Sequence[Postings]) -> Index:
    if len(index) + sum(map(len, more)) <= _FEW_UNITS:
        return index.extended(more)
    return await asyncio.to_thread(index.extended, more)


async def stored_blocks(
    store: TenantStore, session_id: str, kind: str, start: int = 0, stop: int | None = None
) -> list[Block]:
    """Read blocks; return [] if one is damaged, so that all are made again."""
    try:
        return await store.blocks(session_id, kind, start, stop)
    except StoreCorruptError:
        return []


def read_block(block: Block) -> Postings | None:
    """Read a block; None if it is damaged, or holds messages outside its range.

    The last block of a session may be of a stride that is not full yet.
    """
    if block.start % STRIDE or not block.start < block.stop <= block.start + STRIDE:
        return None
    part = unpack(block.data)
    if part and not block.start <= part.message[0] <= part.message[-1] < block.stop:
        return None
    return part
