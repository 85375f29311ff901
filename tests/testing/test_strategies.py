"""The strategies draw what they promise: the ladder of sizes, odd histories, valid messages."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from message_strategies import (
    HOSTILE_NAMES,
    SIZES,
    histories,
    json_objects,
    messages,
    names,
    stored_messages,
    texts,
    times,
)
from sampling import drawn


def _drawn(strategy, count):
    """Give what ``count`` examples of ``strategy`` are."""
    found = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value):
        found.append(value)

    collect()
    return found


def test_texts_reach_every_size_of_the_ladder_and_end_in_a_letter_of_their_own():
    """So that a text that was cut, to whatever length, is not equal to the one that was given."""
    drawn = _drawn(texts(), 400)
    for size in SIZES[1:]:
        assert any(
            len(text) == size and text.endswith("\N{GREEK CAPITAL LETTER OMEGA}") for text in drawn
        )
    assert "" in drawn


@pytest.mark.thorough
def test_histories_hold_what_goes_wrong_in_practice():
    drawn = _drawn(histories(), 60)
    for odd in (
        lambda h: any(m.tool_calls for m in h) and any(m.tool_call_id for m in h),
        lambda h: any(m.role == "tool" and str(m.tool_call_id).startswith("lost") for m in h),
        lambda h: len({m.thread for m in h}) > 1,
        lambda h: any(a.created_at > b.created_at for a, b in pairwise(h)),
        lambda h: any(m.key for m in h),
        lambda h: len(h) == 0,
        lambda h: len(h) > 20,
    ):
        assert any(map(odd, drawn))
    assert any(len(m.content) == 5000 for h in _drawn(histories(oversize=5000), 30) for m in h)


def test_hostile_names_differ_and_are_valid():
    assert len(set(HOSTILE_NAMES)) == len(HOSTILE_NAMES) > 20
    assert all(1 <= len(name) <= 512 for name in HOSTILE_NAMES)


@drawn(100)
@given(
    stored_messages(large=False),
    histories(max_size=10),
    names(),
    json_objects(),
    times(),
    messages(large=False),
)
def test_everything_drawn_is_text_that_can_be_stored(stored, history, name, data, at, message):
    """No lone surrogate, no NUL, an aware time."""
    for one in (stored.message, message, *history):
        assert one.created_at.utcoffset() is not None
        for text in (one.content, one.name, one.thread, one.key, repr(data), name):
            if isinstance(text, str):
                text.encode("utf-8")
                assert "\0" not in text
    assert at.utcoffset() is not None
