"""The conditions on nodes and their revisions.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hiermem.protocols import TenantStore
from hiermem.testing.samples import NOW, attempt, node, refused, remade, revision, write
from hiermem.testing.segment_conditions import Conditions, condition
from hiermem.types import Node, Span
from hiermem.types.transaction import NodeWrite


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
    async def test_nodes_come_in_the_order_asked_for(self, tenant: TenantStore) -> None:
        """Ids that do not exist are left out, and one asked for twice comes twice."""
        await write(tenant, "s", nodes=tuple(node(n) for n in range(12)))
        wanted = ["L1.10", "L1.2", "nothing", "l1.2", "L1.11", "L1.2"]
        found = await tenant.tree("s").nodes(wanted)
        assert [one.id for one in found] == ["L1.10", "L1.2", "L1.11", "L1.2"]
        assert await tenant.tree("s").nodes([]) == []
        assert await tenant.tree("other").nodes(["L1.2"]) == []

    @condition
    async def test_a_level_comes_by_ordinal(self, tenant: TenantStore) -> None:
        """A level is its nodes, ordered as numbers, in a half-open range."""
        await write(tenant, "s", nodes=(*(node(n) for n in range(11, -1, -1)), node(0, 2)))
        for start, stop in ((0, None), (0, 0), (2, 11), (9, None), (11, 99), (40, None)):
            found = await tenant.tree("s").level(1, start, stop)
            assert [one.ordinal for one in found] == list(range(12))[start:stop]
            assert all(one.level == 1 for one in found)
        assert await tenant.tree("s").level(3, 0) == []
        assert await tenant.tree("s").levels() == {1: 12, 2: 1}
        assert await tenant.tree("other").levels() == {}

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
