"""The conditions on copies and forks, and on removal: deleting, erasing a tenant, scrubbing.

Each test holds one sentence of ``hiermem.protocols.TenantStore`` or of the effects that it takes;
its name says what would break.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hiermem.protocols import TenantStore
from hiermem.testing.samples import (
    NOTHING,
    NOW,
    changed,
    contents,
    delete,
    derive,
    keyed,
    node,
    plain,
    refused,
    remade,
    rewriting,
    run,
    said,
    was,
    write,
)
from hiermem.testing.segment_conditions import Conditions, condition
from hiermem.types import Message, SessionRecord
from hiermem.types import transaction as tx

_EVENT = tx.LogEvent("edit", 1, NOW, "[[1,2]]")


class RemovalConditions(Conditions):
    """Copies, forks, removal."""

    @condition
    async def test_a_copy_is_the_sources_own_part(self, tenant: TenantStore) -> None:
        """Messages, versions, keys and texts up to that place are copied, and are separate then."""
        await write(tenant, "s", keyed("a", "b", "c", "d", "e"), nodes=(node(0), node(1)))
        for index, text in ((0, "A"), (3, "D")):
            await write(tenant, "s", rewrites=rewriting(index, text, "edit"))
        await write(tenant, "s", rewrites=rewriting(1, "", "erase", state="erased"))
        first = remade(node(0), input_hash="h")
        await tenant.tree("s").write_nodes([first, remade(first.node), remade(node(1))])
        await tenant.put_blocks("s", [tx.Block("index", 0, 4, b"x")], epoch=0)
        before = await contents(tenant)
        fork = {"forked_from": "s", "forked_at": 3}
        revisions = (("L1.0", 2), ("L1.1", 1), ("L1.0", 2))
        await write(
            tenant, "f", [Message.user("own", key="key-3")], copy=tx.Copy("s", 3, revisions),
            nodes=(node(0, revision=2),), record=fork,
        )  # fmt: skip
        record = await tenant.session("f")
        assert record is not None
        assert (record.forked_from, record.forked_at, record.messages) == ("s", 3, 4)
        assert await said(tenant, "f") == ["A", "", "c", "own"]
        assert [await was(tenant, index, "f") for index in range(4)] == [["a"], [], [], []]
        source = await tenant.messages("s", 0, 3)
        assert [plain(o) for o in await tenant.messages("f", 0, 3)] == [plain(o) for o in source]
        found = await tenant.tree("f").revisions([("L1.0", 1), ("L1.0", 2), ("L1.1", 1)])
        assert found == await tenant.tree("s").revisions([("L1.0", 2), ("L1.1", 1)])
        assert [one.id for one in await tenant.tree("f").nodes(["L1.0", "L1.1"])] == ["L1.0"]
        assert await tenant.blocks("f", "index") == []
        seen = await write(tenant, "f", keys=[f"key-{n}" for n in range(5)])
        prints = {key: entry.fingerprint for key, entry in sorted(seen.keys.items())}
        assert list(prints) == [f"key-{n}" for n in range(4)]
        assert list(prints.values()) == ["print-0", None, "print-2", "print-3"]
        after = await contents(tenant)
        assert after["session s"]["forks"] == [await tenant.session("f")]
        after["session s"]["forks"] = []
        assert after["session s"] == before["session s"]
        # Erased here, it stays there.
        await write(tenant, "f", rewrites=rewriting(0, "", "erase"), forget=("L1.0",))
        assert await was(tenant, 0) == ["a"]
        assert len(await tenant.tree("s").revisions([("L1.0", 2)])) == 1
        await delete(tenant, "s")
        assert await said(tenant, "f") == ["", "", "c", "own"]

    @condition
    async def test_an_impossible_copy_is_refused(self, tenant: TenantStore) -> None:
        """Into a session that exists, beyond the source's end, of what it does not have."""
        await write(tenant, "s", keyed("a", "b"), nodes=(node(0),))
        await write(tenant, "t", keyed("a"))
        await tenant.tree("s").write_nodes([remade(node(0))])
        for name, copy in (
            ("t", tx.Copy("s", 1)),
            ("new", tx.Copy("none", 0)),
            ("new", tx.Copy("s", 3)),
            ("new", tx.Copy("s", -1)),
            ("new", tx.Copy("s", 1, (("L1.0", 2),))),
            ("new", tx.Copy("s", 1, (("L1.0", 1), ("L1.1", 1)))),
        ):
            async with refused(tenant):
                await write(tenant, name, copy=copy)
        async with refused(tenant):  # a key that the copy brings
            await write(tenant, "new", [Message.user("x", key="key-1")], copy=tx.Copy("s", 2))

    @condition
    async def test_forks_are_found_by_their_exact_source(self, tenant: TenantStore) -> None:
        """In the order of creation, and none of a session whose name looks alike."""
        for name, source in (("c", "s"), ("a", "S"), ("b", "s"), ("d", "c"), ("e", None)):
            await write(tenant, name, record={"forked_from": source})
        assert [one.id for one in await tenant.forks("s")] == ["c", "b"]
        assert [one.id for one in await tenant.forks("S")] == ["a"]
        assert [one.id for one in await tenant.forks("c")] == ["d"]
        assert [await tenant.forks(name) for name in ("e", "s%", "")] == [[], [], []]
        await write(tenant, "b", record={"forked_from": "c"})
        assert [one.id for one in await tenant.forks("c")] == ["b", "d"]

    @condition
    async def test_a_deleted_session_leaves_nothing(self, tenant: TenantStore) -> None:
        """Everything under its name goes, nothing else does, and the name can be used again."""
        for name in ("s", "t", "S"):
            await write(tenant, name, keyed("a", "b"), nodes=(node(0),), events=(_EVENT,))
            await write(tenant, name, rewrites=rewriting(0, "A", "edit"))
            await write(tenant, name, nodes=(node(0),), tree=1)
            made = remade(node(0), input_hash=f"h-{name}")
            assert await tenant.tree(name).write_nodes([made]) == [True]
            await derive(tenant, name)
        before = await contents(tenant)
        await delete(tenant, "s")
        after = await contents(tenant)
        for kind in ("runs", "attempts"):
            assert after[kind] == [one for one in before[kind] if one.id[2:] != "s"]
        assert [one for one in after if one.startswith("session")] == ["session t", "session S"]
        assert all(after[f"session {name}"] == before[f"session {name}"] for name in ("t", "S"))
        assert await tenant.reusable("h-s") is None
        assert await tenant.records("k", scope="s") == []
        assert await tenant.view("s", "v") is None
        await write(tenant, "s", ["new"])
        fresh = (await contents(tenant))["session s"]
        await write(tenant, "compare", ["new"])
        other = (await contents(tenant))["session compare"]
        assert {**fresh, "record": None} == {**other, "record": None}

    @condition
    async def test_views_and_records_are_dropped_by_name(self, tenant: TenantStore) -> None:
        """Whatever the changes name goes, in this session alone; what does not exist is ignored."""
        for name in ("s", "t"):
            await write(tenant, name, keyed("a"))
            await derive(tenant, name)
        await tenant.put_records([tx.RecordWrite("K", "s", "a", "other kind")])
        await write(tenant, "s", drop_views=("v", "none"), drop_records=(("k", "a"), ("k", "none")))
        assert await tenant.view("s", "v") is None
        assert await tenant.view("s", "w") == tx.ViewRecord("s", "w", "state")
        assert await tenant.view("t", "v") == tx.ViewRecord("t", "v", "state")
        assert [(o.scope, o.key) for o in await tenant.records("k")] == [
            ("s", "b"), ("t", "a"), ("t", "b"),
        ]  # fmt: skip
        assert len(await tenant.records("K")) == 1

    @condition
    async def test_a_view_that_was_read_is_gone_with_what_drops_it(
        self, tenant: TenantStore
    ) -> None:
        """No read returns a view that was dropped, by name, with its session or with the tenant.

        A store may keep views at hand that were read. After an erasure they hold erased text.
        """
        view = tx.ViewRecord("s", "v", "erased words")

        def drop() -> tx.Deciding[None]:
            record: SessionRecord = yield "s", tx.NeedSession()
            return tx.Batch(None, (changed("s", record, drop_views=("v",)),))

        drops: dict[str, Callable[[], Awaitable[object]]] = {
            "by name": lambda: write(tenant, "s", drop_views=("v",)),
            "by a transaction": lambda: tenant.transact(drop),
            "with the session": lambda: delete(tenant, "s"),
            "with the tenant": tenant.erase_all,
        }
        for how, dropped in drops.items():
            if await tenant.session("s") is None:
                await write(tenant, "s", keyed("a"))
            assert await tenant.view("s", "v") is None
            assert await tenant.put_view(view) is True
            assert await tenant.view("s", "v") == await tenant.view("s", "v") == view
            await dropped()
            assert await tenant.view("s", "v") is None, how

    @condition
    async def test_records_and_journals_are_dropped_with_the_rest(
        self, tenant: TenantStore
    ) -> None:
        """By kind, scope and key, and by exact name; the runs of the decision come after."""
        for name in ("s", "S", "s%"):
            await write(tenant, name, keyed("a"))
            await derive(tenant, name)
        for kind, scope in (("K", "s"), ("k", "")):
            await tenant.put_records([tx.RecordWrite(kind, scope, "a", "1")])
        before = await contents(tenant)
        own = run("new", subject="s")

        def decide() -> tx.Deciding[str]:
            found = yield "s", tx.NeedRecords("k", everywhere=True)
            places = [(one.kind, one.scope, one.key) for one in found if one.key == "a"]
            return tx.Batch(
                "done", runs=(own,), drop_journals=("s", "none"),
                drop_records=(*places, ("k", "none", "a")),
            )  # fmt: skip

        assert await tenant.transact(decide) == "done"
        assert [(one.scope, one.key) for one in await tenant.records("k")] == [
            ("S", "b"), ("s", "b"), ("s%", "b"),
        ]  # fmt: skip
        assert len(await tenant.records("K")) == 1
        after = await contents(tenant)
        assert after["runs"] == [own, *(one for one in before["runs"] if one.subject != "s")]
        assert after["attempts"] == [one for one in before["attempts"] if one.session_id != "s"]
        assert len(after["attempts"]) < len(before["attempts"])
        assert after["session s"]["record"] == before["session s"]["record"]

    @condition
    async def test_an_erased_tenant_is_empty(self, tenant: TenantStore) -> None:
        """Everything goes, also what belongs to no session; the handle continues to work."""
        for name in ("s", "t"):
            await write(tenant, name, keyed("a", "b"), nodes=(node(0),))
            await tenant.tree(name).write_nodes([remade(node(0), input_hash="h")])
            await derive(tenant, name)
        await tenant.put_view(tx.ViewRecord("none", "v", "state"))
        await tenant.put_records([tx.RecordWrite("k", "", "a", "body")])
        await tenant.put_run(run("free", subject="tenant"))
        assert await tenant.erase_all() == 2
        assert await contents(tenant) == NOTHING
        assert await tenant.view("none", "v") is None
        assert await tenant.erase_all() == 0
        await write(tenant, "s", keyed("new"))
        assert await said(tenant) == ["new"]
        assert await tenant.tree("s").nodes(["L1.0"]) == []

    @condition
    async def test_scrubbing_changes_nothing_that_is_kept(self, tenant: TenantStore) -> None:
        """It says whether it is done, and if not, why; every read is the same afterwards."""
        await write(tenant, "s", keyed("a", "b"), nodes=(node(0),))
        await derive(tenant, "s")
        before = await contents(tenant)
        found = await tenant.scrub()
        assert isinstance(found, tx.Scrubbed)
        assert found.done == (not found.reason)
        assert await contents(tenant) == before
        await write(tenant, "s", ["c"])
        assert await said(tenant) == ["a", "b", "c"]
