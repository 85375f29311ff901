"""Reads the chats that Open WebUI exports as JSON, each a tree of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from hiermem.errors import InvalidMessageError
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, found_at, kind_name, moment, objects, text_at
from hiermem.types import Message

_ROLES = ("user", "assistant", "system")


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    history = found_at(value, "chat.history.messages")
    items = items_of(history or found_at(value, "chat.messages"), draft)
    yield Chat(
        items,
        value.get("id"),
        value.get("title") or found_at(value, "chat.title"),
        moment(value.get("created_at")),
        {name: text_at(item, "parentId") for name, item in items.items()},
        found_at(value, "chat.history.currentId"),
    )


def _messages(_draft: Draft, chat: Chat, name: str, _options: Options) -> Iterator[Message]:
    item = chat.items[name]
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise InvalidMessageError(f"role is {kind_name(role)}; it must be a known one")
    parts = content if isinstance(content, list) else [content]
    pieces = [part if isinstance(part, str) else text_at(part, "text") or "" for part in parts]
    pieces += [f"[file: {text_at(f, 'name') or '?'}]" for f in objects(item.get("files"))]
    text = "\n".join(piece for piece in pieces if piece)
    if text.strip():
        yield Message(cast("Any", role), text, created_at=moment(item.get("timestamp")))


SHAPE = Shape(
    "open-webui",
    lambda value: (
        isinstance(found_at(value, "chat.messages"), list)
        or isinstance(found_at(value, "chat.history"), dict)
    ),
    lambda value: {"id", "parentId", "role", "content"} <= value.keys(),
    _chats,
    lambda items: {"chat": {"messages": items}},
    _messages,
    lambda item: moment(item.get("timestamp")),
)
