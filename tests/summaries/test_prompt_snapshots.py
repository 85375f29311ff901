"""What models are sent, word for word: each shipped prompt, rendered, is kept in ``rendered/``.

A change of a prompt or of its rendering changes every summary from then on, and is paid for. This
test shows it as a difference of text. Where it is meant: ``HIERMEM_WRITE_PROMPTS=1 pytest`` this
file, raise the version in the template's header, and look at what changed.
"""

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from hiermem.bank import prompt
from hiermem.calls.failures import InvalidAnswerError
from hiermem.extraction import prompt as extraction
from hiermem.prompts import load_named
from hiermem.prompts.template import Facts, Length, render, second_request
from hiermem.protocols import SourceText
from hiermem.tokens import FunctionCounter
from hiermem.types.bank import BankText, Note

KEPT = Path(__file__).with_name("rendered")
NAMES = sorted(
    entry.name.removesuffix(".txt")
    for entry in files("hiermem.prompts").iterdir()
    if entry.name.endswith(".txt")
)
OF_SESSIONS = [name for name in NAMES if name != "consolidate"]
COUNTER = FunctionCounter(lambda text: len(text.split()), name="words")
FACTS = Facts(
    "Pump house",
    ("Ada", "assistant"),
    datetime(2024, 3, 15, 9, tzinfo=UTC),
    datetime(2024, 3, 15, 17, 30, tzinfo=UTC),
    messages=12,
    summaries=0,
)
SAID = (
    SourceText(0, "user", "Ada", "2024-03-15", "Pump 3 runs at 1,450 rpm.\nIs that too fast?"),
    SourceText(1, "assistant", "assistant", "2024-03-15", "Yes: never above 1,200 rpm."),
)
BELOW = (
    SourceText(None, "user", "Summary", "2024-03-15", "## Overview\n- Pump 3 was slowed down."),
    SourceText(None, "user", "Summary", "2024-03-16", "## Overview\n- It runs at 1,150 rpm."),
)
LENGTH = Length(target=100, limit=150)
BANK = BankText(
    rules="# Files\n- pumps.md: what runs, and how fast\n- people.md: who does what",
    files=(("pumps.md", "# Pumps\n\n## What runs\n\n- Pump 3 at 1,450 rpm.\n"),),
    missing=(("people.md", "# People\n\n## Who does what\n"),),
    synthesis="Pump 3 runs at 1,450 rpm.",
    notes=(
        Note("n1", "Pump 3 was slowed to 1,150 rpm.", FACTS.first_at, agent="ada", tags=("pump",)),
        Note("n2", "Bo looks after the valves.", FACTS.last_at, agent="bo", category="people"),
    ),
)
PROBLEMS = (
    "It was too long: 190 words, where at most 150 are allowed. Leave out whole lines.",
    "It had names, figures or dates that are not in the record.",
)


def written(messages):
    """Give messages as one text, as they stand in a request."""
    return "\n".join(f"[{each.role}]\n{each.content}\n" for each in messages)


def rendered(name):
    """Render a shipped prompt with the same facts and record as ever."""
    template = load_named(name)
    if name == "extract.map":
        return extraction.render(template, SAID, facts=FACTS)
    if name == "consolidate":
        return prompt.request(template, BANK, counter=COUNTER, max_tokens=LENGTH.limit).messages
    if name == "extract.reduce":
        request = extraction.join_request(
            template,
            [each.text for each in BELOW],
            facts=FACTS,
            counter=COUNTER,
            target=LENGTH.target,
            max_tokens=LENGTH.limit,
        )
        return request.messages
    first = ".l1." in name
    return render(
        template,
        SAID if first else BELOW,
        facts=FACTS,
        length=LENGTH,
        overlap="Ada (user): Good morning." if first else "",
    )


def same_as_kept(name, text):
    path = KEPT / f"{name}.txt"
    if os.environ.get("HIERMEM_WRITE_PROMPTS"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path.name} is not kept; see the docstring of this file"
    assert text == path.read_text(encoding="utf-8"), "a prompt changed; see this file's docstring"


@pytest.mark.parametrize("name", NAMES)
def test_each_prompt_is_sent_as_it_was_agreed(name):
    same_as_kept(name, written(rendered(name)))


def test_a_second_request_is_sent_as_it_was_agreed():
    messages = rendered("summarise.l1.detailed")
    asked = second_request(messages, PROBLEMS, answer="## Overview\n- Pump 3 is at 1,150 rpm.")
    same_as_kept("second", written(asked))


def test_a_repair_is_asked_for_as_it_was_agreed():
    error = InvalidAnswerError("no", problem="schema", where="entities.3.name")
    template = load_named("extract.map")
    asked = extraction.request(template, SAID, facts=FACTS, counter=COUNTER, max_tokens=16_384)
    assert asked.messages == rendered("extract.map")
    same_as_kept("repair", written(extraction.repair(asked, error, limit=9_999).messages))


def test_nothing_is_kept_that_is_not_sent():
    assert {path.stem for path in KEPT.glob("*.txt")} == {*NAMES, "second", "repair"}


# -- what each style asks for


# -- what a provider's cache keeps


def shared(one, other):
    """Give how many characters two requests have in common at their beginning."""
    first, second = (written(messages) for messages in (one, other))
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))


def test_two_consolidations_share_rules_files_and_synthesis():
    """What is new since the last one, the notes, comes after all that may have stayed as it was."""
    one = rendered("consolidate")
    other = prompt.request(
        load_named("consolidate"),
        replace(BANK, notes=BANK.notes[1:]),
        counter=COUNTER,
        max_tokens=LENGTH.limit,
    ).messages
    assert shared(one, other) >= written(one).index("The notes, oldest first")


@pytest.mark.parametrize("name", OF_SESSIONS)
def test_two_requests_of_a_session_share_all_that_can_be_shared(name):
    """Providers cache what is equal from the first token on; what varies must come after it."""
    one = rendered(name)
    other_facts = Facts(
        FACTS.title, FACTS.participants, FACTS.last_at, FACTS.last_at, messages=3, summaries=0
    )
    template = load_named(name)
    if name == "extract.map":
        other = extraction.render(template, SAID[:1], facts=other_facts)
    else:
        other = render(template, SAID[:1], facts=other_facts, length=Length(target=7, limit=9))
    # The prompts of extractions name the time before all else that varies.
    label, place = ("Time", "period") if name.startswith("extract.") else ("Length", "length")
    constant = written(one).index(f"{label}: ") + len(f"{label}: ")
    assert shared(one, other) >= constant
    varying = template.user.index(f"{{{{{place}}}}}")
    assert template.user.index("{{title}}") < template.user.index("{{participants}}") < varying
    later = re.sub(r"\{\{\w+\}\}", "", template.user[varying:]).split()
    assert len(later) <= 40, "what never changes belongs into the system part"
    assert len(template.system.split()) > 90


@pytest.mark.parametrize("name", NAMES)
def test_a_second_request_begins_with_the_whole_first_one(name):
    one = rendered(name)
    other = second_request(one, PROBLEMS)
    assert shared(one, other) >= len(written(one).rstrip())
