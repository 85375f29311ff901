"""Reads the JSON that DiscordChatExporter writes: one channel a file."""

from __future__ import annotations

from collections.abc import Iterator

from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import (
    Draft,
    Options,
    found_at,
    moment,
    name_of,
    objects,
    role_of,
    text_at,
)
from hiermem.types import Message

#: Kinds of messages that people or bots wrote; all others are the program's.
_SPOKEN = ("Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "ContextMenuCommand",
           "0", "19", "20", "21", "23")  # fmt: skip


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    channel, guild = value.get("channel"), text_at(value, "guild.name")
    name = text_at(channel, "name")
    title = f"{guild} #{name}" if guild and name and guild != "Direct Messages" else name
    made = text_at(channel, "id")
    items = items_of(value.get("messages"), draft)
    yield Chat(items, None if made is None else f"discord-{made}", title)


def _messages(draft: Draft, chat: Chat, name: str, options: Options) -> Iterator[Message]:
    message = chat.items[name]
    if str(message.get("type", "Default")) not in _SPOKEN:
        draft.note("system lines left out")
        return
    pieces = [text_at(message, "content") or ""]
    for embed in objects(message.get("embeds")):
        pieces += [text_at(embed, field) or "" for field in ("title", "description")]
    for file in objects(message.get("attachments")):
        pieces.append(f"[file: {text_at(file, 'fileName') or '?'}]")
    pieces += [
        f"[{text_at(each, 'name') or 'sticker'}]" for each in objects(message.get("stickers"))
    ]
    text = "\n".join(piece for piece in pieces if piece.strip())
    if not text:
        draft.note("messages without text left out")
        return
    author = message.get("author")
    speaker = name_of(text_at(author, "nickname") or text_at(author, "name")) or "?"
    at = moment(message.get("timestamp"))
    yield Message(role_of(speaker, options), text, name=speaker, created_at=at)


SHAPE = Shape(
    "discord",
    lambda value: "channel" in value and isinstance(value.get("messages"), list),
    lambda value: isinstance(found_at(value, "author.id"), str) and "content" in value,
    _chats,
    lambda messages: {"messages": messages, "channel": {}},
    _messages,
    lambda message: moment(message.get("timestamp")),
)
