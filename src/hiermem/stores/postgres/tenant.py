"""One tenant's handle on a store in PostgreSQL, and that of one tree of a session.

Each method names the query or the statement that does the work. The statements are in ``reads`` and
``writes``, the decisions in ``decisions``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from hiermem.stores.contract import check_record_writes, check_write, named_after
from hiermem.stores.dump import missing
from hiermem.stores.postgres import decisions, due, reads, segments
from hiermem.stores.postgres import dump as dumping
from hiermem.stores.postgres import writes as changing
from hiermem.stores.postgres.connections import UNSYNCED, Sent
from hiermem.stores.postgres.reads import TreeOf
from hiermem.stores.postgres.scope import Scope
from hiermem.stores.postgres.statements import Query, Statement
from hiermem.stores.receive import received
from hiermem.summaries.due import due_by_nodes
from hiermem.types import transaction as tx

P = ParamSpec("P")
T = TypeVar("T")

#: Why an erasure leaves the bytes of what it removed.
UNTOUCHED = (
    "PostgreSQL keeps removed rows until they are vacuumed, and longer in its log, replicas and "
    "backups"
)


def _reading(
    query: Callable[P, Query[T]],
) -> Callable[Concatenate[PostgresTenant, P], CoroutineType[Any, Any, T]]:
    """Return the method that runs the query."""

    async def method(self: PostgresTenant, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._scope.read(query(*args, **kwargs))

    return named_after(query, method, given=0)


def _of_tree(
    query: Callable[Concatenate[TreeOf, P], Query[T]],
) -> Callable[Concatenate[PostgresTree, P], CoroutineType[Any, Any, T]]:
    """Return the method that runs the query about the handle's tree."""

    async def method(self: PostgresTree, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._scope.read(query(self._of, *args, **kwargs))

    return named_after(query, method, given=1)


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

    secret = _reading(reads.secret)
    now = _reading(reads.now)

    # -- sessions

    session = _reading(reads.session)
    sessions = _reading(reads.sessions)
    count_sessions = _reading(reads.count_sessions)
    forks = _reading(reads.forks)

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[tx.Snapshot], tx.Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Call ``decide`` with the snapshot and commit its changes, under the session's lock."""
        return await decisions.mutate(self._scope, session_id, decide, keys)

    async def transact(self, decide: Callable[[], tx.Deciding[T]]) -> T:
        """Run a decision that requests its reads, under the locks of what it asks about."""
        return await decisions.transact(self._scope, decide)

    async def read(self, needs: Sequence[tx.SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state of the store."""
        return await self._scope.read_one_state([decisions.answer(*one) for one in needs])

    async def erase_all(self) -> int:
        """Remove all data of this tenant; return the number of sessions removed."""
        self._scope.forget()
        counted = Statement("SELECT count(*) FROM sessions WHERE tenant = $1")
        erased = [Statement(f"DELETE FROM {one} WHERE tenant = $1") for one in changing.OF_TENANT]  # noqa: S608
        found = await self._scope.write((), [counted, *erased], whole=True)
        self._scope.forget()
        return int(found[0][0][0])

    async def dump(self, session_id: str) -> AsyncIterator[list[tx.StoredRow]]:
        """Return everything kept of the session, page by page, as it is when they begin."""
        if session_id != tx.NO_SESSION and await self.session(session_id) is None:
            raise missing(session_id)
        return dumping.dump(self._scope, session_id)

    async def restore(
        self, rows: AsyncIterable[Sequence[tx.StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned, in one transaction."""
        async with received(rows, self.tenant) as every:
            await dumping.restore(self._scope, every, replaces)

    async def scrub(self) -> tx.Scrubbed:
        """Report that removed rows are still in the server's files; nothing is vacuumed."""
        await self.now()  # refuses a closed store
        return tx.Scrubbed(done=False, reason=UNTOUCHED)

    # -- messages

    messages = _reading(reads.messages)
    versions = _reading(reads.versions)
    flagged = _reading(reads.flagged)
    events = _reading(reads.events)

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> PostgresTree:
        """Return the handle of one of the session's trees, or of the serving tree for None."""
        return PostgresTree(self._scope, session_id, number)

    reusable = _reading(reads.reusable)

    async def take_due(
        self, session_id: str, *, lease: float, held: tx.DueSession | None = None
    ) -> tx.DueSession | None:
        """Claim a session that nobody holds, or renew the claim ``held``."""
        return await self._scope.write_alone(due.take(self.tenant, session_id, lease, held))

    async def put_due(self, session_ids: Sequence[str]) -> None:
        """Make those of these sessions due now that have no entry."""
        await self._scope.write((), [due.put_due(session_ids)])

    async def settle_due(self, claimed: tx.DueSession, *, at: datetime | None = None) -> bool:
        """End the claim, where it holds; remove the entry or set its next time."""
        return any(await self._scope.write((), due.settle_due(claimed, at)))

    # -- journal and views

    async def put_run(self, run: tx.RunRecord) -> None:
        """Insert the run, or replace the run with the same id."""
        await self._scope.write((), [changing.runs([run])])

    run = _reading(reads.run)
    runs = _reading(reads.runs)
    attempts = _reading(reads.attempts)
    spent = _reading(reads.spent)
    view = _reading(reads.view)

    async def put_view(self, view: tx.ViewRecord, *, epoch: int | None = None) -> bool:
        """Insert the view, or replace it, unless ``epoch`` is outdated; return whether."""
        epochs = {} if epoch is None else {view.session_id: epoch}
        put = [changing.only_if(epochs), changing.put_view(view)]
        return await self._applied({view.session_id}, put, first=[UNSYNCED])

    async def _applied(
        self, names: set[str], statements: Sequence[Statement], *, first: Sequence[Sent] = ()
    ) -> bool:
        """Write under the condition of the first statement; return whether it held."""
        found = await self._scope.write(names, statements, first=first)
        return bool(found[0][0][0] == "1")

    # -- records

    records = _reading(reads.records)

    async def put_records(
        self,
        writes: Sequence[tx.RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        standing: Sequence[tx.Record] = (),
        attempts: Sequence[tx.Attempt] = (),
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

    blocks = _reading(reads.blocks)

    async def put_blocks(self, session_id: str, blocks: Sequence[tx.Block], *, epoch: int) -> bool:
        """Insert the blocks, or replace those of the same kind and start, unless outdated."""
        put = [changing.only_if({session_id: epoch}), *changing.put_blocks(session_id, blocks)]
        terms = any(block.kind == tx.TERMS for block in blocks)
        together = [self._scope.index_lock(together=True)] if terms else []
        return await self._applied({session_id}, put, first=together)

    async def drop_blocks(self, session_id: str, kind: str) -> None:
        """Remove all blocks of ``kind``."""
        dropped = list(changing.drop_blocks(session_id, kind))
        alone = [self._scope.index_lock()] if kind == tx.TERMS else []
        await self._scope.write({session_id}, dropped, first=alone)

    # -- the index over all sessions

    async def index_state(
        self, pages: Sequence[int] = (), *, limit: int | None = 100
    ) -> tx.IndexState:
        """Return the segments with these pages, the loose blocks, and what has no block."""
        found = await self._scope.read_one_state(segments.state(pages, limit))
        return segments.read_state(found)

    async def put_segment(
        self,
        blocks: Sequence[tx.PlacedBlock],
        pages: Mapping[int, bytes],
        *,
        replaces: Sequence[int] = (),
    ) -> bool:
        """Dissolve the segments ``replaces`` and put one made of ``blocks``; return whether."""
        names = {one.session.id for one in blocks}
        put = list(segments.put(blocks, pages, replaces))
        return await self._applied(names, put, first=[self._scope.index_lock()])

    segment_blocks = _reading(segments.segment_blocks)


class PostgresTree:
    """One tree of a session in a PostgresStore; see ``hiermem.protocols.TreeStore``."""

    def __init__(self, scope: Scope, session_id: str, number: int | None) -> None:
        self._scope = scope
        self._of: TreeOf = (session_id, number)

    nodes = _of_tree(reads.nodes)
    level = _of_tree(reads.level)
    levels = _of_tree(reads.levels)
    covering = _of_tree(reads.covering)
    unfinished = _of_tree(reads.unfinished)
    outdated = _of_tree(reads.outdated)
    tally = _of_tree(reads.tally)
    revisions = _of_tree(reads.revisions)

    async def write_nodes(
        self,
        writes: Sequence[tx.NodeWrite],
        *,
        attempts: Sequence[tx.Attempt] = (),
        claim: tx.DueSession | None = None,
    ) -> list[bool] | None:
        """Apply each write whose expectations hold, and record the attempts; return which did."""
        for write in writes:
            check_write(write)
        session_id, tree = self._of
        left = None if claim else due_by_nodes(write.node for write in writes)
        statements = [
            *([due.fence(session_id, claim)] if claim else ()),
            *(changing.write_node(self._of, write) for write in writes),
            *changing.attempts(attempts),
            # Whoever holds the claim settles what is left.
            *due.note(session_id, left, tree, written=True),
        ]
        found: list[Any] = await self._scope.write({session_id}, statements)
        if claim and found.pop(0)[0][0] == "0":
            return None
        return [bool(row[1]) for ((row),) in found[: len(writes)]]
