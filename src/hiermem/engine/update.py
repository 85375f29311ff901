"""Brings a session's summaries up to date: takes nodes in order, has them made, commits them.

The one rule: nothing is lost and nothing is made twice. What a run has in hand is claimed (remote
models) or cheap (local ones), every commit is a compare-and-swap, and a run that ends early, by a
cap, an error, a cancellation or a kill, leaves nodes that the next run finds where they were. Which
node is next, what it needs and what becomes of a failure is decided in ``core``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Literal, overload

from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.core.plan import UpdatePlan, UpdateReport
from hiermem.core.prompt import PromptTemplate
from hiermem.engine.foresee import foresee
from hiermem.engine.growing import grown
from hiermem.engine.spending import Purse
from hiermem.engine.work import Progress, Work
from hiermem.engine.workshop import Workshop
from hiermem.errors import NotFoundError, UsageError
from hiermem.protocols import LLM, TenantStore, TokenCounter

__all__ = ["Progress", "update"]


@overload
async def update(
    store: TenantStore,
    session_id: str,
    *,
    llm: LLM,
    fallback: LLM,
    counter: TokenCounter,
    config: HierarchyConfig,
    policy: UpdatePolicy,
    now: Callable[[], datetime],
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    level: int | None = None,
    on_progress: Progress | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    dry_run: Literal[False] = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> UpdateReport: ...
@overload
async def update(
    store: TenantStore,
    session_id: str,
    *,
    llm: LLM,
    fallback: LLM,
    counter: TokenCounter,
    config: HierarchyConfig,
    policy: UpdatePolicy,
    now: Callable[[], datetime],
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    level: int | None = None,
    on_progress: Progress | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    dry_run: bool,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> UpdateReport | UpdatePlan: ...
async def update(
    store: TenantStore,
    session_id: str,
    *,
    llm: LLM,
    fallback: LLM,
    counter: TokenCounter,
    config: HierarchyConfig,
    policy: UpdatePolicy,
    now: Callable[[], datetime],
    prompts: Mapping[str, PromptTemplate | str] | None = None,
    level: int | None = None,
    on_progress: Progress | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    deadline: float | None = None,
    dry_run: bool = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> UpdateReport | UpdatePlan:
    """Make what is missing, failed, dirty or degraded, up to ``level`` where one is given.

    ``fallback`` stands in where ``llm`` gave nothing fit. ``max_calls`` and ``max_tokens`` cap the
    run, ``deadline`` is in seconds from now; a cap ends the run before the call that would pass it,
    and the report says so. ``on_progress`` is called after every commit. With ``dry_run`` nothing
    is written or called and the plan is given. ``now`` gives aware datetimes; ``sleep`` pauses.

    Raises NotFoundError for an unknown session, UsageError for a cap below zero, and what the store
    raises; what was committed until then stays.
    """
    _check(max_calls=max_calls, max_tokens=max_tokens, level=level, deadline=deadline)
    record = await store.session(session_id)
    if record is None:
        raise NotFoundError(f"session {session_id!r} does not exist")
    purse = Purse(
        max_calls=max_calls,
        max_tokens=max_tokens,
        deadline=None if deadline is None else time.monotonic() + deadline,
        clock=time.monotonic,
    )
    shop = Workshop(
        store=store,
        record=record,
        config=config,
        policy=policy,
        llm=llm,
        fallback=fallback,
        counter=counter,
        templates=prompts,
        now=now,
        sleep=sleep,
        run_id=uuid.uuid4().hex,
        purse=purse,
    )
    counts = {
        number: count
        for number, count in (await store.levels(session_id)).items()
        if level is None or number <= level
    }
    if dry_run:
        loose = await grown(shop, level)
        return await foresee(shop, counts, loose)
    return await Work(shop, counts, level, on_progress).run()


def _check(**numbers: float | None) -> None:
    """Refuse numbers that mean nothing."""
    for name, value in numbers.items():
        least = 1 if name == "level" else 0
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}; it must not be below {least}")
