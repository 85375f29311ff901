"""Reads and writes the records of one space, under the claim of whoever changes its bank.

Each change of a bank is one write of all its records, which counts only while the claim is held. So
a run that was paused until another one took over writes nothing. ``bank.records`` decides how a
record reads, and ``bank.change`` which writes make one change.

A write is retried while the store fails, and recognised if it took effect although the store
reported a failure. So no fault loses a write or repeats one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hiermem import errors
from hiermem.bank import learn, lines, records, said
from hiermem.bank.records import BankState
from hiermem.bank.rules import Rules
from hiermem.bank.sources import SOURCE, with_sources
from hiermem.calls.retry import retry_store, retry_write
from hiermem.calls.run import RecordClaim
from hiermem.config import BankPolicy
from hiermem.handle import Handle
from hiermem.types import SessionRecord
from hiermem.types.bank import Note
from hiermem.types.transaction import Attempt, Record, RecordWrite

#: More records than a space has.
_ALL: Final = 2**31 - 1
_MARK_BYTES: Final = 8
#: How often a space is looked for, and created if it does not exist.
_LOOKS: Final = 3


@dataclass(slots=True)
class SpaceContext:
    """One space during one call; ``requested`` are the rules that the caller opened it with.

    ``header`` is the space's own record as the call read it. All writes of the call are for that
    very space: once it is erased nothing is written, even if one of its name is created again.
    """

    handle: Handle
    name: str
    requested: Rules | None
    policy: BankPolicy
    note_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    header: Record | None = None

    @property
    def identity(self) -> str:
        """Return the mark that tells the space from all others, once its rules were read."""
        assert self.header is not None
        return records.identity(self.header)

    async def rules(self, *, reread: bool = False) -> Rules:
        """Return the rules of the space; create it if it does not exist and rules were given.

        They are read once a call; ``reread`` reads again, and binds the call to the space as it is
        now.

        Raises NotFoundError if there is no such space, ConflictError if it has other rules.
        """
        if self.header is not None and not reread:
            return records.read_space(self.header)[0]
        self.header = None
        for _ in range(_LOOKS):
            header = await self.current_header()
            if header is not None:
                rules, _ = records.read_space(header)
                if self.requested is not None and not self.requested.agree(rules):
                    what = "rules" if self.requested.person in ("", rules.person) else "person"
                    raise errors.ConflictError(
                        f"the {what} of space {self.name!r} cannot change; give none, or use "
                        "another space", kind="rules",
                    )  # fmt: skip
                self.header = header
                return rules
            if self.requested is None:
                raise errors.NotFoundError(
                    f"space {self.name!r} does not exist; open it once with rules"
                )
            mark = secrets.token_hex(_MARK_BYTES)
            write = records.new_space(self.name, self.requested, now=self.handle.clock(), mark=mark)
            # A created space is read like any other; it may be gone again.
            await self.put([write])
        raise errors.StoreError(
            f"space {self.name!r} is created and erased concurrently; retry", retryable=True
        )

    async def refused(self) -> errors.HiermemError:
        """Return the error for a write that did not count: the space is busy, or was erased."""
        if await self.still_exists():
            return errors.BusyError(f"another run is writing space {self.name!r}; call again")
        return errors.NotFoundError(f"space {self.name!r} was erased; nothing was written")

    async def of_kind(self, kind: str) -> list[Record]:
        """Return the space's records of a kind, by key."""
        stored = records.kind_of(kind, self.name)
        return await retry_store(
            lambda: self.handle.store.records(stored, scope=records.SPACE_SCOPE, limit=_ALL),
            sleep=asyncio.sleep,
        )

    async def with_sources(self, notes: Sequence[Note]) -> list[Note]:
        """Return notes with the messages that they came from."""
        kind = records.kind_of(SOURCE, self.name)
        links = await self.handle.store.records(kind, limit=_ALL) if notes else []
        return with_sources(notes, self.name, links)

    async def live_notes(self) -> list[Note]:
        """Return the live notes, oldest first, including blocked ones; without their sources."""
        notes = await self.of_kind(records.NOTE)
        return records.live_notes(notes, await self.of_kind(records.BLOCKED))

    async def unlearnt(self) -> tuple[list[Note], list[SessionRecord]]:
        """Return what conversations say that the space did not learn, and which were read for it.

        The notes include the troubled ones.
        """
        rules = await self.rules()
        if not rules.learn:
            return [], []
        notes, sessions = await learn.unlearnt(self.handle, self.name, self.identity, rules.person)
        blocked = await self.of_kind(records.BLOCKED) if notes else []
        return records.with_trouble(notes, blocked), sessions

    async def waiting(self) -> list[Note]:
        """Return the live notes, and then what conversations say that the space did not learn."""
        return [*await self.live_notes(), *(await self.unlearnt())[0]]

    async def learnt(self) -> list[Note]:
        """Return the messages that the space learnt, oldest first; without their texts."""
        kind = records.kind_of(said.LEARNT, self.name)
        rows = await self.handle.store.records(kind, limit=_ALL)
        return sorted(map(said.learnt_note, rows), key=lambda note: note.key)

    async def consumed_notes(self) -> list[Note]:
        """Return the consumed notes, oldest first; without their sources."""
        return [*map(records.read_note, await self.of_kind(records.CONSUMED))]

    async def one(self, kind: str, key: str = "") -> Record | None:
        """Return one record of the space, or None."""
        return await self._one(records.kind_of(kind, self.name), key)

    async def current_header(self) -> Record | None:
        """Return the record with the space's rules; None if there is no such space."""
        return await self._one(records.SPACE, self.name)

    async def still_exists(self) -> bool:
        """Return whether the space has not been replaced since it was opened."""
        return self.header is None or await self.current_header() == self.header

    async def _one(self, kind: str, key: str, scope: str = records.SPACE_SCOPE) -> Record | None:
        stored = await retry_store(
            lambda: self.handle.store.records(kind, scope=scope, key=key), sleep=asyncio.sleep
        )
        return stored[0] if stored else None

    async def state(self) -> BankState:
        """Read the current bank, as far as its sources live; repeat if it was changed meanwhile."""
        state = await self.stored_state()
        return lines.living(state, await self.dead_lines(state))

    async def dead_lines(self, state: BankState) -> set[str]:
        """Return the ids of the lines, of any revision, of which a source is gone."""
        return await learn.dead_lines(self.handle, self.name, self.identity, state.origins)

    async def stored_state(self) -> BankState:
        """Read the current bank as it is stored; repeat if it was changed meanwhile."""
        rules = await self.rules()
        kinds = (records.BANK, records.SYNTHESIS, *((records.LINE,) if rules.learn else ()))
        while (stored := await self.settled(kinds)) is None:
            pass
        return records.read_state(self.name, rules, stored)

    async def settled(self, kinds: Sequence[str]) -> dict[str, list[Record]] | None:
        """Read the records of these kinds, and the figures, in one state of the bank.

        The figures are read first and last. Returns None if they differ, because the bank changed
        in between.
        """
        before = await self.one(records.META)
        stored = {kind: await self.of_kind(kind) for kind in kinds}
        if before != await self.one(records.META):
            return None
        return stored | {records.META: [before] if before else []}

    async def put(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        attempts: Sequence[Attempt] = (),
        witness: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """Write all or nothing; return whether it was written.

        If the store reported a failure, the write may have taken effect. ``witness`` says whether
        it did; without one, it did if each record is as the write would have left it.
        """
        standing = () if self.header is None else (self.header,)
        written, uncertain = await retry_write(
            lambda: self.handle.store.put_records(
                writes, epochs=epochs, standing=standing, attempts=attempts
            ),
            sleep=asyncio.sleep,
        )
        if written or not uncertain:
            return written
        return await (self._took_effect(writes) if witness is None else witness())

    async def _took_effect(self, writes: Sequence[RecordWrite]) -> bool:
        """Return whether every write that names its version took effect."""
        for write in writes:
            if write.expected is None:
                continue
            stored = await self._one(write.kind, write.key, write.scope)
            expected = None if write.body is None else (write.body, write.expected + 1)
            if (stored and (stored.body, stored.version)) != expected:
                return False
        return True


def bank_claim(space: SpaceContext, run_id: str) -> RecordClaim:
    """Return the claim under which a run changes the bank of a space, not taken yet."""
    return RecordClaim(
        run_id,
        space.handle.update_policy.lease,
        space.handle.store_now,
        read=lambda: space.one(records.CLAIM),
        put=lambda writes, attempts: space.put(writes, attempts=attempts),
        place=lambda body, version: records.write_of(
            records.CLAIM, space.name, body=body, expected=version
        ),
    )
