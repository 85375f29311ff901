"""Decides what a bank file may be called, which files a space's rules define, and their skeletons.

A name is accepted as it is or refused; it is never repaired, and never joined to a path to test it.
An accepted name is one flat name that every file system can hold and no reader can mistake: letters
and digits of any script, a few marks, and ``.md`` at its end.

A file is defined where its name first occurs. The rest of that line says what the file is for. Its
sections are the deeper headings below, the headings of a template in a code block, or the points of
a list below. If there are none, the description itself is used. Only the rules' own words are used;
nothing is added.

Decides what a bank's text shows: its characters, its lines and its sections.

Characters that a reader cannot see can carry text that no reader agreed to: words in tag
characters, a reversed line, a heading that looks like another one. They are removed, so what is
stored is what is shown. A joiner or selector stays if a script or an emoji needs it. No visible
character is changed, except line ends and blanks at either end of a text.

A non-empty line is lost if, its white space folded, it is neither in the new text of its file nor
in what another file gained by the same answer: moving a line loses nothing. A line that is struck
through is still there. The count is what a reader would miss: no line counts twice, and no line
counts that can still be read.

A section is a heading and everything below it up to the next heading. Lines in a code block, in a
comment or in front matter are no headings. Both kinds of Markdown headings count: those with marks
before them and those that are underlined.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from hiermem.errors import UsageError
from hiermem.text.policy import check

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


def visible(text: str) -> str:
    r"""Return ``text`` without invisible characters and with plain line ends.

    >>> visible("re\u202ed\r\nan\u200bd \u2764\ufe0f")
    'red\nand ❤️'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NEEDED.sub(_kept, _UNSEEN.sub(lambda match: match["flag"] or "", text))


def tidy(text: str) -> str:
    """Return the text of a file as it is stored: visible characters, ending in one line end."""
    text = visible(text).strip("\n")
    lines = text.split("\n")
    while lines and not lines[0].strip():
        del lines[0]
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def folded(line: str) -> str:
    r"""Return a line without invisible characters, its white space folded.

    >>> folded("  -  a\u200b   line ")
    '- a line'
    """
    return " ".join(visible(line).split())


def _kept(match: re.Match[str]) -> str:
    """Keep one selector and one joiner between characters that need them."""
    run, text, start, end = match.group(), match.string, match.start(), match.end()
    if not _FORM.fullmatch(run):
        return ""
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    if run[-1] in _JOINERS:
        return run if not (before.isascii() or after.isascii()) else ""
    return run if after == _KEYCAP or not before.isascii() else ""


# ---------------------------------------------------------------------------------------------
# Lines


def lines_of(text: str) -> list[str]:
    """Return the non-empty lines of a text, folded."""
    return [line for each in text.split("\n") if (line := folded(each))]


