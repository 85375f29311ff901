"""Decides which notes and files go into one request, and what follows from its answer.

Everything that a request takes is counted: prompt, rules, synthesis, files, notes, the schema, a
repair and the answer. If all files fit beside the notes, all are shown; otherwise only those that
share words with the notes.

An answer writes a file anew, so it needs room for every file that it may write and for the notes.
If the longest answer has too little room, the files that share most words with the notes come
first; the others can only be added to. So a bank may be larger than a request, and a file longer
than an answer. A longer answer than usual is asked for only if notes and files need one.

Nothing is ever cut: what does not fit waits for the next request, or is reported.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from hiermem.bank import lines, prompt
from hiermem.bank.change import leading
from hiermem.bank.files import AnswerFault, Applied, settle
from hiermem.bank.prompt import FileAnswer, NoteBatch, read_answer
from hiermem.bank.records import BankState
from hiermem.calls.answers import Accepted, Rejected, Retry, Verdict
from hiermem.calls.failures import InvalidAnswerError
from hiermem.config import BankPolicy
from hiermem.data import learning_rules
from hiermem.prompts.template import PromptTemplate, marked
from hiermem.protocols import LLMResponse, TokenCounter
from hiermem.text.policy import terms_of
from hiermem.types.bank import BankText, Note

_USUAL: Final = BankPolicy()
#: The share of an answer's room that is planned for notes and files; its JSON takes the rest.
_ANSWER_SHARE: Final = 0.75
#: The share of a request's room up to which all files are shown.
_FILES_SHARE: Final = 0.75
#: If the files take more room, of a request or an answer, the share for the notes.
_NOTES_FIRST: Final = 0.5
#: With less room than this, in tokens, no note is worth a request.
_LEAST_ROOM: Final = 64
#: After a request that was too large for a model, the size of the next one in relation to it.
_LEARNED_SHARE: Final = 0.75
_FINISHED: Final = {
    "length": "the answer was cut off at its token limit; write less",
    "refusal": "the model declined",
    "error": "the model reported an error",
}


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How requests are made, and their limits in tokens; ``notes`` bounds the notes of one.

    ``tokens`` is the limit of the whole request, None for no limit; ``answer`` of them are reserved
    for the answer, and up to ``longest_answer`` if the notes need it. In a space that learns, a
    file has at most ``file_tokens`` and all together ``page_tokens``.
    """

    template: PromptTemplate
    counter: TokenCounter
    answer: int
    tokens: int | None = None
    notes: int = 500
    longest_answer: int = 0
    temperature: float = 0.0
    file_tokens: int = _USUAL.file_tokens
    page_tokens: int = _USUAL.page_tokens


def next_batch(
    state: BankState, notes: Sequence[Note], settings: BatchSettings, *, behind: int = 1
) -> NoteBatch | Note | str:
    """Decide the next request; return the oldest note if it fits no request, even alone.

    Returns a text that names the cause if there is no room for any note. ``notes``, at least one,
    are live and not blocked, in their order (``change.in_order``). ``behind`` bounds the notes of
    one request that wait behind others.
    """
    planner = _BatchPlanner(state, settings)
    most = min(settings.notes, state.meta.batch_notes or settings.notes)
    notes = planner.answerable(leading(notes, behind=behind)[:most])
    if settings.tokens is None:
        return planner.batch(notes, planner.texts)
    batch = planner.fitted(notes, settings.tokens)
    if isinstance(batch, NoteBatch) or not settings.longest_answer:
        return batch
    # The room of a longer answer than usual must not block a note.
    usual = _BatchPlanner(state, replace(settings, longest_answer=0))
    return usual.fitted(usual.answerable(notes), settings.tokens)


def reduced_limits(
    state: BankState, batch: NoteBatch, settings: BatchSettings
) -> BatchSettings | None:
    """Return smaller limits after ``batch`` was too large; None if none are possible.

    Answers are not longer than usual any more. The model's window is unknown, or is counted in
    another way, so the request itself is the measure. The limit never falls below the size of the
    oldest note alone, without any file; otherwise a guess would block that note.
    """
    least = _BatchPlanner(state, settings).alone(batch.notes[0]) + _LEAST_ROOM
    if batch.input_tokens <= least:
        return None
    share = int(_LEARNED_SHARE * (batch.input_tokens + settings.answer))
    return replace(
        settings,
        tokens=max(share, least + settings.answer + prompt.REPAIR_ROOM),
        longest_answer=settings.answer,
    )


