"""Prepares one consolidation: model, caps, rate limiter, journal, and the limits of a request.

Nothing is decided here, and the only I/O is reading the prompt's file.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from hiermem import prompts as shipped
from hiermem.config import BankPolicy
from hiermem.core.calls import request_limits
from hiermem.core.spaces.consolidation import BatchLimits, NoteBatch
from hiermem.core.spaces.record import subject_of
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.budget import Budget, JournalBudget
from hiermem.engine.calls.call_journal import CallJournal
from hiermem.engine.calls.rate_limit import RateLimiter, rate_limiter
from hiermem.engine.calls.slots import SessionSlots, SlotPool
from hiermem.engine.spaces.records import Lease
from hiermem.engine.spaces.space import SpaceContext
from hiermem.protocols import LLM, TenantStore, TokenCounter

#: The name of the prompt of a consolidation.
TEMPLATE: Final = "consolidate"
#: Tokens reserved for the answer of a remote model: six files of a page each.
_ANSWER: Final = 8_192


class LeasedCallJournal(CallJournal):
    """The calls of one consolidation. Its only claim is the lease of the bank."""

    def __init__(
        self,
        store: TenantStore,
        subject: str,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        journal_budget: JournalBudget,
        lease: Lease | None,
    ) -> None:
        super().__init__(store, subject, now=now, sleep=sleep, journal_budget=journal_budget)
        self._lease = lease

    def claimed(self, _: str, /) -> bool:
        """Return whether this run may change the bank."""
        return self._lease is None or self._lease.held

    async def claim(self, _: NoteBatch, /) -> NoteBatch | None:
        """Return None: a lost lease is not taken again in the middle of a run."""
        return None


@dataclass(slots=True)
class ConsolidationRun:
    """The dependencies of one consolidation; a run context for ``engine.calls.retry``."""

    store: TenantStore
    policy: BankPolicy
    llm: LLM
    counter: TokenCounter
    template: PromptTemplate
    limits: BatchLimits
    budget: Budget
    rate_limiter: RateLimiter
    claims: LeasedCallJournal
    run_id: str
    session_id: str
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    slots: SessionSlots

    @contextmanager
    def mark_waiting(self) -> Iterator[None]:
        """Do nothing: a consolidation is one task, and nothing asks whether it waits."""
        yield


def open_run(
    space: SpaceContext,
    llm: LLM,
    *,
    run_id: str,
    budget: Budget,
    journal_budget: JournalBudget,
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
    return ConsolidationRun(
        store=handle.store,
        policy=policy,
        llm=llm,
        counter=handle.counter,
        template=shipped.load_named(TEMPLATE, prompts),
        limits=BatchLimits(
            request_limits.answer_tokens(policy, window=window, live=llm.remote, remote=_ANSWER),
            limit.tokens,
            policy.max_notes,
        ),
        budget=budget,
        rate_limiter=rate_limiter(
            llm, handle.update_policy, clock=time.monotonic, sleep=sleep, batch_delay=0.0
        ),
        claims=LeasedCallJournal(
            handle.store,
            subject,
            now=handle.clock,
            sleep=sleep,
            journal_budget=journal_budget,
            lease=lease,
        ),
        run_id=run_id,
        session_id=subject,
        slots=SlotPool(1).for_session(subject),
        now=handle.clock,
        sleep=sleep,
    )
