"""Runs updates as jobs of procrastinate, the queue that keeps its jobs in PostgreSQL.

::

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DSN))
    memory = await AsyncMemory.open(DSN, llm=model)
    add_tasks(app, memory)
    await app.run_worker_async()

A job says which session of which tenant to look at, and nothing else. Whether there is something to
make, and who makes it, is in the store. So a job that is lost is sent again by a later dispatch, a
job that is repeated costs a look, and no job is ever retried. Each process that works has the tasks
of its own memory. It needs the extra ``procrastinate``.
"""

# The queue is an extra that need not be there.
# pyright: reportMissingImports=false, reportFunctionMemberAccess=false

from __future__ import annotations

import hashlib

from procrastinate import App, exceptions

from hiermem import AsyncMemory, Limits, UsageError
from hiermem.fleet import update_one

__all__ = ["add_tasks"]


def add_tasks(
    app: App,
    memory: AsyncMemory,
    *,
    queue: str = "hiermem",
    limits: Limits | None = None,
    every: str = "* * * * * */5",
    most: int = 1000,
) -> None:
    """Add the tasks to ``app``: one that it runs from time to time, and one for each session.

    ``update_session`` makes what a session lacks within ``limits``, as ``update_one`` does, and
    sends itself again where there is more. ``dispatch`` sends a job for each session that is due,
    at the times ``every`` (cron, with seconds last), up to ``most`` at a time. Their names in the
    app begin with "hiermem.". All jobs are in ``queue``; of each session, and of ``dispatch``, no
    more than one waits there.

    ``memory`` is that which opened the store. It must be open while the app's worker runs, in the
    same event loop, and it is left open.

    Raises UsageError for another memory, and for a number that is not above 0.
    """
    if not isinstance(memory, AsyncMemory):
        raise UsageError(f"memory is {type(memory).__name__}; it must be an AsyncMemory")
    memory.worker(all_tenants=True)  # refuses a memory of one tenant; it is not started
    if not isinstance(most, int) or most < 1:
        raise UsageError("most must be a whole number above 0")

    @app.task(name="hiermem.update_session", queue=queue)
    async def update_session(tenant: str, session: str) -> None:
        report = await update_one(memory.for_tenant, tenant, session, limits=limits)
        if report.more:
            await _send([{"tenant": tenant, "session": session}])

    async def _send(jobs: list[dict[str, str]]) -> None:
        for job in jobs:
            lock = queueing_lock(job["tenant"], job["session"])
            try:
                await update_session.configure(queueing_lock=lock).defer_async(**job)
            except exceptions.AlreadyEnqueued:
                continue  # one that waits does for this too

    @app.periodic(cron=every)
    @app.task(name="hiermem.dispatch", queue=queue, queueing_lock="hiermem.dispatch", priority=1)
    async def dispatch(timestamp: int) -> None:  # noqa: ARG001 - given to every periodic task
        due = await memory.list_due(most)
        await _send([{"tenant": one.tenant, "session": one.session_id} for one in due])

    del dispatch  # the app has it


def queueing_lock(tenant: str, session: str) -> str:
    """Return the lock by which a session has one waiting job; it shows neither name."""
    named = hashlib.sha256(f"{len(tenant)}:{tenant}{session}".encode())
    return f"hiermem:{named.hexdigest()[:32]}"
