"""The locks, transactions and statements that all operations of a tenant share; dump and restore.

A dump reads in one transaction that sees one state, row by row through a cursor. A restore writes
in one transaction, page by page.
"""

# ruff: noqa: S608 - the statements are put together from the constants of this package alone

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from hiermem.errors import ReadOnlyError, StoreError
from hiermem.stores import rows
from hiermem.stores.dump import Item, Pages, Received, check_secret, exists, missing
from hiermem.stores.postgres import due, reads, writes
from hiermem.stores.postgres.connections import (
    BEGIN,
    COMMIT,
    ONE_STATE,
    Connection,
    Connections,
    Sent,
)
from hiermem.stores.postgres.due import NUMBER, TABLES, Query, Statement, digest, lock_number
from hiermem.summaries.due import AT_ONCE
from hiermem.types import SessionRecord
from hiermem.types.transaction import NO_SESSION, StoredRow

T = TypeVar("T")

#: The number of sessions whose record a store remembers.
_REMEMBERED: Final = 1024


_SETTINGS: Final = (
    "set_config('hiermem.tenant', $1::text, true), set_config('search_path', $2, true), "
    "set_config('lock_timeout', $3, true), set_config('statement_timeout', $4, true), "
    "set_config('idle_in_transaction_session_timeout', $5, true)"
)
_WRITING: Final = "set_config('hiermem.ok', '1', true), set_config('hiermem.applied', '0', true)"
_KNOWN: Final = (
    "WITH known AS (INSERT INTO {schema}.tenants (tenant, name) VALUES ($1::text::uuid, $6) "
    "ON CONFLICT DO NOTHING) "
)


@dataclass
class Shared:
    """The objects that the scopes of one store share: connections, schema, limits in seconds."""

    connections: Connections
    schema: str
    lock_timeout: float
    statement_timeout: float
    idle_timeout: float
    read_only: bool
    heads: dict[tuple[str, str], tuple[int, SessionRecord]] = field(
        default_factory=dict[tuple[str, str], tuple[int, SessionRecord]]
    )
    turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary[tuple[str, str], asyncio.Lock]
    )

    @property
    def place(self) -> str:
        """Return how the store is named to people: its server, database and schema."""
        return f"PostgreSQL at {self.connections.shown}, schema {self.schema}"

    def settings(self) -> tuple[str, ...]:
        """Return the values for _SETTINGS, which each transaction begins with."""
        limits = (self.lock_timeout, self.statement_timeout, self.idle_timeout)
        # A table of that name in the session's own temporary schema must not come first.
        return f'"{self.schema}", pg_temp', *(f"{1000 * limit:.0f}" for limit in limits)


