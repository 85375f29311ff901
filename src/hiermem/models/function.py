"""A plain function as a language model.

Nothing is added to what the function answers. A function that only returns text needs to know
nothing of this library. An ordinary function blocks its thread for as long as it likes, so each
call has a thread of its own, which nobody waits for once the call was given up.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from typing import TypeAlias

from hiermem.calls.limits import Prices
from hiermem.errors import ConfigError, ModelError, UsageError
from hiermem.protocols import LLMRequest, LLMResponse

__all__ = ["FunctionLLM"]

FunctionAnswer: TypeAlias = str | LLMResponse
#: The most calls of one model that were given up and have not returned: each has a thread.
_MOST_ABANDONED = 12
#: Exceptions that no future carries as they are.
_NOT_CARRIED = (StopIteration, CancelledError)


class FunctionLLM:
    """A model made of ``function``, which takes a request and returns text or an LLMResponse.

    It may be a coroutine function. Each call of an ordinary one runs on a daemon thread of its own,
    which neither a deadline nor the end of the process waits for. ``name`` is part of every
    summary's strategy: change it when the function changes. With ``remote``, the safe default,
    calls are made under a claim, journalled beforehand and rate limited; a function that costs
    nothing and calls nobody is faster without. The function should raise ModelError where
    the same call may succeed later (kind "transient") or will not ("permanent"). With ``prices``,
    calls are journalled with what they cost.
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
        self.name, self.context_window = name, context_window
        self.remote, self.prices = remote, prices
        self._abandoned: dict[int, threading.Thread] = {}

    @property
    def abandoned_calls(self) -> int:
        """The number of calls that were given up and whose function is still running."""
        for number, thread in list(self._abandoned.items()):
            if not thread.is_alive():
                self._abandoned.pop(number, None)
        return len(self._abandoned)

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Call the function.

        Raises what the function raises, UsageError where it answers something else, and
        ModelError where the process can start no further thread, and where too many calls
        that were given up have not returned.
        """
        answer = self._function(request) if self._waits else await self._on_a_thread(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, str):
            return LLMResponse(text=answer, model=self.name)
        if not isinstance(answer, LLMResponse):
            raise UsageError(
                f"the function of model {self.name!r} returned {type(answer).__name__}; "
                "return text or an LLMResponse"
            )
        return answer

    async def _on_a_thread(self, request: LLMRequest) -> FunctionAnswer | Awaitable[FunctionAnswer]:
        """Call the function on a new thread; if this is cancelled, leave the thread to itself."""
        if self.abandoned_calls >= _MOST_ABANDONED:
            raise ModelError(
                (
                    f"{_MOST_ABANDONED} timed-out calls of model {self.name!r} still run; let its "
                    "function return"
                ),
                charged=False,
                kind="transient",
                detail=f"{_MOST_ABANDONED} calls were given up and have not returned",
            )
        future: Future[FunctionAnswer | Awaitable[FunctionAnswer]] = Future()
        future.set_running_or_notify_cancel()  # from now on a cancelled caller leaves it alone
        context = copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(self._function, request))
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
                # Others would end the event loop or read as the caller's own end.
                if not isinstance(error, Exception) or isinstance(error, _NOT_CARRIED):
                    error = RuntimeError(f"the function ended in {type(error).__name__}")
                future.set_exception(error)

        thread = threading.Thread(target=work, name="hiermem-model", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise ModelError(
                f"no thread could start for model {self.name!r}; lower concurrency",
                charged=False,
                kind="transient",
            ) from error
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._abandoned[id(thread)] = thread
            raise
