"""Runs decisions: reads under locks, writes what was decided, and commits.

The handles on a tenant and on one tree of a session are here too: each method names the query in
``reads`` or the statement in ``writes`` that does the work.

Each session, and each scope of records, has an advisory lock, and so has the tenant. Whoever writes
holds the lock of what is written, and the tenant's together with all other writers. A decision
also holds the lock of everything that it asked about, so that each answer still holds when its
changes are committed. A decision waits for locks only while it holds none, and takes them in the
order of their numbers. A lock that it needs later is only tried; if another transaction holds it,
the decision begins again and waits for all of them. So no two decisions can wait for each other.

A lock and what it protects are never read in one statement: the statement would see the state from
before it waited.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from hiermem.errors import ReadOnlyError
from hiermem.stores import rows
from hiermem.stores.contract import (
    answer_decision,
    answer_to,
    check_changes,
    check_record_writes,
    check_write,
    decode,
    named_after,
)
from hiermem.stores.dump import missing, received
from hiermem.stores.postgres import due, reads, segments, writes
from hiermem.stores.postgres import scope as dumping
from hiermem.stores.postgres import writes as changing
from hiermem.stores.postgres.connections import BEGIN, COMMIT, ONE_STATE, UNSYNCED, Connection, Sent
from hiermem.stores.postgres.due import Query, Statement
from hiermem.stores.postgres.reads import TreeOf
from hiermem.stores.postgres.scope import Scope
from hiermem.summaries.due import due_by_nodes
from hiermem.types import SessionRecord
from hiermem.types import transaction as tx
from hiermem.types.transaction import (
    Batch,
    Changes,
    Deciding,
    KeyEntry,
    Need,
    NeedForks,
    NeedRecords,
    NeedSession,
    SessionNeed,
    Snapshot,
)

if TYPE_CHECKING:
    from hiermem.stores.postgres.scope import Scope


T = TypeVar("T")


class _TakenError(Exception):
    """Another transaction holds a lock that this decision needs."""


@dataclass(slots=True)
class _Run(Generic[T]):
    """One run of a decision on one connection. ``names`` are the locks that it waits for first."""

    scope: Scope
    connection: Connection
    decide: Callable[[], Deciding[T]]
    names: set[str]
    whole: bool = False
    held: set[str] = field(default_factory=set[str])
    begun: bool = False
    heads: dict[str, tuple[int, SessionRecord] | None] = field(
        default_factory=dict[str, "tuple[int, SessionRecord] | None"]
    )

    async def to_the_end(self) -> T:
        batch = await answer_decision(self.decide, self._answers)
        await self._apply(batch)
        return batch.result

    async def _read(
        self, names: set[str], queries: Sequence[Query[Any]], *, whole: bool = False
    ) -> list[Any]:
        """Lock ``names``, or the whole tenant, then read."""
        scope = self.scope
        before: list[Sent] = []
        tried = 0
        if not self.begun:
            self.names |= names
            self.whole |= whole
            before.append(ONE_STATE if scope.read_only else BEGIN)
            before.append(
                scope.prologue()
                if scope.read_only
                else scope.prologue(self.names, whole=self.whole, writing=True)
            )
        elif (names - self.held or (whole and not self.whole)) and not scope.read_only:
            tried = len(names - self.held) + (whole and not self.whole)
            before.append(scope.try_locks(names - self.held, whole=whole and not self.whole))
        sent = [*before, *map(scope.sent, queries)]
        found = await scope.send(self.connection, sent, leaves_open=True)
        self.names |= names
        self.whole |= whole
        if tried and not all(found[0][0]):
            raise _TakenError
        self.begun = True
        self.held |= self.names
        answers = found[len(before) :]
        return [one.read(rows_) for one, rows_ in zip(queries, answers, strict=True)]

    async def _answers(self, needs: Sequence[SessionNeed]) -> list[Any]:
        whole = any(isinstance(need, NeedRecords) and need.everywhere for _, need in needs)
        names = {session_id for session_id, _ in needs}
        found = await self._read(names, list(map(_query, needs)), whole=whole)
        for place, (session_id, need) in enumerate(needs):
            if isinstance(need, NeedSession):
                known = self.heads[session_id] = found[place]
                found[place] = known and known[1]
            elif isinstance(need, NeedForks):
                while others := {one.id for one in found[place]} - self.held:
                    (found[place],) = await self._read(others, [reads.forks(session_id)])
        return found

    async def _apply(self, batch: Batch[Any]) -> None:
        changed = [(id_, changes) for id_, changes in batch.sessions if changes.session is not None]
        if not (changed or batch.delete or batch.runs or batch.drop_records or batch.drop_journals):
            return
        if self.scope.read_only:
            raise ReadOnlyError
        wanted = {id_ for id_, _ in changed}
        wanted |= {changes.copy.source for _, changes in changed if changes.copy is not None}
        unread = sorted(wanted - self.heads.keys())
        names = wanted | {*batch.delete, *(scope for _, scope, _ in batch.drop_records)}
        if not self.begun or unread or names - self.held:
            heads = await self._read(names, [reads.head(id_) for id_ in unread])
            self.heads.update(zip(unread, heads, strict=True))
        before = {id_: self.heads[id_] for id_ in wanted}
        statements = list(self._statements(changed, batch))
        self.scope.forget({*wanted, *batch.delete})
        sent = [*map(self.scope.sent, statements), COMMIT]
        if batch.delete or any(changes.rewrites for _, changes in changed):
            sent.insert(0, self.scope.index_lock())
        await self.scope.send(self.connection, sent, committing=True)
        for id_ in wanted - {*batch.delete}:
            now, then = self.heads[id_], before[id_]
            if now is not None and then is not None:  # the number of a new session is not known
                self.scope.remember(now[0], now[1])

    def _statements(
        self, changed: Sequence[tuple[str, Changes[Any]]], batch: Batch[Any]
    ) -> Iterator[Statement]:
        for session_id, changes in changed:
            after = changes.session
            assert after is not None
            known = self.heads[session_id]
            before = known and known[1]
            source = self.heads.get(changes.copy.source) if changes.copy else None
            check_changes(session_id, before, after, changes, source and source[1])
            yield from writes.record(before, after)
            yield from writes.changed(before, after, changes)
            self.heads[session_id] = (known[0] if known else 0, after)
        for session_id in batch.delete:
            yield from writes.deleted(session_id)
        yield from writes.dropped_records(batch.drop_records)
        for subject in batch.drop_journals:
            yield from writes.dropped_journal(subject)
        if batch.runs:
            yield writes.runs(batch.runs)


def answer(session_id: str, need: Need) -> Query[Any]:
    """Return the query that answers a need."""
    query: Query[Any] = answer_to(
        need, reads, reads, (session_id,), lambda tree: ((session_id, tree),)
    )
    return query


def _query(asked: tuple[str, Any]) -> Query[Any]:
    """Return the query for a decision, which also needs the number of a session.

    ``mutate`` asks for keys by a query of its own.
    """
    session_id, need = asked
    if isinstance(need, NeedSession):
        return reads.head(session_id)
    return need if isinstance(need, Query) else answer(session_id, need)


async def transact(scope: Scope, decide: Callable[[], Deciding[T]]) -> T:
    """Run a decision that asks for its reads, and commit what it decides."""
    names: set[str] = set()
    whole = False
    while True:
        runs: list[_Run[T]] = []

        async def run(connection: Connection, runs: list[_Run[T]] = runs) -> T:
            runs.append(_Run(scope, connection, decide, set(names), whole))  # noqa: B023
            return await runs[-1].to_the_end()

        try:
            return await scope.on_connection(run)
        except _TakenError:
            names |= runs[-1].names
            whole |= runs[-1].whole


async def mutate(
    scope: Scope, session_id: str, decide: Callable[[Snapshot], Changes[T]], keys: Sequence[str]
) -> T:
    """Decide on the record that is remembered, if it still is the stored one; otherwise read it.

    The writes of this process to one session come one after the other, so that what is remembered
    is outdated only where another process has written.
    """

    def deciding() -> Deciding[T]:
        entries: dict[str, KeyEntry] = {}
        if keys:
            asked: Any = ((session_id, NeedSession()), (session_id, reads.keys(session_id, keys)))
            record, entries = yield asked
        else:
            record = yield session_id, NeedSession()
        changes = decide(Snapshot(record, entries))
        only: Any = (session_id, changes)
        return Batch(changes.result, (only,))

    async with scope.turn(session_id):
        for _ in range(0 if keys or scope.read_only else 2):
            known = scope.remembered(session_id)
            changes = known and _at_once(session_id, decide, known[1])
            if known is None or changes is None:
                break
            if await _follows(scope, known, changes):
                return changes.result
        return await transact(scope, deciding)


def _at_once(
    session_id: str, decide: Callable[[Snapshot], Changes[T]], before: SessionRecord
) -> Changes[T] | None:
    """Decide on a record that may be outdated; return None for what has to be decided again.

    That is everything but changes that can be written on the condition that it is not outdated.
    """
    try:
        changes = decide(Snapshot(before, {}))
        after = changes.session
        if after is None or changes.copy is not None or changes.rewrites:
            return None
        if not rows.same_fixed(before, after):
            return None
        check_changes(session_id, before, after, changes)
    except Exception:  # noqa: BLE001 - the next run decides, and raises its own
        return None
    return changes


async def _follows(scope: Scope, known: tuple[int, SessionRecord], changes: Changes[Any]) -> bool:
    """Write the changes if the remembered record is the stored one, and remember what is stored."""
    number, before = known
    after = changes.session
    assert after is not None
    statements = [writes.follow(number, before, after), *writes.changed(before, after, changes)]
    scope.forget({after.id})
    sent = [scope.prologue({after.id}), *map(scope.sent, statements)]
    ((ok, *stored),) = (await scope.run(sent, committing=True))[1]
    if ok == "1":
        scope.remember(number, after)
        return True
    if stored[0] is not None:
        scope.remember(*decode([stored], rows.SESSIONS.read, "sessions")[0])
    return False


P = ParamSpec("P")

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
        return await mutate(self._scope, session_id, decide, keys)

    async def transact(self, decide: Callable[[], tx.Deciding[T]]) -> T:
        """Run a decision that requests its reads, under the locks of what it asks about."""
        return await transact(self._scope, decide)

    async def read(self, needs: Sequence[tx.SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state of the store."""
        return await self._scope.read_one_state([answer(*one) for one in needs])

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
