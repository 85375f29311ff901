"""Decides what follows from a model's answer to one node: take it, ask once more, or give up.

Of two answers that may both be used, the better one is taken. An answer with a hard problem is
never taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from hiermem.core.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.core.summaries import plan
from hiermem.core.summaries.assess import Draft, assess, assess_extract, is_extract
from hiermem.core.summaries.plan import LevelPlan
from hiermem.core.summaries.prompt import stricter
from hiermem.core.text.anchors import Source
from hiermem.protocols import LLMRequest, LLMResponse


@dataclass(frozen=True, slots=True)
class Standard:
    """What the answers to one request are held to.

    ``source`` is what is read in the request's inputs, ``input_tokens`` their tokens, and ``known``
    their anchors where these are known already. A model that ``is_deterministic`` is not asked
    again, and one that never ``writes_headings`` is not asked again for them.
    """

    plan: LevelPlan
    source: Source
    input_tokens: int
    known: Sequence[str] | None = None
    is_deterministic: bool = False
    writes_headings: bool = True


def judge(
    request: LLMRequest,
    standard: Standard,
    response: LLMResponse,
    *,
    tried: int = 1,
    best: Draft | None = None,
) -> Verdict[Draft]:
    """Judge the answer to ``request``, the ``tried``-th; ``best`` is the best usable one before."""
    draft = assess_answer(request, standard, response)
    if draft.fit and (best is None or plan.better(best.worth, draft.worth)):
        best = draft
    step = plan.after_answer(
        tried=tried,
        problems=[
            each
            for each in draft.problems
            if standard.writes_headings or each.kind != "missing_sections"
        ],
        is_deterministic=bool(draft.units) or standard.is_deterministic,
    )
    reason = ",".join(problem.kind for problem in draft.problems)
    if step == "again":
        messages = stricter(
            request.messages, draft.problems, missing=draft.missing, invented=draft.invented
        )
        again = replace(request, messages=messages)
        following = partial(judge, again, standard, tried=tried + 1, best=best)
        return Retry(again, reason, following, usable=best)
    if best is None:
        kinds = ",".join(sorted({problem.kind for problem in draft.problems}))
        return Rejected(reason, detail=kinds)
    return Accepted(best, best.model, reason="" if best is draft else reason)


def assess_answer(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Assess an answer as an extract where it is one, whatever it claims to be."""
    if is_extract(response, request=request):
        return assess_extract(
            response,
            request=request,
            input_tokens=standard.input_tokens,
            limit=plan.anchor_limit(request.target_tokens),
            known=standard.known,
        )
    return assess(
        replace(response, units=()),
        request=request,
        input_tokens=standard.input_tokens,
        sections=standard.plan.template.required,
        min_fidelity=standard.plan.min_fidelity,
        source=standard.source,
    )
