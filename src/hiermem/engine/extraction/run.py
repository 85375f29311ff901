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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from hiermem import prompts as shipped
from hiermem.config import ExtractionOptions, for_model
from hiermem.core.calls import request_limits
from hiermem.core.calls.lease import ClaimLostError
from hiermem.core.extraction import plan
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.finish import finish
from hiermem.core.extraction.graph import ResultBasis
from hiermem.core.extraction.plan import ChunkAgenda, ExtractionProgress, ExtractionReport, Failure
from hiermem.core.extraction.record import detail, failure_detail
from hiermem.core.extraction.reduce import Graph, ground, reduce
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.rate_limit import rate_limiter
from hiermem.engine.calls.slots import SlotPool
from hiermem.engine.calls.store_retry import retry_store
from hiermem.engine.extraction.chunk import ChunkResult, ExtractionRun, extract_chunk, prompts_key
from hiermem.engine.extraction.reduce import SummaryReduction, store_result, summarise
from hiermem.engine.extraction.report import report_of, with_summary
from hiermem.engine.extraction.split import SplitSession, split
from hiermem.engine.handle import Handle
from hiermem.errors import SpendLimitError
from hiermem.protocols import LLM
from hiermem.types.trivector import TriVector

Progress: TypeAlias = Callable[[ExtractionProgress], object]
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
) -> ExtractionReport:
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
    """One run: the chunks in progress, and the results so far."""

    run: ExtractionRun
    parts: SplitSession
    on_progress: Progress | None
    results: dict[str, ChunkResult] = field(default_factory=dict[str, ChunkResult])
    failures: list[Failure] = field(default_factory=list[Failure])
    tasks: set[asyncio.Task[ChunkResult]] = field(default_factory=set["asyncio.Task[ChunkResult]"])
    begun: float = field(default_factory=time.monotonic)
    mapped: float = 0.0
    summary: SummaryReduction | None = None
    report: ExtractionReport | None = None

    async def execute(self) -> ExtractionReport:
        """Map, reduce, store and record."""
        run = self.run
        run.report_progress = self._report_progress
        run.detail, run.keep_finished = self._detail, self._keep_finished
        async with run:
            await run.begin()
            await self._map(await self._agenda())
            self.report = await self._reduce(self._report(plan.outcome_of(
                chunks=len(self.parts.chunks),
                done=[id_ for id_, result in self.results.items() if result.stored],
                failures=self.failures,
                options=run.policy,
            )))  # fmt: skip
            run.outcome = self.report.outcome
        # Recorded before it is returned: an extraction that is not on record did not succeed.
        report = replace(self._with_costs(self.report), seconds=time.monotonic() - self.begun)
        _log.info(
            "run %s: %d chunks, reused %d, failed %d, calls %d, tokens %d, %s",
            report.run_id, len(report.chunks), report.reused, len(report.failures),
            report.calls, report.tokens, report.outcome,
        )  # fmt: skip
        return report

    async def _agenda(self) -> ChunkAgenda:
        run = self.run
        stored = await run.records.stored()
        chunk_agenda = plan.chunk_agenda(
            self.parts.chunks, stored, run.policy, room=run.room, answer=run.answer
        )
        by_id = {chunk.id: chunk for chunk in self.parts.chunks}
        for id_, each in chunk_agenda.reuse.items():
            self.results[id_] = ChunkResult(by_id[id_], each, reused=True)
        if others := {
            by_id[id_].input_hash
            for id_, each in chunk_agenda.reuse.items()
            if run.way not in each.ways
        }:
            await run.records.adopt(others, run.way)
        if chunk_agenda.fail:
            await run.fail(*chunk_agenda.fail)
        for failure in chunk_agenda.fail:
            self.failures.append(failure)
            self.results[failure.id] = ChunkResult(by_id[failure.id], failure=failure)
        return chunk_agenda

    # -- map

    async def _map(self, chunk_agenda: ChunkAgenda) -> None:
        """Have the chunks answered, ``concurrency`` at a time."""
        run, pending = self.run, list(reversed(chunk_agenda.make))
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
            self.results[result.chunk.id] = result
            if result.failure is not None:
                self.failures.append(result.failure)
        return None if isinstance(error, (SpendLimitError, ClaimLostError)) else error

    def _report_progress(self, *, done: bool = False) -> None:
        """Report the progress; ``done``: all of it is done."""
        if self.on_progress is None:
            return
        leased_elsewhere = len(self.run.leased_elsewhere)
        if self.summary is not None:
            self.on_progress(ExtractionProgress("reduce", int(done), 1, waiting=leased_elsewhere))
            return
        result, total = len(self.results), len(self.parts.chunks)
        self.on_progress(
            ExtractionProgress("map", result, total, len(self.failures), leased_elsewhere)
        )

    # -- reduce

    async def _reduce(self, report: ExtractionReport) -> ExtractionReport:
        """Reduce what was answered, unless the run is to have no result."""
        run, begun = self.run, time.monotonic()
        if report.outcome == "error":
            return report
        answered = [result for result in self.results.values() if result.stored is not None]
        graph = await asyncio.to_thread(_graph, answered)
        self.summary = summary = SummaryReduction()
        self._report_progress()
        whole = report.outcome == "ok"
        try:
            await summarise(run, summary, [text for _, text in graph.summaries], whole=whole)
        except SpendLimitError:
            report = with_summary(report, summary, seconds=time.monotonic() - begun)
            state = replace(report.reduce, state="failed")
            return replace(report, outcome="error", stopped=run.budget.stopped, reduce=state)
        report = with_summary(report, summary, seconds=time.monotonic() - begun)
        report = replace(report, stopped=run.budget.stopped)
        # An unfit summary does not abort: one that the model never gets right would cost every run
        # its result.
        lost = summary.failure is not None and not summary.unfit
        if lost and run.policy.on_chunk_failure == "abort":
            return replace(report, outcome="error")
        vector, stored = await self._store_result(report, graph, summary, answered)
        if whole:
            hashes = {chunk.input_hash for chunk in self.parts.chunks}
            await run.records.prune(hashes, way=run.way, strategy=run.strategy)
        self._report_progress(done=True)
        state = replace(
            report.reduce,
            state="partial" if summary.broken else "ok",
            seconds=time.monotonic() - begun,
        )
        outcome: Literal["ok", "partial"] = "partial" if summary.broken or not whole else "ok"
        return replace(report, tri_vector=vector, outcome=outcome, kept=stored, reduce=state)

    async def _store_result(
        self,
        report: ExtractionReport,
        graph: Graph,
        summary: SummaryReduction,
        answered: Sequence[ChunkResult],
    ) -> tuple[TriVector, bool]:
        """Make the result and store it; return whether it became the session's own."""
        run, there = self.run, {result.chunk.id for result in answered}
        missing = [chunk.id for chunk in self.parts.chunks if chunk.id not in there]
        vector = await asyncio.to_thread(finish, graph, summary=summary.text, missing=missing)
        # The run is on record before the result is stored: where that cannot be written, nothing
        # is.
        self.report = report
        await run.put(whole=True)
        basis = ResultBasis(
            messages=run.record.messages,
            input=self.parts.input,
            tokens=sum(result.chunk.tokens for result in answered),
            whole=not missing,
            degraded=summary.degraded,
        )
        return vector, await store_result(run, vector, basis)

    # -- telling

    def _with_costs(self, report: ExtractionReport) -> ExtractionReport:
        """Add what is known only at the end: the cost, and the unknown calls."""
        budget = self.run.budget
        return replace(
            report,
            unknown=self.run.journal.unknown,
            cost=budget.cost,
            retry_after=budget.retry_after,
        )

    def _report(self, outcome: Literal["ok", "partial", "error"]) -> ExtractionReport:
        return report_of(
            self.run,
            self.parts,
            outcome,
            results=self.results,
            failures=self.failures,
            mapped=self.mapped,
            seconds=time.monotonic() - self.begun,
        )

    async def _keep_finished(self) -> None:
        """Note the results of the tasks that finished while the run was ending early."""
        for task in self.tasks:
            self._record_result(task)
        self.tasks.clear()
        self.mapped = self.mapped or time.monotonic() - self.begun
        self.report = self._report("error")
        if self.summary is not None:
            self.report = with_summary(self.report, self.summary, seconds=0.0)
        self.report = replace(self.report, failures=tuple(self.run.failures))

    def _detail(self, outcome: str) -> dict[str, Any]:
        """Return what the journal says of the run."""
        if outcome == "running" or self.report is None:
            failures = [failure_detail(failure) for failure in self.run.failures]
            return {"model": self.run.llm.name, "failures": failures}
        return detail(self._with_costs(self.report))


def _graph(answered: Sequence[ChunkResult]) -> Graph:
    """Ground the answers in their chunks and reduce them."""
    grounded: list[Graph] = []
    for result in answered:
        answer = result.stored.value() if result.stored else None
        if result.stored is not None and answer is not None:
            grounded.append(ground(answer, result.chunk, dropped=result.stored.dropped))
    return reduce(grounded)
