"""The queries: what a tenant's handle reads, and what a decision asks for.

Each is one statement, so it sees one state: the data committed before it began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hiermem.errors import StoreCorruptError
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode, read_time
from hiermem.stores.postgres.statements import SESSION, Query, digest, listed, single
from hiermem.types import Node, Revision, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Attempt,
    Block,
    KeyEntry,
    LogEvent,
    Need,
    NeedCovering,
    NeedEchoes,
    NeedEvents,
    NeedFlagged,
    NeedForks,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedProvisional,
    NeedRecords,
    NeedRevisions,
    NeedSession,
    NeedViews,
    NodeTally,
    Record,
    RunRecord,
    SessionOrder,
    Spent,
    ViewRecord,
)

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: Above every number.
_ALL: Final = 1 << 62
#: The highest index of a message.
_LAST: Final = (1 << rows.INDEX_BITS) - 1
#: What ``rows.read_session`` reads.
RECORD: Final = (
    f"{rows.SESSION}, coalesce((SELECT json_object_agg(m.key, m.value)::text "
    "FROM session_metadata m WHERE m.tenant = s.tenant AND m.session = s.session), '{}')"
)
_HEADS: Final = (
    f"SELECT {RECORD} FROM sessions s "
    "JOIN heads h ON h.tenant = s.tenant AND h.session = s.session WHERE s.tenant = $1"
)
#: The session after which a page begins.
_AFTER: Final = "(SELECT session FROM sessions WHERE tenant = $1 AND id = $2)"
_NODE: Final = ", ".join(f"n.{name}" for name in tree_rows.NODE.split(", "))
_REVISION: Final = ", ".join(f"r.{name}" for name in tree_rows.REVISION.split(", "))
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
_MADE: Final = ", ".join(
    f"coalesce(sum(r.{name}), 0)::bigint"
    for name in ("tokens", "tokens_in", "tokens_out", "calls", "reused", "duration_ms")
)
_DUE: Final = tree_rows.DUE


def now() -> Query[Any]:
    """Read the server's time; $1 is compared only to be there."""
    return Query(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE $1::uuid = $1",
        (),
        lambda found: read_time(found[0][0]),
    )


def secret() -> Query[bytes]:
    """Read the store's secret."""
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
    return single(_HEADS + " AND s.id = $2", (session_id,), rows.read_session, "sessions")


def session(session_id: str) -> Query[SessionRecord | None]:
    """Read the session's record."""
    return single(_HEADS + " AND s.id = $2", (session_id,), _read_record, "sessions")


def _read_record(row: Sequence[Any]) -> SessionRecord:
    return rows.read_session(row)[1]


def keys(session_id: str, wanted: Sequence[str]) -> Query[dict[str, KeyEntry]]:
    """Read the entries of the keys that exist."""
    return Query(
        f"SELECT {rows.KEY} FROM keys WHERE tenant = $1 AND session = "
        "(SELECT session FROM sessions WHERE tenant = $1 AND id = $2) AND key = ANY($3::text[])",
        (session_id, list(wanted)),
        lambda found: dict(decode(found, rows.read_key, "keys")),
    )


def sessions(
    *, after: str | None, limit: int, metadata: Mapping[str, str], order_by: SessionOrder
) -> Query[list[SessionRecord]]:
    """Read up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
    if order_by == "created":
        page = f"AND s.session > coalesce({_AFTER}, 0)"
        order = "s.session"
    else:
        page = (
            f"AND (h.last_activity, h.session) < (coalesce((SELECT last_activity FROM heads "
            f"WHERE tenant = $1 AND session = {_AFTER}), {(1 << 63) - 1}), "
            f"coalesce({_AFTER}, {(1 << 63) - 1}))"
        )
        order = "h.last_activity DESC, h.session DESC"
    held, values = _holding(metadata, 4)
    return listed(
        f"{_HEADS} {page}{held} ORDER BY {order} LIMIT $3",
        (after, max(limit, 0), *values),
        _read_record,
        "sessions",
    )


def count_sessions(metadata: Mapping[str, str]) -> Query[int]:
    """Count the sessions that hold all of ``metadata``."""
    held, values = _holding(metadata, 2)
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
    """Read the sessions forked from this one, in the order of their creation."""
    return listed(
        _HEADS + " AND s.forked_from = $2 ORDER BY s.session",
        (session_id,),
        _read_record,
        "sessions",
    )


# -- the log


def messages(
    session_id: str, start: int, stop: int, thread: str | None = None
) -> Query[list[StoredMessage]]:
    """Read the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
    bounds = (min(max(start, 0), _LAST), min(max(stop, 0), _LAST))
    of_thread, values = ("", ()) if thread is None else (" AND m.thread = $5", (thread,))
    return listed(
        f"SELECT {_prefixed(rows.MESSAGE)} FROM sessions s JOIN messages m "
        f"ON m.tenant = s.tenant AND m.message >= (s.session << {rows.INDEX_BITS}) + $3 "
        f"AND m.message < (s.session << {rows.INDEX_BITS}) + $4 "
        f"{_OF}{of_thread} ORDER BY m.message",
        (session_id, *bounds, *values),
        rows.read_message,
        "messages",
    )


