"""Finds the texts that were made with another strategy than the current one, and marks them dirty.

This is done only where the policy asks for it (``UpdatePolicy.follow_strategy``): another prompt,
model or ratio does not make a text untrue. A node that is being made, or will be made anyway, is
left alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from hiermem.core.summaries import status
from hiermem.core.summaries.agenda import PAGE
from hiermem.engine.summaries.run import UpdateRun
from hiermem.types import Node


async def outdated(run: UpdateRun, level: int, stop: int) -> AsyncIterator[list[Node]]:
    """Yield, in pages, the nodes of ``level`` below ordinal ``stop`` with an outdated strategy.

    Yields none where the policy does not follow the strategy.
    """
    after = -1
    while run.policy.follow_strategy:
        page = await run.tree.outdated(level, run.strategies(level), after, PAGE)
        yield [
            node
            for node in page
            if node.ordinal < stop and status.standing(node, now=run.now()) == "settled"
        ]
        if len(page) < PAGE or page[-1].ordinal >= stop:
            return
        after = page[-1].ordinal


async def mark_outdated(run: UpdateRun, counts: Mapping[int, int]) -> None:
    """Mark outdated texts dirty, in the first ``counts`` nodes of each level."""
    for level, stop in sorted(counts.items()):
        async for page in outdated(run, level, stop):
            if page:
                writes = [
                    status.write(node, status.mark_dirty(node, now=run.now())) for node in page
                ]
                await run.tree.write_nodes(writes)
