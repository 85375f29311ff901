"""The reference store: simple, slow and correct. Every other store is compared with it.

``reads`` decides what a read returns and ``changes`` what a write does; here each method calls the
function that does it, under the lock. Nothing is kept after the process ends, and nothing is
optimised.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hiermem.core.log.row_digest import NO_SESSION
from hiermem.core.summaries.due import AT_ONCE
from hiermem.errors import MemoryClosedError
from hiermem.stores.contract import run_decision, system_time
from hiermem.stores.dump import SessionDump, check_secret, missing, pages, read
from hiermem.stores.memory import changes as changing
from hiermem.stores.memory import reads
from hiermem.stores.memory.data import (
    DueData,
    SessionData,
    TenantData,
    fresh_message,
    fresh_revision,
    fresh_run,
)
from hiermem.stores.memory.dump import items, restored
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

__all__ = ["MemoryStore", "MemoryTenant", "MemoryTree"]

T = TypeVar("T")


class MemoryStore:
    """A store that lives in this process and ends with it. ``clock`` is its time."""

    def __init__(self, *, clock: Callable[[], datetime] = system_time) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._tenants: dict[str, TenantData] = {}
        self._lock = threading.RLock()
        self._closed = False

    @property
    def capabilities(self) -> frozenset[str]:
        """Return the optional abilities; there are none."""
        return frozenset()

    def tenant(self, name: str) -> MemoryTenant:
        """Return the handle bound to tenant ``name``."""
        return MemoryTenant(self, name)

    async def tenants(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` names of tenants that have anything stored, in order."""
        if self._closed:
            raise MemoryClosedError("the store is closed; open a new one")
        with self._lock:
            names = sorted(name for name, kept in self._tenants.items() if kept != TenantData())
        return [name for name in names if after is None or name > after][: max(limit, 0)]

    async def claim_due(self, limit: int, *, lease: float) -> list[DueSession]:
        """Claim up to ``limit`` sessions of any tenant that are due now, the longest due first."""
        now = self.open_time()
        with self._lock:
            found = [
                (session.due, DueSession(name, id_, session.due.generation))
                for name, kept in self._tenants.items()
                for id_, session in kept.sessions.items()
                if session.due is not None and session.due.at <= now
            ]
            found.sort(key=lambda one: one[0].at)
            for due, _ in found[: max(limit, 0)]:
                due.at, due.claimed = now + timedelta(seconds=lease), True
            return [claimed for _, claimed in found[: max(limit, 0)]]

    async def close(self) -> None:
        """Refuse every later call."""
        self._closed = True

    def open_tenant(self, name: str) -> tuple[threading.RLock, TenantData]:
        """Return the data of tenant ``name`` and the lock that guards it, for the tenant's handle.

        Raises MemoryClosedError after ``close``.
        """
        if self._closed:
            raise MemoryClosedError("the store is closed; open a new one")
        with self._lock:
            return self._lock, self._tenants.setdefault(name, TenantData())

    def open_time(self) -> datetime:
        """Return the store's time, for the tenant's handle."""
        self.open_tenant("")
        return self._clock()

    def restore(self, name: str, dump: SessionDump, replaces: int | None) -> None:
        """Write a dump to tenant ``name``, for the tenant's handle."""
        lock, kept = self.open_tenant(name)
        with lock:
            draft = restored(kept, dump, replaces)
            empty = all(held == TenantData() for held in self._tenants.values())
            check_secret(dump, self._secret, empty=empty)
            self._secret = dump.secret
            if dump.record is not None:
                draft.sessions[dump.record.id].become_due(AT_ONCE, self._clock())
            kept.become(draft)

    def open_secret(self) -> bytes:
        """Return the store's secret, for the tenant's handle."""
        self.open_tenant("")
        return self._secret


