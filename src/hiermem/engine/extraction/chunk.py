"""Extracts one chunk: reads it, asks a model, repairs an unreadable answer, commits a fit one.

The result is an answer that is already on record, or a failure with its reason. ``core.extraction``
decides what a chunk is and what a request says; ``core.calls.failures`` what an error means.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from hiermem.config import ExtractionOptions
from hiermem.core.calls.failures import cause_of
from hiermem.core.calls.lease import Claim, ClaimLostError
from hiermem.core.calls.request_limits import Threshold, request_tokens
from hiermem.core.calls.verdict import Rejected
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.chunks import Chunk, sources
from hiermem.core.extraction.judge import judge_chunk
from hiermem.core.extraction.plan import Failure
from hiermem.core.extraction.stored_answer import StoredAnswer, way_of
from hiermem.core.summaries.prompt import Facts, PromptTemplate
from hiermem.engine.calls.ask import ask_until_fit
from hiermem.engine.calls.run import CallState, Run
from hiermem.engine.calls.store_retry import retry_store, shielded
from hiermem.engine.extraction.records import ExtractionRecords, WorkItem
from hiermem.engine.handle import read_messages
from hiermem.errors import ModelError, SpendLimitError
from hiermem.protocols import LLMRequest
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.trivector import Answer

#: Messages read at once.
PAGE: Final = 1000
#: Seconds between two checks of a chunk that another run is asking for.
_LEASE_POLL: Final = 0.25
_log = logging.getLogger("hiermem.extract")


@dataclass(kw_only=True, eq=False)
class ExtractionRun(Run[WorkItem]):
    """The dependencies and the state of one extraction.

    ``room`` is the tokens that one record may have, None where nothing limits it; ``answer`` are
    those reserved for one answer. ``leased_elsewhere`` are the ids that other runs are asking for;
    ``report_progress`` reports them. ``failures`` are those so far. Once ``halted``, nothing new
    begins.
    """

    record: SessionRecord
    policy: ExtractionOptions
    templates: Mapping[str, PromptTemplate]
    limit: Threshold
    room: int | None
    answer: int
    strategy: str
    records: ExtractionRecords = field(init=False)
    leased_elsewhere: set[str] = field(init=False, default_factory=set[str])
    failures: list[Failure] = field(init=False, default_factory=list[Failure])
    report_progress: Callable[[], object] = field(init=False, default=lambda: None)
    halted: bool = field(init=False, default=False)
    _introduction: tuple[str | None, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._introduction = extract_prompt.introduced(
            self.record.title, self.record.participants, count=self.counter.count
        )
        self.claims = self.records = ExtractionRecords(
            self.store,
            self.record.id,
            run_id=self.run_id,
            epoch=self.record.epoch,
            lease=self.lease,
            now=self.now,
            sleep=self.sleep,
            journal=self.journal,
        )

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.record.id

    @property
    def way(self) -> str:
        """The way in which this run splits the session."""
        return way_of(self.room, oversized=self.policy.oversized)

    async def fail(self, *failures: Failure) -> None:
        """Note failures, and journal them at once, so that they are known whatever else fails."""
        self.failures += failures
        await self.put()

    def facts(self, *, first_at: datetime, last_at: datetime, messages: int, of: int = 0) -> Facts:
        """Return the facts that a prompt states about messages, or the summaries ``of`` them."""
        return Facts(
            title=self._introduction[0],
            participants=self._introduction[1],
            first_at=first_at,
            last_at=last_at,
            messages=messages,
            summaries=of,
        )

    async def messages(self, start: int, stop: int) -> list[StoredMessage]:
        """Read messages of the session; see ``read_messages``."""
        return await retry_store(
            lambda: read_messages(self.store, self.session_id, start, stop), sleep=self.sleep
        )


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The result of one chunk: a stored answer or a failure, with what it took."""

    chunk: Chunk
    stored: StoredAnswer | None = None
    failure: Failure | None = None
    reused: bool = False
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


def prompts_key(*, join: bool = False) -> str:
    """Return the name of the template for a chunk, or for the reduction of summaries."""
    return "extract.reduce" if join else "extract.map"


def limit_without_answer(run: ExtractionRun) -> int | None:
    """Return the most tokens of a rendered request, without its schema and its answer."""
    if run.limit.tokens is None:
        return None
    schema = extract_prompt.schema_tokens(run.counter.count)
    return run.limit.tokens - schema - run.answer


async def extract_chunk(run: ExtractionRun, chunk: Chunk) -> ChunkResult:
    """Get the answer to one chunk: ask for it, or wait for the run that already does.

    Raises SpendLimitError where a cap forbids the call or ends the waiting, ClaimLostError where
    the run was halted meanwhile, and what the store raises.
    """
    begun = time.monotonic()
    state: CallState[WorkItem] = CallState(chunk, chunk.tokens)
    while True:
        try:
            result = await _ask_for(run, chunk, state)
            return replace(result, seconds=time.monotonic() - begun)
        except ClaimLostError:
            found = await await_other_run(run, chunk)
            if found is not None:
                return ChunkResult(chunk, found, reused=True, seconds=time.monotonic() - begun)


