"""What a context shows of each quarter, against a plain count."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.core.context import shown
from hiermem.core.context.cover import Covered
from hiermem.core.context.view import runs_of
from hiermem.types import Message, Span, StoredMessage, Unit
from hiermem.types.transaction import NeedMessages


@given(
    total=st.integers(0, 60),
    held=st.sets(st.integers(-2, 70)),
    gone=st.sets(st.integers(0, 60)),
)
def test_the_quarters_are_counted_without_what_is_gone(total, held, gone):
    found = shown.of(held, total=total, gone=runs_of(gone))
    live = [index for index in range(total) if index not in gone]
    assert list(found.messages) == [index for index in live if index in held]
    for quarter, share in enumerate(found.by_quarter):
        inside = range(total * quarter // 4, total * (quarter + 1) // 4)
        scope = [index for index in live if index in inside]
        wanted = sum(index in held for index in scope) / len(scope) if scope else 1.0
        assert share == pytest.approx(wanted)


@given(numbers=st.lists(st.integers(0, 40)))
def test_runs_hold_the_numbers_and_do_not_touch(numbers):
    runs = runs_of(numbers)
    assert [n for begin, end in runs for n in range(begin, end)] == sorted(set(numbers))
    assert all(before[1] < after[0] for before, after in pairwise(runs))


def spoken(*texts):
    at = datetime(2024, 3, 1, tzinfo=UTC)
    return [
        StoredMessage(n, Message.user(text, created_at=at), tokens=9, size=9, hash="h")
        for n, text in enumerate(texts)
    ]


def attributed(text, messages):
    node = Covered("L1.0", 1, (0, 1), Span(0, len(messages)), len(messages), 9, ("", ""))
    line = Unit(None, 0, "user", "Summary", "", text)
    reading = shown.of_lines([line], {text: node})
    need = next(reading)
    assert need == (NeedMessages(0, len(messages)),)
    with pytest.raises(StopIteration) as done:
        reading.send((messages,))
    return done.value.value


def test_a_models_line_shows_the_messages_that_hold_half_of_its_anchors():
    said = spoken(
        "The ferry leaves at 14:20 from B/12.", "It costs 37.50 EUR.", "Nothing of that here."
    )
    assert attributed("Ferry at 14:20 from B/12.", said) == {0}
    assert attributed("Paid 37.50 EUR at 14:20.", said) == {0, 1}


def test_a_models_line_without_anchors_goes_by_its_stems():
    said = spoken("We planned the harbour visits.", "Somebody sings.", "harbour")
    assert attributed("they visited a harbour", said) == {0, 2}


def test_a_line_that_was_kept_shows_its_message_and_nothing_is_read():
    line = Unit(7, 0, "user", "Ada", "2024-03-01", "It runs hot.")
    with pytest.raises(StopIteration) as done:
        next(shown.of_lines([line], {}))
    assert done.value.value == {7}
