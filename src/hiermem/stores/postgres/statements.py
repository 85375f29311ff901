"""How statements are put together. In every statement $1 is the tenant, so that none can forget it.

A statement about one session has the session's id as $2. Where a write turned out to be decided on
an outdated record, OK is false for the rest of its transaction, and no statement changes anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from hiermem.stores import rows
from hiermem.stores.codec import Format, decode

T = TypeVar("T")

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

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
