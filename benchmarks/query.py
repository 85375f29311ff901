"""What a search costs: by the length of a session, and by the number of sessions beside it.

Beside it stand a bare FTS5 table of the same messages (Porter stems, ``bm25()``, best ten) and bare
numpy (one product of the vectors with a question's, best ten). What an embedder takes for the
question is left out everywhere. Medians over the questions, in milliseconds of the processor, all
threads together: where a machine does nothing else that is what passes by the clock, and where it
is busy it is still what the query costs. "After an append" is the search that follows one, "first"
the first search of a new process over a session that was searched before, which loads the index,
and "index" is what making it from the messages takes.

    python benchmarks/query.py [sizes, such as 1000,10000,100000] [sessions, such as 10,1000]
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from hiermem import AsyncMemory, AsyncSession, Message
from hiermem.embedders import HashingEmbedder
from hiermem.text.terms import STOP_WORDS

START = datetime(2024, 1, 1, tzinfo=UTC)
QUESTIONS = 25
BATCH = 2_000
DIMENSION = 384
PER_SESSION = 1_000


def chat(messages: int, seed: int) -> list[Message]:
    """Make a chat of 8 to 30 words a message, the words as frequent as in speech (Zipf)."""
    rng = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "en", "or", "i") for c in VOWELS]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    texts = [rng.choices(words, weights, k=rng.randint(8, 30)) for _ in range(messages)]
    return [
        Message(
            "assistant" if index % 2 else "user",
            " ".join(text),
            created_at=START + timedelta(minutes=7 * index),
        )
        for index, text in enumerate(texts)
    ]


VOWELS = [f"{a}{b}" for a in ("l", "m", "n", "v", "z", "th", "ck") for b in ("o", "u", "ea", "is")]


def questions(messages: list[Message]) -> list[str]:
    """Ask with five words of some message each."""
    rng = random.Random(7)
    return [
        " ".join(rng.sample(str(message.content).split(), 5)) + "?"
        for message in rng.sample(messages, QUESTIONS)
    ]


def milliseconds(work: Callable[[str], object], asked: list[str]) -> float:
    """Return the median over the questions."""
    took = []
    for question in asked:
        began = time.process_time()
        work(question)
        took.append(1_000 * (time.process_time() - began))
    return median(took)


async def awaited(work: Callable[[str], Awaitable[object]], asked: list[str]) -> float:
    """Do the same with what is awaited."""
    return median([await once(partial(work, question)) for question in asked])


async def once(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await work()
    return 1_000 * (time.process_time() - began)


def fts_match(question: str) -> str:
    words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP_WORDS]
    return " OR ".join(f'"{word}"' for word in words)


def fts(path: Path, chats: dict[str, list[Message]]) -> sqlite3.Connection:
    """Put messages of all sessions into one FTS5 table, as an application would."""
    base = sqlite3.connect(path)
    base.execute(
        "CREATE VIRTUAL TABLE said USING fts5(session UNINDEXED, text, tokenize = 'porter')"
    )
    base.executemany(
        "INSERT INTO said VALUES (?, ?)",
        ((name, str(m.content)) for name, messages in chats.items() for m in messages),
    )
    base.commit()
    return base


def fts_search(base: sqlite3.Connection, session: str, question: str) -> object:
    return base.execute(
        "SELECT rowid, text FROM said WHERE said MATCH ? AND session = ? "
        "ORDER BY bm25(said) LIMIT 10",
        (fts_match(question), session),
    ).fetchall()


def numpy_search(rows: np.ndarray, vector: np.ndarray) -> object:
    scores = rows @ vector
    best = np.argpartition(-scores, 10)[:10]
    return best[np.argsort(-scores[best])]


async def fill(session: AsyncSession, messages: list[Message]) -> None:
    for start in range(0, len(messages), BATCH):
        await session.append(messages[start : start + BATCH])


async def by_length(folder: Path, sizes: list[int]) -> None:
    print(
        "| messages | search | recall | bare FTS5 | after an append | first | index | "
        "search with vectors | bare numpy | vectors, after an append |"
    )
    print("|" + "---|" * 10)
    for size in sizes:
        messages = chat(size, size)
        asked = questions(messages)
        path = folder / f"{size}.db"
        async with AsyncMemory.open(path) as memory:
            session = memory.session("s")
            await fill(session, messages)
            await session.update()
            index = await once(lambda: session.search(asked[0]))  # noqa: B023
            search = await awaited(session.search, asked)
            recall = await awaited(session.recall, asked)
            after = []
            for number in range(9):
                await session.append(Message.user(f"one more {number}"))
                after.append(await once(lambda: session.search(asked[0])))  # noqa: B023
        async with AsyncMemory.open(path) as memory:
            first = await once(lambda: memory.session("s").search(asked[0]))  # noqa: B023
        async with AsyncMemory.open(path, embedder=HashingEmbedder(DIMENSION)) as memory:
            session = memory.session("s")
            await session.embed()
            for question in asked:  # what an embedder takes for the question is left out
                await session.search(question)
            vectors = await awaited(session.search, asked)
            grown = []
            for number in range(5):
                await session.append(Message.user(f"another {number}"))
                grown.append(await once(lambda: session.search(asked[0])))  # noqa: B023
        with closing(fts(folder / f"fts-{size}.db", {"s": messages})) as base:
            plain = milliseconds(lambda q: fts_search(base, "s", q), asked)
        rows = np.random.default_rng(1).normal(size=(size, DIMENSION)).astype(np.float32)
        dense = milliseconds(lambda _: numpy_search(rows, rows[0]), asked)  # noqa: B023
        figures = (
            search, recall, plain, median(after), first, index, vectors, dense, median(grown),
        )  # fmt: skip
        print(row(size, figures), flush=True)


async def by_sessions(folder: Path, counts: list[int]) -> None:
    print("\n| sessions | search | recall | first | bare FTS5 |\n|" + "---|" * 5)
    for count in counts:
        chats = {f"s{number}": chat(PER_SESSION, number) for number in range(count)}
        asked = questions(chats["s0"])
        path = folder / f"sessions-{count}.db"
        async with AsyncMemory.open(path) as memory:
            for name, messages in chats.items():
                await fill(memory.session(name), messages)
            session = memory.session("s0")
            await session.search(asked[0])
            search = await awaited(session.search, asked)
            recall = await awaited(session.recall, asked)
        async with AsyncMemory.open(path) as memory:
            first = await once(lambda: memory.session("s0").search(asked[0]))  # noqa: B023
        with closing(fts(folder / f"fts-sessions-{count}.db", chats)) as base:
            plain = milliseconds(lambda q: fts_search(base, "s0", q), asked)
        print(row(count, (search, recall, first, plain)), flush=True)


def row(size: int, figures: Sequence[float]) -> str:
    """Write a row of the table, to three figures or the whole number."""
    cells = [f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}" for figure in figures]
    return f"| {size:,} | " + " | ".join(cells) + " |"


def main() -> None:
    sizes = [int(n) for n in (sys.argv[1] if len(sys.argv) > 1 else "1000,10000,100000").split(",")]
    counts = [int(n) for n in (sys.argv[2] if len(sys.argv) > 2 else "10,1000").split(",")]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(by_length(Path(folder), sizes))
        asyncio.run(by_sessions(Path(folder), counts))


if __name__ == "__main__":
    main()
