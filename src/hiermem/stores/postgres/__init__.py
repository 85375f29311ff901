"""The store in a schema of a PostgreSQL database, which any number of processes may share.

A read is one transaction that is sent whole, and so is a commit: its locks first, then, as another
statement that sees what was committed while it waited, what it writes if its expectations hold.
``statements`` decides the SQL, ``connections`` sends it, ``schema`` makes the tables. It needs
``hiermem-memory[postgres]``.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from hiermem import arguments, errors
from hiermem.errors import StoreError
from hiermem.records.tables import TABLES, Commit, Found, Key, Row, Scan, Table
from hiermem.stores.postgres import connections, statements
from hiermem.stores.postgres import schema as schemas
from hiermem.stores.postgres.connections import Connections, Rows, Sent
from hiermem.stores.postgres.statements import EVERY_TENANT, Statement
from hiermem.types.transaction import Scrubbed

__all__ = ["PostgresStore"]

T = TypeVar("T")
#: What one asks for who waits for another's read, and the answer; None: it reads alone.
_Waiting: TypeAlias = "tuple[Sequence[Key], Sequence[Scan], asyncio.Future[Found | None]]"
_Send: TypeAlias = Callable[[list[Sent]], Awaitable[list[Rows]]]

#: PostgreSQL keeps names that begin with pg_ for itself.
_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}")
#: The length of a store's secret, in bytes.
_SECRET: Final = 32
#: The limits of a timeout, in seconds, and of the time after which backups expire.
_SHORTEST: Final = 0.001
_LONGEST: Final = 2_000_000
_EXPIRY: Final = timedelta(days=36_525)
#: Seconds after which the clock of the server is asked again, and ids of old commits are deleted.
_MINUTE: Final = 60.0
#: How often a commit begins again whose connection was lost, or that waited for another in a ring.
_TRIES: Final = 5
#: How long a guard is taken to be written by others, too, since a commit was refused for it.
_CROWDED: Final = 1.0
_MOST_CROWDED: Final = 1_000
_BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_COMMIT: Final = b"COMMIT"
#: Sees one state in all its statements.
_ONE_STATE: Final = b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class PostgresStore:
    """A store in PostgreSQL; open it with ``await PostgresStore.open(dsn)``.

    It belongs to the process in which it was opened, and to the event loop that uses it first.
    """

    capabilities = frozenset({"durable", "shared"})
    #: Why an erasure leaves bytes; ``scrub`` writes all tables anew, which each erasure does not.
    unscrubbed = (
        "PostgreSQL keeps removed rows until they are vacuumed, and longer in its log, replicas "
        "and backups; hiermem store scrub vacuums"
    )

    def __init__(
        self,
        *,
        dsn: str,
        schema: str,
        pool: Connections,
        limits: dict[str, str],
        turn: str,
        lock_timeout: float,
        read_only: bool,
        is_confined: bool,
        backups_expire: timedelta | None,
    ) -> None:
        self._dsn, self._schema, self._connections = dsn, schema, pool
        #: ``turn`` is the limit of a transaction that goes on after an answer; "" where the server
        #: has none, and would wait for a stopped process without end.
        self._limits, self._turn, self._lock_timeout = limits, turn, lock_timeout
        self._read_only, self._is_confined = read_only, is_confined
        self._backups_expire = backups_expire
        self._clock = _Clock()
        self._tidied = time.monotonic()
        #: The reads that begin together, by how their transaction names its tenant.
        self._together: dict[str, list[_Waiting]] = {}
        #: The guards for which commits were refused, with the time of the last one.
        self._crowded: dict[Key, float] = {}

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        schema: str = "hiermem",
        create: bool = True,
        read_only: bool = False,
        pool_max: int = 8,
        prepare: bool = False,
        row_security: bool = False,
        backups_expire: timedelta | None = None,
        lock_timeout: float = 5.0,
        statement_timeout: float = 30.0,
        idle_timeout: float = 10.0,
        secret: bytes | None = None,
    ) -> PostgresStore:
        """Open the store in ``schema`` of the database that ``dsn`` names; create it if need be.

        Up to ``pool_max`` connections are kept. ``prepare`` lets statements be prepared on them,
        which a pooler between may not support. With ``row_security``, the database itself must
        confine every statement to its tenant; the role may then be neither a superuser nor the
        owner of the schema. With ``read_only``, nothing is created, and commits raise
        ReadOnlyError. ``backups_expire`` states after which time no log, replica or backup of the
        server holds an old row; without it, ``scrub`` never says that all is done. The timeouts are
        seconds that a commit waits for a lock, that one statement takes, and that the server waits
        for this process. ``secret`` are the 32 bytes that the store has, or gets where it is
        created; by default, they are drawn at random.

        Raises ConfigError for a connection string, user or database that is refused, for a server
        older than PostgreSQL 16, and where ``row_security`` is not in force; NotFoundError if
        ``create`` is off and there is no store; StoreCorruptError if a newer hiermem wrote it;
        ConflictError where the store has another secret than ``secret``; StoreError where the
        server cannot be reached or the store is of a development version.
        """
        if not isinstance(schema, str) or not _NAME.fullmatch(schema):
            raise errors.ConfigError(
                "invalid schema; use up to 48 of a-z, 0-9, _; no leading digit or pg_"
            )
        if secret is not None and (not isinstance(secret, bytes) or len(secret) != _SECRET):
            given = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
            raise errors.UsageError(f"secret is {given}; it must be {_SECRET} bytes")
        arguments.whole(pool_max, "pool_max", least=1)
        timeouts = {
            "lock_timeout": lock_timeout,
            "statement_timeout": statement_timeout,
            "idle_timeout": idle_timeout,
        }
        for named, limit in timeouts.items():
            # The server counts milliseconds in 32 bits, and takes 0 for no limit.
            if not _SHORTEST <= arguments.seconds(limit, named) <= _LONGEST:
                raise errors.UsageError(f"{named} must be from {_SHORTEST} to {_LONGEST:,} seconds")
        _check_expiry(backups_expire)
        pool = Connections(
            dsn,
            most=pool_max,
            statement_timeout=statement_timeout,
            idle_timeout=idle_timeout,
            prepare=prepare,
        )
        is_confined, limits_transactions, (seconds, asked) = await schemas.prepared(
            dsn, schema, create=create and not read_only, confined=row_security, secret=secret
        )
        limits = {
            "lock_timeout": _milliseconds(lock_timeout),
            "statement_timeout": _milliseconds(statement_timeout),
        }
        turn = ""
        if limits_transactions:  # ends what a stopped process has sent a part of
            limits["transaction_timeout"] = _milliseconds(statement_timeout + idle_timeout)
            turn = _milliseconds(lock_timeout + idle_timeout)
        store = cls(
            dsn=dsn,
            schema=schema,
            pool=pool,
            limits=limits,
            turn=turn,
            lock_timeout=lock_timeout,
            read_only=read_only,
            is_confined=is_confined,
            backups_expire=backups_expire,
        )
        store._clock.set(seconds, asked)
        return store

    @property
    def place(self) -> str:
        """Return how the store is named to people: its server, database and schema."""
        return f"PostgreSQL at {self._connections.shown}, schema {self._schema}"

    # -- the five operations

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return the rows with these keys, and those of the scans, all of one state."""
        send = self._connections.send
        async with self._connections.using():
            scope = _scope_of_read(gets, scans) if self._is_confined else ""
            if (together := self._together.get(scope)) is not None:
                answer: asyncio.Future[Found | None] = asyncio.get_running_loop().create_future()
                together.append((gets, scans, answer))
                return await answer or await self._read(gets, scans, send)
            others = self._together[scope] = []
            try:
                try:
                    await asyncio.sleep(0)  # those who begin now are answered with this one
                finally:
                    del self._together[scope]
                if not others:
                    return await self._read(gets, scans, send)
                with suppress(errors.HiermemError):
                    return await self._read_together(gets, scans, others)
                return await self._read(gets, scans, send)
            finally:
                for _, _, answer in others:
                    if not answer.done():
                        answer.set_result(None)

    async def _read_together(
        self, gets: Sequence[Key], scans: Sequence[Scan], others: list[_Waiting]
    ) -> Found:
        """Read what several ask for as one, answer the others, and return what the first gets."""
        all_gets = [*gets, *(key for one in others for key in one[0])]
        all_scans = [*scans, *(scan for one in others for scan in one[1])]
        rows, ranges = await self._read(all_gets, all_scans, self._connections.send)
        row, range_ = len(gets), len(scans)
        for some_gets, some_scans, answer in others:
            end, last = row + len(some_gets), range_ + len(some_scans)
            if not answer.done():
                answer.set_result(Found(rows[row:end], ranges[range_:last]))
            row, range_ = end, last
        return Found(rows[: len(gets)], ranges[: len(scans)])

    async def _read(
        self, gets: Sequence[Key], scans: Sequence[Scan], send: _Send, *, begun: bool = False
    ) -> Found:
        plan = _Plan(gets, scans, names_alone=self._is_confined)
        several = len(plan.statements) > 1 and not begun
        sent: list[Sent] = [(_ONE_STATE, ())] if several else []
        places, named = [], None
        for scope, statement, _ in plan.statements:
            if self._is_confined and scope != named:
                sent.append(self._sent(statements.prologue({"hiermem.tenant": scope})))
                named = scope
            places.append(len(sent))
            sent.append(self._sent(statement))
        if several:
            sent.append((_COMMIT, ()))
        found = await send(sent) if sent else []
        for place, (_, _, take) in zip(places, plan.statements, strict=True):
            take(found[place])
        return plan.found()

    async def commit(self, change: Commit) -> bool:
        """Apply the change if every expectation holds; return whether."""
        if self._read_only:
            self._connections.check()
            raise errors.ReadOnlyError
        async with self._connections.using():
            return await _to_its_end(self._commit(change))

    async def now(self) -> datetime:
        """Return the time of the server, which is asked once a minute."""
        async with self._connections.using():
            if self._clock.is_old():
                before = time.monotonic()
                ask = Statement("SELECT extract(epoch FROM clock_timestamp())::float8")
                (((seconds,),),) = await self._connections.send([self._sent(ask)])
                self._clock.set(float(seconds), before)
        return self._clock.now()

    async def scrub(self) -> Scrubbed:
        """Rewrite the tables without the rows that were removed; an erasure alone does not.

        It needs the rights of the tables' owner, and a connection that is not shared by
        transactions. Others wait while their table is written. The result says up to where, and
        what is out of reach.
        """
        async with self._connections.using():
            if self._read_only:
                raise errors.ReadOnlyError
            async with connections.connected(self._dsn) as connection:
                return await connections.scrub(
                    connection,
                    self._schema,
                    lock_timeout=self._lock_timeout,
                    backups_expire=self._backups_expire,
                )

    async def close(self) -> None:
        """End what is under way and close the connections."""
        await self._connections.close()

    # -- what is sent

    def _sent(self, statement: Statement) -> Sent:
        return statements.sent(self._schema, statement.sql), statement.values

    async def _commit(self, change: Commit) -> bool:
        settings = dict(self._limits)
        if not change.durable:
            settings["synchronous_commit"] = "off"
        if self._is_confined:
            settings["hiermem.tenant"] = _scope_of(change)
        locks = statements.locks(self._schema, change)
        first = self._sent(statements.prologue(settings, locks))
        takes_turns = self._turn and change.again
        crowd = [key for key in change.expect if key in self._crowded] if takes_turns else ()
        if crowd and time.monotonic() < max(map(self._crowded.__getitem__, crowd)) + _CROWDED:
            return await self._commit_in_turn(change, settings, locks)
        for last in [False] * _TRIES + [True]:
            id_ = self._clock.new_id()
            sent = [first, *map(self._sent, statements.commit(change, id_, tidy=self._is_untidy()))]
            try:
                found = await self._connections.send(sent, committing=True)
            except StoreError as error:
                if await self._is_applied(id_, error):
                    return True
                if last:
                    raise
                continue
            ((applied, heads),) = found[1]
            if applied or not takes_turns or not (now := statements.brought(heads)):
                return bool(applied)
            self._note_crowd(now)
            return await self._commit_in_turn(change, settings, locks)
        raise AssertionError("the last try returns or raises")

    async def _commit_in_turn(
        self, change: Commit, settings: dict[str, str], locks: Sequence[tuple[int, bool]]
    ) -> bool:
        """Commit what is decided from the guards as they are, while nobody can change them.

        Those who want the same locks get them in the order in which they came, so that each has
        its turn, however many write. The server ends a turn that lasts too long, as that of a
        process that was stopped: the limit of idle transactions does not, since what is sent
        together ends with a Flush, which stops its clock.
        """
        settings = settings | {"transaction_timeout": self._turn}
        first = self._sent(statements.prologue(settings, locks))
        id_ = self._clock.new_id()
        try:
            async with self._connections.lent() as (connection, _):
                send = partial(self._connections.sent_on, connection)
                here = _InTurn(self._read, send, self._clock)
                ask = self._sent(statements.guards(change.expect))
                found = await send([(_BEGIN, ()), first, ask])
                guards = statements.brought(found[2][0][0])
                decided: Commit | None = change
                if any(change.expect[key] != _number(key, row) for key, row in guards.items()):
                    self._note_crowd(guards)
                    decided = await change.again(here, guards) if change.again else None
                if decided is None:
                    await send([(b"ROLLBACK", ())])
                    return False
                more = set(statements.locks(self._schema, decided)) - set(locks)
                write = [statements.try_locks([*more])]
                write += statements.commit(decided, id_, tried=True)
                found = await send([*map(self._sent, write), (_COMMIT, ())], committing=True)
                return bool(found[1][0][0])
        except StoreError as error:
            return await self._is_applied(id_, error)

    def _note_crowd(self, keys: Iterable[Key]) -> None:
        if len(self._crowded) > _MOST_CROWDED:
            self._crowded.clear()
        self._crowded |= dict.fromkeys(keys, time.monotonic())

    def _is_untidy(self) -> bool:
        """Return once a minute that ids of old commits are to be deleted."""
        now = time.monotonic()
        if untidy := now > self._tidied + _MINUTE:
            self._tidied = now
        return untidy

    async def _is_applied(self, id_: str, error: StoreError) -> bool:
        """Return whether a commit was applied that raised ``error``, or raise it.

        False: it was not, but can be tried again.
        """
        if error.committed is None:
            return await self._was_applied(id_, error)
        if connections.DEADLOCK in str(error):
            return False
        raise error

    async def _was_applied(self, id_: str, lost: StoreError) -> bool:
        """Return whether a commit was applied whose answer was lost; if not, it never will be.

        Raises ``lost`` if the server does not say so in time.
        """
        ask = [self._sent(Statement(statements.RESOLVE, [id_]))]
        until, pause = time.monotonic() + self._connections.patience, 0.02
        while (left := until - time.monotonic()) > 0:
            try:
                (((applied,),),) = await asyncio.wait_for(self._connections.send(ask), left)
            except (TimeoutError, errors.HiermemError):
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, 1.0)
            else:
                return bool(applied)
        raise lost from None


