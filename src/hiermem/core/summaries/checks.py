"""Lists what keeps a model's answer from being memory.

Each check is a name, what the model is told of it, and a predicate. An answer to which one applies
is never taken. The subject of a conversation never counts against an answer: a summary may tell of
errors, refusals and apologies. Neither name nor words hold text of a message or an answer, because
they are journalled.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hiermem.core.summaries import form
from hiermem.core.summaries.repair import thinks
from hiermem.core.summaries.terms import plain_text, stands_in, terms
from hiermem.core.text import language
from hiermem.core.text.anchors import Fidelity
from hiermem.core.text.units import prose
from hiermem.protocols import LLMRequest, LLMResponse, SourceText

#: A copied stretch this long, in code points, is more than a quotation.
_ECHO: Final = 240
#: The first words of an answer; if one is missing in a text, the answer is no stretch of it.
_OPENING_WORDS: Final = 40
#: A summary of inputs of this many tokens or fewer may be as long as the inputs.
_SMALL_INPUT: Final = 200
#: The share of the anchors under which an answer says too little, the fewest required anchors that
#: show it, and the tokens from which an answer has room for some of them.
_FLOOR: Final = 0.05
_FLOOR_ANCHORS: Final = 8
_FLOOR_TOKENS: Final = 80

#: The labels of speakers that have no name of their own.
_GENERIC: Final = frozenset({"user", "assistant", "tool", "system"})
#: The one who answers, if nobody else is called so.
_ASSISTANT: Final = re.compile(
    r"\b(?:assistant|assistent|assistente|asistente|ассистент)\b|助手|助理", re.IGNORECASE
)
#: An answer of up to this many terms needs one term of the inputs; a longer answer needs two.
_SHARED_TERMS: Final = 2
_FEW_TERMS: Final = 6
#: Code points of the inputs that are read for their script.
_SCRIPT_SAMPLE: Final = 4000
#: The number of a text's first words that are recognised as a quotation of the text.
_OPENING: Final = 3


class Problem(NamedTuple):
    """Why an answer cannot be memory: the name of the check, and what the model is told."""

    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was repaired (``repair``), and what it is held to.

    It has ``tokens``, its inputs ``input_tokens`` without the prompt. ``record`` is the prose of
    each input, ``fidelity`` what a written answer keeps of them; None for an extracted one.
    """

    response: LLMResponse
    request: LLMRequest
    tokens: int
    input_tokens: int
    record: Sequence[str] = ()
    fidelity: Fidelity | None = None

    @property
    def text(self) -> str:
        """The stripped text."""
        return self.response.text.strip()


def check(answer: Answer) -> tuple[Problem, ...]:
    """Return the problems of ``answer``; () if it may become memory.

    An answer that was extracted from its inputs, as its units show, is held to ``ALWAYS`` alone.
    """
    checks: tuple[Check, ...] = ALWAYS if answer.response.units else (*ALWAYS, *WRITTEN)
    if form.says_nothing(answer.text):
        checks = tuple(each for each in ALWAYS if each.name in _OF_NOTHING)
    values = _sizes(answer)
    return tuple(
        Problem(each.name, each.says.format_map(values)) for each in checks if each.applies(answer)
    )


def _sizes(answer: Answer) -> dict[str, object]:
    """Return the length of an answer and its limit, in words, or characters if it has no blanks."""
    words = len(answer.text.split())
    unit, size = (
        ("words", words) if 12 * words > len(answer.text) else ("characters", len(answer.text))
    )
    most = size * answer.request.max_tokens // max(1, answer.tokens)
    return {"size": f"{size} {unit}", "most": most}


def _is_echo(answer: Answer) -> bool:
    """Return whether the answer is one stretch of its inputs or of the prompt."""
    words = answer.text.split()
    whole = " ".join(words)
    if len(whole) < _ECHO:
        return False
    stated = [" ".join(source.text for source in answer.request.inputs)]
    stated += [message.content for message in answer.request.messages]
    return any(
        all(word in each for word in words[:_OPENING_WORDS]) and whole in " ".join(each.split())
        for each in stated
    )


def _is_unrelated(answer: Answer) -> bool:
    """Return whether almost nothing in the answer is from its inputs.

    Small inputs are not judged, because a fair summary of them may have none of their words. An
    answer in another script than the inputs is not judged either.
    """
    inputs = answer.request.inputs
    if answer.input_tokens <= _SMALL_INPUT:
        return False
    stated = plain_text(" ".join(f"{source.speaker} {source.text}" for source in inputs))
    found: list[str] = []
    shared = 0
    for term in terms(answer.text):
        found.append(term)
        shared += stands_in(term, stated)
        if shared == _SHARED_TERMS:
            return False
    if shared and len(found) <= _FEW_TERMS:
        return False
    said = " ".join(plain_text(answer.text).split())
    if any(opening in said for opening in _openings(source.text for source in inputs)):
        return False
    return not found or _same_script("".join(found), inputs)


def _openings(texts: Iterable[str]) -> Iterator[str]:
    """Yield the first words of each text, by which an answer may name its subject."""
    for text in texts:
        opening = plain_text(text[:200]).split()[:_OPENING]
        if len(opening) == _OPENING:
            yield " ".join(opening)


