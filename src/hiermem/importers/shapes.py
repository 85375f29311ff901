"""Reads small JSON exports: Copilot, Open WebUI, LibreChat, SillyTavern, Telegram, Discord.

Each is a shape: by which fields it is known, where its messages and their ids stand, and who says
what in one. ``chats`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from hiermem.errors import InvalidMessageError
from hiermem.importers.beside import files_of, spoken, words_of
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, role_of
from hiermem.importers.values import found_at, kind_name, leads, name_at, name_of, objects, text_at
from hiermem.types import Message

#: Takes a message: yields the role, the name and the text of each that is said in it.
_Say: TypeAlias = Callable[[Draft, Item, Options], Iterator[tuple[str, str | None, str]]]
#: Kinds of Discord's messages that people or bots wrote; all others are the program's.
_SPOKEN = ("Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "ContextMenuCommand",
           "0", "19", "20", "21", "23")  # fmt: skip
#: Fields of Telegram's that name a file; the export says in brackets where it left the file out.
_ENCLOSED = ("photo", "file", "sticker_emoji", "location_information", "contact_information")
#: Texts that stand beside Telegram's files, places and games.
_ABOUT = ("performer", "title", "place_name", "address", "game_title", "game_description")


def _shape(
    name: str,
    say: _Say,
    part: str,
    whole: str = "",
    *,
    about: Callable[[Item], tuple[object, object]] = lambda _: (None, None),
    times: tuple[str, ...] = ("timestamp",),
    listed: tuple[str, ...] = (),
    key: str = "id",
    parent: str = "",
    inside: Callable[[Item], Iterator[Item]] = lambda value: iter((value,)),
) -> Shape:
    """Return how a format is read.

    ``part`` and ``whole`` are the fields by which a message and a conversation are known, ``about``
    returns its id and title. ``listed`` says where its messages stand if not in ``messages``;
    ``key``, ``parent`` and ``times`` are fields of these.
    """

    def chats(given: Item, draft: Draft) -> Iterator[Chat]:
        for value in inside(given):
            lists = (there for path in (*listed, "messages") if (there := found_at(value, path)))
            items = items_of(next(lists, None), draft, lambda item: item.get(key))
            pending = list(items.values())
            while pending:  # a recursive export holds the answers inside the messages
                below = objects(pending.pop().get("children"))
                pending += below
                for item in below:
                    items.setdefault(text_at(item, key) or f"#{len(items)}", item)
            parents = {own: text_at(item, parent) for own, item in items.items()}
            current = found_at(value, "chat.history.currentId")
            yield Chat(items, *about(value), value.get("created_at"), parents if parent else None,
                       current)  # fmt: skip

    def messages(draft: Draft, chat: Chat, own: str, options: Options) -> Iterator[Message]:
        for role, speaker, text in say(draft, chat.items[own], options):
            if text.strip():
                yield Message(cast("Any", role), text, name=speaker)
            else:
                draft.note("messages without text left out")

    return Shape(
        name, lambda value: _has(value, whole), lambda value: _has(value, part), chats,
        lambda items: {"messages": items}, messages,
        lambda item: next((item[name] for name in times if item.get(name)), None),
        by_file=not whole,
    )  # fmt: skip


def _has(value: Item, fields: str) -> bool:
    """Return whether a value has all the fields of one alternative."""
    return any(
        all(leads(value, path) for path in each.split()) for each in fields.split("|") if each
    )


def _copilot(draft: Draft, item: Item, _options: Options) -> Iterator[tuple[str, None, str]]:
    prompt = "".join(words_of(item.get("message"), "text"))
    variables = objects(found_at(item, "variableData.variables"))
    files = files_of([each for each in variables if not str(each.get("kind")).startswith("tool")])
    yield "user", None, "\n".join(piece for piece in (prompt, *files) if piece)
    answer: list[str] = []
    for part in objects(item.get("response")):
        if part.get("kind") in (None, "markdownContent", "markdownVuln"):
            answer.append(text_at(part, "value") or text_at(part, "content.value") or "")
        elif part["kind"] == "inlineReference":
            name = text_at(part, "name") or text_at(part, "inlineReference.name")
            answer.append(f"`{name or '?'}`")
        else:
            draft.note("steps of the program left out")
    if any(answer):
        yield "assistant", None, "".join(answer)


def _openwebui(_draft: Draft, item: Item, _options: Options) -> Iterator[tuple[str, None, str]]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system"):
        raise InvalidMessageError(f"role is {kind_name(role)}; it must be a known one")
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else text_at(part, "text") or "" for part in parts]
    yield role, None, spoken("\n".join(text for text in texts if text), item, ["content"])


def _librechat(draft: Draft, item: Item, _options: Options) -> Iterator[tuple[str, None, str]]:
    texts = [text_at(item, "text") or ""]
    for part in objects(item.get("content")):
        if part.get("type") == "text":
            texts.append(text_at(part, "text") or text_at(part, "text.value") or "")
        else:
            omitted = "reasoning" if part.get("type") == "think" else "steps of the program"
            draft.note(f"{omitted} left out")
    mine = item.get("isCreatedByUser") is True or item.get("sender") == "User"
    text = "\n".join(text for text in texts if text.strip())
    yield "user" if mine else "assistant", None, spoken(text, item)


def _sillytavern(
    draft: Draft, item: Item, _options: Options
) -> Iterator[tuple[str, str | None, str]]:
    text, kind = item.get("mes"), found_at(item, "extra.type")
    if not isinstance(text, str):
        return
    # A message that a person hid from the model is marked like the program's, which have a kind.
    notice = kind not in (None, "narrator", "comment") or item["name"] == "SillyTavern System"
    if item.get("is_system") is True and notice:
        draft.note("system lines left out")
        return
    shown = [text, text_at(item, "extra.title") or ""]
    extra = item["extra"] if isinstance(item.get("extra"), dict) else {}
    role = "user" if item.get("is_user") is True else "assistant"
    yield role, name_of(item.get("name")), spoken("\n".join(filter(None, shown)), extra)


def _telegram(draft: Draft, item: Item, options: Options) -> Iterator[tuple[str, str, str]]:
    if item.get("type") == "service":
        draft.note("system lines left out")
        return
    if item.get("type") != "message":
        draft.miss(f"items of the type {kind_name(item.get('type'))} not understood")
        return
    pieces = list(words_of(item.get("text") or item.get("text_entities"), "text"))
    if (field := next((name for name in _ENCLOSED if name in item), None)) is not None:
        what = text_at(item, "file_name") or text_at(item, "media_type") or field
        emoji = text_at(item, "sticker_emoji")
        pieces.append(f"[{what.replace('_', ' ')}{f' {emoji}' if emoji else ''}]")
    pieces += [text for name in _ABOUT if (text := text_at(item, name))]
    speaker = name_at(item, "from", "from_id") or "Deleted account"
    text = "\n".join(piece for piece in pieces if piece.strip())
    yield role_of(speaker, options), speaker, spoken(text, item, ("text", *_ENCLOSED[:3]))


def _telegrams(value: Item) -> Iterator[Item]:
    """Yield the chats of an account, or the one chat."""
    if isinstance(value.get("messages"), list):
        yield value
    for field in ("chats", "left_chats"):
        for chat in objects(found_at(value, f"{field}.list")):
            yield from _telegrams(chat)


def _discord(draft: Draft, item: Item, options: Options) -> Iterator[tuple[str, str, str]]:
    if str(item.get("type", "Default")) not in _SPOKEN:
        draft.note("system lines left out")
        return
    names = (f"author.{name}" for name in ("nickname", "global_name", "name", "username"))
    speaker = name_at(item, *names) or "?"
    text = spoken(text_at(item, "content") or "", item, ["content"])
    yield role_of(speaker, options), speaker, text or "\n".join(words_of(item))


def _channel(value: Item) -> tuple[object, object]:
    """Return the id and the title of Discord's channel."""
    guild, name = text_at(value, "guild.name"), text_at(value, "channel.name")
    channel_id = text_at(value, "channel.id")
    direct = not guild or not name or guild == "Direct Messages"
    return channel_id and f"discord-{channel_id}", name if direct else f"{guild} #{name}"


