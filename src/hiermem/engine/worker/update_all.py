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
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, Final, TypeAlias

from hiermem.core.summaries import reports
from hiermem.core.summaries.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.core.summaries.status import waiting
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.run import JournalledRun
from hiermem.engine.calls.store_retry import shielded
from hiermem.engine.handle import Handle, every_session
from hiermem.engine.summaries.update import UpdateStrategy
from hiermem.engine.worker.pool import SessionUpdate, UpdatePool
from hiermem.engine.worker.probe import has_provisional, is_of_session, sessions_with_work
from hiermem.errors import HiermemError, NotFoundError
from hiermem.protocols import LLM

BatchWatcher: TypeAlias = Callable[[reports.BatchProgress], object]

_log = logging.getLogger("hiermem.update")
#: How many of the newest runs over all sessions are searched for one to resume.
_LOOKED_AT: Final = 50
#: Caps that end one session's update and not the batch.
_OF_SESSION: Final = ("session_calls", "session_tokens")
#: What the journal says of a batch as the report does.
_COUNTED: Final = (
    "sessions", "updated", "resumed", "made", "reused", "failed", "degraded",
    "calls", "tokens_in", "tokens_out", "cost", "unknown",
)  # fmt: skip


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
) -> reports.BatchReport | UpdatePlan:
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
        Budget(max_calls=max_calls, max_tokens=max_tokens, deadline=deadline, clock=clock),
        clock,
        sleep=sleep,
    )
    if strategy == "full" or handle.update_policy.follow_strategy:
        sessions = [record.id async for record in every_session(handle.store)]
    else:
        sessions = await sessions_with_work(handle)
    if dry_run:
        return await _plan(pool, handle, sessions, strategy)
    begin, purpose = 0, _purpose(handle, llm, strategy)
    if strategy == "full":
        runs = await handle.store.runs(subject=reports.BATCH_SUBJECT, limit=_LOOKED_AT)
        begin = reports.resume(runs, purpose=purpose, sessions=sessions)
    return await _Batch(
        pool=pool,
        handle=handle,
        sessions=sessions,
        begin=begin,
        strategy=strategy,
        purpose=purpose,
        on_progress=on_progress,
    ).run()


async def _plan(
    pool: UpdatePool, handle: Handle, sessions: Sequence[str], strategy: UpdateStrategy
) -> UpdatePlan:
    """Add up what the sessions' updates would do; a session that cannot be planned adds nothing."""
    total = UpdatePlan()
    for session_id in sessions:
        try:
            plan = await pool.work(pool.begin(handle, session_id), strategy, dry_run=True)
        except HiermemError as error:
            if not is_of_session(error):
                raise
        else:
            total = reports.add_plans((total, plan))
    return total


def _purpose(handle: Handle, llm: LLM, strategy: UpdateStrategy) -> str:
    """Return a name for the purpose of a batch; a batch of the same purpose resumes it."""
    key = f"{strategy}\0{llm.name}\0{handle.config.to_json()}"
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(kw_only=True)
class _Batch:
    """One run over all sessions: each has one turn, in their order, from number ``begin`` on."""

    pool: UpdatePool
    handle: Handle
    sessions: Sequence[str]
    begin: int
    strategy: UpdateStrategy
    purpose: str
    on_progress: BatchWatcher | None

    def __post_init__(self) -> None:
        self._next = self.begin
        self._done: set[str] = set()
        self._stopped: str | None = None
        self._total = reports.BatchReport(sessions=len(self.sessions), resumed=self.begin)

    async def run(self) -> reports.BatchReport:
        """Work through the sessions and journal the result; without any there is no run."""
        lease = self.handle.update_policy.lease
        async with JournalledRun(
            store=self.handle.store,
            tree=self.handle.store.tree(reports.BATCH_SUBJECT),
            kind="update",
            subject=reports.BATCH_SUBJECT,
            lease=lease,
            now=self.handle.store_now,
            detail=self._detail,
            compare_clocks=partial(self.handle.compare_clocks, lease=lease),
        ) as run:
            if self._next == len(self.sessions):
                return self._total
            await run.begin()
            self._total = replace(self._total, run_id=run.run_id)
            try:
                while tasks := self.pool.fill(self._take, self._turn):
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
            except BaseException:
                # The sessions' updates end first, as they do where each is cancelled alone.
                await shielded(self.pool.cut_off())
                raise
            self._stopped = self._stopped or self.pool.budget.stopped
            self._total = total = replace(self._total, stopped=self._stopped)
            clean = not (self._stopped or total.failures or total.failed or total.degraded)
            run.outcome = "ok" if clean else "partial"
        return self._total

    def _take(self) -> SessionUpdate | None:
        """Take the next session; None where none is left or a cap is met."""
        if self._next == len(self.sessions) or self._stopped or self.pool.budget.stop_reason():
            return None
        self._next += 1
        return self.pool.begin(self.handle, self.sessions[self._next - 1])

    async def _turn(self, session_update: SessionUpdate) -> None:
        """Update one session, and count it where the batch is finished with it."""
        session_id = session_update.session_id
        if await self._update(session_update):
            self._done.add(session_id)
            self._total = replace(self._total, updated=len(self._done))
        self._report_progress(session_id, None)

    async def _update(self, session_update: SessionUpdate) -> bool:
        """Update one session; return whether the batch is finished with it."""
        session_id = session_update.session_id
        watch = partial(self._report_progress, session_id)
        watching = {} if self.on_progress is None else {"on_progress": watch}
        try:
            report: UpdateReport = await self.pool.work(session_update, self.strategy, **watching)
        except NotFoundError:
            # The session was erased meanwhile: nothing is left to do.
            return True
        except HiermemError as error:
            if not is_of_session(error):
                raise
            return self._fail(session_id, type(error).__name__)
        self._total = reports.add_report(self._total, report)
        if report.stopped in _OF_SESSION:
            return self._fail(session_id, str(report.stopped))
        if report.stopped is not None:
            self._stopped = self._stopped or report.stopped
            # A cap that another session met ends this one's run too, when it may be complete.
            return self.strategy == "incremental" and await self._is_complete(session_id)
        if self.strategy == "full" and not report.swapped:
            return self._fail(session_id, "unfinished")
        return True

    async def _is_complete(self, session_id: str) -> bool:
        """Return whether nothing of a session is left to be made."""
        store = self.handle.store
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
        if self.on_progress is not None:
            done = self.begin + len(self._done)
            self.on_progress(reports.BatchProgress(done, len(self.sessions), session_id, nodes))

    def _detail(self, outcome: str) -> dict[str, Any]:
        total = self._total
        done = takewhile(self._done.__contains__, self.sessions[self.begin : self._next])
        through = self.begin + len(list(done))
        # A batch in which a session failed is complete too: the next one starts from the beginning.
        ended = {"whole": self._stopped is None} if outcome in ("ok", "partial") else {}
        return {
            **ended,
            "model": self.pool.llm.name,
            "strategy": self.strategy,
            "purpose": self.purpose,
            "through": self.sessions[through - 1] if through else None,
            **{name: getattr(total, name) for name in _COUNTED},
            "failures": len(total.failures),
            "by_level": {str(level): count for level, count in total.by_level.items()},
            "stopped": self._stopped,
        }
