"""Makes one model call: within the caps, in its turn, timed, priced and journalled.

The one rule: a call is journalled before it is made where it may cost money, and never made where a
cap would be passed. What is set aside for it is the most that it may take; what it took is what the
provider says, or what we count where it says nothing.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Final, Generic, NoReturn

from hiermem.core.calls.usage import believed, told_model
from hiermem.core.text.policy import MAX_CONTENT, check
from hiermem.engine.calls.budget import Hold
from hiermem.engine.calls.rate_limit import Turn, gauge_of
from hiermem.engine.calls.run_context import Asker, ClaimLostError, Making, N, UnexpectedModelError
from hiermem.engine.calls.token_count import tokens_of
from hiermem.errors import (
    HiermemError,
    InvalidTextError,
    ModelError,
    ModelTimeoutError,
    PermanentModelError,
    TransientModelError,
)
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.types import Unit
from hiermem.types.prices import Prices, add_costs
from hiermem.types.transaction import Attempt

#: What a provider adds around each chat message.
_PER_MESSAGE: Final = 4


@dataclass(frozen=True, slots=True)
class _Price:
    """What one call may take at most, as its provider counts, and at which prices.

    ``counted`` are the tokens of the prompt as we count them, None where nobody counted.
    """

    tokens_in: int
    tokens_out: int
    prices: Prices | None
    counted: int | None

    @property
    def tokens(self) -> int:
        """Give the tokens in and out together."""
        return self.tokens_in + self.tokens_out

    def cost(self, tokens_in: int, tokens_out: int, *, cached: int = 0) -> float | None:
        """Give what so many tokens cost, None where the model has no prices."""
        if self.prices is None:
            return None
        return self.prices.cost(tokens_in, tokens_out, cached=cached)


async def call(shop: Asker[N], making: Making[N], request: LLMRequest) -> LLMResponse:
    """Make one call: set its price aside, take the turn, claim, journal, call, settle.

    Raises SpendLimitError where a cap would be passed, the deadline cuts the call off or the
    provider is left alone, ClaimLostError, and the ModelError that the call ended in.
    """
    purse, remote = shop.purse, shop.llm.remote
    margin = gauge_of(shop.llm, request.counter).margin
    price = await _most(shop, making, request, margin=margin)
    request = replace(request, margin=margin)
    with shop.idle():
        hold = await purse.reserve(price.tokens)
    turn: Turn | None = None
    try:
        if remote:
            with shop.idle():
                thing = (shop.session_id, making.node.id)
                turn = await shop.pace.turn(price.tokens, purse, thing=thing)
        attempt = await _announce(shop, making, hold, price)
    except BaseException:
        if turn is not None:
            turn.give_back()
        hold.give_back()
        raise
    sent = _Sent(shop, making, price, attempt, hold, turn)
    # From here on what was set aside counts as spent, until it is known what the call really took.
    if turn is not None:
        turn.begin()
    patience, hurried = _patience(shop)
    limit = asyncio.timeout(patience)
    try:
        with shop.idle():
            async with limit:
                response = _checked(await shop.llm.complete(request), asked=shop.llm.name)
    except Exception as error:  # noqa: BLE001  # a model may raise anything; it is told apart
        failed = error
    except BaseException:
        sent.give_up()
        raise
    else:
        await sent.succeed(request, response)
        return response
    # Outside of the handler, so that what is raised does not carry the model's own error along.
    if hurried and limit.expired():
        sent.cut_off()
    raise sent.failure(failed)


async def _most(shop: Asker[N], making: Making[N], request: LLMRequest, *, margin: float) -> _Price:
    """Work out the most that a call may take. What is long is counted off the event loop."""
    counted: int | None = None
    tokens_in = making.input_tokens
    if shop.llm.remote or shop.purse.counts_tokens:
        texts = [message.content for message in request.messages]
        counted = await tokens_of(request.counter.count, texts) + _PER_MESSAGE * len(texts)
        tokens_in = counted
    beside = int(getattr(shop.llm, "overhead_tokens", 0) or 0)
    return _Price(
        math.ceil(tokens_in * margin),
        math.ceil(request.max_tokens * margin) + max(0, beside),
        getattr(shop.llm, "prices", None),
        counted,
    )


def _patience(shop: Asker[N]) -> tuple[float, bool]:
    """Give the seconds that a call may take, and whether it is the run's end that bounds them."""
    own, left = shop.policy.call_timeout, shop.purse.time_left()
    return (own, False) if left is None or own <= left else (max(0.0, left), True)


