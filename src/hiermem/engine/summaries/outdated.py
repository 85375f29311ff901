"""Finds the texts that were made in another way than the present one, and marks them dirty.

It is done only where the policy says to follow (``UpdatePolicy.follow_strategy``): another prompt,
model or ratio makes nothing untrue by itself. The one rule: a node that is being made, or will be
made anyway, is left alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from hiermem.core.summaries import status
from hiermem.core.summaries.agenda import PAGE
from hiermem.engine.summaries.run import UpdateRun
from hiermem.types import Node


async def outdated(run: UpdateRun, level: int, stop: int) -> AsyncIterator[list[Node]]:
    """Give, in pages, the made nodes of ``level`` below ordinal ``stop`` that are to follow.

    None where the policy does not say so.
    """
    after = -1
    while run.policy.follow_strategy:
        page = await run.store.outdated(run.session_id, level, run.strategies(level), after, PAGE)
        yield [
            node
            for node in page
            if node.ordinal < stop and status.standing(node, now=run.now()) == "settled"
        ]
        if len(page) < PAGE or page[-1].ordinal >= stop:
            return
        after = page[-1].ordinal


async def mark_outdated(run: UpdateRun, counts: Mapping[int, int]) -> None:
    """Mark dirty, in the first ``counts`` nodes of each level, what was made in another way."""
    for level, stop in sorted(counts.items()):
        async for page in outdated(run, level, stop):
            if page:
                writes = [
                    status.write(node, status.mark_dirty(node, now=run.now())) for node in page
                ]
                await run.store.write_nodes(run.session_id, writes)
