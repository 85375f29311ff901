"""The state machine: drives a store and the in-memory reference alike, and compares their answers.

Both get the same calls, and every result, every error and every read must agree. The rules cover
every kind of write. Each call is decided from the reference's answers, so a wrong store cannot
steer it. A rule draws what it needs as it goes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from message_strategies import HOSTILE_NAMES, stored_messages, texts
from samples import (
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

from hiermem.errors import HiermemError
from hiermem.protocols import Store, TenantStore
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types import Message, Node, Revision, SessionRecord, Status
from hiermem.types import transaction as tx

_TENANTS = st.sampled_from(HOSTILE_NAMES[:6])
_SESSIONS = st.sampled_from(("s", "S", "s%", "s "))
_SMALL = st.integers(0, 7)
_KEYS: st.SearchStrategy[str] = st.sampled_from(HOSTILE_NAMES)
_SHORT_TEXTS = texts(large=False)
_STATUSES: tuple[Status, ...] = ("pending", "generating", "active", "failed")


class StoreMachine(RuleBasedStateMachine):
    """Two stores that must stay alike: the one that ``open_store`` opens, and the reference.

    ``root`` is an empty directory for the files of the store under test.
    """

    def __init__(self, open_store: Callable[[Path], Awaitable[Store]], root: Path) -> None:
        super().__init__()
        self._open_store = open_store
        # Hypothesis runs many machines in one test, each in a directory of its own.
        self._path = Path(tempfile.mkdtemp(prefix="machine-", dir=root)) / "store"
        self._runner = asyncio.Runner()
        self._reference = RecordStore(MemoryStore())
        self._store: Store | None = None
        #: Blocks of terms as they were read, by tenant; some have changed since.
        self.blocks_read: dict[str, list[tx.PlacedBlock]] = {}

    # -- both stores alike

    def both(self, tenant: str, *acts: Callable[[TenantStore], Awaitable[Any]]) -> Any:
        """Run each act on both stores, compare the outcomes; return the reference's last one."""
        assert self._store is not None
        expected: Any = None
        for act in acts:
            expected = self._outcome(self._reference.tenant(tenant), act)
            assert self._outcome(self._store.tenant(tenant), act) == expected
        return expected

    def each(self, *acts: Callable[[TenantStore], Awaitable[Any]]) -> None:
        """Run each act on both stores, for every tenant."""
        for tenant in HOSTILE_NAMES[:6]:
            self.both(tenant, *acts)

    def _outcome(self, tenant: TenantStore, act: Callable[[TenantStore], Awaitable[Any]]) -> Any:
        async def run_it() -> Any:
            return await act(tenant)

        try:
            return self._runner.run(run_it())
        except HiermemError as error:
            return type(error)

    def nodes(self, tenant: str, session: str) -> list[Node]:
        """Return the reference's nodes of a session."""

        async def all_of(handle: TenantStore) -> list[Node]:
            tree = handle.tree(session)
            return [one for level in await tree.levels() for one in await tree.level(level, 0)]

        return self._outcome(self._reference.tenant(tenant), all_of)  # type: ignore[no-any-return]

    @initialize()
    def open(self) -> None:
        """Open the store under test."""

        async def opened() -> Store:
            return await self._open_store(self._path)

        self._store = self._runner.run(opened())

    # -- reading

    @rule(tenant=_TENANTS)
    def compare(self, tenant: str) -> None:
        """Compare everything that the tenant's handle can read."""
        self.both(tenant, contents)

    @rule(tenant=_TENANTS, session=_SESSIONS, start=_SMALL, length=_SMALL, level=st.integers(0, 3))
    def read(self, tenant: str, session: str, start: int, length: int, level: int) -> None:
        """Compare ranges of messages and nodes."""
        self.both(tenant, lambda handle: handle.session(session))
        self.both(tenant, lambda handle: handle.messages(session, start, start + length))
        self.both(tenant, lambda handle: handle.messages(session, 0, 99, thread="main"))
        self.both(tenant, lambda handle: handle.tree(session).level(level, start, start + length))
        self.both(tenant, lambda handle: handle.tree(session).unfinished(level, start, length))
        self.both(tenant, lambda handle: handle.tree(session).outdated(level, ["s"], start, length))
        self.both(tenant, lambda handle: handle.tree(session).covering("main", 10 * start + length))

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        """Close the store and open it again; nothing may be missing."""
        assert self._store is not None
        self._runner.run(self._store.close())
        self.open()

    @property
    def durable(self) -> bool:
        """Return whether the store survives being closed."""
        return self._store is not None and "durable" in self._store.capabilities

    def teardown(self) -> None:
        """Compare everything once more, then close the store."""
        try:
            if self._store is not None:
                self.each(contents)
        finally:
            if self._store is not None:
                self._runner.run(self._store.close())
            self._runner.close()

    # -- sessions

    @rule(tenant=_TENANTS, session=_SESSIONS, data=st.data())
    def append(self, tenant: str, session: str, data: st.DataObject) -> None:
        """Append messages, claiming their keys; if one is taken, both stores must refuse."""
        given = data.draw(
            st.lists(stored_messages(keys=st.none() | _KEYS, large=False), max_size=4)
        )
        asked = data.draw(st.lists(_KEYS, max_size=4))
        labels = data.draw(st.dictionaries(_KEYS, _KEYS, max_size=3))
        record = {
            "title": data.draw(st.none() | _SHORT_TEXTS),
            "metadata": labels,
            "last_activity": NOW + timedelta(minutes=data.draw(st.integers(0, 3))),
        }
        self.both(tenant, lambda handle: write(handle, session, given, keys=asked, record=record))
        one: dict[str, str] = dict(list(labels.items())[:1])
        for order in ("created", "last_activity"):
            self.both(tenant, partial(_listed, session, one, order))

    @rule(tenant=_TENANTS, session=_SESSIONS, index=_SMALL, data=st.data())
    def mark(self, tenant: str, session: str, index: int, data: st.DataObject) -> None:
        """Flag a message, which may not exist, and write an event."""
        flag, closed = data.draw(st.sampled_from(("a", "b"))), data.draw(st.booleans())
        event = tx.LogEvent("close" if closed else "flush", index, NOW, flag)
        effects: dict[str, Any] = {
            "flags": ((index, flag),),
            "events": (event,),
            "record": {"closed": closed},
        }
        self.both(tenant, lambda handle: write(handle, session, **effects))

    @rule(tenant=_TENANTS, session=_SESSIONS, index=_SMALL, data=st.data())
    def rewrite(self, tenant: str, session: str, index: int, data: st.DataObject) -> None:
        """Rewrite a message, which may not exist, together with a write to another session."""
        said = replace(stored(Message.user(data.draw(_SHORT_TEXTS))), index=index)
        other = data.draw(_SESSIONS)
        step = writing(
            session,
            rewrites=(tx.Rewrite(said, data.draw(st.sampled_from(("edit", "erase", "mark")))),),
            drop_views=(data.draw(_KEYS),),
            drop_records=(("k", data.draw(_KEYS)),),
            events=(tx.LogEvent("edit", index, NOW),),
        )
        steps = ((other, writing(other, ["beside"])), (session, step))
        self.both(tenant, lambda handle: handle.transact(deciding(*steps)))

    @rule(tenant=_TENANTS, session=_SESSIONS, source=_SESSIONS, data=st.data())
    def fork(self, tenant: str, session: str, source: str, data: st.DataObject) -> None:
        """Copy a session into a new one, which may be impossible, and delete others."""
        stop = data.draw(st.integers(-1, 4))
        picks = data.draw(st.lists(st.tuples(_SMALL, st.integers(1, 2)), max_size=3))
        nodes = self.nodes(tenant, source)
        wanted = tuple((nodes[pick % len(nodes)].id, number) for pick, number in picks if nodes)
        step = writing(
            session, copy=tx.Copy(source, stop, wanted), record={"forked_from": source, "tree": 1}
        )
        runs = [run(f"run-{stop}", subject=source)]
        self.both(tenant, lambda handle: handle.transact(deciding((session, step), runs=runs)))
        delete = data.draw(st.lists(_SESSIONS, max_size=2))
        self.both(tenant, lambda handle: handle.transact(deciding(delete=delete)))

    @rule(tenant=_TENANTS, session=_SESSIONS, start=_SMALL, data=st.data())
    def guard(self, tenant: str, session: str, start: int, data: st.DataObject) -> None:
        """Make writes guarded by an epoch, sometimes by a wrong one or after it moved."""
        raised = data.draw(st.sampled_from((None, None, 1, 2)))
        if raised is not None:
            self.both(tenant, lambda handle: write(handle, session, record={"epoch": raised}))
        name, epoch = data.draw(_KEYS), data.draw(st.integers(0, 2))
        block = tx.Block("index", start, start + data.draw(st.integers(1, 3)), name.encode())
        record = tx.RecordWrite("k", session, name, f"of {epoch}")
        view = tx.ViewRecord(session, name, f"of {epoch}")
        self.both(tenant, lambda handle: handle.put_blocks(session, [block], epoch=epoch))
        self.both(tenant, lambda handle: handle.put_view(view, epoch=epoch))
        self.both(tenant, lambda handle: handle.put_records([record], epochs={session: epoch}))
        self.both(tenant, lambda handle: handle.blocks(session, "index", start))

    @rule(tenant=_TENANTS, session=_SESSIONS, data=st.data())
    def index(self, tenant: str, session: str, data: st.DataObject) -> None:
        """Put blocks of terms, and a segment of some of those that were read a while ago."""
        spans = data.draw(st.lists(st.tuples(_SMALL, st.integers(1, 4)), max_size=3))

        async def put(handle: TenantStore) -> bool:
            record = await handle.session(session)
            epoch, stop = (record.epoch, record.messages) if record else (0, 0)
            spread = [(4 * at, 4 * at + size) for at, size in spans if 4 * at + size <= stop]
            blocks = [tx.Block(tx.TERMS, low, high, b"x") for low, high in spread]
            return await handle.put_blocks(session, blocks, epoch=epoch)

        self.both(tenant, put)
        read = self.blocks_read.get(tenant, [])
        picks = data.draw(st.lists(_SMALL, max_size=3, unique=True))
        chosen = [read[pick] for pick in picks if pick < len(read)]
        self.both(tenant, partial(_put_segment, chosen, data.draw(_SMALL)))
        limit = data.draw(st.none() | _SMALL)
        for other in HOSTILE_NAMES[:6]:
            state = self.both(other, partial(_index_state, limit))
            if other == tenant:
                self.blocks_read[tenant] = [*state.loose, *read][:16]

    @rule(tenant=_TENANTS)
    def erase_everything(self, tenant: str) -> None:
        """Erase all of a tenant other than the first, so that the first one can grow."""
        if tenant != HOSTILE_NAMES[0]:
            self.both(tenant, lambda handle: handle.erase_all())

    # -- nodes

    @rule(tenant=_TENANTS, session=_SESSIONS, data=st.data())
    def replant(self, tenant: str, session: str, data: st.DataObject) -> None:
        """Let another tree serve, drop one, forget texts, write nodes into any."""
        nodes = self.nodes(tenant, session)
        forget = data.draw(st.lists(_SMALL, max_size=2))
        tree = data.draw(st.sampled_from((None, 0, 1)))
        changed: dict[str, Any] = {
            "nodes": (node(0),),
            "forget": tuple(nodes[pick % len(nodes)].id for pick in forget if nodes),
            "drop_tree": data.draw(st.sampled_from((None, None, 0, 1))),
            "tree": tree,
            "record": {"tree": data.draw(st.sampled_from((0, 0, 1)))},
        }
        self.both(tenant, lambda handle: write(handle, session, **changed))
        made = remade(node(0), input_hash="h1")
        self.both(tenant, lambda handle: handle.tree(session, tree).write_nodes([made]))

    @rule(tenant=_TENANTS, session=_SESSIONS, level=st.integers(1, 3), data=st.data())
    def seal(self, tenant: str, session: str, level: int, data: st.DataObject) -> None:
        """Seal nodes of a level."""
        known = sum(one.level == level for one in self.nodes(tenant, session))
        status = data.draw(st.sampled_from(_STATUSES))
        work = {"degraded": data.draw(st.booleans()), "dirty": data.draw(st.booleans())}
        count = data.draw(st.integers(1, 12))
        sealed = tuple(node(known + n, level, status=status, **work) for n in range(count))
        self.both(tenant, lambda handle: write(handle, session, nodes=sealed))

    @rule(tenant=_TENANTS, session=_SESSIONS, child=_SMALL)
    def regroup(self, tenant: str, session: str, child: int) -> None:
        """Set a parent; both stores must refuse if there is no such child."""
        ids = [*(one.id for one in self.nodes(tenant, session)), "L1.99"]
        parents = ((ids[child % len(ids)], "L2.0"),)
        self.both(tenant, lambda handle: write(handle, session, parents=parents))

    @rule(tenant=_TENANTS, session=_SESSIONS, data=st.data())
    def generate(self, tenant: str, session: str, data: st.DataObject) -> None:
        """Commit texts by compare-and-swap, some with an outdated version or input."""
        late = st.sampled_from((0, 0, 0, 1))
        picks = data.draw(st.lists(st.tuples(_SMALL, late, texts()), max_size=4))
        how = {
            "input_hash": data.draw(st.sampled_from(("h1", "h2", "H1"))),
            "degraded": data.draw(st.booleans()),
        }
        wrong_input = data.draw(st.sampled_from((None, 0, 1)))
        nodes = self.nodes(tenant, session) or [node(0)]
        writes: list[tx.NodeWrite] = []
        for pick, behind, text in picks:
            chosen = nodes[pick % len(nodes)]
            base = replace(chosen, version=max(chosen.version - behind, 0))
            made = remade(base, text=text, **how)
            if wrong_input is not None:
                other = nodes[(pick + 1) % len(nodes)]
                made = replace(made, inputs=((other.id, other.revision + wrong_input),))
            writes.append(made)
        tried = [attempt(f"try-{n}", number=len(writes)) for n, _ in enumerate(writes)]
        self.both(tenant, lambda handle: handle.tree(session).write_nodes(writes, attempts=tried))
        self.both(tenant, _reusable)

    # -- journal and views

    @rule(
        tenant=_TENANTS,
        number=_SMALL,
        subject=st.sampled_from(("s", "S", "s%")),
        name=_KEYS,
        state=_SHORT_TEXTS,
    )
    def journal(self, tenant: str, number: int, subject: str, name: str, state: str) -> None:
        """Put a run, an attempt and a view, or replace those of the same name."""
        view = tx.ViewRecord(subject, name, state)
        tried = attempt(f"own-{number}", session_id=subject, run_id=name, reason=state)
        self.both(tenant, lambda handle: handle.put_run(run(f"run-{number}", subject=subject)))
        self.both(tenant, lambda handle: handle.tree("none").write_nodes([], attempts=[tried]))
        self.both(tenant, lambda handle: handle.put_view(view))
        self.each(
            lambda handle: handle.view(subject, name),
            lambda handle: handle.runs(subject=subject, limit=3),
            lambda handle: handle.attempts(session_id=subject, limit=3),
        )

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
        """Put and delete records, some with a version that does not exist or twice in one call."""
        writes = [tx.RecordWrite(kind, *pick) for pick in picks]
        self.both(tenant, lambda handle: handle.put_records(writes))
        self.each(lambda handle: handle.records(kind, limit=3))
        for scope, key, _, _ in picks:
            self.both(tenant, partial(_records, kind, scope, key))


