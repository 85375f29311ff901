"""The connections to PostgreSQL: kept in one event loop, their errors, and the rewrite of tables.

Statements that are sent together cost one wait for the server, and are one transaction. Nothing is
set on a connection for longer, so that it may be another one behind a pooler.

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
import os
import re
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import Diagnostic

from hiermem import errors
from hiermem.errors import ClosedError, ConfigError, StoreError, UsageError
from hiermem.process import check_home
from hiermem.types.transaction import Scrubbed

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
#: What is sent: a text and the values of $1, $2, and so on.
Sent: TypeAlias = tuple[bytes, Sequence[Any]]
#: The rows of a statement.
Rows: TypeAlias = list[tuple[Any, ...]]

#: The exceptions that the driver may raise.
FAILURES: Final = (psycopg.Error, UnicodeEncodeError, OverflowError)
_BEYOND: Final = "a number is beyond the 64 bits that the store keeps"
#: Two commits that waited for each other; the server ended one of them.
DEADLOCK: Final = "40P01"
#: Transient failures: a conflict, a lock, a time limit, too many connections, a server that stops,
#: starts or is read-only.
_BUSY: Final = {
    "40001": "another write came between",
    DEADLOCK: "another write came between",
    "55P03": "another write holds the session for too long",
    "57014": "a statement took longer than its time limit",
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
    "database system is": "57P03",
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


def _words(error: psycopg.Error) -> str:
    return _QUOTED.sub("", str(error))


def refused_connection(error: psycopg.Error) -> str:
    """Return the SQLSTATE that the text of a failed connection means, or "" for any other one."""
    text = _words(error)
    if "FATAL" not in text and "no password" not in text:
        return ""
    return next((state for words, state in _REFUSED.items() if words in text), "")


def translate(error: Exception, shown: str, *, committing: bool = False) -> Exception:
    """Return the error of hiermem that corresponds to ``error``, or ``error`` if there is none.

    ``shown`` names the server and the database. ``committing`` says that the commit was sent; then
    it is unknown whether a write took effect whose connection was lost.
    """
    if isinstance(error, UnicodeEncodeError):
        return errors.InvalidMessageError(
            "a text holds a lone surrogate; replace it before storing"
        )
    if isinstance(error, OverflowError):
        return UsageError(_BEYOND)
    if isinstance(error, psycopg.Error):
        return _of_server(error, shown, committing=committing)
    return error


def _of_server(  # noqa: PLR0912 - one a kind of failure
    error: psycopg.Error, shown: str, *, committing: bool
) -> errors.HiermemError:
    state = error.sqlstate or refused_connection(error)
    where = f"PostgreSQL at {shown}"
    made: errors.HiermemError
    if state in _BUSY:
        made = StoreError(f"{where}: {_BUSY[state]} ({state}); try again", retryable=True)
    elif state.startswith("28"):
        made = ConfigError(
            f"{where} refused the user or the password ({state}); check the connection string"
        )
    elif state == "3D000":
        made = ConfigError(
            f"{where} has no such database (3D000); create it, or check the connection string"
        )
    elif state == "42501":
        made = ConfigError(
            f"{where} denies this to the role (42501); the page on PostgreSQL names what roles need"
        )
    elif state in ("22P05", "22021") or (not state and isinstance(error, psycopg.DataError)):
        made = errors.InvalidMessageError("a text holds a NUL; remove it before storing")
    elif state == "22003":
        made = UsageError(_BEYOND)
    elif state == "54000":
        made = UsageError(
            "the names of a row are together longer than an index of PostgreSQL keeps"
        )
    elif state.startswith(("21", "22", "23")) or isinstance(error, psycopg.DataError):
        made = UsageError(f"the write contradicts what is stored ({state or 'a value'})")
    elif state in ("42P01", "42703"):
        made = errors.StoreCorruptError(
            f"{where}: a table or column is missing ({state}); restore a copy of the store"
        )
    elif not state and ("invalid" in _words(error) or "bad value" in _words(error)):
        made = ConfigError(
            f"the connection string to {where} has a value that libpq refuses; check port, "
            "sslmode and the others"
        )
    elif not state or state.startswith("08"):
        text = _words(error)
        why = next((f": {why}" for words, why in _UNREACHED.items() if words in text), "")
        made = StoreError(f"the connection to {where} was lost or not made{why}")
    else:
        made = StoreError(f"{where} failed ({state}){_HINTS.get(state, '')}")
    lost = not state or state.startswith(("08", "57P"))
    if committing and lost and isinstance(made, StoreError):
        made.committed = None
    return made


_log: Final = logging.getLogger("hiermem.store")
#: Seconds in which a connection must be made, where the connection string does not say.
_CONNECT = 10
_PORT = "5432"
#: Seconds after which a connection that nobody used is closed.
_UNUSED: Final = 300.0


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


async def connect(dsn: str, *, prepare: bool = False) -> Connection:
    """Make a connection that commits by itself and uses $1 for values.

    Texts are sent in UTF-8, whatever a role or a database has as its default.
    """
    settings: dict[str, Any] = {"prepare_threshold": 5 if prepare else None}
    if "connect_timeout" not in conninfo_to_dict(dsn):
        settings["connect_timeout"] = _CONNECT
    return await psycopg.AsyncConnection.connect(
        dsn,
        autocommit=True,
        client_encoding="utf8",
        cursor_factory=psycopg.AsyncRawCursor,
        **settings,
    )


@asynccontextmanager
async def connected(dsn: str) -> AsyncGenerator[Connection]:
    """Lend a connection of its own; its failures are raised as errors of hiermem."""
    named = shown(dsn)
    try:
        connection = await connect(dsn)
    except FAILURES as error:
        raise translate(error, named) from None
    try:
        yield connection
    except FAILURES as error:
        raise translate(error, named) from None
    finally:
        await connection.close()


class Connections:
    """Up to ``most`` connections, which belong to the event loop that uses them first."""

    def __init__(
        self,
        dsn: str,
        *,
        most: int,
        statement_timeout: float,
        idle_timeout: float,
        prepare: bool,
    ) -> None:
        self.shown = shown(dsn)
        self.patience = statement_timeout
        #: Seconds in which what is sent together must be answered.
        self._longest = statement_timeout + idle_timeout
        self._dsn, self._prepare = dsn, prepare
        self._is_away = self._closed = False
        self._home = os.getpid()
        self._free = asyncio.Semaphore(most)
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The connections that nobody uses, with the time since when, the last used one at the end.
        self._idle: deque[tuple[Connection, float]] = deque()
        self._using = 0
        self._unused = asyncio.Event()
        self._unused.set()

    async def close(self) -> None:
        """Wait until no connection is in use, then close all of them."""
        check_home(self._home)
        self._closed = True
        await self._unused.wait()
        await self._drop(0)

    async def _drop(self, keep: int) -> None:
        """Close those idle connections that were used longest ago, all but ``keep``."""
        while len(self._idle) > keep:
            await self._idle.popleft()[0].close()

    def check(self) -> None:
        """Raise what keeps a call from being made here and now."""
        check_home(self._home)
        if self._closed:
            raise ClosedError("the store is closed; open it again")
        loop = asyncio.get_running_loop()
        if loop is not (self._loop or loop):
            raise UsageError("this store is used in another event loop; open it again in this one")
        self._loop = loop

    @asynccontextmanager
    async def using(self) -> AsyncGenerator[None]:
        """Keep the connections open."""
        self.check()
        self._using += 1
        self._unused.clear()
        try:
            yield
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

    async def send(self, statements: Sequence[Sent], *, committing: bool = False) -> list[Rows]:
        """Send the statements together as one transaction and return the rows of each.

        Raises an error of hiermem; the first statement that failed undid the transaction. If the
        server does not answer all of them in time, the connection is closed. What did not
        commit is sent once more on a fresh connection if the first one was lost.
        """
        while True:
            late: list[bool] = []
            async with self.lent() as (connection, fresh):
                try:
                    return await self.sent_on(connection, statements, late, committing=committing)
                except StoreError as error:
                    if not connection.closed:
                        raise
                    # The server ended it, and so it did with those that wait for their next use.
                    await self._drop(0)
                    if fresh or late or error.committed is None:
                        raise

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[tuple[Connection, bool]]:
        """Lend a connection that nobody uses, and whether it was made for this."""
        try:
            async with asyncio.timeout(self.patience):
                await self._free.acquire()
        except TimeoutError:
            raise StoreError(
                f"no connection to {self.shown} was free in time; try again", retryable=True
            ) from None
        try:
            connection, fresh = await self._taken()
            try:
                yield connection, fresh
            finally:
                await self._give_back(connection)
        finally:
            self._free.release()

    async def _taken(self) -> tuple[Connection, bool]:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.closed:
                return connection, False
        try:
            made = await connect(self._dsn, prepare=self._prepare)
        except FAILURES as error:
            why = translate(error, self.shown)
            self._note_outage(why)
            raise why from None
        self._note_outage(None)
        return made, True

    async def _give_back(self, connection: Connection) -> None:
        state = connection.pgconn
        if (
            state.transaction_status != pq.TransactionStatus.IDLE
            or state.pipeline_status != pq.PipelineStatus.OFF
        ):
            await connection.close()
            return
        now = time.monotonic()
        self._idle.append((connection, now))
        while self._idle[0][1] < now - _UNUSED:
            await self._idle.popleft()[0].close()

    async def sent_on(
        self,
        connection: Connection,
        statements: Sequence[Sent],
        late: list[bool] | None = None,
        *,
        committing: bool = False,
    ) -> list[Rows]:
        """Send the statements together; ``late`` is not empty if they were not answered in time."""
        late = [] if late is None else late
        failed: Exception | None = None
        sent = committing and len(statements) == 1
        timer = asyncio.get_running_loop().call_later(self._longest, _shut, connection, late)
        cursors: list[psycopg.AsyncCursor[tuple[Any, ...]]] = []
        try:
            if len(statements) == 1:
                cursors.append(await connection.execute(*statements[0], binary=True))
            else:
                async with connection.pipeline():
                    # The driver would log an error that leaves this block, with the text of the
                    # next error.
                    try:
                        for text, values in statements:
                            cursors.append(await connection.execute(text, values, binary=True))
                        sent = committing
                    except FAILURES as error:
                        failed = error
            if failed is None:
                return [await one.fetchall() if one.description else [] for one in cursors]
        except FAILURES as error:
            failed = failed or error
        finally:
            timer.cancel()
        if connection.pgconn.transaction_status == pq.TransactionStatus.UNKNOWN:
            await connection.close()
        if late:
            raise StoreError(
                f"PostgreSQL at {self.shown} did not answer within {self._longest:g} seconds; "
                "check it, or raise statement_timeout",
                committed=None if sent else False,
            )
        assert failed is not None
        raise translate(failed, self.shown, committing=sent) from None


def _shut(connection: Connection, late: list[bool]) -> None:
    """End a connection whose server does not answer; the driver sees that, and cleans up."""
    late.append(True)
    with (
        suppress(OSError, psycopg.Error),
        # The family of the socket does not matter: it is only shut.
        socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as one,
    ):
        one.shutdown(socket.SHUT_RDWR)


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
