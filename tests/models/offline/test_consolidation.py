"""The offline default keeps a bank: each note finds a section, nothing is lost or invented."""

import random
from typing import Any

import pytest
from bankwork import COUNTER, NOW, batch_of, note, state
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn as draw

from hiermem.bank import change
from hiermem.bank.batches import judge
from hiermem.bank.files import Applied
from hiermem.bank.records import BankState
from hiermem.bank.rules import read_rules
from hiermem.bank.sections import sections
from hiermem.calls.answers import Accepted
from hiermem.models.offline.notes import Placement, consolidate, place, places_of
from hiermem.protocols import LLMResponse
from hiermem.types.bank import BankText, Note

RULES = """\
- progress.md: what works, known problems
- decisions.md: decisions and why
- techContext.md: stack, set-up
- activeContext.md: current focus, next steps
"""
ONE_FILE = read_rules("- a.md: what there is")


def taken(bank: BankState, given: list[Note], **limits: Any) -> Applied:
    batch = batch_of(bank, given, **limits)
    assert batch.request.bank is not None
    most = batch.request.max_tokens
    answer = consolidate(batch.request.bank, max_tokens=most, count=COUNTER.count)
    assert answer == consolidate(batch.request.bank, max_tokens=most, count=COUNTER.count)
    text = answer.model_dump_json()
    assert COUNTER.count(text) <= most
    verdict = judge(batch, LLMResponse(text))
    assert isinstance(verdict, Accepted), verdict
    assert not verdict.value.failed
    return verdict.value


def after(bank: BankState, *texts: str | Note) -> BankState:
    given = [
        each if isinstance(each, Note) else note(each, n) for n, each in enumerate(texts, start=1)
    ]
    applied = taken(bank, given)
    assert [each.key for each in applied.consumed] == [each.key for each in given]
    assert not applied.removed
    return change.commit(bank, applied, run_id="run", model="m", now=NOW)[0]


def places(*files: tuple[str, str]) -> list[Placement]:
    return places_of(BankText(ONE_FILE.text, "", files, (), ()), ONE_FILE)


def test_files_are_made_of_the_rules_headings_and_notes_stand_where_their_words_are() -> None:
    bank = after(
        state(rules=RULES),
        note("We chose SQLite, since it needs no server.", 1, category="decision", agent="ada"),
        note("Next steps: write the exporter.", 2),
        note("Python 3.11 with numpy.", 3, category="stack"),
        note("Login works, with tokens.", 4, tags=("progress",)),
        note("Known problem: the worker dies on Sundays.", 5),
    )
    assert list(bank.texts) == sorted(bank.texts)
    stands = {
        "decisions.md": "## Decisions and why\n\n"
        "- 2026-03-01: We chose SQLite, since it needs no server. (ada)\n",
        "activeContext.md": "## Next steps\n\n- 2026-03-01: Next steps: write the exporter.\n",
        "techContext.md": "## Stack\n\n- 2026-03-01: Python 3.11 with numpy.\n",
        "progress.md": "## What works\n\n- 2026-03-01: Login works, with tokens.\n\n"
        "## Known problems\n\n- 2026-03-01: Known problem: the worker dies on Sundays.\n",
    }
    for name, text in stands.items():
        assert text in bank.texts[name]
    assert "SQLite" in bank.synthesis
    assert after(bank, "Login works, with tokens.").texts == bank.texts, "it is not said twice"


WORDS = ("the", "store", "port", "is", "8080", "9090", "moved", "instead", "Ada", "SQLite",
"broker",
         "decision", "- ", "# head", "```", "<!--", "---", "~~", "\n", "\n\n", "    ", "|",
         "> ", "1. ",
         "\u202e", "é", "日本語", "{", '"', "\\", "[[hiermem x]]")  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
agents = st.sampled_from(("", "dev", "a\nb", "# x", "```", "\u202e", "x" * 400, "(y)", "日本"))


@draw(60)
@given(st.lists(st.lists(st.tuples(texts, agents), min_size=1, max_size=5), min_size=1, max_size=3))
def test_any_notes_are_taken_in_and_every_line_that_was_there_is_still_there(
    runs: list[list[tuple[str, str]]],
) -> None:
    """Notes full of Markdown break no file: headings stay what the rules gave, no line vanishes.

    The one plain section is added at most once.
    """
    bank = state(rules=RULES)
    number = 0
    for run in runs:
        given_notes = []
        for text, agent in run:
            number += 1
            given_notes.append(note(text, number, agent=agent))
        bank = after(bank, *given_notes)
        for name, skeleton in bank.rules.files.items():
            begun, titles = (
                [heading for heading, _, _ in sections(text)]
                for text in (skeleton, bank.texts[name])
            )
            assert titles.count("Notes") <= 1
            assert [each for each in titles if each != "Notes"] == begun


