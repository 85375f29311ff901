"""Updates that continue after a tool's answer, and the progress of updates that clients await."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mcp.server.mcpserver import Context

from hiermem import HiermemError, UpdateProgress, UpdateReport, UsageError
from hiermem.mcp.results import Job

_log = logging.getLogger("hiermem.mcp")
#: Jobs that are remembered, and jobs that may run at once.
_KEPT: Final = 1_000
_RUNNING: Final = 64
#: Seconds between two notifications of progress.
_PAUSE: Final = 0.25

Report = Callable[[float, float | None], None]


class Jobs:
    """The updates that this server started. Their runs are in the journal, also after its end."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, session: str) -> Job:
        """Return a new job. Raises UsageError where too many run."""
        if len(self._tasks) >= _RUNNING:
            raise UsageError(
                f"{len(self._tasks)} updates are running behind; wait until one has ended"
            )
        job = Job(id=uuid.uuid4().hex, session=session, state="running")
        self._jobs[job.id] = job
        ended = [each.id for each in self._jobs.values() if each.state != "running"]
        for old in ended[: max(0, len(self._jobs) - _KEPT)]:
            del self._jobs[old]
        return job

    def get(self, job_id: str) -> Job | None:
        """Return a job of this server, if it is one."""
        return self._jobs.get(job_id)

    async def run(
        self, job: Job, work: Callable[[Callable[[UpdateProgress], object]], Any], report: Report
    ) -> UpdateReport:
        """Do a part of a job's work; its progress is noted and reported. Raises what it raises."""

        def progress(state: UpdateProgress) -> None:
            job.done, job.total = state.done, state.total
            report(state.done, state.total)

        try:
            made: UpdateReport = await work(progress)
        except asyncio.CancelledError:
            job.state = "interrupted"
            raise
        except Exception as error:
            known = isinstance(error, HiermemError)
            job.state, job.error = "failed", str(error) if known else "see the server's log"
            raise
        job.runs += [made.run_id] if made.run_id else []
        return made

    def behind(self, job: Job, work: Coroutine[Any, Any, UpdateReport]) -> None:
        """Go on with a job after its tool has answered."""

        async def task() -> None:
            try:
                report = await work
                job.state = "done"
                job.error = f"stopped by {report.stopped}" if report.stopped else None
            except HiermemError as error:
                _log.warning("a job failed; what it had to make stays pending: %s", error)
            except Exception:  # noqa: BLE001 - nobody awaits it; the log is where it goes
                _log.exception("a job failed; what it had to make stays pending")

        running = asyncio.get_running_loop().create_task(task())
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def end(self, drain: float) -> None:
        """Wait up to ``drain`` seconds for the jobs, and cancel the rest; what is made stays."""
        tasks = list(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=drain)
            for each in late:
                each.cancel()
            await asyncio.gather(*late, return_exceptions=True)


@asynccontextmanager
async def progress_to(context: Context[Any, Any]) -> AsyncIterator[Report]:
    """Yield a function that reports progress to the client, if it asked; a few times a second."""
    latest: list[tuple[float, float | None]] = []
    wake = asyncio.Event()

    def report(done: float, total: float | None) -> None:
        latest[:] = [(done, total)]
        wake.set()

    async def send() -> None:
        while True:
            await wake.wait()
            wake.clear()
            await context.report_progress(*latest[0])
            await asyncio.sleep(_PAUSE)

    sending = asyncio.create_task(send())
    try:
        yield report
        if wake.is_set():
            await context.report_progress(*latest[0])
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await sending
