"""The statements that dump a session, or what belongs to none.

A dump reads inside one transaction, so all its rows are of one state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.stores import rows
from hiermem.stores.dump import Item, missing, pages
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite import heads, reads
from hiermem.types.transaction import StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are decoded at once.
_CHUNK: Final = 500


def dump(
    connection: sqlite3.Connection, *, tenant: str, session_id: str
) -> Iterator[list[StoredRow]]:
    """Yield the pages of a dump, of what belongs to no session where the id is "".

    The connection must be inside a transaction, or be alone.
    """
    items = _items(connection, tenant, session_id)
    yield from pages(items, tenant=tenant, secret=reads.secret(connection))


def _items(connection: sqlite3.Connection, tenant: str, session_id: str) -> Iterator[Item]:
    number = 0
    if session_id != NO_SESSION:
        record = reads.session(connection, tenant, session_id)
        found = heads.number(connection, tenant, session_id)
        if record is None or found is None:
            raise missing(session_id)
        yield "session", "", record
        number = found
    for kind, form in rows.KINDS.items():
        columns, order = form.columns, form.order
        bound: tuple[str | int, ...] = (number,)
        if session_id == NO_SESSION:
            if not form.named:
                continue
            where = (
                "m.tenant = ? AND NOT EXISTS (SELECT 1 FROM sessions s "
                f"WHERE s.tenant = m.tenant AND s.id = m.{form.named})"
            )
            bound = (tenant,)
            order = "session_id, name" if kind == "view" else order
        elif form.named:
            where, bound = f"tenant = ? AND {form.named} = ?", (tenant, session_id)
        elif form.owner == "log":
            where = "message >= ? AND message < ?"
            bound = (number << INDEX_BITS, number + 1 << INDEX_BITS)
        else:
            where = "session = ?"
        if form.owner == "tree":
            columns = f"tree, {columns}"
        selected = f"SELECT {columns} FROM {form.table} m WHERE {where} ORDER BY {order}"
        with closing(connection.execute(selected, bound)) as cursor:
            while chunk := cursor.fetchmany(_CHUNK):
                yield from rows.items(kind, chunk)
