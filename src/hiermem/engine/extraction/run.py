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
from typing import Final, Literal, TypeAlias

from hiermem import prompts as shipped
from hiermem.config import ExtractionOptions
from hiermem.core.calls import request_limits
from hiermem.core.extraction import plan
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.finish import finish
from hiermem.core.extraction.graph import ResultBasis
from hiermem.core.extraction.plan import ChunkAgenda, ExtractionProgress, ExtractionReport, Failure
from hiermem.core.extraction.record import detail
from hiermem.core.extraction.reduce import Graph, ground, reduce
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.allowance import Allowances
from hiermem.engine.calls.budget import Purse
from hiermem.engine.calls.rate_limit import pace_of
from hiermem.engine.calls.run_context import ClaimLostError
from hiermem.engine.calls.store_retry import steady
from hiermem.engine.extraction.chunk import Made, Shop, extract_chunk, prompts_key
from hiermem.engine.extraction.records import ExtractionBooks
from hiermem.engine.extraction.reduce import Summary, keep, summarise
from hiermem.engine.extraction.report import report_of, with_summary
from hiermem.engine.extraction.split import Parts, parted
from hiermem.engine.handle import Handle
from hiermem.errors import SpendLimitError, StoreError
from hiermem.protocols import LLM
from hiermem.types.trivector import TriVector

Progress: TypeAlias = Callable[[ExtractionProgress], object]
_log = logging.getLogger("hiermem.extract")
#: Seconds between two looks at tasks that are being drained, and how long answers are waited for.
_DRAIN_STEP: Final = 0.01
#: Seconds after which it is looked whether a chunk has come to wait for another run.
_LOOK: Final = 0.1
_DRAIN: Final = 30.0


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
    book = allowances or Allowances(handle.store, handle.update_policy)
    purse = Purse(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=None if deadline is None else time.monotonic() + deadline,
        clock=time.monotonic,
        above=(book.of(session_id),) if book.any else (),
    )
    shop = await _opened(
        handle, session_id, llm, options or ExtractionOptions(),
        purse=purse, book=book, prompts=prompts, sleep=sleep,
    )  # fmt: skip
    return await _Extraction(shop, await parted(shop), on_progress).run()