@dataclass(slots=True)
class _Sent(Generic[N]):
    """A call that was sent, until what became of it is noted everywhere."""

    shop: Asker[N]
    making: Making[N]
    price: _Price
    attempt: Attempt
    hold: Hold
    turn: Turn | None

    async def succeed(self, request: LLMRequest, response: LLMResponse) -> None:
        """Note an answer, and learn from it how the provider counts.

        Where nobody says what it took and the count is cut off, it took the most that it may.
        """
        usage, price = response.usage, self.price
        used_in = price.tokens_in if usage.input_tokens is None else usage.input_tokens
        used_out = usage.output_tokens
        try:
            if used_out is None:
                used_out = await tokens_of(request.counter.count, [response.text])
        finally:
            cached = usage.cached_tokens or 0
            used = price.tokens_out if used_out is None else used_out
            self._end(
                replace(
                    self.attempt,
                    outcome="ok",
                    tokens_in=used_in,
                    tokens_out=used,
                    cached_tokens=cached,
                    reasoning_tokens=usage.reasoning_tokens or 0,
                    cost=price.cost(used_in, used, cached=cached),
                )
            )
            if self.turn is not None:
                self.turn.end(tokens=used_in + used, answered=True)
        if self.shop.llm.remote and usage.input_tokens is not None and price.counted:
            gauge = gauge_of(self.shop.llm, request.counter)
            if request.schema is None:
                gauge.record_usage(counted=price.counted, reported=usage.input_tokens)

    def failure(self, error: Exception) -> ModelError:
        """Note a call that raised, and give what it means as one of our errors.

        Where it may be charged for, the answer too may have been written to its end before the
        call went wrong: the most that it may take counts as spent, or a cap could be passed. A
        remote call that was not answered in time is unknown, whoever's patience ended. The error's
        own words are left out: they may hold the prompt, or a key.
        """
        name, price = type(error).__name__, self.price
        if isinstance(error, ModelError):
            told: ModelError = error
        elif isinstance(error, TimeoutError):
            told = ModelTimeoutError(f"the call ended in {name}")
        elif isinstance(error, ConnectionError):
            told = TransientModelError(f"the call ended in {name}")
        elif isinstance(error, HiermemError):
            told = PermanentModelError(f"the call ended in {name}", charged=False)
        else:
            told = UnexpectedModelError(f"the call ended in {name}")
        spent_in, spent_out = price.tokens_in, price.tokens_out
        if told.charged is False:
            spent_in = spent_out = 0
        late = isinstance(told, ModelTimeoutError) and told.charged is None
        self._end(
            replace(
                self.attempt,
                outcome="unknown" if late and self.shop.llm.remote else "error",
                reason=name,
                tokens_in=spent_in,
                tokens_out=spent_out,
                cost=price.cost(spent_in, spent_out),
            )
        )
        if self.turn is not None:
            if isinstance(told, TransientModelError):
                self.turn.fail(told.retry_after)
            self.turn.end()
        # What it came from may hold the prompt, or a key.
        told.__cause__ = told.__context__ = None
        return told

    def cut_off(self) -> NoReturn:
        """Note a call that the run's deadline cut off; a remote one may be charged for.

        Raises SpendLimitError.
        """
        remote = self.shop.llm.remote
        self._end(
            replace(
                self.attempt,
                outcome="unknown" if remote else "error",
                reason="deadline",
                tokens_in=self.price.tokens_in if remote else 0,
                tokens_out=self.price.tokens_out if remote else 0,
                cost=self.attempt.cost if remote else None,
            )
        )
        if self.turn is not None:
            self.turn.end()
        self.shop.purse.refuse(self.shop.purse.stopped or "deadline")

    def give_up(self) -> None:
        """Note that the run was cut off in the call; the journal goes on saying that it began."""
        price = self.price
        self.hold.settle(
            tokens_in=price.tokens_in,
            tokens_out=price.tokens_out,
            cost=price.cost(price.tokens_in, price.tokens_out),
        )
        if self.turn is not None:
            self.turn.end()

    def _end(self, attempt: Attempt) -> None:
        """Journal how the call ended, and what it took."""
        making, ended = self.making, replace(attempt, ended_at=self.shop.now())
        making.tokens_in += ended.tokens_in
        making.tokens_out += ended.tokens_out
        making.cost = add_costs(making.cost, ended.cost)
        self.shop.ledger.end(ended)
        making.ended.append(ended)
        self.hold.settle(tokens_in=ended.tokens_in, tokens_out=ended.tokens_out, cost=ended.cost)


def _checked(response: object, *, asked: str) -> LLMResponse:
    """Give the answer itself; refuse what is none, or holds what no store and no prompt can.

    Of what it says beside its text, what may be believed is left. Raises UnexpectedModelError, so
    that a faulty adapter costs an attempt and not the run.
    """
    if not isinstance(response, LLMResponse):
        raise UnexpectedModelError(f"the model answered {type(response).__name__}")
    try:
        check(response.text, what="the answer", cap=MAX_CONTENT)
    except InvalidTextError:
        raise UnexpectedModelError("the model answered a text that cannot be stored") from None
    units: object = response.units
    if not (isinstance(units, (tuple, list)) and all(isinstance(each, Unit) for each in units)):
        raise UnexpectedModelError("the model answered units that are none")
    model = told_model(response.model, asked=asked) if response.model else ""
    return replace(response, usage=believed(response.usage), model=model)


async def _announce(shop: Asker[N], making: Making[N], hold: Hold, price: _Price) -> Attempt:
    """Take the node's lease and journal the call, where the model is remote.

    The journal says the most that it may take until it is known what it took; so what a run that
    is killed has begun counts as spent. Raises ClaimLostError.
    """
    node, ledger = making.node, shop.ledger
    if shop.llm.remote and not ledger.claimed(node.id):
        claimed = await ledger.claim(node)
        if claimed is None:
            raise ClaimLostError
        making.node = claimed
    making.calls += 1
    attempt = Attempt(
        id=f"{shop.run_id}/{node.id}/{making.calls}",
        run_id=shop.run_id,
        session_id=shop.session_id,
        node_id=node.id,
        number=making.calls,
        model=shop.llm.name,
        started_at=shop.now(),
        tokens_in=price.tokens_in,
        tokens_out=price.tokens_out,
        cost=price.cost(price.tokens_in, price.tokens_out),
    )
    hold.announce(attempt.id)
    if shop.llm.remote:
        await ledger.begin(attempt, ended=making.ended)
        making.ended.clear()
    return attempt
