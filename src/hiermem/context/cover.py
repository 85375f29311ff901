"""Exact covers of sealed windows by the fewest nodes, and their refinement level by level.

Every node covers a contiguous half-open range of level-1 ordinals, so a cover is a sequence of
adjacent intervals. A cover contains exactly the requested windows, each of them once.

This module knows sizes and structure only; ``pool`` reads the text of the nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from hiermem import needs
from hiermem.needs import Reading
from hiermem.text.measure import day
from hiermem.tree.levels import Root
from hiermem.tree.state import SessionState
from hiermem.tree.windows import moment
from hiermem.types import Node, Span

#: A refinement stops at this many nodes, however small they are.
MOST_NODES = 2_000


def _rising(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] >= ends[1]:
        raise ValueError("the range is empty")
    return ends


def _placed(span: Span) -> Span:
    if min(span.start, span.stop, span.start_char, span.stop_char or 0) < 0:
        raise ValueError("a place is negative")
    return span


# What a store's data must be; it is not trusted.
Natural: TypeAlias = Annotated[int, Field(ge=0)]
Range: TypeAlias = Annotated[tuple[Natural, Natural], AfterValidator(_rising)]
StoredSpan: TypeAlias = Annotated[Span, AfterValidator(_placed)]


@dataclass(frozen=True, slots=True)
class Covered:
    """A node as a cover sees it: its position and its size, without its text.

    ``days`` are the first and the last day that the node covers.
    """

    id: str
    level: Natural
    windows: Range
    span: StoredSpan
    messages: Natural
    tokens: Natural
    days: tuple[str, str]


def covered(node: Node) -> Covered:
    """Return the part of a node that a cover needs."""
    return _covered(node, node.first_at, node.last_at)


def _covered(node: Node | Root, first: datetime, last: datetime) -> Covered:
    return Covered(
        id=node.id,
        level=node.level,
        windows=node.windows,
        span=node.span,
        messages=node.messages,
        tokens=node.allotted_tokens,
        days=(day(first), day(last)),
    )


def cheapest(state: SessionState) -> list[Covered]:
    """Return the roots of the tree, oldest first; no read is needed."""
    return [_covered(root, moment(root.first), moment(root.last)) for root in state.roots()]


def within(item: Covered, windows: tuple[int, int]) -> bool:
    """Return whether the item lies inside the range of windows."""
    return windows[0] <= item.windows[0] and item.windows[1] <= windows[1]


def inside(roots: Sequence[Covered], begin: int, end: int) -> Reading[list[Covered]]:
    """Return the largest nodes that cover the windows from ``begin`` up to ``end`` exactly."""
    found: list[Covered] = []
    waiting = list(roots)
    while waiting:
        waiting = [item for item in waiting if item.windows[0] < end and begin < item.windows[1]]
        found += [item for item in waiting if within(item, (begin, end))]
        parted = [item for item in waiting if not within(item, (begin, end))]
        waiting = yield from children(parted)
    return sorted(found, key=lambda item: item.windows)


def refine(
    cover: Sequence[Covered], share: int, levels: Collection[int] | None = None
) -> Reading[list[list[Covered]]]:
    """Replace the topmost level by its children until the nodes together fill ``share`` tokens.

    Return every intermediate cover, the given cover first. The level that first reaches the share
    is used completely (summary_recipe section 4): a text that is trimmed from slightly too much
    material keeps more than a coarser text that happens to fit. With ``levels``, a level that is
    not among them is always replaced, and none below the lowest of them is reached.
    """
    lowest = min(levels) if levels else 1
    steps = [sorted(cover, key=lambda item: item.windows)]
    while len(steps[-1]) < MOST_NODES:
        top = max((item.level for item in steps[-1]), default=1)
        is_filled = sum(item.tokens for item in steps[-1]) >= share
        if top <= lowest or (is_filled and (levels is None or top in levels)):
            break
        parents = [item for item in steps[-1] if item.level == top]
        finer = [item for item in steps[-1] if item.level != top]
        finer += yield from children(parents)
        steps.append(sorted(finer, key=lambda item: item.windows))
    return steps


def children(parents: Sequence[Covered]) -> Reading[list[Covered]]:
    """Read the direct children of these nodes."""
    read = yield from needs.nodes([item.id for item in parents])
    found = yield from needs.nodes([child for node in read for child in node.children])
    return [covered(node) for node in found]
