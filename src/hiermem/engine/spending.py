"""Holds a run to its caps and its pace: calls, tokens, time, and pauses between batches.

The one rule: a cap is looked at before the call, against what is spent and what calls in flight may
still spend; so no cap is ever passed, not even by concurrent calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hiermem.errors import SpendLimitError

__all__ = ["Pace", "Purse"]


class Purse:
    """What one run may spend, and has spent.

    ``max_calls`` and ``max_tokens`` (in and out together) bound the run, ``deadline`` is a reading
    of ``clock``; None is no cap. ``stopped`` names the first cap that refused a call.
    """

    def __init__(
        self,
        *,
        max_calls: int | None,
        max_tokens: int | None,
        deadline: float | None,
        clock: Callable[[], float],
    ) -> None:
        self.calls = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.stopped: str | None = None
        self._max_calls, self._max_tokens, self._deadline = max_calls, max_tokens, deadline
        self._clock = clock
        self._reserved = 0
        self._closed = False
        self._freed = asyncio.Event()

    @property
    def counts_tokens(self) -> bool:
        """Say whether requests must be counted exactly before they are sent."""
        return self._max_tokens is not None

    def close(self, why: str) -> None:
        """Refuse every call from now on."""
        self.stopped = why
        self._closed = True
        self._freed.set()

    def time_left(self) -> float | None:
        """Give the seconds until the deadline, or None where there is none."""
        return None if self._deadline is None else self._deadline - self._clock()

    async def reserve(self, tokens: int) -> None:
        """Take one call of at most ``tokens`` tokens, waiting where calls in flight may free some.

        Raises SpendLimitError where a cap would be passed; nothing is spent then.
        """
        while True:
            if self._closed:
                self._refuse(self.stopped or "cancellation")
            left = self.time_left()
            if left is not None and left <= 0:
                self._refuse("deadline")
            if self._max_calls is not None and self.calls >= self._max_calls:
                self._refuse("max_calls")
            if self._max_tokens is None:
                break
            spent = self.tokens_in + self.tokens_out
            if spent + tokens > self._max_tokens:
                self._refuse("max_tokens")
            if spent + self._reserved + tokens <= self._max_tokens:
                break
            self._freed.clear()
            await self._freed.wait()
        self.calls += 1
        self._reserved += tokens

    def give_back(self, reserved: int) -> None:
        """Take back a reservation whose call was not made after all."""
        self.calls -= 1
        self.settle(reserved, tokens_in=0, tokens_out=0)

    def settle(self, reserved: int, *, tokens_in: int, tokens_out: int) -> None:
        """Replace a reservation by what the call really took."""
        self._reserved -= reserved
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        self._freed.set()

    def _refuse(self, cap: str) -> None:
        self.stopped = self.stopped or cap
        raise SpendLimitError(
            f"{cap} was reached after {self.calls} calls and {self.tokens_in + self.tokens_out} "
            "tokens; what was made is kept, update again to go on"
        )


class Pace:
    """Lets ``size`` calls begin, then makes the next wait until ``delay`` seconds have passed."""

    def __init__(
        self,
        *,
        size: int,
        delay: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._size, self._delay = size, delay
        self._clock, self._sleep = clock, sleep
        self._left = size
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def turn(self) -> None:
        """Wait for the next call's turn."""
        if not self._delay:
            return
        async with self._turn:
            if not self._left:
                await self._sleep(max(0.0, self._next - self._clock()))
                self._left = self._size
            self._left -= 1
            if not self._left:
                self._next = self._clock() + self._delay
