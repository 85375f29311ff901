"""Holds a run to its caps on calls, tokens and time.

A cap is checked before each call, against what is spent plus what the calls in flight may still
spend. So no cap is exceeded, not even by concurrent calls. A purse may lie inside others, such as
the purse of the worker that runs it; a call has to fit into all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from hiermem.errors import CircuitOpenError, SpendLimitError
from hiermem.types.prices import add_costs


class Hold(Protocol):
    """The reservation of one call."""

    def announce(self, attempt_id: str) -> None:
        """Note the id under which the call is journalled."""
        ...

    def give_back(self) -> None:
        """Cancel the reservation; the call was not made."""
        ...

    def settle(self, *, tokens_in: int, tokens_out: int, cost: float | None = None) -> None:
        """Replace the reservation by what the call took, and its cost where known."""
        ...


class Keeper(Protocol):
    """An account that calls are charged to. A Purse is one."""

    @property
    def stopped(self) -> str | None:
        """The name of the cap that refused a call, or None."""
        ...

    @property
    def counts_tokens(self) -> bool:
        """Whether requests must be counted exactly before they are sent."""
        ...

    def time_left(self) -> float | None:
        """Return the seconds until the deadline, or None without one."""
        ...

    async def reserve(self, tokens: int) -> Hold:
        """Reserve one call of at most ``tokens`` tokens. Raises SpendLimitError."""
        ...


class Purse:
    """What one run may spend, and has spent.

    ``max_calls`` and ``max_tokens`` (in and out together) limit the run; ``deadline`` is a reading
    of ``clock``; None means no cap. ``above`` are the purses around this one. ``stopped`` names the
    first cap that refused a call, here or above. ``retry_after`` is set where an unavailable
    provider ended the run: the seconds until it may be asked again. ``cost`` is what the calls
    cost, None where no call had a price.
    """

    def __init__(
        self,
        *,
        max_calls: int | None,
        max_tokens: int | None,
        deadline: float | None,
        clock: Callable[[], float],
        above: Sequence[Keeper] = (),
    ) -> None:
        self.calls = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.cost: float | None = None
        self.retry_after: float | None = None
        self._stopped: str | None = None
        self._max_calls, self._max_tokens, self._deadline = max_calls, max_tokens, deadline
        self._clock, self._above = clock, tuple(above)
        self._reserved = 0
        self._closed = False
        self._freed = asyncio.Event()

    @property
    def stopped(self) -> str | None:
        """The name of the first cap that refused a call, or None."""
        if self._stopped is None:
            for each in self._above:
                if each.stopped is not None:
                    return each.stopped
        return self._stopped

    @stopped.setter
    def stopped(self, why: str | None) -> None:
        self._stopped = why

    @property
    def counts_tokens(self) -> bool:
        """Whether requests must be counted exactly before they are sent."""
        return self._max_tokens is not None or any(each.counts_tokens for each in self._above)

    def close(self, why: str) -> None:
        """Refuse every call from now on."""
        self._stopped = why
        self._closed = True
        self._freed.set()

    def time_left(self) -> float | None:
        """Return the seconds until the nearest deadline, or None without one."""
        left = [each.time_left() for each in self._above]
        if self._deadline is not None:
            left.append(self._deadline - self._clock())
        return min((each for each in left if each is not None), default=None)

    def is_over(self) -> str | None:
        """Return the name of what ends the run now, or None. A deadline that has passed ends it."""
        left = self.time_left()
        if self.stopped is None and left is not None and left <= 0:
            self._stopped = "deadline"
        return self.stopped

    async def reserve(self, tokens: int) -> PurseHold:
        """Reserve one call of at most ``tokens`` tokens; wait where calls in flight may free some.

        Raises SpendLimitError where a cap would be exceeded; then nothing is spent.
        """
        while True:
            if self._closed:
                self.refuse(self.stopped or "cancellation")
            left = self.time_left()
            if left is not None and left <= 0:
                self.refuse("deadline")
            if self._max_calls is not None and self.calls >= self._max_calls:
                self.refuse("max_calls")
            if self._max_tokens is None:
                break
            spent = self.tokens_in + self.tokens_out
            if spent + tokens > self._max_tokens:
                self.refuse("max_tokens")
            if spent + self._reserved + tokens <= self._max_tokens:
                break
            self._freed.clear()
            await self._freed.wait()
        self.calls += 1
        self._reserved += tokens
        hold = PurseHold(self, tokens)
        try:
            for each in self._above:
                hold.above.append(await each.reserve(tokens))
        except BaseException as error:
            hold.give_back()
            if isinstance(error, SpendLimitError):
                self._stopped = self.stopped or "cap"
            raise
        return hold

    def settle(
        self, reserved: int, *, tokens_in: int, tokens_out: int, cost: float | None = None
    ) -> None:
        """Replace a reservation by what the call really took."""
        self._reserved -= reserved
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        self.cost = add_costs(self.cost, cost)
        self._freed.set()

    def leave_alone(self, error: CircuitOpenError) -> None:
        """Note that the run ends because the circuit breaker of its model is open."""
        self._stopped = self.stopped or "circuit_open"
        self.retry_after = error.retry_after

    def refuse(self, cap: str) -> NoReturn:
        """Refuse a call because of ``cap``. Raises SpendLimitError."""
        self._stopped = self.stopped or cap
        raise SpendLimitError(
            f"{cap} was reached after {self.calls} calls and {self.tokens_in + self.tokens_out} "
            "tokens; what was made is kept, update again to go on"
        )


class PurseHold:
    """The reservation of one call in a purse and in those around it."""

    __slots__ = ("_purse", "_tokens", "above")

    def __init__(self, purse: Purse, tokens: int) -> None:
        self._purse, self._tokens = purse, tokens
        self.above: list[Hold] = []

    def announce(self, attempt_id: str) -> None:
        """Note the id under which the call is journalled."""
        for each in self.above:
            each.announce(attempt_id)

    def give_back(self) -> None:
        """Cancel the reservation; the call was not made."""
        self._purse.calls -= 1
        self._purse.settle(self._tokens, tokens_in=0, tokens_out=0)
        for each in self.above:
            each.give_back()

    def settle(self, *, tokens_in: int, tokens_out: int, cost: float | None = None) -> None:
        """Replace the reservation by what the call really took."""
        self._purse.settle(self._tokens, tokens_in=tokens_in, tokens_out=tokens_out, cost=cost)
        for each in self.above:
            each.settle(tokens_in=tokens_in, tokens_out=tokens_out, cost=cost)
