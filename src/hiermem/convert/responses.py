"""Items of the OpenAI Responses interface, both ways; and messages in any of the three shapes.

An item becomes one message, except that calls which follow each other directly are one message, as
they are one step of the model. Fields that Message lacks are kept in ``metadata["responses"]``, so
that every item is written back as it was read. An item that is neither a message nor a call nor a
result (reasoning, a web search) is kept whole, as a JSON part.

``from_any`` sees from each message which shape it has. OpenAI's chat shape is read and written here
too, message by message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Literal, cast

from hiermem.convert.anthropic import from_anthropic
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
    fields_from_openai,
    kept_for,
    kept_of,
    read_parts,
    refuse_empty,
    take_time,
    text_of,
)

__all__ = ["from_responses", "to_responses"]

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
#: The types of calls whose arguments are text in a field of their own.
_CALLS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}
#: The types of results whose content is text or parts.
_RESULTS = ("function_call_output", "custom_tool_call_output")


def from_responses(payload: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read items of the OpenAI Responses interface, or a request or response that holds them.

    The ``instructions`` of a request become a system message. Raises InvalidMessageError for
    another shape.

    >>> from_responses([{"role": "user", "content": "Hi"}])[0].content
    'Hi'
    """
    read: list[Message] = []
    items: object = payload
    if isinstance(payload, Mapping) or callable(getattr(payload, "model_dump", None)):
        envelope = as_mapping(cast("object", payload), where="payload")
        if not {"input", "output"} & envelope.keys():
            raise InvalidMessageError("payload has neither input nor output; give those or a list")
        instructions = envelope.get("instructions")
        if isinstance(instructions, str):
            read.append(Message.system(instructions))
        items = envelope["output"] if "output" in envelope else envelope["input"]
        if isinstance(items, str):
            return [*read, Message.user(items)]
    joins = False
    for number, value in enumerate(as_list(items, where="items")):
        item = as_mapping(value, where=f"items[{number}]")
        message = _from_item(item, where=f"items[{number}]")
        if message.tool_calls and joins:
            message = _joined(read.pop(), message)
        read.append(message)
        joins = bool(message.tool_calls)
    return read


def _joined(first: Message, second: Message) -> Message:
    """Return one message with the calls of both."""
    kept: dict[str, Any] = {}
    for message, offset in ((first, 0), (second, len(first.tool_calls))):
        for number, item in kept_of(message.metadata, "responses").get("calls", {}).items():
            kept[str(int(number) + offset)] = item
    calls = (*first.tool_calls, *second.tool_calls)
    return _message("assistant", "", {"calls": kept} if kept else {}, tool_calls=calls)


def _message(role: Role, content: Content, kept: Mapping[str, Any], **fields: Any) -> Message:
    if kept:
        fields["metadata"] = {"responses": dict(kept)}
    return Message(role, content, **fields)


def _from_item(item: dict[str, Any], *, where: str) -> Message:
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        raise InvalidMessageError(f"{where}.type is {type(kind).__name__}; it must be text")
    if kind == "message":
        return _from_message(item, where=where)
    call_id = item.get("call_id")
    if isinstance(call_id, str) and kind.endswith("_output"):
        return _from_result(item, kind, call_id, where=where)
    if isinstance(call_id, str):
        call = _call(item, kind, call_id)
        kept = {} if _call_back(call) == item else {"calls": {"0": item}}
        return _message("assistant", "", kept, tool_calls=(call,))
    role: Role = "user" if kind == "mcp_approval_response" else "assistant"
    return _message(role, (JsonPart(item),), {"item": True})


