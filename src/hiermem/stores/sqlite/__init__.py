"""The embedded default: one SQLite file that several threads and processes may share.

Every write goes through the one writer thread and is durable when it returns. This module opens,
closes and cleans the file. ``tenant`` holds the operations of a tenant's handle, ``rows`` the
format of a row, ``files`` and ``schema`` the requirements on a file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from hiermem.atfork import finish_before_fork
from hiermem.errors import ReadOnlyError, UsageError
from hiermem.stores.contract import system_time
from hiermem.stores.sqlite import files, reads, trees
from hiermem.stores.sqlite.connections import FAILURES, LOOKS, translate
from hiermem.stores.sqlite.files import scrub
from hiermem.stores.sqlite.schema import current
from hiermem.stores.sqlite.tenant import SQLiteTenant
from hiermem.stores.sqlite.workers import Readers, Transaction, Writer
from hiermem.types.transaction import DueSession, Scrubbed

__all__ = ["SQLiteStore", "SQLiteTenant"]

T = TypeVar("T")
P = ParamSpec("P")


class SQLiteStore:
    """A store in one SQLite file; open it with ``await SQLiteStore.open(path)``."""

    def __init__(
        self,
        *,
        path: str,
        writer: Writer | None,
        readers: Readers | None,
        busy_timeout: float,
        clock: Callable[[], datetime],
    ) -> None:
        self._path = path
        # The working directory may have changed when the file is needed again.
        self._file = Path(path).absolute()
        self._writer = writer
        self._readers = readers
        self._busy_timeout = busy_timeout
        self._clock = clock

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        busy_timeout: float = 5.0,
        readers: int = 3,
        clock: Callable[[], datetime] = system_time,
    ) -> SQLiteStore:
        """Open the store at ``path``; create it if it does not exist. ":memory:" keeps nothing.

        ``busy_timeout`` is the number of seconds that a write waits for another process;
        ``readers`` is the number of reads that may run at once; ``clock`` is the store's time. A
        file of an older format is migrated, after it was copied to ``<name>.v<n>.bak``. A file of
        up to 32 MB is checked for damage as a whole; of a larger file, only the schema is checked.
        With ``read_only``, nothing is created, and writes raise ReadOnlyError; the file and its
        file system may be read-only. Other processes may write meanwhile.

        Raises NotFoundError if ``create`` is off and the file does not exist, StoreCorruptError if
        the file is not a store, is of a development version or is damaged, and StoreNewerError if
        it is of a newer hiermem. All three leave the file untouched. Raises StoreBusyError or
        StoreError if the file cannot be opened.
        """
        name = os.fspath(path)
        if not name:
            raise UsageError("path is empty; give a file name, or ':memory:' to keep nothing")
        if busy_timeout < 0 or readers < 1:
            raise UsageError("busy_timeout must be 0 or more, and readers 1 or more")
        if read_only and name == files.MEMORY:
            raise UsageError("read_only=True needs a file, not ':memory:'")
        opened = partial(cls, path=name, busy_timeout=busy_timeout, clock=clock)

        @finish_before_fork  # SQLite holds locks of the whole process in its calls
        def work() -> SQLiteStore:
            if name == files.MEMORY:
                connection = files.connect(name, busy_timeout=busy_timeout)
                files.create_in(connection, current())
                return opened(writer=Writer(connection, clock=clock), readers=None)
            file = Path(name).absolute()
            if read_only:
                files.prepare_to_read(file, busy_timeout=busy_timeout, schema=current())
                connect = partial(files.connect_to_read, file, busy_timeout=busy_timeout)
                return opened(writer=None, readers=Readers(connect, readers))
            files.prepare(file, create=create, busy_timeout=busy_timeout, schema=current())
            connect = partial(files.connect, file, busy_timeout=busy_timeout)
            to_write = partial(files.connect, file, busy_timeout=min(busy_timeout, LOOKS))
            writer = Writer(to_write(), to_write, clock=clock, busy_timeout=busy_timeout)
            return opened(writer=writer, readers=Readers(connect, readers))

        return await asyncio.to_thread(work)

    @property
    def path(self) -> str:
        """Return the path with which the store was opened."""
        return self._path

    @property
    def place(self) -> str:
        """Return how the store is named to people: the whole path of its file."""
        return self._path if self._path == files.MEMORY else str(Path(self._path).resolve())

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the optional abilities: a file is durable and may be shared, memory is neither."""
        return frozenset({"durable", "shared"}) if self._readers else frozenset()

    def tenant(self, name: str) -> SQLiteTenant:
        """Return the handle that is bound to tenant ``name``; this does no I/O."""
        return SQLiteTenant(self, name)

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants that have anything stored, in order."""
        return await self.read(reads.tenants, after=after, limit=limit)

    async def claim_due(
        self,
        limit: int,
        *,
        lease: float,
        tenant: str | None = None,
        ahead: float | None = 0.0,
    ) -> list[DueSession]:
        """Claim up to ``limit`` sessions that are due now, or list them, the longest due first."""
        now = self._clock()
        if not lease:
            found = await self.read(trees.listed, now, limit, tenant, ahead)
            return [DueSession(of, id_, at, bool(held)) for _, of, id_, at, held in found]
        # A look that finds nothing takes no lock for writing.
        if not await self.read(trees.listed, now, min(limit, 1), tenant):
            return []
        return await self.write(lambda transaction: trees.claim(transaction, limit, lease, tenant))

    async def check(self) -> list[str]:
        """Read the whole file and return the damage found; the list is empty if there is none."""
        return await self.read(files.check)

    async def close(self) -> None:
        """Finish the queued work and close the file. A second call is harmless."""

        @finish_before_fork
        def work() -> None:
            for worker in (self._readers, self._writer):
                if worker:
                    worker.close()

        await asyncio.to_thread(work)

    def _writing(self) -> Writer:
        """Return the writer. Raises ReadOnlyError where the store was opened for reading."""
        if self._writer is None:
            raise ReadOnlyError
        return self._writer

    async def read(
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``work`` on a connection for reading; the tenants' handles call this."""
        if self._readers:
            return await self._readers.run(lambda connection: work(connection, *args, **kwargs))
        # A database in memory has one connection, and the writer owns it.
        return await self._writing().run(
            lambda transaction: work(transaction.connection, *args, **kwargs)
        )

    async def pages(self, work: Callable[[sqlite3.Connection], Iterator[T]]) -> AsyncIterator[T]:
        """Yield what ``work`` yields, all from one state; the tenants' handles call this.

        A file is read page by page, on a connection of its own that holds a transaction for reading
        until the last page. A database in memory has one connection, so it is read at once.
        """
        if self._readers is None:
            for page in await self.read(lambda connection: list(work(connection))):
                yield page
            return
        await self.read(lambda _: None)  # refuses a closed store
        connect = partial(files.connect_to_read, self._file, busy_timeout=self._busy_timeout)

        @finish_before_fork
        def found() -> Generator[T]:
            with closing(connect()) as connection:
                connection.execute("BEGIN")
                yield from work(connection)

        with closing(found()) as pages:
            try:
                while (page_or_none := await _in_thread(partial(next, pages, None))) is not None:
                    yield page_or_none
            except FAILURES as error:
                raise translate(error) from None

    async def backup(self, target: Path) -> None:
        """Copy the store to a new file, complete or not at all; reads and writes go on meanwhile.

        Raises UsageError where there is something at ``target``, StoreError where it cannot be
        written.
        """
        copy = partial(files.back_up, target=target, busy_timeout=self._busy_timeout)
        await self.read(lambda _: None)  # refuses a closed store

        @finish_before_fork
        def work() -> None:
            if self._readers is None:
                # A database in memory has one connection, and a copy inside its transaction would
                # wait for that transaction.
                with self._writing().pause() as connection:
                    copy(connection)
                return
            try:
                connection = files.connect_to_read(self._file, busy_timeout=self._busy_timeout)
            except FAILURES as error:
                raise translate(error) from None
            with closing(connection):
                copy(connection)

        await asyncio.to_thread(work)

    async def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` on the writer and wait for its commit; the tenants' handles call this.

        A write that need not be ``durable`` waits for no sync, and may be lost in a power loss.
        Where the store is only read, work that changes nothing runs on a reader.
        """
        if self._writer is None:
            return await self.read(_decided, work)
        return await self._writer.run(work, durable=durable)

    async def time(self) -> datetime:
        """Return the store's time; the tenants' handles call this."""
        await self.read(lambda _: None)  # refuses a closed store
        return self._clock()

    def write_here(self, work: Callable[[Transaction], T]) -> T | None:
        """Run ``work`` on this thread, which blocks; return None at once if other writes wait."""
        return self._writing().run_here(work)

    async def scrub(self) -> Scrubbed:
        """Remove deleted data from the file's bytes; the tenants' handles call this."""
        if self._readers is None:
            # In memory, no bytes outlive their row, and there are no backups.
            await self._writing().run(lambda _: None)
            return Scrubbed(done=True)

        @finish_before_fork
        def work() -> Scrubbed:
            with self._writing().pause():
                return scrub(self._file, busy_timeout=self._busy_timeout)

        return await asyncio.to_thread(work)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, to its end also where the caller is cancelled.

    Otherwise a connection would be closed while the thread still uses it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    finally:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])


def _decided(connection: sqlite3.Connection, work: Callable[[Transaction], T]) -> T:
    """Run ``work``, all from one state. Raises ReadOnlyError where it changes something."""
    connection.execute("BEGIN")
    try:
        return work(Transaction(connection, read_only=True))
    finally:
        connection.execute("ROLLBACK")
