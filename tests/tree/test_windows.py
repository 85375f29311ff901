"""The thresholds of a window and its state. ``test_fold`` holds the five rules."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hiermem.config import HierarchyConfig
from hiermem.tree.turns import Arrival, Turns
from hiermem.tree.windows import Limits, Segment, Window, micros, moment, receive

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)


class Thread:
    """One thread's open window; ``say`` gives what was closed, as (reason, first, end)."""

    def __init__(self, make=HierarchyConfig.by_tokens, **settings):
        self.limits = Limits.of(make(**settings))
        self.turns, self.window, self.index = Turns(), Window(), 0

    def say(self, role, size=10, *, at=T0, calls=()):
        arrival = Arrival(self.index, "main", role, size, size, at, tuple(calls), None)
        self.index += 1
        self.turns, self.window, seals, _ = receive(self.turns, self.window, arrival, self.limits)
        return [(seal.reason, seal.begin.index, seal.end.index) for seal in seals]

    def fill(self, *sizes, role="user"):
        for size in sizes:
            assert self.say(role, size) == []
        return self


def test_rule_4_thresholds_mean_what_the_tolerance_says():
    """1 - 0.7 is a little over 0.3 in binary; a window of exactly 0.3 of the target must count."""
    thread = Thread(tolerance=0.7, hard_limit=9000).fill(600, role="assistant").fill(1900, 899)
    assert thread.say("user", 2) == [("overgrown", 0, 1)]


def test_rule_5_rounds_half_a_message_up():
    thread = Thread(max_messages=5)
    for _ in range(7):
        assert thread.say("tool") == []
    assert thread.say("tool") == [("limit", 0, 8)]


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
    for index, sizes in enumerate([(27, 47), (27, 47), (20, 47), (20, 47)]):
        window = thread.window.resized(index, size=7, tokens=3)
        assert (window.safe.size, window.size) == sizes
        assert window.content.tokens == 43
    assert thread.window.resized(4, size=7, tokens=7) == thread.window
    assert thread.window.resized(0, size=-99, tokens=-99).safe.size == 0
