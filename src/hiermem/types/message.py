"""A message: one entry of a conversation with its role, parts and tool calls.

Values from outside may have any shape. One that a message cannot hold raises InvalidMessageError,
which names the place and the type found, never the value.

In the OpenAI chat shape, a part or call is converted only if it would be written back the same;
otherwise it is kept as it is. Data that a Message cannot hold is kept in ``metadata["openai"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn, TypeAlias

from hiermem.errors import InvalidMessageError
from hiermem.types.brief import FrozenDict

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


#: The most fields that an error names, and the most characters of a name.
_NAMED, _SHOWN = 12, 40


def as_mapping(value: object, *, where: str) -> dict[str, Any]:
    """Return a mapping (or an object of a provider's library, which can dump itself) as a dict."""
    if not isinstance(value, Mapping):
        dump = getattr(value, "model_dump", None)
        if not callable(dump) or isinstance(value, type):
            raise InvalidMessageError(f"{where} is {type(value).__name__}; it must be a mapping")
        value = dump(mode="json", exclude_unset=True)
        if not isinstance(value, Mapping):
            raise InvalidMessageError(f"{where} does not dump itself into a mapping")
    if not all(isinstance(key, str) for key in value):
        raise InvalidMessageError(f"{where} has a key that is not text")
    return dict(value)


def as_list(value: object, *, where: str) -> list[Any]:
    """Return any iterable but a text or mapping as a list."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidMessageError(f"{where} is {type(value).__name__}; it must be a list")
    return list(value)


def text_of(data: Mapping[str, Any], field: str, *, where: str) -> str:
    """Return a field that must exist and be text."""
    value = data.get(field)
    if not isinstance(value, str):
        kind = "missing" if field not in data else type(value).__name__
        raise InvalidMessageError(f"{where}.{field} is {kind}; it must be text")
    return value


def refuse_empty(data: Mapping[str, Any], *, where: str) -> NoReturn:
    """Raise the error of a message without content; it names the fields that were found."""
    found = ", ".join(name[:_SHOWN] for name in list(data)[:_NAMED]) or "nothing else"
    raise InvalidMessageError(f"{where}.content is missing; the message has {found}")


def take_time(data: dict[str, Any], *, where: str) -> datetime | None:
    """Take ``created_at`` out of a message, or return None if it has none.

    It is ISO 8601 text with a time zone, a datetime with one, or seconds since 1970.
    """
    given = data.pop("created_at", None)
    if given is None:
        return None
    when = given
    try:
        if isinstance(given, str):
            when = datetime.fromisoformat(given)
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            when = datetime.fromtimestamp(given, UTC)
    except (ValueError, OverflowError, OSError):
        when = None
    if not isinstance(when, datetime) or when.utcoffset() is None:
        raise InvalidMessageError(
            f"{where}.created_at must be a time with its time zone, such as 2026-03-01T10:00:00Z"
        )
    return when


def kept_of(metadata: Mapping[str, Any], shape: str) -> Mapping[str, Any]:
    """Return what reading ``shape`` kept in a message's metadata, or nothing."""
    kept = metadata.get(shape)
    return kept if isinstance(kept, Mapping) else {}


def kept_for(kept: Mapping[str, Any], field: str, number: int) -> Mapping[str, Any]:
    """Return what was kept for the part or call of that number, or nothing."""
    held = kept.get(field)
    found = held.get(str(number)) if isinstance(held, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def read_parts(
    content: object,
    read: Callable[[Mapping[str, Any]], Part | None],
    write: Callable[[Part], dict[str, Any]],
    *,
    where: str,
) -> tuple[Content, dict[str, Any]]:
    """Return text, or parts and, by number, the fields that parts cannot hold.

    A part that ``write`` would not give back the same stays as it is, opaque.
    """
    if isinstance(content, str):
        return content, {}
    parts: list[Part] = []
    extras: dict[str, Any] = {}
    for number, value in enumerate(as_list(content, where=where)):
        block = as_mapping(value, where=f"{where}[{number}]")
        part = read(block)
        if part is not None:
            back = write(part)
            more = {k: v for k, v in block.items() if k not in back}
            if back | more == block:
                if more:
                    extras[str(number)] = more
                parts.append(part)
                continue
        parts.append(JsonPart(block))
    return tuple(parts), ({"parts": extras} if extras else {})


# Roles that another role stands for here; the original is kept.
_OPENAI_ROLES: Mapping[str, Role] = {"developer": "system", "function": "tool"}
# The old single call has no id; its result names the function instead, so that this joins the two.
_FUNCTION_CALL = "function_call"
#: The fields that an assistant's message may have in place of content.
_INSTEAD = ("tool_calls", _FUNCTION_CALL, "refusal", "audio")
_NOTHING: Mapping[str, Any] = FrozenDict()
_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


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
    def tool(cls, content: Content, *, tool_call_id: str, **fields: Any) -> Message:
        """Make a tool result; ``tool_call_id`` names the call that it answers.

        Raises InvalidMessageError if it is None.
        """
        given: object = tool_call_id
        if given is None:
            raise InvalidMessageError(
                'tool_call_id is None; pass the answered call\'s id, or use Message("tool", ...)'
            )
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
        kept = kept_of(self.metadata, "openai")
        data: dict[str, Any] = {"role": _role_back(self.role, kept)}
        if isinstance(self.content, str):
            missing = "" if self.content else kept.get("content")
            if missing != "absent":
                data["content"] = None if missing == "null" else self.content
        else:
            data["content"] = [
                {**openai_part_back(part), **(kept_for(kept, "parts", number) if extras else {})}
                for number, part in enumerate(self.content)
            ]
        if self.name is not None:
            data["name"] = self.name
        calls: list[dict[str, Any]] = []
        for number, call in enumerate(self.tool_calls):
            if call.type == _FUNCTION_CALL:
                data[_FUNCTION_CALL] = {"name": call.name, "arguments": call.arguments}
            else:
                as_read = kept_for(kept, "calls", number) if extras else {}
                calls.append(dict(as_read) or _openai_call_back(call))
        if calls:
            data["tool_calls"] = calls
        if self.tool_call_id is not None and data["role"] != "function":
            data["tool_call_id"] = self.tool_call_id
        fields = kept.get("fields")
        if extras and isinstance(fields, Mapping):
            # The message's own fields take precedence over kept ones.
            data = {**fields, **data}
        return data


def speaker(message: Message) -> str:
    """Return the name under which a message is quoted, on one line: the speaker's, or the role's.

    >>> speaker(Message.user("Hi", name="Ada")), speaker(Message.assistant("Hi"))
    ('Ada', 'Assistant')
    """
    name = message.name
    if name:
        # A name with a line end could look like the start of another message.
        shown = one_line(name)
        if shown and not shown.isspace():
            return shown
    return _SPEAKERS[message.role]


# -- the OpenAI chat shape


def fields_from_openai(data: Mapping[str, Any], *, where: str = "message") -> dict[str, Any]:
    """Return the fields of a Message that a message of the OpenAI chat shape has.

    Raises InvalidMessageError for another shape, and for a message without any content.

    The roles developer and function become system and tool; a ``function_call`` becomes a tool
    call. Fields that Message lacks are kept in ``metadata["openai"]``.
    """
    extras = as_mapping(data, where=where)
    kept: dict[str, Any] = {}
    given = text_of(extras, "role", where=where)
    fields: dict[str, Any] = {"created_at": take_time(extras, where=where)}
    # An assistant's content is null in the answers of some models; nobody else says nothing.
    null = "content" in extras and given in {"assistant", "tool", "function"}
    if extras.get("content") is None and not null and not any(map(extras.get, _INSTEAD)):
        refuse_empty(data, where=where)
    del extras["role"]
    role = _OPENAI_ROLES.get(given, given)
    if role not in ROLES:
        raise InvalidMessageError(
            f"{where}.role is unknown; use one of {', '.join((*ROLES, *_OPENAI_ROLES))}"
        )
    if role != given:
        kept["role"] = given
    if isinstance(extras.get("name"), str):
        fields["name"] = extras.pop("name")
    content = _openai_content(extras, kept, where=where)
    calls = _openai_calls(extras, kept, where=where)
    if calls and role != "assistant":
        raise InvalidMessageError(f"{where} has tool calls, but its role is not assistant")
    if role == "tool" and isinstance(extras.get("tool_call_id"), str):
        fields["tool_call_id"] = extras.pop("tool_call_id")
    elif given == "function" and "name" in fields:
        fields["tool_call_id"] = _function_id(fields["name"])
    if extras:
        kept["fields"] = extras
    if kept:
        fields["metadata"] = {"openai": kept}
    return {"role": role, "content": content, "tool_calls": calls, **fields}


def _openai_content(extras: dict[str, Any], kept: dict[str, Any], *, where: str) -> Content:
    if "content" not in extras:
        kept["content"] = "absent"
        return ""
    content = extras.pop("content")
    if content is None:
        kept["content"] = "null"
        return ""
    if isinstance(content, str):
        return content
    read, of_parts = read_parts(content, openai_part, openai_part_back, where=f"{where}.content")
    kept |= of_parts
    return read


def openai_part(data: Mapping[str, Any]) -> Part | None:
    """Read a part of the OpenAI chat shape; the caller checks that nothing was lost."""
    image, file = data.get("image_url"), data.get("file")
    if isinstance(data.get("text"), str) and data.get("type") == "text":
        return TextPart(data["text"])
    if isinstance(image, Mapping) and isinstance(image.get("url"), str):
        detail = image.get("detail")
        return ImagePart(image["url"], detail if isinstance(detail, str) else None)
    if isinstance(file, Mapping):
        reference, name = file.get("file_data", file.get("file_id")), file.get("filename")
        if isinstance(reference, str):
            return FilePart(reference, name if isinstance(name, str) else None)
    return None


def openai_part_back(part: Part) -> dict[str, Any]:
    """Write a part in the OpenAI chat shape."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        image = {"url": part.reference}
        if part.detail is not None:
            image["detail"] = part.detail
        return {"type": "image_url", "image_url": image}
    if isinstance(part, FilePart):
        field = "file_data" if part.reference.startswith("data:") else "file_id"
        file = {field: part.reference}
        if part.name is not None:
            file["filename"] = part.name
        return {"type": "file", "file": file}
    return dict(part.data)


def _openai_calls(
    extras: dict[str, Any], kept: dict[str, Any], *, where: str
) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    if extras.get("tool_calls"):
        given = as_list(extras.pop("tool_calls"), where=f"{where}.tool_calls")
        for number, value in enumerate(given):
            place = f"{where}.tool_calls[{number}]"
            data = as_mapping(value, where=place)
            call = _openai_call(data, where=place)
            calls.append(call)
            if _openai_call_back(call) != data:
                kept.setdefault("calls", {})[str(number)] = data
    old = extras.get(_FUNCTION_CALL)
    if isinstance(old, Mapping):
        place = f"{where}.{_FUNCTION_CALL}"
        name = text_of(old, "name", where=place)
        arguments = text_of(old, "arguments", where=place)
        if len(old) == len(("name", "arguments")):
            del extras[_FUNCTION_CALL]
            calls.append(ToolCall(_function_id(name), name, arguments, type=_FUNCTION_CALL))
    return tuple(calls)


def _function_id(name: str) -> str:
    return f"{_FUNCTION_CALL}_{name}"


def _openai_call(data: Mapping[str, Any], *, where: str) -> ToolCall:
    kind = data.get("type", "function")
    if not isinstance(kind, str):
        raise InvalidMessageError(f"{where}.type is {type(kind).__name__}; it must be text")
    inner = data.get(kind)
    if not isinstance(inner, Mapping):
        raise InvalidMessageError(f"{where} lacks the mapping that its type names")
    field = "input" if kind == "custom" else "arguments"
    return ToolCall(
        id=text_of(data, "id", where=where),
        name=text_of(inner, "name", where=f"{where}.{kind}"),
        arguments=text_of(inner, field, where=f"{where}.{kind}"),
        type=kind,
    )


def _openai_call_back(call: ToolCall) -> dict[str, Any]:
    field = "input" if call.type == "custom" else "arguments"
    kind = call.type if call.type in {"function", "custom"} else "function"
    return {"id": call.id, "type": kind, kind: {"name": call.name, field: call.arguments}}


def _role_back(role: Role, kept: Mapping[str, Any]) -> str:
    """Return the role as it was read, if it is equivalent to the message's own.

    Applications fill the metadata; it must not turn a user's message into a system message.
    """
    given = kept.get("role")
    if isinstance(given, str) and _OPENAI_ROLES.get(given) == role:
        return given
    return role


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of an export: the messages of a session, each with a key.

    A branch holds its own messages only: ``parent`` is the id of the conversation that it leaves,
    and ``after`` the key of the message there that it follows (None: it has its own beginning).
    ``branching`` says that the format keeps branches, so that a message which a session does not
    hold belongs after its predecessor. Either all messages have a time or none has. ``notes``
    counts what was assumed or left out as known, ``unread`` what is damaged or was not understood;
    each of these names the first place.
    """

    id: str
    title: str | None
    messages: tuple[Message, ...]
    format: str = field(kw_only=True)
    parent: str | None = field(default=None, kw_only=True)
    after: str | None = field(default=None, kw_only=True)
    branching: bool = field(default=False, kw_only=True)
    notes: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    unread: Mapping[str, int] = field(default_factory=dict, kw_only=True)
