"""What requests cost besides the text that they are about, in tokens of o200k.

The frame of a request is all of it but the texts of messages, summaries, notes and files: the
prompt, the facts, marks, dates, speakers, numbers, and the JSON schema as it is sent. Sizes are
those of small windows, where the frame weighs most. "Text" is what the request is about. No model
is called and no data is needed.

    python benchmarks/prompt_frame.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hiermem.core.calls.request_limits import request_tokens
from hiermem.core.extraction import prompt as extraction
from hiermem.core.spaces import prompt as spaces
from hiermem.core.spaces.rules import read_rules
from hiermem.core.summaries.prompt import Facts, Length, render, stricter
from hiermem.core.summaries.validate import Problem
from hiermem.core.text.measure import canonical_json
from hiermem.errors import InvalidAnswerError
from hiermem.prompts import load, load_named
from hiermem.protocols import ChatMessage, SourceText
from hiermem.tokens import default_counter
from hiermem.types.bank import BankText, Note

COUNT = default_counter().count
BEGIN = datetime(2024, 3, 15, 9, tzinfo=UTC)
PEOPLE = ("Caroline", "Melanie")
LINES = (
    "The second pump ran hot again last night, so I had to stop it before midnight.",
    "Did you find out whether it was the bearing or the seal that we replaced in May?",
    "The bearing, I think; it read 84 degrees, and the seal was dry when I opened it.",
    "Then we should order the larger bearing now and keep the old one as a spare part.",
    "I asked for a price on Friday: 340 euros, and they can deliver within nine days.",
    "That is fine with me, but nobody may run the pump above 1,200 rpm until then.",
    "Agreed. I will write it on the door, and tell the night shift before they start.",
    "Please send me the readings of this week as well; the owner wants to see them.",
    "You will have them tomorrow. The flow was lower than usual on three of the days.",
    "Good. Let us talk about the filter on Monday, when the new gauge has come in.",
)
SUMMARY = (
    "## Overview\n- Pump 2 ran hot and was stopped before midnight.\n## Key points\n"
    "- 2024-03-15: Caroline found the bearing at 84 degrees; the seal was dry.\n"
    "- 2024-03-15: The larger bearing costs 340 euros and comes within nine days.\n"
    "## Decisions\n- 2024-03-15: Nobody may run the pump above 1,200 rpm until then.\n"
    "## Action items\n- Caroline sends the readings of the week to Melanie."
)
RULES = (
    "- pumps.md: what runs, and how fast\n- people.md: who does what\n"
    "- plans.md: what is planned, and until when\n"
)
FILE = "# Pumps\n\n## What runs\n\n" + "".join(f"- {line}\n" for line in LINES[:6])


def said(number: int, *, days: int = 1) -> list[SourceText]:
    """Return so many messages of two people who have names, on so many days."""
    found: list[SourceText] = []
    for at in range(number):
        day = BEGIN + timedelta(days=at * days // number)
        text = LINES[at % len(LINES)]
        found.append(SourceText(at, "user", PEOPLE[at % 2], f"{day:%Y-%m-%d}", text))
    return found


def below(number: int) -> list[SourceText]:
    """Return so many summaries."""
    days = (BEGIN + timedelta(days=at) for at in range(number))
    return [SourceText(None, "user", "Summary", f"{day:%Y-%m-%d}", SUMMARY) for day in days]


def facts(*, messages: int, summaries: int = 0) -> Facts:
    """Return the facts of a conversation that took three hours."""
    return Facts(
        "Pump house", PEOPLE, BEGIN, BEGIN + timedelta(hours=3), messages, summaries=summaries
    )


def tokens(texts: Iterable[str]) -> int:
    """Count texts one by one."""
    return sum(COUNT(text) for text in texts)


def show(name: str, messages: Sequence[ChatMessage], texts: Iterable[str], *, more: int = 0) -> int:
    """Print the frame of one request; ``more`` are the tokens of its schema."""
    whole, text = request_tokens(messages, COUNT) + more, tokens(texts)
    system = COUNT(messages[0].content)
    print(f"{name:34}{system:9,}{more:9,}{whole - text:9,}{text:9,}{1 - text / whole:9.0%}")
    return whole


def main() -> None:
    """Print the frame of each kind of request."""
    print(f"{'request':34}{'system':>9}{'schema':>9}{'frame':>9}{'text':>9}{'frame %':>9}")
    window, children = said(10), below(5)
    target = tokens(each.text for each in window) // 2
    length = Length(target, max(target * 3 // 2, target + 80), 0.5)
    first = render(load(1, "detailed"), window, facts=facts(messages=10), length=length)
    of_window = [each.text for each in window]
    once = show("level 1, 10 messages", first, of_window)
    for level, style, number in ((2, "thematic", 5), (3, "executive", 3)):
        sources = children[:number]
        about = facts(messages=10 * number, summaries=number)
        asked = render(load(level, style), sources, facts=about, length=replace(length, ratio=0.3))
        show(f"level {level}, {number} summaries", asked, [each.text for each in sources])
    problems = (
        Problem("truncated", "the answer was cut off at its token limit", hard=True),
        Problem("missing_sections", "missing: Overview, Key points", hard=False),
    )
    twice = show("level 1, second request", stricter(first, problems), of_window)
    record = said(100, days=8)
    template = load_named("extract.map")
    own = inspect.signature(extraction.render).parameters
    room = {"answer": 4096} if "answer" in own else {}
    schema = extraction.schema_tokens(COUNT)
    asked = extraction.render(template, record, facts=facts(messages=100), **room)
    of_record = [each.text for each in record]
    extracted = show("extraction, 100 messages", asked, of_record, more=schema)
    none = request_tokens(extraction.render(template, (), facts=facts(messages=100), **room), COUNT)
    error = InvalidAnswerError("the answer is not JSON", problem="not_json")
    mended = extraction.repair(asked, error, count=COUNT, limit=10**9)
    repaired = show("extraction, second request", mended, of_record, more=schema)
    notes = tuple(
        Note(f"n{at}", line, BEGIN + timedelta(minutes=at), agent=PEOPLE[at % 2])
        for at, line in enumerate(LINES * 2)
    )[:15]
    skeletons = {file.name: file.skeleton for file in read_rules(RULES).files}
    bank = BankText(
        rules=RULES,
        files=(("pumps.md", FILE),),
        outlines=(),
        missing=tuple((name, text) for name, text in skeletons.items() if name != "pumps.md"),
        synthesis="Pump 2 is stopped; a bearing is ordered.",
        notes=notes,
    )
    counter = default_counter()
    request = spaces.request(load_named("consolidate"), bank, counter=counter, max_tokens=8192)
    schema = COUNT(canonical_json(request.schema))
    taken = [bank.rules, FILE, *skeletons.values(), bank.synthesis, *(n.text for n in notes)]
    whole = show("consolidation, 15 notes, 3 files", request.messages, taken, more=schema)
    wrong = ["the answer was cut off at its token limit; write less"]
    mended = spaces.repair(request.messages, wrong, count=COUNT, limit=None)
    again = show("consolidation, second request", mended, taken, more=schema)
    print(f"\na second request adds {twice - once} tokens to a summary, {repaired - extracted} to")
    print(f"an extraction and {again - whole} to a consolidation")
    beside = (extracted - extraction.schema_tokens(COUNT) - none - tokens(of_record)) / len(record)
    print(f"an extraction's record has {beside:.1f} tokens a message besides its text")


if __name__ == "__main__":
    main()
