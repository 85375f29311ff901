"""Reads and writes the index over messages: blocks, and the segments made of blocks of terms.

A block of terms has a place: the segment that holds it, or none, while it is loose. A segment
states its members by the serials of their blocks: a member whose block was replaced is dead.
Whoever changes blocks or places adds to a counter of the session and to one of the tenant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hiermem.records import rows, sessions
from hiermem.records.contract import check, decode, pack, shape
from hiermem.records.sessions import Session
from hiermem.records.tables import Key, Row, Scan
from hiermem.records.transaction import ConflictingWrite, Transaction
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx


class _Member(NamedTuple):
    """A block of a segment: its session's number and id, its range, and its serial."""

    session: int
    id: str
    start: int
    stop: int
    block: int


_MEMBER: Final = shape("isiii")


def _place_key(t: Transaction, number: int, start: int) -> Key:
    return Key("places", (t.tenant, number, start))


def _segment_key(t: Transaction, segment: int) -> Key:
    return Key("segments", (t.tenant, segment))


def _blocks_guard(t: Transaction, number: int) -> Key:
    return Key("coverage", (t.tenant, number))


def _index_guard(t: Transaction) -> Key:
    return Key("counters", (t.tenant, "index", ""))


async def _touch(t: Transaction, number: int, more: int = 0) -> int:
    """Note that blocks of a session changed, and cover ``more`` messages; return how many now."""
    key = _blocks_guard(t, number)
    row = await t.get(key)
    covered: int = (row[3] if row else 0) + more
    t.put("coverage", (*key.columns, t.serial(), covered))
    t.count("index", "")
    return covered


def _block(row: Row) -> tx.Block:
    _, _, kind, start, stop, _, data = row
    return rows.BLOCKS.read((kind, start, stop, data))


def _put_place(t: Transaction, member: _Member, segment: int = 0, place: int = 0) -> None:
    loose = None if segment else 1
    t.put("places", (
        t.tenant, member.session, member.start, member.stop, member.block, segment, place, loose,
        member.id,
    ))  # fmt: skip


async def blocks(
    t: Transaction, session_id: str, kind: str, start: int = 0, stop: int | None = None
) -> list[tx.Block]:
    """Return the blocks of ``kind`` whose own ``start`` is in that range, by ``start``."""
    place = await sessions.place_of(t, session_id)
    if place is None or (stop is not None and stop <= start):
        return []
    below = () if stop is None else (stop,)
    found = await t.scan(Scan("blocks", (t.tenant, place.number, kind), (start - 1,), below))
    return decode(found, _block, "blocks")


async def every_block(t: Transaction, number: int) -> list[tx.Block]:
    """Return all blocks of a session in the order in which they were written."""
    found = sorted(await t.scan(Scan("blocks", (t.tenant, number))), key=lambda row: row[5])
    return decode(found, _block, "blocks")


async def put_blocks(
    t: Transaction, session_id: str, blocks: Sequence[tx.Block], *, epoch: int
) -> bool:
    """Insert the blocks, or replace those of the same kind and start; return whether.

    Rewriting a message drops, in the same transaction, the blocks that hold its index.
    """
    t.guess(sessions.place_key(t, session_id))
    place = await sessions.place_of(t, session_id)
    if place is None or place.epoch != epoch:
        return False
    number, terms = place.number, [block for block in blocks if block.kind == tx.TERMS]
    keys = [_place_key(t, number, block.start) for block in terms]
    await t.want(
        [_blocks_guard(t, number), *keys, *([sessions.head_key(t, session_id)] * bool(terms))]
    )
    more = 0
    for block, key in zip(terms, keys, strict=True):
        row = await t.get(key, _blocks_guard(t, number))
        more += block.stop - (row[3] if row else block.start)
        if row is not None and row[5]:  # its segment holds a block that is replaced
            t.put("dead", (t.tenant, row[5], row[6]))
    for block in blocks:
        serial = t.serial()
        t.put("blocks", (
            t.tenant, number, block.kind, block.start, block.stop, serial, block.data,
        ))  # fmt: skip
        t.put("kinds", (t.tenant, number, block.kind))
        if block.kind == tx.TERMS:
            _put_place(t, _Member(number, session_id, block.start, block.stop, serial))
    covered = await _touch(t, number, more)
    if terms:
        await _note_indexed(t, session_id, covered)
    return True


