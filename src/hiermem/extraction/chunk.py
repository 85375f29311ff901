"""Runs the extraction of one chunk: reads, asks, repairs, and records a fit answer at once.

An answer that is already on record is used again; a chunk without one ends as a failure with its
reason. ``chunks`` decides what a chunk is, ``prompt`` what a request says, and ``calls.failures``
what an error means.

All is written under the run's claim, and an answer that is not recorded is ignored. A write is
retried while the store fails, and is recognised if it took effect although the store reported a
failure. Two errors end the extraction: a run that cannot be recorded, and a session that was
changed meanwhile, because nothing made from the old one may be kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from hiermem.calls.answers import Accepted, Judge, Rejected
from hiermem.calls.call import ask_until_fit
from hiermem.calls.failures import cause_of
from hiermem.calls.limits import request_tokens
from hiermem.calls.retry import TRIES, retry_store, shielded
from hiermem.calls.run import CallState, RecordClaim, Run
from hiermem.config import ExtractionOptions
from hiermem.errors import BusyError, ModelError, SpendLimitError
from hiermem.extraction import chunks as chunking
from hiermem.extraction import prompt as extract_prompt
from hiermem.extraction.chunks import Chunk, Measured
from hiermem.extraction.plan import ChunkStatus, Failure, StoredAnswer, read_answer, write_answer
from hiermem.extraction.prompt import judge_chunk
from hiermem.handle import read_messages
from hiermem.prompts.template import Facts, PromptTemplate
from hiermem.protocols import LLMRequest
from hiermem.types import SessionRecord, StoredMessage
from hiermem.types.transaction import Attempt, Record, RecordWrite
from hiermem.types.trivector import Answer

if TYPE_CHECKING:
    from hiermem.extraction.extract import SummaryReduction

T = TypeVar("T")

#: The kinds of record that hold the answer to a chunk, and a summary of several summaries.
CHUNK: Final = "chunk"
JOIN: Final = "join"
#: The kind of record that holds the claim on the extraction of a session.
CLAIM: Final = "extraction-claim"
#: The most chunks of one session that are looked up at once.
_ALL: Final = 1_000_000


WorkItem: TypeAlias = "Chunk | SummaryReduction"


#: Messages read at once.
_PAGE: Final = 1000
#: Seconds between two tries to claim an extraction that another run holds.
_CLAIM_POLL: Final = 0.25
_log = logging.getLogger("hiermem.extract")


@dataclass(kw_only=True, eq=False)
class ExtractionRun(Run):
    """The dependencies and the state of one extraction.

    ``map_template`` is that of a chunk's request, ``join_template`` that of the summaries'
    reduction. ``room`` is the tokens that one record may have, None where nothing limits it;
    ``answer`` are those reserved for one answer. ``failures`` are those so far. Once ``halted``,
    nothing new begins. ``facts`` are what a prompt states about the session as a whole.

    ``split`` sets the rest. ``tokens`` are those of the whole record of the session, and ``input``
    identifies all that is read. ``overhead`` is what a request takes besides the record,
    ``estimate`` the most that a single request for all might take, answer included.
    """

    record: SessionRecord
    policy: ExtractionOptions
    concurrency: int
    map_template: PromptTemplate
    join_template: PromptTemplate
    limit: int | None
    room: int | None
    answer: int
    strategy: str
    record_claim: RecordClaim = field(init=False)
    failures: list[Failure] = field(init=False, default_factory=list[Failure])
    halted: bool = field(init=False, default=False)
    chunks: tuple[Chunk, ...] = field(init=False)
    tokens: int = field(init=False)
    overhead: int = field(init=False)
    estimate: int = field(init=False)
    input: str = field(init=False)
    facts: Facts = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        record = self.record
        title, participants = extract_prompt.introduced(
            record.title, record.participants, count=self.counter.count
        )
        begun = record.created_at
        self.facts = Facts(title, participants, begun, begun, record.messages)
        self.record_claim = RecordClaim(
            self.run_id,
            self.lease,
            self.now,
            read=lambda: self._one(CLAIM, ""),
            put=self._put_claimed,
            place=lambda body, version: RecordWrite(CLAIM, self.subject, "", body, version),
        )
        self.claim_mark = lambda: self.record_claim.mark

    async def claim(self) -> bool:
        """Claim the extraction of the session; return whether, before the budget ends the run.

        A run of a remote model does that. While another run holds it, this one waits.
        """
        claim, waits = self.record_claim, False
        # Shielded: a claim whose taking was cancelled has to be known, to be released.
        while self.llm.remote and not await shielded(claim.take()):
            if self.budget.stop_reason() is not None:
                return False
            if not waits:
                _log.info("run %s waits for another run of session %r", self.run_id, self.subject)
                waits = True
            rest = self.budget.time_left()
            await self.sleep(_CLAIM_POLL if rest is None else min(_CLAIM_POLL, rest))
        await self.note_cut_off()
        return True

    async def begin_call(self, calls: Sequence[Attempt]) -> bool:
        """Journal these calls while the claim is held; return whether."""
        return await self.journal.write_with(
            calls, lambda: self.record_claim.commit((), attempts=calls)
        )

    async def renew(self) -> None:
        """Extend the claim."""
        await self.record_claim.renew()

    async def release(self) -> None:
        """Journal the calls that have no end yet, and release the claim."""
        try:
            await super().release()
        finally:
            await self.record_claim.release()

    async def fail(self, failure: Failure, state: CallState) -> None:
        """Journal a failure at once, so that it is known whatever else fails."""
        self.failures.append(failure)
        await self.put()
        await self.journal.write(state.ended)

    async def messages(self, start: int, stop: int) -> list[StoredMessage]:
        """Read messages of the session; see ``read_messages``."""
        return await retry_store(
            lambda: read_messages(self.store, self.subject, start, stop), sleep=self.sleep
        )

    async def stored(self) -> dict[str, StoredAnswer]:
        """Return the stored answers of this session, by the chunks' input hashes."""
        answers: dict[str, StoredAnswer] = {}
        for record in await self.all_of(CHUNK):
            body = read_answer(record.body)
            if body is not None and body.value() is not None:
                answers[record.key] = body
        return answers

    async def joined(self, key: str) -> StoredAnswer | None:
        """Return the stored summary of several summaries; a damaged one counts as none."""
        found = await self._one(JOIN, key)
        answer = read_answer(found.body) if found else None
        return answer if answer is not None and answer.answer.strip() else None

    async def commit(
        self, item: WorkItem, stored: StoredAnswer, attempts: Sequence[Attempt]
    ) -> StoredAnswer:
        """Write an answer; return the one on record, which another run may have written first.

        What is paid for is stored where the claim was lost, too, if no other answer is there.
        """
        kind, key = (CHUNK, item.input_hash) if isinstance(item, Chunk) else (JOIN, item.key)
        body = write_answer(stored)
        if await self.record_claim.commit([RecordWrite(kind, self.subject, key, body)]):
            await self.journal.write(attempts)
            return stored
        for _ in range(TRIES):
            before = await self._one(kind, key)
            stored_answer = read_answer(before.body) if before else None
            if stored_answer is not None:
                stored = stored_answer
                break
            version = before.version if before else 0
            if await self.write([RecordWrite(kind, self.subject, key, body, version)]):
                break
        await self.journal.write(attempts)
        return stored

    async def keep_only(self, kind: str, used: Collection[str]) -> None:
        """Delete the answers of a ``kind`` whose keys are not ``used`` by the session's result.

        Where other runs keep writing the same ones, this is left to a later run.
        """
        for _ in range(TRIES):
            writes = [
                RecordWrite(kind, record.scope, record.key, None, record.version)
                for record in await self.all_of(kind)
                if record.key not in used
            ]
            if not writes or await self.write(writes):
                return

    async def all_of(self, kind: str) -> list[Record]:
        """Return the session's records of a ``kind``."""
        return await self._retry(lambda: self.store.records(kind, scope=self.subject, limit=_ALL))

    async def _one(self, kind: str, key: str) -> Record | None:
        records = await self._retry(lambda: self.store.records(kind, scope=self.subject, key=key))
        return records[0] if records else None

    async def write(
        self, writes: Sequence[RecordWrite], *, attempts: Sequence[Attempt] = ()
    ) -> bool:
        """Write all records made from the session, or none; return whether they were written.

        Raises BusyError where the session was changed since it was read: the records may
        contain what was withdrawn.
        """
        epochs = {self.subject: self.record.epoch}
        if await self._retry(
            lambda: self.store.put_records(writes, epochs=epochs, attempts=attempts)
        ):
            return True
        now = await self._retry(lambda: self.store.session(self.subject))
        if now is None or now.epoch != self.record.epoch:
            raise BusyError(session_id=self.subject)
        return False

    async def _put_claimed(
        self, writes: Sequence[RecordWrite], attempts: Sequence[Attempt]
    ) -> bool:
        """Write under the claim; to give it back also where the session was changed."""
        if all(write.body is None for write in writes):
            return await self._retry(lambda: self.store.put_records(writes))
        return await self.write(writes, attempts=attempts)

    async def _retry(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_store(call, sleep=self.sleep)


async def split(run: ExtractionRun) -> None:
    """Measure the session's messages and group them into the run's chunks."""
    slicing = run.policy.oversized == "slice" and run.room is not None
    measured: list[Measured] = []
    large: dict[int, StoredMessage] = {}

    def weigh(page: Sequence[StoredMessage]) -> None:
        for stored in page:
            found = chunking.measure(stored, count=run.counter.count)
            measured.append(found)
            if slicing and found.tokens > (run.room or 0):
                large[stored.index] = stored

    def group() -> None:
        record, count, template = run.record, run.counter.count, run.map_template
        once = list(chunking.with_days_once(measured))
        run.chunks = chunking.plan(
            record.id,
            chunking.turns(once),
            limit=run.room,
            strategy=run.strategy,
            oversized=run.policy.oversized,
            cut=lambda index, room: chunking.pieces(large[index], room, counter=run.counter),
        )
        empty = extract_prompt.render(template, (), facts=run.facts, answer=run.answer)
        run.tokens = sum(each.tokens for each in once)
        run.overhead = request_tokens(empty, count) + extract_prompt.schema_tokens(count)
        run.estimate = extract_prompt.around(template, count=count) + run.tokens + run.answer
        run.input = chunking.input_hash(once)

    for start in range(0, run.record.messages, _PAGE):
        page = await run.messages(start, min(start + _PAGE, run.record.messages))
        await asyncio.to_thread(weigh, page)
    await asyncio.to_thread(group)


@dataclass(slots=True)
class ChunkResult(CallState):
    """The calls for one chunk, and what came of them: a stored answer or a failure."""

    stored: StoredAnswer | None = None
    failure: Failure | None = None
    reused: bool = False
    seconds: float = 0.0

    @property
    def status(self) -> ChunkStatus:
        """The chunk's status in the report."""
        if self.failure is not None:
            return "failed"
        return "reused" if self.reused else "pending" if self.stored is None else "made"


async def extract_chunk(run: ExtractionRun, chunk: Chunk) -> ChunkResult:
    """Get the answer to one chunk.

    Raises SpendLimitError where a cap forbids the call, ClaimLostError where another run took the
    extraction over, and what the store raises.
    """
    begun = time.monotonic()
    result = ChunkResult(chunk.id, chunk.tokens)
    answer = await _answer(run, chunk, result)
    if isinstance(answer, Rejected):
        result.failure = Failure(chunk.id, "map", answer.cause, result.spent.calls, answer.detail)
        await run.fail(result.failure, result)
    else:
        # Shielded: what is paid for is not lost to a cancellation.
        result.stored = await shielded(run.commit(chunk, answer, tuple(result.ended)))
    result.seconds = time.monotonic() - begun
    return result


async def ask_for(
    run: ExtractionRun,
    state: CallState,
    request: LLMRequest,
    judge: Judge[T],
    *,
    most: int | None,
    prompt: int | None = None,
) -> Accepted[T] | Rejected:
    """Ask for one answer, and once more for each repair that is left.

    A request of more than ``most`` tokens is not sent; ``prompt`` are its tokens, if the caller has
    counted them. A model's failure is a rejection without a reason. Raises ClaimLostError and
    SpendLimitError.
    """
    count = run.counter.count
    if most is not None and (prompt or request_tokens(request.messages, count)) > most:
        return Rejected("", "overflow", "over the limit, not sent")
    try:
        return await ask_until_fit(run, state, request, judge)
    except SpendLimitError:
        await run.journal.write(state.ended)
        raise
    except ModelError as error:
        return Rejected("", *cause_of(error))


async def _answer(run: ExtractionRun, chunk: Chunk, state: CallState) -> StoredAnswer | Rejected:
    """Ask for a chunk's answer; one without anything to read is empty."""
    request = await _request(run, chunk)
    answer, dropped, model = Answer(summary=""), 0, ""
    if request is not None:
        most = run.limit
        if most is not None:
            most -= extract_prompt.schema_tokens(run.counter.count) + run.answer
        judge = partial(judge_chunk, request, limit=most)
        verdict = await ask_for(run, state, request, judge, most=most)
        if isinstance(verdict, Rejected):
            return verdict
        (answer, dropped), model = verdict.value, verdict.model
    return StoredAnswer(
        answer.model_dump_json(),
        run.strategy,
        model or run.llm.name,
        dropped,
        tuple((span.start, span.stop) for span in chunk.spans),
    )


async def _request(run: ExtractionRun, chunk: Chunk) -> LLMRequest | None:
    """Return the request for a chunk; None where it holds nothing to read."""
    # In pages; those of other threads in between are skipped.
    messages: list[StoredMessage] = []
    own = {index for span in chunk.spans for index in range(span.start, span.stop)}
    for start in range(chunk.span.start, chunk.span.stop, _PAGE):
        page = await run.messages(start, min(start + _PAGE, chunk.span.stop))
        messages += (stored for stored in page if stored.index in own)

    def build() -> LLMRequest | None:
        inputs = chunking.sources(messages, chunk)
        if not inputs:
            return None
        return extract_prompt.request(
            run.map_template,
            inputs,
            facts=replace(
                run.facts,
                first_at=min(stored.created_at for stored in messages),
                last_at=max(stored.created_at for stored in messages),
                messages=chunk.messages,
            ),
            counter=run.counter,
            max_tokens=run.answer,
            temperature=run.policy.temperature,
        )

    return await asyncio.to_thread(build)
