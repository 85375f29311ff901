"""Extracts a session: parts it, has each chunk answered, reduces the answers, keeps the result.

::

    messages -> turns -> chunks -> answers (each on record at once) -> graph -> summary -> result

The one rule: a run that ends early, by a failure, a cap, a cancellation or a kill, leaves the
answers it got on record, and the next one asks only for what is missing. Which chunks there are,
what to ask for and what a failure means is decided in ``core``.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from hiermem import prompts as shipped
from hiermem.config import ExtractionOptions
from hiermem.core import chunks as parting
from hiermem.core import extract_plan as plan
from hiermem.core import extract_prompt
from hiermem.core.chunks import Chunk, Measured, Piece
from hiermem.core.extract_plan import (
    Agenda,
    ChunkReport,
    ExtractionProgress,
    ExtractionReport,
    Failure,
    PhaseReport,
)
from hiermem.core.finish import finish
from hiermem.core.pacing import Limits
from hiermem.core.prompt import PromptTemplate
from hiermem.core.reduce import Graph, ground, reduce
from hiermem.engine.allowance import Allowances
from hiermem.engine.extract_books import ExtractionBooks
from hiermem.engine.extract_map import PAGE, Made, Shop, extract_chunk, prompts_key
from hiermem.engine.extract_reduce import Summary, keep, summarise
from hiermem.engine.handle import Handle
from hiermem.engine.spending import Pace, Purse
from hiermem.engine.throttle import lane_of
from hiermem.errors import SpendLimitError, StoreError, UsageError
from hiermem.protocols import LLM
from hiermem.types import StoredMessage

__all__ = ["Progress", "extract"]

Progress: TypeAlias = Callable[[ExtractionProgress], object]
_log = logging.getLogger("hiermem.extract")
#: Seconds between two looks at tasks that are being drained, and how long answers are waited for.
_DRAIN_STEP: Final = 0.01
_DRAIN: Final = 30.0
#: The largest figure that a prompt may have to bear for the number of messages.
_MOST_MESSAGES: Final = 999_999_999


async def extract(
    handle: Handle,
    session_id: str,
    *,
    llm: LLM,
    options: ExtractionOptions | None = None,
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    on_progress: Progress | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    allowances: Allowances | None = None,
) -> ExtractionReport:
    """Extract the session as it is now and keep the result; give what was done.

    ``max_calls``, ``max_tokens`` and ``deadline`` (seconds from now) end the run before they are
    passed; what was answered until then is kept. ``on_progress`` is called as chunks are done. The
    update policy's limits a minute, and its caps of session and tenant, hold here too.

    Raises NotFoundError and CounterMismatchError for the session, ConfigError for a limit that is
    impossible, and what the store raises: an extraction whose record cannot be written fails.
    """
    for name, value in (("max_calls", max_calls), ("max_tokens", max_tokens)):
        if value is not None and value < 0:
            raise UsageError(f"{name} is {value}; it must not be below 0")
    options = options or ExtractionOptions()
    record = await handle.record(session_id)
    templates = {
        name: shipped.load_named(name, prompts) for name in (prompts_key(), prompts_key(join=True))
    }
    limit = plan.threshold(options, llm.context_window)
    answer = plan.answer_tokens(options, window=llm.context_window, live=llm.remote)
    run_id = uuid.uuid4().hex
    policy = handle.update_policy
    book = allowances or Allowances(handle.store, policy)
    shop = Shop(
        store=handle.store,
        record=record,
        policy=options,
        llm=llm,
        counter=handle.counter,
        templates=templates,
        limit=limit,
        answer=answer,
        strategy=plan.strategy_of(
            templates[prompts_key()],
            options,
            answer=answer,
            model=llm.name,
            counter=handle.counter.name,
        ),
        now=handle.clock,
        sleep=sleep,
        run_id=run_id,
        purse=Purse(
            max_calls=max_calls,
            max_tokens=max_tokens,
            deadline=None if deadline is None else time.monotonic() + deadline,
            clock=time.monotonic,
            above=(book.of(session_id),) if book.any else (),
        ),
        pace=Pace(
            size=options.concurrency,
            delay=options.batch_delay if llm.remote else 0.0,
            clock=time.monotonic,
            sleep=sleep,
            lane=lane_of(llm) if llm.remote else None,
            limits=Limits(policy.requests_per_minute, policy.tokens_per_minute),
        ),
        ledger=ExtractionBooks(
            handle.store,
            session_id,
            run_id=run_id,
            epoch=record.epoch,
            lease=options.lease,
            now=handle.clock,
            sleep=sleep,
            model=llm.name,
            allowances=book if book.any else None,
        ),
    )
    return await _Extraction(shop, await _parted(shop), on_progress).run()


@dataclass(frozen=True, slots=True)
class _Parts:
    """A session parted, and what one request takes beside its record."""

    chunks: tuple[Chunk, ...]
    tokens: int
    overhead: int
    chunked: bool


async def _parted(shop: Shop) -> _Parts:
    """Measure the session's messages and part them; writes nothing.

    Raises ConfigError where the limit leaves no room for a record.
    """
    record, count, policy = shop.record, shop.counter.count, shop.policy
    facts = shop.facts(
        first_at=record.created_at, last_at=record.created_at, messages=record.messages
    )
    template = shop.templates[prompts_key()]
    room = None
    if shop.limit.tokens is not None:
        # The room must not change as the session grows: one token less would move every boundary,
        # and every chunk would be paid for again.
        room = extract_prompt.room(
            template,
            facts=replace(facts, messages=_MOST_MESSAGES),
            limit=shop.limit.tokens,
            reserve=shop.answer,
            count=count,
        )
    measured: list[Measured] = []
    large: dict[int, StoredMessage] = {}

    def weigh(page: Sequence[StoredMessage]) -> None:
        for stored in page:
            found = parting.measure(stored, count=count)
            measured.append(found)
            if policy.oversized == "slice" and room is not None and found.tokens > room:
                large[stored.index] = stored

    for start in range(0, record.messages, PAGE):
        stop = min(start + PAGE, record.messages)
        page = await shop.store.messages(record.id, start, stop)
        await asyncio.to_thread(weigh, page)

    def cut(index: int, room: int) -> Sequence[Piece]:
        return parting.pieces(large[index], room, counter=shop.counter)

    def part() -> _Parts:
        turns = parting.turns(measured)
        chunks = parting.plan(
            record.id,
            turns,
            limit=room,
            strategy=shop.strategy,
            oversized=policy.oversized,
            cut=cut,
        )
        tokens = sum(each.tokens for each in measured)
        most = replace(facts, messages=_MOST_MESSAGES)
        around = extract_prompt.request_tokens(
            extract_prompt.render(template, (), facts=most), count
        ) + extract_prompt.schema_tokens(count)
        return _Parts(chunks, tokens, around, room is not None and tokens > room)

    return await asyncio.to_thread(part)


@dataclass(slots=True)
class _Extraction:
    """One run: the chunks in hand, and what became of those that were."""

    shop: Shop
    parts: _Parts
    on_progress: Progress | None
    made: dict[str, Made] = field(default_factory=dict[str, Made])
    failures: list[Failure] = field(default_factory=list[Failure])
    tasks: set[asyncio.Task[Made]] = field(default_factory=set["asyncio.Task[Made]"])
    begun: float = field(default_factory=time.monotonic)
    mapped: float = 0.0

    async def run(self) -> ExtractionReport:
        """Map, reduce, keep and record."""
        books = self.shop.ledger
        await books.begin_run()
        beat = asyncio.create_task(books.beat())
        try:
            agenda = await self._agenda()
            await self._map(agenda)
            report = await self._reduced(self._report(plan.outcome_of(
                chunks=len(self.parts.chunks),
                done=[id_ for id_, made in self.made.items() if made.kept],
                failures=self.failures,
                options=self.shop.policy,
            )))  # fmt: skip
            # A beat that is late must not be what the record says last.
            beat.cancel()
            await books.release()
            report = replace(report, unknown=books.unknown)
            # Recorded before it is told: an extraction that is not on record did not succeed.
            await books.end_run(report.outcome, plan.detail(report))
        except BaseException as error:
            beat.cancel()
            # Shielded: a second cancellation must not keep the claims from being released.
            await asyncio.shield(asyncio.ensure_future(self._abandon(error)))
            raise
        finally:
            beat.cancel()
        _log.info(
            "run %s: %d chunks, reused %d, failed %d, calls %d, tokens %d, %s",
            report.run_id, len(report.chunks), report.reused, len(report.failures),
            report.calls, report.tokens, report.outcome,
        )  # fmt: skip
        return report

    async def _agenda(self) -> Agenda:
        shop = self.shop
        kept = await shop.ledger.kept()
        agenda = plan.agenda(self.parts.chunks, kept, shop.policy)
        by_id = {chunk.id: chunk for chunk in self.parts.chunks}
        for id_, each in agenda.reuse.items():
            self.made[id_] = Made(by_id[id_], each, reused=True)
        for failure in agenda.fail:
            await shop.ledger.fail(failure)
            self.failures.append(failure)
            self.made[failure.id] = Made(by_id[failure.id], failure=failure)
        return agenda

    # -- map

    async def _map(self, agenda: Agenda) -> None:
        """Have the chunks answered, ``concurrency`` at a time."""
        shop, waiting = self.shop, list(reversed(agenda.make))
        # A local model only computes, so a second hand is there to read and write meanwhile.
        hands = shop.policy.concurrency if shop.llm.remote else min(2, shop.policy.concurrency)
        self._tell()
        while waiting or self.tasks:
            stop = shop.purse.stopped is not None or (
                bool(self.failures) and shop.policy.on_chunk_failure == "abort"
            )
            while waiting and len(self.tasks) < hands and not stop:
                self.tasks.add(asyncio.create_task(extract_chunk(shop, waiting.pop())))
            if not self.tasks:
                break
            done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
            self.tasks -= done
            # What is finished is noted before the error of another task ends the run.
            for error in [error for task in done if (error := self._note(task)) is not None]:
                raise error
            self._tell()
        self.mapped = time.monotonic() - self.begun

    def _note(self, task: asyncio.Task[Made]) -> BaseException | None:
        """Note what came of a chunk; give the error that must end the run."""
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            made = task.result()
            self.made[made.chunk.id] = made
            if made.failure is not None:
                self.failures.append(made.failure)
        return None if isinstance(error, SpendLimitError) else error

    def _tell(self) -> None:
        if self.on_progress is not None:
            done, total = len(self.made), len(self.parts.chunks)
            self.on_progress(ExtractionProgress("map", done, total, len(self.failures)))

    # -- reduce

    async def _reduced(self, report: ExtractionReport) -> ExtractionReport:
        """Reduce what was answered, unless the run is not to have a result."""
        shop = self.shop
        if report.outcome == "error":
            return report
        begun = time.monotonic()
        answered = [made for made in self.made.values() if made.kept is not None]
        graph = await asyncio.to_thread(_graph, answered)
        if self.on_progress is not None:
            self.on_progress(ExtractionProgress("reduce", 0, 1))
        try:
            summary = await summarise(shop, [text for _, text in graph.summaries])
        except SpendLimitError:
            return replace(
                report,
                outcome="error",
                stopped=shop.purse.stopped,
                reduce=replace(report.reduce, state="failed", seconds=time.monotonic() - begun),
            )
        report = _with_summary(report, summary, seconds=time.monotonic() - begun)
        if summary.failure is not None and shop.policy.on_chunk_failure == "abort":
            return replace(report, outcome="error", reduce=replace(report.reduce, state="failed"))
        missing = [
            chunk.id
            for chunk in self.parts.chunks
            if chunk.id not in {m.chunk.id for m in answered}
        ]
        vector = await asyncio.to_thread(finish, graph, summary=summary.text, missing=missing)
        # What is kept has its run on record: where that cannot be written, nothing is kept.
        await shop.ledger.note(plan.detail(report))
        await keep(shop, vector, shop.record.messages)
        if report.outcome == "ok":
            await shop.ledger.prune(self.parts.chunks, shop.strategy)
        if self.on_progress is not None:
            self.on_progress(ExtractionProgress("reduce", 1, 1))
        state: Literal["ok", "partial"] = "ok" if summary.failure is None else "partial"
        return replace(
            report,
            tri_vector=vector,
            outcome="partial" if summary.failure else report.outcome,
            reduce=replace(report.reduce, state=state, seconds=time.monotonic() - begun),
        )

    # -- telling

    def _report(self, outcome: Literal["ok", "partial", "error"]) -> ExtractionReport:
        shop, parts = self.shop, self.parts
        reports = tuple(
            _chunk_report(chunk, self.made.get(chunk.id), parts.overhead) for chunk in parts.chunks
        )
        state: Any = "ok" if outcome == "ok" else ("partial" if outcome == "partial" else "failed")
        unknown = shop.limit.tokens is None
        return ExtractionReport(
            session_id=shop.session_id,
            run_id=shop.run_id,
            outcome=outcome,
            tri_vector=None,
            chunks=reports,
            failures=tuple(sorted(self.failures, key=lambda each: parting.chunk_number(each.id))),
            map=PhaseReport(
                state,
                calls=sum(each.calls for each in reports),
                tokens_in=sum(each.tokens_in for each in reports),
                tokens_out=sum(each.tokens_out for each in reports),
                seconds=self.mapped,
            ),
            reduce=PhaseReport(),
            chunked=parts.chunked,
            chunking="unknown_window"
            if unknown
            else ("over_threshold" if parts.chunked else "under_threshold"),
            estimate=parts.overhead + parts.tokens + extract_prompt.AROUND + shop.answer,
            threshold=shop.limit.tokens,
            model=shop.llm.name,
            live=shop.llm.remote,
            single_pass_tokens=parts.overhead + parts.tokens,
            chunked_tokens=sum(each.request_tokens for each in reports),
            seconds=time.monotonic() - self.begun,
            stopped=shop.purse.stopped,
            messages=shop.record.messages,
        )

    async def _abandon(self, error: BaseException) -> None:
        """End early: keep what comes in, release the claims, record how it ended.

        After an error the calls in flight are waited for, because they may be paid for already; a
        cancellation cuts them off.
        """
        shop = self.shop
        drain = _DRAIN if isinstance(error, Exception) else 0.0
        shop.purse.close("error" if drain else "cancellation")
        begun, left = time.monotonic(), set(self.tasks)
        while left:
            if time.monotonic() - begun >= drain:
                # Only what waits is cut off; a task with an answer in hand finishes in a moment.
                for task in left & shop.waiting:
                    task.cancel()
            _, left = await asyncio.wait(left, timeout=_DRAIN_STEP)
        for task in self.tasks:
            self._note(task)
        self.tasks.clear()
        self.mapped = self.mapped or time.monotonic() - self.begun
        try:
            await shop.ledger.release()
        except StoreError as failure:
            # The leases will end by themselves; how the run ended is still recorded below.
            _log.warning(
                "run %s: claims were not released: %s", shop.run_id, type(failure).__name__
            )
        try:
            report = replace(self._report("error"), unknown=shop.ledger.unknown)
            await shop.ledger.break_off(error, plan.detail(report))
        except StoreError as failure:
            _log.warning(
                "run %s: its end was not recorded: %s", shop.run_id, type(failure).__name__
            )


def _graph(answered: Sequence[Made]) -> Graph:
    """Ground the answers in their chunks and reduce them."""
    grounded: list[Graph] = []
    for made in answered:
        answer = made.kept.value() if made.kept else None
        if answer is not None:
            grounded.append(ground(answer, made.chunk))
    return reduce(grounded)


def _chunk_report(chunk: Chunk, made: Made | None, overhead: int) -> ChunkReport:
    failure = made.failure if made else None
    status: plan.ChunkStatus = "pending"
    if made is not None:
        status = "failed" if failure else ("reused" if made.reused else "made")
    return ChunkReport(
        id=chunk.id,
        span=chunk.span,
        status=status,
        turns=chunk.turns,
        messages=chunk.messages,
        tokens=chunk.tokens,
        request_tokens=overhead + chunk.tokens,
        oversized=chunk.oversized,
        input_hash=chunk.input_hash,
        reason=failure.reason if failure else None,
        detail=failure.detail if failure else "",
        calls=made.calls if made else 0,
        tokens_in=made.tokens_in if made else 0,
        tokens_out=made.tokens_out if made else 0,
        seconds=made.seconds if made else 0.0,
    )


def _with_summary(
    report: ExtractionReport, summary: Summary, *, seconds: float
) -> ExtractionReport:
    failures = report.failures + ((summary.failure,) if summary.failure else ())
    return replace(
        report,
        failures=failures,
        rounds=summary.rounds,
        degraded=summary.degraded,
        reduce=PhaseReport(
            "ok" if summary.failure is None else "failed",
            calls=summary.calls,
            tokens_in=summary.tokens_in,
            tokens_out=summary.tokens_out,
            seconds=seconds,
        ),
    )
