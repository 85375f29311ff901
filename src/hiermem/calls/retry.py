"""Runs an operation again while its failure may pass: at the store, at a model.

Only store operations that may run twice belong here: reads, and writes that are recognised if they
took effect although the store reported a failure. The error of the last try is raised. ``shielded``
finishes an operation despite cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from hiermem.calls.failures import LONGEST_HOLD, Pauses
from hiermem.errors import ModelError, ReadOnlyError, StoreCorruptError, StoreError

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState


#: How often an operation is tried, and after which pauses.
TRIES: Final = 5
_AGAIN: Final[Pauses] = (0.05, 1.0)

T = TypeVar("T")


async def retry_store(
    call: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]]
) -> T:
    """Run ``call``, and retry it while the store fails.

    A store that is damaged, newer than the library or opened for reading only does not get better:
    these errors are raised at once.
    """
    return await backing_off(call, tries=TRIES, pauses=_AGAIN, passing=_is_passing, sleep=sleep)


def _is_passing(error: BaseException) -> bool:
    lasting = (StoreCorruptError, ReadOnlyError)
    return isinstance(error, StoreError) and not isinstance(error, lasting)


async def retry_write(
    call: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]]
) -> tuple[T, bool]:
    """Retry a write as ``retry_store`` does; return also whether a try before the last one failed.

    Such a try may have taken effect all the same.
    """
    tries = 0

    async def attempt() -> T:
        nonlocal tries
        tries += 1
        return await call()

    return await retry_store(attempt, sleep=sleep), tries > 1


async def shielded(work: Awaitable[T]) -> T:
    """Await ``work`` to its end even where the caller is cancelled; then raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the cancellation is raised instead
        raise


async def backing_off(
    call: Callable[[], Awaitable[T]],
    *,
    tries: int,
    pauses: Pauses,
    passing: Callable[[BaseException], bool],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Make a call at most ``tries`` times, as long as it fails in a way that is ``passing``.

    ``pauses`` are the limits of the first and of the longest pause, in seconds; each pause is drawn
    below its limit, which doubles. The error of the last try is raised.
    """
    # Outside of tenacity, because most calls do not fail, and setting it up costs more than reading
    # a record.
    try:
        return await call()
    except Exception as error:
        if not passing(error):
            raise
        failed: list[Exception] = [error]
    from tenacity import (
        AsyncRetrying,
        retry_if_exception,
        stop_after_attempt,
        wait_random_exponential,
    )

    async def attempt() -> T:
        if failed:
            raise failed.pop()
        return await call()

    first, longest = pauses
    retrying = AsyncRetrying(
        stop=stop_after_attempt(tries),
        wait=wait_random_exponential(multiplier=first, max=longest),
        retry=retry_if_exception(passing),
        reraise=True,
        sleep=sleep,
    )
    return await retrying(attempt)


_FIRST_WAIT: Final = 0.5
_MOST_BACKOFF: Final = 30.0


def retrying(
    *,
    retries: int,
    pause: Callable[[float], Awaitable[None]],
    time_left: Callable[[], float | None] = lambda: None,
    within: float | None = None,
    given_up: Callable[[], bool] = bool,
) -> AsyncRetrying:
    """Return the retry policy: transient errors, exponential or as the provider asks.

    Nothing is retried where the provider asks for a longer pause than is left by ``time_left``,
    where the next try would begin later than ``within`` seconds after the first, and where the
    caller has ``given_up``.
    """
    from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

    backoff = wait_random_exponential(multiplier=_FIRST_WAIT, max=_MOST_BACKOFF)

    def asked_for(retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        return (error.retry_after or 0.0) if isinstance(error, ModelError) else 0.0

    def wait(retry_state: RetryCallState) -> float:
        return max(asked_for(retry_state), backoff(retry_state))

    def stop(retry_state: RetryCallState) -> bool:
        left, asked = time_left(), asked_for(retry_state)
        begins = (retry_state.seconds_since_start or 0.0) + retry_state.upcoming_sleep
        return (
            retry_state.attempt_number > retries
            or asked > LONGEST_HOLD
            or given_up()
            or (left is not None and asked > left)
            or (within is not None and begins >= within)
        )

    return AsyncRetrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
        reraise=True,
        sleep=pause,
    )
