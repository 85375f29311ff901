"""Runs the making of one node: reads its inputs, finds or asks for its text.

Nothing is committed and no transaction is open meanwhile; ``rounds`` commits the Outcome. An answer
with a hard problem never gets into one. ``plan`` decides.

The attempts that failed for a text are counted in a record of the session, by the input hash. So
the count goes with the session and its messages, and every session of the tenant finds it.
``assess`` decides when to ask again.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from typing import Final

from hiermem.calls.answers import Rejected
from hiermem.calls.budget import ALL_ATTEMPTS
from hiermem.calls.call import ask_until_fit
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.failures import shown
from hiermem.calls.retry import retry_store
from hiermem.calls.run import CallState
from hiermem.errors import ModelError, SpendLimitError
from hiermem.prompts.template import Length
from hiermem.protocols import ChatMessage, LLMRequest, TokenCounter
from hiermem.summaries import assess as retries
from hiermem.summaries import inputs as labelling
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
from hiermem.summaries.inputs import Inputs, Labels, fitted
from hiermem.summaries.plan import Failure, NodeTask, Outcome
from hiermem.summaries.run import UpdateRun, read_inputs
from hiermem.tree import status
from hiermem.types import Node, Revision
from hiermem.types.transaction import RecordWrite

#: More counts than a session has.
_ALL: Final = 1_000_000


class UnfitError(Exception):
    """No answer of this run passed the checks, after ``attempts`` tries."""

    def __init__(self, kind: Failure, error: str, *, attempts: int = 0) -> None:
        super().__init__(error)
        self.kind: Failure = kind
        self.error = error
        self.attempts = attempts


async def make(run: UpdateRun, node: Node, until_stored: AsyncExitStack) -> Outcome:
    """Make the text of ``node``, or return why there is none. Commits nothing.

    ``until_stored`` is closed when the outcome is committed: until then no other run makes a text
    of the same inputs. Raises the store's errors.
    """
    inputs = await read_inputs(run, node)
    if inputs is None:
        return Outcome("moved", node)
    wanted = [(node.id, node.revision)] if node.revision else []
    serving = next(iter(await run.tree.revisions(wanted)), None) if wanted else None
    follow = run.plan(node.level).strategies if run.policy.follow_strategy else ()
    below = await run.tree.nodes(node.children) if node.dirty and node.children else []
    task = NodeTask(
        node,
        inputs,
        serving,
        clean=serving is not None and plan.is_clean(node, inputs, serving, follow=follow),
        flagged=any(map(status.is_flagged, below)),
    )
    if plan.is_right(task):
        return plan.clean(task)
    if node.verbatim or inputs.empty:
        return _serve(run, task, "made", await run.compute(copied, run, node, inputs))
    return await _Asking(run, task).outcome(until_stored)


def copied(run: UpdateRun, node: Node, inputs: Inputs) -> Revision:
    """Return the revision that copies a node's inputs word for word."""
    how = run.plan(node.level)
    return plan.copy(node, inputs, how, count=run.counter.count, now=run.now())


def _serve(
    run: UpdateRun,
    task: NodeTask,
    kind: plan.OutcomeKind,
    revision: Revision,
    generating: Node | None = None,
) -> Outcome:
    overlap = run.config.overlap
    return plan.serve(task, kind, revision, overlap=overlap, generating=generating)


