"""P5: a sealed window's bounds never move, whatever arrives, fails or is made afterwards."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS, Way, bounds, logs, long_logs, place, play, ways
from sampling import drawn

from hiermem.testing.llms import FaultyLLM


class Witness:
    """Looks at the tree after every step and remembers what was sealed."""

    def __init__(self):
        self.sealed = {}
        self.parents = {}
        self.looks = 0

    async def __call__(self, memory, session):
        self.looks += 1
        found = {summary.id: summary.node for summary in await session.summaries()}
        assert self.sealed.keys() <= found.keys(), "a sealed node is gone"
        for id_, known in self.sealed.items():
            assert bounds(found[id_]) == known, f"the bounds of {id_} moved"
        for id_, parent in self.parents.items():
            assert found[id_].parent == parent, f"{id_} was given another parent"
        self.tiles(found)
        for id_, node in found.items():
            self.sealed[id_] = bounds(node)
            if node.parent is not None:
                self.parents[id_] = node.parent

    def tiles(self, found):
        """Every level is numbered without a gap, every parent holds just its children."""
        by_level = {}
        for node in found.values():
            by_level.setdefault(node.level, []).append(node)
        for level, nodes in by_level.items():
            nodes.sort(key=lambda node: node.ordinal)
            assert [node.ordinal for node in nodes] == list(range(len(nodes)))
            for node in nodes:
                if level == 1:
                    assert node.windows == (node.ordinal, node.ordinal + 1)
                    continue
                children = [found[child] for child in node.children]
                assert len(children) >= 2, "a group of one"
                assert all(child.parent == node.id for child in children)
                assert node.windows == (children[0].windows[0], children[-1].windows[1])
                for one, next_ in pairwise(children):
                    assert one.windows[1] == next_.windows[0], "a group with a hole"


@pytest.mark.parametrize("kind", ["memory", "sqlite-memory", "sqlite"])
@drawn(20)
@given(
    log=logs(),
    way=ways,
    name=st.sampled_from(sorted(CONFIGS)),
    rate=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 100),
)
async def test_p5_a_sealed_window_never_moves(kind, log, way, name, rate, seed):
    """Updates run in between, with a model that fails now and then, or always."""
    witness = Witness()
    faults = ("empty", "over_long", "truncated", "permanent", "crash", "echo")
    model = FaultyLLM(rate=rate, seed=seed, faults=faults)
    async with place(kind) as at:
        await play(log, at, CONFIGS[name], way, look=witness, llm=model)


@pytest.mark.parametrize("name", sorted(CONFIGS))
@drawn(40)
@given(log=logs())
async def test_p5_a_prefix_of_the_log_gives_a_prefix_of_the_tree(name, log):
    """What is sealed after n messages is what is sealed, there, after any more of them."""
    witness = Witness()
    async with place("memory") as at:
        await play(log, at, CONFIGS[name], Way(), look=witness, finished=False)
    cut = len(log) // 2
    if not cut:
        return
    prefix = Witness()
    async with place("memory") as at:
        await play(log[:cut], at, CONFIGS[name], Way(batches=(99,)), look=prefix, finished=False)
    assert prefix.sealed.items() <= witness.sealed.items()


@pytest.mark.thorough
@drawn(6)
@given(log=long_logs(), way=ways)
async def test_p5_holds_for_thousands_of_messages(log, way):
    witness = Witness()
    way = replace(way, batches=(600,), updates=0.2, restarts=0.0)
    async with place("sqlite-memory") as at:
        await play(log, at, CONFIGS["tokens"], way, look=witness)
