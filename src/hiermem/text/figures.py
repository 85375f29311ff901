# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides which figures and dates a text states, and which of them another text supports.

Equal figures have equal keys however they are written: with other separators of thousands, in
words, with a multiplier ("120 thousand", 12万), a date in another notation or language. All scans
are linear. ``anchors`` decides which figures must survive compression.

Few places of a text hold figures. The patterns are tried at these places, not at every character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from functools import cached_property
from typing import Final, NamedTuple

from hiermem.data import word_lists
from hiermem.text.policy import either

_LISTS: Final = word_lists("figure_words")


def _numbered(what: str) -> dict[str, int]:
    """Return the numbers that the words of some entries mean, such as those of the months."""
    return {
        word: int(number)
        for title, members in _LISTS.items()
        for kind, _, number in [title.partition(" ")]
        if kind == what
        for word in members
    }


_MONTHS: Final = _numbered("month")
#: Where a figure begins: at its first digit, or at a sign before that.
_PLACE: Final = re.compile(r"[~≈$€£¥\d](?<!\d\d)")
_MONTH: Final = either(_MONTHS) + r"\b"
#: The same for ASCII text, which takes half the time.
_ASCII_PLACE: Final = re.compile(r"[~$0-9](?<![0-9][0-9])")
#: A word before a figure that may be its month, and how far from the figure it may begin.
_WORD_BEFORE: Final = re.compile(r"[^\W\d_]+(?=\.?,? (?:of |de )?\Z)")
_FARTHEST: Final = 20
_RANGE: Final = r" ?[-–] ?"
_NAMED_DATE: Final = re.compile(
    rf"\b(?:(?P<m1>{_MONTH})\.? (?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)"
    rf"(?:{_RANGE}(?P<e1>\d{{1,2}})(?:st|nd|rd|th)?(?![\d-]))?(?:,? (?P<y1>\d{{4}})\b)?"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?"
    rf"(?:{_RANGE}(?P<e2>\d{{1,2}})(?:st|nd|rd|th|\.)?)? (?:of |de )?(?P<m2>{_MONTH})\.?"
    r"(?:,? (?:de )?(?P<y2>\d{4})\b)?)",
    re.IGNORECASE,
)
_ISO_DATE: Final = re.compile(r"\b(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)")
_HAN_VALUES: Final = dict(
    zip("零〇一二两三四五六七八九", (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True)
)
_HAN_SIZES: Final = {"十": 10, "百": 100, "千": 1000}
_HAN_DIGITS: Final = "".join(_HAN_VALUES)
_HAN_NUMBER: Final = rf"[{_HAN_DIGITS}十百千万亿]"
_HAN_DATE: Final = re.compile(
    rf"(?:(?P<y>\d{{4}})年)?(?P<m>\d{{1,2}}|[{_HAN_DIGITS}十]{{1,2}})月"
    rf"(?P<d>\d{{1,2}}|[{_HAN_DIGITS}十]{{1,3}})[日号]"
)
_DOTTED_DATE: Final = re.compile(
    r"(?<![\d.])(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?:(?P<y>\d{4})\b)?(?!\d)"
)
_MONTH_OF_YEAR: Final = re.compile(
    rf"\b(?P<m>{_MONTH})\.?,? (?:of |de )?(?P<y>(?:19|20)\d\d)\b", re.IGNORECASE
)

#: Groups of three digits, parted as in French, English, German or Swiss texts.
_GROUPS: Final = re.compile(r"(?<=\d)[ \u00a0\u202f,.'’](?=\d{3}(?!\d))")
#: A written number with its separators. A space parts groups only where all groups have three.
NUMBER: Final = (
    r"(?:\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d{1,3}(?:[.,'’]\d{3})+(?:[.,]\d+)?"
    r"|\d+(?:[.,]\d+)?)"
)
#: Letters that make a number a part of a name; figures may stand between Chinese characters.
_LETTERS: Final = r"A-Za-z\u00c0-\u024f\u0400-\u04ff\d_"
_NUMBER: Final = re.compile(
    rf"(?<![{_LETTERS}.,/#])(?<!\d:)[~≈]?[$€£¥]?(?P<n>{NUMBER})(?![{_LETTERS}/]|[:.,]\d)"
)
_CLOCK: Final = re.compile(r"(?<![\w:])(\d{1,2}):(\d\d)(?![\d:])")
_MULTIPLIERS: Final = _numbered("times")
_MULTIPLIED: Final = re.compile(
    rf"(?<![{_LETTERS}.,])[$€£¥]?(?P<n>{NUMBER}) ?(?P<x>{either(_MULTIPLIERS)})"
    r"(?:\b|(?<=[万萬亿億千]))",
    re.IGNORECASE,
)
_HAN_FIGURE: Final = re.compile(
    rf"(?P<h>{_HAN_NUMBER}{{2,12}}|[十百千])(?=[个元块年天周月人台小时分岁公里米条次件名吨])"
)
_NUMBER_WORDS: Final = _numbered("number")
#: The numbers that words mean, those of two words ("twenty-five") among them.
_WORD_VALUES: Final = _NUMBER_WORDS | {
    f"{tens}-{unit}": value + small
    for tens, value in _NUMBER_WORDS.items()
    for unit, small in _NUMBER_WORDS.items()
    if small < 10 and value >= 20
}
_WORDS: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)?")
#: The same for a text in lower case without other letters, which takes half the time.
_ASCII_WORDS: Final = re.compile(r"[a-z]+(?:-[a-z]+)?")
#: A word of ten or less is rarely a claim; a figure has two digits or more.
_LEAST_CLAIM: Final = 10
#: How much of an output is read for its figures, which is more than any summary has.
MOST_READ: Final = 60_000
#: The most days that a date in a text may be from the day of a message that tells of it ("last
#: Saturday"), and the most months of a month that is named.
_NEAR_DAYS: Final = 15
_NEAR_MONTHS: Final = 2
_YEARS: Final = range(1900, 2101)
#: What makes a figure a part of a longer one: what may stand before it, and after it.
_BEGUN: Final = re.compile(r"[\w.-]")
_CONTINUES: Final = re.compile(r"\w|[.,-]\d")


