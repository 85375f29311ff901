"""The conditions on what changes, removes and copies: transactions, rewrites, forks, erasure.

The one rule: each test holds one sentence of ``hiermem.protocols.TenantStore`` or of the effects
that it takes, and is named for what would be broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hiermem.effects import (
    Batch,
    Block,
    Copy,
    Deciding,
    Need,
    NeedCovering,
    NeedEvents,
    NeedForks,
    NeedLevel,
    NeedMessages,
    NeedNodes,
    NeedRecords,
    NeedRevisions,
    NeedSession,
    NeedViews,
    Rewrite,
    Scrubbed,
    Spent,
)
from hiermem.errors import UsageError
from hiermem.protocols import Changes, KeyEntry, LogEvent, RecordWrite, TenantStore, ViewRecord
from hiermem.testing.conditions import Conditions, condition
from hiermem.testing.samples import (
    NOW,
    attempt,
    contents,
    deciding,
    node,
    plain,
    remade,
    run,
    stored,
    write,
    writing,
)
from hiermem.types import Message, StoredMessage

__all__ = ["ChangeConditions"]


class DecisionError(Exception):
    """What a decision raises here; it must come out as it is."""


def _keyed(*texts: str) -> list[Message]:
    return [Message.user(text, key=f"key-{place}") for place, text in enumerate(texts)]


def _to(index: int, text: str, **fields: Any) -> StoredMessage:
    """Make what a rewrite puts in the place of one of ``_keyed``."""
    return replace(stored(Message.user(text, key=f"key-{index}"), **fields), index=index)


def _rewriting(index: int, text: str, kind: Any, **fields: Any) -> tuple[Rewrite, ...]:
    return (Rewrite(_to(index, text, **fields), kind),)


async def _said(tenant: TenantStore, session: str = "s") -> list[Any]:
    return [one.content for one in await tenant.messages(session, 0, 99)]


async def _was(tenant: TenantStore, index: int, session: str = "s") -> list[Any]:
    return [one.content for one in await tenant.versions(session, index)]


async def _derive(tenant: TenantStore, session: str) -> None:
    """Write, for a session that exists, one of everything that can be kept of it besides."""
    await tenant.write_nodes(session, [], attempts=[attempt(f"a-{session}", session_id=session)])
    await tenant.put_run(run(f"r-{session}", subject=session))
    await tenant.put_view(ViewRecord(session, "v", "state"))
    await tenant.put_view(ViewRecord(session, "w", "state"))
    await tenant.put_records([RecordWrite("k", session, key, "body") for key in "ab"])
    assert await tenant.put_blocks(session, [Block("index", 0, 2, b"x")], epoch=0) is True


class ChangeConditions(Conditions):
    """Transactions, rewrites, copies, removal."""

    @condition
    async def test_a_transaction_reads_what_the_handle_reads(self, tenant: TenantStore) -> None:
        """Every need is answered as the method of the same meaning answers."""
        nodes = (node(0), node(1), replace(node(0, 2), children=("L1.0", "L1.1")))
        await write(
            tenant, "s", _keyed("a", "b", "c"), nodes=nodes, events=(LogEvent("flush", 1, NOW),)
        )
        await write(tenant, "s", nodes=(node(7),), tree=1)
        await write(tenant, "f", copy=Copy("s", 1), record={"forked_from": "s", "forked_at": 1})
        await tenant.write_nodes("s", [remade(node(0))])
        await _derive(tenant, "s")
        views = [ViewRecord("s", "v", "state"), ViewRecord("s", "w", "state")]
        wanted = (("L1.0", 1), ("L1.9", 1))
        needs: list[tuple[Need, Any]] = [
            (NeedSession(), await tenant.session("s")),
            (NeedForks(), await tenant.forks("s")),
            (NeedMessages(1, 9), await tenant.messages("s", 1, 9)),
            (NeedMessages(0, 9, "side"), []),
            (NeedEvents(), await tenant.events("s")),
            (NeedNodes(("L1.1", "L2.0")), await tenant.nodes("s", ["L1.1", "L2.0"])),
            (NeedNodes(("L1.7",), 1), await tenant.nodes("s", ["L1.7"], tree=1)),
            (NeedLevel(1, 0, 1), await tenant.level("s", 1, 0, 1)),
            (NeedLevel(1, 0, 9, 1), await tenant.level("s", 1, 0, 9, tree=1)),
            (NeedCovering("main", 12), await tenant.covering("s", "main", 12)),
            (NeedCovering("main", 72, 1), await tenant.covering("s", "main", 72, tree=1)),
            (NeedRevisions(wanted), await tenant.revisions("s", wanted)),
            (NeedRevisions(wanted, 1), []),
            (NeedViews(), views),
            (NeedRecords("k"), await tenant.records("k", scope="s")),
        ]
        assert all(expected for need, expected in needs if expected != [])

        def decide() -> Deciding[list[Any]]:
            answers: list[Any] = []
            for need, _ in needs:
                answers.append((yield "s", need))
            for need, _ in needs:
                answers.append((yield "none", need))
            return Batch(answers)

        found = await tenant.transact(decide)
        assert found[: len(needs)] == [expected for _, expected in needs]
        assert found[len(needs) :] == [None, *([[]] * (len(needs) - 1))]

    @condition
    async def test_no_write_comes_into_a_transaction(self, tenant: TenantStore) -> None:
        """Of fifty at once, each decides on what the one before it left."""

        def counted() -> Deciding[int]:
            one = yield "s", NeedSession()
            two = yield "t", NeedSession()
            count: int = one.messages if one else 0
            assert count == (two.messages if two else 0)
            steps = [("s", writing("s", [Message.user(f"{count}")]))]
            steps += [("t", writing("t", [Message.user(f"{count}")]))]
            batch = yield from deciding(*steps)()
            return Batch(count, batch.sessions)

        counts, _ = await asyncio.gather(
            asyncio.gather(*(tenant.transact(counted) for _ in range(40))),
            asyncio.gather(*(write(tenant, "u", [Message.user("x")]) for _ in range(10))),
        )
        assert sorted(counts) == list(range(40))
        for name in ("s", "t"):
            assert await _said(tenant, name) == [f"{n}" for n in range(40)]

    @condition
    async def test_a_transaction_that_raises_writes_nothing(self, tenant: TenantStore) -> None:
        """It is called once, what it raises comes out as it is, and nothing is written."""
        await write(tenant, "s", _keyed("x"))
        before = await contents(tenant)
        error = DecisionError("no")
        calls: list[int] = []

        def early() -> Deciding[None]:
            calls.append(1)
            raise error

        def late() -> Deciding[None]:
            calls.append(1)
            assert (yield "s", NeedSession()) is not None
            raise error

        for decide in (early, late):
            with pytest.raises(DecisionError) as caught:
                await tenant.transact(decide)
            assert caught.value is error
        assert len(calls) == 2
        assert await tenant.transact(deciding()) == "decided"
        assert await contents(tenant) == before

    @condition
    async def test_a_transaction_is_whole_or_absent(self, tenant: TenantStore) -> None:
        """Where one session's changes are refused, no session's are made, nothing is deleted."""
        await write(tenant, "s", _keyed("x"))
        await write(tenant, "gone", _keyed("y"))
        before = await contents(tenant)
        good = writing("s", [Message.user("more")], nodes=(node(0),))
        fresh = writing("fresh", _keyed("new"))
        bad: list[Callable[..., Changes[Any]]] = [
            writing("t", _keyed("x"), flags=((9, "lost"),)),
            writing("t", _keyed("x"), record={"id": "other"}),
            writing("t", _keyed("x"), rewrites=_rewriting(1, "lost", "edit")),
            writing("t", _keyed("x"), parents=(("L1.0", "L2.0"),)),
            writing("t", copy=Copy("none", 0)),
        ]
        for wrong in bad:
            steps = (("s", good), ("fresh", fresh), ("t", wrong))
            with pytest.raises(UsageError):
                await tenant.transact(deciding(*steps, delete=["gone"], runs=[run("r")]))
            assert await contents(tenant) == before

    @condition
    async def test_a_transactions_effects_come_in_order(self, tenant: TenantStore) -> None:
        """A session may come twice, then sessions are deleted, then runs are written."""
        await write(tenant, "gone", _keyed("y"))
        first = writing("s", _keyed("x"), nodes=(node(0),))
        second = writing("s", [Message.user("z")], parents=(("L1.0", "L2.0"),))
        late = writing("gone", [Message.user("late")])
        idle = writing("idle", _keyed("never"))
        done = await tenant.transact(
            deciding(
                ("s", first), ("s", second), ("gone", late),
                ("idle", lambda seen: replace(idle(seen), session=None)),
                delete=["gone", "unknown"], runs=[run("r", subject="gone", kind="erasure")],
            )
        )  # fmt: skip
        assert done == "decided"
        assert await _said(tenant) == ["x", "z"]
        assert [one.parent for one in await tenant.nodes("s", ["L1.0"])] == ["L2.0"]
        assert [one.id for one in await tenant.sessions()] == ["s"]
        assert [one.id for one in await tenant.runs(subject="gone")] == ["r"]

    @condition
    async def test_an_edit_keeps_what_stood_there(self, tenant: TenantStore) -> None:
        """Versions come oldest first; a mark touches none, nor do others' edits."""
        await write(tenant, "s", _keyed("a", "b", "c"))
        (original,) = await tenant.messages("s", 1, 2)
        await write(tenant, "s", rewrites=_rewriting(1, "B", "edit", tokens=3, flags=("f",)))
        await write(tenant, "s", rewrites=_rewriting(1, "B", "mark", size=4, slices=(1,)))
        await write(
            tenant, "s", rewrites=(*_rewriting(1, "beta", "edit"), *_rewriting(0, "A", "edit"))
        )
        assert await _said(tenant) == ["A", "beta", "c"]
        assert await _was(tenant, 1) == ["b", "B"]
        found = await tenant.versions("s", 1)
        assert plain(found[0]) == plain(original)
        assert (found[1].size, found[1].slices) == (4, (1,))
        assert [await _was(tenant, index) for index in (0, 2, 3, -1)] == [["a"], [], [], []]
        assert await tenant.versions("t", 1) == []
        seen = await write(tenant, "s", keys=["key-1"])
        assert dict(seen.keys) == {"key-1": KeyEntry(1, "print-1")}
        (shown,) = await tenant.messages("s", 1, 2)
        assert plain(shown) == plain(_to(1, "beta"))

    @condition
    async def test_an_erasure_takes_every_version(self, tenant: TenantStore) -> None:
        """Neither what stood there nor an earlier version is left; the key stays reserved."""
        await write(tenant, "s", _keyed("a", "b"))
        await write(tenant, "t", _keyed("a", "b"))
        for name in ("s", "t"):
            await write(tenant, name, rewrites=_rewriting(0, "A", "edit"))
            await write(tenant, name, rewrites=_rewriting(1, "B", "edit"))
        await write(tenant, "s", rewrites=_rewriting(0, "", "erase", state="erased"))
        assert await _said(tenant) == ["", "B"]
        assert [one.state for one in await tenant.messages("s", 0, 9)] == ["erased", "live"]
        assert [await _was(tenant, index) for index in (0, 1)] == [[], ["b"]]
        seen = await write(tenant, "s", keys=["key-0", "key-1"])
        assert dict(seen.keys) == {"key-0": KeyEntry(0, None), "key-1": KeyEntry(1, "print-1")}
        # Another session's are its own.
        assert await _was(tenant, 0, "t") == ["a"]
        assert (await write(tenant, "t", keys=["key-0"])).keys["key-0"].fingerprint == "print-0"

    @condition
    async def test_a_rewrite_needs_its_message(self, tenant: TenantStore) -> None:
        """UsageError where the index holds none; one appended by the same write is there."""
        await write(tenant, "s", _keyed("a"))
        await write(tenant, "t", _keyed("a", "b", "c"))
        before = await contents(tenant)
        for index in (-1, 2, 1 << 32, (1 << 32) + 1):
            for kind in ("edit", "erase", "mark"):
                with pytest.raises(UsageError):
                    await write(
                        tenant, "s", [Message.user("b")], rewrites=_rewriting(index, "!", kind)
                    )
                assert await contents(tenant) == before
        await write(tenant, "s", [Message.user("b")], rewrites=_rewriting(1, "B", "edit"))
        assert await _said(tenant) == ["a", "B"]
        assert await _was(tenant, 1) == ["b"]

    @condition
    async def test_a_rewrite_drops_the_blocks_over_it(self, tenant: TenantStore) -> None:
        """Blocks of any kind that hold the index go; those beside it and other sessions' stay."""
        blocks = [Block("index", n, n + 3, b"x") for n in range(0, 12, 3)]
        blocks += [Block("other", 0, 12, b"y"), Block("other", 12, 20, b"z")]
        for kind in ("edit", "erase", "mark"):
            for name in ("s", "t"):
                if await tenant.session(name) is None:
                    await write(tenant, name, _keyed(*map(str, range(12))))
                assert await tenant.put_blocks(name, blocks, epoch=0) is True
            await write(tenant, "s", rewrites=_rewriting(3, "new", kind))
            assert [one.start for one in await tenant.blocks("s", "index")] == [0, 6, 9]
            assert [one.start for one in await tenant.blocks("s", "other")] == [12]
            assert len(await tenant.blocks("t", "index")) == 4

    @condition
    async def test_a_copy_is_the_sources_own_part(self, tenant: TenantStore) -> None:
        """Messages, versions, keys and texts up to the place come along, and are apart then."""
        await write(tenant, "s", _keyed("a", "b", "c", "d"), nodes=(node(0), node(1)))
        await write(
            tenant, "s", rewrites=(*_rewriting(0, "A", "edit"), *_rewriting(3, "D", "edit"))
        )
        await write(tenant, "s", rewrites=_rewriting(1, "", "erase", state="erased"))
        first = remade(node(0), input_hash="h")
        await tenant.write_nodes("s", [first, remade(first.node), remade(node(1))])
        await tenant.put_blocks("s", [Block("index", 0, 4, b"x")], epoch=0)
        before = await contents(tenant)
        fork = {"forked_from": "s", "forked_at": 3}
        revisions = (("L1.0", 2), ("L1.1", 1), ("L1.0", 2))
        await write(
            tenant, "f", [Message.user("own", key="key-3")], copy=Copy("s", 3, revisions),
            nodes=(node(0, revision=2),), record=fork,
        )  # fmt: skip
        record = await tenant.session("f")
        assert record is not None
        assert (record.forked_from, record.forked_at, record.messages) == ("s", 3, 4)
        assert await _said(tenant, "f") == ["A", "", "c", "own"]
        assert [await _was(tenant, index, "f") for index in range(4)] == [["a"], [], [], []]
        source = await tenant.messages("s", 0, 3)
        assert [plain(o) for o in await tenant.messages("f", 0, 3)] == [plain(o) for o in source]
        found = await tenant.revisions("f", [("L1.0", 1), ("L1.0", 2), ("L1.1", 1)])
        assert found == await tenant.revisions("s", [("L1.0", 2), ("L1.1", 1)])
        assert [one.id for one in await tenant.nodes("f", ["L1.0", "L1.1"])] == ["L1.0"]
        assert await tenant.blocks("f", "index") == []
        seen = await write(tenant, "f", keys=["key-0", "key-1", "key-2", "key-3"])
        assert [seen.keys[f"key-{n}"].fingerprint for n in range(4)] == [
            "print-0", None, "print-2", "print-3",
        ]  # fmt: skip
        after = await contents(tenant)
        assert after["session s"]["forks"] == [await tenant.session("f")]
        after["session s"]["forks"] = []
        assert after["session s"] == before["session s"]
        # Taken back here, it stays there.
        await write(tenant, "f", rewrites=_rewriting(0, "", "erase"), forget=("L1.0",))
        assert await _was(tenant, 0) == ["a"]
        assert len(await tenant.revisions("s", [("L1.0", 2)])) == 1
        await tenant.transact(deciding(delete=["s"]))
        assert await _said(tenant, "f") == ["", "", "c", "own"]

    @condition
    async def test_an_impossible_copy_is_refused(self, tenant: TenantStore) -> None:
        """Into a session that exists, beyond the source's end, of what it does not have."""
        await write(tenant, "s", _keyed("a", "b"), nodes=(node(0),))
        await write(tenant, "t", _keyed("a"))
        await tenant.write_nodes("s", [remade(node(0))])
        before = await contents(tenant)
        for name, copy in (
            ("t", Copy("s", 1)),
            ("new", Copy("none", 0)),
            ("new", Copy("s", 3)),
            ("new", Copy("s", -1)),
            ("new", Copy("s", 1, (("L1.0", 2),))),
            ("new", Copy("s", 1, (("L1.0", 1), ("L1.1", 1)))),
        ):
            with pytest.raises(UsageError):
                await write(tenant, name, copy=copy)
            assert await contents(tenant) == before
        with pytest.raises(UsageError):  # a key that the copy brings
            await write(tenant, "new", [Message.user("x", key="key-1")], copy=Copy("s", 2))
        assert await contents(tenant) == before

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
        """All that bears its name goes, nothing else does, and the name can be used anew."""
        for name in ("s", "t", "S"):
            await write(tenant, name, _keyed("a", "b"), nodes=(node(0),), events=(_EVENT,))
            await write(tenant, name, rewrites=_rewriting(0, "A", "edit"))
            await write(tenant, name, nodes=(node(0),), tree=1)
            made = remade(node(0), input_hash=f"h-{name}")
            assert await tenant.write_nodes(name, [made]) == [True]
            await _derive(tenant, name)
        before = await contents(tenant)
        await tenant.transact(deciding(delete=["s"]))
        after = await contents(tenant)
        for kind in ("runs", "attempts"):
            assert after[kind] == [one for one in before[kind] if one.id[2:] != "s"]
        assert [one for one in after if one.startswith("session")] == ["session t", "session S"]
        assert all(after[f"session {name}"] == before[f"session {name}"] for name in ("t", "S"))
        assert await tenant.reusable("h-s") is None
        assert await tenant.records("k", scope="s") == []
        assert await tenant.view("s", "v") is None
        await write(tenant, "s", [Message.user("new")])
        fresh = (await contents(tenant))["session s"]
        await write(tenant, "compare", [Message.user("new")])
        other = (await contents(tenant))["session compare"]
        assert {**fresh, "record": None} == {**other, "record": None}

    @condition
    async def test_views_and_records_are_dropped_by_name(self, tenant: TenantStore) -> None:
        """What the changes name goes, in this session alone; what does not exist is no matter."""
        for name in ("s", "t"):
            await write(tenant, name, _keyed("a"))
            await _derive(tenant, name)
        await tenant.put_records([RecordWrite("K", "s", "a", "other kind")])
        await write(tenant, "s", drop_views=("v", "none"), drop_records=(("k", "a"), ("k", "none")))
        assert await tenant.view("s", "v") is None
        assert await tenant.view("s", "w") == ViewRecord("s", "w", "state")
        assert await tenant.view("t", "v") == ViewRecord("t", "v", "state")
        assert [(o.scope, o.key) for o in await tenant.records("k")] == [
            ("s", "b"), ("t", "a"), ("t", "b"),
        ]  # fmt: skip
        assert len(await tenant.records("K")) == 1

    @condition
    async def test_an_erased_tenant_is_empty(self, tenant: TenantStore) -> None:
        """Everything goes, also what belongs to no session; the handle goes on working."""
        for name in ("s", "t"):
            await write(tenant, name, _keyed("a", "b"), nodes=(node(0),))
            await tenant.write_nodes(name, [remade(node(0), input_hash="h")])
            await _derive(tenant, name)
        await tenant.put_view(ViewRecord("none", "v", "state"))
        await tenant.put_records([RecordWrite("k", "", "a", "body")])
        await tenant.put_run(run("free", subject="tenant"))
        assert await tenant.erase_all() == 2
        assert await contents(tenant) == {
            "runs": [], "attempts": [], "spent": Spent(), "backlog": [],
        }  # fmt: skip
        assert await tenant.view("none", "v") is None
        assert await tenant.records("k") == []
        assert await tenant.reusable("h") is None
        assert await tenant.erase_all() == 0
        await write(tenant, "s", _keyed("new"))
        assert await _said(tenant) == ["new"]
        assert await tenant.nodes("s", ["L1.0"]) == []

    @condition
    async def test_scrubbing_changes_nothing_that_is_kept(self, tenant: TenantStore) -> None:
        """It says whether it is done, and why not; every read is the same afterwards."""
        await write(tenant, "s", _keyed("a", "b"), nodes=(node(0),))
        await _derive(tenant, "s")
        before = await contents(tenant)
        found = await tenant.scrub()
        assert isinstance(found, Scrubbed)
        assert found.done == (not found.reason)
        assert await contents(tenant) == before
        await write(tenant, "s", [Message.user("c")])
        assert await _said(tenant) == ["a", "b", "c"]


_EVENT = LogEvent("edit", 1, NOW, '{"shifts":[]}')
