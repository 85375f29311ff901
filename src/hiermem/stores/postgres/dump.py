"""The statements that dump a session, or what belongs to none, and that restore one.

A dump reads in one transaction that sees one state, row by row through a cursor. A restore writes
in one transaction, page by page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from hiermem.errors import ReadOnlyError, SessionExistsError
from hiermem.stores import rows
from hiermem.stores.dump import Item, Pages, check_secret, missing
from hiermem.stores.postgres import due, reads, writes
from hiermem.stores.postgres.connections import BEGIN, COMMIT, ONE_STATE, Connection, Sent
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import NUMBER, TABLES, Query, Statement
from hiermem.stores.receive import Received
from hiermem.summaries.due import AT_ONCE
from hiermem.types import SessionRecord
from hiermem.types.transaction import NO_SESSION, StoredRow

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

#: The number of rows that are fetched at once.
_CHUNK: Final = 500
#: Which rows ``m`` are those of the session, by the owner of their table.
_OF: Final = {
    "log": f"m.message >= {NUMBER} << {rows.INDEX_BITS} "
    f"AND m.message < ({NUMBER} + 1) << {rows.INDEX_BITS}",
    "session": f"m.session = {NUMBER}",
    "tree": f"m.session = {NUMBER}",
}


# ---------------------------------------------------------------------------------------------
# Dumping


def _selected(kind: str, session_id: str) -> Statement | None:
    """Return the query of all rows of a kind, None where none can belong to no session."""
    form = rows.KINDS[kind]
    columns = f"tree, {form.columns}" if form.owner == "tree" else form.columns
    values = [session_id]
    if session_id == NO_SESSION:
        if not form.named:
            return None
        values = []
        where = (
            "NOT EXISTS (SELECT FROM sessions s WHERE s.tenant = m.tenant "
            f"AND s.id = m.{form.named})"
        )
    elif form.named:
        name = form.named
        where = f"{name} = $2 AND hashtextextended({name}, 0) = hashtextextended($2, 0)"
    else:
        where = _OF[form.owner]
    selected = f"SELECT {columns} FROM {form.table} m WHERE m.tenant = $1 AND {where}"
    return Statement(f"{selected} ORDER BY {form.order}", tuple(values))


async def dump(scope: Scope, session_id: str) -> AsyncIterator[list[StoredRow]]:
    """Yield the pages of a dump of the session, or of what belongs to none where the id is "".

    Raises NotFoundError at the first one.
    """
    async with scope.connection() as connection:
        begin: list[Sent] = [
            ONE_STATE,
            scope.prologue(),
            scope.sent(reads.session(session_id)),
            scope.sent(reads.secret()),
        ]
        found = await scope.send(connection, begin, leaves_open=True)
        filling = Pages(tenant=scope.name, secret=reads.secret().read(found[3]))
        if session_id != NO_SESSION:
            record = reads.session(session_id).read(found[2])
            if record is None:
                raise missing(session_id)
            filling.add(("session", "", record))
        for kind in rows.KINDS:
            selected = _selected(kind, session_id)
            if selected is None:
                continue
            name = f"{kind}s_dumped"
            declare = f"DECLARE {name} NO SCROLL CURSOR FOR {selected.sql}"
            fetch: Sent = (f"FETCH {_CHUNK} FROM {name}", ())
            begun = [scope.sent(Statement(declare, selected.values)), fetch]
            chunk = (await scope.send(connection, begun, leaves_open=True))[1]
            while chunk:
                for item in rows.items(kind, chunk):
                    if page := filling.add(item):
                        yield page
                if len(chunk) < _CHUNK:
                    break
                (chunk,) = await scope.send(connection, [fetch], leaves_open=True)
        yield filling.end()


# ---------------------------------------------------------------------------------------------
# Restoring


async def restore(scope: Scope, received: Received, replaces: int | None) -> None:
    """Write a session, or what belongs to none, instead of the one of version ``replaces``.

    Raises SessionExistsError and SecretMismatchError.
    """
    if scope.read_only:
        raise ReadOnlyError
    reader = received.reader
    session_id, record = reader.session_id, reader.record
    begin: list[Sent] = [BEGIN]
    if await scope.read(reads.secret()) != reader.secret:
        # Nobody may write the first row meanwhile.
        lock = "LOCK TABLE tenants IN SHARE ROW EXCLUSIVE MODE"
        begin += [scope.prologue(), (lock, ())]
    begin.append(scope.prologue({session_id}, writing=True))

    async def work(connection: Connection) -> None:
        asked: list[Query[Any]] = [
            reads.session(session_id), reads.secret(), reads.holds_nothing(),
        ]  # fmt: skip
        sent = [*begin, *map(scope.sent, asked)]
        found = await scope.send(connection, sent, leaves_open=True)
        there, secret, empty = (
            one.read(found[place]) for place, one in enumerate(asked, len(begin))
        )
        if there is not None and there.version != replaces:
            raise SessionExistsError(session_id)
        check_secret(reader, secret, empty=empty)
        # Blocks that are deleted may be in segments; those that are put are in none.
        locked = scope.index_lock(together=replaces is None)
        first = list(_session(record, replaces=replaces is not None))
        if secret != reader.secret:  # only the owner may change the table
            first.append(
                Statement("UPDATE store SET secret = $2 WHERE $1::uuid = $1", (reader.secret,))
            )
        await scope.send(connection, [locked, *map(scope.sent, first)], leaves_open=True)
        for page in received.pages():
            sent = [*map(scope.sent, _written(session_id, page))]
            await scope.send(connection, sent, leaves_open=True)
        await scope.send(connection, [COMMIT], committing=True)

    scope.forget({session_id})
    await scope.on_connection(work)
    scope.forget({session_id})


def _session(record: SessionRecord | None, *, replaces: bool) -> Iterator[Statement]:
    """Yield the statements that delete what is replaced, and write the row of the session."""
    if replaces:
        yield from writes.deleted(NO_SESSION if record is None else record.id)
    if record is not None:
        marks = ", ".join(f"${place}" for place in range(3, 3 + len(rows.FIXED.types)))
        yield Statement(
            f"INSERT INTO sessions (tenant, id, {rows.FIXED.columns}) VALUES ($1, $2, {marks})",
            (record.id, *rows.FIXED.row(record)),
        )
        yield from writes.record_of(record)
        yield from due.note(record.id, AT_ONCE)


def _written(session_id: str, items: Iterable[Item]) -> Iterator[Statement]:
    """Yield the statements that write the items, in their order."""
    for (kind, tree), several in groupby(items, _table_of):
        values: list[Any] = [(at, value) if kind == "key" else value for _, at, value in several]
        if kind == "block":
            yield from writes.put_blocks(session_id, values)
            continue
        table = TABLES[kind]
        of = {"tenant": (), "tree": (session_id, tree)}.get(table.owner, (session_id,))
        yield table.put(values, *of, fresh=True)


def _table_of(item: Item) -> tuple[str, Any]:
    """Return the kind of an item, and the number of its tree if it is of one."""
    kind, at, _ = item
    return kind, at if rows.KINDS[kind].owner == "tree" else None
