"""The statements that restore a session in batches, and that tell what restores brought.

What has come is stored under a number that no row of ``sessions`` has yet, so nothing reads it.
Rows that are found by a name are held as they came, and written with the row of the session.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.core.summaries.due import AT_ONCE
from hiermem.errors import SessionExistsError
from hiermem.stores import rows, tree_rows
from hiermem.stores.dump import Item, RowReader, check_secret, held_items
from hiermem.stores.receive import Progress, taken_over
from hiermem.stores.sqlite import blocks as block_rows
from hiermem.stores.sqlite import due, heads, reads, removal, writes
from hiermem.stores.sqlite.heads import insert
from hiermem.stores.sqlite.workers import Connections, Transaction
from hiermem.types.transaction import RestoreState, StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

_VERSION: Final = insert("versions", "", rows.MESSAGE)
_NODE: Final = insert("nodes", "tenant, session, tree", tree_rows.NODE)
_REVISION: Final = insert("revisions", "tenant, session, tree", tree_rows.REVISION)
_VIEW: Final = insert("views", "tenant", rows.VIEW)
_RECORD: Final = insert("records", "tenant", rows.RECORD)
_RUN: Final = insert("runs", "tenant", tree_rows.RUN)
_ATTEMPT: Final = insert("attempts", "tenant", tree_rows.ATTEMPT)
_AT: Final = "WHERE tenant = ? AND id = ?"
_FOUND: Final = f"SELECT session, taken, chain, first FROM restores {_AT} AND session IS NOT NULL"


class SQLiteReceiver:
    """What the restore of one session does; see ``hiermem.stores.receive.Receiver``."""

    def __init__(
        self, store: Connections, tenant: str, replaces: int | None, session_id: str
    ) -> None:
        self._store = store
        self._of = (tenant, session_id)
        self._replaces = replaces

    async def begin(self, reader: RowReader, first: bytes) -> Progress:
        """Return how far a restore of this record has come, and reserve its number."""
        work = partial(_begin, of=self._of, reader=reader, first=first, replaces=self._replaces)
        return await self._store.write(work)

    async def add(
        self, before: Progress, after: Progress, items: Sequence[Item], held: Sequence[StoredRow]
    ) -> None:
        """Write the items under the reserved number, and keep the rows ``held``."""
        work = partial(_add, of=self._of, before=before, after=after, items=items, held=held)
        await self._store.write(work)

    async def finish(self, before: Progress, digest: str, reader: RowReader) -> None:
        """Write the row of the session and the rows that were held."""
        work = partial(
            _finish,
            of=self._of,
            before=before,
            digest=digest,
            reader=reader,
            replaces=self._replaces,
        )
        await self._store.write(work)

    async def drop(self) -> None:
        """Remove what came so far."""
        await self._store.write(partial(_drop, of=self._of))


def find(connection: Any, tenant: str, session_id: str | None) -> list[RestoreState]:
    """Return what restores brought of one session, or all that is unfinished, by id."""
    where = "session IS NOT NULL" if session_id is None else "id = ?"
    bound = (tenant,) if session_id is None else (tenant, session_id)
    found = connection.execute(
        f"SELECT id, digest, session IS NOT NULL FROM restores WHERE tenant = ? AND {where} "
        "ORDER BY id",
        bound,
    )
    return [RestoreState(id_, digest, bool(open_)) for id_, digest, open_ in found.fetchall()]


def _check(
    transaction: Transaction,
    of: tuple[str, str],
    reader: RowReader,
    replaces: int | None,
) -> bytes:
    """Refuse what may not be restored; return the store's secret.

    Raises SessionExistsError and SecretMismatchError.
    """
    there = heads.find(transaction, *of)
    if there is not None and there[1].version != replaces:
        raise SessionExistsError(of[1])
    secret = reads.secret(transaction.connection)
    check_secret(
        reader, secret, empty=not reads.tenants(transaction.connection, after=None, limit=1)
    )
    return secret


def _begin(
    transaction: Transaction,
    *,
    of: tuple[str, str],
    reader: RowReader,
    first: bytes,
    replaces: int | None,
) -> Progress:
    _check(transaction, of, reader, replaces)
    connection = transaction.connection
    found = connection.execute(_FOUND, of).fetchone()
    if found is not None and found[3] == first:
        return Progress(found[1], found[2], first)
    transaction.writing()
    _drop(transaction, of=of)
    number = 0 if of[1] == NO_SESSION else _reserved(connection, of[0])
    connection.execute(
        "INSERT INTO restores (tenant, id, session, taken, chain, first) VALUES (?, ?, ?, 0, ?, ?) "
        "ON CONFLICT (tenant, id) DO UPDATE SET session = excluded.session, taken = 0, "
        "chain = excluded.chain, first = excluded.first",
        (*of, number, b"", first),
    )
    return Progress(first=first)


def _reserved(connection: Any, tenant: str) -> int:
    """Return a number that no session has had, and none will get."""
    made = connection.execute(
        "INSERT INTO sessions (tenant, id, participants, config, counter, created_at, forked_at) "
        "VALUES (?, ?, '', '', '', 0, 0)",
        (tenant, NO_SESSION),
    )
    connection.execute("DELETE FROM sessions WHERE session = ?", (made.lastrowid,))
    return int(made.lastrowid)


def _number(connection: Any, of: tuple[str, str], before: Progress) -> int:
    """Return the reserved number, where the restore has come as far as ``before``."""
    found = connection.execute(_FOUND, of).fetchone()
    if found is None or tuple(found[1:]) != (before.rows, before.chain, before.first):
        raise taken_over(of[1])
    return int(found[0])


def _add(
    transaction: Transaction,
    *,
    of: tuple[str, str],
    before: Progress,
    after: Progress,
    items: Sequence[Item],
    held: Sequence[StoredRow],
) -> None:
    connection = transaction.connection
    number = _number(connection, of, before)
    transaction.writing()
    for kind, at, value in items:
        statement, row = _WRITTEN[kind]
        connection.execute(statement, row(of[0], number, at, value))
    if held:
        data = zlib.compress(json.dumps(held).encode())
        connection.execute(
            "INSERT INTO restored_rows (tenant, id, row, data) VALUES (?, ?, ?, ?)",
            (*of, before.rows, data),
        )
    connection.execute(
        f"UPDATE restores SET taken = ?, chain = ? {_AT}", (after.rows, after.chain, *of)
    )


#: For each kind, its statement, and its row: of the tenant, the number, the place and the value.
_WRITTEN: Final[dict[str, tuple[str, Callable[[str, int, Any, Any], Sequence[Any]]]]] = {
    "message": (writes.MESSAGE, lambda _, number, __, one: rows.message_row(number, one)),
    "version": (_VERSION, lambda _, number, __, one: rows.message_row(number, one)),
    "key": (writes.KEY, lambda _, number, key, one: (number, key, one.index, one.fingerprint)),
    "event": (writes.EVENT, lambda _, number, __, one: (number, *rows.event_row(one))),
    "node": (
        _NODE,
        lambda tenant, number, tree, one: (tenant, number, tree, *tree_rows.node_row(one)),
    ),
    "revision": (
        _REVISION,
        lambda tenant, number, tree, one: (tenant, number, tree, *tree_rows.revision_row(one)),
    ),
    "block": (
        block_rows.PUT,
        lambda _, number, __, one: (number, one.kind, one.start, one.stop, one.data),
    ),
    "view": (_VIEW, lambda tenant, _, __, one: (tenant, one.session_id, one.name, one.state)),
    "record": (
        _RECORD,
        lambda tenant, _, __, one: (
            tenant, one.kind, one.scope, one.key, one.body, one.version,
        ),
    ),
    "run": (_RUN, lambda tenant, _, __, one: (tenant, *tree_rows.run_row(one))),
    "attempt": (_ATTEMPT, lambda tenant, _, __, one: (tenant, *tree_rows.attempt_row(one))),
}  # fmt: skip


def _finish(
    transaction: Transaction,
    *,
    of: tuple[str, str],
    before: Progress,
    digest: str,
    reader: RowReader,
    replaces: int | None,
) -> None:
    secret = _check(transaction, of, reader, replaces)
    connection = transaction.connection
    number = _number(connection, of, before)
    transaction.writing()
    if reader.secret != secret:
        connection.execute("UPDATE store SET secret = ?", (reader.secret,))
    if replaces is not None:
        removal.shown(transaction, *of)
    if reader.record is not None:
        writes.write_new(connection, of[0], number, reader.record)
        due.note(transaction, number, AT_ONCE)
    page = -1
    while found := connection.execute(
        f"SELECT row, data FROM restored_rows {_AT} AND row > ? ORDER BY row LIMIT 1", (*of, page)
    ).fetchone():
        page, data = found
        for kind, at, value in held_items(json.loads(zlib.decompress(data))):
            if kind == "block":
                block_rows.put(transaction, number, [value])
                continue
            statement, row = _WRITTEN[kind]
            connection.execute(statement, row(of[0], number, at, value))
    connection.execute(f"DELETE FROM restored_rows {_AT}", of)
    connection.execute(
        f"UPDATE restores SET session = NULL, chain = NULL, first = NULL, digest = ? {_AT}",
        (digest, *of),
    )
    transaction.heads.pop(of, None)


def _drop(transaction: Transaction, *, of: tuple[str, str]) -> None:
    transaction.writing()
    removal.unshown(transaction.connection, *of)
