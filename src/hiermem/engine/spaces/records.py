"""Reads and writes the records of one space, and holds the lease under which its bank is changed.

Each change of a bank is one write of all its records, which counts only while the lease is held. So
a run that was paused until its lease was taken by another writes nothing. ``core.spaces.record``
decides what a record says, and which writes make one change.

A write is retried while the store fails, and recognised where it took effect although the store
reported a failure. So nothing is lost to a fault, and nothing is written twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from hiermem.core.calls.lease import Claim, is_believed, read_claim, write_claim
from hiermem.core.spaces import record as bank_record
from hiermem.core.spaces.record import BankState
from hiermem.core.spaces.rules import Rules
from hiermem.engine.calls.store_retry import retry_store
from hiermem.errors import StoreError
from hiermem.protocols import TenantStore
from hiermem.types.transaction import Record, RecordWrite

#: More records than a space has.
_ALL: Final = 2**31 - 1


class SpaceRecords:
    """The records of one space.

    ``opened_header`` is the space's header as the caller found it. Once that header is gone,
    because the space was erased, nothing is written, even where a space of the same name was
    created since.
    """

    def __init__(
        self,
        store: TenantStore,
        space: str,
        *,
        sleep: Callable[[float], Awaitable[None]],
        opened_header: Record | None = None,
    ) -> None:
        self.space, self.opened_header = space, opened_header
        self._store, self._sleep = store, sleep

    async def of_kind(self, kind: str) -> list[Record]:
        """Return the space's records of a kind, by key."""
        stored = bank_record.kind_of(kind, self.space)
        return await retry_store(
            lambda: self._store.records(stored, scope=bank_record.SPACE_SCOPE, limit=_ALL),
            sleep=self._sleep,
        )

    async def one(self, kind: str, key: str = "") -> Record | None:
        """Return one record of the space, or None."""
        return await self._one(bank_record.kind_of(kind, self.space), key)

    async def header(self) -> Record | None:
        """Return the record that holds the space's rules; None where there is no such space."""
        return await self._one(bank_record.SPACE, self.space)

    async def still_exists(self) -> bool:
        """Return whether the space is still the one that was opened."""
        return self.opened_header is None or await self.header() == self.opened_header

    async def _one(
        self, kind: str, key: str, scope: str = bank_record.SPACE_SCOPE
    ) -> Record | None:
        found = await retry_store(
            lambda: self._store.records(kind, scope=scope, key=key), sleep=self._sleep
        )
        return found[0] if found else None

    async def state(self, rules: Rules) -> BankState:
        """Read the bank as it is now.

        The figures are read first and last: where they differ, the bank was changed in between and
        is read again.
        """
        while True:
            before = await self.one(bank_record.META)
            files = await self.of_kind(bank_record.BANK)
            synthesis = await self.one(bank_record.SYNTHESIS)
            after = await self.one(bank_record.META)
            if before == after:
                return bank_record.read_state(
                    self.space, rules, files=files, synthesis=synthesis, meta=after
                )

    async def put(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        witness: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Write all or nothing; return whether it was written.

        Where the store reported a failed try, the write may have taken effect. It did where
        ``witness`` says so or, without one, where each record is as the write would have left it.
        """
        uncertain = False
        opened_header = () if self.opened_header is None else (self.opened_header,)

        async def attempt() -> bool:
            nonlocal uncertain
            try:
                return await self._store.put_records(writes, epochs=epochs, standing=opened_header)
            except StoreError:
                uncertain = True
                raise

        if await retry_store(attempt, sleep=self._sleep):
            return True
        return uncertain and await (self._took_effect(writes) if witness is None else witness())

    async def _took_effect(self, writes: Sequence[RecordWrite]) -> bool:
        """Return whether every write that names its version took effect."""
        for write in writes:
            if write.expected is None:
                continue
            found = await self._one(write.kind, write.key, write.scope)
            if write.body is None:
                if found is not None:
                    return False
            elif found is None or (found.body, found.version) != (write.body, write.expected + 1):
                return False
        return True


class Lease:
    """The right to change one space's bank, for as long as it is renewed."""

    def __init__(
        self, records: SpaceRecords, run_id: str, *, length: float, now: Callable[[], datetime]
    ) -> None:
        self._records, self._run_id = records, run_id
        self._length, self._now = timedelta(seconds=length), now
        self._record: Record | None = None
        self._lock = asyncio.Lock()

    @property
    def held(self) -> bool:
        """Whether the lease is held, as far as is known."""
        return self._record is not None

    async def take(self) -> bool:
        """Take the lease; return whether it was free."""
        async with self._lock:
            before = await self._records.one(bank_record.LEASE)
            claim = read_claim(before.body) if before else None
            if (
                claim is not None
                and claim.run_id != self._run_id
                and is_believed(claim.until, now=self._now())
            ):
                return False
            write = self._write(before.version if before else 0)
            if await self._records.put([write]):
                self._record = self._after(write)
            return self._record is not None

    async def renew(self) -> None:
        """Extend the lease; forget it where another run took it."""
        async with self._lock:
            if self._record is None:
                return
            write = self._write(self._record.version)
            self._record = self._after(write) if await self._records.put([write]) else None

    async def commit(self, writes: Sequence[RecordWrite]) -> bool:
        """Write all of it while the lease is held, or nothing; return whether it was written."""
        async with self._lock:
            if self._record is None:
                return False
            fence = self._write(self._record.version)
            if not await self._records.put([*writes, fence]):
                return False
            self._record = self._after(fence)
            return True

    async def release(self) -> None:
        """Release the lease, so that nobody has to wait until it expires."""
        async with self._lock:
            held, self._record = self._record, None
            if held is not None:
                await self._records.put(
                    [RecordWrite(held.kind, held.scope, held.key, None, held.version)]
                )

    def _write(self, version: int) -> RecordWrite:
        body = write_claim(Claim(self._run_id, self._now() + self._length))
        space = self._records.space
        return bank_record.write_of(bank_record.LEASE, space, body=body, expected=version)

    def _after(self, write: RecordWrite) -> Record:
        assert write.body is not None
        assert write.expected is not None
        return Record(write.kind, write.scope, write.key, write.body, write.expected + 1)
