"""Runs a session's update: makes its nodes level by level, and commits each as it is done.

::

    level 1: read a page -> make the nodes, several at a time -> commit each
    level 2: likewise, each node when its children are made; and so on

Where texts are made anew, a level waits until the one below is committed: a new text may dirty a
parent that was clean, and what stands above it would be made, and paid for, twice.

Extracts are made and committed in groups, since one commit each would be most of the work. A node
above one that failed, or was refused, is left to the next run. If a node changed meanwhile, all
levels are looked at again.

Nothing is lost and nothing is made twice. Whoever asks a remote model holds the session's claim;
every commit is a compare-and-swap. It is retried if the store is busy; it is rebased if only the
parent of its node changed meanwhile; and it is recognised if it took effect although the store
reported a failure. No commit overwrites the text of another run. A run that ends early, by a cap,
an error, a cancellation or a kill, leaves its nodes for the next run.

New texts for summaries, and another configuration for a session, are requested here too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hiermem.calls.budget import Budget
from hiermem.calls.retry import TRIES, shielded
from hiermem.config import HierarchyConfig, Limits, UpdatePolicy, UpdateStrategy
from hiermem.errors import HiermemError
from hiermem.handle import Handle, session_state
from hiermem.log import rebuild
from hiermem.summaries import plan, repack
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.dry_run import plan_update
from hiermem.summaries.due import pause_after
from hiermem.summaries.node import (
    Shared,
    UpdateRun,
    is_left_alone,
    make,
    read_outdated,
    read_pages,
)
from hiermem.summaries.plan import Outcome
from hiermem.summaries.reports import UpdatePlan, UpdateProgress, UpdateReport
from hiermem.tree import status
from hiermem.tree.windows import Weigher
from hiermem.types import Node, SessionRecord
from hiermem.types.transaction import NodeWrite

Progress = Callable[[UpdateProgress], object]

#: Extracts committed together.
_GROUP: Final = 32
#: Seconds between two tries to claim a session that another run holds.
_CLAIM_POLL: Final = 0.25
#: How often one node is retried because it changed while its text was made.
_MOVES: Final = 5
#: The figures of a report that the journal keeps.
_JOURNALLED: Final = (
    "made", "reused", "failed", "degraded", "calls", "tokens_in", "tokens_out", "cost", "unknown",
    "stopped",
)  # fmt: skip
_log = logging.getLogger("hiermem.update")


async def update(
    handle: Handle,
    session_id: str,
    shared: Shared,
    *,
    config: HierarchyConfig | None = None,
    policy: UpdatePolicy | None = None,
    level: int | None = None,
    on_progress: Progress | None = None,
    limits: Limits | None = None,
    dry_run: bool = False,
    strategy: UpdateStrategy = "incremental",
    record: SessionRecord | None = None,
    claim: SessionClaim | None = None,
) -> UpdateReport | UpdatePlan:
    """Make the missing, failed, dirty or degraded summaries, up to ``level`` if given.

    ``shared`` has the models, and what the run shares with runs of other sessions.
    The report says which of the ``limits`` ended the run. ``on_progress`` is called after every
    commit. With ``dry_run`` nothing is written or called, and the plan is returned.
    ``policy`` is the handle's if it is None. ``record`` is the session's record, if the caller has
    just read it.

    With a remote model the session is claimed if there is something to make. If another run holds
    it, this one waits until the deadline, or until the other has made all waiting nodes. With a
    ``claim`` of the caller it does not wait, and the caller settles it.

    With ``strategy="full"`` the whole session is re-packed under ``config``, next to the serving
    tree, which the new one replaces at the end; a re-pack that ended early is resumed by the next.
    Without a ``config`` it is made under the handle's, anything else under the session's own.

    The callers check the arguments, such as a ``level`` with a full re-pack.
    Raises NotFoundError for an unknown session, ConflictError, and the store's errors;
    earlier commits stay.
    """
    record = record or await handle.record(session_id)
    config = config or await handle.config_for(record, repack=strategy == "full")
    own_claim = SessionClaim(handle, session_id) if claim is None and shared.llm.remote else None
    open_run = partial(
        UpdateRun,
        handle,
        record=record,
        config=config,
        policy=policy or handle.update_policy,
        budget=Budget(
            limits=limits,
            clock=shared.clock,
            parents=(*shared.parents, *handle.caps(session_id)),
        ),
        shared=shared,
        claim=claim or own_claim,
    )
    waits = claim is None
    if strategy == "full":
        if dry_run:
            return await repack.plan(handle, record, config, open_run)
        build = await repack.begin(handle, session_id, config)
        run = open_run(handle.store.tree(session_id, build.tree))
        rounds = UpdateRounds(run, on_progress, repack=True, waits=waits)
        return await _settled(rounds.work(partial(repack.make, run, build)), own_claim)
    # Nodes sealed meanwhile are left to the next update. If a re-pack replaces the tree meanwhile,
    # later texts for the old tree are discarded.
    run = open_run(handle.store.tree(session_id, record.tree))
    counts = {
        number: count
        for number, count in enumerate(session_state(record).ordinals, start=1)
        if level is None or number <= level
    }
    if dry_run:
        return await plan_update(run, counts)

    async def task(rounds: UpdateRounds) -> None:
        for number, stop in sorted(counts.items()):
            async for page in read_outdated(run, number, stop):
                if not page:
                    continue
                await run.tree.write_nodes(
                    [status.write(node, status.mark_dirty(node, now=run.now())) for node in page]
                )
        await rounds.make(counts)

    return await _settled(UpdateRounds(run, on_progress, waits=waits).work(task), own_claim)


async def recompress(
    handle: Handle, session_id: str, level: int, span: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Mark summaries of ``level`` for a new text; return their ids, in order.

    ``span`` is a range of message indices, (start, stop). Summaries that cover any of it are
    marked: all if it is None, none if it is empty. The next update makes the new texts, and those
    above if they differ; the present texts serve until then.

    Raises NotFoundError.
    """
    await handle.record(session_id)
    now = handle.clock()
    return await handle.store.transact(
        lambda: plan.recompress(session_id, level=level, span=span, now=now)
    )