class MemoryTenant:
    """One tenant's part of a MemoryStore; see ``hiermem.protocols.TenantStore``."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def tenant(self) -> str:
        """Return the tenant's name."""
        return self._name

    async def secret(self) -> bytes:
        """Return the store's secret."""
        return self._store.open_secret()

    async def now(self) -> datetime:
        """Return the time of the clock that the store was given."""
        return self._store.open_time()

    # -- sessions

    async def session(self, session_id: str) -> SessionRecord | None:
        """Return the session's record, or None."""
        found = self._session(session_id)
        return found.record if found else None

    async def sessions(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        metadata: Mapping[str, str] | None = None,
        order_by: SessionOrder = "created",
    ) -> list[SessionRecord]:
        """Return up to ``limit`` sessions that hold all of ``metadata``, in the order asked for."""
        return reads.sessions(
            self._kept(), after=after, limit=limit, metadata=metadata or {}, order_by=order_by
        )

    async def count_sessions(self, *, metadata: Mapping[str, str] | None = None) -> int:
        """Return the number of sessions that hold all of ``metadata``."""
        return reads.count_sessions(self._kept(), metadata=metadata or {})

    async def forks(self, session_id: str) -> list[SessionRecord]:
        """Return the sessions that were forked from this one, in the order of their creation."""
        return reads.forks(self._kept(), session_id)

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[Snapshot], Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` with it and commit its changes, atomically."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            session = kept.sessions.get(session_id)
            known = session.keys if session else {}
            before = session.record if session else None
            changes = decide(Snapshot(before, {key: known[key] for key in keys if key in known}))
            changing.change(kept, session_id, changes, self._store.open_time())
            return changes.result

    async def transact(self, decide: Callable[[], Deciding[T]]) -> T:
        """Run a decision that reads as it goes and commit its effects, atomically."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            batch = run_decision(decide, lambda id_, need: reads.answer(kept, id_, need))
            changing.change_all(kept, batch, self._store.open_time())
            return batch.result

    async def read(self, needs: Sequence[SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            return [reads.answer(kept, *one) for one in needs]

    async def erase_all(self) -> int:
        """Remove everything stored for this tenant; return the number of sessions."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            count = len(kept.sessions)
            kept.become(TenantData())
            return count

    async def dump(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        """Return everything kept of the session, page by page, as it is when they begin."""
        if session_id != NO_SESSION and self._session(session_id) is None:
            raise missing(session_id)
        return self._pages(session_id)

    async def _pages(self, session_id: str) -> AsyncIterator[list[StoredRow]]:
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            found = items(kept, session_id)
        for page in pages(found, tenant=self._name, secret=self._store.open_secret()):
            yield page

    async def restore(
        self, rows: AsyncIterable[Sequence[StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned: all of it, or nothing, of which nothing is kept."""
        self._kept()
        self._store.restore(self._name, await read(rows, tenant=self._name), replaces)

    async def restores(self, session_id: str | None = None) -> list[RestoreState]:
        """Return what was restored of a session; nothing here is ever unfinished."""
        digest = None if session_id is None else self._kept().arrived.get(session_id)
        return [] if session_id is None or digest is None else [RestoreState(session_id, digest)]

    async def scrub(self) -> Scrubbed:
        """Report that nothing is left of what was removed; the live data are all there is."""
        self._kept()
        return Scrubbed(done=True)

    # -- messages

    async def messages(
        self, session_id: str, start: int, stop: int, *, thread: str | None = None
    ) -> list[StoredMessage]:
        """Return the messages with ``start <= index < stop``, of ``thread`` if given, by index."""
        return reads.messages(self._session(session_id), start, stop, thread)

    async def versions(self, session_id: str, index: int) -> list[StoredMessage]:
        """Return what the message was before its edits, oldest first."""
        found = self._session(session_id)
        return [fresh_message(old) for old in found.versions.get(index, ())] if found else []

    async def flagged(self, session_id: str, flag: str, *, limit: int) -> list[StoredMessage]:
        """Return up to ``limit`` messages that have ``flag``, the newest first."""
        return reads.flagged(self._session(session_id), flag, limit)

    async def events(self, session_id: str) -> list[LogEvent]:
        """Return the log's events that are not messages, in the order they were written."""
        found = self._session(session_id)
        return list(found.events) if found else []

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> MemoryTree:
        """Return the handle of one of the session's trees, of the serving one for None."""
        return MemoryTree(self, session_id, number)

    async def backlog(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Return up to ``limit`` ids of sessions with unfinished nodes in the tree that serves."""
        return reads.backlog(self._kept(), after, limit)

    async def take_due(self, session_id: str, *, lease: float) -> DueSession | None:
        """Claim the session's entry if it is due or claimed."""
        lock, kept = self._store.open_tenant(self._name)
        now = self._store.open_time()
        with lock:
            found = kept.sessions.get(session_id)
            if found is None or found.due is None:
                return None
            if found.due.at > now and not found.due.claimed:
                return None
            found.due.at, found.due.claimed = now + timedelta(seconds=lease), True
            return DueSession(self._name, session_id, found.due.generation)

    async def put_due(self, session_ids: Sequence[str]) -> None:
        """Make those of these sessions due now that have no entry."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            for session_id in session_ids:
                found = kept.sessions.get(session_id)
                if found is not None and found.due is None:
                    found.become_due(AT_ONCE, self._store.open_time())

    async def settle_due(self, claimed: DueSession, *, at: datetime | None = None) -> bool:
        """Remove the entry, or set its next time; return whether."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            found = kept.sessions.get(claimed.session_id)
            if found is None or found.due is None or found.due.generation != claimed.generation:
                return False
            found.due = None if at is None else DueData(at, claimed.generation)
            return True

    async def reusable(self, input_hash: str) -> Revision | None:
        """Return the newest revision of this tenant, not degraded, with that input hash."""
        for _session_id, _tree, revision in reversed(self._kept().written):
            if revision.input_hash == input_hash and not revision.degraded:
                return fresh_revision(revision)
        return None

    # -- journal and views

    async def put_run(self, run: RunRecord) -> None:
        """Insert the run, or replace the one of the same id."""
        self._kept().runs[run.id] = fresh_run(run)

    async def run(self, run_id: str) -> RunRecord | None:
        """Return the run of that id, or None."""
        found = self._kept().runs.get(run_id)
        return fresh_run(found) if found else None

    async def runs(self, *, subject: str | None = None, limit: int = 100) -> list[RunRecord]:
        """Return the newest runs first, of one subject if given."""
        found = [run for run in self._kept().runs.values() if subject in (None, run.subject)]
        return [fresh_run(run) for run in found[::-1][: max(limit, 0)]]

    async def attempts(
        self, *, run_id: str | None = None, session_id: str | None = None, limit: int = 1000
    ) -> list[Attempt]:
        """Return the journalled attempts in the order they started, filtered if asked."""
        return [
            attempt
            for attempt in self._kept().attempts.values()
            if run_id in (None, attempt.run_id) and session_id in (None, attempt.session_id)
        ][: max(limit, 0)]

    async def spent(self, session_id: str | None = None) -> Spent:
        """Add up the journalled attempts of one session, or of the tenant."""
        return reads.spent(self._kept(), session_id)

    async def view(self, session_id: str, name: str) -> ViewRecord | None:
        """Return the stored view, or None."""
        return self._kept().views.get((session_id, name))

    async def put_view(self, view: ViewRecord, *, epoch: int | None = None) -> bool:
        """Insert or replace the view of that session and name; return whether it did."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            if epoch is not None and not kept.epoch_is(view.session_id, epoch):
                return False
            kept.views[view.session_id, view.name] = view
            return True

    # -- records

    async def records(
        self, kind: str, *, scope: str | None = None, key: str | None = None, limit: int = 10_000
    ) -> list[Record]:
        """Return up to ``limit`` records of ``kind``, filtered if asked, by scope, then key."""
        return reads.records(self._kept(), kind, scope=scope, key=key)[: max(limit, 0)]

    async def put_records(
        self,
        writes: Sequence[RecordWrite],
        *,
        epochs: Mapping[str, int] | None = None,
        standing: Sequence[Record] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Apply all of the writes, or none if an expectation fails; return which."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            holds = all(kept.epoch_is(id_, epoch) for id_, epoch in (epochs or {}).items())
            holds = holds and all(
                kept.records.get((one.kind, one.scope, one.key)) == one for one in standing
            )
            applied = changing.put_records(kept, writes, holds=holds)
            if applied:
                kept.attempts.update((attempt.id, attempt) for attempt in attempts)
            return applied

    # -- blocks

    async def blocks(
        self, session_id: str, kind: str, start: int = 0, stop: int | None = None
    ) -> list[Block]:
        """Return the blocks of ``kind`` whose own ``start`` is in that range, by ``start``."""
        found = self._session(session_id)
        mine = [
            block
            for block in (found.blocks.values() if found else ())
            if block.kind == kind and block.start >= start and (stop is None or block.start < stop)
        ]
        return sorted(mine, key=lambda block: block.start)

    async def put_blocks(self, session_id: str, blocks: Sequence[Block], *, epoch: int) -> bool:
        """Insert the blocks, or replace those of the same kind and start; return whether it did."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            if not kept.epoch_is(session_id, epoch):
                return False
            own = kept.sessions[session_id].blocks
            # Copies: a segment knows its blocks, and one that is put again is another.
            own.update(((block.kind, block.start), replace(block)) for block in blocks)
            return True

    async def drop_blocks(self, session_id: str, kind: str) -> None:
        """Remove all blocks of that kind."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            found = kept.sessions.get(session_id)
            if found:
                found.blocks = {at: one for at, one in found.blocks.items() if at[0] != kind}
                if kind == TERMS:
                    kept.dissolve(session_id)

    # -- the index over all sessions

    async def index_state(
        self, pages: Sequence[int] = (), *, limit: int | None = 100
    ) -> IndexState:
        """Return the segments with these pages, the loose blocks, and what has no block."""
        return reads.index_state(self._kept(), pages, limit)

    async def put_segment(
        self,
        blocks: Sequence[PlacedBlock],
        pages: Mapping[int, bytes],
        *,
        replaces: Sequence[int] = (),
    ) -> bool:
        """Dissolve the segments ``replaces`` and put one made of ``blocks``; return whether."""
        lock, kept = self._store.open_tenant(self._name)
        with lock:
            return changing.put_segment(kept, blocks, pages, replaces)

    async def segment_blocks(self, places: Sequence[tuple[int, int]]) -> list[PlacedBlock]:
        """Return the blocks at these (segment, place) that are not dead."""
        return reads.segment_blocks(self._kept(), places)

    def open_time(self) -> datetime:
        """Return the store's time, for a tree's handle."""
        return self._store.open_time()

    def open(self) -> tuple[threading.RLock, TenantData]:
        """Return the tenant's data and the lock that guards it, for a tree's handle."""
        return self._store.open_tenant(self._name)

    def _kept(self) -> TenantData:
        return self.open()[1]

    def _session(self, session_id: str) -> SessionData | None:
        return self._kept().sessions.get(session_id)


class MemoryTree:
    """One tree of a session in a MemoryStore; see ``hiermem.protocols.TreeStore``."""

    def __init__(self, tenant: MemoryTenant, session_id: str, number: int | None) -> None:
        self._tenant = tenant
        self._session_id = session_id
        self._number = number

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Return the nodes with these ids that exist, in the order of ``ids``."""
        return reads.nodes(self._session(), ids, self._number)

    async def level(self, level: int, start: int, stop: int | None = None) -> list[Node]:
        """Return the sealed nodes of ``level`` with ``start <= ordinal < stop``, by ordinal."""
        return reads.level(self._session(), level, start, stop, self._number)

    async def levels(self) -> dict[int, int]:
        """Return the number of sealed nodes of each level that has any."""
        counts: dict[int, int] = {}
        for node in reads.sealed(self._session(), self._number):
            counts[node.level] = counts.get(node.level, 0) + 1
        return counts

    async def covering(self, thread: str, index: int) -> list[Node]:
        """Return the sealed level-1 nodes of ``thread`` whose span holds the message."""
        return reads.covering(self._session(), thread, index, self._number)

    async def provisional(self) -> list[Node]:
        """Return the nodes that are not sealed, by level, then id."""
        return reads.provisional(self._session(), self._number)

    async def unfinished(self, level: int, after: int, limit: int) -> list[Node]:
        """Return up to ``limit`` sealed nodes of ``level`` after ``after`` with work left to do."""
        return reads.unfinished(self._session(), level, after, limit, self._number)

    async def outdated(
        self, level: int, strategies: Sequence[str], after: int, limit: int
    ) -> list[Node]:
        """Return up to ``limit`` sealed nodes of ``level`` made in none of these ways."""
        return reads.outdated(
            self._session(), level, strategies, after=after, limit=limit, tree=self._number
        )

    async def tally(self) -> list[NodeTally]:
        """Add up the sealed nodes by level, then status."""
        return reads.tally(self._session(), self._number)

    async def revisions(self, wanted: Sequence[tuple[str, int]]) -> list[Revision]:
        """Return the revisions with these (node id, number) that exist, in that order."""
        return reads.revisions(self._session(), wanted, self._number)

    async def write_nodes(
        self,
        writes: Sequence[NodeWrite],
        *,
        attempts: Sequence[Attempt] = (),
        attempts_if_applied: Sequence[Attempt] = (),
    ) -> list[bool]:
        """Apply each write whose expectations hold; return which did. Record the attempts."""
        lock, kept = self._tenant.open()
        with lock:
            applied = changing.write_nodes(
                kept, self._session_id, writes, self._number, self._tenant.open_time()
            )
            recorded = (*attempts, *(attempts_if_applied if all(applied) else ()))
            kept.attempts.update((attempt.id, attempt) for attempt in recorded)
            return applied

    def _session(self) -> SessionData | None:
        return self._tenant.open()[1].sessions.get(self._session_id)
