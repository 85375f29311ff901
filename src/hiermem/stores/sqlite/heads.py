"""The start of most statements: the session's number and head, and one state for all reads.

A head is remembered only within the transaction that read it, or for as long as no other connection
has committed. Every statement is bound to its tenant by equality, either directly or through the
session's number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from hiermem.stores import rows
from hiermem.stores.codec import check, decode, shape
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types import SessionRecord

Of = TypeVar("Of")


@dataclass(frozen=True, slots=True)
class Part(Generic[Of]):
    """A part of a store as reads see it: the connection, and what names the part."""

    connection: sqlite3.Connection
    of: Of


#: A tree of a session: its tenant, the session's id, and its number, None for the serving one.
TreeOf: TypeAlias = tuple[str, str, int | None]
Tenant: TypeAlias = Part[str]
Tree: TypeAlias = Part[TreeOf]

#: What ``rows.SESSIONS`` reads.
SESSION: Final = (
    f"{rows.SESSION}, (SELECT json_group_object(m.key, m.value) FROM session_metadata m "  # noqa: S608
    "WHERE m.session = s.session)"
)
#: The records of a tenant; conditions on ``s`` and ``h`` may follow.
SESSIONS: Final = (
    f"SELECT {SESSION} FROM sessions s JOIN heads h ON h.session = s.session WHERE s.tenant = ?"  # noqa: S608
)
_FIND: Final = f"{SESSIONS} AND s.id = ?"
_PLACE: Final = (
    "SELECT s.session, h.tree FROM sessions s JOIN heads h ON h.session = s.session "
    "WHERE s.tenant = ? AND s.id = ?"
)
_PLACED: Final = shape("ii")


def insert(table: str, owners: str, columns: str) -> str:
    """Return the statement that inserts a row with ``owners`` and ``columns``."""
    names = f"{owners}, {columns}" if owners else columns
    marks = ", ".join("?" * len(names.split(",")))
    return f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - names of this module


def replacing(insert: str, key: str, columns: str) -> str:
    """Return ``insert`` extended so that it replaces ``columns`` if the ``key`` is taken."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))
    return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {sets}"


#: The columns before those of the value, by the owner of the table.
_OWNERS: Final = {
    "tenant": "tenant", "session": "session", "tree": "tenant, session, tree", "log": "",
}  # fmt: skip
#: The statements that insert a row, by the kinds of a dump, and those that may replace one.
INSERT: Final = {
    kind: insert(form.table, _OWNERS[form.owner], form.columns) for kind, form in rows.KINDS.items()
}
REPLACE: Final = {
    "node": replacing(INSERT["node"], "session, tree, id", rows.NODES.columns),
    "run": replacing(INSERT["run"], "tenant, id", rows.RUNS.columns),
    "attempt": replacing(INSERT["attempt"], "tenant, id", rows.ATTEMPTS.columns),
    "view": replacing(INSERT["view"], "tenant, session_id, name", "state"),
    "block": replacing(INSERT["block"], "session, kind, start", "stop, data"),
}


@contextmanager
def one_state(connection: sqlite3.Connection) -> Generator[None]:
    """Let several statements see the same state; inside a transaction they already do."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def place(part: Tree) -> tuple[int, int] | None:
    """Return (the session's number, the tree's), or None if the session does not exist."""
    found = part.connection.execute(_PLACE, part.of[:2]).fetchall()
    for number, serving in decode(found, _read_place, "sessions"):
        return number, serving if part.of[2] is None else part.of[2]
    return None


def _read_place(row: Sequence[Any]) -> tuple[int, int]:
    check(row, _PLACED)
    return row[0], row[1]


def number(part: Tenant, session_id: str) -> int | None:
    """Return the session's number, or None if it does not exist."""
    at = place(Part(part.connection, (part.of, session_id, None)))
    return at and at[0]


def find(
    transaction: Transaction, tenant: str, session_id: str
) -> tuple[int, SessionRecord] | None:
    """Return the session's number and record, or None if the session does not exist.

    They are remembered until another connection commits.
    """
    known = transaction.heads.get((tenant, session_id))
    if known is None:
        found = transaction.connection.execute(_FIND, (tenant, session_id))
        for known in decode(found, rows.SESSIONS.read, "sessions"):
            transaction.heads[tenant, session_id] = known
    return known


def epoch_is(transaction: Transaction, tenant: str, session_id: str, epoch: int) -> bool:
    """Return whether the session exists and nothing was taken back since ``epoch``."""
    found = find(transaction, tenant, session_id)
    return found is not None and found[1].epoch == epoch
