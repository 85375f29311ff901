"""Waits until a model may be sent the next request, whoever sent the ones before.

The one rule: the traffic belongs to the model object, so every run, session and tenant of this
process that uses it is counted together, and all of them leave a provider alone that is down. When
a request may go is decided in ``core.pacing`` and ``core.circuit``. Another process, or another
object for the same server, is not seen.
"""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, Final

from hiermem.core.calls.circuit_breaker import Breaker, Circuit, Trial
from hiermem.core.calls.sliding_window import Limits, Request, Traffic
from hiermem.errors import CircuitOpenError, ModelOverflowError, TransientModelError
from hiermem.protocols import TokenCounter
from hiermem.tokens import CalibratedCounter

__all__ = ["Lane", "Pass", "gauge_of", "lane_of"]

#: The longest sleep between two looks at the line, in seconds: what stops a run is seen by then.
_LOOK: Final = 0.25


class Pass:
    """Leave to send one request. It ends by ``end`` or ``give_back``, once."""

    def __init__(self, lane: Lane, request: Request, trial: Trial) -> None:
        self._lane, self._request, self._trial = lane, request, trial

    def begin(self) -> None:
        """Note that the request is being sent."""
        with self._lane.lock:
            self._lane.traffic.begin(self._request)

    def end(self, now: float, *, tokens: int | None = None, answered: bool = False) -> None:
        """Note that the request is over, and what it took, if known.

        ``answered`` says that the provider answered, whatever that was worth.
        """
        with self._lane.lock:
            self._lane.traffic.end(self._request, now, tokens=tokens)
            if answered:
                self._lane.circuit.succeed(self._trial)
            else:
                self._lane.circuit.drop(self._trial)
        self._lane.tell()

    def fail(self, now: float, *, breaker: Breaker, asked: float | None = None) -> None:
        """Note that the request failed in a way that may pass; ``end`` is called beside it."""
        with self._lane.lock:
            self._lane.circuit.fail(self._trial, now, breaker=breaker, asked=asked)

    def give_back(self) -> None:
        """Take it back, where the request was not sent after all."""
        with self._lane.lock:
            self._lane.traffic.leave(self._request)
            self._lane.circuit.drop(self._trial)
        self._lane.tell()


class Lane:
    """The way to one model. Usable from several threads, since each memory has its own.

    ``gauges`` hold, by the name of a counter, how far the model counts otherwise.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.traffic = Traffic()
        self.circuit = Circuit()
        self.gauges: dict[str, CalibratedCounter] = {}
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    async def enter(
        self,
        tokens: int,
        limits: Limits,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        thing: Hashable = None,
        stopped: Callable[[], object] = lambda: None,
    ) -> Pass | None:
        """Wait until a request of at most ``tokens`` tokens may go; None where ``stopped`` first.

        ``thing`` is what it is for. Raises ModelOverflowError where it is larger than a whole
        minute's tokens: no wait helps; CircuitOpenError where the provider is left alone, and
        TransientModelError where it is to be asked for something else first.
        """
        if limits.tokens is not None and tokens > limits.tokens:
            raise ModelOverflowError(
                f"a request of up to {tokens} tokens is over tokens_per_minute, {limits.tokens}",
                charged=False,
            )
        told = (asyncio.get_running_loop(), asyncio.Event())
        with self.lock:
            request = self.traffic.join(tokens, limits)
            self._waiting.add(told)
        leave: Pass | None = None
        try:
            while True:
                with self.lock:
                    told[1].clear()
                    wait, leave = self._look(request, thing, clock())
                if leave is not None:
                    return leave
                if stopped():
                    return None
                await _nap(wait, told[1], sleep)
        finally:
            with self.lock:
                self._waiting.discard(told)
                if leave is None:
                    self.traffic.leave(request)
            if leave is None:
                self.tell()

    def _look(self, request: Request, thing: Hashable, now: float) -> tuple[float, Pass | None]:
        """Let the request go if it may; else give the seconds until it is worth another look."""
        gate = self.circuit.look(thing, now)
        if gate.word == "open":
            raise CircuitOpenError(gate.seconds)
        if gate.word == "tried":
            raise TransientModelError(
                "the provider has failed too often; it is asked for something else first",
                charged=False,
            )
        if gate.word == "wait":
            return gate.seconds, None
        wait = self.traffic.wait(request, now)
        if wait > 0:
            return wait, None
        self.traffic.admit(request)
        return 0.0, Pass(self, request, self.circuit.admit(thing))

    def is_left_alone(self, now: float) -> bool:
        """Say whether the provider kept failing and is not asked now."""
        with self.lock:
            return self.circuit.look(None, now).word == "open"

    def tell(self) -> None:
        """Have all that wait look again: something is over."""
        with self.lock:
            waiting = list(self._waiting)
        for loop, event in waiting:
            with suppress(RuntimeError):  # a loop that has ended has nobody waiting
                loop.call_soon_threadsafe(event.set)


async def _nap(
    seconds: float, event: asyncio.Event, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Sleep, but not for long, and not beyond ``event``.

    What has no time, such as another request's answer, is waited for on the real clock.
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
        # Both are let end here, for what is left half-way outlives its loop.
        await asyncio.wait(waits)


_lanes: dict[int, tuple[Any, Lane]] = {}
_guard = threading.Lock()


def lane_of(model: object) -> Lane:
    """Give the lane of a model object, the same for all that use it, for as long as it lives."""
    with _guard:
        known = _lanes.get(id(model))
        if known is not None:
            return known[1]
        lane = Lane()
        try:
            kept: Any = weakref.ref(model, _forgetting(id(model)))
        except TypeError:
            # It cannot be watched; kept alive, its number is never another's.
            kept = model
        _lanes[id(model)] = (kept, lane)
        return lane


def gauge_of(model: object, counter: TokenCounter) -> CalibratedCounter:
    """Give what is known of how ``model`` counts beside ``counter``.

    That is the counter itself where it learns, else one that is kept with the model's lane.
    """
    if isinstance(counter, CalibratedCounter):
        return counter
    lane = lane_of(model)
    with lane.lock:
        return lane.gauges.setdefault(counter.name, CalibratedCounter(counter))


def _forgetting(key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        # No lock: it may run inside any other call here, in the same thread.
        _lanes.pop(key, None)

    return forget
