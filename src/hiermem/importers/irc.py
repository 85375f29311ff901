"""Reads logs of IRC as irssi, WeeChat, HexChat, mIRC and ZNC write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, time, timedelta, tzinfo

from hiermem.importers.dates import sensible
from hiermem.importers.draft import Draft, Options, role_of, zone_note
from hiermem.importers.files import Export, Head, lines_of
from hiermem.importers.values import name_of
from hiermem.types import Message
from hiermem.types.message import Conversation

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: month for month, name in enumerate(_NAMES, start=1)}
#: A time at the beginning of a line: with a date, with a month and day, or alone.
_STAMP = (
    r"\[?(?:(?P<iso>\d{4}-\d\d-\d\d)[ T]|(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) )?"
    r"(?P<hour>[0-2]?\d):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
)
_NICK = r"[^\s<>]{1,64}"
_SAID = re.compile(rf"(?:{_STAMP}\s*)?<\s?[@+%&~ ]?(?P<nick>{_NICK})>\s?(?P<text>.*)")
_ACTED = re.compile(rf"{_STAMP}\s+\*\s+(?P<nick>{_NICK})\s(?P<text>.*)")
_TABBED = re.compile(rf"{_STAMP}\t[@+%&~]?(?P<nick>\S+|)\t(?P<text>.*)")
_TIMED = re.compile(rf"{_STAMP}\s")
_OPENED = re.compile(
    r"(?:--- (?:Log opened|Day changed)|Session (?:Start|Time):|\*{4} (?:BEGIN|ENDING) LOGGING AT)"
    r"\s+\w{3} (?P<month>\w{3}) +(?P<day>\d{1,2})(?: \d\d:\d\d(?::\d\d)?)?(?: (?P<year>\d{4}))"
)
_FRAME = re.compile(r"--- (?:Log|Day) |Session (?:Start|Time|Close|Ident):|\*{4} ")
#: A client's line about an event of the channel, after the time.
_EVENT = re.compile(
    r"\s*(?:-!-|\*{3}|-->|<--|--\s|={3}|"
    r"\*\s+\S+ (?:\(.*\) )?(?:has (?:joined|left|quit)|is now known as|sets? mode|changed)|"
    r"(?:Joins|Parts|Quits):)"
)
#: What mIRC writes for colours, bold and their like.
_COLOUR = re.compile(
    "\x03(?:\\d{1,2}(?:,\\d{1,2})?)?|\x04[0-9a-fA-F]{6}|[\x02\x0f\x11\x16\x1d\x1e\x1f]"
)
_IN_NAME = re.compile(r"(?P<year>(?:19|20)\d\d)-?(?P<month>[01]\d)-?(?P<day>[0-3]\d)")


def recognise(head: Head) -> bool:
    """Return whether most of the first lines are those of a log."""
    if head.kind != "text":
        return False
    lines = [_COLOUR.sub("", line) for line in head.lines]
    framed = [
        line for line in lines if _FRAME.match(line) or _SAID.match(line) or _TIMED.match(line)
    ]
    spoken = any(map(_said, lines))
    markup = lines and re.match(r"\s*<(?:!|\?|/?\w+[^>]*>\s*<|html)", lines[0], re.IGNORECASE)
    return spoken and not markup and 2 * len(framed) >= len(lines)


def _said(line: str) -> tuple[re.Match[str], str] | None:
    """Return the match of a line that someone said, and what was said."""
    if (match := _SAID.match(line)) is not None:
        return match, match["text"]
    if (match := _TABBED.match(line)) is not None:
        event = match["nick"] in ("", "-->", "<--", "--", "=!=", "*")
        return None if event else (match, match["text"])
    stamp = _TIMED.match(line)
    if stamp is not None and _EVENT.match(line[stamp.end() :]):
        return None
    if (match := _ACTED.match(line)) is not None:
        return match, f"* {match['nick']} {match['text']}"
    return None


class _Clock:
    """The day of the log at the present line; a clock that runs backwards is at the next day.

    In an hour that comes twice it may be at the same day.
    """

    def __init__(self, name: str, zone: tzinfo) -> None:
        self._zone = zone
        match = _IN_NAME.search(name)
        self.day = _date(match["year"], match["month"], match["day"]) if match else None
        self._last = time.min

    def opened(self, line: str) -> None:
        """Take the day from a line that names it."""
        if (match := _OPENED.match(line)) is not None:
            month = _MONTHS.get(match["month"].casefold(), 0)
            self.day = _date(match["year"], month, match["day"]) or self.day
            self._last = time.min

    def at(self, match: re.Match[str]) -> tuple[datetime | None, str]:
        """Return the time of a message, without a zone, and how it is written."""
        if match["hour"] is None:
            return None, ""
        try:
            clock = time(int(match["hour"]), int(match["minute"]), int(match["second"] or 0))
        except ValueError:
            return None, ""
        if match["iso"]:
            self.day = _date(*match["iso"].split("-")) or self.day
        elif match["month"] and self.day is not None:
            month = _MONTHS.get(match["month"].casefold(), 0)
            year = self.day.year + (month < self.day.month)
            self.day = _date(year, month, match["day"]) or self.day
        elif clock < self._last and self.day is not None and self.day < date.max:
            local = datetime.combine(self.day, clock, self._zone)
            if local.utcoffset() == local.replace(fold=1).utcoffset():
                self.day += timedelta(days=1)
        self._last = clock
        at = None if self.day is None else sensible(datetime.combine(self.day, clock))
        return at, "" if at is not None else f"{self.day or ''} {clock.isoformat()}"


def _date(*numbers: str | int) -> date | None:
    try:
        return date(*map(int, numbers))
    except ValueError:
        return None


def read(export: Export, options: Options) -> Iterator[Conversation]:
    """Yield the one conversation of the file."""
    file = export.first
    draft = Draft(file.name, file.notes)
    clock = _Clock(file.parts[-1] if file.parts else file.name, options.zone)
    turn: tuple[Message, str] | None = None
    more: list[str] = []

    def close() -> None:
        if turn is not None:
            message, when = turn
            text = "\n".join((str(message.content), *more)).rstrip()
            draft.add(replace(message, content=text), when=when)

    for number, line in lines_of(file):
        draft.where = f"{file.name}, line {number}"
        text = line if line.isprintable() else _COLOUR.sub("", line)
        if not text.strip():
            continue
        if _FRAME.match(text):
            clock.opened(text)
        elif (spoken := _said(text)) is not None:
            close()
            match, said = spoken
            at, when = clock.at(match)
            nick = name_of(match["nick"]) or "?"
            at = None if at is None else at.replace(tzinfo=options.zone)
            turn = Message(role_of(nick, options), said, name=nick, created_at=at), when
            more = []
        elif _TIMED.match(text) is not None or _EVENT.match(text) is not None:
            draft.note("system lines left out")
        elif turn is not None:
            more.append(text)  # the next line of what somebody pasted
        else:
            draft.miss("lines before the first message")
    close()
    for conversation in draft.named("irc", export.stem):
        if conversation.messages[0].created_at is not None:
            zone_note(draft, options)
        yield conversation
