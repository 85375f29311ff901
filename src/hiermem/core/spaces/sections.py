"""Finds the sections of a Markdown text, and what is wrong with its form.

A section is a heading and everything below it up to the next heading. Lines in a code block, in a
comment or in front matter are no headings. Both kinds of Markdown headings count: those with marks
before them and those that are underlined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core.spaces.clean import folded

_ATX: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE: Final = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_COMMENT: Final = re.compile(r" {0,3}<!--(?P<closed>.*-->)?")
#: Lines that are not part of a paragraph, so dashes below them underline nothing.
_NO_PARAGRAPH: Final = re.compile(r" {0,3}(?:[-*+>|]|\d{1,9}[.)])")
_ITEM: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_RULE: Final = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$")
_KEY: Final = re.compile(r"[A-Za-z_][\w -]*:(?:\s|$)")
_MARKS: Final = re.compile(r"[*_`~]+")


@dataclass(frozen=True, slots=True)
class Section:
    """A section by its lines: from ``start``, the heading, and ``body``, its own text, to ``own``.

    ``own`` is unknown until all headings are found.
    """

    heading: str
    level: int
    start: int
    body: int
    own: int = 0

    @property
    def name(self) -> str:
        """Return the heading in the form in which it is compared."""
        return plain(self.heading)


def plain(heading: str) -> str:
    """Return a heading in the form for comparison: without marks, case and final punctuation.

    >>> plain("## **What works**:")
    'what works'
    """
    found = _ATX.match(heading)
    text = (found[2] or "") if found else heading
    return folded(_MARKS.sub("", text)).rstrip(" :：.").casefold()  # noqa: RUF001


def sections(text: str) -> tuple[Section, ...]:
    """Return the sections of a text in the order of their headings."""
    lines = text.split("\n")
    marks, _ = _scan(lines)
    owns = [*(mark.start for mark in marks[1:]), len(lines)]
    return tuple(replace(mark, own=own) for mark, own in zip(marks, owns, strict=False))


def unclosed(text: str) -> bool:
    r"""Return whether a text ends inside a code block or comment, which would swallow what follows.

    >>> unclosed("a\n```\ncode"), unclosed("~~~\ncode\n~~~")
    (True, False)
    """
    return _scan(text.split("\n"))[1]


def front_matter(text: str) -> str:
    """Return the front matter at the beginning of a text, "" if there is none."""
    lines = text.split("\n")
    return "\n".join(lines[: _front_matter(lines)])


# ---------------------------------------------------------------------------------------------
# Headings


def _scan(lines: Sequence[str]) -> tuple[list[Section], bool]:
    """Find the headings in one pass; return also whether a code block or comment is left open.

    ``paragraph`` is the line where a paragraph began, -1 outside of one. ``other``: a list or a
    quotation continues, whose lines underline nothing. ``listed``: indented lines, headings
    included, belong to a point of a list.
    """
    marks: list[Section] = []
    fence, comment, paragraph, other, listed = "", False, -1, False, False
    for at in range(_front_matter(lines), len(lines)):
        line = lines[at]
        if fence or comment:
            fence = "" if fence and _closes(line, fence) else fence
            comment = comment and "-->" not in line
            continue
        inside = listed and line.startswith((" ", "\t"))
        listed = inside or (listed and not line.strip())
        mark = None if inside else _mark(lines, at, paragraph)
        found = _FENCE.match(line)
        remark = _COMMENT.match(line)
        comment = remark is not None and not remark["closed"]
        if mark:
            marks.append(mark)
        if found:
            fence = found[1]
        if found or remark or mark or not line.strip() or _RULE.match(line):
            paragraph, other = -1, False
        elif _NO_PARAGRAPH.match(line):
            paragraph, other = -1, True
            listed = inside or _ITEM.match(line) is not None
        elif paragraph < 0 and not other and not line.startswith(("    ", "\t")):
            paragraph = at
    return marks, bool(fence) or comment


def _mark(lines: Sequence[str], at: int, paragraph: int) -> Section | None:
    """Read line ``at`` as a heading; ``paragraph`` is the line where a paragraph began, or -1."""
    if found := _ATX.match(lines[at]):
        return Section((found[2] or "").strip(), len(found[1]), at, at + 1)
    if paragraph >= 0 and (found := _UNDERLINE.match(lines[at])):
        words = " ".join(" ".join(lines[paragraph:at]).split())
        return Section(words, 1 if found[1][0] == "=" else 2, paragraph, at + 1)
    return None


def _closes(line: str, fence: str) -> bool:
    """Return whether a line closes a code block: the same marks, at least as many, nothing else."""
    bare = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return indent < 4 and len(bare) >= len(fence) and bare == fence[0] * len(bare)


def _front_matter(lines: Sequence[str]) -> int:
    """Return the number of lines of front matter at the beginning, 0 for none.

    A text between dashes whose first line is no ``key: value`` is not front matter.
    """
    if len(lines) < 3 or lines[0].rstrip() != "---" or not _KEY.match(lines[1]):
        return 0
    for at in range(2, len(lines)):
        if lines[at].rstrip() in ("---", "..."):
            return at + 1
    return 0