class Scope:
    """One tenant's part of a store, as its statements see it."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.name = name
        self.tenant = digest(name)
        self.read_only = shared.read_only
        self.place = shared.place
        self._shared = shared
        self.send = shared.connections.send
        self._waiting: list[tuple[Query[Any], asyncio.Future[list[tuple[Any, ...]]]]] = []
        self._reading: set[asyncio.Task[None]] = set()
        self._lock = lock_number(shared.schema, self.tenant)

    # -- statements

    def sent(self, statement: Statement | Query[Any]) -> Sent:
        """Return the statement with the tenant as its first value."""
        return statement.sql, (self.tenant, *statement.values)

    def prologue(
        self, names: Iterable[str] | None = None, *, whole: bool = False, writing: bool = False
    ) -> Sent:
        """Return the statement that a transaction begins with.

        It waits for the locks of ``names``, and for the tenant's: together with others, or alone
        where ``whole``. None takes no lock, for a transaction that reads. ``writing`` enters the
        tenant's name.
        """
        values: list[Any] = [self.tenant, *self._shared.settings()]
        if names is None:
            return f"SELECT {_SETTINGS}", values
        wanted = [_SETTINGS, _WRITING]
        before = ""
        if writing:
            before = _KNOWN.replace("{schema}", f'"{self._shared.schema}"')
            values.append(self.name)
        locks = [("" if whole else "_shared", self._lock)]
        locks += [("", number) for number in sorted({self._number(name) for name in names})]
        for shared, number in locks:
            values.append(number)
            wanted.append(f"pg_advisory_xact_lock{shared}(${len(values)}::bigint)")
        return f"{before}SELECT {', '.join(wanted)}", values

    def try_locks(self, names: Iterable[str], *, whole: bool = False) -> Sent:
        """Return the statement that tries to take more locks; its row says which were free."""
        numbers = [self._number(name) for name in names] + ([self._lock] if whole else [])
        tried = (f"pg_try_advisory_xact_lock(${n}::bigint)" for n in range(1, len(numbers) + 1))
        return f"SELECT {', '.join(tried)}", numbers

    def index_lock(self, *, together: bool = False) -> Sent:
        """Return the statement that waits for the lock of the index over all sessions.

        It must be the last lock of its transaction, so that its holder waits for no lock.
        ``together`` is for those who put or drop blocks of sessions that they have locked, and
        dissolve nothing.
        """
        number = lock_number(self._shared.schema, self.tenant, "segments", "")
        shared = "_shared" if together else ""
        return f"SELECT pg_advisory_xact_lock{shared}($1::bigint)", (number,)

    def _number(self, name: str) -> int:
        return lock_number(self._shared.schema, self.tenant, name)

    # -- transactions

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection; what is open on it at the end is rolled back."""
        return self._shared.connections.use()

    async def on_connection(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run ``work`` on a connection, and on a fresh one if that was lost before it was lent."""
        connections = self._shared.connections
        for last in (False, True):
            async with connections.use() as connection:
                try:
                    return await work(connection)
                except StoreError as error:
                    lost = connections.came_lost(connection) and error.committed is not None
                    if last or not lost:
                        raise
            await connections.renew()
        raise AssertionError("the last run returns or raises")

    async def run(
        self, statements: Sequence[Sent], *, committing: bool = False
    ) -> list[list[tuple[Any, ...]]]:
        """Send the statements together, on a connection of their own; return the rows of each."""

        async def work(connection: Connection) -> list[list[tuple[Any, ...]]]:
            return await self.send(connection, statements, committing=committing)

        return await self.on_connection(work)

    async def read(self, query: Query[T]) -> T:
        """Read in one state of the store. Reads that begin at the same time are sent together."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()
        if not self._waiting:
            task = loop.create_task(self._read_together())
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        self._waiting.append((query, answer))
        return query.read(await answer)

    async def _read_together(self) -> None:
        together, self._waiting = self._waiting, []
        try:
            found = await self._found([query for query, _ in together])
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            if len(together) == 1 or not isinstance(error, Exception):
                found = [error] * len(together)
            else:  # each has its own error, or none
                found = [await self._found_or_error(query) for query, _ in together]
        for (_, answer), result in zip(together, found, strict=True):
            if answer.done():  # whoever waited was cancelled
                continue
            if isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                answer.set_result(result)

    async def _found(self, queries: Sequence[Query[Any]]) -> list[Any]:
        return (await self.run([self.prologue(), *map(self.sent, queries)]))[1:]

    async def _found_or_error(self, query: Query[Any]) -> Any:
        try:
            return (await self._found([query]))[0]
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            return error

    async def read_one_state(self, queries: Sequence[Query[Any]]) -> list[Any]:
        """Run queries that all see the same state of the store, and wait for them once."""
        begun: list[Sent] = [ONE_STATE, self.prologue()]
        found = await self.run([*begun, *map(self.sent, queries), COMMIT])
        found = found[len(begun) : -1]
        return [query.read(rows) for query, rows in zip(queries, found, strict=True)]

    async def write(
        self,
        names: Iterable[str],
        statements: Sequence[Statement],
        *,
        whole: bool = False,
        first: Sequence[Sent] = (),
    ) -> list[list[tuple[Any, ...]]]:
        """Run the statements under the locks of ``names`` and commit; return the rows of each.

        ``first`` is sent before them: the lock of the index over all sessions, or a setting.
        """
        if self.read_only:
            raise ReadOnlyError
        begun = [self.prologue(names, whole=whole, writing=True), *first]
        sent = [*begun, *map(self.sent, statements)]
        return (await self.run(sent, committing=True))[len(begun) :]

    async def write_alone(self, query: Query[T]) -> T:
        """Run one statement that needs no lock but those of the rows it hits, and commit it."""
        if self.read_only:
            raise ReadOnlyError
        found = await self.run([self.prologue(), self.sent(query)], committing=True)
        return query.read(found[1])

    # -- what is remembered of sessions

    def remembered(self, session_id: str) -> tuple[int, SessionRecord] | None:
        """Return the session's number and record as this process last saw them."""
        return self._shared.heads.get((self.tenant, session_id))

    def remember(self, number: int, record: SessionRecord) -> None:
        """Remember a record, and forget the oldest one if there are too many."""
        heads = self._shared.heads
        heads[self.tenant, record.id] = number, record
        if len(heads) > _REMEMBERED:
            del heads[next(iter(heads))]

    def forget(self, session_ids: Iterable[str] | None = None) -> None:
        """Forget these sessions, or all of the tenant's."""
        heads = self._shared.heads
        if session_ids is None:
            session_ids = [id_ for tenant, id_ in heads if tenant == self.tenant]
        for session_id in session_ids:
            heads.pop((self.tenant, session_id), None)

    def turn(self, session_id: str) -> asyncio.Lock:
        """Return the lock under which this process writes to the session."""
        return self._shared.turns.setdefault((self.tenant, session_id), asyncio.Lock())


#: The number of rows that are fetched at once.
_CHUNK: Final = 500
#: Which rows ``m`` are those of the session, by the owner of their table.
_OF: Final = {
    "log": f"m.message >= {NUMBER} << {rows.INDEX_BITS} "
    f"AND m.message < ({NUMBER} + 1) << {rows.INDEX_BITS}",
    "session": f"m.session = {NUMBER}",
    "tree": f"m.session = {NUMBER}",
}


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


async def restore(scope: Scope, received: Received, replaces: int | None) -> None:
    """Write a session, or what belongs to none, instead of the one of version ``replaces``.

    Raises ConflictError.
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
            raise exists(session_id)
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
