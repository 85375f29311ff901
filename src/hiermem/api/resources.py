"""What a memory, its sessions and spaces have in common: their parts, and the work behind them.

The one rule: what was begun here is ended here, and nothing is handed out once the memory is
closed. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from hiermem.config import BankPolicy
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.allowance import Allowances
from hiermem.engine.context.manager import ContextWindowManager
from hiermem.engine.handle import Handle
from hiermem.engine.worker.worker import AsyncWorker
from hiermem.errors import MemoryClosedError
from hiermem.protocols import LLM

_log = logging.getLogger("hiermem.memory")


@dataclass(slots=True)
class Parts:
    """What a memory, its sessions and spaces are made of, and the work behind them."""

    handle: Handle
    llm: LLM
    fallback: LLM
    prompts: Mapping[str, PromptTemplate | str]
    manager: ContextWindowManager
    allowances: Allowances
    bank_policy: BankPolicy = field(default_factory=BankPolicy)
    background: set[asyncio.Task[Any]] = field(default_factory=set["asyncio.Task[Any]"])
    workers: WeakSet[AsyncWorker] = field(default_factory=WeakSet["AsyncWorker"])
    closed: bool = False

    def opened(self) -> Handle:
        """Give the handle. Raises MemoryClosedError where the memory was closed."""
        if self.closed:
            raise MemoryClosedError("this memory was closed; open it again")
        return self.handle

    def embed_behind(self, session_id: str) -> None:
        """Let missing vectors of a session be made in the background, where there is an embedder.

        At the close of the memory it ends after the request that is under way.
        """
        if self.handle.embedder is None or self.closed:
            return
        from hiermem.engine.search.embed import quietly

        self.behind(quietly(self.handle, session_id, stopped=lambda: self.closed))

    def behind(self, work: Awaitable[Any]) -> None:
        """Let ``work`` go on in the background; its failure is logged, the work stays pending."""

        async def run() -> None:
            try:
                await work
            except Exception:  # noqa: BLE001 - nobody awaits it; the log is where it goes
                _log.exception("a background update failed; what it had to make stays pending")

        task = asyncio.get_running_loop().create_task(run())
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def end(self) -> None:
        """Hand out nothing any more, stop the workers and wait up to the drain time for the rest.

        What is not finished then is cut off and stays pending.
        """
        self.closed = True
        await asyncio.gather(*(worker.stop() for worker in list(self.workers)))
        if self.background:
            drain = self.handle.update_policy.drain
            _, left = await asyncio.wait(self.background, timeout=drain)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)
                _log.warning("%d background updates were left pending", len(left))

    async def disconnect(self) -> None:
        """Let model and embedder close the connections that they opened in this loop, if any.

        They stay usable: another memory may share them.
        """
        for part in (self.llm, self.handle.embedder):
            leave = getattr(part, "disconnect", None)
            if leave is not None:
                await leave()
