"""The content of a message: roles, parts and an assistant's tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A stretch of text inside a message of several parts."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A reference to an image (a URL or data URL); the image itself is not interpreted."""

    reference: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """A reference to a file (an id or URL); the file itself is not interpreted."""

    reference: str
    name: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class JsonPart:
    """A part that hiermem does not interpret: a JSON object, returned exactly as it came."""

    data: Mapping[str, Any]


Part: TypeAlias = TextPart | ImagePart | FilePart | JsonPart
Content: TypeAlias = str | tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """An assistant's call of a tool; ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"
    type: str = "function"
