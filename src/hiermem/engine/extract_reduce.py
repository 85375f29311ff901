"""Makes one result of the chunks' answers: the graph, the summary in rounds, the kept records.

The one rule: the graph is the core's and needs no model; only the summary asks one, and each step
of it is on record as soon as it is made, so that a second run makes no call for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core import extract_prompt, salience, validate
from hiermem.core.extract_kept import Kept, way_of
from hiermem.core.extract_plan import Cause, Failure, cause_of, finish_cause, join_key
from hiermem.core.finish import join_groups
from hiermem.core.graph import MadeOf, graph_records, replaces, write_kept_vector
from hiermem.engine.ask import Making, ask, end_with
from hiermem.engine.extract_books import Piece, Step
from hiermem.engine.extract_map import Shop, prompts_key
from hiermem.errors import ModelError, ModelOverflowError, StoreError
from hiermem.protocols import LLMRequest, LLMResponse, RecordWrite
from hiermem.trivector import TriVector

__all__ = ["ENTITY", "TRIVECTOR", "Summary", "keep", "summarise"]

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
    """The session's summary in the making, and what it took."""

    text: str = ""
    rounds: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    failure: Failure | None = None
    degraded: bool = False


async def summarise(shop: Shop, texts: Sequence[str], *, whole: bool) -> Summary:
    """Make one summary of the chunks', in rounds of neighbours; ``whole``: no chunk is missing.

    Where a step fails, the failure is recorded, and the rest is put together without the model:
    ``degraded``. Raises SpendLimitError and what the store raises.
    """
    summary = Summary()
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
        if summary.failure is None:
            left = await _round(shop, summary, left, groups=groups, keys=keys)
        if summary.failure is not None:
            summary.degraded = True
            left = [await asyncio.to_thread(_selected, shop, left)]
    if whole and summary.failure is None:
        # Without it steps were not reached that are paid for and wanted again; they stay.
        await shop.ledger.prune_joined(keys, way=_way(shop), strategy=shop.strategy)
    summary.text = left[0] if left else ""
    return summary


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
        async with hands:
            if summary.failure is not None:
                return summary.failure
            step = Step(f"{shop.session_id}:reduce:{summary.rounds}:{place}")
            return await _join(shop, summary, step, group, keys=keys)

    made = await asyncio.gather(
        *(one(place, texts[start:stop]) for place, (start, stop) in enumerate(groups)),
        return_exceptions=True,
    )
    for each in made:
        # All of them first: what one step got is on record before another one's error is told.
        if isinstance(each, BaseException):
            raise each
    said = [each for each in made if isinstance(each, str)]
    return said if len(said) == len(made) else list(texts)


async def _join(
    shop: Shop, summary: Summary, step: Step, texts: Sequence[str], *, keys: list[str]
) -> str | Failure:
    """Get one summary in place of several: as it is, made before, or asked for."""
    if len(texts) == 1:
        return texts[0]
    key = join_key(
        texts,
        strategy=shop.strategy,
        template=shop.templates[prompts_key(join=True)],
        target=shop.policy.summary_tokens,
    )
    keys.append(key)
    before = await shop.ledger.joined(key)
    if before is not None:
        return before.answer
    making: Making[Piece] = Making(step, sum(map(shop.counter.count, texts)))
    request = _request(shop, texts)
    most = shop.limit.tokens
    prompt = extract_prompt.request_tokens(request.messages, shop.counter.count)
    try:
        if most is not None and prompt + request.max_tokens > most:
            raise ModelOverflowError("over the limit, not sent", charged=False)
        response = await ask(shop, making, request)
    except ModelError as error:
        cause = cause_of(error)
    else:
        found = finish_cause(response) or _wrong_with(response, request, making.input_tokens)
        if found is None:
            kept = Kept(
                response.text.strip(), shop.strategy, response.model or shop.llm.name,
                making.calls, making.tokens_in, making.tokens_out, (_way(shop),),
            )  # fmt: skip
            await shop.ledger.keep_joined(key, kept, tuple(making.ended))
            _count(summary, making)
            return kept.answer
        cause = found
        end_with(making, cause[1])
    _count(summary, making)
    summary.failure = Failure(step.id, "reduce", cause[0], making.calls, cause[1])
    await shop.ledger.fail(summary.failure)
    await shop.ledger.give_up(step, tuple(making.ended))
    return summary.failure


def _way(shop: Shop) -> str:
    return way_of(shop.room, oversized=shop.policy.oversized, summary=shop.policy.summary_tokens)


def _count(summary: Summary, making: Making[Piece]) -> None:
    summary.calls += making.calls
    summary.tokens_in += making.tokens_in
    summary.tokens_out += making.tokens_out


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


def _wrong_with(
    response: LLMResponse, request: LLMRequest, tokens: int
) -> tuple[Cause, str] | None:
    """Say what is hard wrong with a summary of summaries, as a cause; None where it is fit."""
    problems = validate.check(response, request=request, input_tokens=tokens)
    hard = [problem.kind for problem in problems if problem.hard]
    return ("provider", ",".join(hard)) if hard else None


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


async def keep(shop: Shop, vector: TriVector, made_of: MadeOf) -> bool:
    """Put the result on record, with what it says under each name, all at once; say whether.

    Where a result of more messages stands, or a better one of the same, that one stays.
    """
    fresh = graph_records(vector)
    for _ in range(_TRIES):
        before = await shop.ledger.results(TRIVECTOR)
        standing = before[0] if before else None
        if standing is not None and not replaces(made_of, standing.body):
            return False
        stale = {record.key: record for record in await shop.ledger.results(ENTITY)}
        writes = [
            RecordWrite(
                TRIVECTOR,
                shop.session_id,
                "",
                write_kept_vector(vector, made_of),
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
