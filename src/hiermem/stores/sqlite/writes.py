"""The statements that write by decision, dump a session, and restore one.

Each function runs inside a transaction that it neither begins nor ends. It reads and decides first,
calls ``transaction.writing()`` before the first change, and records a session's new head after the
last one. So a decision that raises has nothing to undo. The answers to a decision's needs are here
too; ``read`` gives them without a decision.

A dump and a restore are inside one transaction each, so all rows of a dump are of one state, and a
restore is whole or nothing.
"""

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, TypeVar

from hiermem.changes.receipts import STORE_COPY
from hiermem.stores import rows
from hiermem.stores.contract import (
    answer_to,
    check_changes,
    decode,
    pack,
    refuse,
    run_decision,
    successive,
)
from hiermem.stores.dump import Item, Received, check_secret, exists, missing, pages
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite import reads, segments, trees
from hiermem.stores.sqlite.reads import INSERT, Part, Tenant, insert, one_state
from hiermem.stores.sqlite.workers import Transaction
from hiermem.summaries.due import AT_ONCE, due_by_change
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx
from hiermem.types.transaction import NO_SESSION, StoredRow

T = TypeVar("T")

#: The number of keys that one statement looks up; a fixed number keeps the statement prepared.
_KEYS_AT_ONCE = 50


def _sets(columns: str) -> str:
    return ", ".join(f"{name} = ?" for name in columns.split(", "))


_NEW_SESSION = insert("sessions", "tenant", f"id, {rows.FIXED.columns}")
_NEW_HEAD = insert("heads", "tenant", f"{rows.HEADS.columns}, session")
_HEAD = f"UPDATE heads SET {_sets(rows.HEADS.columns)} WHERE session = ?"
_SESSION = f"UPDATE sessions SET {_sets(rows.FIXED.columns)} WHERE session = ?"
_METADATA = insert("session_metadata", "", "session, tenant, key, value")
_ONE_KEY = f"SELECT {rows.KEYS.columns} FROM keys WHERE session = ? AND key = ?"
_MANY_KEYS = (
    f"SELECT {rows.KEYS.columns} FROM keys "
    f"WHERE session = ? AND key IN ({', '.join('?' * _KEYS_AT_ONCE)})"
)
_REWRITE = (
    f"UPDATE messages SET {_sets(rows.MESSAGES.columns.removeprefix('message, '))} "
    "WHERE message = ?"
)
_KEEP_VERSION = (
    f"INSERT INTO versions ({rows.MESSAGES.columns}) "
    f"SELECT {rows.MESSAGES.columns} FROM messages WHERE message BETWEEN ? AND ?"
)
_RESERVE = (
    "UPDATE keys SET fingerprint = NULL WHERE session = ? AND message_index BETWEEN ? AND ? "
    "AND key IN (SELECT key FROM messages WHERE message BETWEEN ? AND ? AND key IS NOT NULL)"
)


def _known_keys(
    connection: sqlite3.Connection, session: int, keys: Sequence[str]
) -> dict[str, tx.KeyEntry]:
    if len(keys) == 1:
        found = connection.execute(_ONE_KEY, (session, keys[0])).fetchall()
    else:
        found = []
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = list(keys[start : start + _KEYS_AT_ONCE])
            some += [some[-1]] * (_KEYS_AT_ONCE - len(some))
            found += connection.execute(_MANY_KEYS, (session, *some)).fetchall()
    return {key: tx.KeyEntry(index, fingerprint) for key, index, fingerprint in found}


def mutate(
    transaction: Transaction,
    tenant: str,
    session_id: str,
    decide: Callable[[tx.Snapshot], tx.Changes[T]],
    keys: Sequence[str],
) -> T:
    """Read the snapshot, call ``decide`` with it, write its changes and return its result."""
    head = reads.find(transaction, tenant, session_id)
    number, before = head or (0, None)
    known = _known_keys(transaction.connection, number, keys) if head and keys else {}
    transaction.deciding = True
    changes = decide(tx.Snapshot(before, known))
    transaction.deciding = False
    _change(transaction, tenant, session_id, changes)
    return changes.result


