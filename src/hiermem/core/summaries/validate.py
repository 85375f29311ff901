"""Decides whether a model's answer is fit to be memory.

An answer that is doubtful in form never becomes memory. The subject of a conversation never counts
against an answer: a summary may tell of errors, refusals and apologies. No problem's detail holds
text of a message or an answer, because details are journalled. The engine, not this module, makes a
refused summary again.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hiermem.core.summaries import form
from hiermem.core.summaries.copied import is_mostly_copied
from hiermem.core.summaries.form import Problem
from hiermem.core.summaries.injected import obeys
from hiermem.core.summaries.terms import plain_text, stands_in, terms
from hiermem.core.text import language
from hiermem.core.text.anchors import Fidelity
from hiermem.core.text.denial import inverted
from hiermem.core.text.units import prose
from hiermem.protocols import LLMRequest, LLMResponse

#: A copied stretch this long, in code points, is more than a quotation.
_ECHO: Final = 240
#: The first words of an answer; where one is missing in a text, the answer is no stretch of it.
_OPENING_WORDS: Final = 40
#: A summary of inputs of this many tokens or fewer may be as long as the inputs.
_SMALL_INPUT: Final = 200

_DECORATION: Final = "#*_-:.) \t0123456789"

#: The fewest lost anchors that are worth a second call, and the tokens that one anchor takes.
_FEWEST_LOST: Final = 6
_ANCHOR_TOKENS: Final = 20
#: The share of the anchors under which the extractive text stands in, the fewest required anchors
#: that show it, and the tokens from which an answer has room for some of them.
_FLOOR: Final = 0.05
_FLOOR_ANCHORS: Final = 8
_FLOOR_TOKENS: Final = 80
#: An answer of fewer tokens is read at a glance, with or without headings.
_HEADED: Final = 200

#: The labels of speakers that have no name of their own.
_GENERIC: Final = frozenset({"user", "assistant", "tool", "system"})
#: The one who answers, where nobody else is called so.
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


def check(
    response: LLMResponse,
    *,
    request: LLMRequest,
    tokens: int,
    input_tokens: int,
    record: Sequence[str] = (),
    sections: Sequence[str] = (),
    fidelity: Fidelity | None = None,
    min_fidelity: float = 0.0,
) -> tuple[Problem, ...]:
    """Return the problems of ``response``, hard problems first; () where it is fit.

    ``response`` has been repaired (``repair``) and is ``tokens`` tokens long. ``input_tokens``
    counts the summarised inputs, without the prompt. Of an answer with units, which was extracted
    from its inputs, the form and the size are checked, and the rest of a written one alone:
    ``record`` is the prose of each input, ``sections`` are the requested headings.
    """
    text, written = response.text, not response.units
    if not _says_anything(text):
        says = "the answer says nothing beyond its headings"
        return (*_finish(response), Problem("empty", says, hard=True))
    always = (
        *_finish(response),
        *_form(text, request=request, written=written),
        *_size(tokens, request=request, input_tokens=input_tokens),
    )
    if not written:
        return always
    return (
        *always,
        *_copy(text, request=request),
        *_relation(text, request=request, input_tokens=input_tokens),
        *_language(text, record),
        *_truth(text, record, request=request),
        *_inventions(text, fidelity=fidelity, request=request),
        *_content(text, tokens, sections=sections, fidelity=fidelity, min_fidelity=min_fidelity),
    )


def _says_anything(text: str) -> bool:
    """Return whether an answer has a word beyond its headings, unlike "..." and "## Overview"."""
    said = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return any(char.isalnum() for line in said for char in line)


def _finish(response: LLMResponse) -> Iterator[Problem]:
    """Yield the problem that the finish reason shows, if any."""
    if response.finish_reason == "length":
        yield Problem("truncated", "the answer was cut off at its token limit", hard=True)
    elif response.finish_reason == "refusal":
        yield Problem("refused", "the model declined", hard=True)
    elif response.finish_reason == "error":
        yield Problem("error_text", "the model reported an error", hard=True)


def _form(text: str, *, request: LLMRequest, written: bool) -> Iterator[Problem]:
    """Yield a problem where the answer as a whole is no summary by its form."""
    answer = text.strip()
    found = form.message_fault(answer)
    if found is None and written:
        found = form.prose_fault(answer, request=request)
    if found is not None:
        yield found


def _relation(text: str, *, request: LLMRequest, input_tokens: int) -> Iterator[Problem]:
    """Yield a problem where almost nothing in the answer is from its inputs.

    Small inputs are not judged, because a fair summary of them may have none of their words. An
    answer in another script than the inputs is not judged either.
    """
    if input_tokens <= _SMALL_INPUT:
        return
    stated = plain_text(" ".join(f"{source.speaker} {source.text}" for source in request.inputs))
    found: list[str] = []
    shared = 0
    for term in terms(text):
        found.append(term)
        shared += stands_in(term, stated)
        if shared == _SHARED_TERMS:
            return
    if shared and len(found) <= _FEW_TERMS:
        return
    answer = " ".join(plain_text(text).split())
    if any(opening in answer for opening in _openings(source.text for source in request.inputs)):
        return
    if found and not _same_script("".join(found), request=request):
        return
    yield Problem("unrelated", "the answer tells nothing of its inputs", hard=True)


def _openings(texts: Iterable[str]) -> Iterator[str]:
    """Yield the first words of each text, by which an answer may name its subject."""
    for text in texts:
        opening = plain_text(text[:200]).split()[:_OPENING]
        if len(opening) == _OPENING:
            yield " ".join(opening)


def _same_script(letters: str, *, request: LLMRequest) -> bool:
    """Return whether most of ``letters`` are of a script that the inputs are written in."""
    share = max(40, _SCRIPT_SAMPLE // max(1, len(request.inputs)))
    spoken = _scripts("".join(source.text[:share] for source in request.inputs)[:_SCRIPT_SAMPLE])
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


def _size(tokens: int, *, request: LLMRequest, input_tokens: int) -> Iterator[Problem]:
    """Yield a problem where the answer is over its limit, or no smaller than its inputs."""
    if tokens > request.max_tokens:
        yield Problem(
            "too_long",
            f"{tokens} tokens; the limit is {request.max_tokens}, asked were "
            f"{request.target_tokens}",
            hard=True,
        )
    limit = input_tokens - 1 if input_tokens > _SMALL_INPUT else input_tokens
    if tokens > limit:
        yield Problem(
            "not_smaller", f"{tokens} tokens of {input_tokens} tokens of inputs", hard=True
        )


def _copy(text: str, *, request: LLMRequest) -> Iterator[Problem]:
    """Yield a problem where the answer is one stretch of its inputs or of the prompt."""
    if is_mostly_copied(text, request=request):
        yield Problem("echo", "the answer repeats the prompt", hard=True)
        return
    words = text.split()
    answer = " ".join(words)
    if len(answer) < _ECHO:
        return
    stated = [" ".join(source.text for source in request.inputs)]
    stated += [message.content for message in request.messages]
    if any(
        all(word in each for word in words[:_OPENING_WORDS]) and answer in " ".join(each.split())
        for each in stated
    ):
        yield Problem("echo", "the answer repeats its input instead of summarising it", hard=True)


def _language(text: str, record: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem where the answer is clearly in another language than all of ``record``."""
    answered = language.guess(prose(text))
    if answered is None:
        return
    # Each input gets a share, so that one long input does not decide for two languages.
    share = max(200, 6000 // max(1, len(record)))
    spoken = language.guess("\n".join(each[:share] for each in record))
    if spoken is not None and spoken != answered:
        yield Problem(
            "wrong_language", f"answered in {answered!r}, the inputs are in {spoken!r}", hard=True
        )


def _truth(text: str, record: Sequence[str], *, request: LLMRequest) -> Iterator[Problem]:
    """Yield a problem where a prohibition is turned round, or an order of the record is obeyed.

    ``record`` is the prose of the inputs.
    """
    claimed = prose(text)
    if inverted("\n".join(record), claimed):
        yield Problem("inverted", "a prohibition of the record is turned round", hard=True)
    if obeys((source.text for source in request.inputs), claimed):
        yield Problem("injected", "an order inside the record is obeyed", hard=True)


def _inventions(text: str, *, fidelity: Fidelity | None, request: LLMRequest) -> Iterator[Problem]:
    """Yield a problem where speakers, names, figures or dates are not in the record."""
    spoken = [source for source in request.inputs if source.index is not None]
    known = {source.speaker.casefold() for source in spoken if source.speaker.strip()} - _GENERIC
    if len(known) > 1 and all(source.role == "user" for source in spoken):
        record = " ".join(f"{source.speaker} {source.text}" for source in spoken)
        if _ASSISTANT.search(prose(text)) and not _ASSISTANT.search(record):
            yield Problem("invented", "no assistant speaks in the record", hard=True)
            return
    if fidelity is None:
        return
    strangers = len(fidelity.strangers)
    if strangers > fidelity.named and (strangers > 1 or _names_nobody(text, known)):
        detail = f"{strangers} names are not in the record, {fidelity.named} are"
        yield Problem("invented", detail, hard=True)
        return
    if not fidelity.invented:
        return
    invented = len(fidelity.invented)
    detail = f"{invented} figures or dates are not in the record, {fidelity.supported} are"
    if invented > fidelity.supported:
        yield Problem("invented", detail, hard=True)
    else:
        yield Problem("unsupported", detail, hard=False)


def _names_nobody(text: str, known: set[str]) -> bool:
    """Return whether ``text`` names none of several people whose names are ``known``."""
    claimed = text.casefold()
    return len(known) > 1 and not any(part in claimed for name in known for part in name.split())


def _content(
    text: str,
    tokens: int,
    *,
    sections: Sequence[str],
    fidelity: Fidelity | None,
    min_fidelity: float,
) -> Iterator[Problem]:
    """Yield a problem where requested sections are missing, or too many anchors of the inputs."""
    headings = [line.strip(_DECORATION).casefold() for line in text.splitlines()]
    missing = [
        name for name in sections if not any(line.startswith(name.casefold()) for line in headings)
    ]
    lost: Problem | None = None
    if fidelity is not None and fidelity.value is not None and fidelity.value < min_fidelity:
        required = len(fidelity.required)
        kept = required - len(fidelity.missing)
        enough = required >= _FLOOR_ANCHORS and tokens >= _FLOOR_TOKENS
        lost = Problem(
            "missing_anchors",
            f"{kept} of {required} anchors kept",
            hard=enough and fidelity.value < min(_FLOOR, min_fidelity),
            # An answer that has one anchor for every twenty tokens is short rather than empty.
            again=required - kept >= _FEWEST_LOST and kept * _ANCHOR_TOKENS < tokens,
        )
    if missing:
        again = (lost is not None and lost.again) or (
            len(missing) == len(sections) and tokens >= _HEADED
        )
        yield Problem("missing_sections", "missing: " + ", ".join(missing), hard=False, again=again)
    if lost is not None:
        yield lost
