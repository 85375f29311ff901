"""The parts that a memory gets when it is not given any: the embedded store, the offline model.

The one rule: this is the only place outside the adapters that imports one, and it does so when the
part is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from hiermem.errors import UsageError
from hiermem.protocols import LLM, LLMRequest, Store

__all__ = ["as_llm", "embedded_store"]


def as_llm(given: Any) -> LLM:
    """Give the model: the offline one for None, a wrapped plain function, or the model itself.

    Raises UsageError for anything else.
    """
    if given is None:
        from hiermem.models.extractive import ExtractiveLLM

        return ExtractiveLLM()
    if isinstance(given, LLM):
        return given
    if callable(given):
        from hiermem.models.function import FunctionLLM

        function: Callable[[LLMRequest], Any] = given
        return FunctionLLM(function)
    raise UsageError(
        f"llm is {type(given).__name__}; it must be a model with complete(), a function, or None"
    )


async def embedded_store(path: str | PathLike[str], *, create: bool) -> Store:
    """Open the SQLite store at ``path``."""
    from hiermem.stores.sqlite import SQLiteStore

    return await SQLiteStore.open(path, create=create)
