"""Reads any JSON, JSON lines or CSV, in which the caller says where sender, text and time stand."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, cast

from hiermem.importers.draft import (
    Draft,
    Options,
    found_at,
    id_of,
    moment,
    name_of,
    role_of,
    zone_note,
)
from hiermem.importers.files import Export, File, kind_of, lines_of, values_of
from hiermem.types import Message
from hiermem.types.message import Conversation

#: What a map may name.
FIELDS = ("sender", "text", "time", "key")
_ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "user": "user", "human": "user", "system": "system", "assistant": "assistant",
    "ai": "assistant", "bot": "assistant", "model": "assistant", "gpt": "assistant",
}  # fmt: skip


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file, in the order of time where all messages have one."""
    file, fields = export.first, options.fields or {}
    draft = Draft(file.name, file.notes)
    found: list[tuple[Message, object]] = []
    for place, item in _items(file, fields["text"]):
        with draft.reading(place):
            sender = _at(item, fields.get("sender", ""))
            when = _at(item, fields.get("time", ""))
            at = moment(when, options.zone)
            if when is not None and at is None:
                draft.miss("times not understood")
            elif when is not None:
                zone_note(draft, options, when)
            role = _ROLES.get(sender.casefold()) if isinstance(sender, str) else None
            name = None if role is not None else name_of(str(sender)) if sender else "?"
            text = _text(_at(item, fields["text"]))
            key = _at(item, fields.get("key", ""))
            if text.strip():
                message = Message(
                    role or role_of(name or "", options), text, name=name, created_at=at
                )
                found.append((message, None if key is None else str(key)))
    if all(message.created_at is not None for message, _ in found):
        found.sort(key=lambda each: cast("datetime", each[0].created_at))
    for message, key in found:
        draft.add(message, key=key)
    yield from draft.finished("map", id_of(None, "map", export.stem), name_of(export.stem))


def _items(file: File, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects or rows in which the text stands where the caller says."""
    if kind_of(file) == "text":
        yield from _rows(file)
        return
    for place, value, _ in values_of(file):
        pending = [value]
        while pending:
            each = pending.pop()
            if isinstance(each, dict) and isinstance(_at(each, text), (str, list)):
                yield place, each
            elif isinstance(each, (dict, list)):
                pending.extend(reversed(list(each.values()) if isinstance(each, dict) else each))


def _rows(file: File) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lines = (f"{line}\n" for _, line in lines_of(file))
    head = next(lines, "")
    mark = max(",;\t", key=head.count)
    names = next(csv.reader([head], delimiter=mark), [])
    try:
        for number, row in enumerate(csv.reader(lines, delimiter=mark), start=1):
            if row:
                yield f"{file.name}, row {number}", dict(zip(names, row, strict=False))
    except csv.Error as error:
        file.notes.miss("rows that are no CSV", f"{file.name}: {error}")


def _at(item: Mapping[str, Any], path: str) -> Any:
    return item[path] if path in item else found_at(item, path) if path else None


def _text(given: object) -> str:
    parts = given if isinstance(given, list) else [given]
    texts = [part if isinstance(part, str) else found_at(part, "text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
