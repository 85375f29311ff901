"""The trees of a session that a change of its messages reaches, and what it does to each.

One tree serves; at times another is being built, which holds the messages before some index. A
change of a message changes both in one transaction, each by its own configuration, slices and fold.
The log gets one event for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from hiermem.config import HierarchyConfig
from hiermem.core.log import locate as places
from hiermem.core.log.locate import Location
from hiermem.core.log.propagate import Mark, MessageChange, Propagated, propagate
from hiermem.core.log.repack import Build
from hiermem.core.log.size_changes import BuildChanges, LoggedChanges, SizeChange, configs_of
from hiermem.core.needs import Reading
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import Changes, LogEvent, NeedEvents, Rewrite


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

    def propagate(self, mark: Mark, now: datetime) -> Reading[Propagated]:
        """Propagate all noted changes through the tree.

        The texts of a tree under construction are generated anyway, so nothing in it is only
        flagged.
        """
        if self.build is not None and mark == "flag":
            mark = "rebuild"
        return (
            yield from propagate(
                self.state,
                self.config,
                self.message_changes,
                overlapping=tuple(self.overlapping.values()),
                overlapping_open=tuple(sorted(self.overlapping_open)),
                mark=mark,
                now=now,
                tree=self.tree,
            )
        )


def tree_states(record: SessionRecord) -> list[TreeState]:
    """Return the tree that serves, then the one that is being built, if there is one."""
    state = SessionState.from_json(record.state)
    found = [TreeState(record.tree, config_from(record.config), state, record.messages)]
    build = Build.from_json(record.build)
    if build is not None:
        state = SessionState.from_json(build.state)
        found.append(TreeState(build.tree, config_from(build.config), state, build.at, build))
    return found


def changes_of(
    record: SessionRecord,
    propagated: Sequence[tuple[TreeState, Propagated]],
    kind: Literal["edit", "erase", "quarantine"],
    now: datetime,
    *,
    rewrites: Sequence[Rewrite],
    drop_views: Sequence[str] = (),
    drop_records: Sequence[tuple[str, str]] = (),
) -> tuple[SessionRecord, list[Changes[None]]]:
    """Return the record after a change of messages, and the writes: one entry for each tree.

    The log gets one event of ``kind`` for all of them.
    """
    logged = LoggedChanges(())
    for tree_state, _ in propagated:
        shifts = tuple(change.shift for change in tree_state.message_changes)
        if (build := tree_state.build) is None:
            logged = replace(logged, shifts=shifts)
        elif shifts:
            inside = BuildChanges(tree_state.tree, build.at, build.events, shifts)
            logged = replace(logged, build=inside)
    event = LogEvent(kind, record.messages, now, logged.to_json())
    made: list[Changes[None]] = []
    for tree_state, result in propagated:
        state = result.state.to_json()
        if tree_state.build is None:
            record = replace(record, state=state, epoch=record.epoch + 1)
        else:
            record = replace(record, build=replace(tree_state.build, state=state).to_json())
        record = replace(record, version=record.version + 1)
        changes: Changes[None] = Changes(
            None,
            session=record,
            drop=result.drop,
            forget=result.forget,
            nodes=result.nodes,
            tree=tree_state.tree,
        )
        if tree_state.build is None:
            changes = replace(
                changes,
                rewrites=tuple(rewrites),
                events=(event,),
                drop_views=tuple(drop_views),
                drop_records=tuple(drop_records),
            )
        made.append(changes)
    return record, made
