"""The queries: what a tenant's handle reads, and what a decision asks for.

Each is one statement, so it sees one state: the data committed before it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from hiermem.errors import StoreCorruptError
from hiermem.stores import rows
from hiermem.stores.contract import Format, decode, read_time
from hiermem.stores.postgres.due import NUMBER, SESSION, Query, digest, listed, single
from hiermem.types import Node, Revision, SessionRecord, StoredMessage
from hiermem.types import transaction as tx
from hiermem.types.tree import SPACE

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: A tree of a session: the session's id, and the tree's number, None for the serving one.
TreeOf: TypeAlias = tuple[str, int | None]
#: Above every number.
_ALL: Final = 1 << 62
#: The highest index of a message.
_LAST: Final = (1 << rows.INDEX_BITS) - 1
#: What ``rows.SESSIONS`` reads.
RECORD: Final = (
    f"{rows.SESSION}, coalesce((SELECT json_object_agg(m.key, m.value)::text "
    "FROM session_metadata m WHERE m.tenant = s.tenant AND m.session = s.session), '{}')"
)
_HEADS: Final = (
    f"SELECT {RECORD} FROM sessions s "
    "JOIN heads h ON h.tenant = s.tenant AND h.session = s.session WHERE s.tenant = $1"
)
_NODE: Final = rows.prefixed("n", rows.NODES.columns)
_REVISION: Final = rows.prefixed("r", rows.REVISIONS.columns)
#: The session, the number of its tree as $3, and the nodes of the tree.
_TREE: Final = (
    "sessions s JOIN heads h ON h.tenant = s.tenant AND h.session = s.session "
    "JOIN nodes n ON n.tenant = s.tenant AND n.session = s.session "
    "AND n.tree = coalesce($3::bigint, h.tree)"
)
_OF: Final = "WHERE s.tenant = $1 AND s.id = $2"
_SERVING: Final = (
    "revisions r ON r.tenant = n.tenant AND r.session = n.session AND r.tree = n.tree "
    "AND r.node_id = n.id AND r.number = n.revision"
)
#: ``rows.DUE`` of the nodes ``n``.
_DUE: Final = "(n.status <> 'active' OR n.degraded = 1 OR n.dirty = 1)"


def now() -> Query[datetime]:
    """Return the server's time."""
    # $1 is compared only to be there.
    return Query(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE $1::uuid = $1",
        (),
        lambda found: read_time(found[0][0]),
    )


def secret() -> Query[bytes]:
    """Return the store's secret."""
    return Query("SELECT secret FROM store WHERE $1::uuid = $1", (), _read_secret)


def _read_secret(found: list[tuple[Any, ...]]) -> bytes:
    if not found or not isinstance(found[0][0], bytes) or len(found[0][0]) != 32:
        raise StoreCorruptError("the store is damaged: its secret is missing")
    return found[0][0]


def holds_nothing() -> Query[bool]:
    """Read whether no tenant has anything stored."""
    return Query(
        "SELECT NOT EXISTS (SELECT FROM listed_tenants) WHERE $1::uuid = $1",
        (),
        lambda found: bool(found[0][0]),
    )


def tenants(after: str | None, limit: int) -> Query[list[str]]:
    """Read up to ``limit`` names, after ``after``, of tenants with anything stored, in order."""
    return Query(
        "SELECT name FROM listed_tenants WHERE $1::uuid = $1 AND name > $2 ORDER BY name LIMIT $3",
        (after or "", max(limit, 0)),
        lambda found: [name for (name,) in found],
    )


# -- sessions


def head(session_id: str) -> Query[tuple[int, SessionRecord] | None]:
    """Read the session's number and record."""
    return single(rows.SESSIONS, f"{_HEADS} AND s.id = $2", session_id)


def session(session_id: str) -> Query[SessionRecord | None]:
    """Return the session's record, or None if it does not exist."""
    found = head(session_id)
    return Query(found.sql, found.values, lambda given: (one := found.read(given)) and one[1])


def _records(sql: str, *values: Any) -> Query[list[SessionRecord]]:
    return Query(
        sql,
        values,
        lambda found: [record for _, record in decode(found, rows.SESSIONS.read, "sessions")],
    )


