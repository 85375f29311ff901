"""What a search costs: what its session holds, and nothing of the sessions beside it.

The steps of SQLite's machine and the rows that are read are counted, not the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hiermem import AsyncMemory, Message
from hiermem.embedders import HashingEmbedder
from hiermem.engine.index import STRIDE
from hiermem.stores.sqlite import SQLiteStore, files
from hiermem.tokens import ApproximateCounter

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
WORDS = ("ferry", "harbour", "price", "schema", "friday", "ada", "jonas", "booking")


@pytest.fixture
def steps(monkeypatch):
    """Count the steps, in hundreds, of every connection that is opened from here on."""
    counted = [0]

    def count():
        counted[0] += 1
        return 0

    plain = files.connect

    def connect(*args, **named):
        connection = plain(*args, **named)
        connection.set_progress_handler(count, 100)
        return connection

    monkeypatch.setattr(files, "connect", connect)
    return counted


def chat(count):
    return [
        Message(
            "assistant" if n % 2 else "user",
            f"remark {n} about the {WORDS[n % 8]} and the {WORDS[(3 * n + 1) % 8]}",
            created_at=START + timedelta(minutes=n),
        )
        for n in range(count)
    ]


async def memory_of(path, sessions, *, per_session=40):
    """Open a memory of one session of two strides and so many others of the same words."""
    memory = AsyncMemory(
        store=await SQLiteStore.open(path),
        token_counter=ApproximateCounter(),
        embedder=HashingEmbedder(32),
    )
    names = [f"s{n}" for n in range(sessions)]
    for name in names:
        await memory.session(name).append(chat(2 * STRIDE if name == "s0" else per_session))
    session = memory.session("s0")
    await session.update()
    await session.embed()
    return memory


async def test_a_search_costs_the_same_beside_three_and_beside_a_hundred_sessions(tmp_path, steps):
    """Cold, as in a new process, and warm; by words, by vectors, into evidence, into a context."""
    counts = []
    for sessions in (3, 100):
        path = tmp_path / f"{sessions}.db"
        await (await memory_of(path, sessions)).close()
        memory = AsyncMemory(
            store=await SQLiteStore.open(path),
            token_counter=ApproximateCounter(),
            embedder=HashingEmbedder(32),
        )
        session = memory.session("s0")
        await memory.sessions()  # the schema is read once
        found = []
        for ask in (
            lambda: session.search("ferry harbour"),  # noqa: B023
            lambda: session.search("ferry jonas"),  # noqa: B023
            lambda: session.recall("price booking"),  # noqa: B023
            lambda: session.context(2_000, query="price booking"),  # noqa: B023
        ):
            before = steps[0]
            assert await ask()
            found.append(steps[0] - before)
        counts.append(found)
        await memory.close()
    for few, many in zip(*counts, strict=True):
        assert many <= 1.2 * few + 3, counts


async def test_a_search_after_an_append_reads_what_is_new(tmp_path):
    """Cost proportional to what was appended: neither messages nor vectors are read again."""
    memory = await memory_of(tmp_path / "chat.db", 1)
    session, tenant = memory.session("s0"), memory._handle.store
    await session.search("ferry")
    read = []
    for name in ("messages", "blocks"):
        plain = getattr(tenant, name)

        async def watched(*args, _plain=plain, _name=name, **named):
            found = await _plain(*args, **named)
            read.append((_name, len(found)))
            return found

        setattr(tenant, name, watched)
    await session.append(Message.user("The zeppelin departs.", created_at=START))
    read.clear()
    assert (await session.search("zeppelin", 1))[0].index == 2 * STRIDE
    assert sum(many for name, many in read if name == "messages") <= 4
    assert sum(many for name, many in read if name == "blocks") <= 1
    await memory.close()
