"""Runs the requests to one model: a semaphore, limits per minute, and none while it is down.

All runs, sessions and tenants of one event loop that use a model object share its semaphore and its
limits. That it is down is known to the whole process. Requests of another process, of another
event loop, or of another object for the same server are not counted.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from aiolimiter import AsyncLimiter

from hiermem.atfork import at_fork
from hiermem.calls.failures import DOWN, LONGEST_BELIEVED, LONGEST_HOLD, back_off
from hiermem.config import UpdatePolicy
from hiermem.errors import SpendLimitError
from hiermem.protocols import LLM

#: The longest sleep between two checks whether the caller still wants to wait, in seconds.
_LOOK: Final = 0.25


#: What the requests of one event loop to one model share under the same limits: the slots, and the
#: limits of requests and of tokens a minute.
_Shared: TypeAlias = tuple[asyncio.Semaphore, tuple[AsyncLimiter | None, AsyncLimiter | None]]


@dataclass(slots=True, eq=False)
class ModelState:
    """What is known of one model object.

    ``failures`` counts those in a row that may pass, and ``failed`` is what was asked for then;
    ``reason`` is why the last one failed. The model is not asked before ``down_until``.
    """

    failures: int = 0
    reason: str = ""
    failed: set[Hashable] = field(default_factory=set[Hashable])
    down_until: float = 0.0
    by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, _Shared]] = field(
        default_factory=weakref.WeakKeyDictionary
    )


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


class RateLimiter:
    """Lets the requests of one run, or of runs that share it, go to a model.

    At most ``concurrency`` of them hold a slot. ``requests`` and ``tokens`` are the most a minute,
    None is no limit: as many may go at once, and more as that leaks away. After ``concurrency``
    requests the next one waits for ``delay`` seconds. After ``down_after`` failures in a row (None:
    never) the model is down. ``in_flight`` is the number of slots that were taken here.
    """

    def __init__(
        self,
        model: object,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        concurrency: int = 1,
        delay: float = 0.0,
        down_after: int | None = 8,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._state = state_of(model)
        self._requests, self._tokens, self._concurrency = requests, tokens, concurrency
        self._delay, self._down_after = delay, down_after
        self._clock, self._sleep = clock, sleep
        self.in_flight, self._left = 0, concurrency
        self._next = 0.0
        self._line = asyncio.Lock()

    # -- a slot: one at a time is held for a call and its retries

    async def take_slot(self, stopped: Callable[[], object]) -> bool:
        """Wait for a slot; return whether there is one before ``stopped``."""
        slots, _ = self._shared()
        if not await _before(stopped, slots.acquire, slots.release):
            return False
        self.in_flight += 1
        return True

    def give_slot(self) -> None:
        """Give a slot back."""
        self.in_flight -= 1
        self._shared()[0].release()

    # -- a request

    async def admit(self, tokens: int, stopped: Callable[[], object]) -> bool:
        """Wait until a request of at most ``tokens`` may go; return whether before ``stopped``.

        One of more tokens than a minute has counts as a minute's. Raises SpendLimitError.
        """
        self.check()
        if self._delay and not await self._next_batch(stopped):
            return False
        for limit, amount in zip(self._shared()[1], (1, tokens), strict=True):
            if limit is None:
                continue
            part = min(amount, limit.max_rate)
            if not await _before(stopped, lambda limit=limit, part=part: limit.acquire(part)):  # type: ignore[misc]
                return False
        self.check()
        return True

    def check(self) -> None:
        """Raise SpendLimitError while the model is down."""
        if left := self.down_for():
            why = f": {self._state.reason}" if self._state.reason else ""
            raise SpendLimitError(
                f"the model keeps failing{why}; call again in {left:.0f} seconds",
                retry_after=left,
                reason=self._state.reason,
            )

    def down_for(self) -> float:
        """Return the seconds for which the model is not asked; 0 where it may be."""
        return max(0.0, self._state.down_until - self._clock())

    def succeed(self) -> None:
        """Note that the model answered, whatever the answer was worth."""
        self._state.failures, self._state.down_until = 0, 0.0
        self._state.failed.clear()

    def fail(self, subject: Hashable, asked: float | None = None, *, reason: str = "") -> None:
        """Note a failure that may pass; ``asked`` is the pause that the provider wants.

        If every request for one ``subject`` fails, that says nothing of the model. So failures of
        one alone do not make it down.
        """
        if self._down_after is None or self.down_for():
            # A request that was in flight when the model went down tells nothing new.
            return
        state, wanted = self._state, min(asked or 0.0, LONGEST_BELIEVED)
        state.failures, state.reason = state.failures + 1, reason
        state.failed.add(subject)
        over = state.failures - self._down_after
        if wanted > LONGEST_HOLD or (over >= 0 and len(state.failed) > 1):
            state.down_until = self._clock() + max(wanted, back_off(over + 1, DOWN))

    def _shared(self) -> _Shared:
        by_limits = self._state.by_loop.setdefault(asyncio.get_running_loop(), {})
        key = (self._concurrency, self._requests, self._tokens)
        if key not in by_limits:
            requests, tokens = (AsyncLimiter(most, 60) if most else None for most in key[1:])
            by_limits[key] = asyncio.Semaphore(self._concurrency), (requests, tokens)
        return by_limits[key]

    async def _next_batch(self, stopped: Callable[[], object]) -> bool:
        """Wait until the next batch may begin; return whether it may, or ``stopped`` came first."""
        async with self._line:
            if not self._left:
                await sleep_unless(stopped, self._next - self._clock(), self._sleep)
                if stopped():
                    return False
                self._left = self._concurrency
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


async def _before(
    stopped: Callable[[], object],
    begin: Callable[[], Awaitable[Any]],
    undo: Callable[[], object] = bool,
) -> bool:
    """Await what ``begin`` returns; give it up at ``stopped``, and return whether it was done.

    ``undo`` is called where it was done and the caller is cancelled at that moment.
    """
    task = asyncio.ensure_future(begin())
    kept = False
    try:
        while not task.done():
            if stopped():
                return False
            await asyncio.wait([task], timeout=_LOOK)
        task.result()
        kept = True
        return True
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if not kept and not task.cancelled() and task.exception() is None:
            undo()


def rate_limiter(
    llm: LLM,
    policy: UpdatePolicy,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> RateLimiter:
    """Return the rate limiter of ``llm`` under ``policy``; a local model has a semaphore only."""
    return RateLimiter(
        llm,
        requests=policy.requests_per_minute if llm.remote else None,
        tokens=policy.tokens_per_minute if llm.remote else None,
        concurrency=policy.concurrency,
        delay=policy.batch_delay if llm.remote else 0.0,
        down_after=policy.down_after,
        clock=clock,
        sleep=sleep,
    )
