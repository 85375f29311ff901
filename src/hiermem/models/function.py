"""A plain function as a language model.

Nothing is added to what the function answers. A function that only returns text needs to know
nothing of this library.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from hiermem.errors import ConfigError, UsageError
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.types.prices import Prices

__all__ = ["FunctionLLM"]

FunctionAnswer: TypeAlias = str | LLMResponse


class FunctionLLM:
    """A model made of ``function``, which takes a request and returns text or an LLMResponse.

    It may be a coroutine function; an ordinary one runs on a thread. ``name`` is part of every
    summary's strategy: change it when the function changes. With ``remote``, the safe default,
    calls are leased, journalled beforehand and rate limited; a function that costs nothing and
    calls nobody is faster without. The function should raise TransientModelError where the same
    call may succeed later, and PermanentModelError where it will not. With ``prices``, calls are
    journalled with what they cost.
    """

    def __init__(
        self,
        function: Callable[[LLMRequest], FunctionAnswer | Awaitable[FunctionAnswer]],
        *,
        name: str = "function",
        context_window: int | None = None,
        remote: bool = True,
        prices: Prices | None = None,
    ) -> None:
        if not callable(function):
            raise UsageError(f"function is {type(function).__name__}; it must be callable")
        if not name:
            raise ConfigError("name must not be empty; it identifies the function's summaries")
        if context_window is not None and context_window < 1:
            raise ConfigError(f"context_window is {context_window}; it must be 1 or more, or None")
        self._function = function
        self._waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # an object with an async __call__
        )
        self._name, self._window, self._remote = name, context_window, remote
        self._prices = prices

    @property
    def name(self) -> str:
        """The name that it was made with."""
        return self._name

    @property
    def context_window(self) -> int | None:
        """The window that it was made with."""
        return self._window

    @property
    def remote(self) -> bool:
        """Whether a call may cost money or time elsewhere."""
        return self._remote

    @property
    def prices(self) -> Prices | None:
        """The prices that it was made with."""
        return self._prices

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Call the function.

        Raises what the function raises, and UsageError where it answers something else.
        """
        answer = (
            self._function(request)
            if self._waits
            else await asyncio.to_thread(self._function, request)
        )
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, str):
            return LLMResponse(text=answer, model=self._name)
        if not isinstance(answer, LLMResponse):
            raise UsageError(
                f"the function of model {self._name!r} answered {type(answer).__name__}; it must "
                "answer text or an LLMResponse"
            )
        return answer
