"""Runs the join of the chunks' answers to one result: graph, summary, stored records.

The graph needs no model. Only the summary asks one, once, and its answer is stored as a chunk's is,
so that no second run pays for it again. Summaries that exceed a request are shown in an extract. If
the model gives no summary, one is put together without it, so that the chunks' answers are not
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hiermem.calls.answers import Rejected
from hiermem.calls.claim import ClaimLostError
from hiermem.calls.limits import request_tokens
from hiermem.calls.retry import shielded
from hiermem.calls.run import CallState
from hiermem.errors import SpendLimitError, StoreError
from hiermem.extraction import prompt as extract_prompt
from hiermem.extraction.chunk import JOIN, ExtractionRun, ReduceStep, WorkItem, ask_for
from hiermem.extraction.plan import (
    Failure,
    ResultBasis,
    StoredAnswer,
    graph_records,
    join_key,
    replaces,
    write_result,
)
from hiermem.extraction.prompt import judge_joined
from hiermem.protocols import LLMRequest
from hiermem.summaries import salience
from hiermem.summaries.inputs import Count
from hiermem.types.transaction import NO_COST, Cost, RecordWrite
from hiermem.types.trivector import TriVector

#: The kinds of record that hold a session's result, and what it says about each name.
TRIVECTOR: Final = "trivector"
ENTITY: Final = "entity"
#: The most that a summary may be longer than asked for, as a factor.
_HARD_RATIO: Final = 1.5
#: Tokens around each summary in a request to join several.
_FRAME: Final = 8
#: How often storing the result is tried where other runs write at the same time.
_TRIES: Final = 5


@dataclass(kw_only=True, eq=False)
class SummaryReduction:
    """The session's summary in progress, and what it took.

    ``asked`` are the tokens of its request, also if it was answered before. ``unfit``: the model
    answered, but nothing fit; ``capped``: a cap came first. ``key`` names the inputs of its step.
    """

    run: ExtractionRun
    text: str = ""
    spent: Cost = NO_COST
    asked: int = 0
    failure: Failure | None = None
    unfit: bool = False
    capped: bool = False
    degraded: bool = False
    key: str = ""

    @property
    def broken(self) -> bool:
        """Whether the model is not asked any more."""
        return self.capped or self.failure is not None

    async def summarise(self, texts: Sequence[str], *, whole: bool) -> None:
        """Make one summary of the chunks' summaries.

        With ``whole`` no chunk is missing. If the model fails, the failure is recorded, and the
        summary is put together without it: ``degraded``. The same happens if a cap forbids the call
        and a partial result is wanted. Raises SpendLimitError if none is wanted, and what the store
        raises.
        """
        run, count = self.run, self.run.counter.count
        target = run.policy.summary_tokens
        tokens = [await asyncio.to_thread(count, text) for text in texts]
        if len(texts) < 2 or sum(tokens) + len(texts) <= target:
            # They fit as they are: rewriting them gains nothing.
            self.text = "\n".join(texts)
        else:
            shown = await asyncio.to_thread(self._shown, texts, tokens)
            self.text = await self._joined(shown) if shown else ""
            if not self.text:
                self.degraded = True
                self.text = await asyncio.to_thread(_selected, texts, target, count)
        if whole and not self.broken:
            # An incomplete run did not reach a step that is paid for and wanted again; it stays.
            await run.records.keep_only(JOIN, [self.key])

    def _shown(self, texts: Sequence[str], tokens: Sequence[int]) -> list[str]:
        """Return the summaries; if one request has no room for them, one extract of all."""
        run = self.run
        if run.limit is None:
            return list(texts)
        target = run.policy.summary_tokens
        room = extract_prompt.join_room(
            run.join_template,
            limit=run.limit,
            target=target,
            max_tokens=int(target * _HARD_RATIO),
            counter=run.counter,
        )
        if sum(tokens) + _FRAME * len(texts) <= room:
            return list(texts)
        extract = _selected(texts, room - _FRAME, run.counter.count)
        return [extract] if extract else []

    async def _joined(self, texts: Sequence[str]) -> str:
        """Get one summary in place of several; "" if the model gives none."""
        run = self.run
        self.key = join_key(
            texts,
            strategy=run.strategy,
            template=run.join_template,
            target=run.policy.summary_tokens,
        )
        step = ReduceStep(f"{run.subject}:reduce", self.key)
        # A task of the run: where it is cancelled, an answer that came is stored all the same.
        task = run.spawn(self._join(step, texts))
        await asyncio.wait([task])
        try:
            answer = task.result()
        except SpendLimitError:
            if run.policy.on_chunk_failure != "partial":
                raise
            self.capped = True
            return ""
        return answer if isinstance(answer, str) else ""

    async def _join(self, step: ReduceStep, texts: Sequence[str]) -> str | Failure:
        """Get the step's summary: made before, or asked for."""
        run, target = self.run, self.run.policy.summary_tokens

        def build() -> LLMRequest:
            return extract_prompt.join_request(
                run.join_template,
                texts,
                facts=replace(run.facts, summaries=len(texts)),
                counter=run.counter,
                target=target,
                max_tokens=int(target * _HARD_RATIO),
                temperature=run.policy.temperature,
            )

        request = await asyncio.to_thread(build)
        prompt = request_tokens(request.messages, run.counter.count)
        self.asked += prompt
        state: CallState[WorkItem] = CallState(step, sum(map(run.counter.count, texts)))
        if (answer := await run.records.joined(step)) is not None:
            return answer.answer
        try:
            return await self._ask(state, request, prompt)
        except ClaimLostError:
            run.budget.refuse("claim")
        finally:
            self.spent += state.spent

    async def _ask(
        self, state: CallState[WorkItem], request: LLMRequest, prompt: int
    ) -> str | Failure:
        """Ask for a step's summary and commit it, or note the failure; ``prompt`` are its tokens.

        Raises ClaimLostError and SpendLimitError.
        """
        run, most = self.run, self.run.limit
        if most is not None:
            most -= request.max_tokens
        judge = partial(
            judge_joined,
            request,
            input_tokens=state.input_tokens,
            limit=most,
        )
        verdict = await ask_for(run, state, request, judge, most=most, prompt=prompt)
        if isinstance(verdict, Rejected):
            self.unfit = self.unfit or bool(verdict.reason)
            calls, detail = state.spent.calls, verdict.detail
            failure = Failure(state.node.id, "reduce", verdict.cause, calls, detail)
            self.failure, run.halted = failure, True
            await run.fail(failure, state)
            return failure
        stored = StoredAnswer(verdict.value, run.strategy, verdict.model or run.llm.name)
        # Shielded: what is paid for is not lost to a cancellation.
        return (await shielded(run.records.commit(state.node, stored, tuple(state.ended)))).answer