def _prefixed(columns: str) -> str:
    return ", ".join(f"m.{name}" for name in columns.split(", "))


def versions(session_id: str, index: int) -> Query[list[StoredMessage]]:
    """Read what the message was before its edits, oldest first."""
    return listed(
        f"SELECT {_prefixed(rows.MESSAGE)} FROM sessions s JOIN versions m "
        f"ON m.tenant = s.tenant AND m.message = (s.session << {rows.INDEX_BITS}) + $3 "
        f"{_OF} AND $3 BETWEEN 0 AND {_LAST} ORDER BY m.edit",
        (session_id, index),
        rows.read_message,
        "versions",
    )


def flagged(session_id: str, flag: str, limit: int) -> Query[list[StoredMessage]]:
    """Read up to ``limit`` messages that have ``flag``, the newest first."""
    return listed(
        f"SELECT {_prefixed(rows.MESSAGE)} FROM sessions s JOIN messages m "
        f"ON m.tenant = s.tenant AND m.message >= s.session << {rows.INDEX_BITS} "
        f"AND m.message < (s.session + 1) << {rows.INDEX_BITS} "
        f"{_OF} AND m.flags IS NOT NULL AND m.flags::jsonb ? $3 "
        "ORDER BY m.message DESC LIMIT $4",
        (session_id, flag, max(limit, 0)),
        rows.read_message,
        "messages",
    )


def echoing(session_id: str) -> Query[list[int]]:
    """Read the indices of messages that have echoes now or had them in an earlier version."""
    found = " UNION ALL ".join(
        f"SELECT m.message, m.rest FROM sessions s JOIN {table} m "
        f"ON m.tenant = s.tenant AND m.message >= s.session << {rows.INDEX_BITS} "
        f"AND m.message < (s.session + 1) << {rows.INDEX_BITS} "
        f"""{_OF} AND strpos(m.rest, '"echoes":[[') > 0"""
        for table in ("messages", "versions")
    )

    def read(found: list[tuple[Any, ...]]) -> list[int]:
        marked = decode(found, rows.read_echoing, "messages")
        return sorted({index for index, echoes in marked if echoes})

    return Query(found, (session_id,), read)


def events(session_id: str) -> Query[list[LogEvent]]:
    """Read the log's events that are not messages, in the order of their writing."""
    return listed(
        f"SELECT {_prefixed(rows.EVENT)} FROM sessions s "
        f"JOIN events m ON m.tenant = s.tenant AND m.session = s.session {_OF} ORDER BY m.event",
        (session_id,),
        rows.read_event,
        "events",
    )


# -- trees


def nodes(session_id: str, tree: int | None, ids: Sequence[str]) -> Query[list[Node]]:
    """Read the nodes with these ids that exist, in the order of ``ids``."""
    return listed(
        f"SELECT {_NODE} FROM {_TREE} "
        "JOIN unnest($4::text[]) WITH ORDINALITY AS w(id, place) ON w.id = n.id "
        f"{_OF} ORDER BY w.place",
        (session_id, tree, list(ids)),
        tree_rows.read_node,
        "nodes",
    )


