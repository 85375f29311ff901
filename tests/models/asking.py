"""What the tests of chat models share: a request, and the adapters by protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from provider import Provider

from hiermem import LLMRequest
from hiermem.models.anthropic import AnthropicChat
from hiermem.models.openai import OpenAIChat
from hiermem.protocols import ChatMessage
from hiermem.tokens import default_counter

__all__ = ["KINDS", "MARK", "SECRET", "chat", "make", "request", "until"]

#: Stands in every prompt, and may stand in no error and no log.
SECRET = "CANARY-IN-THE-PROMPT"
MARK = "abc123"
_SYSTEM = "Summarise.\n## Overview\n## Key points"
_RECORD = (
    f"about 60 tokens (45 words)\n<<record {MARK}>>\n[2026-01-02]\n"
    f"Mira (user): We chose PostgreSQL 16 for the billing service, see {SECRET}. It costs 300 "
    "euro a month.\nAssistant (assistant): Fine, PostgreSQL 16 it is, from 3 March on.\n"
    f"<<end of record {MARK}>>"
)
#: The two protocols, each with answers whole and in pieces.
KINDS = ("openai", "openai-stream", "anthropic", "anthropic-stream")


def request(**changes: Any) -> LLMRequest:
    """Give a request for a summary of two messages."""
    asked = LLMRequest(
        task="summarise",
        messages=(ChatMessage("system", _SYSTEM), ChatMessage("user", _RECORD)),
        inputs=(),
        target_tokens=60,
        max_tokens=90,
        counter=default_counter(),
    )
    return replace(asked, **changes)


def make(kind: str, provider: Provider, **settings: Any) -> OpenAIChat | AnthropicChat:
    """Give the adapter for a protocol, at the provider."""
    dialect, _, stream = kind.partition("-")
    settings = {"api_key": provider.key, "timeout": 30.0, "stream": bool(stream), **settings}
    if dialect == "openai":
        return OpenAIChat("tiny", base_url=provider.openai_url, **settings)
    return AnthropicChat("tiny", base_url=provider.url, **settings)


@asynccontextmanager
async def chat(
    kind: str, provider: Provider, **settings: Any
) -> AsyncIterator[OpenAIChat | AnthropicChat]:
    """Give the adapter for the time of a test, and let go of its connections."""
    model = make(kind, provider, **settings)
    try:
        yield model
    finally:
        await model.disconnect()


async def until(happened: Callable[[], object]) -> None:
    """Wait until something has happened in the provider's thread."""
    async with asyncio.timeout(120):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
