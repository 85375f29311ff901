"""Makes one result of the chunks' answers: the graph, the summary in rounds, the kept records.

The one rule: the graph is the core's and needs no model; only the summary asks one, and each step
of it is leased, asked for and kept as a chunk is, so that no second run pays for it again. What the
chunks cost is not lost to a summary that cannot be had: one is put together without a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core.calls.failures import Cause, cause_of, finish_cause
from hiermem.core.calls.request_limits import request_tokens
from hiermem.core.extraction import prompt as extract_prompt
from hiermem.core.extraction.finish import join_groups
from hiermem.core.extraction.graph import ResultBasis, graph_records, replaces, write_result
from hiermem.core.extraction.plan import Failure, join_key
from hiermem.core.extraction.stored_answer import StoredAnswer, way_of
from hiermem.core.summaries import salience, validate
from hiermem.core.summaries.validate import Problem
from hiermem.engine.calls.retry import ask, end_with
from hiermem.engine.calls.run_context import ClaimLostError, Making
from hiermem.engine.calls.store_retry import finished
from hiermem.engine.extraction.chunk import Shop, made_elsewhere, prompts_key
from hiermem.engine.extraction.records import Piece, Step
from hiermem.errors import ModelError, ModelOverflowError, SpendLimitError, StoreError
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.types.transaction import RecordWrite
from hiermem.types.trivector import TriVector

#: The kinds of record that hold a session's result, and what it says under each name.
TRIVECTOR: Final = "trivector"
ENTITY: Final = "entity"
#: The most that a summary may be longer than was asked for.
_HARD_RATIO: Final = 1.5
#: Tokens around each summary in a request for one of several.
_FRAME: Final = 8
#: How often the result is put beside what another run wrote at the same time.
_TRIES: Final = 5


@dataclass(slots=True)
class Summary:
    """The session's summary in the making, and what it took.

    ``asked`` are the tokens of all its requests, those that were answered before included.
    ``unfit``: the model answered, but with nothing that may be kept; ``capped``: a cap came first.
    """

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

    @property
    def broken(self) -> bool:
        """Say whether the model makes no more of it."""
        return self.capped or self.failure is not None


async def summarise(shop: Shop, summary: Summary, texts: Sequence[str], *, whole: bool) -> None:
    """Make one summary of the chunks', in rounds of neighbours; ``whole``: no chunk is missing.

    Where a step fails, the failure is recorded, and the rest is put together without the model:
    ``degraded``; so it is where a cap forbids a step and a partial result is wanted. Raises
    SpendLimitError where none is, and what the store raises.
    """
    count = shop.counter.count
    target = shop.policy.summary_tokens
    left = list(texts)
    keys: list[str] = []
    while len(left) > 1:
        tokens = [await asyncio.to_thread(count, text) for text in left]
        if sum(tokens) + len(left) <= target:
            # They fit as they are: nothing is gained by having them said again.
            left = ["\n".join(left)]
            break
        groups = join_groups([each + _FRAME for each in tokens], _room(shop))
        summary.rounds += 1
        try:
            left = await _round(shop, summary, left, groups=groups, keys=keys)
        except SpendLimitError:
            if shop.policy.on_chunk_failure != "partial":
                raise
            summary.capped = True
        if summary.broken:
            summary.degraded = True
            left = [await asyncio.to_thread(_selected, shop, left)]
    if whole and not summary.broken:
        # Without it steps were not reached that are paid for and wanted again; they stay.
        await shop.ledger.prune_joined(keys, way=_way(shop), strategy=shop.strategy)
    summary.text = left[0] if left else ""


async def _round(
    shop: Shop,
    summary: Summary,
    texts: Sequence[str],
    *,
    groups: Sequence[tuple[int, int]],
    keys: list[str],
) -> list[str]:
    """Make one summary of each group; where one fails, the texts stay as they were."""
    hands = asyncio.Semaphore(shop.policy.concurrency)

    async def one(place: int, group: Sequence[str]) -> str | Failure:
        if len(group) == 1:
            return group[0]
        key = join_key(
            group,
            strategy=shop.strategy,
            template=shop.templates[prompts_key(join=True)],
            target=shop.policy.summary_tokens,
        )
        keys.append(key)
        async with hands:
            if summary.failure is not None:
                return summary.failure
            step = Step(f"{shop.session_id}:reduce:{summary.rounds}:{place}", key)
            try:
                return await _join(shop, summary, step, group)
            except ClaimLostError:
                # Halted by another step's failure while a third run was asking for this one.
                if summary.failure is None:
                    raise
                return summary.failure

    made = await asyncio.gather(
        *(one(place, texts[start:stop]) for place, (start, stop) in enumerate(groups)),
        return_exceptions=True,
    )
    # All of them first: what one step got is on record before another one's error is told; and a
    # cap, which may be no error, is told last.
    errors = [each for each in made if isinstance(each, BaseException)]
    for error in sorted(errors, key=lambda each: isinstance(each, SpendLimitError)):
        raise error
    said = [each for each in made if isinstance(each, str)]
    return said if len(said) == len(made) else list(texts)


async def _join(shop: Shop, summary: Summary, step: Step, texts: Sequence[str]) -> str | Failure:
    """Get one summary in place of several: made before, being made by another run, or asked for."""
    request = await asyncio.to_thread(_request, shop, texts)
    prompt = request_tokens(request.messages, shop.counter.count)
    summary.asked += prompt
    making: Making[Piece] = Making(step, sum(map(shop.counter.count, texts)))
    found = await shop.ledger.standing(step)
    try:
        while not isinstance(found, StoredAnswer):
            try:
                return await _asked(shop, summary, step, making, request, prompt=prompt)
            except ClaimLostError:
                found = await made_elsewhere(shop, step)
        return found.answer
    finally:
        summary.calls += making.calls
        summary.tokens_in += making.tokens_in
        summary.tokens_out += making.tokens_out


async def _asked(
    shop: Shop,
    summary: Summary,
    step: Step,
    making: Making[Piece],
    request: LLMRequest,
    *,
    prompt: int,
) -> str | Failure:
    """Ask, and once more for each repair that is left. Raises ClaimLostError, SpendLimitError."""
    most, first, count = shop.limit.tokens, request.messages, shop.counter.count
    if most is not None and prompt + request.max_tokens > most:
        too_much = ModelOverflowError("over the limit, not sent", charged=False)
        return await _failed(shop, summary, making, cause_of(too_much))
    for repairs_left in range(shop.policy.repairs, -1, -1):
        try:
            response = await ask(shop, making, request)
        except ModelError as error:
            return await _failed(shop, summary, making, cause_of(error))
        cause = finish_cause(response)
        wrong = () if cause else _wrong_with(response, request, making.input_tokens)
        if cause is None and not wrong:
            kept = StoredAnswer(
                response.text.strip(), shop.strategy, response.model or shop.llm.name,
                making.calls, making.tokens_in, making.tokens_out, (_way(shop),),
            )  # fmt: skip
            # Shielded: what is paid for is not lost to a cancellation.
            return (await finished(shop.ledger.commit(step, kept, tuple(making.ended)))).answer
        cause = cause or ("provider", ",".join(each.kind for each in wrong))
        end_with(making, cause[1])
        if not wrong or not repairs_left:
            summary.unfit = True
            return await _failed(shop, summary, making, cause)
        room = prompt + extract_prompt.REPAIR_ROOM if most is None else most - request.max_tokens
        asked = extract_prompt.repair_join(first, wrong, count=count, limit=room)
        request = replace(request, messages=asked)
    raise AssertionError("the last try returns")


async def _failed(
    shop: Shop, summary: Summary, making: Making[Piece], cause: tuple[Cause, str]
) -> Failure:
    """Record the failure in the run, then let go of the claim; no other step is begun."""
    failure = Failure(making.node.id, "reduce", cause[0], making.calls, cause[1])
    summary.failure, shop.halted = failure, True
    await shop.ledger.fail(failure)
    await shop.ledger.give_up(making.node, tuple(making.ended))
    return failure


def _way(shop: Shop) -> str:
    return way_of(shop.room, oversized=shop.policy.oversized, summary=shop.policy.summary_tokens)


def _request(shop: Shop, texts: Sequence[str]) -> LLMRequest:
    record, target = shop.record, shop.policy.summary_tokens
    request = extract_prompt.join_request(
        shop.templates[prompts_key(join=True)],
        texts,
        facts=shop.facts(
            first_at=record.created_at,
            last_at=record.created_at,
            messages=record.messages,
            of=len(texts),
        ),
        counter=shop.counter,
        target=target,
        max_tokens=int(target * _HARD_RATIO),
    )
    return replace(request, temperature=shop.policy.temperature)


def _wrong_with(response: LLMResponse, request: LLMRequest, tokens: int) -> tuple[Problem, ...]:
    """Give what is hard wrong with a summary of summaries; () where it is fit."""
    problems = validate.check(response, request=request, input_tokens=tokens)
    return tuple(problem for problem in problems if problem.hard)


def _room(shop: Shop) -> int:
    """Give the tokens of summaries that one step may take; without a limit, all of them."""
    if shop.limit.tokens is None:
        return 1 << 40
    return extract_prompt.join_room(
        shop.templates[prompts_key(join=True)],
        limit=shop.limit.tokens,
        target=shop.policy.summary_tokens,
        max_tokens=int(shop.policy.summary_tokens * _HARD_RATIO),
        counter=shop.counter,
    )


def _selected(shop: Shop, texts: Sequence[str]) -> str:
    """Choose from the summaries, without a model, what fits the length."""
    pieces = [
        unit
        for part, text in enumerate(texts, start=1)
        for unit in extract_prompt.lines_of(text, part)
    ]
    return salience.select(pieces, shop.policy.summary_tokens, shop.counter.count).text


async def keep(shop: Shop, vector: TriVector, basis: ResultBasis) -> bool:
    """Put the result on record, with what it says under each name, all at once; say whether.

    Where a result of more messages stands, or a better one of the same, that one stays.
    """
    fresh = graph_records(vector)
    for _ in range(_TRIES):
        before = await shop.ledger.results(TRIVECTOR)
        standing = before[0] if before else None
        if standing is not None and not replaces(basis, standing.body):
            return False
        stale = {record.key: record for record in await shop.ledger.results(ENTITY)}
        writes = [
            RecordWrite(
                TRIVECTOR,
                shop.session_id,
                "",
                write_result(vector, basis),
                standing.version if standing else 0,
            )
        ]
        writes += [
            RecordWrite(ENTITY, shop.session_id, key, body)
            for key, body in fresh.items()
            if key not in stale or stale[key].body != body
        ]
        writes += [
            RecordWrite(ENTITY, shop.session_id, key, None) for key in stale.keys() - fresh.keys()
        ]
        if await shop.ledger.write(writes):
            return True
    raise StoreError(f"session {shop.session_id!r}: its result is being written by other runs")
