"""Which process an object belongs to: a child of ``os.fork()`` gets the object without its threads.

The threads that would answer exist in the parent only, so a call in the child would wait for ever.
Connections and locks are the parent's, too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from hiermem.errors import ForkedProcessError

__all__ = ["HomeProcess", "at_fork", "new_event_loop"]


class HomeProcess:
    """The process in which an object was made, and in which alone it may be used."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = os.getpid()

    def check(self) -> None:
        """Raise ForkedProcessError in any other process."""
        if os.getpid() != self._number:
            raise ForkedProcessError


def at_fork(
    *,
    before: Callable[[], object] = bool,
    in_parent: Callable[[], object] = bool,
    in_child: Callable[[], object] = bool,
) -> None:
    """Have these functions called around every later fork, where the platform forks at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop in which every store works: psycopg does not in the default one of Windows."""
    if sys.platform == "win32":
        return asyncio.SelectorEventLoop()
    return asyncio.new_event_loop()
