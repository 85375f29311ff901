"""The queue of due sessions of all tenants and its claims; and how any statement is put together.

The caller says when a session is due. An entry is the last row that a transaction locks, and
whoever claims passes over locked ones. So nobody who looks for work waits for a writer.

In every statement $1 is the tenant, so that none can forget it. A statement about one session has
the session's id as $2. If a write was decided on an outdated record, OK is false for the rest of
its transaction, and no statement changes anything.
"""

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from hiermem.calls.claim import MOST_BELIEVED
from hiermem.stores import rows
from hiermem.stores.contract import Format, decode, optional_micros
from hiermem.types.transaction import Due, DueSession

T = TypeVar("T")


OK: Final = "current_setting('hiermem.ok') = '1'"
#: The session that a statement is about, with its head.
SESSION: Final = (
    "sessions s JOIN heads h ON h.tenant = s.tenant AND h.session = s.session "
    "WHERE s.tenant = $1 AND s.id = $2"
)
#: The number of the session with the id $2.
NUMBER: Final = "(SELECT session FROM sessions WHERE tenant = $1 AND id = $2)"
_TYPES: Final = {"i": "bigint", "s": "text", "f": "float8", "b": "bytea", "u": "uuid"}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and its values from $2 on."""

    sql: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A statement that reads, and what its rows mean."""

    sql: str
    values: tuple[Any, ...]
    read: Callable[[list[tuple[Any, ...]]], T]


def listed(form: Format[T], sql: str, *values: Any) -> Query[list[T]]:
    """Return a query of rows that have the columns of ``form``."""
    return Query(sql, values, lambda found: decode(found, form.read, form.table))


def single(form: Format[T], sql: str, *values: Any) -> Query[T | None]:
    """Return a query of at most one row."""
    return Query(sql, values, lambda found: next(iter(decode(found, form.read, form.table)), None))


def digest(*names: str) -> str:
    """Return the UUID that stands for the names: 128 bits of their SHA-256."""
    hashed = hashlib.sha256(b"".join(b"%d:%b" % (len(n.encode()), n.encode()) for n in names))
    return str(UUID(bytes=hashed.digest()[:16]))


def lock_number(*names: str) -> int:
    """Return the number of the advisory lock of the names."""
    return UUID(digest(*names)).int % (1 << 64) - (1 << 63)


@dataclass(frozen=True)
class Table:
    """A table to which values are written.

    ``owner`` says what stands before ``columns``, as that of a Format. ``row`` returns the columns
    of a value; the first ``key`` columns are those by which a row replaces another one, 0 where
    none does.
    """

    name: str
    owner: str
    columns: str
    types: str
    row: Callable[[Any], Sequence[Any]]
    key: int = 0

    def put(self, given: Iterable[Any], *of: Any, fresh: bool = False) -> Statement:
        """Return the statement that writes the values; ``of`` are the session's id and the tree.

        With ``fresh``, none of them may replace another one.
        """
        wanted = [self.row(value) for value in given]
        key = 0 if fresh else self.key
        if key:  # one statement must not write a row twice
            wanted = list({tuple(row[:key]): row for row in wanted}.values())
        if len(wanted) == 1:
            return Statement(_insert(self, len(of), key, many=False), (*of, *wanted[0]))
        arrays = [list(column) for column in zip(*wanted, strict=True)] or [[] for _ in self.types]
        for place, letter in enumerate(self.types):
            if letter in "fF":  # an array holds numbers of one type
                arrays[place] = [None if one is None else float(one) for one in arrays[place]]
        return Statement(_insert(self, len(of), key, many=True), (*of, *arrays))


@cache
def _insert(table: Table, before: int, key: int, *, many: bool) -> str:
    names = table.columns.split(", ")
    casts = [_TYPES[letter.lower()] for letter in table.types]
    marks = [
        f"${number}::{cast}{'[]' if many else ''}" for number, cast in enumerate(casts, 2 + before)
    ]
    source = f"unnest({', '.join(marks)})" if many else f"(VALUES ({', '.join(marks)}))"
    values = [f"v.{name}" for name in names]
    owners, given = ["tenant"], ["$1::uuid"]
    where = OK
    if table.owner != "tenant":
        source = f"sessions s, {source}"
        where = f"s.tenant = $1 AND s.id = $2 AND {OK}"
    if table.owner in ("session", "tree"):
        owners.append("session")
        given.append("s.session")
    if table.owner == "tree":
        owners.append("tree")
        given.append("$3::bigint")
    if table.owner == "log":
        values[0] = f"(s.session << {rows.INDEX_BITS}) + v.message"
    conflict = ""
    if key:
        sets = ", ".join(f"{name} = excluded.{name}" for name in names[key:])
        named = ", ".join([*owners, *names[:key]])
        conflict = f" ON CONFLICT ({named}) DO UPDATE SET {sets}"
    return (
        f"INSERT INTO {table.name} ({', '.join([*owners, *names])}) "
        f"SELECT {', '.join([*given, *values])} FROM {source} AS v({', '.join(names)}) "
        f"WHERE {where}{conflict}"
    )


def _table(form: Format[Any], key: int = 0) -> Table:
    return Table(form.table, form.owner, form.columns, form.types, form.row, key)


#: The tables of the kinds of a dump.
TABLES: Final = {
    **{kind: _table(form) for kind, form in rows.KINDS.items()},
    "node": _table(rows.NODES, 1),
    "run": _table(rows.RUNS, 1),
    "attempt": _table(rows.ATTEMPTS, 1),
    "block": Table(
        "blocks", "session", f"{rows.BLOCKS.columns}, segment, place", f"{rows.BLOCKS.types}ii",
        lambda block: (*rows.BLOCKS.row(block), 0, 0), 2,
    ),
    "view": Table(
        "views", "tenant", f"place, {rows.VIEWS.columns}", f"u{rows.VIEWS.types}",
        lambda view: (digest(view.session_id, view.name), *rows.VIEWS.row(view)), 1,
    ),
    "record": Table(
        "records", "tenant", f"place, {rows.RECORDS.columns}", f"u{rows.RECORDS.types}",
        lambda one: (digest(one.kind, one.scope, one.key), *rows.RECORDS.row(one)),
    ),
}  # fmt: skip
#: Messages that are written over those with their numbers.
REWRITTEN: Final = _table(rows.MESSAGES, 1)
METADATA: Final = Table("session_metadata", "session", "key, value", "ss", tuple)
SESSIONS: Final = Table(
    "sessions", "tenant", f"id, {rows.FIXED.columns}", "s" + rows.FIXED.types,
    lambda record: (record.id, *rows.FIXED.row(record)),
)  # fmt: skip
HEADS: Final = _table(rows.HEADS)


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
