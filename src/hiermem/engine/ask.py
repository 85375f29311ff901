"""Makes one model call at a time: within the caps, in its turn, timed, retried and journalled.

The one rule: a call is journalled before it is made where it may cost money, and never made where a
cap would be passed. What an answer is worth is not asked here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, Protocol

from typing_extensions import TypeVar

from hiermem.core.text.policy import MAX_CONTENT, check
from hiermem.engine.spending import Hold, Pace, Purse, Turn
from hiermem.errors import (
    HiermemError,
    InvalidTextError,
    ModelError,
    ModelTimeoutError,
    PermanentModelError,
    TransientModelError,
)
from hiermem.protocols import LLM, Attempt, LLMRequest, LLMResponse
from hiermem.types import Node

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

__all__ = ["Asker", "Books", "ClaimLostError", "Making", "Patience", "UnexpectedModelError", "ask"]


class Named(Protocol):
    """What calls are made for: a node, a chunk."""

    @property
    def id(self) -> str:
        """Give the id under which the calls are journalled."""
        ...


N = TypeVar("N", bound=Named, default=Node)
N_contra = TypeVar("N_contra", bound=Named, default=Node, contravariant=True)

#: The longest pause that is waited out inside a run; a longer Retry-After is the next run's.
_LONGEST_WAIT: Final = 120.0
_FIRST_WAIT: Final = 0.5
_MOST_BACKOFF: Final = 30.0
#: What a provider adds around each chat message.
_PER_MESSAGE: Final = 4


class Patience(Protocol):
    """How long a call may take, in seconds, and how often it is tried again."""

    @property
    def call_timeout(self) -> float: ...  # noqa: D102 - described above
    @property
    def retries(self) -> int: ...  # noqa: D102 - described above


class Books(Protocol[N]):
    """Where claims are taken and calls are journalled. ``engine.ledger.Ledger`` is one."""

    def claimed(self, node_id: str, /) -> bool:
        """Say whether this run holds the lease."""
        ...

    async def claim(self, node: N, /) -> N | None:
        """Take the lease; None where another run was faster."""
        ...

    async def begin(self, attempt: Attempt, *, ended: Sequence[Attempt]) -> None:
        """Journal, before the call, that it is made, and how the ones before it ended."""
        ...

    def end(self, attempt: Attempt, /) -> None:
        """Note how a journalled call ended."""
        ...


class Slots(Protocol[N_contra]):
    """The calls that may be in flight at once."""

    async def acquire(self, node: N_contra, /) -> object:
        """Wait until one more may be, for ``node``."""
        ...

    def release(self) -> None:
        """Let another one be."""
        ...


class Asker(Protocol[N]):
    """What a call needs of its run. ``engine.workshop.Workshop`` is one."""

    @property
    def llm(self) -> LLM: ...  # noqa: D102 - described above
    @property
    def policy(self) -> Patience: ...  # noqa: D102 - described above
    @property
    def purse(self) -> Purse: ...  # noqa: D102 - described above
    @property
    def pace(self) -> Pace: ...  # noqa: D102 - described above
    @property
    def ledger(self) -> Books[N]: ...  # noqa: D102 - described above
    @property
    def run_id(self) -> str: ...  # noqa: D102 - described above
    @property
    def session_id(self) -> str: ...  # noqa: D102 - described above
    @property
    def now(self) -> Callable[[], datetime]: ...  # noqa: D102 - described above
    @property
    def sleep(self) -> Callable[[float], Awaitable[None]]: ...  # noqa: D102 - described above
    @property
    def slots(self) -> Slots[N]: ...  # noqa: D102 - described above

    def idle(self) -> AbstractContextManager[None]:
        """Mark the running task as one that only waits."""
        ...


class ClaimLostError(Exception):
    """Another run holds the node."""


class UnexpectedModelError(ModelError):
    """A model raised no ModelError, or answered no answer; one attempt is spent on it."""


@dataclass(slots=True)
class Making(Generic[N]):
    """The making of one node: what it is claimed as, and the calls it took."""

    node: N
    input_tokens: int
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    ended: list[Attempt] = field(default_factory=list[Attempt])


async def ask(shop: Asker[N], making: Making[N], request: LLMRequest) -> LLMResponse:
    """Call the model, trying again where that may help.

    Raises SpendLimitError before a call that would pass a cap, ClaimLostError where another run
    has the node, and the last ModelError.
    """
    async for attempt in _retrying(shop):
        with attempt:
            with shop.idle():
                await shop.slots.acquire(making.node)
            try:
                return await _once(shop, making, request)
            finally:
                shop.slots.release()
    raise AssertionError("the last try returns or raises")


def end_with(making: Making[N], attempt_reason: str) -> None:
    """Record why the last answer was not taken as it was."""
    making.ended[-1] = replace(making.ended[-1], outcome="rejected", reason=attempt_reason)


def _retrying(shop: Asker[N]) -> AsyncRetrying:
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
            or asked > _LONGEST_WAIT
            or (left is not None and asked > left)
        )

    async def pause(seconds: float) -> None:
        with shop.idle():
            await shop.sleep(seconds)

    return AsyncRetrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception_type(TransientModelError),
        reraise=True,
        sleep=pause,
    )


async def _once(shop: Asker[N], making: Making[N], request: LLMRequest) -> LLMResponse:
    """Make one call: set its price aside, take the turn, claim, journal, call, settle."""
    purse, remote = shop.purse, shop.llm.remote
    tokens_in = making.input_tokens
    if remote or purse.counts_tokens:
        tokens_in = sum(
            request.counter.count(message.content) + _PER_MESSAGE for message in request.messages
        )
    reserved = tokens_in + request.max_tokens
    with shop.idle():
        hold = await purse.reserve(reserved)
    turn: Turn | None = None
    try:
        if remote:
            with shop.idle():
                turn = await shop.pace.turn(reserved, purse)
        attempt = await _announce(
            shop, making, hold, tokens_in=tokens_in, tokens_out=request.max_tokens
        )
    except BaseException:
        if turn is not None:
            turn.give_back()
        hold.give_back()
        raise
    # From here on the tokens of the prompt count as spent, whatever becomes of the call.
    used_in, used_out = tokens_in, 0
    if turn is not None:
        turn.begin()
    try:
        try:
            with shop.idle():
                async with asyncio.timeout(shop.policy.call_timeout):
                    response = _checked(await shop.llm.complete(request))
        except Exception as error:  # noqa: BLE001  # a model may raise anything; it is told apart
            told = _end_in_error(shop, making, attempt, error, tokens_in=tokens_in)
            used_in = 0 if told.charged is False else tokens_in
            raise told from None
        usage = response.usage
        used_in = tokens_in if usage.input_tokens is None else usage.input_tokens
        used_out = (
            request.counter.count(response.text)
            if usage.output_tokens is None
            else usage.output_tokens
        )
        making.tokens_in += used_in
        making.tokens_out += used_out
        _end(
            shop,
            making,
            replace(attempt, outcome="ok", tokens_in=used_in, tokens_out=used_out),
        )
        if turn is not None:
            turn.settle(used_in + used_out)
        return response
    finally:
        hold.settle(tokens_in=used_in, tokens_out=used_out)


def _checked(response: object) -> LLMResponse:
    """Give the answer itself; refuse what is none, or holds what no store and no prompt can.

    Raises UnexpectedModelError, so that a faulty adapter costs an attempt and not the run.
    """
    if not isinstance(response, LLMResponse):
        raise UnexpectedModelError(f"the model answered {type(response).__name__}")
    try:
        check(response.text, what="the answer", cap=MAX_CONTENT)
    except InvalidTextError:
        raise UnexpectedModelError("the model answered a text that cannot be stored") from None
    return response


async def _announce(
    shop: Asker[N], making: Making[N], hold: Hold, *, tokens_in: int, tokens_out: int
) -> Attempt:
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
        tokens_in=tokens_in,
        tokens_out=tokens_out,
    )
    hold.announce(attempt.id)
    if shop.llm.remote:
        await ledger.begin(attempt, ended=making.ended)
        making.ended.clear()
    return attempt


def _end_in_error(
    shop: Asker[N], making: Making[N], attempt: Attempt, error: Exception, *, tokens_in: int
) -> ModelError:
    """Journal a call that raised, and say what it means as one of our errors.

    The error's own words are left out: they may hold the prompt, or a key.
    """
    name = type(error).__name__
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
    spent = 0 if told.charged is False else tokens_in
    making.tokens_in += spent
    _end(
        shop,
        making,
        replace(attempt, outcome="error", reason=name, tokens_in=spent, tokens_out=0),
    )
    return told


def _end(shop: Asker[N], making: Making[N], attempt: Attempt) -> None:
    ended = replace(attempt, ended_at=shop.now())
    shop.ledger.end(ended)
    making.ended.append(ended)
