"""Reads and writes the log of a session: messages, their versions, keys, flags, and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hiermem.records import rows, sessions
from hiermem.records.contract import decode
from hiermem.records.sessions import Session
from hiermem.records.tables import Copies, Key, Row, Scan
from hiermem.records.transaction import Transaction
from hiermem.types import StoredMessage
from hiermem.types import transaction as tx
from hiermem.types.tree import SPACE

#: The tables of a log whose rows a fork takes over.
_COPIED: Final = ("messages", "versions", "flags", "echoes", "keys")
#: All tables of a log.
TABLES_OF_LOG: Final = (*_COPIED, "events")


def _message(row: Row) -> StoredMessage:
    stored: StoredMessage = rows.MESSAGES.read(row[2:])
    return stored


def _messages(found: Sequence[Row]) -> list[StoredMessage]:
    return decode(found, _message, "messages")


async def messages(
    t: Transaction, session_id: str, start: int, stop: int, *, thread: str | None = None
) -> list[StoredMessage]:
    """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
    place = await sessions.place_of(t, session_id) if start < stop else None
    if place is None:
        return []
    scan = Scan("messages", (t.tenant, place.number), (max(start, 0) - 1,), (max(stop, 0),))
    found = _messages(await t.scan(scan, sessions.log_guard(t, session_id)))
    return [stored for stored in found if thread in (None, stored.thread)]


async def versions(t: Transaction, session_id: str, index: int) -> list[StoredMessage]:
    """Return the versions of the message before its edits, oldest first; [] if never edited.

    An erased message has no versions.
    """
    place = await sessions.place_of(t, session_id)
    if place is None:
        return []
    scan = Scan("versions", (t.tenant, place.number, index))
    found = await t.scan(scan, sessions.log_guard(t, session_id))
    return read_versions(found)


def read_versions(found: Sequence[Row]) -> list[StoredMessage]:
    """Return the earlier versions of rows."""
    return decode(found, lambda row: rows.MESSAGES.read((row[2], *row[4:])), "versions")


