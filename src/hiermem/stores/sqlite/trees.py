"""The statements of trees: nodes, revisions, and the work that is left to do.

A statement that reads a session's nodes or revisions is bound to one tree. The conditions of an
index are repeated word for word, because otherwise SQLite would not use the index. Nodes are
written by decision, texts by compare-and-swap; as in ``writes``, each function that writes runs
inside a transaction that it neither begins nor ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from hiermem.stores import rows
from hiermem.stores.codec import check, decode, shape
from hiermem.stores.contract import check_write, refuse
from hiermem.stores.sqlite import due, heads
from hiermem.stores.sqlite.heads import (
    INSERT,
    REPLACE,
    Part,
    Tenant,
    Tree,
    TreeOf,
    one_state,
    place,
)
from hiermem.stores.sqlite.workers import Transaction
from hiermem.summaries.due import due_by_nodes
from hiermem.types import Node, Revision
from hiermem.types.transaction import Attempt, Changes, DueSession, NodeTally, NodeWrite

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_NODES: Final = f"SELECT {rows.NODES.columns} FROM nodes WHERE session = ? AND tree = ?"
_NODE: Final = _NODES + " AND id = ?"
_OF_LEVEL: Final = _NODES + " AND level = ? AND ordinal >= ? AND ordinal < ? ORDER BY ordinal"
UNFINISHED: Final = (
    f"SELECT {rows.NODES.columns} FROM nodes WHERE tenant = ? AND session = ? AND tree = ? "
    f"AND level = ? AND ordinal > ? AND {rows.DUE} ORDER BY ordinal LIMIT ?"
)
COVERING: Final = (
    f"SELECT {rows.NODES.columns} FROM nodes WHERE session = ? AND tree = ? AND thread = ? "
    "AND stop > ? AND level = 1 ORDER BY stop, start"
)
_REVISION: Final = (
    f"SELECT {rows.REVISIONS.columns} FROM revisions "
    "WHERE session = ? AND tree = ? AND node_id = ? AND number = ?"
)
_SERVING: Final = (
    "revisions r ON r.session = n.session AND r.tree = n.tree AND r.node_id = n.id "
    "AND r.number = n.revision"
)
_TALLY: Final = (
    f"SELECT {rows.TALLY.columns} FROM nodes n LEFT JOIN {_SERVING} "
    "WHERE n.session = ? AND n.tree = ? "
    "GROUP BY n.level, n.status ORDER BY n.level, n.status"
)


_LEVEL: Final = shape("ii")


# ---------------------------------------------------------------------------------------------
# Reading


def _read_level(row: Sequence[Any]) -> tuple[int, int]:
    check(row, _LEVEL)
    return row[0], row[1]


def _of(part: Tree, statement: str, *each: Sequence[Any]) -> list[Any]:
    """Return the rows of a statement that binds (session, tree) before each of these values.

    There are none if the session is unknown.
    """
    with one_state(part.connection):
        at = place(part)
        if at is None:
            return []
        execute = part.connection.execute
        return [row for values in each for row in execute(statement, (*at, *values)).fetchall()]


def _nodes(part: Tree, statement: str, *values: Any) -> list[Node]:
    return decode(_of(part, statement, values), rows.NODES.read, "nodes")


def nodes(part: Tree, ids: Sequence[str]) -> list[Node]:
    """Return the nodes with these ids that exist, in the order of ``ids``."""
    return decode(_of(part, _NODE, *((id_,) for id_ in ids)), rows.NODES.read, "nodes")


def level(part: Tree, level: int, start: int, stop: int | None = None) -> list[Node]:
    """Return the nodes of ``level`` with ``start <= ordinal < stop``, ordered by ordinal."""
    return _nodes(part, _OF_LEVEL, level, start, 1 << 62 if stop is None else stop)


def levels(part: Tree) -> dict[int, int]:
    """Return the number of nodes for each level that has any."""
    counted = (
        "SELECT level, count(*) FROM nodes WHERE session = ? AND tree = ? "
        "GROUP BY level ORDER BY level"
    )
    return dict(decode(_of(part, counted, ()), _read_level, "nodes"))


def covering(part: Tree, thread: str, index: int) -> list[Node]:
    """Return the level-1 nodes of ``thread`` whose span holds the message, by ordinal."""
    return spanning(part, thread, index, index)


def spanning(part: Tree, thread: str, index: int, last: int) -> list[Node]:
    """Return the level-1 nodes whose span holds any message from ``index`` to ``last``.

    The windows of a thread follow one another, so the search ends at the first window that begins
    after the last message.
    """
    found: list[Node] = []
    with one_state(part.connection):
        at = place(part)
        if at is None:
            return []
        with closing(part.connection.execute(COVERING, (*at, thread, index))) as cursor:
            for row in cursor:
                (node,) = decode([row], rows.NODES.read, "nodes")
                if node.span.start > last:
                    break
                found.append(node)
    return sorted(found, key=lambda node: node.ordinal)


def unfinished(part: Tree, level: int, after: int, limit: int) -> list[Node]:
    """Return up to ``limit`` nodes of ``level`` that have work left, ordered by ordinal.

    Only nodes with an ordinal above ``after`` are returned.
    """
    with one_state(part.connection):
        at = place(part)
        if at is None:
            return []
        values = (part.of[0], *at, level, after, max(limit, 0))
        found = part.connection.execute(UNFINISHED, values).fetchall()
    return decode(found, rows.NODES.read, "nodes")


def outdated(
    part: Tree, level: int, strategies: Sequence[str], after: int, limit: int
) -> list[Node]:
    """Return up to ``limit`` nodes of ``level`` with a strategy outside ``strategies``.

    Only nodes with an ordinal above ``after`` are returned, ordered by ordinal.
    """
    other = (
        f"SELECT {rows.prefixed('n', rows.NODES.columns)} FROM nodes n JOIN {_SERVING} "
        "WHERE n.session = ? AND n.tree = ? AND n.level = ? AND n.ordinal > ? "
        f"AND r.strategy NOT IN ({', '.join('?' * len(strategies))}) ORDER BY n.ordinal LIMIT ?"
    )
    return _nodes(part, other, level, after, *strategies, max(limit, 0))


def tally(part: Tree) -> list[NodeTally]:
    """Return the totals of the nodes for each level and status, in that order."""
    return decode(_of(part, _TALLY, ()), rows.TALLY.read, "nodes")


def revisions(part: Tree, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
    """Return the revisions with these (node id, number) that exist, in the order of ``wanted``."""
    return decode(_of(part, _REVISION, *wanted), rows.REVISIONS.read, "revisions")


def reusable(part: Tenant, input_hash: str) -> Revision | None:
    """Return the tenant's newest revision with this input hash, or None.

    Degraded revisions are left out.
    """
    found = part.connection.execute(
        f"SELECT {rows.REVISIONS.columns} FROM revisions WHERE tenant = ? AND input_hash = ? "
        "AND degraded = 0 AND EXISTS (SELECT 1 FROM heads h WHERE h.session = revisions.session) "
        "ORDER BY written DESC LIMIT 1",  # not those that a restore is bringing
        (part.of, input_hash),
    )
    return next(iter(decode(found, rows.REVISIONS.read, "revisions")), None)


# ---------------------------------------------------------------------------------------------
# Writing


def write_structure(
    part: Tenant, session_id: str, at: tuple[int, int], changes: Changes[Any]
) -> None:
    """Write forgotten and new nodes and the parents of older nodes, in this order.

    ``at`` is (the session's number, the tree of the nodes).
    """
    if changes.drop_tree is not None:
        for table in ("nodes", "revisions"):
            gone = f"DELETE FROM {table} WHERE session = ? AND tree = ?"
            part.connection.execute(gone, (at[0], changes.drop_tree))
    part.connection.executemany(
        "DELETE FROM revisions WHERE session = ? AND tree = ? AND node_id = ?",
        [(*at, id_) for id_ in changes.forget],
    )
    part.connection.executemany(
        REPLACE["node"], [(part.of, *at, *rows.NODES.row(node)) for node in changes.nodes]
    )
    for child, parent in changes.parents:
        cursor = part.connection.execute(
            "UPDATE nodes SET parent = ?, version = version + 1 "
            "WHERE session = ? AND tree = ? AND id = ?",
            (parent, *at, child),
        )
        if not cursor.rowcount:
            raise refuse(session_id, f"a parent is for node {child!r}, which does not exist")


def write_nodes(
    transaction: Transaction,
    of: TreeOf,
    writes: Sequence[NodeWrite],
    *,
    attempts: Sequence[Attempt] = (),
    claim: DueSession | None = None,
) -> list[bool] | None:
    """Apply each write whose expectations hold, and record ``attempts`` in any case.

    Return for each write whether it was applied; None where ``claim`` does not hold.
    """
    for write in writes:
        check_write(write)
    connection = transaction.connection
    tenant, session_id, tree = of
    head = heads.find(transaction, tenant, session_id)
    if claim is not None and not (head and due.is_held(transaction, head[0], claim)):
        return None
    transaction.writing()
    applied = [False] * len(writes)
    if head is not None:
        at = (head[0], head[1].tree if tree is None else tree)
        applied = [_write_node(Part(connection, tenant), at, write) for write in writes]
        # Whoever holds the claim settles what is left.
        if claim is None and at[1] == head[1].tree and any(applied):
            due.note(transaction, at[0], due_by_nodes(write.node for write in writes))
    put_attempts(transaction, tenant, attempts)
    return applied


def put_attempts(transaction: Transaction, tenant: str, attempts: Sequence[Attempt]) -> None:
    """Insert attempts, or replace those of the same ids."""
    for attempt in attempts:
        transaction.connection.execute(REPLACE["attempt"], (tenant, *rows.ATTEMPTS.row(attempt)))


def _write_node(part: Tenant, at: tuple[int, int], write: NodeWrite) -> bool:
    """Write one node by compare-and-swap; return whether it was written."""
    standing = "SELECT version, revision FROM nodes WHERE session = ? AND tree = ? AND id = ?"
    now = part.connection.execute(standing, (*at, write.node.id)).fetchone()
    if now is None or now[0] != write.expected:
        return False
    for id_, revision in write.inputs:
        serving = part.connection.execute(standing, (*at, id_)).fetchone()
        if serving is None or serving[1] != revision:
            return False
    part.connection.execute(REPLACE["node"], (part.of, *at, *rows.NODES.row(write.node)))
    if write.revision is not None:
        part.connection.execute(
            INSERT["revision"], (part.of, *at, *rows.REVISIONS.row(write.revision))
        )
    return True
