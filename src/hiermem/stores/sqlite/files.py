"""The store file: identifying it, creating it, copying it, and cleaning it of deleted data.

A file is refused with an error that gives the reason if it is not a store, if it is of a
development version or a newer library, or if it is damaged. Not a byte of a refused file is
changed. So the file is examined first, by a connection that cannot write.

Deleting rows is not enough to remove them. A deleted cell is overwritten with zeros, because
``secure_delete`` is on. That does not remove every copy. When a page is split, a cell that moves to
another page leaves a copy in the gap of the old page. Frames of the write-ahead log hold pages in
their earlier state. So the file is rewritten from its content, and the log is checkpointed into the
file and truncated to zero length. SQLite does not sync that truncation, so it is synced here: a
power loss would bring the log back. The result never claims more than was done.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from hiermem import process
from hiermem.atfork import finish_before_fork
from hiermem.errors import (
    HiermemError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.stores.sqlite import connections, statements
from hiermem.stores.sqlite.connections import DAMAGED, FAILURES, translate
from hiermem.types.transaction import Scrubbed

MEMORY = ":memory:"
#: "hier": this id marks an SQLite file as a store of hiermem.
APPLICATION_ID = 0x68696572
#: "hmem": the id that development versions used before format 1. They also numbered their formats
#: from 1, so the format number alone does not distinguish their files from current ones.
DEVELOPMENT_ID = 0x686D656D
#: The format number, which the file holds as its ``user_version``; every change of a table raises
#: it. Files of lower numbers were written by development versions.
VERSION = 10
_MAGIC = b"SQLite format 3\x00"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
#: A file of up to this many bytes is read completely when it is opened, which takes a tenth of a
#: second. For a larger file, only the schema is checked; other damage is found when the damaged
#: part is read, or by ``check``.
QUICK_CHECK_LIMIT = 32 << 20
#: A file may hold triggers and views from another source; their code must not run. On macOS a plain
#: sync may leave data in the disk's cache; elsewhere a full one is no other.
_SETTINGS = (
    "trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL", "fullfsync = ON",
    "checkpoint_fullfsync = ON", "secure_delete = ON",
    f"journal_size_limit = {connections.MOST_LOG}",
)  # fmt: skip


def connect(path: Path | str, *, busy_timeout: float, mode: str = "rw") -> sqlite3.Connection:
    """Open a connection with the settings that every connection of hiermem has.

    ``mode`` is one of SQLite's modes (rw, rwc, ro) or ``immutable``. ``immutable`` is read-only and
    creates no other file; it is for a file that no other connection has open.
    """
    if path == MEMORY:
        target = MEMORY
    else:
        query = "mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}"
        target = f"{Path(path).absolute().as_uri()}?{query}"
    connection = sqlite3.connect(
        target,
        factory=connections.Connection,
        uri=path != MEMORY,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        if path != MEMORY:
            connections.register(connection, Path(path).absolute())
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path, *, create: bool, busy_timeout: float) -> None:
    """Make sure that ``path`` holds a sound store of this format; create it if there is none.

    Raises NotFoundError if there is no file and ``create`` is off, StoreCorruptError if the file is
    not a store, is of a development or newer version or is damaged, and StoreError.
    """
    with _opening(path):
        found = _identify(path)
        if found == "absent" and not create:
            raise NotFoundError(f"there is no store at {path}; open it with create=True")
        looked = found == "store" and _look(path, busy_timeout=busy_timeout)
        if found == "empty" and not create:
            raise StoreCorruptError(f"{path} is empty, not a store; open it with create=True")
        if found == "absent":
            connections.create(path)
        with closing(connect(path, busy_timeout=busy_timeout)) as connection:
            create_in(connection)
            if not looked:
                _examine(connection, path)
            _use_wal(connection, busy_timeout=busy_timeout)


def prepare_to_read(path: Path, *, busy_timeout: float) -> None:
    """Make sure that ``path`` holds a sound store of this format, without changing anything.

    Raises what ``prepare`` raises, and StoreError where the file has to be recovered first.
    """
    with _opening(path):
        found = _identify(path)
        if found == "absent":
            raise NotFoundError(f"there is no store at {path}")
        if found == "empty":
            raise StoreCorruptError(f"{path} is empty, not a store")
        if not _look(path, busy_timeout=busy_timeout):
            raise StoreError(
                f"the store at {path} was cut off while being written; open it once without "
                "read_only=True"
            )


@contextmanager
def _opening(path: Path) -> Generator[None]:
    """Turn the failures of opening a file into errors of hiermem."""
    connections.check(path)
    try:
        yield
    except FAILURES as error:
        raise translate(error, opening=path) from None
    except OSError as error:
        why = "" if path.parent.exists() else f"; make the folder {path.parent} first"
        raise StoreError(f"the store at {path} cannot be opened: {error.strerror}{why}") from error


def connect_to_read(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """Open a connection that only reads, to a file that may lie on a read-only file system.

    SQLite needs the log's index beside the file. Where it can neither find nor create one, and
    there is no log, nobody is writing, and the file is read as it is. Should another user write to
    it later, it has to be opened again.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path, busy_timeout=busy_timeout, mode="ro")
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        if connection is not None:
            connection.close()
        log = _sibling(path, "-wal")
        if log.exists() and log.stat().st_size:
            raise
        connection = connect(path, busy_timeout=busy_timeout, mode="immutable")
    return connection


