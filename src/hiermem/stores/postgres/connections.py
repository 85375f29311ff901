"""The connections to PostgreSQL: a pool in one event loop, its errors, and the rewrite of tables.

Statements that are sent together cost one wait for the server. Nothing is set on a connection for
longer than a transaction, so that it may be another one behind a pooler.

A failure is translated by its SQLSTATE. The text of an error is always our own, and no cause is
kept: PostgreSQL quotes rows in its details, and a driver quotes connection strings.

Deleting rows is not enough to remove them. A plain VACUUM frees their room and may leave their
bytes there. So the tables are rewritten, one after the other. This needs the rights of their owner
and blocks all other users of a table while it is written. The write-ahead log, replicas and backups
are beyond the reach of any statement: the result says so, unless the operator has stated when those
expire.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import Diagnostic
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from hiermem import errors
from hiermem.errors import ClosedError, ConfigError, StoreError, UsageError
from hiermem.process import HomeProcess
from hiermem.types.transaction import Scrubbed

#: The exceptions that the driver and its pool may raise.
FAILURES: Final = (psycopg.Error, UnicodeEncodeError, OverflowError)
#: The state of ``SELECT 1 / 0``, with which a statement refuses a write that contradicts the store.
REFUSED: Final = "22012"
BEYOND: Final = "a number is beyond the 64 bits that the store keeps"
#: Transient failures: a conflict, a lock, a time limit, too many connections, a server that stops,
#: starts or is read-only.
_BUSY: Final = {
    "40001": "another write came between",
    "40P01": "another write came between",
    "55P03": "another write holds the session for too long",
    "57014": "a statement took longer than its time limit",
    "25P03": "the transaction waited too long for this process",
    "25P04": "the transaction took longer than its time limit",
    "53300": "it has no connection left",
    "57P01": "it is being stopped",
    "57P02": "it is being stopped",
    "57P03": "it is starting or stopping",
    "25006": "it takes no writes now, as a replica",
}


#: What may help, by what failed.
_HINTS: Final = {
    "53100": ": its disk is full; make room on it, and call again",
    "53200": ": it has no memory left; call again when it has",
}
#: A server's words when it refuses a connection; libpq does not keep the SQLSTATE.
_REFUSED: Final = {
    "too many": "53300",
    "connection slots": "53300",
    "starting up": "57P03",
    "shutting down": "57P03",
    "not currently accepting": "57P03",
    "permission denied": "42501",
    "authentication failed": "28P01",
    "no password": "28P01",
    "pg_hba": "28000",
    "role": "28000",
    "no such user": "28000",
    "database": "3D000",
}
#: Why a connection was not made, by what libpq says; its own text may quote the connection string.
_UNREACHED: Final = {
    "SSL": "TLS could not be agreed on; check sslmode",
    "certificate": "TLS could not be agreed on; check sslmode and sslrootcert",
    "resolve": "the name of its host is not known",
    "translate host": "the name of its host is not known",
    "No such file": "no server listens there",
    "refused": "no server listens there",
    "timeout": "it did not answer in time",
}
#: The names of users and databases in such a text.
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")


def refused_connection(error: psycopg.Error) -> str:
    """Return the SQLSTATE that the text of a failed connection means, or "" for any other one."""
    text = _QUOTED.sub("", str(error))
    if "FATAL" not in text and "no password" not in text:
        return ""
    return next((state for words, state in _REFUSED.items() if words in text), "")


def _unreached(error: psycopg.Error) -> str:
    """Return why a connection was not made, in our words, or ""."""
    text = _QUOTED.sub("", str(error))
    return next((f": {why}" for words, why in _UNREACHED.items() if words in text), "")


def _is_bad_setting(error: psycopg.Error) -> bool:
    """Return whether libpq refused a value of the connection string before it connected."""
    text = _QUOTED.sub("", str(error))
    return "FATAL" not in text and ("invalid" in text or "bad value" in text)


def translate(error: Exception, shown: str, *, committing: bool = False) -> Exception:
    """Return the error of hiermem that corresponds to ``error``, or ``error`` if there is none.

    ``shown`` names the server and the database. ``committing`` says that the commit was sent; then
    it is unknown whether a write took effect whose connection was lost.
    """
    if isinstance(error, PoolClosed):
        return errors.ClosedError("the store is closed; open it again")
    if isinstance(error, PoolTimeout):
        return errors.StoreError(
            f"no connection to {shown} was free in time; try again", retryable=True
        )
    if isinstance(error, UnicodeEncodeError):
        return errors.InvalidMessageError(
            "a text holds a lone surrogate; replace it before storing"
        )
    if isinstance(error, OverflowError):
        return errors.UsageError(BEYOND)
    if isinstance(error, psycopg.Error):
        return _of_server(error, shown, committing=committing)
    return error


def _of_server(error: psycopg.Error, shown: str, *, committing: bool) -> errors.HiermemError:
    state = error.sqlstate or refused_connection(error)
    where = f"PostgreSQL at {shown}"
    made: errors.HiermemError
    if state in _BUSY:
        made = errors.StoreError(f"{where}: {_BUSY[state]} ({state}); try again", retryable=True)
    elif state.startswith("28"):
        made = errors.ConfigError(
            f"{where} refused the user or the password ({state}); check the connection string"
        )
    elif state in ("3D000", "42501"):
        what = "has no such database (3D000); create it, or check the connection string"
        if state == "42501":
            what = "denies this to the role (42501); the page on PostgreSQL names what roles need"
        made = errors.ConfigError(f"{where} {what}")
    elif state == REFUSED:
        made = errors.UsageError("the write names a node, message or session that does not exist")
    elif state == "22003":
        made = errors.UsageError(BEYOND)
    elif state.startswith(("21", "22", "23")) or isinstance(error, psycopg.DataError):
        made = errors.UsageError(f"the write contradicts what is stored ({state or 'a value'})")
    elif state in ("42P01", "42703"):
        made = errors.StoreCorruptError(
            f"{where}: a table or column is missing ({state}); restore a copy of the store"
        )
    elif not state and _is_bad_setting(error):
        made = errors.ConfigError(
            f"the connection string to {where} has a value that libpq refuses; check port, "
            "sslmode and the others"
        )
    elif not state or state.startswith("08"):
        made = errors.StoreError(
            f"the connection to {where} was lost or not made{_unreached(error)}"
        )
    else:
        made = errors.StoreError(f"{where} failed ({state}){_HINTS.get(state, '')}")
    lost = not state or state.startswith(("08", "57P"))
    if committing and lost and isinstance(made, errors.StoreError):
        made.committed = None
    return made


_log: Final = logging.getLogger("hiermem.store")
#: The name of our pools, by which their log is told from that of an application's.
_POOL: Final = "hiermem"


class Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection of a pool of ours."""


