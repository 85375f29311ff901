# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides which part of an answer is the summary: without its wrapping, and cut to whole lines.

Reasoning, a fence around the whole, an announcement before it and an offer after it are no part of
a summary, in whatever combination they come.
Where an answer was cut off, its last, incomplete line is taken away; what is left is judged, and is
kept where enough is left of the requested length.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Final

from hiermem.data import word_lists
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.summaries.checks import ANNOUNCED, is_remark, speaks_of_marks, statements
from hiermem.text import language
from hiermem.text.reasoning import without_reasoning

#: The share of the requested length that a cut answer must still have.
LEAST_LEFT: Final = 0.6

#: What an answer is wrapped in: a tag, or a fence around all that is no remark.
_WRAPPED: Final = re.compile(
    r"\A(?P<head>.{0,400}?)"
    r"(?:<(?P<tag>summary|answer|output|result|response|final)>(?P<told>.*?)(?:</(?P=tag)>|\Z)"
    r"|^(?P<fence>```|~~~)[ \t]*(?:markdown|md|text|txt|plaintext)?[ \t]*\n(?P<body>.*?)\n?"
    r"^(?P=fence)[ \t]*$)"
    r"(?P<tail>.{0,400})\Z",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
#: An offer at the end of an answer is no longer than this.
_REMARK: Final = 400
#: An answer of up to so many times its limit is cut instead of asked for again.
MOST_OVER: Final = 1.2
_HEADING: Final = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*\n]+\*\*:?\s*$)")
_ITEM: Final = re.compile(r"\s*(?:[-*•+]|\(?\d{1,3}[.)])\s")
_ROW: Final = re.compile(r"\s*\|")
_CODE: Final = re.compile(r"\s*```")
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
#: Scripts whose sentences have no mark at their end.
_UNMARKED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
#: Characters that end a line inside a sentence.
_OPEN: Final = ",，、;；(（[{-–—/&"
#: A line of more words than this, or of more characters of a script without spaces, is a sentence.
_LONG_LINE: Final = 12
_LONG_UNSPACED: Final = 30
#: The word lists; "no end" of a language are words that no sentence of it ends with.
_WORDS: Final = word_lists("answer_words")
_HAN_DANGLING: Final = "的和与及或而并把被将对从向给让但因在"
_SHORTEST_CUT: Final = 4
#: The words at the end of a line by which it is recognised.
_TAIL: Final = 3
#: How much of a text is read for its first words.
_OPENING: Final = 400
#: The words at the end of a line that are recognised as a quotation.
_QUOTED: Final = 8
_SENTENCE_END: Final = re.compile(r"(?<=\w{2})[.!?…][\"'”’»)\]]*(?=\s)|[。！？][」』”]*")
_WORD: Final = re.compile(r"[^\W_]+")


def repair(response: LLMResponse, *, request: LLMRequest) -> LLMResponse:
    """Return ``response`` as it is judged and kept: unwrapped, and where it was cut, trimmed.

    The finish reason of a trimmed answer says whether enough is left: "stop" or "length".
    """
    if (
        request.schema is not None
        or response.units
        or response.finish_reason not in ("stop", "length")
    ):
        return response
    text = _shortened(unwrapped(response.text, spoken=speaks_of_marks(request)), request)
    if not (response.finish_reason == "length" or _is_cut(text, response, request=request)):
        return replace(response, text=text) if text != response.text.strip() else response
    kept = _whole_lines(text, flagged=response.finish_reason == "length")
    enough = request.counter.count(kept) >= LEAST_LEFT * request.target_tokens
    if enough:
        return replace(response, text=kept, finish_reason="stop")
    return replace(response, text=text, finish_reason="length")


def unwrapped(text: str, *, spoken: bool = False) -> str:
    r"""Return an answer without reasoning, its fence or tag, an announcement, and a closing offer.

    With ``spoken``, the record speaks of marks of reasoning, and so may the answer: they are marks
    only if it begins with one.

    >>> unwrapped("Here is the summary:\n\n## Overview\nThey rent.\n\nLet me know!")
    '## Overview\nThey rent.'
    """
    before = None
    while text != before:
        before = text
        for step in (partial(_bare, spoken=spoken), _inside, _unannounced, _without_offer):
            text = step(text).strip()
    return text


def _bare(text: str, *, spoken: bool) -> str:
    opens = text.lstrip().startswith(("<", "[", "◁", "【"))
    return text if spoken and not opens else without_reasoning(text)


def _inside(text: str) -> str:
    """Return what stands inside a tag or a fence that has only remarks around it."""
    match = _WRAPPED.match(text)
    if match is None:
        return text
    head, tail = match["head"].strip(), match["tail"].strip()
    if head and not (ANNOUNCED.match(head) or all(map(is_remark, statements(head)))):
        return text
    if tail and not all(map(is_remark, statements(tail))):
        return text
    return str(match["body"] if match["told"] is None else match["told"])


def _unannounced(text: str) -> str:
    first, _, rest = text.partition("\n")
    return rest if rest.strip() and ANNOUNCED.match(first.strip()) else text


def _without_offer(text: str) -> str:
    body, gap, last = text.rpartition("\n\n")
    marked = _HEADING.match(last) or _ITEM.match(last) or _ROW.match(last)
    short = len(last) <= _REMARK
    if gap and body.strip() and short and not marked and all(map(is_remark, statements(last))):
        return body.rstrip().removesuffix("---")
    return text


