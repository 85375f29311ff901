"""Contexts as providers take them: the one place that decides what is sent in its native form.

``Rules`` states what each provider takes, as it says or as its refusals name it; where its models
differ, the strictest form is the rule. What it does not take is mapped: names, call ids and
names of tools to a form that all take, arguments that are no object to one, a part of another
provider or of another role to a short text in its place. Reasoning that another provider made is
left out. Where a shape has no names, the speaker stands before the text. What a message becomes
depends on it and on the messages before it alone, so that a further message changes no byte before
it. Data that was kept when a message was read (cache marks, refusals beside the content) is left
out: it was not counted.

A dated seam, where there is one, stands in front of a message of the user's, or in a message of its
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

from hiermem.convert import anthropic, responses
from hiermem.types import FilePart, ImagePart, JsonPart, Message, Part, Role, TextPart, ToolCall
from hiermem.types.message import (
    kept_of,
    one_line,
    openai_part,
    openai_part_back,
    part_text,
    speaker,
)


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


#: A message of a context, and the seam in front of it: a date, or "".
Entry: TypeAlias = tuple[str, Message]

_NOT_IN_NAMES = re.compile(r"[\s<|\\/>]+")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]+")
_MOST = 64
_DIGITS = 8
#: Parts that only their own provider understands, and that are not for the eye.
_HIDDEN = frozenset(("thinking", "redacted_thinking", "reasoning", "item_reference", "compaction"))
#: The fields that hold the text of a part whose type other providers do not know.
_TEXTS = {"refusal": "refusal", "input_text": "text", "output_text": "text", "text": "text"}
#: What a part that is sent as it came must have.
_NEEDED: Mapping[str, Mapping[str, type]] = {
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "reasoning": {"encrypted_content": str},
    "input_audio": {"input_audio": Mapping},
    "input_image": {"file_id": str},
    "input_file": {"file_id": str},
    "search_result": {"source": str, "title": str, "content": list},
    "server_tool_use": {"id": str, "name": str, "input": Mapping},
    "web_search_tool_result": {"tool_use_id": str, "content": list},
}
_OPENING = "…"
#: The most characters of a data URL that hold its media type.
_MEDIA_TYPE = 64


# -- names, ids and arguments


def sent_name(name: str) -> str:
    """Return a speaker's name in a form that is taken, the same each time and no other's.

    A name that shows nothing is none, "".

    >>> sent_name("Ada"), sent_name("Ann Smith")
    ('Ada', 'Ann_Smith_5e1e8174')
    """
    return _formed(name, CHAT.name, _NOT_IN_NAMES) if one_line(name).strip() else ""


def _formed(text: str, taken: re.Pattern[str] | None, refused: re.Pattern[str]) -> str:
    """Return a text as it is where it is taken, else what is taken of it and a hash of it."""
    if taken is not None and taken.fullmatch(text) and text.isprintable():
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    kept = "".join(char if char.isprintable() else " " for char in text[:_MOST])
    kept = refused.sub("_", kept)[: _MOST - 1 - _DIGITS].strip("_")
    return f"{kept}_{digest}" if kept else f"x_{digest}"


def sent_call(call: ToolCall) -> ToolCall:
    """Return a call with an id, a name and arguments that all providers take."""
    return replace(
        call,
        id=_sent_id(call.id),
        name=_formed(call.name, CHAT.tool_name, _NOT_IN_IDS),
        arguments=call.arguments if call.type == "custom" else _sent_arguments(call.arguments),
        type="custom" if call.type == "custom" else "function",
    )


def _sent_id(call_id: str) -> str:
    return _formed(call_id, CHAT.tool_name, _NOT_IN_IDS)


def _sent_arguments(arguments: str) -> str:
    """Return arguments that are an object; what a model wrote otherwise is still shown."""
    if not arguments.strip():
        return "{}"
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        read = arguments
    if isinstance(read, dict):
        return arguments
    return json.dumps({"arguments": arguments}, ensure_ascii=False) if read is not None else "{}"


class CallIds:
    """Gives each call of a context an id of its own, and its result the same one."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._open: dict[str, list[str]] = {}

    def sent(self, message: Message) -> Message:
        """Return a message with its calls, or the call that it answers, as they are sent."""
        if message.tool_calls:
            return replace(message, tool_calls=tuple(map(self._call, message.tool_calls)))
        if message.tool_call_id is not None:
            waiting = self._open.get(message.tool_call_id)
            sent_id = waiting.pop(0) if waiting else _sent_id(message.tool_call_id)
            return replace(message, tool_call_id=sent_id)
        return message

    def _call(self, call: ToolCall) -> ToolCall:
        made = sent_call(call)
        used = made.id
        while used in self._uses:
            self._uses[made.id] += 1
            used = f"{made.id[: _MOST - 8]}_{self._uses[made.id]}"
        self._uses[used] = 1
        self._open.setdefault(call.id, []).append(used)
        return replace(made, id=used)


