"""The statements that dump a session, or what belongs to none, and that restore one in batches.

A dump reads in one transaction that sees one state, row by row through a cursor. What a restore has
brought is stored under a number that no row of ``sessions`` has yet, so nothing reads it. Rows that
are found by a name are held as they came, and written with the row of the session.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.core.summaries.due import AT_ONCE
from hiermem.errors import ReadOnlyError, SessionExistsError
from hiermem.stores import rows
from hiermem.stores.dump import Item, Pages, RowReader, check_secret, held_items, missing
from hiermem.stores.postgres import due, reads, writes
from hiermem.stores.postgres.connections import BEGIN, COMMIT, ONE_STATE, Connection, Sent
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import NUMBER, OK, TABLES, Query, Statement
from hiermem.stores.receive import Progress, taken_over
from hiermem.types.transaction import RestoreState, StoredRow

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
_AT: Final = "WHERE tenant = $1 AND id = $2"


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


def restores(session_id: str | None = None) -> Query[list[RestoreState]]:
    """Return what restores brought of one session, or all that is unfinished, by id."""
    where = "session IS NOT NULL" if session_id is None else "id = $2"
    return Query(
        f"SELECT id, digest, session IS NOT NULL FROM restores WHERE tenant = $1 AND {where} "
        "ORDER BY id",
        () if session_id is None else (session_id,),
        lambda found: [RestoreState(*row) for row in found],
    )


@dataclass(frozen=True)
class PostgresReceiver:
    """What the restore of one session does; see ``hiermem.stores.receive.Receiver``."""

    _scope: Scope
    _reader: RowReader
    _replaces: int | None

    @property
    def _id(self) -> str:
        return self._reader.session_id

    async def begin(self, first: bytes) -> Progress:
        """Return how far a restore of this record has come, and reserve its number."""

        async def work(connection: Connection) -> Progress:
            found = await self._checked(connection)
            if found is not None and found[3] == first:
                return Progress(found[1], found[2], first)
            sent = [*map(self._scope.sent, self._reserved(first)), COMMIT]
            await self._scope.send(connection, sent, committing=True)
            return Progress(first=first)

        return await self._scope.on_connection(work)

    async def add(
        self, before: Progress, after: Progress, items: Sequence[Item], held: Sequence[StoredRow]
    ) -> None:
        """Write the items under the reserved number, and keep the rows ``held``."""
        statements = [
            Statement(
                "SELECT set_config('hiermem.ok', CASE WHEN EXISTS (SELECT FROM restores "
                f"{_AT} AND session IS NOT NULL AND taken = $3 AND chain = $4 AND first = $5) "
                "THEN '1' ELSE '' END, true)",
                (self._id, before.rows, before.chain, before.first),
            ),
            *map(_unseen, _written(self._id, items)),
            Statement(
                f"UPDATE restores SET taken = $3, chain = $4 {_AT} AND {OK}",
                (self._id, after.rows, after.chain),
            ),
        ]
        if held:
            kept = Statement(
                "INSERT INTO restored_rows (tenant, id, row, data) "
                f"SELECT $1, $2, $3, $4 WHERE {OK}",
                (self._id, before.rows, zlib.compress(json.dumps(held).encode())),
            )
            statements.append(kept)
        found = await self._scope.write({self._id}, statements)
        if found[0][0][0] != "1":
            raise taken_over(self._id)

    async def finish(self, before: Progress, digest: str) -> None:
        """Write the row of the session and the rows that were held."""
        scope = self._scope

        secret = await scope.read(reads.secret())

        async def work(connection: Connection) -> None:
            found = await self._checked(connection)
            if found is None or tuple(found[1:]) != (before.rows, before.chain, before.first):
                raise taken_over(self._id)
            statements = list(self._shown(found[0]))
            shown = [scope.index_lock(), *map(scope.sent, statements)]
            await scope.send(connection, shown, leaves_open=True)
            last = -1
            while page := await self._page_after(connection, last):
                ((last, data),) = page
                items = held_items(json.loads(zlib.decompress(data)))
                sent = [*map(scope.sent, _written(self._id, items))]
                await scope.send(connection, sent, leaves_open=True)
            ended = [
                *self._secret(differs=secret != self._reader.secret),
                Statement(f"DELETE FROM restored_rows {_AT}", (self._id,)),
                Statement(
                    "UPDATE restores SET session = NULL, chain = NULL, first = NULL, digest = $3 "
                    f"{_AT}",
                    (self._id, digest),
                ),
            ]
            sent = [*map(scope.sent, ended), COMMIT]
            await scope.send(connection, sent, committing=True)

        scope.forget({self._id})
        await scope.on_connection(work)
        scope.forget({self._id})

    async def drop(self) -> None:
        """Remove what came so far."""
        await self._scope.write({self._id}, list(writes.dropped_restore(self._id)))

    async def _checked(self, connection: Connection) -> Sequence[Any] | None:
        """Begin a transaction; return the number and the progress of the restore, if it began.

        Raises SessionExistsError and SecretMismatchError.
        """
        scope, reader = self._scope, self._reader
        if scope.read_only:
            raise ReadOnlyError
        begin: list[Sent] = [BEGIN]
        if await scope.read(reads.secret()) != reader.secret:
            # Nobody may write the first row meanwhile.
            lock = "LOCK TABLE tenants IN SHARE ROW EXCLUSIVE MODE"
            begin += [scope.prologue(), (lock, ())]
        begin.append(scope.prologue({self._id}, writing=True))
        asked: list[Query[Any]] = [
            reads.session(self._id), reads.secret(), reads.holds_nothing(), self._progress(),
        ]  # fmt: skip
        sent = [*begin, *map(scope.sent, asked)]
        found = await scope.send(connection, sent, leaves_open=True)
        there, secret, empty, progress = (
            one.read(found[place]) for place, one in enumerate(asked, len(begin))
        )
        if there is not None and there.version != self._replaces:
            raise SessionExistsError(self._id)
        check_secret(reader, secret, empty=empty)
        known: Sequence[Any] | None = progress
        return known

    def _progress(self) -> Query[Any]:
        return Query(
            f"SELECT session, taken, chain, first FROM restores {_AT} AND session IS NOT NULL",
            (self._id,),
            lambda found: found[0] if found else None,
        )

    def _secret(self, *, differs: bool) -> Iterator[Statement]:
        """Yield the statement for a secret that differs; only the owner may change the table."""
        if differs:
            yield Statement(
                "UPDATE store SET secret = $2 WHERE $1::uuid = $1", (self._reader.secret,)
            )

    async def _page_after(self, connection: Connection, last: int) -> list[tuple[Any, ...]]:
        select = f"SELECT row, data FROM restored_rows {_AT} AND row > $3 ORDER BY row LIMIT 1"
        asked = [self._scope.sent(Statement(select, (self._id, last)))]
        return (await self._scope.send(connection, asked, leaves_open=True))[0]

    def _reserved(self, first: bytes) -> Iterator[Statement]:
        """Yield the statements that reserve a number that no session has had, and none will get.

        Rows that arrived before are dropped.
        """
        yield from writes.dropped_restore(self._id)
        number = "0"
        if self._id != NO_SESSION:
            number = f"(SELECT session FROM sessions WHERE tenant = $1 AND id = '{NO_SESSION}')"
            yield Statement(
                "INSERT INTO sessions (tenant, id, participants, config, counter, created_at, "
                f"forked_at) VALUES ($1, '{NO_SESSION}', '', '', '', 0, 0)"
            )
        yield Statement(
            "INSERT INTO restores (tenant, id, session, taken, chain, first) "
            f"VALUES ($1, $2, {number}, 0, $3, $4) ON CONFLICT (tenant, id) DO UPDATE SET "
            "session = excluded.session, taken = 0, chain = excluded.chain, "
            "first = excluded.first",
            (self._id, b"", first),
        )
        if self._id != NO_SESSION:
            yield Statement(f"DELETE FROM sessions WHERE tenant = $1 AND id = '{NO_SESSION}'")

    def _shown(self, number: int) -> Iterator[Statement]:
        if self._replaces is not None:
            yield from writes.deleted_shown(self._id)
        record = self._reader.record
        if record is not None:
            marks = ", ".join(f"${place}" for place in range(4, 4 + len(rows.FIXED.types)))
            yield Statement(
                f"INSERT INTO sessions (tenant, session, id, {rows.FIXED.columns}) "
                f"OVERRIDING SYSTEM VALUE VALUES ($1, $3, $2, {marks})",
                (record.id, number, *rows.FIXED.row(record)),
            )
            yield from writes.record_of(record)
            yield from due.note(record.id, AT_ONCE)


def _unseen(statement: Statement) -> Statement:
    """Return the statement about the session that has a reserved number only."""
    return Statement(statement.sql.replace("sessions s", "restores s"), statement.values)


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
