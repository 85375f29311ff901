"""Decides what a bank file may be called, which files a space's rules define, and their skeletons.

A name is accepted as it is or refused; it is never repaired, and never joined to a path to test it.
An accepted name is one flat name that every file system can hold and no reader can mistake: letters
and digits of any script, a few marks, and ``.md`` at its end.

The first line with a file's name defines it, and the rest of that line says what the file is for.
Its sections are the deeper headings below, or the points of a list below. If there are none, the
description itself is used. Only the rules' own words are used; nothing is added.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from hiermem.bank.sections import plain
from hiermem.data import person_rules
from hiermem.errors import UsageError
from hiermem.text.policy import check, check_name

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
#: In a space that learns, the files of what held before, of what others say, and of days and plans.
PAST: Final = "past.md"
OTHERS: Final = "others.md"
DAYS: Final = "now.md"
_SIZE: Final = f"it must have 1 to {MOST_BYTES} bytes"
_PUNCTUATION: Final = frozenset(" -_.()+,&")
_KINDS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd"})
#: Invisible letters and marks: fillers, joiners, variation selectors, inherent vowels.
_UNSEEN: Final = re.compile(
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
_MARKS: Final = re.compile(r"[*_`\[\]]+")
_AND: Final = re.compile(r"(?:and|or)\s+", re.IGNORECASE)
#: One line of the rules: its depth, None for plain text, and its words.
_RuleLine: TypeAlias = tuple[tuple[int, int] | None, str]


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
    kinds = unicodedata.category
    if not all(char in _PUNCTUATION or kinds(char) in _KINDS for char in name):
        return "it holds a character other than letters, digits, spaces and - _ . ( ) + , &"
    if _UNSEEN.search(name):
        return "it holds a character that cannot be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "it must be written in plain characters (NFC, no compatibility forms)"
    return _SIZE if len(name.encode("utf-8")) > MOST_BYTES else _form(name)


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


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a space.

    ``files`` are the texts that the files begin with, a title and headings, by the files' names, in
    the order in which the rules name them. ``person`` is whose space it is, "" if it is nobody's.
    """

    text: str
    files: Mapping[str, str]
    person: str = ""
    learn: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the files."""
        return tuple(self.files)

    def agree(self, stored: Rules) -> bool:
        """Return whether a space that has the ``stored`` rules may be opened with these."""
        is_same = self.text == stored.text and self.learn == stored.learn
        return is_same and self.person in ("", stored.person)


def read_rules(text: str) -> Rules:
    """Read the rules of a space.

    Raises UsageError if they name no file, too many, or two that differ only in case, and
    InvalidMessageError for anything but text.
    """
    return _read_once(check(text, what="rules", cap=MAX_RULES))


def rules_of(text: str | None, person: str | None, *, learn: bool | None) -> Rules | None:
    """Return the rules that a space is opened with; None if neither rules nor a person are given.

    A space of a person without rules of its own has the shipped ones, and learns unless ``learn``
    is False. Raises as ``read_rules``.
    """
    if person is None and text is None:
        if learn is not None:
            raise UsageError("learn is set when a space is made; give rules or person with it")
        return None
    rules = read_rules(person_rules() if text is None else text)
    learns = text is None if learn is None else learn
    if learns and PAST not in rules.names:
        raise UsageError(f"the rules of a space that learns name no {PAST}; add it")
    person = "" if person is None else check_name(person, what="person")
    return replace(rules, person=person, learn=learns)


@lru_cache(maxsize=16)
def _read_once(text: str) -> Rules:
    """Read rules and cache the result, because every call on a space needs its rules."""
    names = tuple(dict.fromkeys(names_in(text)))
    if not names:
        raise UsageError("the rules name no file; name one, such as 'progress.md: what works'")
    if len(names) > MOST_FILES:
        raise UsageError(f"the rules name {len(names)} files; at most {MOST_FILES} are allowed")
    met: dict[str, str] = {}
    for name in names:
        if (other := met.setdefault(fold(name), name)) != name:
            raise UsageError(
                f"the rules name {other!r} and {name!r}, one file on some systems; use one spelling"
            )
    return Rules(text, _defined(text, names))


def _defined(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the text that each file begins with."""
    lines = _read(text)
    line_of: dict[str, int] = {}
    for line, (_, words) in enumerate(lines):
        for name in names_in(words):
            line_of.setdefault(name, line)
    #: The first file that each line defines.
    defined: dict[int, str] = {}
    for name, line in line_of.items():
        defined.setdefault(line, name)
    files: dict[str, str] = {}
    for name in names:
        line = line_of[name]
        about = _about(lines[line][1], name)
        headings = _headings(lines, line, defined) if defined[line] == name else []
        if not headings and about:
            headings = [heading for heading in map(_heading, _listed(about)) if heading]
        once = {plain(heading): heading for heading in reversed(headings)}
        headings = [*reversed(once.values())][:_MOST_HEADINGS]
        files[name] = "\n\n## ".join([f"# {_title(name)}", *headings]) + "\n"
    return files


def _read(text: str) -> list[_RuleLine]:
    """Read each line with its depth: headings above points, points by their indent."""
    lines: list[_RuleLine] = []
    for raw in text.splitlines():
        if match := _HEADING.match(raw):
            lines.append(((0, len(match[1])), match[2]))
        elif match := _POINT.match(raw):
            lines.append(((1, len(match[1].expandtabs(4))), match[2]))
        else:
            lines.append((None, raw))
    return lines


def _headings(lines: Sequence[_RuleLine], line: int, defined: Collection[int]) -> list[str]:
    """Return the headings of the file that line ``line`` defines; other lines are ``defined`` too.

    The section ends at the next file's line or, if it began with a heading or a point, at the next
    one of the same or a higher level.
    """
    depth_of_file, _ = lines[line]
    headings: list[str] = []
    points: list[str] = []
    for number, (depth, words) in enumerate(lines[line + 1 :], start=line + 1):
        if number in defined or (
            depth_of_file is not None and depth is not None and depth <= depth_of_file
        ):
            break
        if depth is not None and depth[0] == 0:
            headings.append(_heading(words))
        elif depth is not None:
            points.append(_heading(re.split(r"[:：]| [-–—] ", words)[0]))  # noqa: RUF001
    return [heading for heading in (headings or points) if heading]


def _heading(words: str) -> str:
    """Return words as a heading: one plain line, capitalised; "" if it is too long."""
    plain = " ".join(_MARKS.sub("", words).split()).strip(" .:#-–—")  # noqa: RUF001
    if not plain or len(plain) > _LONGEST or any(names_in(plain)):
        return ""
    return plain[0].upper() + plain[1:]


def _about(words: str, name: str) -> str:
    """Return the description of a file: the rest of its line after its name."""
    rest = words.partition(name)[2]
    return " ".join(_MARKS.sub("", rest).split()).strip(" :：-–—()|")[:400]  # noqa: RUF001


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
