"""Reads conversations from files: OpenAI-style JSON and JSONL, and ``Name: text`` transcripts.

A file is read completely, or refused with the number of the wrong line. No line is skipped
silently. The module only yields messages; it opens no memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from hiermem import InvalidMessageError, Message, UsageError

#: The beginning of a transcript's message: an optional time in brackets, a name and a colon.
_SPOKEN = re.compile(
    r"^(?:\[(?P<at>\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?)\]\s*)?"
    r"(?P<name>[^\W\d_][\w.'\u2019-]*(?: [\w.'\u2019-]+){0,2}):(?:\s+|$)"
)
#: The characters of a file that are read to detect its format.
_SNIFF = 4_096
_ROLES = {
    "user": "user", "human": "user", "system": "system", "tool": "tool", "assistant": "assistant",
    "ai": "assistant", "bot": "assistant", "chatgpt": "assistant", "claude": "assistant",
}  # fmt: skip


def bundled() -> list[Message]:
    """Return the conversation that ships with the library: five weeks of building one system."""
    text = files("hiermem.data").joinpath("demo.jsonl").read_text(encoding="utf-8")
    return list(_keyed(_from_lines(text.split("\n"), name="demo.jsonl"), name="demo.jsonl"))


def read(path: Path, *, assistants: frozenset[str] = frozenset()) -> Iterator[Message]:
    """Yield the messages of a file, in order.

    A file that begins with ``{`` is JSONL, one OpenAI-style message a line, with the
    optional fields ``created_at`` (ISO 8601, or seconds since 1970), ``key`` and ``thread``; ``[``
    is a JSON list of such messages. Anything else is a transcript, in which ``assistants`` names
    the speakers that are not people. A message without a key gets one from its place in the file,
    so that reading a file again, or a longer copy of it, appends only new messages.

    Raises UsageError, with the number of the line, if a line cannot be read.
    """
    try:
        yield from _read(path, assistants)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name} is not UTF-8 text (byte {error.start})") from None


def _read(path: Path, assistants: frozenset[str]) -> Iterator[Message]:
    # Lines end at \n alone: a message may hold U+2028 or a form feed. JSONL is not read at once.
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        start = lines.read(_SNIFF).lstrip()[:1]
        lines.seek(0)
        if start == "{":
            found = _from_lines(lines, name=path.name)
        elif start == "[" and _is_json(text := lines.read()):
            found = _from_list(text, name=path.name)
        else:
            lines.seek(0)
            found = _from_transcript(lines.read(), name=path.name, assistants=assistants)
        yield from _keyed(found, name=path.name)


def _keyed(found: Iterator[tuple[Message, str]], *, name: str) -> Iterator[Message]:
    """Give each message without a key one from its place; errors name the line."""
    for number, (message, at) in enumerate(found):
        try:
            yield message if message.key else replace(message, key=f"{name}#{number}")
        except InvalidMessageError as error:
            raise UsageError(f"{at}: {error}") from None


def _is_json(text: str) -> bool:
    """Return whether a text is JSON and not a transcript that begins with a time in brackets."""
    return not _SPOKEN.match(text.lstrip().partition("\n")[0])


def _from_lines(lines: Iterable[str], *, name: str) -> Iterator[tuple[Message, str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        at = f"{name}, line {number}"
        try:
            data = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{at}: not a JSON object ({error})") from None
        yield _message(data, at=at), at


def _from_list(text: str, *, name: str) -> Iterator[tuple[Message, str]]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name}: not JSON ({error})") from None
    for number, data in enumerate(items, start=1):
        at = f"{name}, message {number}"
        yield _message(data, at=at), at


def _message(data: object, *, at: str) -> Message:
    """Return the message of one JSON object, with the fields that the OpenAI format lacks."""
    if not isinstance(data, dict):
        raise UsageError(f"{at}: a message is a JSON object, not {type(data).__name__}")
    rest = dict(cast("Mapping[str, Any]", data))
    fields: dict[str, Any] = {}
    for field in ("key", "thread"):
        if (value := rest.pop(field, None)) is not None:
            fields[field] = str(value)
    try:
        if (value := rest.pop("created_at", None)) is not None:
            fields["created_at"] = _time(value)
        return Message.from_openai(rest, **fields)
    except (UsageError, ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{at}: {error}") from None


def _time(value: object) -> datetime:
    """Parse a time; a time without a zone is UTC."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    if not isinstance(value, str):
        raise UsageError(f"created_at is {type(value).__name__}; use ISO 8601 text or seconds")
    when = datetime.fromisoformat(value)
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _from_transcript(
    text: str, *, name: str, assistants: frozenset[str]
) -> Iterator[tuple[Message, str]]:
    lines = text.split("\n")
    speakers = _speakers(lines, assistants)
    spoken: list[str] = []
    head: tuple[str, str | None, int] | None = None
    for number, line in enumerate(lines, start=1):
        found = _SPOKEN.match(line)
        if found is None or found["name"].casefold() not in speakers:
            if head is None and line.strip():
                raise UsageError(
                    f"{name}, line {number}: neither JSON nor 'Name: text'; a transcript begins "
                    "with a speaker's name and a colon"
                )
            spoken.append(line)
            continue
        if head is not None:
            yield _said(head, spoken, name=name, assistants=assistants)
        head, spoken = (found["name"], found["at"], number), [line[found.end() :]]
    if head is not None:
        yield _said(head, spoken, name=name, assistants=assistants)


def _speakers(lines: list[str], assistants: frozenset[str]) -> set[str]:
    """Return the speakers: the first name before a colon, recurring ones, and known roles."""
    found = [match["name"].casefold() for line in lines if (match := _SPOKEN.match(line))]
    often = {speaker for speaker, count in Counter(found).items() if count > 1}
    return often | set(found[:1]) | set(_ROLES) | {name.casefold() for name in assistants}


def _said(
    head: tuple[str, str | None, int], lines: list[str], *, name: str, assistants: frozenset[str]
) -> tuple[Message, str]:
    speaker, at, number = head
    known = _ROLES.get(speaker.casefold())
    named = speaker.casefold() in {each.casefold() for each in assistants}
    role = "assistant" if named else known or "user"
    where = f"{name}, line {number}"
    try:
        message = Message(
            cast("Any", role),
            "\n".join(lines).strip(),
            name=None if known else speaker,
            created_at=_time(at) if at else None,
        )
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    return message, where