def native(messages: Sequence[Message | None]) -> list[bool]:
    """Return for each message whether it can keep its role: not a call or a result without other.

    Providers refuse a tool result that does not follow its call, and a call without its results.
    Therefore a group is native only if it is complete and no other message interrupts it. None
    stands for a message that is shown in part.
    """
    natives = [m is not None and m.role != "tool" and not m.tool_calls for m in messages]
    for position, message in enumerate(messages):
        if message is None or not message.tool_calls:
            continue
        pending = [call.id for call in message.tool_calls]
        end = position + 1
        while end < len(messages) and pending:
            answer = messages[end]
            if answer is None or answer.tool_call_id not in pending:
                break
            if answer.thread != message.thread:
                break
            pending.remove(answer.tool_call_id)
            end += 1
        if not pending:
            natives[position:end] = [True] * (end - position)
    return natives


# -- content


def _parts(
    message: Message, rules: Rules, write: Callable[[Part, Role], dict[str, Any]]
) -> list[Part | None]:
    """Return each part as the provider takes it; None for one that is left out.

    What it does not take is a text instead, and what it takes as it came stays a JsonPart.
    """
    content = message.content
    if isinstance(content, str):
        return [TextPart(content)]
    converted: list[Part | None] = []
    for content_part in content:
        part: Part | None = understood(content_part)
        if isinstance(part, JsonPart):
            kind = part.data.get("type")
            lone = message.role == "assistant" and kind in rules.lone
            if not (lone or kind in rules.parts[message.role]) or not _whole(part.data):
                part = None if kind in _HIDDEN else TextPart(part_text(part))
        elif part is not None and not _taken(write(part, message.role), message.role, rules):
            part = TextPart(part_text(part))
        converted.append(part)
    return converted


def understood(part: Part) -> Part:
    """Return a part that was kept as it came as one of ours, where it can be read as one."""
    if not isinstance(part, JsonPart):
        return part
    data = part.data
    output = data.get("output")
    if isinstance(data.get("call_id"), str) and isinstance(output, str):
        return TextPart(output)
    if isinstance(data.get("call_id"), str) and isinstance(output, Mapping):
        data = output
    kind = data.get("type")
    if isinstance(kind, str) and kind in _TEXTS and isinstance(data.get(_TEXTS[kind]), str):
        return TextPart(data[_TEXTS[kind]])
    url = data.get("image_url")
    if isinstance(url, Mapping):
        url = url.get("url")
    if isinstance(url, str):
        return ImagePart(url)
    for read in (openai_part, responses.read_part, anthropic.read_block):
        if (found := read(data)) is not None:
            return found
    return part


def is_image(part: Part) -> bool:
    """Return whether a part is an image, by its data or by a reference."""
    part = understood(part)
    if isinstance(part, FilePart):
        media = part.media_type or part.reference[:_MEDIA_TYPE].lower().removeprefix("data:")
        return media.startswith("image/")
    if isinstance(part, JsonPart):
        return "image" in str(part.data.get("type")) and not hidden(part)
    return isinstance(part, ImagePart)


def hidden(part: Part) -> bool:
    """Return whether a part is a provider's own: thoughts, and marks of what it keeps itself."""
    return isinstance(part, JsonPart) and part.data.get("type") in _HIDDEN


def _whole(data: Mapping[str, Any]) -> bool:
    """Return whether a part that is sent as it came has what its type needs."""
    needed = _NEEDED.get(str(data.get("type")), {})
    return bool(needed) and all(isinstance(data.get(field), of) for field, of in needed.items())


def _taken(written: Mapping[str, Any], role: Role, rules: Rules) -> bool:
    """Return whether a provider takes an image or a file in this form, from this role."""
    if written.get("type") not in rules.parts[role]:
        return False
    source = written.get("source")
    if not isinstance(source, Mapping):
        file = written.get("file")
        return not (isinstance(file, Mapping) and "://" in str(file.get("file_id", "")))
    if source.get("type") == "url":
        return str(source.get("url")).startswith(("https://", "http://"))
    if source.get("type") == "base64":
        media = rules.images if written["type"] == "image" else rules.documents
        return media is None or source.get("media_type") in media
    return True


