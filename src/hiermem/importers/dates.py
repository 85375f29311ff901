"""Reads a time: seconds since 1970, ISO 8601, or a date written out in the language of a person.

An export may write "Tuesday, 3 May 2022 at 10:11:12 UTC" as its reader's language has it. Of such a
text the clock is taken first, then the zone, then the month by its name; what is left of the
numbers is day and year. A text that leaves a choice is none.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from hiermem.data import word_lists

_YEARS = (1971, 2200)
_WORDS = word_lists("export_words")
_MONTHS = {word: month for month in range(1, 13) for word in _WORDS[str(month)]}
_AM, _PM = (word_lists("whatsapp_words")[half] | _WORDS[half] for half in ("am", "pm"))
_HALF = "|".join(re.escape(half) for half in sorted((*_AM, *_PM), key=len, reverse=True))
#: Marks of direction and of the order of bytes, which no reader sees.
UNSEEN = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_BETWEEN = r"(?:[:.](?=\d\d)|\s?(?:[時时點点시분]|hr?|min|m|นาฬิกา|นาที)\s?)"
_CLOCK = re.compile(
    rf"(?:(?<!\w)(?P<before>{_HALF})\s*)?(?<![\d.])(?P<hour>\d\d?){_BETWEEN}(?P<minute>\d\d?)"
    rf"(?:{_BETWEEN}(?P<second>\d\d?)(?:s ?\d+ms|[.,]\d+)?)?(?!\.?\d)"
    rf"(?:\s*(?P<after>{_HALF})(?!\w))?",
    re.IGNORECASE,
)
#: A distance from UTC, behind the clock (a line break stands for it) or a name of UTC.
_OFFSET = re.compile(r"(?:\b(?:UTC|GMT) ?|\n *)([-+\u2212])(\d\d?):?(\d\d)?(?!\d)")
#: The hours of zones whose short names mean one zone.
_ZONES = {name: int(hours) for name, _, hours in (z.partition("=") for z in _WORDS["zones"])}
_NUMBERED = re.compile(r"(\d\d?) ?[月월]|th(?:áng|g) ?(\d\d?)", re.IGNORECASE)
_DAY_FIRST = re.compile(r"(\d\d?)\. ?(\d\d?)\. ?(\d{4})\b")


def moment(value: object, zone: tzinfo = UTC) -> datetime | None:
    """Return a time, in ``zone`` if it names none; None if the value is no time.

    >>> moment("Dienstag, 3. Mai 2022 um 10:11:12 UTC").isoformat()
    '2022-05-03T10:11:12+00:00'
    """
    when = instant(value)
    return when.replace(tzinfo=zone) if when is not None and when.tzinfo is None else when


def seconds(value: object) -> float:
    """Return a time as seconds since 1970; 0 if the value is no time."""
    when = moment(value)
    return 0.0 if when is None else when.timestamp()


def instant(value: object) -> datetime | None:
    """Return a time as it is written, without a zone if it names none; None if it is no time."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text)
        except ValueError:
            return _from_text(text)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
        while math.isfinite(seconds) and seconds > 1e11:  # milliseconds, microseconds
            seconds /= 1_000
        return sensible(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def in_order(when: datetime, last: datetime | None) -> datetime:
    """Return a local time; of an hour that comes twice, the second one if ``last`` is after it.

    >>> from zoneinfo import ZoneInfo
    >>> half = datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    >>> f"{in_order(half.replace(minute=10), half):%H:%M %z}"
    '02:10 +0100'
    """
    again = when.replace(fold=1)
    if last is None or when.utcoffset() == again.utcoffset():
        return when
    # In UTC, as times of one zone are compared by their clocks. Seconds may be jumbled.
    return again if when.astimezone(UTC) < last.astimezone(UTC) - timedelta(minutes=1) else when


def sensible(when: datetime) -> datetime | None:
    """Return a time of a year in which people may have chatted, or None."""
    return when if _YEARS[0] <= when.year <= _YEARS[1] else None


def _from_text(text: str) -> datetime | None:
    try:
        return sensible(datetime.fromisoformat(text))
    except ValueError:
        if len(text) > 120:
            return None
    text = UNSEEN.sub("", unicodedata.normalize("NFKC", text))
    clock = _CLOCK.search(text)
    rest = f"{text[: clock.start()]}\n{text[clock.end() :]}" if clock else text
    offset = _OFFSET.search(rest)
    date = _date(_OFFSET.sub("\n", rest))
    named = [_ZONES[name] for name in re.findall(r"\b[A-Z]{1,4}\b", rest) if name in _ZONES]
    minutes = 60 * named[-1] if named else None
    if offset is not None:
        away = 60 * int(offset[2]) + int(offset[3] or 0)
        minutes = None if away >= 24 * 60 else away if offset[1] == "+" else -away
    zone = None if minutes is None else timezone(timedelta(minutes=minutes))
    try:
        return sensible(datetime(*date, *_hours(clock), tzinfo=zone)) if date is not None else None
    except ValueError:
        return None


def _hours(clock: re.Match[str] | None) -> tuple[int, int, int]:
    """Return hour, minute and second; a date without a clock begins at midnight."""
    if clock is None:
        return 0, 0, 0
    half = (clock["before"] or clock["after"] or "").casefold()
    hour = int(clock["hour"])
    if half in _AM | _PM and hour <= 12:
        hour = hour % 12 + 12 * (half in _PM)
    return hour, int(clock["minute"]), int(clock["second"] or 0)


def _date(text: str) -> tuple[int, int, int] | None:
    """Return year, month and day, None if the text leaves a choice."""
    words = [word.strip(".") for word in re.split(r"[\s\d,،:;/()\u2019'-]+", text.casefold())]
    # Hebrew writes "in" at the beginning of the month.
    months = [_MONTHS.get(word) or _MONTHS.get(word.removeprefix("ב"), 0) for word in words]
    months = [month for month in months if month]
    if dotted := _DAY_FIRST.search(text):
        day, month, year = map(int, dotted.groups())
        return year, month, day
    if not months and (numbered := _NUMBERED.search(text)) is not None:
        months = [int(numbered[1] or numbered[2])]
        text = text[: numbered.start()] + " " + text[numbered.end() :]
    numbers = re.findall(r"\d+", text)
    if not months and len(numbers) == 3 and len(numbers[0]) == 4:
        months = [int(numbers.pop(1))]
    years = [int(number) for number in numbers if len(number) == 4]
    days = [int(number) for number in numbers if len(number) < 3]
    if not months or len(years) != 1 or len(days) != 1:
        return None
    # A weekday may be written like a month and stands before it: "mar, 3 may 2022".
    return years[0] - 543 * (years[0] > 2400), months[-1], days[0]
