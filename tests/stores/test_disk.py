"""What a disk does to a store: rights, a power loss, a read-only file system, copies."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import (
    AsyncMemory,
    Memory,
    Message,
    NotFoundError,
    ReadOnlyError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.records.run import Tenant
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore

on_posix = pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")


def talk(count: int) -> list[Message]:
    return [
        (Message.assistant if n % 2 else Message.user)(f"Pump {n} runs at {n * 7} rpm. " * 12)
        for n in range(count)
    ]


def texts(memory: Memory, session: str = "a") -> list[object]:
    return [message.content for message in memory.session(session).messages()]


# -- rights


@on_posix
def test_everything_that_is_created_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    """The files hold what people said, and the secret that signs what the store renders."""
    path = tmp_path / "chat.db"
    before = os.umask(0o022)
    try:
        with Memory.open(path) as memory:
            memory.session("a").append(talk(4))
            memory.backup(tmp_path / "copy.db")
            found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(found) == {"chat.db", "chat.db-wal", "chat.db-shm", "copy.db"}
    assert set(found.values()) == {0o600}


@on_posix
def test_the_rights_of_a_file_that_exists_are_its_owners_choice(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.touch()
    path.chmod(0o640)
    Memory.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


# -- a power loss while the file is created


def _creation(path: Path) -> tuple[bytes, bytes]:
    """Return file and journal as they are when the first transaction is about to be committed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection, connection:
        connection.execute("PRAGMA cache_spill = 1")
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE first (one)")
        connection.execute("INSERT INTO first VALUES (zeroblob(100000))")
        found = path.read_bytes(), path.with_name(path.name + "-journal").read_bytes()
        connection.execute("ROLLBACK")
    return found


