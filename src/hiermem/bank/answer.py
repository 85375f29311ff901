"""Defines a model's answer to a consolidation, and reads it.

An answer has the published format: the files that change, each whole, and the new synthesis. It may
name notes by the numbers under which they were shown: those that went into a file, and those that
go into none, each with a reason. Unambiguous mistakes are mended: ``null`` for a field that is left
out, a single number in place of a list. ``action`` is a wish: whatever it says, what the file
brings and whether it is there decide. The schema is closed, and every list and text has a bound.

Nothing here looks at the bank; ``files`` decides whether an answer fits it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from hiermem.calls.bounded_json import MAX_ANSWER, read_object, validated
from hiermem.types.trivector import closed_schema

#: The most files of one answer.
MOST_FILES: Final = 128
_MOST_NOTES: Final = 10_000
_LONGEST_NAME: Final = 512
_LONGEST_REASON: Final = 4_096

_Text: TypeAlias = Annotated[str, Field(max_length=MAX_ANSWER)]
_Number: TypeAlias = Annotated[StrictInt, Field(ge=1, le=_MOST_NOTES)]


class _AnswerPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileAnswer(_AnswerPart):
    """One file: ``content`` is its whole new text, ``notes`` are those that went into it."""

    filename: Annotated[str, Field(max_length=_LONGEST_NAME)]
    content: _Text = ""
    action: Literal["created", "updated"] = "updated"
    notes: Annotated[tuple[_Number, ...], Field(max_length=_MOST_NOTES)] = ()


class DropAnswer(_AnswerPart):
    """A note that goes into no file, and the reason."""

    note: _Number
    reason: Annotated[str, Field(max_length=_LONGEST_REASON)]


class BankAnswer(_AnswerPart):
    """An answer: the files that change, the notes that go into none, and the new synthesis."""

    bank_files: Annotated[tuple[FileAnswer, ...], Field(max_length=MOST_FILES)]
    dropped: Annotated[tuple[DropAnswer, ...], Field(max_length=_MOST_NOTES)] = ()
    synthesis: _Text

    @property
    def names_notes(self) -> bool:
        """Whether the answer names any note; if not, it speaks of all of them."""
        return bool(self.dropped) or any(file.notes for file in self.bank_files)


def answer_schema() -> dict[str, Any]:
    """Return the JSON schema of an answer: every field is required and no other is allowed."""
    schema: dict[str, Any] = json.loads(_schema())
    return schema


@cache
def _schema() -> str:
    """Return the schema as JSON. It is made once, since making it takes milliseconds."""
    return closed_schema(BankAnswer)


def read_answer(text: str) -> BankAnswer:
    """Read a model's text as an answer. Raises InvalidAnswerError with what is wrong."""
    return read_object(text, _read)


def _read(value: dict[str, Any]) -> BankAnswer:
    """Mend, in place, mistakes that can mean one thing only, and check the rest."""
    _leave_out(value, "dropped")
    files = value.get("bank_files")
    for file in files if isinstance(files, list) else ():
        if isinstance(file, dict):
            _leave_out(file, "content", "notes")
            file["action"] = "updated"
            if isinstance(file.get("notes"), int):
                file["notes"] = [file["notes"]]
    return validated(value, BankAnswer)


def _leave_out(item: dict[str, Any], *names: str) -> None:
    """Treat a field that is ``null`` as left out."""
    for name in names:
        if item.get(name, ...) is None:
            del item[name]
