"""Keeps the index of long sessions with their summaries and forks, so that no search builds it.

This module is imported with every session, so it loads the index only where one is worth keeping.
"""

from __future__ import annotations

import logging
from typing import Final

from hiermem.engine.handle import Handle
from hiermem.errors import StoreError
from hiermem.types import SessionRecord

_log = logging.getLogger("hiermem.search")

#: A search indexes fewer messages as fast as it reads what was kept; it keeps blocks of so many.
_LONG: Final = 256


async def store_index(handle: Handle, session_id: str, *, made: int) -> None:
    """Store what an index of the session lacks after an update that made ``made`` summaries."""
    record = await handle.store.session(session_id)
    if record is None or record.messages < _LONG or record.counter != handle.counter.name:
        return
    if not handle.indexes.is_due(record, made=made):
        return
    from hiermem.engine.search.summary_index import store_ahead

    await store_ahead(handle, record)


async def share_index(handle: Handle, source: SessionRecord, fork_id: str) -> None:
    """Store for a fork the blocks over the messages that it shares.

    ``source`` is the forked session as it was before. If its content has changed since, a block may
    hold what the fork does not, and none is taken any more.
    """
    if source.messages < _LONG:
        return
    from hiermem.engine.index import KIND, SHARED_AT_ONCE, STRIDE

    store = handle.store
    try:
        fork = await store.session(fork_id)
        stop = (fork.forked_at or 0) // STRIDE * STRIDE if fork else 0
        for first in range(0, stop, SHARED_AT_ONCE):
            blocks = await store.blocks(source.id, KIND, first, min(stop, first + SHARED_AT_ONCE))
            now = await store.session(source.id)
            if (
                fork is None
                or now is None
                or (now.created_at, now.epoch) != (source.created_at, source.epoch)
                or not await store.put_blocks(fork_id, blocks, epoch=fork.epoch)
            ):
                return
    except StoreError as error:
        _log.info("an index was not shared: %s", type(error).__name__)
