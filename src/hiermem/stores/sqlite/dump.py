"""The statements that dump a session, and that write one back.

A dump reads inside one transaction, so all its rows are of one state. A restore is one write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, Final

from hiermem.errors import SessionExistsError
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode
from hiermem.stores.dump import Item, SessionDump, check_secret, missing, pages
from hiermem.stores.rows import INDEX_BITS
from hiermem.stores.sqlite import blocks as block_rows
from hiermem.stores.sqlite import heads, reads, writes
from hiermem.stores.sqlite.heads import insert
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import StoredRow

#: The number of rows that are decoded at once.
_CHUNK: Final = 500
_LOG: Final = "message >= ? AND message < ? ORDER BY"
_RECORD: Final = insert("records", "tenant", rows.RECORD)
_VERSION: Final = insert("versions", "", rows.MESSAGE)
_RUN: Final = insert("runs", "tenant", tree_rows.RUN)
_ATTEMPT: Final = insert("attempts", "tenant", tree_rows.ATTEMPT)
_NODE: Final = insert("nodes", "tenant, session, tree", tree_rows.NODE)
_REVISION: Final = insert("revisions", "tenant, session, tree", tree_rows.REVISION)
_VIEW: Final = insert("views", "tenant", rows.VIEW)


def dump(
    connection: sqlite3.Connection, *, tenant: str, session_id: str
) -> Iterator[list[StoredRow]]:
    """Yield the pages of a dump; the connection must be inside a transaction, or be alone."""
    record = reads.session(connection, tenant, session_id)
    at = reads.place(connection, tenant, session_id)
    if record is None or at is None:
        raise missing(session_id)
    number = at[0]
    log = (number << INDEX_BITS, number + 1 << INDEX_BITS)

    def each(
        kind: str,
        selected: str,
        bound: Sequence[Any],
        read: Callable[[Sequence[Any]], Any],
    ) -> Iterator[Item]:
        with closing(connection.execute(f"SELECT {selected}", bound)) as cursor:
            while chunk := cursor.fetchmany(_CHUNK):
                for value in decode(chunk, read, f"{kind}s"):
                    yield (kind, *value) if isinstance(value, tuple) else (kind, "", value)

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
        each("version", f"{rows.MESSAGE} FROM versions WHERE {_LOG} edit", log, rows.read_message),
        numbered("key", "keys", rows.KEY, "key"),
        numbered("event", "events", rows.EVENT, "event"),
        numbered("node", "nodes", f"tree, {tree_rows.NODE}", "node"),
        numbered("revision", "revisions", f"tree, {tree_rows.REVISION}", "written"),
        named("view", "views", rows.VIEW, "session_id", "name"),
        named("record", "records", rows.RECORD, "scope", "record"),
        named("run", "runs", tree_rows.RUN, "subject", "run"),
        named("attempt", "attempts", tree_rows.ATTEMPT, "session_id", "attempt"),
        numbered("block", "blocks", rows.BLOCK, "block"),
    )  # fmt: skip
    yield from pages(items, tenant=tenant, secret=reads.secret(connection))


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


def restore(transaction: Transaction, dump: SessionDump) -> None:
    """Write a dump; raise SessionExistsError or SecretMismatchError before the first change."""
    tenant, record = dump.tenant, dump.record
    connection = transaction.connection
    if heads.find(transaction, tenant, record.id) is not None:
        raise SessionExistsError(record.id)
    secret = reads.secret(connection)
    empty = not reads.tenants(connection, after=None, limit=1)
    check_secret(dump, secret, empty=empty)
    transaction.writing()
    if dump.secret != secret:
        connection.execute("UPDATE store SET secret = ?", (dump.secret,))
    number = writes.write_record(connection, tenant, 0, None, record)
    many = connection.executemany
    many(writes.MESSAGE, (rows.message_row(number, one) for one in dump.messages))
    many(_VERSION, (rows.message_row(number, one) for one in dump.versions))
    many(writes.KEY, ((number, key, one.index, one.fingerprint) for key, one in dump.keys))
    many(writes.EVENT, ((number, *rows.event_row(one)) for one in dump.events))
    many(_NODE, ((tenant, number, tree, *tree_rows.node_row(one)) for tree, one in dump.nodes))
    many(
        _REVISION,
        ((tenant, number, tree, *tree_rows.revision_row(one)) for tree, one in dump.revisions),
    )
    many(_VIEW, ((tenant, one.session_id, one.name, one.state) for one in dump.views))
    many(
        _RECORD,
        ((tenant, one.kind, one.scope, one.key, one.body, one.version) for one in dump.records),
    )
    many(_RUN, ((tenant, *tree_rows.run_row(one)) for one in dump.runs))
    many(_ATTEMPT, ((tenant, *tree_rows.attempt_row(one)) for one in dump.attempts))
    block_rows.put(transaction, number, dump.blocks)
