"""Runs turns of due sessions: claim, work, settle.

::

    claim -> what time closes, summaries, vectors -> settle: the entry goes, or gets its next time

A worker takes turns until it is stopped (``worker``), ``update_all`` until nothing is due, and
``update_one`` takes one. A session's update is the same one that ``session.update()`` runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

from hiermem.bank.consolidate import consolidate
from hiermem.bank.consolidate import plan as plan_learning
from hiermem.bank.records import subject_of
from hiermem.bank.space import clean_space, is_due, learning_spaces
from hiermem.bank.store import SpaceContext
from hiermem.calls.budget import Budget
from hiermem.calls.failures import TROUBLE, VECTORS, back_off
from hiermem.calls.rate_limit import RateLimiter, rate_limiter
from hiermem.calls.retry import shielded
from hiermem.calls.run import connect
from hiermem.config import BankPolicy, Limits, UpdatePolicy, UpdateStrategy
from hiermem.errors import HiermemError, NotFoundError, StoreCorruptError, StoreError, name_of
from hiermem.handle import Handle, every_session
from hiermem.log.append import tick_if_idle
from hiermem.protocols import Store
from hiermem.search.ahead import with_index
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.due import pause_after
from hiermem.summaries.node import Shared
from hiermem.summaries.reports import (
    BatchProgress,
    BatchReport,
    UpdatePlan,
    UpdateProgress,
    UpdateReport,
    add_plans,
    add_report,
)
from hiermem.summaries.update import update
from hiermem.tree.status import waiting
from hiermem.types.bank import ConsolidationResult

BatchWatcher: TypeAlias = Callable[[BatchProgress], object]

_log = logging.getLogger("hiermem.update")
#: More entries than a tenant has.
_ALL: Final = 2**31 - 1
#: Sessions that are looked at, or entered, together.
_TOGETHER: Final = 50
#: Caps that end one session's update and not the batch.
_OF_SESSION: Final = ("session_calls", "session_tokens")


@dataclass(slots=True)
class Turns:
    """What turns share: the models, a rate limiter, the places, a ``budget`` and the sums.

    ``tasks`` are the turns that have a place, with their claims. ``ending`` is closed where they
    are to end early. ``failed`` says how many turns of a session in a row ended in an error, or
    left vectors to make.
    """

    shared: Shared
    policy: UpdatePolicy
    budget: Budget
    total: BatchReport = field(default_factory=BatchReport)
    tasks: dict[asyncio.Task[Any], SessionClaim | None] = field(init=False)
    limiter: RateLimiter = field(init=False)
    ending: Budget = field(init=False)
    failed: Counter[tuple[str, str]] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        self.tasks = {}
        llm, clock, sleep = self.shared.llm, self.shared.clock, self.shared.sleep
        self.limiter = rate_limiter(llm, self.policy, clock=clock, sleep=sleep)
        self.ending = Budget(clock=clock, parents=(self.budget,))
        parents = (self.ending,)
        self.shared = replace(self.shared, rate_limiter=self.limiter, parents=parents)

    @property
    def free(self) -> int:
        """The number of free places: for each call that may be in flight one, and two more.

        The two hide the gap between sessions.
        """
        return self.policy.concurrency + 2 - len(self.tasks)

    def start(self, turn: Coroutine[Any, Any, Any], claim: SessionClaim | None = None) -> None:
        """Give a turn a place."""
        task = asyncio.create_task(turn)
        self.tasks[task] = claim
        task.add_done_callback(self.tasks.pop)

    async def cut_off(self) -> None:
        """Cancel the turns that are left, and wait until they have cleaned up."""
        tasks = dict(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for claim in tasks.values():
            if claim is not None:
                # A turn that was cancelled before it began ran no code: its claim is held yet.
                with suppress(HiermemError):
                    await claim.settle()

    async def take(self, handle: Handle, claim: SessionClaim) -> UpdateReport:
        """Do what a due entry lacks, and settle it: by what is left, later if it failed.

        Nothing is done where another run holds it. An entry is a session; if there are others, this
        is the place that tells them apart. Raises what the work raises.
        """
        key, report, embedded = (handle.store.tenant, claim.session_id), UpdateReport(), None
        due_at, pause = None, 0.0
        try:
            if claim.held is None and not await claim.take():
                return report
            await handle.compare_clocks(lease=self.policy.lease)
            await tick_if_idle(handle, claim.session_id)
            with suppress(NotFoundError):
                report, embedded = await self.work(handle, claim.session_id, claim=claim)
                pause = pause_after(report)
        except BaseException as error:
            # An error may meet the next turn as well; after a cancellation the rest is due now.
            again = isinstance(error, Exception)
            self.failed.update([key] * again)
            pause = back_off(self.failed[key], TROUBLE) if again else 0.0
            with suppress(HiermemError):
                await shielded(claim.settle(pause=pause, again=again))
            raise
        if again := embedded is False:
            self.failed[key] += 1
            pause = max(pause, back_off(self.failed[key], VECTORS))
        else:
            self.failed.pop(key, None)
        due_at = await shielded(claim.settle(pause=pause, again=again))
        more = due_at is not None and due_at <= handle.store_now() and not pause
        return replace(report, more=more)

    async def work(
        self,
        handle: Handle,
        session_id: str,
        *,
        claim: SessionClaim | None = None,
        strategy: UpdateStrategy = "incremental",
        on_progress: Callable[[UpdateProgress], object] | None = None,
    ) -> tuple[UpdateReport, bool | None]:
        """Update the session, and make the vectors that it lacks; return whether it has all.

        A full re-pack is made under this handle's configuration, anything else under the session's
        own. Raises what the update raises, and ConflictError.
        """
        updating = update(
            handle,
            session_id,
            self.shared,
            strategy=strategy,
            record=await handle.record(session_id),
            claim=claim,
            on_progress=on_progress,
        )
        within = self.ending.time_left()
        report = await with_index(
            handle, session_id, cast("Awaitable[UpdateReport]", updating), within=within
        )
        self.total = add_report(self.total, report)
        if handle.embedder is None:
            return report, None
        # The vector code is loaded only where there is an embedder.
        from hiermem.search.embed import quietly

        return report, await quietly(handle, session_id, stopped=self.ending.stop_reason)

    async def learn(self, space: SpaceContext) -> ConsolidationResult:
        """Have a space learn what its people said, and add up what it took."""
        done = await consolidate(
            space, llm=self.shared.llm, prompts=self.shared.prompts, parents=(self.ending,)
        )
        total, learnt = self.total, self.total.learnt + done.notes_processed
        self.total = replace(total + done.spent, learnt=learnt)
        return done


async def due_spaces(
    handle: Handle, policy: BankPolicy, *, name: str | None = None, plan: bool = False
) -> list[SpaceContext]:
    """Return the spaces of a tenant that are due to learn, or the one of this ``name`` alone.

    What an erasure left in a space is removed first, but for a ``plan``.
    """
    learning = [space async for space in learning_spaces(handle, policy)]
    spaces = [space for space in learning if name in (None, space.name)]
    for space in () if plan else spaces:
        await clean_space(handle, space.name)
    return [space for space in spaces if await is_due(space)]


async def learn_one(handle: Handle, name: str, shared: Shared, *, limits: Limits) -> UpdateReport:
    """Have a space learn within ``limits``, if it is due."""
    budget = Budget(limits=limits, clock=shared.clock)
    turns = Turns(shared, handle.update_policy, budget)
    report = UpdateReport()
    for space in await due_spaces(handle, shared.bank_policy, name=name):
        done = await turns.learn(space)
        is_left = turns.budget.stopped is not None and done.notes_remaining > 0
        report = UpdateReport(run_id=done.run_id or None, more=is_left) + done.spent
    return report


async def update_one(
    handle: Handle, session_id: str, shared: Shared, *, limits: Limits
) -> UpdateReport:
    """Take one turn of a session, within ``limits``.

    Where another run holds the session, nothing is done.
    """
    claim = SessionClaim(handle, session_id)
    turns = Turns(shared, handle.update_policy, Budget(limits=limits, clock=shared.clock))
    return await turns.take(handle, claim)


async def update_all(
    handle: Handle,
    shared: Shared,
    store: Store,
    *,
    strategy: UpdateStrategy = "incremental",
    on_progress: BatchWatcher | None = None,
    limits: Limits | None = None,
    search_index: bool = False,
    dry_run: bool = False,
) -> BatchReport | UpdatePlan:
    """Update all sessions and spaces that need it; with ``strategy="full"`` re-pack all sessions.

    Several are worked on at once, the longest due first. A session that another run holds is waited
    for, as ``update`` waits. The ``limits`` hold for all of them together. ``on_progress`` is
    called after every commit and at every session's end. ``search_index`` makes the index over all
    sessions too. ``dry_run`` returns the sum of the sessions' plans.

    An error of a single session is in the report; raises what the store raises otherwise.
    """
    from hiermem.search.tenant_index import keep, prepare

    budget = Budget(limits=limits, clock=shared.clock)
    turns = Turns(shared, handle.update_policy, budget)
    if strategy == "full" or handle.update_policy.follow_strategy:
        sessions = [record.id async for record in every_session(handle.store)]
    else:
        sessions = await sessions_to_update(handle, store)
    spaces = await due_spaces(handle, shared.bank_policy, plan=dry_run)
    if dry_run:
        plans = [await plan_learning(space, llm=shared.llm) for space in spaces]
        return add_plans([await _plan(handle, turns.shared, sessions, strategy), *plans])
    if sessions or spaces:
        await connect(shared.llm)
    report = await _Batch(turns, handle, sessions, strategy, on_progress).run(spaces)
    if not report.stopped:
        # What is not done by the deadline is left to the next update, or to a search.
        with suppress(TimeoutError):
            async with asyncio.timeout(budget.time_left()):
                await (prepare if search_index else keep)(handle)
    return report


async def _plan(
    handle: Handle, shared: Shared, sessions: Iterable[str], strategy: UpdateStrategy
) -> UpdatePlan:
    """Add up what the sessions' updates would do; a session that cannot be planned adds nothing."""
    plans: list[UpdatePlan] = []
    for session_id in sessions:
        try:
            plan = await update(handle, session_id, shared, strategy=strategy, dry_run=True)
        except HiermemError as error:
            if not _is_of_session(error):
                raise
        else:
            assert isinstance(plan, UpdatePlan)
            plans.append(plan)
    return add_plans(plans)


