"""A memory that moves to another store stays what it was: every read, search and context is equal.

Broken, who restores a backup or moves to another kind of store loses history, pays again, or finds
other things than before.
"""

import asyncio
import json
import tempfile
from datetime import timedelta
from pathlib import Path

from editing import regenerating
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from logbook import CONFIGS, QUICK, START, Words, text
from sampling import share

from hiermem import AsyncMemory, HiermemError, Limits, Message
from hiermem.embedders.hashing import HashingEmbedder
from hiermem.records.run import RecordStore
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
        return RecordStore(MemoryStore(clock=now))
    path = ":memory:" if kind == "sqlite-memory" else Path(folder) / name
    return RecordStore(await SQLiteStore.open(path, clock=now))


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
                await session.update(limits=Limits(calls=first if second % 2 else None))
            elif kind == "edit":
                await regenerating(session).edit(place, text(5_000 + number, 9))
            elif kind in ("erase", "quarantine"):
                await getattr(session, kind)([place])
            elif kind == "fork" and len(names) < len(NAMES):
                await session.fork(NAMES[len(names)], at=min(first, count))
                names.append(NAMES[len(names)])
            elif kind == "repack":
                await session.update(strategy="full", limits=Limits(calls=second))
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


async def content(store, tenant="default"):
    """Return all that a store keeps of a tenant, but what is derived, by session."""
    handle, found = store.tenant(tenant), {}
    for name in ["", *[one.id for one in await handle.sessions(limit=999)]]:
        rows = [row async for page in await handle.dump(name) for row in page[:]]
        found[name] = [
            json.loads(json.dumps(row)) for row in rows
            if row["kind"] not in ("dump", "end", "block")
            and not (row["kind"] == "record" and row["value"]["kind"] == "store-copy")
        ]  # fmt: skip
    return found


KINDS = ("memory", "sqlite", "sqlite-memory")
RULES = "- ferries.md: which ferry leaves when"
LIFE = [
    ("append", 12, 9), ("append", 12, 30), ("update", 9, 0), ("edit", 3, 0), ("erase", 5, 0),
    ("context", 30, 0), ("fork", 20, 0), ("append", 9, 1), ("quarantine", 7, 0), ("extract", 0, 0),
    ("update", 4, 1), ("search", 0, 0), ("repack", 0, 2), ("fork", 22, 1), ("context", 10, 1),
]  # fmt: skip


@settings(
    max_examples=share(200, 1),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(STEPS, max_size=14), st.lists(STEPS, max_size=4),
    st.sampled_from(KINDS), st.sampled_from(KINDS),
)  # fmt: skip
@example(LIFE, LIFE[:3], "memory", "sqlite")
@example(LIFE, LIFE[:3], "sqlite", "memory")
def test_a_memory_that_moves_stays_what_it_was(steps, more, source_kind, target_kind):
    """Its rows are the same, and so is all that is read, and all that is made next."""

    async def run():
        with tempfile.TemporaryDirectory() as folder:
            source = await store_of(source_kind, folder, "source.db")
            target = await store_of(target_kind, folder, "target.db")
            memory, copy = memory_over(source), memory_over(target)
            for number, part in enumerate((steps, more)):
                await live(memory, part)
                space = memory.space("team", rules=RULES)
                await space.note(f"The ferry leaves at 14:{20 + number}.")
                await space.consolidate()
                await settled(memory)
                report = await memory.copy_to(target)
                assert (report.findings, report.changing) == ((), ())
                assert await content(target) == await content(source)
            names = [one.id for one in await memory.sessions()]
            assert steps != LIFE or names == list(NAMES), "a step of it was impossible"
            again = await memory.copy_to(target)
            assert (again.unchanged, again.copied, again.replaced) == (len(names), 0, 0)
            # And back: a store of the same secret takes what it gave.
            back = RecordStore(MemoryStore(clock=now))
            assert (await copy.copy_to(back)).ok
            assert await content(back) == await content(source)
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
