"""Works by the list of what is due, over all tenants of a store.

::

    claim -> a turn -> settle: the entry goes, or gets its next time

A claim is a hint, not a right: it spares others a look. What keeps two workers from making the same
text are the leases of the nodes, and a claim that is lost or repeated costs a look.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from hiermem.core.summaries.due import due_after_turn, pause_after
from hiermem.core.summaries.plan import UpdateReport
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.budget import Budget
from hiermem.engine.handle import Handle, Handles
from hiermem.engine.log.append import tick_if_idle
from hiermem.engine.worker.pool import SessionKey, UpdatePool
from hiermem.engine.worker.probe import sessions_with_work, workable
from hiermem.errors import NotFoundError
from hiermem.protocols import LLM, Store
from hiermem.types import Node
from hiermem.types.transaction import DueSession

#: Seconds for which a worker claims a session.
LEASE: Final = 120.0
#: Seconds between two sweeps, and the share of the time that a sweep takes at most.
_SWEEP: Final = 3600.0
_SWEEPING: Final = 0.05
#: Sessions, and tenants, that are listed at once.
_LISTED: Final = 500


class DueList:
    """What one worker has claimed of the sessions of all tenants; ``handles`` are theirs."""

    def __init__(self, store: Store, handles: Handles) -> None:
        self.store, self.handles = store, handles
        self.claimed: dict[SessionKey, DueSession] = {}

    async def claim(self, limit: int) -> None:
        """Claim up to ``limit`` sessions."""
        for one in await self.store.claim_due(limit, lease=LEASE):
            self.handles.add(one.tenant)
            self.claimed[one.tenant, one.session_id] = one

    async def settle(self, handle: Handle, key: SessionKey, *, pause: float = 0.0) -> bool:
        """Give a claim back; the session is due again after ``pause`` seconds at the earliest.

        Returns whether anything of it is left to make.
        """
        claimed = self.claimed.pop(key, None)
        return await settle(handle, key[1], claimed, pause=pause) is not None

    async def give_back(self) -> None:
        """Make due again, at once, what was claimed and has had no turn."""
        while self.claimed:
            (tenant, _), one = self.claimed.popitem()
            handle = self.handles.add(tenant)
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
    async for node, free in workable(store, session_id, now=now):
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
    *,
    llm: LLM,
    fallback: LLM,
    prompts: Mapping[str, PromptTemplate | str] | None,
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
    budget = Budget(deadline=deadline, clock=time.monotonic)
    pool = UpdatePool(
        handle.update_policy, llm, fallback, prompts, budget, time.monotonic, waits_for_leases=False
    )
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
            behind = await sessions_with_work(handle, by_time=True)
            for start in range(0, len(behind), _LISTED):
                await handle.store.put_due(behind[start : start + _LISTED])
            found += len(behind)
            await asyncio.sleep((time.monotonic() - begun) * (1 / share - 1))
    return found


async def sweep_for_ever(due: DueList) -> None:
    """Sweep again and again, beginning at a random time, so that workers spread."""
    pause = _SWEEP * random.random()  # noqa: S311 - no secret
    while True:
        await asyncio.sleep(pause)
        try:
            await sweep(due.store, due.handles)
        except Exception:  # noqa: BLE001 - nobody would notice that the sweeps have ended
            pause = _SWEEP / 10
        else:
            pause = _SWEEP
