"""Writes what becomes of chunks: claims under a lease, answers, and the session's result.

What is paid for is not lost, and what is not recorded did not happen. An answer is written as soon
as it arrives. A write is retried while the store fails, and recognised where it took effect
although the store reported a failure. Two errors end the extraction: a run that cannot be recorded,
and a session that was changed meanwhile, because nothing made from the old one may be kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias, TypeVar

from hiermem.core.calls.lease import Claim, is_believed, write_claim
from hiermem.core.extraction.chunks import Chunk
from hiermem.core.extraction.stored_answer import StoredAnswer, read_answer, settled, write_answer
from hiermem.engine.calls.call_journal import CallJournal
from hiermem.engine.calls.store_retry import TRIES, retry_store
from hiermem.errors import SessionChangedError
from hiermem.protocols import TenantStore
from hiermem.types.transaction import Attempt, Record, RecordWrite

T = TypeVar("T")

#: The kinds of record that hold the answer to a chunk, and a summary of several summaries.
CHUNK: Final = "chunk"
JOIN: Final = "join"
#: The most chunks of one session that are looked up at once.
_ALL: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ReduceStep:
    """One step of the reduction of summaries; ``key`` names its inputs."""

    id: str
    key: str


WorkItem: TypeAlias = Chunk | ReduceStep


class ExtractionRecords:
    """The claims and answers of one run in one session."""

    def __init__(
        self,
        store: TenantStore,
        session_id: str,
        *,
        run_id: str,
        epoch: int,
        lease: float,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        journal: CallJournal,
    ) -> None:
        self._store, self._session_id, self._run_id = store, session_id, run_id
        self._epoch = epoch
        self._lease, self._now, self._sleep = timedelta(seconds=lease), now, sleep
        self._journal = journal
        self._claims: dict[str, Record] = {}
        self._lock = asyncio.Lock()

    # -- chunks

    async def stored(self) -> dict[str, StoredAnswer]:
        """Return the stored answers of this session, by the chunks' input hashes."""
        found: dict[str, StoredAnswer] = {}
        for record in await self._all(CHUNK):
            body = read_answer(record.body)
            if isinstance(body, StoredAnswer) and body.value() is not None:
                found[record.key] = body
        return found

    async def begin_call(
        self, item: WorkItem, attempt: Attempt, *, ended: list[Attempt]
    ) -> WorkItem | None:
        """Take the lease of a chunk or step unless it is held, and journal the call, in one commit.

        Where the lease of an interrupted run had expired, its unfinished attempts become
        ``unknown``. Returns None where the item is made, or being made by another run.
        """
        calls = [*ended, attempt]
        if item.id in self._claims:
            await self._journal.write(calls)
            return item
        async with self._lock:
            record_key = _record_key(item)
            if any((claimed.kind, claimed.key) == record_key for claimed in self._claims.values()):
                # Two steps have the same texts: one of them waits for the other.
                return None
            before, found = await self._look(item)
            now = self._now()
            if isinstance(found, StoredAnswer):
                return None
            unknown: list[Attempt] = []
            if isinstance(found, Claim):
                if found.run_id != self._run_id and is_believed(found.until, now=now):
                    return None
                # The item may have had another id in that run, which may have split the session
                # differently.
                unknown = await self._journal.left_by(found.run_id, {item.id, found.item})
            body = write_claim(Claim(self._run_id, now + self._lease, item.id))
            record = await self._put(
                record_key, body, before.version if before else 0, attempts=[*unknown, *calls]
            )
            if record is None:
                return None
            self._journal.unknown += len(unknown)
            self._claims[item.id] = record
            return item

    async def current(self, item: WorkItem) -> StoredAnswer | Claim | None:
        """Return the answer to a chunk or step, or the claim on it; None where it is free."""
        _, found = await self._look(item)
        if isinstance(found, Claim) and not is_believed(found.until, now=self._now()):
            return None
        return found

    async def commit(
        self, item: WorkItem, stored: StoredAnswer, attempts: Sequence[Attempt]
    ) -> StoredAnswer:
        """Write an answer; return the one on record, which another run may have written first."""
        async with self._lock:
            claim = self._claims.get(item.id)
            version = claim.version if claim else 0
            for _ in range(TRIES):
                if await self._put(_record_key(item), write_answer(stored), version) is not None:
                    break
                record, found = await self._look(item)
                if isinstance(found, StoredAnswer):
                    stored = found
                    break
                # Our lease expired and another run took it, but this answer is here and paid for.
                version = record.version if record else 0
            self._claims.pop(item.id, None)
        await self._journal.write(attempts)
        return stored

    async def give_up(self, item: WorkItem, attempts: Sequence[Attempt]) -> None:
        """Release one claim that led to nothing, and journal its calls."""
        async with self._lock:
            claimed_records = self._claims.pop(item.id, None)
            if claimed_records is not None:
                await self._drop([claimed_records])
        await self._journal.write(attempts)

    async def renew(self) -> None:
        """Extend the leases of all that is claimed; drop those that another run took."""
        async with self._lock:
            for id_, claimed_records in list(self._claims.items()):
                body = write_claim(Claim(self._run_id, self._now() + self._lease, id_))
                record = await self._put(
                    (claimed_records.kind, claimed_records.key), body, claimed_records.version
                )
                if record is None:
                    del self._claims[id_]
                else:
                    self._claims[id_] = record

    async def adopt(self, hashes: Collection[str], way: str) -> None:
        """Note that those answers serve this ``way`` too, so that no other run deletes them."""
        await self._settle(
            CHUNK,
            lambda key, stored: settled(stored, way=way, used=True) if key in hashes else stored,
        )

    async def prune(self, hashes: Collection[str], *, way: str, strategy: str) -> None:
        """Delete answers, made in the same way, to chunks that no longer exist.

        ``hashes`` are those of the present chunks.
        """
        await self._settle(CHUNK, _for_use(hashes, way=way, strategy=strategy))

    # -- summaries

    async def prune_joined(self, keys: Collection[str], *, way: str, strategy: str) -> None:
        """Delete summaries, made in the same way, that this run did not use."""
        await self._settle(JOIN, _for_use(keys, way=way, strategy=strategy))

    async def results(self, kind: str) -> list[Record]:
        """Return the records of a ``kind`` that the session's earlier result left."""
        return await self._all(kind)

    async def write(self, writes: Sequence[RecordWrite]) -> bool:
        """Write all records or none; return whether they were written."""
        return await self._guarded(writes)

    async def release(self) -> None:
        """Release every claim, and journal the calls that have no end yet."""
        async with self._lock:
            claimed_records = list(self._claims.values())
            self._claims.clear()
            await self._drop(claimed_records)
        await self._journal.write(self._journal.unwritten())

    # -- the store

    async def _settle(
        self, kind: str, change: Callable[[str, StoredAnswer], StoredAnswer | None]
    ) -> None:
        """Rewrite the answers of a kind as ``change`` says; None deletes one.

        Where other runs keep writing the same ones, this is left to a later run.
        """
        for _ in range(TRIES):
            writes: list[RecordWrite] = []
            for record in await self._all(kind):
                body = read_answer(record.body)
                after = change(record.key, body) if isinstance(body, StoredAnswer) else body
                if after != body:
                    text = write_answer(after) if isinstance(after, StoredAnswer) else None
                    writes.append(RecordWrite(kind, record.scope, record.key, text, record.version))
            if not writes or await self.write(writes):
                return

    async def _all(self, kind: str) -> list[Record]:
        return await self._retry(
            lambda: self._store.records(kind, scope=self._session_id, limit=_ALL)
        )

    async def _look(self, item: WorkItem) -> tuple[Record | None, StoredAnswer | Claim | None]:
        kind, key = _record_key(item)
        found = await self._retry(
            lambda: self._store.records(kind, scope=self._session_id, key=key)
        )
        if not found:
            return None, None
        body = read_answer(found[0].body)
        # A damaged answer counts as none: it is asked for again and overwritten.
        damaged = isinstance(body, StoredAnswer) and not (
            body.value() if kind == CHUNK else body.answer.strip()
        )
        return found[0], None if damaged else body

    async def _put(
        self,
        record_key: tuple[str, str],
        body: str,
        version: int,
        *,
        attempts: Sequence[Attempt] = (),
    ) -> Record | None:
        """Write the record of a chunk or step over ``version``; None where another is stored."""
        kind, key = record_key
        write = RecordWrite(kind, self._session_id, key, body, version)
        if await self._journal.write_with(
            attempts, lambda: self._guarded([write], attempts=attempts)
        ):
            return Record(kind, self._session_id, key, body, version + 1)
        # A try that the store reported as failed may have taken effect.
        found = await self._retry(
            lambda: self._store.records(kind, scope=self._session_id, key=key)
        )
        mine = Record(kind, self._session_id, key, body, version + 1)
        return mine if found == [mine] else None

    async def _guarded(
        self, writes: Sequence[RecordWrite], *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write all records made from the session, or none; return whether they were written.

        Raises SessionChangedError where the session was changed since it was read: the records may
        contain what was withdrawn.
        """
        epochs = {self._session_id: self._epoch}
        if await self._retry(
            lambda: self._store.put_records(writes, epochs=epochs, attempts=attempts)
        ):
            return True
        now = await self._retry(lambda: self._store.session(self._session_id))
        if now is None or now.epoch != self._epoch:
            raise SessionChangedError(self._session_id)
        return False

    async def _drop(self, claimed_records: Sequence[Record]) -> None:
        for record in claimed_records:
            # One by one: a lease that another run took must not prevent the release of the others.
            writes = [RecordWrite(record.kind, record.scope, record.key, None, record.version)]
            await self._retry(partial(self._store.put_records, writes))

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_store(call, sleep=self._sleep)


def _record_key(item: WorkItem) -> tuple[str, str]:
    """Return kind and key of the record that holds the answer to a chunk or step."""
    return (CHUNK, item.input_hash) if isinstance(item, Chunk) else (JOIN, item.key)


def _for_use(
    used: Collection[str], *, way: str, strategy: str
) -> Callable[[str, StoredAnswer], StoredAnswer | None]:
    """Return the change of answers where this ``way`` of splitting uses the ``used`` ones."""

    def change(key: str, stored: StoredAnswer) -> StoredAnswer | None:
        return stored if stored.strategy != strategy else settled(stored, way=way, used=key in used)

    return change
