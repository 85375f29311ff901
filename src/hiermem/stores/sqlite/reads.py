"""The statements that read. Each sees one state of the store: what was committed before it began.

The one rule: every statement is bound to its tenant, by equality, through the session's number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from hiermem.errors import StoreCorruptError
from hiermem.protocols import Attempt, LogEvent, RunRecord, ViewRecord
from hiermem.stores.sqlite import rows, tree_rows
from hiermem.stores.sqlite.codec import decode
from hiermem.stores.sqlite.failures import DAMAGED
from hiermem.stores.sqlite.rows import INDEX_BITS
from hiermem.types import Node, Revision, SessionRecord, StoredMessage

__all__ = [
    "attempts",
    "events",
    "level",
    "levels",
    "messages",
    "nodes",
    "provisional",
    "reusable",
    "revisions",
    "runs",
    "secret",
    "session",
    "sessions",
    "unfinished",
    "view",
]

_ALL = (1 << INDEX_BITS) - 1
#: Binds (tenant, session id).
_NUMBER = "(SELECT session FROM sessions WHERE tenant = ? AND id = ?)"

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_SESSION = (
    f"SELECT {rows.SESSION} FROM sessions s JOIN heads h ON h.session = s.session "
    "WHERE s.tenant = ?"
)
_MESSAGES = f"SELECT {rows.MESSAGE} FROM messages WHERE message >= ? AND message < ?"
_NODE = f"SELECT {tree_rows.NODE} FROM nodes WHERE session = ? AND id = ?"
_OF_LEVEL = (
    f"SELECT {tree_rows.NODE} FROM nodes WHERE session = {_NUMBER} AND level = ? AND sealed = 1 "
    "AND ordinal >= ? AND ordinal < ? ORDER BY ordinal"
)
# The condition is that of the index nodes_unfinished, word for word, or SQLite would not use it.
UNFINISHED = (
    f"SELECT {tree_rows.NODE} FROM nodes WHERE session = {_NUMBER} AND level = ? AND ordinal > ? "
    "AND sealed = 1 AND (status <> 'active' OR degraded = 1 OR dirty = 1) "
    "ORDER BY ordinal LIMIT ?"
)
_REVISION = (
    f"SELECT {tree_rows.REVISION} FROM revisions WHERE session = ? AND node_id = ? AND number = ?"
)


@contextmanager
def _one_state(connection: sqlite3.Connection) -> Generator[None]:
    """Let several statements see the same state; inside a transaction they do already."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, tenant: str, session_id: str) -> int | None:
    found = connection.execute(f"SELECT {_NUMBER}", (tenant, session_id)).fetchone()[0]
    return found if isinstance(found, int) else None


def secret(connection: sqlite3.Connection) -> bytes:
    """Give the store's secret."""
    found = connection.execute("SELECT secret FROM store").fetchone()
    if found is None or not isinstance(found[0], bytes) or len(found[0]) != 32:
        raise StoreCorruptError(f"the store is damaged: its secret is missing; {DAMAGED}")
    return found[0]


def session(connection: sqlite3.Connection, tenant: str, session_id: str) -> SessionRecord | None:
    """Give the session's record, or None."""
    found = connection.execute(_SESSION + " AND s.id = ?", (tenant, session_id))
    for _, record in decode(found, rows.read_session, "sessions"):
        return record
    return None


def sessions(connection: sqlite3.Connection, tenant: str) -> list[SessionRecord]:
    """Give all sessions, in the order of their creation."""
    found = connection.execute(_SESSION + " ORDER BY s.session", (tenant,))
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
    """Give the messages with ``start <= index < stop``, of ``thread`` where given, by index."""
    with _one_state(connection):
        number = _number(connection, tenant, session_id)
        if number is None:
            return []
        first = number << INDEX_BITS
        bounds = (first + min(max(start, 0), _ALL), first + min(max(stop, 0), _ALL))
        if thread is None:
            found = connection.execute(_MESSAGES + " ORDER BY message", bounds)
        else:
            found = connection.execute(
                _MESSAGES + " AND thread = ? ORDER BY message", (*bounds, thread)
            )
        return decode(found, rows.read_message, "messages")


