"""Reads the summaries of a session into its index, and writes their postings for later searches.

Only runs make summaries, and runs are journalled. Between runs an append may seal a group, which
becomes the parent of made summaries, and a session may be closed. If the journal, the number of
groups and the closing are unchanged, the index is still right. While a run is under way the index
is refreshed repeatedly, but only for a small share of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hiermem.errors import StoreError
from hiermem.handle import Handle, session_state
from hiermem.search import summary_index
from hiermem.search.index import Postings
from hiermem.search.indexes import KIND, STRIDE, SessionIndex, stored_blocks
from hiermem.search.summary_index import SummaryIndex, SummaryPostings, name_of
from hiermem.tree.fold import config_from
from hiermem.types import Node, SessionRecord, Summary
from hiermem.types.transaction import Block

_log = logging.getLogger("hiermem.search")
#: How many of the newest runs ``journal_mark`` examines.
_RUNS: Final = 8
#: Refreshing the index takes at most this share of the time.
_REFRESHING: Final = 0.1
#: More texts than this are read on a thread, and their postings are stored.
_FEW: Final = 16
#: Blocks written in one go.
_AT_ONCE: Final = 32


async def journal_mark(handle: Handle, record: SessionRecord) -> tuple[object, bool]:
    """Return a value that changes whenever a run begins or ends, and whether a run is under way."""
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    mark = tuple((run.id, run.outcome) for run in runs)
    return (record.tree, record.epoch, mark), any(run.outcome == "running" for run in runs)


async def refresh(handle: Handle, index: SessionIndex, record: SessionRecord) -> None:
    """Refresh the summary index of ``index``, if it may be stale."""
    journal, running = await journal_mark(handle, record)
    state = session_state(record)
    # A window sealed since then has no text yet, so the ordinals of level 1 do not count.
    mark = (journal, state.ordinals[1:], record.closed)
    began = time.monotonic()
    if index.summary_mark == mark and not (running and began >= index.summary_until):
        return
    nodes: list[Node] = []
    for level in range(1, len(state.ordinals) + 1):
        read = await handle.store.tree(record.id, record.tree).level(level, 0)
        nodes += [node for node in read if node.revision]
    made_nodes = {node.id for node in nodes}
    # Texts in memory are not read again.
    texts = {
        name_of(summary): summary.revision
        for row in index.summary_index.levels.values()
        for summary in row.summaries
    }
    summaries = [
        Summary(
            record.id,
            node,
            texts.get((node.id, node.revision)),
            record.closed,
            node.parent in made_nodes,
        )
        for node in nodes
    ]
    parts = index.summary_index.parts
    missing = [summary for summary in summaries if name_of(summary) not in parts]
    many = len(missing) > _FEW
    stored: dict[tuple[str, int], Postings] = {}
    for level in sorted({summary.level for summary in missing}) if many else ():
        for block in await stored_blocks(handle.store, record.id, kind_of(level)):
            stored |= summary_index.unpack_texts(block.data)
    lacking = [summary for summary in missing if name_of(summary) not in stored]
    texts_of = {name_of(summary): summary for summary in await with_texts(handle, record, lacking)}
    # A summary whose text has left the store is left out.
    summaries = [
        found
        for summary in summaries
        if (found := texts_of.get(name_of(summary), summary)).revision or found is summary
    ]
    refreshed = partial(index.summary_index.refreshed, summaries, stored)
    index.summary_index = await asyncio.to_thread(refreshed) if many else refreshed()
    if many and may_be_stored(record):
        await _store(handle, index, record, stored)
    index.summary_mark = mark
    index.summary_until = time.monotonic() + (time.monotonic() - began) / _REFRESHING


async def _store(
    handle: Handle, index: SessionIndex, record: SessionRecord, stored: SummaryPostings
) -> None:
    """Store the postings of summaries, for each stretch in which one is missing."""
    blocks: list[Block] = []
    for level, row in index.summary_index.levels.items():
        for start, summaries in by_stretch(row.summaries):
            names = [name_of(summary) for summary in summaries]
            if not all(name in stored for name in names):
                data = summary_index.pack_texts(
                    {name: index.summary_index.parts[name] for name in names}
                )
                stop = max(summary.span.stop for summary in summaries)
                blocks.append(Block(kind_of(level), start, stop, data))
    for first in range(0, len(blocks), _AT_ONCE):
        try:
            part = blocks[first : first + _AT_ONCE]
            await handle.store.put_blocks(record.id, part, epoch=record.epoch)
        except StoreError as error:
            _log.info("an index was not kept: %s", type(error).__name__)
            return


def may_be_stored(record: SessionRecord) -> bool:
    """Return whether data derived from a summary may be stored in a block over its messages.

    With an overlap a summary is also made from messages before its own, and a block would outlive
    them.
    """
    return config_from(record.config).overlap == 0


def kind_of(level: int) -> str:
    """Return the kind of the blocks that hold the postings of a level's summaries."""
    return f"{KIND}-L{level}"


def by_stretch(summaries: Iterable[Summary]) -> list[tuple[int, list[Summary]]]:
    """Group summaries by the stretch of messages in which they begin; each group shares a block."""
    groups: dict[int, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(summary.span.start // STRIDE * STRIDE, []).append(summary)
    return sorted(groups.items())


async def with_texts(
    handle: Handle, record: SessionRecord, summaries: Sequence[Summary]
) -> list[Summary]:
    """Return the summaries with their texts, which an index does not read.

    A summary whose text has left the store stays without one.
    """
    wanted = [name_of(summary) for summary in summaries if summary.revision is None]
    if not wanted:
        return list(summaries)
    read = await handle.store.tree(record.id, record.tree).revisions(wanted)
    texts = {(revision.node_id, revision.number): revision for revision in read}
    return [
        replace(summary, revision=texts.get(name_of(summary)))
        if summary.revision is None
        else summary
        for summary in summaries
    ]


async def read_texts(handle: Handle, index: SessionIndex, record: SessionRecord) -> None:
    """Read the texts of all summaries of ``index``; their labels are stored with them."""
    levels = index.summary_index.levels
    rows = {
        level: replace(row, summaries=tuple(await with_texts(handle, record, row.summaries)))
        for level, row in levels.items()
    }
    if any(rows[level].summaries != row.summaries for level, row in levels.items()):
        index.summary_index = SummaryIndex(rows, index.summary_index.parts)
