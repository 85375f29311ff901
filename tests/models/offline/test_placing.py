"""Where a note belongs: a section that an edit can name, found in time linear in the files."""

from __future__ import annotations

from bankwork import note
from hypothesis import given, settings
from hypothesis import strategies as st

from hiermem.core.spaces.rules import read_rules
from hiermem.core.spaces.sections import find, sections
from hiermem.core.text.lexicon import Lexicon
from hiermem.models.offline.consolidation.placing import place, places_of
from hiermem.types.bank import BankText

RULES = read_rules("- a.md: what there is")
HEADINGS = ("# A", "## A", "## B", "### B", "### Done", "## May", "## June", "## A > B", "## ", "x",
            "B\n---", "## **b**:")  # fmt: skip


def bank(text: str) -> BankText:
    return BankText(RULES.text, "", (("a.md", text),), (), (), ())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(HEADINGS), max_size=12).map("\n\n".join))
def test_every_place_is_named_so_that_an_edit_finds_it_and_no_other(text: str) -> None:
    """Or the offline default would write edits that are refused, and its notes would wait."""
    places = places_of(bank(text), RULES, Lexicon())
    assert places
    named = [each.heading for each in places if each.heading]
    met = [find(text, heading).start for heading in named]
    assert len(set(met)) == len(met)
    assert bool(named) <= bool(sections(text))


def test_a_file_of_very_many_headings_is_read_in_one_pass() -> None:
    """A square of sixty thousand headings would never end."""
    for text in ("# a\n" * 60_000, "".join(f"## h{n}\n" for n in range(30_000))):
        places = places_of(bank(text), RULES, Lexicon())
        assert place(note("anything about h7"), places, Lexicon()) in places


def test_what_shares_no_word_goes_to_the_first_section() -> None:
    places = places_of(bank("# T\n\n## One\n\n## Two\n"), RULES, Lexicon())
    assert place(note("zzz"), places, Lexicon()).heading == "## One"
    assert place(note("about two"), places, Lexicon()).heading == "## Two"
