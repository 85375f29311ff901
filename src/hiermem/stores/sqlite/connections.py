"""The connections that this process has open, how they keep their locks, and their failures.

SQLite's locks on a file are those of the process. While a process holds one, no other process may
remove the write-ahead log; without it, the log is removed under a connection that still writes to
it, and its commits are lost. A process loses them in two ways.

*A file descriptor.* Closing any descriptor of a file drops all locks of the process on it. So a
file to which a connection is open is never opened otherwise; ``read_head`` sees to that.

*A fork.* SQLite counts its locks in memory. A child inherits the count without the locks, and takes
none when it opens the file. So a child refuses to open a file that its parent had open.

A failure of SQLite is translated for the caller: busy, damaged, refused, or any other. The
error says whether the write took effect. It never repeats a bound value; a cause that could hold
one is cut off.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from hiermem import errors
from hiermem.atfork import at_fork
from hiermem.errors import ForkedProcessError

T = TypeVar("T")

#: The errors that a statement may raise. With a damaged file, even the error's text may be
#: unreadable, which raises UnicodeDecodeError.
FAILURES = (sqlite3.Error, UnicodeDecodeError)

#: The most bytes that the write-ahead log keeps. SQLite copies it into the file every 4 MB, but
#: leaves it as large as the largest transaction, and it grows while reads overlap. So a longer one
#: is emptied after a commit; if a read is in the way, when it has grown by as much, or when SQLite
#: begins it anew.
MOST_LOG = 8_000_000
#: Seconds for which SQLite itself waits for the lock. It looks less often the longer it waits, at
#: last ten times a second, and may miss each pause between two writes of another process. For so
#: short a time it looks each few milliseconds.
LOOKS = 0.02
#: Seconds that a commit waits for reads that are in the way; most are shorter. Other writes wait
#: as long, reads do not.
LOG_PATIENCE = 0.25

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: The advice about a damaged file, with which several messages end.
DAMAGED = "the file was left untouched; restore a copy of it"


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection held a lock that the statement needed."""
    return _primary(error) in _BUSY


def patiently(work: Callable[[], T], *, patience: float) -> T:
    """Call ``work`` until no other connection holds a lock that it needs; raise after so long."""
    until = time.monotonic() + patience
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        time.sleep(0.001)


def empty_log(connection: sqlite3.Connection, *, patience: float) -> bool:
    """Copy the write-ahead log into the file and cut it; return False if others are in the way.

    SQLite waits for reads and writes, but not for the checkpoint that another process runs.
    """
    until = time.monotonic() + patience
    (earlier,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * patience)}")
    empty = "PRAGMA wal_checkpoint(TRUNCATE)"
    while (others := connection.execute(empty).fetchone()[0]) and time.monotonic() < until:
        time.sleep(0.01)
    connection.execute(f"PRAGMA busy_timeout = {earlier}")
    return not others


def translate(
    error: Exception, *, committing: bool = False, opening: Path | None = None
) -> Exception:
    """Return the error of hiermem that corresponds to ``error``, or ``error`` if there is none.

    ``opening`` is the file that could not be opened, which the error then names.

    ``committing`` says that the commit itself raised ``error``. Then only a full disk and a held
    lock are known to have undone the commit: a failed sync may still have reached the disk.
    """
    if isinstance(error, errors.HiermemError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return errors.InvalidMessageError(
            "a text holds a lone surrogate; replace it before storing"
        )
    if isinstance(error, UnicodeDecodeError):
        return errors.StoreCorruptError(f"the store is damaged (its schema is no text); {DAMAGED}")
    if isinstance(error, OverflowError):
        return errors.UsageError("a number exceeds 64 bits; pass a smaller one")
    if not isinstance(error, sqlite3.Error):
        return error
    code = _primary(error)
    result: errors.HiermemError
    store = "the store" if opening is None else f"the store at {opening}"
    if code in _BUSY:
        result = errors.StoreError(f"another process holds {store}; try again", retryable=True)
    elif code in _CORRUPT or "decode to UTF-8" in str(error):
        result = errors.StoreCorruptError(f"{store} is damaged ({error}); {DAMAGED}")
    elif code == sqlite3.SQLITE_CONSTRAINT:
        result = errors.UsageError(f"the write contradicts what is stored ({error})")
    else:
        what = "SQLite failed" if opening is None else f"{store} cannot be opened"
        failed = errors.StoreError(f"{what} ({_name(error)}): {error}")
        failed.committed = None if committing and code != sqlite3.SQLITE_FULL else False
        result = failed
    result.__cause__ = error
    return result


def _primary(error: sqlite3.Error) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def _name(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", None)
    return name if isinstance(name, str) else type(error).__name__


class Connection(sqlite3.Connection):
    """A connection to a file, registered so that a fork finds it."""

    path: Path | None = None


#: The connections of this process, and the lock that guards them; a forked process begins anew.
_guard = threading.Lock()
_connections: WeakSet[Connection] = WeakSet()
#: The files of which an inherited connection is open, by device and inode.
_carried: frozenset[tuple[int, int]] = frozenset()


def register(connection: Connection, path: Path) -> None:
    """Note an open connection to the file at ``path``."""
    connection.path = path
    with _guard:
        _connections.add(connection)


def read_head(path: Path, size: int) -> bytes | None:
    """Return the first bytes of the file; None where this process has a connection to it."""
    with _guard:
        identity = _identity(path)
        for one in list(_connections):
            if identity is not None and _identity(one.path) == identity and _is_open(one):
                return None
        with path.open("rb") as file:
            return file.read(size)


def create(path: Path) -> None:
    """Create an empty file that its owner alone may read; the log beside it gets the same rights.

    It will hold what people said, and the secret that signs what the store renders.
    """
    with _guard, suppress(FileExistsError):  # another process was faster
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def check(path: Path) -> None:
    """Raise ForkedProcessError where an inherited connection to the file at ``path`` is open."""
    if _carried and _identity(path) in _carried:
        raise ForkedProcessError(
            f"the store at {path} was open at os.fork(); fork before opening it, or use method "
            "'spawn'"
        )


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        found = None
    return None if found is None else (found.st_dev, found.st_ino)


def _is_open(connection: Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018 - raises for a closed connection
    except sqlite3.ProgrammingError:
        return False
    return True


def _inherit() -> None:
    """Begin anew in a forked process; note the files that the parent had open."""
    global _guard, _connections, _carried
    left = [one.path for one in _connections if _is_open(one) and one.path is not None]
    found = {identity for path in left if (identity := _identity(path)) is not None}
    # The inherited connections stay referenced: closing one would act on the parent's files.
    _inherited.extend((_guard, _connections, list(_connections)))
    _guard, _connections, _carried = threading.Lock(), WeakSet(), _carried | found


#: Objects of earlier processes, kept for ever.
_inherited: list[object] = []

at_fork(
    before=lambda: _guard.acquire(),  # noqa: PLW0108 - a child has another guard
    in_parent=lambda: _guard.release(),  # noqa: PLW0108
    in_child=_inherit,
)
