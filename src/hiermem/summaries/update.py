"""Runs a session's update: makes its nodes level by level, and commits each as it is done.

Nothing is lost and nothing is made twice. Whoever asks a remote model holds the session's claim;
every commit is a compare-and-swap. A run that ends early, by a cap, an error, a cancellation or a
kill, leaves its nodes for the next run. New texts for summaries, and another configuration for a
session, are requested here too.

A re-pack makes a new tree beside the serving one, and swaps it in when it is complete::

    begin -> catch up with the log -> make what is unmade -> swap
                  ^                                |
                  +-------- the log has grown -----+

Its whole state is in the store: killed at any point, the next one under the same configuration
resumes it. The serving tree is unchanged until the swap, which is one transaction. ``log.rebuild``
decides what each step does.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from hiermem.calls.budget import Budget
from hiermem.calls.retry import shielded
from hiermem.config import HierarchyConfig, Limits, UpdatePolicy, UpdateStrategy
from hiermem.errors import HiermemError, NotFoundError
from hiermem.handle import Handle, session_state
from hiermem.log import rebuild
from hiermem.log.trees import Build
from hiermem.protocols import TreeStore
from hiermem.summaries import plan
from hiermem.summaries.claim import PAGE, SessionClaim
from hiermem.summaries.dry_run import plan_update
from hiermem.summaries.due import pause_after
from hiermem.summaries.node import Shared, UpdateRun, read_outdated, read_pages
from hiermem.summaries.reports import UpdatePlan, UpdateReport
from hiermem.summaries.rounds import Progress, UpdateRounds
from hiermem.tree import status
from hiermem.tree.fold import SessionState
from hiermem.tree.windows import Weigher
from hiermem.types import SessionRecord
from hiermem.types.transaction import LogEvent

#: Opens a run over a tree.
OpenRun = Callable[[TreeStore], UpdateRun]
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
    if strategy == "full":
        if dry_run:
            return await _plan_repack(handle, record, config, open_run)
        working = _repack(handle, record, config, open_run, on_progress, waits=claim is None)
        return await _settled(working, own_claim)
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

    return await _settled(UpdateRounds(run, on_progress, waits=claim is None).work(task), own_claim)


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


async def _repack(
    handle: Handle,
    record: SessionRecord,
    config: HierarchyConfig,
    open_run: OpenRun,
    on_progress: Progress | None,
    *,
    waits: bool,
) -> UpdateReport:
    """Re-pack the session under ``config``, resuming an earlier attempt.

    With ``waits`` it waits for a session that another run holds.

    Raises NotFoundError if the session is gone, and the store's errors.
    """
    begin = partial(rebuild.begin, record.id, config=config.to_json(), build_id=uuid.uuid4().hex)
    build = await handle.store.transact(begin)
    if build is None:
        raise NotFoundError(f"session {record.id!r} does not exist")
    run = open_run(handle.store.tree(record.id, build.tree))
    rounds = UpdateRounds(run, on_progress, repack=True, waits=waits)
    return await rounds.work(partial(_make, run, build))


async def _plan_repack(
    handle: Handle, record: SessionRecord, config: HierarchyConfig, open_run: OpenRun
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


async def _make(run: UpdateRun, build: Build, rounds: UpdateRounds) -> None:
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
