"""What a durable append costs, compared with the bare database.

Single: one chat line (LoCoMo) an append, each durable when the call returns, against one INSERT and
COMMIT of the same row through bare sqlite3: same table, same indexes, same settings, the row made
beforehand. Batches: 100 messages an append, against one transaction of 100 such rows and tokenising
the same texts. Both sides write to files of their own in one temporary folder (TMPDIR chooses the
disk) and take turns in small rounds; the ratio is the median over the rounds, because what an fsync
takes drifts by the second. Both begin with some megabytes of messages in the file, so that neither
has its log grow while it is timed, which makes an fsync several times as long. 1.00 is the bare
rate; the aim is half of it or more.

    HIERMEM_DATA=path/to/data python benchmarks/append.py [rounds]
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from hiermem import Memory, Message
from hiermem.records.run import RecordStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.tokens import default_counter

AIM = 0.5
BATCH = 100
#: Appends a side makes in a round before it is the other one's turn.
TURN = 10
SETTINGS = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
)
INSERT = f"INSERT INTO messages VALUES ({', '.join('?' * 14)})"
HEAD = "UPDATE heads SET messages = ?, version = ?, state = ? WHERE session = 1"

Rows = list[tuple[object, ...]]


class Bare:
    """The same file without the library: rows that are ready go into the same table."""

    def __init__(self, path: Path, *, head: bool = False) -> None:
        asyncio.run(_make(path))
        self._base = sqlite3.connect(path, isolation_level=None)
        for setting in SETTINGS:
            self._base.execute(setting)
        self._head = head
        self._next = 0
        if head:
            self._base.execute("INSERT INTO heads VALUES (1, 't', 0, 0, 0, '', 0, 0, '', 0, 0)")

    def rows(self, texts: Sequence[str]) -> Rows:
        """Make the rows of some messages, as the library would."""
        count, first = default_counter().count, self._next
        self._next += len(texts)
        rows: Rows = []
        for index, text in enumerate(texts, first):
            size = count(text) + 4
            fixed = (1 << 32 | index, "user", "main", None, text, 1_700_000_000_000_000 + index)
            rows.append((*fixed, None, size, size, "sha256:" + "0" * 40, None, "live", None, None))
        return rows

    def write(self, rows: Rows) -> None:
        """Write rows in one durable transaction."""
        execute = self._base.execute
        execute("BEGIN IMMEDIATE")
        if len(rows) == 1:
            execute(INSERT, rows[0])
        else:
            self._base.executemany(INSERT, rows)
        if self._head:
            execute(HEAD, (self._next, self._next, "x" * 300))
        execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._base.close()


async def _make(path: Path) -> None:
    store = RecordStore(await SQLiteStore.open(path))
    await store.close()


def locomo() -> list[str]:
    """Read the lines of the LoCoMo development chats."""
    path = Path(os.environ["HIERMEM_DATA"]) / "locomo" / "locomo_dev5.json"
    return [
        turn["text"]
        for sample in json.loads(path.read_text("utf-8"))
        for number in range(1, 100)
        for turn in sample["conversation"].get(f"session_{number}", ())
    ]


def beam() -> list[str]:
    """Read the messages of one BEAM chat."""
    path = Path(os.environ["HIERMEM_DATA"]) / "beam" / "beam_1m_3.json"
    return [item["content"] for item in json.loads(path.read_text("utf-8"))["messages"]]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def duel(
    texts: list[str],
    before: list[str],
    *,
    size: int,
    rounds: int,
    tokenise: bool,
    head: bool = False,
) -> tuple[float, float, float]:
    """Let both sides append ``size`` messages at a time; give seconds a message, and the ratio."""
    count = default_counter().count
    supply = cycle(texts)
    turn = TURN if size == 1 else 1
    bare_took: list[float] = []
    our_took: list[float] = []
    with tempfile.TemporaryDirectory() as place, Memory.open(Path(place) / "ours.db") as memory:
        bare = Bare(Path(place) / "bare.db", head=head)
        session = memory.session("chat")
        bare.write(bare.rows(before))
        session.append([Message.user(text) for text in before])
        for number in range(-max(2, rounds // 10), rounds):
            parts = [list(islice(supply, size)) for _ in range(turn)]
            ready = [bare.rows(part) for part in parts]
            given = [
                [Message.assistant(t) if n % 2 else Message.user(t) for n, t in enumerate(part, at)]
                for at, part in enumerate(parts)
            ]

            def bare_turn(parts: list[list[str]] = parts, ready: list[Rows] = ready) -> None:
                for part, rows in zip(parts, ready, strict=True):
                    if tokenise:
                        for text in part:
                            count(text)
                    bare.write(rows)

            def our_turn(given: list[list[Message]] = given) -> None:
                for messages in given:
                    session.append(*messages)

            first, second = (bare_turn, our_turn) if number % 2 else (our_turn, bare_turn)
            one, two = timed(first), timed(second)
            if number >= 0:
                bare_took.append(one if number % 2 else two)
                our_took.append(two if number % 2 else one)
        bare.close()
    each = size * turn
    ratios = [b / o for b, o in zip(bare_took, our_took, strict=True)]
    return median(bare_took) / each, median(our_took) / each, median(ratios)


def main() -> None:
    """Run the duels and print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    default_counter().count("load the vocabulary")
    lines, long = locomo(), beam()
    before = 3 * long
    print("| append | against bare sqlite3 and | bare, µs | hiermem, µs | bare / hiermem | aim |")
    print("|---|---|---|---|---|---|")
    few = max(5, rounds // 4)
    for name, beside, texts, size, count, tokenise, head in (
        ("one chat line", "nothing", lines, 1, rounds, False, False),
        ("one chat line", "tokenising", lines, 1, rounds, True, False),
        ("one chat line", "tokenising, a head row", lines, 1, rounds, True, True),
        (f"{BATCH} chat lines", "tokenising", lines, BATCH, few, True, False),
        (f"{BATCH} BEAM messages", "tokenising", long, BATCH, few, True, False),
    ):
        bare, ours, ratio = duel(
            texts, before, size=size, rounds=count, tokenise=tokenise, head=head
        )
        aim = f"≥ {AIM}" if beside != "tokenising, a head row" else ""
        print(
            f"| {name} | {beside} | {bare * 1e6:,.0f} | {ours * 1e6:,.0f} | {ratio:.2f} | {aim} |"
        )


if __name__ == "__main__":
    main()
