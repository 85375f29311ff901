"""Writes the index over all sessions of a tenant, and reads the blocks that may answer a question.

::

    messages in no block ──▶ few? read at each search ── many? made into blocks ─┐
    blocks in no segment ──▶ few? read at each search ── many? made into a segment ◀┘

An append never adds to this index. The first search over all sessions indexes everything that is
not indexed yet, in pieces of one transaction each, and the next search continues one that was
killed. From then on updates index new messages, so that no later search has to. ``update_all`` may
do it before the first search. Two searches at once, in one process or two, do some work twice and
write nothing twice. If the store cannot be written, each search reads everything that is not
indexed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from hiermem.errors import BusyError, ReadOnlyError
from hiermem.handle import Handle
from hiermem.search import segments
from hiermem.search.index import Postings, pack
from hiermem.search.indexes import KIND, STRIDE, read_block
from hiermem.search.query import Query
from hiermem.search.segments import FULL, HEAD, MOST, Member, Part
from hiermem.types import SessionRecord
from hiermem.types.transaction import Block, IndexState, PlacedBlock, Segment

#: The most messages without a block, and blocks without a segment, that each search reads.
_FEW_MESSAGES: Final = 64
_FEW_BLOCKS: Final = 32
#: Sessions, and blocks, that are processed at a time; strides of one session among them.
_AT_ONCE: Final = 128
_STRIDES: Final = 32
#: This many segments that are not half full are made into one.
_SMALL: Final = 4
#: The name of the lock under which the index is written; no session has such a name.
_LOCK: Final = "\x00segments"


#: Blocks in memory, with the records of their sessions.
HeldBlocks: TypeAlias = tuple[tuple[SessionRecord, Postings], ...]


async def consult(handle: Handle, query: Query) -> tuple[tuple[Part, ...], HeldBlocks]:
    """Index what is missing, then read the entries for a question, in one state of the store.

    Returns the parts of the index, and the blocks of the last one, which is in memory. Raises
    BusyError if a session was changed meanwhile: try again.
    """
    handle.indexes.kept_by_updates = True
    pages, writable = {HEAD, *segments.page_numbers(query)}, True
    while True:
        limit = _AT_ONCE if writable else None
        state = await handle.store.index_state(sorted(pages), limit=limit)
        if writable and _is_behind(state):
            async with handle.indexes.lock(_LOCK):
                writable = await _catch_up(handle)
            continue
        parts = _segments(handle, state)
        if None in parts:
            # Damaged segments are dissolved, and their blocks are loose again.
            pairs = zip(state.segments, parts, strict=True)
            damaged = [segment.number for segment, part in pairs if part is None]
            await handle.store.put_segment([], {}, replaces=damaged)
            continue
        memory, blocks = await _in_memory(handle, state)
        return (*(part for part in parts if part is not None), memory), blocks


async def keep(handle: Handle) -> None:
    """Index what is missing, if the tenant was ever searched as a whole.

    A segment in the store says that it was, in any process.
    """
    indexes = handle.indexes
    if not indexes.kept_by_updates:
        state = await handle.store.index_state([], limit=0)
        indexes.kept_by_updates = bool(state.segments)
    if indexes.kept_by_updates:
        await prepare(handle)


async def prepare(handle: Handle) -> None:
    """Index what is missing; from now on updates keep the index complete."""
    handle.indexes.kept_by_updates = True
    async with handle.indexes.lock(_LOCK):
        await _catch_up(handle)


async def placed_blocks(
    handle: Handle, in_memory: HeldBlocks, wanted: Sequence[tuple[Part, int]]
) -> list[tuple[SessionRecord, Member, Postings]]:
    """Read blocks of the index, in the order given. Raises BusyError if one changed."""
    places = [(part.number, position) for part, position in wanted if part.number]
    read = await handle.store.segment_blocks(places) if places else []
    if len(read) < len(places):
        raise BusyError
    blocks: list[tuple[SessionRecord, Member, Postings]] = []
    stored = iter(read)
    for part, position in wanted:
        member = part.members[position]
        if not part.number:
            record, content = in_memory[position]
            blocks.append((record, member, content))
            continue
        placed = next(stored)
        blocks.append((placed.session, member, await _postings(handle, placed)))
    return blocks


def _segments(handle: Handle, state: IndexState) -> list[Part | None]:
    """Return the segments with the pages that were read; None for each that is damaged."""
    heads = handle.indexes.segments
    for number in heads.keys() - {segment.number for segment in state.segments}:
        del heads[number]
    return [
        (head := _head(handle, segment)) and segments.read_part(head, segment.pages, segment.dead)
        for segment in state.segments
    ]


def _head(handle: Handle, segment: Segment) -> Part | None:
    """Return the head of a segment, read once, since segments never change."""
    heads = handle.indexes.segments
    head = heads.get(segment.number)
    if head is None:
        head = segments.read_head(segment.number, segment.pages)
        if head is None or len(head.members) != segment.blocks:
            return None
        heads[segment.number] = head
    return head


async def _in_memory(handle: Handle, state: IndexState) -> tuple[Part, HeldBlocks]:
    """Return the blocks and messages of no segment as a part of the index; the last is cached."""
    loose = [(placed.session, placed.block.start, placed.block.stop) for placed in state.loose]
    gaps = [(record, *gap) for record, missing in state.unindexed for gap in missing]
    mark = [(record.id, record.epoch, start, stop) for record, start, stop in (*loose, *gaps)]
    indexes = handle.indexes
    if indexes.loose is None or indexes.loose[0] != mark:
        blocks = await _loose(handle, state)
        part = segments.in_memory([(member, content) for _, member, content in blocks])
        indexes.loose = mark, part, [content for *_, content in blocks]
    _, part, postings = indexes.loose
    records = {record.id: record for record, *_ in (*loose, *gaps)}
    pairs = zip(part.members, postings, strict=True)
    return part, tuple((records[member.session_id], content) for member, content in pairs)


async def _loose(handle: Handle, state: IndexState) -> list[tuple[SessionRecord, Member, Postings]]:
    """Return the loose blocks, and blocks made of the messages that are in no block."""
    blocks: list[tuple[SessionRecord, Member, Postings]] = []
    wanted = [(record, gap) for record, gaps in state.unindexed for gap in gaps]
    for placed in state.loose:
        content = await _postings(handle, placed)
        blocks.append((placed.session, _member(placed, content), content))
    for record, (start, stop) in wanted:
        handle.check_counter(record)
        for low in range(start // STRIDE * STRIDE, stop, STRIDE):
            place = record.id, max(low, start), min(low + STRIDE, stop)
            content = await handle.indexes.collect(*place)
            blocks.append((record, segments.member_of(*place, content), content))
    return blocks


async def _postings(handle: Handle, placed: PlacedBlock) -> Postings:
    """Read a block; if it is damaged, make it from its messages."""
    content = read_block(placed.block)
    if content is None:
        content = await handle.indexes.collect(
            placed.session.id, placed.block.start, placed.block.stop
        )
    return content


def _member(placed: PlacedBlock, content: Postings) -> Member:
    return segments.member_of(placed.session.id, placed.block.start, placed.block.stop, content)


def _is_behind(state: IndexState) -> bool:
    if state.loose and not state.segments:
        # The first segment tells every process that the tenant is searched as a whole.
        return True
    messages = sum(stop - start for _, gaps in state.unindexed for start, stop in gaps)
    return (
        messages > _FEW_MESSAGES
        or len(state.unindexed) >= _AT_ONCE
        or len(state.loose) > _FEW_BLOCKS
    )


async def _catch_up(handle: Handle) -> bool:
    """Index what is missing, piece by piece; return whether the store could be written."""
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

    If the session was changed meanwhile, the next read of the state shows it.
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
            content = await handle.indexes.stride(record, start)
        except BusyError:
            return
        stop = min(start + STRIDE, record.messages)
        blocks.append(Block(KIND, start, stop, pack(content)))
    await handle.store.put_blocks(record.id, blocks, epoch=record.epoch)


async def _merge(handle: Handle, state: IndexState) -> None:
    """Make a segment of the loose blocks, and of small segments if there are several."""
    heads = [(segment, _head(handle, segment)) for segment in state.segments]
    small = [
        (segment, part)
        for segment, head in heads
        if head and (part := segments.read_part(head, {}, segment.dead)) and _is_small(part)
    ]
    taken: list[tuple[PlacedBlock, Postings]] = []
    units = 0
    for placed in state.loose:
        content = await _postings(handle, placed)
        if taken and units + len(content) > MOST:
            break
        taken.append((placed, content))
        units += len(content)
    replaced = [segment.number for segment, head in heads if head is None]
    if len(small) >= _SMALL:
        for segment, part in sorted(small, key=lambda pair: pair[1].live):
            if units + part.live <= MOST:
                places = [(segment.number, position) for position in range(segment.blocks)]
                again = await handle.store.segment_blocks(places)
                taken += [(block, await _postings(handle, block)) for block in again]
                units += part.live
                replaced.append(segment.number)
    members = [(_member(placed, content), content) for placed, content in taken]
    pages = await asyncio.to_thread(lambda: segments.pages_of(segments.in_memory(members)))
    await handle.store.put_segment([placed for placed, _ in taken], pages, replaces=replaced)


def _is_small(part: Part) -> bool:
    return part.live < FULL // 2 or 2 * len(part.dead) >= len(part.members)