def lost_lines(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return for each file that was there how many of its lines are lost, and of how many."""
    old = {name: lines_of(text) for name, text in before.items() if name in after}
    new = {name: set(_readable(text)) for name, text in after.items()}
    gained: set[str] = set()
    for name, readable in new.items():
        gained |= readable.difference(old.get(name, ()))
    found: dict[str, tuple[int, int]] = {}
    for name, lines in old.items():
        still = new[name] | gained
        found[name] = sum(line not in still for line in lines), len(lines)
    return found


def _readable(text: str) -> Iterator[str]:
    """Yield the lines of a text, and the content of the lines that are struck through."""
    for line in lines_of(text):
        yield line
        if found := _STRUCK.match(line):
            yield folded(found["lead"] + found["line"])


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


#: The longest rules, in code points.
MAX_RULES: Final = 262_144
#: The most files that rules may name.
MOST_FILES: Final = 100
#: The longest heading, in code points, and the most of one file.
_LONGEST: Final = 80
_MOST_HEADINGS: Final = 24

#: The longest name in UTF-8. File systems take 255; an export writes beside it under a longer one.
MOST_BYTES: Final = 200
SUFFIX: Final = ".md"
_SIZE: Final = f"it must have 1 to {MOST_BYTES} bytes"
_PUNCTUATION: Final = frozenset(" -_.()+,&")
_KINDS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd"})
#: Invisible letters and marks: fillers, joiners, variation selectors, inherent vowels.
_UNSEEN_RULES: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
#: Device names of Windows, reserved in any folder and with any ending.
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", "conin", "conout", "clock"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"}
)
#: Separators of names in prose, in lists, in code and in links.
_RUN: Final = re.compile(r"[^\s`\"'*()<>\[\],;:|{}!?=#~]+")

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_POINT: Final = re.compile(r"([ \t]*)(?:[-*+]|\d{1,3}[.)])[ \t]+(.*)$")
_FENCE_RULES: Final = re.compile(r" {0,3}(?:```|~~~)")
_MARKS_RULES: Final = re.compile(r"[*_`\[\]]+")
_AND: Final = re.compile(r"(?:and|or)\s+", re.IGNORECASE)
_CODED: Final = re.compile(r"`(#{1,6})[ \t]+([^`]+)`")


# ---------------------------------------------------------------------------------------------
# Names


def check_file_name(name: object) -> str | None:
    """Return what is wrong with ``name`` as the name of a bank file; None if nothing is.

    The answer repeats no part of the name.

    >>> check_file_name("progress.md"), check_file_name("../progress.md")
    (None, 'it holds a character other than letters, digits, spaces and - _ . ( ) + , &')
    """
    if not isinstance(name, str):
        return "it is no text"
    if not name or len(name) > MOST_BYTES:
        return _SIZE
    return _characters(name) or _form(name)


def _form(name: str) -> str | None:
    """Return what is wrong with a name whose characters are all allowed."""
    stem = name.removesuffix(SUFFIX)
    if not name.endswith(SUFFIX) or not stem:
        return f"it must be a name that ends in {SUFFIX}"
    if not (stem[0].isalnum() or stem[0] == "_"):
        return "it must begin with a letter, a digit or _"
    if ".." in name or "  " in name or stem[-1] in " .":
        return "it must not hold two dots or two spaces in a row, nor end in one before .md"
    if name.partition(".")[0].strip().casefold() in _DEVICES:
        return "it is the name of a device on some systems"
    return None


def _characters(name: str) -> str | None:
    """Return what is wrong with the characters of a name, whatever their order."""
    kinds = unicodedata.category
    if not all(char in _PUNCTUATION or kinds(char) in _KINDS for char in name):
        return "it holds a character other than letters, digits, spaces and - _ . ( ) + , &"
    if _UNSEEN_RULES.search(name):
        return "it holds a character that cannot be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "it must be written in plain characters (NFC, no compatibility forms)"
    if len(name.encode("utf-8")) > MOST_BYTES:
        return _SIZE
    return None


def fold(name: str) -> str:
    """Return the form in which some file systems take two names for one."""
    return unicodedata.normalize("NFC", name.casefold())


def names_in(text: str) -> Iterator[str]:
    """Yield the file names that a text mentions, each as often as it occurs, in order.

    Paths and names inside them are skipped; only ``./`` before a name is allowed.

    >>> list(names_in("Write `progress.md` and docs/notes.md, or *log.md*."))
    ['progress.md', 'log.md']
    """
    for run in _RUN.findall(text):
        name = unicodedata.normalize("NFC", run.removeprefix("./").rstrip("._-…。、"))
        if not name.endswith(SUFFIX):
            continue
        name = name.lstrip("_") if run.endswith("_") else name
        if check_file_name(name) is None:
            yield name


# ---------------------------------------------------------------------------------------------
# Rules


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file that rules define: its title, its purpose, and the headings of its sections."""

    name: str
    title: str
    about: str
    headings: tuple[str, ...]

    @property
    def skeleton(self) -> str:
        """Return the text that the file begins with: its title and its headings."""
        lines = [f"# {self.title}", *(f"## {heading}" for heading in self.headings)]
        return "\n\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a space. ``files`` are in the order in which the rules name them."""

    text: str
    files: tuple[RuleFile, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the files."""
        return tuple(each.name for each in self.files)


def read_rules(text: str) -> Rules:
    """Read the rules of a space.

    Raises UsageError if they name no file, too many, or two that differ in case only, and
    InvalidTextError for what is no text.
    """
    return _read_once(check(text, what="rules", cap=MAX_RULES))


@lru_cache(maxsize=16)
def _read_once(text: str) -> Rules:
    """Read rules and cache the result, because every call on a space needs its rules."""
    names = tuple(dict.fromkeys(names_in(text)))
    if not names:
        raise UsageError(
            "the rules name no file; name at least one, such as 'progress.md: what works', by a "
            "flat name that ends in .md"
        )
    if len(names) > MOST_FILES:
        raise UsageError(f"the rules name {len(names)} files; at most {MOST_FILES} are allowed")
    met: dict[str, str] = {}
    for name in names:
        if (other := met.setdefault(fold(name), name)) != name:
            raise UsageError(
                f"the rules name {other!r} and {name!r}, which are one file on some systems; "
                "write the name in one way"
            )
    return Rules(text, tuple(_defined(text, names)))


#: One line of the rules: its depth, None for plain text, and its words.
_RuleLine: TypeAlias = tuple[tuple[int, int] | None, str]


def _defined(text: str, names: Sequence[str]) -> list[RuleFile]:
    lines = _read(text)
    where: dict[str, int] = {}
    for at, (_, words) in enumerate(lines):
        for name in names_in(words):
            where.setdefault(name, at)
    #: The first file that each line defines.
    defined: dict[int, str] = {}
    for name, at in where.items():
        defined.setdefault(at, name)
    found: list[RuleFile] = []
    for name in names:
        at = where[name]
        about = _about(lines[at][1], name)
        headings = _headings(lines, at, defined) if defined[at] == name else []
        if not headings and about:
            headings = [each for each in map(_heading, _listed(about)) if each]
        once = {plain(heading): heading for heading in reversed(headings)}
        headings = list(reversed(once.values()))[:_MOST_HEADINGS]
        found.append(RuleFile(name, _title(name), about, tuple(headings)))
    return found


def _read(text: str) -> list[_RuleLine]:
    """Read each line with its depth: headings above points, points by their indent.

    A heading in a code block belongs to a template and is the deepest.
    """
    lines: list[_RuleLine] = []
    fenced = False
    for raw in text.splitlines():
        if _FENCE_RULES.match(raw):
            fenced = not fenced
            lines.append((None, raw))
        elif found := _HEADING.match(raw):
            lines.append(((2 if fenced else 0, len(found[1])), found[2]))
        elif fenced:
            lines.append((None, raw))
        elif found := _POINT.match(raw):
            lines.append(((1, len(found[1].expandtabs(4))), found[2]))
        else:
            lines.append((None, raw))
    return lines


def _headings(lines: Sequence[_RuleLine], at: int, defined: Collection[int]) -> list[str]:
    """Return the headings of the file that line ``at`` defines; other lines are ``defined`` too.

    The section ends where another file is defined or, if it began with a heading or a point, at the
    next one of the same or a higher level.
    """
    own, first = lines[at]
    headings = [_heading(found) for _, found in _CODED.findall(first)]
    points: list[str] = []
    for number, (depth, words) in enumerate(lines[at + 1 :], start=at + 1):
        if number in defined or (own is not None and depth is not None and depth <= own):
            break
        coded = [_heading(found) for _, found in _CODED.findall(words)]
        if depth is None or coded:
            headings += coded
        elif depth[0] != 1:
            # A template's first line is the file's title, not a section.
            if depth != (2, 1):
                headings.append(_heading(words))
        else:
            points.append(_heading(re.split(r"[:：]| [-–—] ", words)[0]))  # noqa: RUF001
    return [each for each in (headings or points) if each]


def _heading(words: str) -> str:
    """Return words as a heading: one plain line, capitalised; "" if it is too long."""
    plain = " ".join(_MARKS_RULES.sub("", words).split()).strip(" .:#-–—")  # noqa: RUF001
    if not plain or len(plain) > _LONGEST or any(names_in(plain)):
        return ""
    return plain[0].upper() + plain[1:]


def _about(words: str, name: str) -> str:
    """Return what the line that defines a file says of it, after its name."""
    rest = words.partition(name)[2]
    return " ".join(_MARKS_RULES.sub("", rest).split()).strip(" :：-–—()|")[:400]  # noqa: RUF001


def _listed(about: str) -> list[str]:
    """Return the parts of a description that lists several; one that adds to the other stays.

    >>> _listed("what works, what is left, and known issues"), _listed("what was decided, and why")
    (['what works', 'what is left', 'known issues'], ['what was decided, and why'])
    """
    parts = [part.strip() for part in re.split(r"[,;]", about)]
    joined = [_AND.match(part) for part in parts]
    if len(parts) == 2 and joined[1]:
        return [about]
    return [
        part[match.end() :] if match else part for part, match in zip(parts, joined, strict=True)
    ]


def _title(name: str) -> str:
    """Make a title of a file name.

    >>> _title("activeContext.md"), _title("tech_debt-2.md")
    ('Active context', 'Tech debt 2')
    """
    words = re.sub(r"[-_. ]+", " ", name.removesuffix(SUFFIX))
    words = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", words).strip() or name
    first, *rest = words.split()
    return " ".join(
        [first[0].upper() + first[1:], *(w if w.isupper() else w.lower() for w in rest)]
    )
