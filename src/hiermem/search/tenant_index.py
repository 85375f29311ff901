"""Keeps the index over all sessions of a tenant, from the first search over them on.

::

    messages in no block ──▶ few? read at each search ── many? made into blocks ─┐
    blocks in no segment ──▶ few? read at each search ── many? made into a segment ◀┘

An append never adds to this index. The first search over all sessions indexes all that is not
indexed yet, in pieces of one transaction each, and the next search continues one that was killed.
From then on updates index what came since, so that no later search has to. ``update_all`` may do it
before the first search. Two searches at once, in one process or two, do some work twice and write
nothing twice. If the store cannot be written, each search reads everything that is not indexed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from hiermem.errors import ReadOnlyError, SessionChangedError
from hiermem.handle import Handle
from hiermem.search import postings, segments
from hiermem.search.indexes import KIND, STRIDE, read_block
from hiermem.search.postings import Postings
from hiermem.search.query import Query
from hiermem.search.segments import FULL, HEAD, MOST, Member, Part
from hiermem.types import SessionRecord
from hiermem.types.transaction import Block, IndexState, PlacedBlock, Segment

#: So many messages without a block, and so many blocks without a segment, are read at each search.
_FEW_MESSAGES: Final = 64
_FEW_BLOCKS: Final = 32
#: Sessions, and blocks, that are processed at a time; strides of one session among them.
_AT_ONCE: Final = 128
_STRIDES: Final = 32
#: So many segments that are not half full are made into one.
_SMALL: Final = 4
#: The name of the lock under which the index is written; no session has such a name.
_LOCK: Final = "\x00segments"


#: Blocks that are in memory, with the sessions that they are of.
HeldBlocks: TypeAlias = tuple[tuple[SessionRecord, Postings], ...]


async def consult(handle: Handle, query: Query) -> tuple[tuple[Part, ...], HeldBlocks]:
    """Read what the index holds of a question, in one state of the store; before, index the rest.

    Returns its parts, and the blocks of the last one, which is in memory. Raises
    SessionChangedError where a session was changed meanwhile: try again.
    """
    handle.indexes.kept_by_updates = True
    pages, kept = {HEAD, *segments.page_numbers(query)}, True
    while True:
        limit = _AT_ONCE if kept else None
        state = await handle.store.index_state(sorted(pages), limit=limit)
        if kept and _is_behind(state):
            async with handle.indexes.lock(_LOCK):
                kept = await _catch_up(handle)
            continue
        found = _segments(handle, state)
        if None in found:
            # Damaged ones are dissolved, and their blocks are loose again.
            pairs = zip(state.segments, found, strict=True)
            damaged = [one.number for one, part in pairs if part is None]
            await handle.store.put_segment([], {}, replaces=damaged)
            continue
        memory, held = await _in_memory(handle, state)
        return (*(part for part in found if part is not None), memory), held


async def keep(handle: Handle) -> None:
    """Index what is not indexed, if the tenant was ever searched as a whole.

    A segment in the store says that it was, in any process.
    """
    indexes = handle.indexes
    if not indexes.kept_by_updates:
        state = await handle.store.index_state([], limit=0)
        indexes.kept_by_updates = bool(state.segments)
    if indexes.kept_by_updates:
        await prepare(handle)


async def prepare(handle: Handle) -> None:
    """Index what is not indexed yet; from now on updates keep it so."""
    handle.indexes.kept_by_updates = True
    async with handle.indexes.lock(_LOCK):
        await _catch_up(handle)


async def placed_blocks(
    handle: Handle, in_memory: HeldBlocks, wanted: Sequence[tuple[Part, int]]
) -> list[tuple[SessionRecord, Member, Postings]]:
    """Read blocks of the index, in the order given. Raises SessionChangedError if one changed."""
    places = [(part.number, place) for part, place in wanted if part.number]
    read = await handle.store.segment_blocks(places) if places else []
    if len(read) < len(places):
        raise SessionChangedError("of this tenant")
    found: list[tuple[SessionRecord, Member, Postings]] = []
    stored = iter(read)
    for part, place in wanted:
        member = part.members[place]
        if not part.number:
            record, own = in_memory[place]
            found.append((record, member, own))
            continue
        one = next(stored)
        found.append((one.session, member, await _postings(handle, one)))
    return found


# ---------------------------------------------------------------------------------------------
# Reading


def _segments(handle: Handle, state: IndexState) -> list[Part | None]:
    """Return the segments with the pages that were read; None for each that is damaged."""
    heads = handle.indexes.segments
    for number in heads.keys() - {one.number for one in state.segments}:
        del heads[number]
    found: list[Part | None] = []
    for one in state.segments:
        head = _head(handle, one)
        found.append(head and segments.read_part(head, one.pages, one.dead))
    return found


def _head(handle: Handle, segment: Segment) -> Part | None:
    """Return what a segment is made of; a segment never changes, so that is read once."""
    heads = handle.indexes.segments
    found = heads.get(segment.number)
    if found is None:
        found = segments.read_head(segment.number, segment.pages)
        if found is None or len(found.members) != segment.blocks:
            return None
        heads[segment.number] = found
    return found


async def _in_memory(handle: Handle, state: IndexState) -> tuple[Part, HeldBlocks]:
    """Return what no segment has, as a part of the index; the last one is remembered."""
    loose = [(one.session, one.block.start, one.block.stop) for one in state.loose]
    gaps = [(record, *gap) for record, held in state.unindexed for gap in held]
    mark = [(one.id, one.epoch, start, stop) for one, start, stop in (*loose, *gaps)]
    indexes = handle.indexes
    if indexes.loose is None or indexes.loose[0] != mark:
        blocks = await _loose(handle, state)
        part = segments.in_memory([(member, held) for _, member, held in blocks])
        indexes.loose = mark, part, [held for *_, held in blocks]
    _, part, postings = indexes.loose
    records = {record.id: record for record, *_ in (*loose, *gaps)}
    pairs = zip(part.members, postings, strict=True)
    return part, tuple((records[member.session_id], held) for member, held in pairs)


async def _loose(handle: Handle, state: IndexState) -> list[tuple[SessionRecord, Member, Postings]]:
    """Return what no segment has: loose blocks, and messages that are in no block."""
    found: list[tuple[SessionRecord, Member, Postings]] = []
    wanted = [(record, gap) for record, gaps in state.unindexed for gap in gaps]
    for one in state.loose:
        held = await _postings(handle, one)
        found.append((one.session, _member(one, held), held))
    for record, (start, stop) in wanted:
        handle.check_counter(record)
        for low in range(start // STRIDE * STRIDE, stop, STRIDE):
            first, last = max(low, start), min(low + STRIDE, stop)
            own = await handle.indexes.collect(record.id, first, last)
            found.append((record, segments.member_of(record.id, first, last, own), own))
    return found


async def _postings(handle: Handle, one: PlacedBlock) -> Postings:
    """Read a block; if it is damaged, make it from its messages."""
    found = read_block(one.block)
    if found is None:
        found = await handle.indexes.collect(one.session.id, one.block.start, one.block.stop)
    return found


def _member(one: PlacedBlock, held: Postings) -> Member:
    return segments.member_of(one.session.id, one.block.start, one.block.stop, held)


# ---------------------------------------------------------------------------------------------
# Writing


def _is_behind(state: IndexState) -> bool:
    if state.loose and not state.segments:
        return (
            True  # the first segment says in every process that the tenant is searched as a whole
        )
    messages = sum(stop - start for _, gaps in state.unindexed for start, stop in gaps)
    return (
        messages > _FEW_MESSAGES
        or len(state.unindexed) >= _AT_ONCE
        or len(state.loose) > _FEW_BLOCKS
    )


async def _catch_up(handle: Handle) -> bool:
    """Index what is not indexed, piece by piece; return whether it was written."""
    while True:
        state = await handle.store.index_state([HEAD], limit=_AT_ONCE)
        if not _is_behind(state):
            return True
        try:
            if len(state.loose) >= _AT_ONCE or not state.unindexed:
                await _merge(handle, state)
            else:
                await asyncio.gather(
                    *(_put(handle, record, gaps) for record, gaps in state.unindexed)
                )
        except ReadOnlyError:
            return False


async def _put(handle: Handle, record: SessionRecord, gaps: Sequence[tuple[int, int]]) -> None:
    """Store the blocks of the first strides with a gap.

    Where the session was changed meanwhile, that is seen when the state is read again.
    """
    handle.check_counter(record)
    strides = {
        low
        for start, stop in gaps
        for low in range(start // STRIDE * STRIDE, min(stop, start + _STRIDES * STRIDE), STRIDE)
    }
    blocks: list[Block] = []
    for start in sorted(strides)[:_STRIDES]:
        try:
            held = await handle.indexes.stride(record, start)
        except SessionChangedError:
            return
        stop = min(start + STRIDE, record.messages)
        blocks.append(Block(KIND, start, stop, postings.pack(held)))
    await handle.store.put_blocks(record.id, blocks, epoch=record.epoch)


async def _merge(handle: Handle, state: IndexState) -> None:
    """Make a segment of the loose blocks, and of small segments where there are several."""
    heads = [(one, _head(handle, one)) for one in state.segments]
    small = [
        (one, part)
        for one, head in heads
        if head and (part := segments.read_part(head, {}, one.dead)) and _is_small(part)
    ]
    taken: list[tuple[PlacedBlock, Postings]] = []
    units = 0
    for one in state.loose:
        held = await _postings(handle, one)
        if taken and units + len(held) > MOST:
            break
        taken.append((one, held))
        units += len(held)
    replaced = [one.number for one, head in heads if head is None]
    if len(small) >= _SMALL:
        for segment, part in sorted(small, key=lambda each: each[1].live):
            if units + part.live <= MOST:
                places = [(segment.number, place) for place in range(segment.blocks)]
                again = await handle.store.segment_blocks(places)
                taken += [(block, await _postings(handle, block)) for block in again]
                units += part.live
                replaced.append(segment.number)
    members = [(_member(one, held), held) for one, held in taken]
    pages = await asyncio.to_thread(lambda: segments.pages_of(segments.in_memory(members)))
    await handle.store.put_segment([one for one, _ in taken], pages, replaces=replaced)


def _is_small(part: Part) -> bool:
    return part.live < FULL // 2 or 2 * len(part.dead) >= len(part.members)