def drawn(count: int, seed: int = 3) -> list[Note]:
    chance = random.Random(seed)
    things = ("parser", "worker", "broker", "exporter", "login", "report", "cache", "index")
    return [
        note(f"The {chance.choice(things)} of part {n} needs {chance.randrange(999)} ms.", n)
        for n in range(1, count + 1)
    ]


def test_every_fact_of_hundreds_of_notes_is_in_a_file() -> None:
    bank = state(rules=RULES)
    left = drawn(400)
    while left:
        batch = batch_of(bank, left, answer=4_000)
        applied = taken(bank, left, answer=4_000)
        bank, _ = change.commit(bank, applied, run_id="run", model="m", now=NOW)
        left = left[len(batch.notes) :]
    text = "\n".join(bank.texts.values())
    assert all(each.text in text for each in drawn(400))


@pytest.mark.parametrize("room", [40, 120, 300, 1_000])
def test_an_answer_is_never_larger_than_asked_and_still_an_answer(room: int) -> None:
    """A long note is cut to its weightiest sentences before it is left out."""
    long = note("The broker lost 37 messages. " + "It was a long day at the office. " * 300)
    applied = taken(state(rules="log.md: what happened"), [long], answer=room)
    if room >= 120:
        assert "37 messages" in applied.texts["log.md"]


def test_of_a_note_that_is_longer_than_an_answer_as_much_goes_in_as_has_room() -> None:
    """A page of it, not a line: each note that large has an answer of its own."""
    text = " ".join(f"Pump {n} was set to {n * 7} rpm by Ada." for n in range(1, 400))
    applied = taken(BankState("x", state(rules=RULES).rules), [note(text)], answer=2_500)
    written = "\n".join(applied.texts.values())
    assert COUNTER.count(written) > 800


def test_files_that_were_loaded_with_odd_headings_can_be_kept_too() -> None:
    files = {
        "progress.md": "no heading at all\n",
        "decisions.md": "# A\n\n## May\n\n### Done\n\nx\n\n## June\n\n### Done\n\ny\n\n### Done\n",
        "techContext.md": "Tech\n====\n\n- Python\n",
        "activeContext.md": "```\nopen\n",
    }
    bank = state(files, rules=RULES)
    for text in ("Python 3.11", "Known problems: none", "Decisions in June", "Next steps: rest"):
        bank = after(bank, text)
        assert text in "\n".join(bank.texts.values())


HEADINGS = ("# A", "## A", "## B", "### B", "### Done", "## May", "## June", "## A > B", "## ", "x",
            "B\n---", "## **b**:")  # fmt: skip


@draw(150)
@given(st.lists(st.sampled_from(HEADINGS), max_size=12).map("\n\n".join))
def test_every_section_is_a_place_once(text: str) -> None:
    made = places(("a.md", text))
    assert made
    ends = [each.end for each in made if each.end is not None]
    assert len(set(ends)) == len(ends)
    assert {*ends} <= {own for _, _, own in sections(text)}


@pytest.mark.thorough
def test_a_file_of_very_many_headings_is_read_in_one_pass() -> None:
    """A square of sixty thousand headings would never end."""
    for text in ("# a\n" * 60_000, "".join(f"## h{n}\n" for n in range(30_000))):
        made = places(("a.md", text))
        assert place(note("anything about h7"), made) in made


WORK = ("a.md", "# T\n\n## What works\n\n## What is left\n\n## Known issues\n\n## Stack\n")
RISKS = (("log.md", "# Log\n\n## Notes\n"), ("risks.md", "# Risks\n\n## Open\n\n## Settled\n"))
PLAIN = ("a.md", "# T\n\n## Goals\n\n## Billing\n")


@pytest.mark.parametrize(
    ("files", "given_note", "heading"),
    [
        # A note in the wrong section is a false statement: what belongs nowhere goes to one.
        ([PLAIN], note("zzz"), "## Notes"),
        ([PLAIN], note("Billing runs at night."), "## Notes"),
        ([("a.md", "# T\n\n## Goals\n\n## Miscellaneous\n")], note("zzz"), "## Miscellaneous"),
        *(([WORK], note("Apple Pay works with the wrong stack.", category=category), heading)
          for category, heading in (
            ("issue", "## Known issues"), ("bug", "## Known issues"), ("todo", "## What is left"),
            ("progress", "## What works"), ("Known issue", "## Known issues"),
            ("stack", "## Stack"), ("decision", "## Notes"),
        )),
        ([WORK], note("Bug: it works no more."), "## Known issues"),
        ([WORK], note("It works no more.", tags=("bug",)), "## Known issues"),
        # Broken once: an open risk went to the plain section, beside ``risks.md`` with "Open".
        (RISKS, note("The strike is settled.", category="open risk"), "## Open"),
        (RISKS, note("The strike is settled.", category="risk"), "## Notes"),
    ],
)  # fmt: skip
def test_a_category_goes_where_its_name_and_the_name_of_a_section_say(
    files, given_note, heading
) -> None:
    assert place(given_note, places(*files)).heading == heading
