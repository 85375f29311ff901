"""Keeps the index of a session's summaries up to date with its updates.

Summaries are made by runs, and runs are journalled. Between runs an append may seal a group, which
becomes the parent of made summaries, and a session may be closed. If the journal, the number of
groups and the closing are unchanged, the index is still right. While a run is under way the index
is refreshed repeatedly, but only for a small share of the time.

Loads the vectors of a session, as far as they are made, and identifies their embedder.

All vectors of a session belong to one embedder, and each to exactly the text that it was made from;
a vector that does not fit its units counts as missing. Vectors stay loaded as long as the index
that they belong to, so after an append only the new ones are read. ``embed`` makes vectors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from hiermem.errors import EmbedderMismatchError, NotFoundError, StoreError
from hiermem.handle import Handle, session_state
from hiermem.search import ranking as core_index
from hiermem.search import vectors as packed
from hiermem.search.embedding_state import EMBEDDER, Identity
from hiermem.search.index import Index
from hiermem.search.indexes import KIND, STRIDE, SessionIndex, stored_blocks
from hiermem.search.postings import Array
from hiermem.search.ranking import Part, SummaryIndex, SummaryLevel, SummaryPostings, name_of
from hiermem.search.vectors import Vectors
from hiermem.tree.fold import config_from
from hiermem.types import Node, SessionRecord, Summary
from hiermem.types.transaction import Block

#: A summary, or the node of one.
Spanning = TypeVar("Spanning", Summary, Node)

_log = logging.getLogger("hiermem.search")
#: How many of the newest runs are examined.
_RUNS: Final = 8
#: Refreshing the index takes at most this share of the time.
_REFRESHING: Final = 0.1
#: More texts than this are read on a thread, and their postings are stored.
_FEW: Final = 16
#: Nodes read at once.
_PAGE: Final = 1024
#: Blocks written in one go.
_AT_ONCE: Final = 32


async def journal_mark(handle: Handle, record: SessionRecord) -> tuple[object, bool]:
    """Return a value that changes whenever a run begins or ends, and whether a run is under way."""
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    mark = tuple((run.id, run.outcome) for run in runs)
    return (record.tree, record.epoch, mark), any(run.outcome == "running" for run in runs)


async def refresh(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
    """Bring the summary index of ``held`` up to date, if it may be out of date."""
    journal, running = await journal_mark(handle, record)
    state = session_state(record)
    # A window that was sealed since has no text yet, so the ordinals of level 1 do not count.
    mark = (journal, state.ordinals[1:], record.closed)
    began = time.monotonic()
    if held.summary_mark == mark and not (running and began >= held.summary_until):
        return
    nodes: list[Node] = []
    for level in range(1, len(state.ordinals) + 1):
        read = await handle.store.tree(record.id, record.tree).level(level, 0)
        nodes += [node for node in read if node.revision]
    made = {node.id for node in nodes}
    # The texts that are in memory are not read again.
    known = {
        name_of(each): each.revision
        for row in held.summary_index.levels.values()
        for each in row.summaries
    }
    summaries = [
        Summary(
            record.id, node, known.get((node.id, node.revision)), record.closed, node.parent in made
        )
        for node in nodes
    ]
    missing = [each for each in summaries if name_of(each) not in held.summary_index.parts]
    if len(missing) <= _FEW:
        summaries = await _readable(handle, record, summaries, missing)
        held.summary_index = held.summary_index.refreshed(summaries, {})
    else:
        kept: dict[tuple[str, int], Part] = {}
        for level in sorted({each.level for each in missing}):
            for block in await stored_blocks(handle.store, record.id, kind_of(level)):
                kept |= core_index.unpack(block.data)
        lacking = [each for each in missing if name_of(each) not in kept]
        summaries = await _readable(handle, record, summaries, lacking)
        held.summary_index = await asyncio.to_thread(held.summary_index.refreshed, summaries, kept)
        if may_be_stored(record):
            await _store(handle, held, record, kept)
    held.summary_mark = mark
    held.summary_until = time.monotonic() + (time.monotonic() - began) / _REFRESHING


async def _store(
    handle: Handle, held: SessionIndex, record: SessionRecord, kept: SummaryPostings
) -> None:
    """Store the postings of summaries, for each stretch in which one is missing."""
    blocks: list[Block] = []
    for level, row in held.summary_index.levels.items():
        for start, summaries in by_stretch(row.summaries):
            names = [name_of(each) for each in summaries]
            if not all(name in kept for name in names):
                data = core_index.pack({name: held.summary_index.parts[name] for name in names})
                stop = max(each.span.stop for each in summaries)
                blocks.append(Block(kind_of(level), start, stop, data))
    for first in range(0, len(blocks), _AT_ONCE):
        try:
            part = blocks[first : first + _AT_ONCE]
            await handle.store.put_blocks(record.id, part, epoch=record.epoch)
        except StoreError as error:
            _log.info("an index was not kept: %s", type(error).__name__)
            return


async def store_ahead(handle: Handle, record: SessionRecord) -> None:
    """Store the postings of a session's newest summaries, for its next search.

    Errors are logged: an index that is not kept costs time at the next search and nothing else.
    """
    if not may_be_stored(record):
        return
    try:
        for level in range(1, len(session_state(record).ordinals) + 1):
            await _store_level(handle, record, level)
    except (StoreError, NotFoundError) as error:
        _log.info("an index was not kept: %s", type(error).__name__)


async def _store_level(handle: Handle, record: SessionRecord, level: int) -> None:
    """Store the postings of a level's made summaries, back to a stretch of which all are stored."""
    tree, stop = (
        handle.store.tree(record.id, record.tree),
        session_state(record).next_ordinal(level),
    )
    while stop:
        start = max(0, stop - _PAGE)
        nodes = await tree.level(level, start, stop)
        rows = by_stretch(nodes)
        if start and len(rows) > 1:
            # The first stretch may begin on the page before.
            _, held = rows.pop(0)
            start = min(node.ordinal for node in held) + len(held)
        for first, held in reversed(rows):
            if not await _store_stretch(handle, record, level, first, held):
                return
        stop = start


