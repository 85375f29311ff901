"""The statements that read sessions, their logs, the journal, views, records and blocks.

Each function sees one state of the store: the data committed before it began. Most begin with the
session's number and head. A head is remembered only within the transaction that read it, or for as
long as no other connection has committed. Every statement is bound to its tenant by equality,
either directly or through the session's number.
"""

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

from hiermem.errors import StoreCorruptError
from hiermem.stores import rows
from hiermem.stores.contract import Format, check, decode, pack, shape
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite.connections import DAMAGED
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types import transaction as tx
from hiermem.types.tree import SPACE

Of = TypeVar("Of")


@dataclass(frozen=True, slots=True)
class Part(Generic[Of]):
    """A part of a store as reads see it: the connection, and what names the part."""

    connection: sqlite3.Connection
    of: Of


#: A tree of a session: its tenant, the session's id, and its number, None for the serving one.
TreeOf: TypeAlias = tuple[str, str, int | None]
Tenant: TypeAlias = Part[str]
Tree: TypeAlias = Part[TreeOf]

#: What ``rows.SESSIONS`` reads.
SESSION: Final = (
    f"{rows.SESSION}, (SELECT json_group_object(m.key, m.value) FROM session_metadata m "
    "WHERE m.session = s.session)"
)
#: The records of a tenant; conditions on ``s`` and ``h`` may follow.
SESSIONS: Final = (
    f"SELECT {SESSION} FROM sessions s JOIN heads h ON h.session = s.session WHERE s.tenant = ?"
)
_FIND: Final = f"{SESSIONS} AND s.id = ?"
_PLACE: Final = (
    "SELECT s.session, h.tree FROM sessions s JOIN heads h ON h.session = s.session "
    "WHERE s.tenant = ? AND s.id = ?"
)
_PLACED: Final = shape("ii")


def insert(table: str, owners: str, columns: str) -> str:
    """Return the statement that inserts a row with ``owners`` and ``columns``."""
    names = f"{owners}, {columns}" if owners else columns
    marks = ", ".join("?" * len(names.split(",")))
    return f"INSERT INTO {table} ({names}) VALUES ({marks})"


def replacing(insert: str, key: str, columns: str) -> str:
    """Return ``insert`` extended so that it replaces ``columns`` if the ``key`` is taken."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))
    return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {sets}"


#: The columns before those of the value, by the owner of the table.
_OWNERS: Final = {
    "tenant": "tenant", "session": "session", "tree": "tenant, session, tree", "log": "",
}  # fmt: skip
#: The statements that insert a row, by the kinds of a dump, and those that may replace one.
INSERT: Final = {
    kind: insert(form.table, _OWNERS[form.owner], form.columns) for kind, form in rows.KINDS.items()
}
REPLACE: Final = {
    "node": replacing(INSERT["node"], "session, tree, id", rows.NODES.columns),
    "run": replacing(INSERT["run"], "tenant, id", rows.RUNS.columns),
    "attempt": replacing(INSERT["attempt"], "tenant, id", rows.ATTEMPTS.columns),
    "view": replacing(INSERT["view"], "tenant, session_id, name", "state"),
    "block": replacing(INSERT["block"], "session, kind, start", "stop, data"),
}


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


def place(part: Tree) -> tuple[int, int] | None:
    """Return (the session's number, the tree's), or None if the session does not exist."""
    found = part.connection.execute(_PLACE, part.of[:2]).fetchall()
    for number, serving in decode(found, _read_place, "sessions"):
        return number, serving if part.of[2] is None else part.of[2]
    return None


def _read_place(row: Sequence[Any]) -> tuple[int, int]:
    check(row, _PLACED)
    return row[0], row[1]


def number(part: Tenant, session_id: str) -> int | None:
    """Return the session's number, or None if it does not exist."""
    at = place(Part(part.connection, (part.of, session_id, None)))
    return at and at[0]


