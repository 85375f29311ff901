"""Decides what a model reads when it consolidates, and how its answer is read.

Text from notes and files appears only between marks that it cannot contain, and each note is on a
line of its own with its number, so that no note passes for another or for an instruction. Parts
that seldom change come first, because providers' prompt caches reward that.

An answer has the published format: the files that change, each whole, and the new synthesis. It may
name notes by the numbers under which they were shown: those that went into a file, and those that
go into none, each with a reason. Unambiguous mistakes are mended: ``null`` for an omitted field, a
single number in place of a list. ``action`` is only a wish; the file's content and its existence
decide. The schema is closed, and every list and text has a bound. Nothing here looks at the bank;
``files`` decides whether an answer fits it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, Field, StrictInt

from hiermem.bank.records import BankState
from hiermem.bank.said import is_said
from hiermem.calls.answers import MAX_ANSWER, read_object, validated
from hiermem.calls.limits import request_tokens
from hiermem.prompts.template import PromptTemplate, fill, marked
from hiermem.protocols import ChatMessage, LLMRequest, TokenCounter
from hiermem.summaries.inputs import Count
from hiermem.text.measure import canonical_json, day
from hiermem.types.bank import BankText, Note
from hiermem.types.trivector import closed_schema

#: The most files of one answer.
MOST_FILES: Final = 128
_MOST_NOTES: Final = 10_000
_LONGEST_NAME: Final = 512
_LONGEST_REASON: Final = 4_096
_Text: TypeAlias = Annotated[str, Field(max_length=MAX_ANSWER)]
_Number: TypeAlias = Annotated[StrictInt, Field(ge=1, le=_MOST_NOTES)]
#: Tokens reserved for the text that a repair adds.
REPAIR_ROOM: Final = 320
#: The longest agent, category or tag that is shown, and the most tags.
_LONGEST: Final = 120
_MOST_TAGS: Final = 16
#: The most refused lines that the model is shown again.
_MOST_LINES: Final = 6
_ANONYMOUS: Final = "agent"


@dataclass(frozen=True, slots=True)
class NoteBatch:
    """One request, its notes, and the ``bank`` that it shows.

    ``id`` is the id of its journal entries. ``limit`` is the most tokens of the prompt, a repair
    included. The files of a space that learns have at most ``file_tokens`` each and ``page_tokens``
    in all.
    """

    id: str
    notes: tuple[Note, ...]
    request: LLMRequest
    input_tokens: int
    bank: BankState
    limit: int | None
    file_tokens: int
    page_tokens: int


def request(
    template: PromptTemplate,
    bank: BankText,
    *,
    counter: TokenCounter,
    max_tokens: int,
    temperature: float = 0.0,
) -> LLMRequest:
    """Make the request to take the notes of ``bank`` into its files."""
    notes = list(enumerate(bank.notes, start=1))
    values = {
        "rules": "\n" + marked("rules", bank.rules) + (bank.learning and f"\n{bank.learning}"),
        "files": "".join(file_shown(name, text) for name, text in bank.files),
        "missing": "".join(file_shown(name, text) for name, text in bank.missing),
        "synthesis": "\n" + marked("synthesis", bank.synthesis) if bank.synthesis else "",
        "count": f"{len(notes)} note{'' if len(notes) == 1 else 's'}",
        "period": _period(bank.notes),
        "record": "\n" + marked("notes", _notes_shown(notes)),
    }
    return LLMRequest(
        task="consolidate",
        messages=fill(template, values),
        inputs=(),
        target_tokens=max_tokens,
        max_tokens=max_tokens,
        counter=counter,
        style="bank",
        temperature=temperature,
        schema=answer_schema(),
        bank=bank,
    )


def repair(
    messages: Sequence[ChatMessage], wrong: Iterable[str], *, count: Count, limit: int | None
) -> tuple[ChatMessage, ...]:
    """Return a prompt that asks again and names the faults, in at most ``limit`` tokens.

    If not everything fits, the last faults are omitted.
    """
    *before, last = messages
    named = [f"\n- {fault}" for fault in wrong]
    for shown in range(len(named), -1, -1):
        asked = (
            f"An earlier answer could not be used:{''.join(named[:shown])}\n"
            "Answer again with one complete JSON object that has the fields named above, and "
            "nothing before or after it."
        )
        repaired = (*before, ChatMessage(last.role, f"{last.content}\n\n{asked}"))
        if limit is None or tokens(repaired, count) <= limit:
            return repaired
    return tuple(messages)


def fault(complaint: str, lines: Sequence[str]) -> str:
    """Write what is wrong with an answer and, as the model sees no earlier answer, which lines."""
    named = "".join(f"\n  {_short(line)}" for line in lines[:_MOST_LINES])
    return f"{complaint}:{named}" if named else complaint


def tokens(messages: Sequence[ChatMessage], count: Count) -> int:
    """Count a request with its schema."""
    return request_tokens(messages, count) + count(canonical_json(answer_schema()))


def _notes_shown(notes: Iterable[tuple[int, Note]]) -> str:
    """Write the notes; of those that are messages, each day stands once, above them."""
    shown, last = "", ""
    for number, note in notes:
        today = day(note.timestamp.astimezone(UTC)) if is_said(note) else ""
        shown += f"[{today}]\n" * (today not in ("", last)) + note_line(number, note)
        last = today
    return shown


def note_line(number: int, note: Note) -> str:
    """Write one note as its line; further lines of its text are indented."""
    if is_said(note):
        who = (_short(note.agent) or _ANONYMOUS) + f' after ("{note.context}")' * bool(note.context)
        return f"#{number} {who}: {_indented(note.text)}\n"
    time = f"{note.timestamp.astimezone(UTC):%Y-%m-%d %H:%M}"
    category = f" [{_short(note.category)}]" if note.category.strip() else ""
    tags = ", ".join(_short(tag) for tag in note.tags[:_MOST_TAGS])
    who = f"{_short(note.agent) or _ANONYMOUS}{category}{f' ({tags})' if tags else ''}"
    return f"#{number} {time} {who}: {_indented(note.text)}\n"


def _indented(text: str) -> str:
    # Every kind of line end counts; otherwise the next line could pass for another note.
    return "\n  ".join(text.splitlines())


def file_shown(name: str, text: str) -> str:
    """Write a file that an answer may write anew."""
    return "\n" + marked("file", text.rstrip("\n"), name=name)


class FileAnswer(BaseModel, frozen=True, extra="forbid"):
    """One file: ``content`` is its whole new text, ``notes`` are those that went into it."""

    filename: Annotated[str, Field(max_length=_LONGEST_NAME)]
    content: _Text = ""
    action: Literal["created", "updated"] = "updated"
    notes: Annotated[tuple[_Number, ...], Field(max_length=_MOST_NOTES)] = ()


class DropAnswer(BaseModel, frozen=True, extra="forbid"):
    """Notes that go into no file, and the reason."""

    notes: Annotated[tuple[_Number, ...], Field(max_length=_MOST_NOTES)]
    reason: Annotated[str, Field(max_length=_LONGEST_REASON)]


class BankAnswer(BaseModel, frozen=True, extra="forbid"):
    """An answer: the files that change, the notes that go into none, and the new synthesis."""

    bank_files: Annotated[tuple[FileAnswer, ...], Field(max_length=MOST_FILES)]
    dropped: Annotated[tuple[DropAnswer, ...], Field(max_length=_MOST_NOTES)] = ()
    synthesis: _Text

    @property
    def names_notes(self) -> bool:
        """Return whether the answer names any note; if not, it is about all of them."""
        return bool(self.dropped) or any(file.notes for file in self.bank_files)


def read_answer(text: str) -> BankAnswer:
    """Read a model's text as an answer. Raises InvalidAnswerError."""
    return read_object(text, _read)