def _same_script(letters: str, inputs: Sequence[SourceText]) -> bool:
    """Return whether most of ``letters`` are of a script that the inputs are written in."""
    share = max(40, _SCRIPT_SAMPLE // max(1, len(inputs)))
    spoken = _scripts("".join(source.text[:share] for source in inputs)[:_SCRIPT_SAMPLE])
    answered = _scripts(letters[:_SCRIPT_SAMPLE])
    if not answered or not spoken:
        return True
    (script, _), *_others = answered.most_common(1)
    return spoken[script] * 10 >= spoken.total()


def _scripts(text: str) -> Counter[str]:
    """Count the letters of ``text`` by the first word of their names, which is their script."""
    return Counter(
        unicodedata.name(char, "OTHER").partition(" ")[0] for char in text if char.isalpha()
    )


def _is_in_another_language(answer: Answer) -> bool:
    """Return whether the answer is clearly in another language than all of the record."""
    answered = language.guess(prose(answer.text))
    if answered is None:
        return False
    # Each input gets a share, so that one long input does not decide for two languages.
    share = max(200, 6000 // max(1, len(answer.record)))
    spoken = language.guess("\n".join(each[:share] for each in answer.record))
    return spoken is not None and spoken != answered


def _is_invented(answer: Answer) -> bool:
    """Return whether most names, figures and dates are not in the record, or who speaks in it."""
    inputs, found = answer.request.inputs, answer.fidelity
    spoken = [source for source in inputs if source.index is not None]
    known = {source.speaker.casefold() for source in spoken if source.speaker.strip()} - _GENERIC
    if len(known) > 1 and all(source.role == "user" for source in spoken):
        record = " ".join(f"{source.speaker} {source.text}" for source in spoken)
        if _ASSISTANT.search(prose(answer.text)) and not _ASSISTANT.search(record):
            return True
    if found is None:
        return False
    strangers = len(found.strangers)
    if strangers > found.named and (strangers > 1 or _names_nobody(answer.text, known)):
        return True
    return len(found.invented) > found.supported


def _names_nobody(text: str, known: set[str]) -> bool:
    """Return whether ``text`` names none of several people whose names are ``known``."""
    claimed = text.casefold()
    return len(known) > 1 and not any(part in claimed for name in known for part in name.split())


def _says_too_little(answer: Answer) -> bool:
    """Return whether a longer answer keeps almost none of the facts of its inputs."""
    found = answer.fidelity
    return (
        found is not None
        and found.value is not None
        and len(found.required) >= _FLOOR_ANCHORS
        and answer.tokens >= _FLOOR_TOKENS
        and found.value < _FLOOR
    )


class Check(NamedTuple):
    """A check of an answer: its name, what the model is told if it applies, and the predicate."""

    name: str
    says: str
    applies: Callable[[Answer], bool]


def _finished(reason: str) -> Callable[[Answer], bool]:
    return lambda answer: answer.response.finish_reason == reason


def _record(answer: Answer) -> str:
    return form.folded(" ".join(source.text for source in answer.request.inputs))


_REFUSED: Final = "It was a refusal. Nothing but a summary is asked of you."
#: What any answer is held to, also one that was extracted.
ALWAYS: Final = (
    Check("truncated", "It was cut off at its end. Write fewer and shorter lines.",
          _finished("length")),
    Check("refused", _REFUSED,
          lambda a: a.response.finish_reason == "refusal" or form.is_refusal(a.text)),
    Check("error_text", "It was an error message.",
          lambda a: a.response.finish_reason == "error" or form.is_error(a.text)),
    Check("empty", "It said nothing.", lambda a: form.says_nothing(a.text)),
    Check("too_long", "It was too long: {size}, of at most {most}. Leave out whole lines.",
          lambda a: a.tokens > a.request.max_tokens),
    Check("not_smaller", "It was as long as the record. Write fewer lines.",
          lambda a: a.tokens > a.input_tokens - (a.input_tokens > _SMALL_INPUT)),
)  # fmt: skip
#: What a written answer is held to besides.
WRITTEN: Final = (
    Check("refused", _REFUSED, lambda a: form.declines(a.text)),
    Check("reasoning", "It held your reasoning. Write the summary alone.",
          lambda a: thinks(a.text, request=a.request)),
    Check("truncated", "It was JSON that is cut off. Write lines.",
          lambda a: form.is_cut_json(a.text)),
    Check("not_prose", "It was data or code. Write headings and lines.",
          lambda a: form.is_data(a.text) or form.is_code(a.text)),
    Check("repetitive", "It said the same again and again. Say each thing once.",
          lambda a: form.repeats(a.text, _record(a))),
    Check("continuation",
          "It continued the conversation. Report what was said in the record.",
          lambda a: form.continues(a.text, _record(a), request=a.request)),
    Check("reply", "It spoke to the reader. Report what was said in the record.",
          lambda a: form.replies(a.text)),
    Check("echo", "It copied what it was given. Summarise the record in other words.", _is_echo),
    Check("unrelated", "It told nothing of the record.", _is_unrelated),
    Check("wrong_language", "It was not in the language of the record.", _is_in_another_language),
    Check("invented", "It had names, figures or dates that are not in the record.", _is_invented),
    Check("vague", "It left out the names, figures and dates of the record.", _says_too_little),
)  # fmt: skip
#: With these an answer is close to one that could be taken, so a second request shows it.
MENDABLE: Final = frozenset(
    ("too_long", "not_smaller", "reply", "wrong_language", "invented", "vague")
)
#: What can be said of an answer that says nothing.
_OF_NOTHING: Final = ("truncated", "refused", "error_text", "empty")
