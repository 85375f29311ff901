"""Reads the inputs of nodes for an update run, and holds the run's settings, prompts and claim.

A read takes what one node needs and no more, so memory is bounded by the nodes in progress.
``summaries.inputs`` decides what the inputs are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from hiermem import prompts
from hiermem.calls.budget import Budget
from hiermem.calls.rate_limit import RateLimiter, rate_limiter
from hiermem.calls.run import Run
from hiermem.config import BankPolicy, HierarchyConfig, UpdatePolicy
from hiermem.handle import Handle
from hiermem.log.trees import OVERLAP_REACH
from hiermem.prompts.template import Facts, Length, PromptTemplate, render
from hiermem.protocols import LLM, ChatMessage, SourceText, TreeStore
from hiermem.summaries.claim import PAGE, SessionClaim
from hiermem.summaries.inputs import Inputs, from_children, from_messages, overlap_before
from hiermem.summaries.plan import LevelPlan, level_plan, room_for_inputs
from hiermem.tokens import RunCounter
from hiermem.tree import status
from hiermem.types import Node, SessionRecord, StoredMessage
from hiermem.types.transaction import Attempt, Record

#: How often inputs are read again because one was replaced between two reads.
_READS: Final = 3
#: Messages read at once for several windows.
_AT_ONCE: Final = 4096
#: Tokens for the values of a template: title, people, times, marks.
_PROMPT_FRAME: Final = 120


@dataclass(frozen=True, slots=True)
class Shared:
    """The models and limits that a run of one session may share with others.

    ``fallback`` makes the stand-in if no answer of ``llm`` passes; ``sleep`` pauses. A run makes a
    missing ``rate_limiter`` itself. Calls are charged to the budgets ``parents`` as well.
    ``planned`` are the requests that a common plan counted. ``bank_policy`` is for the
    spaces that learn.
    """

    llm: LLM
    fallback: LLM
    prompts: Mapping[str, PromptTemplate | str] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rate_limiter: RateLimiter | None = None
    parents: tuple[Budget, ...] = ()
    planned: set[str] = field(default_factory=set[str])
    bank_policy: BankPolicy = field(default_factory=BankPolicy)
    clock: Callable[[], float] = field(default=time.monotonic)


class UpdateRun(Run[Node]):
    """One run that makes the nodes of ``tree``. Opening it reads and writes nothing.

    With a ``claim``, it begins no call without holding the session. The stand-in counts with
    ``extract_counter``, since each of its texts grows, and each level repeats sentences of the
    level below. ``own_counts`` are the session's stored counts of attempts by the ids of their
    nodes, None before the run has looked.
    """

    def __init__(
        self,
        handle: Handle,
        tree: TreeStore,
        *,
        record: SessionRecord,
        config: HierarchyConfig,
        policy: UpdatePolicy,
        budget: Budget,
        shared: Shared,
        claim: SessionClaim | None = None,
    ) -> None:
        super().__init__(
            store=handle.store,
            tree=tree,
            kind="update",
            subject=record.id,
            lease=policy.lease,
            now=handle.store_now,
            sleep=shared.sleep,
            compare_clocks=partial(handle.compare_clocks, lease=policy.lease),
            llm=shared.llm,
            counter=handle.counter,
            budget=budget,
            rate_limiter=shared.rate_limiter
            or rate_limiter(shared.llm, policy, clock=shared.clock, sleep=shared.sleep),
            call_timeout=policy.call_timeout,
            retries=policy.retries,
            drain_time=policy.drain,
        )
        self.record, self.config, self.policy = record, config, policy
        self.fallback, self.shared = shared.fallback, shared
        self.extract_counter = RunCounter(self.counter)
        self.claim = claim
        self.claim_mark = lambda: claim.held.generation if claim and claim.held else None
        self.own_counts: dict[str, list[Record]] | None = None
        self._text_locks = handle.text_locks
        self._unstored = asyncio.Semaphore(policy.concurrency)
        self._plans: dict[tuple[int, str], LevelPlan] = {}

    @property
    def session_id(self) -> str:
        """Return the session's id."""
        return self.record.id

    @property
    def is_held(self) -> bool:
        """Return whether the session is claimed, if this run needs a claim."""
        return self.claim is None or self.claim.held is not None

    @property
    def is_deterministic(self) -> bool:
        """Return whether the model is the extractive stand-in, so that retries are useless."""
        return self.llm.name == self.fallback.name

    @property
    def concurrent_nodes(self) -> int:
        """Return the number of nodes worked on at once.

        Twice the calls that may be in flight, so that inputs are ready when many calls end at one
        time. The stand-in only computes, so more than two do not help.
        """
        if self.is_deterministic:
            return min(self.policy.concurrency, 2)
        return 2 * self.policy.concurrency

    async def begin_call(self, item: Node, calls: Sequence[Attempt]) -> bool:
        """Journal these calls if the session is still held; return whether it is."""
        if self.claim is None:
            await self.journal.write(calls)
            return True
        fence = self.claim.held
        if fence is None:
            return False
        applied, _ = await self.journal.write(calls, claim=fence)
        if applied is None:
            self.claim.lose()
        return applied is not None

    async def make_alone(self, wanted: str, until_stored: AsyncExitStack) -> None:
        """Wait until no other task of this process asks for the text ``wanted``.

        At most until the deadline. An extract is not waited for, since it costs nothing.
        """
        if self.is_deterministic:
            return
        key = id(asyncio.get_running_loop()), wanted
        lock = self._text_locks.setdefault(key, asyncio.Lock())
        with self.mark_waiting(), suppress(TimeoutError):
            async with asyncio.timeout(self.budget.time_left()):
                await until_stored.enter_async_context(lock)

    async def make_room(self, until_stored: AsyncExitStack) -> None:
        """Wait until fewer answers of a remote model are unstored than calls may be in flight.

        So a kill loses no more answers than that. Those of a local model cost only time.
        """
        if self.llm.remote:
            with self.mark_waiting():
                await until_stored.enter_async_context(self._unstored)

    def plan(self, level: int, model: LLM | None = None) -> LevelPlan:
        """Return how nodes of ``level`` are made, by the run's model or by ``model``."""
        name = (model or self.llm).name
        if (level, name) not in self._plans:
            self._plans[level, name] = level_plan(
                level,
                prompts.load(level, self.config.level(level).style, self.shared.prompts),
                config=self.config,
                model=name,
                counter=self.counter.name,
            )
        return self._plans[level, name]

    def room(self, level: int, *, inputs: int = 0, answer: int = 0) -> int | None:
        """Return the room for ``inputs`` tokens, or the least room for any inputs.

        None if the model's window has no limit. Raises ConfigError if it is too small.
        """
        window, template = self.llm.context_window, self.plan(level).template
        if window is None:
            return None
        prompt = sum(map(self.counter.count, (template.system, template.user)), _PROMPT_FRAME)
        return room_for_inputs(window, inputs=inputs, answer=answer, prompt=prompt)

    def prompt(
        self,
        node: Node,
        sources: Sequence[SourceText],
        length: Length,
        *,
        summaries: int,
        overlap: str,
    ) -> tuple[ChatMessage, ...]:
        """Return the messages of the request for these sources; a dry run counts them."""
        level_plan = self.plan(node.level)
        facts = Facts(
            title=self.record.title,
            participants=self.record.participants,
            first_at=node.first_at,
            last_at=node.last_at,
            messages=node.messages,
            summaries=summaries,
            level=node.level,
        )
        return render(
            level_plan.template,
            sources,
            facts=facts,
            length=length,
            ratio=level_plan.ratio if self.config.ratio_only else None,
            overlap=overlap,
        )


