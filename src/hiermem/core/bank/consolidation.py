"""Decides what a model is asked to consolidate, and what follows from its answer.

The one rule: a request never takes more than its limit, prompt, repair and answer together, and
what does not fit is said, never cut: fewer notes, then fewer whole files, then outlines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hiermem.bank import BankText, FileChange, Note
from hiermem.core.bank.answer import BankAnswer, answer_schema, read_answer
from hiermem.core.bank.files import Applied, diff
from hiermem.core.bank.record import BankState
from hiermem.core.generation.prompt import PromptTemplate
from hiermem.errors import InvalidAnswerError
from hiermem.protocols import ChatMessage, LLMRequest, LLMResponse, SourceText, TokenCounter

__all__ = [
    "Again", "Batch", "Limits", "NoRoom", "Refused", "Taken", "TooLarge", "Verdict", "judge",
    "next_batch",
]  # fmt: skip

#: What was wrong with an answer, each asked to be mended once.
Fault: TypeAlias = Literal["form", "names", "edits", "loss", "missing"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take: ``tokens`` in all, None for no limit, ``answer`` of them for the
    answer. ``notes`` is the most notes.
    """

    answer: int
    tokens: int | None = None
    notes: int = 500


@dataclass(frozen=True, slots=True)
class Batch:
    """One request and the notes in it. ``id`` is that of its journal entries."""

    id: str
    notes: tuple[Note, ...]
    request: LLMRequest
    input_tokens: int
    state: BankState
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The oldest note fits no request, even alone: it is to be set aside."""

    note: Note


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Rules, synthesis, outlines and the answer leave no room for any note."""

    needed: int
    limit: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The answer is fit; ``applied`` is what it comes to."""

    applied: Applied


@dataclass(frozen=True, slots=True)
class Again:
    """The answer is to be asked for again; ``reason`` says why, without any text."""

    request: LLMRequest
    reason: str
    faults: frozenset[Fault]


@dataclass(frozen=True, slots=True)
class Refused:
    """No answer could be used; the notes stay live."""

    reason: str


Verdict: TypeAlias = Taken | Again | Refused


def next_batch(
    state: BankState,
    notes: Sequence[Note],
    *,
    template: PromptTemplate,
    counter: TokenCounter,
    limits: Limits,
    temperature: float = 0.0,
) -> Batch | TooLarge | NoRoom:
    """Decide the next request. ``notes`` are live, not set aside, oldest first, one at least."""
    taken = tuple(notes[: min(limits.notes, state.meta.batch_notes or limits.notes)])
    bank = BankText(
        state.rules.text, state.synthesis.text, tuple(state.texts.items()), (), (), taken
    )
    request = LLMRequest(
        task="consolidate",
        messages=(ChatMessage("user", state.rules.text),),
        inputs=tuple(
            SourceText(n, "user", note.agent, "", note.text) for n, note in enumerate(taken, 1)
        ),
        target_tokens=limits.answer,
        max_tokens=limits.answer,
        counter=counter,
        temperature=temperature,
        schema=answer_schema(),
        bank=bank,
    )
    digest = hashlib.sha256("\n".join(note.key for note in taken).encode()).hexdigest()[:16]
    return Batch(f"notes:{digest}", taken, request, 0, state, limits.tokens)


def judge(
    batch: Batch,
    response: LLMResponse,
    *,
    asked: Collection[Fault] = (),
    repairs: int = 1,
    loss_share: float = 0.5,
    loss_lines: int = 5,
) -> Verdict:
    """Decide what follows from an answer. ``asked`` are the faults that were asked to be mended."""
    try:
        answer = read_answer(response.text)
    except InvalidAnswerError as error:
        if "form" in asked or not repairs:
            return Refused(error.problem)
        return Again(batch.request, error.problem, frozenset({*asked, "form"}))
    return Taken(_apply(batch, answer))


def _apply(batch: Batch, answer: BankAnswer) -> Applied:
    held = batch.state.texts
    texts = {f.name: f.content for f in answer.files if held.get(f.name) != f.content}
    return Applied(
        texts,
        answer.synthesis,
        batch.notes,
        created=tuple(sorted(texts.keys() - held.keys())),
        updated=tuple(sorted(texts.keys() & held.keys())),
        unchanged=tuple(sorted(held.keys() - texts.keys())),
        changes=tuple(
            FileChange(n, "updated" if n in held else "created", 0, diff(n, held.get(n, ""), t))
            for n, t in sorted(texts.items())
        ),
    )
