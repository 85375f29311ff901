"""Reads messages as providers take them: OpenAI chat and Responses, Anthropic; JSON or JSONL.

A file is one conversation, a message a line or item, or holds a conversation in each line or item,
as fine-tuning files do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from hiermem.convert import from_anthropic, from_any, shape_of
from hiermem.errors import InvalidMessageError
from hiermem.importers.dates import moment
from hiermem.importers.draft import Draft, Options, id_of
from hiermem.importers.files import Export, File, Head, objects_of
from hiermem.importers.values import Opened, kind_name, name_of, objects, text_at
from hiermem.log.alignment import lost_id
from hiermem.types import Message
from hiermem.types.message import Conversation, as_mapping

#: The fields that may hold a message's time; only in the first it must be one.
_TIMES = ("created_at", "timestamp", "create_time", "time", "date")
_IDS = ("id", "conversation_id", "session_id", "custom_id", "request_id")
_ROLES = ("user", "assistant", "system", "developer", "tool", "function")
#: Items that stand for nothing that was said.
_LEFT_OUT = ("reasoning", "item_reference", "compaction")
#: The types of the Responses interface's items that name no role.
_ITEM = re.compile(r"\w+_call(?:_output)?|mcp_\w+|message")
_LISTS = ("messages", "input", "output")


def recognise(head: Head) -> bool:
    """Return whether one of a file's first values is a message or item, or holds a list of them."""
    return any(_is_message(each) or _listed(each) for each in head.objects)


def _is_message(value: Mapping[str, Any]) -> bool:
    """Return whether a value is a message: by a role that is known, or by the type of an item."""
    role, kind = value.get("role"), value.get("type")
    if isinstance(role, str):
        return role in _ROLES and ("content" in value or "tool_calls" in value)
    return isinstance(kind, str) and (kind in _LEFT_OUT or _ITEM.fullmatch(kind) is not None)


def _listed(value: Mapping[str, Any]) -> bool:
    """Return whether a value holds a list in which a message is, or a request's one text."""
    items = _list_of(value)
    if isinstance(items, str):
        return bool(items) and ("model" in value or "body" in value)
    if isinstance(value, Opened) and items == []:
        return True
    return any(map(_is_message, objects(items)))


def _list_of(value: Mapping[str, Any]) -> Any:
    """Return the messages of a conversation, a request or a response; None for a message."""
    if isinstance(value.get("role"), str) or isinstance(value.get("type"), str):
        return None
    body = value.get("body")
    if isinstance(body, dict):  # a line of a batch
        value = body
    return next((value[f] for f in _LISTS if isinstance(value.get(f), (list, str))), None)


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the conversation of the messages in the file, and that of each list of messages."""
    file = export.first
    one = Draft(file.name, file.notes)
    ids: Counter[str] = Counter()
    for place, given, items in _lists(file):
        if given is None:
            _add(one, items[0], place, options)
            continue
        draft = Draft(place, file.notes)
        with draft.reading():
            for message in _before(given, _list_of(given)):
                draft.add(message)
        for number, item in enumerate(items, start=1):
            _add(draft, item, f"{place}, message {number}", options)
        if messages := draft.take(draft.time(given.get("created_at"), options)):
            session_id = _named(given, export.stem, messages, ids)
            title = name_of(given.get("title") or given.get("name") or export.stem)
            yield Conversation(session_id, title, messages, format="messages")
    yield from one.named("messages", export.stem)


def _lists(file: File) -> Iterator[tuple[str, dict[str, Any] | None, Sequence[Any]]]:
    """Yield each conversation with its messages; those without one with None.

    What follows the beginning of a conversation that breaks off is its own.
    """
    opened: dict[str, Any] | None = None
    where, torn = "", list[Any]()
    for place, given in objects_of(file, part=_is_message, whole=_listed):
        if opened is not None and (place != where or _listed(given)):
            yield where, opened, torn
            opened, torn = None, []
        if isinstance(given, Opened):
            where, opened = place, given
        elif _listed(given):
            items = _list_of(given)
            yield place, given, items if isinstance(items, list) else []
        elif opened is not None:
            torn.append(given)
        else:
            yield place, None, [given]
    if opened is not None:
        yield where, opened, torn


def _before(value: Mapping[str, Any], items: object) -> Iterator[Message]:
    """Yield what a request holds beside its list: the system prompt, or a text for a list."""
    body = value.get("body")
    request: Mapping[str, Any] = body if isinstance(body, dict) else value
    if isinstance(request.get("instructions"), str):
        yield Message.system(request["instructions"])
    if isinstance(request.get("system"), (str, list)):
        yield from from_anthropic({"system": request["system"], "messages": []})
    if isinstance(items, str):
        yield Message.user(items)


def _named(
    value: Mapping[str, Any], stem: str, messages: Sequence[Message], ids: Counter[str]
) -> str:
    """Return a conversation's id: the file's, else one by its messages, which a line keeps."""
    name = next((value[f] for f in _IDS if isinstance(value.get(f), str) and value[f]), None)
    if name is not None:
        return id_of(name, "messages", stem)
    if isinstance(value, Opened):
        return lost_id("messages", messages[0])
    session_id = id_of(None, "messages", "\n".join((stem, *(m.key or "" for m in messages))))
    ids[session_id] += 1
    return session_id if ids[session_id] == 1 else f"{session_id}-{ids[session_id]}"


def _add(draft: Draft, value: object, place: str, options: Options) -> None:
    """Add the messages of one object, with the fields that the providers' shapes lack."""
    with draft.reading(place):
        given = as_mapping(value, where="message")
        if given.get("type") in _LEFT_OUT and "role" not in given:
            draft.note(f"items of the type {kind_name(given['type'])} left out")
            return
        if not _is_message(given):
            what = "role" if isinstance(given.get("role"), str) else "type"
            raise InvalidMessageError(f"{what} is {kind_name(given.get(what))}; it is not known")
        words = text_at(given, "audio.transcript") or text_at(given, "refusal")
        if words is not None and not given.get("content"):
            given["content"] = words
        at = _time(draft, given, options)
        key = given.pop("key", None)
        if key is None and shape_of(given) == "responses":
            key = given.get("id")
        thread = given.pop("thread", None)
        fields: dict[str, Any] = {"created_at": at}
        if thread is not None:
            fields["thread"] = id_of(str(thread), "main")
        for number, message in enumerate(from_any([given])):
            sub_key = key if number == 0 or not isinstance(key, str) else f"{key}/{number}"
            draft.add(replace(message, **fields), key=None if sub_key is None else str(sub_key))


def _time(draft: Draft, fields: dict[str, Any], options: Options) -> datetime | None:
    """Take the time out of an object."""
    for field in _TIMES:
        if fields.get(field) is None:
            continue
        if moment(fields[field]) is not None:
            return draft.time(fields.pop(field), options)
        if field == "created_at":
            draft.miss("times not understood")
        elif isinstance(fields[field], (str, int, float)):
            draft.note(f"times in '{field}' not understood")
    fields.pop("created_at", None)
    return None
