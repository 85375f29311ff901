"""Finds the sections of a Markdown text, and applies an edit to one of them.

A section is a heading and everything below it up to the next heading that is no deeper. Lines in a
code block, in a comment or in front matter are no headings. Both kinds of Markdown headings count:
those with marks before them and those that are underlined.

An edit changes the section that it names and no other. If the section is ambiguous, or the edit
would take in what follows it, the edit is refused with EditError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hiermem.core.spaces.answer import SectionEdit
from hiermem.core.spaces.clean import folded, tidy

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
#: The separator between a heading and its parent when an edit names both.
PATH: Final = " > "


class EditError(Exception):
    """An edit cannot be made; the message says why and holds no text of the file."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section by its lines.

    Its heading begins at ``start``. Its own text is from ``body`` to ``own``; its subsections
    follow, up to ``stop``. ``path`` are the headings above it, in the form in which they are
    compared. The last three are unknown until all headings are found.
    """

    heading: str
    level: int
    start: int
    body: int
    own: int = 0
    stop: int = 0
    path: tuple[str, ...] = ()

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
    names = [plain(mark.heading) for mark in marks]
    owns = [*(mark.start for mark in marks[1:]), len(lines)]
    stops = [len(lines)] * len(marks)
    paths: list[tuple[str, ...]] = []
    above: list[int] = []
    for at, mark in enumerate(marks):
        # A section stops at the next heading that is no deeper.
        while above and marks[above[-1]].level >= mark.level:
            stops[above.pop()] = mark.start
        paths.append(tuple(names[each] for each in above))
        above.append(at)
    return tuple(
        replace(mark, own=owns[at], stop=stops[at], path=paths[at]) for at, mark in enumerate(marks)
    )


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


def twice(text: str) -> int:
    """Count the headings that repeat an earlier one under the same parents."""
    return _surplus(sections(text))


def outline(text: str) -> str:
    """Return the headings of a text, one a line, each with the number of its own lines."""
    return "\n".join(
        f"{'#' * each.level} {each.heading} ({each.own - each.body} lines)"
        for each in sections(text)
    )


# ---------------------------------------------------------------------------------------------
# Edits


def apply_edit(text: str, edit: SectionEdit, *, hidden: bool = False) -> str:
    """Apply one edit. A text that was not shown (``hidden``) may only be appended to.

    Raises EditError.
    """
    if hidden and edit.operation in ("replace", "delete"):
        raise EditError("only append and insert can change a file of which the outline was shown")
    if unclosed(edit.text):
        raise EditError("the text opens a code block or a comment and does not close it")
    lines = text.rstrip("\n").split("\n")
    if edit.operation == "insert":
        start, block = _inserted(lines, edit)
        return _spliced(lines, start, start, block)
    section = find("\n".join(lines), edit.heading)
    if edit.operation == "delete":
        if not folded(edit.reason):
            raise EditError("a section is deleted only with the reason for it")
        return _spliced(lines, section.start, section.stop, [])
    block = _trimmed(_without_heading(edit.text, section.name))
    if not block:
        raise EditError("the text is empty; a section is removed by delete, with the reason")
    if edit.operation == "replace":
        return _spliced(lines, section.body, section.stop, block)
    # A block that begins with a heading of its own goes below the existing subsections.
    marks, _ = _scan(block)
    at = section.stop if marks and marks[0].start == 0 else section.own
    return _spliced(lines, at, at, block)


def _inserted(lines: Sequence[str], edit: SectionEdit) -> tuple[int, list[str]]:
    """Return where a new section goes, after the one that the edit names or at the end; its lines.

    Raises EditError.
    """
    after = find("\n".join(lines), edit.after) if edit.after.strip() else None
    found = _ATX.match(edit.heading.strip())
    heading = folded((found[2] or "") if found else edit.heading)
    if not heading:
        raise EditError("an inserted section needs a heading")
    level = len(found[1]) if found else after.level if after else 2
    block = _trimmed(_without_heading(edit.text, plain(heading)))
    at = after.stop if after else len(lines)
    return at, [f"{'#' * level} {heading}", *(["", *block] if block else [])]


def find(text: str, heading: str) -> Section:
    """Find the one section that a heading names, by the heading itself or a path to it.

    Raises EditError if there is none, or more than one.
    """
    found = _of_name(text, heading, ())
    if not found and PATH in heading:
        *above, last = heading.split(PATH)
        found = _of_name(text, last, [plain(each) for each in above])
    if not found:
        raise EditError("there is no section of that heading")
    if len(found) > 1:
        raise EditError(
            f"{len(found)} sections have that heading; name the heading above it too, as in "
            "'Above > Heading', or answer the file whole"
        )
    return found[0]


def _of_name(text: str, heading: str, above: Sequence[str]) -> list[Section]:
    """Return the sections with a heading below others, at the level of its marks if it has any.

    If no section has that level, the marks are ignored: the words say what is meant.
    """
    name = plain(heading)
    found = [each for each in sections(text) if each.name == name and _leads(above, each.path)]
    marks = _ATX.match(heading.strip())
    return [each for each in found if marks and each.level == len(marks[1])] or found


def _leads(wanted: Sequence[str], path: Sequence[str]) -> bool:
    """Return whether the headings of ``wanted`` occur in ``path`` in that order."""
    rest = iter(path)
    return all(each in rest for each in wanted)


def _without_heading(text: str, name: str) -> list[str]:
    """Return the lines of an edit without the section's own heading, which models repeat."""
    lines = tidy(text).split("\n")
    marks, _ = _scan(lines)
    if marks and marks[0].start == 0 and plain(marks[0].heading) == name:
        return lines[marks[0].body :]
    return lines


def _spliced(lines: Sequence[str], begin: int, stop: int, block: Sequence[str]) -> str:
    """Replace lines by ``block``; refuse it if that changes another section's heading or place."""
    head, tail = _trimmed(lines[:begin]), _trimmed(lines[stop:])
    # A point that continues a list directly follows it; anything else is set off by a blank line.
    close = bool(head and block and _ITEM.match(block[0]) and _ends_in_list(head))
    start = len(head) + (1 if head and not close else 0)
    after = [*head, *([""] if block and start > len(head) else []), *block]
    after += ["", *tail] if tail and after else tail
    old, new = sections("\n".join(lines)), sections("\n".join(after))
    if _beside(old, begin, stop) != _beside(new, start, start + len(block)):
        raise EditError("the text takes in the sections that follow it")
    if _surplus(new) > _surplus(old):
        raise EditError("a section of that heading is there; append to it, or replace it")
    return tidy("\n".join(after))


def _beside(found: Sequence[Section], start: int, stop: int) -> list[tuple[str, ...]]:
    """Return the paths of the sections whose headings are outside those lines."""
    return [(*each.path, each.name) for each in found if not start <= each.start < stop]


def _surplus(found: Sequence[Section]) -> int:
    paths = [(*each.path, each.name) for each in found]
    return len(paths) - len(set(paths))


def _ends_in_list(lines: Sequence[str]) -> bool:
    """Return whether these lines end in a point of a list."""
    for line in reversed(lines):
        if _ITEM.match(line):
            return True
        if not line.startswith((" ", "\t")):
            return False
    return False


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Return lines without blank ones at either end."""
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    first = next((at for at, line in enumerate(kept) if line.strip()), 0)
    return kept[first:]


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