def _selected(texts: Sequence[str], target: int, count: Count) -> str:
    """Choose from the summaries, without a model, what fits the length."""
    pieces = [
        unit
        for part, text in enumerate(texts, start=1)
        for unit in extract_prompt.lines_of(text, part)
    ]
    return salience.select(pieces, target, count).text


async def store_result(run: ExtractionRun, vector: TriVector, basis: ResultBasis) -> bool:
    """Store the result and its entries for each name, all at once; return whether it was stored.

    A stored result of more messages, or a better one of the same messages, stays.
    """
    fresh = graph_records(vector)
    for _ in range(_TRIES):
        before = await run.records.all_of(TRIVECTOR)
        current = before[0] if before else None
        if current is not None and not replaces(basis, current.body):
            return False
        stale = {record.key: record for record in await run.records.all_of(ENTITY)}
        version = current.version if current else 0
        body = write_result(vector, basis)
        writes = [RecordWrite(TRIVECTOR, run.subject, "", body, version)]
        writes += [
            RecordWrite(ENTITY, run.subject, key, body)
            for key, body in fresh.items()
            if key not in stale or stale[key].body != body
        ]
        writes += [
            RecordWrite(ENTITY, run.subject, key, None) for key in stale.keys() - fresh.keys()
        ]
        if await run.records.write(writes):
            return True
    raise StoreError(f"other runs are writing the result of session {run.subject!r}; retry")
