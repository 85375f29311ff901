"""The operations of the state machine on a store and on the in-memory reference.

They cover every kind of write. Each operation is decided from the reference's answers, so a wrong
store cannot steer it. ``twins`` drives and compares the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st
from hypothesis.stateful import rule

from hiermem.protocols import Store, TenantStore
from hiermem.testing.samples import (
    NOW,
    attempt,
    deciding,
    node,
    remade,
    run,
    stored,
    write,
    writing,
)
from hiermem.testing.strategies import HOSTILE_NAMES, stored_messages, texts
from hiermem.testing.twins import SESSIONS, SMALL, TENANTS, Twins
from hiermem.types import Message, Revision, SessionRecord, Status, StoredMessage
from hiermem.types.transaction import (
    TERMS,
    Block,
    Copy,
    IndexState,
    LogEvent,
    NodeWrite,
    PlacedBlock,
    Record,
    RecordWrite,
    Rewrite,
    SessionOrder,
    ViewRecord,
)

_KEYS = st.sampled_from(HOSTILE_NAMES)
_STATUSES: tuple[Status, ...] = ("pending", "generating", "active", "failed")


class StoreMachine(Twins):
    """Drives the store that ``open_store`` opens; ``root`` is an empty directory for its files."""

    def __init__(self, open_store: Callable[[Path], Awaitable[Store]], root: Path) -> None:
        super().__init__(open_store, root)
        #: Blocks of terms as they were read, by tenant; some have changed since.
        self.blocks_read: dict[str, list[PlacedBlock]] = {}

    # -- sessions

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        given=st.lists(stored_messages(keys=st.none() | _KEYS, large=False), max_size=4),
        asked=st.lists(_KEYS, max_size=4),
        title=st.none() | texts(large=False),
        labels=st.dictionaries(_KEYS, _KEYS, max_size=3),
        active=st.integers(0, 3),
    )
    def append(
        self,
        tenant: str,
        session: str,
        *,
        given: list[StoredMessage],
        asked: list[str],
        title: str | None,
        labels: dict[str, str],
        active: int,
    ) -> None:
        """Append messages, claiming their keys; if one is taken, both stores must refuse."""
        later = NOW + timedelta(minutes=active)
        record = {"title": title, "metadata": labels, "last_activity": later}
        self.both(tenant, lambda handle: write(handle, session, given, keys=asked, record=record))
        one = dict(list(labels.items())[:1])
        for order in ("created", "last_activity"):
            self.both(tenant, partial(_listed, session, one, order))

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        index=SMALL,
        flag=st.sampled_from(("a", "b")),
        closed=st.booleans(),
    )
    def mark(self, tenant: str, session: str, *, index: int, flag: str, closed: bool) -> None:
        """Flag a message, which may not exist, and write an event."""
        event = LogEvent("close" if closed else "flush", index, NOW, flag)
        self.both(
            tenant,
            lambda handle: write(
                handle, session, flags=((index, flag),), events=(event,), record={"closed": closed}
            ),
        )

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        index=SMALL,
        content=texts(large=False),
        kind=st.sampled_from(("edit", "erase", "mark")),
        other=SESSIONS,
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
        self.both(tenant, lambda handle: handle.transact(deciding(*steps)))

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        source=SESSIONS,
        stop=st.integers(-1, 4),
        picks=st.lists(st.tuples(SMALL, st.integers(1, 2)), max_size=3),
        delete=st.lists(SESSIONS, max_size=2),
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
        nodes = self.nodes(tenant, source)
        wanted = tuple((nodes[pick % len(nodes)].id, number) for pick, number in picks if nodes)
        step = writing(
            session, copy=Copy(source, stop, wanted), record={"forked_from": source, "tree": 1}
        )
        runs = [run(f"run-{stop}", subject=source)]
        self.both(tenant, lambda handle: handle.transact(deciding((session, step), runs=runs)))
        self.both(tenant, lambda handle: handle.transact(deciding(delete=delete)))

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        start=SMALL,
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
        """Make writes guarded by an epoch, sometimes by a wrong one or after it moved."""
        if raised is not None:
            self.both(tenant, lambda handle: write(handle, session, record={"epoch": raised}))
        block = Block("index", start, start + length, name.encode())
        record = RecordWrite("k", session, name, f"of {epoch}")
        view = ViewRecord(session, name, f"of {epoch}")
        self.both(tenant, lambda handle: handle.put_blocks(session, [block], epoch=epoch))
        self.both(tenant, lambda handle: handle.put_view(view, epoch=epoch))
        self.both(tenant, lambda handle: handle.put_records([record], epochs={session: epoch}))
        self.both(tenant, lambda handle: handle.blocks(session, "index", start))

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        spans=st.lists(st.tuples(SMALL, st.integers(1, 4)), max_size=3),
        picks=st.lists(SMALL, max_size=3, unique=True),
        gone=SMALL,
        limit=st.none() | SMALL,
    )
    def index(
        self,
        tenant: str,
        session: str,
        *,
        spans: list[tuple[int, int]],
        picks: list[int],
        gone: int,
        limit: int | None,
    ) -> None:
        """Put blocks of terms, and a segment of some of those that were read a while ago."""

        async def put(handle: TenantStore) -> bool:
            record = await handle.session(session)
            epoch, stop = (record.epoch, record.messages) if record else (0, 0)
            spread = [(4 * at, 4 * at + size) for at, size in spans if 4 * at + size <= stop]
            blocks = [Block(TERMS, low, high, b"x") for low, high in spread]
            return await handle.put_blocks(session, blocks, epoch=epoch)

        self.both(tenant, put)
        read = self.blocks_read.get(tenant, [])
        chosen = [read[pick] for pick in picks if pick < len(read)]
        self.both(tenant, partial(_put_segment, chosen, gone))
        for other in HOSTILE_NAMES[:6]:
            state = self.both(other, partial(_index_state, limit))
            if other == tenant:
                self.blocks_read[tenant] = [*state.loose, *read][:16]

    @rule(tenant=TENANTS)
    def erase_everything(self, tenant: str) -> None:
        """Erase all of a tenant other than the first, so that the first one can grow."""
        if tenant != HOSTILE_NAMES[0]:
            self.both(tenant, lambda handle: handle.erase_all())

    # -- nodes

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        serving=st.sampled_from((0, 0, 1)),
        tree=st.sampled_from((None, 0, 1)),
        gone=st.sampled_from((None, None, 0, 1)),
        forget=st.lists(SMALL, max_size=2),
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
        nodes = self.nodes(tenant, session)
        forgotten = tuple(nodes[pick % len(nodes)].id for pick in forget if nodes)
        loose = node(0, id="open/L1/main", sealed=False)
        self.both(
            tenant,
            lambda handle: write(
                handle, session, nodes=(node(0), loose), forget=forgotten, drop_tree=gone,
                tree=tree, record={"tree": serving},
            ),
        )  # fmt: skip
        made = remade(node(0), input_hash="h1")
        self.both(tenant, lambda handle: handle.tree(session, tree).write_nodes([made]))

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
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
        """Seal nodes of a level and write a provisional one."""
        known = sum(one.level == level and one.sealed for one in self.nodes(tenant, session))
        loose = node(0, level, id=f"open/L{level}", sealed=False, status=status)
        sealed = [
            node(known + n, level, status=status, degraded=work[0], dirty=work[1])
            for n in range(count)
        ]
        self.both(tenant, lambda handle: write(handle, session, nodes=(*sealed, loose)))

    @rule(tenant=TENANTS, session=SESSIONS, child=SMALL, gone=SMALL)
    def regroup(self, tenant: str, session: str, child: int, gone: int) -> None:
        """Set a parent; both stores must refuse if the child is dropped in the same write."""
        ids = [one.id for one in self.nodes(tenant, session)] or ["L1.0"]
        parents = ((ids[child % len(ids)], "L2.0"),)
        drop = (ids[gone % len(ids)],)
        self.both(tenant, lambda handle: write(handle, session, drop=drop, parents=parents))

    @rule(
        tenant=TENANTS,
        session=SESSIONS,
        picks=st.lists(st.tuples(SMALL, st.sampled_from((0, 0, 0, 1)), texts()), max_size=4),
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
        """Commit texts by compare-and-swap, some with an outdated version or input."""
        nodes = self.nodes(tenant, session) or [node(0)]
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
        self.both(tenant, lambda handle: handle.tree(session).write_nodes(writes, attempts=tried))
        self.both(tenant, _reusable)

    # -- journal and views

    @rule(
        tenant=TENANTS,
        number=SMALL,
        subject=st.sampled_from(("s", "S", "s%")),
        name=_KEYS,
        state=texts(large=False),
    )
    def journal(self, tenant: str, number: int, subject: str, name: str, state: str) -> None:
        """Put a run, an attempt and a view, or replace those of the same name."""
        view = ViewRecord(subject, name, state)
        tried = attempt(f"own-{number}", session_id=subject, run_id=name, reason=state)
        self.both(tenant, lambda handle: handle.put_run(run(f"run-{number}", subject=subject)))
        self.both(tenant, lambda handle: handle.tree("none").write_nodes([], attempts=[tried]))
        self.both(tenant, lambda handle: handle.put_view(view))
        for other in HOSTILE_NAMES[:6]:
            self.both(other, lambda handle: handle.view(subject, name))
            self.both(other, lambda handle: handle.runs(subject=subject, limit=3))
            self.both(other, lambda handle: handle.attempts(session_id=subject, limit=3))

    @rule(
        tenant=TENANTS,
        kind=st.sampled_from(("k", "K")),
        picks=st.lists(
            st.tuples(SESSIONS, _KEYS, st.none() | texts(), st.none() | st.integers(-1, 3)),
            max_size=4,
        ),
    )
    def record(
        self, tenant: str, kind: str, picks: list[tuple[str, str, str | None, int | None]]
    ) -> None:
        """Put and delete records, some with a version that does not exist or twice in one call."""
        writes = [RecordWrite(kind, *pick) for pick in picks]
        self.both(tenant, lambda handle: handle.put_records(writes))
        for other in HOSTILE_NAMES[:6]:
            self.both(other, lambda handle: handle.records(kind, limit=3))
        for each in writes:
            self.both(tenant, partial(_found, each))


async def _found(write: RecordWrite, handle: TenantStore) -> list[list[Record]]:
    return [
        await handle.records(write.kind, scope=write.scope),
        await handle.records(write.kind, key=write.key),
        await handle.records(write.kind, scope=write.scope, key=write.key),
    ]


async def _put_segment(chosen: list[PlacedBlock], gone: int, handle: TenantStore) -> bool:
    """Put a segment of blocks, and dissolve the one of that rank, if there is one."""
    numbers = [one.number for one in (await handle.index_state()).segments]
    return await handle.put_segment(
        chosen, {0: b"page", gone: bytes(gone)}, replaces=numbers[gone : gone + 1]
    )


async def _index_state(limit: int | None, handle: TenantStore) -> IndexState:
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
    after: str, metadata: dict[str, str], order_by: SessionOrder, handle: TenantStore
) -> list[list[SessionRecord] | int]:
    return [
        await handle.sessions(after=after, limit=2, order_by=order_by),
        await handle.sessions(metadata=metadata, limit=2, order_by=order_by),
        await handle.count_sessions(metadata=metadata),
    ]


async def _reusable(handle: TenantStore) -> list[Revision | None]:
    return [await handle.reusable(input_hash) for input_hash in ("h1", "h2", "h")]
