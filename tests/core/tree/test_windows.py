"""The five sealing rules, each at its threshold; one window of one thread at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.config import HierarchyConfig
from hiermem.core.tree.turns import Arrival, Slice, Turns
from hiermem.core.tree.windows import Limits, Segment, Window, micros, moment, receive
from hiermem.types import Position

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Thread:
    """One thread's open window; ``say`` gives what was closed, as (reason, first, end)."""

    def __init__(self, make=HierarchyConfig.by_tokens, **settings):
        self.limits = Limits.of(make(**settings))
        self.turns, self.window, self.index, self.seals = Turns(), Window(), 0, []

    def say(self, role, size=10, *, at=T0, calls=(), result_of=None, slices=()):
        arrival = Arrival(
            self.index, "main", role, size, size, at, tuple(calls), result_of, tuple(slices)
        )
        self.index += 1
        self.turns, self.window, seals, _ = receive(self.turns, self.window, arrival, self.limits)
        self.seals += seals
        return [(seal.reason, seal.begin.index, seal.end.index) for seal in seals]

    def fill(self, *sizes, role="user"):
        for size in sizes:
            assert self.say(role, size) == []
        return self


# rule 1


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_rule_1_a_window_of_max_age_closes_where_its_end_is_safe_else_is_due(role):
    thread = Thread().fill(10).fill(10, role=role)
    assert thread.say("user", at=T0 + 60 * MINUTE - SECOND) == []
    thread = Thread().fill(10).fill(10, role=role)
    closed = thread.say("user", at=T0 + 60 * MINUTE)
    if role == "assistant":
        assert closed == [("age", 0, 2)]
        assert not thread.window.due
    else:
        assert closed == []
        assert thread.window.due
        assert thread.say("assistant", at=T0 + 60 * MINUTE) == [("due", 0, 4)]
        assert not thread.window.due, "any close clears due"


def test_rule_1_age_counts_from_the_first_message_of_the_window_not_the_earliest():
    thread = Thread().fill(10)
    thread.say("assistant", at=T0 - 30 * MINUTE)
    assert thread.say("user", at=T0 + 45 * MINUTE) == []


def test_rule_1_a_clock_that_runs_backwards_closes_nothing():
    thread = Thread().fill(10, role="assistant")
    assert thread.say("user", at=T0 - timedelta(days=400)) == []


def test_rule_1_a_silence_longer_than_flush_after_needs_min_flush():
    chars = HierarchyConfig.by_chars
    assert Thread(chars).fill(3000, role="assistant").say("user", at=T0 + 20 * MINUTE) == []
    later = T0 + 20 * MINUTE + timedelta(microseconds=1)
    assert Thread(chars).fill(3000, role="assistant").say("user", at=later) == [("silence", 0, 1)]
    assert Thread(chars).fill(2999, role="assistant").say("user", at=later) == []


def test_rule_1_is_ignored_by_the_size_policy():
    thread = Thread(seal_policy="size").fill(10, role="assistant")
    assert thread.say("user", at=T0 + timedelta(days=1)) == []


def test_rule_1_looks_at_the_end_that_a_new_user_message_gives_an_open_group():
    """Ending the group makes the point before the user's message whole, and here safe."""
    thread = Thread()
    thread.say("assistant", calls=["a"])
    assert thread.say("user", at=T0 + 60 * MINUTE) == [("age", 0, 1)]


# rule 2


def pieces(*sizes):
    begins = [100 * n for n in range(len(sizes))]
    ends = [*begins[1:], None]
    return [Slice(b, e, size, size) for b, e, size in zip(begins, ends, sizes, strict=True)]


def test_rule_2_all_slices_but_the_last_are_windows_and_the_last_opens_the_next():
    thread = Thread().fill(10)
    closed = thread.say("user", 5000, slices=pieces(2000, 1900, 1100))
    assert closed == [("oversize", 0, 1), ("oversize", 1, 1), ("oversize", 1, 1)]
    first, second = thread.seals[1:]
    assert (first.begin, first.end) == (Position(1), Position(1, 100))
    assert (second.begin, second.end) == (Position(1, 100), Position(1, 200))
    assert [seal.linked for seal in thread.seals] == [False, False, True]
    assert (thread.window.char, thread.window.size, thread.window.linked) == (200, 1100, True)
    assert thread.say("assistant", 900) == [("size", 1, 3)]
    assert thread.seals[-1].begin == Position(1, 200)
    assert not thread.window.linked, "the next window shares nothing"