class _Asking:
    """The search for the text of one node: its calls, and the count of attempts at it."""

    def __init__(self, run: UpdateRun, task: NodeTask) -> None:
        self._run, self._task, self._node = run, task, task.node
        self._state = CallState(self._node, task.inputs.tokens)
        self._wanted = plan.node_hash(self._node, task.inputs, run.plan(self._node.level).strategy)
        self._length = plan.lengths(self._node, task.inputs.tokens, run.config)

    async def outcome(self, until_stored: AsyncExitStack) -> Outcome:
        """Reuse a text made from the same inputs, or ask the model if that is due.

        A node for which a new text was requested reuses none.
        """
        run, task, node = self._run, self._task, self._node
        await run.make_alone(self._wanted, until_stored)
        if not node.forced:
            earlier = await run.store.reusable(self._wanted)
            if earlier is not None and plan.may_reuse(earlier, self._length):
                return _serve(run, task, "reused", plan.moved_here(task, earlier, now=run.now()))
        count = await count_attempts(run, self._wanted)
        if prompts := prompts_due(node, count, run):
            return await self._made(prompts, count, until_stored)
        if node.status == "active" and plan.is_stand_in_of(task.serving, node.level, task.inputs):
            return plan.clean(task)
        return await self._go_without(UnfitError("rejected", count.error), count)

    async def _made(
        self, prompts: int, count: AttemptCount, until_stored: AsyncExitStack
    ) -> Outcome:
        """Ask the model for the text; count the attempts if no answer passes."""
        run, state = self._run, self._state
        labels = self._labels()
        try:
            await run.make_room(until_stored)
            draft = await self._draft(prompts)
        except (SpendLimitError, ClaimLostError) as error:
            await note_failure(run, self._wanted, count, state, count.error)
            if isinstance(error, SpendLimitError):
                await run.journal.write(state.ended)
                return Outcome("refused", self._node)
            return Outcome("moved", self._node, attempts=tuple(state.ended))
        except UnfitError as unfit:
            count = await note_failure(run, self._wanted, count, state, unfit.error)
            return await self._go_without(unfit, count, labels)
        await forget_failures(run, self._wanted, count)
        return self._served("made", draft, await labels)

    async def _go_without(
        self,
        unfit: UnfitError,
        count: AttemptCount,
        labels: asyncio.Task[Labels] | None = None,
    ) -> Outcome:
        """Keep the node's stand-in, make one, or leave the node failed, depending on its attempts.

        For a requested text only the attempts of this run count.
        """
        run, task, node = self._run, self._task, self._node
        generating = replace(task.generating, error=unfit.error, attempts=count.count)
        tries = unfit.attempts if node.forced else count.count
        is_due = plan.stand_in_is_due(unfit.kind, attempts=tries, policy=run.policy)
        outcome = plan.go_without(task, generating, unfit.error, stand_in_is_due=is_due)
        if outcome is None:
            request, standard = self._request(task.inputs, self._length)
            response = await run.fallback.complete(request)
            draft = await asyncio.to_thread(assess, request, standard, response)
            if draft.fit:
                return self._served("degraded", draft, await (labels or self._labels()), generating)
            outcome = plan.failed(node, generating, unfit.error)
        return replace(outcome, attempts=tuple(self._state.ended))

    def _labels(self) -> asyncio.Task[Labels]:
        """Begin to label the text, which is done while the model answers."""
        run, inputs = self._run, self._task.inputs
        labels = run.compute(labelling.of_inputs, inputs, tokens=self._node.input_tokens)
        return run.spawn(labels)

    def _served(
        self,
        kind: plan.OutcomeKind,
        draft: Draft,
        labels: Labels,
        generating: Node | None = None,
    ) -> Outcome:
        """Return the outcome that makes ``draft`` serve, with its calls and their cost."""
        run, state, degraded = self._run, self._state, kind == "degraded"
        how = run.plan(self._node.level, run.fallback if degraded else None)
        revision = plan.revision_of(
            self._task, draft, labels, how, self._length, now=run.now(), degraded=degraded
        )
        end = revision.created_at
        started = min((attempt.started_at for attempt in state.ended), default=end)
        revision = replace(
            revision,
            tokens_in=state.spent.tokens_in,
            tokens_out=state.spent.tokens_out,
            calls=state.spent.calls,
            duration_ms=max(0, math.ceil((end - started).total_seconds() * 1000)),
        )
        outcome = _serve(run, self._task, kind, revision, generating)
        return replace(outcome, attempts=tuple(state.ended))

    async def _draft(self, prompts: int) -> Draft:
        """Ask at most ``prompts`` times, the second time with the problems named.

        Inputs that exceed a request become excerpts. Raises UnfitError if no answer passes,
        SpendLimitError and ClaimLostError.
        """
        run, state, inputs, length = self._run, self._state, self._task.inputs, self._length
        room = run.room(self._node.level, inputs=inputs.tokens, answer=length.limit)
        if room is not None:
            fit = partial(fitted, inputs, room, count=run.counter.count)
            inputs = await run.compute(fit, tokens=state.input_tokens)
            length = plan.shortened(length, shown=inputs.tokens, of=state.input_tokens)
        request, standard = self._request(inputs, length, ask=True)
        first = partial(judge, request, standard, tried=1 + PROMPTS - prompts)
        try:
            verdict = await ask_until_fit(run, state, request, first)
        except ModelError as error:
            # The original error's text may hold the prompt, or a key.
            permanent = error.kind in ("permanent", "overflow", "refused")
            raise UnfitError(
                "permanent" if permanent else "transient",
                shown(error),
                attempts=state.attempts,
            ) from None
        if isinstance(verdict, Rejected):
            raise UnfitError("rejected", verdict.detail, attempts=state.attempts)
        return verdict.value

    def _request(
        self, inputs: Inputs, length: Length, *, ask: bool = False
    ) -> tuple[LLMRequest, Standard]:
        """Return the request, and the standard for its answers.

        The stand-in reads only the inputs, so no prompt is rendered unless a model is to ``ask``.
        """
        run, node = self._run, self._node
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
    """Return whether the stand-in of ``node`` stays, because asking again is not due.

    The session's own counts are read once. A node's inputs are read only if no count is about it.
    """
    if run.is_deterministic or node.status != "active" or not node.degraded:
        return False
    if status.waits(node) or node.forced:
        return False
    wanted = await _present_hash(run, node)
    if wanted is None:
        return False
    count = await count_attempts(run, wanted)
    return not prompts_due(node, count, run) and await run.store.reusable(wanted) is None


