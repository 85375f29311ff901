"""Decides what an answer is worth, and what follows: take it, ask once more, or give up.

An answer counts as extracted only where each of its units stands in the inputs. It is then judged
by its size and form alone, because its words are the record's own: the errors that only a writer
can make (language, sections, inventions) cannot occur in it.

Of two answers that may both be used, the better one is taken. An answer with a hard problem is
never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from hiermem.core.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.core.summaries import validate
from hiermem.core.summaries.form import Problem
from hiermem.core.summaries.prompt import before_record, stricter
from hiermem.core.summaries.repair import repair
from hiermem.core.text import units
from hiermem.core.text.anchors import Source, fidelity, find
from hiermem.core.text.lexicon import stands_in
from hiermem.core.text.policy import MAX_CONTENT, check
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.types import Unit

#: Prompts for one text before the stand-in: the ordinary one and the stricter one.
PROMPTS: Final = 2
#: The most anchors kept with a revision, and the most unsupported figures and names.
MOST_ANCHORS: Final = 64
#: The most anchors of the inputs that are searched for in an extract.
_MOST_SOUGHT: Final = 256


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that may become a revision, and the measures of its worth.

    ``units`` are () where the text was written and not extracted; ``missing`` are the inputs' lost
    anchors, ``anchors`` the text's own. ``fidelity`` is None where no anchor was required.
    ``invented`` are the figures and dates of the text that its inputs do not have.
    """

    text: str
    tokens: int
    units: tuple[Unit, ...]
    problems: tuple[Problem, ...] = ()
    fidelity: float | None = None
    missing: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    model: str = ""
    anchors: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Return whether the draft may become memory."""
        return not any(problem.hard for problem in self.problems)

    @property
    def worth(self) -> tuple[float, int]:
        """Return the key by which two fit drafts are compared; of equal ones, the later is taken.

        Where no anchor was required, none was lost.
        """
        return 1.0 if self.fidelity is None else self.fidelity, -len(self.problems)


@dataclass(frozen=True, slots=True)
class Standard:
    """What the answers to one request are held to.

    ``source`` is what is read in the request's inputs, ``input_tokens`` their tokens, and ``known``
    their anchors where these are on record, weightiest first. ``sections`` are the headings that an
    answer must have. A model that ``is_deterministic`` is not asked again, and one that never
    ``writes_headings`` is not asked again for them.
    """

    source: Source
    input_tokens: int
    sections: Sequence[str]
    min_fidelity: float
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
    draft = assess(request, standard, response)
    if draft.fit and (best is None or draft.worth >= best.worth):
        best = draft
    step = after_answer(
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


def after_answer(
    *, tried: int, problems: Sequence[Problem], is_deterministic: bool
) -> Literal["accept", "again", "settle"]:
    """Decide on an answer: take it, ask once more, or take the best answer so far.

    A problem that is not worth a second call costs none. An ``is_deterministic`` model is not asked
    again: its words are all the record's own, and its answer would be the same.
    """
    hard = any(problem.hard for problem in problems)
    if not hard and (is_deterministic or not any(problem.again for problem in problems)):
        return "accept"
    return "again" if tried < PROMPTS and not is_deterministic else "settle"


def assess(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Assess an answer as an extract where it is one, whatever it claims to be."""
    if is_extract(response, request=request):
        return assess_extract(request, standard, response)
    return assess_written(request, standard, replace(response, units=()))


