"""The trees of a session that a change of its messages reaches, and what it does to each.

One serves; at times another is being built, which holds the messages before some index. The one
rule: whatever changes a message changes both in one transaction, each by its own configuration,
its own slices and its own fold. What is written of it goes into the log once, for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from hiermem.config import HierarchyConfig
from hiermem.core.log.locate import Place, later_windows, place_of, reached, shown_to, wants_text
from hiermem.core.log.propagate import Blow, Mark, Rippled, ripple
from hiermem.core.log.repack_state import Build
from hiermem.core.log.size_changes import Mid, Shift, Told, overlaps_of
from hiermem.core.needs import Reading
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import Changes, LogEvent, NeedEvents, Rewrite


@dataclass(slots=True)
class Trunk:
    """One tree of a session: where its fold stands, and the changes that reach it.

    ``build`` is None for the tree that serves; ``stop`` is the first message not folded in yet.
    """

    tree: int
    config: HierarchyConfig
    state: SessionState
    stop: int
    build: Build | None = None
    blows: list[Blow] = field(default_factory=list[Blow])
    beside: dict[str, Node] = field(default_factory=dict[str, Node])
    open_beside: set[str] = field(default_factory=set[str])

    def look(
        self,
        stored: StoredMessage,
        *,
        ever: bool = False,
    ) -> Reading[Place]:
        """Find where a message stands, and note the windows that were shown some of it.

        What a made text was shown is on record with it; with ``ever``, its node's earlier texts
        count too. What may be in the making is shown what the widest configuration of the log asks
        for at most: it began under one of them, and a change since would have stopped it.
        """
        place = yield from place_of(stored.thread, stored.index, self.state, self.tree)
        later = yield from later_windows(place, self.tree)
        beside = yield from shown_to(later, place.index, self.tree, ever=ever)
        overlap = self.config.overlap
        making = {node.id for node in later if wants_text(node)}
        if making:
            events: Sequence[LogEvent] = yield NeedEvents()
            overlap = max(overlap, *(each for event in events for each in overlaps_of(event)), 0)
        near, opened = yield from reached(place, overlap, self.state, self.tree)
        beside += [node for node in near if node.id in making]
        self.beside.update((node.id, node) for node in beside)
        if opened:
            self.open_beside.add(stored.thread)
        return place

    def take(self, place: Place, shift: Shift, points: Sequence[int]) -> None:
        """Note what becomes of the message that stands at ``place``."""
        self.blows.append(Blow(place, shift, tuple(points)))

    def shake(self, mark: Mark, now: datetime) -> Reading[Rippled]:
        """Carry all that was noted up the tree.

        What is being built is made anew anyway, so nothing in it is only flagged.
        """
        if self.build is not None and mark == "flag":
            mark = "rebuild"
        return (
            yield from ripple(
                self.state,
                self.config,
                self.blows,
                beside=tuple(self.beside.values()),
                open_beside=tuple(sorted(self.open_beside)),
                mark=mark,
                now=now,
                tree=self.tree,
            )
        )


def trunks(record: SessionRecord) -> list[Trunk]:
    """Give the tree that serves, then the one that is being built, if there is one."""
    state = SessionState.from_json(record.state)
    found = [Trunk(record.tree, config_from(record.config), state, record.messages)]
    build = Build.from_json(record.build)
    if build is not None:
        state = SessionState.from_json(build.state)
        found.append(Trunk(build.tree, config_from(build.config), state, build.at, build))
    return found


def told(struck: Sequence[Trunk]) -> Told:
    """Give what the log's event tells of the changes that reached the trees."""
    serving, *others = struck
    mid: Mid | None = None
    for trunk in others:
        shifts = tuple(blow.shift for blow in trunk.blows)
        if trunk.build is not None and shifts:
            mid = Mid(trunk.tree, trunk.build.at, trunk.build.events, shifts)
    return Told(tuple(blow.shift for blow in serving.blows), mid)


def changes_of(
    record: SessionRecord,
    struck: Sequence[tuple[Trunk, Rippled]],
    event: LogEvent,
    *,
    rewrites: Sequence[Rewrite],
    drop_views: Sequence[str] = (),
    drop_records: Sequence[tuple[str, str]] = (),
) -> tuple[SessionRecord, list[Changes[None]]]:
    """Give the record after a change of messages, and what to write: one entry for each tree."""
    made: list[Changes[None]] = []
    for trunk, rippled in struck:
        state = rippled.state.to_json()
        if trunk.build is None:
            record = replace(record, state=state, epoch=record.epoch + 1)
        else:
            record = replace(record, build=replace(trunk.build, state=state).to_json())
        record = replace(record, version=record.version + 1)
        changes: Changes[None] = Changes(
            None,
            session=record,
            drop=rippled.drop,
            forget=rippled.forget,
            nodes=rippled.nodes,
            tree=trunk.tree,
        )
        if trunk.build is None:
            changes = replace(
                changes,
                rewrites=tuple(rewrites),
                events=(event,),
                drop_views=tuple(drop_views),
                drop_records=tuple(drop_records),
            )
        made.append(changes)
    return record, made