#: A statement and the values of $1, $2, and so on.
Sent: TypeAlias = tuple[str, Sequence[Any]]

BEGIN: Final[Sent] = ("BEGIN ISOLATION LEVEL READ COMMITTED", ())
#: Every statement of the transaction sees the state from before its first one.
ONE_STATE: Final[Sent] = ("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", ())
COMMIT: Final[Sent] = ("COMMIT", ())
#: The commit of this transaction waits for no sync: a crash of the server may undo it.
UNSYNCED: Final[Sent] = ("SET LOCAL synchronous_commit = off", ())

#: Seconds in which a connection must be made, where the connection string does not say.
_CONNECT = 10
_PORT = "5432"
#: Seconds after which a connection that does not come is asked for outside the pool.
_SOON = 1.0
#: PostgreSQL 17, the first version with a limit for a whole transaction.
_LIMITS_TRANSACTIONS = 170_000
_LIMIT = "SELECT set_config('transaction_timeout', $1, true)"


def shown(dsn: str) -> str:
    """Return the host and the database of a connection string, which may be shown to anyone.

    The port is named where it is not the usual one: two servers on one machine differ by it.

    Raises ConfigError for what is no connection string.
    """
    if not isinstance(dsn, str):
        raise ConfigError(
            f"dsn is {type(dsn).__name__}; it must be a text: postgresql://user@host/database"
        )
    try:
        named = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        raise ConfigError(
            "this is no connection string of PostgreSQL; give postgresql://user@host/database"
        ) from None
    host, port = named.get("host") or "localhost", named.get("port")
    at = host if port in (None, "", _PORT) else f"{host}:{port}"
    return f"{at}/{named.get('dbname') or named.get('user') or ''}"


def settings(dsn: str, *, prepare: bool = False) -> dict[str, Any]:
    """Return how connections are made: they commit by themselves and use $1 for values.

    Texts are sent in UTF-8, whatever a role or a database has as its default.
    """
    timeout = {} if "connect_timeout" in conninfo_to_dict(dsn) else {"connect_timeout": _CONNECT}
    return {
        "autocommit": True,
        "client_encoding": "utf8",
        "prepare_threshold": 5 if prepare else None,
        "cursor_factory": psycopg.AsyncRawCursor,
        **timeout,
    }


def _at_our_level(record: logging.LogRecord) -> bool:
    """Make what the driver logs of our pools a detail; return whether it is wanted.

    While a server is away, its pool logs each connection that it lost and each attempt at a new
    one. ``Connections`` logs an outage once.
    """
    given = record.args if isinstance(record.args, tuple) else ()
    if not any(each == _POOL or isinstance(each, Connection) for each in given):
        return True
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


