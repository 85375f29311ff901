"""Runs reads and commits on connections: rows by key, ranges, a commit whole or not at all.

Commits that wait together share one transaction and one sync. In it, each sees those before it, so
that one whose expectations no longer hold changes nothing. If a statement fails, the transaction is
undone and each commit of it gets one of its own, in which it fails or succeeds alone.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress

from hiermem.atfork import finish_before_fork
from hiermem.records.tables import Commit, Found, Key, Row, Scan
from hiermem.stores.sqlite import connections, statements
from hiermem.stores.sqlite.connections import FAILURES, MOST_LOG, translate


@finish_before_fork
def read(connection: sqlite3.Connection, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
    """Return the rows with these keys, and those of the scans, all of one state.

    If it raises, it may leave a transaction open.
    """
    if len(gets) + len(scans) < 2:
        return _read(connection, gets, scans)
    connection.execute("BEGIN")
    found = _read(connection, gets, scans)
    connection.execute("COMMIT")
    return found


def _read(connection: sqlite3.Connection, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
    run = connection.execute
    rows = [run(statements.get(name), columns).fetchone() for name, columns in gets]
    ranges: list[list[Row]] = []
    for name, prefix, after, below, index, limit, reverse in scans:
        counts = len(prefix), len(after), len(below)
        limited = limit is not None
        sql = statements.ranged(name, index, counts, limited=limited, reverse=reverse)
        values = (*prefix, *after, *below)
        ranges.append(run(sql, (*values, limit) if limited else values).fetchall())
    return Found(rows, ranges)


class Job:
    """A commit that waits, and later its answer: whether it was applied, or an error."""

    __slots__ = ("_gate", "answer", "change")

    def __init__(self, change: Commit) -> None:
        self.change = change
        self.answer: bool | Exception | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self) -> None:
        """Block until somebody calls ``wake``, or has called it since the last time."""
        self._gate.acquire()

    def wake(self) -> None:
        """Let the thread go on that waits here, if there is one."""
        with suppress(RuntimeError):  # it was called already
            self._gate.release()


class Writer:
    """The one connection of a store that writes; whoever uses it holds the store's turn to write.

    ``busy_timeout`` is the number of seconds that it waits for another process.
    """

    def __init__(self, connection: sqlite3.Connection, *, busy_timeout: float = 0.0) -> None:
        self.connection = connection
        self._busy_timeout = busy_timeout
        self._durable = True
        self._log_limit = MOST_LOG

    @finish_before_fork
    def commit(self, jobs: Sequence[Job]) -> None:
        """Answer all jobs; raise only what interrupts this thread.

        Then the jobs without an answer were not applied.
        """
        connection = self.connection
        try:
            self._begin(durable=any(job.change.durable for job in jobs))
        except FAILURES as error:
            _fail(jobs, error)
            return
        applied: list[bool] = []
        try:
            applied = [_apply(connection, job.change) for job in jobs]
            connection.execute("COMMIT" if any(applied) else "ROLLBACK")
            _answer(jobs, applied)
        except BaseException as error:
            was_applied = bool(applied) and not connection.in_transaction
            self._undo()
            if not isinstance(error, Exception):
                if was_applied:
                    _answer(jobs, applied)
                raise
            if applied or len(jobs) == 1:
                _fail(jobs, error, committing=bool(applied))
            else:
                for job in jobs:
                    self.commit([job])
            return
        self._bound_log()

    def _begin(self, *, durable: bool) -> None:
        """Take the write lock.

        A commit that is not ``durable`` waits for no sync. The next one that is syncs both. A power
        loss before that undoes it, and leaves the file sound.
        """
        self._undo()

        def lock() -> None:
            # The pragma reads the schema, so another process may be in its way, too.
            if durable is not self._durable:
                level = "FULL" if durable else "NORMAL"
                self.connection.execute(f"PRAGMA synchronous = {level}")
                self._durable = durable
            self.connection.execute("BEGIN IMMEDIATE")

        connections.patiently(lock, patience=self._busy_timeout)

    def _undo(self) -> None:
        """Undo the transaction if one is open; raise nothing."""
        if self.connection.in_transaction:
            # If even this fails, the next BEGIN fails too and reports it to the next caller.
            with suppress(*FAILURES):
                self.connection.execute("ROLLBACK")

    def _bound_log(self) -> None:
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


def _answer(jobs: Sequence[Job], applied: Sequence[bool]) -> None:
    for job, answer in zip(jobs, applied, strict=True):
        job.answer = answer


def _fail(jobs: Sequence[Job], error: Exception, *, committing: bool = False) -> None:
    """Give each job an error of its own, because each is raised with its own traceback."""
    for job in jobs:
        job.answer = translate(error, committing=committing)


def _apply(connection: sqlite3.Connection, change: Commit) -> bool:
    """Write a change if every expectation holds; return whether."""
    run = connection.execute
    for (name, columns), number in change.expect.items():
        row = run(statements.expected(name), columns).fetchone()
        if (row and row[0]) != number:
            return False
    for name, columns in change.deletes:
        run(statements.delete(name, len(columns)), columns)
    for name, prefix, to, column, below in change.copies:
        sql = statements.copy(name, len(prefix), column)
        run(sql, (*to, *prefix, below))
    for name, rows in change.puts.items():
        connection.executemany(statements.put(name), rows)
    for (name, columns), number in change.adds.items():
        run(statements.add(name), (*columns, number))
    return True