def level(
    session_id: str, tree: int | None, level: int, start: int, stop: int | None
) -> Query[list[Node]]:
    """Read the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
    return listed(
        f"SELECT {_NODE} FROM {_TREE} {_OF} AND n.level = $4 AND n.sealed = 1 "
        "AND n.ordinal >= $5 AND n.ordinal < $6 ORDER BY n.ordinal",
        (session_id, tree, level, start, _ALL if stop is None else stop),
        tree_rows.read_node,
        "nodes",
    )


def levels(session_id: str, tree: int | None) -> Query[dict[int, int]]:
    """Count the sealed nodes of each level that has any."""
    return Query(
        f"SELECT n.level, count(*) FROM {_TREE} {_OF} AND n.sealed = 1 "
        "GROUP BY n.level ORDER BY n.level",
        (session_id, tree),
        dict,
    )


def covering(
    session_id: str, tree: int | None, thread: str, index: int, last: int | None = None
) -> Query[list[Node]]:
    """Read the sealed level-1 nodes of ``thread`` that hold a message from ``index`` to ``last``.

    The windows of a thread follow one another, so the first that begins after the last message is
    the end of the range that is read.
    """
    of_thread = "n.thread = $4 AND n.sealed = 1 AND n.level = 1"
    return listed(
        f"SELECT {_NODE} FROM {_TREE} {_OF} AND {of_thread} AND n.stop > $5 AND n.start <= $6 "
        f"AND n.stop <= coalesce((SELECT n.stop FROM {_TREE} {_OF} AND {of_thread} "
        f"AND n.stop > $6 AND n.start > $6 ORDER BY n.stop, n.start LIMIT 1), {_ALL}) "
        "ORDER BY n.ordinal",
        (session_id, tree, thread, index, index if last is None else last),
        tree_rows.read_node,
        "nodes",
    )


def provisional(session_id: str, tree: int | None) -> Query[list[Node]]:
    """Read the nodes that are not sealed, by level, then id."""
    return listed(
        f"SELECT {_NODE} FROM {_TREE} {_OF} AND n.sealed = 0 ORDER BY n.level, n.id",
        (session_id, tree),
        tree_rows.read_node,
        "nodes",
    )


def unfinished(
    session_id: str, tree: int | None, level: int, after: int, limit: int
) -> Query[list[Node]]:
    """Read up to ``limit`` sealed nodes of ``level`` that have work left, by ordinal."""
    return listed(
        f"SELECT {_NODE} FROM {_TREE} {_OF} AND n.level = $4 AND n.ordinal > $5 "
        "AND n.sealed = 1 AND (n.status <> 'active' OR n.degraded = 1 OR n.dirty = 1) "
        "ORDER BY n.ordinal LIMIT $6",
        (session_id, tree, level, after, max(limit, 0)),
        tree_rows.read_node,
        "nodes",
    )


def outdated(
    session_id: str,
    tree: int | None,
    level: int,
    strategies: Sequence[str],
    *,
    after: int,
    limit: int,
) -> Query[list[Node]]:
    """Read up to ``limit`` sealed nodes of ``level`` with a strategy outside ``strategies``."""
    return listed(
        f"SELECT {_NODE} FROM {_TREE} JOIN {_SERVING} {_OF} AND n.level = $4 AND n.sealed = 1 "
        "AND n.ordinal > $5 AND r.strategy <> ALL($6::text[]) ORDER BY n.ordinal LIMIT $7",
        (session_id, tree, level, after, list(strategies), max(limit, 0)),
        tree_rows.read_node,
        "nodes",
    )


def tally(session_id: str, tree: int | None) -> Query[list[NodeTally]]:
    """Add up the sealed nodes by level, then status."""
    return listed(
        "SELECT n.level, n.status, count(*), count(r.number), sum(n.degraded)::bigint, "
        "sum(n.dirty)::bigint, sum(n.stale)::bigint, sum(n.input_tokens)::bigint, "
        "coalesce(sum(n.input_tokens) FILTER (WHERE r.number IS NOT NULL), 0)::bigint, "
        f"{_MADE}, coalesce(sum(r.fidelity), 0.0), count(r.fidelity), min(n.since) "
        f"FROM {_TREE} LEFT JOIN {_SERVING} {_OF} AND n.sealed = 1 "
        "GROUP BY n.level, n.status ORDER BY n.level, n.status",
        (session_id, tree),
        tree_rows.read_tally,
        "nodes",
    )


def revisions(
    session_id: str, tree: int | None, wanted: Sequence[tuple[str, int]]
) -> Query[list[Revision]]:
    """Read the revisions with these (node id, number) that exist, in the order of ``wanted``."""
    return listed(
        f"SELECT {_REVISION} FROM {SESSION.split(' WHERE ')[0]} JOIN revisions r "
        "ON r.tenant = s.tenant AND r.session = s.session "
        "AND r.tree = coalesce($3::bigint, h.tree) "
        "JOIN unnest($4::text[], $5::bigint[]) WITH ORDINALITY AS w(id, number, place) "
        f"ON w.id = r.node_id AND w.number = r.number {_OF} ORDER BY w.place",
        (session_id, tree, [id_ for id_, _ in wanted], [number for _, number in wanted]),
        tree_rows.read_revision,
        "revisions",
    )


def reusable(input_hash: str) -> Query[Revision | None]:
    """Read the tenant's newest revision with this input hash, not degraded."""
    return single(
        f"SELECT {tree_rows.REVISION} FROM revisions WHERE tenant = $1 AND input_hash = $2 "
        "AND degraded = 0 AND EXISTS (SELECT FROM heads h WHERE h.tenant = $1 "
        "AND h.session = revisions.session) ORDER BY written DESC LIMIT 1",
        (input_hash,),
        tree_rows.read_revision,
        "revisions",
    )


