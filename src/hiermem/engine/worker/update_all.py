"""Updates all of a tenant's sessions, and resumes where an earlier batch was cut off.

Each session's update is the ordinary one. So whatever ends the batch, nothing is lost and nothing
is made twice. The batch's own journal entry only saves looking again at sessions that an earlier
batch had finished.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from hiermem.core.summaries.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.core.summaries.reports import (
    BATCH_SUBJECT,
    BatchProgress,
    BatchReport,
    add_plans,
    add_report,
    resume,
)
from hiermem.core.summaries.status import waiting
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.run import JournalledRun
from hiermem.engine.calls.store_retry import shielded
from hiermem.engine.handle import Handle, every_session
from hiermem.engine.summaries.update import UpdateStrategy
from hiermem.engine.worker.pool import UpdatePool
from hiermem.engine.worker.probe import backlog, has_provisional, lacks_vectors
from hiermem.errors import (
    ClockMovedError,
    HiermemError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
)
from hiermem.protocols import LLM

BatchWatcher: TypeAlias = Callable[[BatchProgress], object]

_log = logging.getLogger("hiermem.update")
#: How many of the newest runs over all sessions are searched for one to resume.
_LOOKED_AT: Final = 50
#: Caps that end one session's update and not the batch.
_OF_SESSION: Final = ("session_calls", "session_tokens")


async def update_all(
    handle: Handle,
    *,
    llm: LLM,
    fallback: LLM,
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    strategy: UpdateStrategy = "incremental",
    on_progress: BatchWatcher | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    dry_run: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> BatchReport | UpdatePlan:
    """Update every session that needs it, or with ``strategy="full"`` re-pack every one.

    Several are worked on at once: level 1 first, alternating between sessions. The caps hold for
    all of them together; ``deadline`` is in seconds from now. A batch that was cut off, or met a
    cap, is resumed by the next one of the same strategy, model and configuration. ``on_progress``
    is called after every commit and at every session's end. ``dry_run`` returns the sum of the
    sessions' plans.

    An error of a single session is in the report; raises what the store raises otherwise.
    """
    pool = UpdatePool(
        handle.update_policy,
        llm,
        fallback,
        prompts,
        Budget(
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=deadline,
            clock=clock,
        ),
        clock,
        sleep=sleep,
    )
    sessions = await _sessions(handle, strategy)
    if dry_run:
        return await _plan(pool, handle, sessions, strategy)
    purpose = _purpose(handle, llm, strategy)
    begin = 0
    if strategy == "full":
        runs = await handle.store.runs(subject=BATCH_SUBJECT, limit=_LOOKED_AT)
        begin = resume(runs, purpose=purpose, sessions=sessions)
    batch = _Batch(
        pool,
        handle,
        sessions,
        begin=begin,
        strategy=strategy,
        purpose=purpose,
        on_progress=on_progress,
    )
    return await batch.run()


async def _sessions(handle: Handle, strategy: UpdateStrategy) -> list[str]:
    """Return the sessions to look at, in the order of their creation."""
    if strategy == "full" or handle.update_policy.follow_strategy:
        return [record.id async for record in every_session(handle.store)]
    behind = {session_id async for session_id in backlog(handle.store)}
    return [
        record.id
        async for record in every_session(handle.store)
        if record.id in behind or has_provisional(record) or await lacks_vectors(handle, record)
    ]


async def _plan(
    pool: UpdatePool, handle: Handle, sessions: Sequence[str], strategy: UpdateStrategy
) -> UpdatePlan:
    """Add up what the sessions' updates would do; a session that cannot be planned adds nothing."""
    total = UpdatePlan()
    for session_id in sessions:
        try:
            plan = await pool.work(pool.begin(handle, session_id), strategy, dry_run=True)
        except StoreError as error:
            if not isinstance(error, StoreCorruptError):
                raise
        except HiermemError:
            continue
        else:
            total = add_plans((total, plan))
    return total


def _purpose(handle: Handle, llm: LLM, strategy: UpdateStrategy) -> str:
    """Return a name for the purpose of a batch; a batch of the same purpose resumes it."""
    key = f"{strategy}\0{llm.name}\0{handle.config.to_json()}"
    return hashlib.sha256(key.encode()).hexdigest()[:32]