def _from_message(item: dict[str, Any], *, where: str) -> Message:
    given = text_of(item, "role", where=where)
    if given not in _ROLES:
        raise InvalidMessageError(f"{where}.role is unknown; use one of {', '.join(_ROLES)}")
    role = _ROLES[given]
    kept: dict[str, Any] = {}
    if role != given:
        kept["role"] = given
    if "type" not in item:
        kept["type"] = "absent"
    at = take_time(item, where=where)
    content: Content = ""
    if "content" not in item:
        refuse_empty(item, where=where)
    if item["content"] is None:
        kept["content"] = "null"
    else:
        content, parts = _content(item["content"], role, where=f"{where}.content")
        kept |= parts
    fields = {k: v for k, v in item.items() if k not in {"type", "role", "content"}}
    if fields:
        kept["fields"] = fields
    return _message(role, content, kept, created_at=at)


def _from_result(item: dict[str, Any], kind: str, call_id: str, *, where: str) -> Message:
    if kind not in _RESULTS or not isinstance(item.get("output"), (str, list)):
        return _message("tool", (JsonPart(item),), {"item": True}, tool_call_id=call_id)
    content, kept = _content(item["output"], "tool", where=f"{where}.output")
    if kind != _RESULTS[0]:
        kept["type"] = kind
    fields = {k: v for k, v in item.items() if k not in {"type", "call_id", "output"}}
    if fields:
        kept["fields"] = fields
    return _message("tool", content, kept, tool_call_id=call_id)


