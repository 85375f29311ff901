"""pydantic-ai: a capability that keeps a whole conversation and bounds the requests of an agent.

    agent = Agent("openai:gpt-5-mini", capabilities=[HiermemCapability(memory)])
    result = await agent.run("Hello", conversation_id="ada")

Needs the extra ``pydantic-ai``.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import takewhile
from typing import Any, TypeAlias

from pydantic_ai import messages as pai
from pydantic_ai.capabilities import AbstractCapability

from hiermem import FilePart, ImagePart, JsonPart, Memory, Message, Session, TextPart, ToolCall
from hiermem.integrations.branches import (
    checked,
    current,
    fork,
    go_on_in,
    keep,
    outcome_of,
)

__all__ = ["HiermemCapability"]

#: How the media types of files begin that have a kind of their own; others are documents.
_KINDS: dict[Any, str] = {pai.AudioUrl: "audio/", pai.VideoUrl: "video/"}
#: A message of hiermem, and the response or the part of a request that it stands for.
Piece: TypeAlias = tuple[Message, Any]
#: In the metadata of a message: what of its origin a Message has no field for.
_KEPT = "pydantic_ai"


class HiermemCapability(AbstractCapability[Any]):
    """Keeps an agent's conversation in a memory and sends a context of at most ``max_tokens``.

    The session is that of the run's ``conversation_id``. ``result.all_messages()`` stays whole;
    only the request to the model is shorter. ``max_tokens`` counts instructions, tools and all
    messages. A new session is a member of ``space``, which must exist.

    A run without ``message_history`` continues the conversation that the session holds. With a
    history that was rewound or edited, the conversation goes on in a fork at that message, and the
    metadata of the session ``conversation_id`` name the fork as ``continues_in``.

    Put it first: what other capabilities change in a request before it is not sent.

    Raises UsageError where ``memory`` is not a Memory.
    """

    def __init__(
        self, memory: Memory, *, max_tokens: int = 8_000, space: str | None = None
    ) -> None:
        self._memory, self._space = checked(memory), space
        self._max_tokens = max_tokens
        self._forget()

    def _forget(self) -> None:
        self._session: Session | None = None
        self._kept: list[Message] = []
        self._places: list[int] = []
        self._whole = False

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a memory cannot be written into a specification."""
        return None

    async def for_run(self, ctx: Any) -> HiermemCapability:
        """Return an instance for one run, which knows what of the run is stored."""
        mine = copy(self)
        mine._forget()  # noqa: SLF001 - an instance of this very class
        return mine

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        """Store what is new, and put a context in the place of the messages."""
        shown = await outcome_of(self._context, ctx, request_context)
        return replace(request_context, messages=shown)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        """Store the answer."""
        await outcome_of(self._keep, ctx, result.all_messages())
        return result

    def _context(self, ctx: Any, request: Any) -> list[Any]:
        """Return the messages to send: leading system prompts, records, the newest messages."""
        # The run's own, not the request's: what is changed for one request is no rewrite.
        given = list(ctx.messages)
        lead = list(_lead(given))
        session, pieces = self._keep(ctx, given)
        parameters = request.model_request_parameters
        texts = [each.content for each in (*(parameters.instruction_parts or ()), *lead)]
        context = session.context(
            self._max_tokens,
            system="\n\n".join(texts) if texts else None,
            tools=[
                {
                    "name": each.name,
                    "description": each.description or "",
                    "parameters": each.parameters_json_schema,
                }
                for each in (*parameters.function_tools, *parameters.output_tools)
            ],
        )
        shown = [pai.ModelRequest(lead)] if lead else []
        own = dict(zip(self._places, pieces, strict=True))
        earlier = len(_pieces([each for each in given if each.run_id != ctx.run_id]))
        begun = self._places[earlier] if earlier < len(pieces) else context.messages
        places = [block.message.index if block.message else -1 for block in context.blocks]
        if all(place < begun or place in own for place in places):
            shown += _messages(context.blocks, own)
        else:
            # Another run added messages since: this run continues from where it began.
            pairs = zip(context.blocks, places, strict=True)
            shown += _messages((block for block, place in pairs if place < begun), own)
            shown += (_request(origin) for _, origin in pieces[earlier:])
        asked = [each for each in given[-1].parts if not isinstance(each, pai.SystemPromptPart)]
        if not any(_says(each) for each in asked):
            shown.append(replace(given[-1], parts=asked))
        return shown

    def _keep(self, ctx: Any, messages: Sequence[Any]) -> tuple[Session, list[Piece]]:
        """Make the session's end equal to the run's messages; return both."""
        pieces = _pieces(messages)
        name, now, before = ctx.conversation_id, [message for message, _ in pieces], self._kept
        if self._session is None:
            self._whole = any(each.run_id != ctx.run_id for each in messages)
        pairs = zip(before, now, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rewritten = same < len(before)
        if self._whole and (self._session is None or rewritten):
            session = keep(self._memory, name, now, self._space)
            stop = session.count()
            self._places = list(range(stop - len(now), stop))
        else:
            session = self._session or current(self._memory, name, self._space)
            if rewritten:
                session = fork(self._memory, name, session, self._places[same])
                go_on_in(self._memory, name, session)
            self._places[same:] = session.append(now[same:])
        self._session, self._kept = session, now
        return session, pieces


def _lead(messages: Sequence[Any]) -> Iterator[Any]:
    """Yield the system prompts at the beginning; a session does not keep those."""
    for part in messages[0].parts if messages else ():
        if not isinstance(part, pai.SystemPromptPart):
            break
        yield part


def _pieces(messages: Sequence[Any]) -> list[Piece]:
    """Read messages of pydantic-ai as messages of hiermem, without the leading system prompts."""
    found: list[Piece] = []
    for message in messages:
        if isinstance(message, pai.ModelResponse):
            found.append((_answer(message), message))
            continue
        for part in message.parts:
            read = _asked(part)
            if read is not None and (found or read.role != "system"):
                found.append((read, part))
    return found


def _answer(response: Any) -> Message:
    calls = [each for each in response.parts if isinstance(each, pai.ToolCallPart)]
    others = [each for each in response.parts if not isinstance(each, pai.ToolCallPart)]
    if all(isinstance(each, pai.TextPart) for each in others):
        content: Any = "".join(each.content for each in others)
    else:
        dumped = _dumped(pai.ModelResponse(others))
        content = tuple(
            TextPart(each.content)
            if isinstance(each, pai.TextPart)
            else JsonPart({"type": each.part_kind, **data})
            for each, data in zip(others, dumped, strict=True)
        )
    objects = [number for number, each in enumerate(calls) if not isinstance(each.args, str)]
    return Message.assistant(
        content,
        tool_calls=[
            ToolCall(
                each.tool_call_id,
                each.tool_name,
                each.args if isinstance(each.args, str) else each.args_as_json_str(),
            )
            for each in calls
        ],
        metadata={_KEPT: {"objects": objects}} if objects else {},
    )


def _asked(part: Any) -> Message | None:
    """Return a part of a request as a message; None for what is no part of the conversation."""
    if isinstance(part, pai.SystemPromptPart):
        return Message.system(part.content)
    if isinstance(part, pai.UserPromptPart):
        return Message.user(_contents(part.content))
    text: Any
    metadata: dict[str, Any] = {}
    if isinstance(part, pai.ToolReturnPart):
        if part.outcome != "success":
            metadata = _kept(replace(part, content="", metadata=None))
        text = part.model_response_str()
        if part.files:
            text = _contents([text, *part.files] if text else part.files)
    elif isinstance(part, pai.RetryPromptPart | pai.RetryFeedbackPart):
        text = part.model_response()
        if isinstance(part, pai.RetryFeedbackPart):
            metadata = _kept(replace(part, content=""))
    else:
        return None
    if getattr(part, "tool_name", None) is None:
        return Message.user(text, metadata=metadata)
    return Message.tool(
        text, tool_call_id=part.tool_call_id, name=part.tool_name, metadata=metadata
    )


def _kept(bare: Any) -> dict[str, Any]:
    """Return the metadata that tell a part from others of its role, its content left out."""
    [data] = _dumped(pai.ModelRequest([bare]))
    return {_KEPT: {"part": data}}


def _kept_of(message: Message) -> Mapping[str, Any]:
    kept = message.metadata.get(_KEPT)
    return kept if isinstance(kept, Mapping) else {}


def _says(part: Any) -> bool:
    """Return whether a part of a request is shown: of an empty prompt a context shows nothing."""
    return not isinstance(part, pai.UserPromptPart) or bool(_contents(part.content))


def _contents(content: str | Sequence[Any]) -> Any:
    """Return what a prompt holds, without marks that say only what a provider is to cache."""
    if isinstance(content, str):
        return content
    return tuple(_content(each) for each in content if not isinstance(each, pai.CachePoint))


def _content(item: Any) -> Any:
    if isinstance(item, str | pai.TextContent):
        return TextPart(item if isinstance(item, str) else item.content)
    if isinstance(item, pai.ImageUrl):
        return ImagePart(item.url)
    if isinstance(item, pai.BinaryContent):
        return (ImagePart if item.is_image else FilePart)(item.data_uri)
    if isinstance(item, pai.FileUrl):
        return FilePart(item.url, media_type=_media_type(item))
    [data] = _dumped(pai.ModelRequest([pai.UserPromptPart([item])]))
    return JsonPart(data["content"][0])


def _media_type(item: Any) -> str:
    """Return the media type of a file by its URL, or the kind alone where the URL tells none."""
    try:
        found = str(item.media_type)
    except ValueError:
        found = ""
    kind = _KINDS.get(type(item), "")
    return found if found.startswith(kind) else f"{kind}*"


def _content_back(part: Any) -> Any:
    """Write a part of a prompt."""
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, JsonPart):
        return _other_back(part.data)
    if part.reference.startswith("data:"):
        with suppress(ValueError):
            return pai.BinaryContent.from_data_uri(part.reference)
    if isinstance(part, ImagePart):
        return pai.ImageUrl(part.reference)
    kind = part.media_type or ""
    made = next((each for each, begins in _KINDS.items() if kind.startswith(begins)), None)
    known = None if not kind or kind.endswith("*") else kind
    return (made or pai.DocumentUrl)(part.reference, media_type=known)


