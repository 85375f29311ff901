"""Writes what becomes of chunks under the run's claim: calls, answers, and the session's result.

Each answer is stored as soon as it arrives; an answer that is not recorded is ignored. A write is
retried while the store fails, and is recognised if it took effect although the store reported a
failure. Two errors end the extraction: a run that cannot be recorded, and a session that was
changed meanwhile, because nothing made from the old one may be kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from hiermem.calls.record_claim import RecordClaim
from hiermem.calls.run import JournalledRun
from hiermem.calls.store_retry import TRIES, retry_store
from hiermem.errors import SessionChangedError
from hiermem.extraction.chunks import Chunk
from hiermem.extraction.stored_answer import StoredAnswer, read_answer, write_answer
from hiermem.types.transaction import Attempt, Record, RecordWrite

T = TypeVar("T")

#: The kinds of record that hold the answer to a chunk, and a summary of several summaries.
CHUNK: Final = "chunk"
JOIN: Final = "join"
#: The kind of record that holds the claim on the extraction of a session.
CLAIM: Final = "extraction-claim"
#: The most chunks of one session that are looked up at once.
_ALL: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ReduceStep:
    """The reduction of the summaries; ``key`` names its inputs."""

    id: str
    key: str


WorkItem: TypeAlias = Chunk | ReduceStep


class ExtractionRecords:
    """The claim and the answers of one run in one session."""

    def __init__(self, run: JournalledRun, *, epoch: int) -> None:
        self._run, self._epoch = run, epoch
        self._store, self._session_id = run.store, run.subject
        self._journal = run.journal
        self.claim = RecordClaim(
            run.run_id,
            run.lease,
            run.now,
            read=lambda: self._one(CLAIM, ""),
            put=self._put_claimed,
            place=lambda body, version: RecordWrite(CLAIM, self._session_id, "", body, version),
        )

    # -- chunks

    async def stored(self) -> dict[str, StoredAnswer]:
        """Return the stored answers of this session, by the chunks' input hashes."""
        found: dict[str, StoredAnswer] = {}
        for record in await self.all_of(CHUNK):
            body = read_answer(record.body)
            if body is not None and body.value() is not None:
                found[record.key] = body
        return found

    async def joined(self, step: ReduceStep) -> StoredAnswer | None:
        """Return the stored answer to a step of the reduction; a damaged one counts as none."""
        found = await self._one(JOIN, step.key)
        answer = read_answer(found.body) if found else None
        return answer if answer is not None and answer.answer.strip() else None

    async def begin_calls(self, calls: Sequence[Attempt]) -> bool:
        """Journal calls while the claim is held; return whether."""
        return await self._journal.write_with(calls, lambda: self.claim.commit((), attempts=calls))

    async def commit(
        self, item: WorkItem, stored: StoredAnswer, attempts: Sequence[Attempt]
    ) -> StoredAnswer:
        """Write an answer; return the one on record, which another run may have written first.

        What is paid for is stored where the claim was lost, too, if no other answer is there.
        """
        kind, key = _record_key(item)
        body = write_answer(stored)
        if await self.claim.commit([RecordWrite(kind, self._session_id, key, body)]):
            await self._journal.write(attempts)
            return stored
        for _ in range(TRIES):
            before = await self._one(kind, key)
            found = read_answer(before.body) if before else None
            if found is not None:
                stored = found
                break
            version = before.version if before else 0
            if await self.write([RecordWrite(kind, self._session_id, key, body, version)]):
                break
        await self._journal.write(attempts)
        return stored

    async def keep_only(self, kind: str, used: Collection[str]) -> None:
        """Delete the answers of a ``kind`` whose keys are not ``used`` by the session's result.

        Where other runs keep writing the same ones, this is left to a later run.
        """
        for _ in range(TRIES):
            writes = [
                RecordWrite(kind, record.scope, record.key, None, record.version)
                for record in await self.all_of(kind)
                if record.key not in used
            ]
            if not writes or await self.write(writes):
                return

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

    async def _put_claimed(
        self, writes: Sequence[RecordWrite], attempts: Sequence[Attempt]
    ) -> bool:
        """Write under the claim; to give it back also where the session was changed."""
        if all(write.body is None for write in writes):
            return await self._retry(lambda: self._store.put_records(writes))
        return await self.write(writes, attempts=attempts)

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_store(call, sleep=self._run.sleep)


def _record_key(item: WorkItem) -> tuple[str, str]:
    """Return kind and key of the record that holds the answer to a chunk or step."""
    return (CHUNK, item.input_hash) if isinstance(item, Chunk) else (JOIN, item.key)
