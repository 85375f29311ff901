"""Requests new texts for summaries, and changes a session's configuration.

``core.summaries.recompress`` and ``core.log.reconfigure`` decide, inside the store's transaction.
"""

from __future__ import annotations

import uuid

from hiermem.config import HierarchyConfig
from hiermem.core.log import reconfigure as reconfiguring
from hiermem.core.summaries import recompress as recompressing
from hiermem.engine.handle import Handle
from hiermem.errors import UsageError


async def recompress(
    handle: Handle, session_id: str, level: int, span: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Mark summaries of ``level`` for a new text; return their ids, in order.

    ``span`` is a range of message indices, (start, stop). Summaries that cover any of it are
    marked: all where it is None, none where it is empty. The next update makes the new texts, and
    those above where they differ; the present texts serve until then.

    Raises NotFoundError, and UsageError for an impossible level or span.
    """
    if level < 1:
        raise UsageError(f"level is {level}; levels begin at 1")
    if span is not None and not 0 <= span[0] <= span[1]:
        raise UsageError(f"span is {span}; it must be (start, stop) with 0 <= start <= stop")
    await handle.record(session_id)
    now = handle.clock()
    return await handle.store.transact(
        lambda: recompressing.recompress(session_id, level=level, span=span, now=now)
    )


async def reconfigure(handle: Handle, session_id: str, config: HierarchyConfig) -> bool:
    """Seal and group new messages under ``config``; return whether that is a change.

    A full re-pack that is under way under another configuration is restarted under this one.

    Raises NotFoundError and SessionClosedError.
    """
    await handle.record(session_id)
    now, text, build_id = handle.clock(), config.to_json(), uuid.uuid4().hex
    changed = await handle.store.transact(
        lambda: reconfiguring.reconfigure(session_id, config=text, build_id=build_id, now=now)
    )
    handle.silence_warning(session_id)
    return changed
