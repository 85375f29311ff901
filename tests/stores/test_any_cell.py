"""A file of which any one cell holds something else: every call ends, and only with our errors."""

import asyncio
import contextlib
import shutil
import signal
import sqlite3

import pytest
import sampling
from damage import in_place_of
from hypothesis import given
from hypothesis import strategies as st

from hiermem import AsyncMemory, HierarchyConfig, Message
from hiermem.errors import HiermemError
from hiermem.records.tables import TABLES

CONFIG = HierarchyConfig.by_tokens(target=60, hard_limit=90)
#: Seconds in which all calls on one small file end, on a slow and busy machine.
LONGEST = 60


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file that holds something of every kind."""
    path = tmp_path_factory.mktemp("cells") / "memory.db"

    async def fill():
        async with AsyncMemory.open(path, config=CONFIG) as memory:
            session = memory.session("s")
            await session.append(
                Message(
                    ("user", "assistant")[n % 2],
                    f"Order {n}: " + "the ferry leaves the pier at noon " * 5,
                    key=f"k{n}",
                    name="Ada" if n % 3 == 0 else None,
                )
                for n in range(40)
            )
            await session.update()
            await session.edit(5, "the ferry was late")
            await session.erase([6])
            await session.context(1_500)
            await session.search("ferry")
            await memory.search("ferry")
            await session.fork("f", at=20)
            await session.extract()
            space = memory.space("notes", rules="- progress.md: what was done")
            await space.note("the ferry was repaired", sources=[("s", 3)])
            await space.consolidate()

    asyncio.run(fill())
    with contextlib.closing(sqlite3.connect(path)) as rows:
        rows.execute("PRAGMA journal_mode = DELETE")
        tables = [
            name
            for (name,) in rows.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if not name.startswith("sqlite_")
            and rows.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
        ]
        cells = []
        for table in tables:
            for column in [row[1] for row in rows.execute(f"PRAGMA table_info({table})")]:
                first = f'substr("{column}", 1, 1)'
                kept = f"SELECT count(*) FROM {table} WHERE {first} IN ('[', '{{')"
                # Of a structure much can be damaged.
                often = 6 if rows.execute(kept).fetchone()[0] else 1
                cells += [(table, column)] * often
    return path, cells


def altered(path, table, column, data):
    """Put another value into a cell; return it and whether the schema lets it be there."""
    with contextlib.closing(sqlite3.connect(path)) as rows:
        rows.execute("PRAGMA ignore_check_constraints = ON")
        keys = TABLES[table].key
        every = rows.execute(f'SELECT "{column}", {", ".join(keys)} FROM {table}').fetchall()
        held, *place = every[data.draw(st.integers(0, 200)) % len(every)]
        value = data.draw(in_place_of(held))
        where = " AND ".join(f"{key} IS ?" for key in keys)
        try:
            rows.execute(f'UPDATE {table} SET "{column}" = ? WHERE {where}', (value, *place))
        except sqlite3.Error:
            return value, False
        rows.commit()
        return value, True


CALLS = {
    "sessions": lambda memory, session: memory.sessions(),
    "messages": lambda memory, session: session.messages(),
    "context": lambda memory, session: session.context(1_500),
    "recalled": lambda memory, session: session.context(1_500, query="ferry"),
    "search": lambda memory, session: session.search("ferry"),
    "over all": lambda memory, session: memory.search("ferry"),
    "summaries": lambda memory, session: session.summaries(),
    "status": lambda memory, session: session.status(),
    "check": lambda memory, session: memory.check(),
    "append": lambda memory, session: session.append(Message.user("new")),
    "edit": lambda memory, session: session.edit(1, "otherwise"),
    "erase": lambda memory, session: session.erase([2]),
    "update": lambda memory, session: session.update(),
    "check again": lambda memory, session: memory.check(),
    "delete": lambda memory, session: session.delete(),
}


async def used(path):
    async with AsyncMemory.open(path, config=CONFIG, create=False) as memory:
        for call in CALLS.values():
            with contextlib.suppress(HiermemError):
                await call(memory, memory.session("s"))


@given(st.data())
@sampling.drawn(500, 15)
def test_a_file_with_any_one_cell_changed_is_used_to_an_end(file, tmp_path_factory, data):
    """Broken, damage is a hang, or an error that no application expects."""
    source, cells = file
    table, column = data.draw(st.sampled_from(cells))
    path = tmp_path_factory.mktemp("cell") / "memory.db"
    shutil.copy(source, path)
    value, is_there = altered(path, table, column, data)

    def hangs(*_):
        raise AssertionError(f"no end: {table}.{column} with {str(value)[:100]!r}")

    if is_there:
        before = signal.signal(signal.SIGALRM, hangs)
        signal.alarm(LONGEST)
        try:
            with contextlib.suppress(HiermemError):
                asyncio.run(used(path))
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
    shutil.rmtree(path.parent)
