"""The embedded default: one SQLite file that several threads and processes may share.

Every write goes through the one writer thread and is durable when it returns. This module opens,
closes and cleans the file, and has the handles on a tenant's part and on one tree of a session:
each of their methods names the function that does the work, and says whether it reads or writes.
The statements are in ``reads``, ``writes``, ``trees`` and ``segments``, the format of a row in
``rows``, the requirements on a file in ``files`` and ``schema``.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import CoroutineType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from hiermem.atfork import finish_before_fork
from hiermem.errors import ReadOnlyError, UsageError
from hiermem.stores.contract import named_after, system_time
from hiermem.stores.dump import missing, received
from hiermem.stores.sqlite import files, reads, segments, trees, writes
from hiermem.stores.sqlite.connections import FAILURES, LOOKS, translate
from hiermem.stores.sqlite.files import scrub
from hiermem.stores.sqlite.reads import Part, TreeOf
from hiermem.stores.sqlite.schema import current
from hiermem.stores.sqlite.workers import Readers, Transaction, Writer
from hiermem.types.transaction import (
    NO_SESSION,
    Changes,
    Deciding,
    DueSession,
    Scrubbed,
    Snapshot,
    StoredRow,
)

__all__ = ["SQLiteStore", "SQLiteTenant"]

Of = TypeVar("Of")
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
        the file is not a store, is of a development or newer version or is damaged. Both leave
        the file untouched. Raises StoreError if the file cannot be opened.
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


class _Handle(Generic[Of]):
    """A part of a store, and what names it in each statement."""

    def __init__(self, store: SQLiteStore, of: Of) -> None:
        self._store = store
        self._of = of


def _reading(
    work: Callable[Concatenate[Part[Of], P], T],
) -> Callable[Concatenate[_Handle[Of], P], CoroutineType[Any, Any, T]]:
    """Return the method that runs ``work`` on a connection for reading."""

    async def method(self: _Handle[Of], /, *args: P.args, **kwargs: P.kwargs) -> T:
        later = _later(work, args, kwargs)
        return await self._store.read(lambda connection: later(Part(connection, self._of)))

    return named_after(work, method, given=1)


def _writing(
    work: Callable[Concatenate[Transaction, Of, P], T], *, durable: bool = True
) -> Callable[Concatenate[_Handle[Of], P], CoroutineType[Any, Any, T]]:
    """Return the method that runs ``work`` on the writer and waits for its commit."""

    async def method(self: _Handle[Of], /, *args: P.args, **kwargs: P.kwargs) -> T:
        later = _later(work, args, kwargs)
        return await self._store.write(
            lambda transaction: later(transaction, self._of), durable=durable
        )

    return named_after(work, method, given=2)


def _later(
    work: Callable[..., T], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., T]:
    """Return ``work`` with its arguments as they are now: it runs later, on another thread."""
    own = [_own(value) for value in args]
    named = {name: _own(value) for name, value in kwargs.items()}
    return lambda *first: work(*first, *own, **named)


def _own(value: Any) -> Any:
    if isinstance(value, (str, int, bytes)) or value is None:
        return value
    if isinstance(value, Mapping):
        return dict(value)
    return tuple(value) if isinstance(value, Sequence) else value


class SQLiteTenant(_Handle[str]):
    """One tenant's part of a SQLiteStore; see ``hiermem.protocols.TenantStore``."""

    @property
    def tenant(self) -> str:
        """Return the tenant's name."""
        return self._of

    @property
    def place(self) -> str:
        """Return how the tenant's store is named to people."""
        return self._store.place

    async def secret(self) -> bytes:
        """Return the store's secret."""
        return await self._store.read(reads.secret)

    async def now(self) -> datetime:
        """Return the time of the clock that the store was given."""
        return await self._store.time()

    # -- sessions

    session = _reading(reads.session)
    sessions = _reading(reads.sessions)
    count_sessions = _reading(reads.count_sessions)
    forks = _reading(reads.forks)

    async def mutate(
        self, session_id: str, decide: Callable[[Snapshot], Changes[T]], *, keys: Sequence[str] = ()
    ) -> T:
        """Read the snapshot, call ``decide`` with it and commit its changes atomically.

        ``decide`` runs on the thread that writes, while the write lock is held.
        """
        name = self._of
        return await self._store.write(
            lambda transaction: writes.mutate(transaction, name, session_id, decide, keys)
        )

    def mutate_here(
        self, session_id: str, decide: Callable[[Snapshot], Changes[T]], *, keys: Sequence[str] = ()
    ) -> T | None:
        """Do the same as ``mutate`` on this thread, which blocks; return None if other writes wait.

        ``decide`` must return a result that is not None.
        """
        name = self._of
        return self._store.write_here(
            lambda transaction: writes.mutate(transaction, name, session_id, decide, keys)
        )

    async def transact(self, decide: Callable[[], Deciding[T]]) -> T:
        """Run a decision that requests its reads, and commit its changes atomically.

        The decision runs on the thread that writes, while the write lock is held.
        """
        name = self._of
        return await self._store.write(
            lambda transaction: writes.transact(transaction, name, decide)
        )

    read = _reading(writes.read)
    erase_all = _writing(writes.erase_all)

    async def dump(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        """Return everything kept of the session, page by page, as it is when the first one is read.

        Until the last page was read, the file's log cannot be shortened and grows with each write.
        """
        if session_id != NO_SESSION and await self.session(session_id) is None:
            raise missing(session_id)
        return self._store.pages(partial(writes.dump, tenant=self._of, session_id=session_id))

    async def restore(
        self, rows: AsyncIterable[Sequence[StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned in one transaction; other writes to the file wait for it."""
        async with received(rows, self._of) as every:
            await self._store.write(lambda found: writes.restore(found, every, replaces))

    async def scrub(self) -> Scrubbed:
        """Remove deleted data from the bytes of the file and its log, and remove backups.

        The file is rewritten, which takes time in proportion to its size; this store's writes wait
        meanwhile. If another process is reading or writing, this waits for it up to
        ``busy_timeout``.
        """
        return await self._store.scrub()

    # -- messages

    messages = _reading(reads.messages)
    versions = _reading(reads.versions)
    flagged = _reading(reads.flagged)
    events = _reading(reads.events)

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> SQLiteTree:
        """Return the handle of one of the session's trees, or of the serving tree for None."""
        return SQLiteTree(self._store, (self._of, session_id, number))

    take_due = _writing(trees.take_due)
    put_due = _writing(trees.put_due)
    settle_due = _writing(trees.settle_due)
    reusable = _reading(trees.reusable)

    # -- journal, views, records and blocks

    put_run = _writing(trees.put_run)
    run = _reading(reads.run)
    runs = _reading(reads.runs)
    attempts = _reading(reads.attempts)
    spent = _reading(reads.spent)
    view = _reading(reads.view)
    # A view is a cache, so nobody waits for its sync.
    put_view = _writing(trees.put_view, durable=False)
    records = _reading(reads.records)
    put_records = _writing(trees.put_records)
    blocks = _reading(reads.blocks)
    put_blocks = _writing(trees.put_blocks)
    drop_blocks = _writing(trees.drop_blocks)

    # -- the index over all sessions

    index_state = _reading(segments.index_state)
    put_segment = _writing(segments.put_segment)
    segment_blocks = _reading(segments.segment_blocks)


class SQLiteTree(_Handle[TreeOf]):
    """One tree of a session in a SQLiteStore; see ``hiermem.protocols.TreeStore``."""

    nodes = _reading(trees.nodes)
    level = _reading(trees.level)
    levels = _reading(trees.levels)
    covering = _reading(trees.covering)
    unfinished = _reading(trees.unfinished)
    outdated = _reading(trees.outdated)
    tally = _reading(trees.tally)
    revisions = _reading(trees.revisions)
    write_nodes = _writing(trees.write_nodes)
