"""Consolidates a space: takes its notes, asks a model what becomes of the bank, commits the answer.

::

    notes -> batch -> answer -> judged -> committed: texts, notes, revision, journal, figures
      ^________________________________________|            all at once, under the lease

The one rule: a note leaves the live list in the very write that brings what was made of it.
Whatever ends a run earlier, a failure, a cap, a cancellation or a kill, leaves its notes live and
the bank as it was. What goes into a request and what an answer is worth is decided in
``core.spaces``.
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
from hiermem.core.spaces import record as kept
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
from hiermem.engine.calls.allowance import Allowances
from hiermem.engine.calls.budget import Purse
from hiermem.engine.calls.cut_off import note_cut_off
from hiermem.engine.calls.retry import ask, end_with
from hiermem.engine.calls.run_context import ClaimLostError, Making
from hiermem.engine.calls.store_retry import finished, steady
from hiermem.engine.spaces.consolidation_run import Shop, opened
from hiermem.engine.spaces.records import Lease, SpaceBooks
from hiermem.engine.spaces.space import Desk
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

#: Beats within one lease, so that two may fail before it ends.
_BEATS: Final = 3
#: Seconds by which a call's own limit comes before that of all its tries.
_MARGIN: Final = 0.05
_LOST: Final = "its lease ran out and another run took over; what was not committed is not kept"
_log = logging.getLogger("hiermem.bank")


async def consolidate(
    desk: Desk,
    *,
    llm: LLM,
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    dry_run: bool = False,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    allowances: Allowances | None = None,
) -> ConsolidationResult:
    """Consolidate the oldest notes of a space; give what was done.

    A dry run asks the model all the same, for there is no other way to know the difference, and
    journals the calls; it writes nothing else. The caps (``deadline`` in seconds from now) end the
    run before they are passed; what was committed until then is kept. Where no note waits nothing
    is asked and nothing is written.

    Raises NotFoundError and RulesConflictError for the space, ConfigError for a limit that is
    impossible, and what the store raises. What a model does wrong is told in the result.
    """
    rules = await desk.rules()
    book = allowances or Allowances(desk.handle.store, desk.handle.update_policy)
    run_id = uuid.uuid4().hex
    lease = None if dry_run else desk.lease(run_id)
    purse = Purse(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=None if deadline is None else time.monotonic() + deadline,
        clock=time.monotonic,
        above=(book.of(subject_of(desk.name)),) if book.any else (),
    )
    shop = opened(
        desk, llm, run_id=run_id, purse=purse, book=book, lease=lease, prompts=prompts, sleep=sleep
    )
    return await _Consolidation(shop, desk.books, rules, lease).run()


@dataclass(slots=True)
class _Consolidation:
    """One run. ``lease`` is None for a dry one, which changes nothing."""

    shop: Shop
    books: SpaceBooks
    rules: Rules
    lease: Lease | None
    begun: float = field(default_factory=time.monotonic)
    state: BankState = field(init=False)
    tally: ConsolidationTally = field(init=False)
    record: RunRecord = field(init=False)
    waiting: list[Note] = field(default_factory=list[Note])

    @property
    def dry(self) -> bool:
        """Say whether nothing is to be written."""
        return self.lease is None

    def __post_init__(self) -> None:
        shop = self.shop
        self.record = RunRecord(shop.run_id, "consolidation", shop.session_id, shop.now())

    async def run(self) -> ConsolidationResult:
        """Look whether there is anything to do and whether nobody else does it, then do it."""
        told = await self._idle()
        if told is not None or self.lease is None:
            return self._told(told or await self._worked())
        if not await self.lease.take():
            # Erased since it was looked at, there is nothing to do rather than somebody at it.
            told = None if await self.books.stands() else await self._idle()
            remaining = len(self.waiting)
            space = self.books.space
            return self._told(told or result.busy(space, self.tally, remaining=remaining))
        return self._told(await self._worked())

    async def _worked(self) -> ConsolidationResult:
        """Do the work and journal it, however it ends."""
        beat = asyncio.create_task(self._beat())
        try:
            # What was read before the lease was taken may have been consumed since.
            told = await self._idle()
            if told is None:
                await self._begin()
                await self._batches()
                told = await self._result()
                # A beat that is late must not be what the record says last.
                beat.cancel()
                await self._end(told)
            await self._release()
        except BaseException as error:
            beat.cancel()
            # Shielded: a second cancellation must not keep the lease from being released.
            await asyncio.shield(asyncio.ensure_future(self._abandon(error)))
            raise
        finally:
            beat.cancel()
        return told

    async def _idle(self) -> ConsolidationResult | None:
        """Look at what waits; where nothing does, say so."""
        blocked = await self._look()
        if self.waiting:
            return None
        return result.idle(self.books.space, self.tally, blocked=blocked, dry_run=self.dry)

    async def _look(self) -> int:
        """Read the notes that wait and the bank as it is; give how many notes are set aside."""
        live = kept.live_notes(
            await self.books.records(kept.NOTE), await self.books.records(kept.BLOCKED)
        )
        self.waiting = [note for note in live if note.state == "live"]
        self.state = await self.books.state(self.rules)
        texts = self.state.texts
        self.tally = ConsolidationTally(
            texts, texts, self.state.synthesis.text, revision=self.state.meta.revision
        )
        return len(live) - len(self.waiting)

    # -- batches

    async def _batches(self) -> None:
        """Have the notes taken in, oldest first, until all are or something is in the way."""
        shop = self.shop
        queue = self.waiting[: shop.policy.max_notes]
        while queue and not self.tally.stopped:
            batch = await asyncio.to_thread(
                next_batch,
                self.state,
                queue,
                template=shop.template,
                counter=shop.counter,
                limits=shop.limits,
                temperature=shop.policy.temperature,
            )
            if isinstance(batch, NoRoom):
                self.tally.stopped = (
                    f"rules, synthesis and headings alone take {batch.needed:,} tokens of the "
                    f"{batch.limit:,} that a request may have"
                )
            elif isinstance(batch, TooLarge):
                note = batch.note
                write = change.set_aside(self.books.space, note, note.failures, "too_large")
                if await self._write(write):
                    self.tally.blocked.append(BlockedNote(note.key, note.agent, "too_large"))
                queue = queue[1:]
            else:
                limits = shop.limits
                await self._consolidated(batch)
                # Where the model taught a smaller limit, its notes are asked about again.
                if shop.limits is limits:
                    queue = queue[len(batch.notes) :]

    async def _consolidated(self, batch: NoteBatch) -> None:
        """Have one batch taken in: ask, and commit what the answer comes to."""
        shop, making = self.shop, Making(batch, batch.input_tokens)
        try:
            applied, model = await self._asked(making)
        finally:
            self.tally.calls += making.calls
            self.tally.tokens_in += making.tokens_in
            self.tally.tokens_out += making.tokens_out
        await shop.ledger.write(making.ended)
        if applied is None:
            return
        if not applied.consumed:
            await self._failed(batch, "; ".join(applied.failed))
            return
        usage = change.AnswerUsage(
            shop.run_id, model, making.calls, making.tokens_in, making.tokens_out
        )
        made = change.commit(self.state, applied, usage=usage, now=shop.now())
        # Shielded: what is paid for is not lost to a cancellation.
        if await finished(self._write(*made.writes)):
            self.state = made.state
            self.tally.taken.append(applied)
            self.tally.after = made.state.texts
            self.tally.synthesis = made.state.synthesis.text
            self.tally.revision = made.state.meta.revision

    async def _asked(self, making: Making[NoteBatch]) -> tuple[Applied | None, str]:
        """Ask, and again where the answer can be mended; None where nothing can be used of it."""
        shop, batch = self.shop, making.node
        request, policy = batch.request, shop.policy
        faults: tuple[AnswerFault, ...] = ()
        while True:
            try:
                response = await self._answer(making, request)
            except SpendLimitError:
                self.tally.stopped = f"{shop.purse.stopped} was reached"
                return None, ""
            except ClaimLostError:
                self.tally.stopped = await self._lost()
                return None, ""
            except (ModelOverflowError, ModelRefusedError) as error:
                # It is about what was sent, so that a smaller request may pass.
                if not (isinstance(error, ModelOverflowError) and await self._learned(batch)):
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
                return verdict.applied, response.model or shop.llm.name
            end_with(making, verdict.reason)
            if isinstance(verdict, Rejected):
                await self._failed(batch, verdict.reason)
                return None, ""
            request, faults = verdict.request, verdict.faults

    async def _learned(self, batch: NoteBatch) -> bool:
        """Lower the limit of this run's requests after an overflow; False where it cannot be."""
        shop = self.shop
        limits = await asyncio.to_thread(
            reduced_limits,
            self.state,
            batch,
            template=shop.template,
            counter=shop.counter,
            limits=shop.limits,
            temperature=shop.policy.temperature,
        )
        if limits is None:
            return False
        shop.limits = limits
        return True

    async def _answer(self, making: Making[NoteBatch], request: LLMRequest) -> LLMResponse:
        """Call the model; all tries of one request together have the time of one call."""
        whole = self.shop.policy.call_timeout
        try:
            async with asyncio.timeout(whole + _MARGIN):
                return await ask(self.shop, making, request, within=whole)
        except TimeoutError:
            raise ModelTimeoutError("the request took too long") from None

    async def _failed(self, batch: NoteBatch, reason: str) -> None:
        """Note that nothing could be used for these notes, which stay live.

        A run ends with it, unless it was about one note that is set aside for it.
        """
        policy = self.shop.policy
        writes = change.failed(
            self.state, batch.notes, reason="failed", max_failures=policy.max_failures
        )
        note = batch.notes[0]
        aside = len(batch.notes) == 1 and note.failures + 1 >= policy.max_failures
        if await self._write(*writes):
            self.state = self.state if self.dry else await self.books.state(self.rules)
            if aside:
                self.tally.blocked.append(BlockedNote(note.key, note.agent, "failed"))
            else:
                self.tally.stopped = f"no answer could be used: {reason}"

    async def _write(self, *writes: Any) -> bool:
        """Write while the lease is held; a dry run writes nothing and goes on as if it had."""
        if self.lease is None or await self.lease.commit(writes):
            return True
        self.tally.stopped = await self._lost()
        return False

    async def _lost(self) -> str:
        """Say why nothing can be written any more."""
        return _LOST if await self.books.stands() else ERASED

    # -- the run

    async def _begin(self) -> None:
        """Journal that the run began, and report what killed ones left."""
        shop = self.shop
        shop.ledger.unknown += await steady(
            lambda: note_cut_off(shop.store, shop.session_id, kind="consolidation", now=shop.now()),
            sleep=shop.sleep,
        )
        await steady(lambda: shop.store.put_run(self._alive()), sleep=shop.sleep)

    async def _result(self) -> ConsolidationResult:
        """Forget what is kept no longer, and tell what was done."""
        if self.shop.policy.retention is not None and not self.dry:
            await self._forget(self.shop.now() - self.shop.policy.retention)
        remaining = len(self.waiting) - self.tally.processed - len(self.tally.blocked)
        if not self.dry:
            # Others wrote notes meanwhile.
            notes = await self.books.records(kept.NOTE)
            blocked = await self.books.records(kept.BLOCKED)
            remaining = sum(each.state == "live" for each in kept.live_notes(notes, blocked))
        return result.result_of(
            self.books.space,
            self.tally,
            remaining=remaining,
            seconds=time.monotonic() - self.begun,
            dry_run=self.dry,
            run_id=self.shop.run_id,
        )

    async def _forget(self, before: datetime) -> None:
        """Delete the notes that were consumed before that time."""
        consumed = kept.consumed_notes(await self.books.records(kept.CONSUMED))
        revisions = kept.read_revisions(await self.books.records(kept.REVISION))
        at = {revision.number: revision.at for revision in revisions}
        if writes := change.expired(self.books.space, consumed, at=at, before=before):
            await self._write(*writes)

    async def _end(self, told: ConsolidationResult) -> None:
        """Journal how the run ended."""
        shop = self.shop
        outcome: Any = told.status if told.status in ("ok", "partial") else "error"
        await shop.ledger.close()
        detail = result.detail(told, model=shop.llm.name, unknown=shop.ledger.unknown)
        await self._put_end(outcome, detail)

    async def _put_end(self, outcome: Any, detail: Mapping[str, Any]) -> None:
        run = replace(self.record, outcome=outcome, ended_at=self.shop.now(), detail=dict(detail))
        header = self.books.standing
        await steady(
            lambda: self.shop.store.transact(lambda: ended(header, run)), sleep=self.shop.sleep
        )

    async def _release(self) -> None:
        if self.lease is not None:
            await self.lease.release()

    async def _abandon(self, error: BaseException) -> None:
        """End early: report the calls in flight as unknown, record the end, let go of the bank."""
        cancelled = isinstance(error, (asyncio.CancelledError, KeyboardInterrupt))
        name = type(error).__name__
        detail = {"model": self.shop.llm.name, "reason": name}
        for step in (
            self.shop.ledger.close,
            lambda: self._put_end("interrupted" if cancelled else "error", detail),
            self._release,
        ):
            try:
                await step()
            except StoreError as failure:
                _log.warning(
                    "run %s: its end was not recorded: %s",
                    self.shop.run_id,
                    type(failure).__name__,
                )

    async def _beat(self) -> None:
        """Renew the lease and the run's own sign of life until cancelled."""
        shop = self.shop
        while True:
            await asyncio.sleep(shop.policy.lease / _BEATS)
            with suppress(StoreError):
                # Missing a beat is harmless; the next one, or the commit, will tell.
                if self.lease is not None:
                    await self.lease.renew()
                await shop.store.put_run(self._alive())

    def _alive(self) -> RunRecord:
        until = self.shop.now() + timedelta(seconds=self.shop.policy.lease)
        return replace(
            self.record,
            detail={"model": self.shop.llm.name, "alive_until": until.isoformat()},
        )

    def _told(self, told: ConsolidationResult) -> ConsolidationResult:
        _log.info("%s", result.log_line(told), extra=dict(told.metrics))
        return told
