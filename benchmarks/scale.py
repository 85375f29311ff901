"""What an append and a context cost at a million messages beside a thousand.

Two sessions of short messages, each in a file of its own, are built in large batches and brought up
to date with the offline model. Then they take turns in small rounds: ten durable single appends
each, and a context of 8,000 tokens after each round, as an application asks for it. The ratio is
the median over the rounds, because what an fsync takes drifts by the second. The
rows of each store are listed below.

    python benchmarks/scale.py [messages] [rounds]
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

from long_chat import build, line

from hiermem import Memory

SMALL = 1_000
AIMS = {"append": 1.2, "context": 2.0}
TURN = 10
BUDGET = 8_000
SESSION = "long"
TABLES = ("messages", "nodes", "revisions", "sessions", "heads", "keys", "attempts", "runs")


class Side:
    """One session of some length in a file of its own."""

    def __init__(self, path: Path, messages: int) -> None:
        self.path = path
        self.messages = messages
        self.memory = Memory.open(path)
        began = time.perf_counter()
        build(self.memory, SESSION, messages)
        self.session = self.memory.session(SESSION)
        built = time.perf_counter()
        self.session.update()
        self.took = (built - began, time.perf_counter() - built)
        self.next = messages

    def append(self) -> None:
        """Append single messages, each durable."""
        for index in range(self.next, self.next + TURN):
            self.session.append(line(index))
        self.next += TURN

    def context(self) -> None:
        """Ask for a context over all of it."""
        selection = self.session.context(BUDGET)
        if selection.coverage < 1 or selection.total_tokens > BUDGET:
            raise SystemExit("a context does not cover everything inside its budget")

    def rows(self) -> dict[str, int]:
        """Count the rows of each table."""
        with closing(sqlite3.connect(self.path)) as base:
            return {
                table: base.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for table in TABLES
            }


def timed(work: Callable[[], None]) -> float:
    """Return the seconds that ``work`` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Build both, take turns and print the tables."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as place:
        sides = [
            Side(Path(place) / f"{number}.db", number)
            for number in dict.fromkeys((SMALL, messages))
        ]
        rows = [side.rows() for side in sides]
        took: dict[str, list[tuple[float, float]]] = {"append": [], "context": []}
        for number in range(-3, rounds):
            order = sides if number % 2 else sides[::-1]
            for name, pairs in took.items():
                seconds = {side.messages: timed(getattr(side, name)) for side in order}
                if number >= 0:
                    pairs.append((seconds[SMALL], seconds[messages]))
        built, updated = sides[-1].took
        for side in sides:
            side.memory.close()
    print(f"{messages:,} messages were appended in {built:.0f} s, summarised in {updated:.0f} s.\n")
    print(f"| operation | at {SMALL:,}, ms | at {messages:,}, ms | ratio | aim |")
    print("|---|---|---|---|---|")
    for name, pairs in took.items():
        few, many = (median(side) * 1000 for side in zip(*pairs, strict=True))
        ratio = median(two / one for one, two in pairs)
        each = TURN if name == "append" else 1
        print(f"| {name} | {few / each:.2f} | {many / each:.2f} | {ratio:.2f} | ≤ {AIMS[name]} |")
    print(f"\n| rows | at {SMALL:,} | at {messages:,} |\n|---|---|---|")
    for table in TABLES:
        print(f"| {table} | {rows[0][table]:,} | {rows[1][table]:,} |")


if __name__ == "__main__":
    main()