COPILOT = _shape(
    "copilot", _copilot, "requestId message response", "responderUsername requests",
    about=lambda value: (value.get("sessionId"), value.get("customTitle")),
    listed=("requests",), key="requestId",
)  # fmt: skip
OPEN_WEBUI = _shape(
    "open-webui", _openwebui, "id parentId role content", "chat.history|chat.messages",
    about=lambda value: (value.get("id"), value.get("title") or found_at(value, "chat.title")),
    listed=("chat.history.messages", "chat.messages"), parent="parentId",
)  # fmt: skip
LIBRECHAT = _shape(
    "librechat", _librechat, "messageId parentMessageId", "conversationId messages",
    about=lambda value: (value.get("conversationId"), value.get("title")),
    times=("createdAt",), key="messageId", parent="parentMessageId",
)  # fmt: skip
SILLYTAVERN = _shape(
    "sillytavern", _sillytavern, "name mes is_user|user_name character_name", key="",
    times=("send_date",),
)  # fmt: skip
TELEGRAM = _shape(
    "telegram", _telegram, "id type date from_id|id type date actor_id",
    "id type messages.date|chats.list",
    about=lambda value: (f"telegram-{value['id']}" if "id" in value else None, value.get("name")),
    times=("date_unixtime", "date"), inside=_telegrams,
)  # fmt: skip
DISCORD = _shape(
    "discord", _discord, "author.id content", "channel messages", about=_channel
)  # fmt: skip
