"""The claim of a run on what is no session of the list of what is due: an extraction, a space.

The claim is a record. Each write under it extends it in the same transaction, over the version that
it was read in. So a run that was taken over writes nothing more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hiermem.calls.claim import Claim, is_believed, read_claim, write_claim
from hiermem.process import has_ended, process_mark
from hiermem.types.transaction import Attempt, Record, RecordWrite

#: Writes all or nothing, with the attempts that are charged with it; returns whether it did.
Put = Callable[[Sequence[RecordWrite], Sequence[Attempt]], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class RecordClaim:
    """The claim of the run ``run_id``, as the record that ``place`` writes over a version.

    ``read`` returns the record that is stored. The claim ends ``lease`` seconds after its last
    write. ``held``: it is held, as far as is known.
    """

    run_id: str
    lease: float
    now: Callable[[], datetime]
    read: Callable[[], Awaitable[Record | None]]
    put: Put
    place: Callable[[str | None, int], RecordWrite]
    #: What tells this claim from others of the same place.
    mark: int | None = field(init=False, default=None)
    #: The version of the record while it is held.
    _version: int | None = field(init=False, default=None)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @property
    def held(self) -> bool:
        """Whether the claim is held, as far as is known."""
        return self._version is not None

    async def take(self) -> bool:
        """Take the claim; return whether it was free, or held by a process that has ended."""
        async with self._lock:
            before = await self.read()
            claim = read_claim(before.body) if before else None
            if (
                claim is not None
                and claim.run_id != self.run_id
                and is_believed(claim.until, now=self.now())
                and not has_ended(claim.process)
            ):
                return False
            taken = await self._extend(before.version if before else 0)
            self.mark = self._version if taken else None
            return taken

    async def renew(self) -> None:
        """Extend the claim; forget it where another run took it."""
        await self.commit(())

    async def commit(
        self, writes: Sequence[RecordWrite], *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write all of it while the claim is held, or nothing; return whether it was written."""
        async with self._lock:
            if self._version is None:
                return False
            if not await self._extend(self._version, writes, attempts):
                self._version = None
            return self._version is not None

    async def release(self) -> None:
        """Release the claim, so that nobody has to wait until it ends."""
        async with self._lock:
            version, self._version = self._version, None
            if version is not None:
                await self.put([self.place(None, version)], ())

    async def _extend(
        self,
        version: int,
        writes: Sequence[RecordWrite] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Write the claim over ``version``, together with ``writes``; return whether it was."""
        until = self.now() + timedelta(seconds=self.lease)
        # The random part tells a write that took effect although the store reported a failure.
        body = write_claim(Claim(self.run_id, until, process_mark(), secrets.token_hex(8)))
        written = await self.put([*writes, self.place(body, version)], attempts)
        if not written:
            found = await self.read()
            written = found is not None and found.body == body
        if written:
            self._version = version + 1
        return written
