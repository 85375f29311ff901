"""Messages in any of the three shapes; which one is seen from each message.

OpenAI's chat shape is read and written here, message by message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Literal

from hiermem.convert.anthropic import from_anthropic
from hiermem.convert.responses import from_responses
from hiermem.types import Message
from hiermem.types.message import fields_from_openai
from hiermem.types.reading import as_list, as_mapping

Shape = Literal["anthropic", "openai", "responses"]

#: Types of blocks that only the shape named has.
_BLOCKS: Mapping[str, Shape] = {
    "input_text": "responses",
    "output_text": "responses",
    "input_image": "responses",
    "input_file": "responses",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "server_tool_use": "anthropic",
    "web_search_tool_result": "anthropic",
    "image": "anthropic",
    "document": "anthropic",
    "search_result": "anthropic",
    "container_upload": "anthropic",
}


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
    if isinstance(content, list):
        for block in content:
            if not isinstance(block, Mapping):
                continue
            inner = block.get("type")
            if isinstance(inner, str) and inner in _BLOCKS:
                return _BLOCKS[inner]
            # A text block with more than its text has cache marks or citations.
            if inner == "text" and (kind == "message" or len(block) > 2):
                return "anthropic"
    return "responses" if kind == "message" else "openai"


def from_any(messages: Iterable[object]) -> list[Message]:
    """Read messages of OpenAI's chat or Responses shape or of Anthropic's, mixed as they may be.

    A provider's own objects are read like mappings. Raises InvalidMessageError for another shape.
    """
    given = as_list(messages, where="messages")
    found = [as_mapping(each, where=f"messages[{n}]") for n, each in enumerate(given)]
    readers = {"anthropic": from_anthropic, "openai": from_openai, "responses": from_responses}
    return [
        message
        for shape, stretch in groupby(found, key=shape_of)
        for message in readers[shape](list(stretch))
    ]
