"""Makes the schema of a store, and checks that one that is there may be used.

Real tables stand for the declared ones, with the declared columns and indexes. Beside them are
``format``, with the version, and ``commits``, with the ids of the commits of the last ten minutes.
A change of what is stored raises VERSION; a store of another version is refused.

The policies of the schema bind a role that is neither a superuser nor the owner: it sees the rows
of the tenant that its transaction names, and the names of all tenants by views. Nobody but the
owner may change the secret of the store once it is there.
"""

# ruff: noqa: S608 - the statements are put together from the declarations alone
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

import psycopg
from psycopg import sql

from hiermem import errors
from hiermem.records.tables import TABLES, Table
from hiermem.stores.postgres.connections import Connection, connected, shown
from hiermem.stores.postgres.statements import EVERY_TENANT, TYPES, lock_number, quoted

#: The version that this library reads and writes.
VERSION: Final = 6
#: Texts are compared by code points.
_COLUMNS: Final = {**TYPES, "s": 'text COLLATE "C"'}
#: PostgreSQL 16.
_OLDEST: Final = 160_000
#: PostgreSQL 17, the first version with a limit for a whole transaction.
_LIMITS_TRANSACTIONS: Final = 170_000
_SECRET: Final = "secret"  # noqa: S105 - the name of a row
#: A row where the schema's owner is this role, one that it belongs to, or a superuser. The schema
#: public belongs to whoever owns the database.
_TRUSTED: Final = (
    "SELECT 1 FROM pg_namespace n JOIN pg_database d ON d.datname = current_database() "
    "JOIN pg_roles r ON r.oid = CASE n.nspowner WHEN 'pg_database_owner'::regrole THEN d.datdba "
    "ELSE n.nspowner END WHERE n.nspname = $1 "
    "AND (r.rolsuper OR pg_has_role(current_user, r.oid, 'MEMBER') AND NOT ("
    "SELECT rolsuper FROM pg_roles WHERE rolname = current_user) OR r.rolname = current_user)"
)
#: The tenant that a transaction names; "" is what the setting is on a connection that had it once.
_NAMED: Final = "current_setting('hiermem.tenant'::text, true)"
_ONE_TENANT: Final = f"(tenant = substr(NULLIF({_NAMED}, ''::text), 2))"
_OR_ALL: Final = f"({_ONE_TENANT} OR ({_NAMED} = '{EVERY_TENANT}'::text))"
_NOT_SECRET: Final = f"(name <> '{_SECRET}'::text)"
#: A table of TABLES whose rows are of all tenants.
_STORE: Final = "store"


def policies() -> dict[tuple[str, str], tuple[str, str | None, str | None]]:
    """Return the policies by table and name: for what, USING and WITH CHECK."""
    made: dict[tuple[str, str], tuple[str, str | None, str | None]] = {}
    for name, table in TABLES.items():
        if name == _STORE:
            made[name, "all_read"] = "r", "true", None
            made[name, "all_add"] = "a", None, "true"
            made[name, "all_but_secret"] = "w", _NOT_SECRET, None
        else:
            made[name, "one_tenant"] = "*", _OR_ALL if is_shared(table) else _ONE_TENANT, None
    return made


def is_shared(table: Table) -> bool:
    """Return whether an index of the table is of the rows of all tenants."""
    return any(columns[0] != "tenant" for columns in table.indexes.values())


def script() -> Iterator[str]:
    """Yield the statements that make the tables of a new store in the schema that is searched."""
    yield "CREATE TABLE format (version bigint NOT NULL)"
    yield "CREATE TABLE commits (id uuid PRIMARY KEY, applied boolean NOT NULL)"
    for name, table in TABLES.items():
        columns = [
            f'"{column}" {_COLUMNS[letter.lower()]}' + ("" if letter.isupper() else " NOT NULL")
            for column, letter in zip(table.columns, table.letters, strict=True)
        ]
        columns.append(f"PRIMARY KEY ({quoted(table.key)})")
        yield f"CREATE TABLE {name} ({', '.join(columns)})"
        for column, letter in zip(table.columns, table.letters, strict=True):
            if letter in "bB":  # what is written there is compressed
                yield f"ALTER TABLE {name} ALTER COLUMN {column} SET STORAGE EXTERNAL"
        for index in table.indexes:
            where = " AND ".join(f'"{column}" IS NOT NULL' for column in table.optional(index))
            yield (
                f"CREATE INDEX {name}_{index} ON {name} ({quoted(table.order(index))})"
                f"{f' WHERE {where}' if where else ''}"
            )
        yield f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY"
        if table.key[0] == "tenant" and not is_shared(table):
            yield f"CREATE VIEW {name}_tenants AS SELECT tenant FROM {name}"
    words = {"*": "ALL", "r": "SELECT", "a": "INSERT", "w": "UPDATE"}
    for (name, policy), (of, using, check) in policies().items():
        yield (
            f"CREATE POLICY {policy} ON {name} FOR {words[of]}"
            f"{f' USING ({using})' if using else ''}{f' WITH CHECK ({check})' if check else ''}"
        )


