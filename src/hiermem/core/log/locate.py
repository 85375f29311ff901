"""Finds where a message is in a tree, and which later windows may have been shown some of it.

Slices of a message are told apart by their order and never by their offsets, because slices that
became empty begin at the same place.

Reads are bounded by the result: a message has as many windows as slices, and an overlap reaches
back over at most 400 characters and OVERLAP_REACH messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hiermem.core.needs import Reading
from hiermem.core.summaries.inputs import OVERLAP_REACH, heard
from hiermem.core.summaries.overlap import was_shown
from hiermem.core.text.measure import speaker
from hiermem.core.tree.state import SessionState
from hiermem.errors import StoreCorruptError
from hiermem.types import Node, Revision, StoredMessage
from hiermem.types.transaction import NeedCovering, NeedMessages, NeedRevisions


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


def overlap_size(stored: StoredMessage) -> int:
    """Return how many characters a message takes in an overlap."""
    text = heard(stored, 0, None) if stored.state == "live" else ""
    return len(f"{speaker(stored.message)}: {text}\n") if text.strip() else 0


def later_windows(location: Location, tree: int | None) -> Reading[list[Node]]:
    """Return the later windows of the thread that any overlap could show some of the message."""
    if location.opened:
        return []
    first, last = location.index + 1, location.index + OVERLAP_REACH
    windows: Sequence[Node] = yield NeedCovering(location.thread, first, tree, last)
    own = {node.id for node in location.windows}
    return [node for node in windows if node.id not in own]


def shown_to(
    windows: Sequence[Node], index: int, tree: int | None, *, ever: bool
) -> Reading[list[Node]]:
    """Return those windows whose text was shown some of message ``index``, as is on record.

    With ``ever``, earlier texts of a window count too.
    """
    made = {(node.id, node.revision): node for node in windows if node.revision}
    if not made:
        return []
    found: Sequence[Revision] = yield NeedRevisions(tuple(made), tree)
    return [
        made[revision.node_id, revision.number]
        for revision in found
        if was_shown(revision, index, ever=ever)
    ]


def may_be_generating(node: Node) -> bool:
    """Return whether a text may be in progress for a node; a local model's call leaves no trace."""
    return node.status != "active" or node.degraded or node.dirty


def windows_overlapping(
    location: Location, overlap: int, state: SessionState, tree: int | None
) -> Reading[tuple[tuple[Node, ...], bool]]:
    """Find the later windows whose overlap would show some of the message, as the session is now.

    The second value says whether the thread's open window is one of them.
    """
    if overlap <= 0 or location.opened:
        return (), False
    first, stop = location.index + 1, min(location.index + 1 + OVERLAP_REACH, state.next_index)
    if stop <= first:
        return (), False
    between: Sequence[StoredMessage] = yield NeedMessages(first, stop, location.thread)
    found: list[Node] = []
    shown, sealed = 0, location.windows[-1].span.stop
    for stored in between:
        if shown >= overlap:
            break
        taken = overlap_size(stored)
        if stored.index >= sealed:
            windows: Sequence[Node] = yield NeedCovering(location.thread, stored.index, tree)
            found += [
                node for node in windows if shown + min(taken, node.span.start_char) < overlap
            ]
            content = state.strand(location.thread).window.content
            if content.messages and content.begin <= stored.index:
                return tuple(found), True
            if not windows:
                break
            sealed = windows[-1].span.stop
        shown += taken
    return tuple(found), False
