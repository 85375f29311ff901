"""Claude, and any server that speaks the Messages protocol.

The SDK only carries the request. Its retries are off, because the engine retries, waits and keeps
the journal. ``remote.responses`` reads its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from hiermem import arguments
from hiermem.calls.limits import count_of, reported_model
from hiermem.protocols import ChatMessage, Finish, LLMRequest, LLMResponse, Usage
from hiermem.remote.chat import ChatSettings, RemoteChat
from hiermem.remote.responses import MiscastError, messages_of, text_of

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["AnthropicChat"]

_FINISH: Final[Mapping[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class AnthropicChat(RemoteChat):
    """A model behind Anthropic's Messages API. Needs the extra ``anthropic``.

    Without ``base_url`` the SDK's own environment variables give the address and the key. With one,
    only ``api_key`` is ever sent there. ``client`` may be an ``AsyncAnthropic`` of your own
    (Bedrock's and Vertex's too), or a function that makes one: it is called once for each event
    loop, and the client it returns is closed with the memory.

    ``context_window`` is the model's in tokens; requests that do not fit are not sent.
    ``max_output_tokens`` is the most that the model can write. ``reasoning_tokens`` is added to
    every limit of an answer, where ``extra`` makes the model reason, and is reserved with each
    call. ``timeout`` is in seconds: for the whole call where nothing arrives, and between two
    pieces of the answer; 120 where it is None, and 600 for an address of this machine.
    ``temperature`` is the session's ("auto"), one number for all requests, or
    None to send none. ``structured`` tells whether the server holds answers to a JSON schema: where
    it refuses that, "auto" asks for the schema in words from then on. ``cache`` marks the constant
    part of each prompt for the provider's cache. ``stream`` requests the answer in pieces, for long
    ones. ``extra`` are further fields of every request, such as ``{"thinking": {...}}``.

    Change the ``name`` where ``extra`` changes what the model writes: it identifies its summaries.
    Raises ConfigError for impossible settings, and where the extra is missing.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncAnthropic | Callable[[], AsyncAnthropic] | None = None,
        cache: bool = True,
        **settings: Unpack[ChatSettings],
    ) -> None:
        settings.setdefault("context_window", 200_000)
        without = () if arguments.switch(cache, "cache") else ("cache_control",)
        super().__init__(model, base_url=base_url, limits=(), without=without, **settings)
        self._server = self._connect(
            "anthropic", "AsyncAnthropic", base_url=base_url, api_key=api_key, client=client
        )

    async def _exchange(self, request: LLMRequest, refused: frozenset[str]) -> LLMResponse:
        """Send one request, whole or as a stream, and read its answer."""
        reported = self._messages(request, refused)
        fields: dict[str, Any] = {}
        if system := _system(reported, cached="cache_control" not in refused):
            fields["system"] = system
        temperature = self._temperature_of(request, refused)
        if temperature is not None:
            # This protocol's scale ends at 1.
            fields["temperature"] = min(1.0, temperature)
        schema = self._schema(request, refused)
        fields |= self._extra
        if schema is not None:
            # Other settings of the output, such as its effort, stand in the same field as the
            # schema.
            configured = _mapping(fields.get("output_config"))
            shape = {"type": "json_schema", "schema": schema}
            fields["output_config"] = {"format": shape, **configured}
        answer = await self._server.ask(
            lambda client: client.messages,
            content="content",
            joined=_joined_events if self._stream else None,
            model=self._model,
            max_tokens=self._limit(request),
            messages=messages_of([each for each in reported if each.role != "system"]),
            timeout=self._timeout * request.patience,
            # As an extra body, fields that this version of the SDK does not know pass through.
            extra_body=fields,
        )
        return _read(answer, model=self._model)


def _system(messages: Sequence[ChatMessage], *, cached: bool) -> list[dict[str, Any]]:
    """Return the system messages as the protocol's blocks, the last one marked for the cache."""
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": each.content} for each in messages if each.role == "system"
    ]
    if blocks and cached:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    return blocks


def _read(answer: Mapping[str, Any], *, model: str) -> LLMResponse:
    """Read a message. Raises MiscastError where it is none."""
    content = answer.get("content")
    if not isinstance(content, list):
        raise MiscastError("the answer has no content")
    reason = answer.get("stop_reason")
    return LLMResponse(
        text=text_of(content),
        usage=_usage(answer.get("usage")),
        finish_reason="stop" if reason is None else _FINISH.get(str(reason), "error"),
        model=reported_model(answer.get("model"), asked=model),
    )


def _usage(reported: object) -> Usage:
    """Read the counts. Cached input is a separate count here, and part of the input in ours."""
    if not isinstance(reported, Mapping):
        return Usage()
    fresh = count_of(reported.get("input_tokens"))
    cached = count_of(reported.get("cache_read_input_tokens"))
    cache_written = count_of(reported.get("cache_creation_input_tokens"))
    details = reported.get("output_tokens_details")
    return Usage(
        input_tokens=None if fresh is None else fresh + (cached or 0) + (cache_written or 0),
        output_tokens=count_of(reported.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=count_of(details.get("thinking_tokens"))
        if isinstance(details, Mapping)
        else None,
    )


def _joined_events(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join a message's events into the message that would have come whole.

    Raises MiscastError where the stream broke off before it said why it ended.
    """
    answer: dict[str, Any] = {}
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    for reported in events:
        if reported.get("type") == "message_start":
            answer = _mapping(reported.get("message"))
            usage = _mapping(answer.get("usage"))
        elif reported.get("type") == "content_block_delta":
            delta = _mapping(reported.get("delta"))
            if delta.get("type") == "text_delta":
                pieces.append(str(delta.get("text") or ""))
        elif reported.get("type") == "message_delta":
            answer |= _mapping(reported.get("delta"))
            new = _mapping(reported.get("usage"))
            usage |= {name: count for name, count in new.items() if count is not None}
    if answer.get("stop_reason") is None:
        raise MiscastError("the stream broke off before the answer was whole")
    return {**answer, "content": [{"type": "text", "text": "".join(pieces)}], "usage": usage}


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
