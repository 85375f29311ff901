"""What requests cost besides the text that they are about, in tokens of o200k.

The frame of a request is all of it but the texts of messages, summaries, notes and files: the
prompt, the facts, marks, dates, speakers, numbers, and the JSON schema as it is sent. Sizes are
those of small windows, where the frame weighs most. "Text" is what the request is about. No model
is called and no data is needed.

    python benchmarks/prompt_frame.py [--before REVISION]

With a revision, the frame of its prompts stands beside; its source is read by git.

With ``--contexts``, what is frame in live contexts instead, in talk, assistant chats and agents'
logs: notices, and the opening and closing lines and roles of records; and beside it the dates.
The mean over all contexts of a chat with a record, a context after every second message (LoCoMo:
every sixth). It needs the data of ``conversations``.

    HIERMEM_DATA=path/to/data python benchmarks/prompt_frame.py --contexts [2000,8000]
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import agent_log
from conversations import beam, folder, locomo

from hiermem import BudgetTooSmallError, ContextSelection, Memory, Message
from hiermem.bank import prompt as spaces
from hiermem.bank.rules import read_rules
from hiermem.calls.limits import request_tokens
from hiermem.errors import InvalidAnswerError
from hiermem.extraction import prompt as extraction
from hiermem.prompts import load, load_named
from hiermem.prompts.template import Facts, Length, render, second_request
from hiermem.protocols import ChatMessage, SourceText
from hiermem.text.measure import MESSAGE_OVERHEAD, canonical_json
from hiermem.tokens import default_counter
from hiermem.types.bank import BankText, Note

COUNT = default_counter().count
DATE = re.compile(r"\[\d{4}-\d\d-\d\d(?: to \d{4}-\d\d-\d\d)?\]")
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
    "## Key points\n[2024-03-15]\n- Pump 2 ran hot and was stopped before midnight (2024-03-14).\n"
    "- Caroline found the bearing at 84 degrees; the seal was dry.\n"
    "- The larger bearing costs 340 euros and comes within nine days.\n"
    "## Decisions\n- Decided: nobody may run the pump above 1,200 rpm until then.\n"
    "## Open\n- Planned: Caroline sends the readings of the week to Melanie."
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


class Cost(NamedTuple):
    """The tokens of one request: of its constant part, its schema, its frame and its text."""

    system: int
    schema: int
    frame: int
    text: int

    @property
    def whole(self) -> int:
        """Return the tokens of the request."""
        return self.frame + self.text


def cost(messages: Sequence[ChatMessage], texts: Iterable[str], *, schema: int = 0) -> Cost:
    """Return what a request takes whose texts are ``texts``."""
    whole, text = request_tokens(messages, COUNT) + schema, tokens(texts)
    return Cost(COUNT(messages[0].content), schema, whole - text, text)


def measured() -> dict[str, Cost]:
    """Return what each kind of request takes."""
    found: dict[str, Cost] = {}
    window, children = said(10), below(5)
    target = tokens(each.text for each in window) // 2
    length = Length(target, max(target * 3 // 2, target + 80))
    first = render(load(1, "detailed"), window, facts=facts(messages=10), length=length)
    of_window = [each.text for each in window]
    found["level 1, 10 messages"] = cost(first, of_window)
    for level, style, number in ((2, "thematic", 5), (3, "executive", 3)):
        sources = children[:number]
        about = facts(messages=10 * number, summaries=number)
        asked = render(load(level, style), sources, facts=about, length=length, ratio=0.3)
        found[f"level {level}, {number} summaries"] = cost(asked, [each.text for each in sources])
    problems = (
        "It was cut off at its end. Write fewer and shorter lines.",
        "It had names, figures or dates that are not in the record.",
    )
    found["level 1, second request"] = cost(second_request(first, problems), of_window)
    record = said(100, days=8)
    template = load_named("extract.map")
    own = inspect.signature(extraction.render).parameters
    room = {"answer": 4096} if "answer" in own else {}
    schema = extraction.schema_tokens(COUNT)
    asked = extraction.render(template, record, facts=facts(messages=100), **room)
    of_record = [each.text for each in record]
    found["extraction, 100 messages"] = cost(asked, of_record, schema=schema)
    none = extraction.render(template, (), facts=facts(messages=100), **room)
    found["extraction, no message"] = cost(none, (), schema=schema)
    error = InvalidAnswerError("the answer is not JSON", problem="not_json")
    request = extraction.request(
        template, record, facts=facts(messages=100), counter=default_counter(), max_tokens=4096
    )
    mended = extraction.repair(request, error, limit=10**9).messages
    found["extraction, second request"] = cost(mended, of_record, schema=schema)
    notes = tuple(
        Note(f"n{at}", line, BEGIN + timedelta(minutes=at), agent=PEOPLE[at % 2])
        for at, line in enumerate(LINES * 2)
    )[:15]
    skeletons = read_rules(RULES).files
    bank = BankText(
        rules=RULES,
        files=(("pumps.md", FILE),),
        missing=tuple((name, text) for name, text in skeletons.items() if name != "pumps.md"),
        synthesis="Pump 2 is stopped; a bearing is ordered.",
        notes=notes,
    )
    counter = default_counter()
    request = spaces.request(load_named("consolidate"), bank, counter=counter, max_tokens=8192)
    schema = COUNT(canonical_json(request.schema))
    taken = [bank.rules, FILE, *skeletons.values(), bank.synthesis, *(n.text for n in notes)]
    found["consolidation, 15 notes, 3 files"] = cost(request.messages, taken, schema=schema)
    wrong = ["the answer was cut off at its token limit; write less"]
    mended = spaces.repair(request.messages, wrong, count=COUNT, limit=None)
    found["consolidation, second request"] = cost(mended, taken, schema=schema)
    return found


def measured_at(revision: str) -> dict[str, Cost]:
    """Return what each kind of request takes with the source of a revision."""
    root = Path(__file__).resolve().parent.parent
    packed = subprocess.run(
        ["git", "archive", revision, "src"], cwd=root, check=True, capture_output=True
    )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        ran = subprocess.run(
            [sys.executable, __file__, "--json"],
            env=os.environ | {"PYTHONPATH": str(Path(folder, "src"))},
            check=True,
            capture_output=True,
            text=True,
        )
    return {name: Cost(*figures) for name, figures in json.loads(ran.stdout).items()}


def in_context(selection: ContextSelection) -> tuple[int, int]:
    """Return the tokens of the frames of a context, and those of its dates."""
    frames = dates = 0
    for block in selection.blocks:
        if not block.text:
            dates += COUNT(f"{block.seam}\n") if block.seam else 0
            continue
        before, _, rest = block.text.partition("]]\n")
        body, _, closing = rest.rpartition("\n[[")
        dated = [line for line in body.splitlines() if DATE.fullmatch(line)]
        dates += tokens(f"{line}\n" for line in dated)
        frames += COUNT(f"{before}]]\n") + COUNT(f"\n[[{closing}")
        # A quoted message would have a role of its own in any case.
        frames += 0 if block.kind == "quote" else MESSAGE_OVERHEAD
    return frames, dates


def of_chat(name: str, messages: Sequence[Message], step: int, budget: int) -> None:
    """Print what is frame in the contexts of one chat that is fed turn by turn."""
    found: list[tuple[float, float]] = []
    with Memory.open(":memory:") as memory:
        session = memory.session(name)
        for at in range(0, len(messages), step):
            session.append(messages[at : at + step])
            session.update()
            with suppress(BudgetTooSmallError):
                selection = session.context(budget)
                if any(block.text for block in selection.blocks):
                    whole = selection.total_tokens
                    frames, dates = in_context(selection)
                    found.append((frames / whole, dates / whole))
    if found:
        frames, dates = (sum(column) / len(found) for column in zip(*found, strict=True))
        worst = max(share for share, _ in found)
        print(f"{name:24}{budget:8,}{frames:9.1%}{worst:9.1%}{dates:9.1%}", flush=True)


def contexts(budgets: Sequence[int]) -> None:
    """Print what is frame in the contexts of each kind of conversation."""
    print(f"{'conversation':24}{'budget':>8}{'frames':>9}{'worst':>9}{'dates':>9}")
    logs = (("agent, made", list(agent_log.made())), ("agent, trace", agent_log.trace()))
    chats = [
        *((chat.name, chat.messages, 6) for chat in list(locomo(folder()))[:3]),
        *((chat.name, chat.messages, 2) for chat in list(beam(folder()))[:3]),
        *((name, messages, 2) for name, messages in logs),
    ]
    for name, messages, step in chats:
        for budget in budgets:
            of_chat(name, messages, step, budget)


def main() -> None:
    """Print the frame of each kind of request, with that of an earlier revision beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="REVISION", help="a revision to compare with")
    parser.add_argument("--json", action="store_true", help="print the figures alone")
    parser.add_argument(
        "--contexts", metavar="BUDGETS", nargs="?", const="2000", help="frames of contexts instead"
    )
    given = parser.parse_args()
    if given.contexts:
        contexts([int(budget) for budget in given.contexts.split(",")])
        return
    now = measured()
    if given.json:
        print(json.dumps(now))
        return
    earlier = measured_at(given.before) if given.before else {}
    columns = ("system", "schema", "text", "frame", "frame %", *(["before"] if earlier else []))
    print(f"{'request':34}" + "".join(f"{each:>9}" for each in columns))
    for name, held in now.items():
        figures = (held.system, held.schema, held.text, held.frame)
        share = f"{held.frame / held.whole:9.0%}"
        before = f"{earlier[name].frame:9,}" if earlier else ""
        print(f"{name:34}" + "".join(f"{each:9,}" for each in figures) + share + before)


if __name__ == "__main__":
    main()
