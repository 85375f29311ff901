"""The embedded default: one SQLite file that several threads and processes may share.

The one rule: every write goes through the one writer thread and is durable when it returns. What a
statement says is decided in ``writes`` and ``reads``, what a row looks like in ``rows``, what a
file must look like in ``files`` and ``schema``; here each method names the function that does it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from hiermem.errors import UsageError
from hiermem.protocols import (
    Attempt,
    Changes,
    LogEvent,
    NodeWrite,
    Record,
    RecordWrite,
    RunRecord,
    Snapshot,
    ViewRecord,
)
from hiermem.stores.sqlite import files, reads, records
from hiermem.stores.sqlite import writes as changing
from hiermem.stores.sqlite.schema import current
from hiermem.stores.sqlite.workers import Busy, Readers, Transaction, Writer
from hiermem.types import Node, Revision, SessionRecord, StoredMessage

__all__ = ["SQLiteStore", "SQLiteTenant"]

T = TypeVar("T")
P = ParamSpec("P")


class SQLiteStore:
    """A store in one SQLite file; open it with ``await SQLiteStore.open(path)``."""

    def __init__(self, *, path: str, writer: Writer, readers: Readers | None) -> None:
        self._path = path
        self._writer = writer
        self._readers = readers

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_timeout: float = 5.0,
        readers: int = 3,
    ) -> SQLiteStore:
        """Open the store at ``path``, making it where there is none; ":memory:" keeps nothing.

        ``busy_timeout`` is how many seconds a write waits for another process; ``readers`` how many
        reads may run at once. An older file is brought forward, after a copy ``<name>.v<n>.bak``.
        Files of up to 32 MB are checked for damage whole, larger ones only their schema.

        Raises NotFoundError where ``create`` is off and there is none, StoreCorruptError where the
        file is not a store or is damaged, StoreNewerError where it is of a newer hiermem; all three
        leave the file untouched. Raises StoreBusyError or StoreError where it cannot be opened.
        """
        name = os.fspath(path)
        if not name:
            raise UsageError("path is empty; give a file name, or ':memory:' to keep nothing")
        if busy_timeout < 0 or readers < 1:
            raise UsageError("busy_timeout must be 0 or more, and readers 1 or more")
        return await asyncio.to_thread(
            cls._open, name, create=create, busy_timeout=busy_timeout, readers=readers
        )

    @classmethod
    def _open(cls, name: str, *, create: bool, busy_timeout: float, readers: int) -> SQLiteStore:
        if name == files.MEMORY:
            connection = files.connect(name, busy_timeout=busy_timeout)
            files.create_in(connection, current())
            return cls(path=name, writer=Writer(connection), readers=None)
        file = Path(name).absolute()
        files.prepare(file, create=create, busy_timeout=busy_timeout, schema=current())
        connect = partial(files.connect, file, busy_timeout=busy_timeout)
        return cls(path=name, writer=Writer(connect()), readers=Readers(connect, readers))

    @property
    def path(self) -> str:
        """Give the path that it was opened with."""
        return self._path

    @property
    def capabilities(self) -> frozenset[str]:
        """Name the optional abilities: a file is durable and may be shared, memory is neither."""
        return frozenset({"durable", "shared"}) if self._readers else frozenset()

    def tenant(self, name: str) -> SQLiteTenant:
        """Give the handle bound to tenant ``name``; does no I/O."""
        return SQLiteTenant(self, name)

    async def check(self) -> list[str]:
        """Read the whole file and give what is wrong with it; an empty list where it is sound."""
        return await self.read(files.check)

    async def close(self) -> None:
        """Finish what was begun and let go of the file. Calling it twice is harmless."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._readers:
            self._readers.close()
        self._writer.close()

    async def read(
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run ``work`` on a connection for reading; for the tenants' handles."""
        if self._readers:
            return await self._readers.run(lambda connection: work(connection, *args, **kwargs))
        # A database in memory has one connection, which is the writer's.
        return await self._writer.run(
            lambda transaction: work(transaction.connection, *args, **kwargs)
        )

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on the writer and wait for its commit; for the tenants' handles."""
        return await self._writer.run(work)

    def write_here(self, work: Callable[[Transaction], T]) -> T | Busy:
        """Run ``work`` on this thread, which blocks; BUSY, at once, where other writes wait."""
        return self._writer.run_here(work)


class SQLiteTenant:
    """One tenant's part of a SQLiteStore; see ``hiermem.protocols.TenantStore``."""

    def __init__(self, store: SQLiteStore, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def tenant(self) -> str:
        """Give the tenant's name."""
        return self._name

    async def secret(self) -> bytes:
        """Give the store's secret."""
        return await self._store.read(reads.secret)

    # -- sessions

    async def session(self, session_id: str) -> SessionRecord | None:
        """Give the session's record, or None."""
        return await self._store.read(reads.session, self._name, session_id)

    async def sessions(self) -> list[SessionRecord]:
        """Give all sessions, in the order of their creation."""
        return await self._store.read(reads.sessions, self._name)

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` once with it and commit its changes, atomically.

        ``decide`` runs on the thread that writes, while the write lock is held.
        """
        name = self._name
        return await self._store.write(
            lambda transaction: changing.mutate(transaction, name, session_id, decide, keys)
        )

    def mutate_here(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T | None:
        """Do what ``mutate`` does on this thread, which blocks; None where other writes wait.

        ``decide`` must give a result that is not None.
        """
        name = self._name
        given = self._store.write_here(
            lambda transaction: changing.mutate(transaction, name, session_id, decide, keys)
        )
        return None if isinstance(given, Busy) else given

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Give the messages with ``start <= index < stop``, of ``thread`` where given, by index."""
        return await self._store.read(
            reads.messages, self._name, session_id, start, stop, thread=thread
        )

    async def events(self, session_id: str) -> list[LogEvent]:
        """Give the log's events that are not messages, in the order they were written."""
        return await self._store.read(reads.events, self._name, session_id)

    # -- nodes and revisions

    async def nodes(self, session_id: str, ids: Sequence[str]) -> list[Node]:
        """Give the nodes with these ids that exist, in the order of ``ids``."""
        return await self._store.read(reads.nodes, self._name, session_id, tuple(ids))

    async def level(
        self, session_id: str, level: int, start: int, stop: int | None = None
    ) -> list[Node]:
        """Give the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        return await self._store.read(
            reads.level, self._name, session_id, level, start=start, stop=stop
        )

    async def levels(self, session_id: str) -> dict[int, int]:
        """Give the number of sealed nodes of each level that has any."""
        return await self._store.read(reads.levels, self._name, session_id)

    async def provisional(self, session_id: str) -> list[Node]:
        """Give the nodes that are not sealed, by level, then id."""
        return await self._store.read(reads.provisional, self._name, session_id)

    async def unfinished(self, session_id: str, level: int, after: int, limit: int) -> list[Node]:
        """Give up to ``limit`` sealed nodes of ``level`` after ``after`` with work left to do."""
        return await self._store.read(
            reads.unfinished, self._name, session_id, level, after=after, limit=limit
        )

    async def revisions(self, session_id: str, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Give the revisions with these (node id, number) that exist, in the order wanted."""
        return await self._store.read(reads.revisions, self._name, session_id, tuple(wanted))

    async def reusable(self, input_hash: str) -> Revision | None:
        """Give the newest revision of this tenant, not degraded, with that input hash, or None."""
        return await self._store.read(reads.reusable, self._name, input_hash)

    async def write_nodes(
        self,
        session_id: str,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Apply each write whose expectations hold and tell which did; record ``attempts``."""
        name, wanted, tried = self._name, tuple(writes), tuple(attempts)
        return await self._store.write(
            lambda transaction: changing.write_nodes(transaction, name, session_id, wanted, tried)
        )

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the one of the same id."""
        name = self._name
        await self._store.write(lambda transaction: changing.put_run(transaction, name, run))

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Give the newest runs first, of one subject where given."""
        return await self._store.read(reads.runs, self._name, subject, limit)

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Give the journalled attempts in the order they started, filtered where asked."""
        return await self._store.read(reads.attempts, self._name, run_id, session_id, limit)

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Give the stored view, or None."""
        return await self._store.read(reads.view, self._name, session_id, name)

    async def put_view(self, view: ViewRecord) -> None:
        """Insert the view, or replace the one of the same session and name."""
        name = self._name
        await self._store.write(lambda transaction: changing.put_view(transaction, name, view))

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Give up to ``limit`` records of ``kind``, filtered where asked, by scope, then key."""
        return await self._store.read(
            records.find, self._name, kind, scope=scope, key=key, limit=limit
        )

    async def put_records(self, writes: Sequence[RecordWrite]) -> bool:
        """Apply all of the writes, or none where an expectation fails; say which."""
        name, wanted = self._name, tuple(writes)
        return await self._store.write(lambda transaction: records.put(transaction, name, wanted))
