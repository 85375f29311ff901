"""Re-packs a session next to the serving tree, and lets the new tree serve when it is complete.

::

    begin -> catch up with the log -> make what is unmade, then what is open -> swap
                  ^                                      |
                  +----------- the log has grown --------+

The whole state of a re-pack is in the store: killed at any point, the next one under the same
configuration resumes it. The serving tree is not touched before the swap, which is one transaction.
``core.log.repack`` decides what each step does.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from hiermem.core.log import repack as repack_steps
from hiermem.core.log.repack import Build
from hiermem.core.log.size_changes import Weigher
from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.plan import UpdatePlan, UpdateReport
from hiermem.core.tree import fold
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.engine.summaries.dry_run import plan_update
from hiermem.engine.summaries.planned_tree import PlannedTree
from hiermem.engine.summaries.rounds import Progress, UpdateRounds
from hiermem.engine.summaries.run import UpdateRun
from hiermem.errors import NotFoundError
from hiermem.protocols import TenantStore, TokenCounter, TreeStore
from hiermem.types import SessionRecord
from hiermem.types.transaction import LogEvent

#: Opens a run over a tree.
OpenRun = Callable[[TreeStore], UpdateRun]


async def repack(
    store: TenantStore,
    record: SessionRecord,
    config: str,
    open_run: OpenRun,
    on_progress: Progress | None,
) -> UpdateReport:
    """Re-pack the session under ``config``, resuming an earlier attempt.

    Raises NotFoundError where the session is gone, and what the store raises.
    """
    build_id = uuid.uuid4().hex
    build = await store.transact(
        lambda: repack_steps.begin(record.id, config=config, build_id=build_id)
    )
    if build is None:
        raise NotFoundError(f"session {record.id!r} does not exist")
    run = open_run(store.tree(record.id, build.tree))
    return await _Repack(store, build, run, on_progress).run()


class _Repack:
    """One run of a re-pack: rounds of catching up and making, and the swap."""

    def __init__(
        self, store: TenantStore, build: Build, run: UpdateRun, on_progress: Progress | None
    ) -> None:
        self._store, self._build, self._run = store, build, run
        self._rounds = UpdateRounds(run, self._next, None, on_progress, repack=True)
        self._rounds.with_provisional = False
        self._before: tuple[Build, int] | None = None

    async def run(self) -> UpdateReport:
        """Work until the new tree serves, or nothing more can be done now."""
        return await self._rounds.work()

    async def _next(self) -> Mapping[int, int] | None:
        """Return the next round: what is sealed by now, finally what is open; None after the swap.

        A round that left a node unmade although nothing changed meanwhile is the last.
        """
        rounds = self._rounds
        if rounds.swapped:
            return None
        await rounds.begin()
        while (record := await self._catch_up()) is not None:
            counts, now = _counts(self._build), (self._build, rounds.done)
            if await self._unmade(counts):
                if now == self._before or (self._before is not None and rounds.halted):
                    return None
                self._before, rounds.with_provisional = now, False
                return counts
            if self._build != self._run.building and not rounds.halted:
                self._run.building, rounds.with_provisional = self._build, True
                return {}
            if await self._swap(record):
                rounds.swapped = True
                return None
        return None

    async def _catch_up(self) -> SessionRecord | None:
        """Fold the log into the build; None where the build is gone or the time is up."""
        run, store, id_ = self._run, self._store, self._run.session_id
        events: list[LogEvent] = []
        known = 0
        while run.budget.stop_reason() is None:
            record = await store.session(id_)
            now = Build.from_json(record.build) if record else None
            if record is None or now is None or now.id != self._build.id:
                return None
            self._build = now
            if now.at >= known and not repack_steps.due(now, events, now.at):
                # Events that are not read yet come after all messages that were there before.
                events, known = await store.events(id_), record.messages
            stop = max(now.at, min(known, now.at + repack_steps.PAGE))
            due = repack_steps.due(now, events, stop)
            if stop == now.at and not due:
                return record
            messages = await store.messages(id_, now.at, stop)
            page = await asyncio.to_thread(
                repack_steps.measured, messages, run.config, Weigher(run.counter)
            )
            await store.transact(
                partial(repack_steps.advance, id_, now, page, due, epoch=record.epoch)
            )
        return None

    async def _unmade(self, counts: Mapping[int, int]) -> bool:
        """Return whether a node of the build still needs a text; a stand-in counts as one."""
        run = self._run
        for level in counts:
            after = -1
            while page := await run.tree.unfinished(level, after, PAGE):
                if any(node.status != "active" or node.dirty for node in page):
                    return True
                after = page[-1].ordinal
        return False

    async def _swap(self, record: SessionRecord) -> bool:
        """Let the new tree serve, unless the log has grown since ``record`` was read."""
        run, store, build = self._run, self._store, self._build
        sizes: dict[int, int] = {}
        for start, stop in build.marks:
            for first in range(start, stop, PAGE):
                page = await store.messages(record.id, first, min(stop, first + PAGE))
                sizes |= await asyncio.to_thread(
                    repack_steps.sizes_of, page, run.config, Weigher(run.counter)
                )
        now = run.now()
        return await store.transact(
            lambda: repack_steps.swap(record.id, build, sizes, epoch=record.epoch, when=now)
        )


async def plan_repack(
    store: TenantStore,
    record: SessionRecord,
    config: str,
    open_run: OpenRun,
    counter: TokenCounter,
) -> UpdatePlan:
    """Plan a re-pack under ``config``: fold the log to its end, and write nothing."""
    build = Build.from_json(record.build)
    if build is None or build.config != config:
        tree = 1 + max(record.tree, build.tree if build else 0)
        build = Build("", tree, config)
    settings = config_from(config)
    refold = repack_steps.Refold(settings, SessionState.from_json(build.state))
    events, at = await store.events(record.id), build.at
    while True:
        stop = min(record.messages, at + PAGE)
        due = repack_steps.due(build, events, stop)
        if stop == at and not due:
            break
        messages = await store.messages(record.id, at, stop)
        page = await asyncio.to_thread(repack_steps.measured, messages, settings, Weigher(counter))
        refold.fold_in(page.arrivals, due)
        build, at = replace(build, at=stop, events=build.events + len(due)), stop
    state = refold.state
    counts = _counts(replace(build, state=state.to_json()))
    planned = PlannedTree(
        store.tree(record.id, build.tree),
        nodes=tuple(refold.nodes.values()),
        parents=refold.parents,
        counts=counts,
    )
    loose = fold.provisional(state, settings)
    return await plan_update(open_run(planned), counts, loose, follow_strategy=False)


def _counts(build: Build) -> dict[int, int]:
    """Return the number of sealed nodes by level."""
    ordinals = SessionState.from_json(build.state).ordinals
    return {level: count for level, count in enumerate(ordinals, start=1) if count}
