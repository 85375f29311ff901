"""What each provider takes in a request, as data: ``request`` writes contexts by it.

The rules are those that providers state, or that their refusals name. Where a provider's models
differ, the strictest form is the rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hiermem.types import Role


@dataclass(frozen=True, slots=True)
class Rules:
    """What one provider's interface takes.

    ``parts`` are the types of the parts of a message's content, by role; ``lone`` are those that
    stand only before another block of their message. ``name`` is the form of a speaker's name, None
    for an interface that has no names. ``images`` and ``documents`` are the media types of data
    that is sent along, None for any.
    """

    parts: Mapping[Role, frozenset[str]]
    call_id: re.Pattern[str]
    tool_name: re.Pattern[str]
    name: re.Pattern[str] | None = None
    lone: frozenset[str] = frozenset()
    images: frozenset[str] | None = None
    documents: frozenset[str] | None = None


_TEXT = frozenset(("text",))
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

#: OpenAI's chat interface, and those that are compatible with it.
CHAT = Rules(
    parts={
        "system": _TEXT,
        "user": frozenset(("text", "image_url", "input_audio", "file")),
        "assistant": frozenset(("text", "refusal")),
        "tool": _TEXT,
    },
    call_id=re.compile(r".{1,64}", re.DOTALL),
    tool_name=_ID,
    name=re.compile(r"[^\s<|\\/>]{1,64}"),
)

_INPUT = frozenset(("input_text", "input_image", "input_file"))

#: OpenAI's Responses interface.
RESPONSES = Rules(
    parts={
        "system": frozenset(("input_text",)),
        "user": _INPUT,
        "assistant": frozenset(("output_text", "refusal")),
        "tool": _INPUT,
    },
    call_id=re.compile(r".{1,64}", re.DOTALL),
    tool_name=_ID,
    lone=frozenset(("reasoning",)),
)

#: Anthropic's messages interface.
ANTHROPIC = Rules(
    parts={
        "system": _TEXT,
        "user": frozenset(("text", "image", "document", "search_result")),
        "assistant": frozenset(
            ("text", "thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result")
        ),
        "tool": frozenset(("text", "image", "document", "search_result")),
    },
    call_id=re.compile(r"[A-Za-z0-9_-]+"),
    tool_name=re.compile(r"[A-Za-z0-9_-]{1,128}"),
    lone=frozenset(("thinking", "redacted_thinking")),
    images=frozenset(("image/png", "image/jpeg", "image/gif", "image/webp")),
    documents=frozenset(("application/pdf",)),
)
