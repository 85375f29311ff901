"""The statements that dump a session, and that write one back.

A dump reads in one transaction that sees one state, row by row through a cursor. A restore is one
transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

from hiermem.errors import ReadOnlyError, SessionExistsError
from hiermem.stores import rows, tree_rows
from hiermem.stores.codec import decode
from hiermem.stores.dump import Item, Pages, SessionDump, check_secret, missing
from hiermem.stores.postgres import reads, writes
from hiermem.stores.postgres import statements as tables
from hiermem.stores.postgres.connections import Connection, Sent
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import Query, Statement, digest
from hiermem.types.transaction import StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are fetched, or written, at once.
_CHUNK: Final = 500
_NUMBER: Final = "(SELECT session FROM sessions WHERE tenant = $1 AND id = $2)"
_LOG: Final = (
    f"message >= {_NUMBER} << {rows.INDEX_BITS} AND message < ({_NUMBER} + 1) << {rows.INDEX_BITS}"
)
_OF: Final = f"session = {_NUMBER}"
_NAMED: Final = "{0} = $2 AND hashtextextended({0}, 0) = hashtextextended($2, 0)"
_Reader: TypeAlias = Callable[[Sequence[Any]], Any]
#: The kinds of rows in the order of a dump: kind, table, columns, condition, order, reader.
_KINDS: Final[tuple[tuple[str, str, str, str, str, _Reader], ...]] = (
    ("message", "messages", rows.MESSAGE, _LOG, "message", rows.read_message),
    ("version", "versions", rows.MESSAGE, _LOG, "edit", rows.read_message),
    ("key", "keys", rows.KEY, _OF, "key", rows.read_key),
    ("event", "events", rows.EVENT, _OF, "event", rows.read_event),
    ("node", "nodes", f"tree, {tree_rows.NODE}", _OF, "node",
     tree_rows.of_tree(tree_rows.read_node)),
    ("revision", "revisions", f"tree, {tree_rows.REVISION}", _OF, "written",
     tree_rows.of_tree(tree_rows.read_revision)),
    ("view", "views", rows.VIEW, _NAMED.format("session_id"), "name", rows.read_view),
    ("record", "records", rows.RECORD, _NAMED.format("scope"), "record", rows.read_record),
    ("run", "runs", tree_rows.RUN, _NAMED.format("subject"), "run", tree_rows.read_run),
    ("attempt", "attempts", tree_rows.ATTEMPT, _NAMED.format("session_id"), "attempt",
     tree_rows.read_attempt),
    ("block", "blocks", rows.BLOCK, _OF, "block", rows.read_block),
)  # fmt: skip


async def dump(scope: Scope, session_id: str) -> AsyncIterator[list[StoredRow]]:
    """Yield the pages of a dump of the session. Raises NotFoundError at the first one."""
    async with scope.connection() as connection:
        begin: list[Sent] = [
            ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", ()),
            scope.prologue(),
            scope.sent(reads.session(session_id)),
            scope.sent(reads.secret()),
        ]
        found = await scope.send(connection, begin)
        record = reads.session(session_id).read(found[2])
        if record is None:
            raise missing(session_id)
        filling = Pages(tenant=scope.name, secret=reads.secret().read(found[3]))
        filling.add(("session", "", record))
        for kind, table, columns, where, order, read in _KINDS:
            declare = Statement(
                f"DECLARE {kind}s_dumped NO SCROLL CURSOR FOR SELECT {columns} FROM {table} "
                f"WHERE tenant = $1 AND {where} ORDER BY {order}",
                (session_id,),
            )
            fetch: Sent = (f"FETCH {_CHUNK} FROM {kind}s_dumped", ())
            chunk = (await scope.send(connection, [scope.sent(declare), fetch]))[1]
            while chunk:
                value: Any
                for value in decode(chunk, read, f"{kind}s"):
                    item: Item = (kind, *value) if isinstance(value, tuple) else (kind, "", value)
                    if page := filling.add(item):
                        yield page
                if len(chunk) < _CHUNK:
                    break
                (chunk,) = await scope.send(connection, [fetch])
        yield filling.end()


async def restore(scope: Scope, given: SessionDump) -> None:
    """Write a dump. Raises SessionExistsError or SecretMismatchError before the first change."""
    if scope.read_only:
        raise ReadOnlyError
    record = given.record
    asked: list[Query[Any]] = [reads.session(record.id), reads.secret(), reads.holds_nothing()]

    async def work(connection: Connection) -> None:
        begin: list[Sent] = [("BEGIN ISOLATION LEVEL READ COMMITTED", ())]
        secret = await scope.read(reads.secret())
        if secret != given.secret:  # nobody may write the first row meanwhile
            begin += [
                scope.prologue(), ("LOCK TABLE tenants IN SHARE ROW EXCLUSIVE MODE", ()),
            ]  # fmt: skip
        begin.append(scope.prologue({record.id}, writing=True))
        found = await scope.send(connection, [*begin, *map(scope.sent, asked)])
        there, secret, empty = (
            one.read(found[place]) for place, one in enumerate(asked, len(begin))
        )
        if there is not None:
            raise SessionExistsError(record.id)
        check_secret(given, secret, empty=empty)
        statements = [*writes.record(None, record), *_written(given)]
        if secret != given.secret:
            taken = Statement("UPDATE store SET secret = $2 WHERE $1::uuid = $1", (given.secret,))
            statements.append(taken)
        sent = [*map(scope.sent, statements), ("COMMIT", ())]
        await scope.send(connection, sent, committing=True)

    await scope.on_connection(work)


def _written(given: SessionDump) -> Iterator[Statement]:
    of = given.record.id

    def put(table: tables.Table, rows_: Sequence[Any], *owner: Any) -> Iterator[Statement]:
        for start in range(0, len(rows_), _CHUNK):
            yield replace(table, key=0).put(rows_[start : start + _CHUNK], *owner)

    yield from put(tables.MESSAGES, [rows.message_row(0, one) for one in given.messages], of)
    yield from put(tables.VERSIONS, [rows.message_row(0, one) for one in given.versions], of)
    entries = [(key, one.index, one.fingerprint) for key, one in given.keys]
    yield from put(tables.KEYS, entries, of)
    yield from put(tables.EVENTS, [rows.event_row(one) for one in given.events], of)
    # In their order, by which the newest text is found.
    for tree, nodes in groupby(given.nodes, itemgetter(0)):
        yield from put(tables.NODES, [tree_rows.node_row(one) for _, one in nodes], of, tree)
    for tree, texts in groupby(given.revisions, itemgetter(0)):
        made = [tree_rows.revision_row(one) for _, one in texts]
        yield from put(tables.REVISIONS, made, of, tree)
    views = [(digest(of, one.name), of, one.name, one.state) for one in given.views]
    yield from put(tables.VIEWS, views)
    records = [
        (digest(one.kind, of, one.key), one.kind, of, one.key, one.body, one.version)
        for one in given.records
    ]
    yield from put(tables.RECORDS, records)
    yield from put(tables.RUNS, [tree_rows.run_row(one) for one in given.runs])
    yield from put(tables.ATTEMPTS, [tree_rows.attempt_row(one) for one in given.attempts])
    yield from put(
        tables.BLOCKS, [(one.kind, one.start, one.stop, one.data) for one in given.blocks], of
    )
