"""Takes the stale flag off where what lies below turned out to be what it was.

An edit flags the whole path above its window. A window that says the same when it is made anew
makes nobody above it dirty, and so nobody would be made and lose the flag. The one rule: a flag
goes only where no child bears one and the recorded inputs are the present ones; where they are
not, the node is dirty.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiermem.core import status
from hiermem.engine.ledger import Outcome
from hiermem.engine.workshop import Workshop, read_inputs, read_serving
from hiermem.protocols import NodeWrite
from hiermem.types import Node

__all__ = ["freshen"]


async def freshen(shop: Workshop, committed: Sequence[Outcome]) -> list[Node]:
    """Look at what lies above nodes that say what they said; give those found to be dirty."""
    above = {
        each.node.parent
        for each in committed
        if each.after is not None
        and (each.node.dirty or each.node.stale)
        and not each.soils
        and each.kind in ("made", "reused", "clean")
    }
    dirty: list[Node] = []
    while ids := sorted(id_ for id_ in above if id_ is not None):
        writes = [
            write
            for node in await shop.store.nodes(shop.session_id, ids)
            if node.stale and not node.dirty and node.status == "active"
            if (write := await _judge(shop, node)) is not None
        ]
        if not writes:
            break
        applied = await shop.store.write_nodes(shop.session_id, writes)
        done = [write.node for write, held in zip(writes, applied, strict=True) if held]
        dirty += [node for node in done if node.dirty]
        above = {node.parent for node in done if not node.dirty}
    return dirty


async def _judge(shop: Workshop, node: Node) -> NodeWrite | None:
    """Say what becomes of one flagged node; None where a child is still to be made."""
    children = await shop.store.nodes(shop.session_id, node.children)
    if any(child.stale or child.dirty or child.status != "active" for child in children):
        return None
    inputs, serving = await read_inputs(shop, node), await read_serving(shop, node)
    if inputs is None or serving is None:
        return None
    if shop.is_clean(node, inputs, serving):
        return status.write(node, status.clean(node))
    return status.write(node, status.soil(node, now=shop.now()))
