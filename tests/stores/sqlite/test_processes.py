"""Real processes: writers killed at random moments, several writers on one file."""

import asyncio
import os
import random
import signal
import subprocess
import sys

import pytest
from driven import adding, count, counter, run

from hiermem.records.tables import Scan
from hiermem.stores.sqlite import SQLiteStore

WRITER = r"""
import asyncio, os, sys, threading
from hiermem.stores.sqlite import SQLiteStore
from hiermem.records.tables import Commit, Key

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
counter = Key("counters", ("t", "k", "n"))

async def open_():
    return await SQLiteStore.open(path, busy_timeout=30)

def run(operation):
    try:
        operation.send(None)
    except StopIteration as done:
        return done.value

def write(store, numbers):
    for number in numbers:
        # A row, a counter of all writers, and a large row: all of them, or nothing.
        while True:
            (row,) = run(store.read([counter], [])).rows
            before = row and row[3]
            size = number * 37 % 9000
            change = Commit(
                {counter: before},
                puts={"views": [("t", "s", f"{name}-{number}", "x" * size)],
                      "keys": [("t", 1, f"{name}-{number}", (before or 0) + 1, None)]},
                adds={counter: 1},
            )
            if run(store.commit(change)):
                os.write(1, f"kept {name}-{number}\n".encode())
                break

store = asyncio.run(open_())
threads = [threading.Thread(target=write, args=(store, range(n, count, 3))) for n in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
run(store.close())
"""


def _start(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


async def _examined(path):
    """Open the store, check that every commit in it is whole, and give the names that it holds."""
    store = await SQLiteStore.open(path)
    try:
        assert run(store.check()) == []
        found = run(store.read([counter()], [Scan("views", ("t", "s")), Scan("keys", ("t", 1))]))
        texts, keys = found.ranges
        assert {row[2] for row in texts} == {row[2] for row in keys}
        assert sorted(row[3] for row in keys) == list(range(1, len(keys) + 1))
        assert (found.rows[0][3] if found.rows[0] else 0) == len(keys)
        return {row[2] for row in keys}
    finally:
        await store.close()


@pytest.mark.timeout(600)
async def test_a_killed_writer_loses_nothing_that_it_was_told_is_kept(tmp_path, share):
    """SIGKILL at random moments, opening and closing included; each commit is whole or absent."""
    draw = random.Random(os.environ.get("HIERMEM_SEED", "11"))
    path = tmp_path / "x.db"
    acknowledged, died = set(), 0
    kills = share(30, 5)
    for turn in range(kills):
        if turn % 5 == 4:
            path = tmp_path / f"x{turn}.db"  # so that a file is also killed while it is made
            acknowledged = set()
        writer = _start(path, f"w{turn}", 100_000)
        if draw.random() < 0.4:
            await asyncio.sleep(draw.uniform(0.1, 0.8))
        else:
            for _ in range(draw.randrange(1, 300)):
                acknowledged.add(writer.stdout.readline().split()[1])
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
        acknowledged |= {line.split()[1] for line in rest if line.endswith("\n")}
        died += writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        assert acknowledged <= await _examined(path)
    assert died == kills


async def test_processes_that_write_one_file_at_once_lose_nothing(tmp_path):
    """Three processes make and fill the same file: no gap, no double, no loss."""
    path = tmp_path / "x.db"
    writers = [_start(path, name, 60) for name in "abc"]
    for writer in writers:
        writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert await _examined(path) == {f"{name}-{n}" for name in "abc" for n in range(60)}
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]


ADDER = """
import asyncio, sys
from hiermem.stores.sqlite import SQLiteStore
from hiermem.records.tables import Commit, Key

async def main():
    store = await SQLiteStore.open(sys.argv[1])
    await store.commit(Commit(adds={Key("counters", ("t", "k", "n")): 1}))
    await store.close()

asyncio.run(main())
"""


async def test_opening_a_file_twice_in_a_process_gives_up_no_lock(tmp_path, scripts):
    """Closing a file descriptor drops the process's locks, and with them the log in use."""
    path = tmp_path / "chat.db"
    first = await SQLiteStore.open(path)
    run(first.commit(adding()))
    assert count(first) == 1
    second = await SQLiteStore.open(path)
    for number in (2, 4):
        scripts.run("-c", ADDER, str(path), cwd=tmp_path).check_returncode()
        assert count(second) == count(first) == number
        run(first.commit(adding()))
    await second.close()
    scripts.run("-c", ADDER, str(path), cwd=tmp_path).check_returncode()
    assert count(first) == 6
    await first.close()
    again = await SQLiteStore.open(path)
    assert count(again) == 6
    assert run(again.check()) == []
    await again.close()
