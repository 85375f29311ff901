"""Decides when the next request may go to a model, so that no minute holds more than is allowed.

The limit holds for every window of a minute, not for calendar minutes, and on the server's clock.
When a request reached the server is not known exactly, only that it did so before its answer. So
until the answer the request counts as if it arrived now, and from then on as if it arrived with the
answer. Neither a slow start nor a slow connection can push one request too many into a window. The
code does not wait and reads no clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

#: The length of the window that the limits refer to, in seconds.
MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The most requests and tokens (in and out together) in any minute; None is no limit.

    ``in_flight`` is the number of requests that may be unanswered at once. ``window`` is the length
    of a minute, in seconds. After ``circuit_failures`` in a row (None never) the circuit opens, at
    first for ``circuit_pause`` seconds.
    """

    requests: int | None = None
    tokens: int | None = None
    in_flight: int | None = None
    window: float = MINUTE
    circuit_failures: int | None = 8
    circuit_pause: float = 15.0

    @property
    def by_time(self) -> bool:
        """Whether the times of earlier requests matter."""
        return self.requests is not None or self.tokens is not None


@dataclass(slots=True, eq=False)
class Permit:
    """One request's permission to be sent: waited for, given, used, ended.

    ``tokens`` are what the request may take, ``subject`` is what it is for, and ``ended`` is when
    it ended, None until it does. The rest is for ``core.calls.circuit_breaker``: ``generation``
    counts the state changes of the circuit before it was admitted, and whether it is a ``probe``.
    """

    tokens: int
    limits: RateLimits
    subject: Hashable = None
    begun: bool = False
    ended: float | None = None
    generation: int = 0
    probe: bool = False


class SlidingWindow:
    """The requests to one model within the last minute, and those that wait to be next.

    ::

        join() -> wait() until it says 0 -> admit() -> begin() -> end()
                                         leave(), from anywhere before begin()

    The first to join is the first to go, even where a later, smaller request would fit: otherwise a
    large one might wait for ever. Each request is held to its own limits; the window is shared.
    """

    def __init__(self) -> None:
        self._sent: deque[Permit] = deque()
        self._queue: list[Permit] = []
        self._window = 0.0

    def join(self, tokens: int, limits: RateLimits, subject: Hashable = None) -> Permit:
        """Take a place at the end of the queue for a request of at most ``tokens`` tokens."""
        request = Permit(tokens, limits, subject)
        self._queue.append(request)
        return request

    def wait(self, request: Permit, now: float) -> float:
        """Return the seconds until ``request`` may go: 0 now, infinity never.

        The requests ahead of it are assumed to go as soon as they may; where they do not, ask again
        later.
        """
        self._forget(now)
        sent: list[tuple[float, int]] = []
        if any(each.limits.by_time for each in self._queue):
            sent += (
                (now if each.ended is None else each.ended, each.tokens) for each in self._sent
            )
            sent.sort()
        in_flight = sum(each.ended is None for each in self._sent)
        at, ahead = now, False
        for each in self._queue:
            found = _earliest(sent, each, at)
            if each.limits.in_flight is not None and in_flight >= each.limits.in_flight:
                # Which answer comes next, and when, is unknown.
                found = math.inf
            if each is request:
                # A request ahead may go this instant, and has to go before this one.
                return max(found - now, 1e-3 if ahead else 0.0)
            if not math.isinf(found):
                at, ahead, in_flight = found, True, in_flight + 1
                sent.append((found, each.tokens))
        raise ValueError("the request is not waiting")

    def admit(self, request: Permit) -> None:
        """Let a waiting request go."""
        self._queue.remove(request)
        self._sent.append(request)

    def begin(self, request: Permit) -> None:
        """Note that an admitted request is being sent."""
        request.begun = True

    def end(self, request: Permit, now: float, *, tokens: int | None = None) -> None:
        """Note that a request was answered or given up; ``tokens`` is what it took, if known."""
        request.ended = now
        if tokens is not None:
            request.tokens = tokens

    def leave(self, request: Permit) -> None:
        """Take back a request that was never sent."""
        if request in self._queue:
            self._queue.remove(request)
        elif not request.begun and request in self._sent:
            self._sent.remove(request)

    def _forget(self, now: float) -> None:
        """Drop the requests that lie before the longest window in use."""
        self._window = max([self._window, *(each.limits.window for each in self._queue)])
        since = now - self._window
        if any(each.ended is not None and each.ended <= since for each in self._sent):
            self._sent = deque(
                each for each in self._sent if each.ended is None or each.ended > since
            )


def _earliest(sent: Iterable[tuple[float, int]], request: Permit, now: float) -> float:
    """Return the earliest time at which the minute up to it has room; ``sent`` is by time."""
    limits = request.limits
    times = list(sent)
    at = now
    if limits.requests is not None and len(times) >= limits.requests:
        at = max(at, times[len(times) - limits.requests][0] + limits.window)
    if limits.tokens is not None:
        if request.tokens > limits.tokens:
            return math.inf
        room = limits.tokens - request.tokens
        for time, tokens in reversed(times):
            room -= tokens
            if room < 0:
                at = max(at, time + limits.window)
                break
    return at


def least_seconds(calls: int, tokens: int, limits: RateLimits) -> float:
    """Return the least time that so many calls and tokens take; those of the first minute are free.

    What fits into one minute goes at once; everything after it waits for whole windows.
    """
    minutes = 0
    if limits.requests is not None:
        minutes = max(minutes, math.ceil(calls / limits.requests) - 1)
    if limits.tokens is not None:
        minutes = max(minutes, math.ceil(tokens / limits.tokens) - 1)
    return minutes * limits.window
