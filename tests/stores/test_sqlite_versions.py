"""Migrations: a file of an older format becomes the current one, or stays what it was.

No format was released yet, so the formats here are made up: the two that come after ours.
"""

import asyncio
import hashlib
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace

import pytest
from sampling import params

from hiermem.errors import StoreCorruptError, StoreError
from hiermem.stores.sqlite import SQLiteStore, files
from hiermem.stores.sqlite.files import scrub
from hiermem.stores.sqlite.schema import VERSION, current, read, shape
from hiermem.testing.samples import contents, node, remade, write
from hiermem.types import Message

#: The text of one message: two of them are more than the pages that SQLite holds back in memory.
LARGE = "text " * 300_000
LAST = VERSION + 2

ADDS_A_COLUMN = "ALTER TABLE events ADD COLUMN note TEXT; -- first\n"
ADDS_A_TABLE = """\
CREATE TABLE more_new (
  a INTEGER PRIMARY KEY, b TEXT);
INSERT INTO more_new VALUES (1, 'a;b');
ALTER TABLE more_new RENAME TO more;
CREATE INDEX more_b ON more(b) WHERE b IS NOT NULL;
"""
# What a step does that changes more of a table than SQLite can: it makes the table anew.
MAKES_A_TABLE_ANEW = """\
ALTER TABLE keys RENAME TO keys_before;
CREATE TABLE keys (
    session INTEGER NOT NULL,
    key TEXT NOT NULL,
    message_index INTEGER NOT NULL,
    fingerprint TEXT,
    length INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;
INSERT INTO keys SELECT session, key, message_index, fingerprint, length(key) FROM keys_before;
DROP TABLE keys_before;
CREATE TABLE moved AS SELECT * FROM messages;
DELETE FROM messages;
INSERT INTO messages SELECT * FROM moved;
DROP TABLE moved;
"""


def _replaced(script, old, new):
    assert script.count(old) == 1
    return script.replace(old, new)


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """Return a folder with the schema of the last made-up format and the steps to it."""
    folder = tmp_path_factory.mktemp("schema")
    script = _replaced(
        current().script,
        "    detail TEXT NOT NULL\n);\nCREATE INDEX events_of",
        "    detail TEXT NOT NULL,\n    note TEXT\n);\nCREATE INDEX events_of",
    )
    script = _replaced(
        script, "    fingerprint TEXT,\n", "    fingerprint TEXT,\n    length INTEGER NOT NULL,\n"
    )
    script += """-- A table more.
CREATE TABLE more (a INTEGER PRIMARY KEY, b TEXT);
CREATE INDEX more_b ON more (b) WHERE b IS NOT NULL;
"""
    (folder / "current.sql").write_text(script, "utf-8")
    (folder / f"{VERSION + 1:04}.sql").write_text(ADDS_A_COLUMN, "utf-8")
    (folder / f"{LAST:04}.sql").write_text(ADDS_A_TABLE + MAKES_A_TABLE_ANEW, "utf-8")
    return folder


@pytest.fixture
def newer(room):
    return read(room, LAST)


async def _make(path):
    store = await SQLiteStore.open(path)
    tenant = store.tenant("t")
    said = [Message.user(f"{LARGE}{n}", key=f"k{n}") for n in range(3)]
    await write(tenant, "s", said, nodes=(node(0), node(1)))
    await tenant.tree("s").write_nodes([remade(node(0))])
    kept = await contents(tenant)
    await store.close()
    return kept


async def _kept(path):
    store = await SQLiteStore.open(path, create=False)
    try:
        assert await store.check() == []
        return await contents(store.tenant("t"))
    finally:
        await store.close()


def _migrate(path, schema):
    files.prepare(path, create=False, busy_timeout=30, schema=schema)


