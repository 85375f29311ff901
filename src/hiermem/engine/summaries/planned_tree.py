"""A tree as it would be after a re-pack whose nodes were never written, for a dry run to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hiermem.protocols import TreeStore
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, NodeTally, NodeWrite


class PlannedTree:
    """A stored tree, with planned nodes after the stored ones; it cannot be written.

    ``parents`` are the parents that stored nodes would get, by id; ``counts`` is the number of
    sealed nodes by level that the tree would have.
    """

    def __init__(
        self,
        stored: TreeStore,
        *,
        nodes: Sequence[Node],
        parents: Mapping[str, str],
        counts: Mapping[int, int],
    ) -> None:
        self._stored = stored
        self._nodes = {node.id: node for node in nodes}
        self._levels: dict[int, list[Node]] = {}
        for node in nodes:
            self._levels.setdefault(node.level, []).append(node)
        self._parents, self._counts = parents, dict(counts)

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Return the stored and planned nodes with these ids, in the order of ``ids``."""
        stored = await self._stored.nodes([id_ for id_ in ids if id_ not in self._nodes])
        found = {node.id: node for node in self._with_parents(stored)} | self._nodes
        return [found[id_] for id_ in ids if id_ in found]

    async def level(self, level: int, start: int, stop: int | None = None) -> list[Node]:
        """Return the sealed nodes of ``level`` in that range, the planned ones last."""
        stored = self._with_parents(await self._stored.level(level, start, stop))
        return stored + [
            node
            for node in self._levels.get(level, ())
            if node.ordinal >= start and (stop is None or node.ordinal < stop)
        ]

    async def levels(self) -> dict[int, int]:
        """Return the number of sealed nodes of each level that the tree would have."""
        return self._counts

    async def covering(self, thread: str, index: int) -> list[Node]:
        """Return the level-1 nodes of ``thread`` whose span holds the message."""
        stored = self._with_parents(await self._stored.covering(thread, index))
        return stored + [
            node
            for node in self._levels.get(1, ())
            if node.thread == thread and node.span.start <= index < node.span.stop
        ]

    async def provisional(self) -> list[Node]:
        """Return the stored nodes that are not sealed; none is planned."""
        return await self._stored.provisional()

    async def unfinished(self, level: int, after: int, limit: int) -> list[Node]:
        """Return up to ``limit`` unfinished nodes of ``level``; every planned node is one."""
        stored = self._with_parents(await self._stored.unfinished(level, after, limit))
        new = [node for node in self._levels.get(level, ()) if node.ordinal > after]
        return (stored + new)[:limit]

    async def outdated(
        self, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Return the stored nodes with another strategy; a planned node has no text."""
        return self._with_parents(await self._stored.outdated(level, strategies, after, limit))

    async def tally(self) -> list[NodeTally]:
        """Refuse: nothing that plans asks for totals."""
        raise AssertionError("a dry run adds nothing up: tally")

    async def revisions(self, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Return the stored revisions; planned nodes have none."""
        return await self._stored.revisions(wanted)

    async def write_nodes(
        self,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
        attempts_if_applied: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Refuse: a dry run does not write."""
        raise AssertionError("a dry run does not write: write_nodes")

    def _with_parents(self, stored: Sequence[Node]) -> list[Node]:
        return [
            replace(node, parent=self._parents[node.id]) if node.id in self._parents else node
            for node in stored
        ]