def keys(session_id: str, wanted: Sequence[str]) -> Query[dict[str, tx.KeyEntry]]:
    """Read the entries of the keys that exist."""
    return Query(
        f"SELECT {rows.KEYS.columns} FROM keys WHERE tenant = $1 AND session = {NUMBER} "
        "AND key = ANY($3::text[])",
        (session_id, list(wanted)),
        lambda found: dict(decode(found, rows.KEYS.read, "keys")),
    )


def sessions(
    *,
    after: str | None = None,
    limit: int = 100,
    metadata: Mapping[str, str] | None = None,
    order_by: tx.SessionOrder = "created",
) -> Query[list[SessionRecord]]:
    """Read up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
    if order_by == "created":
        page = f"AND s.session > coalesce({NUMBER}, 0)"
        order = "s.session"
    else:
        page = (
            f"AND (h.last_activity, h.session) < (coalesce((SELECT last_activity FROM heads "
            f"WHERE tenant = $1 AND session = {NUMBER}), {(1 << 63) - 1}), "
            f"coalesce({NUMBER}, {(1 << 63) - 1}))"
        )
        order = "h.last_activity DESC, h.session DESC"
    held, values = _holding(metadata or {}, 4)
    sql = f"{_HEADS} {page}{held} ORDER BY {order} LIMIT $3"
    return _records(sql, after, max(limit, 0), *values)


def count_sessions(*, metadata: Mapping[str, str] | None = None) -> Query[int]:
    """Return the number of sessions that hold all of ``metadata``."""
    held, values = _holding(metadata or {}, 2)
    counted = f"SELECT count(*) FROM sessions s WHERE s.tenant = $1{held}"
    return Query(counted, values, lambda found: int(found[0][0]))


def _holding(metadata: Mapping[str, str], number: int) -> tuple[str, tuple[str, ...]]:
    """Return the condition that the session ``s`` holds all pairs, bound from ``$number`` on."""
    held, values = "", tuple(one for pair in metadata.items() for one in pair)
    for place in range(number, number + len(values), 2):
        key, value = f"${place}", f"${place + 1}"
        held += (
            " AND s.session IN (SELECT m.session FROM session_metadata m WHERE m.tenant = $1 "
            "AND hashtextextended(m.value, hashtextextended(m.key, 0)) = "
            f"hashtextextended({value}, hashtextextended({key}, 0)) "
            f"AND m.key = {key} AND m.value = {value})"
        )
    return held, values


def forks(session_id: str) -> Query[list[SessionRecord]]:
    """Return the sessions forked from this one, in the order of their creation."""
    return _records(f"{_HEADS} AND s.forked_from = $2 ORDER BY s.session", session_id)


# -- the log


def _log(table: str, columns: str, low: str, high: str) -> str:
    """Return the query of a log's rows ``m`` of the session, from one number to another."""
    return (
        f"SELECT {rows.prefixed('m', columns)} FROM sessions s JOIN {table} m "
        f"ON m.tenant = s.tenant AND m.message >= {low} AND m.message < {high} {_OF}"
    )


_FIRST: Final = f"(s.session << {rows.INDEX_BITS})"
_END: Final = f"((s.session + 1) << {rows.INDEX_BITS})"


