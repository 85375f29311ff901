"""Stores the finished parts of a node that is summarised in several requests, until it commits.

A part is stored only while the session is what the run read. A message that is removed meanwhile
removes the parts with it, and none is written back.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiermem.core.summaries.assess import Draft
from hiermem.core.summaries.parts import PART, from_json, is_of, to_json
from hiermem.engine.summaries.run import UpdateRun
from hiermem.types.transaction import RecordWrite


async def stored_part(run: UpdateRun, node_id: str, key: str) -> Draft | None:
    """Return the draft of a part that an earlier run paid for, or None."""
    found = await run.store.records(PART, scope=run.session_id, key=key)
    if not found:
        return None
    run.split_nodes.add(node_id)
    return from_json(found[0].body)


async def count_stored(run: UpdateRun, keys: Sequence[str]) -> int:
    """Return how many of a node's parts need no call any more."""
    found = [await run.store.records(PART, scope=run.session_id, key=key) for key in keys]
    return sum(map(bool, found))


async def store_part(run: UpdateRun, node_id: str, key: str, draft: Draft) -> None:
    """Store a part's draft for the next run, in case this one does not finish the node."""
    body = to_json(draft)
    if body is None or run.is_deterministic:
        return
    write = RecordWrite(PART, run.session_id, key, body)
    epochs = {run.session_id: run.record.epoch}
    if await run.store.put_records([write], epochs=epochs):
        run.split_nodes.add(node_id)


async def drop_parts(run: UpdateRun, node_id: str) -> None:
    """Delete the parts of a node that has its text."""
    if node_id not in run.split_nodes:
        return
    run.split_nodes.discard(node_id)
    found = await run.store.records(PART, scope=run.session_id)
    gone = [
        RecordWrite(PART, run.session_id, each.key, None)
        for each in found
        if is_of(each.key, node_id)
    ]
    if gone:
        await run.store.put_records(gone)
