"""A session that moves to another store stays what it was: every read, search and context is equal.

Broken, who restores a backup or moves to another kind of store loses history, pays again, or finds
other things than before.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from editing import regenerating
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from logbook import CONFIGS, QUICK, START, Words, text
from sampling import share

from hiermem import AsyncMemory, HiermemError, Message
from hiermem.embedders.hashing import HashingEmbedder
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.llms import ScriptedLLM

NAMES = ("s", "fork of s", "fork of fork")
SMALL = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12), SMALL),
    st.tuples(st.just("append"), st.integers(1, 12), SMALL),
    st.tuples(st.just("update"), SMALL, SMALL),
    st.tuples(st.sampled_from(["edit", "erase", "quarantine", "fork", "repack"]), SMALL, SMALL),
    st.tuples(st.sampled_from(["flush", "context", "search", "note", "extract"]), SMALL, SMALL),
)


def now():
    return START + timedelta(days=9)


def memory_over(store):
    return AsyncMemory(
        store=store, config=CONFIGS["tokens"], token_counter=Words(), update_policy=QUICK,
        llm=ScriptedLLM(remote=True), embedder=HashingEmbedder(), clock=now,
    )  # fmt: skip


async def store_of(kind, folder, name):
    if kind == "memory":
        return MemoryStore(clock=now)
    path = ":memory:" if kind == "sqlite-memory" else Path(folder) / name
    return await SQLiteStore.open(path, clock=now)


async def live(memory, steps):
    """Let the steps happen to the sessions; one that is impossible changes nothing."""
    names = [NAMES[0]]
    for number, (kind, first, second) in enumerate(steps):
        session = memory.session(names[second % len(names)], metadata={"user": "ada"})
        count = next((one.messages for one in await memory.sessions() if one.id == session.id), 0)
        place = first % max(count, 1)
        try:
            if kind == "append":
                await session.append(
                    Message.user(
                        text(100 * number + n, 5 + second), key=f"{number}/{n}",
                        created_at=START + timedelta(minutes=10 * number + n),
                    )
                    for n in range(first)
                )  # fmt: skip
            elif kind == "update":
                await session.update(max_calls=first if second % 2 else None)
            elif kind == "edit":
                await regenerating(session).edit(place, text(5_000 + number, 9))
            elif kind in ("erase", "quarantine"):
                await getattr(session, kind)([place])
            elif kind == "fork" and len(names) < len(NAMES):
                await session.fork(NAMES[len(names)], at=min(first, count))
                names.append(NAMES[len(names)])
            elif kind == "repack":
                await session.update(strategy="full", max_calls=second)
            elif kind == "context":
                await session.context(300 + 20 * first, view=f"view {second % 2}")
            elif kind == "search":
                await session.search("ferry harbour deck")
            elif kind == "note":
                await session.feedback(f"message {place}" if count else "L1.0", score=0.5)
            elif kind == "extract":
                await session.extract()
            else:
                await session.flush()
        except HiermemError:
            assert steps != LIFE

    return names


async def seen(memory, names):
    """Read all that an application can read; reading keeps views, so both read in this order."""
    found = {"sessions": await memory.sessions(), "check": (await memory.check()).findings}
    for name in names:
        session = memory.session(name)
        if all(one.id != name for one in found["sessions"]):
            continue
        messages = await session.messages()
        found[name] = {
            "messages": messages,
            "versions": [await session.versions(one.index) for one in messages],
            "summaries": await session.summaries(),
            "forest": await session.forest(),
            "status": await session.status(),
            "runs": await session.runs(),
            "metrics": await session.metrics(),
            "metadata": await session.get_metadata(),
            "extracted": await session.tri_vector(),
            "plan": await session.update(dry_run=True),
            "search": await session.search("Which ferry leaves the harbour at 14:20?", limit=20),
            "contexts": [
                (
                    await session.context(tokens, query=query, view=view, allow_omission=True)
                ).to_text()
                for tokens in (300, 2_000)
                for query in (None, "Capacity of deck B/12")
                for view in ("default", "view 0")
            ],
        }  # fmt: skip
    return found


async def settled(memory):
    """Wait for the vectors that are made in the background."""
    while tasks := memory._resources.background:
        await asyncio.wait(tasks)


async def dumped(store, name):
    """Return the rows of a session, as they come out of a file."""
    pages = await store.tenant("default").dump(name)
    return [json.loads(json.dumps(row)) for page in [page async for page in pages] for row in page]


async def paged(rows, size=97):
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


KINDS = ("memory", "sqlite", "sqlite-memory")
LIFE = [
    ("append", 12, 9), ("append", 12, 30), ("update", 9, 0), ("edit", 3, 0), ("erase", 5, 0),
    ("context", 30, 0), ("fork", 20, 0), ("append", 9, 1), ("quarantine", 7, 0), ("extract", 0, 0),
    ("update", 4, 1), ("search", 0, 0), ("repack", 0, 2), ("fork", 22, 1), ("context", 10, 1),
]  # fmt: skip


@settings(
    max_examples=share(120, 1),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(STEPS, max_size=14), st.sampled_from(KINDS), st.sampled_from(KINDS))
@example(LIFE, "memory", "sqlite")
@example(LIFE, "sqlite", "memory")
def test_a_session_that_moves_stays_what_it_was(steps, source_kind, target_kind):
    async def run():
        with tempfile.TemporaryDirectory() as folder:
            source = await store_of(source_kind, folder, "source.db")
            target = await store_of(target_kind, folder, "target.db")
            memory = memory_over(source)
            await live(memory, steps)
            await settled(memory)
            names = [one.id for one in await memory.sessions()]
            assert steps != LIFE or names == list(NAMES), "a step of it was impossible"
            rows = [await dumped(source, name) for name in names]
            for one in rows:
                await target.tenant("default").restore(paged(one))
            copy = memory_over(target)
            assert await seen(copy, names) == await seen(memory, names)
            # What comes next is the same too: nothing is made again that was made before.
            for each in (memory, copy):
                for name in names:
                    await each.session(name).append(Message.user(text(9, 20), created_at=now()))
                    await each.session(name).update()
                await settled(each)
            after = [
                {name: [one.text for one in await each.session(name).summaries()] for name in names}
                for each in (memory, copy)
            ]
            assert after[0] == after[1]
            await memory.close()
            await copy.close()

    asyncio.run(run())


DYING = """
import asyncio, json, os, signal, sys
from hiermem.stores import dump
from hiermem.stores.sqlite import SQLiteStore

