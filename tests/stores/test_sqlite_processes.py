"""Real processes: writers killed at random moments, several writers on one file, one secret."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from hiermem import Memory, Message
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.samples import contents

KILLS = 15

WRITER = """
import asyncio, sys
from hiermem import Memory, Message
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.samples import node, remade, write
from hiermem.types import Message

async def main(path, name, count):
    store = await SQLiteStore.open(path, busy_timeout=30)
    tenant = store.tenant("t")
    print("secret", (await tenant.secret()).hex(), flush=True)

    async def append(number):
        # Two messages, a key and a node at once: all of it, or nothing.
        def decide(snapshot):
            start = snapshot.session.messages if snapshot.session else 0
            from hiermem.testing.samples import writing
            return writing(
                "s", [Message.user("x" * (number % 3000), key=f"{name}-{number}"),
                      Message.assistant(name)],
                nodes=(node(start // 2),))(snapshot)
        await tenant.mutate("s", decide)
        print("kept", f"{name}-{number}", flush=True)

    for number in range(0, count, 3):
        await asyncio.gather(*(append(n) for n in range(number, min(number + 3, count))))
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def _start(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


async def _examined(path):
    """Open the store, check that every write in it is whole, and give the keys that it holds."""
    store = await SQLiteStore.open(path)
    try:
        assert await store.check() == []
        kept = (await contents(store.tenant("t"))).get("session s")
        if kept is None:
            return set()
        count = kept["record"].messages
        assert [one["index"] for one in kept["messages"]] == list(range(count))
        assert kept["serving"]["levels"] == {1: count // 2}
        assert kept["record"].version == count // 2
        assert len(kept["keys"]) == count // 2
        return set(kept["keys"])
    finally:
        await store.close()


@pytest.mark.timeout(600)
async def test_a_killed_writer_loses_nothing_that_it_was_told_is_kept(tmp_path, share):
    """SIGKILL at random moments, opening and closing included; P1 and the atomicity of a write."""
    draw = random.Random(os.environ.get("HIERMEM_SEED", "11"))
    path = tmp_path / "x.db"
    acknowledged, died = set(), 0
    kills = share(KILLS, 3)
    for turn in range(kills):
        if turn % 5 == 4:
            path = tmp_path / f"x{turn}.db"  # so that a file is also killed while it is made
            acknowledged = set()
        writer = _start(path, f"w{turn}", 100_000)
        if draw.random() < 0.4:
            await asyncio.sleep(draw.uniform(0.05, 0.5))
        else:
            for _ in range(draw.randrange(1, 300)):
                line = writer.stdout.readline()
                if line.startswith("kept "):
                    acknowledged.add(line.split()[1])
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().splitlines(keepends=True)
        acknowledged |= {
            line.split()[1] for line in rest if line.startswith("kept ") and line.endswith("\n")
        }
        died += writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        assert acknowledged <= await _examined(path)
    assert died == kills


ERASER = """
import sys, threading, time
from hiermem import HierarchyConfig, Memory, Message

class Quarters:
    name = "quarters"

    def count(self, text):
        return -(-len(text) // 4)

path, name, until = sys.argv[1], sys.argv[2], time.monotonic() + 3
plain = HierarchyConfig(enabled=False)
with Memory.open(path, token_counter=Quarters(), config=plain) as memory:
    session = memory.session(name)
    session.append([Message.user("the pump " * 900) for _ in range(100)])

    def read():
        while time.monotonic() < until:
            session.messages(0, 100)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    index = 0
    while time.monotonic() < until:
        session.append(Message.user("the pump " * 900))
        session.erase([index])
        index += 1
    for reader in readers:
        reader.join()
"""


def test_beside_processes_that_read_write_and_erase_the_log_stays_as_long_as_the_file(tmp_path):
    """Broken, each erasure adds the whole file to a log that reads keep from being cut."""
    path, log = tmp_path / "x.db", tmp_path / "x.db-wal"
    Memory.open(path).close()
    workers = [subprocess.Popen([sys.executable, "-c", ERASER, path, name]) for name in "abc"]
    longest = 0
    while any(worker.poll() is None for worker in workers):
        with suppress(FileNotFoundError):
            longest = max(longest, log.stat().st_size)
        time.sleep(0.01)
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert 0 < longest < 1.8 * path.stat().st_size


@pytest.mark.thorough
async def test_processes_that_write_one_file_at_once_lose_nothing(tmp_path):
    """Three processes make and fill the same file; one secret, no gap, no double, no loss."""
    path = tmp_path / "x.db"
    writers = [_start(path, name, 60) for name in ("a", "b", "c")]
    told = [
        (await asyncio.to_thread(writer.communicate, timeout=120))[0].split() for writer in writers
    ]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len({words[1] for words in told}) == 1
    assert await _examined(path) == {f"{name}-{n}" for name in "abc" for n in range(60)}
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]


OTHER = """
import asyncio, sys
from hiermem import Memory, Message
with Memory.open(sys.argv[1]) as memory:
    memory.session("a").append(Message.user("from another process"))
"""


def test_opening_a_file_twice_in_a_process_gives_up_no_lock(tmp_path, scripts):
    """Closing a file descriptor drops the process's locks, and with them the log in use."""
    path = tmp_path / "chat.db"
    with Memory.open(path) as first:
        session = first.session("a")
        session.append(Message.user("first"))
        assert len(session.messages()) == 1
        with Memory.open(path) as second:
            assert len(second.session("a").messages()) == 1
            for count in (2, 4):
                scripts.run("-c", OTHER, str(path), cwd=tmp_path).check_returncode()
                assert len(session.messages()) == count
                session.append(Message.user("here"))
        scripts.run("-c", OTHER, str(path), cwd=tmp_path).check_returncode()
        assert len(session.messages()) == 6
    with Memory.open(path) as again:
        assert len(again.session("a").messages()) == 6
        assert again.check().ok
