"""What a store file must be: identity, damage, settings, indexes, what it leaves behind."""

import asyncio
import hashlib
import os
import random
import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from hiermem import AsyncMemory, HierarchyConfig
from hiermem.errors import (
    HiermemError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.stores.sqlite import SQLiteStore, files
from hiermem.stores.sqlite.reads import ECHOING, FLAGGED
from hiermem.stores.sqlite.schema import APPLICATION_ID, DEVELOPMENT_ID, VERSION
from hiermem.stores.sqlite.trees import COVERING, UNFINISHED
from hiermem.testing.samples import contents, node, remade, write
from hiermem.types import Message
from hiermem.types.transaction import ViewRecord


async def _make(path, count=3):
    store = await SQLiteStore.open(path)
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user(f"text {n}", key=f"k{n}") for n in range(count)],
                nodes=(node(0), node(1)))  # fmt: skip
    await tenant.tree("s").write_nodes([remade(node(0))])
    kept = await contents(tenant)
    await store.close()
    return kept


def _state(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


async def _refused(path, error, **how):
    """Opening raises ``error`` and changes neither the file nor the folder that it is in."""
    before = _state(path.parent)
    with pytest.raises(error) as caught:
        await SQLiteStore.open(path, **how)
    assert _state(path.parent) == before
    return str(caught.value)


async def test_a_closed_store_is_one_file(tmp_path):
    await _make(tmp_path / "x.db")
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]


@pytest.mark.parametrize(
    "content", [b"x", b"not a database, but a text\n" * 50, b"SQLite format 3\x00", bytes(5000)]
)
async def test_another_file_is_refused_and_left_untouched(tmp_path, content):
    path = tmp_path / "x.db"
    path.write_bytes(content)
    assert "untouched" in await _refused(path, StoreCorruptError)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_another_applications_database_is_refused_and_left_untouched(tmp_path, mode):
    path = tmp_path / "x.db"
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("CREATE TABLE t (a)")
    other.commit()
    other.close()
    await _refused(path, StoreCorruptError)


async def test_a_missing_file_is_not_made_where_create_is_off(tmp_path):
    await _refused(tmp_path / "x.db", NotFoundError, create=False)
    (tmp_path / "empty.db").touch()
    await _refused(tmp_path / "empty.db", StoreCorruptError, create=False)
    store = await SQLiteStore.open(tmp_path / "empty.db")
    await store.close()


async def test_bad_arguments_are_refused(tmp_path):
    for path, how in (("", {}), (tmp_path / "x", {"busy_timeout": -1}), (tmp_path, {"readers": 0})):
        with pytest.raises(UsageError):
            await SQLiteStore.open(path, **how)
    for path in (tmp_path, tmp_path / "no" / "such" / "folder.db"):
        with pytest.raises(StoreError):
            await SQLiteStore.open(path)
    assert list(tmp_path.iterdir()) == []


async def test_odd_file_names_are_file_names(tmp_path):
    for name in ("a b?mode=ro#x%41.db", "é🙂.db", "file:x", "'; --"):
        await _make(tmp_path / name)
        assert (tmp_path / name).exists()
    assert len(list(tmp_path.iterdir())) == 4


async def test_a_newer_store_is_refused_and_left_untouched(tmp_path):
    path = tmp_path / "x.db"
    await _make(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    assert "upgrade" in await _refused(path, StoreCorruptError)


@pytest.mark.parametrize(
    ("number", "application"),
    [(1, APPLICATION_ID), *((number, DEVELOPMENT_ID) for number in (1, 2, 3, 4))],
)
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
async def test_a_store_of_a_development_version_is_refused_as_such(
    tmp_path, number, application, killed
):
    """Its numbers are ours, its tables may be: taken for ours, it would be migrated or misread."""
    store = await SQLiteStore.open(tmp_path / "source.db")
    await write(store.tenant("t"), "s", [Message.user("x")])
    folder = tmp_path / "folder"
    folder.mkdir()
    if killed:
        shutil.copy(tmp_path / "source.db-wal", folder / "x.db-wal")
    else:
        await store.close()
    content = bytearray((tmp_path / "source.db").read_bytes())
    content[60:64] = number.to_bytes(4, "big")
    content[68:72] = application.to_bytes(4, "big")
    path = folder / "x.db"
    path.write_bytes(content)
    for create in (True, False):
        told = await _refused(path, StoreCorruptError, create=create)
        assert "damaged" not in told
        assert f"development format {number}" in told
        assert "untouched" in told
        assert "append its messages" in told
    await store.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM keys; END",
        "CREATE VIEW v AS SELECT * FROM messages",
        "CREATE TABLE extra (a)",
        "CREATE INDEX extra ON messages (hash)",
        "DROP INDEX nodes_unfinished",
        "ALTER TABLE messages ADD COLUMN more",
        "PRAGMA user_version = 0",
    ],
)
async def test_a_foreign_schema_is_refused_and_left_untouched(tmp_path, change):
    path = tmp_path / "x.db"
    await _make(path)
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    await _refused(path, StoreCorruptError)