def usual_answer(batch: NoteBatch, settings: BatchSettings) -> BatchSettings | None:
    """Return limits without longer answers after ``batch`` was refused; None if it had none.

    A model may allow shorter answers than its window suggests.
    """
    if batch.request.max_tokens <= settings.answer:
        return None
    return replace(settings, longest_answer=settings.answer)


def judge(
    batch: NoteBatch,
    response: LLMResponse,
    *,
    asked: Collection[AnswerFault] = (),
) -> Verdict[Applied]:
    """Decide what follows from an answer.

    ``asked`` are the faults that the model was asked to mend, each at most once.
    Afterwards the correct part of the answer is accepted without the faulty part.
    """

    def again(complaints: Sequence[str], faults: tuple[AnswerFault, ...]) -> Retry[Applied]:
        request = batch.request
        messages = prompt.repair(
            request.messages, complaints, count=request.counter.count, limit=batch.limit
        )
        return Retry(
            replace(request, messages=messages),
            "; ".join(complaints),
            partial(judge, batch, asked=(*asked, *faults)),
        )

    def unreadable(wrong: str) -> Verdict[Applied]:
        if "form" not in asked:
            return again([wrong], ("form",))
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
        return again(complaints, tuple(faults))
    if applied is None:
        return Rejected("; ".join(complaints))
    return Accepted(applied, response.model)


