"""Finds where a message is in a tree.

Slices of a message are told apart by their order and never by their offsets, because slices that
became empty begin at the same place. A message has as many windows as slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hiermem.core.needs import Reading
from hiermem.core.tree.state import SessionState
from hiermem.errors import StoreCorruptError
from hiermem.types import Node
from hiermem.types.transaction import NeedCovering


@dataclass(frozen=True, slots=True)
class Location:
    """Where a message is: its sealed windows in order, each with one slice of it.

    ``points`` are the offsets at which all slices but the first begin. ``opened``: its last slice,
    or the whole message, is in its thread's open window.
    """

    index: int
    thread: str
    windows: tuple[Node, ...]
    points: tuple[int, ...]
    opened: bool

    @property
    def slices(self) -> int:
        """Return the number of its slices."""
        return len(self.points) + 1


def locate(thread: str, index: int, state: SessionState, tree: int | None) -> Reading[Location]:
    """Find a message in the tree whose fold is at ``state``, which must include it."""
    windows: Sequence[Node] = yield NeedCovering(thread, index, tree)
    window = state.strand(thread).window
    opened = window.messages > 0 and window.content.begin <= index
    if not windows and not opened:
        raise StoreCorruptError(f"message {index} is in no window; the store is damaged")
    points = [node.span.start_char for node in windows[1:]]
    if windows and opened:
        points.append(window.char)
    return Location(index, thread, tuple(windows), tuple(points), opened)
