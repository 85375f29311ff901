"""The reference store: simple, slow and correct. Every other store is compared with it.

``reads`` decides what a read returns and ``changes`` what a write does; here each method calls the
function that does it, under the lock. Nothing is kept after the process ends, and nothing is
optimised.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from hiermem.errors import ClosedError
from hiermem.stores.contract import answer_to, named_after, run_decision, system_time
from hiermem.stores.dump import SessionDump, check_secret, missing, pages, read
from hiermem.stores.memory import changes as changing
from hiermem.stores.memory import reads
from hiermem.stores.memory.changes import items, restored
from hiermem.stores.memory.reads import DueData, TenantData, TreeData
from hiermem.types import transaction as tx

__all__ = ["MemoryStore", "MemoryTenant", "MemoryTree"]

P = ParamSpec("P")
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
            raise ClosedError("the store is closed; open a new one")
        with self._lock:
            names = sorted(name for name, kept in self._tenants.items() if kept != TenantData())
        return [name for name in names if after is None or name > after][: max(limit, 0)]

    async def claim_due(
        self,
        limit: int,
        *,
        lease: float,
        tenant: str | None = None,
        ahead: float | None = 0.0,
    ) -> list[tx.DueSession]:
        """Claim up to ``limit`` sessions that are due now, or list them, the longest due first."""
        now = self.open_time()
        until = None if ahead is None else now + timedelta(seconds=0.0 if lease else ahead)
        with self._lock:
            found = [
                (session.due, name, id_)
                for name, kept in self._tenants.items()
                for id_, session in kept.sessions.items()
                if tenant in (None, name)
                and session.due is not None
                and (until is None or session.due.is_due(now, until))
            ]
            found.sort(key=lambda one: one[0].at)
            del found[max(limit, 0) :]
            for due, *_ in found if lease else ():
                due.take(now, lease)
            return [
                tx.DueSession(name, id_, due.generation, due.holds(now)) for due, name, id_ in found
            ]

    async def close(self) -> None:
        """Refuse every later call."""
        self._closed = True

    def open_tenant(self, name: str) -> tuple[threading.RLock, TenantData]:
        """Return the data of tenant ``name`` and the lock that guards it, for the tenant's handle.

        Raises ClosedError after ``close``.
        """
        if self._closed:
            raise ClosedError("the store is closed; open a new one")
        with self._lock:
            fresh = TenantData(clock=self._time)
            return self._lock, self._tenants.setdefault(name, fresh)

    def _time(self) -> datetime:
        return self._clock()

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
            kept.become(draft)

    def open_secret(self) -> bytes:
        """Return the store's secret, for the tenant's handle."""
        self.open_tenant("")
        return self._secret


def _answer(kept: TenantData, session_id: str, need: tx.Need) -> Any:
    of = (kept, session_id)
    return answer_to(need, reads, reads, of, lambda number: (kept.tree(session_id, number),))


def _of_tenant(
    work: Callable[Concatenate[TenantData, P], T],
) -> Callable[Concatenate[MemoryTenant, P], CoroutineType[Any, Any, T]]:
    """Return the method that does ``work`` on the tenant's data, under the lock."""

    async def method(self: MemoryTenant, /, *args: P.args, **kwargs: P.kwargs) -> T:
        lock, kept = self.open()
        with lock:
            return work(kept, *args, **kwargs)

    return named_after(work, method, given=1)


