"""The conditions on how sessions are kept, over any store: a subclass says how it is opened.

They test what ``hiermem.protocols`` promises, through the protocol alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from change_conditions import ChangeConditions
from listing_conditions import ListingConditions
from message_strategies import HOSTILE_NAMES
from record_conditions import RecordConditions
from removal_conditions import DumpConditions, RemovalConditions
from samples import (
    NOTHING,
    attempt,
    contents,
    delete,
    node,
    remade,
    run,
    stored,
    write,
)
from segment_conditions import SegmentConditions, condition, path_condition, store_condition
from session_conditions import SessionConditions
from tree_conditions import NodeConditions, TreeConditions

from hiermem.errors import UsageError
from hiermem.protocols import Store, TenantStore
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types import Message
from hiermem.types import transaction as tx

#: What is read of each tenant; all but the first name what they want.
_READS: tuple[Callable[[TenantStore], Awaitable[Any]], ...] = (
    contents,
    lambda tenant: tenant.records("k", scope="s"),
    lambda tenant: tenant.records("k", key="v"),
    lambda tenant: tenant.records("k", scope="s", key="v"),
    lambda tenant: tenant.attempts(run_id="run"),
    lambda tenant: tenant.attempts(session_id="s"),
    lambda tenant: tenant.attempts(run_id="run", session_id="s"),
    lambda tenant: tenant.run("r"),
    lambda tenant: tenant.blocks("s", "index"),
    lambda tenant: tenant.versions("s", 0),
    lambda tenant: tenant.tree("s").covering("main", 5),
    lambda tenant: tenant.tree("s").outdated(1, [], -1, 9),
    lambda tenant: tenant.tree("s").tally(),
    lambda tenant: tenant.tree("s", 1).tally(),
)


class RecordConformance(
    SessionConditions,
    ChangeConditions,
    RemovalConditions,
    SegmentConditions,
    NodeConditions,
    TreeConditions,
    RecordConditions,
    ListingConditions,
    DumpConditions,
):
    """Everything that a store must do, one test for each condition.

    A subclass defines ``async def open_store(self, path)``; the path is fresh for each test, and a
    durable store must find there again what it left.
    """

    @condition
    async def test_what_is_dropped_goes_before_what_is_written(self, tenant: TenantStore) -> None:
        """One change may drop a tree and write nodes into it, also as it makes the session."""
        for kept in range(2):
            await write(tenant, "s", nodes=(node(kept),), drop_tree=0)
            level = await tenant.tree("s", 0).level(1, 0)
            assert [one.id for one in level] == [f"L1.{kept}"]

    @store_condition
    async def test_it_has_the_shape_of_a_store(self, store: Store) -> None:
        """It has the tenant that it was asked for, and no ability that is not known."""
        assert store.tenant("a").tenant == "a"
        assert store.capabilities <= {"durable", "shared"}
        assert isinstance(store.capabilities, frozenset)

    @path_condition
    async def test_the_secret_is_made_once(self, path: Path) -> None:
        """The secret is 32 bytes, the same for every tenant and every time it is opened."""
        async with self.opened(path) as store:
            secret = await store.tenant("a").secret()
            assert isinstance(secret, bytes)
            assert len(secret) == 32
            assert len(set(secret)) > 4
            assert await store.tenant("b").secret() == secret
            assert await store.tenant("a").secret() == secret
        if "durable" in store.capabilities:
            async with self.opened(path) as store:
                assert await store.tenant("c").secret() == secret
        async with self.opened(path.with_name("other")) as other:
            assert await other.tenant("a").secret() != secret

    @store_condition
    async def test_a_tenant_sees_its_own_alone(self, store: Store) -> None:
        """No read through one handle returns what another wrote, however similar the names."""
        for place, name in enumerate(HOSTILE_NAMES):
            await _fill(store.tenant(name), str(place))
        for place, name in enumerate((*HOSTILE_NAMES, "stranger")):
            tenant, alone = store.tenant(name), RecordStore(MemoryStore()).tenant(name)
            if name != "stranger":
                await _fill(alone, str(place))
            for read in _READS:
                assert await read(tenant) == await read(alone)
            assert await tenant.put_records([tx.RecordWrite("k", "s", "v", "", 2)]) is False
            assert await tenant.reusable(f"own-{place + 1}") is None
        stranger = store.tenant("stranger")
        assert await contents(stranger) == NOTHING
        assert await stranger.put_blocks("s", [tx.Block("index", 0, 1, b"")], epoch=0) is False
        assert await stranger.put_records([], epochs={"s": 0}) is False
        assert await stranger.tree("s").write_nodes([remade(node(0))]) == [False]

    @store_condition
    async def test_a_tenant_erases_its_own_alone(self, store: Store) -> None:
        """Neither erasing a tenant, nor deleting a session, nor a copy reaches another tenant."""
        names = HOSTILE_NAMES[:8]
        for place, name in enumerate(names):
            await _fill(store.tenant(name), str(place))
        before = {name: await contents(store.tenant(name)) for name in names}
        stranger = store.tenant("stranger")
        await delete(stranger, "s")
        with pytest.raises(UsageError):
            await write(stranger, "new", copy=tx.Copy("s", 1))
        assert await stranger.erase_all() == 0
        assert await store.tenant(names[0]).erase_all() == 1
        await delete(store.tenant(names[1]), "s")
        await store.tenant(names[2]).scrub()
        for name in names[2:]:
            assert await contents(store.tenant(name)) == before[name]
            assert await store.tenant(name).reusable("same") is not None
        assert await store.tenant(names[0]).sessions() == []
        assert await store.tenant(names[1]).sessions() == []

    @path_condition
    async def test_two_openers_share_one_store(self, path: Path) -> None:
        """Each of two openers sees at once what the other wrote, and their writes do not cross."""
        async with self.opened(path) as one:
            if "shared" not in one.capabilities:
                pytest.skip("the store does not claim to be shared")
            async with self.opened(path) as two:
                handles = (one.tenant("a"), two.tenant("a"))
                for number in range(6):
                    seen = await write(
                        handles[number % 2], "s", [Message.user("x", key=str(number))],
                        keys=[str(number - 1)],
                    )  # fmt: skip
                    assert len(seen.keys) == (number > 0)
                    assert len(await handles[1 - number % 2].messages("s", 0, 99)) == number + 1
                await asyncio.gather(
                    *(write(handles[n % 2], "s", ["y"]) for n in range(40)),
                    *(write(handles[n % 2], "new", ["z"]) for n in range(40)),
                )
                found = await handles[0].messages("s", 0, 99)
                assert [message.index for message in found] == list(range(46))
                found = await handles[1].messages("new", 0, 99)
                assert [message.index for message in found] == list(range(40))
                assert await contents(handles[0]) == await contents(handles[1])


async def _fill(tenant: TenantStore, mark: str) -> None:
    """Write one of everything, marked."""
    await write(tenant, "s", [Message.user("before", key="k")], nodes=(node(0), node(1)))
    said = stored(Message.user(mark, key="k"))
    await write(tenant, "s", rewrites=(tx.Rewrite(said, "edit"),), nodes=(node(2),), tree=1)
    await tenant.put_blocks("s", [tx.Block("index", 0, 1, mark.encode("utf-8"))], epoch=0)
    second = remade(node(1), text=mark, input_hash=f"own-{mark}")
    first = remade(node(0), text=mark, input_hash="same")
    await tenant.tree("s").write_nodes([second, first], attempts=[attempt("a", model=mark)])
    await tenant.put_run(run("r", detail={"n": mark}))
    await tenant.put_view(tx.ViewRecord("s", "v", mark))
    await tenant.put_records([tx.RecordWrite("k", "s", "v", mark, 0)])
