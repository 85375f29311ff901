"""Keeps the provisional nodes of ``open_groups="grow"`` in step with what is open.

The one rule: what stands for an open window or group is worked out from the session's state inside
the store's transaction, so it always fits what is sealed. A text that was made serves until the
next one; nothing here makes texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from hiermem.core.summaries import status
from hiermem.core.tree import fold
from hiermem.core.tree.state import SessionState
from hiermem.engine.summaries.run import UpdateRun
from hiermem.types import Node, SessionRecord
from hiermem.types.transaction import Batch, Changes, Deciding, NeedNodes, NeedSession

#: Bits for the versions of one provisional node, above which the session's own version stands.
_VERSIONS: Final = 16


async def provisional_nodes(run: UpdateRun, level: int | None) -> list[Node]:
    """Give the provisional nodes as they would be now, without writing them; lowest level first."""
    state = run.building.state if run.building else run.record.state
    if run.config.open_groups != "grow" or not state:
        return []
    stored = {node.id: node for node in await run.store.provisional(run.session_id)}
    wanted = fold.provisional(SessionState.from_json(state), run.config)
    return _due(
        _refreshed(node, stored, run.record)
        for node in wanted
        if level is None or node.level <= level
    )


async def sync_provisional(run: UpdateRun, level: int | None) -> list[Node]:
    """Bring the stored provisional nodes in step; give those whose text has to be looked at.

    None are, where another tree serves, or is built, than the one that the run is about, or where
    the session goes on under another configuration by now.
    """
    if run.config.open_groups != "grow":
        return []
    known = [node.id for node in await run.store.provisional(run.session_id)]
    nodes = await run.store.transact(lambda: _sync(run, known))
    return _due(node for node in nodes if level is None or node.level <= level)


def _sync(run: UpdateRun, known: Sequence[str]) -> Deciding[tuple[Node, ...]]:
    """Decide what stands for what is open; ``known`` names what stood for it a moment ago.

    What is stored is read inside the transaction: a text that was taken back since must not be
    named again.
    """
    id_ = run.session_id
    record: SessionRecord | None = yield id_, NeedSession()
    build = run.building
    if record is None or record.tree != run.record.tree:
        return Batch(())
    if build is None and record.config != run.record.config:
        return Batch(())
    if build is not None and record.build != build.to_json():
        return Batch(())
    tree = build.tree if build else record.tree
    state = SessionState.from_json(build.state if build else record.state)
    wanted = fold.provisional(state, run.config)
    stored: list[Node] = []
    if wanted:
        stored = yield id_, NeedNodes(tuple(node.id for node in wanted), tree)
    before = {node.id: node for node in stored}
    nodes = tuple(_refreshed(node, before, record) for node in wanted)
    written = tuple(node for node in nodes if node is not before.get(node.id))
    drop = tuple(sorted(set(known) - {node.id for node in nodes}))
    if not written and not drop:
        return Batch(nodes)
    changes: Changes[None] = Changes(
        None,
        replace(record, version=record.version + 1),
        nodes=written,
        drop=drop,
        tree=tree,
    )
    return Batch(nodes, ((id_, changes),))


def _refreshed(node: Node, stored: dict[str, Node], record: SessionRecord) -> Node:
    """Give a provisional node as it is now.

    One that is new begins with a version that none of its name had before: whoever still makes a
    text for one that was dropped, with what was erased in it, must not find its version again.
    """
    before = stored.get(node.id)
    if before is None:
        return replace(node, version=record.version << _VERSIONS)
    return status.resize(before, node)


def _due(nodes: Iterable[Node]) -> list[Node]:
    """Order them, with active ones to be looked at as if dirty.

    Nobody marks a provisional node when a child of its group is made anew, because a child of an
    open group has no parent yet.
    """
    return [
        replace(node, dirty=True) if node.status == "active" else node
        for node in sorted(nodes, key=lambda node: (node.level, node.id))
    ]
