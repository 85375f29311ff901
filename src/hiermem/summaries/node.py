"""Runs the making of one node: reads its inputs, finds its text or asks for it.

Nothing is committed and no transaction is open meanwhile; ``update`` commits the Outcome. An answer
with a hard problem never gets into one. A read takes what one node needs and no more, so memory is
bounded by the nodes in progress. ``plan`` decides, and ``inputs`` what the inputs are.

The attempts that failed for a text are counted in a record of the session, by the input hash. So
the count goes with the session and its messages, and every session of the tenant finds it.
``assess`` decides when to ask again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile
from typing import Final

from hiermem import prompts
from hiermem.calls.answers import Rejected
from hiermem.calls.budget import ALL_ATTEMPTS, Budget
from hiermem.calls.call import ask_until_fit
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.failures import shown
from hiermem.calls.rate_limit import RateLimiter, rate_limiter
from hiermem.calls.retry import retry_store
from hiermem.calls.run import CallState, Run
from hiermem.config import BankPolicy, HierarchyConfig, UpdatePolicy
from hiermem.errors import ModelError, SpendLimitError
from hiermem.handle import Handle
from hiermem.log.trees import OVERLAP_REACH
from hiermem.prompts.template import Facts, Length, PromptTemplate, render
from hiermem.protocols import LLM, ChatMessage, LLMRequest, SourceText, TokenCounter, TreeStore
from hiermem.summaries import assess as retries
from hiermem.summaries import plan
from hiermem.summaries.assess import (
    PROMPTS,
    RETRY,
    AttemptCount,
    Draft,
    Standard,
    anchor_limit,
    assess,
    judge,
    source_of,
)
from hiermem.summaries.claim import PAGE, SessionClaim
from hiermem.summaries.inputs import (
    Inputs,
    Labels,
    fitted,
    from_children,
    from_messages,
    of_inputs,
    overlap_before,
)
from hiermem.summaries.plan import Failure, LevelPlan, NodeTask, Outcome, level_plan
from hiermem.tokens import RunCounter
from hiermem.tree import status
from hiermem.types import Node, Revision, SessionRecord
from hiermem.types.transaction import Attempt, RecordWrite

#: How often inputs are read again because one was replaced between two reads.
_READS: Final = 3
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


class UpdateRun(Run):
    """One run that makes the nodes of ``tree``. Opening it reads and writes nothing.

    With a ``claim``, it begins no call without holding the session. The stand-in counts with
    ``extract_counter``, since each of its texts grows, and each level repeats sentences of the
    level below.
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
        self.fallback, self.shared, self.claim = shared.fallback, shared, claim
        self.extract_counter = RunCounter(self.counter)
        self.claim_mark = lambda: claim.held.generation if claim and claim.held else None
        self._text_locks = handle.text_locks
        self._unstored = asyncio.Semaphore(policy.concurrency)
        self._plans: dict[tuple[int, str], LevelPlan] = {}

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
        most = self.policy.concurrency
        return min(most, 2) if self.is_deterministic else 2 * most

    async def begin_call(self, calls: Sequence[Attempt]) -> bool:
        """Journal these calls if the session is still held; return whether it is."""
        fence = self.claim.held if self.claim else None
        if not self.is_held:
            return False
        applied, _ = await self.journal.write(calls, claim=fence)
        if applied is None and self.claim is not None:
            self.claim.held = None
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
        return plan.room_for_inputs(window, inputs=inputs, answer=answer, prompt=prompt)

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
        how = self.plan(node.level)
        facts = Facts(
            title=self.record.title,
            participants=self.record.participants,
            first_at=node.first_at,
            last_at=node.last_at,
            messages=node.messages,
            summaries=summaries,
            level=node.level,
        )
        ratio = how.ratio if self.config.ratio_only else None
        return render(
            how.template, sources, facts=facts, length=length, ratio=ratio, overlap=overlap
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


async def _read_messages(run: UpdateRun, node: Node) -> Inputs:
    """Read the messages of a window, and the text before it if an overlap is configured."""
    span, thread = node.span, node.thread
    overlap: tuple[str, int | None] = ("", None)
    if run.config.overlap:
        start = max(0, span.start - OVERLAP_REACH)
        before = await run.store.messages(run.subject, start, span.start + 1, thread=thread)
        overlap = overlap_before(node, before, run.config.overlap)
    messages = await run.store.messages(run.subject, span.start, span.stop, thread=thread)
    return from_messages(
        span,
        messages,
        count=run.counter.count,
        tool_tokens=run.config.tool_result_tokens,
        overlap=overlap,
    )


async def read_outdated(run: UpdateRun, level: int, stop: int) -> AsyncIterator[list[Node]]:
    """Yield, in pages, the nodes of ``level`` below ordinal ``stop`` that the policy renews.

    They are those of an outdated strategy, since another prompt, model or ratio does not make a
    text untrue, and those that an edit alone made dirty.
    """
    if run.policy.follow_strategy:
        read = partial(run.tree.outdated, level, run.plan(level).strategies)
        async for page in read_pages(read, stop):
            yield [node for node in page if not status.is_unfinished(node)]
    if run.policy.regenerate_on_edit:
        async for page in read_pages(partial(run.tree.unfinished, level), stop):
            yield [node for node in page if status.is_flagged(node)]


async def read_pages(
    read: Callable[[int, int], Awaitable[list[Node]]], stop: int
) -> AsyncIterator[list[Node]]:
    """Yield, in pages, the nodes below ordinal ``stop``; ``read`` is given an ordinal and a limit.

    It returns the nodes after that ordinal.
    """
    after = -1
    while True:
        page = await read(after, PAGE)
        yield [node for node in page if node.ordinal < stop]
        if len(page) < PAGE or page[-1].ordinal >= stop:
            return
        after = page[-1].ordinal


async def make(run: UpdateRun, node: Node, until_stored: AsyncExitStack) -> Outcome:
    """Make the text of ``node``, or return why there is none. Commits nothing.

    ``until_stored`` is closed when the outcome is committed: until then no other run makes a text
    of the same inputs. Raises the store's errors.
    """
    inputs = await read_inputs(run, node)
    if inputs is None:
        return Outcome("moved", node)
    task = await task_of(run, node, inputs)
    if plan.is_right(task):
        return plan.clean(task)
    if plan.is_copied(node, inputs.tokens) or inputs.empty:
        return plan.serve(task, "made", await run.compute(copied, run, node, inputs))
    await run.make_alone(task.wanted, until_stored)
    return await _find(run, task, until_stored)


async def _find(run: UpdateRun, task: NodeTask, until_stored: AsyncExitStack) -> Outcome:
    """Reuse a text made from the same inputs, or ask the model if that is due.

    A node for which a new text was requested reuses none.
    """
    node, inputs = task.node, task.inputs
    if not node.forced:
        earlier = await run.store.reusable(task.wanted)
        if earlier is not None and plan.may_reuse(earlier, task.length):
            return plan.serve(task, "reused", plan.moved_here(task, earlier, now=run.now()))
    state, count = CallState(node.id, inputs.tokens), await count_attempts(run, task.wanted)
    if prompts := prompts_due(node, count, run):
        await run.make_room(until_stored)
        return await _asked(run, task, state, prompts, count)
    if node.status == "active" and plan.is_stand_in_of(task.serving, node.level, inputs):
        return plan.clean(task)
    return await _go_without(run, task, state, ("rejected", count.error), count)


async def task_of(run: UpdateRun, node: Node, inputs: Inputs) -> NodeTask:
    """Return a node to be made, with what is read of it besides its inputs."""
    wanted = [(node.id, node.revision)] if node.revision else []
    serving = next(iter(await run.tree.revisions(wanted)), None) if wanted else None
    follow = run.plan(node.level).strategies if run.policy.follow_strategy else ()
    below = await run.tree.nodes(node.children) if node.dirty and node.children else []
    return NodeTask(
        node,
        inputs,
        serving,
        clean=serving is not None and plan.is_clean(node, inputs, serving, follow=follow),
        flagged=any(map(status.is_flagged, below)),
        wanted=plan.node_hash(node, inputs, run.plan(node.level).strategy),
        length=plan.lengths(node, inputs.tokens, run.config),
        overlap=run.config.overlap,
    )


def copied(run: UpdateRun, node: Node, inputs: Inputs) -> Revision:
    """Return the revision that copies a node's inputs word for word."""
    how = run.plan(node.level)
    return plan.copy(node, inputs, how, count=run.counter.count, now=run.now())


async def _asked(
    run: UpdateRun, task: NodeTask, state: CallState, prompts: int, count: AttemptCount
) -> Outcome:
    """Ask the model for the text, and label it meanwhile; count the attempts if none passes."""
    labels = run.spawn(_labels(run, task))
    try:
        draft = await _draft(run, task, state, prompts)
    except (SpendLimitError, ClaimLostError) as error:
        await note_failure(run, task, count, state, count.error)
        if isinstance(error, SpendLimitError):
            await run.journal.write(state.ended)
            return Outcome("refused", task.node)
        return Outcome("moved", task.node, attempts=tuple(state.ended))
    if isinstance(draft, Draft):
        if count != AttemptCount():
            await _put(run, RecordWrite(RETRY, run.subject, task.wanted, None))
        return _served(run, task, state, draft, await labels)
    count = await note_failure(run, task, count, state, draft[1])
    return await _go_without(run, task, state, draft, count)


async def _draft(
    run: UpdateRun, task: NodeTask, state: CallState, prompts: int
) -> Draft | tuple[Failure, str]:
    """Ask at most ``prompts`` times, the second time with the problems named.

    Inputs that exceed a request become excerpts. Returns the failure and what is known of it if no
    answer passes. Raises SpendLimitError and ClaimLostError.
    """
    inputs, length = task.inputs, task.length
    room = run.room(task.node.level, inputs=inputs.tokens, answer=length.limit)
    if room is not None:
        fit = partial(fitted, inputs, room, count=run.counter.count)
        inputs = await run.compute(fit, tokens=state.input_tokens)
        length = plan.shortened(length, shown=inputs.tokens, of=state.input_tokens)
    request, standard = _request(run, task.node, inputs, length, ask=True)
    first = partial(judge, request, standard, tried=1 + PROMPTS - prompts)
    try:
        verdict = await ask_until_fit(run, state, request, first)
    except ModelError as error:
        # The original error's text may hold the prompt, or a key.
        permanent = error.kind in ("permanent", "overflow", "refused")
        return "permanent" if permanent else "transient", shown(error)
    return ("rejected", verdict.detail) if isinstance(verdict, Rejected) else verdict.value


def _request(
    run: UpdateRun, node: Node, inputs: Inputs, length: Length, *, ask: bool = False
) -> tuple[LLMRequest, Standard]:
    """Return the request, and the standard for its answers.

    The stand-in reads only the inputs, so no prompt is rendered unless a model is to ``ask``.
    """
    messages: tuple[ChatMessage, ...] = ()
    counter: TokenCounter = run.extract_counter
    if ask and not run.is_deterministic:
        counter = run.counter
        summaries = 0 if node.level == 1 else len(inputs.sources)
        messages = run.prompt(
            node, inputs.sources, length, summaries=summaries, overlap=inputs.overlap
        )
    request = LLMRequest(
        task="summarise",
        messages=messages,
        inputs=inputs.sources,
        target_tokens=length.target,
        max_tokens=length.limit,
        counter=counter,
        level=node.level,
        style=run.plan(node.level).style,
        temperature=run.config.temperature,
    )
    standard = Standard(
        source_of(request, limit=anchor_limit(length.target)),
        inputs.tokens,
        known=inputs.anchors,
        is_deterministic=run.is_deterministic,
        window=run.llm.context_window,
    )
    return request, standard


async def _go_without(
    run: UpdateRun,
    task: NodeTask,
    state: CallState,
    failure: tuple[Failure, str],
    count: AttemptCount,
) -> Outcome:
    """Keep the node's stand-in, make one, or leave the node failed, depending on its attempts.

    For a requested text only the attempts of this run count.
    """
    node, (kind, error) = task.node, failure
    tried = replace(node, error=error, attempts=count.count)
    tries = state.attempts if node.forced else count.count
    is_due = plan.stand_in_is_due(kind, attempts=tries, policy=run.policy)
    outcome = plan.go_without(task, tried, stand_in_is_due=is_due)
    if outcome is None:
        request, standard = _request(run, node, task.inputs, task.length)
        response = await run.fallback.complete(request)
        draft = await asyncio.to_thread(assess, request, standard, response)
        if draft.fit:
            return _served(run, task, state, draft, await _labels(run, task), tried=tried)
        outcome = plan.failed(node, tried)
    return replace(outcome, attempts=tuple(state.ended))


async def _labels(run: UpdateRun, task: NodeTask) -> Labels:
    return await run.compute(of_inputs, task.inputs, tokens=task.node.input_tokens)


def _served(
    run: UpdateRun,
    task: NodeTask,
    state: CallState,
    draft: Draft,
    labels: Labels,
    *,
    tried: Node | None = None,
) -> Outcome:
    """Return the outcome that makes ``draft`` serve, with its calls and their cost.

    It is the stand-in if the node that was ``tried`` is given.
    """
    degraded = tried is not None
    how = run.plan(task.node.level, run.fallback if degraded else None)
    revision = plan.revision_of(task, draft, labels, how, now=run.now(), degraded=degraded)
    end = revision.created_at
    started = min((attempt.started_at for attempt in state.ended), default=end)
    revision = replace(
        revision,
        tokens_in=state.spent.tokens_in,
        tokens_out=state.spent.tokens_out,
        calls=state.spent.calls,
        duration_ms=max(0, math.ceil((end - started).total_seconds() * 1000)),
    )
    outcome = plan.serve(task, "degraded" if degraded else "made", revision, tried)
    return replace(outcome, attempts=tuple(state.ended))


def prompts_due(node: Node, count: AttemptCount, run: UpdateRun) -> int:
    """Return how many prompts ``node`` may take now; a requested text may take all."""
    if node.forced or run.is_deterministic:
        return PROMPTS
    return count.prompts_due(run.now(), max_attempts=run.policy.max_attempts)


async def count_attempts(run: UpdateRun, wanted: str) -> AttemptCount:
    """Return the failed attempts at the text for ``wanted``, by any session."""
    if run.is_deterministic:
        return AttemptCount()
    stored = await run.store.records(RETRY, key=wanted)
    return retries.together(retries.from_json(record.body) for record in stored)


async def is_left_alone(run: UpdateRun, node: Node) -> bool:
    """Return whether the stand-in of ``node`` stays, because asking again is not due."""
    if run.is_deterministic or node.status != "active" or not node.degraded:
        return False
    if status.waits(node) or node.forced:
        return False
    inputs = await read_inputs(run, node)
    if inputs is None:
        return False
    wanted = plan.node_hash(node, inputs, run.plan(node.level).strategy)
    count = await count_attempts(run, wanted)
    return not prompts_due(node, count, run) and await run.store.reusable(wanted) is None


async def note_failure(
    run: UpdateRun, task: NodeTask, count: AttemptCount, state: CallState, error: str
) -> AttemptCount:
    """Store what the calls of ``state`` add to ``count``; return the new count."""
    now, before = run.now(), count
    if state.attempts:
        count = count.spend(state.attempts, now=now, error=error)
    if state.unanswered:
        answered = await _has_answered_since(run, count.unanswered)
        count = count.miss(state.unanswered, answered=answered, now=now, error=error)
    if count != before and not run.is_deterministic:
        body = retries.to_json(count, task.node.span)
        await _put(run, RecordWrite(RETRY, run.subject, task.wanted, body))
    return count


async def _has_answered_since(run: UpdateRun, call_id: str) -> bool:
    """Return whether the model answered a call of this session that began after ``call_id``."""
    if not call_id:
        return False
    calls = await run.store.attempts(session_id=run.subject, limit=ALL_ATTEMPTS)
    later = dropwhile(lambda call: call.id != call_id, calls)
    answered = ("ok", "rejected")
    return any(call.outcome in answered and call.model == run.llm.name for call in later)


async def _put(run: UpdateRun, write: RecordWrite) -> None:
    """Write a record, unless content was removed from the session since the run began."""
    epochs = {run.subject: run.record.epoch}
    await retry_store(lambda: run.store.put_records([write], epochs=epochs), sleep=run.sleep)
