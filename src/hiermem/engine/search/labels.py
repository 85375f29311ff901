"""Labels summaries on a shelf that bear none, since they were made before summaries bore any.

The one rule: the labels are those that an update would give, read off the same messages, and
nothing is written or made again: a text that serves goes on serving. It costs what the summaries
without labels cover, once for each index in memory, and only where a question asks for labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hiermem.core.search import labels
from hiermem.core.search.summary_index import Row, Shelf
from hiermem.core.summaries.inputs import Inputs, from_children, from_stretch
from hiermem.engine.handle import Handle
from hiermem.engine.index import SessionIndex
from hiermem.types import SessionRecord, Summary


async def labelled(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
    """Give labels to the summaries on the shelf of ``held`` that lack them, lowest level first."""
    rows: dict[int, Row] = {}
    below: Mapping[str, Summary] = {}
    for level, row in sorted(held.shelf.rows.items()):
        summaries = [await _labelled(handle, held, record, each, below) for each in row.summaries]
        rows[level] = replace(row, summaries=tuple(summaries))
        below = {each.id: each for each in summaries}
    if any(rows[level].summaries != row.summaries for level, row in held.shelf.rows.items()):
        held.shelf = Shelf(rows, held.shelf.parts)


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
