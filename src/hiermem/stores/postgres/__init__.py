"""A store in a schema of a PostgreSQL database, which any number of processes may share.

This module opens and closes the store. ``tenant`` holds the operations of a tenant's handle,
``scope`` what its transactions begin with, ``decisions`` how it decides under locks, ``reads`` and
``writes`` the statements, and ``schema`` the tables. It needs ``hiermem-memory[postgres]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import psycopg
from psycopg import sql

from hiermem import arguments, errors
from hiermem.stores.postgres import due, reads, schema
from hiermem.stores.postgres.connections import (
    FAILURES,
    Connection,
    Connections,
    scrub,
    settings,
    shown,
    translate,
)
from hiermem.stores.postgres.decisions import PostgresTenant
from hiermem.stores.postgres.due import lock_number
from hiermem.stores.postgres.scope import Scope, Shared
from hiermem.types.transaction import DueSession, Scrubbed

__all__ = ["PostgresStore", "PostgresTenant"]

#: PostgreSQL keeps names that begin with pg_ for itself.
_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}")
#: PostgreSQL 16.
_OLDEST: Final = 160_000
#: The length of a store's secret, in bytes.
_SECRET: Final = 32
_VERSION: Final = "SELECT version FROM {}.store"
#: A row where the schema's owner is this role, one that it belongs to, or a superuser. The schema
#: public belongs to whoever owns the database.
_TRUSTED: Final = (
    "SELECT 1 FROM pg_namespace n JOIN pg_database d ON d.datname = current_database() "
    "JOIN pg_roles r ON r.oid = CASE n.nspowner WHEN 'pg_database_owner'::regrole THEN d.datdba "
    "ELSE n.nspowner END WHERE n.nspname = $1 "
    "AND (r.rolsuper OR pg_has_role(current_user, r.oid, 'MEMBER') AND NOT ("
    "SELECT rolsuper FROM pg_roles WHERE rolname = current_user) OR r.rolname = current_user)"
)
_NAMED: Final = "current_setting('hiermem.tenant'::text)"
_ONE_TENANT: Final = f"(tenant = ({_NAMED})::uuid)"
_OR_ALL: Final = f"({_ONE_TENANT} OR ({_NAMED} = 'ba768b33-1fd8-6cec-803b-e04e56ab2b3d'::text))"
#: The policies of the tables: of which, for whom and what, and the condition.
_POLICIES: Final = (
    "SELECT c.relname, p.polname, p.polpermissive, p.polcmd::text, p.polroles = '{0}', "
    "p.polwithcheck IS NULL, pg_get_expr(p.polqual, p.polrelid) "
    "FROM pg_class c LEFT JOIN pg_policy p ON p.polrelid = c.oid "
    "WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND c.relname <> 'store'"
)
#: The limits of a timeout, in seconds, and of the time after which backups expire.
_SHORTEST: Final = 0.001
_LONGEST: Final = 2_000_000
_EXPIRY: Final = timedelta(days=36_525)


class PostgresStore:
    """A store in PostgreSQL; open it with ``await PostgresStore.open(dsn)``.

    It belongs to the process in which it was opened, and to the event loop that uses it first.
    """

    def __init__(self, shared: Shared, dsn: str, backups_expire: timedelta | None) -> None:
        self._shared = shared
        self._dsn = dsn
        self._backups_expire = backups_expire
        # Statements that concern all tenants are bound to the name that no tenant has.
        self._scope = Scope(shared, "")

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        schema: str = "hiermem",
        create: bool = True,
        migrate: bool = False,
        read_only: bool = False,
        pool_min: int = 0,
        pool_max: int = 8,
        prepare: bool = False,
        row_security: bool = False,
        backups_expire: timedelta | None = None,
        lock_timeout: float = 5.0,
        statement_timeout: float = 30.0,
        idle_timeout: float = 10.0,
        secret: bytes | None = None,
    ) -> PostgresStore:
        """Open the store in ``schema`` of the database that ``dsn`` names; create it if need be.

        A store of an older version is refused, unless ``migrate`` brings it to this one first; that
        needs the rights of the owner, and no older hiermem can use the store afterwards.
        From ``pool_min`` to ``pool_max`` connections are kept. ``prepare`` lets statements be
        prepared on them, which a pooler between may not support. With ``row_security``, the
        database itself must confine every statement to its tenant; the role may then be neither a
        superuser nor the owner of the schema. With ``read_only``, nothing is created, and writes
        raise ReadOnlyError. ``backups_expire`` states after which time no log, replica or backup of
        the server holds an old row; without it, ``scrub`` never says that all is done. The timeouts
        are seconds that a transaction waits for a lock, that one statement takes, and that a
        transaction waits for this process. ``secret`` are the 32 bytes that the store has, or gets
        where it is created; by default, they are drawn at random.

        Raises ConfigError for a connection string, user or database that is refused, for a server
        older than PostgreSQL 16, and where ``row_security`` is not in force; NotFoundError if
        ``create`` is off and there is no store; StoreCorruptError if a newer hiermem wrote it;
        ConflictError where the store has another secret than ``secret``; StoreError where the
        server cannot be reached or the store is of an older version.
        """
        if not isinstance(schema, str) or not _NAME.fullmatch(schema):
            raise errors.ConfigError(
                "invalid schema; use up to 48 of a-z, 0-9, _; no leading digit or pg_"
            )
        if secret is not None:
            _check_key(secret)
        if arguments.whole(pool_min, "pool_min") > arguments.whole(pool_max, "pool_max", least=1):
            raise errors.UsageError("pool_min must be from 0 to pool_max")
        for named, limit in (
            ("lock_timeout", lock_timeout),
            ("statement_timeout", statement_timeout),
            ("idle_timeout", idle_timeout),
        ):
            # The server counts milliseconds in 32 bits, and takes 0 for no limit.
            if not _SHORTEST <= arguments.seconds(limit, named) <= _LONGEST:
                raise errors.UsageError(f"{named} must be from {_SHORTEST} to {_LONGEST:,} seconds")
        if backups_expire is not None:
            _check_expiry(backups_expire)
        await _prepared(
            dsn,
            schema,
            create=create and not read_only,
            migrate=migrate and not read_only,
            confined=row_security,
            secret=secret,
        )
        connections = Connections(
            dsn,
            smallest=pool_min,
            largest=pool_max,
            statement_timeout=statement_timeout,
            idle_timeout=idle_timeout,
            prepare=prepare,
        )
        limits = (lock_timeout, statement_timeout, idle_timeout)
        return cls(Shared(connections, schema, *limits, read_only), dsn, backups_expire)

    @property
    def place(self) -> str:
        """Return how the store is named to people: its server, database and schema."""
        return self._shared.place

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the optional abilities; this store has all of them."""
        return frozenset({"durable", "shared", "concurrent"})

    def tenant(self, name: str) -> PostgresTenant:
        """Return the handle that is bound to tenant ``name``; this does no I/O."""
        return PostgresTenant(Scope(self._shared, name))

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants that have anything stored, in order."""
        return await self._scope.read(reads.tenants(after, limit))

    async def claim_due(
        self,
        limit: int,
        *,
        lease: float,
        tenant: str | None = None,
        ahead: float | None = 0.0,
    ) -> list[DueSession]:
        """Claim up to ``limit`` sessions that are due now, or list them, the longest due first."""
        scope = self._scope if tenant is None else Scope(self._shared, tenant)
        query = due.claim(limit, lease, tenant=tenant, ahead=ahead)
        return await (scope.write_alone if lease else scope.read)(query)

    async def scrub(self) -> Scrubbed:
        """Rewrite the tables without the rows that were removed; an erasure alone does not.

        It needs the rights of the tables' owner, and a connection that is not shared by
        transactions. Others wait while their table is written. The result says up to where, and
        what is out of reach.
        """
        shared = self._shared
        async with shared.connections.use():  # refuses a closed store, and keeps it open
            if shared.read_only:
                raise errors.ReadOnlyError
            async with _connected(self._dsn) as connection:
                return await scrub(
                    connection,
                    shared.schema,
                    lock_timeout=shared.lock_timeout,
                    backups_expire=self._backups_expire,
                )

    async def close(self) -> None:
        """Finish the operations in progress and close the connections."""
        await self._shared.connections.close()


def _check_key(secret: bytes) -> None:
    if not isinstance(secret, bytes) or len(secret) != _SECRET:
        found = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
        raise errors.UsageError(f"secret is {found}; it must be {_SECRET} bytes")


def _check_expiry(expiry: timedelta) -> None:
    if not isinstance(expiry, timedelta):
        raise errors.UsageError(
            f"backups_expire is {type(expiry).__name__}; it must be a timedelta"
        )
    if not timedelta(0) <= expiry <= _EXPIRY:
        raise errors.UsageError("backups_expire must be from 0 to a hundred years")


async def _prepared(
    dsn: str, name: str, *, create: bool, migrate: bool, confined: bool, secret: bytes | None
) -> None:
    """Check that the store can be used, on a connection of its own, and create it if need be.

    A pool would hide why a connection was refused.
    """
    named = shown(dsn)
    async with _connected(dsn) as connection:
        if connection.info.server_version < _OLDEST:
            found = connection.info.server_version // 10_000
            raise errors.ConfigError(f"PostgreSQL at {named} is {found}; 16 or newer is needed")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in (None, "UTF8"):
            raise errors.ConfigError(
                f"database {named} has encoding {encoding}, which cannot hold every text; "
                "create one with ENCODING 'UTF8'"
            )
        version = await _version(connection, name)
        if version is None and create:
            version = await _created(connection, name, secret or os.urandom(32))
        if version is not None and schema.FIRST <= version < schema.VERSION and migrate:
            version = await _migrated(connection, name)
        _check_version(version, name, named)
        if secret is not None:
            await _check_secret(connection, name, secret)
        if confined:
            await _check_confined(connection, name)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncGenerator[Connection]:
    """Lend a connection of its own; its failures are raised as errors of hiermem."""
    named = shown(dsn)
    try:
        connection: Connection = await Connection.connect(dsn, **settings(dsn))
    except FAILURES as error:
        raise translate(error, named) from None
    try:
        yield connection
    except FAILURES as error:
        raise translate(error, named) from None
    finally:
        await connection.close()


async def _version(connection: Connection, name: str) -> int | None:
    """Return the version of the store in the schema, or None where there is no store."""
    # By a query, which sees what was committed: a function that looks a name up may remember that
    # it was not there.
    found = await connection.execute(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relname = 'store'",
        (name,),
    )
    if not found.rowcount:
        return None
    select = sql.SQL(_VERSION).format(sql.Identifier(name))
    try:
        row = await (await connection.execute(select)).fetchone()
    except psycopg.errors.UndefinedColumn:
        row = None
    if row is None or not isinstance(row[0], int):
        raise errors.StoreCorruptError(
            f"schema {name} has a foreign table store, left untouched; restore a copy, or use "
            "another schema"
        )
    return row[0]


async def _created(connection: Connection, name: str, secret: bytes) -> int:
    """Create the store in the schema, which must be empty; another process may just do so."""
    owned = sql.Identifier(name)
    version = await _alone(connection, name)
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
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(owned))
        await connection.execute(schema.script().encode())
        await connection.execute(
            "INSERT INTO store (one, version, secret, created_at) VALUES (1, $1, $2, "
            "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)",
            (schema.VERSION, secret),
        )
        version = schema.VERSION
    await connection.execute("COMMIT")
    return version


async def _migrated(connection: Connection, name: str) -> int:
    """Bring the store to the version of this library, step by step, in one transaction."""
    version = await _alone(connection, name) or 0
    await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(name)))
    while version < schema.VERSION:
        version += 1
        await connection.execute(schema.script(f"{version:04}").encode())
        await connection.execute("UPDATE store SET version = $1", (version,))
    await connection.execute("COMMIT")
    return version


async def _alone(connection: Connection, name: str) -> int | None:
    """Begin a transaction that alone changes the schema, and return the version found in it."""
    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    await connection.execute("SET LOCAL client_min_messages TO warning")
    await connection.execute("SELECT pg_advisory_xact_lock($1::bigint)", (lock_number(name),))
    return await _version(connection, name)


def _check_version(version: int | None, name: str, named: str) -> None:
    if version is None:
        raise errors.NotFoundError(f"there is no store in the schema {name} of {named}")
    if version > schema.VERSION:
        raise errors.StoreCorruptError(
            f"schema {name} of {named} has version {version}, newer than {schema.VERSION}; "
            "upgrade hiermem"
        )
    if version < schema.FIRST:
        raise errors.StoreError(
            f"schema {name} of {named} has another development version, left untouched; use "
            "another schema"
        )
    if version < schema.VERSION:
        raise errors.StoreError(
            f"the store in schema {name} of {named} has version {version}, not "
            f"{schema.VERSION}; stop older processes, then run: hiermem store migrate --db DSN"
        )


async def _check_secret(connection: Connection, name: str, secret: bytes) -> None:
    select = sql.SQL("SELECT secret FROM {}.store").format(sql.Identifier(name))
    if await (await connection.execute(select)).fetchone() != (secret,):
        raise errors.ConflictError(
            f"the store in the schema {name} has another secret; stores that share tenants "
            "have one",
            kind="secret",
        )


async def _check_confined(connection: Connection, name: str) -> None:
    """Refuse a role, or a table, for which the policies of the schema are not in force."""
    found = await connection.execute(
        "SELECT c.relname FROM pg_class c JOIN pg_roles r ON r.rolname = current_user "
        "WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND c.relname <> 'store' "
        "AND (r.rolsuper OR r.rolbypassrls OR NOT c.relrowsecurity "
        "OR pg_has_role(c.relowner, 'USAGE')) LIMIT 1",
        (f'"{name}"',),
    )
    if found.rowcount:
        raise errors.ConfigError(
            f"row_security=True needs a role without superuser, ownership in schema {name} or "
            "BYPASSRLS; use another role"
        )
    policies = await (await connection.execute(_POLICIES, (f'"{name}"',))).fetchall()
    for table, *policy in policies:
        wanted = ("one_tenant_or_all", _OR_ALL) if table == "due" else ("one_tenant", _ONE_TENANT)
        if tuple(policy) != (wanted[0], True, "*", True, True, wanted[1]):
            raise errors.ConfigError(
                f"row_security=True: table {table} in schema {name} has a foreign policy; drop "
                "that policy"
            )
