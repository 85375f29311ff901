"""Hands out the calls that may be in flight, to one session or to many that take turns.

The one rule: there are never more than ``size`` in use, and who is next is decided in
``core.schedule``, level by level and session by session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from hiermem.core.calls.fairness import FairQueue, Waiter


class Slots:
    """``size`` hands for calls that know no order but that in which they come."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)

    async def acquire(self, node: object) -> bool:
        """Wait for a free hand; ``node`` is what for."""
        return await self._free.acquire()

    def release(self) -> None:
        """Give a hand back."""
        self._free.release()


class _Placed(Protocol):
    @property
    def level(self) -> int: ...
    @property
    def ordinal(self) -> int: ...


class SlotPool:
    """``size`` hands that sessions share."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._size = size
        self._queue = FairQueue()
        self._futures: dict[int, asyncio.Future[None]] = {}

    @property
    def in_use(self) -> int:
        """Give the number of hands in use."""
        return self._size - self._free

    def for_session(self, session_id: str) -> SessionSlots:
        """Give one session's access to them."""
        return SessionSlots(self, session_id)

    async def acquire(self, session_id: str, level: int, ordinal: int) -> None:
        """Wait for a hand, in line."""
        if self._free and not len(self._queue):
            self._free -= 1
            self._queue.serve(session_id)
            return
        waiter = self._queue.join(session_id, level, ordinal)
        future = asyncio.get_running_loop().create_future()
        self._futures[waiter.number] = future
        try:
            await future
        except asyncio.CancelledError:
            if self._futures.pop(waiter.number, None) is not None:
                self._queue.leave(waiter)
            elif not future.cancelled():
                # It was given a hand in the very moment that it gave up.
                self.release()
            raise

    def release(self) -> None:
        """Give a hand back, to whoever is next."""
        self._free += 1
        while self._free:
            waiter: Waiter | None = self._queue.next()
            if waiter is None:
                return
            future = self._futures.pop(waiter.number)
            if future.cancelled():
                continue
            self._free -= 1
            future.set_result(None)

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session that has no work any more."""
        self._queue.forget(session_id)


class SessionSlots:
    """One session's access to the hands.

    ``acquired`` counts how often it got one; ``level`` is the level of the newest that it asked
    for. ``on_level`` is called when that changes, before it gets in line.
    """

    def __init__(self, pool: SlotPool, session_id: str) -> None:
        self._pool, self._session_id = pool, session_id
        self.acquired = 0
        self.level = 1
        self.on_level: Callable[[], object] = bool

    async def acquire(self, node: _Placed) -> bool:
        """Wait for a hand for ``node``."""
        if self.level != node.level:
            self.level = node.level
            self.on_level()
        await self._pool.acquire(self._session_id, node.level, node.ordinal)
        self.acquired += 1
        return True

    def release(self) -> None:
        """Give a hand back."""
        self._pool.release()
