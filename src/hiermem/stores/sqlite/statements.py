"""Decides the SQL of the declared tables: their schema, and the statements that read and write.

Every table is an ordinary one with the declared columns, so that a person reads it with any tool.
Its key is a unique index; a row of nothing but its key, or of little else, is kept in that index. A
declared index holds the columns of its order, so that no range is sorted, and only the rows that
have a value in each. A statement names the index that it needs: without it, it would fail rather
than read the whole table. Names come from the declarations alone, values are always bound.
"""

# ruff: noqa: S608 - the statements are put together from the declarations alone
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from hiermem.records.tables import TABLES, Table

_TYPES: Final = {"i": "INTEGER", "s": "TEXT", "f": "REAL", "b": "BLOB"}
#: The tables whose rows are kept in the index of their key. Such a row of more than a thousand
#: bytes takes a page of its own, and a changed one is written anew with all that stand beside it.
_KEPT_IN_KEY: Final = {
    "counters", "due", "echoes", "events", "flags", "keys", "labels", "nodes", "places", "segments",
    "sources",
}  # fmt: skip


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _present(names: Iterable[str]) -> list[str]:
    return [f"{name} IS NOT NULL" for name in names]


def _all_equal(names: Iterable[str]) -> list[str]:
    return [f"{name} = ?" for name in names]


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _create(table: Table) -> Iterator[str]:
    columns = [
        f"    {name} {_TYPES[letter.lower()]}{'' if letter.isupper() else ' NOT NULL'}"
        for name, letter in zip(table.columns, table.letters, strict=True)
    ]
    kept = table.name in _KEPT_IN_KEY
    if kept:
        columns.append(f"    PRIMARY KEY ({_listed(table.key)})")
    body = ",\n".join(columns)
    yield f"CREATE TABLE {table.name} (\n{body}\n){' WITHOUT ROWID' if kept else ''}"
    if not kept:
        yield f"CREATE UNIQUE INDEX {table.name}_key ON {table.name} ({_listed(table.key)})"
    for index in table.indexes:
        yield (
            f"CREATE INDEX {table.name}_{index} ON {table.name} ({_listed(table.order(index))})"
            f"{_where(_present(table.optional(index)))}"
        )


def schema() -> list[str]:
    """Return the statements that create all tables."""
    return [statement for table in TABLES.values() for statement in _create(table)]


@cache
def get(name: str) -> str:
    """Return the statement that reads the row of a key."""
    table = TABLES[name]
    return f"SELECT {_listed(table.columns)} FROM {name}{_where(_all_equal(table.key))}"


@cache
def expected(name: str) -> str:
    """Return the statement that reads the guard of a row; without one, something no number."""
    table = TABLES[name]
    column = "''" if table.guard is None else table.columns[table.guard]
    return f"SELECT {column} FROM {name}{_where(_all_equal(table.key))}"


@cache
def ranged(
    name: str, index: str, counts: tuple[int, int, int], *, limited: bool, reverse: bool
) -> str:
    """Return the statement of a range; ``counts`` are the columns that each bound states."""
    prefix, after, below = counts
    table = TABLES[name]
    order = table.order(index)
    equal, rest = order[:prefix], order[prefix:]
    conditions = _all_equal(equal)
    for count, sign in ((after, ">"), (below, "<")):
        if count:
            marks = _listed("?" * count)
            conditions.append(f"({_listed(rest[:count])}) {sign} ({marks})")
    conditions += _present(one for one in table.optional(index) if one not in equal)
    if index:
        hint = f" INDEXED BY {name}_{index}"
    else:
        hint = " NOT INDEXED" if name in _KEPT_IN_KEY else f" INDEXED BY {name}_key"
    sign = " DESC" if reverse else ""
    ordered = f" ORDER BY {_listed(f'{one}{sign}' for one in rest)}" if rest else ""
    limit = " LIMIT ?" if limited else ""
    columns = _listed(table.columns)
    return f"SELECT {columns} FROM {name}{hint}{_where(conditions)}{ordered}{limit}"


@cache
def delete(name: str, count: int) -> str:
    """Return the statement that deletes the rows whose key begins with ``count`` columns."""
    return f"DELETE FROM {name}{_where(_all_equal(TABLES[name].key[:count]))}"


@cache
def copy(name: str, count: int, column: str) -> str:
    """Return the statement that writes rows again under another prefix of ``count`` columns."""
    table = TABLES[name]
    rest = _listed(["?"] * count + list(table.columns[count:]))
    conditions = [*_all_equal(table.key[:count]), f"{column} < ?"]
    return f"INSERT INTO {name} SELECT {rest} FROM {name}{_where(conditions)}"


def _insert(table: Table) -> str:
    marks = _listed("?" * len(table.columns))
    return (
        f"INSERT INTO {table.name} ({_listed(table.columns)}) VALUES ({marks}) "
        f"ON CONFLICT ({_listed(table.key)}) DO "
    )


@cache
def put(name: str) -> str:
    """Return the statement that writes a row, over one with the same key."""
    table = TABLES[name]
    others = table.columns[table.keys :]
    changes = _listed(f"{column} = excluded.{column}" for column in others)
    return _insert(table) + (f"UPDATE SET {changes}" if others else "NOTHING")


@cache
def add(name: str) -> str:
    """Return the statement that adds to a counter, or creates it."""
    return f"{_insert(TABLES[name])}UPDATE SET guard = guard + excluded.guard"
