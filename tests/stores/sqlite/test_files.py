"""What a store file must be: identity, format, damage, settings, rights, copies, deleted bytes."""

import hashlib
import itertools
import random
import shutil
import sqlite3
from contextlib import closing

import pytest
from driven import adding, count, put, run, texts, together

from hiermem.errors import (
    HiermemError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.records.tables import Commit
from hiermem.stores.sqlite import SQLiteStore, files
from hiermem.stores.sqlite.files import APPLICATION_ID, DEVELOPMENT_ID, VERSION


async def _make(path, number=3):
    store = await SQLiteStore.open(path)
    for n in range(number):
        run(store.commit(put(f"text {n} " * 20, f"v{n}")))
    await store.close()


def _state(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


async def _refused(path, error, **how):
    """Opening raises ``error`` and changes neither the file nor the folder that it is in."""
    before = _state(path.parent)
    with pytest.raises(error) as caught:
        await SQLiteStore.open(path, **how)
    assert _state(path.parent) == before
    return str(caught.value)


async def test_a_closed_store_is_one_file_and_keeps_its_rows(tmp_path):
    await _make(tmp_path / "x.db")
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]
    store = await SQLiteStore.open(tmp_path / "x.db", create=False)
    assert list(texts(store)) == ["v0", "v1", "v2"]
    assert store.capabilities == {"durable", "shared", "on_thread"}
    assert (store.path, store.place) == (str(tmp_path / "x.db"),) * 2
    await store.close()


async def test_a_store_in_memory_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = await SQLiteStore.open(":memory:")
    run(store.commit(adding()))
    assert store.capabilities == frozenset()
    assert store.place == ":memory:"
    await store.close()
    other = await SQLiteStore.open(":memory:")
    assert count(other) == 0
    await other.close()
    assert list(tmp_path.iterdir()) == []


# -- what is refused


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
    await (await SQLiteStore.open(tmp_path / "empty.db")).close()


async def test_bad_arguments_are_refused(tmp_path):
    for path, how in (("", {}), (tmp_path / "x", {"busy_timeout": -1}), (tmp_path, {"readers": 0}),
                      (":memory:", {"read_only": True})):  # fmt: skip
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


@pytest.mark.parametrize(
    ("number", "application"),
    [(1, APPLICATION_ID), (VERSION - 1, APPLICATION_ID), (VERSION, DEVELOPMENT_ID)],
)
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
async def test_a_store_of_a_development_version_is_refused_as_such(
    tmp_path, number, application, killed
):
    store = await SQLiteStore.open(tmp_path / "source.db")
    run(store.commit(adding()))
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
    for how in ({}, {"create": False}, {"read_only": True}):
        told = await _refused(path, StoreCorruptError, **how)
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
        "DROP INDEX messages_key",
        "ALTER TABLE messages ADD COLUMN more",
        "PRAGMA user_version = 0",
        f"PRAGMA user_version = {VERSION + 1}",
    ],
)
async def test_a_foreign_schema_is_refused_and_left_untouched(tmp_path, change):
    path = tmp_path / "x.db"
    await _make(path)
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    told = await _refused(path, StoreCorruptError)
    assert ("upgrade" in told) == (str(VERSION + 1) in change)


