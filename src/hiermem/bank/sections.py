"""Decides what a bank's text shows: its characters, its lines and its sections.

Characters that a reader cannot see can carry text that no reader agreed to: words in tag
characters, a reversed line, a heading that looks like another one. They are removed, so the stored
text is the visible one. A joiner or selector stays if a script or an emoji needs it. No visible
character is changed, except line ends and blanks at either end of a text.

A non-empty line is lost if, its white space folded, it is neither in the new text of its file nor
in the lines that another file gained by the same answer: moving a line loses nothing. A line that
is struck through is still there. The count is what a reader would miss: no line counts twice, and
no line counts that can still be read.

A section is a heading, with marks before it, and everything below it up to the next heading. Lines
in a code block or a comment are no headings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Final

#: The longest bank file, in code points.
MAX_FILE: Final = 262_144
_JOINERS: Final = "\u200c\u200d"
_SELECTORS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
#: Characters that never show, except in a region's flag, which is spelled in tags.
_UNSEEN: Final = re.compile(
    "(?P<flag>\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b"
    "\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff]+"
)
#: Characters that may be needed. They are checked last, so that nothing hides between two.
_NEEDED: Final = re.compile(f"[{_SELECTORS}{_JOINERS}]+")
_FORM: Final = re.compile(f"[{_SELECTORS}]?[{_JOINERS}]?")
_KEYCAP: Final = "\u20e3"
_STRUCK: Final = re.compile(r"^(?P<lead>[^~]*)~~(?P<line>.+)~~")
_ATX: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE: Final = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_COMMENT: Final = re.compile(r" {0,3}<!--(?P<closed>.*-->)?")
_MARKS: Final = re.compile(r"[*_`~]+")


def visible(text: str) -> str:
    r"""Return ``text`` without invisible characters and with plain line ends.

    >>> visible("re\u202ed\r\nan\u200bd \u2764\ufe0f")
    'red\nand ❤️'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NEEDED.sub(_needed_form, _UNSEEN.sub(lambda match: match["flag"] or "", text))


def tidy(text: str) -> str:
    """Return the text of a file as it is stored: visible characters, ending in one line end."""
    lines = list(dropwhile(lambda line: not line.strip(), visible(text).split("\n")))
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def folded(line: str) -> str:
    r"""Return a line without invisible characters, its white space folded.

    >>> folded("  -  a\u200b   line ")
    '- a line'
    """
    return " ".join(visible(line).split())


def lines_of(text: str) -> list[str]:
    """Return the non-empty lines of a text, folded."""
    return [line for line in map(folded, text.split("\n")) if line]


def lost_lines(
    before: Mapping[str, str],
    after: Mapping[str, str],
    is_kept: Callable[[str], bool],
) -> dict[str, tuple[int, int]]:
    """Return, for each earlier file, how many of its lines are lost and how many it had.

    A line that ``is_kept`` in other words is not lost.
    """
    old = {name: lines_of(text) for name, text in before.items() if name in after}
    new = {name: set(_readable(text)) for name, text in after.items()}
    gained: set[str] = set()
    for name, readable in new.items():
        gained |= readable.difference(old.get(name, ()))
    losses: dict[str, tuple[int, int]] = {}
    for name, lines in old.items():
        still = new[name] | gained
        losses[name] = sum(line not in still and not is_kept(line) for line in lines), len(lines)
    return losses


def _readable(text: str) -> Iterator[str]:
    """Yield the lines of a text, and the content of the lines that are struck through."""
    for line in lines_of(text):
        yield line
        if struck := _STRUCK.match(line):
            yield folded(struck["lead"] + struck["line"])


def _needed_form(match: re.Match[str]) -> str:
    """Return the selector or joiner if its neighbours need it, else ""."""
    run, text, start, end = match.group(), match.string, match.start(), match.end()
    if not _FORM.fullmatch(run):
        return ""
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    if run[-1] in _JOINERS:
        return run if not (before.isascii() or after.isascii()) else ""
    return run if after == _KEYCAP or not before.isascii() else ""


def plain(heading: str) -> str:
    """Return a heading in the form for comparison: without marks, case and final punctuation.

    >>> plain("## **What works**:")
    'what works'
    """
    match = _ATX.match(heading)
    text = (match[2] or "") if match else heading
    return folded(_MARKS.sub("", text)).rstrip(" :：.").casefold()  # noqa: RUF001


def sections(text: str) -> list[tuple[str, int, int]]:
    """Return heading, level and the line before which its own text ends, for each section."""
    lines = text.split("\n")
    marks, _ = _scan(lines)
    ends = [*(start for _, _, start in marks[1:]), len(lines)]
    return [(heading, level, end) for (heading, level, _), end in zip(marks, ends, strict=False)]


def unclosed(text: str) -> bool:
    r"""Return whether a text ends inside a code block or comment, which would hide added text.

    >>> unclosed("a\n```\ncode"), unclosed("~~~\ncode\n~~~")
    (True, False)
    """
    return _scan(text.split("\n"))[1]


def _scan(lines: Sequence[str]) -> tuple[list[tuple[str, int, int]], bool]:
    """Find the headings in one pass; return also whether a code block or comment is left open."""
    marks: list[tuple[str, int, int]] = []
    fence, comment = "", False
    for number, line in enumerate(lines):
        if fence or comment:
            fence = "" if fence and _closes(line, fence) else fence
            comment = comment and "-->" not in line
        elif match := _ATX.match(line):
            marks.append(((match[2] or "").strip(), len(match[1]), number))
        elif match := _FENCE.match(line):
            fence = match[1]
        elif match := _COMMENT.match(line):
            comment = not match["closed"]
    return marks, bool(fence) or comment


def _closes(line: str, fence: str) -> bool:
    """Return whether a line closes a code block: the same marks, at least as many, nothing else."""
    bare = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return indent < 4 and len(bare) >= len(fence) and bare == fence[0] * len(bare)
