"""Adds labels to indexed summaries that were made before summaries had any.

The labels are those that an update would give, read from the same messages. Nothing is written or
generated again: a text that serves goes on serving. The cost is that of reading what the summaries
without labels cover, once for each index in memory, and only if a question filters by labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hiermem.core.search import labels
from hiermem.core.search.summary_index import SummaryIndex, SummaryLevel
from hiermem.core.summaries.inputs import Inputs, from_children, from_stretch
from hiermem.engine.handle import Handle
from hiermem.engine.index import SessionIndex
from hiermem.engine.search.summary_index import with_texts
from hiermem.types import SessionRecord, Summary


async def labelled(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
    """Add labels to the summaries of ``held`` that lack them, lowest level first."""
    rows: dict[int, SummaryLevel] = {}
    below: Mapping[str, Summary] = {}
    for level, row in sorted(held.summary_index.levels.items()):
        summaries = [
            await _labelled(handle, held, record, each, below)
            for each in await with_texts(handle, record, row.summaries)
        ]
        rows[level] = replace(row, summaries=tuple(summaries))
        below = {each.id: each for each in summaries}
    if any(
        rows[level].summaries != row.summaries for level, row in held.summary_index.levels.items()
    ):
        held.summary_index = SummaryIndex(rows, held.summary_index.parts)


async def _labelled(
    handle: Handle,
    held: SessionIndex,
    record: SessionRecord,
    summary: Summary,
    below: Mapping[str, Summary],
) -> Summary:
    revision = summary.revision
    if revision is None or revision.tags or revision.entities:
        return summary
    name = (revision.node_id, revision.number)
    if name in held.unlabelled:
        return summary
    node = summary.node
    if node.level == 1:
        span = node.span
        messages = [
            stored
            for stored in await handle.messages(record.id, span.start, span.stop)
            if stored.thread == node.thread
        ]
        inputs = from_stretch(span, messages, count=handle.counter.count)
        found = await asyncio.to_thread(labels.of_inputs, inputs)
    else:
        found = labels.of_inputs(
            _of_children([below[child] for child in node.children if child in below])
        )
    if not (found.tags or found.entities):
        held.unlabelled.add(name)
        return summary
    return replace(summary, revision=replace(revision, tags=found.tags, entities=found.entities))


def _of_children(children: Sequence[Summary]) -> Inputs:
    return from_children([(each.node, each.revision) for each in children if each.revision])
