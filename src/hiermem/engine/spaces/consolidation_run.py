"""Gathers the tools of one consolidation: model, caps, pace, journal, and what a request may take.

The one rule: it decides nothing and does no I/O but to read the prompt's file.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from hiermem import prompts as shipped
from hiermem.config import BankPolicy
from hiermem.core.calls import request_limits, sliding_window
from hiermem.core.spaces.consolidation import Batch, Limits
from hiermem.core.spaces.record import subject_of
from hiermem.core.summaries.prompt import PromptTemplate
from hiermem.engine.calls.allowance import Allowances
from hiermem.engine.calls.budget import Purse
from hiermem.engine.calls.call_journal import CallJournal
from hiermem.engine.calls.rate_limit import RateLimiter, limiter_for
from hiermem.engine.calls.slots import Slots
from hiermem.engine.spaces.records import Lease
from hiermem.engine.spaces.space import SpaceContext
from hiermem.protocols import LLM, TenantStore, TokenCounter

#: The prompt that a consolidation is asked with.
TEMPLATE: Final = "consolidate"
#: Tokens kept for the answer of a remote model: six files of a page each.
_ANSWER: Final = 8_192


class LeasedCallJournal(CallJournal):
    """The calls of one consolidation, which need no claim but the lease of the bank."""

    def __init__(
        self,
        store: TenantStore,
        subject: str,
        *,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        allowances: Allowances | None,
        lease: Lease | None,
    ) -> None:
        super().__init__(store, subject, now=now, sleep=sleep, allowances=allowances)
        self._lease = lease

    def claimed(self, _: str, /) -> bool:
        """Say whether the bank is this run's to change."""
        return self._lease is None or self._lease.held

    async def claim(self, _: Batch, /) -> Batch | None:
        """Give None: a lease that was lost is not taken again in the middle of a run."""
        return None


@dataclass(slots=True)
class ConsolidationRun:
    """One run's tools; what ``engine.calls.retry`` needs of a run."""

    store: TenantStore
    policy: BankPolicy
    llm: LLM
    counter: TokenCounter
    template: PromptTemplate
    limits: Limits
    purse: Purse
    rate_limiter: RateLimiter
    claims: LeasedCallJournal
    run_id: str
    session_id: str
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    slots: Slots = field(default_factory=lambda: Slots(1))

    @contextmanager
    def mark_waiting(self) -> Iterator[None]:
        """Mark the running task as one that only waits; nobody asks, since it is one task."""
        yield


def open_run(
    space: SpaceContext,
    llm: LLM,
    *,
    run_id: str,
    purse: Purse,
    allowances: Allowances,
    lease: Lease | None,
    prompts: Mapping[str, PromptTemplate | str] | None,
    sleep: Callable[[float], Awaitable[None]],
) -> ConsolidationRun:
    """Gather the tools of one run; ``lease`` is None for a dry one.

    Raises ConfigError for a limit that is impossible.
    """
    handle, policy, subject = space.handle, space.policy, subject_of(space.name)
    window, update_policy = llm.context_window, handle.update_policy
    limit = request_limits.threshold(policy, window)
    return ConsolidationRun(
        store=handle.store,
        policy=policy,
        llm=llm,
        counter=handle.counter,
        template=shipped.load_named(TEMPLATE, prompts),
        limits=Limits(
            request_limits.answer_tokens(policy, window=window, live=llm.remote, remote=_ANSWER),
            limit.tokens,
            policy.max_notes,
        ),
        purse=purse,
        rate_limiter=RateLimiter(
            size=1,
            delay=0.0,
            clock=time.monotonic,
            sleep=sleep,
            lane=limiter_for(llm) if llm.remote else None,
            limits=sliding_window.RateLimits(
                update_policy.requests_per_minute, update_policy.tokens_per_minute
            ),
        ),
        claims=LeasedCallJournal(
            handle.store,
            subject,
            now=handle.clock,
            sleep=sleep,
            allowances=allowances if allowances.any else None,
            lease=lease,
        ),
        run_id=run_id,
        session_id=subject,
        now=handle.clock,
        sleep=sleep,
    )