@dataclass(slots=True)
class _Batch:
    """An update of all: each session of a list has one turn, in order, until a cap ends it."""

    turns: Turns
    handle: Handle
    sessions: list[str]
    strategy: UpdateStrategy
    on_progress: BatchWatcher | None
    done: int = 0
    begun: int = 0
    failures: dict[str, str] = field(default_factory=dict[str, str])
    halted: str | None = None

    async def run(self, spaces: Iterable[SpaceContext]) -> BatchReport:
        """Give every session its turn, then every space; return the work that was done.

        Raises an error of the store, which ends the batch.
        """
        turns = self.turns
        try:
            while True:
                while turns.free and self.begun < len(self.sessions) and not self._is_halted():
                    turns.start(self._turn(self.sessions[self.begun]))
                    self.begun += 1
                if not turns.tasks:
                    break
                ended, _ = await asyncio.wait(turns.tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.result()
        finally:
            # The sessions' updates end first, as they do where each is cancelled alone.
            await shielded(turns.cut_off())
        left = [*self.sessions[self.begun :]]
        for space in spaces:
            if self._is_halted():
                left.append(space.name)
                break
            with suppress(NotFoundError):
                done = await turns.learn(space)
                if done.status == "error":
                    self.failures[subject_of(space.name)] = done.message
        return replace(
            turns.total,
            sessions=len(self.sessions),
            updated=self.done,
            failures=dict(self.failures),
            stopped=self.halted or (turns.budget.stopped if left else None),
        )

    def _is_halted(self) -> bool:
        return self.halted is not None or self.turns.budget.stop_reason() is not None

    async def _turn(self, session_id: str) -> None:
        """Update one session, and count it if nothing of it is left."""
        watch = partial(self._report_progress, session_id) if self.on_progress else None
        failure, is_done = None, True
        try:
            report, _ = await self.turns.work(
                self.handle, session_id, strategy=self.strategy, on_progress=watch
            )
            if report.stopped is not None and report.stopped not in _OF_SESSION:
                self.halted = self.halted or report.stopped
                # A cap that another session met ends this one's run too, when it may be complete.
                is_left = await unfinished(self.handle, [session_id])
                is_done = self.strategy == "incremental" and not is_left
            elif report.stopped is not None or (self.strategy == "full" and not report.swapped):
                failure = report.stopped or "unfinished"
        except NotFoundError:
            pass  # erased meanwhile: nothing is left to do
        except HiermemError as error:
            if not _is_of_session(error):
                raise
            failure = name_of(error)
        if failure is not None:
            self.failures[session_id] = failure
            _log.warning("the update of all: session %r ended in %s", session_id, failure)
        elif is_done:
            self.done += 1
        self._report_progress(session_id, None)

    def _report_progress(self, session_id: str, nodes: UpdateProgress | None) -> None:
        if self.on_progress is not None:
            self.on_progress(BatchProgress(self.done, len(self.sessions), session_id, nodes))


async def sessions_to_update(handle: Handle, store: Store) -> list[str]:
    """Return the sessions of a tenant that lack summaries or vectors, the longest due first."""
    entries = await store.claim_due(_ALL, lease=0.0, tenant=handle.store.tenant, ahead=None)
    found = await unfinished(handle, [entry.session_id for entry in entries])
    known = set(found)
    return found + [id_ async for id_ in _without_vectors(handle) if id_ not in known]


async def enter_all(handle: Handle) -> None:
    """Enter every session of the tenant in the due queue, so that a worker looks at it once.

    Every writer enters what it leaves; this finds what was missed all the same, and sessions
    without vectors or with texts of an outdated strategy.
    """
    ids = [record.id async for record in every_session(handle.store)]
    for start in range(0, len(ids), _TOGETHER):
        await handle.store.put_due(ids[start : start + _TOGETHER])


async def unfinished(handle: Handle, session_ids: list[str]) -> list[str]:
    """Return those of these sessions that have a summary to make, or to ask for again."""
    ids: list[str] = []
    for start in range(0, len(session_ids), _TOGETHER):
        some = session_ids[start : start + _TOGETHER]
        tallies = await asyncio.gather(*(handle.store.tree(id_).tally() for id_ in some))
        for id_, tally in zip(some, tallies, strict=True):
            if any(waiting(sums) or sums.degraded for sums in tally):
                ids.append(id_)
    return ids


async def _without_vectors(handle: Handle) -> AsyncIterator[str]:
    """Yield the sessions that may lack vectors, if there is an embedder."""
    if handle.embedder is None:
        return
    from hiermem.search.embed import lacks

    async for record in every_session(handle.store):
        if await lacks(handle, record):
            yield record.id


def _is_of_session(error: HiermemError) -> bool:
    """Return whether an error concerns one session, so that others can be worked on."""
    return isinstance(error, StoreCorruptError) or not isinstance(error, StoreError)
