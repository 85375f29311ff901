"""Copies sessions, tenants or a whole store to another store, and compares both sides afterwards.

``core.check`` decides what is done with a session. A session goes from one store to the other
as the rows of a dump, in batches; the next call resumes an interrupted copy. Rows that belong to no
session go before the sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

from hiermem import errors
from hiermem.core.check import CopyReport, Step, is_erasure, step
from hiermem.core.log.erase import erase_copied
from hiermem.core.log.receipts import StoreCopy, record_copy
from hiermem.core.log.row_digest import NO_SESSION, RowDigest, is_carried
from hiermem.engine.calls.store_retry import retry_store
from hiermem.engine.check import check
from hiermem.engine.handle import Handle, every_session
from hiermem.engine.log.copies import copies_of, every_tenant
from hiermem.protocols import Store, TenantStore
from hiermem.types import SessionRecord
from hiermem.types.transaction import StoredRow

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
    all_tenants: bool = False,
    on_progress: Callable[[CopyReport], object] | None = None,
) -> CopyReport:
    """Copy one session, or everything, of the handle's tenant or of all; then check the target.

    Raises what ``AsyncMemory.copy_to`` does.
    """
    if source is target or _same_place(source, place_of(source), place_of(target)):
        raise errors.UsageError("the target is the store itself; name another place")
    report, checked = CopyReport(shown(target)), set[str]()
    async for name in every_tenant(source) if all_tenants else _only(handle.store.tenant):
        of = _TenantCopy(source.tenant(name), target.tenant(name), report, on_progress)
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
    if not isinstance(place, str):
        return None
    return place.encode("utf-8", "backslashreplace").decode("utf-8")  # a path may be no text


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
    ) -> None:
        self.source, self.target, self.report = source, target, report
        self._on_progress = on_progress
        self._rewritten = False

    async def run(self, session: str | None, here: str, there: str) -> None:
        """Copy the tenant, or one of its sessions, from the place ``here`` to ``there``."""
        self._count(tenants=1)
        now = await self.source.now()
        if session is not None and await self.source.session(session) is None:
            raise errors.NotFoundError(f"session {session!r} does not exist in the source")
        # Before anything is copied: no erasure may miss it.
        await self.source.put_records([record_copy(StoreCopy(there, now))])
        if session is None:
            await self.everything()
        else:
            await self.refuse_erased(session)
            await self.one(session)
        known = {one.place: one for one in await copies_of(self.source)}
        known[here] = StoreCopy(here, now)
        known.pop(there, None)
        await self.target.put_records([record_copy(one) for one in known.values()])

    def _count(self, **more: int) -> None:
        """Add to the counts of the report."""
        sums = {name: getattr(self.report, name) + number for name, number in more.items()}
        self.report = replace(self.report, **sums)

    def _tell(self) -> None:
        """Report how far the copy is."""
        if self._on_progress is not None:
            self._on_progress(self.report)

    async def holds_anything(self) -> bool:
        """Return whether the source has anything of the tenant, or the target something unseen."""
        if await self.source.sessions(limit=1) or await self.target.restores():
            return True
        return bool(await _digest(self.source, NO_SESSION))

    async def everything(self) -> None:
        """Copy all sessions, and what belongs to none."""
        async for record in every_session(self.source):
            await self.refuse_erased(record.id)
        # A journal that outlives its session must not come to the session that it outlived.
        await self._remove_erased()
        await self.one(NO_SESSION)
        async for record in every_session(self.source):
            await self.one(record.id)
        await self._remove_erased()
        for cut_off in await self.target.restores():
            if cut_off.session_id and await self.source.session(cut_off.session_id) is None:
                await self._delete(cut_off.session_id)
        if self._rewritten:
            await self.target.scrub()

    async def refuse_erased(self, session_id: str) -> None:
        """Raise SessionDiffersError where the session was erased at the target."""
        if await self.target.session(session_id) is not None:
            return
        for run in await self.target.runs(subject=session_id, limit=_ALL):
            if is_erasure(run) and await self.source.run(run.id) is None:
                raise errors.SessionDiffersError(session_id, erased=True)

    async def _remove_erased(self) -> None:
        """Remove from the target what was erased in the source since an earlier copy."""
        async for record in every_session(self.target):
            if await self.source.session(record.id) is not None:
                continue
            runs = await self.source.runs(subject=record.id, limit=_ALL)
            if not any(map(is_erasure, runs)):
                continue
            arrived = await self.target.restores(record.id)
            if not arrived or arrived[0].digest != await _digest(self.target, record.id):
                raise errors.SessionDiffersError(record.id)
            await self._delete(record.id)
            self._count(removed=1)

    async def _delete(self, session_id: str) -> None:
        self._rewritten = True
        await self.target.transact(lambda: erase_copied(session_id))

    async def one(self, session_id: str) -> None:
        """Copy one session, or what belongs to none, as often as it changes meanwhile."""
        done: Step = "keep"
        for tried in range(1, _TRIES + 1):
            try:
                step = await self._step(session_id)
                if step[0] == "keep":
                    break
                done = step[0] if done == "keep" else done
                digest, state = await retry_store(
                    partial(self._send, session_id, step[1]), sleep=asyncio.sleep
                )
            except errors.NotFoundError:  # it was erased in the source just now
                return
            except errors.HiermemError as error:
                # Other rows came in an earlier call, or these did, and only the answer was lost.
                # What belongs to no session may have a name that is taken at the target.
                came = isinstance(error, errors.SessionChangedError | errors.SessionExistsError)
                taken = not session_id and type(error) is errors.UsageError
                if tried == _TRIES or not (came or taken):
                    raise
                continue
            self._rewritten = self._rewritten or step[0] == "replace"
            if await _digest(self.target, session_id) != digest:
                raise errors.StoreError(
                    f"session {session_id!r}: what arrived is not what was sent; copy it again"
                )
            if not session_id or await self._state(session_id) == state:
                break
        else:
            changing = (*self.report.changing, session_id)
            self.report = replace(self.report, changing=changing)
        if session_id:
            counts = {"copy": "copied", "replace": "replaced", "keep": "unchanged"}
            self._count(**{"sessions": 1, counts[done]: 1})
        self._tell()

    async def _step(self, session_id: str) -> tuple[Step, int | None]:
        """Return the action for a session, and the version of the session that it replaces."""
        there: SessionRecord | None = None
        if session_id:
            there = await self.target.session(session_id)
            if there is None:
                return "copy", None
        arrived = await self.target.restores(session_id)
        target = await _digest(self.target, session_id)
        decided = step(
            session_id,
            source=await _digest(self.source, session_id),
            target=target if there or target else None,
            arrived=arrived[0] if arrived else None,
        )
        version = there.version if there else 0
        return decided, version if decided == "replace" else None

    async def _state(self, session_id: str) -> tuple[int, int] | None:
        found = await self.source.session(session_id)
        return None if found is None else (found.version, found.epoch)

    async def _send(
        self, session_id: str, replaces: int | None
    ) -> tuple[str, tuple[int, int] | None]:
        """Send a session; return the digest of its rows, and its record's version and epoch."""
        digest = RowDigest()
        state: tuple[int, int] | None = None

        async def carried() -> AsyncGenerator[list[StoredRow]]:
            nonlocal state
            async for page in _carried(self.source, session_id):
                digest.add_all(page)
                for row in page:
                    if row["kind"] == "session":
                        state = row["value"]["version"], row["value"]["epoch"]
                self._count(messages=sum(row["kind"] == "message" for row in page))
                yield page
                self._tell()

        before = self.report.messages
        try:
            async with aclosing(carried()) as rows:
                await self.target.restore(rows, replaces=replaces)
        except BaseException:
            self._count(messages=before - self.report.messages)
            raise
        return digest.text, state


async def _carried(source: TenantStore, session_id: str) -> AsyncIterator[list[StoredRow]]:
    """Yield the pages of a dump without what every store has for itself."""
    left = 0
    async for page in await source.dump(session_id):
        kept = [row for row in page if is_carried(row)]
        left += len(page) - len(kept)
        if left and kept and kept[-1]["kind"] == "end":
            kept[-1] = {**kept[-1], "rows": kept[-1]["rows"] - left}
        yield kept


async def _digest(store: TenantStore, session_id: str) -> str:
    """Return the digest of a session's content, "" where there is none."""
    digest = RowDigest()
    async for page in await store.dump(session_id):
        await asyncio.to_thread(digest.add_all, page)
    return digest.text
