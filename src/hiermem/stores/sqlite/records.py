"""The statements that read and write records: small documents by (kind, scope, key).

All expectations are checked before the first change, so a call writes all records or none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from hiermem.stores import rows
from hiermem.stores.codec import decode
from hiermem.stores.contract import check_record_writes
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import Record, RecordWrite

_FIND: Final = f"SELECT {rows.RECORD} FROM records WHERE tenant = ? AND kind = ?"  # noqa: S608
_OF: Final = "tenant = ? AND kind = ? AND scope = ? AND key = ?"
_VERSION: Final = f"SELECT version FROM records WHERE {_OF}"  # noqa: S608 - a constant
_HELD: Final = f"SELECT body, version FROM records WHERE {_OF}"  # noqa: S608 - a constant
_DELETE: Final = f"DELETE FROM records WHERE {_OF}"  # noqa: S608 - a constant
_PUT: Final = (
    "INSERT INTO records (tenant, kind, scope, key, body, version) VALUES (?, ?, ?, ?, ?, 1) "
    "ON CONFLICT (tenant, kind, scope, key) "
    "DO UPDATE SET body = excluded.body, version = version + 1"
)


def find(
    connection: sqlite3.Connection,
    tenant: str,
    kind: str,
    *,
    scope: str | None,
    key: str | None,
    limit: int,
) -> list[Record]:
    """Return up to ``limit`` records of ``kind``, ordered by scope, then key.

    ``scope`` and ``key`` filter the records if they are given.
    """
    where, values = _FIND, [tenant, kind]
    if scope is not None:
        where, values = where + " AND scope = ?", [*values, scope]
    if key is not None:
        where, values = where + " AND key = ?", [*values, key]
    found = connection.execute(where + " ORDER BY scope, key LIMIT ?", (*values, max(limit, 0)))
    return decode(found, rows.read_record, "records")


def put(transaction: Transaction, tenant: str, writes: Sequence[RecordWrite]) -> bool:
    """Apply all writes, or none if an expectation fails; return whether they were applied."""
    check_record_writes(writes)
    connection = transaction.connection
    for write in writes:
        if write.expected is not None:
            place = (tenant, write.kind, write.scope, write.key)
            now = connection.execute(_VERSION, place).fetchone()
            if write.expected != (now[0] if now else 0):
                return False
    transaction.writing()
    for write in writes:
        place = (tenant, write.kind, write.scope, write.key)
        if write.body is None:
            connection.execute(_DELETE, place)
        else:
            connection.execute(_PUT, (*place, write.body))
    return True


def stands(transaction: Transaction, tenant: str, record: Record) -> bool:
    """Return whether ``record`` is stored with exactly this body and version."""
    place = (tenant, record.kind, record.scope, record.key)
    found = transaction.connection.execute(_HELD, place).fetchone()
    return found is not None and tuple(found) == (record.body, record.version)


def drop(transaction: Transaction, tenant: str, places: Sequence[tuple[str, str, str]]) -> None:
    """Delete the records with these (kind, scope, key); missing ones are ignored."""
    transaction.connection.executemany(_DELETE, [(tenant, *place) for place in places])
