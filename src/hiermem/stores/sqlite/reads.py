"""The statements that read sessions, their logs, the journal and views.

Each function sees one state of the store: the data committed before it began. Every statement is
bound to its tenant by equality, either directly or through the session's number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from hiermem.errors import StoreCorruptError
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import check, decode, pack, shape
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite.failures import DAMAGED
from hiermem.stores.sqlite.heads import SESSION
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Attempt,
    LogEvent,
    RunRecord,
    SessionOrder,
    Spent,
    ViewRecord,
)

_ALL = (1 << INDEX_BITS) - 1
#: Binds (tenant, session id).
_NUMBER = "(SELECT session FROM sessions WHERE tenant = ? AND id = ?)"

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_SESSION = (
    f"SELECT {SESSION} FROM sessions s JOIN heads h ON h.session = s.session WHERE s.tenant = ?"
)
_STANDING = (
    "SELECT h.last_activity, h.session FROM sessions s JOIN heads h ON h.session = s.session "
    "WHERE s.tenant = ? AND s.id = ?"
)
#: Where a list of sessions looks. The index is named, because a page must not cost more in a tenant
#: that has more sessions.
_LISTED = {
    "created": "sessions s INDEXED BY sessions_created CROSS JOIN heads h ON h.session = s.session",
    "last_activity": (
        "heads h INDEXED BY heads_active CROSS JOIN sessions s "
        "ON s.session = h.session AND s.tenant = h.tenant"
    ),
}
_NUMBERED = (
    "json_each(?) j CROSS JOIN heads h ON h.session = j.value "
    "CROSS JOIN sessions s ON s.session = h.session AND s.tenant = h.tenant"
)
#: What follows a session in each order. By activity, that is two ranges of the index: SQLite would
#: search a comparison of pairs by its first half alone.
_AFTER = {
    "created": ("s.tenant = ? AND s.session > ? ORDER BY s.session LIMIT ?",),
    "last_activity": (
        "h.tenant = ? AND h.last_activity = ? AND h.session < ? ORDER BY h.session DESC LIMIT ?",
        (
            "h.tenant = ? AND h.last_activity < ? "
            "ORDER BY h.last_activity DESC, h.session DESC LIMIT ?"
        ),
    ),
}
#: Later than every time, and above every number.
_FIRST = ((1 << 63) - 1, (1 << 63) - 1)
HOLDING = (
    "SELECT min(session) FROM session_metadata INDEXED BY session_metadata_held "
    "WHERE tenant = ? AND key = ? AND value = ? AND session >= ?"
)
#: Counted in the indexes alone.
COUNT = "SELECT count(*) FROM sessions INDEXED BY sessions_created WHERE tenant = ?"
COUNT_HOLDING = (
    "SELECT count(*) FROM session_metadata INDEXED BY session_metadata_held "
    "WHERE tenant = ? AND key = ? AND value = ?"
)
_OWNED = ("sessions", "runs", "attempts", "views", "records")
_NEXT_TENANT = "SELECT min(name) FROM ({})".format(
    " UNION ALL ".join(
        f"SELECT min(tenant) AS name FROM {table} WHERE tenant > ?" for table in _OWNED
    )
)
_MESSAGES = f"SELECT {rows.MESSAGE} FROM messages WHERE message >= ? AND message < ?"
#: The condition repeats the index's word for word, and the index is named; otherwise SQLite could
#: not use the index, and the query would be expensive.
ECHOING = tuple(
    f"SELECT message, rest FROM {table} INDEXED BY {table}_echoing "
    "WHERE message >= ? AND message < ? AND instr(rest, '\"echoes\":[[') > 0"
    for table in ("messages", "versions")
)
#: Flags are stored as a JSON array without spaces. A flag is a whole entry if a comma stands before
#: its first quote: inside a text every quote is escaped, so that a backslash would stand there.
FLAGGED = (
    f"SELECT {rows.MESSAGE} FROM messages INDEXED BY messages_flagged "
    "WHERE message >= ? AND message < ? AND flags IS NOT NULL "
    "AND instr(',' || substr(flags, 2), ?) > 0 "
    "ORDER BY message DESC LIMIT ?"
)
_VIEWS = "SELECT session_id, name, state FROM views WHERE tenant = ? AND session_id = ?"
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


def sessions(
    connection: sqlite3.Connection,
    tenant: str,
    *,
    after: str | None,
    limit: int,
    metadata: Mapping[str, str],
    order_by: SessionOrder,
) -> list[SessionRecord]:
    """Return up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
    count = max(limit, 0)
    created = order_by == "created"
    with one_state(connection):
        begin: tuple[int, int] | None = None
        if after is not None:
            begin = connection.execute(_STANDING, (tenant, after)).fetchone()
        number = begin[1] if begin else 0
        at = begin or _FIRST
        bounds: list[tuple[Any, ...]] = [(number,)] if created else [at, at[:1]]
        numbers: tuple[str, ...] = ()
        if metadata:
            holding = _holding(connection, tenant, metadata, number if created else 0)
            numbers = (pack(list(islice(holding, count) if created else holding)),)
        found: list[Any] = []
        statements = listing(order_by, filtered=bool(metadata))
        for statement, bound in zip(statements, bounds, strict=True):
            values = (*numbers, tenant, *bound, count - len(found))
            found += connection.execute(statement, values).fetchall()
    return [record for _, record in decode(found, rows.read_session, "sessions")]


