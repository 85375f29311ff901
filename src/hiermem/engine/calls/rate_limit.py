"""Waits until a model may be sent the next request.

The limits belong to the model object. All runs, sessions and tenants of this process that use it
are counted together, and its circuit breaker stops all of them. When a request may go is decided in
``core.calls.sliding_window`` and ``core.calls.circuit_breaker``. Requests of another process, or of
another object for the same server, are not seen.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, Final, Protocol

from hiermem.config import UpdatePolicy
from hiermem.core.calls.circuit_breaker import AdmittedRequest, BreakerPolicy, CircuitBreaker
from hiermem.core.calls.sliding_window import RateLimits, SlidingWindow, WindowRequest
from hiermem.engine.calls.budget import Budget
from hiermem.errors import CircuitOpenError, ModelOverflowError, TransientModelError
from hiermem.protocols import LLM, TokenCounter
from hiermem.tokens import CalibratedCounter

#: The longest sleep between two checks of the queue, in seconds; a stopped run is noticed by then.
_LOOK: Final = 0.25


class Pass:
    """Permission to send one request. It ends once, by ``end`` or ``give_back``."""

    def __init__(self, lane: Lane, request: WindowRequest, admitted: AdmittedRequest) -> None:
        self._lane, self._request, self._admitted = lane, request, admitted

    def begin(self) -> None:
        """Note that the request is being sent."""
        with self._lane.lock:
            self._lane.window.begin(self._request)

    def end(self, now: float, *, tokens: int | None = None, answered: bool = False) -> None:
        """Note that the request is over, and the tokens it took, if known.

        ``answered`` means that the provider answered, whatever the answer was worth.
        """
        with self._lane.lock:
            self._lane.window.end(self._request, now, tokens=tokens)
            if answered:
                self._lane.circuit.succeed(self._admitted)
            else:
                self._lane.circuit.drop(self._admitted)
        self._lane.tell()

    def fail(self, now: float, *, breaker: BreakerPolicy, asked: float | None = None) -> None:
        """Note that the request failed in a way that may pass; ``end`` is called as well."""
        with self._lane.lock:
            self._lane.circuit.fail(self._admitted, now, breaker=breaker, asked=asked)

    def give_back(self) -> None:
        """Take the request back; it was not sent."""
        with self._lane.lock:
            self._lane.window.leave(self._request)
            self._lane.circuit.drop(self._admitted)
        self._lane.tell()


class Lane:
    """The shared limits of one model object, for all threads that use it.

    ``calibrations`` hold, by the name of a counter, how far the model's token counts differ from
    it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.window = SlidingWindow()
        self.circuit = CircuitBreaker()
        self.calibrations: dict[str, CalibratedCounter] = {}
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    async def enter(
        self,
        tokens: int,
        limits: RateLimits,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        subject: Hashable = None,
        stopped: Callable[[], object] = lambda: None,
    ) -> Pass | None:
        """Wait until a request of at most ``tokens`` tokens may go; None where ``stopped`` first.

        ``subject`` is what the request is for. Raises ModelOverflowError where the request is
        larger than the tokens of a whole minute, since no wait helps; CircuitOpenError where the
        circuit is open; and TransientModelError where the provider has to be probed with another
        subject first.
        """
        if limits.tokens is not None and tokens > limits.tokens:
            raise ModelOverflowError(
                f"a request of up to {tokens} tokens is over tokens_per_minute, {limits.tokens}",
                charged=False,
            )
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self.lock:
            request = self.window.join(tokens, limits)
            self._waiting.add(waiter)
        leave: Pass | None = None
        try:
            while True:
                with self.lock:
                    waiter[1].clear()
                    wait, leave = self._look(request, subject, clock())
                if leave is not None:
                    return leave
                if stopped():
                    return None
                await _nap(wait, waiter[1], sleep)
        finally:
            with self.lock:
                self._waiting.discard(waiter)
                if leave is None:
                    self.window.leave(request)
            if leave is None:
                self.tell()

    def _look(
        self, request: WindowRequest, subject: Hashable, now: float
    ) -> tuple[float, Pass | None]:
        """Admit the request if it may go; otherwise return the seconds until the next check."""
        decision = self.circuit.decide(subject, now)
        if decision.kind == "open":
            raise CircuitOpenError(decision.seconds)
        if decision.kind == "tried":
            raise TransientModelError(
                "the provider has failed too often; it is asked for something else first",
                charged=False,
            )
        if decision.kind == "wait":
            return decision.seconds, None
        wait = self.window.wait(request, now)
        if wait > 0:
            return wait, None
        self.window.admit(request)
        return 0.0, Pass(self, request, self.circuit.admit(subject))

    def is_left_alone(self, now: float) -> bool:
        """Return whether the provider kept failing and is not asked now."""
        with self.lock:
            return self.circuit.decide(None, now).kind == "open"

    def tell(self) -> None:
        """Wake all that wait: a request has ended."""
        with self.lock:
            waiting = list(self._waiting)
        for loop, event in waiting:
            with suppress(RuntimeError):  # a loop that has ended has nobody waiting
                loop.call_soon_threadsafe(event.set)


