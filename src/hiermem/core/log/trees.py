"""The trees of a session that a change of its messages reaches.

One tree serves; at times another is being built, which holds the messages before some index. A
change of a message changes both in one transaction, each by its own configuration, slices and fold
(``propagate``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hiermem.config import HierarchyConfig
from hiermem.core.log import locate as places
from hiermem.core.log.locate import Location
from hiermem.core.log.repack import Build
from hiermem.core.log.size_changes import SizeChange, configs_of
from hiermem.core.needs import Reading
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import LogEvent, NeedEvents


@dataclass(frozen=True, slots=True)
class MessageChange:
    """The change of one message in one tree; ``points`` are the offsets of its slices after it."""

    location: Location
    shift: SizeChange
    points: tuple[int, ...]


@dataclass(slots=True)
class TreeState:
    """One tree of a session: the state of its fold, and the changes that reach it.

    ``build`` is None for the tree that serves; ``stop`` is the first message not folded in yet.
    """

    tree: int
    config: HierarchyConfig
    state: SessionState
    stop: int
    build: Build | None = None
    message_changes: list[MessageChange] = field(default_factory=list[MessageChange])
    overlapping: dict[str, Node] = field(default_factory=dict[str, Node])
    overlapping_open: set[str] = field(default_factory=set[str])

    def locate(self, stored: StoredMessage, *, ever: bool = False) -> Reading[Location]:
        """Find where a message is, and note the windows that were shown some of it.

        What a finished text was shown is on record with it; with ``ever``, the node's earlier texts
        count too. A text in progress may have been shown as much as the widest configuration of the
        log allows: its generation began under one of them, and any later change would have stopped
        it.
        """
        location = yield from places.locate(stored.thread, stored.index, self.state, self.tree)
        later = yield from places.later_windows(location, self.tree)
        overlapping = yield from places.shown_to(later, location.index, self.tree, ever=ever)
        overlap = self.config.overlap
        making = {node.id for node in later if places.may_be_generating(node)}
        if making:
            events: Sequence[LogEvent] = yield NeedEvents()
            named = [config for event in events for config in configs_of(event)]
            overlap = max(overlap, *(config.overlap for config in named), 0)
        near, opened = yield from places.windows_overlapping(
            location, overlap, self.state, self.tree
        )
        overlapping += [node for node in near if node.id in making]
        self.overlapping.update((node.id, node) for node in overlapping)
        if opened:
            self.overlapping_open.add(stored.thread)
        return location

    def add(self, location: Location, shift: SizeChange, points: Sequence[int]) -> None:
        """Note the change of the message at ``location``."""
        self.message_changes.append(MessageChange(location, shift, tuple(points)))


def tree_states(record: SessionRecord) -> list[TreeState]:
    """Return the tree that serves, then the one that is being built, if there is one."""
    state = SessionState.from_json(record.state)
    found = [TreeState(record.tree, config_from(record.config), state, record.messages)]
    build = Build.from_json(record.build)
    if build is not None:
        state = SessionState.from_json(build.state)
        found.append(TreeState(build.tree, config_from(build.config), state, build.at, build))
    return found
