"""Decides whether a model's answer is fit to be memory.

The one rule: what is doubtful in form never becomes memory, and what a conversation is about never
counts against it: a summary may tell of errors, refusals and apologies. No problem's detail
holds text of a message or an answer, since it is journalled. It re-makes nothing: that is the
engine's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hiermem.core import language
from hiermem.core.anchors import Fidelity
from hiermem.core.units import prose
from hiermem.protocols import LLMRequest, LLMResponse

__all__ = ["Problem", "ProblemKind", "check"]

ProblemKind: TypeAlias = Literal[
    "empty",
    "truncated",
    "refused",
    "error_text",
    "too_long",
    "not_smaller",
    "echo",
    "missing_sections",
    "missing_anchors",
    "wrong_language",
]

#: A refusal or an error message is the whole answer, and short.
_SHORT: Final = 600
#: A copied stretch this long, in code points, is no quotation any more.
_ECHO: Final = 240
#: Inputs of this many tokens or fewer may come out as long as they went in.
_SMALL_INPUT: Final = 200

_REFUSAL: Final = re.compile(
    r"[\"'*]*(?:"
    r"(?:(?:i[’']?m|i am|we[’']?re)?\s*(?:very |so |truly )?sorry\b"  # noqa: RUF001
    r"|i apologi[sz]e\b|unfortunately\b)"
    r"[^.\n]{0,60}?\bi\s?(?:can[’']?t|cannot|can not|won[’']?t|will not|[’']?m (?:unable|not able)"  # noqa: RUF001
    r"|am (?:unable|not able))\b"
    r"|i\s?(?:can[’']?t|cannot|can not|won[’']?t|will not|[’']?m (?:unable|not able) to"  # noqa: RUF001
    r"|am (?:unable|not able) to)\s+"
    r"(?:help|assist|comply|provide|fulfil|fulfill|summari[sz]e|process|do that|do this|continue"
    r"|engage|create|generate|complete)\b"
    r"|as an? (?:ai|artificial intelligence|large language model|language model)\b[^.\n]{0,80}?"
    r"\b(?:can[’']?t|cannot|unable|not able|won[’']?t)\b"  # noqa: RUF001
    r"|(?:lo siento|désolée?|je suis désolée?|es tut mir leid|mi dispiace|desculpe)\b[^.\n]{0,40}?"
    r"\b(?:no puedo|je ne (?:peux|puis)|kann ich|ich kann|non posso|não posso)\b"
    r"|(?:抱歉|对不起|申し訳)[^。\n]{0,30}(?:无法|不能|できません)"
    r")",
    re.IGNORECASE,
)
_HTTP_TEXT: Final = (
    r"(?:bad request|unauthori[sz]ed|forbidden|not found|request timeout|too many requests"
    r"|internal server error|bad gateway|service (?:temporarily )?unavailable|gateway time-?out)"
)
#: What an error's body begins with, however long it is.
_ERROR_BODY: Final = re.compile(
    r"\{\s*\"(?:error|errors|detail|message|status_code)\"\s*:"
    r"|<!doctype html|<html[\s>]"
    r"|traceback \(most recent call last\)",
    re.IGNORECASE,
)
_ERROR_LINE: Final = re.compile(
    rf"(?:(?:http |http/1\.1 |error |status |code )?[45]\d\d\b[\s:,-]*{_HTTP_TEXT}"
    rf"|{_HTTP_TEXT}[.!]?\s*$"
    r"|upstream (?:connect error|request timeout)"
    r"|(?:rate limit|quota|context length|maximum context length)\b[^.\n]{0,40}\bexceeded\b[^\n]*$"
    r"|(?:[a-z_.]{0,60}(?:error|exception)): [^\n]*$"
    r"|an? (?:unexpected |internal )?error (?:has )?occurred\b[^\n]*$)",
    re.IGNORECASE,
)
_DECORATION: Final = "#*_-:.) \t0123456789"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an answer.

    A ``hard`` one never becomes memory. The others earn one stricter try, after which the better
    answer may be taken. ``detail`` tells what would be right and holds no text.
    """

    kind: ProblemKind
    detail: str
    hard: bool


