"""The threads that SQLite runs on: one thread writes, a few threads read.

A write is answered only after the commit that holds it. Writes that wait together share one commit,
and a write that fails is undone alone. A thread that may block does its own write when no other
write waits. This module does not decide which statements run.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from hiermem.atfork import at_fork, finish_before_fork
from hiermem.errors import ClosedError, ReadOnlyError, StoreError
from hiermem.process import HomeProcess
from hiermem.stores.contract import system_time, to_micros
from hiermem.stores.sqlite import connections
from hiermem.stores.sqlite.connections import FAILURES, MOST_LOG, translate
from hiermem.types import SessionRecord
from hiermem.types.transaction import Due

T = TypeVar("T")

#: The number of writes that may share one commit; with more, the first write would wait too long.
_GROUP = 256
#: Seconds that a fork waits for reads and writes under way.
PATIENCE = 5.0
#: The number of sessions whose head the writer remembers.
_REMEMBERED = 1024
# A new entry begins at a random number, which no earlier entry of the session had: an earlier claim
# must not hold again.
ENTER: Final = (
    "INSERT INTO due (session, due_at, generation, claimed) {} abs(random() / 8), {} {} "
    "ON CONFLICT (session) DO "
)
# While a session is claimed, due_at is the end of the claim. What becomes due then is noted as 2.
_NOTE: Final = (
    ENTER.format("VALUES (?, ?,", "0)", "")
    + "UPDATE SET due_at = iif(claimed = 0, excluded.due_at, due_at), claimed = iif(claimed, 2, 0) "
    "WHERE claimed = 1 OR (claimed = 0 AND due_at > excluded.due_at)"
)


class Transaction:
    """The connection that a write uses, inside a transaction that it may share with other writes.

    ``heads`` maps (tenant, session id) to (number, record) as this transaction sees the session. It
    is emptied whenever another connection has committed. ``now`` returns the store's time.
    ``busy_timeout`` is the number of seconds that it waits for the lock.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: Callable[[], datetime] = system_time,
        *,
        read_only: bool = False,
        busy_timeout: float = 0.0,
    ) -> None:
        self.connection = connection
        self._read_only = read_only
        self._busy_timeout = busy_timeout
        self.now = now
        self.heads: dict[tuple[str, str], tuple[int, SessionRecord]] = {}
        #: True while a decision runs: an error that the decision raises is not translated.
        self.deciding = False
        self._grouped = False
        self._marked = False
        self._seen: int | None = None
        self._durable = True
        self._log_limit = MOST_LOG

    def use(self, connection: sqlite3.Connection) -> None:
        """Continue on another connection to the same file."""
        self.connection = connection
        self.heads.clear()
        self._seen = None
        self._durable = True

    def writing(self) -> None:
        """Mark the point to return to if this write fails; call this before the first change.

        Raises ReadOnlyError where the store is only read: a decision may read and change nothing.
        """
        if self._read_only:
            raise ReadOnlyError
        if self._grouped and not self._marked:
            self.connection.execute("SAVEPOINT one")
        self._marked = True

    def note_due(self, number: int, due: Due | None) -> None:
        """Enter when the session of that number is due, unless it is by then."""
        if due is not None:
            at = due.at or self.now() + timedelta(seconds=due.delay)
            self.connection.execute(_NOTE, (number, to_micros(at)))

    # -- for the writer

    def bound_log(self) -> None:
        """Empty the write-ahead log if it is long; a failure only leaves it so."""
        path = getattr(self.connection, "path", None)
        if path is None:
            return
        with suppress(OSError, *FAILURES):
            size = os.stat(f"{path}-wal").st_size  # noqa: PTH116 - after each commit; ten times faster
            # Another process may have cut it meanwhile.
            self._log_limit = min(self._log_limit, size + MOST_LOG) if size > MOST_LOG else MOST_LOG
            if size > self._log_limit:
                self._log_limit = size + MOST_LOG
                connections.empty_log(self.connection, patience=connections.LOG_PATIENCE)

    def begin(self, *, grouped: bool, durable: bool) -> None:
        """Take the write lock; forget the heads if another connection has committed meanwhile.

        A commit that is not ``durable`` waits for no sync. The next one that is syncs both. A power
        loss before that undoes it, and leaves the file sound.
        """
        self._lock(durable=durable)
        self._grouped = grouped
        (seen,) = self.connection.execute("PRAGMA data_version").fetchone()
        if seen != self._seen or len(self.heads) > _REMEMBERED:
            self.heads.clear()
            self._seen = seen

    def _lock(self, *, durable: bool) -> None:
        def lock() -> None:
            # The pragma reads the schema, so another process may be in its way, too.
            if durable is not self._durable:
                level = "FULL" if durable else "NORMAL"
                self.connection.execute(f"PRAGMA synchronous = {level}")
                self._durable = durable
            self.connection.execute("BEGIN IMMEDIATE")

        connections.patiently(lock, patience=self._busy_timeout)

    def keep(self) -> None:
        """Join this write to its group."""
        if self._grouped and self._marked:
            self.connection.execute("RELEASE one")
        self._marked = False

    def undo(self) -> None:
        """Undo this write alone.

        Raises sqlite3.OperationalError if SQLite has already undone the whole group.
        """
        self.deciding = False
        if self._marked:
            # A write records a head only after its last statement. But it may have read and
            # remembered a head after a change of its own.
            self.heads.clear()
            if self._grouped:
                self.connection.execute("ROLLBACK TO one")
                self.connection.execute("RELEASE one")
        self._marked = False

    def abandon(self) -> None:
        """Undo the whole group unless SQLite has already done so; raise nothing."""
        self.heads.clear()
        self._marked = False
        if self.connection.in_transaction:
            # If even this fails, the next BEGIN fails too and reports it to the next caller.
            with suppress(*FAILURES):
                self.connection.execute("ROLLBACK")


