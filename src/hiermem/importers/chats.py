"""Reads the exports that hold conversations as JSON: what these formats share.

A format says how its conversations and messages look (``Shape``). The reading is the same: a
conversation or message that is damaged is counted, messages that name their parent are a tree, and
of a damaged conversation the messages that are whole are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from hiermem.errors import InvalidMessageError
from hiermem.importers.dates import moment
from hiermem.importers.draft import Draft, Opened, Options, id_of, name_of
from hiermem.importers.files import Export, Head, objects_of, torn_from
from hiermem.importers.tree import branches_of, newest_leaf
from hiermem.types import Message
from hiermem.types.message import Conversation

Item: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation before its messages are read.

    ``items`` are its messages by their ids, in order; an id that begins with ``#`` is none of the
    export's. ``parents`` gives each message's parent where the format keeps branches.
    """

    items: Mapping[str, Item]
    id: object = None
    title: object = None
    created: object = None
    parents: Mapping[str, str | None] | None = None
    current: object = None


class Shape(NamedTuple):
    """How a format's conversations look.

    ``whole`` and ``part`` tell a conversation and a message by their fields. ``chats`` takes a
    conversation apart, and ``joined`` makes one of messages without one. ``messages`` yields what
    a message holds: usually one, several where tools were used inside it. ``time`` returns its
    time as the format writes it. ``by_file`` says that a file is one conversation, which it names.
    """

    name: str
    whole: Callable[[Item], bool]
    part: Callable[[Item], bool]
    chats: Callable[[Item, Draft], Iterable[Chat]]
    joined: Callable[[list[Item]], Item]
    messages: Callable[[Draft, Chat, str, Options], Iterable[Message]]
    time: Callable[[Item], object]
    by_file: bool = False

    def wanted(self, value: Item) -> bool:
        """Return whether an object is a conversation or message of this format."""
        return self.whole(value) or self.part(value)

    def recognise(self, head: Head) -> bool:
        """Return whether one of a file's first values is a conversation or message of these."""
        return any(map(self.wanted, head.objects))

    def read(self, export: Export, options: Options) -> Iterator[Conversation]:
        """Yield each conversation, its current path first, then its other branches."""
        for place, value, torn in _wholes(self, export):
            draft = Draft(place, export.first.notes)
            try:
                chats = list(self.chats(value, draft))
            except InvalidMessageError as error:
                draft.miss("conversations that cannot be read", str(error))
                continue
            for chat in chats:
                chat_draft = Draft(place, export.first.notes)
                yield from _conversation(self, chat, chat_draft, export.stem, options, torn=torn)


def items_of(
    listed: object, draft: Draft, key: Callable[[Item], object] = lambda item: item.get("id")
) -> dict[str, Item]:
    """Return the messages of a list, or of an object's values, by their ids.

    Raises InvalidMessageError where there is neither. What is no object is counted.
    """
    if isinstance(listed, dict):
        named: Iterable[tuple[object, object]] = listed.items()
    elif isinstance(listed, list):
        named = ((key(item) if isinstance(item, dict) else None, item) for item in listed)
    else:
        raise InvalidMessageError(f"its messages are {type(listed).__name__}; they must be a list")
    items: dict[str, Item] = {}
    for number, (name, item) in enumerate(named, start=1):
        if isinstance(item, dict):
            item_id = str(name) if isinstance(name, (str, int)) else ""
            items[item_id if item_id and item_id not in items else f"#{number}"] = item
        else:
            what = f"message {number} is {type(item).__name__}; it must be a mapping"
            draft.miss("messages that cannot be read", what)
    return items


def _wholes(shape: Shape, export: Export) -> Iterator[tuple[str, Item, bool]]:
    """Yield the conversations of files, each with whether its id may be lost.

    Of one that breaks off, the members before the break and the messages are a conversation, and so
    are messages without one.
    """
    for file in export.files:
        opened, torn = Opened(), list[Item]()
        for place, value in objects_of(file, part=shape.part, whole=shape.whole):
            if shape.whole(value):
                if torn:
                    yield f"{file.name}, before {place}", _joined(shape, opened, torn), True
                opened, torn = Opened(), []
                if isinstance(value, Opened):
                    opened, torn = value, list(torn_from(value, shape.part))
                else:
                    yield place, value, False
            elif inside := list(torn_from(value, shape.part)):
                torn += inside
            else:
                file.notes.miss(f"objects that are not of the format {shape.name}", place)
        if torn:
            yield file.name, _joined(shape, opened, torn), not shape.by_file


def _joined(shape: Shape, opened: Opened, torn: list[Item]) -> Item:
    """Return messages as the conversation that breaks off with them."""
    joined = shape.joined(torn)
    return joined | opened | {n: v for n, v in joined.items() if v and isinstance(v, (dict, list))}


def _conversation(
    shape: Shape, chat: Chat, draft: Draft, stem: str, options: Options, *, torn: bool
) -> Iterator[Conversation]:
    place = draft.where

    def add(name: str) -> list[str]:
        keys: list[str] = []
        with draft.reading(f"{place}, message {numbers[name]}"):
            for number, message in enumerate(shape.messages(draft, chat, name, options)):
                at = draft.time(shape.time(chat.items[name]), options)
                own = None if name.startswith("#") else f"{name}/{number}" if number else name
                message_key = draft.add(replace(message, created_at=at), key=own)
                keys += [] if message_key is None else [message_key]
        return keys

    numbers = {name: number for number, name in enumerate(chat.items, start=1)}
    own, stem = isinstance(chat.id, str) and chat.id, "" if chat.parents else stem
    title = name_of(chat.title) or (None if own else name_of(stem))
    created = draft.time(chat.created, options)
    has_id = own or not (torn or chat.parents)
    about = Conversation(
        id_of(own, shape.name, stem) if has_id else "", title, (), format=shape.name
    )
    if chat.parents is None:
        for name in chat.items:
            add(name)
        draft.where = place
        yield from draft.finished(shape.name, about.id, about.title, created)
        return
    current = chat.current if isinstance(chat.current, str) else None
    if current not in chat.items:
        times = {n: at.timestamp() for n, i in chat.items.items() if (at := moment(shape.time(i)))}
        current = newest_leaf(chat.parents, times)
    yield from branches_of(
        draft, chat.parents, add, current=current, about=about, created=created,
        options=options,
    )  # fmt: skip
    draft.where = place
