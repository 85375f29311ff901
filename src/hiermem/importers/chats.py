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
from hiermem.importers.dates import seconds
from hiermem.importers.draft import Draft, Options, id_of
from hiermem.importers.files import Export, Head, objects_of, torn_from
from hiermem.importers.values import Opened, name_of
from hiermem.log.alignment import branch_id, lost_id
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

    def recognise(self, head: Head) -> bool:
        """Return whether one of a file's first values is a conversation or message of these."""
        return any(self.whole(value) or self.part(value) for value in head.objects)

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
                draft = Draft(place, export.first.notes)
                yield from _conversation(self, chat, draft, export.stem, options, torn=torn)


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
    """Yield a conversation: all of it, or of a tree its current path, then its other branches.

    Without an id, one is made of the first message. ``chat.created`` is the time of messages if
    none has one.
    """
    place, numbers = draft.where, {name: n for n, name in enumerate(chat.items, start=1)}
    own, stem = isinstance(chat.id, str) and chat.id, "" if chat.parents else stem
    title = name_of(chat.title) or (None if own else name_of(stem))
    created = draft.time(chat.created, options)
    base = id_of(own, shape.name, stem) if own or not (torn or chat.parents) else ""
    parents, paths = dict(chat.parents or {}), iter([list(chat.items)])
    if parents:
        base = base.replace("~", "-")  # the mark of a branch
        current = chat.current if isinstance(chat.current, str) else None
        if current not in parents:  # the newest node without children
            above = set(parents.values())
            leaves = [name for name in reversed(parents) if name not in above]
            current = max(leaves, key=lambda n: seconds(shape.time(chat.items[n])), default=None)
        parents, cut = without_circles(parents)
        if cut:
            draft.notes.miss("messages that follow themselves, read as beginnings", place, cut)
        paths = paths_of(parents, current)
    last: dict[str | None, str | None] = {}
    parent: str | None = None
    for path in filter(None, paths):
        key = after = last.get(parents.get(path[0]))
        for name in path:
            with draft.reading(f"{place}, message {numbers[name]}"):
                for number, message in enumerate(shape.messages(draft, chat, name, options)):
                    at = draft.time(shape.time(chat.items[name]), options)
                    named = None if name[:1] == "#" else f"{name}/{number}" if number else name
                    key = draft.add(replace(message, created_at=at), key=named) or key
            last[name] = key
        messages = draft.take(created)
        if not messages or (parent is not None and options.branches == "skip"):
            continue
        base = base or lost_id(shape.name, messages[0])
        yield Conversation(
            base if parent is None else branch_id(base, str(messages[0].key)), title, messages,
            format=shape.name, parent=parent, after=None if parent is None else after,
            branching=bool(parents),
        )  # fmt: skip
        parent = base


def without_circles(parents: Mapping[str, str | None]) -> tuple[dict[str, str | None], int]:
    """Return the parents with each circle cut open, and how many were.

    >>> without_circles({"a": "b", "b": "a", "c": "b"})
    ({'a': None, 'b': 'a', 'c': 'b'}, 1)
    """
    whole, cut = dict(parents), 0
    sound: set[str] = set()
    for start in whole:
        path: dict[str, None] = {}
        node: str | None = start
        while node is not None and node in whole and node not in sound:
            if node in path:
                whole[node] = None
                cut += 1
                break
            path[node] = None
            node = whole[node]
        sound.update(path)
    return whole, cut


def paths_of(parents: Mapping[str, str | None], current: str | None) -> Iterator[list[str]]:
    """Yield each node once: first the path to ``current``, then every branch, parents first.

    ``parents`` gives each node's parent; a parent that is not in the tree counts as none. No node
    is its own ancestor. Where ``current`` is not a node, the path to the last node is the first. A
    branch continues with the newest child.

    >>> list(paths_of({"a": None, "b": "a", "c": "a", "d": "c"}, "b"))
    [['a', 'b'], ['c', 'd']]
    """
    if not parents:
        return
    children: dict[str, list[str]] = {node: [] for node in parents}
    roots: list[str] = []
    for node, parent in parents.items():
        if parent is None or parent not in parents:
            roots.append(node)
        else:
            children[parent].append(node)
    path: list[str] = []
    node_at: str | None = current if current in parents else list(parents)[-1]
    while node_at is not None and node_at in parents:
        path.append(node_at)
        node_at = parents[node_at]
    path.reverse()
    yield path
    on_path = set(path)
    pending = [root for root in reversed(roots) if root not in on_path]
    for node in reversed(path):
        pending.extend(child for child in reversed(children[node]) if child not in on_path)
    while pending:
        branch = [pending.pop()]
        while below := children[branch[-1]]:
            branch.append(below[-1])
            pending.extend(reversed(below[:-1]))
        yield branch