def find(
    transaction: Transaction, tenant: str, session_id: str
) -> tuple[int, SessionRecord] | None:
    """Return the session's number and record, or None if the session does not exist.

    They are remembered until another connection commits.
    """
    known = transaction.heads.get((tenant, session_id))
    if known is None:
        found = transaction.connection.execute(_FIND, (tenant, session_id))
        for known in decode(found, rows.SESSIONS.read, "sessions"):
            transaction.heads[tenant, session_id] = known
    return known


def epoch_is(transaction: Transaction, tenant: str, session_id: str, epoch: int) -> bool:
    """Return whether the session exists and nothing was taken back since ``epoch``."""
    found = find(transaction, tenant, session_id)
    return found is not None and found[1].epoch == epoch


T = TypeVar("T")

_ALL = (1 << INDEX_BITS) - 1
#: Binds (tenant, session id).
_NUMBER = "(SELECT session FROM sessions WHERE tenant = ? AND id = ?)"


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
#: The sessions after a given one, in each order. By activity, these are two ranges of the index:
#: SQLite would search a comparison of pairs by its first half alone.
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
    f"SELECT {rows.MESSAGES.columns} FROM messages INDEXED BY messages_flagged "
    "WHERE message >= ? AND message < ? AND flags IS NOT NULL "
    "AND instr(',' || substr(flags, 2), ?) > 0 "
    "ORDER BY message DESC LIMIT ?"
)


#: The join begins with the members, and looks up the flagged messages of each.
FLAGGED_IN = (
    f"SELECT s.id, {rows.prefixed('m', rows.MESSAGES.columns)} FROM session_metadata h "
    "INDEXED BY session_metadata_held CROSS JOIN sessions s ON s.session = h.session "
    "CROSS JOIN messages m INDEXED BY messages_flagged "
    f"ON m.message >= h.session << {INDEX_BITS} AND m.message < (h.session + 1) << {INDEX_BITS} "
    "AND m.flags IS NOT NULL AND instr(',' || substr(m.flags, 2), ?) > 0 "
    "WHERE h.tenant = ? AND h.key = ? AND h.value = ? "
    "ORDER BY m.created_at DESC, m.message DESC LIMIT ?"
)


def _found(connection: sqlite3.Connection, form: Format[T], where: str, *values: Any) -> list[T]:
    """Return the values of the rows for which the condition ``where`` holds."""
    found = connection.execute(f"SELECT {form.columns} FROM {form.table} WHERE {where}", values)
    return decode(found, form.read, form.table)


def _first(found: Sequence[T]) -> T | None:
    return found[0] if found else None


def _having(**columns: str | None) -> tuple[str, list[str]]:
    """Return the condition that the columns have these values, where they are given."""
    given = {name: value for name, value in columns.items() if value is not None}
    return " AND ".join(f"{name} = ?" for name in given), list(given.values())


def secret(connection: sqlite3.Connection) -> bytes:
    """Return the store's secret."""
    found = connection.execute("SELECT secret FROM store").fetchone()
    if found is None or not isinstance(found[0], bytes) or len(found[0]) != 32:
        raise StoreCorruptError(f"the store is damaged: its secret is missing; {DAMAGED}")
    return found[0]


def session(part: Tenant, session_id: str) -> SessionRecord | None:
    """Return the session's record, or None if it does not exist."""
    return _first(_records(part.connection, f"{SESSIONS} AND s.id = ?", part.of, session_id))


def _records(connection: sqlite3.Connection, statement: str, *values: Any) -> list[SessionRecord]:
    found = decode(connection.execute(statement, values), rows.SESSIONS.read, "sessions")
    return [record for _, record in found]


