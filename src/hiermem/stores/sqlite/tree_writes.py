"""The statements that write trees: nodes by decision, and texts by compare-and-swap.

As in ``writes``, each function runs inside a transaction that it neither begins nor ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hiermem.core.summaries.due import due_by_nodes
from hiermem.stores import tree_rows
from hiermem.stores.contract import check_write, refuse
from hiermem.stores.sqlite import due, heads, removal
from hiermem.stores.sqlite.heads import insert, replacing
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import Attempt, Changes, NodeWrite

_NODE = replacing(
    insert("nodes", "tenant, session, tree", tree_rows.NODE), "session, tree, id", tree_rows.NODE
)
_REVISION = insert("revisions", "tenant, session, tree", tree_rows.REVISION)
_ATTEMPT = replacing(
    insert("attempts", "tenant", tree_rows.ATTEMPT), "tenant, id", tree_rows.ATTEMPT
)


def write_structure(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    at: tuple[int, int],
    changes: Changes[Any],
) -> None:
    """Write dropped, forgotten and new nodes and the parents of older nodes, in this order.

    ``at`` is (the session's number, the tree of the nodes).
    """
    if changes.drop_tree is not None:
        removal.tree(connection, at[0], changes.drop_tree)
    for id_ in changes.drop:
        connection.execute(
            "DELETE FROM nodes WHERE session = ? AND tree = ? AND id = ?", (*at, id_)
        )
    for id_ in (*changes.drop, *changes.forget):
        connection.execute(
            "DELETE FROM revisions WHERE session = ? AND tree = ? AND node_id = ?", (*at, id_)
        )
    for node in changes.nodes:
        connection.execute(_NODE, (tenant, *at, *tree_rows.node_row(node)))
    for child, parent in changes.parents:
        cursor = connection.execute(
            "UPDATE nodes SET parent = ?, version = version + 1 "
            "WHERE session = ? AND tree = ? AND id = ?",
            (parent, *at, child),
        )
        if not cursor.rowcount:
            raise refuse(session_id, f"a parent is for node {child!r}, which does not exist")


def write_nodes(
    transaction: Transaction,
    tenant: str,
    session_id: str,
    writes: Sequence[NodeWrite],
    *,
    attempts: Sequence[Attempt],
    attempts_if_applied: Sequence[Attempt],
    tree: int | None,
) -> list[bool]:
    """Apply each write whose expectations hold, and record ``attempts`` in any case.

    Return for each write whether it was applied.
    """
    for write in writes:
        check_write(write)
    connection = transaction.connection
    head = heads.find(transaction, tenant, session_id)
    transaction.writing()
    applied = [False] * len(writes)
    if head is not None:
        at = (head[0], head[1].tree if tree is None else tree)
        applied = [_write_node(connection, tenant, at, write) for write in writes]
        if at[1] == head[1].tree and any(applied):
            due.note(transaction, at[0], due_by_nodes(write.node for write in writes))
    recorded = (*attempts, *(attempts_if_applied if all(applied) else ()))
    put_attempts(transaction, tenant, recorded)
    return applied


def put_attempts(transaction: Transaction, tenant: str, attempts: Sequence[Attempt]) -> None:
    """Insert attempts, or replace those of the same ids."""
    for attempt in attempts:
        transaction.connection.execute(_ATTEMPT, (tenant, *tree_rows.attempt_row(attempt)))


def _write_node(
    connection: sqlite3.Connection, tenant: str, at: tuple[int, int], write: NodeWrite
) -> bool:
    """Write one node by compare-and-swap; return whether it was written."""
    standing = "SELECT version, revision FROM nodes WHERE session = ? AND tree = ? AND id = ?"
    now = connection.execute(standing, (*at, write.node.id)).fetchone()
    if now is None or now[0] != write.expected:
        return False
    for id_, revision in write.inputs:
        serving = connection.execute(standing, (*at, id_)).fetchone()
        if serving is None or serving[1] != revision:
            return False
    connection.execute(_NODE, (tenant, *at, *tree_rows.node_row(write.node)))
    if write.revision is not None:
        connection.execute(_REVISION, (tenant, *at, *tree_rows.revision_row(write.revision)))
    return True