def messages(
    session_id: str, start: int, stop: int, *, thread: str | None = None
) -> Query[list[StoredMessage]]:
    """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
    bounds = (min(max(start, 0), _LAST), min(max(stop, 0), _LAST))
    of_thread, values = ("", ()) if thread is None else (" AND m.thread = $5", (thread,))
    found = _log("messages", rows.MESSAGES.columns, f"{_FIRST} + $3", f"{_FIRST} + $4")
    sql = f"{found}{of_thread} ORDER BY m.message"
    return listed(rows.MESSAGES, sql, session_id, *bounds, *values)


def versions(session_id: str, index: int) -> Query[list[StoredMessage]]:
    """Return the versions of the message from before its edits, oldest first."""
    return listed(
        rows.VERSIONS,
        f"SELECT {rows.prefixed('m', rows.VERSIONS.columns)} FROM sessions s JOIN versions m "
        f"ON m.tenant = s.tenant AND m.message = {_FIRST} + $3 "
        f"{_OF} AND $3 BETWEEN 0 AND {_LAST} ORDER BY m.edit",
        session_id,
        index,
    )


def flagged(session_id: str, flag: str, *, limit: int) -> Query[list[StoredMessage]]:
    """Return up to ``limit`` messages that have ``flag``, the newest first."""
    sql = (
        f"{_log('messages', rows.MESSAGES.columns, _FIRST, _END)} AND m.flags IS NOT NULL "
        "AND m.flags::jsonb ? $3 ORDER BY m.message DESC LIMIT $4"
    )
    return listed(rows.MESSAGES, sql, session_id, flag, max(limit, 0))


def flagged_in(space: str, flag: str, *, limit: int) -> Query[list[tuple[str, StoredMessage]]]:
    """Return up to ``limit`` messages of a space's members that have ``flag``, the latest first."""
    sql = (
        f"SELECT s.id, {rows.prefixed('m', rows.MESSAGES.columns)} FROM session_metadata h "
        "JOIN sessions s ON s.tenant = h.tenant AND s.session = h.session "
        f"JOIN messages m ON m.tenant = s.tenant AND m.message >= {_FIRST} AND m.message < {_END} "
        "AND m.flags IS NOT NULL AND m.flags::jsonb ? $4 "
        "WHERE h.tenant = $1 AND h.key = $2 AND h.value = $3 "
        "ORDER BY m.created_at DESC, m.message DESC LIMIT $5"
    )

    def read(found: list[tuple[Any, ...]]) -> list[tuple[str, StoredMessage]]:
        messages = decode([row[1:] for row in found], rows.MESSAGES.read, "messages")
        return [(row[0], message) for row, message in zip(found, messages, strict=True)]

    return Query(sql, (SPACE, space, flag, max(limit, 0)), read)


def echoing(session_id: str) -> Query[list[int]]:
    """Read the indices of messages that have echoes now or had them in an earlier version."""
    found = " UNION ALL ".join(
        f"""{_log(table, "message, rest", _FIRST, _END)} AND strpos(m.rest, '"echoes":[[') > 0"""
        for table in ("messages", "versions")
    )

    def read(found: list[tuple[Any, ...]]) -> list[int]:
        marked = decode(found, rows.read_echoing, "messages")
        return sorted({index for index, echoes in marked if echoes})

    return Query(found, (session_id,), read)


def events(session_id: str) -> Query[list[tx.LogEvent]]:
    """Return the log's events that are not messages, in the order of their writing."""
    sql = f"{_of_session(rows.EVENTS)} ORDER BY m.event"
    return listed(rows.EVENTS, sql, session_id)


def _of_session(form: Format[Any]) -> str:
    """Return the query of the rows ``m`` of the session."""
    return (
        f"SELECT {rows.prefixed('m', form.columns)} FROM sessions s JOIN {form.table} m "
        f"ON m.tenant = s.tenant AND m.session = s.session {_OF}"
    )


# -- trees


def _nodes(of: TreeOf, where: str, *values: Any, joined: str = "") -> Query[list[Node]]:
    return listed(rows.NODES, f"SELECT {_NODE} FROM {_TREE} {joined}{_OF} {where}", *of, *values)


def nodes(of: TreeOf, ids: Sequence[str]) -> Query[list[Node]]:
    """Return the nodes with these ids that exist, in the order of ``ids``."""
    wanted = "JOIN unnest($4::text[]) WITH ORDINALITY AS w(id, place) ON w.id = n.id "
    return _nodes(of, "ORDER BY w.place", list(ids), joined=wanted)


