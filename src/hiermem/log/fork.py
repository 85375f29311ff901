"""Forks a session. ``log.fork_plan`` decides, inside the store's transaction."""

from __future__ import annotations

from functools import partial

from hiermem import arguments
from hiermem.handle import Handle, beginning
from hiermem.log import fork_plan as forking
from hiermem.text.policy import check_name
from hiermem.tree.weights import Weigher


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
