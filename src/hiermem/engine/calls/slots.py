"""Limits the calls in flight, for one session or for many that share the slots fairly.

Never more than ``size`` slots are in use. ``core.calls.fairness`` decides who is next, level by
level and session by session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from hiermem.core.calls.fairness import FairQueue
from hiermem.types import Node


class SlotPool:
    """``size`` slots that sessions share."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._size = size
        self._queue = FairQueue[asyncio.Future[None]]()

    @property
    def in_use(self) -> int:
        """The number of slots in use."""
        return self._size - self._free

    def for_session(self, session: Hashable) -> SessionSlots:
        """Return one session's access to the pool; ``session`` is whatever names it there."""
        return SessionSlots(self, session)

    async def acquire(self, session: Hashable, level: int, ordinal: int) -> None:
        """Wait for a slot, in line."""
        if self._free and not len(self._queue):
            self._free -= 1
            self._queue.serve(session)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.join(future, session, level, ordinal)
        try:
            await future
        except asyncio.CancelledError:
            if not self._queue.leave(future) and not future.cancelled():
                # It was given a slot at the very moment it was cancelled.
                self.release()
            raise

    def release(self) -> None:
        """Return a slot, to the next in line."""
        self._free += 1
        while self._free and (future := self._queue.next()) is not None:
            if not future.cancelled():
                self._free -= 1
                future.set_result(None)

    def forget(self, session: Hashable) -> None:
        """Drop what is remembered of a session that has no more work."""
        self._queue.forget(session)


class SessionSlots:
    """One session's access to a slot pool.

    ``acquired`` counts the slots it got; ``level`` is the level of the newest request. ``on_level``
    is called when that changes, before the session gets in line.
    """

    def __init__(self, pool: SlotPool, session: Hashable) -> None:
        self._pool, self._session = pool, session
        self.acquired = 0
        self.level = 1
        self.on_level: Callable[[], object] = bool

    async def acquire(self, subject: object) -> None:
        """Wait for a slot for ``subject``.

        Only nodes have a level and a place in it. Calls for anything else go in the order of
        asking.
        """
        level, ordinal = (subject.level, subject.ordinal) if isinstance(subject, Node) else (1, 0)
        if self.level != level:
            self.level = level
            self.on_level()
        await self._pool.acquire(self._session, level, ordinal)
        self.acquired += 1

    def release(self) -> None:
        """Return a slot."""
        self._pool.release()
