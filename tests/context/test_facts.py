"""What a model wrote is shown as dated lines of one fact, and nothing else of its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.context import render as lines
from hiermem.context.lines import facts_of
from hiermem.text import units

DAYS = ("2024-03-01", "2024-03-09")


@pytest.mark.parametrize(
    "text",
    [
        "## Overview\n- Pumps.\n## Key points\n- 2024-03-02: Ada left.\n- 2024-03-05: It rained.",
        "Overview:\nPumps.\n\nKey points:\n* [2024-03-02] Ada left.\n1. 2024-03-05 - It rained.",
        "- Theme: rain\n- 2024-03-05: **It** rained.\n- Theme 2: Ada\n- (2024-03-02) Ada left.",
    ],
)
def test_facts_stand_under_their_days_without_headings_labels_marks_and_overview(text):
    found = {fact.date: fact.text for fact in facts_of(text, DAYS)}
    assert found == {"2024-03-02": "Ada left.", "2024-03-05": "It rained."}


def test_an_overview_stands_where_there_is_nothing_else():
    assert [fact.text for fact in facts_of("## Overview\nAbout pumps.", DAYS)] == ["About pumps."]
    assert facts_of("It rained.", ("2024-03-01",) * 2)[0].date == "2024-03-01"


@given(st.text(max_size=300), st.booleans())
def test_every_line_is_a_line_of_its_own_and_can_be_read_back(text, one_day):
    found = facts_of(text, DAYS if not one_day else (DAYS[0],) * 2)
    found.sort(key=lambda fact: fact.date)
    rendered = lines.render(found)
    dates = len({fact.date for fact in found})
    assert len(rendered.split("\n")) == (len(found) + dates if found else 1)
    assert lines.unpack(units.pack(found), rendered) == tuple(found)
