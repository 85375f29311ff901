"""The connections that this process has open, and two ways in which it would lose their locks.

SQLite's locks on a file are those of the process. While a process holds one, no other process may
remove the write-ahead log; without it, the log is removed under a connection that still writes to
it, and its commits are lost.

*A file descriptor.* Closing any descriptor of a file drops all locks of the process on it. So a
file to which a connection is open is never opened otherwise; ``read_head`` sees to that.

*A fork.* SQLite counts its locks in memory. A child inherits the count without the locks, and takes
none when it opens the file. So ``workers`` closes all connections before a fork, and opens them
again when they are next needed. Where one is in use for too long, the child refuses to open its
file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from hiermem.errors import ForkedProcessError


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
            f"the store at {path} was being read or written at the moment of os.fork(), and this "
            "process cannot open it safely; fork before the store is opened, or start the process "
            'with the method "spawn"'
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


def hold() -> None:
    """Keep the set of open connections whole, until ``release`` or, in a child, ``inherit``."""
    _guard.acquire()


def release() -> None:
    """End what ``hold`` began."""
    _guard.release()


def inherit() -> None:
    """Begin anew in a forked process; note the files with a connection still open."""
    global _guard, _connections, _carried
    left = [one.path for one in _connections if _is_open(one) and one.path is not None]
    found = {identity for path in left if (identity := _identity(path)) is not None}
    # The inherited connections stay referenced: closing one would act on the parent's files.
    _inherited.extend((_guard, _connections, list(_connections)))
    _guard, _connections, _carried = threading.Lock(), WeakSet(), _carried | found


#: Objects of earlier processes, kept for ever.
_inherited: list[object] = []
