"""What the log tells of changed weights: it reads back, holds no text, and damage is said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.config import HierarchyConfig
from hiermem.core.context.view import Piece, View, outdated
from hiermem.core.log.size_changes import LoggedChanges, SizeChange, Weigher, Weight
from hiermem.core.text import measure
from hiermem.core.tree.turns import call_mark, marks_of
from hiermem.errors import StoreCorruptError
from hiermem.tokens import FunctionCounter
from hiermem.types import Message, Span, StoredMessage, ToolCall

T0 = datetime(2024, 3, 1, tzinfo=UTC)
COUNTER = FunctionCounter(lambda text: len(text.split()), name="words")
_weights = st.builds(Weight, st.integers(0, 10**6), st.integers(0, 10**6))


@st.composite
def _shifts(draw):
    count = draw(st.integers(1, 4))
    sizes = st.lists(_weights, min_size=count, max_size=count).map(tuple)
    return SizeChange(
        draw(st.integers(0, 10**6)), draw(st.sampled_from(["main", "é"])), draw(sizes), draw(sizes),
        draw(st.sampled_from([(), ("m1", "m2")])), draw(st.sampled_from([None, "m3"])),
    )  # fmt: skip


_lists = st.lists(_shifts(), max_size=3).map(tuple)


@given(_lists, _lists, st.tuples(st.integers(1, 9), st.integers(0, 9), st.just(2)))
def test_what_is_told_reads_back(shifts, built, places):
    told = LoggedChanges(shifts, built, *(places if built else ()))
    assert LoggedChanges.from_json(told.to_json()) == told
    before = told.before(5)
    assert all(shift.index < 5 for shift in (*before.shifts, *before.built))


@pytest.mark.parametrize(
    "detail",
    ["", "x", "[]", "{}", '{"shifts":3}', '{"shifts":[{"index":1}]}', '{"shifts":[],"build":4}',
     '{"shifts":[{"index":"1","thread":"t","before":[],"after":[]}]}',
     '{"shifts":[{"index":1,"thread":"t","before":[[1,2]],"after":[]}]}'],
)  # fmt: skip
def test_a_damaged_event_is_said_to_be_one(detail):
    with pytest.raises(StoreCorruptError):
        LoggedChanges.from_json(detail)


@given(
    st.integers(2, 6),
    st.integers(0, 400),
    st.sampled_from(["tokens", "chars"]),
    st.integers(5, 200),
)
def test_an_edited_text_is_cut_into_as_many_slices_as_before(count, words, unit, target):
    """Broken, an edit moves a bound: windows would be missing, or left over (P5)."""
    message = Message.user(" ".join(f"w{n}" for n in range(words)), created_at=T0)
    stored = StoredMessage(0, message, words, words, "h")
    points = Weigher(COUNTER).points(stored, count, unit=unit, target=target)
    assert len(points) == count - 1
    assert list(points) == sorted(points)
    assert all(0 <= point <= len(measure.body(message)) for point in points)
    assert len(Weigher(COUNTER).weigh(stored, HierarchyConfig.by_tokens(), points)) == count


def test_what_is_not_live_weighs_nothing():
    stored = StoredMessage(0, Message.user("x", created_at=T0), 5, 5, "h", state="quarantined")
    assert (
        Weigher(COUNTER).weigh(stored, HierarchyConfig.by_tokens(), (0, 0)) == (Weight(0, 0),) * 3
    )


def test_calls_are_known_by_marks_that_do_not_say_them():
    message = Message.assistant(tool_calls=[ToolCall("secret-1", "find")])
    (mark,), result = marks_of(message)
    assert mark == call_mark("secret-1")
    assert "secret" not in mark
    assert result is None


def test_the_views_that_an_edit_outdates_go_with_what_was_noted_of_them():
    piece = Piece("view", "V1", (0, 2), Span(0, 20), 9, "said", None, ())
    shown = View(2, (piece,)).to_json()
    beside = Piece("view", "V2", (0, 0), Span(30, 32), 5, "said", None, (), runs=((30, 32),))
    opened = View(0, (beside,)).to_json()
    raw = View(0, ()).to_json()
    stored = {"a": shown, "a/seen": "{}", "b": raw, "b/seen": "{}", "c": opened, "d": "damaged"}
    # A piece that covers nothing is damage, so the view goes whatever was edited.
    assert outdated(stored, 5, ()) == ("a", "a/seen", "d")
    assert outdated(stored, 31, ()) == ("a", "a/seen", "c", "d")
    view = View(2, (piece,))
    assert view.shows(5)
    assert not view.shows(25)
    assert view.shows(25, (1,))
