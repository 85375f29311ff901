"""Reads the export of claude.ai: ``conversations.json``, and its projects and memories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from hiermem.errors import InvalidMessageError
from hiermem.importers.beside import files_of, words_of
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options, kind_name, name_of, objects, text_at
from hiermem.types import Message, ToolCall
from hiermem.types.message import as_list, as_mapping

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    if "chat_messages" not in value:
        yield _project(value) if "docs" in value else _memories(value)
        return
    items = items_of(value["chat_messages"], draft, lambda item: item.get("uuid"))
    yield Chat(
        items,
        value.get("uuid"),
        value.get("name"),
        value.get("created_at"),
        _parents(items),
        value.get("current_leaf_message_uuid"),
    )


def _parents(items: dict[str, Item]) -> dict[str, str | None]:
    """Return each message's parent: the named one, else the message before it in the list."""
    named = {name: text_at(item, "parent_message_uuid") for name, item in items.items()}
    if not any(parent in items for parent in named.values()):
        return dict(zip(items, [None, *items], strict=False))
    return named


def _project(value: Item) -> Chat:
    """Return a project as a conversation: its instructions, then its documents."""
    name = text_at(value, "uuid") or "project"
    items_said: list[Item] = [{"sender": "system", "text": text_at(value, "prompt_template") or ""}]
    items_said += [
        {"sender": "human", "text": "\n".join(files_of([doc])), "created_at": doc.get("created_at")}
        for doc in objects(value.get("docs"))
    ]
    items = {f"#{number}": item for number, item in enumerate(items_said)}
    return Chat(items, f"project-{name}", value.get("name"), value.get("created_at"))


def _memories(value: Item) -> Chat:
    """Return what the application remembers as a conversation."""
    texts = [value.get("conversations_memory")]
    projects = value.get("project_memories")
    texts += projects.values() if isinstance(projects, dict) else ()
    items = {
        f"#{number}": {"sender": "assistant", "text": text}
        for number, text in enumerate(texts)
        if isinstance(text, str)
    }
    return Chat(items, "claude-memories", "Memories")


def _messages(draft: Draft, chat: Chat, name: str, _options: Options) -> Iterable[Message]:
    """Return a message, in several where tools were used inside it."""
    message = chat.items[name]
    sender = message.get("sender")
    if sender == "system":
        return [Message.system(message["text"])] if message["text"] else []
    role = _ROLES.get(sender) if isinstance(sender, str) else None
    if role is None:
        raise InvalidMessageError(f"sender is {kind_name(sender)}; it must be a known one")
    content = message.get("content")
    blocks = as_list(content, where="content") if content is not None else []
    if not any((text_at(block, "text") or "").strip() for block in blocks):
        blocks = [*blocks, {"type": "text", "text": text_at(message, "text") or ""}]
    pieces = _Pieces(draft, name, role)
    for field in ("attachments", "files"):
        for item in objects(message.get(field)):
            pieces.said += files_of([item])
    for number, each in enumerate(blocks):
        with draft.reading():
            pieces.take(as_mapping(each, where=f"content[{number}]"), number)
    pieces.close()
    return pieces.found


class _Pieces:
    """The parts of one message: its texts, calls and results, as messages in their order."""

    def __init__(self, draft: Draft, name: str, role: str) -> None:
        self.found: list[Message] = []
        self.said: list[str] = []
        self._draft, self._name, self._role = draft, name, role
        self._calls: list[ToolCall] = []
        self._open: list[str] = []

    def take(self, block: dict[str, Any], number: int) -> None:
        """Take the next block."""
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            if self._calls:
                self.close()
            if block["text"].strip():
                self.said.append(block["text"])
        elif kind == "tool_use" and self._role == "assistant":
            call = _call(block, f"{self._name[:180]}-{number}")
            self._calls.append(call)
            self._open.append(call.id)
        elif kind == "tool_result":
            self.close()
            self._result(block)
        elif kind == "thinking":
            self._draft.note("reasoning left out")
        elif texts := [text for text in words_of(block) if text.strip()]:  # of speech, mostly
            self.said += texts
        elif kind not in ("token_budget", "flag"):
            self._draft.miss(f"contents of the type {kind_name(kind)} not understood")

    def _result(self, block: dict[str, Any]) -> None:
        """Add the result of the call that it names, else of the oldest one without a result."""
        named_id = block.get("tool_use_id")
        call_id = named_id if named_id in self._open else next(iter(self._open), None)
        if call_id is not None:
            self._open.remove(call_id)
        text = _result_text(self._draft, block.get("content"))
        name = name_of(block.get("name"))
        self.found.append(Message("tool", text, tool_call_id=call_id, name=name))

    def close(self) -> None:
        """End the message that is being collected."""
        text = "\n".join(self.said)
        if self._calls:
            calls = tuple(self._calls)
            self.found.append(Message.assistant(text, tool_calls=calls))
        elif text.strip():
            make = Message.user if self._role == "user" else Message.assistant
            self.found.append(make(text))
        self.said, self._calls = [], []


def _call(block: dict[str, Any], otherwise: str) -> ToolCall:
    call_id = block.get("id")
    return ToolCall(
        call_id if isinstance(call_id, str) and 0 < len(call_id) <= 200 else otherwise,
        name_of(block.get("name")) or "tool",
        json.dumps(block.get("input") or {}, ensure_ascii=False),
    )


def _result_text(draft: Draft, content: object) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif isinstance(block, dict) and block.get("type") == "knowledge":
            texts += [block[f] for f in ("title", "url") if isinstance(block.get(f), str)]
        else:
            kind = block.get("type") if isinstance(block, dict) else block
            draft.miss(f"results of the type {kind_name(kind)} not understood")
    return "\n".join(texts)


SHAPE = Shape(
    "claude",
    lambda value: (
        "chat_messages" in value
        or {"docs", "prompt_template"} <= value.keys()
        or "conversations_memory" in value
    ),
    lambda value: {"uuid", "sender", "text"} <= value.keys(),
    _chats,
    lambda messages: {"chat_messages": messages},
    _messages,
    lambda message: message.get("created_at"),
)