def sessions(
    part: Tenant,
    *,
    after: str | None = None,
    limit: int = 100,
    metadata: Mapping[str, str] | None = None,
    order_by: tx.SessionOrder = "created",
) -> list[SessionRecord]:
    """Return up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
    count = max(limit, 0)
    created = order_by == "created"
    with one_state(part.connection):
        begin: tuple[int, int] | None = None
        if after is not None:
            begin = part.connection.execute(_STANDING, (part.of, after)).fetchone()
        last = begin[1] if begin else 0
        at = begin or _FIRST
        bounds: list[tuple[Any, ...]] = [(last,)] if created else [at, at[:1]]
        numbers: tuple[str, ...] = ()
        if metadata:
            holding = _holding(part, metadata, last if created else 0)
            numbers = (pack(list(islice(holding, count) if created else holding)),)
        found: list[Any] = []
        statements = listing(order_by, filtered=bool(metadata))
        for statement, bound in zip(statements, bounds, strict=True):
            values = (*numbers, part.of, *bound, count - len(found))
            found += part.connection.execute(statement, values).fetchall()
    return [record for _, record in decode(found, rows.SESSIONS.read, "sessions")]


def listing(order_by: tx.SessionOrder, *, filtered: bool) -> list[str]:
    """Return the statements that list sessions; if ``filtered``, they bind their numbers first."""
    source = _NUMBERED if filtered else _LISTED[order_by]
    return [f"SELECT {SESSION} FROM {source} WHERE {where}" for where in _AFTER[order_by]]


def count_sessions(part: Tenant, *, metadata: Mapping[str, str] | None = None) -> int:
    """Return the number of sessions that hold all of ``metadata``."""
    metadata = metadata or {}
    if len(metadata) > 1:
        with one_state(part.connection):
            return sum(1 for _ in _holding(part, metadata, 0))
    pair = next(iter(metadata.items()), ())
    found = part.connection.execute(COUNT_HOLDING if pair else COUNT, (part.of, *pair)).fetchone()
    return int(found[0])


def _holding(part: Tenant, metadata: Mapping[str, str], after: int) -> Iterator[int]:
    """Yield the numbers above ``after`` of the sessions that hold all of ``metadata``, in order.

    The search jumps in each pair's index to the first session that the other pairs have not passed.
    So the cost depends on the pair that the fewest sessions hold.
    """
    pairs = list(metadata.items())
    wanted, agreed = after + 1, 0
    while True:
        key, value = pairs[agreed]
        (found,) = part.connection.execute(HOLDING, (part.of, key, value, wanted)).fetchone()
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


def forks(part: Tenant, session_id: str) -> list[SessionRecord]:
    """Return the sessions forked from this session, in the order of their creation."""
    statement = f"{SESSIONS} AND s.forked_from = ? ORDER BY s.session"
    return _records(part.connection, statement, part.of, session_id)


# -- the log


def messages(
    part: Tenant, session_id: str, start: int, stop: int, *, thread: str | None = None
) -> list[StoredMessage]:
    """Return the messages with ``start <= index < stop``, ordered by index.

    If ``thread`` is given, only its messages are returned.
    """
    with one_state(part.connection):
        session = number(part, session_id)
        if session is None:
            return []
        first = session << INDEX_BITS
        values: list[Any] = [first + min(max(end, 0), _ALL) for end in (start, stop)]
        where = "message >= ? AND message < ?"
        if thread is not None:
            where, values = f"{where} AND thread = ?", [*values, thread]
        return _found(part.connection, rows.MESSAGES, f"{where} ORDER BY message", *values)


def flagged(part: Tenant, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
    """Return up to ``limit`` messages that have ``flag``, the newest first."""
    with one_state(part.connection):
        session = number(part, session_id)
        if session is None:
            return []
        first = session << INDEX_BITS
        found = part.connection.execute(
            FLAGGED, (first, first + _ALL, "," + pack(flag), max(limit, 0))
        )
        return decode(found, rows.MESSAGES.read, "messages")


def flagged_in(
    part: Tenant, space: str, flag: str, *, limit: int
) -> list[tuple[str, StoredMessage]]:
    """Return up to ``limit`` messages of a space's members that have ``flag``, the latest first."""
    values = ("," + pack(flag), part.of, SPACE, space, max(limit, 0))
    found = part.connection.execute(FLAGGED_IN, values).fetchall()
    messages = decode([row[1:] for row in found], rows.MESSAGES.read, "messages")
    return [(row[0], message) for row, message in zip(found, messages, strict=True)]


def echoing(part: Tenant, session_id: str) -> list[int]:
    """Return the indices of the messages that have echoes now or had them in an earlier version."""
    with one_state(part.connection):
        session = number(part, session_id)
        if session is None:
            return []
        first = session << INDEX_BITS
        found = [
            row
            for statement in ECHOING
            for row in part.connection.execute(statement, (first, first + _ALL)).fetchall()
        ]
    marked = decode(found, rows.read_echoing, "messages")
    return sorted({index for index, echoes in marked if echoes})


