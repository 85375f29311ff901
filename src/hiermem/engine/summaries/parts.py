"""Splits the inputs of a node into requests, and stores the answers to them until it commits.

A part is stored only while the session is what the run read. A message that is removed meanwhile
removes the parts with it, and none is written back.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from hiermem.core.summaries import plan
from hiermem.core.summaries.assess import Draft
from hiermem.core.summaries.making import Ask
from hiermem.core.summaries.parts import PART, from_json, is_of, key_of, to_json
from hiermem.engine.calls.token_count import LONG, tokens_of
from hiermem.engine.summaries.run import UpdateRun
from hiermem.types import Node
from hiermem.types.transaction import RecordWrite


async def split(run: UpdateRun, node: Node, ask: Ask) -> list[tuple[str, Ask]]:
    """Split what is asked into requests: one, or several where the inputs are too large for one.

    Each comes with the key of its answer, which is "" for all inputs at once.
    """
    inputs, length, count = ask.inputs, ask.length, run.counter.count
    room = run.room(node.level, inputs=inputs.tokens, answer=length.limit)
    in_parts = partial(
        plan.in_parts, inputs, level=node.level, config=run.config, room=room, count=count
    )
    characters = sum(len(source.text) for source in inputs.sources)
    parts = in_parts() if characters <= LONG else await asyncio.to_thread(in_parts)
    if len(parts) == 1:
        return [("", ask)]
    sizes = [await tokens_of(count, [source.text for source in part]) for part in parts]
    strategy = run.plan(node.level).strategy
    found: list[tuple[str, Ask]] = []
    for sources, size, share in zip(parts, sizes, plan.shares(length, sizes), strict=True):
        # What is on record of the whole inputs does not hold for a part of them.
        own = replace(inputs, sources=sources, tokens=size, anchors=None)
        part = replace(ask, inputs=own, length=share)
        found.append((key_of(node, part, strategy), part))
    return found


async def stored_part(run: UpdateRun, node_id: str, key: str) -> Draft | None:
    """Return the draft of a part that an earlier run paid for, or None."""
    if not key:
        return None
    found = await run.store.records(PART, scope=run.session_id, key=key)
    if not found:
        return None
    run.split_nodes.add(node_id)
    return from_json(found[0].body)


async def store_part(run: UpdateRun, node_id: str, key: str, draft: Draft) -> None:
    """Store a part's draft for the next run, in case this one does not finish the node."""
    body = to_json(draft) if key else None
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
