"""The statements that dump a session, or what belongs to none.

A dump reads inside one transaction, so all its rows are of one state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, Final

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode
from hiermem.stores.dump import Item, missing, pages
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite import reads
from hiermem.types.transaction import StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are decoded at once.
_CHUNK: Final = 500
_LOG: Final = "message >= ? AND message < ? ORDER BY"


def dump(
    connection: sqlite3.Connection, *, tenant: str, session_id: str
) -> Iterator[list[StoredRow]]:
    """Yield the pages of a dump, of what belongs to no session where the id is "".

    The connection must be inside a transaction, or be alone.
    """
    secret = reads.secret(connection)
    if session_id == NO_SESSION:
        yield from pages(_without_session(connection, tenant), tenant=tenant, secret=secret)
        return
    record = reads.session(connection, tenant, session_id)
    at = reads.place(connection, tenant, session_id)
    if record is None or at is None:
        raise missing(session_id)
    number = at[0]
    log = (number << INDEX_BITS, number + 1 << INDEX_BITS)
    each = partial(_each, connection)

    def named(kind: str, table: str, columns: str, column: str, order: str) -> Iterator[Item]:
        selected = f"{columns} FROM {table} WHERE tenant = ? AND {column} = ? ORDER BY {order}"
        return each(kind, selected, (tenant, session_id), _READERS[kind])

    def numbered(kind: str, table: str, columns: str, order: str) -> Iterator[Item]:
        selected = f"{columns} FROM {table} WHERE session = ? ORDER BY {order}"
        return each(kind, selected, (number,), _READERS[kind])

    items = chain(
        [("session", "", record)],
        each("message", f"{rows.MESSAGE} FROM messages WHERE {_LOG} message", log,
             rows.read_message),
        each("version", f"{rows.MESSAGE} FROM versions WHERE {_LOG} message, edit", log,
             rows.read_message),
        numbered("key", "keys", rows.KEY, "key"),
        numbered("event", "events", rows.EVENT, "event"),
        numbered("node", "nodes", f"tree, {tree_rows.NODE}", "tree, id"),
        numbered("revision", "revisions", f"tree, {tree_rows.REVISION}", "written"),
        named("view", "views", rows.VIEW, "session_id", "name"),
        named("record", "records", rows.RECORD, "scope", "record"),
        named("run", "runs", tree_rows.RUN, "subject", "run"),
        named("attempt", "attempts", tree_rows.ATTEMPT, "session_id", "attempt"),
        numbered("block", "blocks", rows.BLOCK, "block"),
    )  # fmt: skip
    yield from pages(items, tenant=tenant, secret=secret)


def _without_session(connection: sqlite3.Connection, tenant: str) -> Iterator[Item]:
    """Yield what belongs to no session."""
    for kind, columns, owner, order in (
        ("view", rows.VIEW, "session_id", "session_id, name"),
        ("record", rows.RECORD, "scope", "record"),
        ("run", tree_rows.RUN, "subject", "run"),
        ("attempt", tree_rows.ATTEMPT, "session_id", "attempt"),
    ):
        selected = (
            f"{columns} FROM {kind}s m WHERE m.tenant = ? AND NOT EXISTS (SELECT 1 "
            f"FROM sessions s WHERE s.tenant = m.tenant AND s.id = m.{owner}) ORDER BY {order}"
        )
        yield from _each(connection, kind, selected, (tenant,), _READERS[kind])


def _each(
    connection: sqlite3.Connection,
    kind: str,
    selected: str,
    bound: Sequence[Any],
    read: Callable[[Sequence[Any]], Any],
) -> Iterator[Item]:
    with closing(connection.execute(f"SELECT {selected}", bound)) as cursor:
        while chunk := cursor.fetchmany(_CHUNK):
            for value in decode(chunk, read, f"{kind}s"):
                yield (kind, *value) if isinstance(value, tuple) else (kind, "", value)


_READERS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "key": rows.read_key,
    "event": rows.read_event,
    "node": tree_rows.of_tree(tree_rows.read_node),
    "revision": tree_rows.of_tree(tree_rows.read_revision),
    "view": rows.read_view,
    "record": rows.read_record,
    "run": tree_rows.read_run,
    "attempt": tree_rows.read_attempt,
    "block": rows.read_block,
}
