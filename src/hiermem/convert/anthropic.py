"""Messages in the shape of the Anthropic messages interface, both ways.

A block becomes one of our parts only if it would be written back the same, with its other fields
(cache marks, citations) kept by number; otherwise it stays as it is. Data that Message lacks is
kept in ``metadata["anthropic"]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from hiermem.errors import InvalidMessageError
from hiermem.types import (
    Content,
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCall,
)
from hiermem.types.message import (
    as_list,
    as_mapping,
    kept_for,
    kept_of,
    read_parts,
    refuse_empty,
    take_time,
    text_of,
)

__all__ = ["from_anthropic", "to_anthropic"]

_T = TypeVar("_T")
# The fields of a response around its message; kept, but a request must not send them back.
_ENVELOPE = frozenset(
    (
        "id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container",
        "context_management",
    )
)  # fmt: skip


def from_anthropic(payload: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read a request of the Anthropic messages shape, or just its list of messages.

    The system prompt becomes a system message. A user message with tool results becomes one message
    for each of them and one for each stretch of other blocks between; ``to_anthropic`` joins them
    again. Raises InvalidMessageError for another shape.
    """
    read: list[Message] = []
    messages: object = payload
    if isinstance(payload, Mapping):
        request = as_mapping(cast("object", payload), where="payload")
        if "messages" not in request:
            raise InvalidMessageError("payload has no messages; give a request or a list")
        messages = request["messages"]
        system = request.get("system")
        if system is not None:
            content, kept = _blocks(system, where="system")
            read.append(_with_kept("system", content, kept))
    before = ""
    for number, data in enumerate(as_list(messages, where="messages")):
        where = f"messages[{number}]"
        fields = as_mapping(data, where=where)
        role = text_of(fields, "role", where=where)
        if role not in {"user", "assistant"}:
            raise InvalidMessageError(f"{where}.role is unknown; it must be user or assistant")
        at = take_time(fields, where=where)
        first: dict[str, Any] = {"apart": True} if role == before else {}
        extras = {k: v for k, v in fields.items() if k not in {"role", "content"}}
        if extras:
            first["fields"] = extras
        if "content" not in fields:
            refuse_empty(fields, where=where)
        reader = _from_assistant if role == "assistant" else _from_user
        read_messages = reader(fields["content"], first, where=f"{where}.content")
        read.extend(replace(each, created_at=at) for each in read_messages)
        before = role
    return read


def _with_kept(role: Role, content: Content, kept: Mapping[str, Any], **fields: Any) -> Message:
    if kept:
        fields["metadata"] = {"anthropic": dict(kept)}
    return Message(role, content, **fields)


def _from_assistant(content: object, first: dict[str, Any], *, where: str) -> list[Message]:
    """Read an assistant's message: its tool uses are calls, its other blocks are parts."""
    if isinstance(content, str):
        return [_with_kept("assistant", content, first)]
    calls: list[ToolCall] = []
    others: list[dict[str, Any]] = []
    order: list[str] = []
    kept: dict[str, Any] = dict(first)
    for number, value in enumerate(as_list(content, where=where)):
        path = f"{where}[{number}]"
        block = as_mapping(value, where=path)
        if block.get("type") == "tool_use":
            call, extras = _tool_use(block, where=path)
            if extras:
                kept.setdefault("calls", {})[str(len(calls))] = extras
            calls.append(call)
            order.append("call")
        else:
            others.append(block)
            order.append("part")
    parts, of_parts = _blocks(others, where=where)
    # Calls come last unless an order was kept.
    if order != sorted(order, reverse=True):
        kept["order"] = order
    return [_with_kept("assistant", parts, kept | of_parts, tool_calls=tuple(calls))]


def _tool_use(block: dict[str, Any], *, where: str) -> tuple[ToolCall, dict[str, Any]]:
    given = block.get("input", {})
    if not isinstance(given, Mapping):
        raise InvalidMessageError(f"{where}.input is {type(given).__name__}; it must be a mapping")
    try:
        arguments = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidMessageError(f"{where}.input is not JSON") from None
    call = ToolCall(
        id=text_of(block, "id", where=where),
        name=text_of(block, "name", where=where),
        arguments=arguments,
    )
    extras = {k: v for k, v in block.items() if k not in {"type", "id", "name", "input"}}
    if "input" not in block:
        extras["input"] = None
    return call, extras


def _from_user(content: object, first: dict[str, Any], *, where: str) -> list[Message]:
    """Read a user's message: each tool result is a message of its own, in its place.

    The first piece of it has the fields of the whole.
    """
    if isinstance(content, str):
        return [_with_kept("user", content, first)]
    read: list[Message] = []
    run: list[dict[str, Any]] = []

    def close_run() -> None:
        if run:
            parts, kept = _blocks(run, where=where)
            read.append(_with_kept("user", parts, kept if read else first | kept))
            run.clear()

    for number, value in enumerate(as_list(content, where=where)):
        path = f"{where}[{number}]"
        block = as_mapping(value, where=path)
        if block.get("type") == "tool_result":
            close_run()
            read.append(_tool_result(block, {} if read else dict(first), where=path))
        else:
            run.append(block)
    close_run()
    return read or [_with_kept("user", (), first)]


