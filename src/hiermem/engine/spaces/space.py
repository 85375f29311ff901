"""Opens a space, and reads, loads, exports and rolls back its bank.

A bank is changed only under its lease, and nothing here asks a model. ``core.spaces.change``
decides what a change consists of; ``engine.spaces.consolidate`` turns notes into files.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from hiermem.config import BankPolicy
from hiermem.core import arguments
from hiermem.core.spaces import change
from hiermem.core.spaces import folder as mirror
from hiermem.core.spaces import record as kept
from hiermem.core.spaces.files import diff
from hiermem.core.spaces.folder import BankFile
from hiermem.core.spaces.names import check_file_name
from hiermem.core.spaces.record import BankState
from hiermem.core.spaces.rules import Rules
from hiermem.engine.handle import Handle
from hiermem.engine.spaces import folder_io
from hiermem.engine.spaces.records import Lease, SpaceBooks
from hiermem.errors import (
    HiermemError,
    NotFoundError,
    RulesConflictError,
    SpaceBusyError,
    StoreBusyError,
    UsageError,
)
from hiermem.types.bank import BankRevision, ExportReport, LoadReport, SpaceMeta
from hiermem.types.transaction import Record, RecordWrite

_ALL: Final = 2**31 - 1
_MARK_BYTES: Final = 8
#: So often a space is looked for, and made where it is not there.
_LOOKS: Final = 3


@dataclass(slots=True)
class Desk:
    """One space as one call uses it; ``given`` are the rules that it was asked for with.

    ``header`` is the space's own record as the call found it. All that the call writes is for that
    very space: once it is erased, nothing is written, though one of its name be made anew.
    """

    handle: Handle
    name: str
    given: Rules | None
    policy: BankPolicy
    arrivals: asyncio.Lock = field(default_factory=asyncio.Lock)
    header: Record | None = None

    @property
    def books(self) -> SpaceBooks:
        """Give the records of the space."""
        return SpaceBooks(self.handle.store, self.name, sleep=asyncio.sleep, standing=self.header)

    def lease(self, run_id: str) -> Lease:
        """Give the lease of its bank, not taken yet."""
        return Lease(self.books, run_id, length=self.policy.lease, now=self.handle.clock)

    async def rules(self, *, afresh: bool = False) -> Rules:
        """Give the rules of the space, which is made where rules were given and there is none.

        They are read once a call; ``afresh`` looks again, and then means the space as it is now.

        Raises NotFoundError where there is no such space, RulesConflictError where it has others.
        """
        if self.header is not None and not afresh:
            return kept.read_space(self.header)[0]
        self.header = None
        for _ in range(_LOOKS):
            found = await self.books.header()
            if found is not None:
                rules, _ = kept.read_space(found)
                if self.given is not None and self.given.text != rules.text:
                    raise RulesConflictError(self.name)
                self.header = found
                return rules
            if self.given is None:
                raise NotFoundError(
                    f"space {self.name!r} does not exist; open it with rules once, which makes it"
                )
            mark = secrets.token_hex(_MARK_BYTES)
            write = kept.new_space(self.name, self.given, now=self.handle.clock(), mark=mark)
            # Where it was made it is read like any other; it may be gone again.
            await self.books.put([write])
        raise StoreBusyError(f"space {self.name!r} is being made and removed by others")

    async def refused(self) -> HiermemError:
        """Give the error for a write that did not count: the space is busy, or was erased."""
        if await self.books.stands():
            return SpaceBusyError(self.name)
        return NotFoundError(f"space {self.name!r} was erased; nothing was written")

    async def state(self) -> BankState:
        """Read the bank as it is now."""
        return await self.books.state(await self.rules())


async def spaces(handle: Handle) -> list[str]:
    """List the names of a tenant's spaces."""
    found = await handle.store.records(kept.SPACE, scope=kept.SPACE_SCOPE, limit=_ALL)
    return [record.key for record in found]


# ---------------------------------------------------------------------------------------------
# The bank


async def read(desk: Desk, name: Any, revision: Any) -> str:
    """Give the text of a file, now or as a revision left it. Raises NotFoundError."""
    if (wrong := check_file_name(name)) is not None:
        raise UsageError(f"name is no name of a bank file: {wrong}")
    if revision is None:
        await desk.rules()
        found = await desk.books.record(kept.BANK, name)
        text = found.body if found else None
    else:
        text = (await _texts(desk, revision))[0].get(name)
    if text is None:
        when = "" if revision is None else f" in revision {revision}"
        raise NotFoundError(f"space {desk.name!r} has no file {name!r}{when}")
    return text


async def _texts(desk: Desk, revision: Any) -> tuple[dict[str, str], str]:
    """Give files and synthesis as a revision left them; 0 is the empty bank."""
    number = arguments.whole(revision, "the revision")
    if number > await _newest(desk):
        raise NotFoundError(f"the bank of space {desk.name!r} has no revision {number}")
    return kept.texts_at(await desk.books.records(kept.REVISION), number)


async def history(desk: Desk, limit: Any) -> list[BankRevision]:
    """List the revisions of the bank, newest first."""
    most = arguments.whole(limit, "limit")
    newest = await _newest(desk)
    if most >= newest:
        return kept.read_revisions(await desk.books.records(kept.REVISION))[::-1][:most]
    # Each holds the texts that changed in it; so those that are not asked for are not read.
    found = [
        await desk.books.record(kept.REVISION, kept.number_key(number))
        for number in range(newest, newest - most, -1)
    ]
    return kept.read_revisions(record for record in found if record is not None)