def listing(order_by: SessionOrder, *, filtered: bool) -> list[str]:
    """Return the statements that list sessions; if ``filtered``, they bind their numbers first."""
    source = _NUMBERED if filtered else _LISTED[order_by]
    return [f"SELECT {SESSION} FROM {source} WHERE {where}" for where in _AFTER[order_by]]


def count_sessions(
    connection: sqlite3.Connection, tenant: str, *, metadata: Mapping[str, str]
) -> int:
    """Return the number of sessions that hold all of ``metadata``."""
    if len(metadata) > 1:
        with one_state(connection):
            return sum(1 for _ in _holding(connection, tenant, metadata, 0))
    pair = next(iter(metadata.items()), ())
    found = connection.execute(COUNT_HOLDING if pair else COUNT, (tenant, *pair)).fetchone()
    return int(found[0])


def _holding(
    connection: sqlite3.Connection, tenant: str, metadata: Mapping[str, str], after: int
) -> Iterator[int]:
    """Yield the numbers above ``after`` of the sessions that hold all of ``metadata``, in order.

    The search jumps in each pair's index to the first session that the other pairs have not passed.
    So the cost depends on the pair that the fewest sessions hold.
    """
    pairs = list(metadata.items())
    wanted, agreed = after + 1, 0
    while True:
        key, value = pairs[agreed]
        (found,) = connection.execute(HOLDING, (tenant, key, value, wanted)).fetchone()
        if found is None:
            return
        if found > wanted and agreed:
            wanted, agreed = found, 0
            continue
        wanted, agreed = found, agreed + 1
        if agreed == len(pairs):
            yield found
            wanted, agreed = found + 1, 0


def tenants(connection: sqlite3.Connection, *, after: str | None, limit: int) -> list[str]:
    """Return up to ``limit`` names, after ``after``, of tenants with anything stored, in order."""
    found: list[str] = []
    last = after if after is not None else ""
    with one_state(connection):
        while len(found) < limit:
            (name,) = connection.execute(_NEXT_TENANT, (last,) * len(_OWNED)).fetchone()
            if name is None:
                break
            found.append(name)
            last = name
    return found


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


def flagged(
    connection: sqlite3.Connection, tenant: str, session_id: str, flag: str, limit: int
) -> list[StoredMessage]:
    """Return up to ``limit`` messages that have ``flag``, the newest first."""
    with one_state(connection):
        found_place = place(connection, tenant, session_id)
        if found_place is None:
            return []
        first = found_place[0] << INDEX_BITS
        found = connection.execute(FLAGGED, (first, first + _ALL, "," + pack(flag), max(limit, 0)))
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
    return decode(found, tree_rows.read_spent, "attempts")[0]


def view(
    connection: sqlite3.Connection, tenant: str, session_id: str, name: str
) -> ViewRecord | None:
    """Return the stored view, or None if it does not exist."""
    found = connection.execute(
        f"{_VIEWS} AND name = ?",
        (tenant, session_id, name),
    )
    for record in decode(found, rows.read_view, "views"):
        return record
    return None


def views(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    *,
    names: Sequence[str] | None = None,
) -> list[ViewRecord]:
    """Return the stored views of the session, or those with these names, ordered by name."""
    if names is not None:
        wanted = (view(connection, tenant, session_id, name) for name in sorted({*names}))
        return [one for one in wanted if one is not None]
    found = connection.execute(
        f"{_VIEWS} ORDER BY name",
        (tenant, session_id),
    )
    return decode(found, rows.read_view, "views")
