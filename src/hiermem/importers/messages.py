"""Reads messages as providers take them: OpenAI chat and Responses, Anthropic; JSON or JSONL.

A file is one conversation, a message a line or item, or holds a conversation in each line or item,
as fine-tuning files do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from hiermem.convert import from_anthropic, from_any, shape_of
from hiermem.errors import InvalidMessageError, UnreadableFileError
from hiermem.importers.draft import (
    Draft,
    Options,
    digest_of,
    id_of,
    kind_name,
    moment,
    name_of,
    zone_note,
)
from hiermem.importers.files import Export, Head, objects_of
from hiermem.types import Message
from hiermem.types.conversation import Conversation
from hiermem.types.reading import as_mapping

#: The fields that may hold a message's time; only the first must be right where it is there.
_TIMES = ("created_at", "timestamp", "create_time", "time", "date")
_IDS = ("id", "conversation_id", "session_id", "custom_id", "request_id")
#: Items that stand for nothing that was said.
_LEFT_OUT = ("reasoning", "item_reference", "compaction")
_LISTS = ("messages", "input", "output")


def recognise(head: Head) -> bool:
    """Return whether a file's first value is a message or item, or holds a list of them."""
    return _list_of(head.first) is not None or _is_message(head.first)


def _is_message(value: Mapping[str, Any]) -> bool:
    if isinstance(value.get("role"), str):
        return True
    kind = value.get("type")
    return isinstance(kind, str) and (
        "call_id" in value or kind in _LEFT_OUT or kind.endswith("_call")
    )


def _list_of(value: Mapping[str, Any]) -> Any:
    """Return the messages of a conversation, a request or a response; None for a message."""
    if isinstance(value.get("role"), str) or isinstance(value.get("type"), str):
        return None
    body = value.get("body")
    if isinstance(body, dict):  # a line of a batch
        value = body
    return next((value[f] for f in _LISTS if isinstance(value.get(f), (list, str))), None)


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file, or each of its lines or items."""
    file = export.first
    one = Draft(file.name)
    ids: Counter[str] = Counter()
    single: bool | None = None
    for place, given in objects_of(file):
        items = _list_of(given)
        if single is None:
            single = items is None
        elif single != (items is None):
            raise UnreadableFileError(
                f"{place}: the file mixes messages and lists of messages; one or the other is read"
            )
        if items is None:
            _add(one, given, place, options)
            continue
        draft = Draft(place)
        for message in _before(given, items):
            draft.add(message)
        listed = items if isinstance(items, list) else []
        for number, item in enumerate(listed):
            at = f"{place}, message {number + 1}"
            _add(draft, as_mapping(item, where=at), at, options)
        messages = draft.take(moment(given.get("created_at"), options.zone))
        if messages:
            yield Conversation(
                _named(given, export.stem, messages, ids),
                name_of(given.get("title") or given.get("name")),
                messages,
                format="messages",
                notes=draft.notes,
            )
    yield from one.finished("messages", id_of(export.stem, "messages"))


def _before(given: Mapping[str, Any], items: object) -> Iterator[Message]:
    """Yield what a request holds beside its list: the system prompt, or a text for a list."""
    body = given.get("body")
    request: Mapping[str, Any] = body if isinstance(body, dict) else given
    if isinstance(request.get("instructions"), str):
        yield Message.system(request["instructions"])
    if isinstance(request.get("system"), (str, list)):
        yield from from_anthropic({"system": request["system"], "messages": []})
    if isinstance(items, str):
        yield Message.user(items)


def _named(
    given: Mapping[str, Any], stem: str, messages: Iterable[Message], ids: Counter[str]
) -> str:
    """Return a conversation's id: the file's, else one by its messages, which a line keeps."""
    name = next((given[f] for f in _IDS if isinstance(given.get(f), str) and given[f]), None)
    if name is not None:
        return id_of(name, stem)
    found = id_of(f"{stem}-{digest_of(*(m.key or '' for m in messages))[:12]}", stem)
    ids[found] += 1
    return found if ids[found] == 1 else f"{found}-{ids[found]}"


def _add(draft: Draft, given: dict[str, Any], place: str, options: Options) -> None:
    """Add the messages of one object, with the fields that the providers' shapes lack."""
    if given.get("type") in _LEFT_OUT and "role" not in given:
        draft.note(f"items of the type {kind_name(given['type'])} left out")
        return
    draft.where = place
    at = _time(draft, given, place, options)
    key = given.pop("key", None)
    if key is None and shape_of(given) == "responses":
        key = given.get("id")
    thread = given.pop("thread", None)
    fields: dict[str, Any] = {"created_at": at}
    if thread is not None:
        fields["thread"] = id_of(str(thread), "main")
    try:
        read = from_any([given])
    except InvalidMessageError as error:
        raise UnreadableFileError(f"{place}: {error}") from None
    for number, message in enumerate(read):
        own = key if number == 0 or not isinstance(key, str) else f"{key}/{number}"
        draft.add(replace(message, **fields), key=own if own is None else str(own))


def _time(draft: Draft, given: dict[str, Any], place: str, options: Options) -> datetime | None:
    """Take the time out of an object; a created_at that is none is an error."""
    for field in _TIMES:
        if given.get(field) is None:
            continue
        at = moment(given[field], options.zone)
        if at is not None:
            zone_note(draft, options, given.pop(field))
            return at
        if field == "created_at":
            raise UnreadableFileError(
                f"{place}: created_at is no time; it must be ISO 8601 text or seconds since 1970"
            )
    given.pop("created_at", None)
    return None