class _BatchPlanner:
    """Plans one request. ``sizes`` are the tokens of the files."""

    def __init__(self, state: BankState, settings: BatchSettings) -> None:
        self.texts = state.texts
        self._state, self._settings = state, settings
        self._count = settings.counter.count
        self._sizes = {name: self._count(text) for name, text in self.texts.items()}
        self._answer = settings.answer
        #: The room of an answer for notes and files.
        self._room = 0.0

    def answerable(self, notes: Sequence[Note]) -> Sequence[Note]:
        """Return the first notes that the longest answer has room for, at least one.

        Missing files are always written out, and each note may add the frame of one more file.
        Afterwards the answer is as long as notes and files need.
        """
        limits = self._settings
        new = [file for file in self._state.rules.files if file.name not in self.texts]
        written = sum(self._frame(file.name, file.skeleton) for file in new)
        frames = sorted((self._frame(name) for name in self.texts), reverse=True)
        longest, files = max(limits.answer, limits.longest_answer), sum(self._sizes.values())
        self._room = max(0.0, _ANSWER_SHARE * (longest - written))
        beside = max(self._room - files, _NOTES_FIRST * self._room)
        most, note_tokens = self._within(notes, beside, frames)
        needed = math.ceil(min(self._room, note_tokens + files) / _ANSWER_SHARE) + written
        self._answer = max(limits.answer, min(longest, needed))
        return notes[:most]

    def _frame(self, name: str, content: str = "") -> int:
        """Return the tokens of one file in an answer, without the content of notes and files."""
        return self._count(FileAnswer(filename=name, content=content).model_dump_json())

    def _within(
        self, notes: Sequence[Note], room: float, frames: Sequence[int] = ()
    ) -> tuple[int, int]:
        """Return how many of the notes fit, at least one, and their tokens.

        The first ones bring a frame each.
        """
        total = 0
        for number, note in enumerate(notes, start=1):
            more = self._count(prompt.note_line(number, note))
            more += frames[number - 1] if number <= len(frames) else 0
            if number > 1 and total + more > room:
                return number - 1, total
            total += more
        return len(notes), total

    def alone(self, note: Note) -> int:
        """Return the tokens of a prompt with this note and no file."""
        return self.batch((note,), ()).input_tokens

    def batch(self, notes: Sequence[Note], shown: Collection[str]) -> NoteBatch:
        """Make the request for these notes, which shows these files."""
        state = self._state
        # In the queue, notes that were left out may precede older ones.
        notes = sorted(notes, key=lambda note: note.key)
        anew = self._written_anew(notes, shown)
        bank = BankText(
            rules=state.rules.text,
            synthesis=state.synthesis,
            files=tuple((name, text) for name, text in self.texts.items() if name in anew),
            append_only=tuple(
                (name, text if name in shown else "")
                for name, text in self.texts.items()
                if name not in anew
            ),
            missing=tuple(
                (file.name, file.skeleton)
                for file in state.rules.files
                if file.name not in self.texts
            ),
            notes=tuple(notes),
            learning=self._learning(),
        )
        settings = self._settings
        request = prompt.request(
            settings.template,
            bank,
            counter=settings.counter,
            max_tokens=self._answer,
            temperature=settings.temperature,
        )
        # The limit is part of the id: one run may ask about the same notes again, with fewer files.
        named = "\n".join([str(settings.tokens), *(note.key for note in notes)])
        digest = hashlib.sha256(named.encode("utf-8")).hexdigest()
        return NoteBatch(
            id=f"notes:{digest[:16]}",
            notes=bank.notes,
            request=request,
            input_tokens=prompt.tokens(request.messages, self._count),
            rules=state.rules,
            texts=self.texts,
            append_only=frozenset(name for name, _ in bank.append_only),
            synthesis=bank.synthesis,
            limit=None if settings.tokens is None else settings.tokens - self._answer,
            origins=state.origins,
            file_tokens=settings.file_tokens,
            page_tokens=settings.page_tokens,
        )

    def _learning(self) -> str:
        """Return what holds besides the rules in a space that learns, "" in any other."""
        state, settings = self._state, self._settings
        if not state.rules.learn:
            return ""
        by_hand = lines.by_hand(self.texts, state.origins)
        hand = f"These lines were written by hand and stay:\n{marked('hand', by_hand)}"
        return learning_rules().format(
            person=state.rules.person or "the user",
            file=settings.file_tokens,
            page=settings.page_tokens,
        ) + (hand if by_hand else "")

    def fitted(self, notes: Sequence[Note], limit: int) -> NoteBatch | Note | str:
        """Make the largest request that fits: notes first, then the files that they concern.

        Return the oldest note if it fits no request, and a text if no note fits any.
        """
        most = limit - self._answer - prompt.REPAIR_ROOM
        room = most - self.batch((), ()).input_tokens
        if room < _LEAST_ROOM:
            return (
                f"rules, synthesis and names of files alone take {limit - room:,} tokens of the "
                f"{limit:,} that a request may have"
            )
        files = sum(self._sizes.values())
        beside = room - files
        if files > _FILES_SHARE * room:
            beside = max(beside, int(_NOTES_FIRST * room))
        chosen = notes[: self._within(notes, beside)[0]]
        shown = self._shown_for(chosen, room)
        while True:
            batch = self.batch(chosen, shown)
            if batch.input_tokens <= most:
                return batch
            if len(chosen) > 1:
                chosen = chosen[: max(1, len(chosen) * 4 // 5)]
            elif shown:
                shown = shown[:-1]
            else:
                return chosen[0]

    def _shown_for(self, notes: Sequence[Note], room: int) -> list[str]:
        """Return the files to show; those that share most with the notes come first."""
        remaining = room - self._within(notes, math.inf)[1]
        return self._fitting(notes, self.texts, remaining, rest=())

    def _written_anew(self, notes: Sequence[Note], shown: Collection[str]) -> list[str]:
        """Return the shown files for which an answer has room beside the notes."""
        remaining = self._room - self._within(notes, math.inf)[1]
        return self._fitting(notes, shown, remaining, rest=self.texts)

    def _fitting(
        self, notes: Sequence[Note], names: Collection[str], room: float, rest: Collection[str]
    ) -> list[str]:
        """Return the files that fit: all, or those that the notes concern, then those of ``rest``.

        The best match comes first.
        """
        sizes = self._sizes
        if sum(sizes[name] for name in names) <= room:
            return list(names)
        fitting: list[str] = []
        for name in dict.fromkeys((*self._touched(notes), *rest)):
            if name in names and sizes[name] <= room:
                fitting.append(name)
                room -= sizes[name]
        return fitting

    def _touched(self, notes: Sequence[Note]) -> list[str]:
        """Return the files that share words with the notes, the best match first.

        A word counts for more, the fewer files hold it.
        """
        about = {file.name: f"{file.title} {file.about}" for file in self._state.rules.files}
        terms = {
            name: set(terms_of(f"{about.get(name, name)}\n{text}"))
            for name, text in self.texts.items()
        }
        holding = Counter(term for words in terms.values() for term in words)
        asked: dict[str, int] = {}
        for note in notes:
            for term, kind in terms_of(
                f"{note.category} {' '.join(note.tags)} {note.text}"
            ).items():
                asked[term] = max(kind, asked.get(term, 0))
        scores = {
            name: sum(asked[term] / holding[term] for term in words & asked.keys())
            for name, words in terms.items()
        }
        return sorted((name for name in scores if scores[name] > 0), key=lambda n: (-scores[n], n))
