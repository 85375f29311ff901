"""Reads a chat that WhatsApp exported as text, on either system and in any of several locales.

A line with a time begins a message; other lines continue it. The order of day and month is seen
from the file: from numbers over 12, else from which order lets time run forwards.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from hiermem.importers.draft import (
    DateOrder,
    Draft,
    Options,
    id_of,
    name_of,
    role_of,
    sensible,
    zone_note,
)
from hiermem.importers.files import Export, Head, lines_of
from hiermem.types import Message
from hiermem.types.conversation import Conversation

#: Marks of direction, which stand before lines and inside dates; they are not part of a text.
_MARKS = dict.fromkeys(
    map(ord, "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
)
_SPACES = dict.fromkeys(map(ord, "\u00a0\u202f\u2009"), " ")
#: The characters of a line that may belong to its time and name.
_FRONT = 200
_AM = ("am", "a.m.", "a. m.", "a.m", "vorm.", "ص", "上午", "오전", "午前", "π.μ.", "पूर्वाह्न")
_PM = ("pm", "p.m.", "p. m.", "p.m", "nachm.", "م", "下午", "오후", "午後", "μ.μ.", "अपराह्न")
_HALF = "|".join(re.escape(half) for half in sorted((*_AM, *_PM), key=len, reverse=True))
_DATE = r"(?P<date>\d{1,4}(?:[./-]|\. |年|년 )\d{1,2}(?:[./-]|\. |月|월 )\d{1,4}(?:日|일|\.)?)"
_TIME = (
    rf"(?:(?P<before>{_HALF})\s*)?(?P<hour>\d{{1,2}})[:.](?P<minute>\d\d)"
    rf"(?:[:.](?P<second>\d\d))?(?:\s*(?P<after>{_HALF}))?"
)
_BETWEEN = r"(?:[,،]?\s+(?:(?:à|um|klo|kl\.|alle|às|a las|at|в)\s+)?|,)"
_HEADER = re.compile(
    rf"(?P<open>\[)?{_DATE}{_BETWEEN}{_TIME}(?(open)\]\s|(?:\s[-\u2013]\s|,\s))", re.IGNORECASE
)
#: A time in ISO 8601 without a comma is that of a plain transcript.
_OF_TRANSCRIPT = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
_NAME = re.compile(r"(?P<name>[^:\n]{1,120}?) ?:(?: |$)")
#: The orders between which a date may leave the choice.
_ORDERS: tuple[DateOrder, ...] = ("dmy", "mdy")
#: A name does not quote; a line of the program that does holds a colon by chance.
_QUOTES = re.compile('["\u201c\u201d\u201e\u00ab\u00bb]')


class _Line(NamedTuple):
    """The front of a line that begins a message."""

    date: tuple[int, int, int]
    separator: str
    clock: tuple[int, int, int]
    half: str
    when: str
    name: str | None
    text: str
    marked: bool


def recognise(head: Head) -> bool:
    """Return whether the first line of a text bears a time as WhatsApp writes it."""
    if head.kind != "text" or not head.lines or _OF_TRANSCRIPT.match(head.lines[0]):
        return False
    found = [line for line in map(_front, head.lines) if line is not None]
    return _front(head.lines[0]) is not None and any(line.name is not None for line in found)


def _front(line: str) -> _Line | None:
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
    name = named["name"].strip() if named else ""
    spoken = bool(name) and not _QUOTES.search(name)
    text = rest[named.end() :] if named and spoken else rest
    tail = line[_FRONT:]
    return _Line(
        date=(int(numbers[0]), int(numbers[1]), int(numbers[2])),
        separator=re.sub(r"[\d\s]", "", found["date"])[:1],
        clock=(int(found["hour"]), int(found["minute"]), int(found["second"] or 0)),
        half=(found["before"] or found["after"] or "").casefold(),
        when=" ".join(found.group().split()),
        name=name if spoken else None,
        text=text + tail,
        marked=": \u200e" in line[:_FRONT],
    )


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name)
    said: list[tuple[_Line, list[str]]] = []
    for _, line in lines_of(file):
        front = _front(line)
        if front is not None:
            said.append((front, [front.text]))
        elif said:
            said[-1][1].append(line)
        elif line.strip():
            draft.note("lines before the first message left out")
    order, sure = _order([front for front, _ in said], options.dates)
    if not sure:
        draft.note(f"conversations whose dates can be read in two ways, read as {order}")
    unread = 0
    for number, (front, texts) in enumerate(said):
        # The first message is the program's own where the text begins with a mark.
        if front.name is None or (number == 0 and front.marked):
            draft.note("system lines left out")
            continue
        at = _moment(front, order)
        unread += at is None
        message = Message(
            role_of(front.name, options),
            "\n".join(texts).strip(),
            name=name_of(front.name),
            created_at=None if at is None else at.replace(tzinfo=options.zone),
        )
        if message.content:
            draft.add(message, when=front.when)
    if unread:
        draft.note("times not understood", unread)
    for made in draft.finished("whatsapp", id_of(export.stem.lstrip("_"), "whatsapp")):
        zone_note(draft, options)
        yield made


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
