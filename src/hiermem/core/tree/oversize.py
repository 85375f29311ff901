"""Decides which message is too large for a window, and how it is cut (rule 2 of sealing).

A message over the hard limit is cut into slices of at most the target. This holds even where the
message cannot be cut: an indivisible message, such as an image, is one slice, and it still closes
the window before it. Appending, re-packing and replaying a log all use this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiermem.config import HierarchyConfig
from hiermem.core.text import measure
from hiermem.core.tree.turns import Slice
from hiermem.protocols import TokenCounter
from hiermem.types import Message


def is_oversize(size: int, config: HierarchyConfig) -> bool:
    """Return whether a message of ``size``, in the configuration's unit, must be sliced."""
    return config.enabled and size > config.hard_limit


def cut(
    message: Message,
    size: int,
    config: HierarchyConfig,
    *,
    counter: TokenCounter,
    echoes: Sequence[tuple[int, int]] = (),
) -> tuple[tuple[int, ...], tuple[Slice, ...]]:
    """Return the inner offsets at which a message is cut, and its slices; both () if not cut."""
    if not is_oversize(size, config):
        return (), ()
    unit = config.unit
    points = measure.slice_points(
        message, unit=unit, target=config.target, counter=counter, echoes=echoes
    )
    sizes = measure.slice_sizes(message, points, unit=unit, counter=counter, echoes=echoes)
    return points, slices_at(points, sizes)


def slices_at(points: Sequence[int], sizes: Sequence[tuple[int, int]]) -> tuple[Slice, ...]:
    """Return the slices between ``points``; ``sizes`` holds the size and tokens of each slice."""
    return tuple(
        Slice(begin, end, size, tokens)
        for begin, end, (size, tokens) in zip((0, *points), (*points, None), sizes, strict=True)
    )
