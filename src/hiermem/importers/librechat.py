"""Reads a conversation that LibreChat exported as JSON, a tree of messages."""

from __future__ import annotations

from collections.abc import Iterator

from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, moment, objects, text_at
from hiermem.types import Message


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    items = items_of(value.get("messages"), draft, lambda item: item.get("messageId"))
    pending = list(items.values())
    while pending:  # a recursive export holds the answers inside the messages
        below = objects(pending.pop().get("children"))
        pending += below
        for item in below:
            items.setdefault(text_at(item, "messageId") or f"#{len(items)}", item)
    parents = {name: text_at(item, "parentMessageId") for name, item in items.items()}
    yield Chat(items, value.get("conversationId"), value.get("title"), None, parents)


def _messages(draft: Draft, chat: Chat, name: str, _options: Options) -> Iterator[Message]:
    item = chat.items[name]
    pieces = [text_at(item, "text") or ""]
    for part in objects(item.get("content")):
        if part.get("type") == "text":
            pieces.append(text_at(part, "text") or text_at(part, "text.value") or "")
        elif part.get("type") == "think":
            draft.note("reasoning left out")
        else:
            draft.note("steps of the program left out")
    pieces += [f"[file: {text_at(f, 'filename') or '?'}]" for f in objects(item.get("files"))]
    text = "\n".join(piece for piece in pieces if piece.strip())
    if text:
        mine = item.get("isCreatedByUser") is True or item.get("sender") == "User"
        make = Message.user if mine else Message.assistant
        yield make(text, created_at=moment(item.get("createdAt")))


SHAPE = Shape(
    "librechat",
    lambda value: "conversationId" in value and isinstance(value.get("messages"), list),
    lambda value: {"messageId", "parentMessageId"} <= value.keys(),
    _chats,
    lambda items: {"messages": items},
    _messages,
    lambda item: moment(item.get("createdAt")),
)