class Stated(NamedTuple):
    """A figure or date as written, its key, and where it begins."""

    text: str
    key: str
    at: int


def date_keys(match: re.Match[str]) -> tuple[str, ...]:
    """Return the keys of a written date or range of days: ``year-month-day`` or ``month-day``.

    The result is () where the match is no date.
    """
    parts = {name[0]: part for name, part in match.groupdict().items() if part}
    written = parts["m"].lower()
    month = _MONTHS.get(written) or _whole(written)
    days = [_whole(parts[name]) for name in ("d", "e") if name in parts]
    if not 1 <= month <= 12 or not all(1 <= day <= 31 for day in days):
        return ()
    year = f"{parts['y']}-" if "y" in parts else ""
    return tuple(f"{year}{month:02}-{day:02}" for day in days)


def is_month(word: str) -> bool:
    """Return whether ``word`` is the name of a month."""
    return word.lower() in _MONTHS


def number_key(written: str) -> str:
    """Return the key of a written number: its digits, with a point before the decimals.

    >>> [number_key(each) for each in ("25.000", "120 000", "1,200.50", "2,5", "10:30")]
    ['25000', '120000', '1200.5', '2.5', '10:30']
    """
    bare = written.strip("$€£¥#%~≈ ")
    if ":" in bare:
        return bare
    if bare.count(".") + bare.count(",") > 1 or not bare.startswith("0"):
        bare = _GROUPS.sub("", bare)
    whole, _, decimals = bare.replace(",", ".").partition(".")
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals}" if decimals else whole


def _whole(written: str) -> int:
    """Return the value of digits or of a Chinese number."""
    return int(written) if written.isdecimal() else _han_value(written)


def _han_value(written: str) -> int:
    """Return the value of a Chinese number; 0 where it is none.

    >>> _han_value("十二万"), _han_value("两万六千"), _han_value("二十")
    (120000, 26000, 20)
    """
    total = section = digit = 0
    for char in written:
        if char in _HAN_VALUES:
            digit = _HAN_VALUES[char]
        elif char in _HAN_SIZES:
            section, digit = section + (digit or 1) * _HAN_SIZES[char], 0
        elif char in _MULTIPLIERS:
            total = (total + section + digit) * _MULTIPLIERS[char]
            section = digit = 0
        else:
            return 0
    return total + section + digit


def places(text: str) -> list[int]:
    """Return the places at which a figure may begin in ``text``."""
    pattern = _ASCII_PLACE if text.isascii() else _PLACE
    return [match.start() for match in pattern.finditer(text)]


def matches(pattern: re.Pattern[str], text: str, places: Iterable[int]) -> Iterator[re.Match[str]]:
    """Yield what ``pattern`` finds in ``text``; a match can begin only at one of ``places``."""
    end = 0
    for place in places:
        if place >= end and (match := pattern.match(text, place)) is not None:
            yield match
            end = match.end()