async def reconfigure(handle: Handle, session_id: str, config: HierarchyConfig) -> bool:
    """Seal and group messages under ``config`` from now on; return whether that is a change.

    The messages of open windows are folded again under it. A full re-pack under way under another
    configuration is restarted under this one.

    Raises NotFoundError and ClosedError.
    """
    await handle.record(session_id)
    decide = partial(
        rebuild.reconfigure,
        session_id,
        config=config.to_json(),
        build_id=uuid.uuid4().hex,
        now=handle.clock(),
        weigher=Weigher(handle.counter),
    )
    changed = await handle.store.transact(decide)
    handle.silence_warning(session_id)
    return changed


async def _settled(working: Awaitable[UpdateReport], claim: SessionClaim | None) -> UpdateReport:
    """Settle a run's own claim, however the run ends; return its report."""
    report: UpdateReport | None = None
    try:
        report = await working
        return report
    finally:
        if claim is not None and claim.held is not None:
            pause = pause_after(report) if report else 0.0
            try:
                await shielded(claim.settle(pause=pause))
            except HiermemError as error:
                _log.warning("a claim was not settled, and will end: %s", type(error).__name__)


class UpdateRounds:
    """The rounds of one update run, and the outcomes of its nodes.

    ``repack`` marks the run as a full one in the journal. With ``waits``, the run waits for a
    session that another one holds.
    """

    def __init__(
        self,
        run: UpdateRun,
        on_progress: Progress | None,
        *,
        repack: bool = False,
        waits: bool = True,
    ) -> None:
        self.swapped = False
        self._run, self._on_progress = run, on_progress
        self._repack, self._waits = repack, waits
        self._backlog: dict[str, Any] = {}
        self._counts: Mapping[int, int] = {}
        self._outcomes, self._by_level = Counter[str](), Counter[int]()
        self._done, self._totals = Counter[int](), dict[int, int]()
        #: Nodes whose stand-in stays for this run, nodes that are given up in this round, and nodes
        #: that are to be read again.
        self._tried, self._failed, self._again = set[str](), set[str](), set[str]()
        self._moves = Counter[str]()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def done(self) -> int:
        """Return the number of nodes that the run is finished with."""
        return self._done.total()

    @property
    def halted(self) -> bool:
        """Return whether another round is pointless, because a cap was met or a node failed."""
        return self._run.budget.stopped is not None or self._outcomes["failed"] > 0

    async def work(self, task: Callable[[UpdateRounds], Awaitable[None]]) -> UpdateReport:
        """Run ``task``, which calls ``begin`` and ``make``, as one journalled run."""
        run = self._run
        run.detail = self._detail
        async with run:
            await task(self)
            report = self._report()
            if report.failed or report.degraded or report.stopped is not None:
                run.outcome = "partial"
        report = self._report()
        _log.info(
            "run %s: made %d, reused %d, degraded %d, failed %d, calls %d, tokens %d",
            run.run_id, report.made, report.reused, report.degraded, report.failed,
            report.calls, report.tokens,
        )  # fmt: skip
        return report

    async def begin(self) -> bool:
        """Claim the session if that is due, and journal once that the run has work to do.

        Returns False if the run must end instead: another run holds the session, and this one does
        not wait, or has waited until its deadline, or until the other had made all waiting nodes.
        """
        run = self._run
        if run.claim is not None and run.claim.held is None:
            while not await run.claim.take():
                if not self._waits or run.budget.stop_reason() is not None:
                    return False
                if self._counts and not await self._is_due():
                    return False
                time_left = run.budget.time_left()
                await run.sleep(_CLAIM_POLL if time_left is None else min(_CLAIM_POLL, time_left))
            await run.note_cut_off()
        if not run.begun:
            sums = await run.tree.tally()
            dirty, count = sum(each.dirty for each in sums), sum(each.count for each in sums)
            queue = sum(map(status.waiting, sums))
            self._backlog = {"queue": queue, "dirty_share": dirty / count if queue else 0.0}
            await run.begin()
        return True

    async def make(self, counts: Mapping[int, int]) -> None:
        """Make the unfinished among the first ``counts`` nodes of each level."""
        self._counts, self._failed = counts, set()
        if self._on_progress is not None:
            for level in counts:
                left = [node async for node in self._to_make(level)]
                self._totals[level] = self._done[level] + len(left)
            self._report_progress()
        goes_on = True
        while goes_on and self._run.budget.stopped is None and await self._is_due():
            # Another run may have made some nodes before this one held the session.
            goes_on = await self.begin() and await self._make_levels()

    async def _is_due(self) -> bool:
        """Return whether any node of the round is to be made; all levels are read at one time."""
        firsts = [anext(self._to_make(level), None) for level in self._counts]
        return any(await asyncio.gather(*firsts))

    async def _to_make(self, level: int) -> AsyncIterator[Node]:
        """Yield the nodes of a level that this run makes; remember the stand-ins that it skips."""
        read = partial(self._run.tree.unfinished, level)
        async for page in read_pages(read, self._counts[level]):
            for node in page:
                if self._is_blocked(node) or not (status.waits(node) or node.degraded):
                    continue
                if not status.waits(node) and (
                    node.id in self._tried or await is_left_alone(self._run, node)
                ):
                    self._tried.add(node.id)
                    continue
                yield node

    def _is_blocked(self, node: Node) -> bool:
        """Return whether ``node`` or one below it was given up, or is to be read again first."""
        for blocked in (self._failed, self._again):
            if node.id in blocked or not blocked.isdisjoint(node.children):
                blocked.add(node.id)
                return True
        return False

    async def _make_levels(self) -> bool:
        """Make the nodes of the round; return whether to look at all levels again."""
        run, tasks = self._run, set[asyncio.Task[None]]()
        size = _GROUP if run.is_deterministic else 1
        self._again.clear()
        for level in self._counts:
            group, is_made_anew = list[Node](), False
            async for node in self._to_make(level):
                group.append(node)
                is_made_anew |= node.revision > 0
                if len(group) == size:
                    tasks, group = await self._start(tasks, group), []
                if run.budget.stopped is not None or not run.is_held:
                    break
            tasks = await self._start(tasks, group)
            if is_made_anew:
                tasks = await _wait(tasks)
        await _wait(tasks)
        again, self._again = self._again, set()
        return bool(again) or not run.is_held

    async def _start(
        self, tasks: set[asyncio.Task[None]], nodes: Sequence[Node]
    ) -> set[asyncio.Task[None]]:
        """Start to make some nodes of a level when there is room, and when their children are made.

        Returns the tasks that are running.
        """
        run = self._run
        tasks = await _wait(tasks, most=run.concurrent_nodes - 1)
        if nodes and run.budget.stopped is None and run.is_held:
            children = [child for node in nodes for child in node.children]
            below = {self._tasks[child] for child in children if child in self._tasks}
            task = run.spawn(self._make(nodes, below))
            self._tasks |= {node.id: task for node in nodes}
            tasks.add(task)
        return tasks

    async def _make(self, nodes: Sequence[Node], below: set[asyncio.Task[None]]) -> None:
        """Make some nodes, and commit them together."""
        run = self._run
        outcomes: list[Outcome] = []
        try:
            if below:
                with run.mark_waiting():
                    await asyncio.wait(below)
                if any(task.cancelled() or task.exception() for task in below):
                    return
            async with AsyncExitStack() as until_stored:
                for node in nodes:
                    if outcomes and run.budget.stop_reason() is not None:
                        break
                    if not self._is_blocked(node):
                        outcomes.append(await make(run, node, until_stored))
                committed = await commit(run, outcomes)
        finally:
            for node in nodes:
                del self._tasks[node.id]
        for outcome in outcomes:
            self._record(outcome, is_committed=outcome.node.id in committed)
        self._report_progress()

    def _record(self, outcome: Outcome, *, is_committed: bool) -> None:
        """Count the outcome of one node."""
        node, kind = outcome.node, outcome.kind
        if kind == "refused":
            self._failed.add(node.id)
        elif kind == "moved" or not is_committed:
            self._moves[node.id] += 1
            (self._again if self._moves[node.id] <= _MOVES else self._failed).add(node.id)
        else:
            self._done[node.level] += 1
            if kind == "failed":
                self._failed.add(node.id)
            if kind in ("degraded", "kept"):
                self._tried.add(node.id)
                kind = "degraded"  # the model was asked for the node
            self._outcomes[kind] += 1
            if kind in ("made", "reused", "degraded"):
                self._by_level[node.level] += 1
            if kind == "made" and outcome.revision and "shortened" in outcome.revision.extras:
                self._outcomes["shortened"] += 1

    def _report_progress(self) -> None:
        """Report the progress."""
        if self._on_progress is None:
            return
        by_level = {
            level: (self._done[level], max(self._done[level], total))
            for level, total in sorted(self._totals.items())
            if total or self._done[level]
        }
        done, total = (sum(figures) for figures in zip((0, 0), *by_level.values(), strict=True))
        self._on_progress(UpdateProgress(done, total, by_level))

    def _report(self) -> UpdateReport:
        run, outcomes = self._run, self._outcomes
        report = UpdateReport(
            run_id=run.run_id if run.begun else None,
            by_level=dict(sorted(self._by_level.items())),
            unknown=run.journal.unknown,
            stopped=run.budget.stopped,
            swapped=self.swapped,
            retry_after=run.budget.retry_after,
            last_error=run.budget.last_error,
            made=outcomes["made"],
            reused=outcomes["reused"],
            failed=outcomes["failed"],
            degraded=outcomes["degraded"],
            shortened=outcomes["shortened"],
        )
        return report + run.budget.spent

    def _detail(self, _: str) -> dict[str, Any]:
        """Return the detail of the run's journal entry."""
        report = self._report()
        return {
            "model": self._run.llm.name,
            **self._backlog,
            **{name: getattr(report, name) for name in _JOURNALLED},
            "by_level": {str(level): count for level, count in report.by_level.items()},
            **({"reason": report.last_error} if report.last_error else {}),
            **({"strategy": "full", "swapped": report.swapped} if self._repack else {}),
        }