def check(
    response: LLMResponse,
    *,
    request: LLMRequest,
    input_tokens: int,
    sections: Sequence[str] = (),
    fidelity: Fidelity | None = None,
    min_fidelity: float = 0.0,
) -> tuple[Problem, ...]:
    """Give what is wrong with ``response``, hard problems first; () where it is fit.

    ``input_tokens`` counts what was summarised, without the prompt. ``sections`` are the headings
    that were asked for.
    """
    text = response.text
    if not text.strip():
        return (*_finish(response), Problem("empty", "the answer is blank", hard=True))
    if _says_nothing(text):
        says = "the answer says nothing beyond its headings"
        return (*_finish(response), Problem("empty", says, hard=True))
    return (
        *_finish(response),
        *_form(text),
        *_size(request.counter.count(text), request=request, input_tokens=input_tokens),
        *_copy(response, request=request),
        *_language(text, request=request),
        *_content(text, sections=sections, fidelity=fidelity, min_fidelity=min_fidelity),
    )


def _says_nothing(text: str) -> bool:
    """Say whether an answer has no word beyond its headings ("...", "## Overview")."""
    said = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return not any(char.isalnum() for line in said for char in line)


def _finish(response: LLMResponse) -> Iterator[Problem]:
    """Yield what the finish reason says against the answer."""
    if response.finish_reason == "length":
        yield Problem("truncated", "the answer was cut off at its token limit", hard=True)
    elif response.finish_reason == "refusal":
        yield Problem("refused", "the model declined", hard=True)
    elif response.finish_reason == "error":
        yield Problem("error_text", "the model reported an error", hard=True)


def _form(text: str) -> Iterator[Problem]:
    """Yield a problem where the whole answer is a refusal or an error message."""
    answer = text.strip()
    head = answer[:_SHORT]
    whole = len(answer) <= _SHORT
    if whole and _REFUSAL.match(head):
        yield Problem("refused", "the answer is a refusal, not a summary", hard=True)
    elif _ERROR_BODY.match(head) or (whole and _ERROR_LINE.match(head)):
        yield Problem("error_text", "the answer is an error message, not a summary", hard=True)


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


def _copy(response: LLMResponse, *, request: LLMRequest) -> Iterator[Problem]:
    """Yield a problem where the answer is one stretch of its inputs or of the prompt.

    An extracted answer is made of such stretches, and says so by its units.
    """
    answer = " ".join(response.text.split())
    if response.units or len(answer) < _ECHO:
        return
    told = [" ".join(source.text for source in request.inputs)]
    told += [message.content for message in request.messages]
    if any(answer in " ".join(text.split()) for text in told):
        yield Problem("echo", "the answer repeats its input instead of summarising it", hard=True)


def _language(text: str, *, request: LLMRequest) -> Iterator[Problem]:
    """Yield a problem where the answer is clearly in another language than all of the inputs."""
    answered = language.guess(prose(text))
    if answered is None:
        return
    # A share of each input, so that no single long one speaks for a conversation in two languages.
    share = max(200, 6000 // max(1, len(request.inputs)))
    spoken = language.guess("\n".join(prose(source.text)[:share] for source in request.inputs))
    if spoken is not None and spoken != answered:
        yield Problem(
            "wrong_language", f"answered in {answered!r}, the inputs are in {spoken!r}", hard=True
        )


def _content(
    text: str, *, sections: Sequence[str], fidelity: Fidelity | None, min_fidelity: float
) -> Iterator[Problem]:
    """Yield what is missing: the sections that were asked for, the anchors of the inputs."""
    headings = [line.strip(_DECORATION).casefold() for line in text.splitlines()]
    missing = [
        name for name in sections if not any(line.startswith(name.casefold()) for line in headings)
    ]
    if missing:
        yield Problem("missing_sections", "missing: " + ", ".join(missing), hard=False)
    if fidelity is not None and fidelity.value < min_fidelity:
        kept = len(fidelity.required) - len(fidelity.missing)
        yield Problem(
            "missing_anchors", f"{kept} of {len(fidelity.required)} anchors kept", hard=False
        )
