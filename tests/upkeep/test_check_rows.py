"""Any value of any row that a promise rests on: altered in the file, a check finds it.

The columns that no promise rests on are named here with the reason; a column that is added to the
schema must be found, or be given one.
"""

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pytest
from logbook import CONFIGS, Words, text
from stand_ins import talk

from hiermem import AsyncMemory, HiermemError
from hiermem.records import tables

#: What may be anything, as far as the promises go.
FREE = {
    "sessions.title": "told to the model only", "sessions.participants": "told to the model only",
    "sessions.created_at": "when it was begun",
    "sessions.forked_at": "lineage: it only widens or narrows what an erasure reaches",
    "sessions.forked_from": "lineage: as above",
    "heads.version": "a count of writes, compared only with itself",
    "sessions.epoch": "a count of withdrawals, compared only with itself",
    "sessions.guard": "compared only with itself", "heads.guard": "as above",
    "nodes.guard": "as above", "sessions.created": "the order of a list",
    "heads.created": "as above", "heads.session": "the number that the session's row has, too",
    "heads.last_activity": "the order of such a list",
    "heads.unindexed": "whether messages are missing in the index, which is derived",
    "sessions.config": "what is sealed next is sealed under it",
    "messages.size": "what sealing weighed", "messages.zone": "the same instant in another zone",
    "messages.flags": "what is odd about a message, told to callers",
    "versions.edit": "the order of versions", "versions.tokens": "what an earlier version weighed",
    "versions.size": "as above", "versions.flags": "as above", "versions.zone": "as above",
    "events.event": "a row's number", "events.session": "the log is not folded again",
    "events.kind": "as above", "events.at": "as above", "events.detail": "as above",
    "events.happened_at": "when it was noted", "events.tenant": "as events.session",
    "nodes.input_size": "what sealing weighed", "nodes.input_tokens": "as above",
    "nodes.allotted": "how long a text may be, as long as it is less than its inputs",
    "nodes.allotted_tokens": "as above", "nodes.verbatim": "as above",
    "nodes.first_at": "told beside the text", "nodes.last_at": "as above",
    "nodes.linked": "how a window came about", "nodes.version": "compared only with itself",
    "nodes.attempts": "how often a failed one was tried", "nodes.error": "what went wrong",
    "nodes.since": "since when it waits",
    "nodes.unfinished": "derived: what an update looks at", "nodes.window": "derived",
    "nodes.made": "figures of the text, added up for reports",
    "nodes.dirty": "marked for nothing, it is looked at for nothing", "nodes.forced": "as above",
    "revisions.written": "a row's number", "revisions.style": "how it was asked for",
    "revisions.model": "who made it", "revisions.created_at": "when it was made",
    "revisions.fidelity": "a measurement", "revisions.unsupported": "a measurement",
    "revisions.trust": "shown beside the text", "revisions.reused": "how it came about",
    "revisions.tokens_in": "what it cost", "revisions.tokens_out": "what it cost",
    "revisions.calls": "what it cost", "revisions.duration_ms": "what it took",
    "revisions.reuse": "asked for only where a text is looked for to be used again",
    "revisions.extras": "where provenance is counted from, when it is moved",
}  # fmt: skip
TABLES = ("sessions", "heads", "messages", "versions", "keys", "events", "nodes", "revisions")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file of one session, edited, erased from, closed and opened again, with summaries."""
    path = tmp_path_factory.mktemp("rows") / "memory.db"

    async def fill():
        async with AsyncMemory.open(
            path, config=CONFIGS["tokens"], token_counter=Words()
        ) as memory:
            session = memory.session("s", title="Ferries", participants=["Ada"])
            await session.append(
                talk(
                    45, lambda n: text(n, 300 if n == 11 else 25), key="k{n}", seconds=60,
                    name=lambda n: "Ada" if n % 3 else None,
                )
            )  # fmt: skip
            await session.edit(20, text(99, 20))
            await session.erase([4])
            await session.flush()
            await session.update()
            assert (await memory.check()).findings == ()

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("PRAGMA journal_mode = DELETE")
    return path


def columns():
    """Name all columns of the tables."""
    return [f"{name}.{column}" for name in TABLES for column in tables.TABLES[name].columns]


async def found(path):
    """Give the promises that a check finds broken, or the name of what stops it."""
    try:
        async with AsyncMemory.open(path, token_counter=Words(), create=False) as memory:
            report = await memory.check()
            return {finding.promise for finding in report.findings} | set(report.skipped)
    except HiermemError as error:
        return {type(error).__name__}


def alter(path, column):
    """Change one value of that column in the middle of its table; say whether there was any."""
    table, name = column.split(".")
    with closing(sqlite3.connect(path)) as rows, rows:
        keys = tables.TABLES[table].key
        known = rows.execute(
            f'SELECT {", ".join(keys)}, "{name}", typeof("{name}") FROM {table} '
            f'ORDER BY "{name}" IS NULL, {", ".join(keys)}'
        ).fetchall()
        if not known:
            return False
        *place, value, kind = known[len([row for row in known if row[-1] != "null"]) // 2]
        if kind == "text":
            value = value[:-1] + "x" if len(value) > 1 and name == "id" else value + "x"
        else:
            value = "x" if value is None else value + (10**6 if name in keys else 1)
        where = " AND ".join(f"{key} = ?" for key in keys)
        rows.execute("PRAGMA ignore_check_constraints = ON")
        rows.execute(f'UPDATE {table} SET "{name}" = ? WHERE {where}', (value, *place))
        return True


@pytest.mark.parametrize("column", columns())
async def test_an_altered_value_is_found_unless_nothing_rests_on_it(file, tmp_path, column):
    """Broken, a value that a promise rests on could be changed in the file unseen."""
    path = tmp_path / "memory.db"
    shutil.copy(file, path)
    assert alter(path, column), f"no row of {column} to alter"
    broken = await found(path)
    assert broken or column in FREE


def test_the_list_of_free_columns_holds_no_strangers():
    assert set(FREE) <= set(columns())


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table not in ("sessions", "events")]
)
async def test_a_row_that_is_gone_is_found(file, tmp_path, table):
    """A row lost to a damaged page must not go unnoticed."""
    path = tmp_path / "memory.db"
    shutil.copy(file, path)
    with closing(sqlite3.connect(path)) as rows, rows:
        key = ", ".join(tables.TABLES[table].key)
        last = f"SELECT {key} FROM {table} ORDER BY {key} DESC LIMIT 1"
        rows.execute(f"DELETE FROM {table} WHERE ({key}) = ({last})")
    assert await found(path)