@drawn(25)
@given(st.data())
def test_a_power_loss_during_the_first_open_leaves_a_file_that_opens(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any of the first pages may be missing; the journal, written before them, is whole."""
    folder = tmp_path_factory.mktemp("loss")
    whole, journal = _creation(folder / "made.db")
    assert len(whole) > 8192
    path = folder / "chat.db"
    kept = data.draw(st.lists(st.booleans(), min_size=len(whole) // 512 + 1, max_size=300))
    image = bytearray(data.draw(st.integers(1, len(whole))))
    for number, is_kept in enumerate(kept):
        if is_kept and number:  # the first sector is missing
            piece = whole[512 * number : 512 * number + 512]
            image[512 * number : 512 * number + len(piece)] = piece
    path.write_bytes(image)
    path.with_name("chat.db-journal").write_bytes(journal)
    with Memory.open(path) as memory:
        memory.session("a").append(Message.user("after the loss"))
        assert texts(memory) == ["after the loss"]
        assert memory.check().ok


def test_a_foreign_file_beside_a_journal_is_left_untouched(tmp_path: Path) -> None:
    """Only a journal that says the file was empty makes it ours to begin again."""
    path, journal = tmp_path / "chat.db", tmp_path / "chat.db-journal"
    _, made = _creation(tmp_path / "made.db")
    for beside in (b"", b"something", made[:16] + b"\0\0\0\7" + made[20:]):
        path.write_bytes(b"no store at all " * 100)
        journal.write_bytes(beside)
        with pytest.raises(StoreCorruptError):
            Memory.open(path)
        assert path.read_bytes() == b"no store at all " * 100
        assert journal.read_bytes() == beside


# -- a full disk, and a scrub that lasts


class _Refusing:
    """``put_view`` of a store whose disk is full, or that somebody has locked."""

    def __init__(self, error: StoreError) -> None:
        self.error = error

    async def __call__(self, *_: object, **__: object) -> bool:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        StoreError("SQLite failed (SQLITE_FULL)"),
        StoreError("locked", retryable=True),
        ReadOnlyError(),
    ],
)
async def test_a_context_needs_no_room_on_the_disk(monkeypatch, error) -> None:
    """Its sticky state only saves a cache miss; a chat goes on without it."""
    async with AsyncMemory.open(":memory:") as memory:
        session = memory.session("a")
        await session.append(talk(60))
        await session.update()
        expected = await session.context(2_000, view="other")
        monkeypatch.setattr(Tenant, "put_view", _Refusing(error))
        found = await session.context(2_000)
        assert found.coverage == 1.0
        assert found.shown == expected.shown
        # A damaged store is not passed over.
        monkeypatch.setattr(Tenant, "put_view", _Refusing(StoreCorruptError("damaged")))
        with pytest.raises(StoreCorruptError):
            await session.context(2_000)


def test_an_erasure_says_scrubbed_only_once_the_emptied_log_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss after the receipt would bring the log back, with the erased text in it."""
    path, log = tmp_path / "chat.db", tmp_path / "chat.db-wal"
    synced: list[tuple[str, int]] = []
    scrub = sys.modules["hiermem.stores.sqlite.files"]
    sync = scrub.sync

    def noted(place: Path) -> None:
        synced.append((place.name, log.stat().st_size))
        sync(place)

    monkeypatch.setattr(scrub, "sync", noted)
    with Memory.open(path) as memory:
        session = memory.session("a")
        session.append(Message.user("secret 4711"), Message.assistant("noted"))
        assert session.erase([0]).scrubbed
        assert synced == [("chat.db-wal", 0), (tmp_path.name, 0)]

        def failed(_: Path) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(scrub, "sync", failed)
        receipt = session.erase([1])
        assert not receipt.scrubbed
        assert "Input/output error" in receipt.scrub_reason
        monkeypatch.undo()
        assert memory.scrub().done


# -- reading only


def test_a_store_opened_for_reading_reads_everything_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory:
        memory.session("a").append(talk(60))
        memory.session("a").update()
        space = memory.space("p", rules="- a.md: x")
        space.note("n")
        expected = texts(memory)
    before = path.read_bytes()
    with Memory.open(path, read_only=True) as memory:
        session = memory.session("a")
        assert texts(memory) == expected
        assert session.context(2_000).coverage == 1.0
        assert session.search("pump 7")
        assert session.recall("pump 7", max_tokens=500).messages
        assert session.summaries(1)
        assert session.status().unfinished[1] == 0
        assert memory.check().ok
        assert memory.space("p").notes()
        assert session.update(dry_run=True).calls == 0
        writes = {
            "append": lambda: session.append(Message.user("x")),
            "edit": lambda: session.edit(0, "x"),
            "erase": lambda: session.erase([0]),
            "flush": session.flush,
            "fork": lambda: session.fork("b"),
            "note": lambda: memory.space("p").note("x"),
            "scrub": memory.scrub,
            "backup": lambda: memory.backup(tmp_path / "copy.db"),
        }
        for write in writes.values():
            with pytest.raises(ReadOnlyError):
                write()
    assert path.read_bytes() == before
    assert not (tmp_path / "copy.db").exists()


def test_what_cannot_be_read_without_writing_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        Memory.open(tmp_path / "none.db", read_only=True)
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreCorruptError):
        Memory.open(tmp_path / "empty.db", read_only=True)
    with pytest.raises(UsageError, match="needs a file"):
        Memory.open(":memory:", read_only=True)
    with pytest.raises(UsageError, match="read_only"):
        Memory.open(tmp_path / "none.db", read_only="yes")  # type: ignore[arg-type]


def test_a_reader_sees_what_another_memory_writes_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory, Memory.open(path, read_only=True) as reader:
        for count in (1, 2):
            memory.session("a").append(Message.user(f"number {count}"))
            assert len(texts(reader)) == count


READ = """
import os, sys
from hiermem import Memory, Message, StoreError

def use(memory, expected):
    session = memory.session("a")
    assert len(session.messages()) == expected
    assert session.context(2_000).coverage == 1.0
    assert session.search("pump 7")
    assert memory.check().ok

with Memory.open(":memory:") as warm:  # loads what only the owner of this Python may read
    warm.session("a").append(Message.user(f"Pump {n} is on. " * 40) for n in range(30))
    use(warm, 30)
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    Memory.open(sys.argv[1])
except StoreError:
    pass
else:
    raise SystemExit("it could be opened for writing")
with Memory.open(sys.argv[1], read_only=True) as memory:
    use(memory, 60)
"""


