"""What an update with the offline model costs beside tokenising the same text.

Conversations are appended to a store in a temporary folder and updated: at once, or two messages at
a time with an update after each two. An update reads the messages, makes the summaries of all
levels with their labels and anchors, stores them, and keeps the index of a session of 256 messages
and more. Beside it stands counting the tokens of the same text by tiktoken, and nothing else, right
before and after. Seconds of the processor, of all threads; the append is not counted.

    HIERMEM_DATA=path/to/data python benchmarks/offline_update.py [rounds]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from conversations import Chat, beam, folder, locomo

from hiermem import AsyncMemory
from hiermem.tokens import default_counter

#: Messages of the long chat.
LONG = 300


def text_of(chats: Sequence[Chat]) -> list[str]:
    """Return the text of each chat, in stretches that tiktoken reads at one go."""
    return ["\n".join(str(message.content) for message in chat.messages) for chat in chats]


def tokenise(texts: Sequence[str]) -> float:
    """Return the seconds that counting the tokens takes."""
    began = time.process_time()
    for text in texts:
        default_counter().count(text)
    return time.process_time() - began


async def update(chat: Chat, *, step: int) -> float:
    """Append a chat ``step`` messages at a time; return the seconds that the updates take."""
    took = 0.0
    with tempfile.TemporaryDirectory() as place:
        async with AsyncMemory.open(Path(place) / "memory.db") as memory:
            session = memory.session("chat")
            for first in range(0, len(chat.messages), step):
                await session.append(chat.messages[first : first + step])
                began = time.process_time()
                await session.update()
                took += time.process_time() - began
    return took


def measure(chats: Sequence[Chat], *, step: int) -> tuple[float, float]:
    """Return the seconds of the updates of some chats, and those of tokenising them."""
    texts = text_of(chats)
    before = tokenise(texts)
    took = sum(asyncio.run(update(chat, step=step)) for chat in chats)
    return took, (before + tokenise(texts)) / 2


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    data = folder()
    short, long = list(locomo(data)), list(beam(data))
    million = next(chat for chat in beam(data, size="1m") if chat.name == "beam_1m_3")
    million = replace(million, messages=million.messages[:LONG])
    rows = (
        ("LoCoMo", "at once", short, LONG * LONG),
        ("BEAM", "at once", long, LONG * LONG),
        (f"long BEAM chat, {LONG} messages", "at once", [million], LONG * LONG),
        ("LoCoMo, one chat", "two by two", short[:1], 2),
        ("BEAM, one chat", "two by two", long[:1], 2),
    )
    asyncio.run(update(million, step=LONG))
    print("| conversations | appended | text, MB | update, MB/s | of tokenising |")
    print("|---|---|---|---|---|")
    for name, how, chats, step in rows:
        size = sum(len(text.encode()) for text in text_of(chats)) / 1e6
        measured = [measure(chats, step=step) for _ in range(rounds)]
        speed = median(size / took for took, _ in measured)
        ratio = median(took / plain for took, plain in measured)
        print(f"| {name} | {how} | {size:.2f} | {speed:.2f} | {ratio:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
