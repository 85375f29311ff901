"""The progress of a tool's work, for clients that ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

from mcp.server.mcpserver import Context

from hiermem import ExtractionProgress, UpdateProgress

#: Seconds between two notifications of progress.
_PAUSE: Final = 0.25

Report: TypeAlias = Callable[[UpdateProgress | ExtractionProgress], object]


@asynccontextmanager
async def progress_to(context: Context[Any, Any]) -> AsyncIterator[Report]:
    """Yield an ``on_progress`` that tells the client, if it asked; a few times a second."""
    latest: list[tuple[int, int]] = []
    wake = asyncio.Event()

    def report(state: UpdateProgress | ExtractionProgress) -> None:
        latest[:] = [(state.done, state.total)]
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
