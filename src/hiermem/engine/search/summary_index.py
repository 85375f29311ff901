"""Keeps a session's shelf of made summaries in step with what updates have made.

The one rule: summaries are made by runs, and runs are journalled, so that a journal that looks the
same means a shelf that is still right. While a run is under way the shelf is looked after again and
again, but never for more than a small part of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from hiermem.core.search.postings import Postings
from hiermem.core.search.summary_index import Parts, pack, unpack
from hiermem.core.tree.state import SessionState
from hiermem.core.tree.stored import config_from
from hiermem.engine.handle import Handle, state_from
from hiermem.engine.index import KIND, STRIDE, SessionIndex
from hiermem.errors import StoreCorruptError, StoreError
from hiermem.types import Node, SessionRecord, Summary
from hiermem.types.transaction import Block, RunRecord

_log = logging.getLogger("hiermem.search")
#: Of the newest runs, so many are looked at.
_RUNS: Final = 8
#: Looking after the shelf takes at most this part of the time.
_LOOKING: Final = 0.1
#: More texts than this are read on a thread, and what was read of them is kept.
_FEW: Final = 16
#: Blocks written at a time.
_AT_ONCE: Final = 32


async def journal_mark(handle: Handle, record: SessionRecord) -> tuple[object, bool]:
    """Give what changes whenever a run begins or ends, and whether one is under way."""
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    mark = tuple((run.id, run.outcome) for run in runs)
    return (record.tree, record.epoch, mark), any(map(_running, runs))


def _running(run: RunRecord) -> bool:
    return run.outcome == "running"


async def stocked(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
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
    missing = held.shelf.wants(summaries)
    if len(missing) <= _FEW:
        held.shelf = held.shelf.restocked(summaries, {})
    else:
        kept = await _kept(handle, record, {each.level for each in missing})
        held.shelf = await asyncio.to_thread(held.shelf.restocked, summaries, kept)
        if kept_beside(record):
            await _keep(handle, held, record, kept)
    held.shelf_mark = mark
    held.shelf_until = time.monotonic() + (time.monotonic() - began) / _LOOKING


async def _kept(handle: Handle, record: SessionRecord, levels: Iterable[int]) -> Parts:
    """Read what the store keeps of texts that were read before."""
    found: dict[tuple[str, int], Postings] = {}
    for level in sorted(levels):
        try:
            blocks = await handle.store.blocks(record.id, kind_of(level))
        except StoreCorruptError:
            continue
        for block in blocks:
            found |= unpack(block.data)
    return found


async def _keep(handle: Handle, held: SessionIndex, record: SessionRecord, kept: Parts) -> None:
    """Let the store keep what was read of texts, stretch by stretch where one is missing."""
    blocks: list[Block] = []
    for level, row in held.shelf.rows.items():
        for start, summaries in by_stretch(row.summaries):
            names = [(each.id, each.node.revision) for each in summaries]
            if not all(name in kept for name in names):
                data = pack({name: held.shelf.parts[name] for name in names})
                stop = max(each.span.stop for each in summaries)
                blocks.append(Block(kind_of(level), start, stop, data))
    for first in range(0, len(blocks), _AT_ONCE):
        try:
            part = blocks[first : first + _AT_ONCE]
            await handle.store.put_blocks(record.id, part, epoch=record.epoch)
        except StoreError as error:
            _log.info("an index was not kept: %s", type(error).__name__)
            return


def kept_beside(record: SessionRecord) -> bool:
    """Say whether what is made of a summary may be kept in a block over the messages it covers.

    With an overlap a summary was shown something of the messages before those, too, and a block
    would outlive what it was made from.
    """
    return config_from(record.config).overlap == 0


def kind_of(level: int) -> str:
    """Give the kind of the blocks that hold what was read of a level's summaries."""
    return f"{KIND}-L{level}"


def by_stretch(summaries: Iterable[Summary]) -> list[tuple[int, list[Summary]]]:
    """Put together the summaries that begin in one stretch of messages, which share a block."""
    found: dict[int, list[Summary]] = {}
    for each in summaries:
        found.setdefault(each.span.start // STRIDE * STRIDE, []).append(each)
    return sorted(found.items())


async def _told(
    handle: Handle, held: SessionIndex, record: SessionRecord, nodes: Sequence[Node]
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
