"""One session's update by its name, for job queues that run it on any machine."""

from __future__ import annotations

from collections.abc import Callable

from hiermem import arguments
from hiermem.api.memory import AsyncMemory
from hiermem.errors import UsageError
from hiermem.summaries.reports import UpdateReport
from hiermem.text.policy import check_name
from hiermem.work.turns import learn_one
from hiermem.work.turns import update_one as run_update_one


async def update_one(
    memory_for: Callable[[str], AsyncMemory],
    tenant: str,
    session: str | None = None,
    *,
    space: str | None = None,
    deadline: float = 50.0,
) -> UpdateReport:
    """Make what one session lacks, in about ``deadline`` seconds; the report says if there is more.

    With a ``space`` instead, that learns what its people said, if it is due.

    ``memory_for`` returns the memory of a tenant; ``memory.for_tenant`` does. It may be called any
    number of times, at once and on many machines, also for a session that has nothing to make or is
    deleted. A summary that another process has claimed is left to that process, so nothing is made
    twice. No model call is begun after ``deadline`` seconds; calls in flight are finished. Nothing
    is kept between two calls. If there is nothing to do, the session is listed as due no more.

    Raises what ``session.update`` raises, but no NotFoundError. Summaries that were made before the
    error stay, and the session becomes due again.
    """
    arguments.seconds(deadline, "deadline")
    tenant = check_name(tenant, what="tenant")
    memory = arguments.function(memory_for, "memory_for")(tenant)
    if not isinstance(memory, AsyncMemory):
        raise UsageError(
            f"memory_for returned {type(memory).__name__}; it must return an AsyncMemory"
        )
    resources = memory._resources  # noqa: SLF001 - of this package
    if space is not None and session is None:
        name = check_name(space, what="space")
        return await learn_one(resources.opened(), name, resources.shared, deadline=deadline)
    if session is None or space is not None:
        raise UsageError("pass a session or a space to update, and not both")
    return await run_update_one(
        resources.opened(),
        check_name(session, what="session id"),
        resources.shared,
        deadline=deadline,
    )
