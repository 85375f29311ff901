"""Reads any JSON, JSON lines or CSV, in which the caller says where sender, text and time stand."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, cast

from hiermem.importers.beside import spoken
from hiermem.importers.dates import in_order
from hiermem.importers.draft import Draft, Options, role_of
from hiermem.importers.files import (
    Export,
    File,
    kind_of,
    lines_of,
    nested_objects,
    values_of,
)
from hiermem.importers.values import found_at, name_of
from hiermem.types import Message
from hiermem.types.message import Conversation

#: What a map may name.
FIELDS = ("sender", "text", "time", "key")
#: The fields of the objects in exports of Messenger and Instagram.
_ESCAPED = ({"sender_name", "timestamp_ms"}, {"string_map_data"}, {"string_list_data"})
_ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "user": "user", "human": "user", "system": "system", "assistant": "assistant",
    "ai": "assistant", "bot": "assistant", "model": "assistant", "gpt": "assistant",
}  # fmt: skip


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file, in the order of time where all messages have one."""
    file, fields = export.first, options.fields or {}
    draft = Draft(file.name, file.notes)
    keyed: list[tuple[Message, object]] = []
    last: datetime | None = None
    roots = {root for path in fields.values() for root in (path, path.partition(".")[0])}
    for place, item in _items(file, fields):
        with draft.reading(place):
            sender = _at(item, fields.get("sender", ""))
            at = draft.time(_at(item, fields.get("time", "")), options)
            if at is not None:
                at = last = in_order(at, last)
            role = _ROLES.get(sender.casefold()) if isinstance(sender, str) else None
            name = None if role is not None else name_of(str(sender)) if sender else "?"
            text = spoken(_text(_at(item, fields["text"])), item, roots)
            key = _at(item, fields.get("key", ""))
            if text.strip():
                message = Message(
                    role or role_of(name or "", options), text, name=name, created_at=at
                )
                keyed.append((message, None if key is None else str(key)))
            else:
                draft.note("messages without text left out")
    if all(message.created_at is not None for message, _ in keyed):
        keyed.sort(key=lambda each: cast("datetime", each[0].created_at).timestamp())
    for message, key in keyed:
        draft.add(message, key=key)
    yield from draft.named("map", export.stem)


def _items(file: File, fields: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects or rows in which the text stands where the caller says.

    An object that has a sender and a time is a message without text, if none is inside it.
    """
    text, others = fields["text"], [fields.get("sender", ""), fields.get("time", "")]
    if kind_of(file) == "text":
        yield from _rows(file)
        return

    def is_message(item: Mapping[str, Any]) -> bool:
        if isinstance(_at(item, text), (str, list)):
            return True
        named = all(_at(item, path) for path in others)
        return named and not any(_at(inner, text) for inner in nested_objects(item))

    values = list(values_of(file))
    unescape([value for _, value, _ in values])
    for place, value, _ in values:
        items = nested_objects(value, lambda _: False, is_message)
        yield from ((place, item) for item in items)


def unescape(value: object) -> None:
    """Mend the texts of Messenger and Instagram, which write each byte of UTF-8 as a character.

    Both are known by their fields, and the fault by most of the texts that are not ASCII: the
    characters of a text that is right are rarely UTF-8, if they are taken for bytes.
    """
    if not any(known <= each.keys() for each in nested_objects(value) for known in _ESCAPED):
        return
    escaped = 0
    mended: list[tuple[Any, Any, str]] = []
    pending: list[Any] = [value]
    while pending:
        container = pending.pop()
        named = container.items() if isinstance(container, dict) else enumerate(container)
        for name, inner in named:
            if isinstance(inner, (dict, list)):
                pending.append(inner)
            elif isinstance(inner, str) and not inner.isascii():
                try:
                    mended.append((container, name, inner.encode("latin-1").decode()))
                    escaped += 1
                except ValueError:
                    escaped -= 1
    for container, name, text in mended if escaped > 0 else ():
        container[name] = text


def _rows(file: File) -> Iterator[tuple[str, Mapping[str, Any]]]:
    line = ""

    def texts() -> Iterator[str]:
        nonlocal line
        for _, line in lines_of(file, ends=True):
            yield line

    lines = texts()
    head = next(lines, "")
    mark = max(",;\t", key=head.count)
    names = next(csv.reader([head], delimiter=mark), [])
    try:
        for number, row in enumerate(csv.reader(lines, delimiter=mark), start=1):
            if not line.endswith("\n") and len(row) < len(names):
                file.notes.miss("rows that are cut off", f"{file.name}, row {number}")
            elif row:
                yield f"{file.name}, row {number}", dict(zip(names, row, strict=False))
    except csv.Error as error:
        file.notes.miss("rows that are no CSV", f"{file.name}: {error}")


def _at(item: Mapping[str, Any], path: str) -> Any:
    return item[path] if path in item else found_at(item, path) if path else None


def _text(value: object) -> str:
    parts = value if isinstance(value, list) else [value]
    texts = [part if isinstance(part, str) else found_at(part, "text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
