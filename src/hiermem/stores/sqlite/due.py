"""The list of the sessions of all tenants that have something to make, and the claims on them.

The core says when a session is due. As in ``writes``, the functions that get a transaction neither
begin nor end it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from hiermem.calls.claim import MOST_BELIEVED
from hiermem.stores.codec import to_micros
from hiermem.stores.sqlite import heads
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import Due, DueSession

# ruff: noqa: S608 - the statements are put together from the constants of this module alone

# A new entry begins at a random number, which no earlier entry of the session had: an earlier claim
# must not hold again.
_ENTER: Final = (
    "INSERT INTO due (session, due_at, generation, claimed) {} abs(random() / 8), {} {} "
    "ON CONFLICT (session) DO "
)
# While a session is claimed, due_at is the end of the claim. What becomes due then is noted as 2.
_NOTE: Final = (
    _ENTER.format("VALUES (?, ?,", "0)", "")
    + "UPDATE SET due_at = iif(claimed = 0, excluded.due_at, due_at), claimed = iif(claimed, 2, 0) "
    "WHERE claimed = 1 OR (claimed = 0 AND due_at > excluded.due_at)"
)
_PUT: Final = (
    _ENTER.format("SELECT session, ?,", "0", "FROM sessions WHERE tenant = ? AND id = ?")
    + "NOTHING"
)
_TAKE: Final = (
    _ENTER.format("VALUES (?, ?,", "1)", "")
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


def note(transaction: Transaction, number: int, due: Due | None) -> None:
    """Enter when the session of that number is due, unless it is by then."""
    if due is not None:
        at = due.at or transaction.now() + timedelta(seconds=due.delay)
        transaction.connection.execute(_NOTE, (number, to_micros(at)))


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
    head = heads.find(transaction, tenant, session_id)
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
    head = heads.find(transaction, tenant, claimed.session_id)
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