async def _store_stretch(
    handle: Handle, record: SessionRecord, level: int, start: int, nodes: Sequence[Node]
) -> bool:
    """Store the postings of the summaries that begin in one stretch; return whether any lacked."""
    kept: dict[tuple[str, int], Part] = {}
    for block in await handle.store.blocks(record.id, kind_of(level), start, start + 1):
        kept |= core_index.unpack(block.data)
    names = [(node.id, node.revision) for node in nodes if node.revision]
    missing = [name for name in names if name not in kept]
    if not missing:
        return not names
    tree = handle.store.tree(record.id, record.tree)
    made = {node.id: node for node in nodes}
    read = [
        Summary(record.id, made[revision.node_id], revision, record.closed)
        for revision in await tree.revisions(missing)
    ]
    kept |= await asyncio.to_thread(core_index.postings_of, read)
    parts = {name: kept[name] for name in names if name in kept}
    end = max(node.span.stop for node in nodes)
    await handle.store.put_blocks(
        record.id, [Block(kind_of(level), start, end, core_index.pack(parts))], epoch=record.epoch
    )
    return True


def may_be_stored(record: SessionRecord) -> bool:
    """Return whether data derived from a summary may be stored in a block over its messages.

    With an overlap a summary was also shown some of the messages before those, and a block would
    outlive what it was made from.
    """
    return config_from(record.config).overlap == 0


def kind_of(level: int) -> str:
    """Return the kind of the blocks that hold the postings of a level's summaries."""
    return f"{KIND}-L{level}"