def _check_expiry(expiry: timedelta | None) -> None:
    if expiry is None:
        return
    if not isinstance(expiry, timedelta):
        raise errors.UsageError(
            f"backups_expire is {type(expiry).__name__}; it must be a timedelta"
        )
    if not timedelta(0) <= expiry <= _EXPIRY:
        raise errors.UsageError("backups_expire must be from 0 to a hundred years")


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}"


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of what goes on to its end even if the caller is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # it is seen
        raise


def _number(guard: Key, row: Row) -> Any:
    return row[TABLES[guard.table].guard or 0]


class _InTurn:
    """What a decision may ask in the transaction that keeps others from what it expects."""

    def __init__(self, read: Callable[..., Awaitable[Found]], send: _Send, clock: _Clock) -> None:
        self._read, self._send, self._clock = read, send, clock

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return rows by key and ranges."""
        return await self._read(gets, scans, self._send, begun=True)

    async def now(self) -> datetime:
        """Return the time of the server, which is not asked."""
        return self._clock.now()


class _Clock:
    """The clock of the server, as it was when it was asked last."""

    def __init__(self) -> None:
        self._asked = self._ahead = self._ahead_of_wall = -math.inf
        self._last = 0.0

    def set(self, seconds: float, before: float) -> None:
        """Set it to what the server said that was asked at ``before``."""
        self._asked = time.monotonic()
        self._ahead = seconds - (before + self._asked) / 2
        self._ahead_of_wall = seconds - time.time()

    def is_old(self) -> bool:
        """Return whether it was asked a minute ago, or the machine was asleep since."""
        now = time.monotonic()
        slept = time.time() + self._ahead_of_wall - (now + self._ahead)
        return now > self._asked + _MINUTE or abs(slept) > 1

    def now(self) -> datetime:
        """Return the time, which never goes back."""
        self._last = max(self._last, time.monotonic() + self._ahead)
        return datetime.fromtimestamp(self._last, UTC)

    def new_id(self) -> str:
        """Return an id, which begins with the time, so that ids of one time stand together."""
        latest = max(time.monotonic() + self._ahead, time.time() + self._ahead_of_wall)
        return f"{int(1000 * latest):012x}{os.urandom(10).hex()}"


def _scope_of_key(key: Key) -> str:
    """Return how a transaction names the tenant of a key."""
    return _scope(key.columns[0]) if TABLES[key.table].key[0] == "tenant" else EVERY_TENANT


def _scope(tenant: Any) -> str:
    return f"={tenant}"


def _scope_of_read(gets: Sequence[Key], scans: Sequence[Scan]) -> str:
    if gets:
        return _scope_of_key(gets[0])
    return str(scans[0].prefix[:1]) if scans else ""


def _scope_of(change: Commit) -> str:
    """Return how the transaction of a commit names its tenant."""
    keys: Iterable[Key] = (
        *change.expect, *change.deletes, *change.adds,
        *(TABLES[name].key_of(row) for name, rows in change.puts.items() for row in rows[:1]),
    )  # fmt: skip
    return next(
        (scope for scope in map(_scope_of_key, keys) if scope != EVERY_TENANT), EVERY_TENANT
    )


class _Plan:
    """The statements that answer one read, and what becomes of their rows.

    ``names_alone`` is for a role that sees of the rows of all tenants their names only.
    """

    def __init__(self, gets: Sequence[Key], scans: Sequence[Scan], *, names_alone: bool) -> None:
        self._gets, self._scans = gets, scans
        self._rows: dict[Key, Row | None] = dict.fromkeys(gets)
        self._ranges: list[Sequence[Row]] = [()] * len(scans)
        #: Each with how its transaction must name the tenant, and what takes its rows.
        self.statements: list[tuple[str, Statement, Callable[[Rows], None]]] = []
        self._plan_gets([key for key in self._rows if statements.may_exist(key)])
        shapes: dict[Scan, list[int]] = {}
        for place, scan in enumerate(scans):
            bound = scan.prefix or scan.after or scan.below
            shapes.setdefault(statements.shape(scan) if bound else scan, []).append(place)
        for places in shapes.values():
            self._plan_scans(places, names_alone=names_alone)

    def _plan_gets(self, keys: list[Key]) -> None:
        by_table: dict[str, list[tuple[Any, ...]]] = {}
        for name, columns in keys:
            by_table.setdefault(name, []).append(columns)
        for name, several in by_table.items():
            take = partial(self._take_rows, TABLES[name])
            scope = _scope_of_key(Key(name, several[0]))
            self.statements.append((scope, statements.get(name, several), take))

    def _take_rows(self, table: Table, rows: Rows) -> None:
        for row in rows:
            self._rows[table.key_of(row)] = row

    def _plan_scans(self, places: list[int], *, names_alone: bool) -> None:
        scans = [self._scans[place] for place in places]
        first, table = scans[0], TABLES[scans[0].table]
        of_one = table.columns[table.orders[first.index][0]] == "tenant"
        scope = _scope(first.prefix[0]) if of_one and first.prefix else EVERY_TENANT
        if names_alone and of_one and not first.prefix and not schemas.is_shared(table):
            padding = (None,) * (len(table.columns) - 1)

            def take(rows: Rows) -> None:
                self._ranges[places[0]] = [(*row, *padding) for row in rows]

            self.statements.append((scope, statements.tenants(first), take))
        else:
            take_ranges = partial(self._take_ranges, places)
            self.statements.append((scope, statements.ranged(scans), take_ranges))

    def _take_ranges(self, places: list[int], rows: Rows) -> None:
        if len(places) == 1:
            self._ranges[places[0]] = rows
            return
        found: list[list[Row]] = [[] for _ in places]
        for number, *row in rows:
            found[number - 1].append(tuple(row))
        for place, range_ in zip(places, found, strict=True):
            self._ranges[place] = range_

    def found(self) -> Found:
        """Return what was read."""
        return Found([self._rows[key] for key in self._gets], self._ranges)
