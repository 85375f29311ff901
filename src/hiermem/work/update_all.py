"""Runs the updates of all of a tenant's sessions, and resumes an interrupted batch.

Each session of a list has one whole turn, and its update is the ordinary one. So whatever ends the
batch, nothing is lost and nothing is made twice. The batch's own journal entry only saves looking
again at sessions that an earlier batch had finished.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Final, TypeAlias

from hiermem.calls.budget import Budget
from hiermem.calls.retry import shielded
from hiermem.calls.run import JournalledRun, connect
from hiermem.config import UpdateStrategy
from hiermem.errors import HiermemError, NotFoundError, name_of
from hiermem.handle import Handle, every_session
from hiermem.protocols import LLM, Store
from hiermem.summaries import reports
from hiermem.summaries.plan import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.summaries.run import Shared
from hiermem.text.fence import name_mark
from hiermem.tree.status import waiting
from hiermem.work.due import SessionUpdate, UpdatePool, is_of_session, sessions_to_update

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
    shared: Shared,
    store: Store,
    *,
    strategy: UpdateStrategy = "incremental",
    on_progress: BatchWatcher | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    search_index: bool = False,
    dry_run: bool = False,
) -> reports.BatchReport | UpdatePlan:
    """Update every session that needs it, or with ``strategy="full"`` re-pack every one.

    Several are worked on at once, the longest due first. A session that another run holds is waited
    for, as ``update`` waits. The caps hold for all of them together; ``deadline`` is in seconds
    from now. A batch that was cut off, or met a cap, is resumed by the next one of the same
    strategy, model and configuration. ``on_progress`` is called after every commit and at every
    session's end. ``search_index`` makes the index over all sessions too. ``dry_run`` returns the
    sum of the sessions' plans.

    An error of a single session is in the report; raises what the store raises otherwise.
    """
    budget = Budget(
        max_calls=max_calls, max_tokens=max_tokens, deadline=deadline, clock=shared.clock
    )
    pool = UpdatePool(handle.update_policy, shared, budget)
    if strategy == "full" or handle.update_policy.follow_strategy:
        sessions = [record.id async for record in every_session(handle.store)]
    else:
        sessions = await sessions_to_update(handle, store)
    if dry_run:
        return await _plan(pool, handle, sessions, strategy)
    begin, purpose, key = 0, _purpose(handle, shared.llm, strategy), await handle.key()
    if strategy == "full":
        runs = await handle.store.runs(subject=reports.BATCH_SUBJECT, limit=_LOOKED_AT)
        begin = reports.resume(runs, purpose=purpose, marks=[name_mark(key, s) for s in sessions])
    batch = _Batch(
        pool, handle, sessions, key=key, begin=begin, strategy=strategy, on_progress=on_progress
    )
    lease = handle.update_policy.lease
    async with JournalledRun(
        store=handle.store,
        tree=handle.store.tree(reports.BATCH_SUBJECT),
        kind="update",
        subject=reports.BATCH_SUBJECT,
        lease=lease,
        now=handle.store_now,
        detail=lambda outcome: {"purpose": purpose, **batch.detail(outcome)},
        compare_clocks=partial(handle.compare_clocks, lease=lease),
    ) as run:
        if not batch.waiting:
            await _index(handle, budget, search_index=search_index)
            return batch.report(None)
        await connect(pool.shared.llm)
        await run.begin()
        await batch.run()
        total = batch.report(run.run_id)
        if not total.stopped:
            await _index(handle, budget, search_index=search_index)
        clean = not (total.stopped or total.failures or total.failed or total.degraded)
        run.outcome = "ok" if clean else "partial"
    return total


async def _index(handle: Handle, budget: Budget, *, search_index: bool) -> None:
    """Bring the index over all sessions up to date, if there is one or one is wanted.

    What is not done by the deadline is left to the next update, or to a search.
    """
    from hiermem.search.tenant_index import keep, prepare

    with suppress(TimeoutError):
        async with asyncio.timeout(budget.time_left()):
            await (prepare if search_index else keep)(handle)


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


class _Batch:
    """An update of all: each session of a list has one whole turn, in order.

    The sessions before number ``begin`` were finished by the run that this one resumes.
    """

    def __init__(
        self,
        pool: UpdatePool,
        handle: Handle,
        sessions: Sequence[str],
        *,
        key: bytes,
        begin: int,
        strategy: UpdateStrategy,
        on_progress: BatchWatcher | None,
    ) -> None:
        self._pool, self._handle = pool, handle
        self._sessions, self._begin, self._next = sessions, begin, begin
        self._strategy: UpdateStrategy = strategy
        self._key = key
        self._on_progress = on_progress
        self._done: set[str] = set()
        self._failures: dict[str, str] = {}
        self._halted: str | None = None

    @property
    def waiting(self) -> int:
        """The number of sessions that wait for a place."""
        return len(self._sessions) - self._next

    async def run(self) -> None:
        """Give every session its turn, until something halts the batch.

        Raises an error of the store, which ends it.
        """
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                while self.waiting and self._pool.free and not self._is_halted():
                    self._next += 1
                    begun = self._pool.begin(self._handle, self._sessions[self._next - 1])
                    tasks.add(self._pool.run(begun, self._turn))
                if not tasks:
                    return
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            # The sessions' updates end first, as they do where each is cancelled alone.
            await shielded(self._pool.cut_off())

    def _is_halted(self) -> bool:
        return self._halted is not None or self._pool.budget.stop_reason() is not None

    async def _turn(self, session_update: SessionUpdate) -> None:
        """Update one session, and count it where the batch is finished with it."""
        session_id, finished = session_update.session_id, False
        watching = {}
        if self._on_progress is not None:
            watching = {"on_progress": partial(self._report_progress, session_id)}
        try:
            report = await self._pool.work(session_update, self._strategy, **watching)
            finished = await self._is_finished(session_id, report)
        except NotFoundError:
            # The session was erased meanwhile: nothing is left to do.
            finished = True
        except HiermemError as error:
            if not is_of_session(error):
                raise
            self._fail(session_id, name_of(error))
        if finished:
            self._done.add(session_id)
        self._report_progress(session_id, None)

    async def _is_finished(self, session_id: str, report: UpdateReport) -> bool:
        """Return whether nothing is left of a session that had its turn; note what ended it."""
        if report.stopped in _OF_SESSION:
            self._fail(session_id, str(report.stopped))
        elif report.stopped is not None:
            self._halted = self._halted or report.stopped
            # A cap that another session met ends this one's run too, when it may be complete.
            return self._strategy == "incremental" and await self._is_complete(session_id)
        elif self._strategy == "full" and not report.swapped:
            self._fail(session_id, "unfinished")
        return session_id not in self._failures

    async def _is_complete(self, session_id: str) -> bool:
        """Return whether nothing of a session is left to be made."""
        store = self._handle.store
        record = await store.session(session_id)
        if record is None:
            return True
        return not any(map(waiting, await store.tree(session_id).tally()))

    def _fail(self, session_id: str, why: str) -> None:
        """Note, by a name, what ended one session's update; the batch is not finished with it."""
        self._failures[session_id] = why
        _log.warning("the update of all: session %r ended in %s", session_id, why)

    def _report_progress(self, session_id: str, nodes: UpdateProgress | None) -> None:
        if self._on_progress is not None:
            done = self._begin + len(self._done)
            self._on_progress(reports.BatchProgress(done, len(self._sessions), session_id, nodes))

    def report(self, run_id: str | None) -> reports.BatchReport:
        """Return the work that was done."""
        return replace(
            self._pool.total,
            run_id=run_id,
            sessions=len(self._sessions),
            updated=len(self._done),
            resumed=self._begin,
            failures=dict(self._failures),
            stopped=self._halted or (self._pool.budget.stopped if self.waiting else None),
        )

    def detail(self, outcome: str) -> dict[str, Any]:
        """Return what the journal says of the run, in numbers and names."""
        total = self.report(None)
        done = takewhile(self._done.__contains__, self._sessions[self._begin : self._next])
        through = self._begin + len(list(done))
        # A batch in which a session failed is complete too: the next one starts from the beginning.
        ended = {"whole": total.stopped is None} if outcome in ("ok", "partial") else {}
        return {
            **ended,
            "model": self._pool.shared.llm.name,
            "strategy": self._strategy,
            "through": name_mark(self._key, self._sessions[through - 1]) if through else None,
            **{name: getattr(total, name) for name in _COUNTED},
            "failures": len(total.failures),
            "by_level": {str(level): count for level, count in total.by_level.items()},
            "stopped": total.stopped,
        }
