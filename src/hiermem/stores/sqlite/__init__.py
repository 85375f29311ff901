"""The store in one SQLite file, which several threads and processes may share.

It has no thread of its own: an operation blocks the thread that calls it. Reads run side by side,
each on a connection of its own. Of the threads that commit, one at a time has the turn; it commits
for all that wait with it, so that they share one sync. ``statements`` decides the SQL,
``transactions`` runs it, ``files`` states what a file must be, ``connections`` what a process must
not do with one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from hiermem.atfork import finish_before_fork, let_fork
from hiermem.errors import ClosedError, ReadOnlyError, UsageError
from hiermem.process import check_home, utc_now
from hiermem.records.tables import Commit, Found, Key, Scan
from hiermem.stores.sqlite import files, transactions
from hiermem.stores.sqlite.connections import FAILURES, LOOKS, translate
from hiermem.stores.sqlite.transactions import Job, Writer
from hiermem.types.transaction import Scrubbed

__all__ = ["SQLiteStore"]

T = TypeVar("T")

#: The number of commits that may share one transaction; with more, the first would wait too long.
_GROUP: Final = 256


class SQLiteStore:
    """A store in one SQLite file; open it with ``await SQLiteStore.open(path)``."""

    def __init__(
        self,
        *,
        path: str,
        writer: Writer | None,
        connect: Callable[[], sqlite3.Connection] | None,
        readers: int,
        busy_timeout: float,
        clock: Callable[[], datetime],
    ) -> None:
        self._path = path
        # The working directory may have changed when the file is needed again.
        self._file = Path(path).absolute()
        self._writer = writer
        self._connect = connect
        self._readers = readers
        self._busy_timeout = busy_timeout
        self._clock = clock
        self._home = os.getpid()
        self._closed = False
        # The thread that holds ``_turn`` is the one that writes; in memory also the one that reads.
        self._turn = threading.Lock()
        self._queue: deque[Job] = deque()
        # The connections for reading that nobody uses, and the reads under way.
        self._reads = threading.Condition()
        self._idle: list[sqlite3.Connection] = []
        self._under_way: set[object] = set()

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        busy_timeout: float = 5.0,
        readers: int = 8,
        clock: Callable[[], datetime] = utc_now,
    ) -> SQLiteStore:
        """Open the store at ``path``; create it if it does not exist. ":memory:" keeps nothing.

        ``busy_timeout`` is the number of seconds that a commit waits for another process;
        ``readers`` is the number of connections for reading that stay open; ``clock`` is the
        store's time. A file of up to 32 MB is checked for damage as a whole; of a larger file, only
        the schema is checked. With ``read_only``, nothing is created, and commits raise
        ReadOnlyError; the file and its file system may be read-only. Other processes may write
        meanwhile.

        Raises NotFoundError if ``create`` is off and the file does not exist, StoreCorruptError if
        the file is not a store, is of another format or is damaged. Both leave the file untouched.
        Raises StoreError if the file cannot be opened.
        """
        name = os.fspath(path)
        if not name:
            raise UsageError("path is empty; give a file name, or ':memory:' to keep nothing")
        if busy_timeout < 0 or readers < 1:
            raise UsageError("busy_timeout must be 0 or more, and readers 1 or more")
        if read_only and name == files.MEMORY:
            raise UsageError("read_only=True needs a file, not ':memory:'")
        opened = partial(cls, path=name, readers=readers, busy_timeout=busy_timeout, clock=clock)

        @finish_before_fork  # SQLite holds locks of the whole process in its calls
        def work() -> SQLiteStore:
            if name == files.MEMORY:
                connection = files.connect(name, busy_timeout=busy_timeout)
                files.create_in(connection)
                return opened(writer=Writer(connection), connect=None)
            file = Path(name).absolute()
            if read_only:
                files.prepare_to_read(file, busy_timeout=busy_timeout)
                connect = partial(files.connect_to_read, file, busy_timeout=busy_timeout)
                return opened(writer=None, connect=connect)
            files.prepare(file, create=create, busy_timeout=busy_timeout)
            connection = files.connect(file, busy_timeout=min(busy_timeout, LOOKS))
            writer = Writer(connection, busy_timeout=busy_timeout)
            connect = partial(files.connect, file, busy_timeout=busy_timeout)
            return opened(writer=writer, connect=connect)

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
        """Return the optional abilities: those of a file; a store in memory has none."""
        return frozenset({"durable", "shared", "on_thread"} if self._connect else ())

    # -- the five operations

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return the rows with these keys, and those of the scans, all of one state."""
        return self._read(lambda connection: transactions.read(connection, gets, scans))

    async def commit(self, change: Commit) -> bool:
        """Apply the change if every expectation holds; return whether.

        Raises StoreError if another process holds the file for longer than ``busy_timeout``.
        """
        self._check()
        writer = self._writing()
        job = Job(change)
        try:
            self._queue.append(job)
            while job.answer is None:
                if self._turn.locked():
                    job.wait()
                    continue
                with self._my_turn():
                    while job.answer is None:
                        if self._closed:
                            self._queue.remove(job)  # in this turn, or the close would apply it
                        self._check()
                        self._serve(writer)
        finally:
            if job.answer is None:  # it was refused or interrupted
                with self._my_turn(), suppress(ValueError):
                    self._queue.remove(job)
        try:
            if isinstance(job.answer, Exception):
                raise job.answer
            return bool(job.answer)
        finally:
            # The error's traceback holds this frame; without ``del`` the two would form a cycle.
            del job

    async def now(self) -> datetime:
        """Return the time of the clock that the store was given."""
        self._check()
        return self._clock()

    async def scrub(self) -> Scrubbed:
        """Remove deleted data from the bytes of the file and its log, and remove backups.

        The file is rewritten, which takes time in proportion to its size; commits of this store
        wait meanwhile. If another process is reading or writing, this waits for it up to
        ``busy_timeout``.
        """
        self._check()
        self._writing()
        with self._my_turn():
            self._check()
            if self._connect is None:  # no bytes outlive their row, and there are no backups
                return Scrubbed(done=True)
            return files.scrub(self._file, busy_timeout=self._busy_timeout)

    async def close(self) -> None:
        """End the reads and commits under way and close the file. A second call is harmless.

        Raises ForkedProcessError in a process that was forked since.
        """
        check_home(self._home)
        self._close()

    # -- of a file

    async def check(self) -> list[str]:
        """Read the whole file and return the damage found; the list is empty if there is none."""
        return self._read(files.check)

    async def backup(self, target: Path) -> None:
        """Copy the store to a new file, complete or not at all; reads and commits go on meanwhile.

        Raises UsageError where there is something at ``target``, StoreError where it cannot be
        written.
        """
        self._read(partial(files.back_up, target=target, busy_timeout=self._busy_timeout))

    # -- threads

    def _check(self) -> None:
        """Raise ForkedProcessError in a forked process, and ClosedError after ``close``."""
        let_fork()
        check_home(self._home)
        if self._closed:
            raise ClosedError("the store is closed; open it again")

    def _writing(self) -> Writer:
        if self._writer is None:
            raise ReadOnlyError
        return self._writer

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``work`` returns for a connection that nobody else uses meanwhile."""
        self._check()
        if self._connect is None:
            with self._my_turn():
                self._check()
                return _run(self._writing().connection, work)
        connection: sqlite3.Connection | None = None
        mark = object()
        try:
            with self._reads:
                self._check()
                self._under_way.add(mark)
                if self._idle:
                    connection = self._idle.pop()
            if connection is None:
                connection = self._connected()
            return _run(connection, work)
        finally:
            with self._reads:
                self._under_way.discard(mark)
                self._reads.notify_all()
                if connection and len(self._idle) < self._readers and not self._closed:
                    self._idle.append(connection)
                    connection = None
            if connection:
                _close(connection)

    @finish_before_fork
    def _connected(self) -> sqlite3.Connection:
        assert self._connect is not None
        try:
            return self._connect()
        except FAILURES as error:
            raise translate(error) from None

    @contextmanager
    def _my_turn(self) -> Generator[None]:
        """Have the turn; then let the first commit that waits take it."""
        try:
            with self._turn:
                try:
                    yield
                finally:
                    self._dismiss()
        finally:
            with suppress(IndexError):  # whoever waits had seen the turn taken, so it is in there
                self._queue[0].wake()

    def _serve(self, writer: Writer) -> None:
        """Commit what waits; the caller has the turn."""
        writer.commit([job for job in islice(self._queue, _GROUP) if job.answer is None])
        self._dismiss()

    def _dismiss(self) -> None:
        """Let the threads go on whose commits were answered: they are the first of the queue."""
        queue = self._queue
        while queue and queue[0].answer is not None:
            queue.popleft().wake()

    @finish_before_fork
    def _close(self) -> None:
        self._closed = True
        with self._my_turn():
            if self._writer is not None:
                while self._queue:
                    self._serve(self._writer)
                self._writer.connection.close()
        with self._reads:
            self._reads.wait_for(lambda: not self._under_way)
            while self._idle:
                self._idle.pop().close()


@finish_before_fork
def _close(connection: sqlite3.Connection) -> None:
    connection.close()


def _run(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        return work(connection)
    except Exception as error:  # noqa: BLE001 - it is raised again
        raise translate(error) from None
    finally:
        if connection.in_transaction:
            connection.rollback()
