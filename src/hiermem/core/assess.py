"""Decides what an answer is worth: the problems it has, the anchors it keeps, its tokens.

The one rule: a text that was extracted is judged by its size alone, for its words are the record's
own; what only a writer can get wrong (language, refusals, sections) cannot be wrong in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core import units
from hiermem.core.anchors import fidelity, find
from hiermem.core.text import MAX_CONTENT, check
from hiermem.core.validate import Problem, ProblemKind
from hiermem.core.validate import check as problems_of
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.types import Unit

__all__ = ["MOST_ANCHORS", "Draft", "assess", "join", "weigh_against"]

#: Anchors kept with a revision, and unsupported figures and names likewise.
MOST_ANCHORS: Final = 64
_OF_EXTRACTED: Final[frozenset[ProblemKind]] = frozenset({"empty", "too_long", "not_smaller"})


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that may become a revision, with what is known of its worth.

    ``units`` are () where it was written and not extracted; ``missing`` are the inputs' lost
    anchors, ``anchors`` its own.
    """

    text: str
    tokens: int
    units: tuple[Unit, ...]
    problems: tuple[Problem, ...]
    fidelity: float
    missing: tuple[str, ...]
    unsupported: tuple[str, ...]
    model: str
    anchors: tuple[str, ...]

    @property
    def fit(self) -> bool:
        """Say whether it may become memory."""
        return not any(problem.hard for problem in self.problems)

    @property
    def worth(self) -> tuple[float, int]:
        """Give what two fit drafts are compared by."""
        return self.fidelity, len(self.problems)


def assess(
    response: LLMResponse,
    *,
    request: LLMRequest,
    input_tokens: int,
    sections: Sequence[str],
    min_fidelity: float,
    limit: int,
) -> Draft:
    """Check one answer. ``limit`` is how many of its inputs' anchors it is held to."""
    text = response.text if response.units else response.text.strip()
    text = check(text[:MAX_CONTENT], what="summary", cap=MAX_CONTENT, on_bad="replace")
    response = replace(response, text=text)
    found = fidelity(inputs=[source.text for source in request.inputs], output=text, limit=limit)
    problems = problems_of(
        response,
        request=request,
        input_tokens=input_tokens,
        sections=() if response.units else sections,
        fidelity=found,
        min_fidelity=min_fidelity,
    )
    if response.units:
        problems = tuple(p for p in problems if not p.hard or p.kind in _OF_EXTRACTED)
    return Draft(
        text=text,
        tokens=request.counter.count(text),
        units=response.units if units.render(response.units) == text else (),
        problems=problems,
        fidelity=found.value,
        missing=found.missing,
        unsupported=found.unsupported[:MOST_ANCHORS],
        model=response.model,
        anchors=find(text, limit=MOST_ANCHORS),
    )


def join(drafts: Sequence[Draft], *, count: Callable[[str], int]) -> Draft:
    """Join the drafts of a node that was made in parts, in their order."""
    if len(drafts) == 1:
        return drafts[0]
    kept = tuple(unit for draft in drafts for unit in draft.units)
    whole = all(draft.units or not draft.text for draft in drafts)
    text = units.render(kept) if whole else "\n".join(draft.text for draft in drafts)
    return Draft(
        text=text,
        tokens=count(text),
        units=kept if whole else (),
        problems=tuple(problem for draft in drafts for problem in draft.problems),
        fidelity=sum(draft.fidelity for draft in drafts) / len(drafts),
        missing=tuple(name for draft in drafts for name in draft.missing)[:MOST_ANCHORS],
        unsupported=tuple(name for d in drafts for name in d.unsupported)[:MOST_ANCHORS],
        model=drafts[0].model,
        anchors=find(text, limit=MOST_ANCHORS),
    )


def weigh_against(draft: Draft, texts: Sequence[str], *, limit: int) -> tuple[float, int]:
    """Give a draft's worth as measured on other inputs, to compare two ways of making it."""
    found = fidelity(inputs=texts, output=draft.text, limit=limit)
    return found.value, sum(not problem.hard for problem in draft.problems)