async def _wait(tasks: set[asyncio.Task[None]], *, most: int = 0) -> set[asyncio.Task[None]]:
    """Wait until at most so many tasks are left, and return them. Raises the error of a task."""
    while len(tasks) > most:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    return tasks


async def commit(run: UpdateRun, outcomes: Sequence[Outcome]) -> set[str]:
    """Commit outcomes in one transaction; return the ids of the nodes for which it holds.

    If the session was taken over, a new text is stored all the same if its node and its inputs
    are unchanged. The new holder decides the rest.
    """
    claim = run.claim
    attempts = [attempt for outcome in outcomes for attempt in outcome.attempts]
    left = {outcome.node.id: outcome for outcome in outcomes if outcome.after is not None}
    stored = {outcome.node.id: outcome for outcome in outcomes if outcome.after is None}
    for _ in range(TRIES):
        fence = claim.held if claim else None
        if claim and fence is None:
            left = {id_: outcome for id_, outcome in left.items() if outcome.kind == "made"}
        parents = await _dirty_parents(run, [*stored.values(), *left.values()])
        writes = [
            status.write(
                outcome.node,
                outcome.after or outcome.node,
                revision=outcome.revision,
                inputs=outcome.inputs,
            )
            for outcome in left.values()
        ]
        if not (writes or parents or attempts):
            break
        applied, doubtful = await run.journal.write(
            attempts, nodes=[*writes, *parents], claim=fence
        )
        if applied is None:
            assert claim is not None
            claim.held = None
            continue
        attempts = []
        rejected = [id_ for id_, done in zip(left, applied, strict=False) if not done]
        now = {node.id: node for node in await run.tree.nodes(rejected)} if rejected else {}
        stored |= {id_: outcome for id_, outcome in left.items() if id_ not in rejected}
        left = {id_: outcome for id_, outcome in left.items() if id_ in now}
        for id_, outcome in list(left.items()):
            assert outcome.after is not None
            current, before = now[id_], outcome.node
            if doubtful and status.is_written(current, outcome.after):
                stored[id_] = left.pop(id_)
                continue
            after = status.rebase(before, current, outcome.after)
            if after is None or current.version == before.version:
                del left[id_]
            else:
                left[id_] = replace(outcome, node=current, after=after)
    return set(stored)


async def _dirty_parents(run: UpdateRun, outcomes: Sequence[Outcome]) -> list[NodeWrite]:
    """Return the writes that mark the parents of nodes with a new text as dirty.

    An edit flags the whole path above its window. If a text below turned out to be unchanged, the
    flag above must be checked. So that parent is marked dirty too, in the same transaction, and
    turns out clean without a call. If a run is killed in between, the next one does this.
    """
    changed = {each.node.parent for each in outcomes if each.changes_parent and each.node.parent}
    cleared = {each.node.parent for each in outcomes if each.clears_parent and each.node.parent}
    cleared -= changed
    if not changed and not cleared:
        return []
    return [
        status.write(parent, status.mark_dirty(parent, now=run.now()))
        for parent in await run.tree.nodes(sorted(changed | cleared))
        if parent.revision
        and (status.is_flagged(parent) if parent.id in cleared else not status.waits(parent))
    ]
