"""Many more providers, through LiteLLM: a thin layer over its one function.

It adds only the errors and counts that the engine needs. LiteLLM keeps its connections for the
whole process, and closes them itself; its own way to close them leaves closed ones for the next
call. It brings some sixty packages and needs an older openai SDK; where a server speaks OpenAI's or
Anthropic's protocol, the adapters for those are lighter.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, Unpack

from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.remote.chat import ChatSettings, RemoteChat
from hiermem.remote.object_storage import key_of, require
from hiermem.remote.responses import MiscastError, joined_events, messages_of, read_answer

__all__ = ["LiteLLMChat"]


class LiteLLMChat(RemoteChat):
    """A model of any provider that LiteLLM knows. Needs the extra ``litellm``.

    ``model`` is LiteLLM's name of it, such as ``mistral/mistral-small-latest``. ``base_url`` and
    ``api_key`` may be left out where LiteLLM finds them in the environment. ``structured`` is as
    for ``OpenAIChat``, and so are the sizes, ``timeout``, ``temperature`` and ``stream``. ``extra``
    are further arguments of ``litellm.acompletion``.

    Raises ConfigError for impossible settings, and where the extra is missing.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        **settings: Unpack[ChatSettings],
    ) -> None:
        require("litellm", extra="litellm", what=type(self).__name__)
        super().__init__(model, base_url=base_url, **settings)
        self._base_url, self._key = base_url, key_of(api_key)

    async def _exchange(self, request: LLMRequest, refused: frozenset[str]) -> LLMResponse:
        """Send one request, whole or as a stream, and read its answer."""
        package = await asyncio.to_thread(import_module, "litellm")
        fields = self._completion_fields(request, refused)
        if self._base_url is not None:
            fields["base_url"] = self._base_url
        if self._key:
            fields["api_key"] = self._key
        answer = await package.acompletion(
            model=self._model,
            messages=messages_of(self._messages(request, refused)),
            timeout=self._timeout * request.patience,
            num_retries=0,
            max_retries=0,
            stream=self._stream,
            **fields,
        )
        if self._stream:
            whole = joined_events([_plain(event) async for event in answer])
        else:
            whole = _plain(answer)
        return read_answer(whole, asked=self._model)


def _plain(value: Any) -> dict[str, Any]:
    """Return LiteLLM's answer as plain values. Raises MiscastError where it is not an object."""
    dumped = value.model_dump(warnings=False) if hasattr(value, "model_dump") else value
    if not isinstance(dumped, dict):
        raise MiscastError("LiteLLM returned no completion")
    return dumped
