"""Reads the export of claude.ai: ``conversations.json``, and its projects and memories."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from hiermem.errors import InvalidMessageError
from hiermem.importers.beside import files_of, words_of
from hiermem.importers.chats import Chat, Item, Shape, items_of
from hiermem.importers.draft import Draft, Options
from hiermem.importers.values import found_at, kind_name, name_of, objects, text_at
from hiermem.types import Message, ToolCall
from hiermem.types.message import as_list, as_mapping

_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def _chats(value: Item, draft: Draft) -> Iterator[Chat]:
    if "chat_messages" not in value:
        yield _project(value) if "docs" in value else _memories(value)
        return
    items = items_of(value["chat_messages"], draft, lambda item: item.get("uuid"))
    parents = {name: text_at(item, "parent_message_uuid") for name, item in items.items()}
    if not any(parent in items for parent in parents.values()):
        parents = dict(zip(items, [None, *items], strict=False))
    current = value.get("current_leaf_message_uuid")
    yield Chat(
        items, value.get("uuid"), value.get("name"), value.get("created_at"), parents, current
    )


def _project(value: Item) -> Chat:
    """Return a project as a conversation: its instructions, then its documents."""
    name = text_at(value, "uuid") or "project"
    items: dict[str, Item] = {
        "#": {"sender": "system", "text": text_at(value, "prompt_template") or ""}
    }
    for doc in objects(value.get("docs")):
        at, text = doc.get("created_at"), "\n".join(files_of([doc]))
        items[f"#{len(items)}"] = {"sender": "human", "text": text, "created_at": at}
    return Chat(items, f"project-{name}", value.get("name"), value.get("created_at"))


def _memories(value: Item) -> Chat:
    """Return what the application remembers as a conversation."""
    texts = [value.get("conversations_memory")]
    projects = value.get("project_memories")
    texts += projects.values() if isinstance(projects, dict) else ()
    items: dict[str, Item] = {
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
    files = [each for field in ("attachments", "files") for each in objects(message.get(field))]
    return _parted(draft, name, role, blocks, list(files_of(files)))


def _parted(
    draft: Draft, name: str, role: str, blocks: list[Any], texts: list[str]
) -> list[Message]:
    """Return the blocks of a message, behind ``texts``, as messages in their order."""
    messages: list[Message] = []
    calls: list[ToolCall] = []
    waiting: list[str] = []

    def close() -> None:
        """End the message that is being collected."""
        text = "\n".join(texts)
        if calls:
            messages.append(Message.assistant(text, tool_calls=tuple(calls)))
        elif text.strip():
            messages.append(Message.user(text) if role == "user" else Message.assistant(text))
        texts.clear()
        calls.clear()

    for number, each in enumerate(blocks):
        with draft.reading():
            block = as_mapping(each, where=f"content[{number}]")
            kind = block.get("type")
            if kind == "text" and isinstance(block.get("text"), str):
                if calls:
                    close()
                texts += [block["text"]] if block["text"].strip() else []
            elif kind == "tool_use" and role == "assistant":
                calls.append(_call(block, f"{name[:180]}-{number}"))
                waiting.append(calls[-1].id)
            elif kind == "tool_result":
                close()
                # The result of the call that it names, else of the oldest one without a result.
                named = block.get("tool_use_id")
                call_id = named if named in waiting else next(iter(waiting), None)
                if call_id is not None:
                    waiting.remove(call_id)
                text = _result_text(draft, block.get("content"))
                tool = name_of(block.get("name"))
                messages.append(Message("tool", text, tool_call_id=call_id, name=tool))
            elif kind == "thinking":
                draft.note("reasoning left out")
            elif spoken := [text for text in words_of(block) if text.strip()]:  # mostly a voice
                texts += spoken
            elif kind not in ("token_budget", "flag"):
                draft.miss(f"contents of the type {kind_name(kind)} not understood")
    close()
    return messages


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
        kind = found_at(block, "type") if isinstance(block, dict) else block
        text = found_at(block, "text")
        if isinstance(text, str):
            texts.append(text)
        elif isinstance(block, dict) and kind == "knowledge":
            texts += [block[f] for f in ("title", "url") if isinstance(block.get(f), str)]
        else:
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
