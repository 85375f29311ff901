"""Runs the rounds of one update: makes nodes level by level, and commits each as it is done.

::

    level 1: read a page -> make the nodes, several at a time -> commit each
    level 2: likewise, each node when its children are made; and so on

Extracts are made and committed in groups, since one commit each would be most of the work. A node
above one that failed, or was refused, is left to the next run. If a node changed meanwhile, all
levels are looked at again.

Nothing that was paid for is lost. A commit is retried if the store is busy; it is rebased if only
the parent of its node changed meanwhile; and it is recognised if it took effect although the store
reported a failure. No commit overwrites the text of another run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from hiermem.calls.retry import TRIES
from hiermem.calls.run import connect
from hiermem.handle import session_state
from hiermem.summaries.claim import PAGE
from hiermem.summaries.node import is_left_alone, make
from hiermem.summaries.plan import Outcome
from hiermem.summaries.reports import UpdateProgress, UpdateReport
from hiermem.summaries.run import UpdateRun, read_pages
from hiermem.tree import status
from hiermem.types import Node
from hiermem.types.transaction import NodeWrite

Progress = Callable[[UpdateProgress], object]

#: Extracts committed together.
_GROUP: Final = 32
#: Seconds between two tries to claim a session that another run holds.
_CLAIM_POLL: Final = 0.25
#: How often one node is retried because it changed while its text was made.
_MOVES: Final = 5
#: The figures of a report that the journal keeps.
_JOURNALLED: Final = ("calls", "tokens_in", "tokens_out", "cost", "unknown", "stopped")
#: Waiting summaries are counted among at most this many unfinished ones of a level.
_MOST_WAITING: Final = 4 * PAGE
_log = logging.getLogger("hiermem.update")


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
        self._backlog: Mapping[str, Any] = {}
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
        await connect(run.llm)
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
            self._backlog = await measure_backlog(run)
            await run.begin()
        return True

    async def make(self, counts: Mapping[int, int]) -> None:
        """Make the unfinished among the first ``counts`` nodes of each level."""
        run = self._run
        self._counts, self._failed = counts, set()
        if self._on_progress is not None:
            await self._count()
            self._report_progress()
        goes_on = True
        while goes_on and run.budget.stopped is None and await self._is_due():
            # Another run may have made some nodes before this one held the session.
            goes_on = await self.begin() and await self._make_levels()

    async def _is_due(self) -> bool:
        """Return whether any node of the round is to be made."""
        read = self._run.tree.unfinished
        firsts = await asyncio.gather(*(read(level, -1, 1) for level in self._counts))
        for (level, stop), first in zip(self._counts.items(), firsts, strict=True):
            if first:
                async for page in read_pages(partial(read, level), stop):
                    for node in page:
                        if await self._is_to_make(node):
                            return True
        return False

    async def _is_to_make(self, node: Node) -> bool:
        """Return whether this run makes ``node``; remember the nodes that it skips."""
        if self._is_blocked(node):
            return False
        if status.waits(node):
            return True
        if not node.degraded or node.id in self._tried:
            return False
        if await is_left_alone(self._run, node):
            self._tried.add(node.id)
            return False
        return True

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
        for level, stop in self._counts.items():
            async for page in read_pages(partial(run.tree.unfinished, level), stop):
                nodes = [node for node in page if await self._is_to_make(node)]
                for first in range(0, len(nodes), size):
                    tasks = await _wait(tasks, most=run.concurrent_nodes - 1)
                    if run.budget.stopped is None and run.is_held:
                        tasks.add(self._start(nodes[first : first + size]))
                if run.budget.stopped is not None or not run.is_held:
                    break
        await _wait(tasks)
        again, self._again = self._again, set()
        return bool(again) or not run.is_held

    def _start(self, nodes: Sequence[Node]) -> asyncio.Task[None]:
        """Start to make some nodes of a level, when their children are made."""
        children = [child for node in nodes for child in node.children]
        below = {self._tasks[child] for child in children if child in self._tasks}
        task = self._run.spawn(self._make(nodes, below))
        self._tasks |= {node.id: task for node in nodes}
        return task

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
                committed, dirtied = await commit(run, outcomes)
        finally:
            for node in nodes:
                del self._tasks[node.id]
        self._again |= dirtied
        for outcome, is_committed in zip(outcomes, committed, strict=True):
            self._record(outcome, is_committed=is_committed)
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

    async def _count(self) -> None:
        """Count the nodes of each level that the run will work on, for the progress report."""
        for level, stop in self._counts.items():
            total = 0
            async for page in read_pages(partial(self._run.tree.unfinished, level), stop):
                total += sum([await self._is_to_make(node) for node in page])
            self._totals[level] = self._done[level] + total

    def _report_progress(self) -> None:
        """Report the progress."""
        if self._on_progress is None:
            return
        by_level = {
            level: (self._done[level], max(self._done[level], total))
            for level, total in sorted(self._totals.items())
            if total or self._done[level]
        }
        self._on_progress(
            UpdateProgress(
                done=sum(done for done, _ in by_level.values()),
                total=sum(total for _, total in by_level.values()),
                by_level=by_level,
            )
        )

    def _report(self) -> UpdateReport:
        budget, outcomes = self._run.budget, self._outcomes
        report = UpdateReport(
            run_id=self._run.run_id if self._run.begun else None,
            by_level=dict(sorted(self._by_level.items())),
            unknown=self._run.journal.unknown,
            stopped=budget.stopped,
            swapped=self.swapped,
            retry_after=budget.retry_after,
            last_error=budget.last_error,
            made=outcomes["made"],
            reused=outcomes["reused"],
            failed=outcomes["failed"],
            degraded=outcomes["degraded"],
            shortened=outcomes["shortened"],
        )
        return report + budget.spent

    def _detail(self, _: str) -> dict[str, Any]:
        """Return the detail of the run's journal entry."""
        report = self._report()
        return {
            "model": self._run.llm.name,
            **self._backlog,
            **{name: getattr(report, name) for name in ("made", "reused", "failed", "degraded")},
            "by_level": {str(level): count for level, count in report.by_level.items()},
            **{name: getattr(report, name) for name in _JOURNALLED},
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


async def commit(run: UpdateRun, outcomes: Sequence[Outcome]) -> tuple[list[bool], set[str]]:
    """Commit outcomes in one transaction; return which hold, and which parents became dirty.

    If the session was taken over, a new text is stored all the same if its node and its inputs
    are unchanged. The new holder decides the rest.
    """
    claim = run.claim
    bases = [outcome.node for outcome in outcomes]
    afters = [outcome.after for outcome in outcomes]
    attempts = [attempt for outcome in outcomes for attempt in outcome.attempts]
    committed = [after is None for after in afters]
    pending = [index for index, after in enumerate(afters) if after is not None]
    dirtied: set[str] = set()
    for _ in range(TRIES):
        fence = claim.held if claim else None
        if claim and fence is None:
            pending = [index for index in pending if outcomes[index].kind == "made"]
        parents = await _dirty_parents(
            run,
            [bases[index] for index in pending if outcomes[index].changes_parent],
            [bases[index] for index in pending if outcomes[index].clears_parent],
        )
        writes = [
            status.write(
                bases[index],
                afters[index] or bases[index],
                revision=outcomes[index].revision,
                inputs=outcomes[index].inputs,
            )
            for index in pending
        ]
        if not writes and not attempts:
            break
        applied, doubtful = await run.journal.write(
            attempts, nodes=[*writes, *parents], claim=fence
        )
        if applied is None:
            assert claim is not None
            claim.lose()
            continue
        attempts = []
        for index, done in zip(pending, applied, strict=False):
            committed[index] = done
        dirtied |= {write.node.id for write in parents}
        lost = [index for index in pending if not committed[index]]
        if doubtful:
            await _recognise(run, lost, outcomes, committed)
            lost = [index for index in lost if not committed[index]]
        pending = await _carry_over(run, lost, bases=bases, afters=afters)
        if not pending:
            break
    dirtied |= await _dirty_parents_late(run, outcomes, committed)
    return committed, dirtied


async def _carry_over(
    run: UpdateRun, lost: Sequence[int], *, bases: list[Node], afters: list[Node | None]
) -> list[int]:
    """Return the rejected writes to retry on the current version."""
    ids = [bases[index].id for index in lost]
    read = await run.tree.nodes(ids) if ids else []
    stored = {node.id: node for node in read}
    retry: list[int] = []
    for index in lost:
        base, after = bases[index], afters[index]
        current = stored.get(base.id)
        if current is None or after is None:
            continue
        if current.version != base.version:
            rebased = status.rebase(base, current, after)
            if rebased is not None:
                bases[index], afters[index] = current, rebased
                retry.append(index)
    return retry


async def _recognise(
    run: UpdateRun, lost: Sequence[int], outcomes: Sequence[Outcome], committed: list[bool]
) -> None:
    """Mark those of the ``lost`` writes committed that took effect in spite of a failure."""
    ids = [outcomes[index].node.id for index in lost]
    stored = {node.id: node for node in await run.tree.nodes(ids)}
    for index in lost:
        outcome = outcomes[index]
        current = stored.get(outcome.node.id)
        if (
            current is None
            or outcome.after is None
            or not status.is_written(current, outcome.after)
        ):
            continue
        wanted = [(current.id, current.revision)] if outcome.revision else []
        stored_revisions = await run.tree.revisions(wanted)
        committed[index] = stored_revisions == ([outcome.revision] if outcome.revision else [])


async def _dirty_parents(
    run: UpdateRun, changed: Sequence[Node], cleared: Sequence[Node]
) -> list[NodeWrite]:
    """Return the writes that mark the parents of nodes with a new text as dirty.

    An edit flags the whole path above its window. If a text below turned out to be unchanged, the
    flag above must be checked. So that parent is marked dirty too, in the same transaction, and
    turns out clean without a call. If a run is killed in between, the next one does this.
    """
    changed_ids = {child.parent for child in changed if child.parent}
    cleared_ids = {child.parent for child in cleared if child.parent} - changed_ids
    if not changed_ids and not cleared_ids:
        return []
    return [
        status.write(parent, status.mark_dirty(parent, now=run.now()))
        for parent in await run.tree.nodes(sorted(changed_ids | cleared_ids))
        if parent.revision
        and (status.is_flagged(parent) if parent.id in cleared_ids else not status.waits(parent))
    ]


async def _dirty_parents_late(
    run: UpdateRun, outcomes: Sequence[Outcome], committed: Sequence[bool]
) -> set[str]:
    """Mark the parents dirty whose first write was rejected; return their ids."""
    dirtied: set[str] = set()
    applied = [outcome for outcome, done in zip(outcomes, committed, strict=True) if done]
    changed_ids = [outcome.node.id for outcome in applied if outcome.changes_parent]
    ids = [*changed_ids, *(outcome.node.id for outcome in applied if outcome.clears_parent)]
    for _ in range(TRIES if ids else 0):
        children = await run.tree.nodes(ids)
        writes = await _dirty_parents(
            run,
            [child for child in children if child.id in changed_ids],
            [child for child in children if child.id not in changed_ids],
        )
        if not writes:
            break
        await run.journal.write((), nodes=writes)
        dirtied |= {write.node.id for write in writes}
    return dirtied


async def measure_backlog(run: UpdateRun) -> dict[str, Any]:
    """Return how many summaries wait to be made, and the dirty share of all.

    The count is bounded, so that a run of a long session costs only what it makes. A summary that
    an edit alone made dirty does not wait, nor does one with a clean stand-in.
    """
    counts = session_state(run.record).ordinals
    levels = await asyncio.gather(*(_waiting(run, *level) for level in enumerate(counts, start=1)))
    queue, dirty = (sum(numbers) for numbers in zip((0, 0), *levels, strict=True))
    return {"queue": queue, "dirty_share": dirty / sum(counts) if queue else 0.0}


async def _waiting(run: UpdateRun, level: int, stop: int) -> tuple[int, int]:
    """Count the summaries of a level that wait to be made, and the dirty ones among them."""
    counted = dirty = read = 0
    async for page in read_pages(partial(run.tree.unfinished, level), stop):
        counted += sum(map(status.waits, page))
        dirty += sum(node.dirty for node in page)
        read += len(page)
        if read >= _MOST_WAITING:
            break
    return counted, dirty
