"""The statements that dump a session, or what belongs to none, and that restore one in batches.

A dump reads inside one transaction, so all its rows are of one state. What a restore has brought is
stored under a number that no row of ``sessions`` has yet, so nothing reads it. Rows that are found
by a name are held as they came, and written with the row of the session.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.core.summaries.due import AT_ONCE
from hiermem.errors import SessionExistsError
from hiermem.stores import rows
from hiermem.stores.dump import Item, RowReader, check_secret, held_items, missing, pages
from hiermem.stores.receive import Progress, taken_over
from hiermem.stores.sqlite import due, heads, puts, reads, writes
from hiermem.stores.sqlite.heads import INSERT, Part, Tenant
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import RestoreState, StoredRow

if TYPE_CHECKING:
    from hiermem.stores.sqlite import SQLiteStore

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are decoded at once.
_CHUNK: Final = 500
_AT: Final = "WHERE tenant = ? AND id = ?"
_FOUND: Final = f"SELECT session, taken, chain, first FROM restores {_AT} AND session IS NOT NULL"


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


@dataclass(frozen=True)
class SQLiteReceiver:
    """What the restore of one session does; see ``hiermem.stores.receive.Receiver``."""

    store: SQLiteStore
    reader: RowReader
    replaces: int | None

    async def begin(self, first: bytes) -> Progress:
        """Return how far a restore of this record has come, and reserve its number."""

        def work(transaction: Transaction) -> Progress:
            self._check(transaction)
            connection = transaction.connection
            found = connection.execute(_FOUND, self._of).fetchone()
            if found is not None and found[3] == first:
                return Progress(found[1], found[2], first)
            self._drop(transaction)
            number = 0 if self.reader.record is None else _reserved(connection, self.reader.tenant)
            connection.execute(
                "INSERT INTO restores (tenant, id, session, taken, chain, first) "
                "VALUES (?, ?, ?, 0, ?, ?) ON CONFLICT (tenant, id) DO UPDATE SET "
                "session = excluded.session, taken = 0, chain = excluded.chain, "
                "first = excluded.first",
                (*self._of, number, b"", first),
            )
            return Progress(first=first)

        return await self.store.write(work)

    async def add(
        self, before: Progress, after: Progress, items: Sequence[Item], held: Sequence[StoredRow]
    ) -> None:
        """Write the items under the reserved number, and keep the rows ``held``."""

        def work(transaction: Transaction) -> None:
            connection = transaction.connection
            number = self._number(connection, before)
            transaction.writing()
            for item in items:
                self._insert(connection, number, item)
            if held:
                data = zlib.compress(json.dumps(held).encode())
                connection.execute(
                    "INSERT INTO restored_rows (tenant, id, row, data) VALUES (?, ?, ?, ?)",
                    (*self._of, before.rows, data),
                )
            connection.execute(
                f"UPDATE restores SET taken = ?, chain = ? {_AT}",
                (after.rows, after.chain, *self._of),
            )

        await self.store.write(work)

    async def finish(self, before: Progress, digest: str) -> None:
        """Write the row of the session and the rows that were held."""

        def work(transaction: Transaction) -> None:
            reader, secret = self.reader, self._check(transaction)
            connection = transaction.connection
            number = self._number(connection, before)
            transaction.writing()
            if reader.secret != secret:
                connection.execute("UPDATE store SET secret = ?", (reader.secret,))
            if self.replaces is not None:
                writes.deleted_shown(transaction, *self._of)
            if reader.record is not None:
                writes.write_record(connection, reader.tenant, number, None, reader.record)
                due.note(transaction, number, AT_ONCE)
            page = -1
            while found := connection.execute(
                f"SELECT row, data FROM restored_rows {_AT} AND row > ? ORDER BY row LIMIT 1",
                (*self._of, page),
            ).fetchone():
                page, data = found
                for item in held_items(json.loads(zlib.decompress(data))):
                    if item[0] == "block":
                        puts.write_blocks(transaction, number, [item[2]])
                    else:
                        self._insert(connection, number, item)
            connection.execute(f"DELETE FROM restored_rows {_AT}", self._of)
            connection.execute(
                f"UPDATE restores SET session = NULL, chain = NULL, first = NULL, digest = ? {_AT}",
                (digest, *self._of),
            )
            transaction.heads.pop(self._of, None)

        await self.store.write(work)

    async def drop(self) -> None:
        """Remove what came so far."""
        await self.store.write(self._drop)

    @property
    def _of(self) -> tuple[str, str]:
        return self.reader.tenant, self.reader.session_id

    def _drop(self, transaction: Transaction) -> None:
        transaction.writing()
        writes.dropped_restore(transaction.connection, *self._of)

    def _check(self, transaction: Transaction) -> bytes:
        """Refuse what may not be restored; return the store's secret.

        Raises SessionExistsError and SecretMismatchError.
        """
        there = heads.find(transaction, *self._of)
        if there is not None and there[1].version != self.replaces:
            raise SessionExistsError(self.reader.session_id)
        secret = reads.secret(transaction.connection)
        empty = not reads.tenants(transaction.connection, after=None, limit=1)
        check_secret(self.reader, secret, empty=empty)
        return secret

    def _number(self, connection: sqlite3.Connection, before: Progress) -> int:
        """Return the reserved number, where the restore has come as far as ``before``."""
        found = connection.execute(_FOUND, self._of).fetchone()
        if found is None or tuple(found[1:]) != (before.rows, before.chain, before.first):
            raise taken_over(self.reader.session_id)
        return int(found[0])

    def _insert(self, connection: sqlite3.Connection, number: int, item: Item) -> None:
        """Write an item under the session's number."""
        kind, at, value = item
        form, tenant = rows.KINDS[kind], self.reader.tenant
        row = form.row((at, value) if kind == "key" else value)
        if form.owner == "log":
            row = (number << rows.INDEX_BITS | row[0], *row[1:])
        owners = {
            "tenant": (tenant,), "session": (number,), "tree": (tenant, number, at),
            "log": (),
        }  # fmt: skip
        connection.execute(INSERT[kind], (*owners[form.owner], *row))


def _reserved(connection: sqlite3.Connection, tenant: str) -> int:
    """Return a number that no session has had, and none will get."""
    made = connection.execute(
        "INSERT INTO sessions (tenant, id, participants, config, counter, created_at, forked_at) "
        "VALUES (?, ?, '', '', '', 0, 0)",
        (tenant, NO_SESSION),
    )
    connection.execute("DELETE FROM sessions WHERE session = ?", (made.lastrowid,))
    return made.lastrowid or 0


def restores(part: Tenant, session_id: str | None = None) -> list[RestoreState]:
    """Return what restores brought of one session, or all that is unfinished, by id."""
    where = "session IS NOT NULL" if session_id is None else "id = ?"
    bound = (part.of,) if session_id is None else (part.of, session_id)
    found = part.connection.execute(
        f"SELECT id, digest, session IS NOT NULL FROM restores WHERE tenant = ? AND {where} "
        "ORDER BY id",
        bound,
    )
    return [RestoreState(id_, digest, bool(open_)) for id_, digest, open_ in found.fetchall()]
