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
from hiermem.core.calls.request_limits import request_tokens
from hiermem.core.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.core.extraction import prompt
from hiermem.core.summaries import validate
from hiermem.core.summaries.assess import MOST_ANCHORS, source_of
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
        count = request.counter.count
        most = _with_repair(request) if limit is None else limit
        messages = prompt.repair(request.messages, error, count=count, limit=most)
        again = partial(judge_chunk, request, repairs=repairs - 1, limit=limit)
        return Retry(replace(request, messages=messages), reason, again)
    return Accepted(parsed, response.model)


def _own_items(parsed: ParsedAnswer, *, request: LLMRequest) -> ParsedAnswer:
    """Return an answer without what was copied from the prompt.

    Raises InvalidAnswerError where its summary, or more than half of its items, were copied.
    """
    answer = parsed.answer
    copied = partial(is_copied, request=request)
    entities = [e for e in answer.entities if not (copied(e.name) or copied(e.description))]
    relations = [each for each in answer.relations if not copied(each.justification)]
    deltas = [each for each in answer.deltas if not copied(each.text)]
    strategy = [each for each in answer.strategy if not copied(each.text)]
    features = [
        each
        for each in answer.features
        if not (copied(each) or is_copied_example(each, request=request))
    ]
    items = len(answer.entities) + len(answer.relations) + len(answer.deltas) + len(answer.strategy)
    own = len(entities) + len(relations) + len(deltas) + len(strategy)
    if is_mostly_copied(answer.summary, request=request) or 2 * own < items:
        raise InvalidAnswerError(
            "the answer repeats this request instead of telling of the record", problem="copied"
        )
    if own == items and len(features) == len(answer.features):
        return parsed
    left = answer.model_copy(
        update={
            "entities": tuple(entities),
            "relations": tuple(relations),
            "deltas": tuple(deltas),
            "strategy": tuple(strategy),
            "features": tuple(features),
        }
    )
    dropped = items - own + len(answer.features) - len(features)
    return ParsedAnswer(left, parsed.dropped + dropped)


def judge_joined(
    request: LLMRequest,
    response: LLMResponse,
    *,
    input_tokens: int,
    repairs: int,
    limit: int | None,
) -> Verdict[str]:
    """Judge one summary in place of several, of ``input_tokens`` together."""
    response = repair(response, request=request)
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    source = source_of(request, limit=MOST_ANCHORS)
    found = validate.check(
        response,
        request=request,
        tokens=request.counter.count(response.text),
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
    count = request.counter.count
    most = _with_repair(request) if limit is None else limit
    messages = prompt.repair_join(request.messages, problems, count=count, limit=most)
    again = partial(
        judge_joined, request, input_tokens=input_tokens, repairs=repairs - 1, limit=limit
    )
    return Retry(replace(request, messages=messages), reason, again)


def _with_repair(request: LLMRequest) -> int:
    """Return the most tokens of a repaired request where nothing else limits it."""
    return request_tokens(request.messages, request.counter.count) + prompt.REPAIR_ROOM
