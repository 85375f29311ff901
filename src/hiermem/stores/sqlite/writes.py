"""The statements that write, each function inside a transaction that it neither begins nor ends.

The one rule: read and decide first; call ``transaction.writing()`` before the first change; note a
session's new head after the last one. So a decision that raises has nothing to undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hiermem.protocols import (
    Attempt,
    Changes,
    KeyEntry,
    NodeWrite,
    RunRecord,
    Snapshot,
    ViewRecord,
)
from hiermem.stores.contract import check_changes, check_write, refuse
from hiermem.stores.sqlite import rows, tree_rows
from hiermem.stores.sqlite.codec import decode, pack, to_micros
from hiermem.stores.sqlite.rows import INDEX_BITS
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types import SessionRecord

__all__ = ["mutate", "put_run", "put_view", "write_nodes"]

T = TypeVar("T")

#: Keys looked up by one statement; a fixed number keeps the statement prepared.
_KEYS_AT_ONCE = 50


def _insert(table: str, owners: str, columns: str) -> str:
    names = f"{owners}, {columns}" if owners else columns
    marks = ", ".join("?" * len(names.split(",")))
    return f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names of this module


def _replacing(insert: str, key: str, columns: str) -> str:
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))
    return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {sets}"


_FIND = (
    f"SELECT {rows.SESSION} FROM sessions s JOIN heads h ON h.session = s.session "  # noqa: S608
    "WHERE s.tenant = ? AND s.id = ?"
)
_NEW_SESSION = _insert("sessions", "tenant", "id, title, participants, config, counter, created_at")
_NEW_HEAD = "INSERT INTO heads (messages, closed, version, state, session) VALUES (?, ?, ?, ?, ?)"
_HEAD = "UPDATE heads SET messages = ?, closed = ?, version = ?, state = ? WHERE session = ?"
_SESSION = (
    "UPDATE sessions SET title = ?, participants = ?, config = ?, counter = ?, created_at = ? "
    "WHERE session = ?"
)
_MESSAGE = _insert("messages", "", rows.MESSAGE)
_KEY = "INSERT INTO keys (session, key, message_index, fingerprint) VALUES (?, ?, ?, ?)"
_ONE_KEY = "SELECT key, message_index, fingerprint FROM keys WHERE session = ? AND key = ?"
_MANY_KEYS = (
    "SELECT key, message_index, fingerprint FROM keys "  # noqa: S608 - question marks only
    f"WHERE session = ? AND key IN ({', '.join('?' * _KEYS_AT_ONCE)})"
)
_EVENT = _insert("events", "session", rows.EVENT)
_NODE = _replacing(_insert("nodes", "session", tree_rows.NODE), "session, id", tree_rows.NODE)
_REVISION = _insert("revisions", "tenant, session", tree_rows.REVISION)
_RUN = _replacing(_insert("runs", "tenant", tree_rows.RUN), "tenant, id", tree_rows.RUN)
_ATTEMPT = _replacing(
    _insert("attempts", "tenant", tree_rows.ATTEMPT), "tenant, id", tree_rows.ATTEMPT
)
_VIEW = (
    "INSERT INTO views (tenant, session_id, name, state) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (tenant, session_id, name) DO UPDATE SET state = excluded.state"
)


def _head(
    transaction: Transaction, tenant: str, session_id: str
) -> tuple[int, SessionRecord] | None:
    """Give the session's number and record, remembered where nobody else has committed since."""
    known = transaction.heads.get((tenant, session_id))
    if known is None:
        found = decode(
            transaction.connection.execute(_FIND, (tenant, session_id)),
            rows.read_session,
            "sessions",
        )
        if not found:
            return None
        known = transaction.heads[tenant, session_id] = found[0]
    return known


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
    """Read the snapshot, call ``decide`` with it, write what it decided and give its result."""
    head = _head(transaction, tenant, session_id)
    number, before = head or (0, None)
    known = _known_keys(transaction.connection, number, keys) if head and keys else {}
    transaction.deciding = True
    changes = decide(Snapshot(before, known))
    transaction.deciding = False
    after = changes.session
    if after is None:
        return changes.result
    check_changes(session_id, before, after, changes)
    transaction.writing()
    number = _write_record(transaction.connection, tenant, number, before, after)
    _write_log(transaction.connection, number, changes)
    if changes.drop or changes.nodes or changes.parents:
        _write_structure(transaction.connection, number, session_id, changes)
    transaction.heads[tenant, session_id] = (number, after)
    return changes.result


