"""Finds where a message stands in a tree, and which later windows were shown some of it.

The one rule: slices of a message are told apart by their order, never by their offsets, because
slices that became empty begin at the same place.

What is looked for is bounded by what is found: a message has as many windows as slices, and an
overlap reaches back over at most 400 characters and OVERLAP_REACH messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hiermem.core.inputs import OVERLAP_REACH, heard
from hiermem.core.measure import speaker
from hiermem.core.needs import NeedCovering, NeedMessages, Reading
from hiermem.core.state import SessionState
from hiermem.errors import StoreCorruptError
from hiermem.types import Node, StoredMessage

__all__ = ["Place", "place_of", "reached", "said"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stands: its sealed windows in order, each with one slice of it.

    ``points`` are the offsets at which its slices but the first begin; ``opened`` says that its
    last slice, or all of it, is in its thread's open window.
    """

    index: int
    thread: str
    windows: tuple[Node, ...]
    points: tuple[int, ...]
    opened: bool

    @property
    def slices(self) -> int:
        """Give the number of its slices."""
        return len(self.points) + 1


def place_of(thread: str, index: int, state: SessionState, tree: int | None) -> Reading[Place]:
    """Find a message that was folded into the tree whose fold is at ``state``."""
    windows: Sequence[Node] = yield NeedCovering(thread, index, tree)
    window = state.strand(thread).window
    opened = window.messages > 0 and window.content.begin <= index
    if not windows and not opened:
        raise StoreCorruptError(f"message {index} is in no window; the store is damaged")
    points = [node.span.start_char for node in windows[1:]]
    if windows and opened:
        points.append(window.char)
    return Place(index, thread, tuple(windows), tuple(points), opened)


def said(stored: StoredMessage) -> int:
    """Give the characters that a message takes in an overlap."""
    text = heard(stored, 0, None) if stored.state == "live" else ""
    return len(f"{speaker(stored.message)}: {text}\n") if text.strip() else 0


def reached(
    place: Place,
    overlap: int,
    state: SessionState,
    tree: int | None,
    *,
    least: Callable[[StoredMessage], int] = said,
) -> Reading[tuple[tuple[Node, ...], bool]]:
    """Find the later windows of the thread whose overlap may show some of the message.

    ``least`` gives the fewest characters that a message between can have taken in an overlap. The
    second value says whether the thread's open window is one of them.
    """
    if overlap <= 0 or place.opened:
        return (), False
    first, stop = place.index + 1, min(place.index + 1 + OVERLAP_REACH, state.next_index)
    if stop <= first:
        return (), False
    between: Sequence[StoredMessage] = yield NeedMessages(first, stop, place.thread)
    found: list[Node] = []
    shown, sealed = 0, place.windows[-1].span.stop
    for stored in between:
        if shown >= overlap:
            break
        taken = least(stored)
        if stored.index >= sealed:
            windows: Sequence[Node] = yield NeedCovering(place.thread, stored.index, tree)
            found += [
                node for node in windows if shown + min(taken, node.span.start_char) < overlap
            ]
            content = state.strand(place.thread).window.content
            if content.messages and content.begin <= stored.index:
                return tuple(found), True
            if not windows:
                break
            sealed = windows[-1].span.stop
        shown += taken
    return tuple(found), False
