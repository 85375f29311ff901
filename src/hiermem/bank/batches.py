"""Decides which notes go into one request, and what follows from its answer.

Everything that a request takes is counted: prompt, rules, synthesis, files, notes, the schema, a
repair and the answer. All files are shown. An answer writes a file anew, so a request takes no more
notes than half an answer could repeat; in a space that learns, whose page is bounded, any number.

Nothing is ever cut: what does not fit waits for the next request, or is reported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hiermem.bank import lines, prompt
from hiermem.bank.change import leading
from hiermem.bank.files import AnswerFault, Applied, settle
from hiermem.bank.prompt import NoteBatch, read_answer
from hiermem.bank.records import BankState
from hiermem.calls.answers import Accepted, Rejected, Retry, Verdict
from hiermem.calls.failures import InvalidAnswerError
from hiermem.config import BankPolicy
from hiermem.data import learning_rules
from hiermem.prompts.template import PromptTemplate, marked
from hiermem.protocols import LLMResponse, TokenCounter
from hiermem.types.bank import BankText, Note

#: The tokens of notes for each token of an answer, from another machine and from this one. Names
#: and times, a half, are not repeated.
_NOTES_SHARE: Final = 1.5
_LOCAL_SHARE: Final = 0.5
#: The room of an answer for each token of the files that it writes anew, where none is stated.
_GROWTH: Final = 1.25
#: With less room than this, in tokens, no note is worth a request.
_LEAST_ROOM: Final = 64
#: How many letters a token has: as in the files, if they have so many tokens; else as in so many
#: notes, of which a line of facts has fewer by this factor.
_TELLING: Final = 200
_SAMPLED: Final = 8
_DENSER: Final = 0.75
_FINISHED: Final = {
    "length": "the answer was cut off at its token limit; write less",
    "refusal": "the model declined",
    "error": "the model reported an error",
}


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How requests are made, and their limits in tokens; ``notes`` bounds the notes of one.

    ``tokens`` is the limit of the whole request, None for no limit; ``answer`` of them are reserved
    for the answer, and as many as the longest file needs; a local model may write all files.
    """

    template: PromptTemplate
    counter: TokenCounter
    answer: int
    tokens: int | None
    notes: int
    is_local: bool
    policy: BankPolicy