async def test_a_file_that_somebody_analysed_is_opened(tmp_path):
    path = tmp_path / "x.db"
    await _make(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ANALYZE")
        connection.commit()
    store = await SQLiteStore.open(path)
    assert len(texts(store)) == 3
    await store.close()


async def test_a_store_under_another_hand_is_examined_and_opened(tmp_path):
    """The write-ahead log of a living process is part of the file."""
    path = tmp_path / "x.db"
    first = await SQLiteStore.open(path)
    run(first.commit(adding()))
    assert path.with_name("x.db-wal").stat().st_size > 0
    second = await SQLiteStore.open(path)
    assert count(second) == 1
    run(second.commit(adding()))
    assert count(first) == 2
    await first.close()
    await second.close()


async def test_flipped_bytes_give_a_typed_error_or_whole_data(tmp_path, share):
    """A byte flipped anywhere: opening, reading and writing end in data or a HiermemError."""
    path = tmp_path / "x.db"
    await _make(path, 30)
    sound = path.read_bytes()
    draw = random.Random(7)
    refused = 0
    number = share(500, 60)
    for _ in range(number):
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
            texts(store)
            run(store.commit(put("x")))
        except HiermemError:
            refused += 1
        finally:
            await store.close()
            for beside in tmp_path.glob("x.db-*"):
                beside.unlink()
    assert refused > number / 5


async def test_check_tells_a_sound_file_from_a_damaged_one(tmp_path, monkeypatch):
    path = tmp_path / "x.db"
    await _make(path, 200)
    store = await SQLiteStore.open(path)
    assert run(store.check()) == []
    await store.close()
    content = bytearray(path.read_bytes())
    at = content.index(b"text 90 ")
    content[at // 4096 * 4096 :][:64] = content[at // 4096 * 4096 : at // 4096 * 4096 + 64] = bytes(
        range(64)
    )
    path.write_bytes(content)
    monkeypatch.setattr(files, "QUICK_CHECK_LIMIT", 0)
    store = await SQLiteStore.open(path)
    try:
        assert run(store.check()) != []
    except StoreCorruptError:
        pass
    finally:
        await store.close()


async def test_a_store_that_sqlite_cannot_open_is_named(tmp_path):
    """Broken, the error says "unable to open database file", and nobody knows which."""
    path = tmp_path / "chat.db"
    await _make(path)
    (tmp_path / "chat.db-wal").mkdir()
    with pytest.raises(StoreError, match=f"^the store at {path} cannot be opened"):
        await SQLiteStore.open(path)


# -- settings, rights, the log


async def test_every_connection_has_the_safe_settings(tmp_path):
    """Broken, a power cut on macOS takes an acknowledged message, or a file's own code runs."""
    names = "journal_mode synchronous fullfsync checkpoint_fullfsync secure_delete trusted_schema"
    store = await SQLiteStore.open(tmp_path / "x.db")

    def settings(connection):
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names.split()]

    for found in (store._read(settings), settings(store._writer.connection)):
        assert found == ["wal", 2, 1, 1, 1, 0]
    await store.close()


async def test_a_commit_that_may_be_lost_waits_for_no_sync_and_no_other_does_without(tmp_path):
    """Broken, a turn waits for the sync of a cache, or a message is lost in a power loss."""
    store = await SQLiteStore.open(tmp_path / "x.db")
    full, normal = (2,), (1,)
    for durable, level in (((False, False), normal), ((True,), full), ((False,), normal),
                           ((False, True, False), full)):  # fmt: skip
        together(store, [put("x", f"v{n}", durable=one) for n, one in enumerate(durable)])
        assert store._writer.connection.execute("PRAGMA synchronous").fetchone() == level
    await store.close()


_numbers = itertools.count()


def _many(size):
    rows = [("t", "s", f"{next(_numbers)}", "the pump. " * 800) for _ in range(size // 8_000)]
    return Commit(puts={"views": rows})


async def test_the_log_is_cut_after_a_large_commit_and_once_a_long_read_has_ended(tmp_path):
    """Broken, a log of 49 MB stays beside a file of 24 MB for as long as the process runs."""
    path, log = tmp_path / "m.db", tmp_path / "m.db-wal"
    store = await SQLiteStore.open(path)
    run(store.commit(_many(12_000_000)))
    assert log.stat().st_size < 1_000_000 < path.stat().st_size / 10
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM views").fetchone() == (1_500,)
        for _ in range(3):
            run(store.commit(_many(4_000_000)))
        assert log.stat().st_size > 8_000_000, "what the reader sees is still needed"
        assert reader.execute("SELECT count(*) FROM views").fetchone() == (1_500,)
    for _ in range(2):
        run(store.commit(_many(4_000_000)))
    assert log.stat().st_size <= 8_000_000
    run(store.commit(_many(12_000_000)))
    assert log.stat().st_size < 1_000_000, "it waits for a longer log than before"
    await store.close()
    assert not log.exists()
