"""Extracts a session: splits it, has each chunk answered, reduces the answers, stores the result.

::

    messages -> turns -> chunks -> answers (each on record at once) -> graph -> summary -> result

A run that ends early, by a failure, a cap, a cancellation or a kill, leaves its answers on record,
and the next one asks only for what is missing. ``core.extraction`` decides which chunks there are,
what to ask for and what a failure means.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from hiermem import prompts as shipped
from hiermem.config import ExtractionOptions, for_model
from hiermem.core.calls import request_limits
from hiermem.core.calls.lease import ClaimLostError
from hiermem.core.extraction import plan
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.chunks import Chunk, chunk_number
from hiermem.core.extraction.finish import finish
from hiermem.core.extraction.graph import ResultBasis
from hiermem.core.extraction.reduce import Graph, ground, reduce
from hiermem.core.extraction.stored_answer import StoredAnswer
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.rate_limit import rate_limiter
from hiermem.engine.calls.slots import SlotPool
from hiermem.engine.calls.store_retry import retry_store
from hiermem.engine.extraction.chunk import ChunkResult, ExtractionRun, extract_chunk, prompts_key
from hiermem.engine.extraction.records import CHUNK
from hiermem.engine.extraction.reduce import SummaryReduction, store_result, summarise
from hiermem.engine.extraction.split import SplitSession, split
from hiermem.engine.handle import Handle
from hiermem.errors import SpendLimitError
from hiermem.protocols import LLM

Progress: TypeAlias = Callable[[plan.ExtractionProgress], object]
_log = logging.getLogger("hiermem.extract")
#: The most seconds that calls in flight are awaited after an error.
_DRAIN: Final = 30.0
#: Seconds between two checks whether a chunk has come to wait for another run.
_LOOK: Final = 0.1


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
) -> plan.ExtractionReport:
    """Extract the session as it is now and store the result; return what was done.

    ``max_calls``, ``max_tokens`` and ``deadline`` (seconds from now) end the run before they are
    exceeded; what was answered until then stays. ``on_progress`` is called as chunks are done. The
    update policy's rate limits, and its caps of session and tenant, apply here too.

    Raises NotFoundError and CounterMismatchError for the session, ConfigError for a limit that is
    impossible, and what the store raises: an extraction whose record cannot be written fails.
    """
    budget = Budget(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=deadline,
        parents=handle.journal_budget.parents_of(session_id),
    )
    run = await _open_run(
        handle, session_id, llm, for_model(options or ExtractionOptions(), llm),
        budget=budget, prompts=prompts, sleep=sleep,
    )  # fmt: skip
    return await _Extraction(run, await split(run), on_progress).execute()


async def _open_run(
    handle: Handle,
    session_id: str,
    llm: LLM,
    options: ExtractionOptions,
    *,
    budget: Budget,
    prompts: Mapping[str, PromptTemplate | str] | None,
    sleep: Callable[[float], Awaitable[None]],
) -> ExtractionRun:
    """Prepare one run, which is not begun yet; nothing is written.

    Raises NotFoundError and CounterMismatchError for the session, ConfigError for the limit.
    """
    record = await retry_store(lambda: handle.record(session_id), sleep=sleep)
    templates = {
        name: shipped.load_named(name, prompts) for name in (prompts_key(), prompts_key(join=True))
    }
    limit = request_limits.threshold(options, llm.context_window)
    answer = request_limits.answer_tokens(options, window=llm.context_window, live=llm.remote)
    template, count = templates[prompts_key()], handle.counter.count
    room = None
    if limit.tokens is not None:
        room = extract_prompt.room(template, limit=limit.tokens, reserve=answer, count=count)
    return ExtractionRun(
        store=handle.store,
        tree=handle.store.tree(record.id),
        kind="extraction",
        subject=record.id,
        lease=options.lease,
        now=handle.store_now,
        sleep=sleep,
        journal_budget=handle.journal_budget,
        compare_clocks=partial(handle.compare_clocks, lease=options.lease),
        llm=llm,
        counter=handle.counter,
        budget=budget,
        rate_limiter=rate_limiter(
            llm,
            handle.update_policy,
            clock=time.monotonic,
            sleep=sleep,
            concurrency=options.concurrency,
            batch_delay=options.batch_delay,
        ),
        call_timeout=options.call_timeout,
        retries=options.retries,
        # One call at a time for a local model, which only computes.
        slots=SlotPool(options.concurrency if llm.remote else 1).for_session(record.id),
        drain_time=_DRAIN,
        record=record,
        policy=options,
        templates=templates,
        limit=limit,
        room=room,
        answer=answer,
        strategy=plan.strategy_of(
            template, options, answer=answer, model=llm.name, counter=handle.counter.name
        ),
    )


@dataclass(slots=True)
class _Extraction:
    """One run: the chunks in progress, and the results so far, by the chunks' ids."""

    run: ExtractionRun
    parts: SplitSession
    on_progress: Progress | None
    results: dict[str, ChunkResult] = field(default_factory=dict[str, ChunkResult])
    failures: list[plan.Failure] = field(default_factory=list[plan.Failure])
    tasks: set[asyncio.Task[ChunkResult]] = field(default_factory=set["asyncio.Task[ChunkResult]"])
    begun: float = field(default_factory=time.monotonic)
    mapped: float = 0.0
    summary: SummaryReduction | None = None
    report: plan.ExtractionReport | None = None

    async def execute(self) -> plan.ExtractionReport:
        """Map, reduce, store and record."""
        run = self.run
        run.report_progress = self._report_progress
        run.detail, run.keep_finished = self._detail, self._keep_finished
        async with run:
            await run.begin()
            await self._map(await self._agenda())
            outcome = plan.outcome_of(
                chunks=len(self.parts.chunks),
                done=[id_ for id_, result in self.results.items() if result.stored],
                failures=self.failures,
                options=run.policy,
            )
            self.report = await self._reduce(self._report(outcome))
            run.outcome = self.report.outcome
        # Recorded before it is returned: an extraction that is not on record did not succeed.
        report = replace(self._with_costs(self.report), seconds=time.monotonic() - self.begun)
        _log.info(
            "run %s: %d chunks, reused %d, failed %d, calls %d, tokens %d, %s",
            report.run_id, len(report.chunks), report.reused, len(report.failures),
            report.calls, report.tokens, report.outcome,
        )  # fmt: skip
        return report

    async def _agenda(self) -> Sequence[Chunk]:
        """Note what is reused and what fails at once; return the chunks to make."""
        run = self.run
        make, reuse, fail = plan.chunk_agenda(
            self.parts.chunks,
            await run.records.stored(),
            run.policy,
            room=run.room,
            answer=run.answer,
        )
        failed = {failure.id: failure for failure in fail}
        others: set[str] = set()
        for chunk in self.parts.chunks:
            if (stored := reuse.get(chunk.id)) is not None:
                self.results[chunk.id] = ChunkResult(chunk, 0, stored=stored, reused=True)
                others |= set() if run.way in stored.ways else {chunk.input_hash}
            elif chunk.id in failed:
                self.results[chunk.id] = ChunkResult(chunk, 0, failure=failed[chunk.id])
        if others:
            await run.records.adopt(others, run.way)
        if fail:
            self.failures += fail
            run.failures += fail
            await run.put()
        return make

    # -- map

    async def _map(self, make: Sequence[Chunk]) -> None:
        """Have the chunks answered, ``concurrency`` at a time."""
        run, pending = self.run, list(reversed(make))
        # A local model only computes, so a second task is enough to read and write meanwhile.
        concurrent = run.policy.concurrency if run.llm.remote else min(2, run.policy.concurrency)
        self._report_progress()
        while pending or self.tasks:
            run.halted = bool(self.failures) and run.policy.on_chunk_failure == "abort"
            stop = run.halted or run.budget.stopped is not None
            # A chunk that waits for another run takes no place.
            while pending and len(self.tasks) - len(run.leased_elsewhere) < concurrent and not stop:
                self.tasks.add(run.spawn(extract_chunk(run, pending.pop())))
            if not self.tasks:
                break
            done, _ = await asyncio.wait(
                self.tasks, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED
            )
            self.tasks -= done
            # The finished results are noted before the error of another task ends the run.
            for error in [
                error for task in done if (error := self._record_result(task)) is not None
            ]:
                raise error
            if done:
                self._report_progress()
        self.mapped = time.monotonic() - self.begun

    def _record_result(self, task: asyncio.Task[ChunkResult]) -> BaseException | None:
        """Note the result of a chunk; return the error that must end the run."""
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            result = task.result()
            self.results[result.node.id] = result
            self.failures += [result.failure] if result.failure is not None else []
        return None if isinstance(error, (SpendLimitError, ClaimLostError)) else error

    def _report_progress(self, *, done: bool = False) -> None:
        """Report the progress; ``done``: all of it is done."""
        if self.on_progress is None:
            return
        waiting = len(self.run.leased_elsewhere)
        if self.summary is not None:
            progress = plan.ExtractionProgress("reduce", int(done), 1, waiting=waiting)
        else:
            made, total = len(self.results), len(self.parts.chunks)
            progress = plan.ExtractionProgress("map", made, total, len(self.failures), waiting)
        self.on_progress(progress)

    # -- reduce

    async def _reduce(self, report: plan.ExtractionReport) -> plan.ExtractionReport:
        """Reduce what was answered, unless the run is to have no result."""
        run, begun = self.run, time.monotonic()
        if report.outcome == "error":
            return report
        answered = [
            (chunk, result.stored)
            for chunk in self.parts.chunks
            if (result := self.results.get(chunk.id)) is not None and result.stored is not None
        ]
        graph = await asyncio.to_thread(_graph, answered)
        self.summary = summary = SummaryReduction()
        self._report_progress()
        whole = report.outcome == "ok"
        try:
            await summarise(run, summary, [text for _, text in graph.summaries], whole=whole)
        except SpendLimitError:
            report = _with_summary(report, summary, seconds=time.monotonic() - begun)
            state = replace(report.reduce, state="failed")
            return replace(report, outcome="error", stopped=run.budget.stopped, reduce=state)
        report = _with_summary(report, summary, seconds=time.monotonic() - begun)
        report = replace(report, stopped=run.budget.stopped)
        # An unfit summary does not abort: one that the model never gets right would cost every run
        # its result.
        lost = summary.failure is not None and not summary.unfit
        if lost and run.policy.on_chunk_failure == "abort":
            return replace(report, outcome="error")
        # The run is on record before the result is stored: where that cannot be written, nothing
        # is.
        there = {chunk.id for chunk, _ in answered}
        missing = [chunk.id for chunk in self.parts.chunks if chunk.id not in there]
        vector = await asyncio.to_thread(finish, graph, summary=summary.text, missing=missing)
        self.report = report
        await run.put(whole=True)
        basis = ResultBasis(
            messages=run.record.messages,
            input=self.parts.input,
            tokens=sum(chunk.tokens for chunk, _ in answered),
            whole=not missing,
            degraded=summary.degraded,
        )
        stored = await store_result(run, vector, basis)
        if whole:
            hashes = {chunk.input_hash for chunk in self.parts.chunks}
            await run.records.prune(CHUNK, hashes, way=run.way, strategy=run.strategy)
        self._report_progress(done=True)
        state = replace(
            report.reduce,
            state="partial" if summary.broken else "ok",
            seconds=time.monotonic() - begun,
        )
        outcome: Literal["ok", "partial"] = "partial" if summary.broken or not whole else "ok"
        return replace(report, tri_vector=vector, outcome=outcome, kept=stored, reduce=state)

    # -- the report

    def _report(self, outcome: Literal["ok", "partial", "error"]) -> plan.ExtractionReport:
        """Report what became of the chunks; the terms are those of ``core.extraction.plan``."""
        run, parts = self.run, self.parts
        chunks = tuple(map(self._chunk_report, parts.chunks))
        chunking: Literal["under_threshold", "over_threshold", "unknown_window"] = (
            "over_threshold" if parts.chunked else "under_threshold"
        )
        return plan.ExtractionReport(
            session_id=run.session_id,
            run_id=run.run_id,
            outcome=outcome,
            tri_vector=None,
            chunks=chunks,
            failures=tuple(sorted(self.failures, key=lambda each: chunk_number(each.id))),
            map=plan.PhaseReport(
                "failed" if outcome == "error" else outcome,
                calls=sum(each.calls for each in chunks),
                tokens_in=sum(each.tokens_in for each in chunks),
                tokens_out=sum(each.tokens_out for each in chunks),
                seconds=self.mapped,
            ),
            reduce=plan.PhaseReport(),
            chunked=parts.chunked,
            chunking="unknown_window" if run.limit.tokens is None else chunking,
            estimate=parts.estimate,
            threshold=run.limit.tokens,
            model=run.llm.name,
            live=run.llm.remote,
            single_pass_tokens=parts.overhead + parts.tokens,
            chunked_tokens=sum(each.request_tokens for each in chunks),
            seconds=time.monotonic() - self.begun,
            stopped=run.budget.stopped,
            messages=run.record.messages,
        )

    def _chunk_report(self, chunk: Chunk) -> plan.ChunkReport:
        result = self.results.get(chunk.id) or ChunkResult(chunk, 0)
        failure = result.failure
        return plan.ChunkReport(
            id=chunk.id,
            span=chunk.span,
            status=result.status,
            turns=chunk.turns,
            messages=chunk.messages,
            tokens=chunk.tokens,
            request_tokens=self.parts.overhead + chunk.tokens,
            oversized=chunk.oversized,
            input_hash=chunk.input_hash,
            reason=failure.reason if failure else None,
            detail=failure.detail if failure else "",
            calls=result.calls,
            tokens_in=result.tokens_in,
            tokens_out=result.tokens_out,
            seconds=result.seconds,
            spans=chunk.spans,
        )

    def _with_costs(self, report: plan.ExtractionReport) -> plan.ExtractionReport:
        """Add what is known only at the end: the cost, and the unknown calls."""
        budget = self.run.budget
        return replace(
            report,
            unknown=self.run.journal.unknown,
            cost=budget.cost,
            retry_after=budget.retry_after,
        )

    async def _keep_finished(self) -> None:
        """Note the results of the tasks that finished while the run was ending early."""
        for task in self.tasks:
            self._record_result(task)
        self.tasks.clear()
        self.mapped = self.mapped or time.monotonic() - self.begun
        self.report = self._report("error")
        if self.summary is not None:
            self.report = _with_summary(self.report, self.summary, seconds=0.0)
        self.report = replace(self.report, failures=tuple(self.run.failures))

    def _detail(self, outcome: str) -> dict[str, Any]:
        """Return what the journal says of the run."""
        if outcome == "running" or self.report is None:
            failures = [asdict(failure) for failure in self.run.failures]
            return {"model": self.run.llm.name, "failures": failures}
        return plan.detail(self._with_costs(self.report))


def _with_summary(
    report: plan.ExtractionReport, summary: SummaryReduction, *, seconds: float
) -> plan.ExtractionReport:
    """Add what the reduction of the summary took so far, and its failure."""
    failed = summary.failure is not None
    return replace(
        report,
        chunked_tokens=report.chunked_tokens + summary.asked,
        failures=report.failures + ((summary.failure,) if summary.failure else ()),
        rounds=summary.rounds,
        degraded=summary.degraded,
        reduce=plan.PhaseReport(
            "failed" if failed else "ok",
            calls=summary.calls,
            tokens_in=summary.tokens_in,
            tokens_out=summary.tokens_out,
            seconds=seconds,
        ),
    )


def _graph(answered: Sequence[tuple[Chunk, StoredAnswer]]) -> Graph:
    """Ground the answers in their chunks and reduce them."""
    grounded: list[Graph] = []
    for chunk, stored in answered:
        if (answer := stored.value()) is not None:
            grounded.append(ground(answer, chunk, dropped=stored.dropped))
    return reduce(grounded)
