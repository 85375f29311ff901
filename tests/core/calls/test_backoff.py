"""How long something is left alone: longer each time, never too long, and not where it changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.core.calls.backoff import (
    CAPPED,
    IDLE,
    LEASED,
    TEXT,
    TROUBLE,
    VECTORS,
    Backoff,
    back_off,
)

ALL = (TEXT, VECTORS, TROUBLE, CAPPED, IDLE, LEASED)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 15), (1, 15), (2, 30), (3, 60), (500, 3600)])
def test_a_failure_is_left_alone_for_longer_each_time(failures, seconds):
    assert back_off(failures, TEXT) == seconds


@drawn(200)
@given(
    pauses=st.sampled_from(ALL),
    waits=st.lists(st.integers(0, 5000), min_size=1, max_size=12),
    leased=st.booleans(),
)
def test_it_is_looked_at_when_the_pause_is_over_and_not_before(pauses, waits, leased):
    """Broken, a worker asks for a failed text without a pause, or leaves it alone for ever."""
    backoff, now = Backoff[str](), 0.0
    first, longest = LEASED if leased else pauses
    before = first
    for wait in waits:
        backoff.put("a", now, pauses=pauses, leased=leased)
        pause = backoff.get("a").until - now
        assert pause == before
        assert backoff.holds("a", now)
        assert backoff.holds("a", now + wait) == (wait < pause)
        assert not backoff.holds("b", now)
        now, before = now + wait, min(longest, before * 2)
    assert backoff.leased == leased
    backoff.drop("a")
    assert not backoff.holds("a", now)
    backoff.put("a", now, pauses=pauses)
    assert backoff.get("a").times == 1, "a success ends the row"


def test_what_changed_is_looked_at_at_once():
    backoff = Backoff[str]()
    backoff.put("a", 0.0, version=3)
    assert backoff.holds("a", 0.5, version=3)
    assert not backoff.holds("a", 0.5, version=4)
    backoff.put("b", 0.0)
    assert backoff.holds("b", 0.5, version=4), "for this one a change is no reason"
