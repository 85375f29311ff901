"""Runs the rounds of one update: keeps the slots busy, commits finished texts, ends cleanly.

A node is in exactly one place: in the agenda, in progress, or finished and not committed. However
the run ends, finished texts are committed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from hiermem.calls.run import connect
from hiermem.handle import session_state
from hiermem.summaries.agenda import PAGE, Agenda
from hiermem.summaries.making import Outcome
from hiermem.summaries.node import is_left_alone, make
from hiermem.summaries.plan import UpdateProgress, UpdateReport
from hiermem.summaries.run import UpdateRun, read_pages
from hiermem.tree.status import is_unfinished, waits
from hiermem.types import Node

Progress = Callable[[UpdateProgress], object]

#: Extracts committed together, and the most seconds that one waits for others.
_GROUP: Final = 32
_BATCH_DELAY: Final = 0.05
#: Seconds between two tries to claim a session that another run holds.
_CLAIM_POLL: Final = 0.25
#: How often one node is retried because it changed while its text was made.
_MOVES: Final = 5
#: The figures of a report that the journal keeps.
_JOURNALLED: Final = ("calls", "tokens_in", "tokens_out", "cost", "unknown", "stopped")
#: Nodes read at once to be counted.
_COUNTED: Final = 2048
#: Waiting summaries are counted among at most this many unfinished ones of a level.
_MOST_WAITING: Final = 4 * PAGE
_log = logging.getLogger("hiermem.update")


class UpdateRounds:
    """The rounds of one update run, with the nodes in progress and the outcomes.

    ``repack`` marks the run as a full one in the journal. With ``waits``, the run waits for a
    session that another one holds.
    """

    def __init__(
        self,
        run: UpdateRun,
        level: int | None,
        on_progress: Progress | None,
        *,
        repack: bool = False,
        waits: bool = True,
    ) -> None:
        self.swapped = False
        self._run, self._level, self._on_progress = run, level, on_progress
        self._repack, self._waits = repack, waits
        self._backlog: Mapping[str, Any] = {}
        self._tried: set[str] = set()
        self._agenda = Agenda({})
        self._counts: Mapping[int, int] = {}
        self._tasks: dict[asyncio.Task[Outcome], Node] = {}
        self._finished: list[Outcome] = []
        self._oldest = 0.0
        self._moves: dict[str, int] = {}
        self._counts_by_kind = dict.fromkeys(("made", "reused", "failed", "degraded"), 0)
        self._by_level: dict[int, int] = {}
        self._totals: dict[int, int] = {}
        self._settled = self._shortened = 0
        self._uncounted: set[str] = set()

    @property
    def done(self) -> int:
        """Return the number of nodes settled so far."""
        return self._settled

    @property
    def halted(self) -> bool:
        """Return whether another round is pointless, because a cap was met or a node failed."""
        return self._run.budget.stopped is not None or self._counts_by_kind["failed"] > 0

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
                if self._counts and not await self._is_waiting():
                    return False
                time_left = run.budget.time_left()
                await run.sleep(_CLAIM_POLL if time_left is None else min(_CLAIM_POLL, time_left))
            await run.note_cut_off()
        if not run.begun:
            self._backlog = await measure_backlog(run)
            await run.begin()
        return True

    async def _is_waiting(self) -> bool:
        """Return whether any of the round's nodes still waits to be made."""
        for level, stop in self._counts.items():
            async for page in read_pages(partial(self._run.tree.unfinished, level), stop):
                if any(map(waits, page)):
                    return True
        return False

    async def work(self, rounds: AsyncGenerator[Mapping[int, int], None]) -> UpdateReport:
        """Work until this run can make nothing more.

        Each of the ``rounds`` is the number of sealed nodes by level to work on; an ordinary update
        has one.
        """
        run = self._run
        run.detail, run.keep_finished = self._detail, self._keep_finished
        try:
            # Closed here, because the garbage collector would close it after the run.
            async with aclosing(rounds), run:
                async for counts in rounds:
                    await self._run_round(counts)
                report = self._report()
                if report.failed or report.degraded or report.stopped is not None:
                    run.outcome = "partial"
        finally:
            for wanted in list(run.pending_texts):
                run.drop_text(wanted)
        report = self._report()
        _log.info(
            "run %s: made %d, reused %d, degraded %d, failed %d, calls %d, tokens %d",
            run.run_id, report.made, report.reused, report.degraded, report.failed,
            report.calls, report.tokens,
        )  # fmt: skip
        return report

    async def _run_round(self, counts: Mapping[int, int]) -> None:
        """Run one round: the unfinished among the first ``counts`` nodes of each level."""
        self._counts = counts
        if self._on_progress is not None:
            await self._count()
            self._report_progress()
        await self._look()
        while await self._fill():
            await self._wait()

    async def _look(self) -> None:
        """Begin the agenda: read all levels at once, and skip those without work."""
        self._agenda = Agenda(self._counts, self._tried)
        levels = self._agenda.unread
        pages = await asyncio.gather(*(self._run.tree.unfinished(level, -1, 1) for level in levels))
        for level, page in zip(levels, pages, strict=True):
            if not page:
                self._agenda.add(level, page)

    async def _fill(self) -> bool:
        """Start nodes while slots are free; return whether any work is in progress."""
        run = self._run
        while len(self._tasks) < run.concurrent_nodes and run.budget.stopped is None:
            node = await self._next()
            if node is None:
                if not self._finished:
                    break
                # A parent may wait for a finished text, so commit now, in a smaller group.
                await self._commit()
            elif run.begun and (run.claim is None or run.claim.held):
                self._tasks[run.spawn(make(run, node))] = node
            elif self._tasks or self._finished:
                # The claim was lost; texts in progress are stored first.
                self._agenda.put_off(node)
                break
            elif await self.begin():
                # Another run may have made some nodes meanwhile.
                await self._look()
            else:
                return False
        return bool(self._tasks or self._finished)

    async def _next(self) -> Node | None:
        """Take the next node, reading pages of nodes as they are needed."""
        run = self._run
        while True:
            node = self._agenda.next()
            if isinstance(node, tuple):
                level, after = node
                self._agenda.add(level, await run.tree.unfinished(level, after, PAGE))
            elif node is None:
                return None
            elif await is_left_alone(run, node):
                # Its stand-in stays, so it is no work of this run.
                self._tried.add(node.id)
                self._exclude_from_progress(node)
                self._agenda.settle(node.id)
            else:
                return node

    async def _wait(self) -> None:
        """Wait for the next event, and commit the finished texts if a commit is due."""
        run = self._run
        if self._tasks:
            delay_left = self._oldest + _BATCH_DELAY - time.monotonic()
            done, _ = await asyncio.wait(
                self._tasks,
                timeout=max(0.0, delay_left) if self._finished else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._collect(done)
        # Extracts are made so fast that one commit each would be most of the work.
        due = (
            not run.is_deterministic
            or len(self._finished) >= _GROUP
            or time.monotonic() >= self._oldest + _BATCH_DELAY
            # Without nodes in progress, the next iteration either starts more or commits.
            or (not self._tasks and run.budget.stopped is not None)
        )
        if self._finished and due:
            await self._commit()

    def _collect(self, done: set[asyncio.Task[Outcome]]) -> None:
        """Collect the outcomes of finished tasks. Raises the error of a task."""
        for task in done:
            del self._tasks[task]
        if not self._finished:
            self._oldest = time.monotonic()
        # The finished outcomes are stored before the error of another task ends the run.
        self._finished += [task.result() for task in done if task.exception() is None]
        for task in done:
            task.result()

    async def _commit(self) -> None:
        """Commit the finished texts, and apply each outcome to the agenda."""
        outcomes, self._finished = self._finished, []
        try:
            committed, dirtied = await self._run.commits.commit(outcomes)
        except BaseException:
            self._finished = outcomes
            raise
        for outcome, is_committed in zip(outcomes, committed, strict=True):
            self._run.stored(outcome.node)
            if outcome.revision is not None:
                self._run.drop_text(outcome.revision.input_hash)
            await self._record_outcome(outcome, is_committed=is_committed)
        for node in dirtied:
            self._agenda.mark_dirty(node)
            self._count_dirtied(node)
        self._report_progress()

    async def _record_outcome(self, outcome: Outcome, *, is_committed: bool) -> None:
        """Apply the outcome of one node to the agenda, and count it."""
        node, kind = outcome.node, outcome.kind
        if kind == "refused":
            self._agenda.fail(node.id)
        elif kind == "moved" or not is_committed:
            await self._reread(node)
        elif kind == "failed":
            self._counts_by_kind["failed"] += 1
            self._agenda.fail(node.id)
        elif kind == "clean":
            self._settle_without_text(node)
        else:
            # A kept stand-in counts as a made one, since the model was asked for the node.
            kind = "degraded" if kind == "kept" else kind
            self._counts_by_kind[kind] += 1
            if kind == "made" and outcome.revision and "shortened" in outcome.revision.extras:
                self._shortened += 1
            self._by_level[node.level] = self._by_level.get(node.level, 0) + 1
            if kind == "degraded":
                self._tried.add(node.id)
            self._settle(node)

    async def _reread(self, node: Node) -> None:
        """Read a node that changed while it was worked on, and decide again."""
        stored = await self._run.tree.nodes([node.id])
        self._moves[node.id] = self._moves.get(node.id, 0) + 1
        if not stored:
            self._agenda.fail(node.id)
            return
        done_elsewhere = stored[0].revision > node.revision and stored[0].status == "active"
        if not is_unfinished(stored[0]) or (done_elsewhere and not waits(stored[0])):
            self._settle_without_text(stored[0])
        elif self._moves[node.id] <= _MOVES:
            self._agenda.put_off(stored[0])
        else:
            self._agenda.fail(node.id)

    def _settle(self, node: Node) -> None:
        self._settled += 1
        self._moves.pop(node.id, None)
        self._agenda.settle(node.id)

    def _settle_without_text(self, node: Node) -> None:
        """Settle a node that gets no text from this run, because it has one.

        It is excluded from the progress, which counts the same nodes as the report.
        """
        self._exclude_from_progress(node)
        self._settle(node)

    def _exclude_from_progress(self, node: Node) -> None:
        """Remove a node from the progress report's totals, if it was counted."""
        if node.level in self._totals and node.id not in self._uncounted:
            self._totals[node.level] -= 1

    async def _count(self) -> None:
        """Count the nodes of each level that the run will work on, for the progress report."""
        run = self._run
        for level, stop in self._counts.items():
            total = 0
            async for page in read_pages(partial(run.tree.unfinished, level), stop, _COUNTED):
                total += sum([await self._is_work(node) for node in page])
            if total:
                self._totals[level] = self._by_level.get(level, 0) + total

    def _count_dirtied(self, node: Node) -> None:
        """Count a node whose text became dirty in this run, unless it was counted before."""
        if node.ordinal >= self._counts.get(node.level, 0) or node.status != "active":
            return
        if not node.degraded or node.id in self._uncounted:
            self._uncounted.discard(node.id)
            self._totals[node.level] = self._totals.get(node.level, 0) + 1

    async def _is_work(self, node: Node) -> bool:
        """Return whether the run will work on a node; remember the nodes that it skips."""
        if waits(node) or not await is_left_alone(self._run, node):
            return True
        self._uncounted.add(node.id)
        return False

    def _report_progress(self) -> None:
        """Report the progress."""
        if self._on_progress is None:
            return
        by_level = {
            level: (min(self._by_level.get(level, 0), total), total)
            for level, total in sorted(self._totals.items())
            if total
        }
        self._on_progress(
            UpdateProgress(
                done=sum(done for done, _ in by_level.values()),
                total=sum(total for _, total in by_level.values()),
                by_level=by_level,
            )
        )

    def _report(self) -> UpdateReport:
        budget = self._run.budget
        report = UpdateReport(
            run_id=self._run.run_id if self._run.begun else None,
            by_level=dict(sorted(self._by_level.items())),
            unknown=self._run.journal.unknown,
            stopped=budget.stopped,
            swapped=self.swapped,
            retry_after=budget.retry_after,
            last_error=budget.last_error,
            made=self._counts_by_kind["made"],
            reused=self._counts_by_kind["reused"],
            failed=self._counts_by_kind["failed"],
            degraded=self._counts_by_kind["degraded"],
            shortened=self._shortened,
        )
        return report + budget.spent

    def _detail(self, _: str) -> dict[str, Any]:
        """Return the detail of the run's journal entry."""
        report = self._report()
        return {
            "model": self._run.llm.name,
            **self._backlog,
            **self._counts_by_kind,
            "by_level": {str(level): count for level, count in report.by_level.items()},
            **{name: getattr(report, name) for name in _JOURNALLED},
            **({"reason": report.last_error} if report.last_error else {}),
            **({"strategy": "full", "swapped": report.swapped} if self._repack else {}),
        }

    async def _keep_finished(self) -> None:
        """Commit the finished texts of a run that ends early."""
        for task in self._tasks:
            if not task.cancelled() and task.exception() is None:
                self._finished.append(task.result())
        self._tasks.clear()
        if self._finished:
            outcomes, self._finished = self._finished, []
            await self._run.commits.commit(outcomes)


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
        counted += sum(map(waits, page))
        dirty += sum(node.dirty for node in page)
        read += len(page)
        if read >= _MOST_WAITING:
            break
    return counted, dirty
