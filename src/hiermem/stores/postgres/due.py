"""The list of the sessions of all tenants that have something to make; the core fills it.

An entry is the last row that a transaction locks, and whoever claims passes over locked ones. So
nobody who looks for work waits for a writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from hiermem.stores.codec import optional_micros
from hiermem.stores.postgres.statements import NUMBER, OK, Query, Statement
from hiermem.types.transaction import Due, DueSession

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# A new entry begins at a number that no earlier entry of the session had: whoever settles that one
# must not remove this one.
_FRESH: Final = "(random() * 1e18)::bigint"
_ENTER: Final = (
    "INSERT INTO due AS d (tenant, session, due_at, generation, claimed) "
    f"SELECT s.tenant, s.session, {{at}}, {_FRESH}, 0 FROM sessions s {{of}} "
    "ON CONFLICT (tenant, session) DO "
)
_NOTE: Final = (
    _ENTER.format(
        at=f"coalesce($3::bigint, {_NOW} + $4::bigint)",
        of="JOIN heads h ON h.tenant = s.tenant AND h.session = s.session "
        "WHERE s.tenant = $1 AND s.id = $2 AND h.tree = coalesce($5::bigint, h.tree) AND {if_}",
    )
    + "UPDATE SET due_at = least(d.due_at, excluded.due_at), generation = d.generation + 1, "
    "claimed = 0 WHERE d.claimed = 1 OR d.due_at > excluded.due_at"
)
_PUT: Final = (
    _ENTER.format(at=_NOW, of="WHERE s.tenant = $1 AND s.id = ANY($2::text[]) ORDER BY s.session")
    + "NOTHING"
)
_CLAIM: Final = (
    "WITH found AS (SELECT tenant, session, due_at FROM due "
    f"WHERE $1::uuid IS NOT NULL AND due_at <= {_NOW} "
    "ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED), "
    f"held AS (UPDATE due d SET due_at = {_NOW} + $3::bigint, claimed = 1 FROM found f "
    "WHERE d.tenant = f.tenant AND d.session = f.session "
    "RETURNING d.tenant, d.session, d.generation, f.due_at) "
    "SELECT n.name, n.id, h.generation FROM held h "
    "JOIN named_sessions n ON n.tenant = h.tenant AND n.session = h.session ORDER BY h.due_at"
)
_CLAIM_ONE: Final = (
    f"UPDATE due SET due_at = {_NOW} + $3::bigint, claimed = 1 "
    f"WHERE tenant = $1 AND session = {NUMBER} AND (due_at <= {_NOW} OR claimed = 1) "
    "RETURNING generation"
)
_OF_GENERATION: Final = f"WHERE tenant = $1 AND session = {NUMBER} AND generation = $3"


def note(
    session_id: str, due: Due | None, tree: int | None = None, *, written: bool = False
) -> Iterator[Statement]:
    """Yield the statement that enters when a session is due, unless it is by then, and unclaimed.

    Where ``tree`` is given, only if it is the tree in use; where ``written``, only if a node was.
    """
    if due is not None:
        if_ = f"{OK} AND current_setting('hiermem.applied') <> '0'" if written else OK
        at, delay = optional_micros(due.at), round(due.delay * 1_000_000)
        yield Statement(_NOTE.replace("{if_}", if_), (session_id, at, delay, tree))


def put_due(session_ids: Sequence[str]) -> Statement:
    """Return the statement that makes those sessions due now that have no entry."""
    return Statement(_PUT, (list(session_ids),))


def claim(limit: int, lease: float) -> Query[list[DueSession]]:
    """Claim up to ``limit`` sessions of all tenants that are due."""
    values = (max(limit, 0), round(lease * 1_000_000))
    return Query(_CLAIM, values, lambda found: [DueSession(*row) for row in found])


def claim_one(tenant: str, session_id: str, lease: float) -> Query[DueSession | None]:
    """Claim one session if it is due or claimed."""

    def read(found: list[tuple[int]]) -> DueSession | None:
        return DueSession(tenant, session_id, found[0][0]) if found else None

    return Query(_CLAIM_ONE, (session_id, round(lease * 1_000_000)), read)


def settle_due(claimed: DueSession, at: datetime | None) -> Statement:
    """Return the statement that removes the entry, or sets its next time; its row says it did."""
    of = (claimed.session_id, claimed.generation)
    if at is None:
        return Statement(f"DELETE FROM due {_OF_GENERATION} RETURNING 1", of)
    change = f"UPDATE due SET due_at = $4, claimed = 0 {_OF_GENERATION} RETURNING 1"
    return Statement(change, (*of, optional_micros(at)))