def test_rule_2_the_last_slice_goes_on_to_rules_4_and_5():
    thread = Thread()
    closed = thread.say("assistant", 4000, slices=pieces(2000, 2000))
    assert closed == [("oversize", 0, 0), ("size", 0, 1)]
    assert thread.seals[-1].begin == Position(0, 100)


def test_rule_2_a_member_of_a_group_has_the_window_closed_before_its_group():
    """The group then runs over consecutive windows: members, slices, rest."""
    thread = Thread().fill(10, 10)
    thread.say("assistant", calls=["a", "b", "c"])
    thread.say("tool", result_of="a")
    thread.say("tool", 4500, result_of="b", slices=pieces(2000, 2000, 500))
    assert [(s.begin.index, s.end.index) for s in thread.seals] == [(0, 2), (2, 4), (4, 4), (4, 4)]
    assert [s.linked for s in thread.seals] == [False, False, True, True]
    thread.say("tool", result_of="c")
    assert thread.say("assistant", 1500) == [("size", 4, 7)]
    assert thread.seals[-1].linked


def test_rule_2_a_second_oversize_member_links_on():
    thread = Thread()
    thread.say("assistant", 4000, calls=["a", "b"], slices=pieces(2000, 2000))
    thread.say("tool", 4000, result_of="a", slices=pieces(2000, 2000))
    assert [s.linked for s in thread.seals] == [False, True, True]
    assert thread.window.linked


# rule 3


def test_rule_3_makes_room_at_the_last_safe_point_that_holds_half_the_target():
    thread = Thread().fill(500).fill(500, role="assistant").fill(900)
    assert thread.say("user", 1100) == []
    thread = Thread().fill(500).fill(500, role="assistant").fill(900)
    assert thread.say("user", 1101) == [("room", 0, 2)]
    assert thread.window.messages == 2


def test_rule_3_else_closes_at_the_last_whole_point():
    thread = Thread().fill(500).fill(499, role="assistant").fill(900)
    assert thread.say("user", 1102) == [("room", 0, 3)]


def test_rule_3_closes_twice_where_once_is_not_enough():
    thread = Thread().fill(500).fill(500, role="assistant").fill(900)
    assert thread.say("user", 2900) == [("room", 0, 2), ("room", 2, 3)]


def test_rule_3_leaves_an_open_group_together_though_it_outgrows_the_limit():
    thread = Thread().fill(900)
    thread.say("assistant", 900, calls=["a", "b"])
    assert thread.say("tool", 1300, result_of="a") == [("room", 0, 1)]
    assert thread.say("tool", 1300, result_of="b") == []
    assert thread.window.size == 3500
    assert thread.say("assistant", 10) == [("room", 1, 4)], "a window of its own"


# rule 4


def test_rule_4_a_window_is_full_at_the_target():
    assert Thread().fill(1000).say("assistant", 999) == []
    assert Thread().fill(1000).say("assistant", 1000) == [("size", 0, 2)]


def test_rule_4_a_window_is_full_at_ten_messages():
    thread = Thread().fill(*[10] * 9)
    assert thread.say("assistant") == [("messages", 0, 10)]


def test_rule_4_a_full_window_waits_for_a_safe_end():
    thread = Thread().fill(*[10] * 9)
    thread.say("tool", result_of="x")
    assert thread.say("assistant") == [("messages", 0, 11)]


def test_rule_4_an_overgrown_window_closes_at_an_earlier_safe_point():
    thread = Thread().fill(1600, role="assistant")
    assert thread.say("user", 800) == [], "2,400 is not over the tolerance"
    assert thread.say("user", 1) == [("overgrown", 0, 1)]
    assert thread.window.messages == 2
    thread = Thread().fill(1599, role="assistant").fill(800)
    assert thread.say("user", 2) == [], "the safe point holds too little"


def test_rule_4_thresholds_mean_what_the_tolerance_says():
    """1 - 0.7 is a little over 0.3 in binary; a window of exactly 0.3 of the target must count."""
    thread = Thread(tolerance=0.7, hard_limit=9000).fill(600, role="assistant").fill(1900, 899)
    assert thread.say("user", 2) == [("overgrown", 0, 1)]


def test_rule_4_the_time_policy_fills_by_being_due_alone():
    thread = Thread(seal_policy="time").fill(1000)
    assert thread.say("assistant", 1200) == []
    assert thread.say("user", 10, at=T0 + 60 * MINUTE) == [("age", 0, 2)]
    thread = Thread(seal_policy="time").fill(1000, 100)
    assert thread.say("user", 10, at=T0 + 60 * MINUTE) == []
    assert thread.say("assistant", 10, at=T0 + 60 * MINUTE) == [("due", 0, 4)]