def _shortened(text: str, request: LLMRequest) -> str:
    """Return an answer that is at most a fifth too long without its last lines.

    One that is as long as the record stays as it is, to be refused: it may be a copy of it.
    """
    count, limit = request.counter.count, request.max_tokens
    tokens = count(text)
    if not limit < tokens <= MOST_OVER * limit:
        return text
    if tokens >= sum(count(each.text) for each in request.inputs):
        return text
    lines = text.splitlines()
    while lines and count("\n".join(lines)) > limit:
        lines.pop()
        while lines and (not lines[-1].strip() or _HEADING.match(lines[-1])):
            lines.pop()
    return "\n".join(lines) or text


def _whole_lines(text: str, *, flagged: bool) -> str:
    """Return the lines of ``text`` without an incomplete last one and headings left without lines.

    Where the model was stopped (``flagged``), a last line is whole only if its sentence ends. Of a
    paragraph its whole sentences stay.
    """
    lines = text.splitlines()
    if lines and not (flagged and ends_sentence(lines[-1])):
        last = lines.pop()
        before = list(_SENTENCE_END.finditer(last))
        if before and not (_ITEM.match(last) or _ROW.match(last) or _HEADING.match(last)):
            lines.append(last[: before[-1].end()])
    while lines and (not lines[-1].strip() or _HEADING.match(lines[-1])):
        lines.pop()
    return "\n".join(lines).strip()


def _is_cut(text: str, response: LLMResponse, *, request: LLMRequest) -> bool:
    """Return whether an answer that claims to be whole ends in the middle of a sentence."""
    last = text.rstrip().rpartition("\n")[2].strip()
    if not last or any(form.match(last) for form in (_HEADING, _ROW, _CODE)):
        return False
    if ends_sentence(last) or _UNMARKED.search(last) or _ends_as_said(last, request=request):
        return False
    tokens = request.counter.count(text)
    # No server stops an answer beyond its limit: it is too long, and whole.
    return tokens <= request.max_tokens and _is_open(
        last, text, response, tokens=tokens, request=request
    )


def _is_open(
    last: str, text: str, response: LLMResponse, *, tokens: int, request: LLMRequest
) -> bool:
    """Return whether the last line of an answer, which has no mark at its end, goes on."""
    spent = response.usage.output_tokens or 0
    if tokens == request.max_tokens or spent >= request.max_tokens:
        return True
    if last[-1] in _OPEN or any(last.count(a) > last.count(b) for a, b in ("()", "[]", "（）")):
        return True
    if _dangles(last, text, request=request):
        return True
    return not _ITEM.match(last) and _is_long(last) and not _is_quoted(last, request=request)


def ends_sentence(line: str) -> bool:
    """Return whether a line ends with a mark that may end a sentence, or with what may close one.

    >>> ends_sentence("They rent."), ends_sentence("They rent;")
    (True, False)
    """
    end = line.rstrip()[-1:]
    return bool(end) and not end.isalnum() and end not in _OPEN


def _ends_as_said(line: str, *, request: LLMRequest) -> bool:
    """Return whether a line ends as a line of the record does, or with the first words of one."""
    spoken = line.casefold().split()
    tail = " ".join(spoken[-_TAIL:])
    openings = {tuple(spoken[-size:]) for size in range(_TAIL, min(_QUOTED, len(spoken)) + 1)}
    for source in request.inputs:
        first = source.text[:_OPENING].casefold().split()
        if any(tuple(first[:size]) in openings for size in range(_TAIL, _QUOTED + 1)):
            return True
    return any(
        " ".join(claimed.casefold().split()[-_TAIL:]) == tail
        for source in request.inputs
        for claimed in source.text.splitlines()
    )


def _is_quoted(line: str, *, request: LLMRequest) -> bool:
    """Return whether the end of a line stands in the record, which then has no mark there."""
    tail = " ".join(line.casefold().split()[-_QUOTED:])
    return tail in " ".join(" ".join(s.text for s in request.inputs).casefold().split())


def _is_long(line: str) -> bool:
    unspaced = len(_UNSPACED.findall(line))
    return unspaced > _LONG_UNSPACED or len(line.split()) > _LONG_LINE


def _dangles(last: str, text: str, *, request: LLMRequest) -> bool:
    """Return whether the last word of an answer is half a word, or asks for another one."""
    if last[-1] in _HAN_DANGLING:
        return True
    found = _WORD.findall(last)
    if not found or not last.endswith(found[-1]) or _UNSPACED.search(found[-1]):
        return False
    word = found[-1]
    record = "\n".join(source.text for source in request.inputs)
    spoken = language.guess(text) or language.guess(record) or "en"
    if len(found) > 2 and word in _WORDS.get(f"no end {spoken}", ()):
        return True
    if len(word) < _SHORTEST_CUT or not word.isalpha():
        return False
    lower = word.lower()
    # What the words of the record that begin with this word have after it.
    longer = re.findall(rf"\b{re.escape(lower)}(\w{{3,}})", record, re.IGNORECASE)
    whole = re.search(rf"\b{re.escape(lower)}\b", f"{record}\n{text[: -len(word)]}", re.IGNORECASE)
    return (
        bool(longer) and not whole and not any(rest.lower() in _WORDS["endings"] for rest in longer)
    )
