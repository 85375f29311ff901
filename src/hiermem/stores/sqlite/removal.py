"""The statements that remove data derived from a session, whole sessions, and a tenant.

A removal leaves no row that bears the removed number or name. ``scrub`` is responsible for the
bytes that a deleted row leaves in the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from hiermem.core.log.copies import KIND as STORE_COPY
from hiermem.core.log.row_digest import NO_SESSION
from hiermem.stores import rows
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite import segments
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import Changes

# ruff: noqa: S608 - the statements are put together from the constants of this module alone


def derived(
    connection: sqlite3.Connection, tenant: str, session_id: str, changes: Changes[Any]
) -> None:
    """Remove the views and records that ``changes`` names."""
    for name in changes.drop_views:
        connection.execute(
            "DELETE FROM views WHERE tenant = ? AND session_id = ? AND name = ?",
            (tenant, session_id, name),
        )
    for kind, key in changes.drop_records:
        connection.execute(
            "DELETE FROM records WHERE tenant = ? AND kind = ? AND scope = ? AND key = ?",
            (tenant, kind, session_id, key),
        )


def session(transaction: Transaction, tenant: str, session_id: str) -> None:
    """Remove all data of a session; of an unknown session, all rows that hold its name.

    What a restore of it brought, and did not finish, is removed too.
    """
    shown(transaction, tenant, session_id)
    unshown(transaction.connection, tenant, session_id)
    transaction.connection.execute(
        "DELETE FROM restores WHERE tenant = ? AND id = ?", (tenant, session_id)
    )


def unshown(connection: sqlite3.Connection, tenant: str, session_id: str) -> None:
    """Remove what an unfinished restore brought of a session."""
    of = (tenant, session_id)
    found = connection.execute(
        "SELECT session FROM restores WHERE tenant = ? AND id = ? AND session IS NOT NULL", of
    ).fetchone()
    if found is not None:
        _numbered(connection, found[0])
    connection.execute("DELETE FROM restored_rows WHERE tenant = ? AND id = ?", of)
    connection.execute(
        "UPDATE restores SET session = NULL, chain = NULL, first = NULL "
        "WHERE tenant = ? AND id = ?",
        of,
    )
    connection.execute("DELETE FROM restores WHERE tenant = ? AND id = ? AND digest IS NULL", of)


def shown(transaction: Transaction, tenant: str, session_id: str) -> None:
    """Remove all data of a session but what a restore is bringing; or what belongs to none."""
    if session_id == NO_SESSION:
        for table, column in rows.BY_NAME:
            kept = f" AND kind <> '{STORE_COPY}'" if table == "records" else ""
            transaction.connection.execute(
                f"DELETE FROM {table} WHERE tenant = ? AND NOT EXISTS (SELECT 1 FROM sessions s "
                f"WHERE s.tenant = {table}.tenant AND s.id = {table}.{column}){kept}",
                (tenant,),
            )
        return
    connection = transaction.connection
    found = connection.execute(
        "SELECT session FROM sessions WHERE tenant = ? AND id = ?", (tenant, session_id)
    ).fetchone()
    if found is not None:
        _numbered(connection, found[0])
    named(connection, rows.BY_NAME, tenant, session_id)
    transaction.heads.pop((tenant, session_id), None)


def erase_all(transaction: Transaction, tenant: str) -> int:
    """Remove all data of the tenant; return the number of sessions removed."""
    transaction.writing()
    connection = transaction.connection
    found = connection.execute("SELECT session FROM sessions WHERE tenant = ?", (tenant,))
    numbers = [row[0] for row in found.fetchall()]
    segments.drop_all(connection, tenant)
    unfinished = "SELECT session FROM restores WHERE tenant = ? AND session IS NOT NULL"
    for (number,) in connection.execute(unfinished, (tenant,)).fetchall():
        _numbered(connection, number)
    for table in ("restores", "restored_rows"):
        connection.execute(f"DELETE FROM {table} WHERE tenant = ?", (tenant,))
    for number in numbers:
        _numbered(connection, number)
    for table, _ in rows.BY_NAME:
        connection.execute(f"DELETE FROM {table} WHERE tenant = ?", (tenant,))
    for known in [key for key in transaction.heads if key[0] == tenant]:
        del transaction.heads[known]
    return len(numbers)


def named(
    connection: sqlite3.Connection, tables: Sequence[tuple[str, str]], tenant: str, name: str
) -> None:
    """Remove the rows of this name: all of them, or those of ``rows.JOURNAL``."""
    for table, column in tables:
        connection.execute(f"DELETE FROM {table} WHERE tenant = ? AND {column} = ?", (tenant, name))


def _numbered(connection: sqlite3.Connection, number: int) -> None:
    first, stop = number << INDEX_BITS, number + 1 << INDEX_BITS
    for table in ("messages", "versions"):
        connection.execute(f"DELETE FROM {table} WHERE message >= ? AND message < ?", (first, stop))
    segments.drop(connection, number)
    for table in rows.BY_NUMBER:
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (number,))
