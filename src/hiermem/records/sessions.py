"""Reads and writes the records of sessions, and lists them.

A session has two rows. ``sessions`` has what an append leaves as it is: whoever works on what was
said until now relies on it. ``heads`` has the rest: whoever appends relies on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hiermem.records import rows
from hiermem.records.contract import decode, pack, to_micros
from hiermem.records.tables import Key, Row, Scan
from hiermem.records.transaction import Transaction
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx

#: The label of every session, by which they are counted.
_ANY: Final = ("", "")
#: How many records a store keeps parsed.
_PARSED: Final = 2048


class OvertakenError(Exception):
    """Another writer, which was overtaken too often, has its turn on the session."""


class Session(NamedTuple):
    """A stored session: its number, its record, and whether a message of it is in no block.

    ``guard`` is the guard of its row in ``sessions``; ``created`` is greater for a later session.
    """

    number: int
    record: SessionRecord
    unindexed: bool
    guard: int = 0
    created: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """What an append leaves as it is: the number of a session, its epoch and its serving tree."""

    number: int
    epoch: int
    tree: int


def head_key(t: Transaction, session_id: str) -> Key:
    """Return the guard of a session's log."""
    return Key("heads", (t.tenant, session_id))


def place_key(t: Transaction, session_id: str) -> Key:
    """Return the guard of all that is derived from a session's log."""
    return Key("sessions", (t.tenant, session_id))


def log_guard(t: Transaction, session_id: str) -> Key:
    """Return what a read of a log relies on: an append changes nothing that a mere read sees."""
    return head_key(t, session_id) if t.decides else place_key(t, session_id)


async def find(t: Transaction, session_id: str) -> Session | None:
    """Return a session, or None."""
    if session_id in t.found:
        known: Session | None = t.found[session_id]
        return known
    place, head = place_key(t, session_id), head_key(t, session_id)
    await t.want((place, head))
    fixed, moving = await t.get(place), await t.get(head)
    session = None
    if fixed is not None and moving is not None:
        turn = moving[11] if t.decides else None
        if turn is not None and is_anothers(turn, t.token, to_micros(await t.now())):
            raise OvertakenError
        session = _read(t, fixed, moving)
        t.above = max(t.above, moving[2])
    t.found[session_id] = session
    return session


def is_anothers(turn: str, token: str, now: int) -> bool:
    """Return whether a mark in a head is of another writer, whose turn has not ended."""
    marked, _, ends = turn.partition(":")
    return marked != token and decode([ends], int, "heads")[0] > now


def _read(t: Transaction, fixed: Row, moving: Row) -> Session:
    guards = (fixed[2], moving[2])
    record = t.parsed.get(guards)
    if record is None:
        columns = (
            fixed[3], fixed[1], *fixed[4:11], *moving[4:8], *fixed[11:13], *moving[8:10], fixed[13],
        )  # fmt: skip
        ((_, record),) = decode([columns], rows.SESSIONS.read, "sessions")
        _keep(t, guards, record)
    return Session(fixed[3], record, moving[10] is not None, fixed[2], fixed[14])


def _keep(t: Transaction, guards: tuple[Any, Any], record: SessionRecord) -> None:
    """Keep a record by the guards of its two rows: parsing is most of a read."""
    if len(t.parsed) >= _PARSED:
        t.parsed.clear()
    t.parsed[guards] = record


async def place_of(t: Transaction, session_id: str) -> Place | None:
    """Return where a session's data stands, or None."""
    t.guess(place_key(t, session_id))
    fixed = await t.get(place_key(t, session_id))
    return None if fixed is None else Place(fixed[3], fixed[11], fixed[12])


async def session(t: Transaction, session_id: str) -> SessionRecord | None:
    """Return the session's record, or None."""
    found = await find(t, session_id)
    return None if found is None else found.record


def write(
    t: Transaction,
    before: Session | None,
    record: SessionRecord,
    *,
    number: int,
    unindexed: bool,
    created: int | None = None,
) -> None:
    """Write a session's record, only what changed; ``created`` is of the session it replaces."""
    old = None if before is None else before.record
    guard = place_guard = t.serial()
    created = before.created if before else created or guard
    moving = rows.HEADS.row(record)
    t.put("heads", (
        t.tenant, record.id, guard, number, *moving[:4], *moving[6:],
        created if unindexed else None, None, created,
    ))  # fmt: skip
    if old is not None and (
        rows.same_fixed(old, record) and (old.epoch, old.tree) == (record.epoch, record.tree)
    ):
        assert before is not None
        place_guard = before.guard
    else:
        labels = record.labels
        t.put("sessions", (
            t.tenant, record.id, guard, number, *rows.FIXED.row(record), record.epoch, record.tree,
            pack(labels), created,
        ))  # fmt: skip
        held = {} if old is None else old.labels
        for label, value in held.items():
            if labels.get(label) != value:
                t.delete(Key("labels", (t.tenant, label, value, created)))
        for label, value in labels.items():
            if held.get(label) != value:
                t.put("labels", (t.tenant, label, value, created, number, record.id))
    if old is None:
        t.put("labels", (t.tenant, *_ANY, created, number, record.id))
        if record.forked_from is not None:
            t.count("forks", record.forked_from)
    _keep(t, (place_guard, guard), record)
    t.found[record.id] = Session(number, record, unindexed, place_guard, created)


