"""Requests new texts for summaries, and changes a session's configuration.

``core.summaries.recompress`` and ``core.log.rebuild`` decide, inside the store's transaction.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import Final

from hiermem.config import HierarchyConfig
from hiermem.core.log import rebuild as rebuilding
from hiermem.core.log.rebuild import Backlog
from hiermem.core.log.weights import Weigher
from hiermem.core.summaries import recompress as recompressing
from hiermem.core.tree.stored import config_from
from hiermem.engine.handle import Handle

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
