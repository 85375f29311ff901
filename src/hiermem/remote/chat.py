"""The common base of chat models behind an SDK: settings, sizes, and what the server supports.

A request that cannot fit is never sent. A request that a server refuses because of a field is sent
once more without that field, and the field is not sent again. The subclass writes requests and
reads answers; ``calls.failures`` decides what a failure means.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, TypedDict

from hiermem import arguments
from hiermem.calls.failures import CallFailure, refused_field, to_error
from hiermem.calls.limits import Prices, request_tokens
from hiermem.errors import ConfigError, ModelError
from hiermem.protocols import ChatMessage, LLMRequest, LLMResponse
from hiermem.remote.object_storage import (
    Connection,
    fields,
    is_loopback,
    server_of,
    temperature_of,
    text,
)
from hiermem.remote.responses import MOST_BYTES, read
from hiermem.text.measure import canonical_json

Structured: TypeAlias = Literal["auto", "on", "off"]

#: Seconds for a call, where none were set: of any server, and of one on this machine.
_TIMEOUT: Final = 120.0
_LOCAL_TIMEOUT: Final = 600.0
#: Prompts of more characters than this are counted on a thread.
_LONG: Final = 20_000
#: Names that servers use for the field with the schema of the answer.
_SCHEMA_FIELDS: Final = (
    "response_format", "json_schema", "output_config", "output_format", "structured outputs",
    "structured output", "guided_json", "grammar",
)  # fmt: skip
_LIMIT_FIELDS: Final = ("max_tokens", "max_completion_tokens")
#: Fields that are left out where a server does not accept them.
_OPTIONAL_FIELDS: Final = ("temperature", "stream_options", "cache_control")
#: The keywords of a schema that all providers accept; bounds are checked when the answer is read.
_SCHEMA_WORDS: Final = frozenset(
    {
        "$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items",
        "properties", "required", "type",
    }
)  # fmt: skip


class ChatSettings(TypedDict, total=False):
    """The settings that all adapters share; ``RemoteChat`` has their defaults."""

    name: str | None
    context_window: int | None
    max_output_tokens: int | None
    reasoning_tokens: int
    timeout: float | None
    temperature: float | Literal["auto"] | None
    structured: Structured
    stream: bool
    extra: Mapping[str, Any] | None
    remote: bool
    prices: Prices | None


class RemoteChat(ABC):
    """A chat model behind an SDK. ``complete`` is safe to cancel and to call concurrently.

    ``local_server`` tells whether its address is one of this machine. ``limits`` are the names that
    the server may have for the most tokens of an answer, in the order in which they are tried.
    ``without`` are fields that are never sent.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None,
        limits: Sequence[str] = _LIMIT_FIELDS,
        without: Iterable[str] = (),
        name: str | None = None,
        context_window: int | None = None,
        max_output_tokens: int | None = None,
        reasoning_tokens: int = 0,
        timeout: float | None = None,
        temperature: float | Literal["auto"] | None = "auto",
        structured: Structured = "auto",
        stream: bool = False,
        extra: Mapping[str, Any] | None = None,
        remote: bool = True,
        prices: Prices | None = None,
    ) -> None:
        self._where = server_of(base_url)
        self._model = text(model, "model")
        self.name = text(name, "name") if name is not None else self._model
        if context_window is not None:
            arguments.whole(context_window, "context_window", least=1)
        if max_output_tokens is not None:
            arguments.whole(max_output_tokens, "max_output_tokens", least=1)
        arguments.whole(reasoning_tokens, "reasoning_tokens")
        if context_window is not None and reasoning_tokens >= context_window:
            raise ConfigError(
                f"reasoning_tokens {reasoning_tokens:,} leaves nothing of context_window "
                f"{context_window:,}; lower it"
            )
        self._window, self._most = context_window, max_output_tokens
        #: The tokens that a call may take besides prompt and answer: those for reasoning.
        self.overhead_tokens = reasoning_tokens
        #: The window that it was made with, less the tokens reserved for reasoning.
        self.context_window = None if context_window is None else context_window - reasoning_tokens
        self.local_server = is_loopback(self._where or None)
        usual = _LOCAL_TIMEOUT if self.local_server else _TIMEOUT
        self._timeout = usual if timeout is None else arguments.seconds(timeout, "timeout")
        if not self._timeout:
            raise ConfigError("timeout must be more than 0 seconds")
        arguments.one_of(structured, "structured", ("auto", "on", "off"))
        self._structured: Structured = structured
        self._temperature: float | Literal["auto"] | None = temperature_of(temperature)
        self._extra = fields(extra)
        #: Whether a call may cost money or time elsewhere.
        self.remote = arguments.switch(remote, "remote")
        if prices is not None and not isinstance(prices, Prices):
            raise ConfigError(f"prices is {type(prices).__name__}; it must be Prices, or None")
        self.prices = prices
        self._limits = limits
        #: The fields that are not sent: "schema" is that with the schema, whatever its name.
        self._refused = frozenset(without)
        if structured == "off":
            self._refused |= {"schema"}
        if self._temperature is None:
            self._refused |= {"temperature"}
        self._stream = arguments.switch(stream, "stream")
        #: The key, which must never be repeated, where the adapter was given one.
        self._key = ""
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        at = f", base_url={self._where!r}" if self._where else ""
        return f"{type(self).__name__}({self._model!r}{at})"

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Ask the model.

        Raises ModelError, before anything is sent, where prompt and answer do not fit the
        window; ConfigError where there is no key; otherwise the error that ``calls.failures``
        makes of the SDK's exception.
        """
        await self._check_size(request)
        while True:
            refused = self._refused
            try:
                return await self._exchange(request, refused)
            except (ModelError, ConfigError):
                raise
            except Exception as error:  # noqa: BLE001 - an SDK may raise anything; it is classified below
                failure = read(error, key=self._key)
                kind = type(error).__name__
            if failure is None:
                raise ModelError(f"{self.name}: the call ended in {kind}")
            field = self._refused_by(failure, refused)
            if field is None:
                raise self._error(failure)
            # Another call may have learnt of other fields meanwhile.
            self._refused |= {field}

    def _refused_by(self, failure: CallFailure, refused: frozenset[str]) -> str | None:
        """Return the field to leave out after a refusal; None where it was not about one."""
        # The cause does not matter: the answer is checked without the schema field just as well.
        about_schema = refused_field(failure, _SCHEMA_FIELDS, at_all=False) is not None
        if about_schema and "schema" not in refused and self._structured == "auto":
            return "schema"
        field = refused_field(failure, (*_OPTIONAL_FIELDS, *_LIMIT_FIELDS))
        known = field in refused or field not in (*_OPTIONAL_FIELDS, *self._limits[:-1])
        return None if known else field

    @abstractmethod
    async def _exchange(self, request: LLMRequest, refused: frozenset[str]) -> LLMResponse:
        """Send one request and read its answer. Raises whatever the SDK raises."""

    def _connect(
        self, sdk: str, kind: str, *, base_url: str | None, api_key: str | None, client: Any
    ) -> Connection:
        """Return the connection by the package ``sdk``, and keep its key from being repeated."""
        connection = Connection(
            sdk,
            kind,
            base_url=base_url,
            api_key=api_key,
            client=client,
            timeout=self._timeout,
            most_bytes=MOST_BYTES,
            what=type(self).__name__,
        )
        self._key, self._connection = connection.key, connection
        return connection

    async def connect(self) -> None:
        """Make sure that the model can be asked, as far as that is known without asking it.

        A run does this before it begins. Raises ConfigError, where there is no key for example.
        """
        if self._connection is not None:
            await self._connection.connect()

    async def disconnect(self) -> None:
        """Close the connections that the running event loop has open; the next call opens new ones.

        A memory does this for its model when it is closed. A client that was passed in stays open.
        """
        if self._connection is not None:
            await self._connection.disconnect()

    def _error(self, failure: CallFailure) -> ModelError:
        named = (*_SCHEMA_FIELDS, *_OPTIONAL_FIELDS, *_LIMIT_FIELDS, "stream")
        field = refused_field(failure, named, at_all=False)
        if field is not None and failure.kind == "permanent":
            failure = replace(failure, what=f"{failure.what}, because of its {field}")
        if failure.status is None and self._where:
            failure = replace(failure, what=f"{failure.what} ({self._where})")
        return to_error(failure, model=self.name)

    # -- what subclasses build requests from

    def _limit(self, request: LLMRequest) -> int:
        """Return the most tokens of an answer, reasoning included."""
        wanted = request.max_tokens + self.overhead_tokens
        return wanted if self._most is None else min(wanted, self._most)

    def _temperature_of(self, request: LLMRequest, refused: frozenset[str]) -> float | None:
        """Return the temperature to ask for; None leaves it to the server."""
        if "temperature" in refused:
            return None
        return self._temperature if isinstance(self._temperature, float) else request.temperature

    def _messages(self, request: LLMRequest, refused: frozenset[str]) -> tuple[ChatMessage, ...]:
        """Return the messages, with the schema in words where it is not sent as a field."""
        if request.schema is None or "schema" not in refused:
            return request.messages
        words = (
            "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
            f"{canonical_json(request.schema)}"
        )
        first, *others = request.messages
        if first.role == "system":
            # The schema is constant, so it stands in the part that a provider's cache keeps.
            return (ChatMessage("system", f"{first.content}\n\n{words}"), *others)
        return (ChatMessage("system", words), *request.messages)

    def _schema(self, request: LLMRequest, refused: frozenset[str]) -> dict[str, Any] | None:
        """Return the schema to send, in keywords that all providers accept; None for none."""
        if request.schema is None or "schema" in refused:
            return None
        schema: dict[str, Any] = _common_schema(request.schema)
        return schema

    def _completion_fields(self, request: LLMRequest, refused: frozenset[str]) -> dict[str, Any]:
        """Return the fields of a chat completion, without its model and messages."""
        limit = next(name for name in self._limits if name not in refused)
        fields: dict[str, Any] = {limit: self._limit(request)}
        if self._stream and "stream_options" not in refused:
            fields["stream_options"] = {"include_usage": True}
        temperature = self._temperature_of(request, refused)
        if temperature is not None:
            fields["temperature"] = temperature
        schema = self._schema(request, refused)
        if schema is not None:
            fields["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema, "strict": True},
            }
        return fields | self._extra

    async def _check_size(self, request: LLMRequest) -> None:
        if self._window is None:
            return
        messages = list(request.messages)
        if request.schema is not None:
            messages.append(ChatMessage("system", canonical_json(request.schema)))

        def weigh() -> int:
            return request_tokens(messages, request.counter.count)

        long = sum(len(message.content) for message in messages) > _LONG
        needed = await asyncio.to_thread(weigh) if long else weigh()
        answer = self._limit(request)
        if needed + answer > self._window:
            raise ModelError(
                (
                    f"{self.name}: prompt {needed:,} + answer {answer:,} exceed context_window "
                    f"{self._window:,}; shorten one, or raise it"
                ),
                charged=False,
                kind="overflow",
            )


def _common_schema(value: Any, *, names: bool = False) -> Any:
    """Leave out what some provider refuses; ``names``: the keys are names, not keywords."""
    if isinstance(value, Mapping):
        return {
            key: _common_schema(inner, names=key in ("properties", "$defs") and not names)
            for key, inner in value.items()
            if names or key in _SCHEMA_WORDS
        }
    if isinstance(value, (list, tuple)):
        return [_common_schema(inner) if isinstance(inner, Mapping) else inner for inner in value]
    return value
