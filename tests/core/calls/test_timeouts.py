"""A model that does not answer in time gets fewer calls at once, and more time for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hiermem.core.calls.timeouts import Slowdown, patience


def test_two_timeouts_halve_the_concurrency_and_it_never_falls_below_one():
    slowdown, limits = Slowdown(), []
    for _ in range(5):
        limits.append((slowdown.limit(8), slowdown.limit(3), slowdown.limit(1)))
        slowdown.time_out()
        slowdown.time_out()
    assert limits == [(8, 3, 1), (4, 1, 1), (2, 1, 1), (1, 1, 1), (1, 1, 1)]


@given(st.lists(st.booleans(), max_size=300))
def test_answers_bring_the_concurrency_back(history):
    """A slow hour would else hold up a worker that runs for weeks."""
    slowdown = Slowdown()
    for answered in history:
        (slowdown.answer if answered else slowdown.time_out)()
        assert 1 <= slowdown.limit(8) <= 8
    for _ in range(200):
        slowdown.answer()
    assert slowdown.limit(8) == 8


def test_one_late_answer_among_many_halves_nothing():
    slowdown = Slowdown()
    for number in range(200):
        (slowdown.time_out if number % 25 == 0 else slowdown.answer)()
        assert slowdown.limit(8) == 8


def test_a_call_that_was_late_is_given_more_time():
    assert [patience(timeouts) for timeouts in range(3)] == [1.0, 2.0, 2.0]
