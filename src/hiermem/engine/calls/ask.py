"""Asks a model until an answer is fit: asks, has the answer judged, asks again with the reason.

The judge is the task's own, and pure; it runs off the event loop, because it may read all that the
answer was made from. ``engine.calls.retry`` makes the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from typing_extensions import TypeVar

from hiermem.core.calls.failures import is_attempt
from hiermem.core.calls.verdict import Accepted, Judge, Rejected, Retry
from hiermem.engine.calls.retry import ask
from hiermem.engine.calls.run import CallState, N, Run
from hiermem.errors import ModelError, SpendLimitError, TransientModelError
from hiermem.protocols import LLMRequest

T = TypeVar("T", default=str)


async def ask_until_fit(
    run: Run[N],
    state: CallState[N],
    request: LLMRequest,
    judge: Judge[T],
    *,
    within: float | None = None,
    ahead: Callable[[], object] | None = None,
) -> Accepted[T] | Rejected:
    """Ask until an answer is accepted or rejected; return that verdict.

    ``ahead`` is run in a thread while the first answer of a remote model is awaited. Each request
    has ``within`` seconds for all its tries, None for no limit. Where a later request gets no
    answer, what is usable of the earlier ones is accepted. Raises what ``retry.ask`` raises
    otherwise: SpendLimitError, ClaimLostError, and the last ModelError.
    """
    usable: T | None = None
    reading = None
    if ahead is not None and run.llm.remote:
        reading = run.spawn(run.compute(ahead))
    while True:
        try:
            response = await ask(run, state, request, within=within)
        except (SpendLimitError, ModelError, asyncio.CancelledError) as error:
            cancelled = isinstance(error, asyncio.CancelledError)
            if usable is None or (cancelled and not run.is_cutting_off):
                if isinstance(error, ModelError) and is_attempt(error):
                    state.attempts += 1
                elif isinstance(error, TransientModelError) and state.ended:
                    state.unanswered = state.ended[-1].id
                raise
            return Accepted(usable)
        if reading is not None:
            await asyncio.wait([reading])
        size = state.input_tokens if request.task == "summarise" else None
        verdict = await run.compute(judge, response, tokens=size)
        if verdict.reason:
            # The journal says of each answer that was not taken at once why it was not. One that
            # may be used is not rejected.
            may_be_used = isinstance(verdict, Retry) and verdict.usable is not None
            judged = replace(
                state.ended[-1],
                outcome="ok" if may_be_used else "rejected",
                reason=verdict.reason,
            )
            state.ended[-1] = judged
            run.journal.end(judged)
            state.attempts += not may_be_used
        if not isinstance(verdict, Retry):
            return verdict
        request, judge, usable = verdict.request, verdict.judge, verdict.usable
