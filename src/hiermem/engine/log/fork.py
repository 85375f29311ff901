"""Forks a session. ``core.log.fork`` decides, inside the store's transaction."""

from __future__ import annotations

from functools import partial

from hiermem.core import arguments
from hiermem.core.log import fork as forking
from hiermem.core.log.weights import Weigher
from hiermem.core.text.policy import check_name
from hiermem.engine.handle import Handle, beginning


async def fork(
    handle: Handle, source_id: str, new_id: str, *, at: int | None = None, title: str | None = None
) -> int:
    """Make ``new_id`` a session that shares the first ``at`` messages (all of them, if it is None).

    Returns their number.

    Raises NotFoundError if the source does not have so many, and SessionExistsError.
    """
    check_name(new_id, what="session id")
    if at is not None:
        arguments.whole(at, "at")
    await handle.record(source_id)
    decide = partial(
        forking.fork,
        source_id,
        new_id,
        at=at,
        title=title,
        first_epoch=beginning(),
        now=handle.clock(),
        weigher=Weigher(handle.counter),
    )
    return await handle.store.transact(decide)
