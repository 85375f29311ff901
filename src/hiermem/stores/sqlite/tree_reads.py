"""The statements that read trees: nodes, revisions, and the work that is left to do.

As in ``reads``, every statement is bound to its tenant. A statement that reads a session's nodes or
revisions is also bound to one tree. The conditions of an index are repeated word for word, because
otherwise SQLite would not use the index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from hiermem.stores import tree_rows
from hiermem.stores.codec import decode
from hiermem.stores.sqlite.reads import one_state, place
from hiermem.types import Node, Revision
from hiermem.types.transaction import NodeTally

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_NODES: Final = f"SELECT {tree_rows.NODE} FROM nodes WHERE session = ? AND tree = ?"
_NODE: Final = _NODES + " AND id = ?"
_OF_LEVEL: Final = (
    _NODES + " AND level = ? AND sealed = 1 AND ordinal >= ? AND ordinal < ? ORDER BY ordinal"
)
UNFINISHED: Final = (
    f"SELECT {tree_rows.NODE} FROM nodes WHERE tenant = ? AND session = ? AND tree = ? "
    f"AND level = ? AND ordinal > ? AND {tree_rows.DUE} ORDER BY ordinal LIMIT ?"
)
COVERING: Final = (
    f"SELECT start, {tree_rows.NODE} FROM nodes WHERE session = ? AND tree = ? AND thread = ? "
    "AND stop > ? AND sealed = 1 AND level = 1 ORDER BY stop, start"
)
NEXT_WAITING: Final = (
    f"SELECT min(session) FROM nodes WHERE tenant = ? AND session > ? AND {tree_rows.DUE}"
)
_WAITS: Final = (
    "SELECT s.id, EXISTS (SELECT 1 FROM nodes WHERE tenant = ? AND session = h.session "
    f"AND tree = h.tree AND {tree_rows.DUE}) FROM heads h JOIN sessions s ON s.session = h.session "
    "WHERE h.session = ?"
)
_REVISION: Final = (
    f"SELECT {tree_rows.REVISION} FROM revisions "
    "WHERE session = ? AND tree = ? AND node_id = ? AND number = ?"
)
_SERVING: Final = (
    "revisions r ON r.session = n.session AND r.tree = n.tree AND r.node_id = n.id "
    "AND r.number = n.revision"
)
_MADE: Final = ", ".join(
    f"coalesce(sum(r.{name}), 0)"
    for name in ("tokens", "tokens_in", "tokens_out", "calls", "reused", "duration_ms")
)
_TALLY: Final = (
    "SELECT n.level, n.status, count(*), count(r.number), sum(n.degraded), sum(n.dirty), "
    "sum(n.stale), sum(n.input_tokens), sum(iif(r.number IS NULL, 0, n.input_tokens)), "
    f"{_MADE}, coalesce(sum(r.fidelity), 0.0), count(r.fidelity), min(n.since) "
    f"FROM nodes n LEFT JOIN {_SERVING} "
    "WHERE n.session = ? AND n.tree = ? AND n.sealed = 1 "
    "GROUP BY n.level, n.status ORDER BY n.level, n.status"
)


def _of(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    tree: int | None,
    statement: str,
    *values: Any,
) -> list[Any]:
    """Run a statement that binds (session, tree) before ``values`` and return its rows.

    The result is empty if the session is unknown.
    """
    with one_state(connection):
        at = place(connection, tenant, session_id, tree)
        return [] if at is None else connection.execute(statement, (*at, *values)).fetchall()


def nodes(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    ids: Sequence[str],
    *,
    tree: int | None,
) -> list[Node]:
    """Return the nodes with these ids that exist, in the order of ``ids``."""
    with one_state(connection):
        at = place(connection, tenant, session_id, tree)
        if at is None:
            return []
        found = [row for id_ in ids for row in connection.execute(_NODE, (*at, id_)).fetchall()]
    return decode(found, tree_rows.read_node, "nodes")


def level(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    level: int,
    *,
    start: int,
    stop: int | None,
    tree: int | None,
) -> list[Node]:
    """Return the sealed nodes of ``level`` with ``start <= ordinal < stop``, ordered by ordinal."""
    end = 1 << 62 if stop is None else stop
    found = _of(connection, tenant, session_id, tree, _OF_LEVEL, level, start, end)
    return decode(found, tree_rows.read_node, "nodes")


def levels(
    connection: sqlite3.Connection, tenant: str, session_id: str, *, tree: int | None
) -> dict[int, int]:
    """Return the number of sealed nodes for each level that has any."""
    counted = (
        "SELECT level, count(*) FROM nodes WHERE session = ? AND tree = ? AND sealed = 1 "
        "GROUP BY level ORDER BY level"
    )
    return dict(_of(connection, tenant, session_id, tree, counted))


def covering(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    thread: str,
    index: int,
    *,
    tree: int | None,
    last: int | None = None,
) -> list[Node]:
    """Return the sealed level-1 nodes of ``thread`` whose span holds the message, by ordinal.

    If ``last`` is given, return the nodes whose span holds any message from ``index`` to ``last``.
    The windows of a thread follow one another, so the search ends at the first window that begins
    after the last message.
    """
    found: list[Any] = []
    last = index if last is None else last
    with one_state(connection):
        at = place(connection, tenant, session_id, tree)
        if at is None:
            return []
        with closing(connection.execute(COVERING, (*at, thread, index))) as cursor:
            for start, *row in cursor:
                if start > last:
                    break
                found.append(row)
    return sorted(decode(found, tree_rows.read_node, "nodes"), key=lambda node: node.ordinal)


def provisional(
    connection: sqlite3.Connection, tenant: str, session_id: str, *, tree: int | None
) -> list[Node]:
    """Return the nodes that are not sealed, ordered by level, then id."""
    loose = _NODES + " AND sealed = 0 ORDER BY level, id"
    found = _of(connection, tenant, session_id, tree, loose)
    return decode(found, tree_rows.read_node, "nodes")


def unfinished(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    level: int,
    *,
    after: int,
    limit: int,
    tree: int | None,
) -> list[Node]:
    """Return up to ``limit`` sealed nodes of ``level`` that have work left, ordered by ordinal.

    Only nodes with an ordinal above ``after`` are returned.
    """
    with one_state(connection):
        at = place(connection, tenant, session_id, tree)
        if at is None:
            return []
        values = (tenant, *at, level, after, max(limit, 0))
        found = connection.execute(UNFINISHED, values).fetchall()
    return decode(found, tree_rows.read_node, "nodes")


def outdated(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    level: int,
    *,
    strategies: Sequence[str],
    after: int,
    limit: int,
    tree: int | None,
) -> list[Node]:
    """Return up to ``limit`` sealed nodes of ``level`` with a strategy outside ``strategies``.

    Only nodes with an ordinal above ``after`` are returned, ordered by ordinal.
    """
    columns = ", ".join(f"n.{name}" for name in tree_rows.NODE.split(", "))
    other = (
        f"SELECT {columns} FROM nodes n JOIN {_SERVING} "
        "WHERE n.session = ? AND n.tree = ? AND n.level = ? AND n.sealed = 1 AND n.ordinal > ? "
        f"AND r.strategy NOT IN ({', '.join('?' * len(strategies))}) ORDER BY n.ordinal LIMIT ?"
    )
    found = _of(
        connection, tenant, session_id, tree, other, level, after, *strategies, max(limit, 0)
    )
    return decode(found, tree_rows.read_node, "nodes")


def backlog(
    connection: sqlite3.Connection, tenant: str, *, after: str | None, limit: int
) -> list[str]:
    """Return up to ``limit`` ids of sessions after ``after`` with unfinished nodes.

    The search goes from one session with work left directly to the next, in the index of
    unfinished nodes.
    """
    waiting: list[str] = []
    with one_state(connection):
        at = place(connection, tenant, after) if after is not None else None
        number = at[0] if at else 0
        while len(waiting) < limit:
            (number,) = connection.execute(NEXT_WAITING, (tenant, number)).fetchone()
            if number is None:
                break
            for id_, waits in connection.execute(_WAITS, (tenant, number)).fetchall():
                if waits:  # perhaps only the tree that is being built has work left
                    waiting.append(id_)
    return waiting


def tally(
    connection: sqlite3.Connection, tenant: str, session_id: str, *, tree: int | None
) -> list[NodeTally]:
    """Return the totals of the sealed nodes for each level and status, in that order."""
    return decode(_of(connection, tenant, session_id, tree, _TALLY), tree_rows.read_tally, "nodes")


def revisions(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    wanted: Sequence[tuple[str, int]],
    *,
    tree: int | None,
) -> list[Revision]:
    """Return the revisions with these (node id, number) that exist, in the order of ``wanted``."""
    with one_state(connection):
        at = place(connection, tenant, session_id, tree)
        if at is None:
            return []
        found = [
            row
            for id_, number in wanted
            for row in connection.execute(_REVISION, (*at, id_, number)).fetchall()
        ]
    return decode(found, tree_rows.read_revision, "revisions")


def reusable(connection: sqlite3.Connection, tenant: str, input_hash: str) -> Revision | None:
    """Return the tenant's newest revision with this input hash, or None.

    Degraded revisions are left out.
    """
    found = connection.execute(
        f"SELECT {tree_rows.REVISION} FROM revisions WHERE tenant = ? AND input_hash = ? "
        "AND degraded = 0 AND EXISTS (SELECT 1 FROM heads h WHERE h.session = revisions.session) "
        "ORDER BY written DESC LIMIT 1",  # not those that a restore is bringing
        (tenant, input_hash),
    )
    for revision in decode(found, tree_rows.read_revision, "revisions"):
        return revision
    return None
