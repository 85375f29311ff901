"""Runs an extraction: splits, has each chunk answered, reduces the answers, stores the result.

::

    messages -> turns -> chunks -> answers (each on record at once) -> graph -> summary -> result

If a failure, a cap, a cancellation or a kill ends a run early, its answers stay on record, and the
next run asks only for the missing ones. ``extraction`` decides which chunks there are, what to
ask for and what a failure means.

The graph needs no model. Only the summary asks one, once, and its answer is stored as a chunk's is,
so that no second run pays for it again. Summaries that exceed a request are shown in an extract. If
the model gives no summary, one is put together without it, so that the chunks' answers are not
lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from hiermem import prompts as shipped
from hiermem.calls.answers import Rejected
from hiermem.calls.budget import Budget
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.limits import answer_tokens, request_tokens, threshold
from hiermem.calls.rate_limit import rate_limiter
from hiermem.calls.retry import retry_store, shielded
from hiermem.calls.run import CallState, RunOutcome
from hiermem.config import ExtractionOptions, Limits, for_model
from hiermem.errors import SpendLimitError, StoreError
from hiermem.extraction import chunk as chunk_steps
from hiermem.extraction import plan, prompt
from hiermem.extraction.chunk import CHUNK, JOIN, ChunkResult, ExtractionRun, ask_for
from hiermem.extraction.chunks import Chunk, chunk_number
from hiermem.extraction.prompt import judge_joined
from hiermem.extraction.reduce import Graph, finish, ground, reduce
from hiermem.handle import Handle
from hiermem.prompts.template import PromptTemplate
from hiermem.protocols import LLM, LLMRequest
from hiermem.summaries import salience
from hiermem.summaries.inputs import Count
from hiermem.types.transaction import NO_COST, Cost, RecordWrite
from hiermem.types.trivector import TriVector

Progress: TypeAlias = Callable[[plan.ExtractionProgress], object]
_log = logging.getLogger("hiermem.extract")
#: The most that a summary may be longer than asked for, as a factor.
_HARD_RATIO: Final = 1.5
#: Tokens around each summary in a request to join several.
_FRAME: Final = 8
#: How often storing the result is tried where other runs write at the same time.
_TRIES: Final = 5
#: The most seconds that calls in flight are awaited after an error.
_DRAIN: Final = 30.0


async def extract(
    handle: Handle,
    session_id: str,
    *,
    llm: LLM,
    options: ExtractionOptions | None = None,
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    on_progress: Progress | None = None,
    limits: Limits | None = None,
) -> plan.ExtractionReport:
    """Extract the session as it is now and store the result; return what was done.

    What was answered stays if the ``limits`` end the run. ``on_progress`` is called as chunks are
    done. The update policy's rate limits, and its caps of session and tenant, apply here too.

    Raises NotFoundError and ConflictError for the session, ConfigError for a limit that is
    impossible, and what the store raises: an extraction whose record cannot be written fails.
    """
    budget = Budget(limits=limits, parents=handle.caps(session_id))
    policy = for_model(options or ExtractionOptions(), llm)
    record = await retry_store(lambda: handle.record(session_id), sleep=asyncio.sleep)
    template = shipped.load_named("extract.map", prompts)
    limit = threshold(policy, llm.context_window)
    answer = answer_tokens(policy, window=llm.context_window, live=llm.remote)
    count = handle.counter.count
    room = None
    if limit is not None:
        room = prompt.room(template, limit=limit, reserve=answer, count=count)
    calls = handle.update_policy
    if not llm.remote:
        # One call at a time for a local model, which only computes.
        calls = calls.model_copy(update={"concurrency": 1})
    run = _Extraction(
        store=handle.store,
        tree=handle.store.tree(record.id),
        kind="extraction",
        subject=record.id,
        lease=calls.lease,
        now=handle.store_now,
        compare_clocks=partial(handle.compare_clocks, lease=calls.lease),
        llm=llm,
        counter=handle.counter,
        budget=budget,
        rate_limiter=rate_limiter(llm, calls),
        call_timeout=policy.call_timeout,
        retries=calls.retries,
        drain_time=_DRAIN,
        record=record,
        policy=policy,
        # A local model only computes, so a second task is enough to read and write meanwhile.
        concurrency=calls.concurrency if llm.remote else min(2, handle.update_policy.concurrency),
        map_template=template,
        join_template=shipped.load_named("extract.reduce", prompts),
        limit=limit,
        room=room,
        answer=answer,
        strategy=plan.strategy_of(
            template, policy, answer=answer, model=llm.name, counter=handle.counter.name
        ),
        on_progress=on_progress,
    )
    await chunk_steps.split(run)
    return await run.execute()


@dataclass(kw_only=True, eq=False)
class SummaryReduction:
    """The session's summary in progress, and what it took.

    ``asked`` are the tokens of its request, also if it was answered before. ``unfit``: the model
    answered, but nothing fit; ``capped``: a cap came first. ``key`` names the inputs of its step.
    """

    run: ExtractionRun
    text: str = ""
    spent: Cost = NO_COST
    asked: int = 0
    failure: plan.Failure | None = None
    unfit: bool = False
    capped: bool = False
    degraded: bool = False
    key: str = ""

    @property
    def id(self) -> str:
        """The id under which its calls are journalled."""
        return f"{self.run.subject}:reduce"

    @property
    def broken(self) -> bool:
        """Whether the model is not asked any more."""
        return self.capped or self.failure is not None

    async def summarise(self, texts: Sequence[str], *, whole: bool) -> None:
        """Make one summary of the chunks' summaries.

        With ``whole`` no chunk is missing. If the model fails, the failure is recorded, and the
        summary is put together without it: ``degraded``. The same happens if a cap forbids the call
        and a partial result is wanted. Raises SpendLimitError if none is wanted, and what the store
        raises.
        """
        run, count = self.run, self.run.counter.count
        target = run.policy.summary_tokens
        tokens = [await asyncio.to_thread(count, text) for text in texts]
        if len(texts) < 2 or sum(tokens) + len(texts) <= target:
            # They fit as they are: rewriting them gains nothing.
            self.text = "\n".join(texts)
        else:
            shown = await asyncio.to_thread(self._shown, texts, tokens)
            self.text = await self._joined(shown) if shown else ""
            if not self.text:
                self.degraded = True
                self.text = await asyncio.to_thread(_selected, texts, target, count)
        if whole and not self.broken:
            # An incomplete run did not reach a step that is paid for and wanted again; it stays.
            await run.keep_only(JOIN, [self.key])

    def _shown(self, texts: Sequence[str], tokens: Sequence[int]) -> list[str]:
        """Return the summaries; if one request has no room for them, one extract of all."""
        run = self.run
        if run.limit is None:
            return list(texts)
        target = run.policy.summary_tokens
        room = prompt.join_room(
            run.join_template,
            limit=run.limit,
            target=target,
            max_tokens=int(target * _HARD_RATIO),
            counter=run.counter,
        )
        if sum(tokens) + _FRAME * len(texts) <= room:
            return list(texts)
        extract = _selected(texts, room - _FRAME, run.counter.count)
        return [extract] if extract else []

    async def _joined(self, texts: Sequence[str]) -> str:
        """Get one summary in place of several; "" if the model gives none."""
        run = self.run
        self.key = plan.join_key(
            texts,
            strategy=run.strategy,
            template=run.join_template,
            target=run.policy.summary_tokens,
        )
        # A task of the run: where it is cancelled, an answer that came is stored all the same.
        task = run.spawn(self._join(texts))
        await asyncio.wait([task])
        try:
            return task.result()
        except SpendLimitError:
            if run.policy.on_chunk_failure != "partial":
                raise
            self.capped = True
            return ""

    async def _join(self, texts: Sequence[str]) -> str:
        """Get the summary: made before, or asked for."""
        run, target = self.run, self.run.policy.summary_tokens

        def build() -> LLMRequest:
            return prompt.join_request(
                run.join_template,
                texts,
                facts=replace(run.facts, summaries=len(texts)),
                counter=run.counter,
                target=target,
                max_tokens=int(target * _HARD_RATIO),
                temperature=run.policy.temperature,
            )

        request = await asyncio.to_thread(build)
        size = request_tokens(request.messages, run.counter.count)
        self.asked += size
        state = CallState(self.id, sum(map(run.counter.count, texts)))
        if (answer := await run.joined(self.key)) is not None:
            return answer.answer
        try:
            return await self._ask(state, request, size)
        except ClaimLostError:
            run.budget.refuse("claim")
        finally:
            self.spent += state.spent

    async def _ask(self, state: CallState, request: LLMRequest, size: int) -> str:
        """Ask for the summary and commit it, or note the failure; ``size`` is its tokens.

        Raises ClaimLostError and SpendLimitError.
        """
        run, most = self.run, self.run.limit
        if most is not None:
            most -= request.max_tokens
        judge = partial(
            judge_joined,
            request,
            input_tokens=state.input_tokens,
            limit=most,
        )
        verdict = await ask_for(run, state, request, judge, most=most, prompt=size)
        if isinstance(verdict, Rejected):
            self.unfit = self.unfit or bool(verdict.reason)
            calls, detail = state.spent.calls, verdict.detail
            failure = plan.Failure(self.id, "reduce", verdict.cause, calls, detail)
            self.failure, run.halted = failure, True
            await run.fail(failure, state)
            return ""
        stored = plan.StoredAnswer(verdict.value, run.strategy, verdict.model or run.llm.name)
        # Shielded: what is paid for is not lost to a cancellation.
        return (await shielded(run.commit(self, stored, tuple(state.ended)))).answer


def _selected(texts: Sequence[str], target: int, count: Count) -> str:
    """Choose from the summaries, without a model, what fits the length."""
    pieces = [
        unit for part, text in enumerate(texts, start=1) for unit in prompt.lines_of(text, part)
    ]
    return salience.select(pieces, target, count).text


async def store_result(run: ExtractionRun, vector: TriVector, basis: Mapping[str, Any]) -> bool:
    """Store the result and its entries for each name, all at once; return whether it was stored.

    A stored result of more messages, or a better one of the same messages, stays.
    """
    fresh = plan.graph_records(vector)
    for _ in range(_TRIES):
        before = await run.all_of(plan.TRIVECTOR)
        current = before[0] if before else None
        if current is not None and not plan.replaces(basis, current.body):
            return False
        stale = {record.key: record for record in await run.all_of(plan.ENTITY)}
        version = current.version if current else 0
        body = plan.write_result(vector, basis)
        writes = [RecordWrite(plan.TRIVECTOR, run.subject, "", body, version)]
        writes += [
            RecordWrite(plan.ENTITY, run.subject, key, body)
            for key, body in fresh.items()
            if key not in stale or stale[key].body != body
        ]
        writes += [
            RecordWrite(plan.ENTITY, run.subject, key, None) for key in stale.keys() - fresh.keys()
        ]
        if await run.write(writes):
            return True
    raise StoreError(f"other runs are writing the result of session {run.subject!r}; retry")


@dataclass(kw_only=True, eq=False)
class _Extraction(ExtractionRun):
    """One run: the chunks in progress, and the results so far, by the chunks' ids.

    ``mapped`` and ``reduced`` are the seconds of the two phases. ``chunks_outcome`` is that of the
    chunks; ``reduce_state`` that of the reduction, None as long as its steps say it.
    """

    on_progress: Progress | None
    results: dict[str, ChunkResult] = field(init=False, default_factory=dict[str, ChunkResult])
    failed_chunks: list[plan.Failure] = field(init=False, default_factory=list[plan.Failure])
    tasks: set[asyncio.Task[ChunkResult]] = field(
        init=False, default_factory=set["asyncio.Task[ChunkResult]"]
    )
    mapped: float = field(init=False, default=0.0)
    reduced: float = field(init=False, default=0.0)
    summary: SummaryReduction | None = field(init=False, default=None)
    vector: TriVector | None = field(init=False, default=None)
    kept: bool = field(init=False, default=False)
    chunks_outcome: RunOutcome = field(init=False, default="error")
    reduce_state: plan.PhaseState | None = field(init=False, default=None)
    broken_off: bool = field(init=False, default=False)
    _opened: float = field(init=False, default=0.0)

    async def execute(self) -> plan.ExtractionReport:
        """Map, reduce, store and record."""
        self._opened = time.monotonic()
        self.detail, self.keep_finished = self._detail, self._keep_finished
        async with self:
            await self.claim()
            await self.begin()
            await self._map(await self._agenda())
            self.chunks_outcome = plan.outcome_of(
                chunks=len(self.chunks),
                done=[id_ for id_, result in self.results.items() if result.stored],
                failures=self.failed_chunks,
                options=self.policy,
            )
            self.outcome = await self._reduce()
        # Recorded before it is returned: an extraction that is not on record did not succeed.
        report = self._report()
        _log.info(
            "run %s: %d chunks, reused %d, failed %d, calls %d, tokens %d, %s",
            report.run_id, len(report.chunks), report.reused, len(report.failures),
            report.calls, report.tokens, report.outcome,
        )  # fmt: skip
        return report

    async def _agenda(self) -> Sequence[Chunk]:
        """Note what is reused and what fails at once; return the chunks to make."""
        make, reuse, fail = plan.chunk_agenda(
            self.chunks,
            await self.stored(),
            self.policy,
            room=self.room,
            answer=self.answer,
        )
        failed = {failure.id: failure for failure in fail}
        for chunk in self.chunks:
            stored, failure = reuse.get(chunk.id), failed.get(chunk.id)
            if stored or failure:
                self.results[chunk.id] = ChunkResult(
                    chunk.id, 0, stored=stored, failure=failure, reused=stored is not None
                )
        if fail:
            self.failed_chunks += fail
            self.failures += fail
            await self.put()
        return make

    # -- map

    async def _map(self, make: Sequence[Chunk]) -> None:
        """Have the chunks answered, ``concurrency`` at a time."""
        pending = list(reversed(make))
        self.report_progress()
        while pending or self.tasks:
            self.halted = bool(self.failed_chunks) and self.policy.on_chunk_failure == "abort"
            stop = self.halted or self.budget.stopped is not None
            while pending and len(self.tasks) < self.concurrency and not stop:
                self.tasks.add(self.spawn(chunk_steps.extract_chunk(self, pending.pop())))
            if not self.tasks:
                break
            done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
            self.tasks -= done
            # The finished results are noted before the error of another task ends the run.
            if errors := [*filter(None, map(self._record_result, done))]:
                raise errors[0]
            self.report_progress()
        self.mapped = time.monotonic() - self._opened

    def _record_result(self, task: asyncio.Task[ChunkResult]) -> BaseException | None:
        """Note the result of a chunk; return the error that must end the run."""
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            result = task.result()
            self.results[result.item_id] = result
            self.failed_chunks += filter(None, [result.failure])
        if isinstance(error, ClaimLostError):
            self.budget.stop("claim")
        return None if isinstance(error, (SpendLimitError, ClaimLostError)) else error

    def report_progress(self, *, done: bool = False) -> None:
        """Report the progress; ``done``: all of it is done."""
        if self.on_progress is None:
            return
        if self.summary is not None:
            progress = plan.ExtractionProgress("reduce", int(done), 1)
        else:
            n_done, total = len(self.results), len(self.chunks)
            progress = plan.ExtractionProgress("map", n_done, total, len(self.failed_chunks))
        self.on_progress(progress)

    # -- reduce

    async def _reduce(self) -> RunOutcome:
        """Reduce what was answered, unless there is to be no result; return the run's outcome."""
        begun, outcome = time.monotonic(), self.chunks_outcome
        if outcome == "error":
            return outcome
        answered = [
            (chunk, result.stored)
            for chunk in self.chunks
            if (result := self.results.get(chunk.id)) is not None and result.stored is not None
        ]
        graph = await asyncio.to_thread(_graph, answered)
        self.summary = summary = SummaryReduction(run=self)
        self.report_progress()
        whole = outcome == "ok"
        try:
            await summary.summarise([text for _, text in graph.summaries], whole=whole)
        except SpendLimitError:
            self.reduce_state = "failed"
            return "error"
        finally:
            self.reduced = time.monotonic() - begun
        # An unfit summary does not abort: one that the model never gets right would cost every run
        # its result.
        lost = summary.failure is not None and not summary.unfit
        if lost and self.policy.on_chunk_failure == "abort":
            return "error"
        there = {chunk.id for chunk, _ in answered}
        missing = [chunk.id for chunk in self.chunks if chunk.id not in there]
        vector = await asyncio.to_thread(finish, graph, summary=summary.text, missing=missing)
        # The run is on record before the result is stored: where that cannot be written, nothing
        # is.
        await self.put(whole=True)
        basis = plan.basis_of(
            messages=self.record.messages,
            input_hash=self.input,
            tokens=sum(chunk.tokens for chunk, _ in answered),
            whole=not missing,
            degraded=summary.degraded,
        )
        self.kept = await store_result(self, vector, basis)
        if whole:
            hashes = {chunk.input_hash for chunk in self.chunks}
            await self.keep_only(CHUNK, hashes)
        self.report_progress(done=True)
        self.reduced = time.monotonic() - begun
        self.vector, self.reduce_state = vector, "partial" if summary.broken else "ok"
        return "partial" if summary.broken else outcome

    # -- the report

    def _report(self) -> plan.ExtractionReport:
        """Report what was done so far; the terms are those of ``extraction.plan``."""
        summary, reduced = self.summary or SummaryReduction(run=self), self.reduce_state
        if reduced is None and self.summary is not None:
            reduced = "failed" if summary.failure is not None else "ok"
        chunks = tuple(map(self._chunk_report, self.chunks))
        failures = sorted(self.failed_chunks, key=lambda failed: chunk_number(failed.id))
        failures += [summary.failure] if summary.failure else []
        mapped = sum((failed.spent for failed in self.results.values()), NO_COST)
        took = mapped + summary.spent
        chunked = self.room is not None and self.tokens > self.room
        chunking: Literal["under_threshold", "over_threshold", "unknown_window"] = (
            "over_threshold" if chunked else "under_threshold"
        )
        return plan.ExtractionReport(
            session_id=self.subject,
            run_id=self.run_id,
            outcome=self.outcome,
            tri_vector=self.vector,
            chunks=chunks,
            failures=tuple(self.failures if self.broken_off else failures),
            map=plan.PhaseReport(
                state="failed" if self.chunks_outcome == "error" else self.chunks_outcome,
                seconds=self.mapped,
            )
            + mapped,
            reduce=plan.PhaseReport(state=reduced or "skipped", seconds=self.reduced)
            + summary.spent,
            chunked=chunked,
            chunking="unknown_window" if self.limit is None else chunking,
            estimate=self.estimate,
            threshold=self.limit,
            model=self.llm.name,
            live=self.llm.remote,
            single_pass_tokens=self.overhead + self.tokens,
            chunked_tokens=sum(failed.request_tokens for failed in chunks) + summary.asked,
            seconds=time.monotonic() - self._opened,
            unknown=self.journal.unknown,
            stopped=self.budget.stopped,
            degraded=summary.degraded,
            kept=self.kept,
            messages=self.record.messages,
            retry_after=self.budget.retry_after,
            last_error=self.budget.last_error,
        ) + replace(took, cost=self.budget.spent.cost)

    def _chunk_report(self, chunk: Chunk) -> plan.ChunkReport:
        result = self.results.get(chunk.id) or ChunkResult(chunk.id, 0)
        failure = result.failure
        return plan.ChunkReport(
            id=chunk.id,
            span=chunk.span,
            status=result.status,
            turns=chunk.turns,
            messages=chunk.messages,
            tokens=chunk.tokens,
            request_tokens=self.overhead + chunk.tokens,
            oversized=chunk.oversized,
            input_hash=chunk.input_hash,
            reason=failure.reason if failure else None,
            detail=failure.detail if failure else "",
            calls=result.spent.calls,
            tokens_in=result.spent.tokens_in,
            tokens_out=result.spent.tokens_out,
            seconds=result.seconds,
            spans=chunk.spans,
        )

    async def _keep_finished(self) -> None:
        """Note the results of the tasks that finished while the run was ending early."""
        for task in self.tasks:
            self._record_result(task)
        self.tasks.clear()
        self.mapped = self.mapped or time.monotonic() - self._opened
        self.chunks_outcome, self.reduce_state, self.broken_off = "error", None, True

    def _detail(self, outcome: str) -> dict[str, Any]:
        """Return what the journal says of the run."""
        if outcome == "running":
            failures = [asdict(failure) for failure in self.failures]
            return {"model": self.llm.name, "failures": failures}
        return plan.detail(self._report())


def _graph(answered: Sequence[tuple[Chunk, plan.StoredAnswer]]) -> Graph:
    """Ground the answers in their chunks and reduce them."""
    grounded: list[Graph] = []
    for chunk, stored in answered:
        if (answer := stored.value()) is not None:
            grounded.append(ground(answer, chunk, dropped=stored.dropped))
    return reduce(grounded)
