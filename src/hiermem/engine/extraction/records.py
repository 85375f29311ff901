"""Writes what becomes of chunks: claims under a lease, answers, and the session's result.

Each answer is stored as soon as it arrives; an answer that is not recorded is ignored. A write is
retried while the store fails, and is recognised if it took effect although the store reported a
failure. Two errors end the extraction: a run that cannot be recorded, and a session that was
changed meanwhile, because nothing made from the old one may be kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias, TypeVar

from hiermem.core.calls.lease import Claim, is_believed, write_claim
from hiermem.core.extraction.chunks import Chunk
from hiermem.core.extraction.stored_answer import StoredAnswer, read_answer, write_answer
from hiermem.engine.calls.run import JournalledRun
from hiermem.engine.calls.store_retry import TRIES, retry_store
from hiermem.errors import SessionChangedError
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

    def __init__(self, run: JournalledRun, *, epoch: int) -> None:
        self._run, self._epoch = run, epoch
        self._store, self._session_id = run.store, run.subject
        self._journal, self._run_id = run.journal, run.run_id
        #: What is claimed, by id, and the version of its record.
        self._claims: dict[str, tuple[WorkItem, int]] = {}
        self._lock = asyncio.Lock()

    # -- chunks

    async def stored(self) -> dict[str, StoredAnswer]:
        """Return the stored answers of this session, by the chunks' input hashes."""
        found: dict[str, StoredAnswer] = {}
        for record in await self.all_of(CHUNK):
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
            if any(_record_key(claimed) == record_key for claimed, _ in self._claims.values()):
                # Two steps have the same texts: one of them waits for the other.
                return None
            before, found = await self._look(item)
            now = self._run.now()
            if isinstance(found, StoredAnswer):
                return None
            unknown: list[Attempt] = []
            if isinstance(found, Claim):
                if found.run_id != self._run_id and is_believed(found.until, now=now):
                    return None
                # The item may have had another id in that run, which may have split the session
                # differently.
                unknown = await self._journal.left_by(found.run_id, {item.id, found.item})
            version = before.version if before else 0
            if not await self._lease(item, version, attempts=[*unknown, *calls]):
                return None
            self._journal.unknown += len(unknown)
            return item

    async def current(self, item: WorkItem) -> StoredAnswer | Claim | None:
        """Return the answer to a chunk or step, or the claim on it; None where it is free."""
        _, found = await self._look(item)
        if isinstance(found, Claim) and not is_believed(found.until, now=self._run.now()):
            return None
        return found

    async def commit(
        self, item: WorkItem, stored: StoredAnswer, attempts: Sequence[Attempt]
    ) -> StoredAnswer:
        """Write an answer; return the one on record, which another run may have written first."""
        async with self._lock:
            _, version = self._claims.get(item.id, (item, 0))
            for _ in range(TRIES):
                if await self._put(item, write_answer(stored), version):
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
            await self._drop(item.id)
        await self._journal.write(attempts)

    async def renew(self) -> None:
        """Extend the leases of all claimed items; drop items that another run took."""
        async with self._lock:
            for item, version in list(self._claims.values()):
                if not await self._lease(item, version):
                    del self._claims[item.id]

    async def keep_only(self, kind: str, used: Collection[str]) -> None:
        """Delete the answers of a ``kind`` whose keys are not ``used`` by the session's result.

        Where other runs keep writing the same ones, this is left to a later run.
        """
        for _ in range(TRIES):
            writes = [
                RecordWrite(kind, record.scope, record.key, None, record.version)
                for record in await self.all_of(kind)
                if record.key not in used and isinstance(read_answer(record.body), StoredAnswer)
            ]
            if not writes or await self.write(writes):
                return

    async def release(self) -> None:
        """Release every claim, and journal the calls that have no end yet."""
        async with self._lock:
            await self._drop(*self._claims)
        await self._journal.write(self._journal.unwritten())

    # -- the store

    async def all_of(self, kind: str) -> list[Record]:
        """Return the session's records of a ``kind``."""
        return await self._retry(
            lambda: self._store.records(kind, scope=self._session_id, limit=_ALL)
        )

    async def _one(self, kind: str, key: str) -> Record | None:
        found = await self._retry(
            lambda: self._store.records(kind, scope=self._session_id, key=key)
        )
        return found[0] if found else None

    async def _look(self, item: WorkItem) -> tuple[Record | None, StoredAnswer | Claim | None]:
        kind, key = _record_key(item)
        found = await self._one(kind, key)
        if found is None:
            return None, None
        body = read_answer(found.body)
        # A damaged answer counts as none: it is asked for again and overwritten.
        damaged = isinstance(body, StoredAnswer) and not (
            body.value() if kind == CHUNK else body.answer.strip()
        )
        return found, None if damaged else body

    async def _lease(
        self, item: WorkItem, version: int, *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write the claim on a chunk or step over ``version``; return whether it was written."""
        until = self._run.now() + timedelta(seconds=self._run.lease)
        body = write_claim(Claim(self._run_id, until, item.id))
        if leased := await self._put(item, body, version, attempts=attempts):
            self._claims[item.id] = item, version + 1
        return leased

    async def _put(
        self, item: WorkItem, body: str, version: int, *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write the record of a chunk or step over ``version``; False where another is stored."""
        kind, key = _record_key(item)
        write = RecordWrite(kind, self._session_id, key, body, version)
        if await self._journal.write_with(attempts, lambda: self.write([write], attempts=attempts)):
            return True
        # A try that the store reported as failed may have taken effect.
        mine = Record(kind, self._session_id, key, body, version + 1)
        return await self._one(kind, key) == mine

    async def write(
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

    async def _drop(self, *ids: str) -> None:
        """Release the claims with these ids, as far as there are any."""
        for item, version in [self._claims.pop(id_) for id_ in ids if id_ in self._claims]:
            kind, key = _record_key(item)
            # One by one: a lease that another run took must not prevent the release of the others.
            writes = [RecordWrite(kind, self._session_id, key, None, version)]
            await self._retry(partial(self._store.put_records, writes))

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_store(call, sleep=self._run.sleep)


def _record_key(item: WorkItem) -> tuple[str, str]:
    """Return kind and key of the record that holds the answer to a chunk or step."""
    return (CHUNK, item.input_hash) if isinstance(item, Chunk) else (JOIN, item.key)
