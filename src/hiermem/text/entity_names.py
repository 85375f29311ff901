"""Decides what a name is in one sentence: files, functions, dates, people, and the like.

A name is found by its form and by the words next to it, in one pass over one sentence, without a
model. A sentence is at most ``units.UNIT_CAP`` long, so the cost is linear in any text. Which names
are worth keeping is decided over all sentences, by the offline model and by search labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from hiermem.data import word_lists
from hiermem.text.policy import either
from hiermem.types.trivector import EntityType

_WORDS: Final = word_lists("entity_words")

#: Words that never begin or end a phrase that names something.
FUNCTION_WORDS: Final = _WORDS["function words"]
#: Words too common to be a concept by themselves, or together with another such word.
GENERIC: Final = _WORDS["generic"]
#: Capitalised words that are no names.
NO_NAME: Final = FUNCTION_WORDS | _WORDS["no name"]
CALENDAR: Final = _WORDS["calendar"]
TECHNOLOGIES: Final = _WORDS["technologies"]
#: Countries and large cities, in lower case.
PLACES: Final = _WORDS["places"]
NATIONS: Final = _WORDS["nations"]
ORGANISATION_ENDS: Final = _WORDS["organisation ends"]
GIVEN_NAMES: Final = _WORDS["given names"]

_EXTENSION: Final = either(_WORDS["file endings"])
#: A file's name with its path, if it has one. The look-behind keeps URLs and mails out.
FILE: Final = re.compile(
    rf"(?<![\w@:./-])(?:~/|\.{{0,2}}/)?(?:[\w.-]{{1,60}}/){{0,12}}[\w-][\w.-]{{0,60}}\.{_EXTENSION}"
    r"(?![\w/-]|\.\w)"
)
#: A part of every file's name. A search for it is faster than a failing search for a name.
_FILE_END: Final = re.compile(rf"\.{_EXTENSION}")
_URL: Final = re.compile(r"\bhttps?://[^\s<>\"'`)\]},]{3,300}")
_CALL: Final = re.compile(r"(?<![\w./-])(?:[A-Za-z_]\w{0,60}\.){0,4}[A-Za-z_]\w{1,60}\(\)")
_CODE: Final = re.compile(r"`([^`\n]{2,80})`")
_SNAKE: Final = re.compile(
    r"(?<![\w./@-])(?:[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)(?![\w(/])"
)
_CAMEL: Final = re.compile(
    r"(?<![\w./@-])(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z]{2,}[a-z][A-Za-z0-9]+"
    r"|[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z][a-z]+[A-Z]{2,}[a-z]*)(?![\w(/-])"
)
#: A change of case inside a word: every name in mixed case has one.
_CASE_CHANGE: Final = re.compile(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z]{2})(?=[a-z]))")
_JS_NAME: Final = re.compile(r"(?<![\w./@-])[A-Z][A-Za-z0-9]{0,20}\.(?:js|io|com|net|ai)(?![\w/-])")
_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DATE: Final = re.compile(
    rf"\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?!\d)(?:,? \d{{4}})?\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}\b(?:,? \d{{4}}\b)?"
    rf"|\b{_MONTH}\.? (?:of )?\d{{4}}\b|\b\d{{4}}-\d\d-\d\d(?!\d)|\bQ[1-4] \d{{4}}\b"
)
_WORD: Final = r"(?:[A-ZÀ-Þ][\w'’&.+#-]{0,40}|[A-Z]{2,12})"  # noqa: RUF001
_NAME: Final = re.compile(
    # A search skips quickly to a capital, not to what must not stand before it.
    r"[A-ZÀ-Þ](?<![\w./@#-].)[\w'’&.+#-]{0,40}"  # noqa: RUF001
    rf"(?:(?: (?:of|de|van|von|la|for) )?(?<=\s){_WORD}| {_WORD}){{0,4}}"
)
#: The title of a work, in quotes: two capitalised words at least.
_TITLE: Final = re.compile(
    r"[\"“]([A-Z][\w'’]{1,20}(?: (?:[a-z]{1,4} ){0,2}[A-Z][\w'’]{1,20}){1,6})[\"”]"  # noqa: RUF001
)
#: What stands before the name of a person.
_TITLED: Final = re.compile(rf"\b{either(_WORDS['titles'])}\.? $")
_PERSON_BEFORE: Final = re.compile(
    rf"\b(?:{either(_WORDS['before a person'])}|(?:with|by) my \w+),? $", re.IGNORECASE
)
_CLASS_NEAR: Final = re.compile(r"(?: |` ?)(?:class|model|object|field|instance|schema|type)\b")
_ERROR_END: Final = re.compile(r"(?:Error|Exception|Warning|NotFound|Fault)$")
_DIGIT: Final = re.compile(r"\d")
#: A character that every name in mixed case and every capitalised name contains.
_CAPITAL: Final = re.compile(r"[A-ZÀ-Þ]")
_RUN: Final = re.compile(r"\S+")
#: Endings that follow a name and are no part of it.
_END_MARKS: Final = re.compile(r"['’]s$|['’.&-]+$|(?<!\+)\+$")  # noqa: RUF001
_PLAIN_CODE: Final = _WORDS["keywords"]
#: Words that are no names alone. One with an apostrophe is first freed of its ending.
_NO_NAME_ALONE: Final = frozenset(filter(str.isalnum, NO_NAME | CALENDAR | NATIONS | GENERIC))


class NameMention(NamedTuple):
    """A name in a sentence: its kind, its position, and how certain its form makes the kind.

    ``sure`` is the confidence from the form alone. "concept" is an unknown kind; other sentences
    may decide it.
    """

    type: EntityType
    name: str
    start: int
    stop: int
    sure: float


def find(sentence: str, *, prose: bool = True) -> list[NameMention]:
    """Return the names in one sentence, in order and without overlaps.

    ``prose`` is False for the output of programs, where only files, functions and errors count.
    """
    found: list[NameMention] = []
    for mention in _all(sentence) if prose else _formal(sentence):
        if not any(mention.start < other.stop and other.start < mention.stop for other in found):
            found.append(mention)
    return sorted(found, key=attrgetter("start"))


def _all(sentence: str) -> Iterator[NameMention]:
    """Yield names in the order of their claims: the most certain forms first.

    The characters that a pattern cannot match without are looked for first, which needs no pattern.
    """
    yield from _formal(sentence)
    if _DIGIT.search(sentence):
        for match in _DATE.finditer(sentence):
            yield NameMention("date", match.group(), match.start(), match.end(), 0.9)
    if '"' in sentence or "“" in sentence:
        for match in _TITLE.finditer(sentence):
            yield NameMention("concept", match.group(1), match.start(), match.end(), 0.7)
    if "_" in sentence:
        for match in _SNAKE.finditer(sentence):
            yield NameMention("identifier", match.group(), match.start(), match.end(), 0.75)
    if not _CAPITAL.search(sentence):
        return
    if _CASE_CHANGE.search(sentence):
        for match in _CAMEL.finditer(sentence):
            name = match.group()
            kind, sure = kind_of_identifier(name, after=sentence[match.end() : match.end() + 12])
            yield NameMention(kind, name, match.start(), match.end(), sure)
    yield from _names(sentence)


def _formal(sentence: str) -> Iterator[NameMention]:
    """Yield names with an unambiguous form."""
    if "://" in sentence:
        for match in _URL.finditer(sentence):
            name = match.group().rstrip(".;:!?")
            yield NameMention("url", name, match.start(), match.start() + len(name), 0.9)
    # Most sentences have their only point at the end.
    if "." in sentence[:-1] and _FILE_END.search(sentence):
        for match in FILE.finditer(sentence):
            name = match.group()
            if not (name[0].isupper() and _JS_NAME.fullmatch(name)):
                yield NameMention("file", name.removeprefix("./"), match.start(), match.end(), 0.95)
    if "()" in sentence:
        for match in _CALL.finditer(sentence):
            yield NameMention("function", match.group()[:-2], match.start(), match.end(), 0.9)
    if "`" not in sentence:
        return
    for match in _CODE.finditer(sentence):
        if read := _read_code(match.group(1).strip()):
            kind, name, sure = read
            yield NameMention(kind, name, match.start(), match.end(), sure)


def _read_code(  # noqa: PLR0911 - a row of cases, the first of which holds
    quoted: str,
) -> tuple[EntityType, str, float] | None:
    """Return the name in a stretch in back-quotes, None if it is an expression or a plain word."""
    if quoted.lower() in _PLAIN_CODE or " " in quoted or len(quoted) < 3:
        return None
    if FILE.fullmatch(quoted):
        return "file", quoted.removeprefix("./"), 0.95
    call = re.fullmatch(r"@?((?:[A-Za-z_]\w*\.){0,4}[A-Za-z_]\w+)\(.{0,60}\)", quoted)
    if call:
        return "function", call.group(1), 0.9
    if re.fullmatch(r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[A-Z]{2,}[a-z]\w+", quoted):
        kind, sure = kind_of_identifier(quoted, after=" class")
        return kind, quoted, sure
    if re.fullmatch(r"@?[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*){0,4}", quoted) and (
        re.search(r"[_.@]", quoted) or quoted.isupper()
    ):
        return "identifier", quoted.lstrip("@"), 0.8
    if quoted.lower() in TECHNOLOGIES:
        return "technology", quoted, 0.8
    return None


def kind_of_identifier(name: str, *, after: str = "") -> tuple[EntityType, float]:
    """Return the kind of a name in mixed case and how certain it is."""
    if name.lower() in TECHNOLOGIES:
        return "technology", 0.9
    if _ERROR_END.search(name):
        return "identifier", 0.85
    if name[0].islower():
        return "identifier", 0.7
    if _CLASS_NEAR.match(after):
        return "class", 0.85
    return "concept", 0.6


def _names(sentence: str) -> Iterator[NameMention]:
    """Yield capitalised names, without words at their ends that are no names."""
    for match in _NAME.finditer(sentence):
        for start, name in _trimmed(match.group(), match.start()):
            stop = start + len(name)
            kind, sure = _kind_of_name(name, before=sentence[max(0, start - 30) : start])
            if sure <= 0.65 and " " not in name and not sentence[:start].strip(" \"'“(*-"):
                # A capital at the start of a sentence says nothing by itself.
                sure = 0.2
            yield NameMention(kind, name, start, stop, sure)


def _trimmed(run: str, at: int) -> Sequence[tuple[int, str]]:
    """Split a run of capitalised words into names, leaving out words that are no names."""
    if run.isalnum():
        return [(at, run)] if len(run) > 2 and run.lower() not in _NO_NAME_ALONE else ()
    spans: list[tuple[int, int]] = []
    begin = end = -1
    for match in _RUN.finditer(run):
        word = match.group()
        bare = word if word.isalnum() else _END_MARKS.sub("", word)
        if bare[:1].islower():
            continue  # a part of a name only where a capitalised word follows
        lower = bare.lower()
        none = lower in NO_NAME or lower in CALENDAR or lower in NATIONS or "'" in bare
        none = none or (begin < 0 and lower in GENERIC)
        if bare and not none:
            begin, end = match.start() if begin < 0 else begin, match.start() + len(bare)
        if begin >= 0 and (none or bare != word):
            spans.append((begin, end))
            begin = -1
    if begin >= 0:
        spans.append((begin, end))
    return [(at + first, run[first:last]) for first, last in spans if last - first > 2]


def _kind_of_name(  # noqa: PLR0911 - a row of cases, the first of which holds
    name: str, *, before: str
) -> tuple[EntityType, float]:
    """Return the likely kind of a capitalised name, and how certain it is; "concept" if unknown."""
    lower = name.lower()
    first, last = (lower.split(" ", 1)[0], lower.rsplit(" ", 1)[1]) if " " in name else (lower, "")
    if lower in TECHNOLOGIES:
        return "technology", 0.9
    if lower in PLACES:
        return "place", 0.85
    # A context word before a name ends right before it, with a space.
    after_blank = before[-1:].isspace()
    if after_blank and _TITLED.search(before):
        return "person", 0.9
    if last in ORGANISATION_ENDS:
        return "organisation", 0.8
    if first in GIVEN_NAMES and name.count(" ") <= 2:
        return "person", 0.8
    if first in TECHNOLOGIES:
        return "technology", 0.7
    if name[1:].islower() and after_blank and _PERSON_BEFORE.search(before):
        return "person", 0.65
    return "concept", 0.5
