"""The threads that SQLite runs on: one that writes, a few that read.

A write is answered only after the commit that holds it. Writes that wait together share one commit,
and a write that fails is undone alone. A thread that may block does its own write when no other
write waits. This module does not decide which statements run.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from hiermem.errors import MemoryClosedError, StoreError
from hiermem.stores.sqlite.failures import FAILURES, translate
from hiermem.types import SessionRecord

T = TypeVar("T")

#: Writes that may share one commit; beyond it the first of them would wait too long.
_GROUP = 256
#: Sessions whose head the writer remembers.
_REMEMBERED = 1024


class Transaction:
    """What a write works with: the connection, inside a transaction that is not its own alone.

    ``heads`` are the (number, record) of sessions as this transaction sees them, by (tenant, id).
    It is emptied whenever another connection has committed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.heads: dict[tuple[str, str], tuple[int, SessionRecord]] = {}
        #: Set while a decision runs: what it raises is its own affair and is not translated.
        self.deciding = False
        self._grouped = False
        self._marked = False
        self._seen: int | None = None

    def writing(self) -> None:
        """Mark the point to go back to should this write fail; call it before the first change."""
        if self._grouped and not self._marked:
            self.connection.execute("SAVEPOINT one")
        self._marked = True

    # -- for the writer

    def begin(self, *, grouped: bool) -> None:
        """Take the write lock; forget the heads where another connection committed meanwhile."""
        self.connection.execute("BEGIN IMMEDIATE")
        self._grouped = grouped
        (seen,) = self.connection.execute("PRAGMA data_version").fetchone()
        if seen != self._seen or len(self.heads) > _REMEMBERED:
            self.heads.clear()
            self._seen = seen

    def keep(self) -> None:
        """Join this write to its group."""
        if self._grouped and self._marked:
            self.connection.execute("RELEASE one")
        self._marked = False

    def undo(self) -> None:
        """Undo this write alone.

        Raises sqlite3.OperationalError where SQLite has already undone the whole group.
        """
        self.deciding = False
        if self._marked:
            # A write records a head only after its last statement, but what it read may be one
            # that it had changed before.
            self.heads.clear()
            if self._grouped:
                self.connection.execute("ROLLBACK TO one")
                self.connection.execute("RELEASE one")
        self._marked = False

    def abandon(self) -> None:
        """Undo the whole group, where SQLite has not already done so; raises nothing."""
        self.heads.clear()
        self._marked = False
        if self.connection.in_transaction:
            # Where even this fails, the next BEGIN fails and says so to whoever comes next.
            with suppress(*FAILURES):
                self.connection.execute("ROLLBACK")


class Busy:
    """What ``run_here`` gives where other writes go first."""


BUSY: Final = Busy()


