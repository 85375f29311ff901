"""Counts tokens, and does other work on texts, without blocking the event loop.

A short text is counted in place, because handing it to a thread takes longer. A long one is counted
on a thread, so that the event loop serves other tasks meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from hiermem.types import Message, StoredMessage

T = TypeVar("T")

#: Above this many characters counting would block the event loop for about ten milliseconds.
LONG: Final = 50_000
#: So few messages take less time than a thread does.
_FEW: Final = 64


async def tokens_of(count: Callable[[str], int], texts: Sequence[str]) -> int:
    """Return the tokens of all texts together."""
    return sum(await sizes_of(count, texts))


async def sizes_of(count: Callable[[str], int], texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text."""
    if sum(map(len, texts)) <= LONG:
        return [count(text) for text in texts]
    return await asyncio.to_thread(lambda: [count(text) for text in texts])


async def in_thread_if_long(
    work: Callable[[], T], messages: Sequence[Message | StoredMessage]
) -> T:
    """Do work on messages, on a thread where they are many or long."""
    if len(messages) <= _FEW and sum(len(each.content) for each in messages) <= LONG:
        return work()
    return await asyncio.to_thread(work)
