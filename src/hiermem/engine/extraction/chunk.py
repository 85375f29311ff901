"""Extracts one chunk: reads it, asks, has an unreadable answer repaired, commits what is fit.

The one rule: what comes out is an answer that is already on record, or a failure with its reason.
What a chunk is, what a request says and what an error means is decided in ``core``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from hiermem.config import ExtractionOptions
from hiermem.core.calls.bounded_json import parse
from hiermem.core.calls.failures import cause_of, finish_cause
from hiermem.core.calls.lease import Claim
from hiermem.core.calls.request_limits import Threshold, request_tokens
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.chunks import Chunk, sources
from hiermem.core.extraction.plan import Failure
from hiermem.core.extraction.stored_answer import StoredAnswer, way_of
from hiermem.core.summaries.prompt import Facts, PromptTemplate
from hiermem.engine.calls.budget import Purse
from hiermem.engine.calls.rate_limit import Pace
from hiermem.engine.calls.retry import ask, end_with
from hiermem.engine.calls.run_context import ClaimLostError, Making
from hiermem.engine.calls.slots import Slots
from hiermem.engine.calls.store_retry import finished, steady
from hiermem.engine.extraction.records import ExtractionBooks, Piece
from hiermem.errors import InvalidAnswerError, ModelError, StoreCorruptError
from hiermem.protocols import LLM, LLMRequest, LLMResponse, TenantStore, TokenCounter
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.trivector import Answer

#: Messages read at once.
PAGE: Final = 1000
#: Seconds between two looks at a chunk that another run is asking for.
_LOOK: Final = 0.25
_log = logging.getLogger("hiermem.extract")


@dataclass(slots=True)
class Shop:
    """One extraction's tools; what ``engine.calls.retry`` needs of a run.

    ``room`` is the tokens that one record may have, None where nothing limits it; ``answer`` those
    kept for one answer; ``slots`` are the calls that may be in flight. ``held`` are the ids of what
    other runs are asking for, which ``tell`` tells; ``halted``: nothing is begun any more.
    """

    store: TenantStore
    record: SessionRecord
    policy: ExtractionOptions
    llm: LLM
    counter: TokenCounter
    templates: Mapping[str, PromptTemplate]
    limit: Threshold
    room: int | None
    answer: int
    strategy: str
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    run_id: str
    purse: Purse
    pace: Pace
    ledger: ExtractionBooks
    slots: Slots = field(init=False)
    waiting: set[asyncio.Task[Any] | None] = field(default_factory=set["asyncio.Task[Any] | None"])
    held: set[str] = field(default_factory=set[str])
    tell: Callable[[], object] = field(default=lambda: None)
    halted: bool = False
    _told: tuple[str | None, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._told = extract_prompt.introduced(
            self.record.title, self.record.participants, count=self.counter.count
        )
        # One call at a time of a local model, which only computes.
        self.slots = Slots(self.policy.concurrency if self.llm.remote else 1)

    @property
    def session_id(self) -> str:
        """Give the session's id."""
        return self.record.id

    @property
    def way(self) -> str:
        """Name the way in which this run parts the session."""
        return way_of(self.room, oversized=self.policy.oversized)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Mark the running task as one that only waits."""
        task = asyncio.current_task()
        self.waiting.add(task)
        try:
            yield
        finally:
            self.waiting.discard(task)

    def facts(self, *, first_at: datetime, last_at: datetime, messages: int, of: int = 0) -> Facts:
        """Give what a prompt tells about a stretch, or about the summaries ``of`` it."""
        return Facts(
            title=self._told[0],
            participants=self._told[1],
            first_at=first_at,
            last_at=last_at,
            messages=messages,
            summaries=of,
        )

    async def messages(self, start: int, stop: int) -> list[StoredMessage]:
        """Read messages of the session. Raises StoreCorruptError where one of them is gone."""
        found = await steady(
            lambda: self.store.messages(self.session_id, start, stop), sleep=self.sleep
        )
        if len(found) != stop - start:
            raise StoreCorruptError(
                f"session {self.session_id!r} has {len(found)} of the {stop - start} messages from "
                f"{start} to {stop - 1}; the store is damaged"
            )
        return found


@dataclass(frozen=True, slots=True)
class Made:
    """What came of one chunk: an answer on record, or a failure; with what it took."""

    chunk: Chunk
    kept: StoredAnswer | None = None
    failure: Failure | None = None
    reused: bool = False
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


def prompts_key(*, join: bool = False) -> str:
    """Name the template of a chunk's request, or of the summaries' reduction."""
    return "extract.reduce" if join else "extract.map"


def limit_without_answer(shop: Shop) -> int | None:
    """Give the most tokens that a rendered request may have beside its schema and its answer."""
    if shop.limit.tokens is None:
        return None
    schema = extract_prompt.schema_tokens(shop.counter.count)
    return shop.limit.tokens - schema - shop.answer


async def extract_chunk(shop: Shop, chunk: Chunk) -> Made:
    """Get the answer to one chunk, asking for it or waiting for who already does.

    Raises SpendLimitError where a cap forbids the call or ends the waiting, ClaimLostError where
    the run was halted meanwhile, and what the store raises.
    """
    begun = time.monotonic()
    making: Making[Piece] = Making(chunk, chunk.tokens)
    while True:
        try:
            made = await _ask_for(shop, chunk, making)
            return replace(made, seconds=time.monotonic() - begun)
        except ClaimLostError:
            found = await made_elsewhere(shop, chunk)
            if found is not None:
                return Made(chunk, found, reused=True, seconds=time.monotonic() - begun)


async def made_elsewhere(shop: Shop, piece: Piece) -> StoredAnswer | None:
    """Wait while another run is asking for it; give the answer, None where it is free again.

    Raises SpendLimitError where the run is over before, ClaimLostError where it was halted.
    """
    found = await shop.ledger.standing(piece)
    if isinstance(found, Claim) and found.run_id != shop.run_id:
        _log.info(
            "run %s: %s is being asked for by run %s; waiting for it, or until %s",
            shop.run_id, piece.id, found.run_id, found.until.isoformat(timespec="seconds"),
        )  # fmt: skip
        shop.held.add(piece.id)
        shop.tell()
    try:
        while isinstance(found, Claim):
            if shop.halted:
                raise ClaimLostError
            over = shop.purse.is_over()
            if over is not None:
                shop.purse.refuse(over)
            left = shop.purse.time_left()
            with shop.idle():
                await shop.sleep(_LOOK if left is None else min(_LOOK, max(0.0, left)))
            found = await shop.ledger.standing(piece)
    finally:
        shop.held.discard(piece.id)
    return found


async def _ask_for(shop: Shop, chunk: Chunk, making: Making[Piece]) -> Made:
    """Ask, and once more for each repair that is left. Raises ClaimLostError, SpendLimitError."""
    request = await _request(shop, chunk)
    if request is None:
        empty = Answer(summary="").model_dump_json()
        kept = _kept(shop, chunk, making, empty, model=shop.llm.name)
        return await _commit(shop, chunk, making, kept)
    most = limit_without_answer(shop)
    count = shop.counter.count
    if most is not None and request_tokens(request.messages, count) > most:
        return await _failed(shop, chunk, making, ("overflow", "over the limit, not sent"))
    first = request.messages
    for repairs_left in range(shop.policy.repairs, -1, -1):
        try:
            response = await ask(shop, making, request)
        except ModelError as error:
            return await _failed(shop, chunk, making, cause_of(error))
        cause = finish_cause(response)
        if cause is not None:
            end_with(making, cause[1])
            return await _failed(shop, chunk, making, cause)
        try:
            read = await asyncio.to_thread(parse, response.text)
        except InvalidAnswerError as error:
            end_with(making, f"schema:{error.problem}")
            if not repairs_left:
                return await _failed(shop, chunk, making, cause_of(error))
            room = request_tokens(first, count) + extract_prompt.REPAIR_ROOM
            repaired = extract_prompt.repair(
                first, error, count=count, limit=room if most is None else most
            )
            request = replace(request, messages=repaired)
            continue
        text, model = read.answer.model_dump_json(), _name_of(shop, response)
        kept = _kept(shop, chunk, making, text, model=model)
        return await _commit(shop, chunk, making, replace(kept, dropped=read.dropped))
    raise AssertionError("the last try returns")


def _name_of(shop: Shop, response: LLMResponse) -> str:
    return response.model or shop.llm.name


def _kept(
    shop: Shop, chunk: Chunk, making: Making[Piece], answer: str, *, model: str
) -> StoredAnswer:
    return StoredAnswer(
        answer,
        shop.strategy,
        model,
        making.calls,
        making.tokens_in,
        making.tokens_out,
        (shop.way,),
        spans=tuple((span.start, span.stop) for span in chunk.spans),
    )


async def _request(shop: Shop, chunk: Chunk) -> LLMRequest | None:
    """Make the request for a chunk; None where there is nothing in it to read."""
    messages = [stored async for stored in _messages_of(shop, chunk)]

    def made() -> LLMRequest | None:
        inputs = sources(messages, chunk)
        if not inputs:
            return None
        return extract_prompt.request(
            shop.templates[prompts_key()],
            inputs,
            facts=shop.facts(
                first_at=min(stored.created_at for stored in messages),
                last_at=max(stored.created_at for stored in messages),
                messages=chunk.messages,
            ),
            counter=shop.counter,
            max_tokens=shop.answer,
            temperature=shop.policy.temperature,
        )

    return await asyncio.to_thread(made)


async def _messages_of(shop: Shop, chunk: Chunk) -> AsyncIterator[StoredMessage]:
    """Read the messages of a chunk, in pages; those of other threads in between are passed over."""
    within = [(span.start, span.stop) for span in chunk.spans]
    place = 0
    for start in range(chunk.span.start, chunk.span.stop, PAGE):
        stop = min(start + PAGE, chunk.span.stop)
        for stored in await shop.messages(start, stop):
            while stored.index >= within[place][1]:
                place += 1
            if stored.index >= within[place][0]:
                yield stored


async def _commit(shop: Shop, chunk: Chunk, making: Making[Piece], kept: StoredAnswer) -> Made:
    """Put the answer on record. Shielded: what is paid for is not lost to a cancellation."""
    standing = await finished(shop.ledger.commit(chunk, kept, tuple(making.ended)))
    return Made(
        chunk,
        standing,
        calls=making.calls,
        tokens_in=making.tokens_in,
        tokens_out=making.tokens_out,
    )


async def _failed(shop: Shop, chunk: Chunk, making: Making[Piece], cause: tuple[Any, str]) -> Made:
    """Record the failure in the run, then let go of the claim."""
    failure = Failure(chunk.id, "map", cause[0], making.calls, cause[1])
    await shop.ledger.fail(failure)
    await shop.ledger.give_up(chunk, tuple(making.ended))
    return Made(
        chunk,
        failure=failure,
        calls=making.calls,
        tokens_in=making.tokens_in,
        tokens_out=making.tokens_out,
    )
