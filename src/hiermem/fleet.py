"""One session's update by its name, for job queues that run it on any machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hiermem import arguments
from hiermem.api.memory import AsyncMemory
from hiermem.config import Limits
from hiermem.errors import UsageError
from hiermem.summaries.reports import UpdateReport
from hiermem.text.policy import check_name
from hiermem.work import turns


async def update_one(
    memory_for: Callable[[str], AsyncMemory],
    tenant: str,
    session: str | None = None,
    *,
    space: str | None = None,
    limits: Limits | None = None,
) -> UpdateReport:
    """Make what one session lacks; the report says if there is more.

    With a ``space`` instead, that learns what its people said, if it is due. Without ``limits`` no
    model call is begun after 50 seconds.

    ``memory_for`` returns the memory of a tenant; ``memory.for_tenant`` does. It may be called any
    number of times, at once and on many machines, also for a session that has nothing to make or is
    deleted. A summary that another process has claimed is left to that process, so nothing is made
    twice. Nothing is kept between two calls. If there is nothing to do, the session is listed as
    due no more.

    Raises what ``session.update`` raises, but no NotFoundError. Summaries that were made before the
    error stay, and the session becomes due again.
    """
    limits = arguments.optional(limits, "limits", Limits, partial(Limits, deadline=50.0))
    tenant = check_name(tenant, what="tenant")
    memory = arguments.function(memory_for, "memory_for")(tenant)
    if not isinstance(memory, AsyncMemory):
        raise UsageError(
            f"memory_for returned {type(memory).__name__}; it must return an AsyncMemory"
        )
    resources = memory._resources  # noqa: SLF001 - of this package
    if (session is None) == (space is None):
        raise UsageError("pass a session or a space to update, and not both")
    handle, shared = resources.opened(), resources.shared
    if space is not None:
        name = check_name(space, what="space")
        return await turns.learn_one(handle, name, shared, limits=limits)
    name = check_name(session or "", what="session id")
    return await turns.update_one(handle, name, shared, limits=limits)
