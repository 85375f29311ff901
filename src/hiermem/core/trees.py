"""The trees of a session that a change of its messages reaches, and what it does to each.

One serves; at times another is being built, which holds the messages before some index. The one
rule: whatever changes a message changes both in one transaction, each by its own configuration,
its own slices and its own fold. What is written of it goes into the log once, for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from hiermem.config import HierarchyConfig
from hiermem.core.build import Build
from hiermem.core.needs import Reading
from hiermem.core.places import Place, place_of, reached, said
from hiermem.core.ripple import Blow, Mark, Rippled, ripple
from hiermem.core.shifts import Mid, Shift, Told
from hiermem.core.state import SessionState
from hiermem.core.stored import config_from
from hiermem.effects import Changes, LogEvent, Rewrite
from hiermem.types import Node, SessionRecord, StoredMessage

__all__ = ["Trunk", "changes_of", "told", "trunks"]


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
        overlap: int,
        least: Callable[[StoredMessage], int] = said,
    ) -> Reading[Place]:
        """Find where a message stands, and note the windows that were shown some of it.

        ``overlap`` is the most characters that a window was shown of what precedes it.
        """
        place = yield from place_of(stored.thread, stored.index, self.state, self.tree)
        beside, opened = yield from reached(place, overlap, self.state, self.tree, least=least)
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