def test_rule_4_every_whole_point_is_safe_where_the_boundary_is_the_message():
    assert Thread(boundary="message").fill(1000).say("user", 1000) == [("size", 0, 2)]
    thread = Thread(boundary="message")
    assert thread.say("assistant", 2000, calls=["a"]) == []
    assert thread.say("tool", 10, result_of="a") == [("size", 0, 2)]


# rule 5


def test_rule_5_at_one_and_a_half_times_the_messages_it_closes_at_the_last_whole_point():
    thread = Thread()
    for n in range(14):
        assert thread.say("tool", result_of=str(n)) == []
    assert thread.say("tool", result_of="x") == [("limit", 0, 15)]


def test_rule_5_waits_where_no_whole_point_remains():
    thread = Thread()
    thread.say("assistant", calls=[str(n) for n in range(20)])
    for n in range(19):
        assert thread.say("tool", result_of=str(n)) == []
    assert thread.say("tool", result_of="19") == [("limit", 0, 21)]


def test_rule_5_prefers_the_point_before_the_last_users_message_to_any_later_one():
    """A turn that began in the window and has not ended goes on in the next window as a whole."""
    thread = Thread().fill(10).fill(10, role="assistant").fill(10)
    for n in range(5):
        assert thread.say("assistant", calls=[str(n)]) == []
        assert thread.say("tool", result_of=str(n)) == []
    assert thread.say("assistant", calls=["x"]) == []
    assert thread.say("tool", result_of="x") == [("limit", 0, 2)]
    assert thread.window.messages == 13


def test_rule_5_takes_a_safe_point_before_a_later_whole_one():
    thread = Thread()
    assert thread.say("assistant") == []
    for n in range(13):
        assert thread.say("tool", result_of=str(n)) == []
    assert thread.say("tool", result_of="x") == [("limit", 0, 1)]


def test_rule_5_ends_no_window_on_a_question_where_the_point_before_it_stands():
    thread = Thread().fill(*[10] * 5).fill(10, role="assistant").fill(*[10] * 8)
    assert thread.say("user") == [("limit", 0, 14)]


def test_rule_5_rounds_half_a_message_up():
    thread = Thread(max_messages=5)
    for _ in range(7):
        assert thread.say("tool") == []
    assert thread.say("tool") == [("limit", 0, 8)]


def test_rule_5_is_kept_by_the_time_policy_and_idle_without_a_count():
    thread = Thread(seal_policy="time", max_messages=2)
    thread.say("user")
    thread.say("user")
    assert thread.say("user") == [("limit", 0, 2)]
    thread = Thread(max_messages=None)
    for _ in range(50):
        assert thread.say("tool") == []


# the bookkeeping


segments = st.builds(
    lambda count, size, begin, ats: Segment(
        count, size, size, begin, begin + count, ats[0], min(ats), max(ats)
    ),
    st.integers(1, 9),
    st.integers(0, 99),
    st.integers(0, 99),
    st.lists(st.integers(-9, 9), min_size=1, max_size=4),
)


@given(st.lists(segments, max_size=4))
def test_joining_segments_is_associative_and_the_empty_one_changes_nothing(parts):
    left = right = Segment()
    for part in parts:
        left = left.then(part)
    for part in reversed(parts):
        right = part.then(right)
    assert left == right
    assert left.then(Segment()) == Segment().then(left) == left


@given(st.datetimes(timezones=st.timezones()))
def test_times_survive_as_microseconds_whatever_their_zone(at):
    assert moment(micros(at)) == at.astimezone(UTC)


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.integers(1, 900))))
def test_what_json_gives_back_is_the_same_window(said):
    thread = Thread()
    for role, size in said:
        thread.say(role, size, calls=["a"] if role == "assistant" and size % 2 else ())
        assert Window.unpack(json.loads(json.dumps(thread.window))) == thread.window
        assert len(thread.window.segments) <= 4, "a window's state grows with its messages"


def test_an_edit_reaches_the_segment_that_holds_the_message():
    thread = Thread().fill(10).fill(10, role="assistant").fill(10)
    thread.say("assistant", calls=["a"])
    for index, sizes in enumerate([(27, 37, 47), (27, 37, 47), (20, 37, 47), (20, 30, 47)]):
        window = thread.window.resized(index, size=7, tokens=3)
        assert (window.safe.size, window.whole.size, window.size) == sizes
        assert window.content.tokens == 43
    assert thread.window.resized(4, size=7, tokens=7) == thread.window
    assert thread.window.resized(0, size=-99, tokens=-99).safe.size == 0
