"""The conversations that benchmarks are run on, with the questions that belong to them.

Reads the LoCoMo and BEAM development chats below a folder, which ``HIERMEM_DATA`` names. A question
has the indices of the messages that answer it (its evidence) and the answer of its authors.
Questions without evidence are left out.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hiermem.types import Message

__all__ = [
    "ADVERSARIAL",
    "CATEGORIES",
    "MULTI_HOP",
    "Chat",
    "Question",
    "beam",
    "folder",
    "locomo",
    "woven",
]

MULTI_HOP, ADVERSARIAL = "1 multi-hop", "5 adversarial"
#: The kinds of LoCoMo's questions, as its authors number them.
CATEGORIES = {1: MULTI_HOP, 2: "2 temporal", 3: "3 open", 4: "4 single-hop", 5: ADVERSARIAL}
#: Where BEAM gives the answer, the first that is there.
_GOLD = ("answer", "ideal_answer", "ideal_summary")


@dataclass(frozen=True)
class Question:
    """A question, its kind, its answer, and the indices of the messages that it rests on."""

    text: str
    kind: str
    answer: str
    evidence: frozenset[int]


@dataclass(frozen=True)
class Chat:
    """One conversation with its questions."""

    corpus: str
    name: str
    messages: list[Message]
    questions: list[Question]


def folder() -> Path:
    """Return the folder of the data, or exit with instructions."""
    named = os.environ.get("HIERMEM_DATA")
    if not named:
        print("set HIERMEM_DATA to the folder that holds locomo/ and beam/", file=sys.stderr)
        raise SystemExit(2)
    return Path(named)


def locomo(data: Path) -> Iterator[Chat]:
    """Return the LoCoMo conversations: two people over months, short turns."""
    samples = json.loads((data / "locomo" / "locomo_dev5.json").read_text("utf-8"))
    for sample in samples:
        talk, messages, places = sample["conversation"], [], {}
        for number in range(1, 100):
            turns = talk.get(f"session_{number}")
            if not turns:
                continue
            said = talk[f"session_{number}_date_time"]
            at = datetime.strptime(said, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            for turn in turns:
                places[turn["dia_id"]] = len(messages)
                messages.append(Message.user(turn["text"], name=turn["speaker"], created_at=at))
        questions = []
        for asked in sample["qa"]:
            named = [name for text in asked["evidence"] for name in re.findall(r"D\d+:\d+", text)]
            evidence = frozenset(places[name] for name in named if name in places)
            answer = str(asked.get("answer", asked.get("adversarial_answer", "")))
            if evidence:
                kind = CATEGORIES[asked["category"]]
                questions.append(Question(asked["question"], kind, answer, evidence))
        yield Chat("LoCoMo", sample["sample_id"], messages, questions)


def beam(data: Path, *, size: str = "100k") -> Iterator[Chat]:
    """Return the BEAM chats of 100,000 (or "1m") tokens: a user and an assistant's long answers."""
    for path in sorted((data / "beam").glob(f"beam_{size}_*.json")):
        chat = json.loads(path.read_text("utf-8"))
        messages, places = [], {}
        at = datetime(2024, 1, 1, tzinfo=UTC)
        for entry in chat["messages"]:
            if entry.get("time_anchor"):
                at = datetime.strptime(entry["time_anchor"], "%B-%d-%Y").replace(tzinfo=UTC)
            places[entry["id"]] = len(messages)
            messages.append(Message(entry["role"], entry["content"], created_at=at))
        questions = []
        for kind, asked in chat.get("questions", {}).items():
            for question in asked if kind != "abstention" else ():
                named = _numbers(question.get("source_chat_ids", ()))
                evidence = frozenset(places[name] for name in named if name in places)
                gold = next((question[key] for key in _GOLD if key in question), None)
                answer = " ".join(question.get("rubric", ())) if gold is None else str(gold)
                if evidence:
                    questions.append(Question(question["question"], kind, answer, evidence))
        yield Chat("BEAM", path.stem, messages, questions)


def woven(chats: Sequence[Chat], *, block: int) -> Chat:
    """Give one long chat in which the given ones take turns, ``block`` messages at a time.

    So each topic comes back all along, as in a long chat, and every question is asked of it.
    """
    messages: list[Message] = []
    places: dict[tuple[int, int], int] = {}
    for begin in range(0, max(len(chat.messages) for chat in chats), block):
        for number, chat in enumerate(chats):
            for index, message in enumerate(chat.messages[begin : begin + block], begin):
                places[number, index] = len(messages)
                messages.append(message)
    questions = [
        replace(asked, evidence=frozenset(places[number, index] for index in asked.evidence))
        for number, chat in enumerate(chats)
        for asked in chat.questions
    ]
    return Chat(chats[0].corpus, f"{len(chats)} chats in turn", messages, questions)


def _numbers(nested: Any) -> Iterator[int]:
    if isinstance(nested, int):
        yield nested
    elif isinstance(nested, (list, tuple)):
        for item in nested:
            yield from _numbers(item)
    elif isinstance(nested, dict):
        yield from _numbers(list(nested.values()))
