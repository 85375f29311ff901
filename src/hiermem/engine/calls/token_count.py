"""Counts tokens without blocking the event loop.

A short text is counted in place, because handing it to a thread takes longer. A long one is counted
on a thread, so that the event loop serves other tasks meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

#: Above this many characters counting would block the event loop for about ten milliseconds.
LONG: Final = 50_000


async def tokens_of(count: Callable[[str], int], texts: Sequence[str]) -> int:
    """Return the tokens of all texts together."""
    return sum(await sizes_of(count, texts))


async def sizes_of(count: Callable[[str], int], texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text."""
    if sum(map(len, texts)) <= LONG:
        return [count(text) for text in texts]
    return await asyncio.to_thread(lambda: [count(text) for text in texts])
