"""Reads the export of claude.ai: ``conversations.json`` with a list of messages each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from hiermem.importers.draft import Draft, Options, id_of, kind_name, moment, name_of, objects
from hiermem.importers.files import Export, Head, objects_of
from hiermem.importers.tree import branches_of
from hiermem.types import Message, ToolCall
from hiermem.types.conversation import Conversation
from hiermem.types.reading import as_list, as_mapping, text_of

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def recognise(head: Head) -> bool:
    """Return whether a file's first value is a conversation of this export."""
    return "chat_messages" in head.first


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield each conversation, its current path first, then its other branches."""
    for place, value in objects_of(*export.files):
        yield from _conversation(value, place, options)


def _conversation(given: dict[str, Any], place: str, options: Options) -> Iterator[Conversation]:
    listed = [
        as_mapping(each, where=f"{place}, message {number}")
        for number, each in enumerate(as_list(given.get("chat_messages"), where=place), start=1)
    ]
    messages = {
        each["uuid"] if isinstance(each.get("uuid"), str) else f"#{number}": each
        for number, each in enumerate(listed)
    }
    current = given.get("current_leaf_message_uuid")
    draft = Draft(place)
    return branches_of(
        draft,
        _parents(messages),
        lambda name: _add(draft, name, messages[name], place),
        current=current if isinstance(current, str) else None,
        about=Conversation(
            id_of(given.get("uuid"), f"claude-{next(iter(messages), place)}"),
            name_of(given.get("name")),
            (),
            format="claude",
        ),
        created=moment(given.get("created_at")),
        options=options,
    )


def _parents(messages: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    """Return each message's parent: the named one, else the message before it in the list."""
    named = {
        name: parent if isinstance(parent := m.get("parent_message_uuid"), str) else None
        for name, m in messages.items()
    }
    if not any(parent in messages for parent in named.values()):
        names = list(messages)
        return dict(zip(names, [None, *names], strict=False))
    return named


def _add(draft: Draft, name: str, message: dict[str, Any], place: str) -> list[str]:
    """Add a message, in several where tools were used inside it; return the keys."""
    where = f"{place}, a message"
    sender = text_of(message, "sender", where=where)
    role = _ROLES.get(sender)
    if role is None:
        draft.note(f"messages of the sender {kind_name(sender)} left out")
        return []
    given = message.get("content")
    blocks = as_list(given, where=f"{where}.content") if given is not None else []
    if not blocks and isinstance(message.get("text"), str):
        blocks = [{"type": "text", "text": message["text"]}]
    pieces = _Pieces(draft, name, role, moment(message.get("created_at")))
    pieces.said = _attached(message)
    for number, each in enumerate(blocks):
        pieces.take(as_mapping(each, where=f"{where}.content[{number}]"), number)
    pieces.close()
    keys = [name, *(f"{name}/{number}" for number in range(1, len(pieces.found)))]
    return [
        made
        for key, piece in zip(keys, pieces.found, strict=False)
        if (made := draft.add(piece, key=None if key.startswith("#") else key)) is not None
    ]


class _Pieces:
    """The parts of one message: its texts, calls and results, as messages in their order."""

    def __init__(self, draft: Draft, name: str, role: str, at: datetime | None) -> None:
        self.found: list[Message] = []
        self.said: list[str] = []
        self._draft, self._name, self._role, self._at = draft, name, role, at
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
            call = _call(block, f"{self._name[:180]}.{number}")
            self._calls.append(call)
            self._open.append(call.id)
        elif kind == "tool_result":
            self.close()
            self._result(block)
        elif kind == "thinking":
            self._draft.note("reasoning left out")
        elif kind not in ("token_budget", "flag"):
            self._draft.note(f"contents of the type {kind_name(kind)} not understood")

    def _result(self, block: dict[str, Any]) -> None:
        """Add the result of the call that it names, else of the oldest one without a result."""
        given = block.get("tool_use_id")
        call_id = given if given in self._open else next(iter(self._open), None)
        if call_id is not None:
            self._open.remove(call_id)
        text = _result_text(self._draft, block.get("content"))
        name = name_of(block.get("name"))
        self.found.append(Message.tool(text, tool_call_id=call_id, name=name, created_at=self._at))

    def close(self) -> None:
        """End the message that is being collected."""
        text = "\n".join(self.said)
        if self._calls:
            calls = tuple(self._calls)
            self.found.append(Message.assistant(text, tool_calls=calls, created_at=self._at))
        elif text.strip():
            make = Message.user if self._role == "user" else Message.assistant
            self.found.append(make(text, created_at=self._at))
        self.said, self._calls = [], []


def _attached(message: dict[str, Any]) -> list[str]:
    """Return the texts of attachments, and names for files that the export does not hold."""
    found: list[str] = []
    for field in ("attachments", "files"):
        for item in objects(message.get(field)):
            name = item.get("file_name") or item.get("file_uuid") or "?"
            text = item.get("extracted_content")
            found.append(f"[file: {name}]")
            if isinstance(text, str) and text.strip():
                found.append(text)
    return found


def _call(block: dict[str, Any], otherwise: str) -> ToolCall:
    given = block.get("id")
    return ToolCall(
        given if isinstance(given, str) and 0 < len(given) <= 200 else otherwise,
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
            draft.note(f"results of the type {kind_name(kind)} not understood")
    return "\n".join(texts)
