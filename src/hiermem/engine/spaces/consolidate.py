"""Consolidates a space: takes its notes, asks a model how the bank changes, commits the answer.

::

    notes -> batch -> answer -> judged -> committed: texts, notes, revision, journal, figures
      ^________________________________________|            all at once, under the lease

A note leaves the live list in the same write that stores what was made of it. Whatever ends a run
before that, a failure, a cap, a cancellation or a kill, leaves its notes live and the bank as it
was. ``core.spaces`` decides what goes into a request and what an answer is worth.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hiermem.core.calls.failures import cause_of
from hiermem.core.spaces import change, result
from hiermem.core.spaces import record as bank_record
from hiermem.core.spaces.consolidation import (
    Accepted,
    NoRoom,
    NoteBatch,
    Rejected,
    TooLarge,
    judge,
    next_batch,
    reduced_limits,
)
from hiermem.core.spaces.erased import ERASED, ended
from hiermem.core.spaces.files import AnswerFault, Applied
from hiermem.core.spaces.record import BankState, subject_of
from hiermem.core.spaces.result import ConsolidationTally
from hiermem.core.spaces.rules import Rules
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.budget import Budget, JournalBudget
from hiermem.engine.calls.cut_off import note_cut_off
from hiermem.engine.calls.retry import ask, end_with
from hiermem.engine.calls.run_context import CallState, ClaimLostError
from hiermem.engine.calls.store_retry import retry_store, shielded
from hiermem.engine.spaces.consolidation_run import ConsolidationRun, open_run
from hiermem.engine.spaces.records import Lease, SpaceRecords
from hiermem.engine.spaces.space import SpaceContext
from hiermem.errors import (
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
    SpendLimitError,
    StoreError,
)
from hiermem.protocols import LLM, LLMRequest, LLMResponse
from hiermem.types.bank import BlockedNote, ConsolidationResult, Note
from hiermem.types.transaction import RunRecord

#: Heartbeats within one lease, so that two may fail before it ends.
_BEATS: Final = 3
#: Seconds between the timeout of a call and the timeout of all its tries.
_MARGIN: Final = 0.05
_LOST: Final = "its lease ran out and another run took over; what was not committed is not kept"
_log = logging.getLogger("hiermem.bank")


async def consolidate(
    space: SpaceContext,
    *,
    llm: LLM,
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    dry_run: bool = False,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    journal_budget: JournalBudget | None = None,
) -> ConsolidationResult:
    """Consolidate the oldest notes of a space; return what was done.

    A dry run asks the model all the same, since there is no other way to know the difference, and
    journals the calls; it writes nothing else. The caps (``deadline`` in seconds from now) end the
    run before they are exceeded; what was committed until then stays. Where no note waits, nothing
    is asked and nothing is written.

    Raises NotFoundError and RulesConflictError for the space, ConfigError for a limit that is
    impossible, and what the store raises. A model's failure is in the result.
    """
    rules = await space.rules()
    journal_budget = journal_budget or JournalBudget(space.handle.store, space.handle.update_policy)
    run_id = uuid.uuid4().hex
    lease = None if dry_run else space.lease(run_id)
    budget = Budget(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=deadline,
        parents=journal_budget.parents_of(subject_of(space.name)),
    )
    run = open_run(
        space,
        llm,
        run_id=run_id,
        budget=budget,
        journal_budget=journal_budget,
        lease=lease,
        prompts=prompts,
        sleep=sleep,
    )
    return await _Consolidation(run, space.records, rules, lease).execute()


@dataclass(slots=True)
class _Consolidation:
    """One run. ``lease`` is None for a dry run, which changes nothing."""

    run: ConsolidationRun
    records: SpaceRecords
    rules: Rules
    lease: Lease | None
    begun: float = field(default_factory=time.monotonic)
    state: BankState = field(init=False)
    tally: ConsolidationTally = field(init=False)
    record: RunRecord = field(init=False)
    live_notes: list[Note] = field(default_factory=list[Note])

    @property
    def dry(self) -> bool:
        """Whether nothing is to be written."""
        return self.lease is None

    def __post_init__(self) -> None:
        run = self.run
        self.record = RunRecord(run.run_id, "consolidation", run.session_id, run.now())

    async def execute(self) -> ConsolidationResult:
        """Check that there is work and that no other run does it, then do it."""
        report = await self._nothing_to_do()
        if report is not None or self.lease is None:
            return self._logged(report or await self._work())
        if not await self.lease.take():
            # Where the space was erased since the check, there is nothing to do rather than another
            # run.
            report = None if await self.records.still_exists() else await self._nothing_to_do()
            remaining = len(self.live_notes)
            space = self.records.space
            return self._logged(report or result.busy(space, self.tally, remaining=remaining))
        return self._logged(await self._work())

    async def _work(self) -> ConsolidationResult:
        """Do the work and journal it, however it ends."""
        beat = asyncio.create_task(self._beat())
        try:
            # What was read before the lease was taken may have been consumed since.
            report = await self._nothing_to_do()
            if report is None:
                await self._begin()
                await self._consolidate_all()
                report = await self._result()
                # A late heartbeat must not be the last write of the record.
                beat.cancel()
                await self._end(report)
            await self._release()
        except BaseException as error:
            beat.cancel()
            # Shielded: a second cancellation must not prevent the release of the lease.
            await asyncio.shield(asyncio.ensure_future(self._abandon(error)))
            raise
        finally:
            beat.cancel()
        return report

    async def _nothing_to_do(self) -> ConsolidationResult | None:
        """Read the live notes; return the result to report where there are none."""
        blocked = await self._read_notes()
        if self.live_notes:
            return None
        return result.idle(self.records.space, self.tally, blocked=blocked, dry_run=self.dry)

    async def _read_notes(self) -> int:
        """Read the live notes and the bank; return how many notes are blocked."""
        live = bank_record.live_notes(
            await self.records.of_kind(bank_record.NOTE),
            await self.records.of_kind(bank_record.BLOCKED),
        )
        self.live_notes = [note for note in live if note.state == "live"]
        self.state = await self.records.state(self.rules)
        texts = self.state.texts
        self.tally = ConsolidationTally(
            texts, texts, self.state.synthesis.text, revision=self.state.meta.revision
        )
        return len(live) - len(self.live_notes)

    # -- batches

    async def _consolidate_all(self) -> None:
        """Consolidate the notes, oldest first, until all are done or something stops the run."""
        run = self.run
        queue = self.live_notes[: run.policy.max_notes]
        while queue and not self.tally.stopped:
            batch = await asyncio.to_thread(
                next_batch,
                self.state,
                queue,
                template=run.template,
                counter=run.counter,
                limits=run.limits,
                temperature=run.policy.temperature,
            )
            if isinstance(batch, NoRoom):
                self.tally.stopped = (
                    f"rules, synthesis and headings alone take {batch.needed:,} tokens of the "
                    f"{batch.limit:,} that a request may have"
                )
            elif isinstance(batch, TooLarge):
                note = batch.note
                write = change.set_aside(self.records.space, note, note.failures, "too_large")
                if await self._commit(write):
                    self.tally.blocked.append(BlockedNote(note.key, note.agent, "too_large"))
                queue = queue[1:]
            else:
                limits = run.limits
                await self._consolidate_batch(batch)
                # Where an overflow lowered the limit, the same notes are asked about again.
                if run.limits is limits:
                    queue = queue[len(batch.notes) :]

    async def _consolidate_batch(self, batch: NoteBatch) -> None:
        """Consolidate one batch: ask, and commit the result."""
        run, state = self.run, CallState(batch, batch.input_tokens)
        try:
            applied, model = await self._ask_model(state)
        finally:
            self.tally.calls += state.calls
            self.tally.tokens_in += state.tokens_in
            self.tally.tokens_out += state.tokens_out
        await run.claims.write(state.ended)
        if applied is None:
            return
        if not applied.consumed:
            await self._failed(batch, "; ".join(applied.failed))
            return
        usage = change.AnswerUsage(
            run.run_id, model, state.calls, state.tokens_in, state.tokens_out
        )
        bank_change = change.commit(self.state, applied, usage=usage, now=run.now())
        # Shielded: what is paid for is not lost to a cancellation.
        if await shielded(self._commit(*bank_change.writes)):
            self.state = bank_change.state
            self.tally.taken.append(applied)
            self.tally.after = bank_change.state.texts
            self.tally.synthesis = bank_change.state.synthesis.text
            self.tally.revision = bank_change.state.meta.revision

    async def _ask_model(self, state: CallState[NoteBatch]) -> tuple[Applied | None, str]:
        """Ask, and again where the answer can be repaired; None where nothing in it can be used."""
        run, batch = self.run, state.node
        request, policy = batch.request, run.policy
        faults: tuple[AnswerFault, ...] = ()
        while True:
            try:
                response = await self._call_model(state, request)
            except SpendLimitError:
                self.tally.stopped = f"{run.budget.stopped} was reached"
                return None, ""
            except ClaimLostError:
                self.tally.stopped = await self._lost_reason()
                return None, ""
            except (ModelOverflowError, ModelRefusedError) as error:
                # The error is about this request, so a smaller one may pass.
                if not (isinstance(error, ModelOverflowError) and await self._lower_limit(batch)):
                    await self._failed(batch, f"the model call failed: {cause_of(error)[1]}")
                return None, ""
            except ModelError as error:
                self.tally.stopped = f"the model call failed: {cause_of(error)[1]}"
                return None, ""
            verdict = await asyncio.to_thread(
                judge,
                batch,
                response,
                asked=faults,
                repairs=policy.repairs,
                loss_share=policy.loss_share,
                loss_lines=policy.loss_lines,
            )
            if isinstance(verdict, Accepted):
                return verdict.applied, response.model or run.llm.name
            end_with(state, verdict.reason)
            if isinstance(verdict, Rejected):
                await self._failed(batch, verdict.reason)
                return None, ""
            request, faults = verdict.request, verdict.faults

    async def _lower_limit(self, batch: NoteBatch) -> bool:
        """Lower the limit of this run's requests after an overflow; False where impossible."""
        run = self.run
        limits = await asyncio.to_thread(
            reduced_limits,
            self.state,
            batch,
            template=run.template,
            counter=run.counter,
            limits=run.limits,
            temperature=run.policy.temperature,
        )
        if limits is None:
            return False
        run.limits = limits
        return True

    async def _call_model(self, state: CallState[NoteBatch], request: LLMRequest) -> LLMResponse:
        """Call the model; all tries of one request together have the time of one call."""
        whole = self.run.policy.call_timeout
        try:
            async with asyncio.timeout(whole + _MARGIN):
                return await ask(self.run, state, request, within=whole)
        except TimeoutError:
            raise ModelTimeoutError("the request took too long") from None

    async def _failed(self, batch: NoteBatch, reason: str) -> None:
        """Note that no answer for these notes could be used; they stay live.

        This ends the run, unless the batch was a single note that is blocked for it.
        """
        policy = self.run.policy
        writes = change.failed(
            self.state, batch.notes, reason="failed", max_failures=policy.max_failures
        )
        note = batch.notes[0]
        set_aside = len(batch.notes) == 1 and note.failures + 1 >= policy.max_failures
        if await self._commit(*writes):
            self.state = self.state if self.dry else await self.records.state(self.rules)
            if set_aside:
                self.tally.blocked.append(BlockedNote(note.key, note.agent, "failed"))
            else:
                self.tally.stopped = f"no answer could be used: {reason}"

    async def _commit(self, *writes: Any) -> bool:
        """Write while the lease is held; a dry run writes nothing and continues as if it had."""
        if self.lease is None or await self.lease.commit(writes):
            return True
        self.tally.stopped = await self._lost_reason()
        return False

    async def _lost_reason(self) -> str:
        """Return why nothing can be written any more."""
        return _LOST if await self.records.still_exists() else ERASED

    # -- the run

    async def _begin(self) -> None:
        """Journal that the run began, and report what killed runs left."""
        run = self.run
        run.claims.unknown += await retry_store(
            lambda: note_cut_off(run.store, run.session_id, kind="consolidation", now=run.now()),
            sleep=run.sleep,
        )
        await retry_store(lambda: run.store.put_run(self._alive()), sleep=run.sleep)

    async def _result(self) -> ConsolidationResult:
        """Delete expired notes, and return what was done."""
        if self.run.policy.retention is not None and not self.dry:
            await self._forget(self.run.now() - self.run.policy.retention)
        remaining = len(self.live_notes) - self.tally.processed - len(self.tally.blocked)
        if not self.dry:
            # Other writers may have added notes meanwhile.
            notes = await self.records.of_kind(bank_record.NOTE)
            blocked = await self.records.of_kind(bank_record.BLOCKED)
            remaining = sum(each.state == "live" for each in bank_record.live_notes(notes, blocked))
        return result.result_of(
            self.records.space,
            self.tally,
            remaining=remaining,
            seconds=time.monotonic() - self.begun,
            dry_run=self.dry,
            run_id=self.run.run_id,
        )

    async def _forget(self, before: datetime) -> None:
        """Delete the notes that were consumed before that time."""
        consumed = bank_record.consumed_notes(await self.records.of_kind(bank_record.CONSUMED))
        revisions = bank_record.read_revisions(await self.records.of_kind(bank_record.REVISION))
        at = {revision.number: revision.at for revision in revisions}
        if writes := change.expired(self.records.space, consumed, at=at, before=before):
            await self._commit(*writes)

    async def _end(self, report: ConsolidationResult) -> None:
        """Journal how the run ended."""
        run = self.run
        outcome: Any = report.status if report.status in ("ok", "partial") else "error"
        await run.claims.close()
        detail = result.detail(report, model=run.llm.name, unknown=run.claims.unknown)
        await self._put_end(outcome, detail)

    async def _put_end(self, outcome: Any, detail: Mapping[str, Any]) -> None:
        run = replace(self.record, outcome=outcome, ended_at=self.run.now(), detail=dict(detail))
        header = self.records.opened_header
        await retry_store(
            lambda: self.run.store.transact(lambda: ended(header, run)), sleep=self.run.sleep
        )

    async def _release(self) -> None:
        if self.lease is not None:
            await self.lease.release()

    async def _abandon(self, error: BaseException) -> None:
        """End early: report the calls in flight as unknown, record the end, release the bank."""
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        name = type(error).__name__
        detail = {"model": self.run.llm.name, "reason": name}
        for step in (
            self.run.claims.close,
            lambda: self._put_end("interrupted" if cancelled else "error", detail),
            self._release,
        ):
            try:
                await step()
            except StoreError as failure:
                _log.warning(
                    "run %s: its end was not recorded: %s",
                    self.run.run_id,
                    type(failure).__name__,
                )

    async def _beat(self) -> None:
        """Renew the lease and the run's heartbeat until cancelled."""
        run = self.run
        while True:
            await asyncio.sleep(run.policy.lease / _BEATS)
            with suppress(StoreError):
                # Missing a heartbeat is harmless; the next one, or the commit, meets the error
                # again.
                if self.lease is not None:
                    await self.lease.renew()
                await run.store.put_run(self._alive())

    def _alive(self) -> RunRecord:
        until = self.run.now() + timedelta(seconds=self.run.policy.lease)
        return replace(
            self.record,
            detail={"model": self.run.llm.name, "alive_until": until.isoformat()},
        )

    def _logged(self, report: ConsolidationResult) -> ConsolidationResult:
        _log.info("%s", result.log_line(report), extra=dict(report.metrics))
        return report
