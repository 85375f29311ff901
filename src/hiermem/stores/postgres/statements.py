"""How statements are put together. In every statement $1 is the tenant, so that none can forget it.

A statement about one session has the session's id as $2. Where a write turned out to be decided on
an outdated record, OK is false for the rest of its transaction, and no statement changes anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode

T = TypeVar("T")

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

OK: Final = "current_setting('hiermem.ok') = '1'"
#: The session that a statement is about, with its head.
SESSION: Final = (
    "sessions s JOIN heads h ON h.tenant = s.tenant AND h.session = s.session "
    "WHERE s.tenant = $1 AND s.id = $2"
)
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


def listed(
    sql: str, values: tuple[Any, ...], read: Callable[[Sequence[Any]], T], what: str
) -> Query[list[T]]:
    """Return a query of rows of the table ``what``, each of which ``read`` reads."""
    return Query(sql, values, lambda found: decode(found, read, what))


def single(
    sql: str, values: tuple[Any, ...], read: Callable[[Sequence[Any]], T], what: str
) -> Query[T | None]:
    """Return a query of at most one row."""
    return Query(sql, values, lambda found: next(iter(decode(found, read, what)), None))


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

    ``owner`` says what stands before ``columns``: the tenant alone, or also the session, or also
    the tree; of a log, the session stands in the number of the message. The first ``key`` columns
    are those by which a row replaces another one; 0 where none does.
    """

    name: str
    owner: str
    columns: str
    types: str
    key: int = 0

    def put(self, given: Sequence[Sequence[Any]], *of: Any) -> Statement:
        """Return the statement that writes the rows; ``of`` are the session's id and the tree."""
        wanted = given
        if self.key:  # one statement must not write a row twice
            wanted = list({tuple(row[: self.key]): row for row in given}.values())
        if len(wanted) == 1:
            return Statement(_insert(self, len(of), many=False), (*of, *wanted[0]))
        arrays = [list(column) for column in zip(*wanted, strict=True)] or [[] for _ in self.types]
        for place, letter in enumerate(self.types):
            if letter in "fF":  # an array holds numbers of one type
                arrays[place] = [None if one is None else float(one) for one in arrays[place]]
        return Statement(_insert(self, len(of), many=True), (*of, *arrays))


@cache
def _insert(table: Table, before: int, *, many: bool) -> str:
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
    if table.key:
        sets = ", ".join(f"{name} = excluded.{name}" for name in names[table.key :])
        key = ", ".join([*owners, *names[: table.key]])
        conflict = f" ON CONFLICT ({key}) DO UPDATE SET {sets}"
    return (
        f"INSERT INTO {table.name} ({', '.join([*owners, *names])}) "
        f"SELECT {', '.join([*given, *values])} FROM {source} AS v({', '.join(names)}) "
        f"WHERE {where}{conflict}"
    )


MESSAGES: Final = Table("messages", "log", rows.MESSAGE, rows.MESSAGE_TYPES)
VERSIONS: Final = Table("versions", "log", rows.MESSAGE, rows.MESSAGE_TYPES)
KEYS: Final = Table("keys", "session", rows.KEY, rows.KEY_TYPES)
EVENTS: Final = Table("events", "session", rows.EVENT, rows.EVENT_TYPES)
NODES: Final = Table("nodes", "tree", tree_rows.NODE, tree_rows.NODE_TYPES, 1)
REVISIONS: Final = Table("revisions", "tree", tree_rows.REVISION, tree_rows.REVISION_TYPES)
RUNS: Final = Table("runs", "tenant", tree_rows.RUN, tree_rows.RUN_TYPES, 1)
ATTEMPTS: Final = Table("attempts", "tenant", tree_rows.ATTEMPT, tree_rows.ATTEMPT_TYPES, 1)
METADATA: Final = Table("session_metadata", "session", "key, value", "ss")
SESSIONS: Final = Table("sessions", "tenant", f"id, {rows.FIXED}", "s" + rows.FIXED_TYPES)
HEADS: Final = Table("heads", "session", rows.HEAD, rows.HEAD_TYPES)
BLOCKS: Final = Table(
    "blocks", "session", f"{rows.BLOCK}, segment, place", f"{rows.BLOCK_TYPES}ii", 2
)
VIEWS: Final = Table("views", "tenant", f"place, {rows.VIEW}", "usss", 1)
RECORDS: Final = Table("records", "tenant", f"place, {rows.RECORD}", "u" + rows.RECORD_TYPES)
