"""The statements that dump a session, or what belongs to none, and that restore one.

Each does so inside one transaction, so all rows of a dump are of one state, and a restore is whole
or nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from hiermem.errors import SessionExistsError
from hiermem.stores import rows
from hiermem.stores.dump import Item, check_secret, missing, pages
from hiermem.stores.receive import Received
from hiermem.stores.sqlite import due, heads, puts, reads, writes
from hiermem.stores.sqlite.heads import INSERT, Part, Tenant
from hiermem.stores.sqlite.workers import Transaction
from hiermem.summaries.due import AT_ONCE
from hiermem.types.transaction import NO_SESSION, StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are decoded at once.
_CHUNK: Final = 500


# ---------------------------------------------------------------------------------------------
# Dumping


def dump(
    connection: sqlite3.Connection, *, tenant: str, session_id: str
) -> Iterator[list[StoredRow]]:
    """Yield the pages of a dump, of what belongs to no session where the id is "".

    The connection must be inside a transaction, or be alone.
    """
    items = _items(Part(connection, tenant), session_id)
    yield from pages(items, tenant=tenant, secret=reads.secret(connection))


def _items(part: Tenant, session_id: str) -> Iterator[Item]:
    number = 0
    if session_id != NO_SESSION:
        record = reads.session(part, session_id)
        found = heads.number(part, session_id)
        if record is None or found is None:
            raise missing(session_id)
        yield "session", "", record
        number = found
    for kind, form in rows.KINDS.items():
        columns = form.columns
        bound: tuple[str | int, ...] = (number,)
        if session_id == NO_SESSION:
            if not form.named:
                continue
            where = (
                "m.tenant = ? AND NOT EXISTS (SELECT 1 FROM sessions s "
                f"WHERE s.tenant = m.tenant AND s.id = m.{form.named})"
            )
            bound = (part.of,)
        elif form.named:
            where, bound = f"tenant = ? AND {form.named} = ?", (part.of, session_id)
        elif form.owner == "log":
            where = "message >= ? AND message < ?"
            bound = (number << rows.INDEX_BITS, number + 1 << rows.INDEX_BITS)
        else:
            where = "session = ?"
        if form.owner == "tree":
            columns = f"tree, {columns}"
        selected = f"SELECT {columns} FROM {form.table} m WHERE {where} ORDER BY {form.order}"
        with closing(part.connection.execute(selected, bound)) as cursor:
            while chunk := cursor.fetchmany(_CHUNK):
                yield from rows.items(kind, chunk)


# ---------------------------------------------------------------------------------------------
# Restoring


def restore(transaction: Transaction, received: Received, replaces: int | None) -> None:
    """Write a session, or what belongs to none, instead of the one of version ``replaces``.

    Raises SessionExistsError and SecretMismatchError.
    """
    reader, connection = received.reader, transaction.connection
    tenant, session_id = reader.tenant, reader.session_id
    there = heads.find(transaction, tenant, session_id)
    if there is not None and there[1].version != replaces:
        raise SessionExistsError(session_id)
    secret = reads.secret(connection)
    empty = not reads.tenants(connection, after=None, limit=1)
    check_secret(reader, secret, empty=empty)
    transaction.writing()
    if reader.secret != secret:
        connection.execute("UPDATE store SET secret = ?", (reader.secret,))
    if replaces is not None:
        writes.deleted(transaction, tenant, session_id)
    number = 0
    if reader.record is not None:
        number = writes.write_record(connection, tenant, None, None, reader.record)
        due.note(transaction, number, AT_ONCE)
    for page in received.pages():
        for kind, at, value in page:
            if kind == "block":
                puts.write_blocks(transaction, number, [value])
                continue
            form = rows.KINDS[kind]
            row = form.row((at, value) if kind == "key" else value)
            if form.owner == "log":
                row = (number << rows.INDEX_BITS | row[0], *row[1:])
            owners = {
                "tenant": (tenant,), "session": (number,), "tree": (tenant, number, at), "log": (),
            }  # fmt: skip
            connection.execute(INSERT[kind], (*owners[form.owner], *row))