def next_batch(
    state: BankState, notes: Sequence[Note], settings: BatchSettings
) -> NoteBatch | Note | str:
    """Decide the next request; return the oldest note if it fits no request, even alone.

    Returns a text that names the cause if there is no room for any note. ``notes``, at least one,
    are live and not blocked, in their order (``change.in_order``).
    """
    count = settings.counter.count
    sizes, answer = [*map(count, state.texts.values()), 0], settings.answer
    share = _LOCAL_SHARE if settings.is_local else _NOTES_SHARE
    longest = answer + sum(sizes) if settings.is_local else max(answer, int(_GROWTH * max(sizes)))
    settings = replace(settings, answer=longest)
    most = min(settings.notes, state.meta.batch_notes or settings.notes)
    notes = leading(notes)[:most]
    if not state.rules.learn:
        notes = _within(notes, share * answer, count)
    if settings.tokens is None:
        return _batch(state, notes, settings)
    limit = settings.tokens - settings.answer - prompt.REPAIR_ROOM
    room = limit - _batch(state, (), settings).input_tokens
    if room < _LEAST_ROOM:
        return (
            f"rules, synthesis and files alone take {settings.tokens - room:,} tokens of the "
            f"{settings.tokens:,} that a request may have; raise safe_processing_tokens or window"
        )
    notes = _within(notes, room, count)
    while (batch := _batch(state, notes, settings)).input_tokens > limit:
        if len(notes) == 1:
            return notes[0]
        notes = notes[: max(1, len(notes) * 4 // 5)]
    return batch


def judge(
    batch: NoteBatch, response: LLMResponse, *, asked: Collection[AnswerFault] = ()
) -> Verdict[Applied]:
    """Decide what follows from an answer.

    ``asked`` are the faults that the model was asked to mend, each at most once.
    Afterwards the correct part of the answer is accepted without the faulty part.
    """

    def again(
        complaints: Sequence[str], shown: Sequence[str], faults: tuple[AnswerFault, ...]
    ) -> Retry[Applied]:
        request = batch.request
        messages = prompt.repair(
            request.messages, shown, count=request.counter.count, limit=batch.limit
        )
        return Retry(
            replace(request, messages=messages),
            "; ".join(complaints),
            partial(judge, batch, asked=(*asked, *faults)),
        )

    def unreadable(wrong: str) -> Verdict[Applied]:
        if "form" not in asked:
            return again([wrong], [wrong], ("form",))
        return Rejected(wrong)

    if wrong := _FINISHED.get(response.finish_reason):
        return unreadable(wrong)
    try:
        answer = read_answer(response.text)
    except InvalidAnswerError as error:
        return unreadable(f"{error.problem.replace('_', ' ')}: {error}")
    applied, problems = settle(answer, batch)
    complaints = [f"{problem.file}: {problem.detail}" for problem in problems]
    faults: list[AnswerFault] = sorted({problem.fault for problem in problems})
    if not set(asked).issuperset(faults):
        shown = [
            prompt.fault(complaint, problem.lines)
            for complaint, problem in zip(complaints, problems, strict=True)
        ]
        return again(complaints, shown, tuple(faults))
    if applied is None:
        return Rejected("; ".join(complaints))
    return Accepted(applied, response.model)


def _within(notes: Sequence[Note], room: float, count: Callable[[str], int]) -> Sequence[Note]:
    """Return the first notes that fit, at least one."""
    for number, note in enumerate(notes, start=1):
        room -= count(prompt.note_line(number, note))
        if number > 1 and room < 0:
            return notes[: number - 1]
    return notes


def _batch(state: BankState, notes: Sequence[Note], settings: BatchSettings) -> NoteBatch:
    """Make the request for these notes."""
    # In the queue, notes that were left out may precede older ones.
    notes = sorted(notes, key=lambda note: note.key)
    bank = BankText(
        rules=state.rules.text,
        synthesis=state.synthesis,
        files=tuple(state.texts.items()),
        missing=tuple(file for file in state.rules.files.items() if file[0] not in state.texts),
        notes=tuple(notes),
        learning=_learning(state, notes, settings) if state.rules.learn else "",
    )
    request = prompt.request(
        settings.template,
        bank,
        counter=settings.counter,
        max_tokens=settings.answer,
        temperature=settings.policy.temperature,
    )
    digest = hashlib.sha256("\n".join(note.key for note in notes).encode()).hexdigest()
    return NoteBatch(
        id=f"notes:{digest[:16]}",
        notes=bank.notes,
        request=request,
        input_tokens=prompt.tokens(request.messages, settings.counter.count),
        bank=state,
        limit=None if settings.tokens is None else settings.tokens - settings.answer,
        file_tokens=settings.policy.file_tokens,
        page_tokens=settings.policy.page_tokens,
    )


def _learning(state: BankState, notes: Sequence[Note], settings: BatchSettings) -> str:
    """Return what holds besides the rules in a space that learns."""
    by_hand = lines.by_hand(state.texts, state.origins)
    hand = f"These lines were written by hand and stay:\n{marked('hand', by_hand)}"
    count, policy = settings.counter.count, settings.policy
    # A model cannot count tokens, and what it writes too much is cut.
    sample, denser = "\n".join(state.texts.values()), 1.0
    if count(sample) < _TELLING:
        sample, denser = " ".join(note.text for note in notes[:_SAMPLED]), _DENSER
    letters = denser * len(sample) / max(1, count(sample))
    return learning_rules().format(
        person=state.rules.person or "the user",
        file=policy.file_tokens,
        letters=int(letters * policy.file_tokens) // 100 * 100,
        past=round((1 - lines.NOW) * policy.page_tokens),
        page=policy.page_tokens,
        page_letters=int(letters * policy.page_tokens) // 100 * 100,
        used=sum(map(count, state.texts.values())),
    ) + (hand if by_hand else "")
