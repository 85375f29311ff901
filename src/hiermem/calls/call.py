"""Runs requests to a model until an answer is fit: asks, has it judged, asks again with the reason.

The judge is the task's own, and pure; it runs off the event loop, because it may read all that the
answer was made from. A call that failed is retried if that may help (``calls.retry``), and never
beyond the run's end.

Each call is made within the caps and rate limits, with a timeout, priced and journalled.
A call that may cost money is journalled before it is made, and no call is made that would exceed a
cap. The worst-case cost is reserved before the call. It is settled with the usage that the provider
reports, or with our own count where it reports none.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Final, NoReturn, get_args

from typing_extensions import TypeVar

from hiermem import errors, tracing
from hiermem.calls.answers import Accepted, Judge, Rejected
from hiermem.calls.budget import Reservation
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.failures import described, is_attempt, places
from hiermem.calls.limits import FRAME, Prices, plausible_usage, reported_model
from hiermem.calls.rate_limit import sleep_unless
from hiermem.calls.retry import retrying
from hiermem.calls.run import CallState, Run
from hiermem.errors import ModelError
from hiermem.protocols import Finish, LLMRequest, LLMResponse
from hiermem.text.policy import MAX_CONTENT, check
from hiermem.tokens import tokens_of
from hiermem.types import Unit
from hiermem.types.transaction import Attempt, Cost

T = TypeVar("T", default=str)
_log = logging.getLogger("hiermem.calls")
#: How often a call that was not answered in time is repeated at once, with twice the patience: a
#: slow server works on after its caller has gone, and the same patience would wait behind the
#: abandoned call and end as that did.
_REPEATS: Final = 1


async def ask_until_fit(
    run: Run,
    state: CallState,
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
        if isinstance(verdict, Accepted):
            return verdict
        # The journal says of each answer that was not taken why it was not.
        judged = replace(state.ended[-1], outcome="rejected", reason=verdict.reason)
        state.ended[-1] = judged
        run.journal.note(judged)
        state.attempts += 1
        if isinstance(verdict, Rejected):
            return verdict
        request, judge = verdict.request, verdict.judge


async def ask(
    run: Run, state: CallState, request: LLMRequest, *, within: float | None = None
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
            given_up=lambda: len(late) > _REPEATS,
        ):
            with attempt:
                try:
                    patient = replace(request, patience=2.0 ** len(late))
                    return await call(run, state, patient, counted=counted, until=until)
                except ModelError as error:
                    if error.kind == "timeout":
                        late.append(error)
                    raise
    finally:
        run.rate_limiter.give_slot()
    raise AssertionError("the last try returns or raises")


async def call(
    run: Run,
    state: CallState,
    request: LLMRequest,
    *,
    counted: int | None,
    until: float | None = None,
) -> LLMResponse:
    """Make one call: reserve, wait for the rate limit, claim and journal, call, settle.

    It may take the run's ``call_timeout`` times the request's ``patience``, and ends by ``until``,
    a time of the event loop. ``counted`` is what ``prompt_tokens`` returned. Raises SpendLimitError
    where a cap would be exceeded, where the deadline cuts the call off, and where the model is
    down; ClaimLostError; and the ModelError that the call ended in.
    """
    # The most that the call may take. Where a model has no prompt, as the offline one, its inputs
    # stand for it.
    tokens_in = state.input_tokens if counted is None else counted
    overhead = int(getattr(run.llm, "overhead_tokens", 0) or 0)
    tokens_out = request.max_tokens + max(0, overhead)
    with run.mark_waiting():
        reservation = await run.budget.reserve(tokens_in + tokens_out)
    try:
        with run.mark_waiting():
            await _admit(run, tokens_in + tokens_out)
        timeout, by_deadline = _call_timeout(run, until, request.patience)
        attempt = await _claim_and_journal(run, state, reservation, tokens_in, tokens_out)
    except BaseException:
        reservation.release()
        raise
    sent = _SentCall(run, state, attempt, reservation)
    if run.is_cutting_off:
        sent.withdraw()
        raise asyncio.CancelledError
    # From here on the reservation counts as spent, until it is known what the call really took.
    limit = asyncio.timeout(timeout)
    try:
        with (
            run.mark_waiting(),
            tracing.span(
                "call",
                model=run.llm.name,
                adapter=type(run.llm).__name__,
                remote=run.llm.remote,
                max_tokens=request.max_tokens,
                task=run.kind,
                subject=run.subject,
                run=run.run_id,
                node=state.item_id,
            ) as note,
        ):
            async with limit:
                response = _checked(await run.llm.complete(request), asked=run.llm.name)
            usage = response.usage
            note(
                answered_by=response.model or None,
                finish_reason=response.finish_reason,
                tokens_in=usage.input_tokens,
                tokens_out=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )
    except Exception as error:  # noqa: BLE001  # a model may raise anything; it is classified below
        failed = error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            sent.give_up()
            raise
        failed = ModelError("the call ended in CancelledError", kind="invalid")
    except BaseException:
        sent.give_up()
        raise
    else:
        await sent.succeed(request, response)
        return response
    # Outside of the handler, so that the new error does not carry the model's own error as context.
    if by_deadline and limit.expired():
        sent.cut_off()
    raise sent.failure(failed, request)


async def prompt_tokens(request: LLMRequest) -> int | None:
    """Return the tokens of a prompt by our own counter; None where there is no prompt."""
    if not request.messages:
        return None
    texts = [message.content for message in request.messages]
    return await tokens_of(request.counter.count, texts) + FRAME * len(texts)


def _cost(run: Run, tokens_in: int, tokens_out: int, *, cached: int = 0) -> float | None:
    """Return what so many tokens cost, None where the model has no prices."""
    prices: Prices | None = getattr(run.llm, "prices", None)
    return None if prices is None else prices.cost(tokens_in, tokens_out, cached=cached)


async def _admit(run: Run, tokens: int) -> None:
    """Wait until the model may be sent a call.

    Raises SpendLimitError where the run ends first, as it does where the model is down.
    """
    try:
        admitted = await run.rate_limiter.admit(tokens, run.budget.stop_reason)
    except errors.SpendLimitError as error:  # the model is down
        if run.budget.stopped is None:
            _log.warning("run %s: model %r: %s", run.run_id, run.llm.name, error)
        run.budget.stop_for_model(error)
        raise
    if not admitted:
        run.budget.refuse(run.budget.stopped or "cancellation")


def _call_timeout(run: Run, until: float | None, patience: float) -> tuple[float, bool]:
    """Return the timeout of a call in seconds, and whether the run's deadline sets it.

    Raises ModelError where ``until`` has passed while the call waited.
    """
    own, left = run.call_timeout * patience, run.budget.time_left()
    if until is not None:
        own = min(own, until - asyncio.get_running_loop().time())
        if own <= 0:
            raise ModelError("the request timed out", charged=False, kind="timeout")
    return (own, False) if left is None or own <= left else (max(0.0, left), True)


@dataclass(slots=True)
class _SentCall:
    """A call that was sent, until its outcome is noted everywhere.

    ``attempt`` holds the most that it may take, and what that costs.
    """

    run: Run
    state: CallState
    attempt: Attempt
    reservation: Reservation

    async def succeed(self, request: LLMRequest, response: LLMResponse) -> None:
        """Note an answer.

        Where the provider reports no usage and our own count is interrupted, the call is settled at
        its upper bound.
        """
        usage, attempt = response.usage, self.attempt
        used_in = attempt.tokens_in if usage.input_tokens is None else usage.input_tokens
        used_out = usage.output_tokens
        try:
            if used_out is None:
                used_out = await tokens_of(request.counter.count, [response.text])
        finally:
            cached = usage.cached_tokens or 0
            used = attempt.tokens_out if used_out is None else used_out
            self._end(
                replace(
                    attempt,
                    outcome="ok",
                    tokens_in=used_in,
                    tokens_out=used,
                    cached_tokens=cached,
                    reasoning_tokens=usage.reasoning_tokens or 0,
                    cost=_cost(self.run, used_in, used, cached=cached),
                )
            )
            self.run.rate_limiter.succeed()

    def failure(self, error: Exception, request: LLMRequest) -> ModelError:
        """Note a call that raised, and return the error as one of our own types.

        Where the call may be charged for, the whole answer may have been written before it failed;
        so its upper bound counts as spent, or a cap could be exceeded. A remote call that was not
        answered in time has an unknown outcome, whether the provider's timeout ended it or ours.
        The text of the original error is left out: it may hold the prompt, or a key. Of a fault in
        the model's own code that is shown which can hold neither, once in a run.
        """
        name = type(error).__name__
        reason = errors.name_of(error)
        if isinstance(error, ModelError):
            model_error: ModelError = error
        elif isinstance(error, TimeoutError):
            model_error = ModelError(
                f"the call ended in {name}; raise call_timeout, or lower concurrency",
                kind="timeout",
            )
        elif isinstance(error, ConnectionError):
            model_error = ModelError(f"the call ended in {name}", kind="transient")
        elif isinstance(error, errors.HiermemError):
            model_error = ModelError(f"the call ended in {name}", charged=False)
        else:
            model_error = ModelError(f"the call ended in {name}", kind="invalid")
        if not isinstance(error, (ModelError, TimeoutError, ConnectionError)):
            model_error.detail = self._report_fault(error, request)
            reason = model_error.detail
        elif model_error.detail:
            reason = f"{reason}: {model_error.detail}"
        spent_in, spent_out = self.attempt.tokens_in, self.attempt.tokens_out
        if model_error.charged is False:
            spent_in = spent_out = 0
        late = model_error.kind == "timeout"
        if model_error.retryable:
            subject = (self.run.subject, self.state.item_id)
            why = model_error.detail or name
            self.run.rate_limiter.fail(subject, model_error.retry_after, reason=why)
        unknown = late and model_error.charged is None and self.run.llm.remote
        self._end(
            replace(
                self.attempt,
                outcome="unknown" if unknown else "error",
                reason=reason,
                tokens_in=spent_in,
                tokens_out=spent_out,
                cost=_cost(self.run, spent_in, spent_out),
            )
        )
        # The original error may hold the prompt, or a key.
        model_error.__cause__ = model_error.__context__ = None
        return model_error

    def _report_fault(self, error: Exception, request: LLMRequest) -> str:
        """Log a fault in the model's own code, with its places; return what may be shown of it."""
        texts = [*(each.content for each in request.messages)]
        texts += [source.text for source in request.inputs]
        shown = described(error, texts)
        if shown not in self.run.faults:
            self.run.faults.add(shown)
            stack = "".join(f"\n  {place}" for place in places(error))
            _log.warning(
                "run %s: the code of model %r failed: %s%s",
                self.run.run_id, self.run.llm.name, shown, stack,
            )  # fmt: skip
        return shown

    def cut_off(self) -> NoReturn:
        """Note a call that the run's deadline cut off; a remote one may be charged for.

        Raises SpendLimitError.
        """
        if self.run.llm.remote:
            self._end(replace(self.attempt, outcome="unknown", reason="deadline"))
        else:
            self._end(_free(self.attempt, "deadline"))
        self.run.budget.refuse(self.run.budget.stopped or "deadline")

    def withdraw(self) -> None:
        """Note that the run ended after the call was journalled and before it was sent."""
        self._end(_free(self.attempt, "not_sent"))

    def give_up(self) -> None:
        """Note that the run was cancelled in the call; a remote one stays as started until its end.

        A local call costs nothing.
        """
        if not self.run.llm.remote:
            self._end(_free(self.attempt, "cancelled"))
            return
        self._settle(self.attempt)

    def _end(self, attempt: Attempt) -> None:
        """Journal how the call ended and what it took; note the end everywhere else."""
        state, ended = self.state, replace(attempt, ended_at=self.run.now())
        # The call itself was counted when it began.
        state.spent += replace(ended.spent, calls=0)
        self.run.journal.note(ended)
        state.ended.append(ended)
        self._settle(ended)

    def _settle(self, took: Attempt) -> None:
        """Charge the budgets with what the call took."""
        self.reservation.settle(took.spent)


