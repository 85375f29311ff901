"""The session's head, which every write reads first, and the helpers that build its statements.

A head is remembered only within the transaction that read it, or for as long as no other connection
has committed.
"""

from __future__ import annotations

from hiermem.stores import rows
from hiermem.stores.codec import decode
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types import SessionRecord


def insert(table: str, owners: str, columns: str) -> str:
    """Return the statement that inserts a row with ``owners`` and ``columns``."""
    names = f"{owners}, {columns}" if owners else columns
    marks = ", ".join("?" * len(names.split(",")))
    return f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names of this module


def replacing(insert: str, key: str, columns: str) -> str:
    """Return ``insert`` extended so that it replaces ``columns`` if the ``key`` is taken."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))
    return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {sets}"


#: What ``rows.read_session`` reads.
SESSION = (
    f"{rows.SESSION}, (SELECT json_group_object(m.key, m.value) FROM session_metadata m "  # noqa: S608
    "WHERE m.session = s.session)"
)
_FIND = (
    f"SELECT {SESSION} FROM sessions s JOIN heads h ON h.session = s.session "  # noqa: S608
    "WHERE s.tenant = ? AND s.id = ?"
)


def find(
    transaction: Transaction, tenant: str, session_id: str
) -> tuple[int, SessionRecord] | None:
    """Return the session's number and record, or None if the session does not exist.

    They are remembered until another connection commits.
    """
    known = transaction.heads.get((tenant, session_id))
    if known is None:
        found = decode(
            transaction.connection.execute(_FIND, (tenant, session_id)),
            rows.read_session,
            "sessions",
        )
        if not found:
            return None
        known = transaction.heads[tenant, session_id] = found[0]
    return known


def epoch_is(transaction: Transaction, tenant: str, session_id: str, epoch: int) -> bool:
    """Return whether the session exists and nothing was taken back since ``epoch``."""
    found = find(transaction, tenant, session_id)
    return found is not None and found[1].epoch == epoch