def _of_tree(
    work: Callable[Concatenate[TreeData, P], T],
) -> Callable[Concatenate[MemoryTree, P], CoroutineType[Any, Any, T]]:
    """Return the method that does ``work`` on the data of the tree, under the lock."""

    async def method(self: MemoryTree, /, *args: P.args, **kwargs: P.kwargs) -> T:
        lock, kept = self._tenant.open()
        with lock:
            return work(kept.tree(self._session_id, self._number), *args, **kwargs)

    return named_after(work, method, given=1)


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

    session = _of_tenant(reads.session)
    sessions = _of_tenant(reads.sessions)
    count_sessions = _of_tenant(reads.count_sessions)
    forks = _of_tenant(reads.forks)

    async def mutate(
        self,
        session_id: str,
        decide: Callable[[tx.Snapshot], tx.Changes[T]],
        *,
        keys: Sequence[str] = (),
    ) -> T:
        """Read the snapshot, call ``decide`` with it and commit its changes, atomically."""
        lock, kept = self.open()
        with lock:
            session = kept.sessions.get(session_id)
            known = session.keys if session else {}
            before = session.record if session else None
            changes = decide(tx.Snapshot(before, {key: known[key] for key in keys if key in known}))
            changing.change(kept, session_id, changes)
            return changes.result

    async def transact(self, decide: Callable[[], tx.Deciding[T]]) -> T:
        """Run a decision that reads as it goes and commit its effects, atomically."""
        lock, kept = self.open()
        with lock:
            batch = run_decision(decide, partial(_answer, kept))
            changing.change_all(kept, batch)
            return batch.result

    async def read(self, needs: Sequence[tx.SessionNeed]) -> list[Any]:
        """Return the answers to these needs, in their order, all from one state."""
        lock, kept = self.open()
        with lock:
            return [_answer(kept, *one) for one in needs]

    erase_all = _of_tenant(changing.erase_all)

    async def dump(self, session_id: str) -> AsyncIterator[list[tx.StoredRow]]:
        """Return everything kept of the session, page by page, as it is when they begin."""
        if session_id != tx.NO_SESSION and session_id not in self._kept().sessions:
            raise missing(session_id)
        return self._pages(session_id)

    async def _pages(self, session_id: str) -> AsyncIterator[list[tx.StoredRow]]:
        lock, kept = self.open()
        with lock:
            found = items(kept, session_id)
        for page in pages(found, tenant=self._name, secret=self._store.open_secret()):
            yield page

    async def restore(
        self, rows: AsyncIterable[Sequence[tx.StoredRow]], *, replaces: int | None = None
    ) -> None:
        """Write what ``dump`` returned: all of it, or nothing, of which nothing is kept."""
        self._kept()
        self._store.restore(self._name, await read(rows, tenant=self._name), replaces)

    async def scrub(self) -> tx.Scrubbed:
        """Report that nothing is left of what was removed; the live data are all there is."""
        self._kept()
        return tx.Scrubbed(done=True)

    # -- messages

    messages = _of_tenant(reads.messages)
    versions = _of_tenant(reads.versions)
    flagged = _of_tenant(reads.flagged)
    events = _of_tenant(reads.events)

    # -- nodes and revisions

    def tree(self, session_id: str, number: int | None = None) -> MemoryTree:
        """Return the handle of one of the session's trees, of the serving one for None."""
        return MemoryTree(self, session_id, number)

    async def take_due(
        self, session_id: str, *, lease: float, held: tx.DueSession | None = None
    ) -> tx.DueSession | None:
        """Claim a session that nobody holds, or renew the claim ``held``."""
        lock, kept = self.open()
        now = self._store.open_time()
        with lock:
            found = kept.sessions.get(session_id)
            if found is None:
                return None
            if held is not None:
                if not found.is_held(held):
                    return None
                assert found.due is not None
                found.due.at = now + timedelta(seconds=lease)
                return held
            found.due = found.due or DueData(now)
            if found.due.holds(now):
                return None
            found.due.take(now, lease)
            return tx.DueSession(self._name, session_id, found.due.generation)

    put_due = _of_tenant(changing.put_due)
    settle_due = _of_tenant(changing.settle_due)
    reusable = _of_tenant(reads.reusable)

    # -- journal, views, records and blocks

    put_run = _of_tenant(changing.put_run)
    run = _of_tenant(reads.run)
    runs = _of_tenant(reads.runs)
    attempts = _of_tenant(reads.attempts)
    spent = _of_tenant(reads.spent)
    view = _of_tenant(reads.view)
    put_view = _of_tenant(changing.put_view)
    records = _of_tenant(reads.records)
    put_records = _of_tenant(changing.put_records)
    blocks = _of_tenant(reads.blocks)
    put_blocks = _of_tenant(changing.put_blocks)
    drop_blocks = _of_tenant(changing.drop_blocks)

    # -- the index over all sessions

    index_state = _of_tenant(reads.index_state)
    put_segment = _of_tenant(changing.put_segment)
    segment_blocks = _of_tenant(reads.segment_blocks)

    def open(self) -> tuple[threading.RLock, TenantData]:
        """Return the tenant's data and the lock that guards it, for a tree's handle."""
        return self._store.open_tenant(self._name)

    def _kept(self) -> TenantData:
        return self.open()[1]


class MemoryTree:
    """One tree of a session in a MemoryStore; see ``hiermem.protocols.TreeStore``."""

    def __init__(self, tenant: MemoryTenant, session_id: str, number: int | None) -> None:
        self._tenant = tenant
        self._session_id = session_id
        self._number = number

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
        """Apply each write whose expectations hold; return which did. Record the attempts."""
        lock, kept = self._tenant.open()
        with lock:
            found = kept.sessions.get(self._session_id)
            if claim is not None and not (found and found.is_held(claim)):
                return None
            applied = changing.write_nodes(
                kept, self._session_id, self._number, writes, noted=claim is None
            )
            kept.attempts.update((attempt.id, attempt) for attempt in attempts)
            return applied
