"""Keeps the finished parts of a node that is summarised in several requests, until it commits.

The one rule: a part is kept only while the session is what the run read; a message that is taken
out meanwhile takes the parts with it, and none is written back.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiermem.core.summaries.assess import Draft
from hiermem.core.summaries.parts import PART, from_json, is_of, to_json
from hiermem.engine.summaries.run import Workshop
from hiermem.types.transaction import RecordWrite


async def kept_part(shop: Workshop, node_id: str, key: str) -> Draft | None:
    """Give the draft of a part that an earlier run paid for, or None."""
    found = await shop.store.records(PART, scope=shop.session_id, key=key)
    if not found:
        return None
    shop.parted.add(node_id)
    return from_json(found[0].body)


async def count_kept(shop: Workshop, keys: Sequence[str]) -> int:
    """Count those of a node's parts that need no call any more."""
    found = [await shop.store.records(PART, scope=shop.session_id, key=key) for key in keys]
    return sum(map(bool, found))


async def keep_part(shop: Workshop, node_id: str, key: str, draft: Draft) -> None:
    """Keep a part's draft for the next run, in case this one does not come to the end."""
    body = to_json(draft)
    if body is None or shop.steady:
        return
    write = RecordWrite(PART, shop.session_id, key, body)
    epochs = {shop.session_id: shop.record.epoch}
    if await shop.store.put_records([write], epochs=epochs):
        shop.parted.add(node_id)


async def drop_parts(shop: Workshop, node_id: str) -> None:
    """Remove the parts of a node that has its text."""
    if node_id not in shop.parted:
        return
    shop.parted.discard(node_id)
    found = await shop.store.records(PART, scope=shop.session_id)
    gone = [
        RecordWrite(PART, shop.session_id, each.key, None)
        for each in found
        if is_of(each.key, node_id)
    ]
    if gone:
        await shop.store.put_records(gone)
