"""Prepares one consolidation: model, caps, rate limiter, journal, and the limits of a request.

Nothing is decided here, and the only I/O is reading the prompt's file.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from hiermem import prompts as shipped
from hiermem.config import BankPolicy
from hiermem.core.calls import request_limits
from hiermem.core.spaces.consolidation import BatchLimits, NoteBatch
from hiermem.core.spaces.erased import ended as end_of_run
from hiermem.core.spaces.record import subject_of
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.budget import Budget
from hiermem.engine.calls.call_journal import CallJournal
from hiermem.engine.calls.rate_limit import rate_limiter
from hiermem.engine.calls.run import Run
from hiermem.engine.calls.slots import SlotPool
from hiermem.engine.calls.store_retry import retry_store
from hiermem.engine.spaces.records import Lease, SpaceRecords
from hiermem.engine.spaces.space import SpaceContext
from hiermem.protocols import LLM
from hiermem.types.transaction import Attempt, RunRecord

#: The name of the prompt of a consolidation.
TEMPLATE: Final = "consolidate"
#: Tokens reserved for the answer of a remote model (six files of a page each), and the most of them
#: where the notes of one request need more.
_ANSWER: Final = 8_192
_LONGEST_ANSWER: Final = 16_384


@dataclass(slots=True)
class BankClaim:
    """The one claim of a consolidation: the lease of the bank, None for a dry run."""

    lease: Lease | None
    journal: CallJournal

    async def begin_call(
        self, item: NoteBatch, attempt: Attempt, *, ended: list[Attempt]
    ) -> NoteBatch | None:
        """Journal the call, while this run may change the bank.

        A lost lease is not taken again in the middle of a run.
        """
        if self.lease is not None and not self.lease.held:
            return None
        await self.journal.write([*ended, attempt])
        return item

    async def renew(self) -> None:
        """Extend the lease."""
        if self.lease is not None:
            await self.lease.renew()

    async def release(self) -> None:
        """Release the lease, and journal the calls that have no end yet."""
        try:
            await self.journal.write(self.journal.unwritten())
        finally:
            if self.lease is not None:
                await self.lease.release()


@dataclass(kw_only=True, eq=False)
class ConsolidationRun(Run[NoteBatch]):
    """The dependencies of one consolidation. ``bank_lease`` is None for a dry run."""

    policy: BankPolicy
    template: PromptTemplate
    limits: BatchLimits
    bank_lease: Lease | None
    records: SpaceRecords

    def __post_init__(self) -> None:
        super().__post_init__()
        self.claims = BankClaim(self.bank_lease, self.journal)

    async def write_entry(self, entry: RunRecord) -> None:
        """Write the run's journal entry; its end says nothing of a space that was erased."""
        if entry.outcome == "running":
            await super().write_entry(entry)
        else:
            header = self.records.opened_header
            await retry_store(
                lambda: self.store.transact(lambda: end_of_run(header, entry)), sleep=self.sleep
            )


def open_run(
    space: SpaceContext,
    llm: LLM,
    *,
    run_id: str,
    budget: Budget,
    lease: Lease | None,
    prompts: Mapping[str, PromptTemplate | str] | None,
    sleep: Callable[[float], Awaitable[None]],
) -> ConsolidationRun:
    """Prepare one run; ``lease`` is None for a dry run.

    Raises ConfigError for a limit that is impossible.
    """
    handle, policy, subject = space.handle, space.policy, subject_of(space.name)
    window = llm.context_window
    limit = request_limits.threshold(policy, window)
    answer = partial(request_limits.answer_tokens, policy, window=window, live=llm.remote)
    return ConsolidationRun(
        store=handle.store,
        tree=handle.store.tree(subject),
        kind="consolidation",
        subject=subject,
        lease=policy.lease,
        now=handle.store_now,
        sleep=sleep,
        run_id=run_id,
        journal_budget=space.handle.journal_budget,
        compare_clocks=partial(handle.compare_clocks, lease=policy.lease),
        llm=llm,
        counter=handle.counter,
        budget=budget,
        rate_limiter=rate_limiter(
            llm, handle.update_policy, clock=time.monotonic, sleep=sleep, batch_delay=0.0
        ),
        call_timeout=policy.call_timeout,
        retries=policy.retries,
        slots=SlotPool(1).for_session(subject),
        policy=policy,
        template=shipped.load_named(TEMPLATE, prompts),
        limits=BatchLimits(
            answer(remote=_ANSWER), limit.tokens, policy.max_notes, answer(remote=_LONGEST_ANSWER)
        ),
        bank_lease=lease,
        records=space.records,
    )
