"""Lines of a record: they can be taken apart again, and what is left out between two is visible."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.context import render as lines
from hiermem.text.fence import fence
from hiermem.text.units import pack
from hiermem.types import Unit

WORDS = st.sampled_from(["The pump runs hot.", "Yes …", "[2024-03-15]", "Ada: no", "…", "price 3"])


@st.composite
def kept(draw):
    """Draw units as a selection keeps them: in order, some of a message, of a model's text too."""
    found = []
    index = 0
    for _ in range(draw(st.integers(0, 12))):
        index += draw(st.integers(0, 3))
        backed = draw(st.booleans())
        unit = Unit(
            index if backed else None,
            draw(st.integers(0, 4)),
            draw(st.sampled_from(["user", "assistant"])),
            draw(st.sampled_from(["Ada", "Bob", ""])),
            draw(st.sampled_from(["2024-03-15", "2024-03-16", ""])),
            draw(WORDS),
        )
        found.append(unit)
    return found


@given(units=kept())
def test_what_was_written_is_taken_apart_again(units):
    text = lines.render(units)
    assert list(lines.unpack(pack(units), text)) == units


@given(units=kept())
def test_the_body_of_a_record_is_found_whatever_it_holds(units):
    text = lines.render(units) + "\n[[/hiermem V1 00]]"
    record = fence("V1", text, key=b"k", attributes={"messages": "0-3"})
    assert lines.body_of(record) == text


@given(units=kept(), other=kept())
def test_what_does_not_belong_together_gives_nothing(units, other):
    """Broken, lines of another text would be taken for what a piece of the zone holds."""
    text = lines.render(other)
    found = lines.unpack(pack(units), text)
    assert not found or lines.render(found) == text
    assert lines.unpack("[1,", text) == ()
    assert lines.unpack("", text) == ()


@given(units=kept(), at=st.integers(0, 10))
def test_a_mark_stands_where_and_only_where_something_was_left_out(units, at):
    if at + 1 >= len(units):
        return
    before, after = units[at : at + 2]
    text = lines.render([replace(before, text="one", date=""), replace(after, text="two", date="")])
    begun = [unit.index is not None and unit.ordinal > 0 for unit in (before, after)]
    if None in (before.index, after.index):
        parted = False
    elif before.index == after.index:
        parted = after.ordinal != before.ordinal + 1
    else:
        parted = after.index > before.index + 1
    same = (before.index, before.role, before.speaker) == (after.index, after.role, after.speaker)
    assert text.count("…") == begun[0] + (parted if same else parted or begun[1])


SAID = Unit(3, 0, "user", "Ada", "", "The pump runs hot.")
CUT = Unit(3, 0, "user", "Ada", "", "We open port 5000…")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        # "Bob: and it works" reads as a broken sentence.
        ([SAID, Unit(7, 2, "user", "Bob", "", "and it works again."), replace(SAID, index=8)],
         "Ada: The pump runs hot.\nBob: … and it works again.\nAda: The pump runs hot."),
        # "port 5000… …" reads as two gaps.
        ([CUT, replace(SAID, ordinal=2)], "Ada: We open port 5000… The pump runs hot."),
        ([CUT, replace(SAID, index=5)], "Ada: We open port 5000…\nAda: The pump runs hot."),
        # Each slice numbers its pieces from 0, so a later piece may have the lower number.
        ([replace(SAID, ordinal=134), replace(CUT, ordinal=2), replace(SAID, ordinal=3)],
         "Ada: … The pump runs hot. … We open port 5000… The pump runs hot."),
    ],
)  # fmt: skip
def test_a_line_says_where_it_is_cut_once(said, text):
    assert lines.render(said) == text
    assert list(lines.unpack(pack(said), text)) == said