def backlog(after: str | None, limit: int) -> Query[list[str]]:
    """Read up to ``limit`` ids of sessions with unfinished nodes in the tree that serves.

    The search goes from one session with work left directly to the next, in the index of
    unfinished nodes.
    """
    following = (
        f"SELECT session FROM nodes WHERE tenant = $1 AND session > {{}} AND {_DUE} "
        "ORDER BY session LIMIT 1"
    )
    return Query(
        f"WITH RECURSIVE w(session) AS (({following.format(f'coalesce({_AFTER}, 0)')}) "
        f"UNION ALL SELECT ({following.format('w.session')}) FROM w WHERE w.session IS NOT NULL) "
        "SELECT (SELECT s.id FROM sessions s WHERE s.tenant = $1 AND s.session = w.session) "
        "FROM w WHERE EXISTS (SELECT FROM heads h JOIN nodes n ON n.tenant = h.tenant "
        "AND n.session = h.session AND n.tree = h.tree WHERE h.tenant = $1 "
        "AND h.session = w.session AND n.sealed = 1 "
        "AND (n.status <> 'active' OR n.degraded = 1 OR n.dirty = 1)) LIMIT $3",
        (after, max(limit, 0)),
        lambda found: [id_ for (id_,) in found],
    )


# -- the journal, views, records and blocks


def run(run_id: str) -> Query[RunRecord | None]:
    """Read the run with this id."""
    return single(
        f"SELECT {tree_rows.RUN} FROM runs WHERE tenant = $1 AND id = $2",
        (run_id,),
        tree_rows.read_run,
        "runs",
    )