async def test_a_store_under_another_hand_is_examined_and_opened(tmp_path):
    """The write-ahead log of a living process is part of the file."""
    path = tmp_path / "x.db"
    first = await SQLiteStore.open(path)
    await write(first.tenant("t"), "s", [Message.user("x")])
    assert path.with_name("x.db-wal").stat().st_size > 0
    second = await SQLiteStore.open(path)
    assert len(await second.tenant("t").messages("s", 0, 9)) == 1
    await first.close()
    await second.close()


async def test_flipped_bytes_give_a_typed_error_or_whole_data(tmp_path, share):
    """A byte flipped anywhere: opening, reading and writing end in data or a HiermemError."""
    path = tmp_path / "x.db"
    await _make(path, count=30)
    sound = path.read_bytes()
    draw = random.Random(7)
    refused = 0
    files = share(500, 60)
    for _ in range(files):
        broken = bytearray(sound)
        for _ in range(draw.choice((1, 1, 8))):
            broken[draw.choice((draw.randrange(200), draw.randrange(len(sound))))] ^= draw.choice(
                (1, 0x80, 0xFF)
            )
        path.write_bytes(broken)
        try:
            store = await SQLiteStore.open(path)
        except HiermemError:
            refused += 1
            assert path.read_bytes() == broken
            continue
        try:
            await asyncio.wait_for(contents(store.tenant("t")), 10)
            await asyncio.wait_for(write(store.tenant("t"), "s", [Message.user("x")]), 10)
        except HiermemError:
            refused += 1
        finally:
            await store.close()
            for beside in tmp_path.glob("x.db-*"):
                beside.unlink()
    assert refused > files / 5


# -- settings


async def test_every_connection_has_the_safe_settings(tmp_path):
    """Broken, a power cut on macOS takes an acknowledged message, or a file's own code runs."""
    names = "journal_mode synchronous fullfsync checkpoint_fullfsync secure_delete trusted_schema"
    store = await SQLiteStore.open(tmp_path / "x.db")

    def settings(connection):
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names.split()]

    for found in (
        await store.read(settings),
        await store.write(lambda transaction: settings(transaction.connection)),
    ):
        assert found == ["wal", 2, 1, 1, 1, 0]
    await store.close()


async def test_a_write_that_may_be_lost_waits_for_no_sync_and_no_other_does_without(tmp_path):
    """Broken, a turn waits for the sync of a cache, or a message is lost in a power loss."""
    store = await SQLiteStore.open(tmp_path / "x.db")
    tenant = store.tenant("t")
    found = []

    def note(transaction):
        found.append(transaction.connection.execute("PRAGMA synchronous").fetchone()[0])

    async def together(*durable):
        gate, inside = threading.Event(), threading.Event()
        # What waits behind a write shares a commit.
        tasks = [asyncio.create_task(store.write(lambda _: inside.set() or gate.wait()))]
        while not inside.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(store.write(note, durable=one)) for one in durable]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)
        taken, found[:] = found[:], []
        return taken

    full, normal = 2, 1
    assert await together(False, False) == [normal] * 2
    assert await together(True) == [full]
    assert await together(False, True) == [full] * 2
    await tenant.put_view(ViewRecord("s", "v", "state"))
    assert store._writer._transaction.connection.execute("PRAGMA synchronous").fetchone() == (
        normal,
    )
    while store.write_here(lambda transaction: note(transaction) or True) is None:  # noqa: ASYNC110
        await asyncio.sleep(0.001)  # the writer's own thread is at its end, not yet past it
    assert found == [full]
    await store.close()


