"""Works by the list of what is due, over all tenants of a store.

::

    claim -> update -> settle: the entry is deleted, or gets its next time

A claim saves other workers a look at the session; it excludes nobody. The leases of the nodes keep
two workers from making the same text. A claim that is lost or repeated costs one look.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hiermem.core.summaries.due import due_after_turn, pause_after
from hiermem.core.summaries.plan import UpdateReport
from hiermem.engine.calls.budget import Budget
from hiermem.engine.handle import Handle, Handles
from hiermem.engine.log.append import tick_if_idle
from hiermem.engine.summaries.run import Shared
from hiermem.engine.worker import probe
from hiermem.engine.worker.pool import SessionKey, SessionUpdate, UpdatePool
from hiermem.engine.worker.session_scheduler import SessionScheduler
from hiermem.errors import NotFoundError, StoreError
from hiermem.protocols import Store
from hiermem.types import Node
from hiermem.types.transaction import DueSession

#: Seconds for which a worker claims a session.
LEASE: Final = 120.0
#: Seconds between two sweeps, and the share of the time that a sweep takes at most.
_SWEEP: Final = 3600.0
_SWEEPING: Final = 0.05
#: Sessions, and tenants, that are listed at once.
_LISTED: Final = 500


class DueScheduler(SessionScheduler):
    """The scheduler of a worker for all tenants: it takes the sessions that it claims.

    ``handles`` are those of the tenants.
    """

    # By the list there is no look before the session is due again.
    _others_may_have_it = False

    def __init__(self, pool: UpdatePool, handles: Handles, *, name: str = "") -> None:
        super().__init__(pool, handles, name=name)
        self._all = handles
        self.claimed: dict[SessionKey, DueSession] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Sweep from now on."""
        self._sweeping = asyncio.get_running_loop().create_task(sweep_for_ever(self._all))

    async def look(self) -> None:
        """Claim as many sessions as have their turn soon, and queue those that have work."""
        self.begun += 1
        number = self.begun
        if (room := 2 * self._pool.places - len(self.claimed)) > 0:
            for one in await self._all.store.claim_due(room, lease=LEASE):
                self._all.add(one.tenant)
                self.claimed[one.tenant, one.session_id] = one
        for backoff in (self.backoff, self._embedded):
            # Another worker has taken them over.
            backoff.expire(self._clock() - LEASE)
        # Also what an earlier look, which failed, did not come to.
        waiting = [
            (key, self._handles[key[0]])
            for key in self.claimed
            if key not in self._pool.updates and key not in self.queue
        ]
        failed: Exception | None = None
        for key, handle in waiting:
            try:
                await self._consider_claimed(handle, key)
            except Exception as error:
                if isinstance(error, StoreError) and not probe.is_of_session(error):
                    raise
                failed = error
                self.trouble(key)
            if key in self.queue:
                self.on_found()
            else:
                await self._settle(handle, key)
        self.finished, self.left = number, len(self.claimed)
        if failed is not None:
            raise failed

    async def _consider_claimed(self, handle: Handle, key: SessionKey) -> None:
        """Queue a claimed session that has something to make."""
        session_id = key[1]
        # What is due is due by the store's clock.
        await handle.compare_clocks(lease=handle.update_policy.lease)
        await tick_if_idle(handle, session_id)
        level, leased = await probe.probe(handle.store, session_id, now=handle.store_now())
        if level is not None:
            self.queue.put(key, level, contested=leased)
        elif (record := await handle.store.session(session_id)) is None:
            return
        else:
            await self._look_for_vectors(handle, record)

    async def turn(self, session_update: SessionUpdate) -> UpdateReport | None:
        """Run one session's turn, and give back the claim on it, unless it has another turn."""
        key = session_update.key
        report: UpdateReport | None = None
        try:
            report = await super().turn(session_update)
        finally:
            if key not in self.queue:
                self._known.pop(key, None)
                pause = 0.0 if report is None else pause_after(report)
                try:
                    await self._settle(session_update.handle, key, pause=pause)
                except Exception as error:  # noqa: BLE001 - a claim that is not given back expires
                    self.record_error(error)
        return report

    async def _settle(self, handle: Handle, key: SessionKey, *, pause: float = 0.0) -> None:
        """Give back a claim; a session of which something is left backs off longer next time."""
        entry = self.backoff.get(key)
        if entry is not None:
            pause = max(pause, entry.until - self._clock())
        claimed = self.claimed.pop(key, None)
        if await settle(handle, key[1], claimed, pause=pause) is None:
            self.backoff.drop(key)
            self._embedded.drop(key)

    async def end(self) -> None:
        """Sweep no more, and make due again, at once, what was claimed and has had no turn."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        while self.claimed:
            (tenant, _), one = self.claimed.popitem()
            handle = self._all.add(tenant)
            await handle.store.settle_due(one, at=handle.store_now())


async def settle(
    handle: Handle, session_id: str, claimed: DueSession | None, *, pause: float = 0.0
) -> datetime | None:
    """Settle a claim by what is left to make; return since or from when, None where nothing is.

    Without a claim, only look.
    """
    store = handle.store
    record = await store.session(session_id)
    if record is None:
        return None
    now = handle.store_now()
    ready: list[Node] = []
    leased: list[Node] = []
    async for node, free in probe.workable(store, session_id, now=now):
        (ready if free else leased).append(node)
        if free and node.status in ("pending", "generating"):
            break  # nothing is due before that
    due = due_after_turn(record, ready=ready, leased=leased, now=now)
    if claimed is not None:
        at = None if due is None else max(due, now + timedelta(seconds=pause))
        await store.settle_due(claimed, at=at)
    return due


async def update_one(
    handle: Handle,
    session_id: str,
    shared: Shared,
    *,
    deadline: float,
) -> UpdateReport:
    """Make what a session lacks within ``deadline`` seconds, and settle its entry.

    Where nothing is to do, nothing is written. Nodes that another run holds are left to it. An
    error leaves the claim to expire.
    """
    await handle.compare_clocks(lease=handle.update_policy.lease)
    # By then the nodes of a run that died are free too.
    lease = deadline + handle.update_policy.lease
    claimed = await handle.store.take_due(session_id, lease=lease)
    budget = Budget(deadline=deadline, clock=shared.clock)
    pool = UpdatePool(handle.update_policy, replace(shared, waits_for_leases=False), budget)
    try:
        await tick_if_idle(handle, session_id)
        report: UpdateReport = await pool.work(pool.begin(handle, session_id))
    except NotFoundError:
        return UpdateReport()
    pause = pause_after(report)
    due = await settle(handle, session_id, claimed, pause=pause)
    return replace(report, more=due is not None and due <= handle.store_now() and not pause)


async def sweep(store: Store, handles: Handles, *, share: float = _SWEEPING) -> int:
    """Look at every session of every tenant, and make due what has something to make.

    Every writer enters it; this finds what was missed all the same. Returns the number of sessions
    that have something to make. At most ``share`` of the time is spent on it.
    """
    found, last = 0, None
    while tenants := await store.tenants(after=last, limit=_LISTED):
        last = tenants[-1]
        for tenant in tenants:
            begun = time.monotonic()
            handle = handles.add(tenant)
            behind = await probe.sessions_with_work(handle, by_time=True)
            for start in range(0, len(behind), _LISTED):
                await handle.store.put_due(behind[start : start + _LISTED])
            found += len(behind)
            await asyncio.sleep((time.monotonic() - begun) * (1 / share - 1))
    return found


async def sweep_for_ever(handles: Handles) -> None:
    """Sweep again and again, beginning at a random time, so that workers spread."""
    pause = _SWEEP * random.random()  # noqa: S311 - no secret
    while True:
        await asyncio.sleep(pause)
        try:
            await sweep(handles.store, handles)
        except Exception:  # noqa: BLE001 - nobody would notice that the sweeps have ended
            pause = _SWEEP / 10
        else:
            pause = _SWEEP
