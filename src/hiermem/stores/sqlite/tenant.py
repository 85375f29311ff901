"""One tenant's handle on an SQLite store.

Each method names the function that does the work, and says whether it reads or writes. The
statements are in ``reads``, ``writes``, ``puts`` and ``removal``, ``records`` and ``blocks``. The
handle of one tree is in ``tree``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.stores.dump import missing
from hiermem.stores.receive import receive
from hiermem.stores.sqlite import blocks as block_rows
from hiermem.stores.sqlite import due, puts, reads, records, removal, restores, segments, tree_reads
from hiermem.stores.sqlite import dump as dumping
from hiermem.stores.sqlite import writes as changing
from hiermem.stores.sqlite.answers import answers
from hiermem.stores.sqlite.tree import SQLiteTree
from hiermem.stores.sqlite.workers import Busy, Connections
from hiermem.types import Revision, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    Attempt,
    Block,
    Changes,
    Deciding,
    DueSession,
    IndexState,
    LogEvent,
    PlacedBlock,
    Record,
    RecordWrite,
    RestoreState,
    RunRecord,
    Scrubbed,
    SessionNeed,
    SessionOrder,
    Snapshot,
    Spent,
    StoredRow,
    ViewRecord,
)

T = TypeVar("T")


class SQLiteTenant:
    """One tenant's part of a SQLiteStore; see ``hiermem.protocols.TenantStore``."""

    def __init__(self, store: Connections, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def tenant(self) -> str:
        """Return the tenant's name."""
        return self._name

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

    async def session(self, session_id: str) -> SessionRecord | None:
        """Return the session's record, or None if it does not exist."""
        return await self._store.read(reads.session, self._name, session_id)

    async def sessions(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        metadata: Mapping[str, str] | None = None,
        order_by: SessionOrder = "created",
    ) -> list[SessionRecord]:
        """Return up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
        return await self._store.read(
            reads.sessions,
            self._name,
            after=after,
            limit=limit,
            metadata=dict(metadata or {}),
            order_by=order_by,
        )

    async def count_sessions(self, *, metadata: Mapping[str, str] | None = None) -> int:
        """Return the number of sessions that hold all of ``metadata``."""
        return await self._store.read(
            reads.count_sessions, self._name, metadata=dict(metadata or {})
        )

    async def forks(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions forked from this session, in the order of their creation."""
        return await self._store.read(reads.forks, self._name, session_id)

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` with it and commit its changes atomically.

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
        """Do the same as ``mutate`` on this thread, which blocks; return None if other writes wait.

        ``decide`` must return a result that is not None.
        """
        name = self._name
        given = self._store.write_here(
            lambda transaction: changing.mutate(transaction, name, session_id, decide, keys)
        )
        return None if isinstance(given, Busy) else given

    async def transact(self, decide: Callable[[], Deciding[T]]) -> T:
        """Run a decision that requests its reads, and commit its changes atomically.

        The decision runs on the thread that writes, while the write lock is held.
        """
        name = self._name
        return await self._store.write(
            lambda transaction: changing.transact(transaction, name, decide)
        )

    async def read(self, needs: Sequence[SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state of the file."""
        return await self._store.read(answers, self._name, tuple(needs))

    async def erase_all(self) -> int:
        """Remove all data of this tenant; return the number of sessions removed."""
        name = self._name
        return await self._store.write(lambda transaction: removal.everything(transaction, name))

    async def dump(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        """Return everything kept of the session, page by page, as it is when the first one is read.

        Until the last page was read, the file's log cannot be shortened and grows with each write.
        """
        if session_id != NO_SESSION and await self.session(session_id) is None:
            raise missing(session_id)
        return self._store.pages(partial(dumping.dump, tenant=self._name, session_id=session_id))

    async def restore(
        self, rows: AsyncIterable[Sequence[StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned, batch by batch; it is seen when it is whole."""
        receiver = partial(restores.SQLiteReceiver, self._store, self._name, replaces)
        await receive(rows, receiver, tenant=self._name)

    async def restores(self, session_id: str | None = None) -> list[RestoreState]:
        """Return what restores brought of a session, or all that is unfinished."""
        return await self._store.read(restores.find, self._name, session_id)

    async def scrub(self) -> Scrubbed:
        """Remove deleted data from the bytes of the file and its log, and remove backups.

        The file is rewritten, which takes time in proportion to its size; this store's writes wait
        meanwhile. If another process is reading or writing, this waits for it up to
        ``busy_timeout``.
        """
        return await self._store.scrub()

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Return the messages with ``start <= index < stop``, ordered by index.

        If ``thread`` is given, only its messages are returned.
        """
        return await self._store.read(
            reads.messages, self._name, session_id, start, stop, thread=thread
        )

    async def versions(self, session_id: str, index: int) -> list[StoredMessage]:
        """Return the versions of the message from before its edits, oldest first."""
        return await self._store.read(reads.versions, self._name, session_id, index)

    async def flagged(self, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
        """Return up to ``limit`` messages that have ``flag``, the newest first."""
        return await self._store.read(reads.flagged, self._name, session_id, flag, limit)

    async def events(self, session_id: str) -> list[LogEvent]:
        """Return the log's events that are not messages, in the order of their writing."""
        return await self._store.read(reads.events, self._name, session_id)

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> SQLiteTree:
        """Return the handle of one of the session's trees, or of the serving tree for None."""
        return SQLiteTree(self._store, self._name, session_id, number)

    async def backlog(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` ids of sessions with unfinished nodes in the serving tree."""
        return await self._store.read(tree_reads.backlog, self._name, after=after, limit=limit)

    async def take_due(self, session_id: str, *, lease: float) -> DueSession | None:
        """Claim the session's entry if it is due or claimed."""
        found = await self._store.claim(1, lease, (self._name, session_id))
        return found[0] if found else None

    async def put_due(self, session_ids: Sequence[str]) -> None:
        """Make those of these sessions due now that have no entry."""
        name, wanted = self._name, tuple(session_ids)
        await self._store.write(lambda transaction: due.put(transaction, name, wanted))

    async def settle_due(self, claimed: DueSession, *, at: datetime | None = None) -> bool:
        """Remove the entry, or set its next time; return whether."""
        name = self._name
        return await self._store.write(
            lambda transaction: due.settle(transaction, name, claimed, at)
        )

    async def reusable(self, input_hash: str) -> Revision | None:
        """Return the tenant's newest revision with this input hash, or None.

        Degraded revisions are left out.
        """
        return await self._store.read(tree_reads.reusable, self._name, input_hash)

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the run with the same id."""
        name = self._name
        await self._store.write(lambda transaction: puts.put_run(transaction, name, run))

    async def run(self, run_id: str) -> RunRecord | None:
        """Return the run with this id, or None if it does not exist."""
        return await self._store.read(reads.run, self._name, run_id)

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Return up to ``limit`` runs, newest first; if ``subject`` is given, only its runs."""
        return await self._store.read(reads.runs, self._name, subject, limit)

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Return up to ``limit`` journalled attempts in the order in which they were recorded.

        ``run_id`` and ``session_id`` filter the attempts if they are given.
        """
        return await self._store.read(reads.attempts, self._name, run_id, session_id, limit)

    async def spent(self, session_id: str | None = None) -> Spent:
        """Return the totals of the journalled attempts of one session, or of the whole tenant."""
        return await self._store.read(reads.spent, self._name, session_id)

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Return the stored view, or None if it does not exist."""
        return await self._store.read(reads.view, self._name, session_id, name)

    async def put_view(self, view: ViewRecord, *, epoch: int | None = None) -> bool:
        """Insert the view, or replace the view with the same session and name.

        Return whether it was written; it is not if ``epoch`` is given and outdated.
        """
        name = self._name
        return await self._store.write(
            lambda transaction: puts.put_view(transaction, name, view, epoch)
        )

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Return up to ``limit`` records of ``kind``, ordered by scope, then key.

        ``scope`` and ``key`` filter the records if they are given.
        """
        return await self._store.read(
            records.find, self._name, kind, scope=scope, key=key, limit=limit
        )

    async def put_records(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        standing: Sequence[Record] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Apply all writes, record ``attempts`` and return True, or do nothing and return False.

        Nothing is done if an expectation or an epoch does not hold, or if a record of ``standing``
        is not stored exactly as given.
        """
        name, wanted, still, there = self._name, tuple(writes), dict(epochs or {}), tuple(standing)
        tried = tuple(attempts)

        return await self._store.write(
            lambda transaction: puts.put_records(
                transaction, name, wanted, still, standing=there, attempts=tried
            )
        )

    # -- blocks

    async def blocks(
        self, session_id: str, kind: str, start: int = 0, stop: int | None = None
    ) -> list[Block]:
        """Return the blocks of ``kind`` whose own ``start`` is in the range, by ``start``."""
        return await self._store.read(
            block_rows.find, self._name, session_id, kind, start=start, stop=stop
        )

    async def put_blocks(self, session_id: str, blocks: Sequence[Block], *, epoch: int) -> bool:
        """Insert the blocks, or replace the blocks with the same kind and start.

        Return whether they were written; they are not if ``epoch`` is not the session's epoch.
        """
        name, wanted = self._name, tuple(blocks)
        return await self._store.write(
            lambda transaction: puts.put_blocks(transaction, name, session_id, wanted, epoch)
        )

    async def drop_blocks(self, session_id: str, kind: str) -> None:
        """Remove all blocks of ``kind``."""
        name = self._name
        await self._store.write(
            lambda transaction: puts.drop_blocks(transaction, name, session_id, kind)
        )

    # -- the index over all sessions

    async def index_state(
        self, pages: Sequence[int] = (), *, limit: int | None = 100
    ) -> IndexState:
        """Return the segments with these pages, the loose blocks, and what has no block."""
        return await self._store.read(segments.state, self._name, pages=tuple(pages), limit=limit)

    async def put_segment(
        self,
        blocks: Sequence[PlacedBlock],
        pages: Mapping[int, bytes],
        *,
        replaces: Sequence[int] = (),
    ) -> bool:
        """Dissolve the segments ``replaces`` and put one made of ``blocks``; return whether."""
        name, given, held, old = self._name, tuple(blocks), dict(pages), tuple(replaces)
        return await self._store.write(
            lambda transaction: segments.put(transaction, name, given, held, old)
        )

    async def segment_blocks(self, places: Sequence[tuple[int, int]]) -> list[PlacedBlock]:
        """Return the blocks at these (segment, place) that are not dead."""
        return await self._store.read(segments.blocks, self._name, tuple(places))