def level(of: TreeOf, level: int, start: int, stop: int | None = None) -> Query[list[Node]]:
    """Return the nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
    where = "AND n.level = $4 AND n.ordinal >= $5 AND n.ordinal < $6 ORDER BY n.ordinal"
    return _nodes(of, where, level, start, _ALL if stop is None else stop)


def levels(of: TreeOf) -> Query[dict[int, int]]:
    """Return the number of nodes for each level that has any."""
    sql = f"SELECT n.level, count(*) FROM {_TREE} {_OF} GROUP BY n.level ORDER BY n.level"
    return Query(sql, of, dict)


def covering(of: TreeOf, thread: str, index: int) -> Query[list[Node]]:
    """Return the level-1 nodes of ``thread`` that hold the message, by ordinal."""
    return spanning(of, thread, index, index)


def spanning(of: TreeOf, thread: str, index: int, last: int) -> Query[list[Node]]:
    """Read the sealed level-1 nodes of ``thread`` that hold a message from ``index`` to ``last``.

    The windows of a thread follow one another, so the first that begins after the last message is
    the end of the range that is read.
    """
    of_thread = "n.thread = $4 AND n.level = 1"
    where = (
        f"AND {of_thread} AND n.stop > $5 AND n.start <= $6 "
        f"AND n.stop <= coalesce((SELECT n.stop FROM {_TREE} {_OF} AND {of_thread} "
        f"AND n.stop > $6 AND n.start > $6 ORDER BY n.stop, n.start LIMIT 1), {_ALL}) "
        "ORDER BY n.ordinal"
    )
    return _nodes(of, where, thread, index, last)


def unfinished(of: TreeOf, level: int, after: int, limit: int) -> Query[list[Node]]:
    """Return up to ``limit`` nodes of ``level`` that have work left, by ordinal."""
    where = f"AND n.level = $4 AND n.ordinal > $5 AND {_DUE} ORDER BY n.ordinal LIMIT $6"
    return _nodes(of, where, level, after, max(limit, 0))


def outdated(
    of: TreeOf, level: int, strategies: Sequence[str], after: int, limit: int
) -> Query[list[Node]]:
    """Return up to ``limit`` nodes of ``level`` with a strategy outside ``strategies``."""
    where = (
        "AND n.level = $4 AND n.ordinal > $5 AND r.strategy <> ALL($6::text[]) "
        "ORDER BY n.ordinal LIMIT $7"
    )
    values = (level, after, list(strategies), max(limit, 0))
    return _nodes(of, where, *values, joined=f"JOIN {_SERVING} ")


def tally(of: TreeOf) -> Query[list[tx.NodeTally]]:
    """Return the totals of the nodes for each level and status, in that order."""
    return listed(
        rows.TALLY,
        f"SELECT {rows.TALLY.columns} FROM {_TREE} LEFT JOIN {_SERVING} {_OF} "
        "GROUP BY n.level, n.status ORDER BY n.level, n.status",
        *of,
    )


def revisions(of: TreeOf, wanted: Sequence[tuple[str, int]]) -> Query[list[Revision]]:
    """Return the revisions with these (node id, number) that exist, in the order of ``wanted``."""
    return listed(
        rows.REVISIONS,
        f"SELECT {_REVISION} FROM {SESSION.split(' WHERE ')[0]} JOIN revisions r "
        "ON r.tenant = s.tenant AND r.session = s.session "
        "AND r.tree = coalesce($3::bigint, h.tree) "
        "JOIN unnest($4::text[], $5::bigint[]) WITH ORDINALITY AS w(id, number, place) "
        f"ON w.id = r.node_id AND w.number = r.number {_OF} ORDER BY w.place",
        *of,
        [id_ for id_, _ in wanted],
        [number for _, number in wanted],
    )


def reusable(input_hash: str) -> Query[Revision | None]:
    """Return the tenant's newest revision with this input hash, not degraded, or None."""
    sql = (
        f"SELECT {rows.REVISIONS.columns} FROM revisions WHERE tenant = $1 AND input_hash = $2 "
        "AND degraded = 0 AND EXISTS (SELECT FROM heads h WHERE h.tenant = $1 "
        "AND h.session = revisions.session) ORDER BY written DESC LIMIT 1"
    )
    return single(rows.REVISIONS, sql, input_hash)


# -- the journal, views, records and blocks


