"""What a node is allotted and how high trees grow. ``test_fold`` holds the rules of groups."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import params

from hiermem.config import HierarchyConfig, LevelConfig
from hiermem.tree.levels import Growth, unpack, weigh
from hiermem.tree.windows import Seal, Segment, micros
from hiermem.types import Position

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)
TOKENS, CHARS = HierarchyConfig.by_tokens(), HierarchyConfig.by_chars()


class Tree:
    """A growth with windows of ``messages`` messages put in one after the other."""

    def __init__(self, config=TOKENS, ordinals=(), groups=()):
        self.growth, self.index = Growth(ordinals, groups, config), 0

    def add(self, size, *, tokens=None, messages=1, thread="main", at=0):
        begin, self.index = self.index, self.index + messages
        now = micros(T0) + at
        tokens = size if tokens is None else tokens
        content = Segment(messages, size, tokens, begin, self.index - 1, now, now, now + 7)
        seal = Seal(content, Position(begin), Position(self.index), False, "size")
        return self.growth.window(seal, thread)

    def fill(self, *sizes, **how):
        for size in sizes:
            self.add(size, **how)
        return self

    def groups(self, level=2):
        return [n.children for n in self.growth.nodes.values() if n.level == level]


def groups_of(*sizes, level, **how):
    """The sizes of the L2 groups that windows of these input sizes make, under one rule."""
    first = LevelConfig(target_ratio=0.5, style="detailed")
    config = HierarchyConfig.by_tokens(verbatim_tokens=1, levels=(first, level))
    return [len(g) for g in Tree(config).fill(*sizes, **how).groups()]


# allotted sizes


@pytest.mark.parametrize(
    ("level", "size", "expected"),
    [
        (TOKENS.level(1), 2000, 1000),
        (TOKENS.level(1), 2001, 1000),
        (TOKENS.level(2), 4000, 1200),
        (TOKENS.level(3), 600, 200),
        (TOKENS.level(3), 1500, 300),
        (TOKENS.level(3), 6000, 400),
        (TOKENS.level(4), 1000, 420),
        (TOKENS.level(4), 1200, 500),
        (TOKENS.level(7), 1500, 500),
        (TOKENS.level(7), 6000, 500),
        (CHARS.level(1), 6000, 600),
        (CHARS.level(3), 1000, 200),
        (CHARS.level(3), 12_000, 1200),
        (CHARS.level(3), 50_000, 1200),
    ],
)
def test_a_node_is_allotted_its_ratio_within_floor_and_cap(level, size, expected):
    assert weigh(level, size) == expected


@given(
    st.integers(2, 10**7),
    st.floats(0.001, 0.999),
    st.integers(0, 500),
    st.one_of(st.none(), st.integers(500, 2000)),
)
def test_p8_whatever_the_settings_an_allotted_size_is_smaller_than_the_input(
    size, ratio, floor, cap
):
    level = LevelConfig(target_ratio=ratio, style="x", floor=floor, cap=cap)
    assert 1 <= weigh(level, size) < size


def test_inputs_of_200_tokens_are_kept_word_for_word_and_of_201_are_not():
    node = Tree().add(200)
    assert (node.verbatim, node.allotted, node.allotted_tokens) == (True, 200, 200)
    node = Tree().add(201)
    assert (node.verbatim, node.allotted, node.allotted_tokens) == (False, 100, 100)
    node = Tree(CHARS).add(900, tokens=201)
    assert (node.verbatim, node.allotted, node.allotted_tokens) == (False, 90, 20)
    assert Tree(CHARS).add(900, tokens=200).verbatim


# groups


def test_a_group_of_the_tokens_preset_waits_until_its_size_is_reached():
    """Windows of 2,004 tokens weigh 1,002: three are no 4,000, and four are."""
    assert groups_of(*[2_004] * 8, level=TOKENS.level(2)) == [4, 4]
    assert groups_of(3_000, 3_000, 4_200, level=TOKENS.level(2)) == [2], "over 1.25 times the size"


def test_covered_messages_grow_fivefold_a_level_above_the_last_configured_one():
    assert [TOKENS.level(n).max_messages for n in (2, 3, 4, 5)] == [100, 500, 2500, 12_500]


@pytest.mark.parametrize("size", params([2000, 150, 2900], 1))
@pytest.mark.parametrize("config", [TOKENS, CHARS], ids=["tokens", "chars"])
def test_p8_levels_grow_as_the_logarithm_of_the_windows(config, size):
    size *= 1 if config is TOKENS else 3
    tree, count = Tree(config), 5000
    tree.fill(*[size] * count, tokens=size // 3 if config is CHARS else None)
    assert len(tree.growth.ordinals()) <= math.log2(count) + 2


def test_a_million_messages_never_have_more_than_27_roots(share):
    """What a context must show at least: 40 tokens a root have to fit a small budget."""
    tree, most = Tree(), 0
    for count in range(1, share(100_000, 8_000) + 1):
        tree.add(2400, messages=10)
        if count % 997 == 0:
            most = max(most, sum(len(unpack(text)) for text in tree.growth.groups()))
            tree.growth = Growth(tree.growth.ordinals(), tree.growth.groups(), TOKENS)
    assert most <= 27
    assert len(tree.growth.ordinals()) >= 5


# the close
