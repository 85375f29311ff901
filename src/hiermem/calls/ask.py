"""Asks a model until an answer is fit: asks, has the answer judged, asks again with the reason.

The judge is the task's own, and pure; it runs off the event loop, because it may read all that the
answer was made from. A call that failed is retried where that may help: after transient failures
only, after an exponential pause with jitter or the pause that the provider asked for, and never
beyond the run's end. ``calls.call`` makes a single call.

The claim of a run on what is no session of the list of what is due: an extraction, a space.

The claim is a record. Each write under it extends it in the same transaction, over the version that
it was read in. So a run that was taken over writes nothing more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import TypeVar

from hiermem.calls.call import call, prompt_tokens
from hiermem.calls.failures import Accepted, Judge, Rejected, Retry, is_attempt
from hiermem.calls.rate_limit import sleep_unless
from hiermem.calls.run import CallState, N, Run
from hiermem.calls.run_report import (
    LONGEST_HOLD,
    REPEATS,
    Claim,
    is_believed,
    patience,
    read_claim,
    write_claim,
)
from hiermem.errors import ModelError, ModelTimeoutError, TransientModelError
from hiermem.process import has_ended, process_mark
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.types.transaction import Attempt, Record, RecordWrite

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState


#: Writes all or nothing, with the attempts that are charged with it; returns whether it did.
Put = Callable[[Sequence[RecordWrite], Sequence[Attempt]], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class RecordClaim:
    """The claim of the run ``run_id``, as the record that ``place`` writes over a version.

    ``read`` returns the record that is stored. The claim ends ``lease`` seconds after its last
    write. ``held``: it is held, as far as is known.
    """

    run_id: str
    lease: float
    now: Callable[[], datetime]
    read: Callable[[], Awaitable[Record | None]]
    put: Put
    place: Callable[[str | None, int], RecordWrite]
    #: What tells this claim from others of the same place.
    mark: int | None = field(init=False, default=None)
    #: The version of the record while it is held.
    _version: int | None = field(init=False, default=None)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @property
    def held(self) -> bool:
        """Whether the claim is held, as far as is known."""
        return self._version is not None

    async def take(self) -> bool:
        """Take the claim; return whether it was free, or held by a process that has ended."""
        async with self._lock:
            before = await self.read()
            claim = read_claim(before.body) if before else None
            if (
                claim is not None
                and claim.run_id != self.run_id
                and is_believed(claim.until, now=self.now())
                and not has_ended(claim.process)
            ):
                return False
            taken = await self._extend(before.version if before else 0)
            self.mark = self._version if taken else None
            return taken

    async def renew(self) -> None:
        """Extend the claim; forget it where another run took it."""
        await self.commit(())

    async def commit(
        self, writes: Sequence[RecordWrite], *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write all of it while the claim is held, or nothing; return whether it was written."""
        async with self._lock:
            if self._version is None:
                return False
            if not await self._extend(self._version, writes, attempts):
                self._version = None
            return self._version is not None

    async def release(self) -> None:
        """Release the claim, so that nobody has to wait until it ends."""
        async with self._lock:
            version, self._version = self._version, None
            if version is not None:
                await self.put([self.place(None, version)], ())

    async def _extend(
        self,
        version: int,
        writes: Sequence[RecordWrite] = (),
        attempts: Sequence[Attempt] = (),
    ) -> bool:
        """Write the claim over ``version``, together with ``writes``; return whether it was."""
        until = self.now() + timedelta(seconds=self.lease)
        # The random part tells a write that took effect although the store reported a failure.
        body = write_claim(Claim(self.run_id, until, process_mark(), secrets.token_hex(8)))
        written = await self.put([*writes, self.place(body, version)], attempts)
        if not written:
            found = await self.read()
            written = found is not None and found.body == body
        if written:
            self._version = version + 1
        return written


T = TypeVar("T", default=str)

_FIRST_WAIT: Final = 0.5
_MOST_BACKOFF: Final = 30.0


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
    has ``within`` seconds for all its tries, None for no limit. Raises what ``ask`` raises:
    SpendLimitError, ClaimLostError, and the last ModelError.
    """
    reading = None
    if ahead is not None and run.llm.remote:
        reading = run.spawn(run.compute(ahead))
    while True:
        try:
            response = await ask(run, state, request, within=within)
        except ModelError as error:
            if is_attempt(error):
                state.attempts += 1
            elif isinstance(error, TransientModelError) and state.ended:
                state.unanswered = state.ended[-1].id
            raise
        if reading is not None:
            await asyncio.wait([reading])
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
        await run.may_call(state.node)
        run.on_call(state.node)
        if not await run.rate_limiter.take_slot(budget.stop_reason):
            budget.refuse(budget.stopped or "cancellation")
    late: list[ModelTimeoutError] = []
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
                except ModelTimeoutError as error:
                    late.append(error)
                    raise
    finally:
        run.rate_limiter.give_slot()
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