def events(connection: sqlite3.Connection, tenant: str, session_id: str) -> list[LogEvent]:
    """Give the log's events that are not messages, in the order they were written."""
    found = connection.execute(
        f"SELECT {rows.EVENT} FROM events WHERE session = {_NUMBER} ORDER BY event",
        (tenant, session_id),
    )
    return decode(found, rows.read_event, "events")


def nodes(
    connection: sqlite3.Connection, tenant: str, session_id: str, ids: Sequence[str]
) -> list[Node]:
    """Give the nodes with these ids that exist, in the order of ``ids``."""
    with _one_state(connection):
        number = _number(connection, tenant, session_id)
        if number is None:
            return []
        found = [row for id_ in ids for row in connection.execute(_NODE, (number, id_)).fetchall()]
    return decode(found, tree_rows.read_node, "nodes")


def level(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    level: int,
    *,
    start: int,
    stop: int | None,
) -> list[Node]:
    """Give the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
    end = 1 << 62 if stop is None else stop
    found = connection.execute(_OF_LEVEL, (tenant, session_id, level, start, end))
    return decode(found, tree_rows.read_node, "nodes")


def levels(connection: sqlite3.Connection, tenant: str, session_id: str) -> dict[int, int]:
    """Give the number of sealed nodes of each level that has any."""
    found = connection.execute(
        f"SELECT level, count(*) FROM nodes WHERE session = {_NUMBER} AND sealed = 1 "
        "GROUP BY level ORDER BY level",
        (tenant, session_id),
    )
    return dict(found.fetchall())


def provisional(connection: sqlite3.Connection, tenant: str, session_id: str) -> list[Node]:
    """Give the nodes that are not sealed, by level, then id."""
    found = connection.execute(
        f"SELECT {tree_rows.NODE} FROM nodes WHERE session = {_NUMBER} AND sealed = 0 "
        "ORDER BY level, id",
        (tenant, session_id),
    )
    return decode(found, tree_rows.read_node, "nodes")


def unfinished(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    level: int,
    *,
    after: int,
    limit: int,
) -> list[Node]:
    """Give up to ``limit`` sealed nodes of ``level`` after ``after`` with work left to do."""
    found = connection.execute(UNFINISHED, (tenant, session_id, level, after, max(limit, 0)))
    return decode(found, tree_rows.read_node, "nodes")


def revisions(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    wanted: Sequence[tuple[str, int]],
) -> list[Revision]:
    """Give the revisions with these (node id, number) that exist, in the order wanted."""
    with _one_state(connection):
        session_number = _number(connection, tenant, session_id)
        if session_number is None:
            return []
        found = [
            row
            for id_, number in wanted
            for row in connection.execute(_REVISION, (session_number, id_, number)).fetchall()
        ]
    return decode(found, tree_rows.read_revision, "revisions")


def reusable(connection: sqlite3.Connection, tenant: str, input_hash: str) -> Revision | None:
    """Give the newest revision of this tenant, not degraded, with that input hash, or None."""
    found = connection.execute(
        f"SELECT {tree_rows.REVISION} FROM revisions WHERE tenant = ? AND input_hash = ? "
        "AND degraded = 0 ORDER BY written DESC LIMIT 1",
        (tenant, input_hash),
    )
    for revision in decode(found, tree_rows.read_revision, "revisions"):
        return revision
    return None


def runs(
    connection: sqlite3.Connection, tenant: str, subject: str | None, limit: int
) -> list[RunRecord]:
    """Give the newest runs first, of one subject where given."""
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
    """Give the journalled attempts in the order they started, filtered where asked."""
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


def view(
    connection: sqlite3.Connection, tenant: str, session_id: str, name: str
) -> ViewRecord | None:
    """Give the stored view, or None."""
    found = connection.execute(
        "SELECT state FROM views WHERE tenant = ? AND session_id = ? AND name = ?",
        (tenant, session_id, name),
    ).fetchone()
    return None if found is None else ViewRecord(session_id, name, found[0])
