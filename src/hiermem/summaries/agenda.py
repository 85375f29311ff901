"""Decides which node is made next: lowest level first, first in first out, parents when ready.

::

    next() -> a page to read -> add()
           -> a node to make -> settle() | put_off() | fail()

A level's nodes are read only after all unfinished nodes of the levels below. A child that is not
known to be open is therefore settled, and no list of finished nodes is needed. Memory holds one
page per level and the nodes in flight, whatever the session's length; only failed nodes are
remembered by id. A node above a failed one is left for the next run.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from hiermem.tree.status import waits
from hiermem.types import Node

#: Nodes read in one page; at most this many of one level wait for their children at a time.
PAGE: Final = 256


@dataclass(slots=True)
class _Level:
    """One level's state in the run: nodes read, nodes ready, nodes that wait."""

    stop: int
    after: int = -1
    read: bool = False
    ready: list[tuple[int, str, Node]] = field(default_factory=list[tuple[int, str, Node]])
    waiting: int = 0


class Agenda:
    """The order of one run over the sealed nodes that exist when it begins.

    ``counts`` is the number of sealed nodes by level; nodes sealed later are left to the next run.
    ``tried`` are nodes that just got only a stand-in; they keep it.
    """

    def __init__(self, counts: Mapping[int, int], tried: AbstractSet[str] = frozenset()) -> None:
        self._tried = tried
        self._levels = {level: _Level(stop) for level, stop in sorted(counts.items()) if stop}
        self._open: dict[str, int] = {}
        self._missing: dict[str, tuple[Node, set[str]]] = {}
        self._parents: dict[str, list[str]] = {}
        self._failed: set[str] = set()

    @property
    def open(self) -> int:
        """Return the number of nodes that were read and are neither settled nor failed."""
        return len(self._open)

    @property
    def unread(self) -> list[int]:
        """Return the levels with pages to read."""
        return [number for number, level in self._levels.items() if not level.read]

    def next(self) -> Node | tuple[int, int] | None:
        """Take the next ready node; None if no node is left.

        If a page must be read first, return its (level, after), for ``add``.
        """
        is_full = False
        for number, level in self._levels.items():
            if level.ready:
                return heapq.heappop(level.ready)[2]
            if not level.read and level.waiting < PAGE:
                return None if is_full else (number, level.after)
            is_full = is_full or not level.read
        return None

    def add(self, number: int, page: Sequence[Node], *, limit: int = PAGE) -> None:
        """Add a page of unfinished nodes, read with ``limit``."""
        level = self._levels[number]
        mine = [node for node in page if node.ordinal < level.stop]
        if mine:
            level.after = mine[-1].ordinal
        level.read = len(page) < limit or len(mine) < len(page)
        for node in mine:
            self._admit(node)

    def mark_dirty(self, node: Node) -> bool:
        """Record that this run made ``node`` dirty; return whether it is one more node to make.

        It is not if its page has not been read yet, or if it waits here already.
        """
        waiting = self._missing.get(node.id)
        if waiting is not None:
            self._missing[node.id] = (node, waiting[1])
            return False
        level = self._levels.get(node.level)
        if level is None or node.id in self._open or node.id in self._failed:
            return False
        if not level.read and node.ordinal > level.after:
            return False
        self._admit(node)
        return True

    def settle(self, node_id: str) -> None:
        """Record that a node has its text: its parent may be ready now."""
        self._open.pop(node_id, None)
        for parent_id in self._parents.pop(node_id, ()):
            waiting = self._missing.get(parent_id)
            if waiting is None:
                continue
            parent, missing = waiting
            missing.discard(node_id)
            if not missing:
                del self._missing[parent_id]
                level = self._levels[parent.level]
                level.waiting -= 1
                heapq.heappush(level.ready, (parent.ordinal, parent.id, parent))

    def put_off(self, node: Node) -> None:
        """Put a node back for another try in this run, since its inputs or its claim changed."""
        heapq.heappush(self._levels[node.level].ready, (node.ordinal, node.id, node))

    def fail(self, node_id: str) -> None:
        """Give up a node for this run, and all nodes that wait for it."""
        lost = [node_id]
        while lost:
            child = lost.pop()
            self._open.pop(child, None)
            self._failed.add(child)
            for parent_id in self._parents.pop(child, ()):
                waiting = self._missing.pop(parent_id, None)
                if waiting is not None:
                    self._levels[waiting[0].level].waiting -= 1
                    lost.append(parent_id)

    def _admit(self, node: Node) -> None:
        """Add one node, unless a child of it was given up."""
        if not waits(node) and (node.id in self._tried or not node.degraded):
            return
        if any(child in self._failed for child in node.children):
            self._failed.add(node.id)
            return
        self._open[node.id] = node.level
        level = self._levels[node.level]
        missing = {child for child in node.children if child in self._open}
        if not missing:
            heapq.heappush(level.ready, (node.ordinal, node.id, node))
            return
        self._missing[node.id] = (node, missing)
        level.waiting += 1
        for child in missing:
            self._parents.setdefault(child, []).append(node.id)