@on_posix
@pytest.mark.thorough
def test_a_file_in_a_folder_that_nobody_may_write_to_is_read() -> None:
    """As on a read-only file system: SQLite can create nothing beside the file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "chat.db"
        with Memory.open(path) as memory:
            memory.session("a").append(talk(60))
            memory.session("a").update()
        path.chmod(0o444)
        folder.chmod(0o555)
        try:
            done = subprocess.run(
                [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert [one.name for one in folder.iterdir()] == ["chat.db"]
        finally:
            folder.chmod(0o755)


# -- backups


def test_a_backup_of_a_live_store_is_a_store_and_every_receipt_names_it(tmp_path: Path) -> None:
    path, target = tmp_path / "chat.db", tmp_path / "copy.db"
    with Memory.open(path) as memory, Memory.open(path, tenant="other") as other:
        other.session("a").append(talk(2))
        memory.session("a").append(talk(60))
        memory.session("a").update()
        copy = memory.backup(target)
        assert copy.place == str(target)
        memory.session("a").append(Message.user("after the copy"))
        for _ in range(2):  # it is named again: nothing was done to it
            assert memory.session("a").erase([0]).copies == (copy,)
        assert other.session("a").delete().copies == (copy,)
        assert memory.check().ok
        # Who came after the copy is not in it.
        with Memory.open(path, tenant="late") as late:
            late.session("a").append(talk(1))
            assert late.session("a").erase([0]).copies == ()
        assert memory.erase_tenant().copies == (copy,)
        memory.session("a").append(talk(1))
        assert memory.session("a").erase([0]).copies == ()
    with Memory.open(target) as memory:
        assert len(texts(memory)) == 60
        assert memory.check().ok
    with Memory.open(target, tenant="other") as other:
        assert len(texts(other)) == 2


def test_a_backup_replaces_nothing_and_leaves_nothing_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory:
        memory.session("a").append(talk(3))
        taken = tmp_path / "taken"
        taken.write_text("mine")
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        for target in (path, taken, tmp_path, tmp_path / "link"):
            with pytest.raises(UsageError, match="new file"):
                memory.backup(target)
        for target in ("", 7):
            with pytest.raises(UsageError):
                memory.backup(target)  # type: ignore[arg-type]
        with pytest.raises(StoreError):
            memory.backup(tmp_path / "none" / "copy.db")
        # Somebody takes the name while the copy is being made.
        from hiermem.stores.sqlite import files

        made = files._copy

        def taking(source, part, **settings):
            made(source, part, **settings)
            (tmp_path / "late.db").write_text("mine")

        monkeypatch.setattr(files, "_copy", taking)
        with pytest.raises(UsageError, match="new file"):
            memory.backup(tmp_path / "late.db")
        assert memory.session("a").erase([0]).copies == ()
    assert taken.read_text() == (tmp_path / "late.db").read_text() == "mine"
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {"chat.db", "taken", "link", "late.db"}


def test_a_backup_is_recorded_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process killed right after the copy would leave one that no receipt names."""
    with Memory.open(tmp_path / "chat.db") as memory:
        memory.session("a").append(talk(3))

        class Killed(BaseException):
            pass

        real = Tenant.put_records
        count = 0

        async def dies(self, writes, **settings):
            nonlocal count
            count += 1
            if count > 1:
                raise Killed
            return await real(self, writes, **settings)

        async def killed(self, target):
            raise Killed

        monkeypatch.setattr(Tenant, "put_records", dies)
        monkeypatch.setattr(SQLiteStore, "backup", killed)
        with pytest.raises(Killed):
            memory.backup(tmp_path / "copy.db")
        monkeypatch.undo()
        (copy,) = memory.session("a").erase([0]).copies
        assert copy.place == str(tmp_path / "copy.db")


def test_a_memory_that_keeps_nothing_can_be_kept_as_a_file(tmp_path: Path) -> None:
    with Memory.open(":memory:") as memory:
        memory.session("a").append(talk(20))
        memory.backup(tmp_path / "kept.db")
        memory.session("a").append(Message.user("later"))
    with Memory.open(tmp_path / "kept.db") as memory:
        assert len(texts(memory)) == 20


def test_a_store_that_makes_no_copies_says_so(tmp_path: Path) -> None:
    with (
        Memory(store=MemoryStore()) as memory,
        pytest.raises(UsageError, match=r"no backup"),
    ):
        memory.backup(tmp_path / "copy.db")
