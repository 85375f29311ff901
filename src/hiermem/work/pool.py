"""Runs updates of several sessions at once, with one rate limiter and one budget.

::

    a session takes a place -> its turn -> the place is free

A session's update is the same one that ``session.update()`` runs. The pool adds what the updates
share, the places, and the ways to end one early. Which session is next, and what follows from a
result, the worker or the update of all sessions decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from hiermem.calls.budget import Budget
from hiermem.calls.rate_limit import RateLimiter, rate_limiter
from hiermem.config import UpdatePolicy
from hiermem.errors import HiermemError
from hiermem.handle import Handle
from hiermem.search.ahead import with_index
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.plan import UpdateReport
from hiermem.summaries.reports import BatchReport, add_report
from hiermem.summaries.run import Shared
from hiermem.summaries.update import UpdateStrategy, update

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
        own. Raises what the update raises, and CounterMismatchError.
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
