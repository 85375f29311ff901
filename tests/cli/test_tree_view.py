"""The picture shows what is there: columns stand for the same messages in every row."""

import io
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hiermem.cli.show import GUTTER, Strip, level_style, strip_for
from hiermem.types import Node, Revision, Span, Summary

AT = datetime(2026, 2, 2, tzinfo=UTC)


def bar(start, stop, *, name="L1.0", made):
    """A summary of these messages, which a text was made for or not."""
    node = Node(
        id=name, level=1, ordinal=0, thread="main", span=Span(start, stop), windows=(0, 1),
        children=(), messages=stop - start, input_size=1, allotted=1, input_tokens=1,
        allotted_tokens=1, verbatim=False, first_at=AT, last_at=AT,
    )  # fmt: skip
    text = Revision(name, 1, "text", 1, "", "", "", "", "model", AT)
    return Summary("s", node, text if made else None)


@st.composite
def tilings(draw):
    """Bars of one level that lie side by side, as sealed windows do."""
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=40))
    bars, start = [], 0
    for number, size in enumerate(sizes):
        bars.append(bar(start, start + size, name=f"L1.{number}", made=draw(st.booleans())))
        start += size
    return bars, start + draw(st.integers(0, 20))


@given(tilings(), st.integers(20, 160))
def test_every_row_is_exactly_as_wide_as_the_strip(drawn, columns):
    bars, messages = drawn
    strip = Strip(messages, columns)
    rows = [strip.level(1, bars), strip.sizes([1] * messages), strip.shown([0] * messages)]
    assert {len(row.plain) for row in rows} == {GUTTER + columns}


@given(tilings(), st.integers(20, 160))
def test_a_bar_is_drawn_over_the_columns_of_what_it_covers_and_no_others(drawn, columns):
    bars, messages = drawn
    strip = Strip(messages, columns)
    for one in bars:
        cells = strip.level(1, [one]).plain[GUTTER:]
        begin = strip.column(one.span.start)
        end = max(begin + 1, strip.column(one.span.stop))
        assert cells[begin] != " "
        assert not cells[:begin].strip()
        assert not cells[end:].strip()


def test_a_made_summary_looks_unlike_one_that_waits_without_any_colour():
    strip = Strip(20, 40)
    made = strip.level(1, [bar(0, 2, made=True)]).plain
    waiting = strip.level(1, [bar(0, 2, made=False)]).plain
    assert "█" in made
    assert "░" in waiting


def test_a_terminal_without_block_characters_gets_ascii():
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    strip = strip_for(console, 20)
    row = strip.level(1, [bar(0, 20, made=True)])
    assert row.plain.isascii()
    assert strip.sizes([5] * 20).plain.isascii()


def test_the_most_telling_message_stands_in_a_column_of_several():
    row = Strip(40, 20).shown([3] * 20 + [1] * 10 + [0] * 10).plain[GUTTER:]
    assert row == "3" * 10 + "1" * 5 + "█" * 5


def test_every_level_can_be_read_on_a_black_background():
    """Broken, labels are written in a colour that most terminals show almost black."""
    styles = [level_style(level) for level in range(12)]
    assert not {"blue", "magenta", "black"} & set(styles)
    assert len(set(styles[:5])) == 5