def _write_record(
    connection: sqlite3.Connection,
    tenant: str,
    number: int,
    before: SessionRecord | None,
    after: SessionRecord,
) -> int:
    """Write the session's record and give its number; what an append leaves alone is left alone."""
    head = (after.messages, int(after.closed), after.version, after.state)
    if before is None or (
        before.config,
        before.title,
        before.participants,
        before.counter,
        before.created_at,
    ) != (after.config, after.title, after.participants, after.counter, after.created_at):
        fixed = (
            after.title,
            pack(after.participants),
            after.config,
            after.counter,
            to_micros(after.created_at),
        )
        if before is None:
            cursor = connection.execute(_NEW_SESSION, (tenant, after.id, *fixed))
            number = cursor.lastrowid or 0
            connection.execute(_NEW_HEAD, (*head, number))
            return number
        connection.execute(_SESSION, (*fixed, number))
    connection.execute(_HEAD, (*head, number))
    return number


def _write_log(connection: sqlite3.Connection, number: int, changes: Changes[Any]) -> None:
    """Write messages, keys, flags and events."""
    messages = changes.messages
    if len(messages) == 1:
        connection.execute(_MESSAGE, rows.message_row(number, messages[0]))
    elif messages:
        connection.executemany(_MESSAGE, [rows.message_row(number, m) for m in messages])
    for key, entry in changes.keys:
        connection.execute(_KEY, (number, key, entry.index, entry.fingerprint))
    for index, flag in changes.flags:
        _add_flag(connection, number, index, flag)
    for event in changes.events:
        connection.execute(_EVENT, (number, *rows.event_row(event)))


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


def _write_structure(
    connection: sqlite3.Connection, number: int, session_id: str, changes: Changes[Any]
) -> None:
    """Write dropped and new nodes and the parents of older ones, in this order."""
    for id_ in changes.drop:
        connection.execute("DELETE FROM nodes WHERE session = ? AND id = ?", (number, id_))
        connection.execute("DELETE FROM revisions WHERE session = ? AND node_id = ?", (number, id_))
    for node in changes.nodes:
        connection.execute(_NODE, (number, *tree_rows.node_row(node)))
    for child, parent in changes.parents:
        cursor = connection.execute(
            "UPDATE nodes SET parent = ?, version = version + 1 WHERE session = ? AND id = ?",
            (parent, number, child),
        )
        if not cursor.rowcount:
            raise refuse(session_id, f"a parent is for node {child!r}, which does not exist")


def write_nodes(
    transaction: Transaction,
    tenant: str,
    session_id: str,
    writes: Sequence[NodeWrite],
    attempts: Sequence[Attempt],
) -> list[bool]:
    """Apply each write whose expectations hold and tell which did; record ``attempts``."""
    for write in writes:
        check_write(write)
    connection = transaction.connection
    head = _head(transaction, tenant, session_id)
    transaction.writing()
    applied = [
        head is not None and _write_node(connection, tenant, head[0], write) for write in writes
    ]
    for attempt in attempts:
        connection.execute(_ATTEMPT, (tenant, *tree_rows.attempt_row(attempt)))
    return applied


def _write_node(connection: sqlite3.Connection, tenant: str, number: int, write: NodeWrite) -> bool:
    """Compare and swap one node; say whether it was written."""
    standing = "SELECT version, revision FROM nodes WHERE session = ? AND id = ?"
    now = connection.execute(standing, (number, write.node.id)).fetchone()
    if now is None or now[0] != write.expected:
        return False
    for id_, revision in write.inputs:
        serving = connection.execute(standing, (number, id_)).fetchone()
        if serving is None or serving[1] != revision:
            return False
    connection.execute(_NODE, (number, *tree_rows.node_row(write.node)))
    if write.revision is not None:
        connection.execute(_REVISION, (tenant, number, *tree_rows.revision_row(write.revision)))
    return True


def put_run(transaction: Transaction, tenant: str, run: RunRecord) -> None:
    """Insert the run, or replace the one of the same id in its place."""
    transaction.writing()
    transaction.connection.execute(_RUN, (tenant, *tree_rows.run_row(run)))


def put_view(transaction: Transaction, tenant: str, view: ViewRecord) -> None:
    """Insert the view, or replace the one of the same session and name."""
    transaction.writing()
    transaction.connection.execute(_VIEW, (tenant, view.session_id, view.name, view.state))