def _fronted(parts: list[Part | None], role: Role, seam: str, name: str) -> list[Part | None]:
    """Put the date, and the speaker where he is named, before the first text."""
    front = "\n".join(filter(None, (seam, f"{name}:" if name else "")))
    if not front:
        return parts
    between = " " if name else "\n"
    for i, part in enumerate(parts):
        if isinstance(part, TextPart) and part.text.strip() and (i == 0 or role != "user"):
            return [*parts[:i], TextPart(f"{front}{between}{part.text}"), *parts[i + 1 :]]
    # An assistant who only calls tools says nothing that a name could stand before.
    return [TextPart(front), *parts] if role == "user" else parts


def _name_of(message: Message) -> str:
    named = one_line(message.name or "").strip()
    return speaker(message) if named and message.role in ("user", "assistant") else ""


def _role(message: Message, *shapes: str) -> str:
    """Return a message's role; "developer" for a system message that was read as one."""
    roles = (kept_of(message.metadata, shape).get("role") for shape in shapes)
    kept = next(filter(None, roles), "")
    return "developer" if kept == "developer" and message.role == "system" else message.role


# -- OpenAI's chat interface


def to_chat(entries: Iterable[Entry], system: str | None = None) -> list[dict[str, Any]]:
    """Write a context as the ``messages`` of a request to OpenAI's chat interface."""
    ids = CallIds()
    written: list[dict[str, Any]] = []
    if system is not None and system.strip():
        written.append({"role": "system", "content": system})
    for seam, source in entries:
        message = ids.sent(source)
        front = seam if message.role == "user" else ""
        if seam and not front:
            written.append({"role": "user", "content": seam})
        content = _chat_content(message, front)
        calls: list[dict[str, Any]] = []
        for call in message.tool_calls:
            field = "input" if call.type == "custom" else "arguments"
            what = {"name": call.name, field: call.arguments}
            calls.append({"id": call.id, "type": call.type, call.type: what})
        if not content and not calls and message.role != "tool":
            continue
        role = _role(message, "openai")
        null = calls and not content
        data: dict[str, Any] = {"role": role, "content": None if null else content}
        if message.role != "tool" and (name := sent_name(message.name or "")):
            data["name"] = name
        if calls:
            data["tool_calls"] = calls
        if message.tool_call_id is not None:
            data["tool_call_id"] = message.tool_call_id
        written.append(data)
    return written


def _chat_content(message: Message, seam: str) -> str | list[dict[str, Any]]:
    parts = _parts(message, CHAT, lambda part, _: openai_part_back(part))
    parts = _fronted(parts, message.role, seam, "")
    if isinstance(message.content, str):
        return "\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)
    return [openai_part_back(part) for part in parts if part is not None] or ""


# -- OpenAI's Responses interface


def to_items(entries: Iterable[Entry], system: str | None = None) -> list[dict[str, Any]]:
    """Write a context as the ``input`` of a request to OpenAI's Responses interface.

    Items bear no ids: a provider refuses one whose id is bound to an item that it does not find,
    and a context may hold one without the other. Reasoning is sent only with its encrypted content,
    and only before what it led to.
    """
    ids = CallIds()
    items: list[dict[str, Any]] = []
    if system is not None and system.strip():
        items.append({"type": "message", "role": "system", "content": system})
    custom: set[str] = set()
    thought: list[dict[str, Any]] = []
    for seam, source in entries:
        message = ids.sent(source)
        front = seam if message.role == "user" else ""
        if seam and not front:
            items.append({"type": "message", "role": "user", "content": seam})
            thought = []
        content = _item_content(message, front)
        if (call_id := message.tool_call_id) is not None:
            kind = "custom_tool_call" if call_id in custom else "function_call"
            items.append({"type": f"{kind}_output", "call_id": call_id, "output": content})
            thought = []
            continue
        lone = _reasoning(message)
        if message.role == "assistant" and (content or message.tool_calls):
            items += [*thought, *lone]
            thought = []
        elif message.role == "assistant":
            thought = lone or thought
        else:
            thought = []
        if content:
            role = _role(message, "responses", "openai")
            items.append({"type": "message", "role": role, "content": content, **_phase(message)})
        for call in message.tool_calls:
            kind, field = "function_call", "arguments"
            if call.type == "custom":
                kind, field = "custom_tool_call", "input"
                custom.add(call.id)
            items.append(
                {"type": kind, "call_id": call.id, "name": call.name, field: call.arguments}
            )
    return items


def _phase(message: Message) -> dict[str, str]:
    """Return the phase of an answer, which its provider wants back."""
    phase = kept_of(kept_of(message.metadata, "responses"), "fields").get("phase")
    return {"phase": phase} if isinstance(phase, str) and message.role == "assistant" else {}


