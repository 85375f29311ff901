"""Keeps the provisional nodes of ``open_groups="grow"`` in step with what is open.

The one rule: what stands for an open window or group is worked out from the session's state inside
the store's transaction, so it always fits what is sealed. A text that was made serves until the
next one; nothing here makes texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hiermem.core import fold, status
from hiermem.core.state import SessionState
from hiermem.engine.workshop import Workshop
from hiermem.protocols import Changes, Snapshot
from hiermem.types import Node

__all__ = ["grown", "keep_growing"]


async def grown(shop: Workshop, level: int | None) -> list[Node]:
    """Give the provisional nodes as they would be now, without writing them; lowest level first."""
    state = shop.building.state if shop.building else shop.record.state
    if shop.config.open_groups != "grow" or not state:
        return []
    stored = {node.id: node for node in await shop.store.provisional(shop.session_id)}
    wanted = fold.provisional(SessionState.from_json(state), shop.config)
    return _due(_regrown(node, stored) for node in wanted if level is None or node.level <= level)


async def keep_growing(shop: Workshop, level: int | None) -> list[Node]:
    """Bring the stored provisional nodes in step; give those whose text has to be looked at.

    None are, where another tree serves, or is built, than the one that the run is about.
    """
    if shop.config.open_groups != "grow":
        return []
    before = {node.id: node for node in await shop.store.provisional(shop.session_id)}

    def decide(snapshot: Snapshot) -> Changes[tuple[Node, ...]]:
        record, build = snapshot.session, shop.building
        if record is None or record.tree != shop.record.tree:
            return Changes(())
        if build is not None and record.build != build.to_json():
            return Changes(())
        state = SessionState.from_json(build.state if build else record.state)
        nodes = tuple(_regrown(node, before) for node in fold.provisional(state, shop.config))
        written = tuple(node for node in nodes if node is not before.get(node.id))
        drop = tuple(sorted(before.keys() - {node.id for node in nodes}))
        if not written and not drop:
            return Changes(nodes)
        return Changes(
            nodes,
            replace(record, version=record.version + 1),
            nodes=written,
            drop=drop,
            tree=build.tree if build else None,
        )

    nodes = await shop.store.mutate(shop.session_id, decide)
    return _due(node for node in nodes if level is None or node.level <= level)


def _regrown(node: Node, stored: dict[str, Node]) -> Node:
    before = stored.get(node.id)
    return node if before is None else status.regrow(before, node)


def _due(nodes: Iterable[Node]) -> list[Node]:
    """Order them, with active ones to be looked at as if dirty.

    Nobody marks a provisional node when a child of its group is made anew, because a child of an
    open group has no parent yet.
    """
    return [
        replace(node, dirty=True) if node.status == "active" else node
        for node in sorted(nodes, key=lambda node: (node.level, node.id))
    ]
