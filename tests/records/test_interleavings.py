"""Two operations at once are as one after the other, wherever the second comes between.

The second operation runs whole between any two calls of the store that the first one makes. The
results of both, and everything that can be read afterwards, must be those of one of the two orders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
import samples
from samples import changed, contents, deciding, node, remade, to, write

from hiermem.errors import HiermemError
from hiermem.records.contract import to_micros
from hiermem.records.run import RecordStore, Tenant
from hiermem.records.tables import TABLES, Commit, Found, Key, Row, Scan
from hiermem.stores.memory import MemoryStore
from hiermem.types import Message
from hiermem.types import transaction as tx

#: The generation of the claim on the session "t".
CLAIM = 7
Operation = Callable[[Tenant], Coroutine[Any, Any, Any]]


class Stepping(MemoryStore):
    """A store that runs another operation whole before the call of a number."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: samples.NOW)
        self.at = 0
        self.calls = 0
        self.other: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self.result: Any = None

    async def _step(self) -> None:
        self.calls += 1
        if self.calls == self.at and self.other is not None:
            other, self.other = self.other, None
            self.result = await other()

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        await self._step()
        return await super().read(gets, scans)

    async def commit(self, change: Commit) -> bool:
        await self._step()
        return await super().commit(change)

    async def now(self) -> datetime:
        return samples.NOW


def _erase(t: Tenant) -> Coroutine[Any, Any, str]:
    """Erase a message, its copies in forks, and what was derived of it."""

    def decide() -> tx.Deciding[str]:
        record = yield "s", "session"
        if record is None:
            return tx.Batch("gone")
        (found,), views, records, forks, covering = yield (
            ("s", tx.NeedMessages(0, 1)), ("s", tx.NeedViews()), ("s", tx.NeedRecords("k")),
            ("s", "forks"), ("s", tx.NeedCovering("main", 0)),
        )  # fmt: skip
        word = found.content.split(" ")[0]
        steps = [
            changed(
                "s", record, rewrites=(tx.Rewrite(to(0, ""), "erase"),),
                record={"epoch": record.epoch + 1},
                drop_views=tuple(view.name for view in views if word in view.state),
                drop_records=tuple((one.kind, one.key) for one in records if word in one.body),
                forget=tuple(each.id for each in covering),
                nodes=tuple(
                    replace(each, dirty=True, version=each.version + 1) for each in covering
                ),
            )
        ]  # fmt: skip
        for fork in forks:
            (other,) = yield fork.id, tx.NeedMessages(0, 1)
            if other.content == found.content:
                erased = (tx.Rewrite(replace(to(0, ""), index=0), "erase"),)
                steps.append(
                    changed(fork.id, fork, rewrites=erased, record={"epoch": fork.epoch + 1})
                )
        return tx.Batch("erased", tuple(steps))

    return t.transact(decide)


def _fork(t: Tenant) -> Coroutine[Any, Any, str]:
    def decide() -> tx.Deciding[str]:
        record, other = yield ("s", "session"), ("f", "session")
        if record is None or other is not None:
            return tx.Batch("not possible")
        fields = {"forked_from": "s", "messages": 2}
        return tx.Batch("forked", (changed("f", None, copy=tx.Copy("s", 2), record=fields),))

    return t.transact(decide)


def _once(t: Tenant) -> Coroutine[Any, Any, str]:
    def decide(snapshot: tx.Snapshot) -> tx.Changes[str]:
        if "once" in snapshot.keys:
            return tx.Changes("known")
        message = Message.user("only once", key="once")
        written = samples.writing("s", [message])(snapshot)
        return replace(written, result="new")

    return t.mutate("s", decide, keys=["once"])


async def _segment(t: Tenant) -> bool:
    state = await t.index_state()
    return await t.put_segment(state.loose, {0: b"pages"})


async def _claims(t: Tenant) -> list[str]:
    claims = await t._records.claim_due(5, lease=30)
    return [claim.session_id for claim in claims]


async def _dump(t: Tenant) -> list[Any]:
    rows = [row async for page in await t.dump("s") for row in page]
    return [{**row, "secret": ""} for row in rows]


