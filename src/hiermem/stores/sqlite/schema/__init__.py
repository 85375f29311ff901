"""The schema of the store file, its format number, and the steps from older formats.

A new file gets the schema in ``current.sql``. A change of it raises VERSION. Until the first
release is tagged, it raises FIRST too. After that, it adds a step ``NNNN.sql`` (from format
NNNN - 1 to NNNN). The steps must lead an older file to the same schema; the migration compares the
two.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

#: "hier": this id marks an SQLite file as a store of hiermem.
APPLICATION_ID = 0x68696572
#: "hmem": the id that development versions used before format 1. They also numbered their formats
#: from 1, so the format number alone does not distinguish their files from current ones.
DEVELOPMENT_ID = 0x686D656D
#: The format number, which the file holds as its ``user_version``.
VERSION = 6
#: The oldest format that is migrated; files of older ones were written by development versions.
FIRST = 6


@dataclass(frozen=True)
class Schema:
    """A format of the file: its whole schema, and the step to each format since FIRST."""

    version: int
    script: str
    steps: Mapping[int, str] = field(default_factory=dict[int, str])

    def expected(self) -> Mapping[tuple[str, str], str]:
        """Return the shape of a new file."""
        return _shape_of(self.script)


@cache
def current() -> Schema:
    """Return the schema that this version of the library writes."""
    return read(files(__name__), VERSION)


def read(folder: Traversable, version: int) -> Schema:
    """Read a schema from ``current.sql`` and the steps from FIRST to ``version`` in ``folder``."""
    return Schema(
        version,
        folder.joinpath("current.sql").read_text("utf-8"),
        {
            step: folder.joinpath(f"{step:04}.sql").read_text("utf-8")
            for step in range(FIRST + 1, version + 1)
        },
    )


def statements(script: str) -> Iterator[str]:
    """Yield the statements of ``script`` one by one.

    ``executescript`` is no alternative: it commits the transaction that the statements must share.
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
    """Return the definition of every table, index, trigger and view, by (kind, name).

    Comments, quotes and white space are left out, because ALTER TABLE writes them differently.
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
def _shape_of(script: str) -> Mapping[tuple[str, str], str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in statements(script):
            connection.execute(statement)
        return shape(connection)
