"""The process that a program runs in: its clock, its event loops, its caches, its objects.

A child of ``os.fork()`` gets the object without its threads.
The threads that would answer exist in the parent only, so a call in the child would wait for ever.
Connections and locks are the parent's, too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from hiermem.errors import ForkedProcessError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


T = TypeVar("T")


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def check_home(number: int) -> None:
    """Raise ForkedProcessError in any process but that in which an object was made."""
    if os.getpid() != number:
        raise ForkedProcessError


class IndexCache(Generic[T]):
    """The indexes of sessions by tenant and id, at most ``max_bytes``; the last used ones stay."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        #: Each index with its size when it was last measured, the last used one at the end.
        self._held: OrderedDict[tuple[str, str], tuple[T, int]] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._held

    def get(self, tenant: str, session_id: str) -> T | None:
        """Return the index of a session, or None."""
        found = self._held.get((tenant, session_id))
        return None if found is None else found[0]

    def put(self, tenant: str, session_id: str, index: T, size: int) -> None:
        """Hold an index as the last used one, with its present size; drop what is too much."""
        key = tenant, session_id
        self._remove(key)
        self._held[key] = index, size
        self._total += size
        while self._total > self._max_bytes and len(self._held) > 1:
            self._remove(next(iter(self._held)))

    def drop(self, tenant: str, session_id: str | None = None) -> None:
        """Drop one session's index, or all of a tenant."""
        if session_id is not None:
            self._remove((tenant, session_id))
            return
        for key in [key for key in self._held if key[0] == tenant]:
            self._remove(key)

    def _remove(self, key: tuple[str, str]) -> None:
        _, size = self._held.pop(key, (None, 0))
        self._total -= size


def process_mark() -> str:
    """Return what tells this process from every other one, for ``has_ended``, "" if unknown.

    It names the boot of the machine, the namespace of process numbers, the number and the start.
    """
    number = os.getpid()
    place, start = _place(), _start_of(number)
    return f"{place}:{number}:{start}" if place and start else ""


def has_ended(mark: object) -> bool:
    """Return whether the process of this mark is known to have ended: it ran on this machine."""
    place, _, rest = mark.rpartition(":") if isinstance(mark, str) else ("", "", "")
    place, _, number = place.rpartition(":")
    if not place or place != _place() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it is another user's, or no process of this machine has that number
    start = _start_of(int(number))
    return start is not None and start != rest


@cache
def _place() -> str:
    """Return the boot and the namespace in which a process number means one process, or ""."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}".replace(":", "-")
    return ""


def _start_of(number: int) -> str | None:
    """Return when the process of that number started, "" for one that ended, None if unknown."""
    with suppress(OSError, IndexError, UnicodeDecodeError):
        # The name of the program, in brackets, may hold anything.
        found = Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2]
        fields = found.split()
        return "" if fields[0] in "ZX" else fields[19]
    return None


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop in which every store works: psycopg does not in the default one of Windows."""
    if sys.platform == "win32":
        return asyncio.SelectorEventLoop()
    return asyncio.new_event_loop()


def sync(number: int) -> None:
    """Make durable what was written to an open file or folder. Raises OSError."""
    full: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:  # on macOS a plain sync may leave data in the disk's cache
        with suppress(OSError):  # not every file system has it
            fcntl.fcntl(number, full)  # pyright: ignore[reportOptionalMemberAccess]
            return
    os.fsync(number)
