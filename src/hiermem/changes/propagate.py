"""Decides an edit, and what any change of messages makes of a tree: weights, spans and marks.

An edit is decided inside the store's transaction and reads what it needs there. Slow work (checking
and counting the new text) is done before the transaction; here its results are only looked up.
Summaries of the old text are marked as dirty; whether the next update makes them again is the
policy's ``regenerate_on_edit``. Pinning a message is decided here too.

Sealed is sealed (P5): no edit and no erasure moves a bound, splits a group or joins two. A window
whose message changed has another size, and so has every node above it, each measured by the rule
under which it was sealed. An edit past the limits leaves a large window; a rebuild slices it.

Every node on the path above a changed message is visited, whether its size changed or not. Only
nodes on this path can contain the old text, so an erasure forgets exactly their texts. One node is
read for each level and message, and a group's children only if a slice moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeAlias

from hiermem.changes.receipts import EditReport
from hiermem.context.view import naming as naming_views
from hiermem.context.view import outdated
from hiermem.errors import ClosedError, ConflictError, NotFoundError, StoreCorruptError
from hiermem.log.events import naming
from hiermem.log.trees import MessageChange, TreeState, tree_states
from hiermem.needs import existing
from hiermem.text.wishes import IN_SIGHT, PIN, WITHDRAWN, without_flags
from hiermem.tree.levels import Root, allot, hull
from hiermem.tree.status import flag, mark_dirty
from hiermem.tree.windows import Weigher, converted
from hiermem.types import Node, SessionRecord, Span, StoredMessage, transaction
from hiermem.types.ranges import ranges_of
from hiermem.types.transaction import (
    Asking,
    Batch,
    Changes,
    Deciding,
    LogEvent,
    NeedNodes,
    Rewrite,
    ViewRecord,
)

#: Returns the edited message with its tokens, hash and echoes; the slices are set later.
Amend: TypeAlias = Callable[[StoredMessage], StoredMessage]


def edit(
    session_id: str, index: int, amend: Amend, *, regenerate: bool, now: datetime, weigher: Weigher
) -> Deciding[EditReport]:
    """Replace a message's content; an edit that repeats the stored content changes nothing.

    Raises NotFoundError, ClosedError and ConflictError.
    """
    found: tuple[SessionRecord | None, Sequence[StoredMessage], Sequence[ViewRecord]]
    found = yield (
        (session_id, "session"),
        (session_id, transaction.NeedMessages(index, index + 1)),
        (session_id, transaction.NeedViews()),
    )
    record, at_index, views = existing(session_id, found[0]), found[1], found[2]
    if record.closed:
        raise ClosedError(session_id=session_id)
    check_index(record, index)
    (before,) = at_index
    if before.state != "live":
        raise _withdrawn(session_id, before)
    after = amend(before)
    if after.message == before.message:
        return Batch(EditReport(session_id, index))
    propagated: list[Propagated] = []
    for tree_state in tree_states(record):
        if index >= tree_state.stop:
            continue
        (location,) = yield from tree_state.locate_all([before])
        config = tree_state.config
        points = weigher.points(after, location.slices, unit=config.unit, target=config.target)
        weights = (
            weigher.weigh(before, config, location.points),
            weigher.weigh(after, config, points),
        )
        tree_state.changes = [MessageChange(index, before.thread, location, *weights, points)]
        if tree_state.build is None:
            after = replace(after, slices=points)
        mark: Mark = "rebuild" if regenerate else "flag"
        propagated.append((yield from propagate(tree_state, mark, now)))
    serving = propagated[0]
    _, changes = changes_of(
        record,
        propagated,
        "edit",
        now,
        rewrites=(Rewrite(after, "edit"),),
        drop_views=outdated({v.name: v.state for v in views}, index, serving.windows),
    )
    report = EditReport(session_id, index, 0, tuple(serving.dirty))
    return Batch(report, tuple((session_id, each) for each in changes))


def set_pin(session_id: str, indices: Sequence[int], *, pinned: bool) -> Deciding[None]:
    """Pin messages, or take their pins off; views may show them, so all of them go.

    The pin is a flag of the message: it is copied into forks, and goes when that is erased.

    Raises NotFoundError, and ConflictError for an erased or quarantined message.
    """
    record, views, *pages = yield (
        (session_id, "session"),
        (session_id, transaction.NeedViews()),
        *((session_id, transaction.NeedMessages(index, index + 1)) for index in indices),
    )
    record = existing(session_id, record)
    for index in indices:
        check_index(record, index)
    flagged = [(stored, _flags_with(stored, session_id, pinned=pinned)) for (stored,) in pages]
    marked = [replace(stored, flags=flags) for stored, flags in flagged if flags != stored.flags]
    if not marked:
        return Batch(None)
    changes: Changes[None] = Changes(
        None,
        session=replace(record, version=record.version + 1, epoch=record.epoch + 1),
        rewrites=tuple(Rewrite(stored, "mark") for stored in marked),
        drop_views=tuple(view.name for view in views),
    )
    return Batch(None, ((session_id, changes),))


def _withdrawn(session_id: str, stored: StoredMessage) -> ConflictError:
    """Return the error for a change to a message that was erased or quarantined."""
    return ConflictError(
        f"message {stored.index} of session {session_id!r} was {stored.state} and takes no edit; "
        "append a new message",
        kind="withdrawn",
        session_id=session_id,
        index=stored.index,
    )


def _flags_with(stored: StoredMessage, session_id: str, *, pinned: bool) -> tuple[str, ...]:
    """Return the flags of a message that is pinned, or whose pin is taken off."""
    if stored.state != "live":
        raise _withdrawn(session_id, stored)
    if pinned:
        return (*without_flags(stored.flags), PIN)
    if not any(flag in stored.flags for flag in IN_SIGHT):
        raise NotFoundError(
            f"message {stored.index} of session {session_id!r} is not pinned; "
            "the list of its pins has those that are"
        )
    withdrawn = () if PIN in stored.flags else (WITHDRAWN,)
    return (*without_flags(stored.flags), *withdrawn)


def check_index(record: SessionRecord, index: int) -> None:
    """Raise NotFoundError if the session has no message at that index."""
    if not 0 <= index < record.messages:
        raise NotFoundError(
            f"session {record.id!r} has no message {index}; it has {record.messages}"
        )


#: "flag" marks a text as dirty, "rebuild" also as pending, "forget" deletes it.
Mark: TypeAlias = Literal["flag", "rebuild", "forget"]


def propagate(tree_state: TreeState, mark: Mark, now: datetime) -> Asking[Propagated]:
    """Apply the noted changes of messages to a tree, up to its roots.

    The texts of a tree under construction are generated anyway, so
    nothing in it is only flagged.
    """
    if tree_state.build is not None and mark == "flag":
        mark = "rebuild"
    made = Propagated(tree_state, mark, now)
    for change in tree_state.changes:
        made.apply(change)
    for node in tree_state.overlapping.values():
        made.touch(node)
    yield from made.propagate()
    made.finish()
    return made


def changes_of(
    record: SessionRecord,
    propagated: Sequence[Propagated],
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
    named = ranges_of(rewrite.message.index for rewrite in rewrites)
    event = LogEvent(kind, record.messages, now, naming(named))
    made: list[Changes[None]] = []
    for result in propagated:
        state, build = result.state.to_json(), result.of.build
        record = replace(record, version=record.version + 1)
        if build is None:
            record = replace(record, state=state, epoch=record.epoch + 1)
        else:
            record = replace(record, build=replace(build, state=state).to_json())
        changes: Changes[None] = Changes(
            None,
            session=record,
            forget=tuple(result.forget),
            nodes=tuple(result.nodes),
            tree=result.of.tree,
        )
        if build is None:
            changes = replace(
                changes,
                rewrites=tuple(rewrites),
                events=(event,),
                drop_views=tuple(drop_views),
                drop_records=tuple(drop_records),
            )
        made.append(changes)
    return record, made


class Propagated:
    """A change of messages in the tree ``of``: its nodes as they were read, and as they are now.

    At the end, ``nodes`` are to be written, ``forget`` lose their revisions. ``dirty`` names the
    nodes with a text that are marked so now, ``gone`` those whose text was taken away. ``windows``
    are the ordinals of the windows whose content changed.
    """

    def __init__(self, tree_state: TreeState, mark: Mark, now: datetime) -> None:
        self.of, self.state, self.config = tree_state, tree_state.state, tree_state.config
        self.nodes: list[Node] = []
        self.forget: dict[str, None] = {}
        self.dirty: list[str] = []
        self.gone: list[str] = []
        self.windows: list[int] = []
        self._mark: Mark = mark
        self._now = now
        self._before: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}
        self._inputs: set[str] = set()
        self._visited: set[str] = set()
        self._grown: dict[str, tuple[int, int]] = {}
        self._moved = False

    # -- the windows

    def apply(self, change: MessageChange) -> None:
        """Give one message its new weight, in its windows and in the open window."""
        location, before, after, points = change[2:]
        last = len(location.points)
        for number, window in enumerate(location.windows):
            if window.id not in self._inputs:
                self.touch(window)
            if last:
                node = self._nodes[window.id]
                self._nodes[node.id] = replace(node, span=_sliced(node.span, points, number))
                self._moved = True
            more, less, unit = after[number], before[number], window.unit
            self._grow(window.id, more.size(unit) - less.size(unit), more.tokens - less.tokens)
        if location.opened:
            more, less, unit = after[last], before[last], self.config.unit
            self.state = self.state.with_size(
                change.thread,
                change.message,
                size=more.size(unit) - less.size(unit),
                tokens=more.tokens - less.tokens,
                char=points[-1] if last else None,
            )

    def _grow(self, id_: str, size: int, tokens: int) -> None:
        """Note that a node's inputs grew by these amounts; the node is weighed once, at the end."""
        before = self._grown.get(id_, (0, 0))
        self._grown[id_] = (before[0] + size, before[1] + tokens)

    def touch(self, window: Node) -> None:
        """Note that a window's content changed."""
        self._take(window)
        self._inputs.add(window.id)

    def _take(self, node: Node) -> None:
        if node.id not in self._nodes:
            self._before[node.id] = self._nodes[node.id] = node

    # -- the way up

    def propagate(self) -> Asking[None]:
        """Go up to the roots, one level at a time, so that every node is finished once."""
        waiting = set(self._inputs)
        while waiting:
            level = min(self._nodes[id_].level for id_ in waiting)
            before = [self._before[id_] for id_ in sorted(waiting)]
            before = [node for node in before if node.level == level]
            above = [node.parent for node in before if node.parent is not None]
            moved = [child for node in before for child in node.children] if self._moved else []
            yield from self._read([*above, *moved])
            for node in before:
                self._rise(node)
            self._visited.update(node.id for node in before)
            waiting = waiting.union(above) - self._visited

    def _rise(self, before: Node) -> None:
        """Finish a node, and hand its growth to its parent, or to the roots."""
        now = self._weighed(self._nodes[before.id], *self._grown.pop(before.id, (0, 0)))
        if before.children and self._moved:
            now = replace(now, span=hull(self._nodes[child].span for child in before.children))
        if self._mark == "forget":
            self.forget[before.id] = None
            now = replace(
                now,
                status="pending",
                revision=0,
                version=now.version + 1,
                attempts=0,
                error=None,
                degraded=False,
                dirty=False,
                forced=False,
                since=self._now if now.revision else now.since,
            )
        self._nodes[before.id] = now
        if before.parent is None:
            state = self.state.with_root(Root.of(now))
            if state is None:
                raise StoreCorruptError(
                    f"{before.id} has no place in the tree; the store is damaged"
                )
            self.state = state
            return
        parent = self._nodes[before.parent]
        old, new = (
            converted(node.allotted, node.allotted_tokens, node.unit, parent.unit)
            for node in (before, now)
        )
        self._grow(parent.id, new - old, now.allotted_tokens - before.allotted_tokens)

    def _read(self, ids: Sequence[str]) -> Asking[None]:
        """Read the nodes that were not read yet."""
        missing = tuple(id_ for id_ in dict.fromkeys(ids) if id_ not in self._nodes)
        if missing:
            found: list[Node] = yield (
                self.of.session_id,
                NeedNodes(missing, self.of.tree),
            )
            if len(found) < len(missing):
                raise StoreCorruptError(
                    f"some of {', '.join(missing)} are missing; the store is damaged"
                )
            for node in found:
                self._take(node)

    def _weighed(self, node: Node, size: int, tokens: int) -> Node:
        """Return a node whose inputs grew by this, in its unit and in tokens."""
        if not size and not tokens:
            return node
        size, tokens = max(0, node.input_size + size), max(0, node.input_tokens + tokens)
        allotted, allotted_tokens, verbatim = allot(
            node.level, size, tokens, self.config, unit=node.unit
        )
        return replace(
            node,
            input_size=size,
            allotted=allotted,
            input_tokens=tokens,
            allotted_tokens=allotted_tokens,
            verbatim=verbatim,
        )

    # -- the end

    def finish(self) -> None:
        """Mark the visited nodes and note everything that is to be written."""
        for id_ in sorted(self._nodes, key=lambda id_: (self._nodes[id_].level, id_)):
            node, before = self._nodes[id_], self._before[id_]
            if id_ in self.forget:
                self.gone += [id_] if before.revision else []
                self.nodes.append(node)
                continue
            after = self._marked(node) if id_ in self._visited else node
            self.dirty += [id_] if id_ in self._visited and before.revision and after.dirty else []
            if id_ in self._inputs or after != before:
                self.nodes.append(replace(after, version=before.version + 1))
        self.windows = sorted(self._nodes[id_].ordinal for id_ in self._inputs)

    def _marked(self, node: Node) -> Node:
        """Mark a node on the path; if its content changed, its attempts begin anew."""
        if node.id in self._inputs:
            node = replace(node, attempts=0, error=None)
        if not node.revision:
            return node
        if self._mark == "rebuild":
            return mark_dirty(node, now=self._now)
        return flag(node)


def _sliced(span: Span, points: Sequence[int], number: int) -> Span:
    """Return the span of the window that holds slice ``number``, with its current offsets."""
    start_char = points[number - 1] if number else span.start_char
    stop_char = points[number] if number < len(points) else span.stop_char
    return replace(span, start_char=start_char, stop_char=stop_char)


def forget_shown(session_id: str, other: str) -> Deciding[None]:
    """Drop the views of a session that name another one of its space."""
    record: SessionRecord | None
    views: Sequence[ViewRecord]
    record, views = yield (
        (session_id, "session"),
        (session_id, transaction.NeedViews()),
    )
    gone = naming_views({view.name: view.state for view in views}, other)
    if record is None or not gone:
        return Batch(None)
    # The epoch keeps out a view of which the reads have begun.
    after = replace(record, version=record.version + 1, epoch=record.epoch + 1)
    return Batch(None, ((session_id, Changes(None, session=after, drop_views=gone)),))
