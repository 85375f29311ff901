"""Finds which sessions have something to make now, and at which level.

The probe only reads. It reports no work that could not begin: a node that backs off, is held by
another worker, or has a child without a text does not count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final

from hiermem.core.summaries.agenda import PAGE
from hiermem.core.summaries.status import standing
from hiermem.core.tree.fold import idle_tick
from hiermem.core.tree.stored import config_from
from hiermem.engine.handle import Handle, every_session, state_from
from hiermem.engine.summaries.run import UpdateRun, read_outdated
from hiermem.engine.worker.pool import UpdatePool
from hiermem.errors import ClockMovedError, HiermemError, StoreCorruptError, StoreError
from hiermem.protocols import TenantStore, TreeStore
from hiermem.types import Node, SessionRecord

#: Sessions listed at once.
_LISTED: Final = 500


async def backlog(store: TenantStore) -> AsyncIterator[str]:
    """Yield the sessions with unfinished nodes, each once, in the order of their creation."""
    seen: set[str] = set()
    after: str | None = None
    while True:
        page = await store.backlog(after=after, limit=_LISTED)
        fresh = [session_id for session_id in page if session_id not in seen]
        seen.update(fresh)
        for session_id in fresh:
            yield session_id
        # Where the session that the page began after is gone, the list may start over.
        if len(page) < _LISTED or not fresh:
            return
        after = page[-1]


async def probe(
    store: TenantStore,
    session_id: str,
    *,
    now: datetime,
    skip: Callable[[Node], bool] | None = None,
) -> tuple[int | None, bool]:
    """Find the lowest level at which something can be made, other than the nodes to ``skip``.

    None where nothing can. The second value tells whether a node was passed over that another
    worker holds.
    """
    leased = False
    async for node, free in workable(store, session_id, now=now):
        if skip is not None and skip(node):
            continue
        if free:
            return node.level, leased
        leased = True
    return None, leased


async def workable(
    store: TenantStore, session_id: str, *, now: datetime
) -> AsyncIterator[tuple[Node, bool]]:
    """Yield the unfinished nodes that have their inputs and are free, lowest level first.

    Nodes that another run holds come too, with False.
    """
    tree = store.tree(session_id)
    for level in sorted(await tree.levels()):
        after = -1
        while True:
            page = await tree.unfinished(level, after, PAGE)
            for node in page:
                ready = standing(node, now=now)
                if ready == "leased":
                    yield node, False
                elif ready == "free" and await _inputs_ready(tree, node):
                    yield node, True
            if len(page) < PAGE:
                break
            after = page[-1].ordinal


async def _inputs_ready(tree: TreeStore, node: Node) -> bool:
    """Return whether everything that ``node`` is made from has a text."""
    if not node.children:
        return True
    children = await tree.nodes(node.children)
    return len(children) == len(node.children) and all(child.revision for child in children)


async def sessions_with_work(handle: Handle, *, by_time: bool = False) -> list[str]:
    """Return the sessions that have something to make, in the order of their creation.

    With ``by_time`` that includes those in which time closes a window now.
    """
    behind = {session_id async for session_id in backlog(handle.store)}
    return [
        record.id
        async for record in every_session(handle.store)
        if record.id in behind
        or (by_time and closes_by_time(handle, record))
        or await lacks_vectors(handle, record)
    ]


def closes_by_time(handle: Handle, record: SessionRecord) -> bool | None:
    """Return whether time closes a window of a session now; None: not before it changes."""
    if record.closed or not record.state:
        return False
    try:
        config = config_from(record.config)
        idle = handle.store_now() - record.last_activity
        if idle_tick(state_from(record.state), config, idle) is not None:
            return True
    except HiermemError:
        return False
    limits = [limit for limit in (config.max_age, config.flush_after) if limit is not None]
    return None if not config.enabled or all(idle > limit for limit in limits) else False


async def lacks_vectors(handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session may lack vectors, where there is an embedder."""
    if handle.embedder is None:
        return False
    # The vector code is loaded only where there is an embedder.
    from hiermem.engine.search.vectors import lacks

    return await lacks(handle, record)


async def has_outdated(pool: UpdatePool, handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session has texts of an outdated strategy that the policy replaces.

    This may read all nodes of the session.
    """
    if not handle.update_policy.follow_strategy or record.counter != handle.counter.name:
        return False
    try:
        tree = handle.store.tree(record.id)
        run = UpdateRun(
            handle,
            tree,
            record=record,
            config=config_from(record.config),
            policy=handle.update_policy,
            budget=pool.budget,
            shared=pool.shared,
        )
        for level, stop in (await tree.levels()).items():
            async for page in read_outdated(run, level, stop):
                if page:
                    return True
    except HiermemError as error:
        if not is_of_session(error):
            raise
    return False


def is_of_session(error: HiermemError) -> bool:
    """Return whether an error concerns one session, so that others can be worked on."""
    of_session = isinstance(error, (StoreCorruptError, ClockMovedError))
    return of_session or not isinstance(error, StoreError)