def transact(transaction: Transaction, tenant: str, decide: Callable[[], tx.Deciding[T]]) -> T:
    """Run a decision that requests its reads, write its changes and return its result."""

    def answered(session_id: str, need: Any) -> Any:
        transaction.deciding = False
        found = _answer(Part(transaction.connection, tenant), session_id, need)
        transaction.deciding = True
        return found

    transaction.deciding = True
    batch: tx.Batch[T] = run_decision(decide, answered)
    transaction.deciding = False
    for session_id, changes in batch.sessions:
        _change(transaction, tenant, session_id, changes)
    if batch.delete or batch.runs or batch.drop_records or batch.drop_journals:
        transaction.writing()
    for session_id in batch.delete:
        deleted(transaction, tenant, session_id)
    for place in batch.drop_records:
        transaction.connection.execute(trees.DROP_RECORD, (tenant, *place))
    for subject in batch.drop_journals:
        dropped_named(transaction.connection, rows.JOURNAL, tenant, subject)
    for run in batch.runs:
        trees.put_run(transaction, tenant, run)
    return batch.result


def _answer(part: Tenant, session_id: str, need: tx.Need) -> Any:
    """Return what the store's method of the same meaning returns, as the connection sees it."""

    def of_tree(number: int | None) -> tuple[Any, ...]:
        return (Part(part.connection, (part.of, session_id, number)),)

    return answer_to(need, reads, trees, (part, session_id), of_tree)


def read(part: Tenant, needs: Sequence[tx.SessionNeed]) -> list[Any]:
    """Return the answers to these needs, in their order, all from one state of the file."""
    with one_state(part.connection):
        return [_answer(part, *one) for one in needs]


def _change(
    transaction: Transaction, tenant: str, session_id: str, changes: tx.Changes[Any]
) -> None:
    """Write one session's changes in the order of their fields."""
    after = changes.session
    if after is None:
        return
    head = reads.find(transaction, tenant, session_id)
    number, before = head or (None, None)
    copy = changes.copy
    source = reads.find(transaction, tenant, copy.source) if copy else None
    check_changes(session_id, before, after, changes, source and source[1])
    transaction.writing()
    connection = transaction.connection
    number = write_record(connection, tenant, number, before, after)
    tree = after.tree if changes.tree is None else changes.tree
    if copy is not None and source is not None:
        _copy(connection, after, (number, tree), copy, (source[0], source[1].tree))
    _write_log(connection, number, changes)
    if changes.forget or changes.nodes or changes.parents or changes.drop_tree is not None:
        trees.write_structure(Part(connection, tenant), session_id, (number, tree), changes)
    for name in changes.drop_views:
        gone = "DELETE FROM views WHERE tenant = ? AND session_id = ? AND name = ?"
        connection.execute(gone, (tenant, session_id, name))
    for kind, key in changes.drop_records:
        connection.execute(trees.DROP_RECORD, (tenant, kind, session_id, key))
    transaction.note_due(number, due_by_change(before, after, changes))
    transaction.heads[tenant, session_id] = (number, after)


def _copy(
    connection: sqlite3.Connection,
    after: SessionRecord,
    at: tuple[int, int],
    copy: tx.Copy,
    source: tuple[int, int],
) -> None:
    """Copy messages, their versions, keys and texts from ``source`` to ``at``.

    Both are (session number, tree).
    """
    number, tree = source
    first = number << INDEX_BITS
    own = rows.MESSAGES.columns.removeprefix("message, ")
    for table in ("messages", "versions"):
        order = "message" if table == "messages" else "edit"
        connection.execute(
            f"INSERT INTO {table} ({rows.MESSAGES.columns}) SELECT message + ?, {own} FROM {table} "
            f"WHERE message >= ? AND message < ? ORDER BY {order}",
            ((at[0] << INDEX_BITS) - first, first, first + copy.stop),
        )
    connection.execute(
        f"INSERT INTO keys (session, {rows.KEYS.columns}) SELECT ?, {rows.KEYS.columns} FROM keys "
        "WHERE session = ? AND message_index < ?",
        (at[0], number, copy.stop),
    )
    wanted = dict.fromkeys(copy.revisions)
    cursor = connection.executemany(
        f"INSERT INTO revisions (tenant, session, tree, {rows.REVISIONS.columns}) "
        f"SELECT tenant, ?, ?, {rows.REVISIONS.columns} FROM revisions "
        "WHERE session = ? AND tree = ? AND node_id = ? AND number = ?",
        [(*at, number, tree, *one) for one in wanted],
    )
    if wanted and cursor.rowcount != len(wanted):
        raise refuse(after.id, f"a copy is of a revision that {copy.source!r} does not have")


