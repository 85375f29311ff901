"""Keeps one client of an SDK for each event loop that uses an adapter.

A client's connections belong to the loop that opened them. A model object may serve several
memories, each blocking one with a loop of its own, so a client is never used from another loop.
``disconnect`` never cuts off a call that is under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

C = TypeVar("C")


class _LoopClient(Generic[C]):
    """A loop's client, and how many calls are using it."""

    __slots__ = ("client", "closing", "lock", "uses")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: C | None = None
        self.uses = 0
        self.closing = False


class Clients(Generic[C]):
    """The clients that ``make`` returns, one for each loop; ``close`` closes one.

    ``make`` runs on a thread: importing an SDK and reading certificates takes a second.
    """

    def __init__(self, make: Callable[[], C], close: Callable[[C], Awaitable[Any]]) -> None:
        self._make, self._close = make, close
        self._guard = threading.Lock()
        self._entries: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClient[C]] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def client(self) -> AsyncIterator[C]:
        """Yield the running loop's client for the duration of one call."""
        loop = asyncio.get_running_loop()
        with self._guard:
            entry = self._entries.get(loop)
            if entry is None:
                entry = self._entries[loop] = _LoopClient[C]()
            entry.uses += 1
        try:
            async with entry.lock:
                if entry.client is None:
                    entry.client = await asyncio.to_thread(self._make)
            yield entry.client
        finally:
            entry.uses -= 1
            if entry.closing and not entry.uses:
                await self._close_entry(entry)

    async def disconnect(self) -> None:
        """Close the running loop's connections; where calls use them, the last of those does.

        The next call opens new ones.
        """
        with self._guard:
            entry = self._entries.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            entry.closing = True
            if not entry.uses:
                await self._close_entry(entry)

    async def _close_entry(self, entry: _LoopClient[C]) -> None:
        client, entry.client = entry.client, None
        if client is not None:
            await self._close(client)
