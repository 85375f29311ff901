"""The conditions on a session's several trees, and on questions about a whole tree.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hiermem.protocols import TenantStore
from hiermem.testing.samples import NOW, attempt, delete, node, remade, rounded, run, write
from hiermem.testing.segment_conditions import Conditions, condition
from hiermem.types import Node, Span
from hiermem.types.transaction import NodeTally, Spent


def _ids(nodes: list[Node]) -> list[str]:
    return [one.id for one in nodes]


class TreeConditions(Conditions):
    """The tree that serves, one being built, and questions about a whole tree."""

    @condition
    async def test_two_trees_do_not_touch_one_another(self, tenant: TenantStore) -> None:
        """The same ids name other nodes in another tree; the record's tree is the default."""
        await write(tenant, "s", nodes=(node(0), node(1), node(0, 2)))
        nodes = (node(0, error="other"), node(1), node(2))
        await write(tenant, "s", nodes=nodes, parents=(("L1.1", "L2.9"),), tree=3)
        serving, other = tenant.tree("s"), tenant.tree("s", 3)
        made = remade(node(0, error="other"), text="other", input_hash="h")
        assert await other.write_nodes([made, remade(node(0, 2))]) == [True, False]
        assert await tenant.tree("s", 2).write_nodes([made]) == [False]
        assert await serving.nodes(["L1.0", "L1.2"]) == [node(0)]
        assert await tenant.tree("s", 0).nodes(["L1.0"]) == [node(0)]
        assert await other.nodes(["L1.0"]) == [made.node]
        assert await serving.revisions([("L1.0", 1)]) == []
        assert await other.revisions([("L1.0", 1)]) == [made.revision]
        assert await serving.levels() == {1: 2, 2: 1}
        assert await other.levels() == {1: 3}
        assert await tenant.tree("s", 1).levels() == {}
        assert _ids(await other.level(1, 0)) == ["L1.0", "L1.1", "L1.2"]
        assert _ids(await serving.unfinished(1, -1, 9)) == ["L1.0", "L1.1"]
        assert _ids(await other.unfinished(1, -1, 9)) == ["L1.1", "L1.2"]
        assert _ids(await other.covering("main", 25)) == ["L1.2"]
        assert await serving.covering("main", 25) == []
        assert [one.count for one in await other.tally()] == [1, 2]
        assert _ids(await other.outdated(1, [], -1, 9)) == ["L1.0"]
        assert await serving.outdated(1, [], -1, 9) == []
        # A text is reused whichever tree it was made for.
        assert await tenant.reusable("h") == made.revision

    @condition
    async def test_the_record_says_which_tree_serves(self, tenant: TenantStore) -> None:
        """Changes and reads refer to the tree that the record names as they write it."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        await write(tenant, "s", nodes=(node(0), node(5)), tree=4)
        await tenant.tree("s", 4).write_nodes([remade(node(5))])
        assert _ids(await tenant.tree("s").level(1, 0)) == ["L1.0", "L1.1"]
        await write(tenant, "s", nodes=(node(6),), drop_tree=0, record={"tree": 4})
        assert _ids(await tenant.tree("s").level(1, 0)) == ["L1.0", "L1.5", "L1.6"]
        assert len(await tenant.tree("s").revisions([("L1.5", 1)])) == 1
        assert await tenant.tree("s", 0).levels() == {}
        assert await tenant.tree("s").write_nodes([remade(node(6))]) == [True]
        assert await tenant.tree("s", 0).write_nodes([remade(node(1))]) == [False]

    @condition
    async def test_a_handle_looks_up_the_serving_tree_at_each_call(
        self, tenant: TenantStore
    ) -> None:
        """A tree's handle may be made before its session, and finds another tree that serves."""
        early, fixed = tenant.tree("s"), tenant.tree("s", 4)
        assert await early.levels() == await fixed.levels() == {}
        await write(tenant, "s", nodes=(node(0),))
        serving = tenant.tree("s")
        await write(tenant, "s", nodes=(node(0), node(5)), tree=4)
        assert _ids(await serving.level(1, 0)) == ["L1.0"]
        await write(tenant, "s", record={"tree": 4})
        assert _ids(await serving.level(1, 0)) == ["L1.0", "L1.5"]
        assert _ids(await early.level(1, 0)) == ["L1.0", "L1.5"]
        assert await serving.write_nodes([remade(node(5))]) == [True]
        assert _ids(await fixed.nodes(["L1.5"])) == ["L1.5"]
        assert len(await fixed.revisions([("L1.5", 1)])) == 1
        await write(tenant, "s", record={"tree": 0})
        assert _ids(await serving.level(1, 0)) == ["L1.0"]
        assert _ids(await fixed.level(1, 0)) == ["L1.0", "L1.5"]
        await delete(tenant, "s")
        assert await serving.level(1, 0) == await fixed.level(1, 0) == []

    @condition
    async def test_a_dropped_tree_is_gone_with_its_revisions(self, tenant: TenantStore) -> None:
        """A tree is dropped before the nodes of the same write come; no other tree is touched."""
        for name, tree in (("s", 0), ("s", 1), ("t", 1)):
            await write(tenant, name, nodes=(node(0), node(1)), tree=tree)
            made = remade(node(0), input_hash=f"h-{name}-{tree}")
            assert await tenant.tree(name, tree).write_nodes([made]) == [True]
        await write(tenant, "s", drop_tree=1, nodes=(node(2),), tree=1)
        assert _ids(await tenant.tree("s", 1).level(1, 0)) == ["L1.2"]
        assert await tenant.tree("s", 1).revisions([("L1.0", 1)]) == []
        assert await tenant.reusable("h-s-1") is None
        assert await tenant.reusable("h-s-0") is not None
        assert await tenant.reusable("h-t-1") is not None
        assert await tenant.tree("s", 0).levels() == {1: 2}
        assert await tenant.tree("t", 1).levels() == {1: 2}
        await write(tenant, "s", drop_tree=9)
        assert await tenant.tree("s").levels() == {1: 2}

    @condition
    async def test_a_forgotten_node_stays_without_revisions(self, tenant: TenantStore) -> None:
        """``forget`` takes every revision of a node, the earlier ones too, and leaves the node."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        await write(tenant, "s", nodes=(node(0),), tree=1)
        first = remade(node(0), input_hash="h1")
        second = remade(first.node, input_hash="h2")
        await tenant.tree("s").write_nodes([first, second, remade(node(1), input_hash="h3")])
        await tenant.tree("s", 1).write_nodes([remade(node(0), input_hash="h4")])
        plain = replace(second.node, revision=0, version=3, status="pending")
        await write(tenant, "s", forget=("L1.0", "none"), nodes=(plain,))
        assert await tenant.tree("s").nodes(["L1.0"]) == [plain]
        wanted = [("L1.0", 1), ("L1.0", 2), ("L1.1", 1)]
        assert [one.node_id for one in await tenant.tree("s").revisions(wanted)] == ["L1.1"]
        assert [await tenant.reusable(f"h{n}") is None for n in (1, 2, 3, 4)] == [
            True, True, False, False,
        ]  # fmt: skip
        assert await tenant.tree("s").write_nodes([remade(plain, text="anew")]) == [True]
        (again,) = await tenant.tree("s").revisions([("L1.0", 1)])
        assert again.text == "anew"
        await write(tenant, "s", forget=("L1.0",))
        assert len(await tenant.tree("s").nodes(["L1.0"])) == 1
        assert await tenant.tree("s").revisions([("L1.0", 1)]) == []

    @condition
    async def test_covering_is_what_holds_the_message(self, tenant: TenantStore) -> None:
        """The windows of that thread alone, of a sliced message all, by ordinal."""
        spans = [
            (0, "main", Span(0, 4)), (1, "side", Span(1, 9)), (2, "main", Span(4, 13)),
            (3, "main", Span(13, 14, 0, 50)), (4, "main", Span(13, 14, 50, 90)),
            (5, "Main", Span(14, 20)), (10, "main", Span(13, 20, 90)),
        ]  # fmt: skip
        nodes = tuple(node(n, thread=thread, span=span) for n, thread, span in spans)
        upper = node(0, 2, span=Span(0, 20))
        await write(tenant, "s", nodes=(*nodes[::-1], upper))
        for thread, index, wanted in (
            ("main", 0, [0]), ("main", 3, [0]), ("main", 4, [2]), ("main", 12, [2]),
            ("main", 13, [3, 4, 10]), ("main", 14, [10]), ("main", 19, [10]), ("main", 20, []),
            ("main", -1, []), ("side", 0, []), ("side", 8, [1]), ("side", 9, []),
            ("Main", 15, [5]), ("other", 5, []), ("main%", 5, []),
        ):  # fmt: skip
            assert [one.ordinal for one in await tenant.tree("s").covering(thread, index)] == wanted
        assert await tenant.tree("t").covering("main", 0) == []

    @condition
    async def test_outdated_is_what_was_made_otherwise(self, tenant: TenantStore) -> None:
        """Nodes whose serving text was made in none of the ways, in range, by ordinal."""
        ways = ("a", "b", "A", None, "a")
        nodes = tuple(node(n) for n in range(10))
        await write(tenant, "s", nodes=(*nodes, node(0, 2)))
        made = [remade(one, strategy=ways[n % 5]) for n, one in enumerate(nodes) if n % 5 != 3]
        await tenant.tree("s").write_nodes(made[::-1])
        # Its earlier text does not matter.
        again = remade(made[1].node, strategy="a")
        await tenant.tree("s").write_nodes([again, remade(node(0, 2), strategy="z")])
        for ways_, after, limit, wanted in (
            (("a",), -1, 9, [2, 6, 7]), (("a", "b"), -1, 9, [2, 7]), ((), -1, 99, "all"),
            (("a",), 2, 9, [6, 7]), (("a",), -1, 2, [2, 6]), (("a",), -1, 0, []),
            (("a", "b", "A", "x"), -1, 9, []),
        ):  # fmt: skip
            found = await tenant.tree("s").outdated(1, ways_, after, limit)
            every = [0, 1, 2, 4, 5, 6, 7, 9]
            assert [one.ordinal for one in found] == (every if wanted == "all" else wanted)
        assert _ids(await tenant.tree("s").outdated(2, ["a"], -1, 9)) == ["L2.0"]
        assert await tenant.tree("t").outdated(1, [], -1, 9) == []

    @condition
    async def test_a_tally_adds_up_what_serves(self, tenant: TenantStore) -> None:
        """Nodes by level and status, with the sums of the texts that serve now."""
        kinds: list[dict[str, Any]] = [
            {"degraded": True}, {"dirty": True, "since": NOW}, {"dirty": True},
            {"since": NOW - timedelta(days=1)}, {"status": "failed"}, {},
        ]  # fmt: skip
        nodes = [node(n, input_tokens=100 + n, **kind) for n, kind in enumerate(kinds)]
        await write(tenant, "s", nodes=(*nodes, node(0, 2)))
        sums = {"tokens_in": 10, "tokens_out": 4, "calls": 2, "duration_ms": 30}
        made = [remade(one, fidelity=0.5, tokens=7, **sums) for one in nodes[:4]]
        again = remade(made[0].node, fidelity=0.25, tokens=9, reused=True, **sums)
        await tenant.tree("s").write_nodes([*made, again])
        active = NodeTally(
            1, "active", 4, made=4, degraded=1, dirty=2, pending=1, input_tokens=406,
            made_input_tokens=406, made_tokens=30, tokens_in=40, tokens_out=16, calls=8, reused=1,
            duration_ms=120, fidelity=1.75, measured=4, since=NOW - timedelta(days=1),
        )  # fmt: skip
        assert [rounded(one) for one in await tenant.tree("s").tally()] == [
            active,
            NodeTally(1, "failed", 1, input_tokens=104),
            NodeTally(1, "pending", 1, input_tokens=105),
            NodeTally(2, "pending", 1, input_tokens=400),
        ]
        assert await tenant.tree("t").tally() == []

    @condition
    async def test_spent_counts_every_attempt(self, tenant: TenantStore) -> None:
        """Of one session or of all; attempts that never ended count, and are reported."""
        outcomes = ("ok", "started", "unknown", "error", "rejected", "ok")
        tries = [
            attempt(f"a{n}", outcome=how, tokens_in=2**n, tokens_out=1, session_id="sstSuu"[n])
            for n, how in enumerate(outcomes)
        ]
        tries[0] = replace(tries[0], cached_tokens=1, reasoning_tokens=1, cost=0.25)
        tries[3] = replace(tries[3], cost=0.0)
        tries[5] = replace(tries[5], cached_tokens=30, cost=0.5)
        await tenant.tree("none").write_nodes([], attempts=tries)
        assert await tenant.spent() == Spent(6, 63, 6, 2, 31, 1, 0.75)
        assert await tenant.spent("s") == Spent(2, 3, 2, 1, 1, 1, 0.25)
        assert await tenant.spent("t") == Spent(1, 4, 1, 1)
        assert await tenant.spent("S") == Spent(1, 8, 1, 0, cost=0.0)
        assert await tenant.spent("none") == Spent()
        ended = replace(tries[1], outcome="ok", tokens_in=9)
        await tenant.tree("none").write_nodes([], attempts=[ended])
        assert await tenant.spent("s") == Spent(2, 10, 2, 0, 1, 1, 0.25)

    @condition
    async def test_a_run_is_found_by_its_exact_id(self, tenant: TenantStore) -> None:
        """The run of that id as it was last put, or None."""
        await tenant.put_run(run("r", detail={"n": [1]}))
        await tenant.put_run(run("R", subject="other"))
        await tenant.put_run(run("r", outcome="ok", detail={"n": [2]}))
        for _ in range(2):
            found = await tenant.run("r")
            assert found is not None
            assert found == run("r", outcome="ok", detail={"n": [2]})
            found.detail["n"].append(3)
        assert await tenant.run("R") == run("R", subject="other")
        assert [await tenant.run(name) for name in ("r ", "%", "")] == [None, None, None]

    @condition
    async def test_every_field_of_a_record_counts(self, tenant: TenantStore) -> None:
        """Epoch, tree, build and where a fork comes from are kept and replaced like the rest."""
        new: dict[str, Any] = {"epoch": 3, "tree": 2, "build": '{"at":1}', "forked_at": 7}
        new["forked_from"] = "t"
        await write(tenant, "s", ["x"], record=new)
        found = await tenant.session("s")
        assert found is not None
        assert found == replace(found, **new)
        later: dict[str, Any] = {"epoch": 4, "build": "", "forked_from": None}
        await write(tenant, "s", record=later)
        assert await tenant.session("s") == replace(found, version=2, state="[2]", **later)