def _other_back(data: Mapping[str, Any]) -> Any:
    """Write content as it was dumped; what another way in has stored is named in its place."""
    if "kind" in data:  # without one, anything would be read as a cache mark
        part = {"part_kind": "user-prompt", "content": [dict(data)]}
        with suppress(ValueError):
            request: Any = {"kind": "request", "parts": [part]}
            [request] = pai.ModelMessagesTypeAdapter.validate_python([request])
            return request.parts[0].content[0]
    return f"[{data.get('type', 'data')}]"


def _dumped(message: Any) -> list[Any]:
    """Return the parts of a message as JSON."""
    [data] = pai.ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return list(data["parts"])


def _messages(blocks: Iterable[Any], own: Mapping[int, Piece]) -> Iterator[Any]:
    """Yield the blocks of a context as messages of pydantic-ai, which joins adjacent requests.

    ``own`` are the pieces of the run by their index. A message that the run holds is the run's own,
    with what only its provider reads.
    """
    names: dict[str, str] = {}
    for block in blocks:
        message: Message | None = block.shown
        if message is None:
            yield pai.ModelRequest([pai.UserPromptPart(block.text)])
            continue
        names.update((call.id, call.name) for call in message.tool_calls)
        piece = own.get(block.message.index)
        if piece is None or not _same(piece[0], message):
            yield _written(message, names)
        else:
            yield _request(piece[1])


