"""The offline default keeps a bank: each note finds a section, nothing is lost or invented."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sampling
from bankwork import COUNTER, NOW, batch_of, note, state
from hypothesis import given
from hypothesis import strategies as st

from hiermem.core.calls.verdict import Accepted
from hiermem.core.spaces import change
from hiermem.core.spaces.consolidation import judge
from hiermem.core.spaces.files import Applied
from hiermem.core.spaces.record import BankState
from hiermem.core.spaces.sections import sections
from hiermem.models.offline.consolidation.offline import consolidate, write
from hiermem.models.offline.consolidation.superseding import Statements, bare, struck
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
        note("The stack is Python 3.11 with numpy.", 3),
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


def test_a_superseded_statement_is_struck_through_and_stays_readable() -> None:
    bank = after(state(rules=RULES), "The API port is 8080.", "We use Redis for the session cache.")
    bank = after(
        bank, "The API port is 9090.", "We switched from Redis to Valkey for the session cache."
    )
    text = "\n".join(bank.texts.values())
    assert "~~2026-03-01: The API port is 8080.~~ (superseded 2026-03-01)" in text
    assert "- 2026-03-01: The API port is 9090." in text
    assert "~~2026-03-01: We use Redis for the session cache.~~" in text
    bank = after(bank, "The API port is 7070.")
    text = "\n".join(bank.texts.values())
    assert text.count("~~2026-03-01: The API port is 8080.~~") == 1
    assert "~~2026-03-01: The API port is 9090.~~" in text
    assert "8080" not in bank.synthesis
    assert "9090" not in bank.synthesis


def test_of_two_statements_the_one_of_the_later_day_holds_whichever_comes_first() -> None:
    """A note may come late; what it says was so before, and must not pass for the newest."""
    bank = after(state(rules=RULES), note("The API port is 9090.", 5 * 24 * 60))
    bank = after(bank, note("The API port is 8080.", 1))
    text = "\n".join(bank.texts.values())
    assert "- 2026-03-06: The API port is 9090." in text
    assert "- ~~2026-03-01: The API port is 8080.~~ (superseded 2026-03-06)" in text
    assert "8080" not in bank.synthesis
    bank = after(bank, note("The API port is 7070.", 9 * 24 * 60))
    assert "~~2026-03-06: The API port is 9090.~~ (superseded 2026-03-10)" in "\n".join(
        bank.texts.values()
    )


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Ada is the owner of billing.", "Ada is on leave."),
        ("Test 12 passes on the parser.", "Test 13 passes on the parser."),
        ("The worker uses SQLite.", "The worker uses Python."),
        ("Ada: the build is red.", "Ada: the docs are done."),
        ("The API port is 8080.", "the API  port is 8080."),
        ("We use Redis for the cache.", "The timeout changed from 3 s to 5 s."),
    ],
)
def test_what_only_sounds_alike_is_not_struck(earlier: str, later: str) -> None:
    met = Statements()
    met.add(earlier)
    assert met.rival(later) is None


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Coverage is 80 % for the api package.", "Coverage is 60 % for the holds package."),
        ("The retry limit is 3 for webhooks.", "The retry limit is 5 for mails."),
        ("Review time is 2 days for Ana.", "Review time is 5 days for Ben."),
        ("The staging port is 8080.", "The production port is 9090."),
        ("We use Redis for the cache.", "We switched from Redis to Kafka for the queue."),
        ("The build is red.", "The build is 12 minutes long."),
    ],
)
def test_another_attribute_of_the_same_thing_strikes_nothing(earlier: str, later: str) -> None:
    assert "~~" not in "\n".join(after(after(state(rules=RULES), earlier), later).texts.values())


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Coverage is 80 % for the api package.", "Coverage is 85 % for the api package."),
        ("Max upload size is 5 MB.", "Max upload size is 10 MB since the last release."),
        ("The build is green.", "The build is red."),
        ("Bikes are in the first release.", "Bikes are not in the first release."),
        ("We use Redis for the holds.", "We no longer use Redis for the holds, but Postgres."),
    ],
)
def test_another_value_of_the_same_attribute_strikes_the_earlier_one(
    earlier: str, later: str
) -> None:
    text = "\n".join(after(after(state(rules=RULES), earlier), later).texts.values())
    assert f"~~2026-03-01: {earlier}~~" in text
    assert f"- 2026-03-01: {later}" in text


def test_a_struck_line_reads_back_as_what_it_said() -> None:
    line = "- 2026-03-01: The port is 8080. (dev)"
    assert bare(line) == "The port is 8080."
    assert struck(line, day="2026-04-01") == (
        "- ~~2026-03-01: The port is 8080. (dev)~~ (superseded 2026-04-01)"
    )


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
        for file in bank.rules.files:
            titles = [each.heading for each in sections(bank.texts[file.name])]
            assert titles.count("Notes") <= 1
            assert [each for each in titles if each != "Notes"] == [file.title, *file.headings]


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
