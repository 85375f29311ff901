"""Brings a session's summaries up to date: takes nodes in order, makes their texts, commits them.

Nothing is lost and nothing is made twice. Whoever asks a remote model holds the session's claim;
every commit is a compare-and-swap. A run that ends early, by a cap, an error, a
cancellation or a kill, leaves its nodes where the next run finds them. ``summaries`` decides
which node is next, what it needs and what a failure means. New texts for summaries, and another
configuration for a session, are asked for here too.

Re-packs a session next to the serving tree, and lets the new tree serve when it is complete.

::

    begin -> catch up with the log -> make what is unmade -> swap
                  ^                                |
                  +-------- the log has grown -----+

The whole state of a re-pack is in the store: killed at any point, the next one under the same
configuration resumes it. The serving tree is not touched before the swap, which is one transaction.
``log.rebuild`` decides what each step does.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal, TypeAlias

from hiermem.calls.budget import Budget, shielded
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import HiermemError, NotFoundError
from hiermem.handle import Handle, session_state
from hiermem.log import rebuild as rebuilding
from hiermem.log import rebuild as repack_steps
from hiermem.log.rebuild import Backlog
from hiermem.log.trees import Build
from hiermem.protocols import TenantStore, TokenCounter, TreeStore
from hiermem.summaries import recompress as recompressing
from hiermem.summaries.agenda import PAGE
from hiermem.summaries.commit import SessionClaim
from hiermem.summaries.dry_run import plan_update
from hiermem.summaries.due import pause_after
from hiermem.summaries.plan import UpdatePlan, UpdateReport
from hiermem.summaries.rounds import Progress, UpdateRounds
from hiermem.summaries.run import Shared, UpdateRun, read_flagged, read_outdated, read_pages
from hiermem.tree import levels as status
from hiermem.tree.fold import SessionState, config_from
from hiermem.tree.levels import waits
from hiermem.tree.weights import Weigher
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
    *,
    waits: bool,
) -> UpdateReport:
    """Re-pack the session under ``config``, resuming an earlier attempt.

    With ``waits`` it waits for a session that another run holds.

    Raises NotFoundError where the session is gone, and what the store raises.
    """
    build_id = uuid.uuid4().hex
    build = await store.transact(
        lambda: repack_steps.begin(record.id, config=config, build_id=build_id)
    )
    if build is None:
        raise NotFoundError(f"session {record.id!r} does not exist")
    run = open_run(store.tree(record.id, build.tree))
    rounds = UpdateRounds(run, None, on_progress, repack=True, waits=waits)
    return await rounds.work(_rounds(run, build, rounds))


async def _rounds(
    run: UpdateRun, build: Build, rounds: UpdateRounds
) -> AsyncGenerator[Mapping[int, int], None]:
    """Yield the nodes of each round, which is what is sealed by now; then swap.

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
            yield counts
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
    run = open_run(store.tree(record.id, build.tree))
    counts = _counts(replace(build, state=refold.state.to_json()))
    return await plan_update(run, counts, refold.nodes.values(), follow_strategy=False)


def _counts(build: Build) -> dict[int, int]:
    """Return the number of sealed nodes by level."""
    ordinals = SessionState.from_json(build.state).ordinals
    return {level: count for level, count in enumerate(ordinals, start=1) if count}


_log = logging.getLogger("hiermem.update")

#: What an update does: make what is missing or dirty, or re-pack everything.
UpdateStrategy: TypeAlias = Literal["incremental", "full"]


