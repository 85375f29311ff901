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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from hiermem.core.calls.failures import cause_of
from hiermem.core.calls.lease import ClaimLostError
from hiermem.core.calls.verdict import Accepted
from hiermem.core.spaces import change, result
from hiermem.core.spaces import record as bank_record
from hiermem.core.spaces.consolidation import (
    NoRoom,
    NoteBatch,
    TooLarge,
    judge,
    next_batch,
    reduced_limits,
    usual_answer,
)
from hiermem.core.spaces.erased import ERASED
from hiermem.core.spaces.files import Applied
from hiermem.core.spaces.queue import in_order, waits_behind
from hiermem.core.spaces.record import BankState, subject_of
from hiermem.core.spaces.result import ConsolidationTally
from hiermem.core.spaces.rules import Rules
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.ask import ask_until_fit
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.run import CallState
from hiermem.engine.calls.store_retry import shielded
from hiermem.engine.spaces.consolidation_run import ConsolidationRun, open_run
from hiermem.engine.spaces.records import Lease, SpaceRecords
from hiermem.engine.spaces.space import SpaceContext
from hiermem.errors import (
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    PermanentModelError,
    SpendLimitError,
)
from hiermem.protocols import LLM
from hiermem.types.bank import BlockedNote, ConsolidationResult, Note

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
    run_id = uuid.uuid4().hex
    lease = None if dry_run else space.lease(run_id)
    budget = Budget(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=deadline,
        parents=space.handle.journal_budget.parents_of(subject_of(space.name)),
    )
    run = open_run(
        space,
        llm,
        run_id=run_id,
        budget=budget,
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
    live_notes: list[Note] = field(default_factory=list[Note])
    #: The most notes of the next request that wait behind others: one, and twice as many after each
    #: such request that succeeds.
    behind: int = 1
    report: ConsolidationResult | None = None

    @property
    def dry(self) -> bool:
        """Whether nothing is to be written."""
        return self.lease is None

    async def execute(self) -> ConsolidationResult:
        """Check that there is work and that no other run does it, then do it."""
        report = await self._nothing_to_do() or await self._work()
        _log.info("%s", result.log_line(report), extra=dict(report.metrics))
        return report

    async def _work(self) -> ConsolidationResult:
        """Do the work under the lease and journal it, however it ends."""
        run = self.run
        run.detail = self._detail
        async with run:
            # Shielded: a lease whose taking was cancelled has to be known, to be released.
            if self.lease is not None and not await shielded(self.lease.take()):
                return await self._busy()
            # What was read before the lease was taken may have been consumed since.
            report = await self._nothing_to_do()
            if report is None:
                await run.begin()
                await self._consolidate_all()
                report = self.report = await self._result()
                run.outcome = report.status if report.status in ("ok", "partial") else "error"
        return report

    async def _busy(self) -> ConsolidationResult:
        """Return the result where another run has the lease."""
        # Where the space was erased since the check, there is nothing to do rather than another
        # run.
        report = None if await self.records.still_exists() else await self._nothing_to_do()
        return report or result.busy(self.records.space, self.tally, remaining=len(self.live_notes))

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
        self.live_notes = in_order(note for note in live if note.state == "live")
        self.state = await self.records.state(self.rules)
        texts = self.state.texts
        self.tally = ConsolidationTally(
            texts, texts, self.state.synthesis.text, revision=self.state.meta.revision
        )
        return len(live) - len(self.live_notes)

    # -- batches

    async def _consolidate_all(self) -> None:
        """Consolidate the notes in their order until all are done or something stops the run."""
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
                behind=self.behind,
            )
            if isinstance(batch, NoRoom):
                self.tally.stopped = (
                    f"rules, synthesis and headings alone take {batch.needed:,} tokens of the "
                    f"{batch.limit:,} that a request may have"
                )
            elif isinstance(batch, TooLarge):
                note = batch.note
                write = change.set_aside(self.records.space, note, "too_large")
                if await self._commit(write):
                    self.tally.blocked.append(BlockedNote(note.key, note.agent, "too_large"))
                queue = queue[1:]
            else:
                limits = run.limits
                # A task of the run: where it is cancelled, what was answered is still committed.
                task = run.spawn(self._consolidate_batch(batch))
                await asyncio.wait([task])
                task.result()
                # Where the limits were lowered, the same notes are asked about again.
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
        await run.journal.write(state.ended)
        if applied is None:
            return
        if not applied.consumed:
            await self._failed(batch, "; ".join(applied.failed), unplaced=applied.unplaced)
            return
        usage = change.AnswerUsage(
            run.run_id, model, state.calls, state.tokens_in, state.tokens_out, run.llm.name
        )
        bank_change = change.commit(self.state, applied, usage=usage, now=run.now())
        # Shielded: what is paid for is not lost to a cancellation.
        if await shielded(self._commit(*bank_change.writes)):
            self.state = bank_change.state
            self.tally.taken.append(applied)
            self.tally.unplaced += applied.unplaced
            self.behind *= 2 if waits_behind(batch.notes[0]) else 1
            self.tally.after = bank_change.state.texts
            self.tally.synthesis = bank_change.state.synthesis.text
            self.tally.revision = bank_change.state.meta.revision

    async def _ask_model(self, state: CallState[NoteBatch]) -> tuple[Applied | None, str]:
        """Ask, and again where the answer can be repaired; None where nothing in it can be used."""
        run, batch, policy = self.run, state.node, self.run.policy
        judge_batch = partial(
            judge,
            batch,
            repairs=policy.repairs,
            loss_share=policy.loss_share,
            loss_lines=policy.loss_lines,
        )
        try:
            # All tries of one request together have the time of one call.
            verdict = await ask_until_fit(
                run, state, batch.request, judge_batch, within=policy.call_timeout
            )
        except SpendLimitError:
            self.tally.stopped = f"{run.budget.stopped} was reached"
        except ClaimLostError:
            self.tally.stopped = await self._lost_reason()
        except (ModelOverflowError, ModelRefusedError) as error:
            # The error is about this request, so a smaller one may pass.
            if not (isinstance(error, ModelOverflowError) and await self._lower_limit(batch)):
                await self._failed(batch, f"the model call failed: {cause_of(error)[1]}")
        except ModelError as error:
            usual = usual_answer(batch, run.limits)
            if isinstance(error, PermanentModelError) and usual is not None:
                run.limits = usual
            else:
                self.tally.stopped = f"the model call failed: {cause_of(error)[1]}"
        else:
            if isinstance(verdict, Accepted):
                return verdict.value, verdict.model or run.llm.name
            await self._failed(batch, verdict.reason)
        return None, ""

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

    async def _failed(
        self, batch: NoteBatch, reason: str, *, unplaced: Sequence[Note] = ()
    ) -> None:
        """Note that no answer for these notes could be used; they stay live.

        ``unplaced`` are those that an answer left out. This ends the run, unless the batch was a
        single note that is blocked for it.
        """
        blocked, writes = change.failed(
            self.state,
            batch.notes,
            llm=self.run.llm.name,
            max_failures=self.run.policy.max_failures,
            unplaced=unplaced,
        )
        if await self._commit(*writes):
            self.state = self.state if self.dry else await self.records.state(self.rules)
            self.tally.unplaced += tuple(unplaced)
            if blocked is not None:
                self.tally.blocked.append(blocked)
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

    def _detail(self, _: str) -> dict[str, Any]:
        """Return what the journal says of the run."""
        model = self.run.llm.name
        if self.report is None:
            return {"model": model}
        return result.detail(self.report, model=model, unknown=self.run.journal.unknown)