rows, path, moment = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def pages():
    for start in range(0, len(rows), 20):
        yield rows[start : start + 20]
        if moment == "reading" and start > len(rows) // 2:
            die()

async def main():
    if moment == "writing":  # in the transaction, of which all but the last page is written
        held_items = dump.held_items
        left = 3

        def counted(rows):
            nonlocal left
            left -= 1
            return held_items(rows) if left else die()

        dump.held_items = counted
    store = await SQLiteStore.open(path)
    await store.tenant("default").restore(pages())

asyncio.run(main())
"""


async def test_of_a_restore_that_is_killed_nothing_is_seen_and_the_next_is_whole(tmp_path):
    source = MemoryStore(clock=now)
    memory = memory_over(source)
    await live(memory, LIFE)
    await settled(memory)
    expected = await seen(memory, ["s"])
    rows = await dumped(source, "s")
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    for moment in ("reading", "writing"):
        path = tmp_path / f"{moment}.db"
        ended = subprocess.run(  # noqa: ASYNC221 - it is over in a second
            [sys.executable, "-c", DYING, tmp_path / "rows.json", path, moment],
            env={**os.environ}, check=False,
        )  # fmt: skip
        assert ended.returncode == -signal.SIGKILL
        store = await SQLiteStore.open(path, clock=now)
        assert await store.tenants() == []
        assert await store.check() == []
        assert await store.tenant("default").messages("s", 0, 9) == []
        await store.tenant("default").restore(paged(rows))
        found = await seen(memory_over(store), ["s"])
        assert found["s"]["messages"] == expected["s"]["messages"]
        assert found["s"]["summaries"] == expected["s"]["summaries"]
        await store.close()
