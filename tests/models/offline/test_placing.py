"""Where a note belongs: a section that an edit can name, found in time linear in the files."""

import pytest
from bankwork import note
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem.bank.rules import read_rules
from hiermem.bank.sections import sections
from hiermem.models.offline.notes import place, places_of
from hiermem.types.bank import BankText

RULES = read_rules("- a.md: what there is")
HEADINGS = ("# A", "## A", "## B", "### B", "### Done", "## May", "## June", "## A > B", "## ", "x",
            "B\n---", "## **b**:")  # fmt: skip


def bank(text: str) -> BankText:
    return BankText(RULES.text, "", (("a.md", text),), (), ())


@drawn(150)
@given(st.lists(st.sampled_from(HEADINGS), max_size=12).map("\n\n".join))
def test_every_section_is_a_place_once(text: str) -> None:
    places = places_of(bank(text), RULES)
    assert places
    found = [each.end for each in places if each.end is not None]
    assert len(set(found)) == len(found)
    assert {*found} <= {own for _, _, own in sections(text)}


@pytest.mark.thorough
def test_a_file_of_very_many_headings_is_read_in_one_pass() -> None:
    """A square of sixty thousand headings would never end."""
    for text in ("# a\n" * 60_000, "".join(f"## h{n}\n" for n in range(30_000))):
        places = places_of(bank(text), RULES)
        assert place(note("anything about h7"), places) in places


def test_what_belongs_nowhere_goes_to_one_plain_section() -> None:
    """A note in the wrong section is a false statement."""
    places = places_of(bank("# T\n\n## Goals\n\n## Billing\n"), RULES)
    assert place(note("zzz"), places).heading == "## Notes"
    assert place(note("Billing runs at night."), places).heading == "## Notes"
    places = places_of(bank("# T\n\n## Goals\n\n## Miscellaneous\n"), RULES)
    assert place(note("zzz"), places).heading == "## Miscellaneous"


def test_a_category_goes_where_its_name_and_the_name_of_a_section_say() -> None:
    places = places_of(
        bank("# T\n\n## What works\n\n## What is left\n\n## Known issues\n\n## Stack\n"), RULES
    )
    for category, heading in (
        ("issue", "## Known issues"), ("bug", "## Known issues"), ("todo", "## What is left"),
        ("progress", "## What works"), ("Known issue", "## Known issues"), ("stack", "## Stack"),
        ("decision", "## Notes"),
    ):  # fmt: skip
        given = note("Apple Pay works with the wrong stack.", category=category)
        assert place(given, places).heading == heading
    assert place(note("Bug: it works no more."), places).heading == "## Known issues"
    assert place(note("It works no more.", tags=("bug",)), places).heading == "## Known issues"


def test_a_category_of_two_words_names_a_file_and_its_section() -> None:
    """Broken once: an open risk went to the plain section, beside ``risks.md`` with "Open"."""
    files = (("log.md", "# Log\n\n## Notes\n"), ("risks.md", "# Risks\n\n## Open\n\n## Settled\n"))
    places = places_of(BankText(RULES.text, "", files, (), ()), RULES)
    for category, heading in (("open risk", "## Open"), ("risk", "## Notes")):
        assert place(note("The strike is settled.", category=category), places).heading == heading
