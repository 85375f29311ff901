"""Holds what a run's nodes are made with, and reads what they are made from.

The one rule: a read takes what one node needs and no more, so memory is bounded by the nodes in
hand. It decides nothing; ``core.summaries.inputs`` says what becomes of what was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from hiermem import prompts
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.core.log.repack_state import Build
from hiermem.core.summaries.inputs import (
    OVERLAP_REACH,
    Inputs,
    from_children,
    from_messages,
    overlap_shown,
)
from hiermem.core.summaries.plan import LevelPlan, is_clean, level_plan
from hiermem.core.summaries.prompt import Facts, PromptTemplate
from hiermem.core.text.hashes import VERBATIM
from hiermem.engine.calls.budget import Purse
from hiermem.engine.calls.in_flight import Awaited
from hiermem.engine.calls.rate_limit import Pace, gauge_of, pace_of
from hiermem.engine.calls.slots import Seat
from hiermem.engine.summaries.commit import Ledger
from hiermem.engine.summaries.shared import Shared
from hiermem.protocols import LLM, TenantStore, TokenCounter
from hiermem.types import Node, Revision, SessionRecord

#: How often inputs are read again where one was replaced between two reads.
_READS: Final = 3


@dataclass(slots=True)
class Workshop:
    """One run's tools.

    ``slots`` are the calls that may be in flight at once. ``making`` holds, by input hash, the
    texts that this run makes right now, which others may wait for; ``waiting`` the tasks that only
    wait (for an answer, their turn, the next try), which may be cut off without losing work.
    ``parted`` are the nodes of which parts are kept for the next run, until they have a text.
    ``building`` is the re-pack that the run is about, None where it is about the tree that serves.
    ``margin`` is how many of the model's tokens one of ours may be, as known when the run began:
    what it splits, it splits in one way from beginning to end.
    """

    store: TenantStore
    record: SessionRecord
    config: HierarchyConfig
    policy: UpdatePolicy
    llm: LLM
    fallback: LLM
    counter: TokenCounter
    templates: Mapping[str, PromptTemplate | str] | None
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    run_id: str
    purse: Purse
    pace: Pace = field(init=False)
    ledger: Ledger = field(init=False)
    margin: float = field(init=False)
    making: dict[str, Awaited] = field(default_factory=dict[str, "Awaited"])
    parted: set[str] = field(default_factory=set[str])
    slots: Seat = field(init=False)
    shared: Shared = field(default_factory=Shared)
    building: Build | None = None
    waiting: set[asyncio.Task[Any] | None] = field(default_factory=set["asyncio.Task[Any] | None"])
    _plans: dict[tuple[int, str], LevelPlan] = field(
        default_factory=dict[tuple[int, str], LevelPlan]
    )

    def __post_init__(self) -> None:
        policy = self.policy
        shared = self.shared
        self.slots = shared.seat_for(self.record.id, policy.concurrency)
        self.pace = shared.pace or pace_of(self.llm, policy, clock=shared.clock, sleep=self.sleep)
        self.margin = gauge_of(self.llm, self.counter).margin
        self.ledger = Ledger(
            self.store,
            self.record.id,
            run_id=self.run_id,
            lease=timedelta(seconds=policy.lease),
            now=self.now,
            sleep=self.sleep,
            allowances=shared.allowances,
        )

    @property
    def session_id(self) -> str:
        """Give the session's id."""
        return self.record.id

    @property
    def steady(self) -> bool:
        """Say whether asking again is pointless, because the model is the stand-in itself."""
        return self.llm.name == self.fallback.name

    @property
    def hands(self) -> int:
        """Give how many nodes are in hand at once.

        As many as calls may be in flight, so that a kill loses no more answers than that. For a
        local model, whose answers cost only time, two more read and check meanwhile; the stand-in
        only computes, so a second hand is all that helps.
        """
        if self.steady:
            return min(self.policy.concurrency, 2)
        return self.policy.concurrency + (0 if self.llm.remote else 2)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Mark the running task as one that only waits."""
        task = asyncio.current_task()
        self.waiting.add(task)
        try:
            yield
        finally:
            self.waiting.discard(task)

    def begin_text(self, wanted: str) -> Awaited:
        """Note that this run makes the text of ``wanted``."""
        mine = self.making[wanted] = self.shared.in_hand.begin(wanted)
        return mine

    def drop_text(self, wanted: str) -> None:
        """Note that the text of ``wanted`` is committed, or that nothing came of it."""
        mine = self.making.pop(wanted, None)
        if mine is not None:
            self.shared.in_hand.drop(wanted, mine)

    def plan(self, level: int, model: LLM | None = None) -> LevelPlan:
        """Give how nodes of ``level`` are made, by the run's model or by ``model``."""
        name = (model or self.llm).name
        if (level, name) not in self._plans:
            self._plans[level, name] = level_plan(
                level,
                prompts.load(level, self.config.level(level).style, self.templates),
                config=self.config,
                policy=self.policy,
                model=name,
                counter=self.counter.name,
            )
        return self._plans[level, name]

    def strategies(self, level: int) -> tuple[str, ...]:
        """Give the ways of making that nodes of ``level`` are to be made in now."""
        return self.plan(level).strategy, VERBATIM

    def is_clean(self, node: Node, inputs: Inputs, serving: Revision) -> bool:
        """Say whether what a node says is still made from its inputs, as the policy asks."""
        follow = self.strategies(node.level) if self.policy.follow_strategy else ()
        return is_clean(node, inputs, serving, follow=follow)

    def facts(self, node: Node, summaries: int) -> Facts:
        """Give what a prompt tells about ``node``."""
        return Facts(
            title=self.record.title,
            participants=self.record.participants,
            first_at=node.first_at,
            last_at=node.last_at,
            messages=node.messages,
            summaries=summaries,
        )


