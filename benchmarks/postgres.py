"""What an append to PostgreSQL costs, compared with bare psycopg in the same run.

Single: one chat line an append, against BEGIN, INSERT, UPDATE of the head and COMMIT of rows of the
same size in the same tables of another schema, each statement waited for, as a driver is used
plainly. Batches: 100 messages an append, against one executemany of such rows and the update, in
one transaction. Both sides take turns in small rounds; a ratio is the median over the rounds. Then
eight processes on eight sessions against one process, an append to a long session against one to
a short one, and the bytes a message takes with its indexes. 1.00 is the bare rate.

The server is the one that DSN names; what it waits for at a commit decides much (fsync, the disk).
The schemas of the benchmark are dropped at the end.

    HIERMEM_DATA=path/to/data python benchmarks/postgres.py DSN [rounds [messages]]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import psycopg

from hiermem import Memory, Message
from hiermem.stores.postgres import PostgresStore

BATCH, TURN, PROCESSES, SECONDS = 100, 20, 8, 6.0
OURS, BARE = "bench_hiermem", "bench_bare"
ROW = (
    "INSERT INTO {0}.messages (tenant, session, message, role, thread, content, created_at, "
    "tokens, size, hash, state) "
    "VALUES (%s, 1, %s, 'user', 'main', %s, 1700000000000000, 40, 40, %s, 'live')"
)
HEAD = (
    "UPDATE {0}.heads SET messages = messages + %s, version = version + 1, state = %s, "
    "last_activity = last_activity + 1 WHERE tenant = %s AND id = 's'"
)
TENANT = "00000000-0000-0000-0000-000000000001"
STATE, HASH = "x" * 371, "sha256:" + "0" * 40


class Bare:
    """The same tables without the library."""

    def __init__(self, dsn: str) -> None:
        asyncio.run(_created(dsn, BARE))
        self._base = psycopg.connect(dsn, autocommit=True)
        self._base.execute(
            f"INSERT INTO {BARE}.heads VALUES (%s, 's', 0, 1, 0, 0, 0, '', '', 0, NULL, NULL, 0)",
            (TENANT,),
        )
        self._row, self._update, self._next = ROW.format(BARE), HEAD.format(BARE), 0

    def write(self, texts: list[str]) -> None:
        """Write rows in one durable transaction."""
        rows = [(TENANT, n, text, HASH) for n, text in enumerate(texts, self._next)]
        self._next += len(rows)
        cursor = self._base.cursor()
        cursor.execute("BEGIN")
        if len(rows) == 1:
            cursor.execute(self._row, rows[0])
        else:
            cursor.executemany(self._row, rows)
        cursor.execute(self._update, (len(rows), STATE, TENANT))
        cursor.execute("COMMIT")

    def commit_ms(self) -> float:
        """Return how many milliseconds a commit of one row takes, beyond an empty one."""
        insert = "INSERT INTO keys VALUES (%s, 1, %s, 0, NULL)".replace("keys", f"{BARE}.keys")

        def one(number: int) -> float:
            return timed(lambda: self._base.execute(insert, (TENANT, str(number))))

        empty = median(timed(lambda: self._base.execute("SELECT 1")) for _ in range(50))
        return 1000 * (median(map(one, range(50))) - empty)

    def close(self) -> None:
        """Close the connection."""
        self._base.close()


async def _created(dsn: str, schema: str) -> PostgresStore:
    return await PostgresStore.open(dsn, schema=schema)


def opened(dsn: str) -> Memory:
    return Memory(store=asyncio.run(_created(dsn, OURS)))


def texts() -> list[str]:
    """Read the lines of the LoCoMo development chats."""
    path = Path(os.environ["HIERMEM_DATA"]) / "locomo" / "locomo_dev5.json"
    return [
        turn["text"]
        for sample in json.loads(path.read_text("utf-8"))
        for number in range(1, 100)
        for turn in sample["conversation"].get(f"session_{number}", ())
    ]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def duel(ours: Callable[[], object], bare: Callable[[], object], rounds: int) -> float:
    """Return the rate of ``ours`` over that of ``bare``: the median of rounds in turns."""
    return median(timed(bare) / timed(ours) for _ in range(rounds))


def worker(dsn: str, session: str) -> None:
    """Append for some seconds after a line is read, and print how many appends there were."""
    lines = cycle(texts())
    with opened(dsn) as memory:
        own = memory.session(session)
        for line in islice(lines, 20):
            own.append(Message.user(line))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        count, until = 0, time.perf_counter() + SECONDS
        while time.perf_counter() < until:
            own.append(Message.user(next(lines)))
            count += 1
        sys.stdout.write(f"{count}\n")


def together(dsn: str, count: int) -> int:
    """Return the appends that ``count`` processes made, each to a session of its own."""
    running = [
        subprocess.Popen([sys.executable, __file__, dsn, "worker", f"process-{count}-{number}"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]  # fmt: skip
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return sum(int(one.communicate()[0]) for one in running)


def main(dsn: str, rounds: int, messages: int) -> None:
    drop(dsn)
    lines = cycle(texts())
    bare = Bare(dsn)
    try:
        with opened(dsn) as memory:
            print(f"a commit takes {bare.commit_ms():.2f} ms")
            own = memory.session("single")

            def singles(write: Callable[[str], object]) -> Callable[[], None]:
                return lambda: [write(line) for line in islice(lines, TURN)] and None

            def append(line: str) -> None:
                own.append(Message.user(line))

            singles(append)()
            ratio = duel(singles(append), singles(lambda line: bare.write([line])), rounds * 5)
            print(f"one message an append:     {ratio:.2f} of bare")
            many = memory.session("many")

            def batch() -> None:
                many.append(*map(Message.user, islice(lines, BATCH)))

            batch()
            ratio = duel(batch, lambda: bare.write(list(islice(lines, BATCH))), rounds * 3)
            print(f"{BATCH} messages an append:   {ratio:.2f} of executemany")
            scaled = median(together(dsn, PROCESSES) / together(dsn, 1) for _ in range(rounds))
            print(f"{PROCESSES} processes, {PROCESSES} sessions:   {scaled:.2f} of one process")
            short, long = memory.session("short"), memory.session("long")
            short.append(*map(Message.user, islice(lines, 1_000)))
            for _ in range(messages // 1_000):
                long.append(*map(Message.user, islice(lines, 1_000)))
            append_long = singles(lambda line: long.append(Message.user(line)))
            append_short = singles(lambda line: short.append(Message.user(line)))
            ratio = 1 / duel(append_long, append_short, rounds * 5)
            print(f"an append at {messages:,}: {ratio:.2f} times one at 1,000")
            print(f"bytes a message, with indexes and open trees: {size(dsn):,.0f}")
    finally:
        bare.close()
        drop(dsn)


def size(dsn: str) -> float:
    """Return the bytes of all relations over the number of messages."""
    with psycopg.connect(dsn) as base:
        found = base.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
            f"AND relnamespace = '{OURS}'::regnamespace"
        ).fetchone()
        count = base.execute(f"SELECT count(*) FROM {OURS}.messages").fetchone()
    assert found is not None
    assert count is not None
    return float(found[0]) / float(count[0])


def drop(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as base:
        base.execute("SET client_min_messages TO warning")
        for schema in (OURS, BARE):
            base.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


if __name__ == "__main__":
    if sys.argv[2:3] == ["worker"]:
        worker(sys.argv[1], sys.argv[3])
    else:
        given = [int(word) for word in sys.argv[2:]]
        main(sys.argv[1], *given, *(5, 1_000_000)[len(given) :])
