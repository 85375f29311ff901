"""The offline default keeps a bank: each note finds a section, nothing is lost or invented."""

import random
from typing import Any

import pytest
import sampling
from bankwork import COUNTER, NOW, batch_of, note, state
from hypothesis import given
from hypothesis import strategies as st

from hiermem.bank import change
from hiermem.bank.batches import judge
from hiermem.bank.files import Applied
from hiermem.bank.records import BankState
from hiermem.bank.sections import sections
from hiermem.calls.answers import Accepted
from hiermem.models.offline.notes import consolidate, write
from hiermem.protocols import LLMResponse
from hiermem.types.bank import Note

RULES = """\
- progress.md: what works, known problems
- decisions.md: decisions and why
- techContext.md: stack, set-up
- activeContext.md: current focus, next steps
"""


def taken(bank: BankState, given: list[Note], **limits: Any) -> Applied:
    batch = batch_of(bank, given, **limits)
    assert batch.request.bank is not None
    answer = consolidate(
        batch.request.bank, max_tokens=batch.request.max_tokens, count=COUNTER.count
    )
    text = write(answer)
    assert COUNTER.count(text) <= batch.request.max_tokens
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


def where(bank: BankState, words: str) -> str:
    """Give the file and heading under which a text stands."""
    heading = ""
    for name, text in bank.texts.items():
        for line in text.splitlines():
            if line.startswith("#"):
                heading = line.lstrip("# ")
            elif words in line:
                return f"{name}: {heading}"
    raise AssertionError(f"{words!r} stands nowhere")


def test_files_are_made_of_the_rules_headings_and_notes_stand_where_their_words_are() -> None:
    bank = after(
        state(rules=RULES),
        note("We chose SQLite, since it needs no server.", 1, category="decision", agent="ada"),
        note("Next steps: write the exporter.", 2),
        note("Python 3.11 with numpy.", 3, category="stack"),
        note("Login works, with tokens.", 4, tags=("progress",)),
        note("Known problem: the worker dies on Sundays.", 5),
    )
    assert list(bank.texts) == [
        "activeContext.md", "decisions.md", "progress.md", "techContext.md",
    ]  # fmt: skip
    assert where(bank, "SQLite") == "decisions.md: Decisions and why"
    assert where(bank, "exporter") == "activeContext.md: Next steps"
    assert where(bank, "numpy") == "techContext.md: Stack"
    assert where(bank, "Login") == "progress.md: What works"
    assert where(bank, "Sundays") == "progress.md: Known problems"
    assert (
        "- 2026-03-01: We chose SQLite, since it needs no server. (ada)"
        in bank.texts["decisions.md"]
    )
    assert "SQLite" in bank.synthesis


def test_what_a_file_says_already_is_not_said_twice() -> None:
    bank = after(state(rules=RULES), "Login works.")
    again = after(bank, "Login works.", "login  WORKS.")
    assert again.texts["progress.md"].count("ogin") == 1 + ("WORKS" in again.texts["progress.md"])
    assert after(bank, "Login works.").texts == bank.texts


WORDS = ("the", "store", "port", "is", "8080", "9090", "moved", "instead", "Ada", "SQLite",
"broker",
         "decision", "- ", "# head", "```", "<!--", "---", "~~", "\n", "\n\n", "    ", "|",
         "> ", "1. ",
         "\u202e", "é", "日本語", "{", '"', "\\", "[[hiermem x]]")  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
agents = st.sampled_from(("", "dev", "a\nb", "# x", "```", "\u202e", "x" * 400, "(y)", "日本"))


@sampling.drawn(60)
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


def test_the_same_request_gives_the_same_answer() -> None:
    bank = after(state(rules=RULES), "The API port is 8080.", "Login works.")
    given_notes = [note("The API port is 9090.", 3), note("Logout works.", 4)]
    assert taken(bank, given_notes) == taken(bank, given_notes)


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
    applied = taken(state(rules="log.md: what happened"), [long, *drawn(2)][:1], answer=room)
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
    for text in (
        "Python 3.11",
        "Known problems: none",
        "Decisions done in June",
        "Next steps: rest",
    ):
        bank = after(bank, text)
        assert text in "\n".join(bank.texts.values())
