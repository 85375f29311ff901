"""What a space's page says after a model read its conversations: updates, replacements, language.

    python benchmarks/learning.py FOLDER [part ...] [--model openai:NAME] [--list]

Parts: updates (36 facts that other words, or what only follows from them, replace), replaced (40
statements that replace a value, and 24 that seem to), languages (ten), cost, and pages, which makes
a page of each BEAM chat in ``HIERMEM_DATA`` beside its questions, for a reader.

Without ``--model`` each prompt is written to FOLDER/prompts/HASH.txt and its answer is read from
FOLDER/answers/HASH.txt; a run that lacks answers says how many. A conversation of March states the
old values, one of June the new ones; each is learnt before the next.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from conversations import beam, folder, locomo

from hiermem import BankPolicy, Memory, Message
from hiermem.bank.lines import says
from hiermem.protocols import LLMRequest
from hiermem.text import language
from hiermem.tokens import default_counter

SETS: dict[str, dict[str, list[Any]]] = json.loads(
    Path(__file__).with_suffix(".json").read_text("utf-8")
)
MARCH, JUNE = datetime(2026, 3, 3, 9, tzinfo=UTC), datetime(2026, 6, 9, 9, tzinfo=UTC)
FILLERS = [
    "Thanks, that helps!", "What is the capital of Peru?", "Can you make that shorter?", "Why?",
    "How many ounces are in a pound?", "And in French?", "Great, one more please.",
]  # fmt: skip
KINDS = ["red", "old", "small", "round", "loud", "cheap", "heavy", "green"]
#: What a line says was so, and no longer is.
WAS = re.compile(r"\(?(?:;|,)? ?was [^()]*\)|~~.*?~~")
DATED = re.compile(r"- \d{4}-\d\d-\d\d")
#: The languages that are guessed by their script.
SCRIPTS = {"ru": "cyrillic", "zh": "han"}
count = default_counter().count


class Answers:
    """Answers prompts from files, or writes them there to be answered."""

    def __init__(self, place: Path) -> None:
        self.place, self.missing = place, 0
        for name in ("prompts", "answers", "pages"):
            (place / name).mkdir(parents=True, exist_ok=True)

    def __call__(self, request: LLMRequest) -> str:
        """Return the answer to a prompt. Raises LookupError if there is none yet."""
        text = "\n\n".join(f"### {part.role}\n{part.content}" for part in request.messages)
        name = hashlib.sha256(text.encode()).hexdigest()[:12] + ".txt"
        answer = self.place / "answers" / name
        if answer.exists():
            return answer.read_text("utf-8")
        (self.place / "prompts" / name).write_text(text, "utf-8")
        self.missing += 1
        raise LookupError(f"no answer {name}")


def learnt(
    model: Any, person: str, sittings: Sequence[Sequence[Message]], policy: BankPolicy
) -> dict[str, str] | None:
    """Return the files of a space that learnt each sitting; None if an answer is missing."""
    with Memory.open(":memory:", llm=model, bank_policy=policy) as memory:
        space = memory.space(person, person=person)
        space.files()
        for number, sitting in enumerate(sittings):
            memory.session(f"s{number}", space=person).append(sitting)
            while space.notes():
                if not space.consolidate().notes_processed:
                    return None
        return {name: space.read(name) for name in space.files()}


def talk(texts: Sequence[str], begin: datetime, seed: int) -> list[Message]:
    """Return a conversation that says these things, among others."""
    rng = random.Random(seed)
    said = [*texts, *rng.sample(FILLERS, 4)]
    rng.shuffle(said)
    at = (begin + timedelta(minutes=3 * number) for number in range(len(said)))
    pairs = [
        (Message.user(text, created_at=when), Message.assistant("Sure.", created_at=when))
        for text, when in zip(said, at, strict=True)
    ]
    return list(itertools.chain(*pairs))


def current(files: dict[str, str]) -> list[str]:
    """Return what a page says holds now, without what was talked about on a day."""
    texts = (text for name, text in files.items() if name != "past.md")
    lines = (line for text in texts for line in text.split("\n") if says(line))
    return [WAS.sub("", line) for line in lines if not DATED.match(line)]


def holds(pattern: str, lines: Sequence[str], but: str = "") -> bool:
    """Return whether a line matches a pattern, and does not match another."""
    return any(re.search(pattern, line) and not (but and re.search(but, line)) for line in lines)


def pages(model: Any, sets: dict[str, list[Any]]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield each fact with the lines of its person's page."""
    for seed, (person, cases) in enumerate(sets.items()):
        sittings = [
            talk([case["old"] for case in cases], MARCH, seed),
            talk([case["new"] for case in cases], JUNE, seed + 100),
        ]
        if (files := learnt(model, person, sittings, BankPolicy())) is not None:
            lines = current(files)
            yield from ((lines, case) for case in cases)


