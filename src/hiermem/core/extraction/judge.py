"""Decides what follows from a model's answer to a chunk, and to a request to join summaries.

An answer that cannot be used is asked for again, with the reason, while repairs are left. One that
hit its length limit is not: the missing part was not written. Items that were copied from the
prompt are dropped.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hiermem.core.calls.bounded_json import ParsedAnswer, parse
from hiermem.core.calls.failures import cause_of, finish_cause
from hiermem.core.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.core.extraction import prompt
from hiermem.core.summaries import validate
from hiermem.core.summaries.assess import MOST_ANCHORS, is_extract, source_of
from hiermem.core.summaries.copied import is_copied, is_copied_example, is_mostly_copied
from hiermem.core.summaries.repair import repair
from hiermem.errors import InvalidAnswerError
from hiermem.protocols import LLMRequest, LLMResponse


def judge_chunk(
    request: LLMRequest, response: LLMResponse, *, repairs: int, limit: int | None
) -> Verdict[ParsedAnswer]:
    """Read the answer to a chunk. ``request`` is the first one, without a repair.

    ``repairs`` are left; ``limit`` is the most tokens of a rendered request, None for no limit.
    """
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    try:
        parsed = _own_items(parse(response.text), request=request)
    except InvalidAnswerError as error:
        reason = f"schema:{error.problem}"
        if not repairs:
            return Rejected(reason, *cause_of(error))
        again = partial(judge_chunk, request, repairs=repairs - 1, limit=limit)
        return Retry(prompt.repair(request, error, limit=limit), reason, again)
    return Accepted(parsed, response.model)


def _own_items(parsed: ParsedAnswer, *, request: LLMRequest) -> ParsedAnswer:
    """Return an answer without what was copied from the prompt.

    Raises InvalidAnswerError where its summary, or more than half of its items, were copied.
    """
    answer = parsed.answer
    copied = partial(is_copied, request=request)
    own: dict[str, tuple[object, ...]] = {
        "entities": tuple(
            e for e in answer.entities if not (copied(e.name) or copied(e.description))
        ),
        "relations": tuple(e for e in answer.relations if not copied(e.justification)),
        "deltas": tuple(e for e in answer.deltas if not copied(e.text)),
        "strategy": tuple(e for e in answer.strategy if not copied(e.text)),
    }
    features = tuple(
        each
        for each in answer.features
        if not (copied(each) or is_copied_example(each, request=request))
    )
    items, left = sum(len(getattr(answer, kind)) for kind in own), sum(map(len, own.values()))
    if is_mostly_copied(answer.summary, request=request) or 2 * left < items:
        raise InvalidAnswerError(
            "the answer repeats this request instead of telling of the record", problem="copied"
        )
    dropped = items - left + len(answer.features) - len(features)
    if not dropped:
        return parsed
    kept = answer.model_copy(update={**own, "features": features})
    return ParsedAnswer(kept, parsed.dropped + dropped)


def judge_joined(
    request: LLMRequest,
    response: LLMResponse,
    *,
    input_tokens: int,
    repairs: int,
    limit: int | None,
) -> Verdict[str]:
    """Judge one summary in place of several, of ``input_tokens`` together."""
    extracted = is_extract(response, request=request)
    if not extracted:
        response = repair(replace(response, units=()), request=request)
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    tokens = request.counter.count(response.text)
    if extracted:
        found = validate.check(response, request=request, tokens=tokens, input_tokens=input_tokens)
    else:
        source = source_of(request, limit=MOST_ANCHORS)
        found = validate.check(
            response,
            request=request,
            tokens=tokens,
            record=source.prose_of_inputs,
            input_tokens=input_tokens,
            fidelity=source.fidelity(response.text),
        )
    problems = tuple(problem for problem in found if problem.hard)
    if not problems:
        return Accepted(response.text.strip(), response.model)
    reason = ",".join(problem.kind for problem in problems)
    if not repairs:
        return Rejected(reason, "provider", reason)
    again = partial(
        judge_joined, request, input_tokens=input_tokens, repairs=repairs - 1, limit=limit
    )
    return Retry(prompt.repair_join(request, problems, limit=limit), reason, again)
