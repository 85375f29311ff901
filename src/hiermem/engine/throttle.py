"""Waits until a model's limits a minute allow the next request, whoever sent the ones before.

The one rule: the traffic belongs to the model object, so every run, session and tenant of this
process that uses it is counted together. When a request may go is decided in ``core.pacing``.
Another process, or another object for the same server, is not seen.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hiermem.core.generation.pacing import Limits, Request, Traffic
from hiermem.errors import ModelOverflowError

__all__ = ["Lane", "Pass", "lane_of"]

#: The longest sleep between two looks at the line, in seconds: what stops a run is seen by then.
_LOOK: Final = 0.25


class Pass:
    """Leave to send one request."""

    def __init__(self, lane: Lane, request: Request) -> None:
        self._lane, self._request = lane, request

    def begin(self, now: float) -> None:
        """Note that the request is being sent, now."""
        with self._lane.lock:
            self._lane.traffic.begin(self._request, now)

    def settle(self, tokens: int) -> None:
        """Note what the request took."""
        with self._lane.lock:
            self._lane.traffic.settle(self._request, tokens)

    def give_back(self) -> None:
        """Take it back, where the request was not sent after all."""
        with self._lane.lock:
            self._lane.traffic.leave(self._request)


class Lane:
    """The way to one model. Usable from several threads, since each memory has its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.traffic = Traffic()

    async def enter(
        self,
        tokens: int,
        limits: Limits,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        stopped: Callable[[], object] = lambda: None,
    ) -> Pass | None:
        """Wait until a request of at most ``tokens`` tokens may go; None where ``stopped`` first.

        Raises ModelOverflowError where it is larger than a whole minute's tokens: no wait helps.
        """
        if limits.tokens is not None and tokens > limits.tokens:
            raise ModelOverflowError(
                f"a request of up to {tokens} tokens is over tokens_per_minute, {limits.tokens}",
                charged=False,
            )
        with self.lock:
            request = self.traffic.join(tokens, limits)
        try:
            while True:
                with self.lock:
                    wait = self.traffic.wait(request, clock())
                    if wait <= 0:
                        self.traffic.admit(request)
                        return Pass(self, request)
                if stopped():
                    break
                await sleep(min(wait, _LOOK))
        except BaseException:
            with self.lock:
                self.traffic.leave(request)
            raise
        with self.lock:
            self.traffic.leave(request)
        return None


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


def _forgetting(key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        # No lock: it may run inside any other call here, in the same thread.
        _lanes.pop(key, None)

    return forget