async def _note_indexed(t: Transaction, session_id: str, covered: int) -> None:
    """Take the session off the list of the unindexed, if its blocks now cover all messages."""
    found = await sessions.find(t, session_id)
    if found is None or not found.unindexed or covered < found.record.messages:
        t.release(sessions.head_key(t, session_id))
        return
    sessions.write(t, found, found.record, number=found.number, unindexed=False)


async def _gaps(t: Transaction, found: Session) -> tuple[tuple[int, int], ...]:
    """Return the stretches of a session's messages that no block of terms covers."""
    places = await t.scan(Scan("places", (t.tenant, found.number)))
    gaps: list[tuple[int, int]] = []
    reached, stop = 0, found.record.messages
    for low, high in [*(row[2:4] for row in places), (stop, stop)]:
        if reached < min(low, stop):
            gaps.append((reached, min(low, stop)))
        reached = max(reached, high)
    return tuple(gaps)


async def drop_blocks(t: Transaction, session_id: str, kind: str) -> None:
    """Remove all blocks of that kind."""
    found = await sessions.find(t, session_id)
    if found is None:
        return
    t.wipe(Key("blocks", (t.tenant, found.number, kind)))
    row = await t.get(_blocks_guard(t, found.number))
    await _touch(t, found.number, -row[3] if row and kind == tx.TERMS else 0)
    if kind == tx.TERMS:
        await dissolve(t, found.number)
        t.wipe(Key("places", (t.tenant, found.number)))
        _note_unindexed(t, found)


def _note_unindexed(t: Transaction, found: Session) -> None:
    if not found.unindexed and found.record.messages:
        sessions.write(t, found, found.record, number=found.number, unindexed=True)


def covering_scans(t: Transaction, found: Session) -> list[Scan]:
    """Return the scans that ``drop_covering`` begins with."""
    of = (t.tenant, found.number)
    return [Scan("kinds", of), Scan("sources", of)]


async def drop_covering(t: Transaction, found: Session, indices: Sequence[int]) -> bool:
    """Drop the blocks that hold these messages, and the segments made of them; return whether.

    True says that messages have no block of terms any more, which the session's head must note.
    """
    number, guard = found.number, _blocks_guard(t, found.number)
    kinds = [row[2] for row in await t.scan(covering_scans(t, found)[0], guard)]
    # Blocks of a kind follow one another: the last that begins before a message may hold it.
    of = (t.tenant, number)
    scans = [
        (index, Scan("blocks", (*of, kind), (), (index + 1,), limit=1, reverse=True))
        for index in indices
        for kind in kinds
    ]
    await t.want((), [scan for _, scan in scans])
    held = {row[:5] for index, scan in scans for row in await t.scan(scan, guard) if index < row[4]}
    lost = 0
    for *columns, stop in held:
        t.delete(Key("blocks", tuple(columns)))
        if columns[2] == tx.TERMS:
            t.delete(_place_key(t, number, columns[3]))
            lost += stop - columns[3]
    for index in indices:
        await dissolve(t, number, index)
    await _touch(t, number, -lost)
    return lost > 0


async def _members(t: Transaction, segments: Iterable[Any]) -> dict[int, list[_Member]]:
    wanted = list(segments)
    await t.want(_segment_key(t, segment) for segment in wanted)
    found = {segment: await t.get(_segment_key(t, segment)) for segment in wanted}
    return {segment: _read_members(row) for segment, row in found.items() if row is not None}


def _read_members(row: Row) -> list[_Member]:
    return decode([row], _members_of, "segments")[0]


def _members_of(row: Row) -> list[_Member]:
    members = [_Member(*member) for member in json.loads(row[2])]
    for member in members:
        check(member, _MEMBER)
    return members


