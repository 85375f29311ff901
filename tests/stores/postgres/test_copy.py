"""A memory goes from a file to PostgreSQL and back, also where a process is killed on the way.

Broken, who moves to a server arrives with another memory, or with half of one.
"""

import os
import random
import signal
import subprocess
import sys
import time

import postgres_server
import pytest
from kinds import of_kind

from hiermem import AsyncMemory, ConflictError, Message
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.upkeep import copy_plan as transfer

pytest.importorskip("psycopg")
RULES = "- ferries.md: which ferry leaves when"


@pytest.fixture
async def opened(tmp_path):
    """Return a function that opens a store in a schema of this test, as the application's role."""
    from hiermem.stores.postgres import PostgresStore

    made = []

    async def open_one(name="a", **options):
        dsn, schema = postgres_server.dsn(), postgres_server.schema_of(tmp_path / name)
        made.append(RecordStore(await PostgresStore.open(dsn, schema=schema, **options)))
        return made[-1]

    yield open_one
    for store in made:
        await store.close()


async def content(store, tenant="default"):
    """Return every session's content, and what belongs to none, but notes of copies."""
    handle, found = store.tenant(tenant), {}
    for name in ["", *[one.id for one in await handle.sessions(limit=999)]]:
        found[name] = [
            row async for page in await handle.dump(name) for row in page
            if row["kind"] not in ("dump", "end", "block") and transfer.is_carried(row)
        ]  # fmt: skip
    return found


async def filled(store, count=60):
    """Give a store a memory that has something of everything."""
    memory = AsyncMemory(store=store)
    for name in ("s", "ß\N{GRINNING FACE} 'quoted\"", "t"):
        session = memory.session(name, metadata={"user": "ada"})
        await session.append(
            Message.user(f"Ferry {n} leaves deck B/{n} at 14:{n:02}. " * 6, key=f"k{n}")
            for n in range(count)
        )
    await memory.session("s").update()
    await memory.session("s").context(2_000, view="v")
    await memory.session("s").edit(3, "The ferry leaves at noon.")
    await memory.session("s").fork("fork", at=20)
    await memory.session("t").erase([5])
    await memory.session("t").extract()
    await memory.search("Which ferry leaves at 14:20?")
    space = memory.space("team", rules=RULES)
    await space.note("The ferry leaves at noon.")
    await space.consolidate()
    await memory.for_tenant("other").session("s").append(Message.user("Mine."))
    return memory


async def test_a_memory_goes_to_postgresql_and_back(tmp_path, opened):
    source, target = RecordStore(await SQLiteStore.open(tmp_path / "a.db")), await opened()
    memory = await filled(source)
    report = await memory.copy_to(target, all_tenants=True)
    assert (report.ok, report.tenants, report.copied) == (True, 2, 5)
    for tenant in ("default", "other"):
        assert await content(target, tenant) == await content(source, tenant)
    other = AsyncMemory(store=target)
    question = "Which ferry leaves at 14:20?"
    hits = [(one.session_id, one.text, one.score) for one in await memory.search(question)]
    assert [(one.session_id, one.text, one.score) for one in await other.search(question)] == hits
    assert (await memory.copy_to(target, all_tenants=True)).unchanged == 5
    # What has changed since comes with the next copy, and what was erased goes.
    await memory.session("t").append(Message.user("Later."))
    await memory.session("s").erase([7])
    await memory.session("fork").delete()
    await memory.space("team").note("Another note.")
    report = await memory.copy_to(target)
    assert (report.ok, report.replaced, report.removed) == (True, 2, 1)
    assert await content(target) == await content(source)
    assert "PostgreSQL at" in (await memory.session("s").erase([8])).copies[0].place
    await other.session("s").append(Message.user("Mine."))
    with pytest.raises(ConflictError, check=of_kind("copy")):
        await memory.copy_to(target)
    for back in (
        RecordStore(await SQLiteStore.open(tmp_path / "back.db")),
        RecordStore(MemoryStore()),
        await opened("b"),
    ):
        assert (await other.copy_to(back)).ok
        assert await content(back) == await content(target)
    await source.close()


COPYING = """
import asyncio, sys
from hiermem import AsyncMemory
from hiermem.records import dump_format as pages
from hiermem.stores.postgres import PostgresStore

pages._PAGE = 25
commit = PostgresStore.commit

async def reported(*given):
    print("a commit", flush=True)
    return await commit(*given)

PostgresStore.commit = reported

async def main():
    target = await PostgresStore.open(sys.argv[2], schema=sys.argv[3])
    async with AsyncMemory.open(sys.argv[1]) as memory:
        await memory.copy_to(target, all_tenants=True)
    await target.close()

asyncio.run(main())
"""


@pytest.mark.thorough
async def test_a_copy_that_is_killed_anywhere_ends_right(tmp_path, opened):
    source = RecordStore(await SQLiteStore.open(tmp_path / "a.db"))
    await filled(source, count=120)
    target = await opened()
    dsn, schema = postgres_server.dsn(), postgres_server.schema_of(tmp_path / "a")
    chance, killed = random.Random(5), 0
    words = [sys.executable, "-c", COPYING, tmp_path / "a.db", dsn, schema]
    expected = {tenant: await content(source, tenant) for tenant in ("default", "other")}
    while True:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ})  # noqa: ASYNC220
        with process.stdout:
            # By what it did, since machines differ in speed; longer each time, so that it ends.
            for _ in range(killed + 1):
                process.stdout.readline()
            time.sleep(chance.uniform(0, 0.02))  # noqa: ASYNC251
            process.send_signal(signal.SIGKILL)
            if (code := process.wait()) == 0:
                break
            assert code == -signal.SIGKILL, "the copy failed by itself"
        killed += 1
        for tenant, sessions in expected.items():
            found = await content(target, tenant)
            assert all(found[name] == sessions[name] for name in found if name)
    assert killed >= 3, "the copy is too short to be killed"
    for tenant, sessions in expected.items():
        assert await content(target, tenant) == sessions
