"""Runs the decision of one node, and answers its requests from the store and the models.

``summaries.making`` decides everything. Here the store is read, the models are asked, and an
in-flight equal text is awaited. Nothing is committed and no transaction is open meanwhile;
``NodeCommits`` takes the Outcome. An answer with a hard problem never gets into one.

The attempts that failed for a text are counted in a record of the session, by the input hash. So
the count goes with the session and its messages, and every session of the tenant finds it.
``assess`` decides when to ask again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from typing import Any, Final

from hiermem.calls.answers import Rejected
from hiermem.calls.ask import ask_until_fit
from hiermem.calls.budget import ALL_ATTEMPTS
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.failures import shown
from hiermem.calls.retry import retry_store
from hiermem.calls.run import CallState
from hiermem.errors import ModelError, PermanentModelError, SpendLimitError
from hiermem.handle import PendingText
from hiermem.protocols import ChatMessage, LLMRequest, TokenCounter
from hiermem.summaries import assess as retries
from hiermem.summaries import making, plan
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
from hiermem.summaries.inputs import fitted
from hiermem.summaries.making import (
    Ask,
    LookUp,
    NoteAttempts,
    Outcome,
    ReadInputs,
    Request,
    UnfitError,
    prompts_due,
)
from hiermem.summaries.run import UpdateRun, read_inputs
from hiermem.tree.status import waits
from hiermem.types import Node, Revision
from hiermem.types.transaction import NeedNodes, NeedRevisions, RecordWrite

#: More counts than a session has.
_ALL: Final = 1_000_000


async def make(run: UpdateRun, node: Node) -> Outcome:
    """Make the text of ``node``, or return why there is none. Commits nothing.

    Raises the store's errors.
    """
    task = _NodeTask(run, node)
    outcome: Outcome | None = None
    try:
        outcome = await task.run()
        return outcome
    finally:
        task.end_wait(outcome)


class _NodeTask:
    """One node in progress: its calls, and the text that other runs may await."""

    def __init__(self, run: UpdateRun, node: Node) -> None:
        self._run, self._node = run, node
        self._state = CallState(node, 0)
        self._wanted = ""
        self._pending: PendingText | None = None
        self._reused: Revision | None = None

    async def run(self) -> Outcome:
        """Drive the decision to its outcome."""
        decision = making.make(self._node, self._run)
        reply: Any = None
        error: Exception | None = None
        while True:
            try:
                request = decision.send(reply) if error is None else decision.throw(error)
            except StopIteration as done:
                return await self._completed(done.value)
            reply, error = None, None
            try:
                reply = await self._answer(request)
            except (UnfitError, SpendLimitError, ClaimLostError) as failure:
                error = failure

    async def _answer(self, request: Request | tuple[Request, ...]) -> Any:
        run = self._run
        reply: Any
        match request:
            case (first, *others):
                tasks = [run.spawn(self._answer(other)) for other in others]
                reply = (await self._answer(first), *[await task for task in tasks])
            case ReadInputs(node):
                reply = await read_inputs(run, node)
            case NeedRevisions(wanted):
                reply = await run.tree.revisions(wanted)
            case NeedNodes(ids):
                reply = await run.tree.nodes(ids)
            case LookUp(wanted, fits):
                reply = await self._look_up(wanted, fits)
            case Ask(prompts=0):
                reply = await self._extract(request)
            case Ask():
                reply = await self._ask(request)
            case NoteAttempts(wanted, count, None):
                reply = await forget_failures(run, wanted, count)
            case NoteAttempts(wanted, count, str(error)):
                reply = await note_failure(run, wanted, count, self._state, error)
            case _:
                assert callable(request)
                reply = await run.compute(request, tokens=self._node.input_tokens)
        return reply

    async def _look_up(
        self, wanted: str, fits: Callable[[Revision], bool] | None
    ) -> Revision | AttemptCount:
        """Return a cached or in-flight text that fits; else the count of attempts."""
        run = self._run
        if fits is None:
            return await count_attempts(run, wanted)
        unfit: PendingText | None = None
        while (others := run.awaited_text(wanted)) is not None and others is not unfit:
            with run.mark_waiting():
                await asyncio.wait([others], timeout=run.budget.time_left())
            shared_text = others.result() if others.done() else None
            if shared_text is not None and fits(shared_text):
                return shared_text
            unfit = others
        # Begun before the store is read; otherwise two runs that find nothing would both ask the
        # model.
        self._wanted, self._pending = wanted, run.begin_text(wanted)
        before = await run.store.reusable(wanted)
        if before is not None and fits(before):
            self._reused = before
            return before
        return await count_attempts(run, wanted)

    def end_wait(self, outcome: Outcome | None) -> None:
        """Resolve the text for the runs that await it."""
        if self._pending is None:
            return
        is_made = outcome is not None and outcome.kind == "made"
        self._pending.set_result(outcome.revision if outcome and is_made else self._reused)
        if not is_made and self._run.pending_texts.get(self._wanted) is self._pending:
            self._run.drop_text(self._wanted)

    async def _completed(self, outcome: Outcome) -> Outcome:
        """Return the outcome with its calls and their cost."""
        state, revision = self._state, outcome.revision
        if outcome.kind == "refused":
            await self._run.journal.write(state.ended)
            return outcome
        if revision is not None:
            end = revision.created_at
            started = min((attempt.started_at for attempt in state.ended), default=end)
            revision = replace(
                revision,
                tokens_in=state.spent.tokens_in,
                tokens_out=state.spent.tokens_out,
                calls=state.spent.calls,
                duration_ms=max(0, math.ceil((end - started).total_seconds() * 1000)),
            )
        return replace(outcome, revision=revision, attempts=tuple(state.ended))

    async def _ask(self, ask: Ask) -> Draft:
        """Return a draft of the model that passed; inputs that exceed a request become excerpts.

        Raises UnfitError if no answer passes, SpendLimitError and ClaimLostError.
        """
        run, whole = self._run, ask.inputs.tokens
        self._state.input_tokens = whole
        room = run.room(self._node.level, inputs=whole, answer=ask.length.limit)
        if room is not None:
            fit = partial(fitted, ask.inputs, room, count=run.counter.count)
            shown = await run.compute(fit, tokens=whole)
            length = plan.shortened(ask.length, shown=shown.tokens, of=whole)
            ask = replace(ask, inputs=shown, length=length)
        return await self._draft(ask)

    async def _draft(self, ask: Ask) -> Draft:
        """Ask once, and once more with the problems named if due; return the better draft.

        Raises UnfitError if neither answer passes, SpendLimitError and ClaimLostError.
        """
        request, standard = self._request(ask)
        first = partial(judge, request, standard, tried=1 + PROMPTS - ask.prompts)
        try:
            verdict = await ask_until_fit(self._run, self._state, request, first)
        except ModelError as error:
            # The original error's text may hold the prompt, or a key.
            permanent = isinstance(error, PermanentModelError)
            raise UnfitError(
                "permanent" if permanent else "transient",
                shown(error, kind=error.kind),
                attempts=self._state.attempts,
            ) from None
        if isinstance(verdict, Rejected):
            raise UnfitError("rejected", verdict.detail, attempts=self._state.attempts)
        return verdict.value

    async def _extract(self, ask: Ask) -> Draft:
        """Extract the stand-in from the inputs; it may fail the checks too."""
        request, standard = self._request(ask)
        response = await self._run.fallback.complete(request)
        return await asyncio.to_thread(assess, request, standard, response)

    def _request(self, ask: Ask) -> tuple[LLMRequest, Standard]:
        """Return the request, and the standard for its answers.

        The stand-in reads only the inputs, so no prompt is rendered for it.
        """
        run, node, inputs = self._run, self._node, ask.inputs
        level_plan, length = run.plan(node.level), ask.length
        messages: tuple[ChatMessage, ...] = ()
        counter: TokenCounter = run.extract_counter
        if ask.prompts and not run.is_deterministic:
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
            style=level_plan.style,
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
    if waits(node) or node.forced:
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
