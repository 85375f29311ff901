"""The schema of the store file, its version, and the steps from older ones.

The one rule: ``current.sql`` is what a fresh file gets, and the steps lead every older file to the
same. A change of the schema adds a step ``NNNN.sql`` (from NNNN - 1 to NNNN), changes
``current.sql`` to match and raises VERSION; opening compares the two.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

#: "hmem": marks an SQLite file as a store of hiermem.
APPLICATION_ID = 0x686D656D
VERSION = 4


@dataclass(frozen=True)
class Schema:
    """A version of the schema: all of it, and the step to each version from the one before."""

    version: int
    script: str
    steps: Mapping[int, str] = field(default_factory=dict[int, str])

    def expected(self) -> dict[tuple[str, str], str]:
        """Give the shape of a fresh file."""
        return dict(_shape_of(self.script))


@cache
def current() -> Schema:
    """Give the schema that this version of the library writes."""
    room = files(__name__)
    return Schema(
        VERSION,
        room.joinpath("current.sql").read_text("utf-8"),
        {
            version: room.joinpath(f"{version:04}.sql").read_text("utf-8")
            for version in range(2, VERSION + 1)
        },
    )


def statements(script: str) -> Iterator[str]:
    """Give the statements of ``script`` one by one.

    ``executescript`` would do it, but it commits the transaction that they must share.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def shape(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Give the definition of every table, index, trigger and view, by (kind, name).

    Comments, quotes and white space are left out: ALTER TABLE writes them otherwise than we do.
    """
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    return {
        (str(kind), str(name)): _bare(sql)
        for kind, name, sql in found
        if not (kind in ("table", "index") and str(name).startswith("sqlite_"))
    }


def _bare(sql: object) -> str:
    return re.sub(r"--[^\n]*|[\s\"]+", "", sql) if isinstance(sql, str) else ""


@cache
def _shape_of(script: str) -> tuple[tuple[tuple[str, str], str], ...]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in statements(script):
            connection.execute(statement)
        return tuple(shape(connection).items())
    finally:
        connection.close()
