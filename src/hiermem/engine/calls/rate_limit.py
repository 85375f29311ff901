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
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hiermem.config import UpdatePolicy
from hiermem.core.calls.circuit_breaker import CircuitBreaker
from hiermem.core.calls.sliding_window import Permit, RateLimits, SlidingWindow
from hiermem.core.calls.timeouts import Slowdown
from hiermem.errors import CircuitOpenError, ModelOverflowError, TransientModelError
from hiermem.process import at_fork
from hiermem.protocols import LLM, TokenCounter
from hiermem.tokens import CalibratedCounter

#: The longest sleep between two checks whether the caller still wants to wait, in seconds.
_LOOK: Final = 0.25
#: The most threads of a blocking function, for each call that may be in flight.
_THREADS: Final = 4

_Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


@dataclass(slots=True, eq=False)
class ModelState:
    """What is known of one model object, for all threads that use it.

    ``calibrations`` hold, by the name of a counter, how far the model's token counts differ from
    it. ``waiting`` are the tasks that wait to send a request.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    window: SlidingWindow = field(default_factory=SlidingWindow)
    circuit: CircuitBreaker = field(default_factory=CircuitBreaker)
    slowdown: Slowdown = field(default_factory=Slowdown)
    calibrations: dict[str, CalibratedCounter] = field(default_factory=dict[str, CalibratedCounter])
    waiting: set[_Waiter] = field(default_factory=set[_Waiter])

    def wake(self) -> None:
        """Wake all that wait: a request has ended."""
        with self.lock:
            waiting = list(self.waiting)
        for loop, event in waiting:
            with suppress(RuntimeError):  # a loop that has ended has nobody waiting
                loop.call_soon_threadsafe(event.set)


_states: dict[int, ModelState] = {}
_unreferenced: list[object] = []
_guard = threading.Lock()


def _forget_states() -> None:
    """Begin anew in a forked process: the requests in flight are the parent's."""
    global _guard  # noqa: PLW0603 - another thread of the parent may have held it
    _guard = threading.Lock()
    _states.clear()


at_fork(in_child=_forget_states)


def state_of(model: object) -> ModelState:
    """Return the state of a model object: one for all its users, while the object lives.

    The object's identity counts, not its equality, and it need not be hashable. An object without
    weak references is kept alive, since its id may not become another's.
    """
    with _guard:
        known = _states.get(id(model))
        if known is None:
            known = _states[id(model)] = ModelState()
            try:
                # No lock: the garbage collector may run this inside any call here.
                weakref.finalize(model, _states.pop, id(model), None).atexit = False
            except TypeError:
                _unreferenced.append(model)
        return known


def calibration_for(model: object, counter: TokenCounter) -> CalibratedCounter:
    """Return how the token counts of ``model`` relate to those of ``counter``.

    This is the counter itself where it is calibrated; otherwise one that is kept with the model's
    state.
    """
    if isinstance(counter, CalibratedCounter):
        return counter
    state = state_of(model)
    with state.lock:
        return state.calibrations.setdefault(counter.name, CalibratedCounter(counter))


