"""Defines a model's answer to a consolidation, and reads it.

A file is answered whole or as section edits. Each file names the notes that it takes in, by the
numbers under which they were shown, and a note that goes into no file may be dropped by name with
a reason. A note that is named nowhere stays as it is. The schema is closed, and every list and text
has a bound. Unambiguous mistakes are mended: ``null`` for a field that is left out, another form of
an operation's name, a single number in place of a list. ``action`` is a wish: whatever it says,
what the file brings and whether it is there decide.

The published format of an answer is read too: ``bank_files``, each with ``filename``, ``content``
and ``action``. It names no notes.

Nothing here looks at the bank; ``files`` decides whether an answer fits it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from hiermem.core.calls.bounded_json import MAX_ANSWER, read_object, validated
from hiermem.types.json_schema import closed_schema

#: The most files of one answer, and the most edits of one file.
MOST_FILES: Final = 128
MOST_EDITS: Final = 256
_MOST_NOTES: Final = 10_000
_LONGEST_NAME: Final = 512
LONGEST_HEADING: Final = 1_024
_LONGEST_REASON: Final = 4_096

Action: TypeAlias = Literal["create", "update", "edit"]
Operation: TypeAlias = Literal["replace", "append", "insert", "delete"]
_OPERATIONS: Final = {
    "replaced": "replace", "appended": "append", "add": "append", "inserted": "insert",
    "deleted": "delete", "remove": "delete",
}  # fmt: skip

_Text: TypeAlias = Annotated[str, Field(max_length=MAX_ANSWER)]
_Heading: TypeAlias = Annotated[str, Field(max_length=LONGEST_HEADING)]
_Number: TypeAlias = Annotated[StrictInt, Field(ge=1, le=_MOST_NOTES)]


class _AnswerPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SectionEdit(_AnswerPart):
    """One change of one section, found by its heading.

    ``replace`` puts ``text`` in place of what the section says, ``append`` at its end; ``insert``
    makes a new section ``heading`` after the section ``after`` ("" is the end of the file);
    ``delete`` removes the section and says why in ``reason``.
    """

    operation: Operation
    heading: _Heading
    text: _Text = ""
    after: _Heading = ""
    reason: Annotated[str, Field(max_length=_LONGEST_REASON)] = ""


class FileAnswer(_AnswerPart):
    """The change of one file: ``content`` is the whole new text, ``edits`` change sections."""

    name: Annotated[str, Field(max_length=_LONGEST_NAME)]
    action: Action = "update"
    content: _Text = ""
    edits: Annotated[tuple[SectionEdit, ...], Field(max_length=MOST_EDITS)] = ()
    notes: Annotated[tuple[_Number, ...], Field(max_length=_MOST_NOTES)] = ()


class DropAnswer(_AnswerPart):
    """A note that goes into no file, and the reason."""

    note: _Number
    reason: Annotated[str, Field(max_length=_LONGEST_REASON)]


class BankAnswer(_AnswerPart):
    """An answer: the files that change, the notes that go into none, and the new synthesis."""

    files: Annotated[tuple[FileAnswer, ...], Field(max_length=MOST_FILES)]
    dropped: Annotated[tuple[DropAnswer, ...], Field(max_length=_MOST_NOTES)] = ()
    synthesis: _Text


class PublishedAnswer(BankAnswer):
    """An answer in the published format: its files take in all notes, and none by name."""


def answer_schema() -> dict[str, Any]:
    """Return the JSON schema of an answer: every field is required and no other is allowed."""
    schema: dict[str, Any] = json.loads(_schema())
    return schema


@cache
def _schema() -> str:
    """Return the schema as JSON. It is made once, since making it takes milliseconds."""
    return closed_schema(BankAnswer)


def read_answer(text: str) -> BankAnswer:
    """Read a model's text as an answer. Raises InvalidAnswerError with what is wrong and if."""
    return read_object(text, _read)


def _read(value: dict[str, Any]) -> BankAnswer:
    published = _translated(value)
    _mend(value)
    return validated(value, PublishedAnswer if published else BankAnswer)


def _translated(answer: dict[str, Any]) -> bool:
    """Turn the published names of fields into those of the schema, in place; say if they were.

    An answer with the published names that names notes nevertheless is read like any other.
    """
    if "bank_files" not in answer or "files" in answer:
        return False
    answer["files"] = answer.pop("bank_files")
    files = _objects(answer, "files")
    for file in files:
        if "filename" in file and "name" not in file:
            file["name"] = file.pop("filename")
    return not any(file.get("notes") for file in files)


def _mend(answer: dict[str, Any]) -> None:
    """Mend, in place, mistakes that can mean one thing only."""
    _left_out(answer, "dropped")
    for file in _objects(answer, "files"):
        _left_out(file, "content", "edits", "notes")
        file["action"] = "edit" if file.get("edits") else "update"
        for edit in _objects(file, "edits"):
            _left_out(edit, "text", "after", "reason")
            _word(edit, "operation", _OPERATIONS)
        if isinstance(file.get("notes"), int):
            file["notes"] = [file["notes"]]


def _objects(holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = holder.get(name)
    if not isinstance(found, list):
        return []
    return [each for each in found if isinstance(each, dict)]


def _left_out(item: dict[str, Any], *names: str) -> None:
    """Treat a field that is ``null`` as left out."""
    for name in names:
        if item.get(name, ...) is None:
            del item[name]


def _word(item: dict[str, Any], name: str, known: dict[str, str]) -> None:
    value = item.get(name)
    if isinstance(value, str) and len(value) < 20:
        word = value.strip().casefold()
        item[name] = known.get(word, word)