def _call(item: dict[str, Any], kind: str, call_id: str) -> ToolCall:
    """Read a call; one of a built-in tool has its own type, and its fields as arguments."""
    name = item.get("name")
    own, field = _CALLS.get(kind, (kind, ""))
    arguments = item.get(field)
    if not isinstance(arguments, str):
        rest = {k: v for k, v in item.items() if k not in {"type", "id", "call_id", "status"}}
        try:
            arguments = json.dumps(rest, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise InvalidMessageError(f"a {kind} item is not JSON") from None
    return ToolCall(call_id, name if isinstance(name, str) and name else kind, arguments, own)


def _content(content: object, role: Role, *, where: str) -> tuple[Content, dict[str, Any]]:
    """Read text or parts; return the content and, by number, the fields that parts cannot hold."""
    return read_parts(content, read_part, lambda part: write_part(part, role), where=where)


def read_part(block: Mapping[str, Any]) -> Part | None:
    """Read a part; the caller checks that it would be written back the same."""
    kind = block.get("type")
    if kind in ("input_text", "output_text") and isinstance(block.get("text"), str):
        return TextPart(block["text"])
    if kind == "input_image" and isinstance(block.get("image_url"), str):
        detail = block.get("detail")
        return ImagePart(block["image_url"], detail if isinstance(detail, str) else None)
    if kind == "input_file":
        for field in ("file_id", "file_url", "file_data"):
            if isinstance(block.get(field), str):
                name = block.get("filename")
                return FilePart(block[field], name if isinstance(name, str) else None)
    return None


def write_part(part: Part, role: Role) -> dict[str, Any]:
    """Write a part as one of a message of this role."""
    if isinstance(part, TextPart):
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": kind, "text": part.text}
    if isinstance(part, ImagePart):
        image = {"type": "input_image", "image_url": part.reference}
        return image if part.detail is None else {**image, "detail": part.detail}
    if isinstance(part, FilePart):
        url = "file_url" if "://" in part.reference else "file_id"
        field = "file_data" if part.reference.startswith("data:") else url
        file = {"type": "input_file", field: part.reference}
        return file if part.name is None else {**file, "filename": part.name}
    return dict(part.data)


def to_responses(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Write messages as items of the OpenAI Responses interface.

    A message with calls becomes one item for its content, if it has any, and one for each call. A
    tool result that names no call is written as the user's text.
    """
    items: list[dict[str, Any]] = []
    custom: set[str] = set()
    for message in messages:
        kept = kept_of(message.metadata, "responses")
        content = message.content
        if kept.get("item") is True and len(content) == 1 and isinstance(content[0], JsonPart):
            items.append(dict(content[0].data))
            continue
        if message.tool_call_id is not None:
            items.append(_result_back(message, message.tool_call_id, kept, custom))
            continue
        if content or not message.tool_calls:
            items.append(_message_back(message, kept))
        for number, call in enumerate(message.tool_calls):
            items.append(dict(kept_for(kept, "calls", number)) or _call_back(call))
            if call.type == "custom":
                custom.add(call.id)
    return items


def _message_back(message: Message, kept: Mapping[str, Any]) -> dict[str, Any]:
    role = "user" if message.role == "tool" else message.role
    given = kept.get("role")
    item: dict[str, Any] = {} if kept.get("type") == "absent" else {"type": "message"}
    item["role"] = given if isinstance(given, str) and _ROLES.get(given) == role else role
    null = not message.content and kept.get("content") == "null"
    item["content"] = None if null else _content_back(message, kept)
    return _with_fields(item, kept)


def _result_back(
    message: Message, call_id: str, kept: Mapping[str, Any], custom: set[str]
) -> dict[str, Any]:
    kind = kept.get("type")
    if kind not in _RESULTS:
        kind = _RESULTS[1] if call_id in custom and not kept else _RESULTS[0]
    item = {"type": kind, "call_id": call_id, "output": _content_back(message, kept)}
    return _with_fields(item, kept)


def _with_fields(item: dict[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields that were kept; the message's own take precedence."""
    return {**kept_of(kept, "fields"), **item}


def _content_back(message: Message, kept: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content
    return [
        {**write_part(part, message.role), **kept_for(kept, "parts", number)}
        for number, part in enumerate(message.content)
    ]


def _call_back(call: ToolCall) -> dict[str, Any]:
    kind, field = "function_call", "arguments"
    if call.type == "custom":
        kind, field = "custom_tool_call", "input"
    return {"type": kind, "call_id": call.id, "name": call.name, field: call.arguments}


Shape = Literal["anthropic", "openai", "responses"]

#: Types of blocks that only one shape has.
_OF_RESPONSES = ("input_text", "output_text", "input_image", "input_file")
_OF_ANTHROPIC = (
    "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use",
    "web_search_tool_result", "image", "document", "search_result", "container_upload",
)  # fmt: skip


def from_openai(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read messages of the OpenAI chat shape. Raises InvalidMessageError for another shape.

    >>> from_openai([{"role": "user", "content": "Hi"}])[0].content
    'Hi'
    """
    return [
        Message(**fields_from_openai(data, where=f"messages[{number}]"))
        for number, data in enumerate(as_list(messages, where="messages"))
    ]


def to_openai(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Write messages in the OpenAI chat shape."""
    return [message.to_openai() for message in messages]


def shape_of(data: Mapping[str, Any]) -> Shape:
    """Return the shape of a message; a message that fits several shapes is of OpenAI's chat shape.

    >>> shape_of({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"})
    'responses'
    """
    kind = data.get("type")
    if isinstance(kind, str) and (kind != "message" or "role" not in data):
        return "responses"
    content = data.get("content")
    for block in content if isinstance(content, list) else ():
        inner = block.get("type") if isinstance(block, Mapping) else None
        if inner in _OF_RESPONSES:
            return "responses"
        # A text block with more than its text has cache marks or citations.
        marked = inner == "text" and (kind == "message" or len(block) > 2)
        if marked or inner in _OF_ANTHROPIC:
            return "anthropic"
    return "responses" if kind == "message" else "openai"


def from_any(messages: Iterable[object]) -> list[Message]:
    """Read messages of OpenAI's chat or Responses shape or of Anthropic's, mixed as they may be.

    A provider's own objects are read like mappings. Raises InvalidMessageError for another shape.
    """
    items = as_list(messages, where="messages")
    mappings = [as_mapping(each, where=f"messages[{n}]") for n, each in enumerate(items)]
    readers = {"anthropic": from_anthropic, "openai": from_openai, "responses": from_responses}
    return [
        message
        for shape, stretch in groupby(mappings, key=shape_of)
        for message in readers[shape](list(stretch))
    ]
