"""Keeps a session's shelf of made summaries in step with what updates have made.

The one rule: summaries are made by runs, and runs are journalled, so that a journal that looks the
same means a shelf that is still right. While a run is under way the shelf is looked after again and
again, but never for more than a small part of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from hiermem.core.state import SessionState
from hiermem.engine.handle import Handle, state_from
from hiermem.engine.index import Held
from hiermem.protocols import RunRecord
from hiermem.types import Node, SessionRecord, Summary

__all__ = ["journal_mark", "stocked"]

#: Of the newest runs, so many are looked at.
_RUNS: Final = 8
#: Looking after the shelf takes at most this part of the time.
_LOOKING: Final = 0.1
#: More texts than this are read on a thread.
_FEW: Final = 16


async def journal_mark(handle: Handle, record: SessionRecord) -> tuple[object, bool]:
    """Give what changes whenever a run begins or ends, and whether one is under way."""
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    mark = tuple((run.id, run.outcome) for run in runs)
    return (record.tree, record.epoch, mark), any(map(_running, runs))


def _running(run: RunRecord) -> bool:
    return run.outcome == "running"


async def stocked(handle: Handle, held: Held, record: SessionRecord) -> None:
    """Bring the shelf of ``held`` up to date, where it may be out of date."""
    mark, running = await journal_mark(handle, record)
    began = time.monotonic()
    if held.shelf_mark == mark and not (running and began >= held.shelf_until):
        return
    state = state_from(record.state) if record.state else SessionState()
    nodes: list[Node] = []
    for level in range(1, len(state.ordinals) + 1):
        nodes += await handle.store.level(record.id, level, 0, tree=record.tree)
    summaries = await _told(handle, held, record, [node for node in nodes if node.revision])
    count = handle.counter.count
    shelf = held.shelf
    if len(shelf.wants(summaries)) > _FEW:
        held.shelf = await asyncio.to_thread(shelf.restocked, summaries, count)
    else:
        held.shelf = shelf.restocked(summaries, count)
    held.shelf_mark = mark
    held.shelf_until = time.monotonic() + (time.monotonic() - began) / _LOOKING


async def _told(
    handle: Handle, held: Held, record: SessionRecord, nodes: Sequence[Node]
) -> list[Summary]:
    """Give the summaries of ``nodes`` with their texts; those on the shelf are not read again."""
    known = {
        (each.id, each.node.revision): each.revision
        for row in held.shelf.rows.values()
        for each in row.summaries
    }
    wanted = [(node.id, node.revision) for node in nodes if (node.id, node.revision) not in known]
    read = await handle.store.revisions(record.id, wanted, tree=record.tree) if wanted else []
    known |= {(revision.node_id, revision.number): revision for revision in read}
    return [
        Summary(record.id, node, revision, record.closed)
        for node in nodes
        if (revision := known.get((node.id, node.revision))) is not None
    ]
