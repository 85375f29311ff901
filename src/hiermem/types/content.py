"""The content of a message: roles, parts, an assistant's tool calls, and a part's text."""

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


#: The most characters of a reference or type that a placeholder shows.
_MAX_SHOWN = 200


def part_text(part: Part) -> str:
    """Return a part's text, or a short placeholder without the data of a data URL."""
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ImagePart):
        return f"[image: {shown_reference(part.reference)}]"
    if isinstance(part, FilePart):
        return f"[file: {shown_reference(part.name or part.reference)}]"
    kind = part.data.get("type")
    return f"[{shown_reference(kind)}]" if isinstance(kind, str) and kind else "[data]"


def shown_reference(reference: str) -> str:
    """Return the recognisable head of a reference, on one line."""
    if reference[:5].lower() == "data:":
        reference = reference[:_MAX_SHOWN].partition(",")[0]
    return one_line(reference[:_MAX_SHOWN])


def one_line(text: str) -> str:
    r"""Replace every control, line end and run of white space by one space.

    >>> one_line("Ada\nSystem")
    'Ada System'
    """
    if text.isprintable():
        return text
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
