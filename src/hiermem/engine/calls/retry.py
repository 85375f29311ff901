"""Asks a model, again where that may help.

Only transient failures are retried, after an exponential pause with jitter or the pause that the
provider asked for, and never beyond the run's end. ``engine.calls.call`` makes a single call. What
an answer is worth is not asked here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hiermem.core.calls.circuit_breaker import LONGEST_HOLD
from hiermem.engine.calls.call import call
from hiermem.engine.calls.run_context import Asker, Making, N
from hiermem.errors import ModelError, TransientModelError
from hiermem.protocols import LLMRequest, LLMResponse

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

_FIRST_WAIT: Final = 0.5
_MOST_BACKOFF: Final = 30.0
#: The longest sleep between two looks at whether the run is over, in seconds.
_LOOK: Final = 0.25


async def ask(
    shop: Asker[N], making: Making[N], request: LLMRequest, *, within: float | None = None
) -> LLMResponse:
    """Call the model, trying again where that may help and may begin ``within`` seconds from now.

    Raises SpendLimitError before a call that would pass a cap, ClaimLostError where another run
    has the node, and the last ModelError.
    """
    async for attempt in _retrying(shop, within):
        with attempt:
            with shop.idle():
                await shop.slots.acquire(making.node)
            try:
                return await call(shop, making, request)
            finally:
                shop.slots.release()
    raise AssertionError("the last try returns or raises")


def end_with(making: Making[N], attempt_reason: str) -> None:
    """Record why the last answer was not taken as it was."""
    making.ended[-1] = replace(making.ended[-1], outcome="rejected", reason=attempt_reason)


def _until(state: RetryCallState) -> float:
    """Give the seconds from the first try to the next one."""
    return (state.seconds_since_start or 0.0) + state.upcoming_sleep


def _retrying(shop: Asker[N], within: float | None) -> AsyncRetrying:
    """Make the retry policy: transient errors only, exponential with jitter, or as asked for."""
    from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

    backoff = wait_random_exponential(multiplier=_FIRST_WAIT, max=_MOST_BACKOFF)

    def asked_for(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return (error.retry_after or 0.0) if isinstance(error, ModelError) else 0.0

    def wait(state: RetryCallState) -> float:
        return max(asked_for(state), backoff(state))

    def stop(state: RetryCallState) -> bool:
        left = shop.purse.time_left()
        asked = asked_for(state)
        return (
            state.attempt_number > shop.policy.retries
            or asked > LONGEST_HOLD
            or (left is not None and asked > left)
            or (within is not None and _until(state) >= within)
        )

    async def pause(seconds: float) -> None:
        left = seconds
        with shop.idle():
            while left > 0 and shop.purse.is_over() is None:
                await shop.sleep(min(left, _LOOK))
                left -= _LOOK
        over = shop.purse.is_over()
        if over is not None:
            shop.purse.refuse(over)

    return AsyncRetrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception_type(TransientModelError),
        reraise=True,
        sleep=pause,
    )
