"""A state machine that drives a store and the in-memory reference alike and compares everything.

The one rule: both get the same calls, and every result, every error and every read must agree.
What an operation does is decided from the reference's answers, so a wrong store cannot steer it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hiermem.effects import Block, Copy, Rewrite
from hiermem.errors import HiermemError
from hiermem.protocols import (
    LogEvent,
    NodeWrite,
    Record,
    RecordWrite,
    Store,
    TenantStore,
    ViewRecord,
)
from hiermem.stores.memory import MemoryStore
from hiermem.testing.samples import (
    NOW,
    attempt,
    contents,
    deciding,
    node,
    remade,
    run,
    stored,
    write,
    writing,
)
from hiermem.testing.strategies import HOSTILE_NAMES, stored_messages, texts
from hiermem.types import Message, Node, Revision, Status, StoredMessage

__all__ = ["StoreMachine"]

_TENANTS = st.sampled_from(HOSTILE_NAMES[:6])
_SESSIONS = st.sampled_from(("s", "S", "s%", "s "))
_KEYS = st.sampled_from(HOSTILE_NAMES)
_SMALL = st.integers(0, 7)
_STATUSES: tuple[Status, ...] = ("pending", "generating", "active", "failed")


class StoreMachine(RuleBasedStateMachine):
    """Drives the store that ``open_store`` opens; ``root`` is an empty directory for its files."""

    def __init__(self, open_store: Callable[[Path], Awaitable[Store]], root: Path) -> None:
        super().__init__()
        self._open_store = open_store
        self._path = _fresh_path(root)
        self._runner = asyncio.Runner()
        self._reference = MemoryStore()
        self._store: Store | None = None

    # -- both stores alike

    def _both(self, tenant: str, act: Callable[[TenantStore], Awaitable[Any]]) -> Any:
        """Do ``act`` on both stores, compare the outcomes and give that of the reference."""
        assert self._store is not None
        expected = self._outcome(self._reference.tenant(tenant), act)
        found = self._outcome(self._store.tenant(tenant), act)
        assert found == expected
        return expected

    def _outcome(self, tenant: TenantStore, act: Callable[[TenantStore], Awaitable[Any]]) -> Any:
        async def run_it() -> Any:
            return await act(tenant)

        try:
            return self._runner.run(run_it())
        except HiermemError as error:
            return type(error)

    def _nodes(self, tenant: str, session: str) -> list[Node]:
        """Give the reference's nodes of a session, sealed ones first."""

        async def all_of(handle: TenantStore) -> list[Node]:
            counts = await handle.levels(session)
            found = [one for level in counts for one in await handle.level(session, level, 0)]
            return found + await handle.provisional(session)

        return self._outcome(self._reference.tenant(tenant), all_of)  # type: ignore[no-any-return]

    @initialize()
    def open(self) -> None:
        """Open the store under test."""
        self._store = self._runner.run(self._opened())

    async def _opened(self) -> Store:
        return await self._open_store(self._path)

    # -- sessions

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        given=st.lists(stored_messages(keys=st.none() | _KEYS, large=False), max_size=4),
        asked=st.lists(_KEYS, max_size=4),
        title=st.none() | texts(large=False),
    )
    def append(
        self,
        tenant: str,
        session: str,
        given: list[StoredMessage],
        asked: list[str],
        title: str | None,
    ) -> None:
        """Append messages, claiming their keys; where one is taken, both must refuse."""
        self._both(
            tenant,
            lambda handle: write(handle, session, given, keys=asked, record={"title": title}),
        )

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        index=_SMALL,
        flag=st.sampled_from(("a", "b")),
        closed=st.booleans(),
    )
    def mark(self, tenant: str, session: str, *, index: int, flag: str, closed: bool) -> None:
        """Flag a message, which may not exist, and write an event."""
        event = LogEvent("close" if closed else "flush", index, NOW, flag)
        self._both(
            tenant,
            lambda handle: write(
                handle, session, flags=((index, flag),), events=(event,), record={"closed": closed}
            ),
        )

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        index=_SMALL,
        content=texts(large=False),
        kind=st.sampled_from(("edit", "erase", "mark")),
        other=_SESSIONS,
        drop=st.tuples(_KEYS, _KEYS),
    )
    def rewrite(
        self,
        tenant: str,
        session: str,
        *,
        index: int,
        content: str,
        kind: Literal["edit", "erase", "mark"],
        other: str,
        drop: tuple[str, str],
    ) -> None:
        """Rewrite a message, which may not exist, together with a write to another session."""
        said = replace(stored(Message.user(content)), index=index)
        step = writing(
            session,
            rewrites=(Rewrite(said, kind),),
            drop_views=(drop[0],),
            drop_records=(("k", drop[1]),),
            events=(LogEvent("edit", index, NOW),),
        )
        steps = ((other, writing(other, [Message.user("beside")])), (session, step))
        self._both(tenant, lambda handle: handle.transact(deciding(*steps)))

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        source=_SESSIONS,
        stop=st.integers(-1, 4),
        picks=st.lists(st.tuples(_SMALL, st.integers(1, 2)), max_size=3),
        delete=st.lists(_SESSIONS, max_size=2),
    )
    def fork(
        self,
        tenant: str,
        *,
        session: str,
        source: str,
        stop: int,
        picks: list[tuple[int, int]],
        delete: list[str],
    ) -> None:
        """Copy a session into a new one, which may be impossible, and delete others."""
        nodes = self._nodes(tenant, source)
        wanted = tuple((nodes[pick % len(nodes)].id, number) for pick, number in picks if nodes)
        step = writing(
            session, copy=Copy(source, stop, wanted), record={"forked_from": source, "tree": 1}
        )
        runs = [run(f"run-{stop}", subject=source)]
        self._both(tenant, lambda handle: handle.transact(deciding((session, step), runs=runs)))
        self._both(tenant, lambda handle: handle.transact(deciding(delete=delete)))

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        start=_SMALL,
        length=st.integers(1, 3),
        epoch=st.integers(0, 2),
        raised=st.sampled_from((None, None, 1, 2)),
        name=_KEYS,
    )
    def guard(
        self,
        tenant: str,
        session: str,
        *,
        start: int,
        length: int,
        epoch: int,
        raised: int | None,
        name: str,
    ) -> None:
        """Write what an epoch guards, at times of the wrong one or after it moved."""
        if raised is not None:
            self._both(tenant, lambda handle: write(handle, session, record={"epoch": raised}))
        block = Block("index", start, start + length, name.encode())
        record = RecordWrite("k", session, name, f"of {epoch}")
        view = ViewRecord(session, name, f"of {epoch}")
        self._both(tenant, lambda handle: handle.put_blocks(session, [block], epoch=epoch))
        self._both(tenant, lambda handle: handle.put_view(view, epoch=epoch))
        self._both(tenant, lambda handle: handle.put_records([record], epochs={session: epoch}))
        self._both(tenant, lambda handle: handle.blocks(session, "index", start))

    @rule(tenant=_TENANTS)
    def erase_everything(self, tenant: str) -> None:
        """Erase all of a tenant that is not the first, so that the others grow meanwhile."""
        if tenant != HOSTILE_NAMES[0]:
            self._both(tenant, lambda handle: handle.erase_all())

    # -- nodes

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        serving=st.sampled_from((0, 0, 1)),
        tree=st.sampled_from((None, 0, 1)),
        gone=st.sampled_from((None, None, 0, 1)),
        forget=st.lists(_SMALL, max_size=2),
    )
    def replant(
        self,
        tenant: str,
        session: str,
        *,
        serving: int,
        tree: int | None,
        gone: int | None,
        forget: list[int],
    ) -> None:
        """Let another tree serve, drop one, forget texts, write nodes into any."""
        nodes = self._nodes(tenant, session)
        forgotten = tuple(nodes[pick % len(nodes)].id for pick in forget if nodes)
        loose = node(0, id="open/L1/main", sealed=False)
        self._both(
            tenant,
            lambda handle: write(
                handle, session, nodes=(node(0), loose), forget=forgotten, drop_tree=gone,
                tree=tree, record={"tree": serving},
            ),
        )  # fmt: skip
        made = remade(node(0), input_hash="h1")
        self._both(tenant, lambda handle: handle.write_nodes(session, [made], tree=tree))

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        level=st.integers(1, 3),
        count=st.integers(1, 12),
        status=st.sampled_from(_STATUSES),
        work=st.tuples(st.booleans(), st.booleans()),
    )
    def seal(
        self,
        tenant: str,
        session: str,
        *,
        level: int,
        count: int,
        status: Status,
        work: tuple[bool, bool],
    ) -> None:
        """Seal nodes of a level and put a provisional one beside them."""
        known = sum(one.level == level and one.sealed for one in self._nodes(tenant, session))
        loose = node(0, level, id=f"open/L{level}", sealed=False, status=status)
        sealed = [
            node(known + n, level, status=status, degraded=work[0], dirty=work[1])
            for n in range(count)
        ]
        self._both(tenant, lambda handle: write(handle, session, nodes=(*sealed, loose)))

    @rule(tenant=_TENANTS, session=_SESSIONS, child=_SMALL, gone=_SMALL)
    def regroup(self, tenant: str, session: str, child: int, gone: int) -> None:
        """Set a parent, which both must refuse where the child is dropped in the same write."""
        ids = [one.id for one in self._nodes(tenant, session)] or ["L1.0"]
        parents = ((ids[child % len(ids)], "L2.0"),)
        drop = (ids[gone % len(ids)],)
        self._both(tenant, lambda handle: write(handle, session, drop=drop, parents=parents))

    @rule(
        tenant=_TENANTS,
        session=_SESSIONS,
        picks=st.lists(st.tuples(_SMALL, st.sampled_from((0, 0, 0, 1)), texts()), max_size=4),
        input_hash=st.sampled_from(("h1", "h2", "H1")),
        degraded=st.booleans(),
        wrong_input=st.sampled_from((None, 0, 1)),
    )
    def generate(
        self,
        tenant: str,
        session: str,
        *,
        picks: list[tuple[int, int, str]],
        input_hash: str,
        degraded: bool,
        wrong_input: int | None,
    ) -> None:
        """Commit texts by compare-and-swap, some over a version or an input of the past."""
        nodes = self._nodes(tenant, session) or [node(0)]
        writes: list[NodeWrite] = []
        for pick, late, text in picks:
            chosen = nodes[pick % len(nodes)]
            base = replace(chosen, version=max(chosen.version - late, 0))
            made = remade(base, text=text, input_hash=input_hash, degraded=degraded)
            if wrong_input is not None:
                other = nodes[(pick + 1) % len(nodes)]
                made = replace(made, inputs=((other.id, other.revision + wrong_input),))
            writes.append(made)
        tried = [attempt(f"try-{n}", number=len(writes)) for n, _ in enumerate(writes)]
        self._both(tenant, lambda handle: handle.write_nodes(session, writes, attempts=tried))
        self._both(tenant, _reusable)

    # -- journal and views

    @rule(
        tenant=_TENANTS,
        number=_SMALL,
        subject=st.sampled_from(("s", "S", "s%")),
        name=_KEYS,
        state=texts(large=False),
    )
    def journal(self, tenant: str, number: int, subject: str, name: str, state: str) -> None:
        """Put a run, an attempt and a view, or replace those of the same name."""
        view = ViewRecord(subject, name, state)
        tried = attempt(f"own-{number}", session_id=subject, run_id=name, reason=state)
        self._both(tenant, lambda handle: handle.put_run(run(f"run-{number}", subject=subject)))
        self._both(tenant, lambda handle: handle.write_nodes("none", [], attempts=[tried]))
        self._both(tenant, lambda handle: handle.put_view(view))
        for other in HOSTILE_NAMES[:6]:
            self._both(other, lambda handle: handle.view(subject, name))
            self._both(other, lambda handle: handle.runs(subject=subject, limit=3))
            self._both(other, lambda handle: handle.attempts(session_id=subject, limit=3))

    @rule(
        tenant=_TENANTS,
        kind=st.sampled_from(("k", "K")),
        picks=st.lists(
            st.tuples(_SESSIONS, _KEYS, st.none() | texts(), st.none() | st.integers(-1, 3)),
            max_size=4,
        ),
    )
    def record(
        self, tenant: str, kind: str, picks: list[tuple[str, str, str | None, int | None]]
    ) -> None:
        """Put and delete records, some over a version that is not there or twice in one call."""
        writes = [RecordWrite(kind, *pick) for pick in picks]
        self._both(tenant, lambda handle: handle.put_records(writes))
        for other in HOSTILE_NAMES[:6]:
            self._both(other, lambda handle: handle.records(kind, limit=3))
        for each in writes:
            self._both(tenant, partial(_found, each))

    # -- reading

    @rule(tenant=_TENANTS)
    def compare(self, tenant: str) -> None:
        """Compare all that the tenant's handle can read."""
        self._both(tenant, contents)
        for kind in ("k", "K"):
            self._both(tenant, partial(_of_kind, kind))

    @rule(tenant=_TENANTS, session=_SESSIONS, start=_SMALL, length=_SMALL, level=st.integers(0, 3))
    def read(self, tenant: str, session: str, start: int, length: int, level: int) -> None:
        """Compare ranges of messages and nodes."""
        self._both(tenant, lambda handle: handle.session(session))
        self._both(tenant, lambda handle: handle.messages(session, start, start + length))
        self._both(tenant, lambda handle: handle.messages(session, 0, 99, thread="main"))
        self._both(tenant, lambda handle: handle.level(session, level, start, start + length))
        self._both(tenant, lambda handle: handle.unfinished(session, level, start, length))
        self._both(tenant, lambda handle: handle.outdated(session, level, ["s"], start, length))
        self._both(tenant, lambda handle: handle.covering(session, "main", 10 * start + length))
        self._both(tenant, lambda handle: handle.backlog(after=session, limit=length))

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        """Close the store and open it again; nothing may be missing."""
        assert self._store is not None
        self._runner.run(self._store.close())
        self.open()

    @property
    def durable(self) -> bool:
        """Say whether the store survives being closed."""
        return self._store is not None and "durable" in self._store.capabilities

    def teardown(self) -> None:
        """Compare everything once more, then let go of the store."""
        try:
            if self._store is not None:
                for tenant in HOSTILE_NAMES[:6]:
                    self.compare(tenant)
        finally:
            if self._store is not None:
                self._runner.run(self._store.close())
            self._runner.close()


async def _of_kind(kind: str, handle: TenantStore) -> list[Record]:
    return await handle.records(kind)


async def _found(write: RecordWrite, handle: TenantStore) -> list[list[Record]]:
    return [
        await handle.records(write.kind, scope=write.scope),
        await handle.records(write.kind, key=write.key),
        await handle.records(write.kind, scope=write.scope, key=write.key),
    ]


async def _reusable(handle: TenantStore) -> list[Revision | None]:
    return [await handle.reusable(input_hash) for input_hash in ("h1", "h2", "h")]


def _fresh_path(root: Path) -> Path:
    """Give a path in ``root`` where nothing is; Hypothesis runs many machines in one test."""
    for number in itertools.count():
        room = root / f"machine-{number}"
        if not room.exists():
            room.mkdir(parents=True)
            return room / "store"
    raise AssertionError
