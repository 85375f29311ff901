"""What a memory, its sessions and spaces have in common: their parts, and the work behind them.

The one rule: it decides nothing and hands out nothing once the memory is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from hiermem.config import BankPolicy
from hiermem.core.generation.prompt import PromptTemplate
from hiermem.engine.allowance import Allowances
from hiermem.engine.context import ContextWindowManager
from hiermem.engine.handle import Handle
from hiermem.engine.worker import AsyncWorker
from hiermem.errors import MemoryClosedError
from hiermem.protocols import LLM

__all__ = ["Parts"]

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
        from hiermem.engine.embedding import quietly

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
