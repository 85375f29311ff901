"""Runs requests to a model until an answer is fit: asks, has it judged, asks again with the reason.

The judge is the task's own, and pure; it runs off the event loop, because it may read all that the
answer was made from. A call that failed is retried if that may help (``calls.retry``), and never
beyond the run's end. ``calls.call`` makes a single call.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from typing_extensions import TypeVar

from hiermem.calls.answers import Accepted, Judge, Rejected, Retry
from hiermem.calls.call import call, prompt_tokens
from hiermem.calls.failures import REPEATS, is_attempt, patience
from hiermem.calls.rate_limit import sleep_unless
from hiermem.calls.retry import retrying
from hiermem.calls.run import CallState, N, Run
from hiermem.errors import ModelError
from hiermem.protocols import LLMRequest, LLMResponse

T = TypeVar("T", default=str)


async def ask_until_fit(
    run: Run[N],
    state: CallState[N],
    request: LLMRequest,
    judge: Judge[T],
    *,
    within: float | None = None,
) -> Accepted[T] | Rejected:
    """Ask until an answer is accepted or rejected; return that verdict.

    Each request has ``within`` seconds for all its tries, None for no limit. Raises what ``ask``
    raises: SpendLimitError, ClaimLostError, and the last ModelError.
    """
    while True:
        try:
            response = await ask(run, state, request, within=within)
        except ModelError as error:
            if is_attempt(error):
                state.attempts += 1
            elif error.retryable and state.ended:
                state.unanswered = state.ended[-1].id
            raise
        size = state.input_tokens if request.task == "summarise" else None
        verdict = await run.compute(judge, response, tokens=size)
        if verdict.reason:
            # The journal says of each answer that was not taken why it was not.
            judged = replace(state.ended[-1], outcome="rejected", reason=verdict.reason)
            state.ended[-1] = judged
            run.journal.note(judged)
            state.attempts += 1
        if not isinstance(verdict, Retry):
            return verdict
        request, judge = verdict.request, verdict.judge


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

    with run.mark_waiting():
        if not await run.rate_limiter.take_slot(budget.stop_reason):
            budget.refuse(budget.stopped or "cancellation")
    late: list[ModelError] = []
    try:
        async for attempt in retrying(
            retries=run.retries,
            pause=pause,
            time_left=budget.time_left,
            within=within,
            given_up=lambda: len(late) > REPEATS,
        ):
            with attempt:
                try:
                    patient = replace(request, patience=patience(len(late)))
                    return await call(run, state, patient, counted=counted, until=until)
                except ModelError as error:
                    if error.kind == "timeout":
                        late.append(error)
                    raise
    finally:
        run.rate_limiter.give_slot()
    raise AssertionError("the last try returns or raises")
