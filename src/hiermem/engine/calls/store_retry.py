"""Tries an operation of the store again while the store fails, and ends one that was begun.

The one rule: only what may be done twice is handed in here, a read or a write that is recognised
where it took effect all the same; what the last try raises is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from hiermem.errors import StoreCorruptError, StoreError, StoreNewerError

T = TypeVar("T")

#: How often an operation is tried, and the first pause in seconds, doubled each time.
TRIES: Final = 5
_PAUSE: Final = 0.05


async def retry_store(
    call: Callable[[], Awaitable[T]], *, sleep: Callable[[float], Awaitable[None]]
) -> T:
    """Do it, trying again while the store fails.

    A store that is damaged, or newer than the library, is not better a moment later: those errors
    are raised at once.
    """
    for tried in range(1, TRIES + 1):
        try:
            return await call()
        except (StoreCorruptError, StoreNewerError):
            raise
        except StoreError:
            if tried == TRIES:
                raise
            await sleep(_PAUSE * 2 ** (tried - 1))
    raise AssertionError("the last try returns or raises")


async def shielded(work: Awaitable[T]) -> T:
    """Wait for ``work`` to its end even where the waiting is cancelled, then be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