async def await_other_run(run: ExtractionRun, item: WorkItem) -> StoredAnswer | None:
    """Wait while another run is asking; return its answer, None where the item is free again.

    Raises SpendLimitError where this run ends first, ClaimLostError where it was halted.
    """
    found = await run.records.current(item)
    if isinstance(found, Claim) and found.run_id != run.run_id:
        _log.info(
            "run %s: %s is being asked for by run %s; waiting for it, or until %s",
            run.run_id, item.id, found.run_id, found.until.isoformat(timespec="seconds"),
        )  # fmt: skip
        run.leased_elsewhere.add(item.id)
        run.report_progress()
    try:
        while isinstance(found, Claim):
            if run.halted:
                raise ClaimLostError
            over = run.budget.stop_reason()
            if over is not None:
                run.budget.refuse(over)
            left = run.budget.time_left()
            with run.mark_waiting():
                await run.sleep(_LEASE_POLL if left is None else min(_LEASE_POLL, max(0.0, left)))
            found = await run.records.current(item)
    finally:
        run.leased_elsewhere.discard(item.id)
    return found


async def _ask_for(run: ExtractionRun, chunk: Chunk, state: CallState[WorkItem]) -> ChunkResult:
    """Ask, and once more for each repair that is left. Raises ClaimLostError, SpendLimitError."""
    request = await _request(run, chunk)
    if request is None:
        empty = Answer(summary="").model_dump_json()
        stored = _stored_answer(run, chunk, state, empty, model=run.llm.name)
        return await _commit(run, chunk, state, stored)
    most = limit_without_answer(run)
    count = run.counter.count
    if most is not None and request_tokens(request.messages, count) > most:
        return await _failed(run, chunk, state, ("overflow", "over the limit, not sent"))
    judge = partial(judge_chunk, request, repairs=run.policy.repairs, limit=most)
    try:
        verdict = await ask_until_fit(run, state, request, judge)
    except SpendLimitError:
        await run.records.give_up(chunk, tuple(state.ended))
        raise
    except ModelError as error:
        return await _failed(run, chunk, state, cause_of(error))
    if isinstance(verdict, Rejected):
        return await _failed(run, chunk, state, (verdict.cause, verdict.detail))
    parsed, model = verdict.value, verdict.model or run.llm.name
    stored = _stored_answer(run, chunk, state, parsed.answer.model_dump_json(), model=model)
    return await _commit(run, chunk, state, replace(stored, dropped=parsed.dropped))


def _stored_answer(
    run: ExtractionRun, chunk: Chunk, state: CallState[WorkItem], answer: str, *, model: str
) -> StoredAnswer:
    return StoredAnswer(
        answer,
        run.strategy,
        model,
        state.calls,
        state.tokens_in,
        state.tokens_out,
        (run.way,),
        spans=tuple((span.start, span.stop) for span in chunk.spans),
    )


async def _request(run: ExtractionRun, chunk: Chunk) -> LLMRequest | None:
    """Return the request for a chunk; None where it holds nothing to read."""
    messages = [stored async for stored in _messages_of(run, chunk)]

    def build() -> LLMRequest | None:
        inputs = sources(messages, chunk)
        if not inputs:
            return None
        return extract_prompt.request(
            run.templates[prompts_key()],
            inputs,
            facts=run.facts(
                first_at=min(stored.created_at for stored in messages),
                last_at=max(stored.created_at for stored in messages),
                messages=chunk.messages,
            ),
            counter=run.counter,
            max_tokens=run.answer,
            temperature=run.policy.temperature,
        )

    return await asyncio.to_thread(build)


async def _messages_of(run: ExtractionRun, chunk: Chunk) -> AsyncIterator[StoredMessage]:
    """Read the messages of a chunk, in pages; those of other threads in between are skipped."""
    within = [(span.start, span.stop) for span in chunk.spans]
    place = 0
    for start in range(chunk.span.start, chunk.span.stop, PAGE):
        stop = min(start + PAGE, chunk.span.stop)
        for stored in await run.messages(start, stop):
            while stored.index >= within[place][1]:
                place += 1
            if stored.index >= within[place][0]:
                yield stored


async def _commit(
    run: ExtractionRun, chunk: Chunk, state: CallState[WorkItem], stored: StoredAnswer
) -> ChunkResult:
    """Store the answer. Shielded: what is paid for is not lost to a cancellation."""
    current = await shielded(run.records.commit(chunk, stored, tuple(state.ended)))
    return ChunkResult(
        chunk,
        current,
        calls=state.calls,
        tokens_in=state.tokens_in,
        tokens_out=state.tokens_out,
    )


async def _failed(
    run: ExtractionRun, chunk: Chunk, state: CallState[WorkItem], cause: tuple[Any, str]
) -> ChunkResult:
    """Record the failure in the run, then release the claim."""
    failure = Failure(chunk.id, "map", cause[0], state.calls, cause[1])
    await run.fail(failure)
    await run.records.give_up(chunk, tuple(state.ended))
    return ChunkResult(
        chunk,
        failure=failure,
        calls=state.calls,
        tokens_in=state.tokens_in,
        tokens_out=state.tokens_out,
    )