def _free(attempt: Attempt, reason: str) -> Attempt:
    """Return how a call is journalled that ended for this reason and took nothing."""
    return replace(attempt, outcome="error", reason=reason, tokens_in=0, tokens_out=0, cost=None)


def _checked(response: object, *, asked: str) -> LLMResponse:
    """Return the answer with the usage and model that can be believed.

    Raises ModelError for an answer of another type, for one with a text or units that
    cannot be stored, and for an unknown finish reason: an answer that a provider cut off must not
    pass for a whole one. So a faulty adapter costs one attempt and not the run.
    """
    if not isinstance(response, LLMResponse):
        raise _unexpected(f"the model answered {type(response).__name__}, not an LLMResponse")
    try:
        check(response.text, what="the answer", cap=MAX_CONTENT)
    except errors.InvalidMessageError:
        raise _unexpected("the model answered a text that cannot be stored") from None
    if response.finish_reason not in get_args(Finish):
        known = ", ".join(map(repr, get_args(Finish)))
        raise _unexpected(f"the model gave a finish_reason that is none of {known}")
    units: object = response.units
    if not (isinstance(units, (tuple, list)) and all(isinstance(each, Unit) for each in units)):
        raise _unexpected("the model answered units that are none")
    model = reported_model(response.model, asked=asked) if response.model else ""
    return replace(response, usage=plausible_usage(response.usage), model=model)