async def update(
    handle: Handle,
    session_id: str,
    shared: Shared,
    *,
    config: HierarchyConfig | None = None,
    policy: UpdatePolicy | None = None,
    level: int | None = None,
    on_progress: Progress | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    dry_run: bool = False,
    strategy: UpdateStrategy = "incremental",
    record: SessionRecord | None = None,
    claim: SessionClaim | None = None,
) -> UpdateReport | UpdatePlan:
    """Make the summaries that are missing, failed, dirty or degraded, up to ``level`` if given.

    ``shared`` has the models, and what the run has in common with runs of other sessions.
    ``max_calls`` and ``max_tokens`` cap the run; ``deadline`` is in seconds from now. A cap ends
    the run before the call that would exceed it, and the report says so. ``on_progress`` is called
    after every commit. With ``dry_run`` nothing is written or called, and the plan is returned.
    ``policy`` is the handle's if it is None. ``record`` is the session's record, if the caller has
    just read it.

    With a remote model the session is claimed, where there is something to make. If another run
    holds it, this one waits, until the deadline or until nothing is left of what waited to be made.
    With a ``claim`` of the caller it does not wait, and the caller settles it.

    With ``strategy="full"`` the whole session is re-packed under ``config``, next to the serving
    tree, which the new one replaces at the end; a re-pack that ended early is resumed by the next.
    Without a ``config`` it is made under the handle's, anything else under the session's own.

    The callers refuse what makes no sense, such as a negative cap or a ``level`` with a full
    re-pack. Raises NotFoundError for an unknown session, CounterMismatchError, and what the store
    raises; what was committed until then stays.
    """
    store = handle.store
    record = record or await handle.record(session_id)
    config = config or await handle.config_for(record, repack=strategy == "full")
    budget = Budget(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=deadline,
        clock=shared.clock,
        parents=(*shared.parents, *handle.caps(session_id)),
    )
    waits = claim is None
    if claim is None and shared.llm.remote:
        claim = SessionClaim(handle, session_id)
    open_here = partial(
        UpdateRun,
        handle,
        record=record,
        config=config,
        policy=policy or handle.update_policy,
        budget=budget,
        shared=shared,
        claim=claim,
    )
    if strategy == "full":
        if dry_run:
            return await plan_repack(store, record, config.to_json(), open_here, handle.counter)
        remaking = repack(store, record, config.to_json(), open_here, on_progress, waits=waits)
        return await _settled(remaking, claim if waits else None)
    # What is sealed meanwhile is left to the next update. A re-pack may replace the tree meanwhile;
    # what is still made for the old tree is then discarded.
    run = open_here(store.tree(session_id, record.tree))
    counts = {
        number: count
        for number, count in enumerate(session_state(record).ordinals, start=1)
        if level is None or number <= level
    }
    if dry_run:
        return await plan_update(run, counts)

    async def once() -> AsyncGenerator[Mapping[int, int], None]:
        await _mark(run, counts)
        yield counts

    rounds = UpdateRounds(run, level, on_progress, waits=waits)
    return await _settled(rounds.work(once()), claim if waits else None)


async def _mark(run: UpdateRun, counts: Mapping[int, int]) -> None:
    """Mark dirty what is made anew by the policy alone, among the first nodes of each level.

    These are texts of an outdated strategy, since another prompt, model or ratio does not make a
    text untrue, and those that an edit touched.
    """
    for level, stop in sorted(counts.items()):
        for read in (read_outdated, read_flagged):
            async for page in read(run, level, stop):
                now = run.now()
                if page:
                    await run.tree.write_nodes(
                        [status.write(node, status.mark_dirty(node, now=now)) for node in page]
                    )


async def _settled(working: Awaitable[UpdateReport], claim: SessionClaim | None) -> UpdateReport:
    """Settle the claim that a run took, however it ends; return the run's report."""
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


#: How often a backlog is folded beside the store before it is folded inside a transaction.
_TRIES: Final = 3


async def recompress(
    handle: Handle, session_id: str, level: int, span: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Mark summaries of ``level`` for a new text; return their ids, in order.

    ``span`` is a range of message indices, (start, stop). Summaries that cover any of it are
    marked: all where it is None, none where it is empty. The next update makes the new texts, and
    those above where they differ; the present texts serve until then.

    Raises NotFoundError.
    """
    await handle.record(session_id)
    now = handle.clock()
    return await handle.store.transact(
        lambda: recompressing.recompress(session_id, level=level, span=span, now=now)
    )


async def reconfigure(handle: Handle, session_id: str, config: HierarchyConfig) -> bool:
    """Seal and group messages under ``config``; return whether that is a change.

    The messages of open windows are folded again under it. A full re-pack that is under way under
    another configuration is restarted under this one.

    Raises NotFoundError and SessionClosedError.
    """
    now, text, build_id = handle.clock(), config.to_json(), uuid.uuid4().hex
    weigher = Weigher(handle.counter)
    changed: bool | None = None
    for left in range(_TRIES, -1, -1):
        backlog = None
        record = await handle.record(session_id)
        if left and config_from(record.config) != config:
            backlog = Backlog(record, config, weigher)
            while stretch := backlog.left():
                page = await handle.messages(session_id, *stretch)
                await asyncio.to_thread(backlog.feed, page)
        changed = await handle.store.transact(
            partial(
                rebuilding.reconfigure,
                session_id,
                config=text,
                build_id=build_id,
                now=now,
                weigher=weigher,
                backlog=backlog,
                wait=left > 0,
            )
        )
        if changed is not None:
            break
    handle.silence_warning(session_id)
    return bool(changed)