async def note_failure(
    run: UpdateRun, wanted: str, count: AttemptCount, state: CallState, error: str
) -> AttemptCount:
    """Store what the calls of ``state`` add to ``count``; return the new count."""
    now, before = run.now(), count
    if state.attempts:
        count = count.spend(state.attempts, now=now, error=error)
    if state.unanswered:
        answered = await _has_answered_since(run, count.unanswered)
        count = count.miss(state.unanswered, answered=answered, now=now, error=error)
    if count != before and not run.is_deterministic:
        await _write(run, [(wanted, count, state.node)])
    return count


async def forget_failures(run: UpdateRun, wanted: str, count: AttemptCount) -> AttemptCount:
    """Delete the session's count for a text that was made; return the empty count."""
    if count != AttemptCount():
        await _put(run, [RecordWrite(RETRY, run.session_id, wanted, None)])
    return AttemptCount()


async def _present_hash(run: UpdateRun, node: Node) -> str | None:
    """Return the present input hash of a node whose inputs did not change; None without inputs."""
    if run.own_counts is None:
        run.own_counts = {}
        for record in await run.store.records(RETRY, scope=run.session_id, limit=_ALL):
            run.own_counts.setdefault(retries.node_of(record.body), []).append(record)
    strategy = run.plan(node.level).strategy
    for record in run.own_counts.get(node.id, ()):
        if retries.is_about(record.body, node, strategy=strategy):
            return record.key
    inputs = await read_inputs(run, node)
    return None if inputs is None else plan.node_hash(node, inputs, strategy)


async def _has_answered_since(run: UpdateRun, call_id: str) -> bool:
    """Return whether the model answered a call of this session that began after ``call_id``."""
    if not call_id:
        return False
    calls = await run.store.attempts(session_id=run.session_id, limit=ALL_ATTEMPTS)
    later = dropwhile(lambda call: call.id != call_id, calls)
    answered = ("ok", "rejected")
    return any(call.outcome in answered and call.model == run.llm.name for call in later)


async def _write(run: UpdateRun, counts: list[tuple[str, AttemptCount, Node]]) -> None:
    await _put(
        run,
        [
            RecordWrite(
                RETRY,
                run.session_id,
                wanted,
                retries.to_json(count, node, strategy=run.plan(node.level).strategy),
            )
            for wanted, count, node in counts
        ],
    )


async def _put(run: UpdateRun, writes: list[RecordWrite]) -> None:
    """Write the records, unless content was removed from the session since the run began."""
    epochs = {run.session_id: run.record.epoch}
    await retry_store(lambda: run.store.put_records(writes, epochs=epochs), sleep=run.sleep)
