"""Files of older schemas are brought forward and lose nothing.

``older/schema_N.sql`` is the schema of version N, as that version wrote it.
"""

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hiermem.stores.sqlite import SQLiteStore, files
from hiermem.stores.sqlite.schema import VERSION, Schema, current
from hiermem.testing.samples import NOW, attempt, contents, node, remade, run, stored, write
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types import Message
from hiermem.types.transaction import LogEvent, RecordWrite, ViewRecord

OLDER = Path(__file__).with_name("older")
THIRD = Schema(3, OLDER.joinpath("schema_3.sql").read_text("utf-8"))
SECOND = Schema(2, OLDER.joinpath("schema_2.sql").read_text("utf-8"))
FIRST = Schema(1, SECOND.script.partition("\n-- Small documents")[0])


def _digest(schema):
    text = "\n".join(f"{k}{v}" for k, v in sorted(schema.expected().items()))
    return schema.version, hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_schema_is_the_one_of_its_version():
    """A change of current.sql needs a new version and a step; this is the reminder."""
    assert _digest(FIRST) == (1, "e0968c653ea5f15b")
    assert _digest(SECOND) == (2, "e683045bdffe634a")
    assert _digest(THIRD) == (3, "2636b6af1236eeba")
    assert _digest(current()) == (VERSION, "3c08c2c17a49ea2b")


async def _fill(tenant):
    """Write one of everything that the second version could hold."""
    unit = {"s": "tokens", "chars": "chars"}
    for name in ("s", "chars", "after"):
        config = f'{{"max":1,"unit":"{unit.get(name, "tokens")}"}}'
        said = [stored(Message.user(f"{name} {n}", key=f"k{n}")) for n in range(4)]
        said[2] = replace(said[2], echoes=((0, 1),))
        sealed = tuple(node(n, unit=unit.get(name, "tokens")) for n in range(3))
        loose = replace(node(0, id="open/L1/main", sealed=False), unit=unit.get(name, "tokens"))
        await write(
            tenant, name, said, nodes=(*sealed, loose), flags=((1, "f"),),
            events=(LogEvent("close", 2, NOW, "why"),),
            record={"config": config, "participants": ("Ada",), "closed": name == "after"},
        )  # fmt: skip
        first = remade(sealed[0], text=name, input_hash="h", extras={"a": [1]})
        second = remade(sealed[1], input_hash="i", created_at=NOW + timedelta(days=1))
        await tenant.write_nodes(name, [first, second], attempts=[attempt(name, session_id=name)])
    await tenant.put_run(run("r", detail={"n": [1]}))
    await tenant.put_view(ViewRecord("s", "v", "kept"))
    await tenant.put_records([RecordWrite("k", "s", "a", "body", 0)])


async def _everything(store, names):
    return [
        [
            await contents(store.tenant(name)),
            await store.tenant(name).reusable("h"),
            await store.tenant(name).view("s", "v"),
            await store.tenant(name).records("k"),
        ]
        for name in names
    ]


def _take_back(new, old, schema):
    """Make an older file that holds what ``new`` does, as far as its tables can."""
    files.prepare(old, create=True, busy_timeout=1, schema=schema)
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        connection.execute("DELETE FROM store")
        connection.execute("ATTACH ? AS new", (str(new),))
        connection.execute("BEGIN")
        for _, table in [name for name in schema.expected() if name[0] == "table"]:
            columns = ", ".join(
                row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")
            )
            connection.execute(
                f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}"
            )
        connection.execute("COMMIT")


@pytest.mark.parametrize("schema", [FIRST, SECOND, THIRD], ids=["1", "2", "3"])
async def test_an_older_file_loses_nothing(tmp_path, schema):
    """All that an older version wrote reads the same afterwards, and the copy is made first."""
    names = HOSTILE_NAMES[:4]
    store = await SQLiteStore.open(tmp_path / "new.db")
    for name in names:
        await _fill(store.tenant(name))
    before = await _everything(store, names)
    await store.close()
    if schema.version < 2:
        for one in before:
            one[-1] = []
            one[0]["session s"]["derived"][1] = []
    old = tmp_path / "old.db"
    _take_back(tmp_path / "new.db", old, schema)
    store = await SQLiteStore.open(old)
    try:
        assert await _everything(store, names) == before
        # What is new in this version works on what is old.
        tenant = store.tenant(names[0])
        assert await tenant.backlog() == ["s", "chars", "after"]
        assert [one.id for one in await tenant.covering("s", "main", 15)] == ["L1.1"]
        assert await tenant.put_records([RecordWrite("k", "new", "a", "body", 0)]) is True
        await write(tenant, "new", [Message.user("x")])
        assert [one.id for one in await tenant.sessions()] == ["s", "chars", "after", "new"]
    finally:
        await store.close()
    backup = tmp_path / f"old.db.v{schema.version}.bak"
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == schema.version
        assert connection.execute("SELECT count(*) FROM messages").fetchone()[0] == 48
