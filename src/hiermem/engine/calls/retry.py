"""Calls a model, with retries where they may help.

Only transient failures are retried, after an exponential pause with jitter or the pause that the
provider asked for, and never beyond the run's end. ``engine.calls.call`` makes a single call. What
an answer is worth is not judged here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hiermem.core.calls.circuit_breaker import LONGEST_HOLD
from hiermem.core.calls.timeouts import REPEATS, patience
from hiermem.engine.calls.call import call, prompt_tokens
from hiermem.engine.calls.rate_limit import sleep_unless
from hiermem.engine.calls.run import CallState, N, Run
from hiermem.errors import ModelError, ModelTimeoutError, TransientModelError
from hiermem.protocols import LLMRequest, LLMResponse

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

_FIRST_WAIT: Final = 0.5
_MOST_BACKOFF: Final = 30.0


async def ask(
    run: Run[N], state: CallState[N], request: LLMRequest, *, within: float | None = None
) -> LLMResponse:
    """Call the model; retry where that may help. All tries end ``within`` seconds from now.

    A call that was not answered in time is repeated once, with twice the patience.

    Raises SpendLimitError before a call that would exceed a cap, ClaimLostError where another run
    has the node, and the last ModelError.
    """
    budget = run.budget
    # Counted before a slot is taken, which other calls wait for.
    counted = await prompt_tokens(request)
    until = None if within is None else asyncio.get_running_loop().time() + within

    async def pause(seconds: float) -> None:
        with run.mark_waiting():
            await sleep_unless(budget.stop_reason, seconds, run.sleep)
        over = budget.stop_reason()
        if over is not None:
            budget.refuse(over)

    late: list[ModelTimeoutError] = []
    async for attempt in retrying(
        retries=run.retries,
        pause=pause,
        time_left=budget.time_left,
        within=within,
        given_up=lambda: len(late) > REPEATS,
    ):
        with attempt:
            with run.mark_waiting():
                await run.may_call(state.node)
                await run.slots.acquire(state.node)
            try:
                patient = replace(request, patience=patience(len(late)))
                return await call(run, state, patient, counted=counted, until=until)
            except ModelTimeoutError as error:
                late.append(error)
                raise
            finally:
                run.slots.release()
    raise AssertionError("the last try returns or raises")


def retrying(
    *,
    retries: int,
    pause: Callable[[float], Awaitable[None]],
    time_left: Callable[[], float | None] = lambda: None,
    within: float | None = None,
    given_up: Callable[[], bool] = bool,
) -> AsyncRetrying:
    """Return the retry policy: transient errors, exponential or as the provider asks.

    Nothing is retried where the provider asks for a longer pause than is left by ``time_left``,
    where the next try would begin later than ``within`` seconds after the first, and where the
    caller has ``given_up``.
    """
    from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

    backoff = wait_random_exponential(multiplier=_FIRST_WAIT, max=_MOST_BACKOFF)

    def asked_for(retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        return (error.retry_after or 0.0) if isinstance(error, ModelError) else 0.0

    def wait(retry_state: RetryCallState) -> float:
        return max(asked_for(retry_state), backoff(retry_state))

    def stop(retry_state: RetryCallState) -> bool:
        left, asked = time_left(), asked_for(retry_state)
        begins = (retry_state.seconds_since_start or 0.0) + retry_state.upcoming_sleep
        return (
            retry_state.attempt_number > retries
            or asked > LONGEST_HOLD
            or given_up()
            or (left is not None and asked > left)
            or (within is not None and begins >= within)
        )

    return AsyncRetrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception_type(TransientModelError),
        reraise=True,
        sleep=pause,
    )
