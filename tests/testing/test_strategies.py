"""The strategies draw what they promise: the ladder of sizes, odd histories, valid messages."""

from hypothesis import HealthCheck, Phase, given, settings
from message_strategies import (
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
