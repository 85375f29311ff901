"""The thresholds of a window and its state. ``test_fold`` holds the five rules."""

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
