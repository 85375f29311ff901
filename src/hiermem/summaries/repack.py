"""Runs a re-pack: makes a new tree beside the serving one, and swaps it in when it is complete.

::

    begin -> catch up with the log -> make what is unmade -> swap
                  ^                                |
                  +-------- the log has grown -----+

Its whole state is in the store: killed at any point, the next one under the same configuration
resumes it. The serving tree is unchanged until the swap, which is one transaction. ``log.rebuild``
decides what each step does.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hiermem.config import HierarchyConfig
from hiermem.errors import NotFoundError
from hiermem.handle import Handle
from hiermem.log import rebuild
from hiermem.log.trees import Build
from hiermem.protocols import TreeStore
from hiermem.summaries.claim import PAGE
from hiermem.summaries.dry_run import plan_update
from hiermem.summaries.node import UpdateRun, read_pages
from hiermem.summaries.reports import UpdatePlan
from hiermem.tree import status
from hiermem.tree.fold import SessionState
from hiermem.tree.windows import Weigher
from hiermem.types import SessionRecord
from hiermem.types.transaction import LogEvent

if TYPE_CHECKING:
    from hiermem.summaries.update import UpdateRounds


async def begin(handle: Handle, session_id: str, config: HierarchyConfig) -> Build:
    """Return the build of a re-pack under ``config``: that of an earlier attempt, or a new one.

    Raises NotFoundError if the session is gone, and the store's errors.
    """
    begun = partial(rebuild.begin, session_id, config=config.to_json(), build_id=uuid.uuid4().hex)
    build = await handle.store.transact(begun)
    if build is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    return build


async def plan(
    handle: Handle,
    record: SessionRecord,
    config: HierarchyConfig,
    open_run: Callable[[TreeStore], UpdateRun],
) -> UpdatePlan:
    """Plan a re-pack under ``config``: fold the log to its end, and write nothing."""
    store, build = handle.store, Build.from_json(record.build)
    if build is None or build.config != config.to_json():
        build = rebuild.new_build(record, build, config=config.to_json(), build_id="")
    refold = rebuild.Refold(config, SessionState.from_json(build.state))
    events, folded = await store.events(record.id), build.at
    while True:
        stop = min(record.messages, folded + PAGE)
        due = rebuild.due(build, events, stop)
        if stop == folded and not due:
            break
        messages = await store.messages(record.id, folded, stop)
        weigher = Weigher(handle.counter)
        arrivals, _ = await asyncio.to_thread(rebuild.measured, messages, config, weigher)
        refold.fold_in(arrivals, due)
        build, folded = replace(build, at=stop, events=build.events + len(due)), stop
    run = open_run(store.tree(record.id, build.tree))
    counts = _counts(replace(build, state=refold.state.to_json()))
    return await plan_update(run, counts, refold.nodes.values(), follow_strategy=False)


async def make(run: UpdateRun, build: Build, rounds: UpdateRounds) -> None:
    """Make the build round by round; then swap.

    A round that left a node unmade although nothing changed meanwhile is the last.
    """
    before: tuple[Build, int] | None = None
    if not await rounds.begin():
        return
    while (caught_up := await _catch_up(run, build)) is not None:
        record, build = caught_up
        counts, now = _counts(build), (build, rounds.done)
        if await _unmade(run, counts):
            if now == before or (before is not None and rounds.halted):
                return
            before = now
            await rounds.make(counts)
        elif await _swap(run, build, record):
            rounds.swapped = True
            return


async def _catch_up(run: UpdateRun, build: Build) -> tuple[SessionRecord, Build] | None:
    """Fold the log into the build; None if the build is gone or the time is up."""
    store, id_ = run.store, run.subject
    events: list[LogEvent] = []
    read_to = 0
    while run.budget.stop_reason() is None:
        record = await store.session(id_)
        now = Build.from_json(record.build) if record else None
        if record is None or now is None or now.id != build.id:
            return None
        if now.at >= read_to and not rebuild.due(now, events, now.at):
            # Unread events come after all earlier messages.
            events, read_to = await store.events(id_), record.messages
        stop = max(now.at, min(read_to, now.at + rebuild.PAGE))
        due = rebuild.due(now, events, stop)
        if stop == now.at and not due:
            return record, now
        messages = await store.messages(id_, now.at, stop)
        page = await asyncio.to_thread(rebuild.measured, messages, run.config, Weigher(run.counter))
        await store.transact(partial(rebuild.advance, id_, now, page, due, epoch=record.epoch))
    return None


async def _unmade(run: UpdateRun, counts: Mapping[int, int]) -> bool:
    """Return whether a node of the build still needs a text; a stand-in counts as one."""
    for level, stop in counts.items():
        async for page in read_pages(partial(run.tree.unfinished, level), stop):
            if any(map(status.waits, page)):
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
                rebuild.sizes_of, page, run.config, Weigher(run.counter)
            )
    now = run.now()
    return await store.transact(
        lambda: rebuild.swap(record.id, build, sizes, epoch=record.epoch, when=now)
    )


def _counts(build: Build) -> dict[int, int]:
    """Return the number of sealed nodes by level."""
    ordinals = SessionState.from_json(build.state).ordinals
    return {level: count for level, count in enumerate(ordinals, start=1) if count}
