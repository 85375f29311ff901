"""Reads the JSON of Telegram Desktop's export: of one chat, or of an account with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import (
    Draft,
    Options,
    found_at,
    kind_name,
    moment,
    name_of,
    objects,
    role_of,
    text_at,
)
from hiermem.types import Message

#: Fields that name a file; the export says in brackets where it left the file out.
_FILES = ("photo", "file", "sticker_emoji", "location_information", "contact_information", "poll")


def _is_chat(value: Item) -> bool:
    return isinstance(value.get("messages"), list) and {"type", "id"} <= value.keys()


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    if not _is_chat(value):
        for field in ("chats", "left_chats"):
            for chat in objects(found_at(value, f"{field}.list")):
                yield from _chats(chat, draft) if _is_chat(chat) else ()
        return
    name = value.get("id")
    items = items_of(value["messages"], draft)
    yield Chat(items, None if name is None else f"telegram-{name}", value.get("name"))


def _messages(draft: Draft, chat: Chat, name: str, options: Options) -> Iterator[Message]:
    message = chat.items[name]
    if message.get("type") == "service":
        draft.note("system lines left out")
        return
    if message.get("type") != "message":
        draft.miss(f"items of the type {kind_name(message.get('type'))} not understood")
        return
    text = _text(message.get("text"))
    pieces = [text] if text.strip() else []
    for field in _FILES:
        if field in message:
            what = text_at(message, "file_name") or text_at(message, "media_type") or field
            pieces.append(f"[{what.replace('_', ' ')}]")
            break
    if not pieces:
        draft.note("messages without text left out")
        return
    speaker = name_of(message.get("from")) or name_of(message.get("from_id")) or "Deleted account"
    yield Message(
        role_of(speaker, options), "\n".join(pieces), name=speaker, created_at=_time(message)
    )


def _text(given: object) -> str:
    """Return a text, which is a list where parts of it are links or bold."""
    if isinstance(given, list):
        return "".join(each if isinstance(each, str) else text_at(each, "text") or ""
                       for each in given)  # fmt: skip
    return given if isinstance(given, str) else ""


def _time(message: Item) -> datetime | None:
    return moment(message.get("date_unixtime")) or moment(message.get("date"))


SHAPE = Shape(
    "telegram",
    lambda value: (
        (_is_chat(value) and any("date" in each for each in objects(value["messages"])[:3]))
        or isinstance(found_at(value, "chats.list"), list)
    ),
    lambda value: (
        {"id", "type", "date"} <= value.keys() and ("from_id" in value or "actor_id" in value)
    ),
    _chats,
    lambda messages: {"messages": messages, "type": "torn", "id": None},
    _messages,
    _time,
)
