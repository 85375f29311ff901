"""Reads a chat that WhatsApp exported as text, on either system and in any of several locales.

A line with a time begins a message; other lines continue it. The order of day and month is seen
from the file: from numbers over 12, else from which order lets time run forwards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from hiermem.data import word_lists
from hiermem.importers.dates import sensible
from hiermem.importers.draft import (
    DateOrder,
    Draft,
    Options,
    id_of,
    name_of,
    role_of,
    zone_note,
)
from hiermem.importers.files import Export, File, Head, lines_of
from hiermem.types import Message
from hiermem.types.message import Conversation

#: Marks of direction, which stand before lines and inside dates; they are not part of a text.
_MARKS = dict.fromkeys(
    map(ord, "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
)
_SPACES = dict.fromkeys(map(ord, "\u00a0\u202f\u2009"), " ")
#: The characters of a line that may belong to its time and name.
_FRONT = 200
_WORDS = word_lists("whatsapp_words")
_AM, _PM, _DELETED = _WORDS["am"], _WORDS["pm"], _WORDS["deleted"]
_HALF = "|".join(re.escape(half) for half in sorted((*_AM, *_PM), key=len, reverse=True))
_DATE = r"(?P<date>\d{1,4}(?:[./-]|\. |年|년 )\d{1,2}(?:[./-]|\. |月|월 )\d{1,4}(?:日|일|\.)?)"
_TIME = (
    rf"(?:(?P<before>{_HALF})\s*)?(?P<hour>\d{{1,2}})[:.](?P<minute>\d\d)"
    rf"(?:[:.](?P<second>\d\d))?(?:\s*(?P<after>{_HALF}))?"
)
#: Words between date and time, such as "at" and "klo"; a half of the day is none of them.
_BETWEEN = rf"(?:\s*(?!(?:{_HALF})\s*\d)[^\W\d]{{1,8}}\.?(?=[,\s])){{0,2}}(?:[,،]?\s+|,)"
_HEADER = re.compile(
    rf"(?P<open>\[)?{_DATE}(?:[,،](?=\s))?{_BETWEEN}{_TIME}"
    rf"(?(open)\]\s|(?:\s[-\u2013]\s|,\s))",
    re.IGNORECASE,
)
#: A time in ISO 8601 without a comma is that of a plain transcript.
_OF_TRANSCRIPT = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
_NAME = re.compile(r"(?P<name>[^:\n]{1,120}?) ?:(?: |$)")
#: The orders between which a date may leave the choice.
_ORDERS: tuple[DateOrder, ...] = ("dmy", "mdy")
#: Quotation marks; a line of the program that quotes may hold a colon by chance.
_QUOTES = re.compile('["\u201c\u201d\u201e\u00ab\u00bb]')
#: How a line of the program begins that stands under a member's name.
_NOTICE = re.compile(r"You \w+ed\b|Messages and calls are")
#: A mark that the message was edited.
_EDITED = re.compile(  # from the first blank of a run only, so that a long one is read once
    "(?<!\\s)\\s*+(?:\u200e<[^<>:\n]{3,80}>|<This message was edited>)\\s*$"
)


class _Line(NamedTuple):
    """The front of a line that begins a message."""

    date: tuple[int, int, int]
    separator: str
    clock: tuple[int, int, int]
    half: str
    name: str | None
    text: str
    marked: bool
    number: int


def recognise(head: Head) -> bool:
    """Return whether the first line of a text bears a time as WhatsApp writes it."""
    if head.kind != "text" or not head.lines or _OF_TRANSCRIPT.match(head.lines[0]):
        return False
    found = [front for line in head.lines if (front := _front(line)) is not None]
    begins = any(_front(line) is not None for line in head.lines[:3])
    return begins and any(front.name is not None for front in found)


def _front(line: str, number: int = 0) -> _Line | None:
    """Return the time, the name and the text of a line that begins a message."""
    head = line[:_FRONT].translate(_MARKS).translate(_SPACES)
    found = _HEADER.match(head)
    if found is None:
        return None
    numbers = re.findall(r"\d+", found["date"])
    if len(numbers) != 3:
        return None
    rest = head[found.end() :]
    named = _NAME.match(rest)
    tail = line[_FRONT:]
    return _Line(
        date=(int(numbers[0]), int(numbers[1]), int(numbers[2])),
        separator=re.sub(r"[\d\s]", "", found["date"])[:1],
        clock=(int(found["hour"]), int(found["minute"]), int(found["second"] or 0)),
        half=(found["before"] or found["after"] or "").casefold(),
        name=(named["name"].strip() or None) if named else None,
        text=(rest[named.end() :] if named else rest) + tail,
        marked=": \u200e" in line[:_FRONT],
        number=number,
    )


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name, file.notes)
    said = _said(file, draft)
    order, sure = _order([front for front, _ in said], options.dates)
    if not sure:
        draft.note(f"conversations whose dates can be read in two ways, read as {order}")
    speaks = _speakers(said)
    for front, texts in said:
        if not speaks(front):
            draft.note("system lines left out")
            continue
        text = "\n".join(texts).strip()
        if text.rstrip(".").casefold() in _DELETED:
            draft.note("messages that were deleted left out")
            continue
        draft.where = f"{file.name}, line {front.number}"
        at = _moment(front, order)
        if at is None:
            draft.miss("times not understood")
        name = (front.name or "").removeprefix("~").strip()
        message = Message(
            role_of(name, options),
            text,
            name=name_of(name),
            created_at=None if at is None else at.replace(tzinfo=options.zone),
        )
        if message.content:
            draft.add(message)
    session = id_of(None, "whatsapp", export.stem)
    for made in draft.finished("whatsapp", session, name_of(export.stem.lstrip("_"))):
        zone_note(draft, options)
        yield made


def _said(file: File, draft: Draft) -> list[tuple[_Line, list[str]]]:
    """Return the messages and system lines of a file, each with its lines.

    Where most lines with a time follow a line that ends in CR, one that follows another line is
    quoted inside a message.
    """
    lines = list(lines_of(file, ends=True))
    strict = False
    if any(line.endswith("\r") for _, line in lines):
        after = [b.endswith("\r") for (_, b), (_, line) in pairwise(lines) if _front(line)]
        strict = 10 * sum(after) >= 9 * len(after) and len(after) > 2
    said: list[tuple[_Line, list[str]]] = []
    inside = False
    for number, whole in lines:
        line = whole.rstrip("\r")
        if line.endswith((">", "> ")):
            line = _EDITED.sub("", line)
        front = None if inside else _front(line, number)
        inside = strict and not whole.endswith("\r")
        if front is not None:
            said.append((front, [front.text]))
        elif said:
            said[-1][1].append(line)
        elif line.strip():
            draft.notes.miss("lines before the first message", f"{file.name}, line {number}")
    return said


def _speakers(said: Sequence[tuple[_Line, list[str]]]) -> Callable[[_Line], bool]:
    """Return what tells a person's message from a line of the program.

    A name that holds a quotation mark is one if its marks are in pairs, or it speaks again and does
    not begin with the name of another speaker. On iOS, the program's lines bear a mark and stand
    under a name: that of the group, which never speaks itself, or of a member.
    """
    counts = Counter(front.name for front, _ in said if front.name is not None)
    plain = {name for name in counts if not _QUOTES.search(name)}
    sure = plain | {name for name, count in counts.items() if count > 1}
    names = plain | {
        name
        for name, count in counts.items()
        if (_is_paired(name) and count > 1)
        or ((_is_paired(name) or count > 1)
            and not any(name.startswith(f"{other} ") for other in sure - {name}))
    }  # fmt: skip
    spoke = {front.name for front, _ in said if not front.marked}
    first = said[0][0] if said else None
    group = first.name if first is not None and first.marked and first.name not in spoke else None
    people = tuple(f"{name.removeprefix('~').strip()} " for name in names - {group})

    def speaks(front: _Line) -> bool:
        if front.name not in names or (front is first and front.marked) or front.name == group:
            return False
        if not front.marked:
            return True
        text = front.text.translate(_MARKS).lstrip(" ~")
        return not (text.startswith(people) or _NOTICE.match(text))

    return speaks


def _is_paired(name: str) -> bool:
    return not (
        name.count('"') % 2
        or name.count("\u00ab") != name.count("\u00bb")
        or (name.count("\u201c") + name.count("\u201d") + name.count("\u201e")) % 2
    )


def _order(lines: Sequence[_Line], given: DateOrder | None) -> tuple[DateOrder, bool]:
    """Return in which order a chat's dates stand, and whether nothing else is possible."""
    dates = {line.date: line for line in lines}
    order = given or _evident(dates.values())
    if order is not None:
        return order, True
    backwards = {order: _backwards(dates.values(), order) for order in _ORDERS}
    if backwards["dmy"] != backwards["mdy"]:
        return ("dmy" if backwards["dmy"] < backwards["mdy"] else "mdy"), True
    same = all(first == second for first, second, _ in dates)
    american = any(line.half in ("am", "pm") and line.date[2] < 100 for line in dates.values())
    return ("mdy" if american else "dmy"), same


