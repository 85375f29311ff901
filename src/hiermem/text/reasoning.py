# ruff: noqa: RUF001  # the brackets of other templates are meant
"""Decides which part of a model's answer is reasoning, for summaries, the bank and extraction.

A server that does not parse a template leaves its marks in the answer: ``<think>``, ``[THINK]``,
``◁think▷``, ``<|START_THINKING|>``, ``<details type="reasoning">``, the channels of harmony. Other
models write a code block ``think``, or the labels "Reasoning:" and "Summary:". Marks are known by
their form, read without case, full width, escapes and characters without width, so that a new name
of the same kind is found too.

A text may also speak of marks. A mark in back quotes or quotes is none, nor is a pair with a word
or two between its marks if the sentence goes on around both.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, NamedTuple

from hiermem.data import word_lists
from hiermem.text.policy import either

_WORDS: Final = word_lists("answer_words")
_NAME: Final = either(_WORDS["reasoning"])
_LEFT: Final = r"\\?(?:[<＜〈⟨‹◁【]|&(?:amp;)?(?:lt|#60|#x3c);|\\u003c)"
_RIGHT: Final = r"\\?(?:[>＞〉⟩›▷】]|&(?:amp;)?(?:gt|#62|#x3e);|\\u003e)"
#: What may be a mark. A span of code is matched first, so that no mark is found in it.
_CANDIDATE: Final = re.compile(
    r"(?P<code>(?<!`)`(?![\s`])[^`\n]{1,200}(?<!\s)`(?!`))"
    rf"|(?P<comment><!--[\w\s]{{0,20}}?{_NAME}|-->)"
    rf"|(?P<bold>(?:\*\*)?){_LEFT}(?P<tag>(?:(?!&(?:amp;)?(?:[lg]t|#)|\\u003)[^<>＜＞〈〉⟨⟩‹›◁▷【】\n])"
    rf"{{1,120}}?){_RIGHT}(?P=bold)"
    r"|[\[{](?P<square>/?[^\W\d][^\[\]{}\n]{2,40})[\]}](?!\()"
    r"|^[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$",
    re.MULTILINE | re.IGNORECASE,
)
_TAG: Final = re.compile(
    rf"[|\s]*(?P<closes>/\s*|end_)?[\w:.-]{{0,20}}?{_NAME}[\w-]{{0,16}}(?:\s[^=]{{1,40}}=.*?)?"
    r"\s*(?P<void>/)?\s*\|?\s*"
)
_ELEMENTS: Final = ("details", "div", "span", "section", "aside")
_ELEMENT: Final = re.compile(rf"({either(_ELEMENTS)})\b.*?{_NAME}|details\b")
#: Tokens without a name of their own; reasoning begins with its name behind one.
_SPECIAL: Final = re.compile(r"unused\d+|\|channel|channel\|")
_NAMED: Final = re.compile(rf"\s*\w{{0,20}}?{_NAME}", re.IGNORECASE)
_TITLED: Final = re.compile(rf"\s*<summary>[^<>\n]{{0,80}}?{_NAME}", re.IGNORECASE)
#: What a sentence goes on with behind a mark: a word in lower case, or a mark of punctuation.
_GOES_ON: Final = re.compile(
    r"\s?[,.;:!?)，。；：！？）、]| [a-zà-ÿа-я]|[\u3040-\u30ff\u3400-\u9fff]"
)
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_APART: Final = (" ", "\t", "(", "（")
#: What stands before and behind an answer.
_EDGE: Final = " \t\r\n\ufeff\u200b"
#: The kinds of marks that close each other.
_INLINE: Final = frozenset({"tag", "square"})
_QUOTES: Final = frozenset("\"'“”‘’„«»「」")
#: A pair has at most this many characters between its marks if a sentence speaks of it.
_SPOKEN: Final = 24

#: The channel of an answer, and any channel. A server that drops the marks leaves the words.
_FINAL: Final = re.compile(r"<\|?channel\|?>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_CHANNEL: Final = re.compile(r"<\|?channel\|?>")
_BARE_CHANNELS: Final = ("analysis", "assistantfinal")
#: What begins and ends a turn in the templates of chat models.
_BEGIN: Final = re.compile(
    r"\s*(?:<\|(?:im_start|start|start_header_id)\|>\s*(?:assistant)?|<\|end_header_id\|>"
    r"|<\|message\|>|<start_of_turn>\s*(?:model)?|<s>)"
)
_END: Final = re.compile(
    r"(?<!`)(?:<\|(?:im_end|im_start|eot_id|eom_id|end|endoftext|end_of_text|end_of_turn|return|call"
    r"|start)\|>|<(?:end|start)_of_turn>|</?s>(?=\s*\Z)|<｜[^｜\n]{0,40}｜>)"
)


def _label(words: str) -> str:
    """Return a pattern of a label: a heading, words in bold, before a colon, or alone in a line."""
    return (
        r"(?:(?:[-*•>]|\d{1,2}[.)])[ \t]+)?(?:#{1,6}[ \t]+)?[*_【]{0,3}"
        rf"{either(_WORDS[words])}(?:\.{{3}}|…)?"
        r"(?:[ \xa0]?[:：][*_】]{0,3}|[*_】]{1,3}[ \xa0]?[:：]?"
        r"|[ \t]+[-–—][ \t]|\.(?=\s)|[ \t]*(?:\n[=-]{3,}[ \t]*)?$)"
    )


#: What a model thought ends at any label of an answer; a plan, which a summary may have, does not.
_THOUGHT: Final = re.compile(rf"(?im)\s*{_label('reasoning labels')}")
_ANSWER_BEGINS: Final = r"(?im)(?:^[ \t]*|[.!?…。！？][*_\"')\]]*[ \t]*)"
_ANSWER: Final = re.compile(_ANSWER_BEGINS + _label("answer labels"))
_PLAN: Final = re.compile(rf"(?im)\s*{_label('plan labels')}")
_SUMMARY: Final = re.compile(rf"(?im)^[ \t]*{_label('summary labels')}")
#: A member of JSON that holds reasoning.
_MEMBER: Final = re.compile(rf"(?i)\w*{_NAME}[\w ]*|{either(_WORDS['plan labels'])}")


#: What some models put the answer in.
_BOXED: Final = re.compile(
    r"\A(?:\\boxed\{|<\|begin_of_solution\|>)(.+)(?:\}|<\|end_of_solution\|>)\Z", re.DOTALL
)
#: Elements of any name before an answer: ``<plan>…</plan>``, ``[NOTES]…[/NOTES]``.
_LEADING: Final = re.compile(
    rf"\A(?:(?!<(?:{either(_WORDS['elements'])}|(?:final_?)?{either(_WORDS['answer labels'])})\W)"
    r"(?:<(?P<tag>[^\W\d][\w-]{1,30})(?:\s[^<>]{0,80})?>.*?</(?P=tag)\s*>"
    r"|\[(?P<square>[A-Z_]{3,30})\].*?\[/(?P=square)\]"
    rf"|```[ \t]*{either(_WORDS['plan labels'])}[ \t]*\n.*?\n```[ \t]*$)"
    rf"(?!(?-i:{_GOES_ON.pattern}))\s*(?=\S))+",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
#: A JSON object, in a fence or bare. A longer one is not read.
_JSON: Final = re.compile(r"(?:```(?:json)?\s*)?(\{.*\})(?:\s*```)?", re.DOTALL | re.IGNORECASE)
#: A quotation, or a line in italics, before the answer.
_ASIDE: Final = re.compile(r"\s*(?:(?:>[^\n]*\n)+|([*_])(?!\1)[^\n]*[^*_\n]\1\n)\s*(?=\S)")


class _Mark(NamedTuple):
    """A mark of reasoning. The kind of a fence is its characters; a longer one closes it, too."""

    start: int
    stop: int
    kind: str
    opens: bool
    closes: bool
    is_quoted: bool = False
    #: Whether the mark counts only if it begins the text, or if its pair follows.
    is_weak: bool = False


def without_reasoning(text: str, *, spoken: bool = False) -> str:
    """Return an answer without reasoning and the marks of turns; unclosed reasoning stays.

    The text before a closing mark without an opening one is reasoning: the template wrote the
    opening mark. ``spoken``: the record speaks of marks, and so may the answer.

    >>> without_reasoning("They ask for dates</think>Ada rents."), without_reasoning("<think>Hm.")
    ('Ada rents.', '<think>Hm.')
    """
    places, is_unclosed = answer_parts(text, spoken=spoken)
    if is_unclosed:
        places[-1] = (places[-1][0], len(text))
    answer = _joined([text[start:stop] for start, stop in places]).strip(_EDGE)
    answer = answer if spoken else _LEADING.sub("", answer)
    labels = [(_THOUGHT.match(answer), _ANSWER), (_PLAN.match(answer), _SUMMARY)]
    if labels[0][0] and (aside := _ASIDE.match(answer)):
        return answer[aside.end() :]
    finals = (ends.search(answer, label.end()) for label, ends in labels if label)
    final = next(filter(None, finals), None)
    return _BOXED.sub(r"\1", (final and answer[final.end() :].strip()) or answer)


def _joined(parts: list[str]) -> str:
    """Return the parts of an answer as one text, parted by white space."""
    answer = ""
    for part in filter(None, parts):
        gap = "\n" if answer and not (answer[-1].isspace() or part[0].isspace()) else ""
        answer = f"{answer}{gap}{part}"
    return answer


def text_of(answer: str) -> str:
    """Return the one text that a JSON object has beside members of reasoning, else the answer.

    >>> text_of('{"reasoning": "Two facts.", "summary": "Ada rents."}')
    'Ada rents.'
    """
    match = _JSON.fullmatch(answer[:100_000])
    try:
        members = json.loads(match[1]) if match else {}
    except (ValueError, RecursionError):
        return answer
    texts = [members[name] for name in members if not _MEMBER.fullmatch(name)]
    is_one = len(texts) == 1 < len(members) and isinstance(texts[0], str)
    return str(texts[0]) if is_one else answer


def holds_reasoning(text: str, *, spoken: bool = False) -> bool:
    """Return whether an answer without its closed reasoning still has some, or has a channel."""
    return answer_parts(text, spoken=spoken)[1] or (
        not spoken and _CHANNEL.search(text) is not None
    )


def speaks_of_marks(text: str) -> bool:
    """Return whether a text has a mark, quoted or not, so that a summary of it may have one."""
    return any(mark.kind in _INLINE for mark in _marks(text)) or bool(_CHANNEL.search(text))


def answer_parts(text: str, *, spoken: bool = False) -> tuple[list[tuple[int, int]], bool]:
    """Return the places of ``text`` that are neither reasoning nor marks of turns.

    Returns also whether reasoning behind them has no end.
    """
    begin, end = _turn(text)
    first = begin + len(text[begin:]) - len(text[begin:].lstrip(_EDGE))
    marks = [mark for mark in _marks(text) if begin <= mark.start < end and not mark.is_quoted]
    last = {mark.kind: mark.start for mark in marks if mark.closes}
    places: list[tuple[int, int]] = []
    opening: _Mark | None = None
    for mark in marks:
        if mark.is_weak and mark.start > first and last.get(mark.kind, 0) < mark.start:
            continue
        if mark.opens and mark.closes:
            if opening is None:
                places.append((begin, mark.start))
                begin = mark.stop
        elif mark.opens:
            if opening is None or _is_in_sentence(text, opening):
                opening = mark
        elif opening is None:
            if mark.kind in _INLINE and not (spoken and _is_in_sentence(text, mark)):
                places.clear()
                begin = mark.stop
        elif mark.kind.startswith(opening.kind) or {mark.kind, opening.kind} <= _INLINE:
            if not _is_spoken_of(text, opening, mark, spoken=spoken):
                places.append((begin, opening.start))
                begin = mark.stop
            opening = None
    rest = (begin, end if opening is None else opening.start)
    if opening is not None and spoken and (opening.start > first or _goes_on(text, opening)):
        rest, opening = (begin, end), None
    return [*places, rest], opening is not None


def _marks(text: str) -> Iterator[_Mark]:
    """Yield the marks of ``text`` in order."""
    for match in _CANDIDATE.finditer(text):
        start, stop = match.span()
        if match["code"]:
            for mark in _marks(match["code"][1:-1]):
                yield mark._replace(start=start + 1, stop=stop - 1, is_quoted=True)
        elif match["comment"]:
            opens = text[start] == "<"
            yield _Mark(start, stop, "comment", opens=opens, closes=not opens)
        elif match["fence"]:
            info = _folded(match["info"])
            if not info or re.fullmatch(rf"{_NAME}\w{{0,16}}", info):
                yield _Mark(start, stop, match["fence"], opens=bool(info), closes=not info)
        elif (inside := _folded(match["tag"] or match["square"])) and (
            named := _TAG.fullmatch(inside)
        ):
            capital = match["square"] and match["square"].isupper()
            yield _Mark(
                start,
                stop,
                "tag" if match["tag"] else "square",
                opens=not named["closes"],
                closes=bool(named["closes"] or named["void"]),
                is_quoted=_is_quoted(text, start, stop),
                is_weak=not capital if match["square"] else text[start] == "【",
            )
        elif _SPECIAL.fullmatch(inside):
            opens = _NAMED.match(text, stop) is not None
            yield _Mark(start, stop, "special", opens=opens, closes=not opens)
        elif inside[1:] in _ELEMENTS and inside[0] == "/":
            yield _Mark(start, stop, inside[1:], opens=False, closes=True)
        elif (element := _ELEMENT.match(inside)) and (element[1] or _TITLED.match(text, stop)):
            yield _Mark(start, stop, element[1] or "details", opens=True, closes=False)


def _folded(inside: str) -> str:
    """Return what stands in a mark in one case, without full width and zero width."""
    if not inside.isascii():
        inside = "".join(
            char
            for char in unicodedata.normalize("NFKC", inside)
            if unicodedata.category(char) != "Cf"
        )
    return inside.casefold().strip(" \t\\")


def _is_spoken_of(text: str, opening: _Mark, closing: _Mark, *, spoken: bool) -> bool:
    """Return whether a sentence speaks of a pair of marks."""
    within = text[opening.stop : closing.start].strip()
    if _is_quoted(text, opening.start, closing.stop):
        return True
    short = len(within) <= (_SPOKEN if within.isascii() else 3) and len(within.split()) < 4
    if not _is_in_sentence(text, closing):
        return False
    inside = _is_in_sentence(text, opening)
    if not spoken:
        return inside and short
    return inside or short or (text[opening.stop] == " " and _goes_on(text, opening))


def _is_quoted(text: str, start: int, stop: int) -> bool:
    return start > 0 and text[start - 1] in _QUOTES and text[stop : stop + 1] in _QUOTES


def _is_in_sentence(text: str, mark: _Mark) -> bool:
    """Return whether a sentence begins before a mark and goes on behind it."""
    line = text[max(text.rfind("\n", 0, mark.start) + 1, mark.start - 200) : mark.start]
    begins = line[-1:] in _APART and any(map(str.isalnum, line))
    return (begins or _UNSPACED.match(line[-1:]) is not None) and _goes_on(text, mark)


def _goes_on(text: str, mark: _Mark) -> bool:
    return _GOES_ON.match(text, mark.stop) is not None


def _turn(text: str) -> tuple[int, int]:
    """Return where the first turn of an answer begins and ends."""
    begin, (first, last) = 0, _BARE_CHANNELS
    finals = list(_FINAL.finditer(text)) if "channel" in text else []
    if finals:
        begin = finals[-1].end()
    elif text.startswith(first) and last in text:
        begin = text.rindex(last) + len(last)
    while match := _BEGIN.match(text, begin):
        begin = match.end()
    end = _END.search(text, begin)
    # Of a text with other channels only, nothing is the answer.
    has_answer = end is not None and text[begin : end.start()].strip()
    return begin, end.start() if end is not None and has_answer else len(text)
