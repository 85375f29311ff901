"""Writes sessions, tenants or a whole store to another store, and a store to a backup file.

``upkeep.copy_plan`` decides what is done with a session. A session goes from one store to the
other as the rows of a dump, and the target writes them in one transaction. So a copy that is killed
leaves whole sessions, and the next one copies those that are missing or have changed. Rows that
belong to no session go before the sessions.

A copy of the whole store is recorded for every tenant whose data it holds. The record is written
before the backup is made: a process that is killed leaves a record without a copy at worst, never
a copy that no receipt names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from hiermem import errors
from hiermem.bank.records import SPACE, SPACE_SCOPE
from hiermem.bank.sources import SOURCE
from hiermem.calls.retry import retry_store
from hiermem.changes.change import copies_of
from hiermem.changes.erase import erase_copied, subject_of_erased
from hiermem.changes.receipts import StoreCopy, record_copy
from hiermem.errors import UsageError
from hiermem.handle import Handle, every_session
from hiermem.protocols import Store, TenantStore
from hiermem.text.fence import tenant_key
from hiermem.types.transaction import (
    NO_SESSION,
    NeedRecords,
    RecordWrite,
    RunRecord,
    SessionNeed,
    StoredRow,
)
from hiermem.types.tree import EVERY, SessionFilter, member_of
from hiermem.upkeep import copy_plan
from hiermem.upkeep.copy_plan import CopyReport, Head
from hiermem.upkeep.read_metrics import FEEDBACK
from hiermem.upkeep.run_check import check

_PAGE: Final = 500

#: How often a session is copied again because it was written to meanwhile.
_TRIES: Final = 3
#: A limit that returns all.
_ALL: Final = 2**31 - 1


async def copy(
    source: Store,
    target: Store,
    handle: Handle,
    *,
    session: str | None = None,
    space: str | None = None,
    all_tenants: bool = False,
    on_progress: Callable[[CopyReport], object] | None = None,
) -> CopyReport:
    """Copy one session or space, or everything, of one tenant or of all; then check the target.

    Raises what ``AsyncMemory.copy_to`` does.
    """
    if source is target or _same_place(source, place_of(source), place_of(target)):
        raise errors.UsageError("the target is the store itself; name another place")
    report, checked = CopyReport(shown(target)), set[str]()
    async for name in every_tenant(source) if all_tenants else _only(handle.store.tenant):
        of = _TenantCopy(source.tenant(name), target.tenant(name), report, on_progress, space)
        # In a store over several databases, each tenant has its own place; a receipt names it.
        here, there = place_of(of.source), place_of(of.target)
        if _same_place(source, here, there):
            raise errors.UsageError(f"the target is the store itself for tenant {name!r}")
        if session is None and not await of.holds_anything():
            continue
        checked.add(name)
        await of.run(session, here or shown(source), there or report.place)
        report = of.report
    # The tenants that have something at the target now.
    async for name in every_tenant(target):
        if name in checked:
            found = await check(handle.for_tenant(target.tenant(name)))
            wrong = tuple(one for one in found.findings if session in (None, one.session_id))
            report = replace(report, findings=report.findings + wrong)
    return report


async def _only(name: str) -> AsyncIterator[str]:
    yield name


def place_of(store: Store | TenantStore) -> str | None:
    """Return where a store is, or that of a tenant; None where it does not say. Holds no secret."""
    place = getattr(store, "place", None)
    # A path may be no text.
    return place.encode(errors="backslashreplace").decode() if isinstance(place, str) else None


def _same_place(store: Store, source: str | None, target: str | None) -> bool:
    # A store in memory has no place.
    return "durable" in store.capabilities and source is not None and source == target


def shown(store: Store) -> str:
    """Return how a store is named to people."""
    return place_of(store) or f"a {type(store).__name__}"


class _TenantCopy:
    """The copy of one tenant, with the report of the whole copy as far as it is."""

    def __init__(
        self,
        source: TenantStore,
        target: TenantStore,
        report: CopyReport,
        on_progress: Callable[[CopyReport], object] | None,
        space: str | None,
    ) -> None:
        self.source, self.target, self.report = source, target, report
        self._space = space
        self._chosen = EVERY if space is None else SessionFilter(member_of(space))
        self._on_progress = on_progress
        self._rewritten = False

    async def run(self, session: str | None, here: str, there: str) -> None:
        """Copy the tenant, or one of its sessions, from the place ``here`` to ``there``."""
        self._count(tenants=1)
        now = await self.source.now()
        if session is not None and await self.source.session(session) is None:
            raise errors.NotFoundError(f"session {session!r} does not exist in the source")
        space = self._space
        if space is not None and not await self.source.records(SPACE, scope=SPACE_SCOPE, key=space):
            raise errors.NotFoundError(f"space {space!r} does not exist in the source")
        # Before anything is copied: no erasure may miss it.
        await self.source.put_records([record_copy(StoreCopy(there, now))])
        if session is None:
            await self.everything()
        else:
            await self.refuse_erased(session)
            await self.one(session)
        if self._rewritten:
            await self.target.scrub()
        copies = {one.place: one for one in await copies_of(self.source)}
        copies[here] = StoreCopy(here, now)
        copies.pop(there, None)
        await self.target.put_records([record_copy(one) for one in copies.values()])

    def _count(self, **more: int) -> None:
        """Add to the counts of the report, and report how far the copy is."""
        sums = {name: getattr(self.report, name) + number for name, number in more.items()}
        self.report = replace(self.report, **sums)
        if self._on_progress is not None:
            self._on_progress(self.report)

    async def holds_anything(self) -> bool:
        """Return whether the source has anything of the tenant but notes of copies."""
        if await self.source.sessions(limit=1):
            return True
        async with aclosing(_rows(self.source)) as rows:
            return await anext(rows, None) is not None

    async def everything(self) -> None:
        """Copy all sessions, or those of the space, and what belongs to none."""
        async for record in every_session(self.source, self._chosen):
            await self.refuse_erased(record.id)
        # A journal that outlives its session must not come to the session that it outlived.
        await self._remove_erased()
        await self.one(NO_SESSION)
        async for record in every_session(self.source, self._chosen):
            await self.one(record.id)
        await self._remove_erased()

    async def refuse_erased(self, session_id: str) -> None:
        """Raise ConflictError where the session was erased at the target."""
        if await self.target.session(session_id) is None and await _erasures(
            self.target, session_id, unknown_to=self.source
        ):
            raise copy_plan.differs(session_id, erased=True)

    async def _remove_erased(self) -> None:
        """Remove from the target what was erased in the source since an earlier copy."""
        async for record in every_session(self.target, self._chosen):
            if await self.source.session(record.id) is not None:
                continue
            erased = await _erasures(self.source, record.id, unknown_to=self.target)
            if not copy_plan.is_removed(record, erased):
                continue
            self._rewritten = True
            await self.target.transact(partial(erase_copied, record.id))
            self._count(removed=1)

    async def one(self, session_id: str) -> None:
        """Copy one session, or what belongs to none, as often as it changes meanwhile."""
        done: copy_plan.Step = "keep"
        for _ in range(_TRIES):
            try:
                step, version = await self._step(session_id)
                if step == "keep":
                    break
                done = step if done == "keep" else done
                self._rewritten = self._rewritten or step == "replace"
                await retry_store(
                    partial(self._send, session_id, version),
                    sleep=asyncio.sleep,
                )
            except errors.NotFoundError:  # it was erased in the source just now
                return
            except errors.ConflictError as error:
                if error.kind != "exists":
                    raise
                continue  # these rows came, and only the answer was lost
        else:
            if session_id and (await self._step(session_id))[0] != "keep":
                self.report = replace(self.report, changing=(*self.report.changing, session_id))
        if session_id:
            counts = {"copy": "copied", "replace": "replaced", "keep": "unchanged"}
            self._count(**{"sessions": 1, counts[done]: 1})

    async def _step(self, session_id: str) -> tuple[copy_plan.Step, int | None]:
        """Return what is done with a session, and the version that it replaces.

        Raises NotFoundError where the source does not have it.
        """
        if session_id == NO_SESSION:
            return await self._step_without_session(), 0
        source, target = await _head(self.source, session_id), await _head(self.target, session_id)
        if source is None:
            raise errors.NotFoundError(f"session {session_id!r} does not exist in the source")
        if target is None:
            return "copy", None
        known = target.run is None or await self.source.run(target.run.id) is not None
        last = target.record.messages - 1
        known = known and await _written_at(self.source, session_id, last) == await _written_at(
            self.target, session_id, last
        )
        erased = await _erasures(self.source, session_id, unknown_to=self.target)
        step = copy_plan.step(source, target, known=known, erased=bool(erased))
        return step, target.record.version

    async def _step_without_session(self) -> copy_plan.Step:
        source = [row async for row in _rows(self.source, self._space)]
        target = [row async for row in _rows(self.target, self._space)]
        return copy_plan.step_without_session(source, target)

    async def _send(self, session_id: str, replaces: int | None) -> None:
        """Send a session to the target, which writes it in one transaction."""
        before = self.report.messages

        async def carried() -> AsyncGenerator[list[StoredRow]]:
            pages = _carried(self.source, session_id)
            if self._space is not None and session_id == NO_SESSION:
                pages = self._of_space(self._space)
            async for page in pages:
                yield page
                self._count(messages=sum(row["kind"] == "message" for row in page))

        try:
            async with aclosing(carried()) as rows:
                await self.target.restore(rows, replaces=replaces)
        except BaseException:
            self.report = replace(self.report, messages=before)
            raise

    async def _of_space(self, space: str) -> AsyncGenerator[list[StoredRow]]:
        """Yield the rows of a space, and what else belongs to no session at the target."""
        head, *_, end = [row async for page in _carried(self.source, NO_SESSION) for row in page]
        others = [row async for row in _rows(self.target) if not copy_plan.is_of(row, space)]
        rows = others + [row async for row in _rows(self.source, space)]
        rows.sort(key=copy_plan.place_of_kind)
        yield [head, *rows, {**end, "rows": len(rows)}]


async def _head(store: TenantStore, session_id: str) -> Head | None:
    """Return the session's head, None where it does not exist."""
    needs: list[SessionNeed] = [
        (session_id, "session"),
        (session_id, NeedRecords(FEEDBACK)),
        (session_id, NeedRecords(SOURCE)),
    ]
    record, *records = await store.read(needs)
    if record is None:
        return None
    runs = await store.runs(subject=session_id, limit=1)
    records_read = tuple(one for of_kind in records for one in of_kind)
    return Head(record, runs[0] if runs else None, records_read)


