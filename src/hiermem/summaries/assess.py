"""Decides what follows from an answer: take it, ask once more with what was wrong, or give up.

An answer counts as extracted only if each of its units stands in the inputs. It is then judged by
its size and form alone, because its words are the record's own: the errors that only a writer can
make (language, inventions) cannot occur in it. An answer to which a check applies is never taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hiermem.calls.request_limits import request_tokens
from hiermem.calls.verdict import Accepted, Rejected, Retry, Verdict
from hiermem.prompts.template import before_record, second_request
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.summaries.checks import MENDABLE, Answer, Problem, check
from hiermem.summaries.repair import repair
from hiermem.text import policy, units
from hiermem.text.anchors import Source, find
from hiermem.text.lexicon import stands_in
from hiermem.types import Unit

#: Requests for one text before the stand-in: the ordinary one and one that says what was wrong.
PROMPTS: Final = 2
#: The most tokens that a second request adds to say what was wrong.
_COMPLAINT: Final = 200
#: The most anchors kept with a revision, and the most unsupported figures and names.
MOST_ANCHORS: Final = 64
#: The most anchors of the inputs that are searched for in an extract.
_MOST_SOUGHT: Final = 256


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that may become a revision, and the measures of its worth.

    ``units`` are () if the text was written and not extracted; ``anchors`` are the text's own.
    ``fidelity`` is the share of the inputs' weightiest anchors that it keeps, None if there are
    none.
    """

    text: str
    tokens: int
    units: tuple[Unit, ...]
    problems: tuple[Problem, ...] = ()
    fidelity: float | None = None
    unsupported: tuple[str, ...] = ()
    model: str = ""
    anchors: tuple[str, ...] = ()

    @property
    def fit(self) -> bool:
        """Return whether the draft may become memory."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Standard:
    """What the answers to one request are held to.

    ``source`` is what is read in the request's inputs, ``input_tokens`` their tokens, and ``known``
    their anchors if these are on record, weightiest first. A model that ``is_deterministic`` is not
    asked again: its answer would be the same. ``window`` is the model's, None if it has no limit.
    """

    source: Source
    input_tokens: int
    known: Sequence[str] | None = None
    is_deterministic: bool = False
    window: int | None = None


def judge(
    request: LLMRequest, standard: Standard, response: LLMResponse, *, tried: int = 1
) -> Verdict[Draft]:
    """Judge the answer to ``request``, the ``tried``-th."""
    draft = assess(request, standard, response)
    if draft.fit:
        return Accepted(draft, draft.model)
    reason = ",".join(problem.kind for problem in draft.problems)
    if tried < PROMPTS and not (draft.units or standard.is_deterministic):
        shown = draft.text if _may_be_shown(draft, request, standard.window) else ""
        again = replace(
            request, messages=second_request(request.messages, draft.problems, answer=shown)
        )
        return Retry(again, reason, partial(judge, again, standard, tried=tried + 1))
    return Rejected(reason, detail=reason)


def _may_be_shown(draft: Draft, request: LLMRequest, window: int | None) -> bool:
    """Return whether a second request shows the first answer: one that can be mended, and fits."""
    if not MENDABLE.issuperset(problem.kind for problem in draft.problems):
        return False
    added = draft.tokens + request.max_tokens + _COMPLAINT
    if draft.tokens > 2 * request.max_tokens:
        return False
    if window is None:
        return True
    return request_tokens(request.messages, request.counter.count) + added <= window


def assess(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Assess an answer as an extract where it is one, whatever it claims to be."""
    if is_extract(response, request=request):
        return assess_extract(request, standard, response)
    return assess_written(request, standard, replace(response, units=()))


def assess_written(request: LLMRequest, standard: Standard, response: LLMResponse) -> Draft:
    """Repair and check one written answer."""
    response = repair(response, request=request)
    text = policy.check(
        response.text.strip()[: policy.MAX_CONTENT],
        what="summary",
        cap=policy.MAX_CONTENT,
        on_bad="replace",
    )
    tokens = request.counter.count(text)
    found = standard.source.fidelity(text)
    return Draft(
        text=text,
        tokens=tokens,
        units=(),
        problems=check(
            Answer(
                replace(response, text=text),
                request,
                tokens,
                standard.input_tokens,
                record=standard.source.prose_of_inputs,
                fidelity=found,
            )
        ),
        fidelity=found.value,
        unsupported=found.unsupported[:MOST_ANCHORS],
        model=response.model,
        anchors=found.anchors[:MOST_ANCHORS],
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
    lost = set(required).difference(kept)
    return Draft(
        text=text,
        tokens=tokens,
        units=response.units,
        problems=check(Answer(response, request, tokens, standard.input_tokens)),
        fidelity=1.0 - len(lost) / len(required) if required else None,
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
