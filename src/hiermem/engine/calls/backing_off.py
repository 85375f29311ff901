"""Repeats a call that failed in a way that may pass, with a growing pause before each new try."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hiermem.core.calls.backoff import Pauses

T = TypeVar("T")


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
