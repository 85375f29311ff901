"""Lists of messages in the shape of the OpenAI chat interface, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hiermem.types import Message
from hiermem.types.openai_format import fields_from_openai
from hiermem.types.reading import as_list


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