async def prepared(
    dsn: str, name: str, *, create: bool, confined: bool, secret: bytes | None
) -> tuple[bool, bool, tuple[float, float]]:
    """Check that the store can be used, and create it if need be.

    Returns whether the policies of the schema bind this role, whether the server has a limit for a
    whole transaction, and what its clock said with the time when it was asked.
    """
    named = shown(dsn)
    async with connected(dsn) as connection:
        if connection.info.server_version < _OLDEST:
            old = connection.info.server_version // 10_000
            raise errors.ConfigError(f"PostgreSQL at {named} is {old}; 16 or newer is needed")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in (None, "UTF8"):
            raise errors.ConfigError(
                f"database {named} has encoding {encoding}, which cannot hold every text; "
                "create one with ENCODING 'UTF8'"
            )
        version = await _version(connection, name)
        if version is None and create:
            version = await _created(connection, name, secret)
        _check_version(version, name, named)
        if secret is not None:
            await _check_secret(connection, name, secret)
        if confined:
            await _check_confined(connection, name)
        asked = time.monotonic()
        found = await connection.execute(
            "SELECT row_security_active($1::regclass::oid) "
            "OR NOT has_table_privilege($1::regclass::oid, 'SELECT'), "
            "extract(epoch FROM clock_timestamp())::float8",
            (f'"{name}".sessions',),
        )
        ((is_confined, seconds),) = await found.fetchall()
        later = connection.info.server_version >= _LIMITS_TRANSACTIONS
        return is_confined, later, (seconds, asked)


async def _exists(connection: Connection, name: str, table: str) -> bool:
    # By a query, which sees what was committed: a function that looks a name up may remember that
    # it was not there.
    found = await connection.execute(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relname = $2",
        (name, table),
    )
    return bool(found.rowcount)


async def _version(connection: Connection, name: str) -> int | None:
    """Return the version of the store in the schema, 0 if unknown, or None if there is no store."""
    if not await _exists(connection, name, "format"):
        return 0 if await _exists(connection, name, _STORE) else None
    select = sql.SQL("SELECT version FROM {}.format").format(sql.Identifier(name))
    try:
        row = await (await connection.execute(select)).fetchone()
    except psycopg.errors.UndefinedColumn:
        row = None
    if row is None or not isinstance(row[0], int):
        raise errors.StoreCorruptError(
            f"schema {name} has a foreign table format, left untouched; restore a copy, or use "
            "another schema"
        )
    return row[0]


async def _created(connection: Connection, name: str, secret: bytes | None) -> int:
    """Create the store in the schema, which must be empty; another process may just do so."""
    owned = sql.Identifier(name)
    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    await connection.execute("SET LOCAL client_min_messages TO warning")
    await connection.execute("SELECT pg_advisory_xact_lock($1::bigint)", (lock_number(name),))
    version = await _version(connection, name)
    if version is None:
        found = await connection.execute("SELECT FROM pg_namespace WHERE nspname = $1", (name,))
        if not found.rowcount:  # who may create tables in a schema may not create schemas
            await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(owned))
        elif not await (await connection.execute(_TRUSTED, (name,))).fetchone():
            raise errors.ConfigError(
                f"schema {name} belongs to another role, which could drop its tables; take "
                "ownership, or use another"
            )
        others = await connection.execute(
            "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 LIMIT 1",
            (name,),
        )
        if others.rowcount:
            raise errors.StoreCorruptError(
                f"the schema {name} holds tables, but no store; name an empty schema, or a new one"
            )
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}, pg_temp").format(owned))
        await connection.execute("; ".join(script()).encode())
        await connection.execute("INSERT INTO format VALUES ($1)", (VERSION,))
        if secret is not None:
            await connection.execute(
                "INSERT INTO store VALUES ($1, $2, $3)",
                (_SECRET, int.from_bytes(os.urandom(7), "big"), secret),
            )
        version = VERSION
    await connection.execute("COMMIT")
    return version


def _check_version(version: int | None, name: str, named: str) -> None:
    if version is None:
        raise errors.NotFoundError(f"there is no store in the schema {name} of {named}")
    if version > VERSION:
        raise errors.StoreCorruptError(
            f"schema {name} of {named} has version {version}, newer than {VERSION}; upgrade hiermem"
        )
    if version < VERSION:
        raise errors.StoreError(
            f"schema {name} of {named} has another development version, left untouched; use "
            "another schema"
        )


async def _check_secret(connection: Connection, name: str, secret: bytes) -> None:
    select = sql.SQL("SELECT value FROM {}.store WHERE name = $1").format(sql.Identifier(name))
    row = await (await connection.execute(select, (_SECRET,))).fetchone()
    if row != (secret,):
        raise errors.ConflictError(
            f"the store in the schema {name} has another secret; stores that share tenants "
            "have one",
            kind="secret",
        )


async def _check_confined(connection: Connection, name: str) -> None:
    """Refuse a role, or a table, for which the policies of the schema are not in force."""
    found = await connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_roles r ON r.rolname = current_user "
        "WHERE c.relnamespace = $1::regnamespace AND c.relname = ANY($2) "
        "AND (r.rolsuper OR r.rolbypassrls OR NOT c.relrowsecurity "
        "OR pg_has_role(c.relowner, 'USAGE')) LIMIT 1",
        (f'"{name}"', list(TABLES)),
    )
    if found.rowcount:
        raise errors.ConfigError(
            f"row_security=True needs a role without superuser, ownership in schema {name} or "
            "BYPASSRLS; use another role"
        )
    stated = await connection.execute(
        "SELECT c.relname, p.polname, p.polcmd::text, pg_get_expr(p.polqual, p.polrelid), "
        "pg_get_expr(p.polwithcheck, p.polrelid), p.polpermissive AND p.polroles = '{0}' "
        "FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid "
        "WHERE c.relnamespace = $1::regnamespace AND c.relname = ANY($2)",
        (f'"{name}"', list(TABLES)),
    )
    there = {(row[0], row[1]): (row[2:5], row[5]) for row in await stated.fetchall()}
    wanted = {of: (policy, True) for of, policy in policies().items()}
    for table, policy in sorted(there.keys() | wanted.keys()):
        if there.get((table, policy)) != wanted.get((table, policy)):
            raise errors.ConfigError(
                f"row_security=True: table {table} in schema {name} has a foreign policy; drop "
                "that policy"
            )