def run(run_id: str) -> Query[tx.RunRecord | None]:
    """Return the run with this id, or None if it does not exist."""
    return single(rows.RUNS, f"{_of_tenant(rows.RUNS)} AND id = $2", run_id)


def _named(number: int, **columns: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition that the columns have these values, if given, bound from ``$number``."""
    given = {name: value for name, value in columns.items() if value is not None}
    where = "".join(
        f" AND hashtextextended({name}, 0) = hashtextextended(${place}, 0) AND {name} = ${place}"
        for place, name in enumerate(given, number)
    )
    return where, tuple(given.values())


def _of_tenant(form: Format[Any]) -> str:
    return f"SELECT {form.columns} FROM {form.table} WHERE tenant = $1"


def runs(*, subject: str | None = None, limit: int = 100) -> Query[list[tx.RunRecord]]:
    """Return up to ``limit`` runs, newest first; if ``subject`` is given, only its runs."""
    where, values = _named(3, subject=subject)
    sql = f"{_of_tenant(rows.RUNS)}{where} ORDER BY run DESC LIMIT $2"
    return listed(rows.RUNS, sql, max(limit, 0), *values)


def attempts(
    *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
) -> Query[list[tx.Attempt]]:
    """Return up to ``limit`` journalled attempts in the order in which they were recorded.

    ``run_id`` and ``session_id`` filter the attempts if they are given.
    """
    where, values = _named(3, run_id=run_id, session_id=session_id)
    sql = f"{_of_tenant(rows.ATTEMPTS)}{where} ORDER BY attempt LIMIT $2"
    return listed(rows.ATTEMPTS, sql, max(limit, 0), *values)


def spent(session_id: str | None = None) -> Query[tx.Spent]:
    """Return the totals of the journalled attempts of one session, or of the whole tenant."""
    where, values = _named(2, session_id=session_id)
    return Query(
        f"{_of_tenant(rows.SPENT)}{where}",
        values,
        lambda found: decode(found, rows.SPENT.read, "attempts")[0],
    )


def view(session_id: str, name: str) -> Query[tx.ViewRecord | None]:
    """Return the stored view, or None if it does not exist."""
    return single(rows.VIEWS, f"{_of_tenant(rows.VIEWS)} AND place = $2", digest(session_id, name))


def views(session_id: str, *, names: Sequence[str] | None = None) -> Query[list[tx.ViewRecord]]:
    """Return the views of the session, or those with these names, by name."""
    where, values = _named(2, session_id=session_id)
    if names is None:
        return listed(rows.VIEWS, f"{_of_tenant(rows.VIEWS)}{where} ORDER BY name", *values)
    sql = f"{_of_tenant(rows.VIEWS)} AND place = ANY($2::uuid[]) ORDER BY name"
    return listed(rows.VIEWS, sql, [digest(session_id, name) for name in names])


def records(
    kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
) -> Query[list[tx.Record]]:
    """Return up to ``limit`` records of ``kind``, ordered by scope, then key.

    ``scope`` and ``key`` filter the records if they are given.
    """
    where, values = _named(4, scope=scope)
    if key is not None:
        number = 4 + len(values)
        where += (
            " AND hashtextextended(key, hashtextextended(kind, 0)) = "
            f"hashtextextended(${number}, hashtextextended($2, 0)) AND key = ${number}"
        )
        values = (*values, key)
    elif scope is None:
        where = " AND hashtextextended(kind, 0) = hashtextextended($2, 0)"
    sql = f"{_of_tenant(rows.RECORDS)} AND kind = $2{where} ORDER BY scope, key LIMIT $3"
    return listed(rows.RECORDS, sql, kind, max(limit, 0), *values)


def blocks(
    session_id: str, kind: str, start: int = 0, stop: int | None = None
) -> Query[list[tx.Block]]:
    """Return the blocks of ``kind`` whose own ``start`` is in the range, by ``start``."""
    sql = (
        f"{_of_session(rows.BLOCKS)} AND m.kind = $3 AND m.start >= $4 AND m.start < $5 "
        "ORDER BY m.start"
    )
    return listed(rows.BLOCKS, sql, session_id, kind, start, _ALL if stop is None else stop)
