"""The statements that write, each function inside a transaction that it neither begins nor ends.

Each function reads and decides first, calls ``transaction.writing()`` before the first change, and
records a session's new head after the last one. So a decision that raises has nothing to undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hiermem.core.summaries.due import due_by_change
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode, pack
from hiermem.stores.contract import check_changes, refuse, run_decision
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite import blocks as block_rows
from hiermem.stores.sqlite import due, heads, puts, records, removal, tree_writes
from hiermem.stores.sqlite.answers import answer
from hiermem.stores.sqlite.heads import insert
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types import SessionRecord
from hiermem.types.transaction import Batch, Changes, Copy, Deciding, KeyEntry, Rewrite, Snapshot

T = TypeVar("T")

#: The number of keys that one statement looks up; a fixed number keeps the statement prepared.
_KEYS_AT_ONCE = 50


_NEW_SESSION = insert(
    "sessions",
    "tenant",
    f"id, {rows.FIXED}",
)
_NUMBERED = insert("sessions", "session, tenant", f"id, {rows.FIXED}")
_NEW_HEAD = insert(
    "heads",
    "tenant",
    f"{rows.HEAD}, session",
)
_HEAD = (
    "UPDATE heads SET messages = ?, closed = ?, version = ?, state = ?, epoch = ?, tree = ?, "
    "build = ?, last_activity = ? WHERE session = ?"
)
_SESSION = (
    "UPDATE sessions SET title = ?, participants = ?, config = ?, counter = ?, created_at = ?, "
    "forked_from = ?, forked_at = ? WHERE session = ?"
)
_METADATA = insert("session_metadata", "", "session, tenant, key, value")
MESSAGE = insert("messages", "", rows.MESSAGE)
KEY = "INSERT INTO keys (session, key, message_index, fingerprint) VALUES (?, ?, ?, ?)"
_ONE_KEY = "SELECT key, message_index, fingerprint FROM keys WHERE session = ? AND key = ?"
_MANY_KEYS = (
    "SELECT key, message_index, fingerprint FROM keys "  # noqa: S608 - question marks only
    f"WHERE session = ? AND key IN ({', '.join('?' * _KEYS_AT_ONCE)})"
)
EVENT = insert("events", "session", rows.EVENT)
_REWRITE = (
    f"UPDATE messages SET {', '.join(f'{name} = ?' for name in rows.MESSAGE.split(', ')[1:])} "  # noqa: S608
    "WHERE message = ?"
)
_KEEP_VERSION = (
    f"INSERT INTO versions ({rows.MESSAGE}) "  # noqa: S608
    f"SELECT {rows.MESSAGE} FROM messages WHERE message = ?"
)
_RESERVE = (
    "UPDATE keys SET fingerprint = NULL WHERE session = ? AND message_index = ? "
    "AND key = (SELECT key FROM messages WHERE message = ?)"
)


def _known_keys(
    connection: sqlite3.Connection, session: int, keys: Sequence[str]
) -> dict[str, KeyEntry]:
    if len(keys) == 1:
        found = connection.execute(_ONE_KEY, (session, keys[0])).fetchall()
    else:
        found = []
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = list(keys[start : start + _KEYS_AT_ONCE])
            some += [some[-1]] * (_KEYS_AT_ONCE - len(some))
            found += connection.execute(_MANY_KEYS, (session, *some)).fetchall()
    return {key: KeyEntry(index, fingerprint) for key, index, fingerprint in found}


def mutate(
    transaction: Transaction,
    tenant: str,
    session_id: str,
    decide: Callable[[Snapshot], Changes[T]],
    keys: Sequence[str],
) -> T:
    """Read the snapshot, call ``decide`` with it, write its changes and return its result."""
    head = heads.find(transaction, tenant, session_id)
    number, before = head or (0, None)
    known = _known_keys(transaction.connection, number, keys) if head and keys else {}
    transaction.deciding = True
    changes = decide(Snapshot(before, known))
    transaction.deciding = False
    _change(transaction, tenant, session_id, changes)
    return changes.result


def transact(transaction: Transaction, tenant: str, decide: Callable[[], Deciding[T]]) -> T:
    """Run a decision that requests its reads, write its changes and return its result."""

    def answered(session_id: str, need: Any) -> Any:
        transaction.deciding = False
        found = answer(transaction.connection, tenant, session_id, need)
        transaction.deciding = True
        return found

    transaction.deciding = True
    batch: Batch[T] = run_decision(decide, answered)
    transaction.deciding = False
    for session_id, changes in batch.sessions:
        _change(transaction, tenant, session_id, changes)
    if batch.delete or batch.runs or batch.drop_records or batch.drop_journals:
        transaction.writing()
    for session_id in batch.delete:
        removal.session(transaction, tenant, session_id)
    records.drop(transaction, tenant, batch.drop_records)
    for subject in batch.drop_journals:
        removal.journal(transaction.connection, tenant, subject)
    for run in batch.runs:
        puts.put_run(transaction, tenant, run)
    return batch.result


def _change(transaction: Transaction, tenant: str, session_id: str, changes: Changes[Any]) -> None:
    """Write one session's changes in the order of their fields."""
    after = changes.session
    if after is None:
        return
    head = heads.find(transaction, tenant, session_id)
    number, before = head or (0, None)
    check_changes(session_id, before, after, changes)
    source = _source(transaction, tenant, before, after, changes.copy)
    transaction.writing()
    connection = transaction.connection
    number = write_record(connection, tenant, number, before, after)
    tree = after.tree if changes.tree is None else changes.tree
    if changes.copy is not None and source is not None:
        _copy(connection, after, (number, tree), changes.copy, source)
    _write_log(connection, number, after, changes)
    if (
        changes.drop
        or changes.forget
        or changes.nodes
        or changes.parents
        or changes.drop_tree is not None
    ):
        tree_writes.write_structure(connection, tenant, session_id, (number, tree), changes)
    if changes.drop_views or changes.drop_records:
        removal.derived(connection, tenant, session_id, changes)
    due.note(transaction, number, due_by_change(before, after, changes))
    transaction.heads[tenant, session_id] = (number, after)


