"""Hands out the calls that may be in flight, to one session or to many that take turns.

The one rule: there are never more than ``size`` in use, and who is next is decided in
``core.calls.fairness``, level by level and session by session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from hiermem.core.calls.fairness import Rota, Ticket


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


class Hands:
    """``size`` hands that sessions share."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._size = size
        self._rota = Rota()
        self._waiters: dict[int, asyncio.Future[None]] = {}

    @property
    def in_use(self) -> int:
        """Give the number of hands in use."""
        return self._size - self._free

    def seat(self, session_id: str) -> Seat:
        """Give one session's access to them."""
        return Seat(self, session_id)

    async def take(self, session_id: str, level: int, place: int) -> None:
        """Wait for a hand, in line."""
        if self._free and not len(self._rota):
            self._free -= 1
            self._rota.serve(session_id)
            return
        ticket = self._rota.join(session_id, level, place)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[ticket.number] = waiter
        try:
            await waiter
        except asyncio.CancelledError:
            if self._waiters.pop(ticket.number, None) is not None:
                self._rota.leave(ticket)
            elif not waiter.cancelled():
                # It was given a hand in the very moment that it gave up.
                self.put_back()
            raise

    def put_back(self) -> None:
        """Give a hand back, to whoever is next."""
        self._free += 1
        while self._free:
            ticket: Ticket | None = self._rota.next()
            if ticket is None:
                return
            waiter = self._waiters.pop(ticket.number)
            if waiter.cancelled():
                continue
            self._free -= 1
            waiter.set_result(None)

    def forget(self, session_id: str) -> None:
        """Drop what is remembered of a session that has no work any more."""
        self._rota.forget(session_id)


class Seat:
    """One session's access to the hands.

    ``taken`` counts how often it got one; ``level`` is the level of the newest that it asked for.
    ``on_level`` is called when that changes, before it gets in line.
    """

    def __init__(self, hands: Hands, session_id: str) -> None:
        self._hands, self._session_id = hands, session_id
        self.taken = 0
        self.level = 1
        self.on_level: Callable[[], object] = bool

    async def acquire(self, node: _Placed) -> bool:
        """Wait for a hand for ``node``."""
        if self.level != node.level:
            self.level = node.level
            self.on_level()
        await self._hands.take(self._session_id, node.level, node.ordinal)
        self.taken += 1
        return True

    def release(self) -> None:
        """Give a hand back."""
        self._hands.put_back()