def _months_before(text: str, places: Iterable[int]) -> Iterator[int]:
    """Yield where the names of months begin that stand before a figure."""
    for place in places:
        if text[place - 1 : place] == " ":
            before = _WORD_BEFORE.search(text, max(0, place - _FARTHEST), place)
            if before is not None and is_month(before.group()):
                yield before.start()


#: The forms of dates that are anchors; others are read where figures are compared.
DATES: Final = (_NAMED_DATE, _ISO_DATE, _HAN_DATE)


def dates(form: re.Pattern[str], text: str, places: Sequence[int]) -> Iterator[re.Match[str]]:
    """Yield the dates of one form in ``text``; ``places`` are those of its figures.

    The name of a month stands before its figure. Chinese dates may have no digits.
    """
    if form is _HAN_DATE:
        return form.finditer(text) if "月" in text else iter(())
    if form is _NAMED_DATE:
        places = sorted((*places, *_months_before(text, places)))
    return matches(form, text, places)


def lowered(text: str) -> str:
    """Return ``text`` in lower case and of the same length."""
    return text.replace("İ", "ı").lower()


def _written_in_figures(text: str) -> Iterator[Stated]:
    begins = places(text)
    for match in matches(_MULTIPLIED, text, begins):
        # A pattern that ignores case takes some letters for equal that differ in lower case.
        value = float(number_key(match["n"])) * _MULTIPLIERS.get(match["x"].lower(), 0)
        yield Stated(
            match.group(), f"{value:.10g}" if value < 1e9 else str(int(value)), match.start("n")
        )
    for match in matches(_NUMBER, text, begins):
        yield Stated(match.group().strip(), number_key(match["n"]), match.start("n"))
    for match in matches(_CLOCK, text, begins):
        yield Stated(match.group(), f"{int(match[1]) % 12}:{match[2]}", match.start())
    if not text.isascii():
        for match in _HAN_FIGURE.finditer(text):
            yield Stated(match.group(), str(_han_value(match["h"])), match.start())


def _dates(text: str) -> tuple[list[Stated], str]:
    """Return the dates that ``text`` states, and the text with a blank for each of them."""
    found: list[Stated] = []
    begins = places(text)
    for form in (*DATES, _DOTTED_DATE):
        read = [(match, date_keys(match)) for match in dates(form, text, begins)]
        found += (
            Stated(match.group().strip(), key, match.start())
            for match, keys in read
            for key in keys
        )
        text = blanked(text, (match for match, keys in read if keys))
    months = list(matches(_MONTH_OF_YEAR, text, _months_before(text, begins)))
    for match in months:
        month = f"{match['y']}-{_MONTHS[match['m'].lower()]:02}"
        found.append(Stated(match.group(), month, match.start()))
    return found, blanked(text, months)


def blanked(text: str, matches: Iterable[re.Match[str]], *, width: int | None = None) -> str:
    """Return ``text`` with as many blanks as each of ``matches`` is long, or ``width`` of them."""
    kept: list[str] = []
    at = 0
    for match in matches:
        blanks = match.end() - match.start() if width is None else width
        kept += (text[at : match.start()], " " * blanks)
        at = match.end()
    return "".join((*kept, text[at:]))


def quotes(source: str, written: str) -> bool:
    """Return whether a text has a figure as it is written, in whatever surroundings."""
    at = source.find(written)
    while at >= 0:
        end = at + len(written)
        if not (_CONTINUES.match(source, end) or (at and _BEGUN.match(source, at - 1))):
            return True
        at = source.find(written, at + 1)
    return False