def _source(
    transaction: Transaction,
    tenant: str,
    before: SessionRecord | None,
    after: SessionRecord,
    copy: Copy | None,
) -> tuple[int, int] | None:
    """Return the number and the serving tree of the source session of ``copy``, or None."""
    if copy is None:
        return None
    if before is not None:
        raise refuse(after.id, "a copy is for a session that exists already")
    source = heads.find(transaction, tenant, copy.source)
    if source is None or not 0 <= copy.stop <= source[1].messages:
        raise refuse(after.id, f"a copy is of what {copy.source!r} does not have")
    return source[0], source[1].tree


def _copy(
    connection: sqlite3.Connection,
    after: SessionRecord,
    at: tuple[int, int],
    copy: Copy,
    source: tuple[int, int],
) -> None:
    """Copy messages, their versions, keys and texts from ``source`` to ``at``.

    Both are (session number, tree).
    """
    number, tree = source
    first = number << INDEX_BITS
    own = rows.MESSAGE.removeprefix("message, ")
    for table in ("messages", "versions"):
        order = "message" if table == "messages" else "edit"
        connection.execute(
            f"INSERT INTO {table} ({rows.MESSAGE}) SELECT message + ?, {own} FROM {table} "  # noqa: S608
            f"WHERE message >= ? AND message < ? ORDER BY {order}",
            ((at[0] << INDEX_BITS) - first, first, first + copy.stop),
        )
    connection.execute(
        "INSERT INTO keys (session, key, message_index, fingerprint) "
        "SELECT ?, key, message_index, fingerprint FROM keys "
        "WHERE session = ? AND message_index < ?",
        (at[0], number, copy.stop),
    )
    wanted = dict.fromkeys(copy.revisions)
    cursor = connection.executemany(
        f"INSERT INTO revisions (tenant, session, tree, {tree_rows.REVISION}) "  # noqa: S608
        f"SELECT tenant, ?, ?, {tree_rows.REVISION} FROM revisions "
        "WHERE session = ? AND tree = ? AND node_id = ? AND number = ?",
        [(*at, number, tree, *one) for one in wanted],
    )
    if wanted and cursor.rowcount != len(wanted):
        raise refuse(after.id, f"a copy is of a revision that {copy.source!r} does not have")


