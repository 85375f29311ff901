"""One tenant's handle on an SQLite store, and that of one tree of a session.

Each method names the function that does the work, and says whether it reads or writes. The
statements are in ``reads``, ``writes``, ``trees`` and ``segments``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from hiermem.stores.contract import named_after
from hiermem.stores.dump import missing, received
from hiermem.stores.sqlite import reads, segments, trees, writes
from hiermem.stores.sqlite.reads import Part, TreeOf
from hiermem.stores.sqlite.workers import Transaction
from hiermem.types.transaction import (
    NO_SESSION,
    Changes,
    Deciding,
    Scrubbed,
    Snapshot,
    StoredRow,
)

if TYPE_CHECKING:
    from hiermem.stores.sqlite import SQLiteStore

Of = TypeVar("Of")
P = ParamSpec("P")
T = TypeVar("T")


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
