"""Runs decisions: reads under locks, writes what was decided, and commits.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hiermem.errors import ReadOnlyError
from hiermem.stores import rows
from hiermem.stores.codec import decode
from hiermem.stores.contract import answer_decision, answer_to, check_changes
from hiermem.stores.postgres import reads, writes
from hiermem.stores.postgres.connections import BEGIN, COMMIT, ONE_STATE, Connection, Sent
from hiermem.stores.postgres.statements import Query, Statement
from hiermem.types import SessionRecord
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
