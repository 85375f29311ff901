"""Keeps the provisional nodes of ``open_groups="grow"`` in step with the open windows and groups.

The provisional nodes are derived from the session's state inside the store's transaction, so they
always match what is sealed. An existing text serves until the next one; nothing here makes texts.
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

#: Bits for the versions of one provisional node; the session's own version stands above them.
_VERSIONS: Final = 16


async def provisional_nodes(run: UpdateRun, level: int | None) -> list[Node]:
    """Return the provisional nodes as they would be now, without writing; lowest level first."""
    state = run.building.state if run.building else run.record.state
    if run.config.open_groups != "grow" or not state:
        return []
    stored = {node.id: node for node in await run.tree.provisional()}
    wanted = fold.provisional(SessionState.from_json(state), run.config)
    return _due(
        _refreshed(node, stored, run.record)
        for node in wanted
        if level is None or node.level <= level
    )


async def sync_provisional(run: UpdateRun, level: int | None) -> list[Node]:
    """Update the stored provisional nodes; return those whose text has to be checked.

    Returns none where the run's tree no longer serves or is no longer built, or where the session
    has another configuration by now.
    """
    if run.config.open_groups != "grow":
        return []
    known = [node.id for node in await run.tree.provisional()]
    nodes = await run.store.transact(lambda: _sync(run, known))
    return _due(node for node in nodes if level is None or node.level <= level)


def _sync(run: UpdateRun, known: Sequence[str]) -> Deciding[tuple[Node, ...]]:
    """Decide the provisional nodes; ``known`` names those that were stored a moment ago.

    The stored ones are read inside the transaction: a text that was withdrawn since must not be
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
    """Return a provisional node as it is now.

    A new node begins with a version its id never had. So a stale writer, which may hold erased
    text, fails its compare-and-swap.
    """
    before = stored.get(node.id)
    if before is None:
        return replace(node, version=record.version << _VERSIONS)
    return status.resize(before, node)


def _due(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes in order, with active ones marked as dirty.

    Nothing marks a provisional node when a child of its group gets a new text, because a child of
    an open group has no parent yet.
    """
    return [
        replace(node, dirty=True) if node.status == "active" else node
        for node in sorted(nodes, key=lambda node: (node.level, node.id))
    ]
