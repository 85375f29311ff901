"""Decides how windows are made anew from the log: by a reconfiguration, a full rebuild, a fork.

Each folds messages again under a configuration (``Refold``). A reconfiguration and a fork keep what
is sealed and fold the rest. A full rebuild folds everything, beside the tree that serves::

    begin -> advance (a page of the log) ... -> swap

Each of its steps is one transaction. The new tree is folded from the log as it is now: live
content, weighed under the build's configuration, with the log's flushes, closes, reopenings and
ticks. A step that was prepared from reads of an earlier epoch, or for another point of the build,
changes nothing and reports so. Messages keep the flags that they got on arrival. The session's
record holds how far the build is (``Build``). A change of a message before ``at`` changes both
trees, in one transaction. An edit marks the texts of the new tree as dirty rather than flagged:
they are generated anyway. A rebuild makes no texts; the ordinary update generates them in the new
tree.

The last instruction of two holds. A reconfiguration restarts a full rebuild that is under way for
another configuration, because its swap would otherwise put the older configuration back.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from hiermem.config import HierarchyConfig
from hiermem.errors import ClosedError
from hiermem.log.trees import Build, locate
from hiermem.needs import existing_session
from hiermem.tree import fold
from hiermem.tree.fold import Folded, Opening, SessionState, config_from
from hiermem.tree.turns import Arrival, Flag
from hiermem.tree.windows import Weigher, cut
from hiermem.types import Node, SessionRecord, StoredMessage, transaction
from hiermem.types.ranges import joined, ranges_of
from hiermem.types.transaction import (
    Batch,
    Changes,
    Deciding,
    LogEvent,
    Rewrite,
    ViewRecord,
)

#: Messages that a full rebuild folds in one transaction, and those of a backlog folded at once.
PAGE: Final = 256
_BACKLOG_PAGE: Final = 2048


def arrival(
    stored: StoredMessage, config: HierarchyConfig, weigher: Weigher
) -> tuple[Arrival, tuple[int, ...]]:
    """Return what the fold looks at under ``config``, and the offsets at which a message is cut.

    An append measured the message under the configuration of that time. One that is not live has no
    weight and no slices; all others are measured and cut by the rules of an append.
    """
    (whole,) = weigher.weigh(stored, config)
    size = whole.size(config.unit)
    points, slices = cut(stored.message, size, config, counter=weigher.counter)
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


class Refold:
    """A fold in progress: its state, and the nodes sealed so far.

    ``openings`` say where the messages of each thread begin that are in no sealed window, ``other``
    where those of any other thread do. ``flags`` are those that a second fold of a message sets,
    ``rewrites`` the messages that the rules slice now, by index.
    """

    def __init__(
        self,
        config: HierarchyConfig,
        state: SessionState,
        openings: Mapping[str, Opening] | None = None,
        *,
        other: int = 0,
    ) -> None:
        self.config, self.state = config, state
        self.openings, self._other = openings or {}, Opening(other)
        self.nodes: dict[str, Node] = {}
        self.parents: dict[str, str] = {}
        self.flags: list[Flag] = []
        self.rewrites: dict[int, StoredMessage] = {}

    def arrivals(self, messages: Iterable[StoredMessage], weigher: Weigher) -> list[Arrival]:
        """Measure messages for the fold, and note those that are sliced now."""
        return [self._arrival(stored, weigher) for stored in messages]

    def _arrival(self, stored: StoredMessage, weigher: Weigher) -> Arrival:
        opening = self.openings.get(stored.thread, self._other)
        if stored.index < opening.begin:
            return Arrival.of(stored)
        window = opening.window
        if stored.index == opening.begin and (stored.slices or window.char or window.linked):
            weight = weigher.weigh(stored, self.config, stored.slices)[-1]
            size = weight.size(self.config.unit)
            return replace(Arrival.of(stored), size=size, tokens=weight.tokens)
        arrived, points = arrival(stored, self.config, weigher)
        if points:
            self.rewrites[stored.index] = replace(stored, size=arrived.size, slices=points)
        return arrived

    def fold_in(self, arrivals: Sequence[Arrival], events: Sequence[LogEvent] = ()) -> None:
        """Fold messages and, each at its place, events."""
        waiting = list(arrivals)
        for event in events:
            before = event.at - self.state.next_index
            if before > 0:
                self._arrive(waiting[:before])
                del waiting[:before]
            if event.kind in fold.EVENTS:
                self._take(fold.happen(self.state, event, self.config))
        if waiting:
            self._arrive(waiting)

    def _arrive(self, arrivals: Sequence[Arrival]) -> None:
        folded = fold.again(self.state, arrivals, self.config, self.openings, other=self._other)
        self.flags += folded.flags
        self._take(folded)

    def _take(self, folded: Folded) -> None:
        self.state = folded.state
        for node in folded.nodes:
            self.nodes[node.id] = node
        for child, parent in folded.parents:
            child_node = self.nodes.get(child)
            if child_node is None:
                self.parents[child] = parent
            else:
                self.nodes[child] = replace(child_node, parent=parent)


def reconfigure(
    session_id: str, *, config: str, build_id: str, now: datetime, weigher: Weigher
) -> Deciding[bool]:
    """Continue the session under ``config``; return whether the configuration changed.

    ``build_id`` is for a re-pack that restarts. Raises NotFoundError and ClosedError.
    """
    record = yield from existing_session(session_id)
    if record.closed:
        raise ClosedError(session_id=session_id)
    before, after = config_from(record.config), config_from(config)
    build = Build.from_json(record.build)
    overtaken = build if build is not None and config_from(build.config) != after else None
    session = replace(record, version=record.version + 1)
    if overtaken is not None:
        restarted = new_build(record, overtaken, config=config, build_id=build_id)
        session = replace(session, build=restarted.to_json())
    detail: dict[str, Any] = {"before": record.config, "after": config}
    changes: Changes[None] = Changes(
        None, session=session, drop_tree=overtaken.tree if overtaken else None
    )
    if before == after:
        # The event says that the session has a configuration of its own.
        events: Sequence[LogEvent] = yield session_id, "events"
        chosen = any(event.kind == "reconfigure" for event in events)
        if chosen and overtaken is None:
            return Batch(result=False)
        changes = replace(changes, events=() if chosen else (_event(record, now, detail),))
        return Batch(result=False, sessions=((session_id, changes),))
    state, openings = SessionState.from_json(record.state).rewound(before.unit, after.unit)
    refold = Refold(after, state, openings, other=record.messages)
    while (start := refold.state.next_index) < record.messages:
        stop = min(start + _BACKLOG_PAGE, record.messages)
        messages: Sequence[StoredMessage] = yield session_id, transaction.NeedMessages(start, stop)
        refold.fold_in(refold.arrivals(messages, weigher))
    changes = replace(
        changes,
        session=replace(session, config=config, state=refold.state.to_json()),
        nodes=tuple(refold.nodes.values()),
        parents=tuple(refold.parents.items()),
        flags=tuple(refold.flags),
        rewrites=tuple(Rewrite(stored, "mark") for stored in refold.rewrites.values()),
        events=(_event(record, now, detail),),
    )
    return Batch(result=True, sessions=((session_id, changes),))


def _event(record: SessionRecord, now: datetime, detail: dict[str, Any]) -> LogEvent:
    text = json.dumps(detail, separators=(",", ":"))
    return LogEvent("reconfigure", record.messages, now, text)


def due(build: Build, events: Sequence[LogEvent], stop: int) -> Sequence[LogEvent]:
    """Return the events before message ``stop`` that were not folded yet."""
    end = bisect_right(events, stop, lo=min(build.events, len(events)), key=lambda each: each.at)
    return events[build.events : end]


def begin(session_id: str, *, config: str, build_id: str) -> Deciding[Build | None]:
    """Return the build under way for ``config``, or begin one; None if the session does not exist.

    A build for another configuration is given up and its tree is dropped.
    """
    record: SessionRecord | None = yield session_id, "session"
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
    record: SessionRecord | None = yield session_id, "session"
    if record is None or record.epoch != epoch or record.build != build.to_json():
        return Batch(None)
    refold = Refold(config_from(build.config), SessionState.from_json(build.state))
    refold.fold_in(arrivals, events)
    after = replace(
        build,
        state=refold.state.to_json(),
        at=refold.state.next_index,
        events=build.events + len(events),
        marks=joined((*build.marks, *ranges_of(marks))),
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
    answers: tuple[SessionRecord | None, list[LogEvent], list[ViewRecord]]
    answers = yield (
        (session_id, "session"),
        (session_id, "events"),
        (session_id, transaction.NeedViews()),
    )
    record, events, views = answers
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
                window = state.strand(stored.thread).window
                place = yield from locate(session_id, stored, window, build.tree)
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
