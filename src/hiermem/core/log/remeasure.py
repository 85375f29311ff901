"""Measures a stored message under a configuration.

An append measures a message once, under the configuration of the session at that time; a re-pack
measures it again under another one. A message that is not live has no weight and no slices; all
others are measured and cut by the rules of an append.
"""

from __future__ import annotations

from hiermem.config import HierarchyConfig
from hiermem.core.log.size_changes import Weigher
from hiermem.core.tree.oversize import cut
from hiermem.core.tree.turns import Arrival, call_mark
from hiermem.types import StoredMessage


def arrival(
    stored: StoredMessage, config: HierarchyConfig, weigher: Weigher
) -> tuple[Arrival, tuple[int, ...]]:
    """Return what the fold of a re-pack looks at, and the offsets at which the message is cut."""
    message = stored.message
    (whole,) = weigher.weigh(stored)
    size = whole.size(config.unit)
    points, slices = cut(message, size, config, counter=weigher.counter, echoes=stored.echoes)
    arrived = Arrival(
        index=stored.index,
        thread=message.thread,
        role=message.role,
        size=size,
        tokens=whole.tokens,
        at=stored.created_at,
        calls=tuple(call_mark(call.id) for call in message.tool_calls),
        result_of=None if message.tool_call_id is None else call_mark(message.tool_call_id),
        slices=slices,
    )
    return arrived, points
