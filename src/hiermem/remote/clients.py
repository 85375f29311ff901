"""Keeps one client of an SDK for each event loop that uses an adapter.

The one rule: a client's connections belong to the loop that opened them. A model object may serve
several memories, each blocking one with a loop of its own, so none is ever used from another loop;
and ``disconnect`` never cuts off a call that is under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

C = TypeVar("C")


class _Held(Generic[C]):
    """A loop's client, and how many calls are using it."""

    __slots__ = ("client", "leaving", "making", "uses")

    def __init__(self) -> None:
        self.making = asyncio.Lock()
        self.client: C | None = None
        self.uses = 0
        self.leaving = False


class Clients(Generic[C]):
    """The clients that ``make`` gives, one a loop; ``close`` lets go of one.

    ``make`` runs on a thread: importing an SDK and reading certificates takes a second.
    """

    def __init__(self, make: Callable[[], C], close: Callable[[C], Awaitable[Any]]) -> None:
        self._make, self._close = make, close
        self._guard = threading.Lock()
        self._held: WeakKeyDictionary[asyncio.AbstractEventLoop, _Held[C]] = WeakKeyDictionary()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[C]:
        """Give the running loop's client for the time of one call."""
        loop = asyncio.get_running_loop()
        with self._guard:
            held = self._held.get(loop)
            if held is None:
                held = self._held[loop] = _Held[C]()
            held.uses += 1
        try:
            async with held.making:
                if held.client is None:
                    held.client = await asyncio.to_thread(self._make)
            yield held.client
        finally:
            held.uses -= 1
            if held.leaving and not held.uses:
                await self._let_go(held)

    async def disconnect(self) -> None:
        """Close the running loop's connections; where calls use them, the last of those does.

        The next call opens new ones.
        """
        with self._guard:
            held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            held.leaving = True
            if not held.uses:
                await self._let_go(held)

    async def _let_go(self, held: _Held[C]) -> None:
        client, held.client = held.client, None
        if client is not None:
            await self._close(client)
