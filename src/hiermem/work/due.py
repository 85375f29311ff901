"""Runs the turns of due sessions, and the sweep for sessions missing from the due queue.

::

    claim -> what time closes, summaries, vectors -> settle: the entry goes, or gets its next time

A worker, an update of all sessions and a job of a queue have their turns from here. They differ in
where the claim comes from. A session's update is the same one that ``session.update()`` runs.

A pool runs several turns at once, with one rate limiter and one budget. It adds what the updates
share, the places, and the ways to end one early. Which session is next, and what follows from a
result, the worker or the update of all sessions decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, cast

from hiermem.calls.budget import Budget
from hiermem.calls.failures import TROUBLE, VECTORS, back_off
from hiermem.calls.rate_limit import RateLimiter, rate_limiter
from hiermem.calls.retry import shielded
from hiermem.config import UpdatePolicy, UpdateStrategy
from hiermem.errors import HiermemError, NotFoundError, StoreCorruptError, StoreError
from hiermem.handle import Handle, Handles, every_session, session_state
from hiermem.log.append import tick_if_idle
from hiermem.protocols import Store
from hiermem.search.ahead import with_index
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.due import pause_after
from hiermem.summaries.plan import UpdateReport
from hiermem.summaries.reports import BatchReport, add_report
from hiermem.summaries.run import Shared, UpdateRun, read_outdated
from hiermem.summaries.update import update
from hiermem.tree.fold import config_from, idle_tick
from hiermem.tree.status import waiting
from hiermem.types import SessionRecord

#: What names a session among those of several tenants: its tenant and its id.
SessionKey: TypeAlias = tuple[str, str]


@dataclass(slots=True, eq=False)
class SessionUpdate:
    """One session's update within a pool; ``handle`` is its tenant's.

    ``claim`` is that of the caller, if it has one. ``embedded`` tells whether the session has all
    its vectors now, None where none were looked for.
    """

    handle: Handle
    session_id: str
    budget: Budget
    claim: SessionClaim | None = None
    task: asyncio.Task[None] | None = None
    embedded: bool | None = None

    @property
    def key(self) -> SessionKey:
        """The tenant and the id of the session."""
        return self.handle.store.tenant, self.session_id

    def end(self, why: str) -> None:
        """Begin no further call; calls in flight are finished and committed."""
        self.budget.close(why)


#: A function that runs an update which has a place.
Turn: TypeAlias = Callable[[SessionUpdate], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class UpdatePool:
    """What updates of several sessions share, whichever tenant of a memory they belong to.

    ``budget`` holds all of them together to their caps. ``updates`` are those that have a place,
    and ``total`` adds up the updates' reports.
    """

    policy: UpdatePolicy
    shared: Shared
    budget: Budget
    updates: set[SessionUpdate] = field(init=False)
    limiter: RateLimiter = field(init=False)
    total: BatchReport = field(default_factory=BatchReport)

    def __post_init__(self) -> None:
        llm, clock, sleep = self.shared.llm, self.shared.clock, self.shared.sleep
        self.updates = set()
        self.limiter = rate_limiter(llm, self.policy, clock=clock, sleep=sleep)
        self.shared = replace(self.shared, rate_limiter=self.limiter)

    @property
    def places(self) -> int:
        """The number of sessions that are worked on at once.

        Each of them has work for one call. Two more keep the calls coming while sessions change.
        """
        return self.policy.concurrency + 2

    @property
    def free(self) -> int:
        """The number of places that no session has."""
        return self.places - len(self.updates)

    def run(self, session_update: SessionUpdate, turn: Turn) -> asyncio.Task[None]:
        """Give an update a place, and run its ``turn``."""
        self.updates.add(session_update)
        session_update.task = asyncio.create_task(self._run(session_update, turn))
        return session_update.task

    async def _run(self, session_update: SessionUpdate, turn: Turn) -> None:
        try:
            await turn(session_update)
        finally:
            self.updates.discard(session_update)

    async def end(self, why: str) -> None:
        """Let no turn begin a further call, and wait until all have ended."""
        for session_update in self.updates:
            session_update.end(why)
        if tasks := self._tasks():
            await asyncio.wait(tasks)

    async def cut_off(self) -> None:
        """Cancel the turns that are left, and wait until they have cleaned up."""
        tasks, cut = self._tasks(), list(self.updates)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.updates.clear()
        for each in cut:
            if each.claim is not None:
                # A turn that was cancelled before it began ran no code: its claim is held yet.
                with suppress(HiermemError):
                    await each.claim.settle()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [each.task for each in self.updates if each.task is not None]

    def begin(
        self, handle: Handle, session_id: str, claim: SessionClaim | None = None
    ) -> SessionUpdate:
        """Prepare the update of one session."""
        budget = Budget(clock=self.shared.clock, parents=(self.budget,))
        return SessionUpdate(handle, session_id, budget, claim)

    async def work(
        self,
        session_update: SessionUpdate,
        strategy: UpdateStrategy = "incremental",
        **settings: Any,
    ) -> Any:
        """Update the session, or plan it; ``settings`` are those of ``summaries.update.update``.

        A full re-pack is made under this handle's configuration, anything else under the session's
        own. Raises what the update raises, and ConflictError.
        """
        handle = session_update.handle
        record = await handle.record(session_update.session_id)
        updating = update(
            handle,
            session_update.session_id,
            replace(self.shared, parents=(session_update.budget,)),
            strategy=strategy,
            record=record,
            claim=session_update.claim,
            **settings,
        )
        if settings.get("dry_run"):
            return await updating
        done = await with_index(
            handle,
            session_update.session_id,
            cast("Awaitable[UpdateReport]", updating),
            within=session_update.budget.time_left(),
        )
        self.total = add_report(self.total, done)
        await self.embed(session_update)
        return done

    async def embed(self, session_update: SessionUpdate) -> None:
        """Make the vectors that the session lacks, where there is an embedder.

        Failures are logged and noted in the session update.
        """
        if session_update.handle.embedder is None:
            return
        from hiermem.search.embed import quietly

        session_update.embedded = await quietly(
            session_update.handle,
            session_update.session_id,
            stopped=session_update.budget.stop_reason,
        )


#: The share of the time that a sweep takes at most.
_SWEEPING: Final = 0.05
#: Sessions, and tenants, that are listed at once.
_LISTED: Final = 500
#: More entries than a tenant has.
_ALL: Final = 2**31 - 1
#: Sessions that are looked at together.
_TOGETHER: Final = 50


async def take_turn(pool: UpdatePool, session_update: SessionUpdate) -> UpdateReport:
    """Do what a claimed session lacks: close its windows by time, make summaries and vectors.

    Raises what the update raises, and NotFoundError where the session is gone.
    """
    await tick_if_idle(session_update.handle, session_update.session_id)
    report: UpdateReport = await pool.work(session_update)
    return report


def pause_of(session_update: SessionUpdate, report: UpdateReport, failures: int) -> float:
    """Return the seconds until the next turn of a session at the earliest.

    ``failures`` are its turns in a row after which some of its vectors were missing.
    """
    pause = pause_after(report)
    if session_update.embedded is False:
        pause = max(pause, back_off(failures, VECTORS))
    return pause


async def update_one(
    handle: Handle,
    session_id: str,
    shared: Shared,
    *,
    deadline: float,
) -> UpdateReport:
    """Make what a session lacks within ``deadline`` seconds, and settle its entry.

    Where another run holds the session, at most the windows that time closes are closed.
    """
    claim = SessionClaim(handle, session_id)
    try:
        # Under the claim, the session would be due again for what this closes.
        await tick_if_idle(handle, session_id)
        if not await claim.take():
            return UpdateReport()
        budget = Budget(deadline=deadline, clock=shared.clock)
        pool = UpdatePool(handle.update_policy, shared, budget)
        session_update = pool.begin(handle, session_id, claim)
        report: UpdateReport = await pool.work(session_update)
    except NotFoundError:
        await shielded(claim.end(None))
        return UpdateReport()
    except BaseException as error:
        # An error may meet whoever comes next as well; after a cancellation the rest is due now.
        failed = isinstance(error, Exception)
        with suppress(HiermemError):
            await shielded(claim.settle(pause=TROUBLE[0] if failed else 0.0, again=failed))
        raise
    pause = pause_of(session_update, report, 1)
    due = await shielded(claim.settle(pause=pause, again=session_update.embedded is False))
    return replace(report, more=due is not None and due <= handle.store_now() and not pause)


async def sessions_to_update(handle: Handle, store: Store) -> list[str]:
    """Return the sessions of a tenant that lack summaries or vectors, the longest due first."""
    entries = await store.claim_due(_ALL, lease=0.0, tenant=handle.store.tenant, ahead=None)
    found = [id_ async for id_ in unfinished(handle, (one.session_id for one in entries))]
    if handle.embedder is not None:
        known = set(found)
        found += [
            record.id
            async for record in every_session(handle.store)
            if record.id not in known and await lacks_vectors(handle, record)
        ]
    return found


async def unfinished(handle: Handle, session_ids: Iterable[str]) -> AsyncIterator[str]:
    """Yield those of these sessions that have a summary to make."""
    ids = list(session_ids)
    for start in range(0, len(ids), _TOGETHER):
        some = ids[start : start + _TOGETHER]
        tallies = await asyncio.gather(*(handle.store.tree(id_).tally() for id_ in some))
        for id_, tally in zip(some, tallies, strict=True):
            if any(waiting(one) or one.degraded for one in tally):
                yield id_


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
            found += await sweep_tenant(handles.add(tenant))
            await asyncio.sleep((time.monotonic() - begun) * (1 / share - 1))
    return found


async def sweep_tenant(handle: Handle, pool: UpdatePool | None = None) -> int:
    """Make due the sessions of a tenant that have something to make; return their number.

    With ``pool``, those too that have texts of an outdated strategy, where the policy follows it.
    """
    behind: list[str] = []
    rest: list[str] = []
    async for record in every_session(handle.store):
        lacking = closes_by_time(handle, record) or await lacks_vectors(handle, record)
        if lacking or (pool is not None and await _has_outdated(pool, handle, record)):
            behind.append(record.id)
        else:
            rest.append(record.id)
    behind += [id_ async for id_ in unfinished(handle, rest)]
    for start in range(0, len(behind), _LISTED):
        await handle.store.put_due(behind[start : start + _LISTED])
    return len(behind)


def closes_by_time(handle: Handle, record: SessionRecord) -> bool:
    """Return whether time closes a window of a session now."""
    if record.closed or not record.state:
        return False
    try:
        config = config_from(record.config)
        idle = handle.store_now() - record.last_activity
        return idle_tick(session_state(record), config, idle) is not None
    except HiermemError:
        return False


async def lacks_vectors(handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session may lack vectors, where there is an embedder."""
    if handle.embedder is None:
        return False
    # The vector code is loaded only where there is an embedder.
    from hiermem.search.embed import lacks

    return await lacks(handle, record)


async def _has_outdated(pool: UpdatePool, handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session has texts of an outdated strategy that the policy replaces.

    This may read all nodes of the session.
    """
    if not handle.update_policy.follow_strategy or record.counter != handle.counter.name:
        return False
    try:
        tree = handle.store.tree(record.id)
        run = UpdateRun(
            handle,
            tree,
            record=record,
            config=config_from(record.config),
            policy=handle.update_policy,
            budget=pool.budget,
            shared=pool.shared,
        )
        for level, stop in (await tree.levels()).items():
            async for page in read_outdated(run, level, stop):
                if page:
                    return True
    except HiermemError as error:
        if not is_of_session(error):
            raise
    return False


def is_of_session(error: HiermemError) -> bool:
    """Return whether an error concerns one session, so that others can be worked on."""
    return isinstance(error, StoreCorruptError) or not isinstance(error, StoreError)