def _named(number: int, **columns: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition that the columns have these values, if given, bound from ``$number``."""
    given = {name: value for name, value in columns.items() if value is not None}
    where = "".join(
        f" AND hashtextextended({name}, 0) = hashtextextended(${place}, 0) AND {name} = ${place}"
        for place, name in enumerate(given, number)
    )
    return where, tuple(given.values())


def runs(subject: str | None, limit: int) -> Query[list[RunRecord]]:
    """Read up to ``limit`` runs, newest first, of one subject if given."""
    where, values = _named(3, subject=subject)
    return listed(
        f"SELECT {tree_rows.RUN} FROM runs WHERE tenant = $1{where} ORDER BY run DESC LIMIT $2",
        (max(limit, 0), *values),
        tree_rows.read_run,
        "runs",
    )


def attempts(run_id: str | None, session_id: str | None, limit: int) -> Query[list[Attempt]]:
    """Read up to ``limit`` journalled attempts in the order in which they were recorded."""
    where, values = _named(3, run_id=run_id, session_id=session_id)
    return listed(
        f"SELECT {tree_rows.ATTEMPT} FROM attempts WHERE tenant = $1{where} "
        "ORDER BY attempt LIMIT $2",
        (max(limit, 0), *values),
        tree_rows.read_attempt,
        "attempts",
    )


def spent(session_id: str | None) -> Query[Spent]:
    """Add up the journalled attempts of one session, or of the whole tenant."""
    where, values = _named(2, session_id=session_id)
    return Query(
        "SELECT count(*), coalesce(sum(tokens_in), 0)::bigint, "
        "coalesce(sum(tokens_out), 0)::bigint, "
        "count(*) FILTER (WHERE outcome IN ('started', 'unknown')), "
        "coalesce(sum(cached_tokens), 0)::bigint, coalesce(sum(reasoning_tokens), 0)::bigint, "
        f"sum(cost) FROM attempts WHERE tenant = $1{where}",
        values,
        lambda found: decode(found, tree_rows.read_spent, "attempts")[0],
    )


def view(session_id: str, name: str) -> Query[ViewRecord | None]:
    """Read the view of this name."""
    return single(
        f"SELECT {rows.VIEW} FROM views WHERE tenant = $1 AND place = $2",
        (digest(session_id, name),),
        rows.read_view,
        "views",
    )


def views(session_id: str, names: Sequence[str] | None = None) -> Query[list[ViewRecord]]:
    """Read the views of the session, or those with these names, by name."""
    where: str
    values: tuple[Any, ...]
    if names is None:
        where, values = _named(2, session_id=session_id)
    else:
        where = " AND place = ANY($2::uuid[])"
        values = ([digest(session_id, name) for name in names],)
    return listed(
        f"SELECT {rows.VIEW} FROM views WHERE tenant = $1{where} ORDER BY name",
        values,
        rows.read_view,
        "views",
    )


def records(
    kind: str, *, scope: str | None = None, key: str | None = None, limit: int = _ALL
) -> Query[list[Record]]:
    """Read up to ``limit`` records of ``kind``, by scope, then key."""
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
    return listed(
        f"SELECT {rows.RECORD} FROM records WHERE tenant = $1 AND kind = $2{where} "
        "ORDER BY scope, key LIMIT $3",
        (kind, max(limit, 0), *values),
        rows.read_record,
        "records",
    )


def blocks(session_id: str, kind: str, start: int, stop: int | None) -> Query[list[Block]]:
    """Read the blocks of ``kind`` whose own ``start`` is in the range, by ``start``."""
    return listed(
        f"SELECT {_prefixed(rows.BLOCK)} FROM sessions s "
        "JOIN blocks m ON m.tenant = s.tenant AND m.session = s.session "
        f"{_OF} AND m.kind = $3 AND m.start >= $4 AND m.start < $5 ORDER BY m.start",
        (session_id, kind, start, _ALL if stop is None else stop),
        rows.read_block,
        "blocks",
    )


# -- what decisions ask for


def answer(session_id: str, need: Need) -> Query[Any]:  # noqa: PLR0912 - one for each need
    """Return the query that answers a need of a decision."""
    found: Query[Any]
    match need:
        case NeedSession():
            found = head(session_id)
        case NeedForks():
            found = forks(session_id)
        case NeedMessages(start, stop, thread):
            found = messages(session_id, start, stop, thread)
        case NeedEchoes():
            found = echoing(session_id)
        case NeedFlagged(flag, limit):
            found = flagged(session_id, flag, limit)
        case NeedEvents():
            found = events(session_id)
        case NeedNodes(ids, tree):
            found = nodes(session_id, tree, ids)
        case NeedLevel(number, start, stop, tree):
            found = level(session_id, tree, number, start, stop)
        case NeedCovering(thread, index, tree, last):
            found = covering(session_id, tree, thread, index, last)
        case NeedProvisional(tree):
            found = provisional(session_id, tree)
        case NeedRevisions(wanted, tree):
            found = revisions(session_id, tree, wanted)
        case NeedViews(names):
            found = views(session_id, names)
        case NeedRecords(kind, everywhere):
            found = records(kind, scope=None if everywhere else session_id)
    return found