async def _written_at(store: TenantStore, session_id: str, index: int) -> datetime | None:
    """Return the time of a message, which no edit and no erasure changes; None without it."""
    messages = await store.messages(session_id, index, index + 1)
    return messages[0].message.created_at if messages else None


async def _erasures(
    store: TenantStore, session_id: str, *, unknown_to: TenantStore
) -> list[RunRecord]:
    """Return the runs that erased a session of this id, of which the other store does not know."""
    subject = subject_of_erased(tenant_key(await store.secret(), store.tenant), session_id)
    return [
        run
        for run in await store.runs(subject=subject, limit=_ALL)
        if copy_plan.is_erasure(run) and await unknown_to.run(run.id) is None
    ]


async def _carried(source: TenantStore, session_id: str) -> AsyncGenerator[list[StoredRow]]:
    """Yield the pages of a dump without what every store has for itself."""
    n_left = 0
    async for page in await source.dump(session_id):
        rows = [row for row in page if copy_plan.is_carried(row)]
        n_left += len(page) - len(rows)
        if n_left and rows and rows[-1]["kind"] == "end":
            rows[-1] = {**rows[-1], "rows": rows[-1]["rows"] - n_left}
        yield rows


async def _rows(store: TenantStore, space: str | None = None) -> AsyncGenerator[StoredRow]:
    """Yield the rows of what belongs to no session, or those of a space."""
    async for page in _carried(store, NO_SESSION):
        for row in page:
            if row["kind"] not in ("dump", "end") and (
                space is None or copy_plan.is_of(row, space)
            ):
                yield row


