"""What a changed message weighs, what the log names of a change, and which views it outdates."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.config import HierarchyConfig
from hiermem.context.view import Piece, View, outdated
from hiermem.errors import StoreCorruptError
from hiermem.log.events import before, changed, naming, taken_back
from hiermem.text import measure
from hiermem.tokens import FunctionCounter
from hiermem.tree.windows import Weigher
from hiermem.types import Message, Span, StoredMessage
from hiermem.types.ranges import each_of, ranges_of
from hiermem.types.transaction import LogEvent

T0 = datetime(2024, 3, 1, tzinfo=UTC)
COUNTER = FunctionCounter(lambda text: len(text.split()), name="words")
_RUNS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda found: ranges_of(n for start, count in found for n in range(start, start + count))
)


@given(st.lists(st.integers(0, 40), max_size=20))
def test_numbers_are_kept_as_the_fewest_ranges(numbers):
    """Broken, a log or a view grows by a range for each message that was changed."""
    runs = ranges_of(numbers)
    assert list(each_of(runs)) == sorted(set(numbers))
    assert all(stop < start for (_, stop), (start, _) in pairwise(runs))


@given(st.lists(st.tuples(st.sampled_from(["edit", "erase", "quarantine"]), _RUNS), max_size=5),
       st.integers(0, 40))  # fmt: skip
def test_the_log_names_what_was_changed_and_a_fork_what_of_it_concerns_it(changes, stop):
    """Broken, a context shows what was taken back, or a fork knows of messages it does not have."""
    log = [LogEvent(kind, 40, T0, naming(runs)) for kind, runs in changes]
    indices = [set(each_of(runs)) for _, runs in changes]
    assert [set(each_of(changed(event))) for event in log] == indices
    gone = [found for (kind, _), found in zip(changes, indices, strict=True) if kind != "edit"]
    assert taken_back(log) == ranges_of(index for found in gone for index in found)
    mine = before(log, stop)
    kept = [{n for n in found if n < stop} for found in indices]
    assert [set(each_of(changed(event))) for event in mine] == [one for one in kept if one]
    assert all(event.at == stop for event in mine)


def test_a_fork_knows_the_events_before_it_and_the_configurations_after_it():
    kinds = ("flush", "close", "reopen", "tick", "reconfigure", "repack")
    log = [LogEvent(kind, at, T0) for at in (3, 9) for kind in kinds]
    assert [(event.kind, event.at) for event in before(log, 5)] == [
        *((kind, 3) for kind in kinds), ("reconfigure", 5), ("repack", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("detail", ["", "x", "{}", "3", "[3]", "[[1]]", "[[2,1]]", "[[-1,1]]"])
def test_a_damaged_event_is_said_to_be_one(detail):
    with pytest.raises(StoreCorruptError):
        changed(LogEvent("edit", 9, T0, detail))


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
