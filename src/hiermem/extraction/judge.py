"""Decides what follows from a model's answer to a chunk, and to a request to join summaries.

An answer that cannot be used is asked for again, with the reason, while repairs are left. One that
hit its length limit is not: the missing part was not written.
"""

from __future__ import annotations

from functools import partial

from hiermem.calls.bounded_json import ParsedAnswer, parse
from hiermem.calls.failures import cause_of, finish_cause
from hiermem.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.errors import InvalidAnswerError
from hiermem.extraction import prompt
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.summaries.assess import MOST_ANCHORS, Standard, assess, source_of


def judge_chunk(
    request: LLMRequest, response: LLMResponse, *, repairs: int, limit: int | None
) -> Verdict[ParsedAnswer]:
    """Read the answer to a chunk. ``request`` is the first one, without a repair.

    ``repairs`` are left; ``limit`` is the most tokens of a rendered request, None for no limit.
    """
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    try:
        parsed = parse(response.text)
    except InvalidAnswerError as error:
        reason = f"schema:{error.problem}"
        if not repairs:
            return Rejected(reason, *cause_of(error))
        again = partial(judge_chunk, request, repairs=repairs - 1, limit=limit)
        return Retry(prompt.repair(request, error, limit=limit), reason, again)
    return Accepted(parsed, response.model)


def judge_joined(
    request: LLMRequest,
    response: LLMResponse,
    *,
    input_tokens: int,
    repairs: int,
    limit: int | None,
) -> Verdict[str]:
    """Judge one summary in place of several, of ``input_tokens`` together."""
    standard = Standard(source_of(request, limit=MOST_ANCHORS), input_tokens)
    draft = assess(request, standard, response)
    if draft.fit:
        return Accepted(draft.text.strip(), draft.model)
    if (ended := finish_cause(response)) is not None:
        return Rejected(ended[1], *ended)
    reason = ",".join(problem.kind for problem in draft.problems)
    if not repairs:
        return Rejected(reason, "provider", reason)
    again = partial(
        judge_joined, request, input_tokens=input_tokens, repairs=repairs - 1, limit=limit
    )
    return Retry(prompt.repair_join(request, draft.problems, limit=limit), reason, again)
