"""Propagates a change of messages through a tree: sizes, spans and marks, from windows to roots.

Window bounds stay (P5). A window whose message changed has another size, and so has every node
above it, each measured by the rule under which it was sealed. Only a group that an edit takes over
HYSTERESIS times its level's size is split, by the rule for arriving children; the parts take its
place. A group that an erasure takes under REMNANT of its level's size joins a neighbour, if both
together hold no more than that size; the neighbour on the left keeps its id, the other id is gone.

Every node on the path above a changed message is visited, whether its size changed or not. Only
nodes on this path can contain the old text, so an erasure forgets exactly their texts. A split
group loses its summary, because that summary described more than the new group covers.

It reads one node for each level and message, and a group's children only if the group is split or
joined or a slice moved. A replay of the log runs the same code over nodes in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal, TypeAlias

from hiermem.core.log.size_changes import LoggedChanges, SizeChange
from hiermem.core.log.trees import Location, TreeState
from hiermem.core.needs import Reading
from hiermem.core.summaries.status import flag, mark_dirty
from hiermem.core.tree.levels import Root, allot, group_node, hull, parts
from hiermem.core.tree.windows import converted
from hiermem.errors import StoreCorruptError
from hiermem.types import Node, SessionRecord, Span
from hiermem.types.transaction import Changes, LogEvent, NeedNodes, Rewrite

#: An edit splits a sealed group when it takes it past this multiple of its level's size.
HYSTERESIS: Final = 1.5
#: An erasure joins a sealed group with a neighbour when it takes it under this share of the size.
REMNANT: Final = 0.25

#: "flag" marks a text as dirty, "rebuild" also as pending, "forget" deletes it.
Mark: TypeAlias = Literal["flag", "rebuild", "forget"]


def propagate(tree_state: TreeState, mark: Mark, now: datetime) -> Reading[Propagated]:
    """Apply the noted changes of messages to a tree, up to its roots.

    Groups are not split when texts are forgotten, because an erasure is no edit, nor in a closed
    session, which has one root. The texts of a tree under construction are generated anyway, so
    nothing in it is only flagged.
    """
    if tree_state.build is not None and mark == "flag":
        mark = "rebuild"
    made = Propagated(tree_state, mark, now)
    for location, shift, points in tree_state.message_changes:
        made.apply(location, shift, points)
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
    logged = LoggedChanges(())
    for result in propagated:
        shifts = tuple(shift for _, shift, _ in result.of.message_changes)
        if (build := result.of.build) is None:
            logged = replace(logged, shifts=shifts)
        else:
            tree, at, events = result.of.tree, build.at, build.events
            logged = replace(logged, built=shifts, tree=tree, at=at, events=events)
    event = LogEvent(kind, record.messages, now, logged.to_json())
    made: list[Changes[None]] = []
    for result in propagated:
        state, build = result.state.to_json(), result.of.build
        if build is None:
            record = replace(record, state=state, epoch=record.epoch + 1)
        else:
            record = replace(record, build=replace(build, state=state).to_json())
        record = replace(record, version=record.version + 1)
        changes: Changes[None] = Changes(
            None,
            session=record,
            drop=tuple(result.drop),
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

    At the end, ``nodes`` are to be written, ``forget`` lose their revisions, ``drop`` are
    groups that joined another one. ``dirty`` names the nodes with a text that are marked so now,
    ``gone`` those whose text was taken away, ``split`` the parts of split groups. ``windows`` are
    the ordinals of the windows whose content changed.
    """

    def __init__(self, tree_state: TreeState, mark: Mark, now: datetime) -> None:
        self.of, self.state, self.config = tree_state, tree_state.state, tree_state.config
        self.nodes: list[Node] = []
        self.forget: dict[str, None] = {}
        self.drop: dict[str, None] = {}
        self.dirty: list[str] = []
        self.gone: list[str] = []
        self.split: list[str] = []
        self.windows: list[int] = []
        self._mark: Mark = mark
        self._now = now
        self._before: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}
        self._inputs: set[str] = set()
        self._queue: list[tuple[int, str]] = []
        self._queued: set[str] = set()
        self._dirtied: set[str] = set()
        self._joined: set[str] = set()
        self._moved = False

    # -- the windows

    def apply(self, location: Location, shift: SizeChange, points: Sequence[int]) -> None:
        """Give one message its new weight, in its windows and in the open window."""
        last = location.slices - 1
        for number, window in enumerate(location.windows):
            self.touch(window)
            node = self._nodes[window.id]
            before, after = shift.before[number], shift.after[number]
            if last:
                node = replace(node, span=_sliced(node.span, points, number))
                self._moved = True
            self._nodes[node.id] = self._weighed(
                node,
                size=after.size(node.unit) - before.size(node.unit),
                tokens=after.tokens - before.tokens,
            )
        if location.opened:
            before, after, unit = shift.before[last], shift.after[last], self.config.unit
            self.state = self.state.with_size(
                shift.thread,
                shift.index,
                size=after.size(unit) - before.size(unit),
                tokens=after.tokens - before.tokens,
                char=points[-1] if last else None,
            )

    def touch(self, window: Node) -> None:
        """Note that a window's content changed."""
        self._take(window)
        self._inputs.add(window.id)
        self._push(window.id)

    def _take(self, node: Node) -> Node:
        if node.id not in self._nodes:
            self._before[node.id] = self._nodes[node.id] = node
        return self._nodes[node.id]

    def _push(self, id_: str) -> None:
        if id_ not in self._queued:
            self._queued.add(id_)
            heapq.heappush(self._queue, (self._nodes[id_].level, id_))

    # -- the way up

    def propagate(self) -> Reading[None]:
        """Go up to the roots, one level at a time, so that every node is finished once."""
        finished: list[str] = []
        while self._queue:
            now, id_ = heapq.heappop(self._queue)
            if finished and self._before[finished[0]].level < now:
                yield from self._join_remnants(finished)
                finished = []
            finished.append(id_)
            before = self._before[id_]
            if before.children and self._moved:
                children = yield from self._read(self._nodes[id_].children)
                span = hull(child.span for child in children)
                self._nodes[id_] = replace(self._nodes[id_], span=span)
            pieces = (yield from self._divide(id_)) if self._too_large(id_) else [self._nodes[id_]]
            roots = [Root.of(piece) for piece in pieces]
            if before.parent is None:
                self.state, level = self.state.with_roots(id_, roots)
                if level is None:
                    raise StoreCorruptError(f"{id_} has no place in the tree; the store is damaged")
                continue
            (parent,) = yield from self._read([before.parent])
            self._nodes[parent.id] = self._regrouped(parent, Root.of(before), roots)
            if len(pieces) > 1:
                self._dirtied.add(parent.id)
            self._push(parent.id)
        yield from self._join_remnants(finished)

    def _read(self, ids: Sequence[str]) -> Reading[list[Node]]:
        """Return nodes as they are now; read the ones that were not read yet."""
        missing = tuple(id_ for id_ in ids if id_ not in self._nodes)
        if missing:
            found: list[Node] = yield NeedNodes(missing, self.of.tree)
            if len(found) < len(missing):
                raise StoreCorruptError(
                    f"some of {', '.join(missing)} are missing; the store is damaged"
                )
            for node in found:
                self._take(node)
        return [self._nodes[id_] for id_ in ids]

    def _weighed(self, node: Node, *, size: int, tokens: int) -> Node:
        """Return a node whose inputs grew by these amounts, in its unit and in tokens."""
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

    def _regrouped(self, parent: Node, before: Root, after: Sequence[Root]) -> Node:
        """Return a parent with ``after`` among its children where ``before`` was."""
        if before.id not in parent.children:
            raise StoreCorruptError(f"{parent.id} lacks a child of it; the store is damaged")
        at = parent.children.index(before.id)
        ids = tuple(root.id for root in after)
        unit = parent.unit
        return self._weighed(
            replace(parent, children=(*parent.children[:at], *ids, *parent.children[at + 1 :])),
            size=sum(root.size(unit) for root in after) - before.size(unit),
            tokens=sum(root.allotted_tokens for root in after) - before.allotted_tokens,
        )

    # -- splits

    def _too_large(self, id_: str) -> bool:
        """Return whether an edit took a group over the size at which it is split."""
        before, now = self._before[id_], self._nodes[id_]
        if not now.children or self._mark == "forget" or self.state.closed:
            return False
        most = self.config.level(now.level).max_size
        return most is not None and self._size(before) <= HYSTERESIS * most < self._size(now)

    def _divide(self, id_: str) -> Reading[list[Node]]:
        """Split a group by the rule for arriving children; the first part keeps the group's id.

        The parts have no text: the group's summary may describe what another part covers now.
        """
        whole = self._nodes[id_]
        children = yield from self._read(whole.children)
        groups = parts(
            [Root.of(child) for child in children], self.config.level(whole.level), self.config.unit
        )
        if len(groups) < 2:
            return [whole]
        first = self.state.next_ordinal(whole.level)
        ordinals = [whole.ordinal, *range(first, first + len(groups) - 1)]
        self.state = self.state.with_ordinals(whole.level, len(groups) - 1)
        pieces: list[Node] = []
        for ordinal, group in zip(ordinals, groups, strict=True):
            piece = group_node(whole.level, ordinal, group, self.config)
            piece = replace(piece, parent=whole.parent)
            if not pieces:
                piece = replace(piece, version=whole.version, since=self._now)
            self._nodes[piece.id] = piece
            self.split.append(piece.id)
            for root in group if pieces else ():
                self._nodes[root.id] = replace(self._nodes[root.id], parent=piece.id)
            pieces.append(piece)
        self.forget[id_] = None
        return pieces

    # -- joins

    def _join_remnants(self, ids: Sequence[str]) -> Reading[None]:
        """Join the groups of one level that an erasure left too small, in the order of the tree.

        Everything below the parents of this level is finished. A parent keeps two children.
        """
        if self._mark != "forget" or self.state.closed:
            return
        for id_ in sorted(ids, key=lambda id_: self._before[id_].windows):
            if id_ not in self._joined and self._is_remnant(id_):
                yield from self._join(id_)

    def _is_remnant(self, id_: str) -> bool:
        """Return whether an erasure took a group under the size at which it joins another."""
        before, now = self._before[id_], self._nodes[id_]
        most = self.config.level(now.level).max_size
        if not now.children or most is None:
            return False
        return self._size(before) >= REMNANT * most > self._size(now)

    def _size(self, node: Node) -> int:
        return converted(node.input_size, node.input_tokens, node.unit, self.config.unit)

    def _join(self, id_: str) -> Reading[None]:
        """Join a group with its left neighbour, else its right one, where one has the room."""
        node = self._nodes[id_]
        if node.parent is None:
            row = [root.id for root in self.state.beside(id_)]
        else:
            row = list(self._nodes[node.parent].children)
            if len(row) < 3:
                return
        at = row.index(id_)
        most = self.config.level(node.level).max_size
        for place in (at - 1, at + 1):
            if most is None or not 0 <= place < len(row):
                continue
            (other,) = yield from self._read([row[place]])
            if other.level == node.level and self._size(other) + self._size(node) <= most:
                first, second = (other, node) if place < at else (node, other)
                yield from self._merge(first, second)
                return

    def _merge(self, first: Node, second: Node) -> Reading[None]:
        """Let ``first`` take the children of ``second``, which is gone; it has no text then."""
        children = yield from self._read((*first.children, *second.children))
        roots = [Root.of(child) for child in children]
        whole = replace(
            group_node(first.level, first.ordinal, roots, self.config),
            parent=first.parent,
            version=first.version,
            since=self._now,
        )
        if first.parent is None:
            self.state, _ = self.state.with_roots(first.id, [Root.of(whole)])
            self.state, _ = self.state.with_roots(second.id, [])
        else:
            parent = self._nodes[first.parent]
            parent = self._regrouped(parent, Root.of(first), [Root.of(whole)])
            self._nodes[parent.id] = self._regrouped(parent, Root.of(second), [])
        for child in second.children:
            self._nodes[child] = replace(self._nodes[child], parent=first.id)
        self._nodes[first.id] = whole
        del self._nodes[second.id]
        self._joined.add(second.id)
        self.forget[first.id] = None

    # -- the end

    def finish(self) -> None:
        """Mark the visited nodes and note everything that is to be written."""
        for id_ in sorted(self._nodes, key=lambda id_: (self._nodes[id_].level, id_)):
            node, before = self._nodes[id_], self._before.get(id_)
            if before is None:
                self.nodes.append(node)
                continue
            visited = id_ in self._queued
            after = self._marked(node) if visited else node
            if visited and self._mark == "forget":
                self.forget[id_] = None
            if before.revision:
                self.dirty += [id_] if visited and after.dirty else []
                self.gone += [id_] if id_ in self.forget else []
            must = id_ in self._inputs or id_ in self.forget
            if must or after != before:
                self.nodes.append(replace(after, version=before.version + 1))
        for id_ in sorted(self._joined):
            self.forget.pop(id_, None)
            self.drop[id_] = None
            self.gone += [id_] if self._before[id_].revision else []
        self.windows = sorted(self._nodes[id_].ordinal for id_ in self._inputs)

    def _marked(self, node: Node) -> Node:
        """Mark a node on the path; if its content changed, release it from its generating run."""
        if self._mark == "forget":
            return replace(
                _reset(node),
                status="pending",
                revision=0,
                degraded=False,
                dirty=False,
                forced=False,
                since=self._now if node.revision else node.since,
            )
        if node.id in self._inputs:
            node = _reset(node)
        if not node.revision:
            return node
        if self._mark == "rebuild" or node.id in self._dirtied:
            return mark_dirty(node, now=self._now)
        return flag(node)


def _reset(node: Node) -> Node:
    """Return a node that no run is generating, its attempts reset."""
    status = "pending" if node.status == "generating" else node.status
    return replace(node, status=status, attempts=0, error=None, lease_owner=None, lease_until=None)


def _sliced(span: Span, points: Sequence[int], number: int) -> Span:
    """Return the span of the window that holds slice ``number``, with its current offsets."""
    start_char = points[number - 1] if number else span.start_char
    if number < len(points):
        return replace(span, start_char=start_char, stop_char=points[number])
    return replace(span, start_char=start_char)
