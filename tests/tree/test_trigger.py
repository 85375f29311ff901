"""CompressionTrigger says what an append would do, and changes nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.config import HierarchyConfig
from hiermem.errors import UsageError
from hiermem.tree.fold import SessionState, arrive
from hiermem.tree.trigger import CompressionTrigger
from hiermem.tree.turns import Arrival, Slice
from hiermem.types import Node, Span

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)
TOKENS = HierarchyConfig.by_tokens()


def said(index, role, size, minutes=0, slices=()):
    at = T0 + timedelta(minutes=minutes)
    return Arrival(index, "main", role, size, size, at, slices=tuple(slices))


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        (("user", 100), ()),
        (("assistant", 100), ()),
        (("assistant", 500), ("size",)),
        (("user", 100, 60), ("age",)),
        (("user", 1600), ("room",)),
        (("user", 4000, 60, [Slice(0, 2000, 2000), Slice(9, 2000, 2000)]),
         ("age", "oversize")),
    ],
)  # fmt: skip
def test_it_gives_a_reason_for_each_window_that_the_message_would_close(message, reasons):
    state = arrive(SessionState(), [said(0, "user", 700), said(1, "assistant", 800)], TOKENS).state
    (window,) = state.open_windows()
    assert CompressionTrigger(TOKENS).check(window, said(2, *message)) == reasons


def test_it_names_messages_and_the_limit():
    trigger = CompressionTrigger(TOKENS)
    state = arrive(SessionState(), [said(n, "user", 5) for n in range(9)], TOKENS).state
    (window,) = state.open_windows()
    assert trigger.check(window, said(9, "assistant", 5)) == ("messages",)
    tools = [said(n, "tool", 5) for n in range(9, 14)]
    (window,) = arrive(state, tools, TOKENS).state.open_windows()
    assert trigger.check(window, said(14, "tool", 5)) == ("limit",)


def test_it_closes_nothing_where_the_session_is_disabled():
    trigger = CompressionTrigger(HierarchyConfig.by_tokens(enabled=False))
    assert trigger.check(None, said(0, "assistant", 2000)) == ()
    assert CompressionTrigger(TOKENS).check(None, said(0, "assistant", 2000)) == ("size",)


@drawn(100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "tool", "system"]),
            st.sampled_from([1, 300, 900, 1999, 2000]),
            st.integers(-100, 100),
        ),
        max_size=40,
    )
)
def test_it_says_what_an_append_then_does(moves):
    state, trigger = SessionState(), CompressionTrigger(TOKENS)
    for index, move in enumerate(moves):
        message, before = said(index, *move), state.to_json()
        window = next(iter(state.open_windows()), None)
        reasons = trigger.check(window, message)
        assert state.to_json() == before
        folded = arrive(state, [message], TOKENS)
        sealed = [node for node in folded.nodes if node.level == 1]
        # A thread's run of users outlives its window, so without one only the thread knows it.
        assert len(reasons) == len(sealed) or (window is None and message.role == "user")
        state = folded.state


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 3_000)), max_size=60),
    config=st.sampled_from(
        [
            TOKENS,
            HierarchyConfig.by_chars(window_chars=900, group_chars=700),
            HierarchyConfig.by_tokens(target=300, max_messages=2),
        ]
    ),
)
def test_a_group_closes_where_it_says_so(sizes, config):
    """Above level 1 too, whoever asks first knows what the append will do."""
    messages = [
        said(2 * index + place, role, size)
        for index, pair in enumerate(sizes)
        for place, (role, size) in enumerate(zip(("user", "assistant"), pair, strict=True))
    ]
    nodes = arrive(SessionState(), messages, config).nodes
    open_groups, foretold = {}, []
    for node in nodes:  # in the order in which they arrive at their groups
        group = open_groups.setdefault(node.level + 1, [])
        reasons = CompressionTrigger(config, node.level + 1).check(group, node)
        if reasons != ("room",):
            group.append(node)
        if reasons:
            foretold.append(tuple(each.id for each in group))
            group.clear()
        if reasons == ("room",):
            group.append(node)
    assert foretold == [node.children for node in nodes if node.level > 1]


def test_a_group_has_a_reason_for_each_rule():
    def nodes(count, *, messages=1, size=10):
        return [
            Node(
                id=f"L1.{n}", level=1, ordinal=n, thread="main", span=Span(n, n + 1),
                windows=(n, n + 1), children=(), messages=messages, input_size=size, allotted=size,
                input_tokens=size, allotted_tokens=size, verbatim=True, first_at=T0, last_at=T0,
            )
            for n in range(count)
        ]  # fmt: skip

    trigger = CompressionTrigger(TOKENS, level=2)
    for given_nodes, reason in (
        (nodes(4), ()),
        (nodes(5), ("fan_in",)),
        (nodes(2, size=2_000), ("size",)),
        (nodes(3, size=1_900), ("room",)),
        (nodes(2, messages=50), ("messages",)),
    ):
        *group, child = given_nodes
        assert trigger.check(group, child) == reason
    for group, child in (((), "L1.0"), (None, nodes(1)[0]), ("ab", nodes(1)[0])):
        with pytest.raises(UsageError, match="level 2"):
            trigger.check(group, child)
    with pytest.raises(UsageError, match="lower levels"):
        CompressionTrigger(TOKENS, level=2).check((), replace(nodes(1)[0], level=2))
    with pytest.raises(UsageError, match="level must be 1 or more"):
        CompressionTrigger(TOKENS, level=0)
