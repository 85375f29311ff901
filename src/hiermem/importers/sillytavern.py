"""Reads a chat of SillyTavern: JSONL with a line for the chat, then one for each message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, moment, name_of, sensible, text_at, zone_note
from hiermem.types import Message

_TIMES = ("%B %d, %Y %I:%M%p", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")
_MARKED = re.compile(r"@?(\d\d?)h ?(\d\d?)m(?: ?(\d\d?)s)?.*")


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    yield Chat(items_of(value["lines"], draft, lambda _: None))


def _messages(draft: Draft, chat: Chat, name: str, options: Options) -> Iterator[Message]:
    item = chat.items[name]
    text = text_at(item, "mes")
    if text is None:
        return
    if item.get("is_system") is True:
        draft.note("system lines left out")
        return
    at = _time(item)
    if at is not None and at.tzinfo is None:
        at = at.replace(tzinfo=options.zone)
        zone_note(draft, options)
    make = Message.user if item.get("is_user") is True else Message.assistant
    yield make(text, name=name_of(item.get("name")), created_at=at)


def _time(item: Item) -> datetime | None:
    """Return the time of a message; one of the forms of earlier versions names no zone."""
    given = item.get("send_date")
    if not isinstance(given, str) or moment(given) is not None:
        return moment(given)
    text = _MARKED.sub(lambda m: f" {int(m[1]):02}:{int(m[2]):02}:{int(m[3] or 0):02}", given)
    for form in _TIMES:
        try:
            return sensible(datetime.strptime(" ".join(text.split()), form))  # noqa: DTZ007
        except ValueError:
            continue
    return None


SHAPE = Shape(
    "sillytavern",
    lambda _: False,
    lambda value: (
        {"name", "mes", "is_user"} <= value.keys()
        or {"user_name", "character_name"} <= value.keys()
    ),
    _chats,
    lambda items: {"lines": items},
    _messages,
    lambda _: None,
)