class Connections:
    """A pool of connections, which belongs to the event loop that uses it first."""

    def __init__(
        self,
        dsn: str,
        *,
        smallest: int,
        largest: int,
        statement_timeout: float,
        idle_timeout: float,
        prepare: bool,
    ) -> None:
        self.shown = shown(dsn)
        self._dsn, self._statement_timeout = dsn, statement_timeout
        self._idle_timeout = idle_timeout
        # How often the pool could not make a connection when the server was last seen to take one.
        self._failed = 0
        self._is_away = False
        logging.getLogger("psycopg.pool").addFilter(_at_our_level)
        self._home = HomeProcess()
        self._make: Callable[[], AsyncConnectionPool[Connection]] = partial(
            AsyncConnectionPool[Connection],
            dsn,
            connection_class=Connection,
            name=_POOL,
            kwargs=settings(dsn, prepare=prepare),
            min_size=smallest,
            max_size=largest,
            timeout=statement_timeout,
            reconnect_timeout=statement_timeout,
            open=False,
        )
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._using = 0
        self._unanswered: set[Connection] = set()
        self._unused = asyncio.Event()
        self._unused.set()
        self._closed = False

    async def close(self) -> None:
        """Wait until no connection is in use, then close all of them."""
        self._home.check()
        self._closed = True
        await self._unused.wait()
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[Connection]:
        """Lend a connection on which no transaction is open; roll back what is open at the end."""
        self._home.check()
        if self._closed:
            raise ClosedError("the store is closed; open it again")
        self._using += 1
        self._unused.clear()
        try:
            pool = await self._opened()
            connection = await self._taken(pool)
            try:
                self._unanswered.add(connection)
                yield connection
            finally:
                self._unanswered.discard(connection)
                await self._give_back(connection, pool)
        finally:
            self._using -= 1
            if not self._using:
                self._unused.set()

    def _note_outage(self, error: Exception | None) -> None:
        """Log that the server is away, or with None that it answers again; each once."""
        if error is not None and not self._is_away:
            _log.warning("the store is away, and is asked again at the next call: %s", error)
        elif error is None and self._is_away:
            _log.info("PostgreSQL at %s answers again", self.shown)
        self._is_away = error is not None

    def came_lost(self, connection: Connection) -> bool:
        """Return whether a lent connection is closed and has answered nothing since it was lent."""
        return connection.closed and connection in self._unanswered

    async def renew(self) -> None:
        """Replace the connections that were lost."""
        with suppress(*FAILURES):
            await (await self._opened()).check()

    async def _taken(self, pool: AsyncConnectionPool[Connection]) -> Connection:
        """Wait for a connection, but not long for a server that takes none."""
        soon = min(_SOON, self._statement_timeout)
        for wait in (soon, self._statement_timeout - soon):
            try:
                return await pool.getconn(wait)
            except PoolTimeout as error:
                late: Exception = translate(error, self.shown)
            except FAILURES as error:
                raise translate(error, self.shown) from None
            failed = pool.get_stats().get("connections_errors", 0)
            if failed > self._failed:
                if (why := await self._refusal()) is not None:
                    self._note_outage(why)
                    raise why
                self._failed = failed
        raise late

    async def _refusal(self) -> Exception | None:
        """Return why the server takes no connection; None where it does. A pool keeps no reason."""
        try:
            connection = await psycopg.AsyncConnection.connect(self._dsn, **settings(self._dsn))
        except FAILURES as error:
            return translate(error, self.shown)
        await connection.close()
        return None

    async def _opened(self) -> AsyncConnectionPool[Connection]:
        """Return the pool, which belongs to the event loop that uses it first."""
        loop = asyncio.get_running_loop()
        async with self._opening:
            if self._pool is None:
                self._pool, self._loop = self._make(), loop
                await self._pool.open()
        if loop is not self._loop:
            raise UsageError("this store is used in another event loop; open it again in this one")
        return self._pool

    async def _give_back(
        self, connection: Connection, pool: AsyncConnectionPool[Connection]
    ) -> None:
        try:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                await connection.rollback()
        except FAILURES:
            pass  # it is lost; the pool finds out
        finally:
            if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                await connection.close()
            await pool.putconn(connection)

    async def send(
        self,
        connection: Connection,
        statements: Sequence[Sent],
        *,
        committing: bool = False,
        leaves_open: bool = False,
    ) -> list[list[tuple[Any, ...]]]:
        """Send the statements together and return the rows of each; ``committing`` with the last.

        ``leaves_open`` says that their transaction goes on with the next call. The server ends it
        if that does not come within the idle timeout.

        Raises an error of hiermem; the first statement that failed ended the transaction. If the
        server does not answer all of them in time, the connection is closed.
        """
        status = connection.info.transaction_status
        limited = connection.info.server_version >= _LIMITS_TRANSACTIONS
        before: list[Sent] = []
        after: list[Sent] = []
        if limited and status == pq.TransactionStatus.INTRANS:
            before.append((_LIMIT, ("0",)))
        if limited and leaves_open:
            after.append((_LIMIT, (f"{1000 * self._idle_timeout:.0f}",)))
        cursors: list[psycopg.AsyncCursor[tuple[Any, ...]]] = []
        failed: Exception | None = None
        sent = False
        with self._answered_in_time(connection) as late:
            try:
                async with connection.pipeline():
                    # The driver would log an error that leaves this block, with the text of the
                    # next error.
                    try:
                        for sql, values in (*before, *statements, *after):
                            cursors.append(await connection.execute(sql.encode(), values))
                        sent = committing
                    except FAILURES as error:
                        failed = error
                if failed is None and leaves_open and not limited:
                    # The pipeline ends with a message at which the server stops its clock for an
                    # idle transaction. A statement by itself starts it again.
                    await connection.execute(b"SELECT")
                if failed is None:
                    self._unanswered.discard(connection)
                    self._note_outage(None)
                    wanted = cursors[len(before) : len(before) + len(statements)]
                    return [await one.fetchall() if one.description else [] for one in wanted]
            except FAILURES as error:
                failed = failed or error
        if late:
            self._unanswered.discard(connection)  # another try would wait as long
            made = StoreError(
                f"PostgreSQL at {self.shown} did not answer within {self._longest:g} seconds; "
                "check it, or raise statement_timeout"
            )
            made.committed = None if sent else False
            raise made
        assert failed is not None
        raise translate(failed, self.shown, committing=sent) from None

    @property
    def _longest(self) -> float:
        """Return the seconds in which what is sent together must be answered."""
        return self._statement_timeout + self._idle_timeout

    @contextmanager
    def _answered_in_time(self, connection: Connection) -> Iterator[list[bool]]:
        """Close the connection after the limit; the list is not empty if that happened."""
        late: list[bool] = []

        def give_up() -> None:
            late.append(True)
            with suppress(OSError, psycopg.Error):
                one = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
                with one:  # the driver sees the end of the connection, and cleans up by itself
                    one.shutdown(socket.SHUT_RDWR)

        timer = asyncio.get_running_loop().call_later(self._longest, give_up)
        try:
            yield late
        finally:
            timer.cancel()