def answer_schema() -> dict[str, Any]:
    """Return the JSON schema of an answer: every field is required and no other is allowed."""
    schema: dict[str, Any] = json.loads(_schema())
    return schema


def _read(value: dict[str, Any]) -> BankAnswer:
    """Mend, in place, mistakes that can mean one thing only, and check the rest."""
    _leave_out(value, "dropped")
    files = value.get("bank_files")
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict):
            _leave_out(file, "content", "notes")
            file["action"] = "updated"
            _listed(file)
    drops = value.get("dropped")
    for drop in drops if isinstance(drops, list) else ():
        if isinstance(drop, dict):
            if "note" in drop:
                drop.setdefault("notes", drop.pop("note"))
            _listed(drop)
    return validated(value, BankAnswer)


def _listed(item: dict[str, Any]) -> None:
    if isinstance(item.get("notes"), int):
        item["notes"] = [item["notes"]]


def _leave_out(item: dict[str, Any], *names: str) -> None:
    """Remove fields that are ``null``."""
    for name in names:
        if item.get(name, ...) is None:
            del item[name]


@cache
def _schema() -> str:
    """Return the schema as JSON, made once, because making it takes milliseconds."""
    return closed_schema(BankAnswer)


def _period(notes: Sequence[Note]) -> str:
    if not notes:
        return ""
    days = [day(note.timestamp.astimezone(UTC)) for note in (notes[0], notes[-1])]
    return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"


def _short(name: str) -> str:
    """Write a name on one short line."""
    return " ".join(name.split())[:_LONGEST]
