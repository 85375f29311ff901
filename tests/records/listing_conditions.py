"""The conditions on lists: a tenant's sessions in pages, the tenants of a store, and what is due.

Each test holds one sentence of ``hiermem.protocols``; its name says what would break. What enters
the list of what is due is decided in the core, so here it is enough that each kind of write asks
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from message_strategies import HOSTILE_NAMES
from samples import (
    NOW,
    attempt,
    deciding,
    delete,
    node,
    remade,
    run,
    stored,
    write,
    writing,
)
from segment_conditions import Conditions, condition, store_condition

from hiermem.config import HierarchyConfig
from hiermem.protocols import Store, TenantStore
from hiermem.records import due
from hiermem.types import Message
from hiermem.types.transaction import (
    DueSession,
    NeedFlagged,
    NodeWrite,
    RecordWrite,
    StoredRow,
    ViewRecord,
)

#: Pairs that a store confuses if it compares keys with values, by prefix, by case or as JSON.
_LABELS: tuple[Mapping[str, str], ...] = (
    {"user": "ada"}, {"user": "ada", "app": "web"}, {"ada": "user"}, {"user": "Ada"},
    {"user": "ada "}, {"user": ""}, {}, {"User": "ada", "app": "web"},
    {'us"er': "a'da", "\N{SNOWMAN}": "\N{GRINNING FACE}"},
    {"user": "ada", "app": "web", "more": "ada"},
)  # fmt: skip


async def _ids(tenant: TenantStore, **how: Any) -> list[str]:
    return [record.id for record in await tenant.sessions(**how)]


async def _paged(tenant: TenantStore, limit: int, **how: Any) -> list[str]:
    """Return the ids of all pages, one after the other."""
    found: list[str] = []
    while page := await _ids(tenant, after=found[-1] if found else None, limit=limit, **how):
        assert len(page) <= limit
        found += page
    return found


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


class ListingConditions(Conditions):
    """Sessions in pages, in two orders, filtered by metadata; the tenants; who is due."""

    @condition
    async def test_a_page_begins_after_a_session_that_exists(self, tenant: TenantStore) -> None:
        """Where the last session of a page was deleted meanwhile, the list begins again."""
        for name in "abcd":
            await write(tenant, name)
        assert await _ids(tenant, after="b") == ["c", "d"]
        assert await _ids(tenant, after="d") == await _ids(tenant, limit=0) == []
        for order in ("created", "last_activity"):
            begun = await _ids(tenant, order_by=order)
            assert await _ids(tenant, after="none", order_by=order) == begun
        await delete(tenant, "b")
        assert await tenant.count_sessions() == 3
        assert await _ids(tenant, after="b") == ["a", "c", "d"]
        # A session created under the old name is a new one, and the last.
        await write(tenant, "b")
        assert await _ids(tenant, after="b") == []
        assert await _ids(tenant, after="c") == ["d", "b"]

    @condition
    async def test_the_last_active_session_comes_first(self, tenant: TenantStore) -> None:
        """The order follows the record's last activity, whatever was created or written when."""
        for place, name in enumerate("abcde"):
            await write(tenant, name, record={"last_activity": NOW + timedelta(days=place)})
        await write(tenant, "e", ["no activity of its own"])
        assert await _ids(tenant, order_by="last_activity") == ["e", "d", "c", "b", "a"]
        await write(tenant, "b", record={"last_activity": NOW + timedelta(days=3, microseconds=1)})
        assert await _ids(tenant, order_by="last_activity") == ["e", "b", "d", "c", "a"]
        assert await _ids(tenant) == list("abcde")
        # Of two at the same time, the one created later comes first.
        await write(tenant, "a", record={"last_activity": NOW + timedelta(days=4)})
        assert await _ids(tenant, order_by="last_activity") == ["e", "a", "b", "d", "c"]
        assert await _paged(tenant, 1, order_by="last_activity") == ["e", "a", "b", "d", "c"]
        assert await _ids(tenant, order_by="last_activity", after="b", limit=1) == ["d"]

    @condition
    async def test_metadata_select_sessions(self, tenant: TenantStore) -> None:
        """A session is listed if its metadata hold every given pair, and none but these are."""
        for place, labels in enumerate(_LABELS):
            later = NOW + timedelta(minutes=place * 7 % 11)
            await write(tenant, f"s{place}", record={"metadata": labels, "last_activity": later})
        records = {record.id: record for record in await tenant.sessions()}
        assert [records[f"s{place}"].metadata for place in range(len(_LABELS))] == list(_LABELS)
        for wanted in (*_LABELS, {"none": "none"}, {"user": "ada", "none": "none"}):
            holding = [
                id_ for id_, one in records.items() if wanted.items() <= one.metadata.items()
            ]
            assert await tenant.count_sessions(metadata=wanted) == len(holding)
            active = sorted(holding, key=lambda id_: records[id_].last_activity, reverse=True)
            for limit in (1, 2, 99):
                assert await _paged(tenant, limit, metadata=wanted) == holding
                found = await _paged(tenant, limit, metadata=wanted, order_by="last_activity")
                assert found == active
            # The session that a page begins after need not be among the selected ones.
            after = holding[holding.index("s5") + 1 :] if "s5" in holding else [
                id_ for id_ in holding if int(id_[1:]) > 5
            ]  # fmt: skip
            assert await _ids(tenant, after="s5", metadata=wanted) == after

    @condition
    async def test_metadata_are_replaced_as_a_whole(self, tenant: TenantStore) -> None:
        """What a later record does not hold selects the session no more; nor does a deleted one."""
        await write(tenant, "s", record={"metadata": {"user": "ada", "app": "web"}})
        await write(tenant, "s", ["x"])
        assert await _ids(tenant, metadata={"app": "web"}) == ["s"]
        await write(tenant, "s", record={"metadata": {"user": "bela"}})
        assert (await tenant.sessions())[0].metadata == {"user": "bela"}
        for gone in ({"app": "web"}, {"user": "ada"}, {"user": "ada", "app": "web"}):
            assert await _ids(tenant, metadata=gone) == []
            assert await tenant.count_sessions(metadata=gone) == 0
        await delete(tenant, "s")
        await write(tenant, "s")
        assert await _ids(tenant, metadata={"user": "bela"}) == []
        assert (await tenant.sessions())[0].metadata == {}

    @condition
    async def test_the_flagged_messages_of_a_space_are_found(self, tenant: TenantStore) -> None:
        """Those of its members, the latest said first, and of nobody else."""
        for minutes, (name, space) in enumerate((("a", "ada"), ("b", None), ("c", "ada"))):
            await write(tenant, name, record={"space": space})
            at = [NOW + timedelta(minutes=minutes + 5 * turn) for turn in range(3)]
            said = [
                stored(Message.user(f"{name}{turn}", created_at=when), flags=("w",) * bool(turn))
                for turn, when in enumerate(at)
            ]
            await write(tenant, name, said)
        need = NeedFlagged("w", 3, "ada")
        (found,) = await tenant.read([("b", need)])
        assert [(name, stored.content) for name, stored in found] == [
            ("c", "c2"), ("a", "a2"), ("c", "c1"),
        ]  # fmt: skip
        assert await tenant.read([("", NeedFlagged("w", 3, "bela"))]) == [[]]
        assert await tenant.read([("", NeedFlagged("x", 3, "ada"))]) == [[]]

    @store_condition
    async def test_a_store_lists_its_tenants(self, store: Store) -> None:
        """A tenant is listed if anything of it is stored, by name, code point by code point."""
        assert await store.tenants() == []
        for name in HOSTILE_NAMES:
            await write(store.tenant(name), "s")
        await store.tenant("record").put_records([RecordWrite("k", "s", "key", "body")])
        await store.tenant("run").put_run(run("r"))
        await store.tenant("view").put_view(ViewRecord("s", "v", ""))
        await store.tenant("call").tree("s").write_nodes([], attempts=[attempt("a")])
        assert await store.tenant("reader").sessions() == []
        named = sorted([*HOSTILE_NAMES, "record", "run", "view", "call"])
        assert await store.tenants() == named
        for limit in (1, 3, 99):
            found: list[str] = []
            last: str | None = None
            while page := await store.tenants(after=last, limit=limit):
                assert len(page) <= limit
                found += page
                last = page[-1]
            assert found == named
        assert await store.tenants(limit=0) == []
        assert await store.tenants(after="recor") == [
            name for name in named if name > "recor"
        ]  # fmt: skip
        await store.tenant("a").erase_all()
        await store.tenant("record").put_records([RecordWrite("k", "s", "key", None)])
        assert await store.tenants() == [name for name in named if name not in ("a", "record")]

    @store_condition
    async def test_every_kind_of_write_makes_due(self, store: Store) -> None:
        """An append, a decision on several sessions, a text, a new configuration, a restored one.

        Each is missing from the list alone if its writer forgets it.
        """
        tenant = store.tenant("t")
        await write(tenant, "s", ["x"])
        await tenant.transact(deciding(("s", writing("s", nodes=(node(1, 0),)))))
        await self._settled(store, tenant)
        await write(tenant, "s", record={"config": "{ }"})
        await self._settled(store, tenant)
        # A text that was made leaves nothing; one that is dirty again does.
        made = remade(node(1, 0))
        assert await tenant.tree("s").write_nodes([made]) == [True]
        assert await _claimed(store) == set()
        dirty = NodeWrite(replace(made.node, version=2, dirty=True, since=NOW), 1)
        assert await tenant.tree("s").write_nodes([replace(dirty, expected=5, node=replace(
            dirty.node, version=6))]) == [False]  # fmt: skip
        assert await _claimed(store) == set()
        assert await tenant.tree("s").write_nodes([dirty]) == [True]
        await self._settled(store, tenant)
        pages = [page async for page in await tenant.dump("s")]
        await delete(tenant, "s")
        assert await _claimed(store) == set()
        await tenant.restore(_each(pages))
        assert await _claimed(store) == {("t", "s")}

    @store_condition
    async def test_what_failed_is_due_later(self, store: Store) -> None:
        """A failed node does not make its session due at once, nor does a limit of time."""
        hour = HierarchyConfig.by_tokens().to_json()
        tenant = store.tenant("t")
        await write(tenant, "s", nodes=(node(1, 0),))
        await self._settled(store, tenant)
        failed = replace(node(1, 0), version=1, status="failed")
        assert await tenant.tree("s").write_nodes([NodeWrite(failed, 0)]) == [True]
        now = await tenant.now()
        fresh = {"config": hour, "state": _OPEN, "last_activity": now}
        await write(tenant, "open", ["x"], record=fresh)
        assert await _claimed(store) == set()
        past = {**fresh, "last_activity": now - timedelta(hours=2)}
        await write(tenant, "idle", ["x"], record=past)
        assert await _claimed(store) == {("t", "idle")}

    @store_condition
    async def test_an_append_to_an_open_window_writes_no_entry(self, store: Store) -> None:
        """The entry was written when the window was opened, so appends write none."""
        tenant = store.tenant("t")
        hour, past = HierarchyConfig.by_tokens().to_json(), await tenant.now() - timedelta(hours=2)
        open_now = {"config": hour, "state": _OPEN, "last_activity": past}
        await write(tenant, "s", ["x"], record=open_now)
        claimed = await _one(store)
        await write(tenant, "s", ["y"], record=open_now)
        assert await tenant.settle_due(claimed)
        await write(tenant, "s", record={"state": "[]"})
        await write(tenant, "s", ["z"], record=open_now)
        assert await _claimed(store) == {("t", "s")}

    @store_condition
    async def test_a_claim_excludes_others_until_it_ends(self, store: Store) -> None:
        """It is renewed while nobody took the session over; after its time anybody may."""
        tenant = store.tenant("t")
        await write(tenant, "s", nodes=(node(1, 0),))
        first = await _one(store)
        assert await _claimed(store) == set()
        assert await tenant.take_due("s", lease=_LONG) is None
        assert await store.claim_due(9, lease=0.0) == []
        assert await store.claim_due(9, lease=0.0, ahead=None) == [first]
        assert await store.claim_due(9, lease=0.0, ahead=2 * _LONG) == [first]
        # Its time is over, and nobody took the session over: it is held again.
        assert await tenant.take_due("s", lease=-1.0, held=first) == first
        assert await store.claim_due(9, lease=0.0) == [replace(first, claimed=False)]
        assert await tenant.take_due("s", lease=_LONG, held=first) == first
        assert await _claimed(store) == set()
        assert await tenant.take_due("s", lease=-1.0, held=first) == first
        second = await tenant.take_due("s", lease=-1.0)
        third = await _one(store)
        assert second is not None
        assert first.generation < second.generation < third.generation
        for lost in (first, second):
            assert await tenant.take_due("s", lease=_LONG, held=lost) is None
            assert not await tenant.settle_due(lost)
        assert await tenant.settle_due(third)
        assert not await tenant.settle_due(third)
        assert await tenant.take_due("s", lease=_LONG, held=third) is None

    @store_condition
    async def test_a_session_is_claimed_when_it_is_not_due_too(self, store: Store) -> None:
        """Whoever updates one session claims it, with an entry or without; none, if it is gone."""
        tenant = store.tenant("t")
        assert await tenant.take_due("none", lease=_LONG) is None
        await write(tenant, "s", ["x"])
        claimed = await tenant.take_due("s", lease=_LONG)
        assert claimed is not None
        assert claimed == DueSession("t", "s", claimed.generation)
        assert await tenant.settle_due(claimed, at=await tenant.now() + timedelta(days=1))
        assert await _claimed(store) == set()
        assert await tenant.take_due("s", lease=_LONG) is not None
        await delete(tenant, "s")
        assert not await tenant.settle_due(claimed)
        # Nor does an earlier claim hold the session that is made anew.
        await write(tenant, "s", nodes=(node(1, 0),))
        assert not await tenant.settle_due(claimed)
        assert await _claimed(store) == {("t", "s")}

    @store_condition
    async def test_settling_removes_no_later_reason(self, store: Store) -> None:
        """What became due under the claim stays due; what its holder wrote does not."""
        tenant = store.tenant("t")
        await write(tenant, "s", nodes=(node(1, 0), node(1, 1)))
        for at in (None, await tenant.now() + timedelta(days=1)):
            claimed = await _one(store)
            await write(tenant, "s", nodes=(node(1, 2),))
            assert await tenant.settle_due(claimed, at=at)
        claimed = await _one(store)
        # The holder left a node to make, and settles it for later.
        dirty = replace(node(1, 1), version=1, dirty=True, since=NOW)
        writes = [NodeWrite(dirty, 0)]
        assert await tenant.tree("s").write_nodes(writes, claim=claimed) == [True]
        assert await tenant.settle_due(claimed, at=await tenant.now() + timedelta(days=1))
        assert await _claimed(store) == set()
        # An earlier reason brings it forward.
        await write(tenant, "s", nodes=(node(1, 3),))
        assert await tenant.settle_due(await _one(store))
        assert await _claimed(store) == set()

    @store_condition
    async def test_what_is_due_is_listed(self, store: Store) -> None:
        """By time, within a limit, of one tenant or of all; a list claims nothing."""
        now = await store.tenant("a").now()
        for name in ("a", "b"):
            tenant = store.tenant(name)
            for place, id_ in enumerate(("late", "soon")):
                await write(tenant, id_, nodes=(node(1, 0),))
                claimed = await tenant.take_due(id_, lease=_LONG)
                assert claimed is not None
                at = now + timedelta(hours=4 - 2 * place, minutes=ord(name))
                assert await tenant.settle_due(claimed, at=at)

        async def listed(limit: int = 9, **how: Any) -> list[tuple[str, str, bool]]:
            found = await store.claim_due(limit, lease=0.0, **how)
            return [(one.tenant, one.session_id, one.claimed) for one in found]

        every = [(t, id_, False) for id_ in ("soon", "late") for t in ("a", "b")]
        assert await listed() == await listed(tenant="a") == []
        assert await listed(ahead=None) == every == await listed(ahead=86_400.0)
        assert await listed(3, ahead=None) == every[:3]
        assert await listed(ahead=4 * 3600.0) == every[:2]
        assert await listed(ahead=None, tenant="b") == [each for each in every if each[0] == "b"]
        assert await listed(ahead=None, tenant="none") == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(due, "_PAGE", 1)
            assert await listed(ahead=None) == every
            assert await listed(ahead=None, tenant="a") == [
                each for each in every if each[0] == "a"
            ]
        for name in ("a", "b"):
            await write(store.tenant(name), "now", nodes=(node(1, 0),))
        (found,) = await store.claim_due(9, lease=_LONG, tenant="b")
        assert (found.tenant, found.session_id) == ("b", "now")
        assert await listed() == [("a", "now", False)]

    @store_condition
    async def test_what_was_missed_can_be_put(self, store: Store) -> None:
        """Sessions without an entry become due; an entry that is there keeps its time."""
        tenant = store.tenant("t")
        for name in ("a", "b"):
            await write(tenant, name, ["x"])
        await write(store.tenant("other"), "b", ["x"])
        await tenant.put_due([])
        await tenant.put_due(["b", "none", "b"])
        claimed = await _one(store)
        assert (claimed.tenant, claimed.session_id) == ("t", "b")
        await tenant.put_due(["a", "b"])
        assert await _claimed(store) == {("t", "a")}
        assert await tenant.settle_due(claimed)
        assert await _claimed(store) == set()

    @store_condition
    async def test_claims_are_taken_once_and_by_limit(self, store: Store) -> None:
        """Of many who claim at the same time no two get the same session, and all are got."""
        for place in range(30):
            await write(store.tenant(f"t{place % 3}"), f"s{place}", nodes=(node(1, 0),))
        assert await store.claim_due(0, lease=_LONG) == []
        assert await store.claim_due(-1, lease=_LONG) == []
        turns = await asyncio.gather(*(store.claim_due(4, lease=_LONG) for _ in range(9)))
        assert all(len(some) <= 4 for some in turns)
        left = await store.claim_due(99, lease=_LONG)
        names = [one.session_id for some in (*turns, left) for one in some]
        assert sorted(names) == sorted(f"s{place}" for place in range(30))

    @store_condition
    async def test_an_erased_tenant_is_not_due(self, store: Store) -> None:
        """An entry goes with its session, and names nothing that was erased."""
        for name in ("gone", "stays"):
            await write(store.tenant(name), "s", nodes=(node(1, 0),))
        await store.tenant("gone").erase_all()
        assert await _claimed(store) == {("stays", "s")}
        await write(store.tenant("gone"), "s", ["anew"])
        assert await _claimed(store) == set()

    async def _settled(self, store: Store, tenant: TenantStore) -> None:
        """Expect that the session alone is due, and remove its entry."""
        claimed = await _one(store)
        assert (claimed.tenant, claimed.session_id) == (tenant.tenant, "s")
        assert await tenant.settle_due(claimed)
        assert await _claimed(store) == set()


async def _each(pages: list[list[StoredRow]]) -> AsyncIterator[list[StoredRow]]:
    for page in pages:
        yield page