#: Seconds between two attempts at a table that is in use.
_PAUSE: Final = 0.1
_NUMBER: Final = re.compile(r"\d+")


async def scrub(
    connection: Connection, schema: str, *, lock_timeout: float, backups_expire: timedelta | None
) -> Scrubbed:
    """Rewrite every table; try each for up to ``lock_timeout`` seconds while it is in use."""
    found = await connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r' "
        "ORDER BY relname",
        (f'"{schema}"',),
    )
    reasons = []
    for (table,) in await found.fetchall():
        until = time.monotonic() + lock_timeout
        while (reason := await _rewrite(connection, schema, table)) and time.monotonic() < until:
            if reason.startswith("its owner"):
                break
            await asyncio.sleep(_PAUSE)
        if reason:
            reasons.append(f"table {table}: {reason}")
    if reasons:
        return Scrubbed(done=False, reason="; ".join(reasons))
    row = await (await connection.execute("SELECT pg_current_wal_lsn()::text")).fetchone()
    upto = f"the tables were written anew, up to the position {row[0] if row else ''} of the log"
    if backups_expire is None:
        return Scrubbed(
            done=False,
            reason=f"{upto}; the log before it, replicas and backups may hold what was removed",
        )
    day = (datetime.now(UTC) + backups_expire).date()
    return Scrubbed(done=True, reason=f"{upto}; what lies before it expires by {day}")


async def _rewrite(connection: Connection, schema: str, table: str) -> str:
    """Rewrite a table; return why removed rows are left in it, or ""."""
    notices: list[tuple[str | None, str | None, str]] = []

    def keep(notice: Diagnostic) -> None:
        notices.append((notice.severity_nonlocalized, notice.sqlstate, notice.message_detail or ""))

    connection.add_notice_handler(keep)
    try:
        await connection.execute(
            sql.SQL("VACUUM (FULL, VERBOSE, SKIP_LOCKED) {}").format(sql.Identifier(schema, table))
        )
    finally:
        connection.remove_notice_handler(keep)
    for severity, state, _ in notices:
        if severity == "WARNING":
            return "it is in use" if state == "55P03" else "its owner alone may write it anew"
    # The detail begins with the number of removed rows that an older transaction may still read.
    kept = [_NUMBER.match(detail) for _, _, detail in notices]
    if any(number is not None and int(number[0]) for number in kept):
        return "an older transaction may still read what was removed"
    return ""
