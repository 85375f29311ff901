"""The list of the sessions of all tenants that have something to make; the core fills it.

As in ``writes``, the functions that get a transaction neither begin nor end it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from hiermem.stores.codec import to_micros
from hiermem.stores.sqlite import heads
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import Due, DueSession

#: One session, by tenant and id; None for all.
Of: TypeAlias = tuple[str, str] | None

# A new entry begins at a random number, which no earlier entry of the session had: whoever settles
# that one must not remove this one.
_NOTE: Final = (
    "INSERT INTO due (session, due_at, generation, claimed) VALUES (?, ?, abs(random() / 8), 0) "
    "ON CONFLICT (session) DO UPDATE SET due_at = min(due_at, excluded.due_at), "
    "generation = generation + 1, claimed = 0 WHERE claimed = 1 OR due_at > excluded.due_at"
)
_FOUND: Final = (
    "SELECT s.session, s.tenant, s.id, d.generation FROM due d "
    "JOIN sessions s ON s.session = d.session WHERE "
)
_ALL: Final = f"{_FOUND} d.due_at <= ? ORDER BY d.due_at LIMIT ?"
_ONE: Final = f"{_FOUND} s.tenant = ? AND s.id = ? AND (d.due_at <= ? OR d.claimed = 1)"
_HOLD: Final = "UPDATE due SET due_at = ?, claimed = 1 WHERE session = ?"
_PUT: Final = (
    "INSERT INTO due (session, due_at, generation, claimed) "
    "SELECT session, ?, abs(random() / 8), 0 FROM sessions WHERE tenant = ? AND id = ? "
    "ON CONFLICT (session) DO NOTHING"
)


def note(transaction: Transaction, number: int, due: Due | None) -> None:
    """Enter when the session of that number is due, unless it is by then and nobody claimed it."""
    if due is not None:
        at = due.at or transaction.now() + timedelta(seconds=due.delay)
        transaction.connection.execute(_NOTE, (number, to_micros(at)))


def find(connection: sqlite3.Connection, now: datetime, limit: int, of: Of) -> list[Any]:
    """Return what may be claimed of up to ``limit`` sessions: number, tenant, id, generation."""
    if of is None:
        return connection.execute(_ALL, (to_micros(now), max(limit, 0))).fetchall()
    return connection.execute(_ONE, (*of, to_micros(now))).fetchall()


def claim(transaction: Transaction, limit: int, lease: float, of: Of) -> list[DueSession]:
    """Claim up to ``limit`` sessions that are due, or that one."""
    now = transaction.now()
    found = find(transaction.connection, now, limit, of)
    transaction.writing()
    until = to_micros(now + timedelta(seconds=lease))
    transaction.connection.executemany(_HOLD, [(until, number) for number, *_ in found])
    return [DueSession(*rest) for _, *rest in found]


def put_due(transaction: Transaction, tenant: str, session_ids: Sequence[str]) -> None:
    """Make those of these sessions due now that have no entry."""
    transaction.writing()
    now = to_micros(transaction.now())
    transaction.connection.executemany(_PUT, [(now, tenant, id_) for id_ in session_ids])


def settle_due(
    transaction: Transaction, tenant: str, claimed: DueSession, *, at: datetime | None = None
) -> bool:
    """Remove the entry, or set its next time, where its generation is the claimed one."""
    head = heads.find(transaction, tenant, claimed.session_id)
    if head is None:
        return False
    transaction.writing()
    of = (head[0], claimed.generation)
    execute = transaction.connection.execute
    if at is None:
        done = execute("DELETE FROM due WHERE session = ? AND generation = ?", of)
    else:
        done = execute(
            "UPDATE due SET due_at = ?, claimed = 0 WHERE session = ? AND generation = ?",
            (to_micros(at), *of),
        )
    return bool(done.rowcount)