async def dissolve(t: Transaction, number: int, index: int | None = None) -> None:
    """Dissolve the segments with a block, dead or not, that covers a message, or any message."""
    sources = await t.scan(Scan("sources", (t.tenant, number)), _blocks_guard(t, number))
    for segment, members in (await _members(t, [row[2] for row in sources])).items():
        if any(
            member.session == number and (index is None or member.start <= index < member.stop)
            for member in members
        ):
            await _dissolve(t, segment, members)


async def _dissolve(t: Transaction, segment: int, members: Sequence[_Member]) -> None:
    for member, is_live in zip(members, await _live(t, members), strict=True):
        t.delete(Key("sources", (t.tenant, member.session, segment)))
        if is_live:
            _put_place(t, member)
        await _touch(t, member.session)
    for table in ("pages", "dead"):
        t.wipe(Key(table, (t.tenant, segment)))
    t.delete(_segment_key(t, segment))


async def _live(t: Transaction, members: Sequence[_Member]) -> list[bool]:
    """Return for each member whether this very block is stored, and not its replacement."""
    keys = [_place_key(t, member.session, member.start) for member in members]
    guards = [_blocks_guard(t, member.session) for member in members]
    await t.want([*keys, *guards])
    found = [await t.get(*each) for each in zip(keys, guards, strict=True)]
    return [
        row is not None and row[4] == member.block
        for row, member in zip(found, members, strict=True)
    ]


async def index_state(
    t: Transaction, pages: Sequence[int] = (), *, limit: int | None = 100
) -> tx.IndexState:
    """Return the segments with these pages, the loose blocks, and what has no block of terms.

    All of it is of one state of the store. Segments come by number, all of them; loose blocks
    by the creation of their session, then by start, up to ``limit``; unindexed sessions by
    creation, up to ``limit`` too. The cost is proportional to the result, not to the number of
    sessions.
    """
    most = None if limit is None else max(limit, 0)
    every = Scan("segments", (t.tenant,))
    dead = Scan("dead", (t.tenant,))
    loose = Scan("places", (t.tenant, 1), index="loose", limit=most)
    behind = Scan("heads", (t.tenant,), index="unindexed", limit=most)
    # The lists are of one state; what they name is read under the guard of their changes.
    await t.want([_index_guard(t)], [every, dead, loose, behind])
    await t.rely(_index_guard(t))
    members = {row[1]: len(_read_members(row)) for row in await t.scan(every)}
    gone: dict[Any, list[Any]] = {}
    for row in await t.scan(dead):
        gone.setdefault(row[1], []).append(row[2])
    marks = await t.scan(loose)
    waiting: list[Any] = [row[1] for row in await t.scan(behind)]
    owners: list[Any] = list(dict.fromkeys([*(row[8] for row in marks), *waiting]))
    await t.want([
        *(Key("pages", (t.tenant, segment, page)) for segment in members for page in pages),
        *(Key("blocks", (t.tenant, row[1], tx.TERMS, row[2])) for row in marks),
        *(key(t, id_) for id_ in owners for key in (sessions.place_key, sessions.head_key)),
    ])  # fmt: skip
    made: list[tx.Segment] = []
    for segment, count in members.items():
        rows_ = {page: await t.get(Key("pages", (t.tenant, segment, page))) for page in pages}
        held: dict[int, Any] = {page: row[3] for page, row in rows_.items() if row is not None}
        made.append(tx.Segment(segment, count, tuple(gone.get(segment, ())), held))
    return tx.IndexState(
        tuple(made),
        tuple([await _loose_block(t, row) for row in marks]),
        tuple(await _behind(t, waiting, most)),
    )


async def _loose_block(t: Transaction, mark: Row) -> tx.PlacedBlock:
    found = await sessions.find(t, mark[8])
    row = await t.get(Key("blocks", (t.tenant, mark[1], tx.TERMS, mark[2])))
    if found is None or row is None:
        raise ConflictingWrite
    return tx.PlacedBlock(found.record, decode([row], _block, "blocks")[0])


async def _behind(
    t: Transaction, ids: Sequence[Any], most: int | None
) -> list[tuple[SessionRecord, tuple[tuple[int, int], ...]]]:
    found = await sessions.find_all(t, ids)
    await t.want((), [Scan("places", (t.tenant, each.number)) for each in found])
    gaps = [(each.record, await _gaps(t, each)) for each in found]
    return [pair for pair in gaps if pair[1]][:most]


