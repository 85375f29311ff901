"""Decides the steps of a full re-pack: begin, advance, swap. Each is one transaction.

::

    begin -> advance (a page of the log) ... -> swap

The new tree is folded from the log as it is now: live content, weighed under the build's
configuration, with the log's flushes, closes, reopenings and ticks. The other events (edits,
erasures, reconfigurations) are in the content already. A step that was prepared from reads of an
earlier epoch, or for another point of the build, changes nothing and reports so. Messages keep the
flags that they got on arrival.

How far the build is, the session's record holds (``Build``). A change of a message before ``at``
changes both trees, in one transaction. An edit marks the texts of the new tree as dirty rather than
flagged, whatever was asked for the serving tree: the new tree's texts are generated anyway.

A re-pack makes no texts; the ordinary update generates them in the new tree.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from hiermem.config import HierarchyConfig
from hiermem.core.log.size_changes import Weigher
from hiermem.core.log.trees import Build, locate
from hiermem.core.needs import inside
from hiermem.core.tree import fold
from hiermem.core.tree.fold import Folded
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.core.tree.turns import Arrival, Flag
from hiermem.core.tree.windows import cut
from hiermem.types import Node, SessionRecord, StoredMessage, transaction
from hiermem.types.transaction import Batch, Changes, Deciding, LogEvent, Rewrite, ViewRecord

#: Messages folded in one transaction.
PAGE: Final = 256


def arrival(
    stored: StoredMessage, config: HierarchyConfig, weigher: Weigher
) -> tuple[Arrival, tuple[int, ...]]:
    """Return what the fold looks at under ``config``, and the offsets at which a message is cut.

    An append measured the message under the configuration of that time. One that is not live has no
    weight and no slices; all others are measured and cut by the rules of an append.
    """
    (whole,) = weigher.weigh(stored, config)
    size = whole.size(config.unit)
    points, slices = cut(
        stored.message, size, config, counter=weigher.counter, echoes=stored.echoes
    )
    return replace(Arrival.of(stored, slices), size=size, tokens=whole.tokens), points


def measured(
    messages: Sequence[StoredMessage], config: HierarchyConfig, weigher: Weigher
) -> tuple[list[Arrival], list[int]]:
    """Measure messages for the fold of a re-pack under ``config``.

    Returns their arrivals, and the indices of the messages whose cuts or sizes differ.
    """
    arrivals: list[Arrival] = []
    marks: list[int] = []
    for stored in messages:
        arrived, points = arrival(stored, config, weigher)
        arrivals.append(arrived)
        if stored.size != arrived.size or stored.slices or points:
            marks.append(stored.index)
    return arrivals, marks


# ---------------------------------------------------------------------------------------------
# Folding on


class Refold:
    """A fold in progress: its state and the nodes sealed so far.

    ``flags`` are those that a second fold of a message sets.
    """

    def __init__(self, config: HierarchyConfig, state: SessionState | None = None) -> None:
        self.config, self.state = config, state or SessionState()
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, str] = {}
        self.flags: list[Flag] = []

    def fold_again(self, arrivals: Sequence[Arrival], begins: Mapping[str, int]) -> None:
        """Fold messages of open windows once more (``fold.again``)."""
        folded = fold.again(self.state, arrivals, begins, self.config)
        self.take(folded)
        self.flags += folded.flags

    def fold_in(self, arrivals: Sequence[Arrival], events: Sequence[LogEvent] = ()) -> None:
        """Fold messages and, each at its place, events."""
        waiting = list(arrivals)
        for event in events:
            before = event.at - self.state.next_index
            if before > 0:
                self.take(fold.arrive(self.state, waiting[:before], self.config))
                del waiting[:before]
            if event.kind in fold.EVENTS:
                self.take(fold.happen(self.state, event, self.config))
        if waiting:
            self.take(fold.arrive(self.state, waiting, self.config))

    def take(self, folded: Folded) -> None:
        """Go on from the result of a fold."""
        self.state = folded.state
        for node in folded.nodes:
            self.nodes[node.id] = node
        for child, parent in folded.parents:
            made = self.nodes.get(child)
            if made is None:
                self.parents[child] = parent
            else:
                self.nodes[child] = replace(made, parent=parent)


def due(build: Build, events: Sequence[LogEvent], stop: int) -> Sequence[LogEvent]:
    """Return the events before message ``stop`` that were not folded yet."""
    end = bisect_right(events, stop, lo=min(build.events, len(events)), key=lambda each: each.at)
    return events[build.events : end]


# ---------------------------------------------------------------------------------------------
# The transactions


def begin(session_id: str, *, config: str, build_id: str) -> Deciding[Build | None]:
    """Return the build under way for ``config``, or begin one; None if the session does not exist.

    A build for another configuration is given up and its tree is dropped.
    """
    record: SessionRecord | None = yield session_id, transaction.NeedSession()
    if record is None:
        return Batch(None)
    before = Build.from_json(record.build)
    if before is not None and before.config == config:
        return Batch(before)
    build = new_build(record, before, config=config, build_id=build_id)
    return Batch(build, ((session_id, _changed(record, build, drop=before)),))


def new_build(record: SessionRecord, before: Build | None, *, config: str, build_id: str) -> Build:
    """Return an empty build that takes the place of ``before``.

    Tree numbers are never used twice, so a writer that still works on the old tree writes nowhere.
    """
    tree = 1 + max(record.tree, before.tree if before else 0)
    return Build(build_id, tree, config, SessionState().to_json())


def advance(
    session_id: str,
    build: Build,
    page: tuple[list[Arrival], list[int]],
    events: Sequence[LogEvent],
    *,
    epoch: int,
) -> Deciding[Build | None]:
    """Fold a page, as ``measured`` returns it, and the events in it into the build.

    None, with nothing changed, if it is not the next page now.
    """
    arrivals, marks = page
    record: SessionRecord | None = yield session_id, transaction.NeedSession()
    if record is None or record.epoch != epoch or record.build != build.to_json():
        return Batch(None)
    refold = Refold(config_from(build.config), SessionState.from_json(build.state))
    refold.fold_in(arrivals, events)
    after = replace(
        build,
        state=refold.state.to_json(),
        at=refold.state.next_index,
        events=build.events + len(events),
        marks=_ranges(build.marks, marks),
        sliced=(*build.sliced, *(each.index for each in arrivals if len(each.slices) > 1)),
    )
    changes = replace(
        _changed(record, after),
        nodes=tuple(refold.nodes.values()),
        parents=tuple(refold.parents.items()),
        tree=build.tree,
    )
    return Batch(after, ((session_id, changes),))


def swap(
    session_id: str, build: Build, sizes: Mapping[int, int], *, epoch: int, when: datetime
) -> Deciding[bool]:
    """Put the new tree into service; False, with nothing changed, if the log has grown since.

    ``sizes`` are the weights of the messages of ``build.marks`` in the build's unit.
    """
    needs = transaction.NeedSession(), transaction.NeedEvents(), transaction.NeedViews()
    found: tuple[SessionRecord | None, list[LogEvent], list[ViewRecord]]
    found = yield tuple((session_id, need) for need in needs)
    record, events, views = found
    if record is None or record.epoch != epoch or record.build != build.to_json():
        return Batch(result=False)
    if build.at != record.messages or build.events != len(events):
        return Batch(result=False)
    rewrites: list[Rewrite] = []
    state, cut = SessionState.from_json(build.state), set(build.sliced)
    for start, stop in build.marks:
        messages: list[StoredMessage] = yield session_id, transaction.NeedMessages(start, stop)
        for stored in messages:
            points: tuple[int, ...] = ()
            if stored.index in cut:
                place = yield from inside(
                    session_id,
                    locate(
                        stored.thread,
                        stored.index,
                        state.strand(stored.thread).window,
                        build.tree,
                    ),
                )
                points = place.points
            after = replace(stored, size=sizes[stored.index], slices=points)
            if after != stored:
                rewrites.append(Rewrite(after, "mark"))
    detail = json.dumps({"config": build.config, "tree": build.tree}, separators=(",", ":"))
    changes: Changes[None] = Changes(
        None,
        session=replace(
            record,
            config=build.config,
            state=build.state,
            version=record.version + 1,
            epoch=record.epoch + 1,
            tree=build.tree,
            build="",
        ),
        rewrites=tuple(rewrites),
        drop_tree=record.tree,
        events=(LogEvent("repack", record.messages, when, detail),),
        drop_views=tuple(view.name for view in views),
    )
    return Batch(result=True, sessions=((session_id, changes),))


def sizes_of(
    messages: Iterable[StoredMessage], config: HierarchyConfig, weigher: Weigher
) -> dict[int, int]:
    """Return what messages weigh as a whole in the unit of ``config``, by index."""
    return {stored.index: weigher.weigh(stored, config)[0].size(config.unit) for stored in messages}


def _changed(record: SessionRecord, build: Build, *, drop: Build | None = None) -> Changes[Any]:
    return Changes(
        None,
        session=replace(record, build=build.to_json(), version=record.version + 1),
        drop_tree=drop.tree if drop else None,
    )


def _ranges(
    before: tuple[tuple[int, int], ...], indices: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return ranges with later indices, which come in order, added."""
    found = list(before)
    for index in indices:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return tuple(found)
