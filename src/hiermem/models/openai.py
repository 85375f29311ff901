"""Any server that speaks OpenAI's chat completions: OpenAI, Azure, Ollama, vLLM, gateways.

The SDK only carries the request. Its retries are off, because the engine retries, waits and keeps
the journal. ``remote`` reads answers and errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, Unpack

from hiermem import arguments
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.remote.chat import ChatSettings, RemoteChat
from hiermem.remote.responses import joined_events, messages_of, read_answer

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIChat"]

_LIMITS: Final = ("auto", "max_tokens", "max_completion_tokens")


class OpenAIChat(RemoteChat):
    """A model behind any OpenAI-compatible server. Needs the extra ``openai``.

    ``base_url`` is the server's address, such as ``http://127.0.0.1:11434/v1``. Without one, the
    SDK's own environment variables give the address and the key. With one, only ``api_key`` is ever
    sent there, because a key in the environment is for another server. ``client`` may be an
    ``AsyncOpenAI`` of your own (Azure's too), or a function that makes one: it is called once for
    each event loop, and the client it returns is closed with the memory.

    ``context_window`` is the model's in tokens; requests that do not fit are not sent.
    ``max_output_tokens`` is the most that the model can write. ``reasoning_tokens`` is added to
    every limit of an answer, for a model that reasons before it writes, and is reserved with each
    call. ``timeout`` is in seconds: for the whole call where nothing arrives, and between two
    pieces of the answer; 120 where it is None, and 600 for an address of this machine.
    ``temperature`` is the session's ("auto"), one number for all requests, or
    None to send none. ``structured`` tells whether the server holds answers to a JSON schema: where
    it refuses that, "auto" asks for the schema in words from then on. ``limit_field`` is the
    server's name for the most tokens of an answer. ``stream`` requests the answer in pieces, for
    servers that need it. ``extra`` are further fields of every request, such as
    ``{"reasoning_effort": "low"}``.

    Change the ``name`` where ``extra`` changes what the model writes: it identifies its summaries.
    Raises ConfigError for impossible settings, and where the extra is missing.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | Callable[[], AsyncOpenAI] | None = None,
        limit_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto",
        **settings: Unpack[ChatSettings],
    ) -> None:
        arguments.one_of(limit_field, "limit_field", _LIMITS)
        limits: tuple[str, ...] = (limit_field,)
        if limit_field == "auto":
            # OpenAI's newer models accept only the newer name; most other servers know the older.
            older, newer = _LIMITS[1:]
            limits = (newer, older) if base_url is None else (older, newer)
        super().__init__(model, base_url=base_url, limits=limits, **settings)
        self._server = self._connect(
            "openai", "AsyncOpenAI", base_url=base_url, api_key=api_key, client=client
        )

    async def _exchange(self, request: LLMRequest, refused: frozenset[str]) -> LLMResponse:
        """Send one request, whole or as a stream, and read its answer."""
        fields = self._completion_fields(request, refused)
        answer = await self._server.ask(
            lambda client: client.chat.completions,
            content="choices",
            joined=joined_events if self._stream else None,
            model=self._model,
            messages=messages_of(self._messages(request, refused)),
            # As an extra body, fields that this version of the SDK does not know pass through.
            extra_body=fields,
            timeout=self._timeout * request.patience,
        )
        return read_answer(answer, asked=self._model)