async def _newest(desk: Desk) -> int:
    """Give the number of the newest revision, 0 for none."""
    rules = await desk.rules()
    figures = await desk.books.record(kept.META)
    return kept.read_state(desk.name, rules, files=(), synthesis=None, meta=figures).meta.revision


async def diff_between(desk: Desk, since: Any, until: Any) -> str:
    """Give what changed between two revisions, as unified diffs of all files."""
    if until is None:
        until = (await desk.state()).meta.revision
    number = arguments.whole(until, "until")
    first = max(0, number - 1) if since is None else arguments.whole(since, "since")
    before, after = (await _texts(desk, first))[0], (await _texts(desk, number))[0]
    return "".join(
        diff(name, before.get(name, ""), after.get(name, "")) for name in sorted(before | after)
    )


async def rollback(desk: Desk, to: Any) -> BankRevision:
    """Give the bank the texts that revision ``to`` left, as a new revision; give the newest one.

    Raises NotFoundError, and SpaceBusyError where the bank is being changed by others.
    """
    number = arguments.whole(to, "to")
    files, synthesis = await _texts(desk, number)
    lease = await _taken(desk)
    try:
        state = await desk.state()
        texts = dict.fromkeys(state.files, None) | files
        made = change.put(
            state, texts, kind="rollback", now=desk.handle.clock(), synthesis=synthesis, to=number
        )
        if made is not None and not await lease.commit(made.writes):
            raise await desk.refused()
    finally:
        await lease.release()
    newest = await history(desk, 1)
    if not newest:
        raise NotFoundError(f"the bank of space {desk.name!r} has no revision to go back to")
    return newest[0]


async def _taken(desk: Desk) -> Lease:
    """Take the lease of the bank. Raises SpaceBusyError, NotFoundError where it was erased."""
    lease = desk.lease(uuid.uuid4().hex)
    if not await lease.take():
        raise await desk.refused()
    return lease


# ---------------------------------------------------------------------------------------------
# Folders


def _names(rules: Rules, state: BankState) -> set[str]:
    """Give the names that a file of the bank may have had; the rules of a space never change."""
    return {*rules.names, *state.files}


async def _loaded(desk: Desk) -> dict[str, str]:
    return {record.key: record.body for record in await desk.books.records(kept.LOADED)}


def _copies(state: BankState, loaded: dict[str, str]) -> dict[str, BankFile]:
    return {name: BankFile(text, loaded.get(name, "")) for name, text in state.texts.items()}


async def export(desk: Desk, folder: Any, overwrite: Any) -> ExportReport:
    """Bring a folder up to the bank. Raises FolderError and UsageError for the folder."""
    place = folder_io.place_of(folder)
    arguments.switch(overwrite, "overwrite")
    # In this order: what a load brings in meanwhile must not look as if the bank had it before.
    loaded = await _loaded(desk)
    state = await desk.state()
    # Where it goes is on record before anything is there, so that an erasure can name it.
    kind = kept.kind_of(kept.EXPORT, desk.name)
    where = folder_io.whole_path(place)
    if not await desk.books.put(
        [RecordWrite(kind, kept.SPACE_SCOPE, where, str(state.meta.revision))]
    ):
        raise await desk.refused()
    plan = await asyncio.to_thread(
        folder_io.export_to,
        place,
        _names(await desk.rules(), state),
        _copies(state, loaded),
        space=desk.name,
        revision=state.meta.revision,
        overwrite=overwrite,
    )
    return ExportReport(
        place, state.meta.revision, plan.write, plan.unchanged, plan.remove, plan.kept
    )


async def load(desk: Desk, folder: Any, overwrite: Any) -> LoadReport:
    """Take what changed in a folder into the bank, as one new revision.

    Raises FolderError and UsageError for the folder, SpaceBusyError.
    """
    place = folder_io.place_of(folder)
    arguments.switch(overwrite, "overwrite")
    rules = await desk.rules()
    lease = await _taken(desk)
    try:
        state = await desk.books.state(rules)
        plan, texts = await asyncio.to_thread(
            folder_io.read_from,
            place,
            _names(rules, state),
            _copies(state, await _loaded(desk)),
            space=desk.name,
            overwrite=overwrite,
        )
        made = change.put(state, texts, kind="load", now=desk.handle.clock())
        if made is not None:
            kind = kept.kind_of(kept.LOADED, desk.name)
            loaded = [
                RecordWrite(kind, kept.SPACE_SCOPE, name, mirror.text_hash(text))
                for name, text in texts.items()
            ]
            if not await lease.commit([*made.writes, *loaded]):
                raise await desk.refused()
    finally:
        await lease.release()
    held = state.texts
    return LoadReport(
        place,
        made.state.meta.revision if made else None,
        plan.created,
        plan.updated,
        plan.unchanged,
        plan.conflicts,
        plan.skipped,
        "".join(diff(name, held.get(name, ""), text) for name, text in sorted(texts.items())),
    )


async def meta(desk: Desk) -> SpaceMeta:
    """Give the figures of the space."""
    return (await desk.state()).meta