def check(connection: sqlite3.Connection) -> list[str]:
    """Read the whole file and return the damage that SQLite finds; an empty list if none."""
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
    return [] if found == ["ok"] else found


def sync(path: Path) -> None:
    """Make durable what was written to a file, or the names in a folder, if there is one.

    Raises OSError.
    """
    # A folder cannot be opened on every platform; there, renaming is durable by itself.
    if path.is_dir() and os.name != "posix":
        return
    with suppress(FileNotFoundError):
        # Not for the store's own file: closing a descriptor of it drops the process's locks.
        number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            process.sync(number)
        finally:
            os.close(number)


def _was_created(path: Path) -> bool:
    """Return whether a journal says that the file was empty before what was written to it.

    A power loss during the first transaction leaves such a file. SQLite makes it empty again.
    """
    head = b""
    with suppress(FileNotFoundError), _sibling(path, "-journal").open("rb") as file:
        head = file.read(20)
    return head.startswith(_JOURNAL_MAGIC) and head[16:20] == bytes(4)


def _identify(path: Path) -> str:
    """Return "absent", "empty" or "store" for ``path``, from the file's first bytes.

    SQLite does not open the file. Raises StoreCorruptError if the file is anything other than that,
    including a store of a development version.
    """
    try:
        head = connections.read_head(path, 100)
    except FileNotFoundError:
        return "absent"
    if not head:  # None: it was identified when this process connected to it
        return "store" if head is None else "empty"
    if len(head) < 100 or not head.startswith(_MAGIC):
        if _was_created(path):
            return "empty"
        raise StoreCorruptError(f"{path} is not an SQLite file; it was left untouched")
    application = int.from_bytes(head[68:72], "big")
    number = int.from_bytes(head[60:64], "big")
    if application == DEVELOPMENT_ID or (application == APPLICATION_ID and 0 < number < VERSION):
        raise StoreCorruptError(
            f"{path} has development format {number}, and was left untouched; append its "
            "messages to a new file"
        )
    if application != APPLICATION_ID:
        raise StoreCorruptError(
            f"{path} is an SQLite file of another application; it was left untouched"
        )
    return "store"


def _look(path: Path, *, busy_timeout: float) -> bool:
    """Check the version, soundness and schema of a store without changing anything.

    Return whether the check was possible. Raises StoreCorruptError.
    """
    if _sibling(path, "-journal").exists():
        # A process was killed while it created the store; only a writer may undo that. The result
        # is examined afterwards.
        return False
    # If no other connection has the file open, it is read without even creating a lock file.
    alone = not _sibling(path, "-wal").exists()
    mode = "immutable" if alone else "ro"
    try:
        with closing(connect(path, busy_timeout=busy_timeout, mode=mode)) as connection:
            _examine(connection, path)
    except (HiermemError, *FAILURES):
        if not alone or not _sibling(path, "-wal").exists():
            raise
        # Another connection opened the file meanwhile, and this one may have read half of a write.
        with closing(connect(path, busy_timeout=busy_timeout, mode="ro")) as connection:
            _examine(connection, path)
    return True


def _examine(connection: sqlite3.Connection, path: Path) -> None:
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise StoreCorruptError(
            f"{path} has format {version}, newer than {VERSION}, and was left "
            "untouched; upgrade hiermem"
        )
    if version < 1:
        raise StoreCorruptError(f"{path} has no format number; {DAMAGED}")
    if path.stat().st_size <= QUICK_CHECK_LIMIT:
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()
        if problem is None or problem[0] != "ok":
            raise StoreCorruptError(f"{path} is damaged ({problem and problem[0]}); {DAMAGED}")
    _compare(connection, path)


def _shape(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the definition of every table, index, trigger and view, by (kind, name)."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    return {
        (str(kind), str(name)): str(sql)
        for kind, name, sql in found
        if not (kind in ("table", "index") and str(name).startswith("sqlite_"))  # of ANALYZE
    }


@cache
def _expected() -> Mapping[tuple[str, str], str]:
    """Return the shape of a new file."""
    with closing(sqlite3.connect(MEMORY, isolation_level=None)) as connection:
        create_in(connection)
        return _shape(connection)


