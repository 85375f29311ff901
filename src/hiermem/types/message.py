"""A message: one role-tagged entry of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hiermem.errors import InvalidMessageError
from hiermem.types.content import (
    ROLES,
    Content,
    FilePart,
    ImagePart,
    JsonPart,
    Role,
    TextPart,
    ToolCall,
)
from hiermem.types.frozen import FrozenDict
from hiermem.types.openai_format import fields_from_openai, openai_from_fields

_NOTHING: Mapping[str, Any] = FrozenDict()


@dataclass(frozen=True, slots=True)
class Message:
    """One role-tagged entry of a conversation.

    ``content`` is text, or a tuple of parts. ``key`` makes the append idempotent. ``created_at``
    must be timezone-aware; if it is None, the append sets it from the clock. ``tool_calls`` belong
    to an assistant, ``tool_call_id`` to a tool's result.

    Raises InvalidMessageError if the shape is wrong.
    """

    role: Role
    content: Content
    key: str | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    thread: str = field(default="main", kw_only=True)
    created_at: datetime | None = field(default=None, kw_only=True)
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    tool_call_id: str | None = field(default=None, kw_only=True)
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, kw_only=True)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InvalidMessageError(
                f"role {self.role!r} is unknown; use one of {', '.join(ROLES)}"
            )
        if not isinstance(self.content, str):
            if not isinstance(self.content, Sequence):
                raise InvalidMessageError(
                    f"content is {type(self.content).__name__}; it must be text or parts"
                )
            parts = tuple(self.content)
            if not all(
                isinstance(part, (TextPart, ImagePart, FilePart, JsonPart)) for part in parts
            ):
                raise InvalidMessageError(
                    "content may hold TextPart, ImagePart, FilePart and JsonPart values only"
                )
            object.__setattr__(self, "content", parts)
        if self.created_at is not None and (
            not isinstance(self.created_at, datetime) or self.created_at.utcoffset() is None
        ):
            raise InvalidMessageError(
                "created_at must be a timezone-aware datetime, such as datetime.now(timezone.utc)"
            )
        if not isinstance(self.tool_calls, tuple):
            if isinstance(self.tool_calls, str) or not isinstance(self.tool_calls, Iterable):
                raise InvalidMessageError(
                    f"tool_calls is {type(self.tool_calls).__name__}; it must be a sequence of "
                    "ToolCall values"
                )
            object.__setattr__(self, "tool_calls", tuple(self.tool_calls))
        if self.tool_calls:
            if not all(isinstance(call, ToolCall) for call in self.tool_calls):
                raise InvalidMessageError("tool_calls holds something that is not a ToolCall")
            if self.role != "assistant":
                raise InvalidMessageError(
                    f"a message of role {self.role!r} has tool_calls; only an assistant's may"
                )
        if self.tool_call_id is not None and self.role != "tool":
            raise InvalidMessageError(
                f"a message of role {self.role!r} has a tool_call_id; only a tool's may"
            )

    @classmethod
    def system(cls, content: Content, **fields: Any) -> Message:
        """Make a system message; ``fields`` are those of Message."""
        return cls("system", content, **fields)

    @classmethod
    def user(cls, content: Content, **fields: Any) -> Message:
        """Make a user message; ``fields`` are those of Message."""
        return cls("user", content, **fields)

    @classmethod
    def assistant(cls, content: Content = "", **fields: Any) -> Message:
        """Make an assistant message; ``fields`` are those of Message."""
        return cls("assistant", content, **fields)

    @classmethod
    def tool(cls, content: Content, *, tool_call_id: str | None = None, **fields: Any) -> Message:
        """Make a tool result; ``tool_call_id`` names the call that it answers."""
        return cls("tool", content, tool_call_id=tool_call_id, **fields)

    @classmethod
    def from_openai(cls, data: Mapping[str, Any], **fields: Any) -> Message:
        """Read one message of the OpenAI chat shape; ``fields`` add what that shape lacks."""
        return cls(**{**fields_from_openai(data), **fields})

    def to_openai(self, *, extras: bool = True) -> dict[str, Any]:
        """Write this message in the OpenAI chat shape.

        Without ``extras``, fields that were only kept in ``metadata`` are left out, of the message
        and of its calls. A request does not need them, and a budget does not count them.
        """
        return openai_from_fields(
            role=self.role,
            content=self.content,
            name=self.name,
            tool_calls=self.tool_calls,
            tool_call_id=self.tool_call_id,
            metadata=self.metadata,
            extras=extras,
        )