async def read_inputs(run: UpdateRun, node: Node) -> Inputs | None:
    """Read the inputs of ``node``; None if a child has no text."""
    if not node.children:
        return await _read_messages(run, node)
    for _ in range(_READS):
        children = await run.tree.nodes(node.children)
        if len(children) < len(node.children) or not all(child.revision for child in children):
            return None
        revisions = await run.tree.revisions([(child.id, child.revision) for child in children])
        if len(revisions) == len(children):
            return from_children(
                list(zip(children, revisions, strict=True)), verbatim=node.verbatim
            )
    return None


async def read_windows_at_once(
    run: UpdateRun, windows: Sequence[Node]
) -> list[tuple[Node, list[StoredMessage]]]:
    """Read the messages of several windows; the omitted windows are to be read one by one.

    ``windows`` are in order. Neighbours are read together, unless most of the messages between
    them are of other threads.
    """
    groups: list[tuple[Node, list[StoredMessage]]] = []
    if run.config.overlap:
        return groups
    row = list(windows)
    while row:
        several: list[Node] = []
        first, stop, wanted = row[0].span.start, 0, 0
        for node in row:
            # A window of another thread may begin before its predecessor.
            begin, end = min(first, node.span.start), max(stop, node.span.stop)
            wanted += node.messages
            if several and (end - begin > 2 * wanted or end - begin > _AT_ONCE):
                break
            several.append(node)
            first, stop = begin, end
        row = row[len(several) :]
        messages = await run.store.messages(run.session_id, first, stop)
        if len(messages) < stop - first:
            continue
        for node in several:
            span = node.span
            stretch = messages[span.start - first : span.stop - first]
            groups.append((node, [stored for stored in stretch if stored.thread == node.thread]))
    return groups