def write_record(
    connection: sqlite3.Connection,
    tenant: str,
    number: int | None,
    before: SessionRecord | None,
    after: SessionRecord,
) -> int:
    """Write the session's record and return its number; a new session has none before.

    The fields that an append does not change are written only if they differ.
    """
    head = rows.HEADS.row(after)
    if before is None:
        fixed = rows.FIXED.row(after)
        number = connection.execute(_NEW_SESSION, (tenant, after.id, *fixed)).lastrowid or 0
        connection.execute(_NEW_HEAD, (tenant, *head, number))
        _write_metadata(connection, tenant, number, after)
        return number
    assert number is not None
    if not rows.same_fixed(before, after):
        connection.execute(_SESSION, (*rows.FIXED.row(after), number))
        if before.labels != after.labels:
            connection.execute("DELETE FROM session_metadata WHERE session = ?", (number,))
            _write_metadata(connection, tenant, number, after)
    connection.execute(_HEAD, (*head, number))
    return number


def _write_metadata(
    connection: sqlite3.Connection, tenant: str, number: int, record: SessionRecord
) -> None:
    rows_of = [(number, tenant, key, value) for key, value in record.labels.items()]
    connection.executemany(_METADATA, rows_of)


def _write_log(connection: sqlite3.Connection, number: int, changes: tx.Changes[Any]) -> None:
    """Write messages, keys, flags, rewrites and events."""
    messages = changes.messages
    if len(messages) == 1:
        connection.execute(INSERT["message"], rows.message_row(number, messages[0]))
    elif messages:
        connection.executemany(INSERT["message"], [rows.message_row(number, m) for m in messages])
    for key, entry in changes.keys:
        connection.execute(INSERT["key"], (number, key, entry.index, entry.fingerprint))
    for index, flag in changes.flags:
        _add_flag(connection, number, index, flag)
    for run in successive(changes.rewrites):
        _rewrite(connection, number, run)
    for event in changes.events:
        connection.execute(INSERT["event"], (number, *rows.EVENTS.row(event)))


def _add_flag(connection: sqlite3.Connection, number: int, index: int, flag: str) -> None:
    place = number << INDEX_BITS | index
    found = decode(
        connection.execute(
            f"SELECT {rows.MESSAGES.columns} FROM messages WHERE message = ?", (place,)
        ),
        rows.MESSAGES.read,
        "messages",
    )
    for stored in found:
        if flag not in stored.flags:
            connection.execute(
                "UPDATE messages SET flags = ? WHERE message = ?",
                (pack((*stored.flags, flag)), place),
            )


def _rewrite(connection: sqlite3.Connection, number: int, run: Sequence[tx.Rewrite]) -> None:
    found = [rows.message_row(number, rewrite.message) for rewrite in run]
    first, last = run[0].message.index, run[-1].message.index
    places = found[0][0], found[-1][0]
    if run[0].kind == "edit":
        connection.execute(_KEEP_VERSION, places)
    elif run[0].kind == "erase":
        connection.execute("DELETE FROM versions WHERE message BETWEEN ? AND ?", places)
        connection.execute(_RESERVE, (number, first, last, *places))
    connection.executemany(_REWRITE, [(*columns, place) for place, *columns in found])
    trees.drop_blocks_over(connection, number, first, last)


# -- removal; ``scrub`` is responsible for the bytes that a deleted row leaves in the file


def deleted(transaction: Transaction, tenant: str, session_id: str) -> None:
    """Remove all data of a session; of an unknown session, all rows that hold its name.

    With the empty id, it is what belongs to no session.
    """
    if session_id == tx.NO_SESSION:
        for table, column in rows.BY_NAME:
            kept = f" AND kind <> '{STORE_COPY}'" if table == "records" else ""
            transaction.connection.execute(
                f"DELETE FROM {table} WHERE tenant = ? AND NOT EXISTS (SELECT 1 FROM sessions s "
                f"WHERE s.tenant = {table}.tenant AND s.id = {table}.{column}){kept}",
                (tenant,),
            )
        return
    connection = transaction.connection
    found = connection.execute(
        "SELECT session FROM sessions WHERE tenant = ? AND id = ?", (tenant, session_id)
    ).fetchone()
    if found is not None:
        _numbered(connection, found[0])
    dropped_named(connection, rows.BY_NAME, tenant, session_id)
    transaction.heads.pop((tenant, session_id), None)


