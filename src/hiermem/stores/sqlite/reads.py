"""The statements that read sessions, their logs, the journal and views.

Each function sees one state of the store: the data committed before it began. Every statement is
bound to its tenant by equality, either directly or through the session's number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from hiermem.errors import StoreCorruptError
from hiermem.stores.sqlite import rows, tree_rows
from hiermem.stores.sqlite.codec import check, decode, shape
from hiermem.stores.sqlite.failures import DAMAGED
from hiermem.stores.sqlite.rows import INDEX_BITS
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.transaction import Attempt, LogEvent, RunRecord, Spent, ViewRecord

_ALL = (1 << INDEX_BITS) - 1
#: Binds (tenant, session id).
_NUMBER = "(SELECT session FROM sessions WHERE tenant = ? AND id = ?)"

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_SESSION = (
    f"SELECT {rows.SESSION} FROM sessions s JOIN heads h ON h.session = s.session "
    "WHERE s.tenant = ?"
)
_MESSAGES = f"SELECT {rows.MESSAGE} FROM messages WHERE message >= ? AND message < ?"
#: The condition repeats the index's word for word, and the index is named; otherwise SQLite could
#: not use the index, and the query would be expensive.
ECHOING = tuple(
    f"SELECT message, rest FROM {table} INDEXED BY {table}_echoing "
    "WHERE message >= ? AND message < ? AND instr(rest, '\"echoes\":[[') > 0"
    for table in ("messages", "versions")
)
_PLACE = (
    "SELECT s.session, h.tree FROM sessions s JOIN heads h ON h.session = s.session "
    "WHERE s.tenant = ? AND s.id = ?"
)


@contextmanager
def one_state(connection: sqlite3.Connection) -> Generator[None]:
    """Let several statements see the same state; inside a transaction they already do."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def place(
    connection: sqlite3.Connection, tenant: str, session_id: str, tree: int | None = None
) -> tuple[int, int] | None:
    """Return (the session's number, the tree), or None if the session does not exist.

    The tree is ``tree``, or the serving tree if ``tree`` is None.
    """
    found = connection.execute(_PLACE, (tenant, session_id)).fetchall()
    for number, serving in decode(found, _read_place, "sessions"):
        return number, serving if tree is None else tree
    return None


def _read_place(row: Sequence[Any]) -> tuple[int, int]:
    check(row, shape("ii"))
    return row[0], row[1]


def secret(connection: sqlite3.Connection) -> bytes:
    """Return the store's secret."""
    found = connection.execute("SELECT secret FROM store").fetchone()
    if found is None or not isinstance(found[0], bytes) or len(found[0]) != 32:
        raise StoreCorruptError(f"the store is damaged: its secret is missing; {DAMAGED}")
    return found[0]


def session(connection: sqlite3.Connection, tenant: str, session_id: str) -> SessionRecord | None:
    """Return the session's record, or None if it does not exist."""
    found = connection.execute(_SESSION + " AND s.id = ?", (tenant, session_id))
    for _, record in decode(found, rows.read_session, "sessions"):
        return record
    return None


def sessions(connection: sqlite3.Connection, tenant: str) -> list[SessionRecord]:
    """Return all sessions in the order of their creation."""
    found = connection.execute(_SESSION + " ORDER BY s.session", (tenant,))
    return [record for _, record in decode(found, rows.read_session, "sessions")]


def forks(connection: sqlite3.Connection, tenant: str, session_id: str) -> list[SessionRecord]:
    """Return the sessions forked from this session, in the order of their creation."""
    found = connection.execute(
        _SESSION + " AND s.forked_from = ? ORDER BY s.session", (tenant, session_id)
    )
    return [record for _, record in decode(found, rows.read_session, "sessions")]


def messages(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    start: int,
    stop: int,
    *,
    thread: str | None,
) -> list[StoredMessage]:
    """Return the messages with ``start <= index < stop``, ordered by index.

    If ``thread`` is given, only its messages are returned.
    """
    with one_state(connection):
        found_place = place(connection, tenant, session_id)
        if found_place is None:
            return []
        number = found_place[0]
        first = number << INDEX_BITS
        bounds = (first + min(max(start, 0), _ALL), first + min(max(stop, 0), _ALL))
        if thread is None:
            found = connection.execute(_MESSAGES + " ORDER BY message", bounds)
        else:
            found = connection.execute(
                _MESSAGES + " AND thread = ? ORDER BY message", (*bounds, thread)
            )
        return decode(found, rows.read_message, "messages")


