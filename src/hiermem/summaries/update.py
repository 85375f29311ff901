"""Runs a session's update: makes its nodes level by level, and commits them.

Nothing is lost and nothing is made twice. Whoever asks a remote model holds the session's claim;
every commit is a compare-and-swap. A run that ends early, by a cap, an error, a cancellation or a
kill, leaves its nodes for the next run. New texts for summaries, and another configuration for a
session, are requested here too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

from hiermem.calls.budget import Budget
from hiermem.calls.retry import shielded
from hiermem.config import HierarchyConfig, UpdatePolicy, UpdateStrategy
from hiermem.errors import HiermemError
from hiermem.handle import Handle, session_state
from hiermem.log import rebuild
from hiermem.log.rebuild import Backlog
from hiermem.summaries import recompress as recompressing
from hiermem.summaries.claim import SessionClaim
from hiermem.summaries.dry_run import plan_update
from hiermem.summaries.due import pause_after
from hiermem.summaries.repack import plan_repack, repack
from hiermem.summaries.reports import UpdatePlan, UpdateReport
from hiermem.summaries.rounds import Progress, UpdateRounds
from hiermem.summaries.run import Shared, UpdateRun, read_flagged, read_outdated
from hiermem.tree import status
from hiermem.tree.fold import config_from
from hiermem.tree.weights import Weigher
from hiermem.types import SessionRecord

_log = logging.getLogger("hiermem.update")
#: How often a backlog is folded beside the store before it is folded inside a transaction.
_TRIES: Final = 3


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
    """Make the missing, failed, dirty or degraded summaries, up to ``level`` if given.

    ``shared`` has the models, and what the run shares with runs of other sessions.
    ``max_calls`` and ``max_tokens`` cap the run; ``deadline`` is in seconds from now. A cap ends
    the run before the call that would exceed it, and the report says so. ``on_progress`` is called
    after every commit. With ``dry_run`` nothing is written or called, and the plan is returned.
    ``policy`` is the handle's if it is None. ``record`` is the session's record, if the caller has
    just read it.

    With a remote model the session is claimed if there is something to make. If another run holds
    it, this one waits until the deadline, or until the other has made all waiting nodes. With a
    ``claim`` of the caller it does not wait, and the caller settles it.

    With ``strategy="full"`` the whole session is re-packed under ``config``, next to the serving
    tree, which the new one replaces at the end; a re-pack that ended early is resumed by the next.
    Without a ``config`` it is made under the handle's, anything else under the session's own.

    The callers check the arguments, such as a negative cap or a ``level`` with a full re-pack.
    Raises NotFoundError for an unknown session, ConflictError, and the store's errors;
    earlier commits stay.
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
    # Nodes sealed meanwhile are left to the next update. If a re-pack replaces the tree meanwhile,
    # later texts for the old tree are discarded.
    run = open_here(store.tree(session_id, record.tree))
    counts = {
        number: count
        for number, count in enumerate(session_state(record).ordinals, start=1)
        if level is None or number <= level
    }
    if dry_run:
        return await plan_update(run, counts)

    async def task(rounds: UpdateRounds) -> None:
        await _mark(run, counts)
        await rounds.make(counts)

    rounds = UpdateRounds(run, on_progress, waits=waits)
    return await _settled(rounds.work(task), claim if waits else None)


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
        lambda: recompressing.recompress(session_id, level=level, span=span, now=now)
    )


async def reconfigure(handle: Handle, session_id: str, config: HierarchyConfig) -> bool:
    """Seal and group messages under ``config`` from now on; return whether that is a change.

    The messages of open windows are folded again under it. A full re-pack under way under another
    configuration is restarted under this one.

    Raises NotFoundError and ClosedError.
    """
    now, text, build_id = handle.clock(), config.to_json(), uuid.uuid4().hex
    weigher = Weigher(handle.counter)
    changed: bool | None = None
    for tries_left in range(_TRIES, -1, -1):
        backlog = None
        record = await handle.record(session_id)
        if tries_left and config_from(record.config) != config:
            backlog = Backlog(record, config, weigher)
            while stretch := backlog.left():
                page = await handle.messages(session_id, *stretch)
                await asyncio.to_thread(backlog.feed, page)
        changed = await handle.store.transact(
            partial(
                rebuild.reconfigure,
                session_id,
                config=text,
                build_id=build_id,
                now=now,
                weigher=weigher,
                backlog=backlog,
                wait=tries_left > 0,
            )
        )
        if changed is not None:
            break
    handle.silence_warning(session_id)
    return bool(changed)


async def _mark(run: UpdateRun, counts: Mapping[int, int]) -> None:
    """Mark the texts dirty that only the policy renews, among the first nodes of each level.

    They are those of an outdated strategy, since another prompt, model or ratio does not make a
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
    """Settle a run's claim, however the run ends; return its report."""
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