async def flagged(t: Transaction, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
    """Return up to ``limit`` messages that have ``flag``, the newest first.

    The cost is proportional to the messages that have any flag, not to the session.
    """
    place = await sessions.place_of(t, session_id) if limit > 0 else None
    if place is None:
        return []
    guard = sessions.log_guard(t, session_id)
    scan = Scan("flags", (t.tenant, place.number, flag), limit=limit, reverse=True)
    indices = [row[3] for row in await t.scan(scan, guard)]
    return _messages(await _rows(t, place.number, indices, guard))


async def _rows(t: Transaction, number: int, indices: Sequence[Any], guard: Key) -> list[Row]:
    keys = [Key("messages", (t.tenant, number, index)) for index in indices]
    await t.want(keys)
    found = [await t.get(key, guard) for key in keys]
    return [row for row in found if row is not None]


async def flagged_in(
    t: Transaction, space: str, flag: str, *, limit: int
) -> list[tuple[str, StoredMessage]]:
    """Return up to ``limit`` messages of a space's members that have ``flag``, the latest first."""
    members = await sessions.labelled(t, (SPACE, space))
    scans = {id_: Scan("flags", (t.tenant, number, flag)) for number, id_ in members}
    await t.want((), scans.values())
    keys = {
        (id_, row[3]): Key("messages", (t.tenant, row[1], row[3]))
        for id_, scan in scans.items()
        for row in await t.scan(scan)
    }
    await t.want(keys.values())
    found = [(id_, await t.get(key)) for (id_, _), key in keys.items()]
    said = [(id_, _messages([row])[0]) for id_, row in found if row is not None]
    said.sort(key=lambda pair: pair[1].created_at)
    return said[::-1][: max(limit, 0)]


async def echoing(t: Transaction, session_id: str) -> list[int]:
    """Return the indices of the messages that have echoes, now or in an earlier version."""
    place = await sessions.place_of(t, session_id)
    if place is None:
        return []
    scan = Scan("echoes", (t.tenant, place.number))
    return [row[2] for row in await t.scan(scan, sessions.log_guard(t, session_id))]


async def events(t: Transaction, session_id: str) -> list[tx.LogEvent]:
    """Return the log's events that are not messages, in the order they were written."""
    place = await sessions.place_of(t, session_id)
    if place is None:
        return []
    scan = Scan("events", (t.tenant, place.number))
    found = await t.scan(scan, sessions.log_guard(t, session_id))
    return decode(found, lambda row: rows.EVENTS.read(row[3:]), "events")


async def keys(
    t: Transaction, found: Session | None, names: Sequence[str]
) -> dict[str, tx.KeyEntry]:
    """Return the entries of those of these keys that exist."""
    if found is None or not names:
        return {}
    guard = sessions.head_key(t, found.record.id)
    wanted = [Key("keys", (t.tenant, found.number, name)) for name in names]
    if t.is_bet(guard) and t.bet_absent(*wanted):
        return {}
    await t.want(wanted)
    stored = [await t.get(key, guard) for key in wanted]
    entries = decode([row for row in stored if row], lambda row: rows.KEYS.read(row[2:]), "keys")
    return dict(entries)


# -- writes


def put_message(t: Transaction, number: int, stored: StoredMessage) -> None:
    """Write a message with what it is found by."""
    for flag in stored.flags:
        t.put("flags", (t.tenant, number, flag, stored.index))
    if stored.echoes:
        t.put("echoes", (t.tenant, number, stored.index))
    t.put("messages", (t.tenant, number, *rows.MESSAGES.row(stored)))


def put_version(t: Transaction, number: int, stored: StoredMessage) -> None:
    """Write a version of a message from before an edit."""
    index, *columns = rows.MESSAGES.row(stored)
    t.put("versions", (t.tenant, number, index, t.serial(), *columns))
    if stored.echoes:
        t.put("echoes", (t.tenant, number, index))


def put_key(t: Transaction, number: int, name: str, entry: tx.KeyEntry) -> None:
    """Write the entry of a key."""
    t.put("keys", (t.tenant, number, *rows.KEYS.row((name, entry))))


def put_event(t: Transaction, number: int, event: tx.LogEvent) -> None:
    """Write an event after all earlier ones."""
    t.put("events", (t.tenant, number, t.serial(), *rows.EVENTS.row(event)))


async def add_flags(t: Transaction, found: Session, flags: Sequence[tuple[int, str]]) -> None:
    """Add flags to messages."""
    for index, flag in flags:
        (stored,) = await stored_at(t, found, [index])
        if flag not in stored.flags:
            put_message(t, found.number, replace(stored, flags=(*stored.flags, flag)))


async def stored_at(t: Transaction, found: Session, indices: Sequence[int]) -> list[StoredMessage]:
    """Return the messages at these indices."""
    guard = sessions.head_key(t, found.record.id)
    return _messages(await _rows(t, found.number, indices, guard))


async def rewrite(t: Transaction, found: Session, rewrites: Sequence[tx.Rewrite]) -> None:
    """Replace messages, and keep or remove what they were before."""
    number = found.number
    for each in rewrites:
        index = each.message.index
        (before,) = await stored_at(t, found, [index])
        for flag in before.flags:
            t.delete(Key("flags", (t.tenant, number, flag, index)))
        if each.kind == "edit":
            put_version(t, number, before)
        elif each.kind == "erase":
            t.delete(Key("echoes", (t.tenant, number, index)))
            t.wipe(Key("versions", (t.tenant, number, index)))
            if before.key is not None:
                entry = (await keys(t, found, [before.key])).get(before.key)
                if entry and entry.index == index:
                    put_key(t, number, before.key, tx.KeyEntry(index, None))
        elif not any(old.echoes for old in await versions(t, found.record.id, index)):
            t.delete(Key("echoes", (t.tenant, number, index)))
        put_message(t, number, each.message)


async def take_over(t: Transaction, source: Session, number: int, indices: Sequence[int]) -> None:
    """Write messages of another session that are to be marked; ``copy`` copies the others."""
    for row in await _rows(t, source.number, indices, sessions.place_key(t, source.record.id)):
        t.put("messages", (t.tenant, number, *row[2:]))


def copy(t: Transaction, source: Session, number: int, stop: int) -> None:
    """Take over the log of another session before message ``stop``, as it is in its epoch."""
    of = (t.tenant, source.number)
    for table in _COPIED:
        t.copy(Copies(table, of, (t.tenant, number), "message", stop))
