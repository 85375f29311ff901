"""What a stored message weighs under a configuration, measured now.

An append measures a message once, under the configuration that the session has then; a re-pack
measures it again under another one. The one rule: what is not live weighs nothing, and is cut into
no slices; all else is weighed and cut by the rules of an append.
"""

from __future__ import annotations

from hiermem.config import HierarchyConfig
from hiermem.core import measure
from hiermem.core.shifts import Scales
from hiermem.core.turns import Arrival, Slice, call_mark
from hiermem.types import StoredMessage

__all__ = ["arrival"]


def arrival(
    stored: StoredMessage, config: HierarchyConfig, scales: Scales
) -> tuple[Arrival, tuple[int, ...]]:
    """Give what the fold of a re-pack looks at, and the offsets at which the message is cut."""
    message, unit = stored.message, config.unit
    (whole,) = scales.weigh(stored)
    points: tuple[int, ...] = ()
    slices: tuple[Slice, ...] = ()
    if stored.state == "live" and config.enabled and whole.size(unit) > config.hard_limit:
        points = measure.slice_points(
            message, unit=unit, target=config.target, counter=scales.counter, echoes=stored.echoes
        )
        sizes = measure.slice_sizes(
            message, points, unit=unit, counter=scales.counter, echoes=stored.echoes
        )
        slices = tuple(
            Slice(begin, end, size, tokens)
            for begin, end, (size, tokens) in zip((0, *points), (*points, None), sizes, strict=True)
        )
    arrived = Arrival(
        index=stored.index,
        thread=message.thread,
        role=message.role,
        size=whole.size(unit),
        tokens=whole.tokens,
        at=stored.created_at,
        calls=tuple(call_mark(call.id) for call in message.tool_calls),
        result_of=None if message.tool_call_id is None else call_mark(message.tool_call_id),
        slices=slices,
    )
    return arrived, points