def _tool_result(block: dict[str, Any], kept: dict[str, Any], *, where: str) -> Message:
    content: Content = ""
    if "content" in block:
        content, of_parts = _blocks(block["content"], where=f"{where}.content")
        kept |= of_parts
    else:
        kept["content"] = "absent"
    extras = {k: v for k, v in block.items() if k not in {"type", "tool_use_id", "content"}}
    if extras:
        kept["result"] = extras
    call_id = text_of(block, "tool_use_id", where=where)
    return _with_kept("tool", content, kept, tool_call_id=call_id)


def _blocks(content: object, *, where: str) -> tuple[Content, dict[str, Any]]:
    """Read text or blocks; return the content and, by number, the fields that parts cannot hold."""
    return read_parts(content, read_block, write_block, where=where)


def read_block(block: Mapping[str, Any]) -> Part | None:
    """Read a block as one of our parts; the caller checks that nothing was lost."""
    kind, source = block.get("type"), block.get("source")
    if kind == "text" and isinstance(block.get("text"), str):
        return TextPart(block["text"])
    if kind not in ("image", "document") or not isinstance(source, Mapping):
        return None
    media_type: str | None = None
    match source:
        case {"type": "base64", "media_type": str(media), "data": str(data)}:
            reference, media_type = f"data:{media};base64,{data}", media
        case {"type": "url", "url": str(place)}:
            reference = place
        case {"type": "file", "file_id": str(place)} if kind == "document":
            reference = place
        case _:
            return None
    if kind == "image":
        return ImagePart(reference)
    title = block.get("title")
    return FilePart(reference, title if isinstance(title, str) else None, media_type)


def to_anthropic(messages: Iterable[Message], system: Content | None = None) -> dict[str, Any]:
    """Write messages in the Anthropic messages shape: ``{"system": …, "messages": […]}``.

    System messages are moved, after ``system``, into the system prompt; without any, the key is
    absent, as the interface requires. Tool results are the user's, and neighbours of one role are
    joined into one message unless they were read separately. A tool result that names no call is
    written as text.
    """
    prompts: list[Message] = [] if system is None else [Message.system(system)]
    written: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            prompts.append(message)
            continue
        kept = kept_of(message.metadata, "anthropic")
        role = "assistant" if message.role == "assistant" else "user"
        content = _anthropic_content(message)
        if written and written[-1]["role"] == role and not kept.get("apart"):
            written[-1]["content"] = _as_blocks(written[-1]["content"]) + _as_blocks(content)
            continue
        fields = kept_of(kept, "fields")
        sent = {name: value for name, value in fields.items() if name not in _ENVELOPE}
        written.append({**sent, "role": role, "content": content})
    contents = [_anthropic_content(prompt) for prompt in prompts]
    if not contents:
        return {"messages": written}
    blocks = [block for each in contents for block in _as_blocks(each)]
    return {"messages": written, "system": contents[0] if len(contents) == 1 else blocks}


def _as_blocks(content: Any) -> list[dict[str, Any]]:
    """Return content as blocks; an empty text has none: the interface refuses empty blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)


def _anthropic_content(message: Message) -> str | list[dict[str, Any]]:
    content, kept = message.content, kept_of(message.metadata, "anthropic")
    body = (
        content
        if isinstance(content, str)
        else [{**write_block(part), **kept_for(kept, "parts", n)} for n, part in enumerate(content)]
    )
    if message.role == "tool":
        return _tool_result_back(message, body, kept)
    if not message.tool_calls:
        return body
    calls = [
        _tool_use_back(call, kept_for(kept, "calls", n))
        for n, call in enumerate(message.tool_calls)
    ]
    return in_order(_as_blocks(body), calls, kept.get("order"))


def in_order(parts: Sequence[_T], calls: Sequence[_T], order: object) -> list[_T]:
    """Put parts and calls back into the order in which they were read, if it still fits."""
    counts = (len(parts), len(calls))
    if not isinstance(order, list) or (order.count("part"), order.count("call")) != counts:
        return [*parts, *calls]
    next_part, next_call = iter(parts), iter(calls)
    return [next(next_call) if kind == "call" else next(next_part) for kind in order]


def _tool_use_back(call: ToolCall, extras: Mapping[str, Any]) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        # The interface takes a mapping only; a model's broken JSON is still shown.
        arguments = {"arguments": call.arguments} if call.arguments else {}
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments, **extras}
    if extras.get("input", arguments) is None:
        del block["input"]
    return block


def _tool_result_back(
    message: Message, body: str | list[dict[str, Any]], kept: Mapping[str, Any]
) -> list[dict[str, Any]]:
    if message.tool_call_id is None:
        return _as_blocks(body)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id}
    if body or kept.get("content") != "absent":
        block["content"] = body
    return [{**kept_of(kept, "result"), **block}]


def write_block(part: Part) -> dict[str, Any]:
    """Write a part as a block."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, JsonPart):
        return dict(part.data)
    reference = part.reference
    head, comma, data = reference.partition(";base64,")
    source: dict[str, Any]
    if comma and head.startswith("data:"):
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    elif isinstance(part, ImagePart) or ":" in reference:
        source = {"type": "url", "url": reference}
    else:
        source = {"type": "file", "file_id": reference}
    if isinstance(part, ImagePart):
        return {"type": "image", "source": source}
    block: dict[str, Any] = {"type": "document", "source": source}
    if part.name is not None:
        block["title"] = part.name
    return block