class _Job(Generic[T]):
    """A piece of work and its outcome, and the future that waits for it, if a task does."""

    __slots__ = ("durable", "error", "future", "result", "work")

    def __init__(
        self,
        work: Callable[[Any], T],
        future: asyncio.Future[T] | None = None,
        *,
        durable: bool = True,
    ) -> None:
        self.work = work
        self.future = future
        self.durable = durable
        self.result: T | None = None
        self.error: BaseException | None = None

    @property
    def cancelled(self) -> bool:
        """Return whether the waiting task was cancelled."""
        return self.future is not None and self.future.cancelled()

    def settle(self) -> None:
        """Set the outcome on the waiting future; this runs in the future's event loop."""
        if self.future is None or self.future.done():  # the waiting task was cancelled
            return
        if self.error is None:
            self.future.set_result(self.result)  # type: ignore[arg-type]
        elif isinstance(self.error, StopIteration):  # a future cannot carry it
            self.future.set_exception(RuntimeError("the decision raised StopIteration"))
        else:
            self.future.set_exception(self.error)


def _settle_all(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        job.settle()


def _answer(jobs: Sequence[_Job[Any]]) -> None:
    """Wake each event loop once for all of its jobs; work of ``run_here`` waits in no loop."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
    for job in jobs:
        if job.future is not None:
            loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, mine in loops.items():
        try:
            loop.call_soon_threadsafe(_settle_all, mine)
        except RuntimeError:  # the loop was closed, so no task waits any more
            continue


@finish_before_fork
def _close(connection: sqlite3.Connection) -> None:
    connection.close()


class _Worker:
    """A queue of jobs, and the one or more threads that process them."""

    def __init__(self) -> None:
        self._home = HomeProcess()
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[Any], T], *, durable: bool = True) -> T:
        """Do ``work`` on a thread of this worker and return its result, or raise its error.

        A write that need not be ``durable`` may be lost in a power loss.

        If the waiting task is cancelled, work that has not begun is skipped and work that has begun
        is finished. In both cases the work takes effect as a whole or not at all.

        Raises ForkedProcessError in a process that was forked since, where the threads are missing.
        """
        self._home.check()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = _Job(work, future, durable=durable)
        with self._guard:
            if self._closed:
                raise ClosedError("the store is closed; open it again")
            self._queue.put(job)
            self._hire()
        try:
            return await future
        finally:
            # An error's traceback holds this frame; without ``del`` the two would form a cycle.
            del job, future

    def _hire(self) -> None:
        """Make sure that a thread exists for the job that was just queued."""

    def close(self) -> None:
        """Finish the queued jobs, then end the threads; this blocks. A second call is harmless.

        Raises ForkedProcessError in a process that was forked since.
        """
        self._home.check()
        with self._guard:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            thread.join()


class Writer(_Worker):
    """The one thread that writes; it owns ``connection`` and closes it.

    A thread that may block can do its own write with ``run_here`` while no other write waits.
    ``reconnect`` opens another connection to the same file, after a fork; a database in memory has
    none.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        reconnect: Callable[[], sqlite3.Connection] | None = None,
        *,
        clock: Callable[[], datetime] = system_time,
        busy_timeout: float = 0.0,
    ) -> None:
        super().__init__()
        self._reconnect = reconnect
        self._disconnected = False
        self._paused = False
        # The thread that holds this lock is the one that writes.
        self._turn = threading.Lock()
        self._wanted = False
        self._transaction = Transaction(connection, clock, busy_timeout=busy_timeout)
        thread = threading.Thread(target=self._work, name="hiermem-writer", daemon=True)
        self._threads.append(thread)
        thread.start()
        with _forking:
            _workers.add(self)

    def pause_for_fork(self, until: float) -> None:
        """Keep the turn, if it comes by ``until``, and close the connection to a file."""
        self._paused = self._turn.acquire(timeout=max(0.0, until - time.monotonic()))
        if self._paused and self._reconnect is not None:
            self._transaction.connection.close()
            self._disconnected = True

    def resume_after_fork(self) -> None:
        """Return the turn; the next write opens a connection."""
        if self._paused:
            self._paused = False
            self._turn.release()

    def _work(self) -> None:
        queue = self._queue
        going = True
        while going:
            job = queue.get()
            jobs: list[_Job[Any]] = []
            while job is not None:
                if not job.cancelled:
                    jobs.append(job)
                if len(jobs) == _GROUP:
                    break
                try:
                    job = queue.get_nowait()
                except Empty:
                    break
            going = job is not None
            left: Sequence[_Job[Any]] = jobs
            self._wanted = True
            with self._turn:
                self._wanted = False
                while left:
                    left = self._commit(left)
        with self._turn:
            _close(self._transaction.connection)

    def run_here(self, work: Callable[[Transaction], T]) -> T | None:
        """Do ``work`` on this thread, which blocks, and commit it; return None if others go first.

        This avoids waking two threads, which takes as long as the write itself. ``work`` must
        return a result that is not None.
        """
        self._home.check()
        if self._wanted or not self._queue.empty() or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._closed:
                raise ClosedError("the store is closed; open it again")
            job = _Job(work)
            try:
                self._commit([job])
            except BaseException:  # this thread may be interrupted between any two lines
                self._transaction.abandon()
                raise
        finally:
            self._turn.release()
        if job.error is None:
            return job.result
        try:
            raise job.error
        finally:
            # The error's traceback holds this frame; without ``del`` the two would form a cycle.
            del job

    @contextmanager
    def pause(self) -> Generator[sqlite3.Connection]:
        """Keep all writes of this writer waiting meanwhile; block until a running write is done.

        Yields the connection, on which no transaction is open.

        Raises ClosedError after ``close``.
        """
        self._home.check()
        with self._turn:
            if self._closed:
                raise ClosedError("the store is closed; open it again")
            yield self._transaction.connection

    @finish_before_fork
    def _commit(self, jobs: Sequence[_Job[Any]]) -> Sequence[_Job[Any]]:
        """Process ``jobs`` in one transaction; return the jobs that need another transaction."""
        transaction = self._transaction
        try:
            if self._disconnected and self._reconnect is not None:
                transaction.use(self._reconnect())
                self._disconnected = False
            transaction.begin(grouped=len(jobs) > 1, durable=any(job.durable for job in jobs))
        except FAILURES as error:
            return self._fail(jobs, error, committing=False)
        for place, job in enumerate(jobs):
            try:
                job.result = job.work(transaction)
                transaction.keep()
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
                job.error = error
                if isinstance(error, Exception) and not transaction.deciding:
                    job.error = translate(error)
                try:
                    transaction.undo()
                    lost = not transaction.connection.in_transaction
                except FAILURES:
                    lost = True
                if lost:  # SQLite undid the whole group: a full disk, a failed read
                    self._fail(jobs[: place + 1], error, committing=False)
                    return jobs[place + 1 :]
                if len(jobs) == 1:
                    transaction.abandon()
                    _answer(jobs)
                    return []
        try:
            transaction.connection.execute("COMMIT")
        except FAILURES as error:
            return self._fail(jobs, error, committing=True)
        transaction.bound_log()
        _answer(jobs)
        return []

    def _fail(
        self, jobs: Sequence[_Job[Any]], error: BaseException, *, committing: bool
    ) -> Sequence[_Job[Any]]:
        """Undo everything and answer ``jobs``; a job that failed by itself keeps its error."""
        for job in jobs:
            if job.error is None:
                # Each job gets its own error object, because each is raised with its own traceback.
                if isinstance(error, FAILURES):
                    job.error = translate(error, committing=committing)
                else:
                    job.error = StoreError("a write in the same commit failed; nothing was written")
        self._transaction.abandon()
        _answer(jobs)
        return []