async def read_inputs(shop: Workshop, node: Node) -> Inputs | None:
    """Read what ``node`` is made from; None where a child has no text (any more)."""
    if not node.children:
        return await _read_stretch(shop, node)
    for _ in range(_READS):
        children = await shop.store.nodes(shop.session_id, node.children)
        if len(children) < len(node.children) or not all(child.revision for child in children):
            return None
        found = await shop.store.revisions(
            shop.session_id, [(child.id, child.revision) for child in children]
        )
        if len(found) == len(children):
            return from_children(list(zip(children, found, strict=True)), verbatim=node.verbatim)
    return None


async def read_serving(shop: Workshop, node: Node) -> Revision | None:
    """Read what ``node`` says now, or None."""
    if not node.revision:
        return None
    found = await shop.store.revisions(shop.session_id, [(node.id, node.revision)])
    return found[0] if found else None


async def read_windows(shop: Workshop, node: Node) -> Inputs | None:
    """Read the windows' summaries below ``node``, which lie deeper than its children."""
    windows = await shop.store.level(shop.session_id, 1, *node.windows)
    found = await shop.store.revisions(
        shop.session_id, [(window.id, window.revision) for window in windows if window.revision]
    )
    if not windows or len(found) < len(windows):
        return None
    return from_children(list(zip(windows, found, strict=True)))


async def _read_stretch(shop: Workshop, node: Node) -> Inputs:
    """Read the messages of a window, and what precedes it where an overlap is asked for."""
    span, overlap, first = node.span, "", None
    if shop.config.overlap:
        before = await shop.store.messages(
            shop.session_id,
            max(0, span.start - OVERLAP_REACH),
            span.start + 1,
            thread=node.thread,
        )
        overlap, first = overlap_shown(node, before, shop.config.overlap)
    messages = await shop.store.messages(shop.session_id, span.start, span.stop, thread=node.thread)
    inputs = from_messages(node, messages, count=shop.counter.count, overlap=overlap)
    return replace(inputs, overlap_from=first)