def _reasoning(message: Message) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in part.data.items() if name not in ("id", "status")}
        for part in message.content
        if isinstance(part, JsonPart) and part.data.get("type") == "reasoning" and _whole(part.data)
    ]


def _item_content(message: Message, seam: str) -> str | list[dict[str, Any]]:
    """Return the content of an item; an answer without an id must be plain text."""
    parts = _parts(message, RESPONSES, responses.write_part)
    parts = _fronted(parts, message.role, seam, _name_of(message))
    shown = [part for part in parts if part is not None and not (
        isinstance(part, JsonPart) and part.data.get("type") in RESPONSES.lone
    )]  # fmt: skip
    if isinstance(message.content, str) or message.role == "assistant":
        return "".join(part.text for part in shown if isinstance(part, TextPart))
    return [responses.write_part(part, message.role) for part in shown] or ""


# -- Anthropic's messages interface


def to_messages(entries: Iterable[Entry], system: str | None = None) -> dict[str, Any]:
    """Write a context as the ``system`` and ``messages`` of a request to Anthropic.

    A provider caches a prompt up to its first changed byte. Content is therefore a list of blocks
    even for a single text. Neighbours of one role are one message, as the interface requires, but
    each keeps blocks of its own. System messages that lead the context join ``system``; a later one
    stays in its place, as the user's text ``System: …``. Whether a tool failed is kept.
    """
    ids = CallIds()
    prompts = [_text(system)] if system is not None and system.strip() else []
    written: list[dict[str, Any]] = []
    given = None
    for seam, given in entries:
        message = ids.sent(given)
        if message.role == "system" and not written:
            prompts += _blocks(message, "")
            continue
        role = "assistant" if message.role == "assistant" else "user"
        front = seam if message.role == "user" else ""
        if seam and not front:
            _extend(written, "user", [_text(seam)])
        if role == "assistant" and not written:
            _extend(written, "user", [_text(_OPENING)])
        _extend(written, role, _blocks(message, front, as_system=message.role == "system"))
    if given and not written:
        _extend(written, "user", [_text(_OPENING)])
    if not prompts:
        return {"messages": written}
    lead = prompts[0]["text"] if len(prompts) == 1 else prompts
    return {"messages": written, "system": lead}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _extend(written: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    if blocks and written and written[-1]["role"] == role:
        written[-1]["content"] += blocks
    elif blocks:
        written.append({"role": role, "content": blocks})


def _blocks(message: Message, seam: str, *, as_system: bool = False) -> list[dict[str, Any]]:
    """Return a message's blocks without blank texts, which the interface refuses."""
    kept = kept_of(message.metadata, "anthropic")
    parts = _parts(message, ANTHROPIC, lambda part, _: anthropic.write_block(part))
    role: Role = "user" if as_system else message.role
    parts = _fronted(parts, role, seam, "System" if as_system else _name_of(message))
    made = _paired_server_calls(
        [None if part is None or _blank(part) else anthropic.write_block(part) for part in parts]
    )
    blocks = [block for block in made if block is not None]
    if message.role == "tool" and message.tool_call_id is not None:
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        as_text = blocks[0]["text"] if isinstance(message.content, str) and blocks else blocks
        result["content"] = as_text or ""
        if kept_of(kept, "result").get("is_error") is True:
            result["is_error"] = True
        return [result]
    if message.role != "assistant":
        return blocks
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)}
        for call in message.tool_calls
    ]
    ordered = anthropic.in_order(made, calls, kept.get("order"))
    blocks = [block for block in ordered if block is not None]
    # A thought must lead to something, and the last text must not end in white space.
    while blocks and blocks[-1]["type"] in ANTHROPIC.lone:
        blocks.pop()
    if blocks and blocks[-1]["type"] == "text":
        blocks[-1] = _text(blocks[-1]["text"].rstrip())
    return blocks


def _blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _input(call: ToolCall) -> dict[str, Any]:
    if call.type == "custom":
        return {"arguments": call.arguments}
    arguments: dict[str, Any] = json.loads(call.arguments)
    return arguments


def _paired_server_calls(blocks: list[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Return blocks with texts for the calls of a provider's own tools that lack their result."""
    own = [block for block in blocks if block is not None]
    results = {block.get("tool_use_id") for block in own}
    called = {block["id"] for block in own if block["type"] == "server_tool_use"}
    both = {each for each in results & called if ANTHROPIC.call_id.fullmatch(str(each))}
    pairs = {"server_tool_use": "id", "web_search_tool_result": "tool_use_id"}
    return [
        block
        if block is None or block["type"] not in pairs or block[pairs[block["type"]]] in both
        else _text(f"[{block['type']}]")
        for block in blocks
    ]