def _request(origin: Any) -> Any:
    """Return a response, or a part of a request, as a message."""
    return origin if isinstance(origin, pai.ModelResponse) else pai.ModelRequest([origin])


def _same(one: Message, other: Message) -> bool:
    """Return whether two messages say the same; a stored one also has a time."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("role", "content", "tool_calls", "tool_call_id")
    )


def _origin(message: Message) -> Any | None:
    """Return the part that a message was read from, where a Message has no fields for all of it.

    Its content is that of the message, which may have been edited, without what pydantic-ai puts
    around it for the model: an object around an error, a fence around feedback.
    """
    text = message.content
    with suppress(ValueError):
        made: Any = {"kind": "request", "parts": [_kept_of(message).get("part")]}
        [made] = pai.ModelMessagesTypeAdapter.validate_python([made])
        [bare] = made.parts
        kind = pai.ToolReturnPart if message.role == "tool" else pai.RetryFeedbackPart
        if not isinstance(bare, kind) or message.role not in ("tool", "user"):
            return None
        inside: list[Any] = [text]
        if isinstance(bare, pai.RetryFeedbackPart):
            before, _, after = replace(bare, content="\0").model_response().partition("\0")
            inside = [str(text)[len(before) : len(text) - len(after)]]
        with suppress(ValueError, TypeError):
            read = json.loads(inside[0])
            inside.append(read.get("error") if isinstance(read, dict) else read)
        for content in inside:
            part = replace(bare, content=content)
            with suppress(ValueError, TypeError):
                if (found := _asked(part)) is not None and found.content == text:
                    return part
        return replace(bare, content=text) if isinstance(bare, pai.ToolReturnPart) else None
    return None


def _object(call: ToolCall) -> Any:
    """Return the arguments of a call that were an object; others came as text and stay so."""
    with suppress(ValueError):
        read = json.loads(call.arguments)
        return read if isinstance(read, dict) else call.arguments
    return call.arguments


def _written(message: Message, names: Mapping[str, str]) -> Any:
    """Write a message that the run does not hold."""
    if isinstance(message.content, str) and (part := _origin(message)) is not None:
        return pai.ModelRequest([part])
    contents: Sequence[Any] = message.content
    if isinstance(contents, str):
        contents = [TextPart(contents)] if contents else []
    texts = [each.text for each in contents if isinstance(each, TextPart)]
    if message.role == "assistant":
        parts = [
            {"part_kind": "text", "content": each.text}
            if isinstance(each, TextPart)
            else dict(each.data)  # as it was dumped
            for each in contents
            if isinstance(each, TextPart)
            or (isinstance(each, JsonPart) and "part_kind" in each.data)
        ]
        [said] = pai.ModelMessagesTypeAdapter.validate_python(
            [{"kind": "response", "parts": parts}]
        )
        objects = _kept_of(message).get("objects")
        calls = [
            pai.ToolCallPart(each.name, _object(each) if were else each.arguments, each.id)
            for number, each in enumerate(message.tool_calls)
            for were in (isinstance(objects, Sequence) and number in list(objects),)
        ]
        return pai.ModelResponse([*said.parts, *calls])
    if message.role == "system":
        return pai.ModelRequest([pai.SystemPromptPart("".join(texts))])
    if message.role == "tool" and message.tool_call_id is not None:
        name = message.name or names.get(message.tool_call_id, "tool")
        returned: Any = "".join(texts)
        if len(texts) < len(contents):
            returned = [_content_back(each) for each in contents]
        return pai.ModelRequest([pai.ToolReturnPart(name, returned, message.tool_call_id)])
    if len(texts) == len(contents) == 1:
        return pai.ModelRequest([pai.UserPromptPart(texts[0])])
    return pai.ModelRequest([pai.UserPromptPart([_content_back(each) for each in contents])])