async def _opened(
    handle: Handle,
    session_id: str,
    llm: LLM,
    options: ExtractionOptions,
    *,
    purse: Purse,
    book: Allowances,
    prompts: Mapping[str, PromptTemplate | str] | None,
    sleep: Callable[[float], Awaitable[None]],
) -> Shop:
    """Gather the tools of one run, which is not begun yet; nothing is written.

    Raises NotFoundError and CounterMismatchError for the session, ConfigError for the limit.
    """
    record = await steady(lambda: handle.record(session_id), sleep=sleep)
    templates = {
        name: shipped.load_named(name, prompts) for name in (prompts_key(), prompts_key(join=True))
    }
    limit = request_limits.threshold(options, llm.context_window)
    answer = request_limits.answer_tokens(options, window=llm.context_window, live=llm.remote)
    template, count = templates[prompts_key()], handle.counter.count
    room = None
    if limit.tokens is not None:
        room = extract_prompt.room(template, limit=limit.tokens, reserve=answer, count=count)
    run_id = uuid.uuid4().hex
    return Shop(
        store=handle.store,
        record=record,
        policy=options,
        llm=llm,
        counter=handle.counter,
        templates=templates,
        limit=limit,
        room=room,
        answer=answer,
        strategy=plan.strategy_of(
            template, options, answer=answer, model=llm.name, counter=handle.counter.name
        ),
        now=handle.clock,
        sleep=sleep,
        run_id=run_id,
        purse=purse,
        pace=pace_of(llm, handle.update_policy, clock=time.monotonic, sleep=sleep, batches=options),
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


@dataclass(slots=True)
class _Extraction:
    """One run: the chunks in hand, and what became of those that were."""

    shop: Shop
    parts: Parts
    on_progress: Progress | None
    made: dict[str, Made] = field(default_factory=dict[str, Made])
    failures: list[Failure] = field(default_factory=list[Failure])
    tasks: set[asyncio.Task[Made]] = field(default_factory=set["asyncio.Task[Made]"])
    begun: float = field(default_factory=time.monotonic)
    mapped: float = 0.0
    summary: Summary | None = None

    async def run(self) -> ExtractionReport:
        """Map, reduce, keep and record."""
        books = self.shop.ledger
        self.shop.tell = self._tell
        await books.begin_run()
        beat = asyncio.create_task(books.beat())
        try:
            chunk_agenda = await self._agenda()
            await self._map(chunk_agenda)
            report = await self._reduced(self._report(plan.outcome_of(
                chunks=len(self.parts.chunks),
                done=[id_ for id_, made in self.made.items() if made.kept],
                failures=self.failures,
                options=self.shop.policy,
            )))  # fmt: skip
            # A beat that is late must not be what the record says last.
            beat.cancel()
            await books.release()
            report = self._billed(report)
            # Recorded before it is told: an extraction that is not on record did not succeed.
            await books.end_run(report.outcome, detail(report))
            report = replace(report, seconds=time.monotonic() - self.begun)
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

    async def _agenda(self) -> ChunkAgenda:
        shop = self.shop
        kept = await shop.ledger.kept()
        chunk_agenda = plan.chunk_agenda(
            self.parts.chunks, kept, shop.policy, room=shop.room, answer=shop.answer
        )
        by_id = {chunk.id: chunk for chunk in self.parts.chunks}
        for id_, each in chunk_agenda.reuse.items():
            self.made[id_] = Made(by_id[id_], each, reused=True)
        if others := {
            by_id[id_].input_hash
            for id_, each in chunk_agenda.reuse.items()
            if shop.way not in each.ways
        }:
            await shop.ledger.adopt(others, shop.way)
        if chunk_agenda.fail:
            await shop.ledger.fail(*chunk_agenda.fail)
        for failure in chunk_agenda.fail:
            self.failures.append(failure)
            self.made[failure.id] = Made(by_id[failure.id], failure=failure)
        return chunk_agenda

    # -- map

    async def _map(self, chunk_agenda: ChunkAgenda) -> None:
        """Have the chunks answered, ``concurrency`` at a time."""
        shop, waiting = self.shop, list(reversed(chunk_agenda.make))
        # A local model only computes, so a second hand is there to read and write meanwhile.
        hands = shop.policy.concurrency if shop.llm.remote else min(2, shop.policy.concurrency)
        self._tell()
        while waiting or self.tasks:
            shop.halted = bool(self.failures) and shop.policy.on_chunk_failure == "abort"
            stop = shop.halted or shop.purse.stopped is not None
            # A chunk that another run is asking for takes no hand while it is waited for.
            while waiting and len(self.tasks) - len(shop.held) < hands and not stop:
                self.tasks.add(asyncio.create_task(extract_chunk(shop, waiting.pop())))
            if not self.tasks:
                break
            done, _ = await asyncio.wait(
                self.tasks, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED
            )
            self.tasks -= done
            # What is finished is noted before the error of another task ends the run.
            for error in [error for task in done if (error := self._note(task)) is not None]:
                raise error
            if done:
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
        return None if isinstance(error, (SpendLimitError, ClaimLostError)) else error

    def _tell(self, *, done: bool = False) -> None:
        """Tell how far the run is; ``done``: all of it is."""
        if self.on_progress is None:
            return
        held = len(self.shop.held)
        if self.summary is not None:
            self.on_progress(ExtractionProgress("reduce", int(done), 1, waiting=held))
            return
        made, total = len(self.made), len(self.parts.chunks)
        self.on_progress(ExtractionProgress("map", made, total, len(self.failures), held))

    # -- reduce

    async def _reduced(self, report: ExtractionReport) -> ExtractionReport:
        """Reduce what was answered, unless the run is not to have a result."""
        shop, begun = self.shop, time.monotonic()
        if report.outcome == "error":
            return report
        answered = [made for made in self.made.values() if made.kept is not None]
        graph = await asyncio.to_thread(_graph, answered)
        self.summary = summary = Summary()
        self._tell()
        whole = report.outcome == "ok"
        try:
            await summarise(shop, summary, [text for _, text in graph.summaries], whole=whole)
        except SpendLimitError:
            report = with_summary(report, summary, seconds=time.monotonic() - begun)
            state = replace(report.reduce, state="failed")
            return replace(report, outcome="error", stopped=shop.purse.stopped, reduce=state)
        report = with_summary(report, summary, seconds=time.monotonic() - begun)
        report = replace(report, stopped=shop.purse.stopped)
        # A summary that no model makes fit would else cost the result in every run again.
        lost = summary.failure is not None and not summary.unfit
        if lost and shop.policy.on_chunk_failure == "abort":
            return replace(report, outcome="error")
        vector, kept = await self._kept(report, graph, summary, answered)
        if whole:
            hashes = {chunk.input_hash for chunk in self.parts.chunks}
            await shop.ledger.prune(hashes, way=shop.way, strategy=shop.strategy)
        self._tell(done=True)
        state = replace(
            report.reduce,
            state="partial" if summary.broken else "ok",
            seconds=time.monotonic() - begun,
        )
        outcome: Literal["ok", "partial"] = "partial" if summary.broken or not whole else "ok"
        return replace(report, tri_vector=vector, outcome=outcome, kept=kept, reduce=state)

    async def _kept(
        self, report: ExtractionReport, graph: Graph, summary: Summary, answered: Sequence[Made]
    ) -> tuple[TriVector, bool]:
        """Make the result and put it on record; say whether it became the session's own."""
        shop, there = self.shop, {made.chunk.id for made in answered}
        missing = [chunk.id for chunk in self.parts.chunks if chunk.id not in there]
        vector = await asyncio.to_thread(finish, graph, summary=summary.text, missing=missing)
        # What is kept has its run on record: where that cannot be written, nothing is kept.
        await shop.ledger.note(detail(report))
        basis = ResultBasis(
            messages=shop.record.messages,
            input=self.parts.input,
            tokens=sum(made.chunk.tokens for made in answered),
            whole=not missing,
            degraded=summary.degraded,
        )
        return vector, await keep(shop, vector, basis)

    # -- telling

    def _billed(self, report: ExtractionReport) -> ExtractionReport:
        """Add what is known only at the end: what it cost, and what nobody knows."""
        purse = self.shop.purse
        return replace(
            report,
            unknown=self.shop.ledger.unknown,
            cost=purse.cost,
            retry_after=purse.retry_after,
        )

    def _report(self, outcome: Literal["ok", "partial", "error"]) -> ExtractionReport:
        return report_of(
            self.shop,
            self.parts,
            outcome,
            made=self.made,
            failures=self.failures,
            mapped=self.mapped,
            seconds=time.monotonic() - self.begun,
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
            report = self._billed(self._report("error"))
            if self.summary is not None:
                report = with_summary(report, self.summary, seconds=0.0)
            await shop.ledger.break_off(error, detail(report))
        except StoreError as failure:
            _log.warning(
                "run %s: its end was not recorded: %s", shop.run_id, type(failure).__name__
            )


def _graph(answered: Sequence[Made]) -> Graph:
    """Ground the answers in their chunks and reduce them."""
    grounded: list[Graph] = []
    for made in answered:
        answer = made.kept.value() if made.kept else None
        if made.kept is not None and answer is not None:
            grounded.append(ground(answer, made.chunk, dropped=made.kept.dropped))
    return reduce(grounded)
