"""Keeps SQLite's connections from crossing ``os.fork()``.

SQLite counts a process's locks on a file in the process's memory, and a child inherits the count
without the locks. If the child then opens the file, it takes none, and the parent's last ``close``
removes the write-ahead log while the child is writing to it: the child's commits are lost. So all
connections are closed before a fork, and opened again when they are next needed. Where one is in
use for longer than ``PATIENCE``, the child refuses to open its file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

from hiermem.errors import ForkedProcessError
from hiermem.process import at_fork

#: Seconds that a fork waits for reads and writes under way.
PATIENCE: Final = 5.0


class Connection(sqlite3.Connection):
    """A connection to a file, registered so that a fork finds it."""

    path: Path | None = None


class Pausing(Protocol):
    """Whatever keeps connections open between its uses of them."""

    def pause_for_fork(self, until: float) -> None:
        """Close the connections and let nobody use them, if that is possible by ``until``."""
        ...

    def resume_after_fork(self) -> None:
        """Allow the use of connections again."""
        ...


class _Registry:
    """What this process has open; a forked process begins with an empty one."""

    def __init__(self, carried: frozenset[tuple[int, int]]) -> None:
        self.guard = threading.Lock()
        self.forking = threading.Lock()
        self.connections: WeakSet[Connection] = WeakSet()
        self.keepers: WeakSet[Pausing] = WeakSet()
        self.paused: list[Pausing] = []
        #: The files of which an inherited connection is open, by device and inode.
        self.carried = carried


_registry = _Registry(frozenset())


def register(connection: Connection, path: Path) -> None:
    """Note an open connection to the file at ``path``."""
    connection.path = path
    with _registry.guard:
        _registry.connections.add(connection)


def keep(keeper: Pausing) -> None:
    """Have ``keeper`` close its connections before every fork."""
    with _registry.guard:
        _registry.keepers.add(keeper)


def check(path: Path) -> None:
    """Raise ForkedProcessError where an inherited connection to the file at ``path`` is open."""
    if _registry.carried and _identity(path) in _registry.carried:
        raise ForkedProcessError(
            f"the store at {path} was being read or written at the moment of os.fork(), and this "
            "process cannot open it safely; fork before the store is opened, or start the process "
            'with the method "spawn"'
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_open(connection: Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018 - raises for a closed connection
    except sqlite3.ProgrammingError:
        return False
    return True


def _before() -> None:
    _registry.forking.acquire()
    until = time.monotonic() + PATIENCE
    with _registry.guard:
        keepers = list(_registry.keepers)
    for keeper in keepers:
        keeper.pause_for_fork(until)
        _registry.paused.append(keeper)
    # Held during the fork, so that the set is whole when the child reads it.
    _registry.guard.acquire()


def _in_parent() -> None:
    _registry.guard.release()
    while _registry.paused:
        _registry.paused.pop().resume_after_fork()
    _registry.forking.release()


def _in_child() -> None:
    global _registry  # noqa: PLW0603 - a process has one
    left = [one.path for one in _registry.connections if _is_open(one) and one.path is not None]
    found = {identity for path in left if (identity := _identity(path)) is not None}
    # The inherited connections stay referenced: closing one would act on the parent's files.
    _inherited.append(_registry)
    _inherited.append(list(_registry.connections))
    _registry = _Registry(_registry.carried | found)


#: What belongs to earlier processes, kept for ever.
_inherited: list[object] = []

if os.name == "posix":
    at_fork(before=_before, in_parent=_in_parent, in_child=_in_child)