def updates(model: Any, wrong: list[str]) -> None:
    """Count the updates in other words whose new value stands, and those of the old one alone."""
    seen = new = old = 0
    for lines, case in pages(model, SETS["updates"]):
        seen += 1
        is_new = holds(case["now"], lines)
        is_old = holds(case["was"], lines, but=case["now"])
        new, old = new + is_new, old + (is_old and not is_new)
        wrong += [] if is_new and not is_old else [f"{case['new']} {is_new=} {is_old=}"]
    print(f"updates: {seen}, the new value stands {new} (32), only the old one {old} (2)")


def replaced(model: Any, wrong: list[str]) -> None:
    """Count what was replaced rightly and wrongly."""
    seen = found = false = both = 0
    for lines, case in pages(model, SETS["replaced"]):
        stands, is_old = (
            holds(case["now"], lines),
            case["was"] and holds(case["was"], lines, but=case["now"]),
        )
        seen += bool(case["was"])
        found += bool(case["was"]) and stands and not is_old
        false += not case["was"] and not stands
        both += bool(is_old)
        wrong += [] if stands and not is_old else [f"{case['new']} {stands=} {is_old=}"]
    right = found / max(1, found + false)
    print(f"replaced: right {right:.3f} (.95), found {found} of {seen} (.8), {false} false")


def languages(model: Any, wrong: list[str]) -> None:
    """Count the lines in the language of what was said."""
    right = lines = 0
    for seed, (code, texts) in enumerate(SETS["languages"].items()):
        files = learnt(model, "Kim", [talk(texts, MARCH, seed)], BankPolicy())
        for line in current(files or {}):
            lines += 1
            is_right = language.guess(line) in (code, SCRIPTS.get(code), None)
            right += is_right
            wrong += [] if is_right else [f"{code}: {line}"]
    print(f"languages: {right} of {lines} lines, {right / max(1, lines):.3f} (.95)")


def by_day(messages: Sequence[Message]) -> list[list[Message]]:
    """Part a chat where its day changes."""
    days = itertools.groupby(
        messages, key=lambda message: message.created_at and message.created_at.date()
    )
    return [list(day) for _, day in days]


def beam_pages(model: Any, _: list[str]) -> None:
    """Write the page of each BEAM chat, and its questions."""
    for number, chat in enumerate(beam(folder()), start=1):
        files = learnt(model, "the user", by_day(chat.messages), BankPolicy())
        if files is not None:
            page = "\n".join(files.values())
            (model.place / "pages" / f"{number}.md").write_text(page, "utf-8")
            print(f"page {number}: {count(page)} tokens")


def cost(_: Any, __: list[str]) -> None:
    """Print the tokens in and out for a token of talk, of a model that fills the page each time."""
    for tokens in (1_000, 3_000):
        for name, chats in (("assistant", beam(folder())), ("people", locomo(folder()))):
            for chat in itertools.islice(chats, 3):
                _cost(name, chat.messages, tokens)


def _cost(name: str, messages: Sequence[Message], tokens: int) -> None:
    spent = {"in": 0, "out": 0}
    page, kinds = "# Person\n\n", itertools.permutations(KINDS, 4)
    while count(page) < tokens:
        page += f"- Owns a thing that is {' and '.join(next(kinds))}.\n"

    def fills(request: LLMRequest) -> str:
        notes = [*range(1, len(request.bank.notes) + 1, 3)] if request.bank else []
        file = {"filename": "person.md", "content": page, "notes": notes}
        answer = json.dumps({"bank_files": [file], "synthesis": "A person in a town. " * 20})
        spent["in"] += sum(count(part.content) for part in request.messages)
        spent["out"] += count(answer)
        return answer

    person = messages[0].name or "the user"
    sittings = by_day(messages) if name == "assistant" else [messages]
    learnt(fills, person, sittings, BankPolicy(file_tokens=5_000, page_tokens=9_000))
    said = sum(count(str(message.content)) for message in messages)
    print(f"{name}, page {tokens}: in {spent['in'] / said:.3f}, out {spent['out'] / said:.3f}")


def main() -> None:
    """Measure the parts that are named, or all that need no data."""
    parts: dict[str, Callable[[Any, list[str]], None]] = {
        "updates": updates,
        "replaced": replaced,
        "languages": languages,
        "cost": cost,
        "pages": beam_pages,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--model", default="")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    answers = Answers(given.folder)
    for part in given.parts or [*parts][:3]:
        wrong: list[str] = []
        parts[part](given.model or answers, wrong)
        if given.list:
            print(*(f"    {line}" for line in wrong), sep="\n")
    if answers.missing:
        print(f"{answers.missing} prompts in {given.folder / 'prompts'} wait for their answers")


if __name__ == "__main__":
    main()