class RateLimiter:
    """Lets the requests of one run, or of runs that share it, go to a model.

    They keep to ``limits``, together with all others for the same model object. Where the model
    does not answer in time, fewer requests are in flight than ``limits`` allow. After ``batch``
    requests the next one waits for ``delay`` seconds.
    """

    def __init__(
        self,
        model: object,
        limits: RateLimits,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        batch: int = 1,
        delay: float = 0.0,
    ) -> None:
        self._state = state_of(model)
        self._model = model
        self._limits, self._clock, self._sleep = limits, clock, sleep
        self._batch, self._delay = batch, delay
        self._left = batch
        self._next = 0.0
        self._line = asyncio.Lock()

    @property
    def circuit_is_open(self) -> bool:
        """Whether the provider kept failing and is not asked now."""
        with self._state.lock:
            return self._state.circuit.decide(None, self._clock())[0] == "open"

    def check_hanging(self) -> None:
        """Raise CircuitOpenError where too many abandoned calls of a function are still running.

        With those that may be in flight, they have up to ``_THREADS`` threads for each of these.
        """
        abandoned = int(getattr(self._model, "abandoned_calls", 0) or 0)
        most = self._limits.in_flight
        if most is not None and abandoned >= (_THREADS - 1) * most:
            raise CircuitOpenError(self._limits.circuit_pause, reason="hanging")

    async def acquire(
        self, tokens: int, *, subject: Hashable, stopped: Callable[[], object]
    ) -> Permit | None:
        """Wait until a request of at most ``tokens`` tokens may go; None where ``stopped`` first.

        ``subject`` is what the request is for. A permit ends once, by ``end`` or ``release``.
        Raises ModelOverflowError where the request is larger than the tokens of a whole minute,
        since no wait helps; CircuitOpenError where the circuit is open; and TransientModelError
        where the provider has to be probed with another subject first.
        """
        if self._limits.tokens is not None and tokens > self._limits.tokens:
            raise ModelOverflowError(
                f"a request of up to {tokens} tokens is over tokens_per_minute, "
                f"{self._limits.tokens}",
                charged=False,
            )
        if self._delay and not await self._next_batch(stopped):
            return None
        state, waiter = self._state, (asyncio.get_running_loop(), asyncio.Event())
        with state.lock:
            permit = state.window.join(tokens, self._limits, subject)
            state.waiting.add(waiter)
        admitted = False
        try:
            while True:
                with state.lock:
                    waiter[1].clear()
                    wait = self._admit(permit)
                    admitted = not wait
                if admitted:
                    return permit
                if stopped():
                    return None
                await _nap(wait, waiter[1], self._sleep)
        finally:
            with state.lock:
                state.waiting.discard(waiter)
                if not admitted:
                    state.window.leave(permit)
            if not admitted:
                state.wake()

    def begin(self, permit: Permit) -> None:
        """Note that the request is being sent."""
        with self._state.lock:
            self._state.window.begin(permit)

    def fail(self, permit: Permit, asked: float | None, *, late: bool = False) -> None:
        """Note that the request failed in a way that may pass; ``end`` is called as well.

        ``asked`` is the pause that the provider asked for, in seconds. ``late`` means that it did
        not answer in time.
        """
        with self._state.lock:
            if late:
                self._state.slowdown.time_out()
            self._state.circuit.fail(permit, self._clock(), asked=asked)

    def end(self, permit: Permit, *, tokens: int | None = None, answered: bool = False) -> None:
        """Note that the request is over, and the tokens it took, if known.

        ``answered`` means that the provider answered, whatever the answer was worth.
        """
        with self._state.lock:
            self._state.window.end(permit, self._clock(), tokens=tokens)
            if answered:
                self._state.circuit.succeed(permit)
                self._state.slowdown.answer()
            else:
                self._state.circuit.drop(permit)
        self._state.wake()

    def release(self, permit: Permit) -> None:
        """Take the permit back; the request was not sent."""
        with self._state.lock:
            self._state.window.leave(permit)
            self._state.circuit.drop(permit)
        self._state.wake()

    def _admit(self, permit: Permit) -> float:
        """Admit the request if it may go, and return 0; otherwise the time until the next check."""
        self.check_hanging()
        state, now = self._state, self._clock()
        decision, seconds = state.circuit.decide(permit.subject, now)
        if decision == "open":
            raise CircuitOpenError(seconds)
        if decision == "tried":
            raise TransientModelError(
                "the provider has failed too often; it is asked for something else first",
                charged=False,
            )
        if self._limits.in_flight is not None:
            most = state.slowdown.limit(self._limits.in_flight)
            permit.limits = replace(self._limits, in_flight=most)
        wait = seconds if decision == "wait" else state.window.wait(permit, now)
        if wait > 0:
            return wait
        state.window.admit(permit)
        state.circuit.admit(permit)
        return 0.0

    async def _next_batch(self, stopped: Callable[[], object]) -> bool:
        """Wait until the next batch may begin; return whether it may, or ``stopped`` came first."""
        async with self._line:
            if not self._left:
                await sleep_unless(stopped, self._next - self._clock(), self._sleep)
                if stopped():
                    return False
                self._left = self._batch
            self._left -= 1
            if not self._left:
                self._next = self._clock() + self._delay
        return True


async def sleep_unless(
    stopped: Callable[[], object], seconds: float, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Sleep for so many seconds, or until ``stopped``, which is checked now and then."""
    while seconds > 0 and not stopped():
        await sleep(min(seconds, _LOOK))
        seconds -= _LOOK


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


def rate_limiter(
    llm: LLM,
    policy: UpdatePolicy,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]],
    concurrency: int | None = None,
    batch_delay: float | None = None,
) -> RateLimiter:
    """Return the rate limiter of ``llm`` under ``policy``.

    ``concurrency`` and ``batch_delay`` replace those of ``policy``.
    """
    most = policy.concurrency if concurrency is None else concurrency
    return RateLimiter(
        llm,
        RateLimits(
            policy.requests_per_minute,
            policy.tokens_per_minute,
            in_flight=most,
            circuit_failures=policy.circuit_failures,
            circuit_pause=policy.circuit_pause,
        ),
        clock=clock,
        sleep=sleep,
        batch=most,
        delay=policy.batch_delay if batch_delay is None else batch_delay,
    )
