"""The statements of trees and the due queue, and those that write without a decision.

As in ``writes``, a function that writes runs inside a transaction that it neither begins nor ends.
A statement that reads a session's nodes or revisions is bound to one tree. The conditions of an
index are repeated word for word, because otherwise SQLite would not use the index. Nodes are
written by decision, texts by compare-and-swap.

The due queue lists the sessions of all tenants that have something to make, and the claims on them;
the caller says when a session is due.

Runs, views, records and blocks are written without a decision. Data that was computed in an earlier
epoch of a session is not written. A block is never kept after a message that it covers was
rewritten, because it was computed from the earlier text.
"""

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, Final

from hiermem.calls.claim import MOST_BELIEVED
from hiermem.stores import rows
from hiermem.stores.contract import (
    check,
    check_record_writes,
    check_write,
    decode,
    refuse,
    shape,
    to_micros,
)
from hiermem.stores.sqlite import reads, segments
from hiermem.stores.sqlite.reads import (
    INSERT,
    REPLACE,
    Part,
    Tenant,
    Tree,
    TreeOf,
    epoch_is,
    one_state,
    place,
)
from hiermem.stores.sqlite.workers import ENTER, Transaction
from hiermem.summaries.due import due_by_nodes
from hiermem.types import Node, Revision
from hiermem.types.transaction import (
    TERMS,
    Attempt,
    Block,
    Changes,
    DueSession,
    NodeTally,
    NodeWrite,
    Record,
    RecordWrite,
    RunRecord,
    ViewRecord,
)

_PUT: Final = (
    ENTER.format("SELECT session, ?,", "0", "FROM sessions WHERE tenant = ? AND id = ?") + "NOTHING"
)
_TAKE: Final = (
    ENTER.format("VALUES (?, ?,", "1)", "")
    + "UPDATE SET due_at = excluded.due_at, generation = generation + 1, claimed = 1 "
    "WHERE claimed = 0 OR due_at NOT BETWEEN ? AND ? RETURNING generation"
)
_LISTED: Final = (
    "SELECT s.session, s.tenant, s.id, d.generation, "
    "d.claimed AND d.due_at BETWEEN ? AND ? FROM due d "
    "JOIN sessions s ON s.session = d.session "
    "WHERE {} AND s.tenant = coalesce(?, s.tenant) ORDER BY d.due_at LIMIT ?"
)
# Each has an index: one statement for both would read all that is due later.
_UNTIL: Final = _LISTED.format("d.due_at <= ?")
_TOO_LATE: Final = _LISTED.format("d.claimed > 0 AND d.due_at > max(?, ?)")
_OF_CLAIM: Final = "WHERE session = ? AND generation = ? AND claimed > 0"
#: Later than every time.
_EVER: Final = 2**62


def _held(now: datetime) -> tuple[int, int]:
    """Return between which ends a claim holds: one of a clock that was far ahead does not."""
    return to_micros(now) + 1, to_micros(now + MOST_BELIEVED)


def listed(
    connection: sqlite3.Connection,
    now: datetime,
    limit: int,
    tenant: str | None,
    ahead: float | None = 0.0,
) -> list[Any]:
    """Return what is due within ``ahead`` seconds: number, tenant, id, generation, claimed."""
    until = _EVER if ahead is None else to_micros(now + timedelta(seconds=ahead))
    held = _held(now)
    found: list[Any] = []
    for listing, of in ((_UNTIL, (until,)), (_TOO_LATE, (until, held[1]))):
        values = (*held, *of, tenant, max(limit, 0) - len(found))
        found += connection.execute(listing, values).fetchall()
    return found


def claim(
    transaction: Transaction, limit: int, lease: float, tenant: str | None
) -> list[DueSession]:
    """Claim up to ``limit`` sessions that are due."""
    now = transaction.now()
    found = listed(transaction.connection, now, limit, tenant)
    transaction.writing()
    times = to_micros(now + timedelta(seconds=lease)), *_held(now)
    return [
        DueSession(name, id_, transaction.connection.execute(_TAKE, (number, *times)).fetchone()[0])
        for number, name, id_, *_ in found
    ]


def take_due(
    transaction: Transaction,
    tenant: str,
    session_id: str,
    *,
    lease: float,
    held: DueSession | None = None,
) -> DueSession | None:
    """Claim a session that nobody holds, or renew the claim ``held``."""
    head = reads.find(transaction, tenant, session_id)
    if head is None:
        return None
    transaction.writing()
    now = transaction.now()
    until, execute = to_micros(now + timedelta(seconds=lease)), transaction.connection.execute
    if held is not None:
        renewed = execute(
            f"UPDATE due SET due_at = ? {_OF_CLAIM}", (until, head[0], held.generation)
        )
        return held if renewed.rowcount else None
    taken = execute(_TAKE, (head[0], until, *_held(now))).fetchone()
    return DueSession(tenant, session_id, taken[0]) if taken else None


def is_held(transaction: Transaction, number: int, claim: DueSession) -> bool:
    """Return whether nobody took the session over since this claim, and it is not settled."""
    held = f"SELECT 1 FROM due {_OF_CLAIM}"
    found = transaction.connection.execute(held, (number, claim.generation)).fetchone()
    return found is not None


def put_due(transaction: Transaction, tenant: str, session_ids: Sequence[str]) -> None:
    """Make those of these sessions due now that have no entry."""
    transaction.writing()
    now = to_micros(transaction.now())
    transaction.connection.executemany(_PUT, [(now, tenant, id_) for id_ in session_ids])