def _compare(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a schema whose tables, indexes, triggers or views differ from the expected ones."""
    present, expected = _shape(connection), _expected()
    if present != expected:
        odd = sorted(
            f"{kind} {name!r}"
            for kind, name in present.keys() | expected.keys()
            if present.get((kind, name)) != expected.get((kind, name))
        )
        raise StoreCorruptError(
            f"{path} has the schema of another version, or is damaged ({', '.join(odd[:5])}); "
            f"{DAMAGED}"
        )


@contextmanager
def _locked(connection: sqlite3.Connection) -> Generator[None]:
    """Hold the write lock; commit at the end, or undo on an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def create_in(connection: sqlite3.Connection) -> None:
    """Create the store unless the database already holds one.

    The store is created before the file is set to WAL mode. So the first page identifies the file
    from the start, whatever happens next.
    """
    if _pragma(connection, "user_version"):
        return
    with _locked(connection):
        if _pragma(connection, "user_version"):  # another process was faster
            return
        if _shape(connection):
            raise StoreCorruptError(f"the file has tables but no format number; {DAMAGED}")
        for statement in statements.schema():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def back_up(source: sqlite3.Connection, target: Path, *, busy_timeout: float) -> None:
    """Copy the database of ``source`` to a new file at ``target``, complete or not at all.

    The copy is one state of the database, even while others write to it. Raises UsageError where
    there is something at ``target``, and StoreError where it cannot be written.
    """
    part = _sibling(target, f".{secrets.token_hex(4)}.part")
    try:
        try:
            _copy(source, part, busy_timeout=busy_timeout)
            _rename_to_new(part, target)
        finally:
            part.unlink(missing_ok=True)
        sync(target.parent)
    except FileExistsError:
        raise UsageError(f"{target} exists; name a new file for the backup") from None
    except FAILURES as error:
        raise translate(error) from None
    except OSError as error:
        raise StoreError(f"the backup {target} cannot be written: {error.strerror}") from error


def _copy(source: sqlite3.Connection, part: Path, *, busy_timeout: float) -> None:
    """Copy a database to a new file, durably."""
    connections.create(part)
    with closing(connect(part, busy_timeout=busy_timeout)) as target:
        source.backup(target)
        # In WAL mode, the copy would need a second file.
        target.execute("PRAGMA journal_mode = DELETE")
    sync(part)


def _rename_to_new(part: Path, target: Path) -> None:
    """Give a file its name. Raises FileExistsError where the name is taken."""
    try:
        os.link(part, target)  # a rename would replace what has the name
    except OSError as error:  # a file system without links
        if isinstance(error, FileExistsError) or os.path.lexists(target):
            raise FileExistsError from None
        part.rename(target)


def _use_wal(connection: sqlite3.Connection, *, busy_timeout: float) -> None:
    """Set the file to write-ahead logging (WAL mode), which is permanent.

    SQLite does not wait for the lock that this needs, so this function waits.
    """
    use = partial(connection.execute, "PRAGMA journal_mode = WAL")
    (mode,) = connections.patiently(use, patience=busy_timeout).fetchone()
    if mode != "wal":
        raise StoreError(f"the file system does not support write-ahead logging ({mode})")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@finish_before_fork
def scrub(path: Path, *, busy_timeout: float) -> Scrubbed:
    """Rewrite the file and empty its log.

    If another connection holds a lock for longer than ``busy_timeout`` seconds, or if a step fails,
    the result gives the reason.
    Raises StoreCorruptError if the file is damaged.
    """
    reasons: list[str] = []
    try:
        # It waits briefly for the lock: whoever rewrites the file fills the log meanwhile.
        with closing(connect(path, busy_timeout=connections.LOOKS)) as connection:
            reasons += _rewrite(connection, busy_timeout=busy_timeout)
            sync(path.with_name(path.name + "-wal"))
        sync(path.parent)
    except FAILURES as error:
        reasons.append(_reason(error))
    except OSError as error:
        reasons.append(f"the emptied log cannot be synced: {error.strerror}")
    return Scrubbed(done=not reasons, reason="; ".join(reasons))


def _rewrite(connection: sqlite3.Connection, *, busy_timeout: float) -> list[str]:
    """Rewrite the file and empty the log; return the reasons for what failed.

    The whole file passes through the log. So the log is emptied before, too: while a read keeps
    what is there, nothing would be gained, and each try would make it longer by the file.
    """

    def rewrite() -> bool:
        if connections.empty_log(connection, patience=busy_timeout):
            connection.execute("VACUUM")
            return connections.empty_log(connection, patience=busy_timeout)
        connection.execute("BEGIN IMMEDIATE")  # raises if another one writes
        return False

    try:
        is_done = connections.patiently(rewrite, patience=busy_timeout)
    except FAILURES as error:
        return [_reason(error)]
    return [] if is_done else ["another connection is reading the file"]


def _reason(error: Exception) -> str:
    found = translate(error)
    if isinstance(found, StoreCorruptError):
        raise found from None
    if isinstance(found, StoreError) and found.retryable:
        return "another process is writing to the file"
    return f"the file cannot be written anew: {found}"
