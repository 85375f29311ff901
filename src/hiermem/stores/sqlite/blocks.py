"""The statements that read and write blocks: pieces of indexes over a session's messages.

A block is never kept after a message that it covers was rewritten, because the block was computed
from the earlier text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from hiermem.stores import rows
from hiermem.stores.codec import decode
from hiermem.stores.sqlite import segments
from hiermem.stores.sqlite.reads import one_state, place
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import TERMS, Block

_FIND: Final = (
    f"SELECT {rows.BLOCK} FROM blocks "  # noqa: S608 - a constant
    "WHERE session = ? AND kind = ? AND start >= ? AND start < ? ORDER BY start"
)
PUT: Final = (
    "INSERT INTO blocks (session, kind, start, stop, data) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (session, kind, start) DO UPDATE SET stop = excluded.stop, data = excluded.data"
)


def find(
    connection: sqlite3.Connection,
    tenant: str,
    session_id: str,
    kind: str,
    *,
    start: int,
    stop: int | None,
) -> list[Block]:
    """Return the blocks of ``kind`` whose own ``start`` is in the range, ordered by ``start``."""
    with one_state(connection):
        at = place(connection, tenant, session_id)
        if at is None:
            return []
        end = 1 << 62 if stop is None else stop
        found = connection.execute(_FIND, (at[0], kind, start, end)).fetchall()
    return decode(found, rows.read_block, "blocks")


def put(transaction: Transaction, number: int, blocks: Sequence[Block]) -> None:
    """Insert the blocks, or replace the blocks with the same kind and start."""
    transaction.writing()
    for block in blocks:
        row = (number, block.kind, block.start, block.stop, block.data)
        transaction.connection.execute(PUT, row)
        if block.kind == TERMS:
            segments.place(transaction.connection, number, block.start, block.stop)


def drop(transaction: Transaction, number: int, kind: str) -> None:
    """Remove all blocks of ``kind``."""
    transaction.writing()
    transaction.connection.execute(
        "DELETE FROM blocks WHERE session = ? AND kind = ?", (number, kind)
    )
    if kind == TERMS:
        segments.drop(transaction.connection, number)


def drop_holding(connection: sqlite3.Connection, number: int, index: int) -> None:
    """Remove the blocks of every kind that cover the message."""
    connection.execute(
        "DELETE FROM blocks WHERE session = ? AND stop > ? AND start <= ?", (number, index, index)
    )
    segments.drop(connection, number, index)