OPERATIONS: dict[str, Operation] = {
    "append": lambda t: write(t, "s", ["one more"]),
    "append with a key": lambda t: write(t, "s", [Message.user("x", key="new")], keys=["new"]),
    "append once": _once,
    "append and seal": lambda t: write(
        t, "s", ["seals"], nodes=(node(7, status="pending"),), parents=(("L1.1", "L2.0"),)
    ),
    "append to a new session": lambda t: write(t, "n", ["first"]),
    "erase": _erase,
    "edit": lambda t: write(t, "s", rewrites=(tx.Rewrite(to(1, "other"), "edit"),)),
    "flag": lambda t: write(t, "s", flags=((1, "f"),)),
    "fork": _fork,
    "delete": lambda t: t.transact(deciding(delete=("s",))),
    "write a node": lambda t: t.tree("s").write_nodes(
        [remade(node(0), text="word0 is in it", input_hash="h")], attempts=[samples.attempt("p")]
    ),
    "write a node of inputs": lambda t: t.tree("s").write_nodes(
        [replace(remade(node(2)), inputs=(("L1.0", 0),))]
    ),
    "write a node under a claim": lambda t: t.tree("t").write_nodes(
        [remade(node(0))], attempts=[samples.attempt("q")], claim=tx.DueSession("a", "t", CLAIM)
    ),
    "put a view": lambda t: t.put_view(tx.ViewRecord("s", "v", "word0 was shown"), epoch=0),
    "put a record": lambda t: t.put_records(
        [tx.RecordWrite("k", "s", "c", "word0 noted", 0)], epochs={"s": 0}
    ),
    "put a record of a space": lambda t: t.put_records([tx.RecordWrite("k", "space", "c", "x", 0)]),
    "put blocks": lambda t: t.put_blocks("s", [tx.Block(tx.TERMS, 2, 4, b"z")], epoch=0),
    "replace blocks": lambda t: t.put_blocks("s", [tx.Block(tx.TERMS, 0, 3, b"y")], epoch=0),
    "put a segment": _segment,
    "drop blocks": lambda t: t.drop_blocks("s", tx.TERMS),
    "claim": lambda t: t.take_due("s", lease=30),
    "settle": lambda t: t.settle_due(tx.DueSession("a", "t", CLAIM)),
    "renew": lambda t: t.take_due("t", lease=60, held=tx.DueSession("a", "t", CLAIM)),
    "take over": lambda t: t.take_due("t", lease=60),
    "claim all": _claims,
    "put a run": lambda t: t.put_run(samples.run("q")),
    "read the index": lambda t: t.index_state([0]),
    "read a dump": _dump,
}
#: Those that found faults: in CI all pairs of them, in the thorough run all pairs of all.
SHORT = (
    "append", "append once", "erase", "fork", "delete", "write a node", "put a record",
    "replace blocks", "put a segment", "read the index",
)  # fmt: skip


async def _begin() -> tuple[Stepping, Tenant]:
    store = Stepping()
    tenant = RecordStore(store).tenant("a")
    said = [Message.user(f"word{n} said", key=f"key-{n}") for n in range(4)]
    await write(tenant, "s", said, nodes=(node(0), node(1), node(2)))
    await write(tenant, "t", ["elsewhere"], nodes=(node(0),))
    claimed = Commit(puts={"due": [("a", "t", 1, to_micros(samples.NOW) + 9_000_000, CLAIM, 1)]})
    await store.commit(claimed)
    await tenant.put_view(tx.ViewRecord("s", "w", "word1"))
    await tenant.put_records([tx.RecordWrite("k", "s", "a", "word0 is noted")])
    await tenant.put_blocks("s", [tx.Block(tx.TERMS, 0, 2, b"x")], epoch=0)
    await _segment(tenant)
    await tenant.secret()
    return store, tenant


async def _safe(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        result = await coroutine
    except (HiermemError, AttributeError, TypeError) as error:
        return type(error).__name__
    if isinstance(result, tx.Snapshot):
        return None
    if isinstance(result, tx.IndexState):
        return _plain_state(result)
    return result.claimed if isinstance(result, tx.DueSession) else result


def _plain_state(state: tx.IndexState) -> Any:
    segments = [(one.blocks, one.dead, dict(one.pages)) for one in state.segments]
    loose = [(one.session.id, one.block) for one in state.loose]
    return segments, loose, [(record.id, gaps) for record, gaps in state.unindexed]


async def _shown(store: Stepping, tenant: Tenant) -> Any:
    """Return everything that can be read, and how many rows each table has."""
    due = await tenant._records.claim_due(99, lease=0, ahead=None)
    counts = {
        name: sum(1 for _ in _rows(store, name))
        for name in TABLES
        if name not in ("store", "counters")
    }
    state = await tenant.index_state([0], limit=None)
    entries = sorted((entry.session_id, entry.claimed) for entry in due)
    return await contents(tenant), _plain_state(state), entries, counts


def _rows(store: Stepping, name: str) -> Iterable[Row]:
    return store._rows[name].by_key.values()


async def interleave(first: Operation, second: Operation) -> list[int]:
    """Return the calls of the first before which the second comes with a wrong outcome."""
    serial = []
    for order in ((first, second), (second, first)):
        store, tenant = await _begin()
        results = [await _safe(operation(tenant)) for operation in order]
        if serial:
            results.reverse()
        serial.append((results, await _shown(store, tenant)))
    wrong: list[int] = []
    for at in range(1, 80):
        store, tenant = await _begin()
        store.at, store.calls = at, 0
        store.other = lambda tenant=tenant: _safe(second(tenant))
        result = await _safe(first(tenant))
        if store.other is not None:
            break
        if ([result, store.result], await _shown(store, tenant)) not in serial:
            wrong.append(at)
    return wrong


@pytest.mark.parametrize("first", SHORT)
def test_operations_that_meet_are_as_one_after_the_other(first: str) -> None:
    """No result and nothing that can be read is of a mixture of two orders."""
    wrong = {}
    for second in SHORT:
        if places := asyncio.run(interleave(OPERATIONS[first], OPERATIONS[second])):
            wrong[second] = places
    assert not wrong, f"{first}, with these between the calls of these numbers: {wrong}"


@pytest.mark.thorough
@pytest.mark.parametrize("first", OPERATIONS)
def test_all_operations_that_meet_are_as_one_after_the_other(first: str) -> None:
    """The same for all pairs of operations."""
    wrong = {}
    for second, operation in OPERATIONS.items():
        if places := asyncio.run(interleave(OPERATIONS[first], operation)):
            wrong[second] = places
    assert not wrong, f"{first}, with these between the calls of these numbers: {wrong}"
