"""The list of the sessions of all tenants that have something to make, and the claims on them.

The core says when a session is due. An entry is the last row that a transaction locks, and whoever
claims passes over locked ones. So nobody who looks for work waits for a writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from hiermem.calls.claim import MOST_BELIEVED
from hiermem.stores.codec import optional_micros
from hiermem.stores.postgres.statements import NUMBER, OK, Query, Statement
from hiermem.types.transaction import Due, DueSession

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# A claim that is to end later was written while a clock was far ahead.
_BELIEVED: Final = f"{_NOW} + {round(MOST_BELIEVED.total_seconds() * 1_000_000)}"
# A new entry begins at a number that no earlier entry of the session had: an earlier claim must not
# hold again.
_FRESH: Final = "(random() * 1e18)::bigint"
_ENTER: Final = (
    "INSERT INTO due AS d (tenant, session, due_at, generation, claimed) "
    f"SELECT s.tenant, s.session, {{at}}, {_FRESH}, {{claimed}} FROM sessions s {{of}} "
    "ON CONFLICT (tenant, session) DO "
)
# While a session is claimed, due_at is the end of the claim. What becomes due then is noted as 2.
_NOTE: Final = (
    _ENTER.format(
        at=f"coalesce($3::bigint, {_NOW} + $4::bigint)",
        claimed=0,
        of="JOIN heads h ON h.tenant = s.tenant AND h.session = s.session "
        "WHERE s.tenant = $1 AND s.id = $2 AND h.tree = coalesce($5::bigint, h.tree) AND {if_}",
    )
    + "UPDATE SET due_at = CASE d.claimed WHEN 0 THEN excluded.due_at ELSE d.due_at END, "
    "claimed = CASE d.claimed WHEN 0 THEN 0 ELSE 2 END "
    "WHERE d.claimed = 1 OR (d.claimed = 0 AND d.due_at > excluded.due_at)"
)
_PUT: Final = (
    _ENTER.format(
        at=_NOW,
        claimed=0,
        of="WHERE s.tenant = $1 AND s.id = ANY($2::text[]) ORDER BY s.session",
    )
    + "NOTHING"
)
_TAKE: Final = (
    _ENTER.format(at=f"{_NOW} + $3::bigint", claimed=1, of="WHERE s.tenant = $1 AND s.id = $2")
    + "UPDATE SET due_at = excluded.due_at, generation = d.generation + 1, claimed = 1 "
    f"WHERE d.claimed = 0 OR d.due_at <= {_NOW} OR d.due_at > {_BELIEVED} RETURNING generation"
)
_OF_CLAIM: Final = (
    f"WHERE tenant = $1 AND session = {NUMBER} AND generation = $3::bigint AND claimed > 0"
)
_RENEW: Final = f"UPDATE due SET due_at = {_NOW} + $4::bigint {_OF_CLAIM} RETURNING generation"
#: How sessions of all tenants get their names, and those of one tenant, which its own rows have.
_NAMED: Final = {
    "name": "n.name",
    "named": "JOIN named_sessions n ON n.tenant = d.tenant AND n.session = d.session",
}
_OWN: Final = {
    "name": "NULL",
    "named": "JOIN sessions n ON n.tenant = d.tenant AND n.session = d.session",
}
#: The entries of all tenants, or of that of the transaction where $2 says so.
_OF: Final = "(NOT $2::boolean OR d.tenant = $1::uuid)"
#: What is due by {until}, and the claims that nobody believes. Each is found by an index: one
#: condition for both would read all that is due later, and so would a time that is not computed
#: once. {lock} passes over what is locked.
_FOUND: Final = (
    f"WITH next AS (SELECT d.* FROM due d WHERE {_OF} AND d.due_at <= {{until}} "
    "ORDER BY d.due_at LIMIT $3{lock}), "
    f"late AS (SELECT d.* FROM due d WHERE {_OF} AND d.claimed > 0 "
    f"AND d.due_at > greatest((SELECT {_BELIEVED}), {{until}}) "
    "ORDER BY d.due_at LIMIT $3{lock}), "
    "found AS (SELECT * FROM next UNION ALL SELECT * FROM late LIMIT $3)"
)
_LIST: Final = (
    _FOUND.format(until=f"coalesce((SELECT {_NOW}) + $4::bigint, {2**63 - 1})", lock="")
    + f" SELECT {{name}}, n.id, d.generation, d.claimed > 0 AND d.due_at > {_NOW} "
    f"AND d.due_at <= {_BELIEVED} FROM found d {{named}} ORDER BY d.due_at"
)
_CLAIM: Final = (
    _FOUND.format(until=f"(SELECT {_NOW})", lock=" FOR UPDATE SKIP LOCKED")
    + f", held AS (UPDATE due d SET due_at = {_NOW} + $4::bigint, generation = d.generation + 1, "
    "claimed = 1 FROM found f WHERE d.tenant = f.tenant AND d.session = f.session "
    "RETURNING d.tenant, d.session, d.generation, f.due_at) "
    "SELECT {name}, n.id, d.generation, true FROM held d {named} ORDER BY d.due_at"
)
# The entry is locked, so that nobody takes the session over before this transaction is committed.
_FENCE: Final = (
    f"WITH held AS (SELECT FROM due {_OF_CLAIM} FOR SHARE) SELECT set_config('hiermem.ok', "
    "CASE WHEN EXISTS (SELECT FROM held) THEN '1' ELSE '0' END, true)"
)


def note(
    session_id: str, due: Due | None, tree: int | None = None, *, written: bool = False
) -> Iterator[Statement]:
    """Yield the statement that enters when a session is due, unless it is by then.

    Where ``tree`` is given, only if it is the tree in use; where ``written``, only if a node was.
    """
    if due is not None:
        if_ = f"{OK} AND current_setting('hiermem.applied') <> '0'" if written else OK
        at, delay = optional_micros(due.at), round(due.delay * 1_000_000)
        yield Statement(_NOTE.replace("{if_}", if_), (session_id, at, delay, tree))


def put_due(session_ids: Sequence[str]) -> Statement:
    """Return the statement that makes those sessions due now that have no entry."""
    return Statement(_PUT, (list(session_ids),))


def claim(
    limit: int, lease: float, *, tenant: str | None, ahead: float | None
) -> Query[list[DueSession]]:
    """Claim up to ``limit`` sessions that are due, or list those that are within ``ahead``."""
    time = lease or ahead
    values = (
        tenant is not None,
        max(limit, 0),
        None if time is None else round(time * 1_000_000),
    )
    sql = (_CLAIM if lease else _LIST).format(**(_NAMED if tenant is None else _OWN))

    def read(found: list[tuple[Any, ...]]) -> list[DueSession]:
        return [DueSession(tenant or name, *row) for name, *row in found]

    return Query(sql, values, read)


def take(
    tenant: str, session_id: str, lease: float, held: DueSession | None
) -> Query[DueSession | None]:
    """Claim a session that nobody holds, or renew the claim ``held``."""

    def read(found: list[tuple[int]]) -> DueSession | None:
        return DueSession(tenant, session_id, found[0][0]) if found else None

    values: tuple[Any, ...] = (session_id, round(lease * 1_000_000))
    if held is None:
        return Query(_TAKE, values, read)
    return Query(_RENEW, (session_id, held.generation, values[1]), read)


def fence(session_id: str, claim: DueSession) -> Statement:
    """Return the statement after which nothing is written unless the claim holds."""
    return Statement(_FENCE, (session_id, claim.generation))


def settle_due(claimed: DueSession, at: datetime | None) -> list[Statement]:
    """Return the statements that end a claim; a row of either says that it held."""
    of = (claimed.session_id, claimed.generation)
    # What was noted meanwhile is due now: the time of it is not kept.
    gone = f"DELETE FROM due {_OF_CLAIM} AND claimed = 1 AND $4::bigint IS NULL RETURNING 1"
    change = (
        f"UPDATE due SET due_at = CASE claimed WHEN 2 THEN least({_NOW}, $4::bigint) "
        f"ELSE $4::bigint END, claimed = 0 {_OF_CLAIM} RETURNING 1"
    )
    values = (*of, optional_micros(at))
    return [Statement(gone, values), Statement(change, values)]
