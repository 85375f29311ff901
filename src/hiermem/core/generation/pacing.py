"""Decides when the next request may go to a model, so that no minute holds more than is allowed.

The one rule: it holds for every window of a minute, not for calendar minutes, and it is counted
from when requests really began. One that was let go but has not begun counts as if it began now, so
that a slow start can never slide two of them into one window. It does not wait and reads no clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["MINUTE", "Limits", "Request", "Traffic", "least_seconds"]

#: The length of the window that limits speak of, in seconds.
MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The most requests and tokens (in and out together) in any minute; None is no limit."""

    requests: int | None = None
    tokens: int | None = None

    @property
    def any(self) -> bool:
        """Say whether anything is limited."""
        return self.requests is not None or self.tokens is not None


@dataclass(slots=True, eq=False)
class Request:
    """One request: what it may take, and when it began; None until it does."""

    tokens: int
    limits: Limits
    begun: float | None = None


class Traffic:
    """What went to one model within the last minute, and who waits to be next.

    ::

        join() -> wait() until it says 0 -> admit() -> begin() -> settle()
                                         leave(), from anywhere before begin()

    Whoever joined first is let go first, even where a later, smaller request would fit: otherwise a
    large one might wait for ever. Each is held to limits of its own; the traffic is everybody's.
    """

    def __init__(self) -> None:
        self._sent: deque[Request] = deque()
        self._queue: list[Request] = []

    def join(self, tokens: int, limits: Limits) -> Request:
        """Take a place at the end of the queue for a request of at most ``tokens`` tokens."""
        request = Request(tokens, limits)
        self._queue.append(request)
        return request

    def wait(self, request: Request, now: float) -> float:
        """Give the seconds until ``request`` may go: 0 now, infinity never.

        Those ahead of it are taken to go as soon as they may; where they do not, ask again later.
        """
        self._forget(now)
        seen = [(now if each.begun is None else each.begun, each.tokens) for each in self._sent]
        seen.sort()
        at, ahead = now, False
        for each in self._queue:
            found = _earliest(seen, each, at)
            if each is request:
                # Somebody ahead may be let go this instant; it has to be so before this one is.
                return max(found - now, 1e-3 if ahead else 0.0)
            if not math.isinf(found):
                at, ahead = found, True
                seen.append((found, each.tokens))
        raise ValueError("the request is not waiting")

    def admit(self, request: Request) -> None:
        """Let a waiting request go."""
        self._queue.remove(request)
        self._sent.append(request)

    def begin(self, request: Request, now: float) -> None:
        """Note that a request which was let go is being sent."""
        request.begun = now

    def settle(self, request: Request, tokens: int) -> None:
        """Replace what a request was expected to take by what it took."""
        request.tokens = tokens

    def leave(self, request: Request) -> None:
        """Take back a request that was never sent."""
        if request in self._queue:
            self._queue.remove(request)
        elif request.begun is None and request in self._sent:
            self._sent.remove(request)

    def _forget(self, now: float) -> None:
        """Drop what lies more than a minute back."""
        if any(each.begun is not None and each.begun + MINUTE <= now for each in self._sent):
            self._sent = deque(
                each for each in self._sent if each.begun is None or each.begun + MINUTE > now
            )


def _earliest(sent: Iterable[tuple[float, int]], request: Request, now: float) -> float:
    """Give the earliest time at which the minute behind it has room; ``sent`` is by time."""
    limits = request.limits
    times = list(sent)
    at = now
    if limits.requests is not None and len(times) >= limits.requests:
        at = max(at, times[len(times) - limits.requests][0] + MINUTE)
    if limits.tokens is not None:
        if request.tokens > limits.tokens:
            return math.inf
        room = limits.tokens - request.tokens
        for time, tokens in reversed(times):
            room -= tokens
            if room < 0:
                at = max(at, time + MINUTE)
                break
    return at


def least_seconds(calls: int, tokens: int, limits: Limits) -> float:
    """Give the least time that so many calls of so many tokens take; the first minute's are free.

    What fits into one minute goes at once; everything after it waits for whole windows.
    """
    minutes = 0
    if limits.requests is not None:
        minutes = max(minutes, math.ceil(calls / limits.requests) - 1)
    if limits.tokens is not None:
        minutes = max(minutes, math.ceil(tokens / limits.tokens) - 1)
    return minutes * MINUTE
