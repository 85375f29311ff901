"""Language models: each in its module, which is imported when a name or a program asks for it.

``model_by_name`` starts; a module is one provider, ``offline`` needs none.
Imports ``remote``, ``calls``, ``text`` and below; adapters do not know each other.
"""

from __future__ import annotations

from typing import Any

from hiermem.errors import UsageError
from hiermem.protocols import LLM


def model_by_name(name: str, **settings: Any) -> LLM:
    """Return the model that ``PROVIDER:MODEL`` names, such as "openai:gpt-5-mini".

    The provider is openai, anthropic, ollama on this machine, or litellm; ``settings`` are further
    arguments of its class.

    Raises UsageError for another name, and ConfigError where the provider's extra is not installed
    or a setting is wrong.
    """
    provider, _, model = name.partition(":")
    if model and provider in ("openai", "ollama"):
        from hiermem.models.openai import OpenAIChat

        local: dict[str, Any] = {"base_url": "http://127.0.0.1:11434/v1"}
        return OpenAIChat(model, **{**(local if provider == "ollama" else {}), **settings})
    if model and provider == "anthropic":
        from hiermem.models.anthropic import AnthropicChat

        return AnthropicChat(model, **settings)
    if model and provider == "litellm":
        from hiermem.models.litellm import LiteLLMChat

        return LiteLLMChat(model, **settings)
    raise UsageError(
        f"model {name!r} is unknown; use openai:, anthropic:, ollama: or litellm:MODEL, such as "
        "openai:gpt-5-mini"
    )
