"""What a search over all sessions of a tenant costs and finds, beside SQLite's FTS5.

Many sessions of messages whose words follow one another as in the LoCoMo conversations (a chain of
word pairs), and those conversations themselves, go into one store, and the same texts into one FTS5
table (Porter stems). Both are asked the LoCoMo questions as OR queries, stop words aside, for the
best ten, taking turns, warm; then for a word that three messages hold. Times are milliseconds of
the processor, all threads together. Sizes are those of the store's file before and after the first
search over all sessions, and of the table's.

"Evidence" is the share of a question's evidence messages in ``recall``: of a memory that holds all
LoCoMo conversations, asked without naming one, beside that of each conversation alone.

    HIERMEM_DATA=path/to/data python benchmarks/across.py [sessions] [messages in each]
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, median, quantiles

from conversations import ADVERSARIAL, Chat, folder, locomo
from query import fts_match

from hiermem import AsyncMemory, Message

START = datetime(2024, 1, 1, tzinfo=UTC)
QUESTIONS = 150
RARE = "quixotry"
BUDGETS = (500, 1_000, 4_000)
APPENDS = 400


def talk(
    chats: Sequence[Chat], sessions: int, messages: int
) -> Iterator[tuple[str, list[Message]]]:
    """Yield sessions of made-up messages, each as long as a real one and of its words."""
    rng = random.Random(1)
    after: dict[str, list[str]] = defaultdict(list)
    lengths: list[int] = []
    for chat in chats:
        for message in chat.messages:
            words = str(message.content).split()
            lengths.append(max(1, len(words)))
            for one, two in zip(["", *words], words, strict=False):
                after[one].append(two)
    holders = set(rng.sample(range(sessions * messages), 3))
    for number in range(sessions):
        made: list[Message] = []
        for place in range(messages):
            words, last = [], ""
            for _ in range(rng.choice(lengths)):
                last = rng.choice(after.get(last) or after[""])
                words.append(last)
            if number * messages + place in holders:
                words.append(RARE)
            at = START + timedelta(minutes=7 * place, days=number % 300)
            make = Message.assistant if place % 2 else Message.user
            made.append(make(" ".join(words), created_at=at))
        yield f"talk-{number}", made


def table(path: Path, rows: Iterator[str]) -> sqlite3.Connection:
    """Put the texts of all messages into one FTS5 table."""
    base = sqlite3.connect(path)
    base.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'porter')")
    base.executemany("INSERT INTO said VALUES (?)", ((row,) for row in rows))
    base.commit()
    return base


def ask_table(base: sqlite3.Connection, question: str) -> int:
    found = base.execute(
        "SELECT rowid, text FROM said WHERE said MATCH ? ORDER BY bm25(said) LIMIT 10",
        (fts_match(question),),
    )
    return len(found.fetchall())


def megabytes(path: Path) -> float:
    """Return the size of a database with its log."""
    parts = path.parent.glob(f"{path.name}*")
    return sum(part.stat().st_size for part in parts) / 1e6


async def spent(work: Callable[[], object]) -> float:
    """Return the milliseconds of the processor that ``work`` takes; it may be awaited."""
    began = time.process_time()
    result = work()
    if asyncio.iscoroutine(result):
        await result
    return 1_000 * (time.process_time() - began)


async def beside(memory: AsyncMemory, base: sqlite3.Connection, asked: Sequence[str]) -> None:
    """Ask both in turn, after each was asked everything once."""
    ours: list[float] = []
    theirs: list[float] = []
    for timed in (False, True):
        for question in asked:
            one = await spent(lambda: memory.search(question, 10))  # noqa: B023
            two = await spent(lambda: ask_table(base, question))  # noqa: B023
            if timed:
                ours.append(one)
                theirs.append(two)
    for name, values in (("hiermem", ours), ("FTS5", theirs)):
        most = quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
        print(f"| {name} | {median(values):.1f} | {most:.1f} |")


async def appended(memory: AsyncMemory, sessions: int) -> float:
    """Return the milliseconds that a single append takes, to one session after the other.

    Each session has been appended to once before, so its record is at hand.
    """
    took: list[float] = []
    for number in range(2 * APPENDS):
        session = memory.session(f"talk-{number % min(APPENDS, sessions)}")
        said = Message.user(f"One more thing, number {number}.")
        one = await spent(lambda: session.append(said))  # noqa: B023
        took += [one] if number >= APPENDS else []
    return median(took)


async def cost(chats: Sequence[Chat], place: Path, sessions: int, messages: int) -> None:
    path = place / "many.db"
    async with AsyncMemory.open(path) as memory:
        for chat in chats:
            await memory.session(chat.name).append(chat.messages)
        for name, made in talk(chats, sessions, messages):
            await memory.session(name).append(made)
        before = await appended(memory, sessions)
    plain = megabytes(path)
    every = [str(m.content) for chat in chats for m in chat.messages]
    rows = (str(m.content) for _, made in talk(chats, sessions, messages) for m in made)
    with closing(table(place / "fts.db", (row for part in (every, rows) for row in part))) as base:
        async with AsyncMemory.open(path) as memory:
            began = time.perf_counter()
            first = await spent(lambda: memory.search(RARE))
            first_clock = time.perf_counter() - began
            questions = [q.text for chat in chats for q in chat.questions]
            asked = random.Random(2).sample(questions, min(QUESTIONS, len(questions)))
            print(f"\n{sessions:,} sessions of {messages:,} messages.\n")
            print("| LoCoMo questions, ms | median | p95 |\n|---|---|---|")
            await beside(memory, base, asked)
            print("\n| one rare word, ms | median | p95 |\n|---|---|---|")
            await beside(memory, base, [RARE] * 20)
            after = await appended(memory, sessions)
            print(f"\n| {APPENDS} sessions appended to, then | ms |\n|---|---|")
            print(f"| the next search | {await spent(lambda: memory.search(RARE)):.1f} |")
            print(f"| the one after | {await spent(lambda: memory.search(RARE)):.1f} |")
        async with AsyncMemory.open(path) as memory:
            opened = await spent(lambda: memory.search(asked[0]))
    whole, fts = megabytes(path), megabytes(place / "fts.db")
    many = sessions * messages
    print(f"\nThe first search over all took {first_clock:.0f} s ({first / 1_000:.0f} s of work).")
    print(f"The first one of a new process took {opened:.0f} ms.")
    print(f"An append took {before:.2f} ms before it and {after:.2f} ms after it.")
    print(
        f"The store has {plain:.0f} MB before it and {whole:.0f} MB after it: "
        f"{(whole - plain) * 1e6 / many:.0f} bytes a message. The FTS5 table has {fts:.0f} MB."
    )


async def evidence(chats: Sequence[Chat]) -> None:
    """Print the share of the evidence that is recalled, alone and mixed."""
    alone: dict[int, list[float]] = defaultdict(list)
    mixed: dict[int, list[float]] = defaultdict(list)
    async with AsyncMemory.open(":memory:") as memory:
        for chat in chats:
            await memory.session(chat.name).append(chat.messages)
        for chat in chats:
            for question in chat.questions:
                if question.kind == ADVERSARIAL:
                    continue
                wanted = {(chat.name, index) for index in question.evidence}
                for budget in BUDGETS:
                    one = await memory.session(chat.name).recall(question.text, budget)
                    two = await memory.recall(question.text, budget)
                    for found, shares in ((one, alone), (two, mixed)):
                        held = {(hit.session_id, hit.index) for hit in found}
                        shares[budget].append(len(wanted & held) / len(wanted))
    print("| evidence, LoCoMo | " + " | ".join(f"{one:,}" for one in BUDGETS) + " |")
    print("|---" * (1 + len(BUDGETS)) + "|")
    for name, shares in (("each alone", alone), ("all mixed", mixed)):
        print(f"| {name} | " + " | ".join(f"{mean(shares[one]):.3f}" for one in BUDGETS) + " |")
    ratios = (mean(mixed[one]) / mean(alone[one]) for one in BUDGETS)
    print("| ratio | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |")


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    messages = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    chats = list(locomo(folder()))
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(cost(chats, Path(place), sessions, messages))
    asyncio.run(evidence(chats))


if __name__ == "__main__":
    main()