def _state(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def _shape_at(path):
    with closing(files.connect(path, busy_timeout=1)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return version, shape(connection), files.check(connection)


def _rows(path):
    """Return what stands in the columns of our format, by table."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.executescript(current().script)
        columns = {
            table: ", ".join(row[1] for row in made.execute(f"PRAGMA table_info({table})"))
            for kind, table in current().expected()
            if kind == "table"
        }
    with closing(sqlite3.connect(path)) as connection:
        return {
            table: connection.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2").fetchall()
            for table, names in columns.items()
        }


def test_the_schema_is_the_one_of_its_format():
    """Broken, files of one format differ, and those made before the change are refused.

    Raise VERSION and write the new pair here. Until the first release is tagged, raise FIRST too;
    after that, add a step.
    """
    text = "\n".join(f"{k}{v}" for k, v in sorted(current().expected().items()))
    assert (VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == (6, "1bc368f2feadcfef")


async def test_a_migrated_schema_equals_a_fresh_one(tmp_path, newer):
    old, fresh = tmp_path / "old.db", tmp_path / "fresh.db"
    kept = await _make(old)
    rows = _rows(old)
    # Of an earlier try that was killed while it copied.
    (tmp_path / f"old.db.v{VERSION}.bak.part").write_bytes(b"half a copy")
    _migrate(old, newer)
    files.prepare(fresh, create=True, busy_timeout=1, schema=newer)
    assert _shape_at(old) == _shape_at(fresh)
    assert _shape_at(old)[::2] == (LAST, [])
    assert _rows(old) == rows
    # The copy is the store as it was, and is one file.
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "fresh.db",
        "old.db",
        f"old.db.v{VERSION}.bak",
    ]
    assert await _kept(tmp_path / f"old.db.v{VERSION}.bak") == kept
    # Opening it again changes nothing.
    before = _state(tmp_path)
    _migrate(old, newer)
    assert _state(tmp_path) == before


async def test_a_step_that_fails_leaves_the_older_store(tmp_path, newer):
    """All steps are one transaction, and one that leads elsewhere is not committed."""
    path = tmp_path / "x.db"
    kept = await _make(path)
    for last in ("CREATE TABLE nonsense (", ADDS_A_TABLE):
        with pytest.raises((StoreError, StoreCorruptError)):
            _migrate(path, replace(newer, steps={**newer.steps, LAST: last}))
        assert _shape_at(path)[0] == VERSION
        assert await _kept(path) == kept


KILLED = """
import os, signal, sys
from pathlib import Path
from hiermem.stores.sqlite import files
from hiermem.stores.sqlite.schema import VERSION, Schema, read

path, room, last = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
newer = read(room, VERSION + 2)

class Steps(dict):
    def __getitem__(self, step):
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(step)

schema = Schema(VERSION + 3, newer.script, Steps(newer.steps))
files.prepare(path, create=False, busy_timeout=5, schema=schema)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("step", params([LAST, VERSION + 1, LAST + 1], 1))
async def test_a_killed_migration_leaves_the_older_store(tmp_path, room, newer, step):
    """Killed before ``step``: the file is what it was, the copy is whole, and it is tried again."""
    path = tmp_path / "x.db"
    kept = await _make(path)
    rows = _rows(path)
    arguments = [sys.executable, "-c", KILLED, str(path), str(room), str(step)]
    died = await asyncio.to_thread(subprocess.run, arguments, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    if step == LAST + 1:
        # The steps had written part of their pages by then, and not only to memory.
        assert path.with_name("x.db-wal").stat().st_size > 1_000_000
    assert await _kept(tmp_path / f"x.db.v{VERSION}.bak") == kept
    assert await _kept(path) == kept
    _migrate(path, newer)
    assert _shape_at(path)[::2] == (LAST, [])
    assert _rows(path) == rows


async def test_two_that_migrate_one_file_at_once_do_it_once(tmp_path, newer):
    """Broken, the second takes every step again, or copies the migrated file."""
    path = tmp_path / "x.db"
    kept = await _make(path)
    taken = []

    class Slow(dict):
        def __getitem__(self, step):
            taken.append(step)
            time.sleep(0.2)  # the other one has seen the older format by then
            return super().__getitem__(step)

    schema = replace(newer, steps=Slow(newer.steps))
    await asyncio.gather(*(asyncio.to_thread(_migrate, path, schema) for _ in range(2)))
    assert taken == [VERSION + 1, LAST]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.db", f"x.db.v{VERSION}.bak"]
    assert _shape_at(path)[::2] == (LAST, [])
    assert await _kept(tmp_path / f"x.db.v{VERSION}.bak") == kept


async def test_an_erasure_finds_the_copy_of_a_migration(tmp_path, newer):
    """P11: broken, what was erased stays in the copy, under a name that nobody looks for."""
    path = tmp_path / "x.db"
    await _make(path)
    _migrate(path, newer)
    assert LARGE[:1000].encode() in (tmp_path / f"x.db.v{VERSION}.bak").read_bytes()
    found = scrub(path, busy_timeout=1)
    assert found.done
    assert found.removed == (f"x.db.v{VERSION}.bak",)
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]