def _evident(lines: Collection[_Line]) -> DateOrder | None:
    """Return the order that a number over 12 or the separator shows."""
    if any(line.date[0] > 31 for line in lines):
        return "ymd"
    if any(line.date[0] > 12 for line in lines):
        return "dmy"
    if any(line.date[1] > 12 for line in lines):
        return "mdy"
    return "dmy" if any(line.separator in ".-" for line in lines) else None


def _backwards(lines: Iterable[_Line], order: DateOrder) -> int:
    days = [_day(line.date, order) for line in lines]
    return sum(later < earlier for earlier, later in pairwise(days))


def _day(date: tuple[int, int, int], order: DateOrder) -> tuple[int, int, int]:
    """Return year, month and day."""
    numbers = dict(zip(order, date, strict=True))
    year = numbers["y"]
    if year < 100:
        year += 2000
    elif 2500 < year < 2700:  # the Buddhist calendar
        year -= 543
    return year, numbers["m"], numbers["d"]


def _moment(line: _Line, order: DateOrder) -> datetime | None:
    hour, minute, second = line.clock
    if line.half in _PM and hour < 12:
        hour += 12
    elif line.half in _AM and hour == 12:
        hour = 0
    try:
        # The caller adds the zone.
        return sensible(datetime(*_day(line.date, order), hour, minute, second))  # noqa: DTZ001
    except ValueError:
        return None