def write_record(
    connection: sqlite3.Connection,
    tenant: str,
    number: int,
    before: SessionRecord | None,
    after: SessionRecord,
) -> int:
    """Write the session's record and return its number.

    The fields that an append does not change are written only if they differ.
    """
    head = rows.head_row(after)
    if before is None or not rows.same_fixed(before, after):
        fixed = rows.fixed_row(after)
        if before is None:
            cursor = connection.execute(_NEW_SESSION, (tenant, after.id, *fixed))
            number = cursor.lastrowid or 0
            connection.execute(_NEW_HEAD, (tenant, *head, number))
            _write_metadata(connection, tenant, number, after)
            return number
        connection.execute(_SESSION, (*fixed, number))
        if before.metadata != after.metadata:
            connection.execute("DELETE FROM session_metadata WHERE session = ?", (number,))
            _write_metadata(connection, tenant, number, after)
    connection.execute(_HEAD, (*head, number))
    return number


def write_new(
    connection: sqlite3.Connection, tenant: str, number: int, record: SessionRecord
) -> None:
    """Write the record of a session that has its number already."""
    connection.execute(_NUMBERED, (number, tenant, record.id, *rows.fixed_row(record)))
    connection.execute(_NEW_HEAD, (tenant, *rows.head_row(record), number))
    _write_metadata(connection, tenant, number, record)


def _write_metadata(
    connection: sqlite3.Connection, tenant: str, number: int, record: SessionRecord
) -> None:
    rows_of = [(number, tenant, key, value) for key, value in record.metadata.items()]
    connection.executemany(_METADATA, rows_of)


def _write_log(
    connection: sqlite3.Connection, number: int, after: SessionRecord, changes: Changes[Any]
) -> None:
    """Write messages, keys, flags, rewrites and events."""
    messages = changes.messages
    if len(messages) == 1:
        connection.execute(MESSAGE, rows.message_row(number, messages[0]))
    elif messages:
        connection.executemany(MESSAGE, [rows.message_row(number, m) for m in messages])
    for key, entry in changes.keys:
        connection.execute(KEY, (number, key, entry.index, entry.fingerprint))
    for index, flag in changes.flags:
        _add_flag(connection, number, index, flag)
    for rewrite in changes.rewrites:
        _rewrite(connection, number, after, rewrite)
    for event in changes.events:
        connection.execute(EVENT, (number, *rows.event_row(event)))


def _add_flag(connection: sqlite3.Connection, number: int, index: int, flag: str) -> None:
    place = number << INDEX_BITS | index
    found = decode(
        connection.execute(f"SELECT {rows.MESSAGE} FROM messages WHERE message = ?", (place,)),  # noqa: S608
        rows.read_message,
        "messages",
    )
    if index < 0 or not found:
        raise refuse(str(number), f"a flag is for message {index}, which does not exist")
    flags = found[0].flags
    if flag not in flags:
        connection.execute(
            "UPDATE messages SET flags = ? WHERE message = ?", (pack((*flags, flag)), place)
        )


def _rewrite(
    connection: sqlite3.Connection, number: int, after: SessionRecord, rewrite: Rewrite
) -> None:
    index = rewrite.message.index
    if not 0 <= index < after.messages:
        raise refuse(after.id, f"a rewrite is of message {index}, which does not exist")
    place, *columns = rows.message_row(number, rewrite.message)
    if rewrite.kind == "edit":
        connection.execute(_KEEP_VERSION, (place,))
    elif rewrite.kind == "erase":
        connection.execute("DELETE FROM versions WHERE message = ?", (place,))
        connection.execute(_RESERVE, (number, index, place))
    connection.execute(_REWRITE, (*columns, place))
    block_rows.drop_holding(connection, number, index)
