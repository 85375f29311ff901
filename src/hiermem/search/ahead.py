"""Runs an update, and stores search indexes meanwhile, so that no search has to build them.

It keeps the indexes of long sessions, of forks and over all sessions. Every session imports this
module, so it loads the index only if one is worth keeping.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from hiermem.errors import HiermemError, NotFoundError, StoreError
from hiermem.handle import Handle
from hiermem.summaries.reports import UpdateReport
from hiermem.types import SessionRecord

_log = logging.getLogger("hiermem.search")

#: A search indexes fewer messages as fast as it would read their stored index.
_LONG: Final = 256
#: Seconds after which an update that still runs has sent its first calls.
_HEAD_START: Final = 0.1
#: One in this many updates of short sessions looks at the index over all sessions.
_UPDATES: Final = 16


async def with_index(
    handle: Handle,
    session_id: str,
    update: Awaitable[UpdateReport],
    *,
    within: float | None = None,
) -> UpdateReport:
    """Run an update and store the missing parts of the session's index, messages meanwhile.

    If a cap ends the update, or storing takes longer than ``within`` seconds, the rest is left to
    the next update or search.
    """
    until = None if within is None else asyncio.get_running_loop().time() + within
    ended = asyncio.Event()
    index = asyncio.create_task(_store_messages(handle, session_id, ended))
    try:
        report = await update
        ended.set()
        if report.stopped is None:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    stored = await index
                    if stored or report.made >= _LONG:
                        record = await _long_session(handle, session_id)
                        if record is not None:
                            from hiermem.search.summaries import store_ahead

                            await store_ahead(handle, record)
                    await _keep_over_all(handle, now=stored)
        return report
    finally:
        index.cancel()
        await asyncio.gather(index, return_exceptions=True)


async def _store_messages(handle: Handle, session_id: str, ended: asyncio.Event) -> bool:
    """Store the due part of a session's message index; return whether anything was due.

    Gives the update time to send its first calls.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_HEAD_START):
            await ended.wait()
    record = await _long_session(handle, session_id)
    if record is None or not handle.indexes.is_due(record):
        return False
    try:
        await handle.indexes.store_ahead(record)
    except (StoreError, NotFoundError) as error:
        _log.info("an index was not stored: %s", type(error).__name__)
    return True


async def _keep_over_all(handle: Handle, *, now: bool) -> None:
    """Keep the index over all sessions, if there is one; without ``now`` at few updates only."""
    handle.indexes.updates += 1
    if not now and handle.indexes.updates < _UPDATES:
        return
    handle.indexes.updates = 0
    from hiermem.search.tenant_index import keep

    try:
        await keep(handle)
    except HiermemError as error:
        _log.info("the index over all sessions was not kept: %s", type(error).__name__)


async def _long_session(handle: Handle, session_id: str) -> SessionRecord | None:
    """Return the session's record if its index is worth storing, None if not or if unreadable.

    An update must not fail because of an index.
    """
    try:
        record = await handle.store.session(session_id)
    except StoreError as error:
        _log.info("an index was not stored: %s", type(error).__name__)
        return None
    if record is None or record.messages < _LONG or record.counter != handle.counter.name:
        return None
    return record


async def share_index(handle: Handle, source: SessionRecord, fork_id: str) -> None:
    """Store for a fork the blocks over the messages that it shares.

    ``source`` is the forked session as it was before. If its content has changed since, a block may
    hold messages that the fork lacks, so no further block is taken.
    """
    if source.messages < _LONG:
        return
    from hiermem.search.indexes import KIND, SHARED_AT_ONCE, STRIDE

    store = handle.store
    try:
        fork = await store.session(fork_id)
        stop = (fork.forked_at or 0) // STRIDE * STRIDE if fork else 0
        for first in range(0, stop, SHARED_AT_ONCE):
            blocks = await store.blocks(source.id, KIND, first, min(stop, first + SHARED_AT_ONCE))
            if (
                fork is None
                or not await handle.is_unchanged(source)
                or not await store.put_blocks(fork_id, blocks, epoch=fork.epoch)
            ):
                return
    except StoreError as error:
        _log.info("an index was not shared: %s", type(error).__name__)