@pytest.mark.parametrize(
    ("statement", "values", "index"),
    [
        (UNFINISHED, ("t", 1, 0, 1, -1, 10), "nodes_unfinished"),
        (COVERING, (1, 0, "main", 7), "nodes_covering"),
        (ECHOING[0], (1, 99), "messages_echoing"),
        (ECHOING[1], (1, 99), "versions_echoing"),
        (FLAGGED, (1, 99, '"a"', 5), "messages_flagged"),
    ],
)
async def test_what_costs_what_it_returns_has_an_index(tmp_path, statement, values, index):
    """SQLite must use the partial index that was made for it, and sort nothing."""
    store = await SQLiteStore.open(tmp_path / "x.db")

    def plan(connection):
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        return " ".join(row[3] for row in rows)

    found = await store.read(plan)
    assert index in found
    assert "TEMP B-TREE" not in found
    await store.close()


async def test_check_tells_a_sound_file_from_a_damaged_one(tmp_path, monkeypatch):
    path = tmp_path / "x.db"
    await _make(path, count=200)
    store = await SQLiteStore.open(path)
    assert await store.check() == []
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 3 + 64] = os.urandom(64)
    path.write_bytes(content)
    monkeypatch.setattr(files, "QUICK_CHECK_LIMIT", 0)
    try:
        store = await SQLiteStore.open(path)
    except StoreCorruptError:
        return
    try:
        assert await store.check() != []
    except StoreCorruptError:
        pass
    finally:
        await store.close()


async def test_a_store_that_sqlite_cannot_open_is_named(tmp_path):
    """Broken, the error says "unable to open database file", and nobody knows which."""
    path = tmp_path / "chat.db"
    await (await SQLiteStore.open(path)).close()
    (tmp_path / "chat.db-wal").mkdir()
    with pytest.raises(StoreError, match=f"^the store at {path} cannot be opened"):
        await SQLiteStore.open(path)


async def test_deleted_text_is_not_in_the_file(tmp_path):
    """secure_delete: what was removed is not left in free pages once the log is folded in."""
    path = tmp_path / "x.db"
    store = await SQLiteStore.open(path)
    tenant = store.tenant("t")
    await write(tenant, "s", nodes=(node(0),))
    await tenant.tree("s").write_nodes([remade(node(0), text="CANARY " * 3000)])
    await write(tenant, "s", forget=("L1.0",))
    await store.close()
    assert b"CANARY" not in path.read_bytes()


class Quarters:
    """A counter that takes no time."""

    name = "quarters"

    def count(self, text):
        return -(-len(text) // 4)


def many(size):
    return [Message.user(f"{number} " + "the pump. " * 800) for number in range(size // 8_000)]


async def test_the_log_is_cut_after_a_large_write_and_once_a_long_read_has_ended(tmp_path):
    """Broken, a log of 49 MB stays beside a file of 24 MB for as long as the process runs."""
    path, log = tmp_path / "m.db", tmp_path / "m.db-wal"
    plain = {"token_counter": Quarters(), "config": HierarchyConfig(enabled=False)}
    async with AsyncMemory.open(path, **plain) as memory:
        session = memory.session("s")
        await session.append(many(12_000_000))
        assert log.stat().st_size < 1_000_000 < path.stat().st_size / 10
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM messages").fetchone() == (1_500,)
            for _ in range(3):
                await session.append(many(4_000_000))
            assert log.stat().st_size > 8_000_000, "what the reader sees is still needed"
            assert reader.execute("SELECT count(*) FROM messages").fetchone() == (1_500,)
        for _ in range(2):
            await session.append(many(4_000_000))
        assert log.stat().st_size <= 8_000_000
        await session.append(many(12_000_000))
        assert log.stat().st_size < 1_000_000, "it waits for a longer log than before"
        assert (await session.status()).messages == 5_500
    assert not log.exists()


async def test_erasing_while_somebody_reads_makes_the_log_no_longer(tmp_path):
    """Broken, each try to clean the file's bytes makes the log longer by the whole file."""
    path, log = tmp_path / "m.db", tmp_path / "m.db-wal"
    plain = {"token_counter": Quarters(), "config": HierarchyConfig(enabled=False)}
    store = await SQLiteStore.open(path, busy_timeout=0.1)
    async with AsyncMemory(store=store, **plain) as memory:
        session = memory.session("s")
        await session.append(many(4_000_000))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM messages").fetchone() == (500,)
            before = log.stat().st_size
            for index in range(4):
                assert not (await session.erase([index])).scrubbed
            assert log.stat().st_size < before + path.stat().st_size / 4
        assert (await session.erase([4])).scrubbed
        assert log.stat().st_size == 0
    await store.close()
