"""The conditions on the list of what is due, over all tenants of a store.

Each test holds one sentence of ``hiermem.protocols``; its name says what would break. What enters
the list is decided in the core, so here it is enough that each kind of write asks it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from hiermem.config import HierarchyConfig
from hiermem.protocols import Store, TenantStore
from hiermem.testing.conditions import Conditions, store_condition
from hiermem.testing.samples import deciding, node, remade, write, writing
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types import Message
from hiermem.types.transaction import DueSession, NodeWrite, StoredRow

#: A state with an open window, and a configuration under which it is closed an hour later.
_OPEN: Final = (
    '[2,1,false,[],[],{"main":[0,"[[1,false,0,[],[]],[[[0,0,1,4,4,0,0]],0,0,false,false]]"]}]'
)
_LONG: Final = 600.0


async def _claimed(store: Store, limit: int = 99, lease: float = _LONG) -> set[tuple[str, str]]:
    found = await store.claim_due(limit, lease=lease)
    assert len(found) == len(set(found))
    return {(one.tenant, one.session_id) for one in found}


async def _one(store: Store, lease: float = _LONG) -> DueSession:
    (found,) = await store.claim_due(99, lease=lease)
    return found


class DueConditions(Conditions):
    """Who is due, who claims it, and what is left after that."""

    @store_condition
    async def test_what_is_left_to_make_is_due(self, path: Path) -> None:
        """A sealed node makes its session due, of whichever tenant; messages alone do not."""
        async with self.opened(path) as store:
            assert await _claimed(store) == set()
            for name in HOSTILE_NAMES:
                await write(store.tenant(name), "quiet", [Message.user("x")])
                await write(store.tenant(name), f"of {name}", nodes=(node(1, 0),))
            await write(store.tenant("a"), "made", nodes=(node(1, 0, status="active"),))
            await write(store.tenant("a"), "other tree", nodes=(node(1, 0),), tree=7)
            found = await _claimed(store)
            assert found == {(name, f"of {name}") for name in HOSTILE_NAMES}
            assert await _claimed(store) == set()

    @store_condition
    async def test_every_kind_of_write_makes_due(self, path: Path) -> None:
        """An append, a decision on several sessions, a text, a new configuration, a restored one.

        Each is missing from the list alone if its writer forgets it.
        """
        async with self.opened(path) as store:
            tenant = store.tenant("t")
            await write(tenant, "s", [Message.user("x")])
            await tenant.transact(deciding(("s", writing("s", nodes=(node(1, 0),)))))
            assert await _claimed(store) == {("t", "s")}
            await self._settled(store, tenant)
            await write(tenant, "s", record={"config": "{ }"})
            assert await _claimed(store) == {("t", "s")}
            await self._settled(store, tenant)
            # A text that was made leaves nothing; one that is dirty again does.
            made = remade(node(1, 0))
            assert await tenant.tree("s").write_nodes([made]) == [True]
            assert await _claimed(store) == set()
            dirty = NodeWrite(replace(made.node, version=2, dirty=True), 1)
            assert await tenant.tree("s").write_nodes([replace(dirty, expected=5, node=replace(
                dirty.node, version=6))]) == [False]  # fmt: skip
            assert await _claimed(store) == set()
            assert await tenant.tree("s").write_nodes([dirty]) == [True]
            assert await _claimed(store) == {("t", "s")}
            pages = [page async for page in await tenant.dump("s")]
            await tenant.transact(deciding(delete=["s"]))
            assert await _claimed(store) == set()
            await tenant.restore(_each(pages))
            assert await _claimed(store) == {("t", "s")}

    @store_condition
    async def test_what_failed_is_due_later(self, path: Path) -> None:
        """A failed node does not make its session due at once, nor does a limit of time."""
        hour = HierarchyConfig.by_tokens().to_json()
        async with self.opened(path) as store:
            tenant = store.tenant("t")
            await write(tenant, "s", nodes=(node(1, 0),))
            await self._settled(store, tenant)
            failed = replace(node(1, 0), version=1, status="failed")
            assert await tenant.tree("s").write_nodes([NodeWrite(failed, 0)]) == [True]
            now = await tenant.now()
            fresh = {"config": hour, "state": _OPEN, "last_activity": now}
            await write(tenant, "open", [Message.user("x")], record=fresh)
            assert await _claimed(store) == set()
            assert await tenant.take_due("s", lease=_LONG) is None
            past = {**fresh, "last_activity": now - timedelta(hours=2)}
            await write(tenant, "idle", [Message.user("x")], record=past)
            assert await _claimed(store) == {("t", "idle")}

    @store_condition
    async def test_an_append_to_an_open_window_writes_no_entry(self, path: Path) -> None:
        """The entry was written when the window was opened; only a claimed one is written anew."""
        async with self.opened(path) as store:
            tenant = store.tenant("t")
            open_now = {
                "config": HierarchyConfig.by_tokens().to_json(),
                "state": _OPEN,
                "last_activity": await tenant.now() - timedelta(hours=2),
            }
            await write(tenant, "s", [Message.user("x")], record=open_now)
            claimed = await _one(store)
            await write(tenant, "s", [Message.user("y")], record=open_now)
            assert await tenant.settle_due(claimed)
            await write(tenant, "s", record={"state": "[]"})
            await write(tenant, "s", [Message.user("z")], record=open_now)
            assert await _claimed(store) == {("t", "s")}

    @store_condition
    async def test_a_claim_ends(self, path: Path) -> None:
        """What is claimed is due again after the lease, so a worker that dies loses nothing."""
        async with self.opened(path) as store:
            await write(store.tenant("t"), "s", nodes=(node(1, 0),))
            first = await _one(store, lease=0.0)
            second = await _one(store)
            assert first == second
            assert await _claimed(store) == set()
            assert await store.tenant("t").take_due("s", lease=0.0) == first
            assert await _claimed(store) == {("t", "s")}

    @store_condition
    async def test_settling_removes_no_later_reason(self, path: Path) -> None:
        """What became due after the claim stays due, whatever becomes of the claim."""
        async with self.opened(path) as store:
            tenant = store.tenant("t")
            await write(tenant, "s", nodes=(node(1, 0),))
            claimed = await _one(store)
            await write(tenant, "s", nodes=(node(1, 1),))
            assert not await tenant.settle_due(claimed)
            assert not await tenant.settle_due(claimed, at=await tenant.now() + timedelta(days=1))
            again = await _one(store)
            assert again.generation > claimed.generation
            assert await tenant.settle_due(again, at=await tenant.now() - timedelta(seconds=1))
            assert await _one(store) == again
            assert await tenant.settle_due(again, at=await tenant.now() + timedelta(days=1))
            assert await _claimed(store) == set()
            # An earlier reason brings it forward.
            await write(tenant, "s", nodes=(node(1, 2),))
            assert await tenant.settle_due(await _one(store))
            assert await _claimed(store) == set()
            assert not await tenant.settle_due(again)
            # Nor does an earlier claim remove an entry that is made when its own is gone.
            await write(tenant, "s", nodes=(node(1, 3),))
            assert not await tenant.settle_due(claimed)
            assert not await tenant.settle_due(again)
            await tenant.erase_all()
            await write(tenant, "s", nodes=(node(1, 0),))
            assert not await tenant.settle_due(claimed)
            assert await tenant.settle_due(await _one(store))

    @store_condition
    async def test_what_was_missed_can_be_put(self, path: Path) -> None:
        """Sessions without an entry become due; an entry that is there keeps its time."""
        async with self.opened(path) as store:
            tenant = store.tenant("t")
            for name in ("a", "b"):
                await write(tenant, name, [Message.user("x")])
            await write(store.tenant("other"), "b", [Message.user("x")])
            await tenant.put_due([])
            await tenant.put_due(["b", "none", "b"])
            claimed = await _one(store)
            assert (claimed.tenant, claimed.session_id) == ("t", "b")
            await tenant.put_due(["a", "b"])
            assert await _claimed(store) == {("t", "a")}
            assert await tenant.settle_due(claimed)
            assert await tenant.take_due("b", lease=_LONG) is None

    @store_condition
    async def test_claims_are_taken_once_and_by_limit(self, path: Path) -> None:
        """Of many who claim at the same time no two get the same session, and all are got."""
        async with self.opened(path) as store:
            for place in range(30):
                await write(store.tenant(f"t{place % 3}"), f"s{place}", nodes=(node(1, 0),))
            assert await store.claim_due(0, lease=_LONG) == []
            assert await store.claim_due(-1, lease=_LONG) == []
            turns = [store.claim_due(4, lease=_LONG) for _ in range(9)]
            found = [one for some in await asyncio.gather(*turns) for one in some]
            assert all(len(some) <= 4 for some in [found[:4]])
            left = await store.claim_due(99, lease=_LONG)
            names = [one.session_id for one in [*found, *left]]
            assert sorted(names) == sorted(f"s{place}" for place in range(30))

    @store_condition
    async def test_an_erased_tenant_is_not_due(self, path: Path) -> None:
        """An entry goes with its session, and names nothing that was erased."""
        async with self.opened(path) as store:
            for name in ("gone", "stays"):
                await write(store.tenant(name), "s", nodes=(node(1, 0),))
            await store.tenant("gone").erase_all()
            assert await _claimed(store) == {("stays", "s")}
            await write(store.tenant("gone"), "s", [Message.user("anew")])
            assert await _claimed(store) == set()

    async def _settled(self, store: Store, tenant: TenantStore) -> None:
        """Remove the session's entry; it may be claimed, or not yet."""
        claimed = await tenant.take_due("s", lease=_LONG)
        assert claimed is not None
        assert await tenant.settle_due(claimed)
        assert await _claimed(store) == set()


async def _each(pages: list[list[StoredRow]]) -> AsyncIterator[list[StoredRow]]:
    for page in pages:
        yield page
