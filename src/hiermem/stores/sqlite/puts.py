"""The statements that write without a decision: runs, views, records, blocks.

Data that was computed in an earlier epoch of a session is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hiermem.stores import tree_rows
from hiermem.stores.contract import check_record_writes
from hiermem.stores.sqlite import blocks as block_rows
from hiermem.stores.sqlite import heads, records, tree_writes
from hiermem.stores.sqlite.heads import epoch_is, insert, replacing
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import Attempt, Block, Record, RecordWrite, RunRecord, ViewRecord

_RUN = replacing(insert("runs", "tenant", tree_rows.RUN), "tenant, id", tree_rows.RUN)
_VIEW = (
    "INSERT INTO views (tenant, session_id, name, state) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (tenant, session_id, name) DO UPDATE SET state = excluded.state"
)


def put_run(transaction: Transaction, tenant: str, run: RunRecord) -> None:
    """Insert the run, or replace the run with the same id, which keeps its place."""
    transaction.writing()
    transaction.connection.execute(_RUN, (tenant, *tree_rows.run_row(run)))


def put_view(transaction: Transaction, tenant: str, view: ViewRecord, epoch: int | None) -> bool:
    """Insert the view, or replace the view with the same session and name.

    Return whether it was written; it is not if ``epoch`` is given and outdated.
    """
    if epoch is not None and not epoch_is(transaction, tenant, view.session_id, epoch):
        return False
    transaction.writing()
    transaction.connection.execute(_VIEW, (tenant, view.session_id, view.name, view.state))
    return True


def put_records(
    transaction: Transaction,
    tenant: str,
    writes: Sequence[RecordWrite],
    epochs: Mapping[str, int],
    *,
    standing: Sequence[Record],
    attempts: Sequence[Attempt],
) -> bool:
    """Apply all writes, record ``attempts`` and return True, or do nothing and return False.

    Nothing is done if an expectation or an epoch does not hold, or if a record of ``standing`` is
    not stored exactly as given.
    """
    check_record_writes(writes)
    if not all(epoch_is(transaction, tenant, id_, epoch) for id_, epoch in epochs.items()):
        return False
    if not all(records.stands(transaction, tenant, record) for record in standing):
        return False
    applied = records.put(transaction, tenant, writes)
    if applied:
        tree_writes.put_attempts(transaction, tenant, attempts)
    return applied


def put_blocks(
    transaction: Transaction,
    tenant: str,
    session_id: str,
    blocks: Sequence[Block],
    epoch: int,
) -> bool:
    """Insert the blocks, or replace the blocks with the same kind and start.

    Return whether they were written; they are not if ``epoch`` is not the session's epoch.
    """
    head = heads.find(transaction, tenant, session_id)
    if head is None or head[1].epoch != epoch:
        return False
    block_rows.put(transaction, head[0], blocks)
    return True


def drop_blocks(transaction: Transaction, tenant: str, session_id: str, kind: str) -> None:
    """Remove all blocks of ``kind``."""
    head = heads.find(transaction, tenant, session_id)
    if head is not None:
        block_rows.drop(transaction, head[0], kind)