def _unexpected(what: str) -> ModelError:
    return ModelError(what, kind="invalid", detail=what)


async def _claim_and_journal(
    run: Run, state: CallState, reservation: Reservation, tokens_in: int, tokens_out: int
) -> Attempt:
    """Journal the call under the run's claim, where the model is remote.

    Until the call is settled the journal shows its upper bound; so the calls of a run that is
    killed count as spent. Raises ClaimLostError.
    """
    state.spent += Cost(calls=1)
    attempt = Attempt(
        id=f"{run.run_id}/{state.item_id}/{state.spent.calls}",
        run_id=run.run_id,
        session_id=run.subject,
        node_id=state.item_id,
        number=state.spent.calls,
        model=run.llm.name,
        started_at=run.now(),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=_cost(run, tokens_in, tokens_out),
    )
    run.journal.charge(attempt, reservation)
    if run.llm.remote:
        run.journal.note(attempt)
        try:
            begun = await run.begin_call([*state.ended, attempt])
        except BaseException:
            # The journal may show the call all the same.
            run.journal.note(replace(_free(attempt, "not_sent"), ended_at=run.now()))
            raise
        if not begun:
            run.journal.forget(attempt)
            state.spent += Cost(calls=-1)
            raise ClaimLostError
        state.ended.clear()
    return attempt
