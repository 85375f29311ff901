"""The conditions on nodes and their revisions, on several trees, and on whole trees.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from samples import (
    NOW,
    attempt,
    node,
    refused,
    remade,
    revision,
    rounded,
    write,
)
from segment_conditions import Conditions, condition

from hiermem.protocols import TenantStore
from hiermem.types import Node, Span
from hiermem.types.transaction import NodeTally, NodeWrite, Spent


async def _one(tenant: TenantStore, id_: str) -> Node:
    (found,) = await tenant.tree("s").nodes([id_])
    return found


class NodeConditions(Conditions):
    """Nodes, compare-and-swap, revisions."""

    @condition
    async def test_every_field_of_a_node_comes_back(self, tenant: TenantStore) -> None:
        """A node is kept whole, and one of the same id replaces it whole."""
        full = node(
            3, 2, thread=None, span=Span(5, 20, 7, 9), windows=(2, 9), children=("L1.2", "L1.3"),
            messages=11, input_size=12, allotted=13, input_tokens=14, allotted_tokens=15,
            verbatim=True, linked=True, parent="L3.0", status="failed", revision=4, version=5,
            attempts=6, error="why", degraded=True, dirty=True,

            unit="chars", forced=True, since=NOW - timedelta(days=1),
        )  # fmt: skip
        await write(tenant, "s", nodes=(full, node(0)))
        assert await tenant.tree("s").nodes(["L2.3", "L1.0"]) == [full, node(0)]
        bare = node(3, 2, version=6)
        await write(tenant, "s", nodes=(bare,))
        assert await tenant.tree("s").nodes(["L2.3"]) == [bare]

    @condition
    async def test_unfinished_is_what_has_work_left(self, tenant: TenantStore) -> None:
        """Nodes that are not active, or degraded, or dirty: in range and by ordinal."""
        kinds: list[dict[str, Any]] = [
            {"status": "active"}, {"status": "pending"}, {"status": "generating"},
            {"status": "failed"}, {"status": "active", "degraded": True},
            {"status": "active", "dirty": True}, {"status": "active", "forced": True},
        ]  # fmt: skip
        nodes = [node(n, **kinds[n % 7]) for n in range(21)]
        await write(tenant, "s", nodes=(*nodes[::-1], node(0, 2)))
        due = [n for n in range(21) if n % 7 in (1, 2, 3, 4, 5)]
        for after, limit in ((-1, 99), (-1, 3), (4, 2), (8, 99), (20, 5), (-1, 0)):
            found = await tenant.tree("s").unfinished(1, after, limit)
            assert [one.ordinal for one in found] == [n for n in due if n > after][:limit]

    @condition
    async def test_setting_a_parent_is_a_write_to_the_node(self, tenant: TenantStore) -> None:
        """A node's version goes up with its parent: a write decided before does not undo it."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        parents = (("L1.0", "L2.0"), ("L1.2", "L2.0"))
        await write(tenant, "s", nodes=(node(2), node(0, 2)), parents=parents)
        found = await tenant.tree("s").nodes(["L1.0", "L1.1", "L1.2"])
        assert [one.parent for one in found] == ["L2.0", None, "L2.0"]
        assert [one.version for one in found] == [1, 0, 1]
        made = [remade(node(0)), remade(found[1])]
        assert await tenant.tree("s").write_nodes(made) == [False, True]
        assert (await _one(tenant, "L1.0")).parent == "L2.0"

    @condition
    async def test_a_write_needs_the_version_it_expects(self, tenant: TenantStore) -> None:
        """A node is written only over the version expected, each write judged by itself."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        first = remade(node(0))
        missing = remade(node(9))
        writes = [first, missing, remade(node(1))]
        assert await tenant.tree("s").write_nodes(writes) == [True, False, True]
        late = NodeWrite(replace(node(0), version=1, error="late"), 0)
        assert await tenant.tree("s").write_nodes([late]) == [False]
        assert await _one(tenant, "L1.0") == first.node
        assert await tenant.tree("s").nodes(["L1.9"]) == []
        assert await tenant.tree("s").revisions([("L1.9", 1)]) == []
        assert await tenant.tree("other").write_nodes([remade(node(0))]) == [False]
        assert await tenant.tree("s").write_nodes([]) == []

    @condition
    async def test_a_write_sees_the_ones_before_it(self, tenant: TenantStore) -> None:
        """Writes of one call are applied in order."""
        await write(tenant, "s", nodes=(node(0), node(0, 2)))
        first = remade(node(0))
        parent = replace(remade(node(0, 2)), inputs=(("L1.0", 1),))
        early = replace(parent, inputs=(("L1.0", 0),))
        writes = [parent, first, remade(first.node), early, parent]
        assert await tenant.tree("s").write_nodes(writes) == [False, True, True, False, False]
        assert (await _one(tenant, "L1.0")).revision == 2

    @condition
    async def test_a_write_needs_its_inputs_to_serve(self, tenant: TenantStore) -> None:
        """If an input serves another revision, or is gone, the write does not count."""
        await write(tenant, "s", nodes=(node(0), node(1), node(0, 2)))
        await tenant.tree("s").write_nodes([remade(node(0)), remade(node(1))])
        parent = remade(node(0, 2))
        for inputs in (
            (("L1.0", 1), ("L1.1", 2)),
            (("L1.0", 0), ("L1.1", 1)),
            (("L1.0", 1), ("L1.7", 0)),
        ):
            assert await tenant.tree("s").write_nodes([replace(parent, inputs=inputs)]) == [False]
            assert await _one(tenant, "L2.0") == node(0, 2)
        right = replace(parent, inputs=(("L1.0", 1), ("L1.1", 1)))
        assert await tenant.tree("s").write_nodes([right]) == [True]

    @condition
    async def test_of_two_writers_one_wins(self, tenant: TenantStore) -> None:
        """Of many writes over the same version at once exactly one is applied."""
        await write(tenant, "s", nodes=(node(0),))
        outcomes = await asyncio.gather(
            *(tenant.tree("s").write_nodes([remade(node(0), text=str(n))]) for n in range(20))
        )
        assert outcomes.count([True]) == 1
        (kept,) = await tenant.tree("s").revisions([("L1.0", 1)])
        assert outcomes[int(kept.text)] == [True]

    @condition
    async def test_a_write_at_odds_with_itself_is_refused(self, tenant: TenantStore) -> None:
        """A version that does not follow, or another node's revision: UsageError, no effect."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        await tenant.tree("s").write_nodes([remade(node(1))])
        good = remade(node(0))
        for bad in (
            replace(good, expected=5),
            replace(good, revision=revision("L1.1", 1)),
            replace(good, revision=revision("L1.0", 2)),
            remade(node(1, revision=0, version=1)),
        ):
            async with refused(tenant):
                await tenant.tree("s").write_nodes([good, bad], attempts=[attempt("a")])

    @condition
    async def test_attempts_are_recorded_in_any_case(self, tenant: TenantStore) -> None:
        """Attempts are journalled with the write, also where no write counts."""
        await write(tenant, "s", nodes=(node(0),))
        started = attempt("a1")
        claim = NodeWrite(replace(node(0), version=1, status="generating"), 0)
        assert await tenant.tree("s").write_nodes([claim], attempts=[started]) == [True]
        ended = replace(started, outcome="ok", tokens_in=5, tokens_out=2, ended_at=NOW)
        late = remade(node(0))
        other = attempt("a2", outcome="error", reason="timeout")
        assert await tenant.tree("s").write_nodes([late], attempts=[ended, other]) == [False]
        assert await tenant.attempts() == [ended, other]
        assert await tenant.tree("none").write_nodes([], attempts=[attempt("a3")]) == []
        assert len(await tenant.attempts()) == 3

    @condition
    async def test_a_write_counts_only_under_its_claim(self, tenant: TenantStore) -> None:
        """Nodes and attempts are written while the claim is the session's, and otherwise not.

        So a run that was taken over begins no call, and overwrites nothing.
        """
        await write(tenant, "s", nodes=(node(0), node(1)))
        tree, started = tenant.tree("s"), attempt("a1")
        claim = await tenant.take_due("s", lease=60.0)
        assert claim is not None
        assert await tree.write_nodes([], attempts=[started], claim=claim) == []
        stale = remade(node(1, version=7))
        assert await tree.write_nodes([remade(node(0)), stale], claim=claim) == [True, False]
        ended = replace(started, outcome="ok", ended_at=NOW)
        for lost in (
            replace(claim, generation=claim.generation - 1),
            replace(claim, generation=claim.generation + 1),
        ):
            writes, attempts = [remade(node(1))], [ended, attempt("a2")]
            assert await tree.write_nodes(writes, attempts=attempts, claim=lost) is None
        assert await tenant.tree("none").write_nodes([], attempts=[ended], claim=claim) is None
        assert await tenant.attempts() == [started]
        assert [one.revision for one in await tree.level(1, 0)] == [1, 0]
        # It counts until somebody takes the session over, also when its time is over.
        assert await tenant.take_due("s", lease=-1.0, held=claim) == claim
        assert await tree.write_nodes([remade(node(1))], claim=claim) == [True]
        assert await tenant.take_due("s", lease=60.0) is not None
        assert await tree.write_nodes([], attempts=[ended], claim=claim) is None
        assert await tenant.attempts() == [started]

    @condition
    async def test_revisions_come_in_the_order_wanted(self, tenant: TenantStore) -> None:
        """Every field of every revision is kept; earlier ones stay beside the serving one."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        first = remade(
            node(0), text="x" * 65_535 + "Ω", tokens=9, provenance="[1,2]", anchors=("59.90", ""),
            tags=("a b",), entities=("Ada", "\N{SNOWMAN}"), fidelity=0.123456789012345,
            unsupported=("7",), trust="tool", degraded=True, reused=True, tokens_in=1,
            tokens_out=2, calls=3, duration_ms=4, extras={"k": [1, {"n": None}]},
        )  # fmt: skip
        second, other = remade(first.node), remade(node(1), text="")
        assert await tenant.tree("s").write_nodes([first, second, other]) == [True] * 3
        found = await tenant.tree("s").revisions(
            [("L1.1", 1), ("L1.0", 2), ("L1.0", 3), ("L1.0", 1), ("L1.7", 1), ("L1.0", 2)]
        )
        assert found == [other.revision, second.revision, first.revision, second.revision]
        found[2].extras["k"].append(0)
        (again,) = await tenant.tree("s").revisions([("L1.0", 1)])
        assert again == first.revision
        assert await tenant.tree("other").revisions([("L1.0", 1)]) == []
        assert await tenant.tree("s").revisions([]) == []

    @condition
    async def test_the_newest_good_revision_is_reused(self, tenant: TenantStore) -> None:
        """``reusable`` returns the newest of any session that is not degraded, by exact hash."""
        await write(tenant, "s", nodes=(node(0), node(1)))
        await write(tenant, "t", nodes=(node(0),))
        late = NOW + timedelta(days=1)
        first = remade(node(1), input_hash="h", text="1", created_at=late)
        await tenant.tree("s").write_nodes([first])
        good = remade(node(0), input_hash="h", text="2")
        await tenant.tree("t").write_nodes([good])
        bad = remade(node(0), input_hash="h", text="3", degraded=True)
        await tenant.tree("s").write_nodes([bad])
        assert await tenant.reusable("h") == good.revision
        for other in ("H", "h ", "h%", "", "_"):
            assert await tenant.reusable(other) is None
        last = remade(bad.node, input_hash="h", text="4")
        await tenant.tree("s").write_nodes([last])
        assert await tenant.reusable("h") == last.revision


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
        await write(tenant, "none", [])
        await tenant.tree("none").write_nodes([], attempts=tries)
        assert await tenant.spent() == Spent(6, 63, 6, 0.75, 2, 31, 1)
        assert await tenant.spent("s") == Spent(2, 3, 2, 0.25, 1, 1, 1)
        assert await tenant.spent("t") == Spent(1, 4, 1, unknown=1)
        assert await tenant.spent("S") == Spent(1, 8, 1, 0.0)
        assert await tenant.spent("none") == Spent()
        ended = replace(tries[1], outcome="ok", tokens_in=9)
        await tenant.tree("none").write_nodes([], attempts=[ended])
        assert await tenant.spent("s") == Spent(2, 10, 2, 0.25, 0, 1, 1)
