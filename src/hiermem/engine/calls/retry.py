"""Calls a model, with retries where they may help.

Only transient failures are retried, after an exponential pause with jitter or the pause that the
provider asked for, and never beyond the run's end. ``engine.calls.call`` makes a single call. What
an answer is worth is not judged here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hiermem.core.calls.circuit_breaker import LONGEST_HOLD
from hiermem.engine.calls.call import call
from hiermem.engine.calls.run_context import CallState, N, RunContext
from hiermem.errors import ModelError, TransientModelError
from hiermem.protocols import LLMRequest, LLMResponse

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

_FIRST_WAIT: Final = 0.5
_MOST_BACKOFF: Final = 30.0
#: The longest sleep between two checks whether the run is over, in seconds.
_LOOK: Final = 0.25


async def ask(
    run: RunContext[N], state: CallState[N], request: LLMRequest, *, within: float | None = None
) -> LLMResponse:
    """Call the model; retry where that may help and may begin ``within`` seconds from now.

    Raises SpendLimitError before a call that would exceed a cap, ClaimLostError where another run
    has the node, and the last ModelError.
    """
    async for attempt in _retrying(run, within):
        with attempt:
            with run.mark_waiting():
                await run.slots.acquire(state.node)
            try:
                return await call(run, state, request)
            finally:
                run.slots.release()
    raise AssertionError("the last try returns or raises")


def end_with(state: CallState[N], attempt_reason: str) -> None:
    """Record why the last answer was not accepted."""
    state.ended[-1] = replace(state.ended[-1], outcome="rejected", reason=attempt_reason)


def _until(retry_state: RetryCallState) -> float:
    """Return the seconds from the first try to the next one."""
    return (retry_state.seconds_since_start or 0.0) + retry_state.upcoming_sleep


def _retrying(run: RunContext[N], within: float | None) -> AsyncRetrying:
    """Return the retry policy: transient errors, exponential or as the provider asks."""
    from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

    backoff = wait_random_exponential(multiplier=_FIRST_WAIT, max=_MOST_BACKOFF)

    def asked_for(retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        return (error.retry_after or 0.0) if isinstance(error, ModelError) else 0.0

    def wait(retry_state: RetryCallState) -> float:
        return max(asked_for(retry_state), backoff(retry_state))

    def stop(retry_state: RetryCallState) -> bool:
        left = run.budget.time_left()
        asked = asked_for(retry_state)
        return (
            retry_state.attempt_number > run.policy.retries
            or asked > LONGEST_HOLD
            or (left is not None and asked > left)
            or (within is not None and _until(retry_state) >= within)
        )

    async def pause(seconds: float) -> None:
        left = seconds
        with run.mark_waiting():
            while left > 0 and run.budget.stop_reason() is None:
                await run.sleep(min(left, _LOOK))
                left -= _LOOK
        over = run.budget.stop_reason()
        if over is not None:
            run.budget.refuse(over)

    return AsyncRetrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception_type(TransientModelError),
        reraise=True,
        sleep=pause,
    )