async def put_segment(
    t: Transaction,
    blocks: Sequence[tx.PlacedBlock],
    pages: Mapping[int, bytes],
    *,
    replaces: Sequence[int] = (),
) -> bool:
    """Dissolve the segments ``replaces``, and put a segment made of ``blocks``; all or nothing.

    The blocks get the places 0, 1, 2, ... in it. Pages are numbered from 0 to 65,535. Without
    blocks, nothing is put. A segment's number is never used again.

    Returns False, writing nothing, if one of ``replaces`` is gone, or if one of the blocks does
    not stand as given: it has another end or is gone, it is in another segment, or the epoch of
    its session is another.

    A block of terms that is replaced stays in its segment, as a dead one. Rewriting a message,
    or deleting a session, deletes in the same transaction every segment with a block, dead or
    not, that covers it: nothing of what is erased may stay in a page.
    """
    owners = list(dict.fromkeys(each.session.id for each in blocks))
    await t.want([
        *(_segment_key(t, segment) for segment in replaces),
        *(sessions.place_key(t, id_) for id_ in owners),
    ])  # fmt: skip
    old = await _members(t, replaces)
    if not set(replaces) <= old.keys():
        return False
    numbers: dict[str, int] = {}
    for each in blocks:
        at = await sessions.place_of(t, each.session.id)
        if at is None or at.epoch != each.session.epoch:
            return False
        numbers[each.session.id] = at.number
    keys = [_place_key(t, numbers[each.session.id], each.block.start) for each in blocks]
    guards = [_blocks_guard(t, number) for number in numbers.values()]
    guards += [_blocks_guard(t, member.session) for members in old.values() for member in members]
    await t.want([*keys, *guards])
    claimed: list[_Member] = []
    for each, key in zip(blocks, keys, strict=True):
        number = numbers[each.session.id]
        row = await t.get(key, _blocks_guard(t, number))
        if row is None or row[3] != each.block.stop or (row[5] and row[5] not in replaces):
            return False
        claimed.append(_Member(number, each.session.id, each.block.start, each.block.stop, row[4]))
    for segment, members in old.items():
        await t.rely(_index_guard(t))
        await _dissolve(t, segment, members)
    if not claimed:
        return True
    made = t.serial()
    t.put("segments", (t.tenant, made, pack(claimed)))
    for place, member in enumerate(claimed):
        _put_place(t, member, made, place)
        t.put("sources", (t.tenant, member.session, made))
        await _touch(t, member.session)
    for page, data in pages.items():
        t.put("pages", (t.tenant, made, page, data))
    return True


async def segment_blocks(t: Transaction, places: Sequence[tuple[int, int]]) -> list[tx.PlacedBlock]:
    """Return the blocks at these (segment, place) that are not dead, in the order given."""
    await t.rely(_index_guard(t))
    segments = await _members(t, dict.fromkeys(number for number, _ in places))
    wanted = [
        (number, place, segments[number][place])
        for number, place in places
        if 0 <= place < len(segments.get(number, ()))
    ]
    keys = [
        Key("blocks", (t.tenant, member.session, tx.TERMS, member.start)) for *_, member in wanted
    ]
    heads = (sessions.place_key, sessions.head_key)
    await t.want([*keys, *(key(t, member.id) for *_, member in wanted for key in heads)])
    found: list[tx.PlacedBlock] = []
    for (number, place, member), key in zip(wanted, keys, strict=True):
        row = await t.get(key)
        owner = await sessions.find(t, member.id)
        if row is not None and row[5] == member.block and owner is not None:
            block = decode([row], _block, "blocks")[0]
            found.append(tx.PlacedBlock(owner.record, block, number, place))
    return found


async def delete(t: Transaction, number: int) -> None:
    """Remove the blocks of a session, and the segments made of them."""
    await dissolve(t, number)
    for table in ("blocks", "kinds", "places", "sources", "coverage"):
        t.wipe(Key(table, (t.tenant, number)))
    t.count("index", "")