async def _records(kind: str, scope: str, key: str, handle: TenantStore) -> list[list[tx.Record]]:
    return [
        await handle.records(kind, scope=scope),
        await handle.records(kind, key=key),
        await handle.records(kind, scope=scope, key=key),
    ]


async def _put_segment(chosen: list[tx.PlacedBlock], gone: int, handle: TenantStore) -> bool:
    """Put a segment of blocks, and dissolve the one of that rank, if there is one."""
    numbers = [one.number for one in (await handle.index_state()).segments]
    return await handle.put_segment(
        chosen, {0: b"page", gone: bytes(gone)}, replaces=numbers[gone : gone + 1]
    )


async def _index_state(limit: int | None, handle: TenantStore) -> tx.IndexState:
    """Read everything of the index; segments are numbered anew, as each store has its own."""
    state = await handle.index_state(range(8), limit=limit)
    places = [(one.number, place) for one in state.segments for place in range(one.blocks)]
    order = {one.number: rank for rank, one in enumerate(state.segments)}
    found = await handle.segment_blocks(places)
    return replace(
        state,
        segments=tuple(
            replace(one, number=order[one.number], pages=dict(one.pages)) for one in state.segments
        ),
        loose=state.loose + tuple(replace(one, segment=order[one.segment]) for one in found),
    )


async def _listed(
    after: str, metadata: dict[str, str], order_by: tx.SessionOrder, handle: TenantStore
) -> list[list[SessionRecord] | int]:
    return [
        await handle.sessions(after=after, limit=2, order_by=order_by),
        await handle.sessions(metadata=metadata, limit=2, order_by=order_by),
        await handle.count_sessions(metadata=metadata),
    ]


async def _reusable(handle: TenantStore) -> list[Revision | None]:
    return [await handle.reusable(input_hash) for input_hash in ("h1", "h2", "h")]
