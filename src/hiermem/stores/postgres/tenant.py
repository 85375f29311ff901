"""One tenant's handle on a store in PostgreSQL, and that of one tree of a session.

Each method names the statement that does the work. The statements are in ``reads`` and ``writes``,
the decisions in ``decisions``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.core.summaries.due import due_by_nodes
from hiermem.stores.contract import check_record_writes, check_write
from hiermem.stores.dump import missing
from hiermem.stores.postgres import decisions, due, reads, restores, segments
from hiermem.stores.postgres import dump as dumping
from hiermem.stores.postgres import writes as changing
from hiermem.stores.postgres.connections import Sent
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import Statement
from hiermem.stores.receive import receive
from hiermem.types import Node, Revision, SessionRecord, StoredMessage
from hiermem.types.transaction import (
    TERMS,
    Attempt,
    Block,
    Changes,
    Deciding,
    DueSession,
    IndexState,
    LogEvent,
    NeedSession,
    NodeTally,
    NodeWrite,
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

#: Why an erasure leaves the bytes of what it removed.
UNTOUCHED = (
    "PostgreSQL keeps removed rows until they are vacuumed, and longer in its log, replicas and "
    "backups"
)


class PostgresTenant:
    """One tenant's part of a PostgresStore; see ``hiermem.protocols.TenantStore``."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def tenant(self) -> str:
        """Return the tenant's name."""
        return self._scope.name

    @property
    def place(self) -> str:
        """Return how the tenant's store is named to people."""
        return self._scope.place

    async def secret(self) -> bytes:
        """Return the store's secret."""
        return await self._scope.read(reads.secret())

    async def now(self) -> datetime:
        """Return the server's time."""
        found: datetime = await self._scope.read(reads.now())
        return found

    # -- sessions

    async def session(self, session_id: str) -> SessionRecord | None:
        """Return the session's record, or None if it does not exist."""
        return await self._scope.read(reads.session(session_id))

    async def sessions(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        metadata: Mapping[str, str] | None = None,
        order_by: SessionOrder = "created",
    ) -> list[SessionRecord]:
        """Return up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
        return await self._scope.read(
            reads.sessions(after=after, limit=limit, metadata=metadata or {}, order_by=order_by)
        )

    async def count_sessions(self, *, metadata: Mapping[str, str] | None = None) -> int:
        """Return the number of sessions that hold all of ``metadata``."""
        return await self._scope.read(reads.count_sessions(metadata or {}))

    async def forks(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions forked from this session, in the order of their creation."""
        return await self._scope.read(reads.forks(session_id))

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Call ``decide`` with the snapshot and commit its changes, under the session's lock."""
        return await decisions.mutate(self._scope, session_id, decide, keys)

    async def transact(self, decide: Callable[[], Deciding[T]]) -> T:
        """Run a decision that requests its reads, under the locks of what it asks about."""
        return await decisions.transact(self._scope, decide)

    async def read(self, needs: Sequence[SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state of the store."""
        found = await self._scope.read_one_state([reads.answer(*one) for one in needs])
        return [
            answer and answer[1] if isinstance(need, NeedSession) else answer
            for (_, need), answer in zip(needs, found, strict=True)
        ]

    async def erase_all(self) -> int:
        """Remove all data of this tenant; return the number of sessions removed."""
        self._scope.forget()
        counted = Statement("SELECT count(*) FROM sessions WHERE tenant = $1")
        erased = [Statement(f"DELETE FROM {one} WHERE tenant = $1") for one in changing.OF_TENANT]  # noqa: S608
        found = await self._scope.write((), [counted, *erased], whole=True)
        self._scope.forget()
        return int(found[0][0][0])

    async def dump(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        """Return everything kept of the session, page by page, as it is when they begin."""
        if session_id != NO_SESSION and await self.session(session_id) is None:
            raise missing(session_id)
        return dumping.dump(self._scope, session_id)

    async def restore(
        self, rows: AsyncIterable[Sequence[StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned, batch by batch; it is seen when it is whole."""
        receiver = partial(restores.PostgresReceiver, self._scope, replaces)
        await receive(rows, receiver, tenant=self.tenant)

    async def restores(self, session_id: str | None = None) -> list[RestoreState]:
        """Return what restores brought of a session, or all that is unfinished."""
        return await self._scope.read(restores.find(session_id))

    async def scrub(self) -> Scrubbed:
        """Report that removed rows are still in the server's files; nothing is vacuumed."""
        await self.now()  # refuses a closed store
        return Scrubbed(done=False, reason=UNTOUCHED)

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
        return await self._scope.read(reads.messages(session_id, start, stop, thread))

    async def versions(self, session_id: str, index: int) -> list[StoredMessage]:
        """Return the versions of the message from before its edits, oldest first."""
        return await self._scope.read(reads.versions(session_id, index))

    async def flagged(self, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
        """Return up to ``limit`` messages that have ``flag``, the newest first."""
        return await self._scope.read(reads.flagged(session_id, flag, limit))

    async def events(self, session_id: str) -> list[LogEvent]:
        """Return the log's events that are not messages, in the order of their writing."""
        return await self._scope.read(reads.events(session_id))

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> PostgresTree:
        """Return the handle of one of the session's trees, or of the serving tree for None."""
        return PostgresTree(self._scope, session_id, number)

    async def backlog(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` ids of sessions with unfinished nodes in the serving tree."""
        return await self._scope.read(reads.backlog(after, limit))

    async def take_due(self, session_id: str, *, lease: float) -> DueSession | None:
        """Claim the session's entry if it is due or claimed."""
        return await self._scope.write_alone(due.claim_one(self.tenant, session_id, lease))

    async def put_due(self, session_ids: Sequence[str]) -> None:
        """Make those of these sessions due now that have no entry."""
        await self._scope.write((), [due.put(session_ids)])

    async def settle_due(self, claimed: DueSession, *, at: datetime | None = None) -> bool:
        """Remove the entry, or set its next time; return whether."""
        found = await self._scope.write((), [due.settle(claimed, at)])
        return bool(found[0])

    async def reusable(self, input_hash: str) -> Revision | None:
        """Return the tenant's newest revision with this input hash, not degraded, or None."""
        return await self._scope.read(reads.reusable(input_hash))

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the run with the same id."""
        await self._scope.write((), [changing.runs([run])])

    async def run(self, run_id: str) -> RunRecord | None:
        """Return the run with this id, or None if it does not exist."""
        return await self._scope.read(reads.run(run_id))

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Return up to ``limit`` runs, newest first; if ``subject`` is given, only its runs."""
        return await self._scope.read(reads.runs(subject, limit))

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Return up to ``limit`` journalled attempts in the order in which they were recorded."""
        return await self._scope.read(reads.attempts(run_id, session_id, limit))

    async def spent(self, session_id: str | None = None) -> Spent:
        """Return the totals of the journalled attempts of one session, or of the whole tenant."""
        return await self._scope.read(reads.spent(session_id))

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Return the stored view, or None if it does not exist."""
        return await self._scope.read(reads.view(session_id, name))

    async def put_view(self, view: ViewRecord, *, epoch: int | None = None) -> bool:
        """Insert the view, or replace it, unless ``epoch`` is outdated; return whether."""
        epochs = {} if epoch is None else {view.session_id: epoch}
        put = [changing.only_if(epochs), changing.put_view(view)]
        return await self._applied({view.session_id}, put)

    async def _applied(
        self, names: set[str], statements: Sequence[Statement], *, index: Sequence[Sent] = ()
    ) -> bool:
        """Write under the condition of the first statement; return whether it held."""
        found = await self._scope.write(names, statements, index=index)
        return bool(found[0][0][0] == "1")

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Return up to ``limit`` records of ``kind``, ordered by scope, then key."""
        return await self._scope.read(reads.records(kind, scope=scope, key=key, limit=limit))

    async def put_records(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        standing: Sequence[Record] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Apply all writes, record ``attempts`` and return True, or do nothing and return False."""
        check_record_writes(writes)
        names = {one.scope for one in writes} | {one.scope for one in standing} | {*(epochs or {})}
        statements = [
            changing.only_if(epochs or {}, standing, writes),
            *changing.put_records(writes),
            *changing.attempts(attempts),
        ]
        return await self._applied(names, statements)

    # -- blocks

    async def blocks(
        self, session_id: str, kind: str, start: int = 0, stop: int | None = None
    ) -> list[Block]:
        """Return the blocks of ``kind`` whose own ``start`` is in the range, by ``start``."""
        return await self._scope.read(reads.blocks(session_id, kind, start, stop))

    async def put_blocks(self, session_id: str, blocks: Sequence[Block], *, epoch: int) -> bool:
        """Insert the blocks, or replace those of the same kind and start, unless outdated."""
        put = [changing.only_if({session_id: epoch}), *changing.put_blocks(session_id, blocks)]
        terms = any(block.kind == TERMS for block in blocks)
        together = [self._scope.index_lock(together=True)] if terms else []
        return await self._applied({session_id}, put, index=together)

    async def drop_blocks(self, session_id: str, kind: str) -> None:
        """Remove all blocks of ``kind``."""
        dropped = list(changing.drop_blocks(session_id, kind))
        alone = [self._scope.index_lock()] if kind == TERMS else []
        await self._scope.write({session_id}, dropped, index=alone)

    # -- the index over all sessions

    async def index_state(
        self, pages: Sequence[int] = (), *, limit: int | None = 100
    ) -> IndexState:
        """Return the segments with these pages, the loose blocks, and what has no block."""
        found = await self._scope.read_one_state(segments.state(pages, limit))
        return segments.read_state(found)

    async def put_segment(
        self,
        blocks: Sequence[PlacedBlock],
        pages: Mapping[int, bytes],
        *,
        replaces: Sequence[int] = (),
    ) -> bool:
        """Dissolve the segments ``replaces`` and put one made of ``blocks``; return whether."""
        names = {one.session.id for one in blocks}
        put = list(segments.put(blocks, pages, replaces))
        return await self._applied(names, put, index=[self._scope.index_lock()])

    async def segment_blocks(self, places: Sequence[tuple[int, int]]) -> list[PlacedBlock]:
        """Return the blocks at these (segment, place) that are not dead."""
        return await self._scope.read(segments.blocks(places))


class PostgresTree:
    """One tree of a session in a PostgresStore; see ``hiermem.protocols.TreeStore``."""

    def __init__(self, scope: Scope, session_id: str, number: int | None) -> None:
        self._scope = scope
        self._of = (session_id, number)

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Return the nodes with these ids that exist, in the order of ``ids``."""
        return await self._scope.read(reads.nodes(*self._of, ids))

    async def level(self, level: int, start: int, stop: int | None = None) -> list[Node]:
        """Return the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        return await self._scope.read(reads.level(*self._of, level, start, stop))

    async def levels(self) -> dict[int, int]:
        """Return the number of sealed nodes for each level that has any."""
        return await self._scope.read(reads.levels(*self._of))

    async def covering(self, thread: str, index: int) -> list[Node]:
        """Return the sealed level-1 nodes of ``thread`` that hold the message, by ordinal."""
        return await self._scope.read(reads.covering(*self._of, thread, index))

    async def provisional(self) -> list[Node]:
        """Return the nodes that are not sealed, ordered by level, then id."""
        return await self._scope.read(reads.provisional(*self._of))

    async def unfinished(self, level: int, after: int, limit: int) -> list[Node]:
        """Return up to ``limit`` sealed nodes of ``level`` that have work left, by ordinal."""
        return await self._scope.read(reads.unfinished(*self._of, level, after, limit))

    async def outdated(
        self, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Return up to ``limit`` sealed nodes of ``level`` with a strategy outside these."""
        return await self._scope.read(
            reads.outdated(*self._of, level, strategies, after=after, limit=limit)
        )

    async def tally(self) -> list[NodeTally]:
        """Return the totals of the sealed nodes for each level and status, in that order."""
        return await self._scope.read(reads.tally(*self._of))

    async def revisions(self, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Return the revisions with these (node id, number) that exist, in this order."""
        return await self._scope.read(reads.revisions(*self._of, wanted))

    async def write_nodes(
        self,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
        attempts_if_applied: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Apply each write whose expectations hold, and record the attempts; return which did."""
        for write in writes:
            check_write(write)
        session_id, tree = self._of
        statements = [
            *(changing.write_node(*self._of, write) for write in writes),
            *changing.attempts(attempts),
            *changing.attempts(attempts_if_applied, changing.if_all_applied(len(writes))),
            *due.note(session_id, due_by_nodes(write.node for write in writes), tree, written=True),
        ]
        found: list[Any] = await self._scope.write({self._of[0]}, statements)
        return [bool(row[1]) for ((row),) in found[: len(writes)]]