class _Batch:
    """One run over all sessions."""

    def __init__(
        self,
        pool: UpdatePool,
        handle: Handle,
        sessions: Sequence[str],
        *,
        begin: int,
        strategy: UpdateStrategy,
        purpose: str,
        on_progress: BatchWatcher | None,
    ) -> None:
        self._pool, self._handle = pool, handle
        self._sessions, self._begin = sessions, begin
        self._strategy: UpdateStrategy = strategy
        self._purpose, self._on_progress = purpose, on_progress
        self._next = begin
        self._through = begin
        self._done: set[int] = set()
        self._stopped: str | None = None
        self._run = JournalledRun(
            store=handle.store,
            tree=handle.store.tree(BATCH_SUBJECT),
            kind="update",
            subject=BATCH_SUBJECT,
            lease=handle.update_policy.lease,
            now=handle.store_now,
            detail=self._detail,
            compare_clocks=partial(handle.compare_clocks, lease=handle.update_policy.lease),
        )
        self._total = BatchReport(sessions=len(sessions), resumed=begin)

    async def run(self) -> BatchReport:
        """Work through the sessions and journal the result; without any there is no run."""
        async with self._run as run:
            if self._next == len(self._sessions):
                return self._total
            await run.begin()
            self._total = replace(self._total, run_id=run.run_id)
            tasks = [asyncio.create_task(self._run_sessions()) for _ in range(self._pool.places)]
            try:
                await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                # The sessions' updates end first, as they do where each is cancelled alone.
                await shielded(asyncio.wait(tasks))
                raise
            self._total = total = replace(self._total, stopped=self._stopped)
            clean = not (self._stopped or total.failures or total.failed or total.degraded)
            run.outcome = "ok" if clean else "partial"
        return self._total

    async def _run_sessions(self) -> None:
        """Update one session after the other, until none is left or a cap is met."""
        while self._next < len(self._sessions) and self._pool.budget.stop_reason() is None:
            if self._stopped is not None:
                return
            index = self._next
            self._next += 1
            if await self._update(self._sessions[index]):
                self._done.add(index)
                while self._through in self._done:
                    self._through += 1
                self._total = replace(self._total, updated=len(self._done))
            self._report_progress(self._sessions[index], None)
        self._stopped = self._stopped or self._pool.budget.stopped

    async def _update(self, session_id: str) -> bool:
        """Update one session; return whether the batch is finished with it."""

        def watch(nodes: UpdateProgress) -> None:
            self._report_progress(session_id, nodes)

        watching = {} if self._on_progress is None else {"on_progress": watch}
        try:
            report: UpdateReport = await self._pool.work(
                self._pool.begin(self._handle, session_id), self._strategy, **watching
            )
        except NotFoundError:
            # The session was erased meanwhile: nothing is left to do.
            return True
        except HiermemError as error:
            of_session = isinstance(error, (StoreCorruptError, ClockMovedError))
            if isinstance(error, StoreError) and not of_session:
                raise
            return self._fail(session_id, type(error).__name__)
        self._total = add_report(self._total, report)
        if report.stopped in _OF_SESSION:
            return self._fail(session_id, str(report.stopped))
        if report.stopped is not None:
            self._stopped = self._stopped or report.stopped
            # A cap that another session met ends this one's run too, when it may be complete.
            return self._strategy == "incremental" and await self._is_complete(session_id)
        if self._strategy == "full" and not report.swapped:
            return self._fail(session_id, "unfinished")
        return True

    async def _is_complete(self, session_id: str) -> bool:
        """Return whether nothing of a session is left to be made."""
        store = self._handle.store
        record = await store.session(session_id)
        if record is None or has_provisional(record):
            return record is None
        return not any(map(waiting, await store.tree(session_id).tally()))

    def _fail(self, session_id: str, why: str) -> bool:
        """Note, by a name, what ended one session's update; the batch is not finished with it."""
        self._total = replace(self._total, failures={**self._total.failures, session_id: why})
        _log.warning("the update of all: session %r ended in %s", session_id, why)
        return False

    def _report_progress(self, session_id: str, nodes: UpdateProgress | None) -> None:
        if self._on_progress is not None:
            done = self._begin + len(self._done)
            self._on_progress(BatchProgress(done, len(self._sessions), session_id, nodes))

    def _detail(self, outcome: str) -> dict[str, Any]:
        total = self._total
        # A batch in which a session failed is complete too: the next one starts from the beginning.
        ended = {"whole": self._stopped is None} if outcome in ("ok", "partial") else {}
        return {
            **ended,
            "model": self._pool.llm.name,
            "strategy": self._strategy,
            "purpose": self._purpose,
            "through": self._sessions[self._through - 1] if self._through else None,
            "sessions": total.sessions,
            "updated": total.updated,
            "resumed": total.resumed,
            "failures": len(total.failures),
            "made": total.made,
            "reused": total.reused,
            "failed": total.failed,
            "degraded": total.degraded,
            "by_level": {str(level): count for level, count in total.by_level.items()},
            "calls": total.calls,
            "tokens_in": total.tokens_in,
            "tokens_out": total.tokens_out,
            "cost": total.cost,
            "unknown": total.unknown,
            "stopped": self._stopped,
        }