def settle_due(
    transaction: Transaction, tenant: str, claimed: DueSession, *, at: datetime | None = None
) -> bool:
    """End the claim, where it holds; remove the entry or set its next time."""
    head = reads.find(transaction, tenant, claimed.session_id)
    if head is None:
        return False
    transaction.writing()
    of, now = (head[0], claimed.generation), to_micros(transaction.now())
    execute = transaction.connection.execute
    # What was noted meanwhile is due now: the time of it is not kept.
    next_at = _EVER if at is None else to_micros(at)
    done = execute(
        f"UPDATE due SET due_at = iif(claimed = 2, min(?, ?), ?), claimed = 0 {_OF_CLAIM}",
        (now, next_at, next_at, *of),
    )
    execute("DELETE FROM due WHERE session = ? AND due_at = ?", (head[0], _EVER))
    return bool(done.rowcount)


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
    head = reads.find(transaction, tenant, session_id)
    if claim is not None and not (head and is_held(transaction, head[0], claim)):
        return None
    transaction.writing()
    applied = [False] * len(writes)
    if head is not None:
        at = (head[0], head[1].tree if tree is None else tree)
        applied = [_write_node(Part(connection, tenant), at, write) for write in writes]
        # Whoever holds the claim settles what is left.
        if claim is None and at[1] == head[1].tree and any(applied):
            transaction.note_due(at[0], due_by_nodes(write.node for write in writes))
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


_RECORD_AT: Final = "tenant = ? AND kind = ? AND scope = ? AND key = ?"
_RECORD_HELD: Final = f"SELECT body, version FROM records WHERE {_RECORD_AT}"
DROP_RECORD: Final = f"DELETE FROM records WHERE {_RECORD_AT}"
_PUT_RECORD: Final = (
    "INSERT INTO records (tenant, kind, scope, key, body, version) VALUES (?, ?, ?, ?, ?, 1) "
    "ON CONFLICT (tenant, kind, scope, key) "
    "DO UPDATE SET body = excluded.body, version = version + 1"
)


def put_run(transaction: Transaction, tenant: str, run: RunRecord) -> None:
    """Insert the run, or replace the run with the same id, which keeps its place."""
    transaction.writing()
    transaction.connection.execute(REPLACE["run"], (tenant, *rows.RUNS.row(run)))


def put_view(
    transaction: Transaction, tenant: str, view: ViewRecord, *, epoch: int | None = None
) -> bool:
    """Insert the view, or replace the view with the same session and name.

    Return whether it was written; it is not if ``epoch`` is given and outdated.
    """
    if epoch is not None and not epoch_is(transaction, tenant, view.session_id, epoch):
        return False
    transaction.writing()
    transaction.connection.execute(REPLACE["view"], (tenant, *rows.VIEWS.row(view)))
    return True


def put_records(
    transaction: Transaction,
    tenant: str,
    writes: Sequence[RecordWrite],
    *,
    epochs: Mapping[str, int] | None = None,
    standing: Sequence[Record] = (),
    attempts: Sequence[Attempt] = (),
) -> bool:
    """Apply all writes, record ``attempts`` and return True, or do nothing and return False.

    Nothing is done if an expectation or an epoch does not hold, or if a record of ``standing`` is
    not stored exactly as given. All of this is checked before the first change.
    """
    check_record_writes(writes)
    execute = transaction.connection.execute
    if not all(epoch_is(transaction, tenant, *of) for of in (epochs or {}).items()):
        return False
    for one in standing:
        held = execute(_RECORD_HELD, (tenant, one.kind, one.scope, one.key)).fetchone()
        if held is None or tuple(held) != (one.body, one.version):
            return False
    for write in writes:
        if write.expected is not None:
            held = execute(_RECORD_HELD, (tenant, write.kind, write.scope, write.key)).fetchone()
            if write.expected != (held[1] if held else 0):
                return False
    transaction.writing()
    for write in writes:
        place = (tenant, write.kind, write.scope, write.key)
        if write.body is None:
            execute(DROP_RECORD, place)
        else:
            execute(_PUT_RECORD, (*place, write.body))
    put_attempts(transaction, tenant, attempts)
    return True


def put_blocks(
    transaction: Transaction, tenant: str, session_id: str, blocks: Sequence[Block], *, epoch: int
) -> bool:
    """Insert the blocks, or replace the blocks with the same kind and start.

    Return whether they were written; they are not if ``epoch`` is not the session's epoch.
    """
    head = reads.find(transaction, tenant, session_id)
    if head is None or head[1].epoch != epoch:
        return False
    write_blocks(transaction, head[0], blocks)
    return True


def write_blocks(transaction: Transaction, number: int, blocks: Sequence[Block]) -> None:
    """Write the blocks of the session of that number."""
    transaction.writing()
    for block in blocks:
        transaction.connection.execute(REPLACE["block"], (number, *rows.BLOCKS.row(block)))
        if block.kind == TERMS:
            segments.place(transaction.connection, number, block.start, block.stop)


def drop_blocks(transaction: Transaction, tenant: str, session_id: str, kind: str) -> None:
    """Remove all blocks of ``kind``."""
    head = reads.find(transaction, tenant, session_id)
    if head is None:
        return
    transaction.writing()
    of = (head[0], kind)
    transaction.connection.execute("DELETE FROM blocks WHERE session = ? AND kind = ?", of)
    if kind == TERMS:
        segments.drop(transaction.connection, head[0])


def drop_blocks_over(connection: sqlite3.Connection, number: int, first: int, last: int) -> None:
    """Remove the blocks of every kind that cover any message from ``first`` to ``last``."""
    connection.execute(
        "DELETE FROM blocks WHERE session = ? AND stop > ? AND start <= ?", (number, first, last)
    )
    segments.drop(connection, number, (first, last))