class Support:
    """The figures and dates of a record, and what a reader may conclude from them.

    The record is read when a figure is asked for that does not stand in it as it is written.
    """

    def __init__(self, source: str, *, days: Sequence[str] = ()) -> None:
        self._source, self._beside = source, days

    @cached_property
    def _dated(self) -> tuple[frozenset[str], str]:
        """Return the keys of the record's dates, and its text with a blank for each."""
        found, left = _dates(self._source)
        return frozenset(each.key for each in found), left

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_WORDS.findall(self._source.lower()))

    @cached_property
    def _days_beside(self) -> list[str]:
        return [each.key for day in self._beside for each in _dates(day)[0]]

    @cached_property
    def _today(self) -> list[date]:
        return [day for key in self._days_beside if (day := _day(key)) is not None]

    @cached_property
    def _days(self) -> frozenset[str]:
        days = self._dated[0].union(self._days_beside)
        return days | {key[5:] for key in days if len(key) == len("2024-01-01")}

    @cached_property
    def _numbers(self) -> frozenset[str]:
        worded = {str(_WORD_VALUES[word]) for word in self._words if word in _WORD_VALUES}
        return frozenset(worded | {each.key for each in _written_in_figures(self._dated[1])})

    @cached_property
    def _values(self) -> list[float]:
        return sorted({float(key) for key in self._numbers if _is_plain(key)})

    @cached_property
    def _small(self) -> frozenset[int]:
        return frozenset({1, *(int(value) for value in self._values if 0 < value <= 100)})

    @cached_property
    def _years(self) -> frozenset[int]:
        dated = {int(key[:4]) for key in self._days if key[:4].isdecimal()}
        return frozenset(dated | {int(value) for value in self._values if value in _YEARS})

    @cached_property
    def _months(self) -> frozenset[str]:
        named = {f"-{month:02}" for word in self._words if (month := _MONTHS.get(word))}
        return frozenset(named | {key[:7] for key in self._days if len(key) >= len("2024-01")})

    def weigh(self, text: str) -> tuple[int, tuple[str, ...], frozenset[str]]:
        """Return how many figures and dates of ``text`` are supported, the others, and all keys.

        A single digit claims too little to be judged.
        """
        dates, left = _dates(text)
        words = (_ASCII_WORDS if left.isascii() else _WORDS).finditer(lowered(left))
        numbers = [
            *_written_in_figures(left),
            *(
                Stated(left[match.start() : match.end()], str(value), match.start())
                for match in words
                if (value := _WORD_VALUES.get(match.group()))
            ),
        ]
        claims: dict[int, Stated] = {}
        for each in filter(_claims, numbers):
            claims.setdefault(each.at, each)
        # A hostile text repeats one figure in every place.
        written = {each.text for each in (*dates, *claims.values())}
        quoted = {each: quotes(self._source, each) for each in written}
        supported: set[str] = set()
        invented: dict[str, str] = {}
        judged = [(each, True) for each in dates] + [(each, False) for each in claims.values()]
        for stated, is_date in judged:
            if quoted[stated.text] or (
                self._holds_date(stated.key) if is_date else self._holds_number(stated.key)
            ):
                supported.add(stated.key)
            else:
                invented.setdefault(stated.key, stated.text)
        keys = frozenset(each.key for each in (*dates, *numbers))
        return len(supported), tuple(invented.values()), keys

    def _holds_date(self, key: str) -> bool:
        """Return whether the record states the date, or a day so near that it tells of it."""
        if key in self._days:
            return True
        if len(key) == len("2024-01"):
            return self._holds_month(key)
        if len(key) != len("2024-01-01"):
            # A day without a year: of any year of the record.
            return any(self._is_near(f"{year}-{key}") for year in self._years)
        if key[5:] in self._dated[0] and int(key[:4]) in self._years:
            return True
        return self._is_near(key)

    def _is_near(self, key: str) -> bool:
        day = _day(key)
        near = timedelta(days=_NEAR_DAYS)
        return day is not None and any(abs(day - other) <= near for other in self._today)

    def _holds_month(self, key: str) -> bool:
        year, month = int(key[:4]), int(key[5:])
        if f"-{key[5:]}" in self._months and year in self._years:
            return True
        return any(
            abs(12 * (int(each[:4]) - year) + int(each[5:]) - month) <= _NEAR_MONTHS
            for each in self._months
            if not each.startswith("-")
        )

    def _holds_number(self, key: str) -> bool:
        """Return whether a number is in the record, or follows from what it states.

        A year may differ from a year in the record by a number of years that the record states. A
        multiplier may stand elsewhere in the line.
        """
        if key in self._numbers:
            return True
        if ":" in key:
            hour, _, minute = key.partition(":")
            return minute == "00" and not self._small.isdisjoint((int(hour), int(hour) + 12))
        if not _is_plain(key):
            return False
        value = float(key)
        return any(value * size in self._values for size in (1000, 10_000, 10**6)) or (
            value in _YEARS and self._counts_to(value)
        )

    def _counts_to(self, year: float) -> bool:
        """Return whether a year lies so many years from one of the record as the record says."""
        return any(abs(year - claimed) in {0, *self._small} for claimed in self._years)


def _is_plain(key: str) -> bool:
    return key.replace(".", "", 1).isdecimal()


def _day(key: str) -> date | None:
    try:
        return date.fromisoformat(key)
    except ValueError:
        return None


def _claims(stated: Stated) -> bool:
    """Return whether a figure is large or exact enough to be held against its writer."""
    if stated.text.lower() in _LISTS["no claim"] or stated.text == "":
        return False
    if not _is_plain(stated.key):
        return True
    return "." in stated.key or float(stated.key) >= _LEAST_CLAIM