def versions(part: Tenant, session_id: str, index: int) -> list[StoredMessage]:
    """Return the versions of the message from before its edits, oldest first."""
    if not 0 <= index <= _ALL:
        return []
    where = f"message = {_NUMBER} << {INDEX_BITS} | ? ORDER BY edit"
    return _found(part.connection, rows.VERSIONS, where, part.of, session_id, index)


def events(part: Tenant, session_id: str) -> list[tx.LogEvent]:
    """Return the log's events that are not messages, in the order of their writing."""
    where = f"session = {_NUMBER} ORDER BY event"
    return _found(part.connection, rows.EVENTS, where, part.of, session_id)


def blocks(
    part: Tenant, session_id: str, kind: str, start: int = 0, stop: int | None = None
) -> list[tx.Block]:
    """Return the blocks of ``kind`` whose own ``start`` is in the range, ordered by ``start``."""
    values = (part.of, session_id, kind, start, 1 << 62 if stop is None else stop)
    where = f"session = {_NUMBER} AND kind = ? AND start >= ? AND start < ? ORDER BY start"
    return _found(part.connection, rows.BLOCKS, where, *values)


# -- the journal, views and records


def run(part: Tenant, run_id: str) -> tx.RunRecord | None:
    """Return the run with this id, or None if it does not exist."""
    return _first(_found(part.connection, rows.RUNS, "tenant = ? AND id = ?", part.of, run_id))


def runs(part: Tenant, *, subject: str | None = None, limit: int = 100) -> list[tx.RunRecord]:
    """Return up to ``limit`` runs, newest first; if ``subject`` is given, only its runs."""
    where, values = _having(tenant=part.of, subject=subject)
    where = f"{where} ORDER BY run DESC LIMIT ?"
    return _found(part.connection, rows.RUNS, where, *values, max(limit, 0))


def attempts(
    part: Tenant, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
) -> list[tx.Attempt]:
    """Return up to ``limit`` journalled attempts in the order in which they were recorded.

    ``run_id`` and ``session_id`` filter the attempts if they are given.
    """
    where, values = _having(tenant=part.of, run_id=run_id, session_id=session_id)
    where = f"{where} ORDER BY attempt LIMIT ?"
    return _found(part.connection, rows.ATTEMPTS, where, *values, max(limit, 0))


def spent(part: Tenant, session_id: str | None = None) -> tx.Spent:
    """Return the totals of the journalled attempts of one session, or of the whole tenant."""
    where, values = _having(tenant=part.of, session_id=session_id)
    return _found(part.connection, rows.SPENT, where, *values)[0]


def view(part: Tenant, session_id: str, name: str) -> tx.ViewRecord | None:
    """Return the stored view, or None if it does not exist."""
    where = "tenant = ? AND session_id = ? AND name = ?"
    return _first(_found(part.connection, rows.VIEWS, where, part.of, session_id, name))


def views(
    part: Tenant, session_id: str, *, names: Sequence[str] | None = None
) -> list[tx.ViewRecord]:
    """Return the stored views of the session, or those with these names, ordered by name."""
    if names is not None:
        wanted = (view(part, session_id, name) for name in sorted({*names}))
        return [one for one in wanted if one is not None]
    where = "tenant = ? AND session_id = ? ORDER BY name"
    return _found(part.connection, rows.VIEWS, where, part.of, session_id)


def records(
    part: Tenant,
    kind: str,
    *,
    scope: str | None = None,
    key: str | None = None,
    limit: int = 10_000,
) -> list[tx.Record]:
    """Return up to ``limit`` records of ``kind``, ordered by scope, then key.

    ``scope`` and ``key`` filter the records if they are given.
    """
    where, values = _having(tenant=part.of, kind=kind, scope=scope, key=key)
    where = f"{where} ORDER BY scope, key LIMIT ?"
    return _found(part.connection, rows.RECORDS, where, *values, max(limit, 0))
