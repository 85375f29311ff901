"""Has texts made anew on request, and lets a session go on under another configuration.

The one rule: what is decided is decided in ``core.summaries.recompress`` and
``core.log.reconfigure``, inside the store's transaction.
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
    """Mark made summaries of ``level`` for a new text; give their ids, in order.

    ``span`` is a range of message indices, (start, stop); those that cover any of it are marked,
    all where it is None, none where it is empty. The next update makes them, and what lies above
    where they come out different; the texts that they have serve until then.

    Raises NotFoundError, and UsageError for a level or span that cannot be.
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
    """Seal and group what comes from now on under ``config``; say whether it had another one.

    A full re-pack that is under way under another configuration begins anew under this one.

    Raises NotFoundError and SessionClosedError.
    """
    await handle.record(session_id)
    now, text = handle.clock(), config.to_json()
    changed = await handle.store.transact(
        lambda: reconfiguring.reconfigure(
            session_id, config=text, build_id=uuid.uuid4().hex, now=now
        )
    )
    handle.silence_warning(session_id)
    return changed
