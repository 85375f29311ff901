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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from hiermem.core.log import repack as repack_steps
from hiermem.core.log.size_changes import Weigher
from hiermem.core.log.trees import Build
from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.plan import UpdatePlan, UpdateReport
from hiermem.core.summaries.status import waits
from hiermem.core.tree import fold
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.engine.summaries.dry_run import plan_update
from hiermem.engine.summaries.rounds import Progress, UpdateRounds
from hiermem.engine.summaries.run import UpdateRun, read_pages
from hiermem.errors import NotFoundError
from hiermem.protocols import TenantStore, TokenCounter, TreeStore
from hiermem.types import Node, Revision, SessionRecord
from hiermem.types.transaction import Attempt, LogEvent, NodeTally, NodeWrite

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
    rounds = UpdateRounds(run, None, on_progress, repack=True)
    return await rounds.work(_rounds(run, build, rounds))


async def _rounds(
    run: UpdateRun, build: Build, rounds: UpdateRounds
) -> AsyncGenerator[Mapping[int, int], None]:
    """Yield the nodes of each round: what is sealed by now, finally what is open; then swap.

    A round that left a node unmade although nothing changed meanwhile is the last.
    """
    before: tuple[Build, int] | None = None
    await rounds.begin()
    while (caught_up := await _catch_up(run, build)) is not None:
        record, build = caught_up
        counts, now = _counts(build), (build, rounds.done)
        if await _unmade(run, counts):
            if now == before or (before is not None and rounds.halted):
                return
            before, rounds.with_provisional = now, False
            yield counts
        elif build != run.building and not rounds.halted:
            run.building, rounds.with_provisional = build, True
            yield {}
        elif await _swap(run, build, record):
            rounds.swapped = True
            return


async def _catch_up(run: UpdateRun, build: Build) -> tuple[SessionRecord, Build] | None:
    """Fold the log into the build; None where the build is gone or the time is up."""
    store, id_ = run.store, run.session_id
    events: list[LogEvent] = []
    known = 0
    while run.budget.stop_reason() is None:
        record = await store.session(id_)
        now = Build.from_json(record.build) if record else None
        if record is None or now is None or now.id != build.id:
            return None
        if now.at >= known and not repack_steps.due(now, events, now.at):
            # Events that are not read yet come after all messages that were there before.
            events, known = await store.events(id_), record.messages
        stop = max(now.at, min(known, now.at + repack_steps.PAGE))
        due = repack_steps.due(now, events, stop)
        if stop == now.at and not due:
            return record, now
        messages = await store.messages(id_, now.at, stop)
        page = await asyncio.to_thread(
            repack_steps.measured, messages, run.config, Weigher(run.counter)
        )
        await store.transact(partial(repack_steps.advance, id_, now, page, due, epoch=record.epoch))
    return None


async def _unmade(run: UpdateRun, counts: Mapping[int, int]) -> bool:
    """Return whether a node of the build still needs a text; a stand-in counts as one."""
    for level, stop in counts.items():
        async for page in read_pages(partial(run.tree.unfinished, level), stop):
            if any(map(waits, page)):
                return True
    return False


async def _swap(run: UpdateRun, build: Build, record: SessionRecord) -> bool:
    """Let the new tree serve, unless the log has grown since ``record`` was read."""
    store = run.store
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
        arrivals, _ = await asyncio.to_thread(
            repack_steps.measured, messages, settings, Weigher(counter)
        )
        refold.fold_in(arrivals, due)
        build, at = replace(build, at=stop, events=build.events + len(due)), stop
    state = refold.state
    counts = _counts(replace(build, state=state.to_json()))
    planned = _PlannedTree(
        store.tree(record.id, build.tree),
        nodes=tuple(refold.nodes.values()),
        parents=refold.parents,
        counts=counts,
    )
    loose = fold.provisional(state, settings)
    return await plan_update(open_run(planned), counts, loose, follow_strategy=False)


class _PlannedTree:
    """A stored tree as it would be after a re-pack whose nodes were never written.

    The planned nodes come after the stored ones. Nothing can be written: a dry run reads it.

    ``parents`` are the parents that stored nodes would get, by id; ``counts`` is the number of
    sealed nodes by level that the tree would have.
    """

    def __init__(
        self,
        stored: TreeStore,
        *,
        nodes: Sequence[Node],
        parents: Mapping[str, str],
        counts: Mapping[int, int],
    ) -> None:
        self._stored = stored
        self._nodes = {node.id: node for node in nodes}
        self._levels: dict[int, list[Node]] = {}
        for node in nodes:
            self._levels.setdefault(node.level, []).append(node)
        self._parents, self._counts = parents, dict(counts)

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Return the stored and planned nodes with these ids, in the order of ``ids``."""
        stored = await self._stored.nodes([id_ for id_ in ids if id_ not in self._nodes])
        found = {node.id: node for node in self._with_parents(stored)} | self._nodes
        return [found[id_] for id_ in ids if id_ in found]

    async def level(self, level: int, start: int, stop: int | None = None) -> list[Node]:
        """Return the sealed nodes of ``level`` in that range, the planned ones last."""
        stored = self._with_parents(await self._stored.level(level, start, stop))
        return stored + [
            node
            for node in self._levels.get(level, ())
            if node.ordinal >= start and (stop is None or node.ordinal < stop)
        ]

    async def levels(self) -> dict[int, int]:
        """Return the number of sealed nodes of each level that the tree would have."""
        return self._counts

    async def covering(self, thread: str, index: int) -> list[Node]:
        """Return the level-1 nodes of ``thread`` whose span holds the message."""
        stored = self._with_parents(await self._stored.covering(thread, index))
        return stored + [
            node
            for node in self._levels.get(1, ())
            if node.thread == thread and node.span.start <= index < node.span.stop
        ]

    async def provisional(self) -> list[Node]:
        """Return the stored nodes that are not sealed; none is planned."""
        return await self._stored.provisional()

    async def unfinished(self, level: int, after: int, limit: int) -> list[Node]:
        """Return up to ``limit`` unfinished nodes of ``level``; every planned node is one."""
        stored = self._with_parents(await self._stored.unfinished(level, after, limit))
        new = [node for node in self._levels.get(level, ()) if node.ordinal > after]
        return (stored + new)[:limit]

    async def outdated(
        self, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Return the stored nodes with another strategy; a planned node has no text."""
        return self._with_parents(await self._stored.outdated(level, strategies, after, limit))

    async def tally(self) -> list[NodeTally]:
        """Refuse: nothing that plans asks for totals."""
        raise AssertionError("a dry run adds nothing up: tally")

    async def revisions(self, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Return the stored revisions; planned nodes have none."""
        return await self._stored.revisions(wanted)

    async def write_nodes(
        self,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
        attempts_if_applied: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Refuse: a dry run does not write."""
        raise AssertionError("a dry run does not write: write_nodes")

    def _with_parents(self, stored: Sequence[Node]) -> list[Node]:
        return [
            replace(node, parent=self._parents[node.id]) if node.id in self._parents else node
            for node in stored
        ]


def _counts(build: Build) -> dict[int, int]:
    """Return the number of sealed nodes by level."""
    ordinals = SessionState.from_json(build.state).ordinals
    return {level: count for level, count in enumerate(ordinals, start=1) if count}
