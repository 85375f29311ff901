"""The statements that write without a decision: runs, views, records, blocks.

Data that was computed in an earlier epoch of a session is not written. A block is never kept after
a message that it covers was rewritten, because it was computed from the earlier text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from hiermem.stores import rows
from hiermem.stores.contract import check_record_writes
from hiermem.stores.sqlite import heads, segments, trees
from hiermem.stores.sqlite.heads import REPLACE, epoch_is
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import (
    TERMS,
    Attempt,
    Block,
    Record,
    RecordWrite,
    RunRecord,
    ViewRecord,
)

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

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
    trees.put_attempts(transaction, tenant, attempts)
    return True


def put_blocks(
    transaction: Transaction, tenant: str, session_id: str, blocks: Sequence[Block], *, epoch: int
) -> bool:
    """Insert the blocks, or replace the blocks with the same kind and start.

    Return whether they were written; they are not if ``epoch`` is not the session's epoch.
    """
    head = heads.find(transaction, tenant, session_id)
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
    head = heads.find(transaction, tenant, session_id)
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
