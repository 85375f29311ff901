"""Limits a minute hold in every minute, nobody overtakes, and nobody waits without need."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiermem.core.calls.sliding_window import MINUTE, RateLimits, SlidingWindow, least_seconds

limits_ = st.builds(
    RateLimits,
    requests=st.none() | st.integers(1, 5),
    tokens=st.none() | st.integers(50, 300),
    in_flight=st.none() | st.integers(1, 3),
)
#: (seconds until the next one comes, tokens asked for, seconds from leave to start, tokens taken,
#: seconds until it is answered, and at which part of them it reached the server)
arrivals = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.5, 7.0, 59.9, 60.0, 61.0]),
        st.integers(1, 120),
        st.sampled_from([0.0, 0.0, 0.3, 20.0]),
        st.integers(0, 130),
        st.sampled_from([0.0, 0.2, 5.0, 61.0]),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    min_size=1,
    max_size=25,
)


def play(plan, limits):
    """Let requests through one line as time passes; give (reached the server, tokens) each.

    Also the most that were unanswered at once.
    """
    window, now, come, peak = SlidingWindow(), 0.0, 0.0, 0
    waiting, starting, in_flight, sent, coming = [], [], [], [], []
    for gap, tokens, *rest in plan:
        come += gap
        if limits.tokens is None or tokens <= limits.tokens:
            coming.append((come, tokens, *rest))
    while coming or waiting or starting or in_flight:
        while coming and coming[0][0] <= now:
            _, tokens, *rest = coming.pop(0)
            waiting.append((window.join(tokens, limits), *rest))
        for each in [one for one in starting if one[0] <= now]:
            starting.remove(each)
            _, request, took, lasts, part = each
            window.begin(request)
            in_flight.append((now + lasts, now + lasts * part, request, min(took, request.tokens)))
        for each in [one for one in in_flight if one[0] <= now]:
            in_flight.remove(each)
            _, reached, request, took = each
            window.end(request, now, tokens=took)
            sent.append((reached, took))
        while waiting and window.wait(waiting[0][0], now) == 0:
            request, slow, *rest = waiting.pop(0)
            window.admit(request)
            starting.append((now + slow, request, *rest))
        peak = max(peak, len(in_flight) + len(starting))
        steps = [each[0] for each in (*starting, *in_flight, *coming[:1])]
        if waiting:
            steps.append(now + window.wait(waiting[0][0], now))
        if steps:
            now = max(math.nextafter(now, math.inf), min(steps))
    return sent, peak


@settings(max_examples=150, deadline=None)
@given(arrivals, limits_)
def test_no_minute_of_the_server_ever_holds_more_than_is_allowed(plan, limits):
    """A slow start, a slow line, a cheaper answer or a burst would slip one too many into it."""
    sent, peak = play(plan, limits)
    for begin, _ in sent:
        inside = [tokens for at, tokens in sent if begin <= at < begin + MINUTE]
        assert limits.requests is None or len(inside) <= limits.requests
        assert limits.tokens is None or sum(inside) <= limits.tokens
    assert limits.in_flight is None or peak <= limits.in_flight


def test_the_limit_is_used_to_the_full_and_not_beyond():
    """A limiter that counted calendar minutes, or spaced requests evenly, would fail here."""
    window = SlidingWindow()
    limits = RateLimits(requests=3)
    for n in range(3):
        request = window.join(10, limits)
        assert window.wait(request, 10.0 + n) == 0
        window.admit(request)
        window.begin(request)
        window.end(request, 10.0 + n)
    late = window.join(10, limits)
    assert window.wait(late, 13.0) == pytest.approx(57.0)
    assert window.wait(late, 70.0) == 0


def test_a_small_request_does_not_overtake_a_large_one():
    window = SlidingWindow()
    limits = RateLimits(tokens=100)
    first = window.join(80, limits)
    window.admit(first)
    window.begin(first)
    window.end(first, 0.0)
    large, small = window.join(90, limits), window.join(10, limits)
    assert window.wait(large, 1.0) == pytest.approx(59.0)
    assert window.wait(small, 1.0) == pytest.approx(59.0)
    window.leave(large)
    assert window.wait(small, 1.0) == 0


def test_a_request_over_the_whole_minutes_tokens_waits_for_ever_and_blocks_nobody():
    window = SlidingWindow()
    limits = RateLimits(tokens=100)
    never, small = window.join(101, limits), window.join(10, limits)
    assert window.wait(never, 0.0) == math.inf
    assert window.wait(small, 0.0) == 0


def test_what_was_not_sent_counts_no_more():
    window = SlidingWindow()
    limits = RateLimits(requests=1)
    first, second = window.join(1, limits), window.join(1, limits)
    window.admit(first)
    assert window.wait(second, 0.0) >= MINUTE
    window.leave(first)
    assert window.wait(second, 0.0) == 0


def test_an_answer_that_took_less_makes_room_at_once():
    window = SlidingWindow()
    limits = RateLimits(tokens=100)
    first, second = window.join(100, limits), window.join(60, limits)
    window.admit(first)
    window.begin(first)
    assert window.wait(second, 1.0) == pytest.approx(60.0)
    window.end(first, 1.0, tokens=40)
    assert window.wait(second, 1.0) == 0


def test_a_request_that_is_not_answered_counts_as_if_it_came_now():
    """It may still be on its way; counted from when it was sent, a minute of the server bursts."""
    window = SlidingWindow()
    limits = RateLimits(requests=1)
    first, second = window.join(1, limits), window.join(1, limits)
    window.admit(first)
    window.begin(first)
    assert window.wait(second, 50.0) == pytest.approx(60.0)
    window.end(first, 55.0)
    assert window.wait(second, 100.0) == pytest.approx(15.0)


def test_calls_in_flight_are_counted_over_all_and_the_first_in_line_is_next():
    window = SlidingWindow()
    limits = RateLimits(in_flight=2)
    first, second, third, fourth = (window.join(1, limits) for _ in range(4))
    for each in (first, second):
        assert window.wait(each, 0.0) == 0
        window.admit(each)
        window.begin(each)
    assert window.wait(third, 500.0) == math.inf
    window.end(first, 1.0)
    assert window.wait(third, 1.0) == 0
    assert window.wait(fourth, 1.0) == math.inf


def test_each_is_held_to_limits_of_its_own_over_everybodys_traffic():
    window = SlidingWindow()
    first = window.join(1, RateLimits())
    window.admit(first)
    window.begin(first)
    window.end(first, 0.0)
    assert window.wait(window.join(1, RateLimits(requests=1)), 5.0) == pytest.approx(55.0)


@given(st.integers(0, 500), st.integers(0, 5000), limits_)
def test_the_least_time_is_what_the_limits_ask_for(calls, tokens, limits):
    took = least_seconds(calls, tokens, limits)
    minutes = took / MINUTE + 1
    assert limits.requests is None or calls <= minutes * limits.requests
    assert limits.tokens is None or tokens <= minutes * limits.tokens
    if not limits.by_time:
        assert took == 0