class _Work(Generic[T]):
    """A piece of work and its outcome; who does it here and now needs no more."""

    __slots__ = ("error", "result", "work")

    def __init__(self, work: Callable[[Any], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None


class _Job(_Work[T]):
    """A piece of work and the future, in its own event loop, that waits for its outcome."""

    __slots__ = ("future", "loop")

    def __init__(self, work: Callable[[Any], T]) -> None:
        super().__init__(work)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()

    def settle(self) -> None:
        """Hand the outcome to the waiting future; runs in its event loop."""
        if self.future.done():  # the one who waited was cancelled
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


def _answer(jobs: Sequence[_Work[Any]]) -> None:
    """Wake each event loop once for all of its jobs; work done here and now waits in none."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
    for job in jobs:
        if isinstance(job, _Job):
            loops.setdefault(job.loop, []).append(job)
    for loop, mine in loops.items():
        try:
            loop.call_soon_threadsafe(_settle_all, mine)
        except RuntimeError:  # the loop was closed; nobody waits any more
            continue


class _Worker:
    """A queue whose jobs are worked off by one or more threads."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._closed = False

    async def run(self, work: Callable[[Any], T]) -> T:
        """Do ``work`` on a thread of this worker and give its result, or raise its error.

        Where the waiting task is cancelled, work not yet begun is left out and work begun is
        finished; either way it took effect as a whole or not at all.
        """
        job = _Job(work)
        with self._guard:
            if self._closed:
                raise MemoryClosedError("the store is closed; open it again")
            self._queue.put(job)
            self._hire()
        try:
            return await job.future
        finally:
            # An error's traceback holds this frame; without it the two would be a cycle.
            del job

    def _hire(self) -> None:
        """Make sure that there is a thread for the job just queued."""

    def close(self) -> None:
        """Finish what is queued, then end the threads; blocks. Calling it twice is harmless."""
        with self._guard:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            thread.join()


class Writer(_Worker):
    """The one thread that writes; it owns ``connection`` from here on and closes it.

    A thread that may block can do its own write while nobody else waits for one: ``run_here``.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        # Whoever holds it is the one who writes.
        self._turn = threading.Lock()
        self._wanted = False
        self._transaction = Transaction(connection)
        thread = threading.Thread(target=self._work, name="hiermem-writer", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        queue = self._queue
        going = True
        while going:
            job = queue.get()
            jobs: list[_Job[Any]] = []
            while job is not None:
                if not job.future.cancelled():
                    jobs.append(job)
                if len(jobs) == _GROUP:
                    break
                try:
                    job = queue.get_nowait()
                except Empty:
                    break
            going = job is not None
            left: Sequence[_Work[Any]] = jobs
            self._wanted = True
            with self._turn:
                self._wanted = False
                while left:
                    left = self._commit(left)
        with self._turn:
            self._transaction.connection.close()

    def run_here(self, work: Callable[[Transaction], T]) -> T | Busy:
        """Do ``work`` on this thread, which blocks, and commit it; BUSY where others go first.

        Two threads need not be woken then, which takes as long as the write itself.
        """
        if self._wanted or not self._queue.empty() or not self._turn.acquire(blocking=False):
            return BUSY
        try:
            if self._closed:
                raise MemoryClosedError("the store is closed; open it again")
            job = _Work(work)
            try:
                self._commit([job])
            except BaseException:  # an interrupt, which this thread may get between any two lines
                self._transaction.abandon()
                raise
        finally:
            self._turn.release()
        if job.error is None:
            return job.result  # type: ignore[return-value]
        try:
            raise job.error
        finally:
            # The error's traceback holds this frame; without it the two would be a cycle.
            del job

    @contextmanager
    def pause(self) -> Generator[None]:
        """Let nobody write through this writer meanwhile; blocks while somebody does.

        Raises MemoryClosedError after ``close``.
        """
        with self._turn:
            if self._closed:
                raise MemoryClosedError("the store is closed; open it again")
            yield

    def _commit(self, jobs: Sequence[_Work[Any]]) -> Sequence[_Work[Any]]:
        """Work off ``jobs`` in one transaction; give those that have to go into another one."""
        transaction = self._transaction
        try:
            transaction.begin(grouped=len(jobs) > 1)
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
        _answer(jobs)
        return []

    def _fail(
        self, jobs: Sequence[_Work[Any]], error: BaseException, *, committing: bool
    ) -> Sequence[_Work[Any]]:
        """Undo everything; answer those of ``jobs`` that had not failed by themselves."""
        for job in jobs:
            if job.error is None:
                # One error object a job: each is raised with a traceback of its own.
                if isinstance(error, FAILURES):
                    job.error = translate(error, committing=committing)
                else:
                    job.error = StoreError("a write in the same commit failed; nothing was written")
        self._transaction.abandon()
        _answer(jobs)
        return []


class Readers(_Worker):
    """Up to ``limit`` threads that read, each with a connection of its own, hired when needed."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], limit: int) -> None:
        super().__init__()
        self._connect = connect
        self._limit = limit
        self._busy = 0

    def _hire(self) -> None:
        # Called under the guard. A thread counts as busy from the moment its job is queued.
        self._busy += 1
        if self._busy > len(self._threads) and len(self._threads) < self._limit:
            thread = threading.Thread(target=self._work, name="hiermem-reader", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while (job := self._queue.get()) is not None:
            try:
                if not job.future.cancelled():
                    connection = connection or self._connect()
                    job.result = job.work(connection)
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
                job.error = translate(error) if isinstance(error, Exception) else error
                if connection is not None and connection.in_transaction:
                    with suppress(*FAILURES):
                        connection.execute("ROLLBACK")
            with self._guard:
                self._busy -= 1
            _answer([job])
        if connection is not None:
            connection.close()