def echoing(connection: sqlite3.Connection, tenant: str, session_id: str) -> list[int]:
    """Return the indices of the messages that have echoes now or had them in an earlier version."""
    with one_state(connection):
        found_place = place(connection, tenant, session_id)
        if found_place is None:
            return []
        first = found_place[0] << INDEX_BITS
        found = [
            row
            for statement in ECHOING
            for row in connection.execute(statement, (first, first + _ALL)).fetchall()
        ]
    marked = decode(found, rows.read_echoing, "messages")
    return sorted({index for index, echoes in marked if echoes})


def versions(
    connection: sqlite3.Connection, tenant: str, session_id: str, index: int
) -> list[StoredMessage]:
    """Return the versions of the message from before its edits, oldest first."""
    if not 0 <= index <= _ALL:
        return []
    found = connection.execute(
        f"SELECT {rows.MESSAGE} FROM versions WHERE message = {_NUMBER} << {INDEX_BITS} | ? "
        "ORDER BY edit",
        (tenant, session_id, index),
    )
    return decode(found, rows.read_message, "versions")


def events(connection: sqlite3.Connection, tenant: str, session_id: str) -> list[LogEvent]:
    """Return the log's events that are not messages, in the order of their writing."""
    found = connection.execute(
        f"SELECT {rows.EVENT} FROM events WHERE session = {_NUMBER} ORDER BY event",
        (tenant, session_id),
    )
    return decode(found, rows.read_event, "events")


def run(connection: sqlite3.Connection, tenant: str, run_id: str) -> RunRecord | None:
    """Return the run with this id, or None if it does not exist."""
    found = connection.execute(
        f"SELECT {tree_rows.RUN} FROM runs WHERE tenant = ? AND id = ?", (tenant, run_id)
    )
    for record in decode(found, tree_rows.read_run, "runs"):
        return record
    return None


def runs(
    connection: sqlite3.Connection, tenant: str, subject: str | None, limit: int
) -> list[RunRecord]:
    """Return up to ``limit`` runs, newest first; if ``subject`` is given, only its runs."""
    where, values = "tenant = ?", [tenant]
    if subject is not None:
        where, values = where + " AND subject = ?", [*values, subject]
    found = connection.execute(
        f"SELECT {tree_rows.RUN} FROM runs WHERE {where} ORDER BY run DESC LIMIT ?",
        (*values, max(limit, 0)),
    )
    return decode(found, tree_rows.read_run, "runs")


def attempts(
    connection: sqlite3.Connection,
    tenant: str,
    run_id: str | None,
    session_id: str | None,
    limit: int,
) -> list[Attempt]:
    """Return up to ``limit`` journalled attempts in the order in which they were recorded.

    ``run_id`` and ``session_id`` filter the attempts if they are given.
    """
    where, values = "tenant = ?", [tenant]
    if run_id is not None:
        where, values = where + " AND run_id = ?", [*values, run_id]
    if session_id is not None:
        where, values = where + " AND session_id = ?", [*values, session_id]
    found = connection.execute(
        f"SELECT {tree_rows.ATTEMPT} FROM attempts WHERE {where} ORDER BY attempt LIMIT ?",
        (*values, max(limit, 0)),
    )
    return decode(found, tree_rows.read_attempt, "attempts")


def spent(connection: sqlite3.Connection, tenant: str, session_id: str | None) -> Spent:
    """Return the totals of the journalled attempts of one session, or of the whole tenant."""
    where, values = "tenant = ?", [tenant]
    if session_id is not None:
        where, values = where + " AND session_id = ?", [*values, session_id]
    found = connection.execute(
        "SELECT count(*), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0), "
        "count(*) FILTER (WHERE outcome IN ('started', 'unknown')), "
        "coalesce(sum(cached_tokens), 0), coalesce(sum(reasoning_tokens), 0), sum(cost) "
        f"FROM attempts WHERE {where}",
        values,
    )
    return decode(found, _read_spent, "attempts")[0]


def _read_spent(row: Sequence[Any]) -> Spent:
    check(row, shape("iiiiiiF"))
    return Spent(*row)


def view(
    connection: sqlite3.Connection, tenant: str, session_id: str, name: str
) -> ViewRecord | None:
    """Return the stored view, or None if it does not exist."""
    found = connection.execute(
        "SELECT name, state FROM views WHERE tenant = ? AND session_id = ? AND name = ?",
        (tenant, session_id, name),
    )
    for record in decode(found, lambda row: _read_view(session_id, row), "views"):
        return record
    return None


def views(connection: sqlite3.Connection, tenant: str, session_id: str) -> list[ViewRecord]:
    """Return all stored views of the session, ordered by name."""
    found = connection.execute(
        "SELECT name, state FROM views WHERE tenant = ? AND session_id = ? ORDER BY name",
        (tenant, session_id),
    )
    return decode(found, lambda row: _read_view(session_id, row), "views")


def _read_view(session_id: str, row: Sequence[Any]) -> ViewRecord:
    check(row, shape("ss"))
    return ViewRecord(session_id, *row)