async def backup(store: Store, path: Any, *, tenant: TenantStore) -> StoreCopy:
    """Copy the store to a new file at ``path``; ``tenant`` is the handle of the caller.

    Raises UsageError where the store makes no copies of itself, for what is no path, and where
    there is something at ``path``.
    """
    write: Callable[[Path], Awaitable[None]] | None = getattr(store, "backup", None)
    if write is None:
        raise UsageError(f"{type(store).__name__} has no backup; copy the store, or use pg_dump")
    target = _new_file(path)
    place = str(target).encode("utf-8", "backslashreplace").decode("utf-8")
    copy = StoreCopy(place, await tenant.now())
    note = record_copy(copy)
    before = {name: await _recorded(store.tenant(name), note) async for name in every_tenant(store)}
    try:
        await write(target)
    except BaseException:
        # The record of another backup at this place returns, or stays where it came later.
        for name, earlier in before.items():
            await store.tenant(name).put_records([earlier])
        raise
    # A tenant that came meanwhile may be in the copy too; and a backup that failed at this place
    # may have taken over the record.
    for name in [name async for name in every_tenant(store)]:
        await store.tenant(name).put_records([note])
    return copy


async def _recorded(tenant: TenantStore, write: RecordWrite) -> RecordWrite:
    """Write a record; return the write that puts back what it took the place of."""
    while True:
        record = next(iter(await tenant.records(write.kind, key=write.key, limit=1)), None)
        version, body = (record.version, record.body) if record else (0, None)
        if await tenant.put_records([replace(write, expected=version)]):
            return replace(write, body=body, expected=version + 1)


def _new_file(path: Any) -> Path:
    if not isinstance(path, (str, PathLike)) or not os.fspath(path) or "\0" in os.fsdecode(path):
        raise UsageError(f"path is {path!r}; it must name a new file")
    target = Path(os.fsdecode(path)).absolute()
    if os.path.lexists(target):
        raise UsageError(f"{target} exists; name a new file for the backup")
    return target


async def every_tenant(store: Store) -> AsyncIterator[str]:
    """Yield the names of the tenants of which anything is stored, page by page."""
    after: str | None = None
    while names := await store.tenants(after=after, limit=_PAGE):
        for name in names:
            yield name
        after = names[-1]
