"""Makes one result of the chunks' answers: the graph, the summary in rounds, the stored records.

The graph needs no model. Only the summary asks one, and each of its steps is asked for and
stored as a chunk is, so that no second run pays for it again. Where the model gives no summary, one
is put together without it, so that the chunks' answers are not lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from hiermem.core.calls.claim import ClaimLostError
from hiermem.core.calls.request_limits import request_tokens
from hiermem.core.calls.verdict import Rejected
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.finish import join_groups
from hiermem.core.extraction.graph import ResultBasis, graph_records, replaces, write_result
from hiermem.core.extraction.judge import judge_joined
from hiermem.core.extraction.plan import Failure, join_key
from hiermem.core.extraction.stored_answer import StoredAnswer
from hiermem.core.summaries import salience
from hiermem.core.summaries.inputs import Count
from hiermem.engine.calls.run import CallState
from hiermem.engine.calls.store_retry import shielded
from hiermem.engine.extraction.chunk import ExtractionRun, ask_for
from hiermem.engine.extraction.records import JOIN, ReduceStep, WorkItem
from hiermem.errors import SpendLimitError, StoreError
from hiermem.protocols import LLMRequest
from hiermem.types.transaction import RecordWrite
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

    ``asked`` are the tokens of all its requests, including those answered before. ``unfit``: the
    model answered, but nothing fit; ``capped``: a cap came first. ``keys`` name the inputs of its
    steps.
    """

    run: ExtractionRun
    text: str = ""
    rounds: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    asked: int = 0
    failure: Failure | None = None
    unfit: bool = False
    capped: bool = False
    degraded: bool = False
    keys: list[str] = field(default_factory=list[str])

    @property
    def broken(self) -> bool:
        """Whether the model is not asked any more."""
        return self.capped or self.failure is not None

    async def summarise(self, texts: Sequence[str], *, whole: bool) -> None:
        """Make one summary of the chunks' summaries, in rounds of neighbours.

        With ``whole`` no chunk is missing. Where a step fails, the failure is recorded, and the
        rest is put together without the model: ``degraded``. The same happens where a cap forbids a
        step and a partial result is wanted. Raises SpendLimitError where none is wanted, and what
        the store raises.
        """
        run, count = self.run, self.run.counter.count
        target, left = run.policy.summary_tokens, list(texts)
        #: The tokens of summaries that one step may take; without a limit, all of them.
        room = 1 << 40
        if run.limit is not None and len(left) > 1:
            room = extract_prompt.join_room(
                run.join_template,
                limit=run.limit,
                target=target,
                max_tokens=int(target * _HARD_RATIO),
                counter=run.counter,
            )
        while len(left) > 1:
            tokens = [await asyncio.to_thread(count, text) for text in left]
            if sum(tokens) + len(left) <= target:
                # They fit as they are: rewriting them gains nothing.
                left = ["\n".join(left)]
                break
            self.rounds += 1
            try:
                left = await self._round(
                    left, join_groups([each + _FRAME for each in tokens], room)
                )
            except SpendLimitError:
                if run.policy.on_chunk_failure != "partial":
                    raise
                self.capped = True
            if self.broken:
                self.degraded = True
                left = [await asyncio.to_thread(_selected, left, target, count)]
        if whole and not self.broken:
            # An incomplete run did not reach steps that are paid for and wanted again; they stay.
            await run.records.keep_only(JOIN, self.keys)
        self.text = left[0] if left else ""

    async def _round(self, texts: Sequence[str], groups: Sequence[tuple[int, int]]) -> list[str]:
        """Make one summary of each group; where one fails, the texts stay as they were."""
        run = self.run
        slots = asyncio.Semaphore(run.concurrency)

        async def one(index: int, group: Sequence[str]) -> str | Failure:
            if len(group) == 1:
                return group[0]
            key = join_key(
                group,
                strategy=run.strategy,
                template=run.join_template,
                target=run.policy.summary_tokens,
            )
            self.keys.append(key)
            async with slots:
                if self.failure is not None:
                    return self.failure
                step = ReduceStep(f"{run.subject}:reduce:{self.rounds}:{index}", key)
                return await self._join(step, group)

        # Tasks of the run: where it is cancelled, a step that has its answer still stores it.
        tasks = [run.spawn(one(n, texts[start:stop])) for n, (start, stop) in enumerate(groups)]
        await asyncio.wait(tasks)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        # All steps finish first: the result of one is on record before another one's error is
        # raised. A cap, which may be no error, is raised last.
        errors = [each for each in results if isinstance(each, BaseException)]
        for error in sorted(errors, key=lambda each: isinstance(each, SpendLimitError)):
            raise error
        texts_ = [each for each in results if isinstance(each, str)]
        return texts_ if len(texts_) == len(results) else list(texts)

    async def _join(self, step: ReduceStep, texts: Sequence[str]) -> str | Failure:
        """Get one summary in place of several: made before, or asked for."""
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
        if (found := await run.records.joined(step)) is not None:
            return found.answer
        try:
            return await self._ask(state, request, prompt)
        except ClaimLostError:
            run.budget.refuse("claim")
        finally:
            self.calls += state.calls
            self.tokens_in += state.tokens_in
            self.tokens_out += state.tokens_out

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
            repairs=run.policy.repairs,
            limit=most,
        )
        verdict = await ask_for(run, state, request, judge, most=most, prompt=prompt)
        if isinstance(verdict, Rejected):
            self.unfit = self.unfit or bool(verdict.reason)
            failure = Failure(state.node.id, "reduce", verdict.cause, state.calls, verdict.detail)
            # No other step begins.
            self.failure, run.halted = failure, True
            await run.fail(failure, state)
            return failure
        stored = StoredAnswer(
            verdict.value, run.strategy, verdict.model or run.llm.name,
            state.calls, state.tokens_in, state.tokens_out,
        )  # fmt: skip
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
    raise StoreError(f"session {run.subject!r}: its result is being written by other runs")