class Readers(_Worker):
    """Up to ``limit`` threads that read, each with its own connection, started when needed."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], limit: int) -> None:
        super().__init__()
        self._connect = connect
        self._limit = limit
        self._busy = 0
        # The connections by thread, and how many of them are in use; none is while ``_paused``.
        self._connections: dict[int, sqlite3.Connection] = {}
        self._turns = threading.Condition()
        self._in_use = 0
        self._paused = False
        with _forking:
            _workers.add(self)

    def _hire(self) -> None:
        # The caller holds the guard. A thread counts as busy as soon as its job is queued.
        self._busy += 1
        if self._busy > len(self._threads) and len(self._threads) < self._limit:
            thread = threading.Thread(target=self._work, name="hiermem-reader", daemon=True)
            self._threads.append(thread)
            thread.start()

    def pause_for_fork(self, until: float) -> None:
        """Close the connections that are not in use by ``until``, and let no read begin."""
        with self._turns:
            self._paused = True
            left = max(0.0, until - time.monotonic())
            if self._turns.wait_for(lambda: not self._in_use, left):
                while self._connections:
                    self._connections.popitem()[1].close()

    def resume_after_fork(self) -> None:
        """Let reads begin again, each on a new connection."""
        with self._turns:
            self._paused = False
            self._turns.notify_all()

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Wait while a fork is under way; no fork begins meanwhile."""
        with self._turns:
            self._turns.wait_for(lambda: not self._paused)
            self._in_use += 1
        try:
            yield
        finally:
            with self._turns:
                self._in_use -= 1
                self._turns.notify_all()

    def _work(self) -> None:
        me = threading.get_ident()
        while (job := self._queue.get()) is not None:
            with self._turn():
                self._read(job, me)
            with self._guard:
                self._busy -= 1
            _answer([job])
        with self._turns:
            connection = self._connections.pop(me, None)
        if connection is not None:
            _close(connection)

    @finish_before_fork
    def _read(self, job: _Job[Any], thread: int) -> None:
        connection = self._connections.get(thread)
        try:
            if not job.cancelled:
                if connection is None:
                    connection = self._connections[thread] = self._connect()
                job.result = job.work(connection)
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            job.error = translate(error) if isinstance(error, Exception) else error
            if connection is not None and connection.in_transaction:
                with suppress(*FAILURES):
                    connection.execute("ROLLBACK")


# Forks: ``connections`` says why no connection may be open then

#: All workers of this process, and those that wait for the end of a fork under way.
_workers: WeakSet[Writer | Readers] = WeakSet()
_paused: list[Writer | Readers] = []
_forking = threading.Lock()


def _before_fork() -> None:
    _forking.acquire()
    until = time.monotonic() + PATIENCE
    for worker in list(_workers):
        worker.pause_for_fork(until)
        _paused.append(worker)
    connections.hold()


def _in_parent() -> None:
    connections.release()
    while _paused:
        _paused.pop().resume_after_fork()
    _forking.release()


def _in_child() -> None:
    connections.inherit()
    _paused.clear()
    _workers.clear()
    _forking.release()


at_fork(before=_before_fork, in_parent=_in_parent, in_child=_in_child)