async def _nap(
    seconds: float, event: asyncio.Event, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Sleep, but not for long, and not beyond ``event``.

    A wait without a known end, such as for another request's answer, uses the real clock.
    """
    waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(event.wait())}
    endless = math.isinf(seconds)
    if not endless:
        waits.add(asyncio.ensure_future(sleep(min(seconds, _LOOK))))
    try:
        done, _ = await asyncio.wait(
            waits, timeout=_LOOK if endless else None, return_when=asyncio.FIRST_COMPLETED
        )
        for each in done:
            each.result()
    finally:
        for each in waits:
            each.cancel()
        # Both futures end here; a pending one would outlive its event loop.
        await asyncio.wait(waits)


_lanes: dict[int, tuple[Any, Lane]] = {}
_guard = threading.Lock()


def limiter_for(model: object) -> Lane:
    """Return the lane of a model object: one for all its users, while the object lives."""
    with _guard:
        known = _lanes.get(id(model))
        if known is not None:
            return known[1]
        lane = Lane()
        try:
            reference: Any = weakref.ref(model, _forgetting(id(model)))
        except TypeError:
            # The object has no weak references. Kept alive, its id is never another object's.
            reference = model
        _lanes[id(model)] = (reference, lane)
        return lane


def calibration_for(model: object, counter: TokenCounter) -> CalibratedCounter:
    """Return how the token counts of ``model`` relate to those of ``counter``.

    This is the counter itself where it is calibrated; otherwise one that is kept with the model's
    lane.
    """
    if isinstance(counter, CalibratedCounter):
        return counter
    lane = limiter_for(model)
    with lane.lock:
        return lane.calibrations.setdefault(counter.name, CalibratedCounter(counter))


def _forgetting(key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        # No lock: the garbage collector may run this inside any other call here, in the same
        # thread.
        _lanes.pop(key, None)

    return forget


class RateLimiter:
    """Lets ``size`` calls begin, then makes the next one wait for ``delay`` seconds.

    Where a ``lane`` is given, calls also keep to its ``limits``, and its circuit opens as the
    ``breaker`` policy says.
    """

    def __init__(
        self,
        *,
        size: int,
        delay: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        lane: Lane | None = None,
        limits: RateLimits | None = None,
        breaker: BreakerPolicy | None = None,
    ) -> None:
        self._size, self._delay = size, delay
        self._clock, self._sleep = clock, sleep
        self._lane, self._limits = lane, limits or RateLimits()
        self._breaker = breaker or BreakerPolicy()
        self._left = size
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def turn(self, tokens: int, budget: Budget, *, subject: Hashable = None) -> Turn:
        """Wait until a call of at most ``tokens`` tokens, made for ``subject``, may go.

        Raises SpendLimitError where the run ends first, CircuitOpenError where the circuit is open,
        and ModelOverflowError for a call that alone exceeds the tokens of a minute.
        """
        if self._delay:
            await self._batch(budget)
        if self._lane is None:
            return Turn(None, self._clock, self._breaker)
        try:
            leave = await self._lane.enter(
                tokens,
                self._limits,
                clock=self._clock,
                sleep=self._sleep,
                subject=subject,
                stopped=budget.stop_reason,
            )
        except CircuitOpenError as error:
            budget.stop_for_circuit(error)
            raise
        if leave is None:
            budget.refuse(budget.stopped or "cancellation")
        return Turn(leave, self._clock, self._breaker)

    async def _batch(self, budget: Budget) -> None:
        """Wait until the next batch may begin, or the run is over."""
        async with self._turn:
            if not self._left:
                rest, left = max(0.0, self._next - self._clock()), budget.time_left()
                await self._sleep(rest if left is None else min(rest, max(0.0, left)))
                if budget.stop_reason():
                    budget.refuse(budget.stopped or "deadline")
                self._left = self._size
            self._left -= 1
            if not self._left:
                self._next = self._clock() + self._delay


class Turn:
    """The permission for one call. Once begun it ends by ``end``; ``fail`` may come before that."""

    __slots__ = ("_breaker", "_clock", "_pass")

    def __init__(
        self, leave: Pass | None, clock: Callable[[], float], breaker: BreakerPolicy
    ) -> None:
        self._pass, self._clock, self._breaker = leave, clock, breaker

    def begin(self) -> None:
        """Note that the call is being sent."""
        if self._pass is not None:
            self._pass.begin()

    def fail(self, asked: float | None) -> None:
        """Note that the provider failed, and the pause that it asked for."""
        if self._pass is not None:
            self._pass.fail(self._clock(), breaker=self._breaker, asked=asked)

    def end(self, *, tokens: int | None = None, answered: bool = False) -> None:
        """Note that the call is over, the tokens it took if known, and whether it was answered."""
        if self._pass is not None:
            self._pass.end(self._clock(), tokens=tokens, answered=answered)

    def give_back(self) -> None:
        """Take the permission back; the call was not made."""
        if self._pass is not None:
            self._pass.give_back()


class BatchSettings(Protocol):
    """The number of concurrent calls, and the pause in seconds after so many calls."""

    @property
    def concurrency(self) -> int: ...  # noqa: D102 - described above
    @property
    def batch_delay(self) -> float: ...  # noqa: D102 - described above


def rate_limiter(
    llm: LLM,
    policy: UpdatePolicy,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    batches: BatchSettings | None = None,
) -> RateLimiter:
    """Return the rate limiter of ``llm`` under ``policy``. A local model has no limits.

    ``batches`` replace the concurrency and the pauses of ``policy``.
    """
    batches = batches or policy
    return RateLimiter(
        size=batches.concurrency,
        delay=batches.batch_delay if llm.remote else 0.0,
        clock=clock,
        sleep=sleep,
        lane=limiter_for(llm) if llm.remote else None,
        limits=RateLimits(
            policy.requests_per_minute, policy.tokens_per_minute, in_flight=batches.concurrency
        ),
        breaker=BreakerPolicy(policy.circuit_failures, policy.circuit_pause),
    )
