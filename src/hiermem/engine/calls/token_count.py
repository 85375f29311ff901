"""Counts tokens without holding up the event loop.

The one rule: a short text is counted where it is, because handing it to a thread takes longer; a
long one on a thread, so that whatever else this loop serves goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

#: Above this many characters, counting would hold up the event loop: some ten milliseconds.
LONG: Final = 50_000


async def tokens_of(count: Callable[[str], int], texts: Sequence[str]) -> int:
    """Give the tokens of all texts together."""
    return sum(await sizes_of(count, texts))


async def sizes_of(count: Callable[[str], int], texts: Sequence[str]) -> list[int]:
    """Give the tokens of each text."""
    if sum(map(len, texts)) <= LONG:
        return [count(text) for text in texts]
    return await asyncio.to_thread(lambda: [count(text) for text in texts])
