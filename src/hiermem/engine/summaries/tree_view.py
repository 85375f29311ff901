"""A store seen through one tree: methods about nodes refer to that tree, whichever one serves.

A re-pack makes its texts by the ordinary update, which does not know about several trees; it is
given such a store. Nothing is decided here. Methods that take no tree pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from hiermem.protocols import TenantStore
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, NodeTally, NodeWrite


def tree_store(store: TenantStore, tree: int) -> TenantStore:
    """Return ``store`` with the number of the tree fixed."""
    return cast("TenantStore", _TreeStore(store, tree))


def planned_tree(
    store: TenantStore,
    tree: int,
    *,
    nodes: Sequence[Node],
    parents: Mapping[str, str],
    counts: Mapping[int, int],
) -> TenantStore:
    """Return ``store`` as if ``nodes`` and ``parents`` had been written to that tree; read only.

    ``counts`` is the number of sealed nodes by level that the tree would then have.
    """
    return cast("TenantStore", _PlannedTree(store, tree, nodes, parents, counts))


class _TreeStore:
    """The methods that take a tree, with that tree."""

    def __init__(self, store: TenantStore, tree: int) -> None:
        self._store, self._tree = store, tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def nodes(self, session_id: str, ids: Sequence[str]) -> list[Node]:
        return await self._store.nodes(session_id, ids, tree=self._tree)

    async def level(
        self, session_id: str, level: int, start: int, stop: int | None = None
    ) -> list[Node]:
        return await self._store.level(session_id, level, start, stop, tree=self._tree)

    async def levels(self, session_id: str) -> dict[int, int]:
        return await self._store.levels(session_id, tree=self._tree)

    async def tally(self, session_id: str) -> list[NodeTally]:
        return await self._store.tally(session_id, tree=self._tree)

    async def covering(self, session_id: str, thread: str, index: int) -> list[Node]:
        return await self._store.covering(session_id, thread, index, tree=self._tree)

    async def provisional(self, session_id: str) -> list[Node]:
        return await self._store.provisional(session_id, tree=self._tree)

    async def unfinished(self, session_id: str, level: int, after: int, limit: int) -> list[Node]:
        return await self._store.unfinished(session_id, level, after, limit, tree=self._tree)

    async def revisions(self, session_id: str, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        return await self._store.revisions(session_id, wanted, tree=self._tree)

    async def write_nodes(
        self, session_id: str, writes: Sequence[NodeWrite], *, attempts: Sequence[Attempt] = ()
    ) -> list[bool]:
        return await self._store.write_nodes(session_id, writes, attempts=attempts, tree=self._tree)


class _PlannedTree(_TreeStore):
    """A tree with nodes that were never written, after the stored ones."""

    def __init__(
        self,
        store: TenantStore,
        tree: int,
        nodes: Sequence[Node],
        parents: Mapping[str, str],
        counts: Mapping[int, int],
    ) -> None:
        super().__init__(store, tree)
        self._nodes = {node.id: node for node in nodes}
        self._levels: dict[int, list[Node]] = {}
        for node in nodes:
            self._levels.setdefault(node.level, []).append(node)
        self._parents, self._counts = parents, dict(counts)

    def __getattr__(self, name: str) -> Any:
        if name in ("mutate", "transact", "write_nodes", "put_run"):
            raise AssertionError(f"a dry run does not write: {name}")
        return super().__getattr__(name)

    async def levels(self, session_id: str) -> dict[int, int]:
        return self._counts

    async def nodes(self, session_id: str, ids: Sequence[str]) -> list[Node]:
        stored = await super().nodes(session_id, [id_ for id_ in ids if id_ not in self._nodes])
        found = {node.id: node for node in self._with_parents(stored)} | self._nodes
        return [found[id_] for id_ in ids if id_ in found]

    async def level(
        self, session_id: str, level: int, start: int, stop: int | None = None
    ) -> list[Node]:
        stored = self._with_parents(await super().level(session_id, level, start, stop))
        return stored + [
            node
            for node in self._levels.get(level, ())
            if node.ordinal >= start and (stop is None or node.ordinal < stop)
        ]

    async def unfinished(self, session_id: str, level: int, after: int, limit: int) -> list[Node]:
        stored = self._with_parents(await super().unfinished(session_id, level, after, limit))
        new = [node for node in self._levels.get(level, ()) if node.ordinal > after]
        return (stored + new)[:limit]

    async def write_nodes(
        self, session_id: str, writes: Sequence[NodeWrite], *, attempts: Sequence[Attempt] = ()
    ) -> list[bool]:
        raise AssertionError("a dry run does not write: write_nodes")

    def _with_parents(self, stored: Sequence[Node]) -> list[Node]:
        return [
            replace(node, parent=self._parents[node.id]) if node.id in self._parents else node
            for node in stored
        ]