async def delete(t: Transaction, found: Session) -> None:
    """Delete a session's record."""
    source = found.record.forked_from
    # A counter that outlived its session would keep its name.
    if source is not None and await place_of(t, source) is not None:
        t.count("forks", source)
    t.forget_counts(Key("counters", (t.tenant, "forks", found.record.id)))
    t.found[found.record.id] = None
    t.delete(head_key(t, found.record.id))
    t.delete(place_key(t, found.record.id))
    for pair in (_ANY, *found.record.labels.items()):
        t.delete(Key("labels", (t.tenant, *pair, found.created)))


# -- lists


async def find_all(t: Transaction, ids: Iterable[str]) -> list[Session]:
    """Return the sessions with these ids that exist, in their order."""
    wanted = list(ids)
    await t.want([key(t, id_) for id_ in wanted for key in (place_key, head_key)])
    found = [await find(t, id_) for id_ in wanted]
    return [one for one in found if one is not None]


async def sessions(
    t: Transaction,
    *,
    after: str | None = None,
    limit: int = 100,
    metadata: Mapping[str, str] | None = None,
    order_by: tx.SessionOrder = "created",
) -> list[SessionRecord]:
    """Return up to ``limit`` sessions: in the order of their creation, or the latest first.

    With ``metadata``, these are the sessions whose ``labels`` hold all of these pairs. With
    ``order_by="last_activity"`` the latest activity comes first, and of two at the same time
    the session created later. The list begins after the session ``after``, wherever that stands
    now, or with the first session if ``after`` is None or gone. So a session that is created
    meanwhile moves no page in the order of creation. The cost is proportional to the result; a
    list by last activity that is filtered may cost in proportion to the sessions that match.
    """
    if limit <= 0:
        return []
    begin = await find(t, after) if after is not None else None
    pairs = list((metadata or {}).items())
    most = None if pairs else limit
    ids: Sequence[Any]
    if order_by == "last_activity":
        last = (to_micros(begin.record.last_activity), begin.created) if begin else ()
        scan = Scan("heads", (t.tenant,), (), last, "active", most, reverse=True)
        ids = [row[1] for row in await t.scan(scan)]
    elif pairs:
        ids = [id_ for number, id_ in await labelled(t, pairs[0], begin)]
    else:
        scan = Scan(
            "sessions", (t.tenant,), (begin.created,) if begin else (), (), "by_creation", most
        )
        ids = [row[1] for row in await t.scan(scan)]
    for pair in pairs:
        held = {id_ for _, id_ in await labelled(t, pair)}
        ids = [id_ for id_ in ids if id_ in held]
    return [one.record for one in await find_all(t, ids[:limit])]


async def labelled(
    t: Transaction, pair: tuple[str, str], begin: Session | None = None
) -> list[tuple[int, str]]:
    """Return the numbers and ids of the sessions with a label, as they were created."""
    after = (begin.created,) if begin else ()
    found = await t.scan(Scan("labels", (t.tenant, *pair), after))
    return [(row[4], row[5]) for row in found]


async def count_sessions(t: Transaction, *, metadata: Mapping[str, str] | None = None) -> int:
    """Return the number of sessions, or of those whose ``labels`` hold all of ``metadata``.

    No record is read for it.
    """
    counted = [set(await labelled(t, pair)) for pair in (metadata or dict([_ANY])).items()]
    return len(set.intersection(*counted))


async def forks(t: Transaction, session_id: str) -> list[SessionRecord]:
    """Return the sessions that were forked from this one, in the order of their creation.

    The cost is proportional to the result, not to the tenant's data.
    """
    guard = Key("counters", (t.tenant, "forks", session_id)) if t.decides else None
    found = await t.scan(Scan("sessions", (t.tenant, session_id), index="forked"), guard)
    return [one.record for one in await find_all(t, [row[1] for row in found])]