def erase_all(transaction: Transaction, tenant: str) -> int:
    """Remove all data of the tenant; return the number of sessions removed."""
    transaction.writing()
    connection = transaction.connection
    found = connection.execute("SELECT session FROM sessions WHERE tenant = ?", (tenant,))
    numbers = [row[0] for row in found.fetchall()]
    segments.drop_all(connection, tenant)
    for number in numbers:
        _numbered(connection, number)
    for table, _ in rows.BY_NAME:
        connection.execute(f"DELETE FROM {table} WHERE tenant = ?", (tenant,))
    for known in [key for key in transaction.heads if key[0] == tenant]:
        del transaction.heads[known]
    return len(numbers)


def dropped_named(
    connection: sqlite3.Connection, tables: Sequence[tuple[str, str]], tenant: str, name: str
) -> None:
    """Remove the rows of this name: all of them, or those of ``rows.JOURNAL``."""
    for table, column in tables:
        connection.execute(f"DELETE FROM {table} WHERE tenant = ? AND {column} = ?", (tenant, name))


def _numbered(connection: sqlite3.Connection, number: int) -> None:
    first, stop = number << INDEX_BITS, number + 1 << INDEX_BITS
    for table in ("messages", "versions"):
        connection.execute(f"DELETE FROM {table} WHERE message >= ? AND message < ?", (first, stop))
    segments.drop(connection, number)
    for table in rows.BY_NUMBER:
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (number,))


#: The number of rows that are decoded at once.
_CHUNK: Final = 500


def dump(
    connection: sqlite3.Connection, *, tenant: str, session_id: str
) -> Iterator[list[StoredRow]]:
    """Yield the pages of a dump, of what belongs to no session where the id is "".

    The connection must be inside a transaction, or be alone.
    """
    items = _items(Part(connection, tenant), session_id)
    yield from pages(items, tenant=tenant, secret=reads.secret(connection))


def _items(part: Tenant, session_id: str) -> Iterator[Item]:
    number = 0
    if session_id != NO_SESSION:
        record = reads.session(part, session_id)
        found = reads.number(part, session_id)
        if record is None or found is None:
            raise missing(session_id)
        yield "session", "", record
        number = found
    for kind, form in rows.KINDS.items():
        columns = form.columns
        bound: tuple[str | int, ...] = (number,)
        if session_id == NO_SESSION:
            if not form.named:
                continue
            where = (
                "m.tenant = ? AND NOT EXISTS (SELECT 1 FROM sessions s "
                f"WHERE s.tenant = m.tenant AND s.id = m.{form.named})"
            )
            bound = (part.of,)
        elif form.named:
            where, bound = f"tenant = ? AND {form.named} = ?", (part.of, session_id)
        elif form.owner == "log":
            where = "message >= ? AND message < ?"
            bound = (number << rows.INDEX_BITS, number + 1 << rows.INDEX_BITS)
        else:
            where = "session = ?"
        if form.owner == "tree":
            columns = f"tree, {columns}"
        selected = f"SELECT {columns} FROM {form.table} m WHERE {where} ORDER BY {form.order}"
        with closing(part.connection.execute(selected, bound)) as cursor:
            while chunk := cursor.fetchmany(_CHUNK):
                yield from rows.items(kind, chunk)


def restore(transaction: Transaction, received: Received, replaces: int | None) -> None:
    """Write a session, or what belongs to none, instead of the one of version ``replaces``.

    Raises ConflictError.
    """
    reader, connection = received.reader, transaction.connection
    tenant, session_id = reader.tenant, reader.session_id
    there = reads.find(transaction, tenant, session_id)
    if there is not None and there[1].version != replaces:
        raise exists(session_id)
    secret = reads.secret(connection)
    empty = not reads.tenants(connection, after=None, limit=1)
    check_secret(reader, secret, empty=empty)
    transaction.writing()
    if reader.secret != secret:
        connection.execute("UPDATE store SET secret = ?", (reader.secret,))
    if replaces is not None:
        deleted(transaction, tenant, session_id)
    number = 0
    if reader.record is not None:
        number = write_record(connection, tenant, None, None, reader.record)
        transaction.note_due(number, AT_ONCE)
    for page in received.pages():
        for kind, at, value in page:
            if kind == "block":
                trees.write_blocks(transaction, number, [value])
                continue
            form = rows.KINDS[kind]
            row = form.row((at, value) if kind == "key" else value)
            if form.owner == "log":
                row = (number << rows.INDEX_BITS | row[0], *row[1:])
            owners = {
                "tenant": (tenant,), "session": (number,), "tree": (tenant, number, at), "log": (),
            }  # fmt: skip
            connection.execute(INSERT[kind], (*owners[form.owner], *row))
