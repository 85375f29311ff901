"""Runs a consolidation: asks a model how notes change the bank, and commits its answer.

::

    notes -> batch -> answer -> judged -> committed: texts, notes, revision, figures
      ^________________________________________|            all at once, under the claim

A note leaves the live list in the same write that stores its result. If a failure, a cap, a
cancellation or a kill ends a run before that, its notes stay live and the bank is unchanged.
``batches`` decides what goes into a request, and ``files`` what an answer is worth.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from hiermem import errors
from hiermem import prompts as shipped
from hiermem.bank import batches, change, learn, lines, records, result, said
from hiermem.bank.files import Applied
from hiermem.bank.prompt import NoteBatch
from hiermem.bank.records import subject_of
from hiermem.bank.result import ConsolidationTally
from hiermem.bank.space import clean
from hiermem.bank.store import SpaceContext, bank_claim
from hiermem.calls.answers import Accepted
from hiermem.calls.budget import Budget
from hiermem.calls.call import ask_until_fit
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.failures import cause_of
from hiermem.calls.limits import answer_tokens, threshold
from hiermem.calls.rate_limit import rate_limiter
from hiermem.calls.retry import retry_store, shielded
from hiermem.calls.run import CallState, RecordClaim, Run
from hiermem.config import BankPolicy, Limits
from hiermem.prompts.template import PromptTemplate
from hiermem.protocols import LLM
from hiermem.summaries.reports import UpdatePlan
from hiermem.types import SessionRecord
from hiermem.types.bank import BlockedNote, ConsolidationResult, Note
from hiermem.types.transaction import Attempt, Cost, RecordWrite, RunRecord

#: The name of the prompt of a batches.
TEMPLATE: Final = "consolidate"
#: Tokens reserved for the answer of a remote model: six files of a page each.
_ANSWER: Final = 8_192
#: How many messages of a conversation a run takes for each note.
_MESSAGES: Final = 2
#: Tokens of a synthesis, as a plan counts them.
_SYNTHESIS: Final = 200
_LOST: Final = "its claim ran out and another run took over; what was not committed is not kept"
_log = logging.getLogger("hiermem.bank")


async def consolidate(
    space: SpaceContext,
    *,
    llm: LLM,
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    dry_run: bool = False,
    limits: Limits | None = None,
    parents: tuple[Budget, ...] = (),
) -> ConsolidationResult:
    """Consolidate the oldest notes of a space; return the result.

    In a space that learns, what its people said is among them.

    A dry run asks the model too, since nothing else shows the difference, and journals the calls;
    it writes nothing else. Earlier commits stay if the ``limits`` end the run. Without waiting
    notes nothing is asked and nothing is written.

    Raises NotFoundError and ConflictError for the space, ConfigError for an
    impossible limit, and the store's errors. A model's failure is in the result.
    """
    learns = (await space.rules()).learn
    handle, policy, subject = space.handle, space.policy, subject_of(space.name)
    run_id = uuid.uuid4().hex
    run = _Consolidation(
        store=handle.store,
        tree=handle.store.tree(subject),
        kind="consolidation",
        subject=subject,
        lease=handle.update_policy.lease,
        now=handle.store_now,
        run_id=run_id,
        compare_clocks=partial(handle.compare_clocks, lease=handle.update_policy.lease),
        llm=llm,
        counter=handle.counter,
        budget=Budget(limits=limits, parents=(*parents, *handle.caps(subject))),
        rate_limiter=rate_limiter(llm, handle.update_policy),
        call_timeout=policy.call_timeout,
        retries=handle.update_policy.retries,
        policy=policy,
        settings=_settings(space, llm, prompts, learns=learns),
        claim=None if dry_run else bank_claim(space, run_id),
        space=space,
    )
    return await run.execute()


async def plan(space: SpaceContext, *, llm: LLM) -> UpdatePlan:
    """Return what a consolidation of all that a space did not learn would take; ask no model."""
    state, waiting = await space.state(), await space.waiting()
    queue = change.in_order(note for note in waiting if note.state == "live")
    settings = _settings(space, llm, None, learns=state.rules.learn)
    total = UpdatePlan()
    while queue:
        batch = await asyncio.to_thread(batches.next_batch, state, queue, settings)
        if not isinstance(batch, NoteBatch):
            break
        # An answer writes the page anew, with its synthesis.
        answer = min(space.policy.page_tokens + _SYNTHESIS, batch.request.max_tokens)
        total = replace(total + Cost(1, batch.input_tokens, answer), calls_max=total.calls_max + 2)
        queue = queue[len(batch.notes) :]
    return total


def _settings(
    space: SpaceContext,
    llm: LLM,
    prompts: Mapping[str, PromptTemplate | str] | None,
    *,
    learns: bool,
) -> batches.BatchSettings:
    policy, window = space.policy, llm.context_window
    return batches.BatchSettings(
        shipped.load_named(TEMPLATE, prompts),
        space.handle.counter,
        answer=answer_tokens(policy, window=window, live=llm.remote, remote=_ANSWER),
        tokens=threshold(policy, window),
        # Messages are short.
        notes=policy.max_notes * (_MESSAGES if learns else 1),
        is_local=not llm.remote,
        policy=policy,
    )


@dataclass(kw_only=True, eq=False)
class _Consolidation(Run):
    """One run. ``claim`` is its claim on the bank, None for a dry run, which changes nothing.

    A lost claim is not taken again in the middle of a run.
    """

    policy: BankPolicy
    settings: batches.BatchSettings
    claim: RecordClaim | None
    space: SpaceContext
    tally: ConsolidationTally = field(init=False)
    live_notes: list[Note] = field(init=False, default_factory=list[Note])
    unlearnt: list[Note] = field(init=False, default_factory=list[Note])
    sessions: list[SessionRecord] = field(init=False, default_factory=list[SessionRecord])
    report: ConsolidationResult | None = field(init=False, default=None)
    _opened: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.detail, claim = self._detail, self.claim
        self.claim_mark = lambda: claim.mark if claim else None

    @property
    def dry(self) -> bool:
        """Return whether this is a dry run."""
        return self.claim is None

    async def begin_call(self, calls: Sequence[Attempt]) -> bool:
        """Journal these calls if this run still holds its claim; return whether it does."""
        claim = self.claim
        if claim is None:
            await self.journal.write(calls)
            return True
        return await self.journal.write_with(calls, lambda: claim.commit((), attempts=calls))

    async def renew(self) -> None:
        """Extend the claim."""
        if self.claim is not None:
            await self.claim.renew()

    async def release(self) -> None:
        """Release the claim, and journal the calls without an end."""
        try:
            await self.journal.close()
        finally:
            if self.claim is not None:
                await self.claim.release()

    async def write_entry(self, entry: RunRecord) -> None:
        """Write the run's journal entry; its end says nothing of a space that was erased."""
        if entry.outcome == "running":
            await super().write_entry(entry)
        else:
            header = self.space.header
            await retry_store(
                lambda: self.store.transact(lambda: result.end_of_run(header, entry)),
                sleep=self.sleep,
            )

    def _detail(self, _: str) -> dict[str, Any]:
        """Return the detail of the run's journal entry."""
        if self.report is None:
            return {"model": self.llm.name}
        return result.detail(self.report, model=self.llm.name, unknown=self.journal.unknown)

    async def execute(self) -> ConsolidationResult:
        """Do the work, if there is any and no other run does it."""
        report = await self._nothing_to_do() or await self._work()
        _log.info("%s", result.log_line(report), extra=dict(report.metrics))
        return report

    async def _work(self) -> ConsolidationResult:
        """Do the work under the claim and journal it, however it ends."""
        async with self:
            # Shielded, because a claim must be known to be released, even after a cancellation.
            if self.claim is not None and not await shielded(self.claim.take()):
                # If the space was erased since the check, no other run holds it.
                exists = await self.space.still_exists()
                report = None if exists else await self._nothing_to_do()
                busy = "Another run is writing this bank; nothing was done"
                waiting = len(self.live_notes)
                return report or result.without_work(self.tally, "busy", busy, waiting)
            if self.claim is not None and (await self.space.rules()).learn:
                await clean(self.space, self.claim)
            # Notes that were read before the claim was taken may have been consumed since.
            report = await self._nothing_to_do()
            if report is None:
                await self.begin()
                await self._consolidate_all()
                report = self.report = await self._result()
                self.outcome = report.status if report.status in ("ok", "partial") else "error"
        return report

    async def _nothing_to_do(self) -> ConsolidationResult | None:
        """Read the live notes and the bank; return the result if no note waits."""
        self.unlearnt, self.sessions = await self.space.unlearnt()
        live = [*await self.space.live_notes(), *self.unlearnt]
        self.live_notes = change.in_order(note for note in live if note.state == "live")
        state = await self.space.state()
        self.tally = ConsolidationTally(state, state)
        if self.live_notes:
            return None
        aside = f"; {len(live)} set aside" if live else ""
        message = f"No new notes to consolidate{aside}"
        return replace(result.without_work(self.tally, "nothing_to_do", message), dry_run=self.dry)

    async def _consolidate_all(self) -> None:
        """Consolidate the notes in their order until all are done or something stops the run."""
        queue = self.live_notes[: self.settings.notes]
        while queue and not self.tally.stopped:
            batch = await asyncio.to_thread(
                batches.next_batch, self.tally.state, queue, self.settings
            )
            if isinstance(batch, str):
                self.tally.stopped = batch
            elif isinstance(batch, Note):
                if await self._commit(change.set_aside(self.space.name, batch, "too_large")):
                    self.tally.blocked.append(BlockedNote(batch.key, batch.agent, "too_large"))
                queue = queue[1:]
            else:
                # A task of the run, so that an answer is still committed after a cancellation.
                task = self.spawn(self._consolidate_batch(batch))
                await asyncio.wait([task])
                task.result()
                queue = queue[len(batch.notes) :]

    async def _consolidate_batch(self, batch: NoteBatch) -> None:
        """Consolidate one batch: ask, and commit the result."""
        tally, state = self.tally, CallState(batch.id, batch.input_tokens)
        try:
            applied, model = await self._ask_model(batch, state)
        finally:
            tally.spent += state.spent
        await self.journal.write(state.ended)
        if applied is None:
            return
        if not await self._still_said(batch):
            tally.stopped = "what was said was changed meanwhile; run it again"
            return
        after, writes = change.commit(
            tally.state, applied, now=self.now(), run_id=self.run_id, model=model, llm=self.llm.name
        )
        consumed = {note.key for each in (*tally.taken, applied) for note in each.consumed}
        waiting = (note for note in self.unlearnt if note.key not in consumed)
        writes = (*writes, *said.progress(self.space.name, self.sessions, waiting))
        # Shielded, so that a cancellation loses nothing that was paid for.
        if await shielded(self._commit(*writes)):
            tally.state = after
            tally.taken.append(applied)
            tally.unplaced += applied.unplaced

    async def _still_said(self, batch: NoteBatch) -> bool:
        """Return whether the messages of a batch still say what they said."""
        space = self.space
        sources = [(*note.sources[0], note.key) for note in batch.notes if said.is_said(note)]
        sources += lines.sources_of(batch.bank.origins)
        dead = await learn.dead_sources(space.handle, space.name, space.identity, sources)
        return not dead

    async def _ask_model(self, batch: NoteBatch, state: CallState) -> tuple[Applied | None, str]:
        """Ask, and again if the answer can be repaired; None if nothing in it can be used."""
        tally, judge = self.tally, partial(batches.judge, batch)
        try:
            # All tries of one request share the time of one call.
            verdict = await ask_until_fit(
                self, state, batch.request, judge, within=self.call_timeout
            )
        except errors.SpendLimitError:
            tally.stopped = f"{self.budget.stopped} was reached"
        except ClaimLostError:
            tally.stopped = await self._lost_reason()
        except errors.ModelError as error:
            why = f"the model call failed: {cause_of(error)[1]}"
            # It is about this request: one with fewer notes may pass.
            if error.kind in ("overflow", "refused"):
                await self._failed(batch, why)
            else:
                tally.stopped = why
        else:
            if isinstance(verdict, Accepted):
                return verdict.value, verdict.model or self.llm.name
            await self._failed(batch, verdict.reason)
        return None, ""

    async def _failed(self, batch: NoteBatch, reason: str) -> None:
        """Record that no answer for these notes could be used; they stay live.

        This ends the run, unless the batch was a single note that is blocked for it.
        """
        blocked, writes = change.failed(self.tally.state, batch.notes, llm=self.llm.name)
        if await self._commit(*writes):
            if not self.dry:
                self.tally.state = await self.space.state()
            if blocked is not None:
                self.tally.blocked.append(blocked)
            else:
                self.tally.stopped = f"no answer could be used: {reason}"

    async def _commit(self, *writes: RecordWrite) -> bool:
        """Write while the claim is held; a dry run writes nothing and returns True."""
        if self.claim is None or await self.claim.commit(writes):
            return True
        self.tally.stopped = await self._lost_reason()
        return False

    async def _lost_reason(self) -> str:
        """Return why nothing can be written any more."""
        return _LOST if await self.space.still_exists() else result.ERASED

    async def _result(self) -> ConsolidationResult:
        """Delete the notes whose retention is over, and return the result."""
        space, tally = self.space, self.tally
        remaining = len(self.live_notes) - tally.processed - len(tally.blocked)
        if not self.dry:
            if self.policy.retention is not None:
                before = self.now() - self.policy.retention
                consumed = await space.consumed_notes()
                revisions = records.read_revisions(await space.of_kind(records.REVISION))
                revised_at = {revision.number: revision.at for revision in revisions}
                if writes := change.expired(
                    space.name, consumed, revised_at=revised_at, before=before
                ):
                    await self._commit(*writes)
            # Other writers may have added notes meanwhile.
            remaining = sum(note.state == "live" for note in await space.waiting())
        return result.result_of(
            tally,
            remaining=remaining,
            seconds=time.monotonic() - self._opened,
            dry_run=self.dry,
            run_id=self.run_id,
        )