async def _read_messages(run: UpdateRun, node: Node) -> Inputs:
    """Read the messages of a window, and the text before it if an overlap is configured."""
    span = node.span
    overlap: tuple[str, int | None] = ("", None)
    if run.config.overlap:
        before = await run.store.messages(
            run.session_id, max(0, span.start - OVERLAP_REACH), span.start + 1, thread=node.thread
        )
        overlap = overlap_before(node, before, run.config.overlap)
    messages = await run.store.messages(run.session_id, span.start, span.stop, thread=node.thread)
    return from_messages(
        span,
        messages,
        count=run.counter.count,
        tool_tokens=run.config.tool_result_tokens,
        overlap=overlap,
    )


async def read_outdated(run: UpdateRun, level: int, stop: int) -> AsyncIterator[list[Node]]:
    """Yield, in pages, the nodes of ``level`` below ordinal ``stop`` with an outdated strategy.

    Unfinished nodes are skipped. Yields nothing if the policy does not follow the strategy.
    """
    if not run.policy.follow_strategy:
        return
    read = partial(run.tree.outdated, level, run.plan(level).strategies)
    async for page in read_pages(read, stop):
        yield [node for node in page if not status.is_unfinished(node)]


async def read_flagged(run: UpdateRun, level: int, stop: int) -> AsyncIterator[list[Node]]:
    """Yield, in pages, the nodes of ``level`` that an edit alone made dirty.

    Yields nothing if the policy does not say ``regenerate_on_edit``.
    """
    if run.policy.regenerate_on_edit:
        async for page in read_pages(partial(run.tree.unfinished, level), stop):
            yield [node for node in page if status.is_flagged(node)]


async def read_pages(
    read: Callable[[int, int], Awaitable[list[Node]]], stop: int, size: int = PAGE
) -> AsyncIterator[list[Node]]:
    """Yield, in pages, the nodes below ordinal ``stop``; ``read`` is given an ordinal and a limit.

    It returns the nodes after that ordinal.
    """
    after = -1
    while True:
        page = await read(after, size)
        yield [node for node in page if node.ordinal < stop]
        if len(page) < size or page[-1].ordinal >= stop:
            return
        after = page[-1].ordinal