def by_stretch(summaries: Iterable[Spanning]) -> list[tuple[int, list[Spanning]]]:
    """Group summaries by the stretch of messages in which they begin; each group shares a block."""
    found: dict[int, list[Spanning]] = {}
    for each in summaries:
        found.setdefault(each.span.start // STRIDE * STRIDE, []).append(each)
    return sorted(found.items())


async def _readable(
    handle: Handle,
    record: SessionRecord,
    summaries: Sequence[Summary],
    lacking: Sequence[Summary],
) -> list[Summary]:
    """Return ``summaries`` with the texts of those ``lacking``; leave out any without a text."""
    read = {name_of(each): each for each in await with_texts(handle, record, lacking)}
    wanted = (read.get(name_of(each), each) for each in summaries)
    return [each for each in wanted if name_of(each) not in read or each.revision is not None]


async def with_texts(
    handle: Handle, record: SessionRecord, summaries: Sequence[Summary]
) -> list[Summary]:
    """Return the summaries with their texts, which an index does not read.

    A summary whose text is not in the store any more has still none.
    """
    wanted = [name_of(each) for each in summaries if each.revision is None]
    if not wanted:
        return list(summaries)
    read = await handle.store.tree(record.id, record.tree).revisions(wanted)
    texts = {(revision.node_id, revision.number): revision for revision in read}
    return [
        replace(each, revision=texts.get(name_of(each))) if each.revision is None else each
        for each in summaries
    ]


async def read_texts(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
    """Read the texts of all summaries of ``held``, with which their labels are stored."""
    levels = held.summary_index.levels
    rows = {
        level: replace(row, summaries=tuple(await with_texts(handle, record, row.summaries)))
        for level, row in levels.items()
    }
    if any(rows[level].summaries != row.summaries for level, row in levels.items()):
        held.summary_index = SummaryIndex(rows, held.summary_index.parts)


#: The key of the record with the state in which a session had all its vectors.
EMBEDDED_STATE: Final = "reached"
#: How many of the newest runs are searched for a run that is not an embedding pass.
#: Blocks of vectors read in one go.


# ---------------------------------------------------------------------------------------------
# Identity


async def identity_of(handle: Handle, session_id: str) -> Identity | None:
    """Return the embedder of a session's vectors; None if it has none."""
    found = await handle.store.records(EMBEDDER, scope=session_id, key="identity")
    return Identity.from_json(found[0].body) if found else None


async def embedded_state(handle: Handle, record: SessionRecord) -> str:
    """Return the state of a session, as far as it decides which vectors it should have.

    A complete pass stores it. It holds 0 messages where messages get no vectors, and the newest run
    that may have made summaries, with its outcome.
    """
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    made = next((f"{run.id} {run.outcome}" for run in runs if run.kind != "embedding"), "")
    messages = record.messages if handle.search_policy.embed_messages else 0
    return json.dumps([record.epoch, record.tree, messages, made])


async def lacks(handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session may lack vectors of this handle's embedder.

    A session with another embedder's vectors lacks none: those are dropped on request only. The
    cost is two short reads.
    """
    client = handle.embedder_client
    if client is None or not record.messages or record.counter != handle.counter.name:
        return False
    found = await handle.store.records(EMBEDDER, scope=record.id)
    kept = {each.key: each.body for each in found}
    if "identity" in kept and Identity.from_json(kept["identity"]) != client.identity:
        return False
    return kept.get(EMBEDDED_STATE) != await embedded_state(handle, record)


def agree(session_id: str, kept: Identity | None, given: Identity) -> None:
    """Refuse to mix embedders. Raises EmbedderMismatchError."""
    if kept is not None and kept != given:
        raise EmbedderMismatchError(
            session_id,
            made=f"{kept.name!r} ({kept.dimension} dimensions)",
            given=f"{given.name!r} ({given.dimension} dimensions)",
        )


# ---------------------------------------------------------------------------------------------
# Loading


async def load_vectors(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
    """Read the vectors of ``held``, or read them again if a pass may have made more since.

    Call it under the index's lock. Raises EmbedderMismatchError.
    """
    client = handle.embedder_client
    if client is None:
        return
    mark = (held.messages, await journal_mark(handle, record), held.summary_index)
    if held.vectors_mark == mark:
        return
    kept = await identity_of(handle, record.id)
    agree(record.id, kept, client.identity)
    if kept is None:
        held.vectors, held.summary_vectors = None, {}
    else:
        held.vectors = await _unit_vectors(handle, held, kept)
        held.summary_vectors = {
            level: await _summary_vectors(handle, held, kept, row)
            for level, row in held.summary_index.levels.items()
        }
    held.vectors_mark = mark


async def _unit_vectors(handle: Handle, held: SessionIndex, identity: Identity) -> Vectors:
    """Read what is not in memory of an index, which has grown from that of the known vectors."""
    index, known = held.index, held.vectors
    units = Vectors.none(identity.dimension) if known is None else known
    parts: list[tuple[int, Array]] = []
    for start, stop in _lacking(index, units):
        for block in await stored_blocks(handle.store, held.record.id, identity.kind, start, stop):
            part = vectors_in(index, block, identity)
            if part is not None:
                parts.append((place_of(index, block.start), part))
    # Over an index without units too, vectors have the levels of the index.
    if known is None or len(index) > len(units.present) or parts:
        units = await asyncio.to_thread(units.extended, index, parts)
    return units


def _lacking(index: Index, units: Vectors) -> list[tuple[int, int]]:
    """Return the runs of strides, in messages, in which a unit has no vector yet."""
    known = len(units.present)
    without = np.append(~units.present, np.ones(len(index) - known, dtype=bool))
    found: list[tuple[int, int]] = []
    for stride in np.unique(index.units.message[without] // STRIDE).tolist():
        start = stride * STRIDE
        if found and found[-1][1] == start and start - found[-1][0] < _AT_ONCE * STRIDE:
            found[-1] = (found[-1][0], start + STRIDE)
        else:
            found.append((start, start + STRIDE))
    return found


async def _summary_vectors(
    handle: Handle, held: SessionIndex, identity: Identity, row: SummaryLevel
) -> tuple[Sequence[tuple[str, int]], Array]:
    """Return the names and the vectors of a level's summaries: known ones, those in the store."""
    level = row.summaries[0].level
    names = [name_of(each) for each in row.summaries]
    table = np.full((len(names), identity.dimension), np.nan, dtype=np.float32)
    kept: dict[tuple[str, int], Array] = {}
    if level in held.summary_vectors:
        pairs = zip(*held.summary_vectors[level], strict=True)
        kept = {name: vector for name, vector in pairs if not np.isnan(vector[0])}
    lacking = [each for each in row.summaries if name_of(each) not in kept]
    if lacking:
        starts = [start for start, _ in by_stretch(lacking)]
        kept |= await stored_summaries(
            handle, held.record.id, identity, level, start=starts[0], stop=starts[-1] + 1
        )
    for place, name in enumerate(names):
        if name in kept:
            table[place] = kept[name]
    return names, table


async def stored_summaries(
    handle: Handle, session_id: str, identity: Identity, level: int, *, start: int, stop: int
) -> dict[tuple[str, int], Array]:
    """Return the vectors of a level's summaries in the blocks over a range of messages."""
    found: dict[tuple[str, int], Array] = {}
    for block in await stored_blocks(
        handle.store, session_id, identity.kind_of(level), start, stop
    ):
        found |= packed.unpack_summaries(block.data, dimension=identity.dimension)
    return found


def place_of(index: Index, message: int) -> int:
    """Return the first unit of a message, or where it would be."""
    return int(np.searchsorted(index.units.message, message))


def vectors_in(index: Index, block: Block, identity: Identity) -> Array | None:
    """Return a block's vectors; None if it does not fit its units."""
    many = place_of(index, block.stop) - place_of(index, block.start)
    return packed.unpack(block.data, many=many, dimension=identity.dimension)
