"""P9: a text that a model refuses is asked for a bounded number of times, at growing distances."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hiermem.summaries.assess import AttemptCount, covers, from_json, to_json, together
from hiermem.types import Span

START = datetime(2026, 1, 2, 9, tzinfo=UTC)
HOURS = st.integers(0, 1_000).map(lambda hours: START + timedelta(hours=hours))
COUNTS = st.builds(
    AttemptCount,
    count=st.integers(0, 8),
    last=st.none() | HOURS,
    unanswered=st.sampled_from(["", "r/L1.0/1", "r/L1.0/2"]),
    error=st.sampled_from(["", "empty", "refused"]),
)


def refused(count, now, *, max_attempts=2):
    """Play one update with a model that refuses everything; give the count and the calls."""
    calls = count.prompts_due(now, max_attempts=max_attempts)
    return count.spend(calls, now=now, error="refused"), calls


@given(st.lists(st.floats(0, 200), max_size=200), st.integers(1, 5))
def test_p9_whenever_it_is_updated_no_text_is_asked_for_more_often(pauses, max_attempts):
    count, now, asked = AttemptCount(), START, 0
    for hours in pauses:
        now += timedelta(hours=hours)
        count, calls = refused(count, now, max_attempts=max_attempts)
        asked += calls
    assert asked <= max(2, max_attempts) + 4


def test_p9_the_distances_grow_fourfold():
    count, now, asked_at = AttemptCount(), START, []
    while now < START + timedelta(hours=500):
        count, calls = refused(count, now)
        asked_at += [(now - START) // timedelta(minutes=30) / 2] * calls
        now += timedelta(minutes=30)
    assert asked_at == [0, 0, 1, 5, 21, 85]


@given(COUNTS)
def test_a_count_is_read_as_it_was_written_and_names_its_messages(count):
    body = to_json(count, Span(3, 7))
    assert from_json(body) == count
    assert [covers(body, {index}) for index in (2, 3, 6, 7)] == [False, True, True, False]


@given(st.lists(COUNTS, max_size=4))
def test_p9_a_fork_goes_on_where_the_furthest_session_stands(counts):
    """Taken from one session alone, each fork would begin again."""
    both = together(counts)
    assert both.count == max((one.count for one in counts), default=0)
    assert together([both, *counts]) == both


def test_p9_a_call_without_an_answer_counts_only_where_the_model_answers_others():
    count = AttemptCount()
    for number in range(5):
        count = count.miss(f"call {number}", answered=False, now=START, error="timeout")
        assert (count.count, count.unanswered) == (0, "call 0"), "nobody is answered: it is down"
    count = count.miss("call 6", answered=True, now=START, error="timeout")
    assert count.count == 1, "others are answered, this text is not"
    assert AttemptCount().miss("call 0", answered=True, now=START, error="").count == 0