def assess_written(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Repair and check one written answer."""
    response = repair(response, request=request)
    text = check(
        response.text.strip()[:MAX_CONTENT], what="summary", cap=MAX_CONTENT, on_bad="replace"
    )
    tokens = request.counter.count(text)
    found = standard.source.fidelity(text)
    return Draft(
        text=text,
        tokens=tokens,
        units=(),
        problems=validate.check(
            replace(response, text=text),
            request=request,
            tokens=tokens,
            record=standard.source.prose_of_inputs,
            input_tokens=standard.input_tokens,
            sections=standard.sections,
            fidelity=found,
            min_fidelity=standard.min_fidelity,
        ),
        fidelity=found.value,
        missing=found.missing,
        unsupported=found.unsupported[:MOST_ANCHORS],
        model=response.model,
        anchors=found.anchors[:MOST_ANCHORS],
        invented=found.invented[:MOST_ANCHORS],
    )


def assess_extract(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Check one answer that ``is_extract``: its size and form, and which anchors it keeps.

    The check makes at most one pass over the inputs, because an extract is made for every window of
    a conversation.
    """
    text = response.text
    tokens = request.counter.count(text)
    sought = standard.known
    if sought is None:
        source = "\n".join(source.text for source in request.inputs)
        sought = find(source, limit=_MOST_SOUGHT)
    required = sought[: anchor_limit(request.target_tokens)]
    kept = tuple(anchor for anchor in sought if stands_in(anchor, text))
    missing = tuple(sorted(set(required) - set(kept), key=sought.index))
    return Draft(
        text=text,
        tokens=tokens,
        units=response.units,
        problems=validate.check(
            response, request=request, tokens=tokens, input_tokens=standard.input_tokens
        ),
        fidelity=1.0 - len(missing) / len(required) if required else None,
        missing=missing,
        model=response.model,
        anchors=kept[:MOST_ANCHORS],
    )


def is_extract(response: LLMResponse, *, request: LLMRequest) -> bool:
    """Return whether an answer is made of units of the request's inputs, as it claims by ``units``.

    Most units stand unchanged in their message, which one search of that message shows. Only
    where a unit does not (a code digest, a cut or capitalised piece) are the inputs split again.
    """
    kept = response.units
    if not kept or units.render(kept) != response.text:
        return False
    days = {"", *(source.date for source in request.inputs)}
    names = {"", *(" ".join(source.speaker.split()) for source in request.inputs)}
    said: dict[int | None, list[str]] = {}
    recorded: set[str] = set()
    for source in request.inputs:
        said.setdefault(source.index, []).append(source.text)
        for unit in source.units:
            recorded.add(unit.text)
            days.add(unit.date)
            names.add(unit.speaker)
    if any(unit.date not in days for unit in kept):
        return False
    labels = {unit.speaker for unit in kept} - names
    if any(not _is_start(label, names) for label in labels):
        return False
    altered = {
        unit.text
        for unit in kept
        if unit.text not in recorded
        and not any(unit.text in text for text in said.get(unit.index, ()))
    }
    if not altered:
        return True
    whole = {unit.text for source in request.inputs for unit in units.of_source(source)}
    return all(_is_start(text, whole) for text in altered - whole)


def _is_start(text: str, whole: set[str]) -> bool:
    """Return whether ``text`` is the start of a text in ``whole``, with or without a cut mark."""
    start = text.removesuffix("…")
    return bool(start) and any(each.startswith(start) for each in whole)


def source_of(request: LLMRequest, *, limit: int) -> Source:
    """Return what written answers to ``request`` are held to: ``limit`` anchors of its inputs.

    A writer also saw days, speakers, title, people and overlap. What a prompt says after the record
    may name figures that an earlier answer invented.
    """
    days = dict.fromkeys(source.date for source in request.inputs)
    speakers = dict.fromkeys(source.speaker for source in request.inputs)
    asked = (message.content for message in request.messages if message.role != "system")
    beside = (*days, *speakers, *(before_record(content) for content in asked))
    return Source([each.text for each in request.inputs], limit=limit, beside=beside)


def anchor_limit(target: int) -> int:
    """Return how many anchors a text of ``target`` tokens must keep: one for every twenty tokens.

    A sentence that explains a figure has about twenty tokens.
    """
    return max(4, min(64, target // 20))


def join(drafts: Sequence[Draft], *, count: Callable[[str], int]) -> Draft:
    """Join the drafts of a node that was made in parts, in their order."""
    if len(drafts) == 1:
        return drafts[0]
    kept = tuple(unit for draft in drafts for unit in draft.units)
    whole = all(draft.units or not draft.text for draft in drafts)
    measured = [draft.fidelity for draft in drafts if draft.fidelity is not None]
    text = units.render(kept) if whole else "\n".join(draft.text for draft in drafts)
    return Draft(
        text=text,
        tokens=count(text),
        units=kept if whole else (),
        problems=tuple(problem for draft in drafts for problem in draft.problems),
        fidelity=sum(measured) / len(measured) if measured else None,
        missing=tuple(name for draft in drafts for name in draft.missing)[:MOST_ANCHORS],
        unsupported=tuple(name for d in drafts for name in d.unsupported)[:MOST_ANCHORS],
        model=drafts[0].model,
        anchors=find(text, limit=MOST_ANCHORS),
        invented=tuple(name for d in drafts for name in d.invented)[:MOST_ANCHORS],
    )


def weigh_against(draft: Draft, texts: Sequence[str], *, limit: int) -> tuple[float, int]:
    """Return a draft's worth measured on ``texts``, to compare two ways of making a node."""
    value = fidelity(inputs=texts, output=draft.text, limit=limit).value
    soft = tuple(problem for problem in draft.problems if not problem.hard)
    return replace(draft, fidelity=value, problems=soft).worth
