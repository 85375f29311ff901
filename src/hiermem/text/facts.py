# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides which facts of a text must survive compression, and which of them a summary states.

A fact is found by its form, without a model and in linear time: a number of two digits, an ISO
date, a path, an identifier, a URL, a quote, a negated constraint. Numbers are compared by their
digits, without separators and thousands: 25.000, 25 000 and 25k are one number. Other dates count
by their numbers. Fenced code is no prose, so its facts are none; a summary may name its numbers.

This module refuses no text: the checks of summaries decide that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Final, NamedTuple

from hiermem.data import word_lists
from hiermem.text import language
from hiermem.text.policy import either, stands_in, words_of
from hiermem.text.terms import stem
from hiermem.text.units import prose

#: The longest anchor, in code points. Longer matches are cut, because an index stores anchors.
ANCHOR_CAP: Final = 120
#: The most anchors that are found in a text, where nothing else is asked.
_MOST_FOUND: Final = 64
#: How much of an output is read, which is more than any summary has.
_MOST_READ: Final = 60_000
#: A date of a summary may be so many days from the day of a message that tells of it.
_NEAR_DAYS: Final = 15
#: The years before a record's own of which a summary may tell.
_YEARS_BEFORE: Final = 10
#: The least number that claims something.
_LEAST_CLAIM: Final = 10

#: A number, with its separators. Letters before it make it a part of a name, and a digit behind
#: letters a part of a hash; figures may stand between Chinese characters.
_LETTER: Final = r"A-Za-z\u00c0-\u024f\u0400-\u04ff"
_FIGURE: Final = (
    rf"(?<![\d_{_LETTER}])(?<!\d:)(?:\d{{1,3}}(?:[ \u00a0\u202f.,'’]\d{{3}})+(?!\d)(?:[.,]\d+)?"
    rf"|\d+(?:[.,]\d+)?)(?![{_LETTER}]+\d|\d|:\d)"
)
_NUMBER: Final = re.compile(rf"{_FIGURE}|[一二两三四五六七八九十百千万亿]{{2,}}")
_DATE: Final = r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)"
_ISO_DATE: Final = re.compile(_DATE)
_QUOTED: Final = re.compile(
    r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|`([^`\n]{2,80})`"
    r"|«([^»\n]{2,80})»|「([^」\n]{1,80})」"
)
#: What stands between white space, with numbers whose groups are parted by it, and if there is one.
_PIECE: Final = re.compile(r"(?:\S|(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d)))+")
_GROUPED: Final = re.compile(r"\d[ \u00a0\u202f]\d{3}(?!\d)")
_OPENING: Final = "([{<\"'*"
_CLOSING: Final = ",.;:!?)]}>\"'*"
_TOKEN: Final = re.compile(
    rf"(?P<date>{_DATE})|(?P<url>\b(?:https?|ftp|wss?)://[^\s<>\"'`)\]}}]{{1,500}})"
    rf"|[$€£¥]?{_FIGURE}%?(?![\w/@:+]|[-.,'’]\w)"
    r"|(?:(?<![\w/])(?:~|\.{1,2})?/)?"  # the root of a path
    r"[$€£¥#@]?\w+(?:[-.:@/'’+]\w+|,\d{3}(?!\d))*(?:\(\)|%)?"
)
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_LISTS: Final = word_lists("lexicon_words")


def _cased(words: Iterable[str]) -> str:
    """Return a pattern of words that may begin a sentence, found faster than without case."""
    return either({*words, *map(str.capitalize, words)})


_DENIAL: Final = re.compile(
    rf"(?:{_cased(_LISTS['denials'])}|(?:[Mm]ust|[Ss]hould|[Dd]o|[Dd]oes|[Cc]a|[Ww]o|[Ii]s|[Aa]re)n['’]t)"
    r"((?: +(?:[^\s.,;:!?()]|[.,:](?=\w)){1,40}){1,6})"
)
#: What contractions deny is seldom forbidden.
_CONTRACTION: Final = re.compile(r"\w+n['’]t")
#: A title, which the text under it says again; the mark of an item; the number of a step.
_TITLE: Final = re.compile(
    r"(?m)^[ \t]*(?:#{1,6} [^\n]*|(?:\d{1,2}[.)] )?\*\*[^*\n]{1,80}\*\*:?|[^\n:]{1,60}:)[ \t]*$"
)
_MARK: Final = re.compile(r"(?m)^[ \t]*(?:\d{1,3}[.)]|[-*•])[ \t]+")
_STEP: Final = re.compile(rf"{_cased(_LISTS['steps'])}s? \d{{1,3}}\b")
_CAPITAL_INSIDE: Final = re.compile(r"[A-ZÀ-Þ](?<=[a-z0-9,;] .)[\w'’-]{2,60}")
_WORD: Final = re.compile(r"\w+")


class _Anchor(NamedTuple):
    """An anchor as written, its weight, and its key, which other spellings of it share."""

    text: str
    weight: float
    key: str


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The degree to which an output keeps the facts of its inputs.

    ``missing`` are the ``required`` anchors that it lacks. Of its numbers and dates the inputs have
    ``supported``, and not those ``invented``; of its names ``named``, and not those ``strangers``.
    ``anchors`` are those of the output, as ``find`` returns them.
    """

    required: tuple[str, ...]
    missing: tuple[str, ...]
    supported: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    named: int = 0
    strangers: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        """Return kept / required, None if nothing was required."""
        return 1.0 - len(self.missing) / len(self.required) if self.required else None

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Return the invented numbers and dates, and then the strange names."""
        return (*self.invented, *self.strangers)


def find(text: str, *, limit: int = _MOST_FOUND) -> tuple[str, ...]:
    """Return the ``limit`` weightiest anchors of ``text``, weightiest first, then in order.

    >>> find("Never deploy on Friday: v2.1 broke /etc/app.toml on 2024-05-03.")
    ('2024-05-03', 'v2.1', '/etc/app.toml', 'Never deploy on Friday')
    """
    return tuple(anchor.text for anchor in _weightiest(_anchors(text), limit))


class Source:
    """The texts that outputs are held to; what is read in them, once, when it is needed.

    ``limit`` anchors of ``inputs`` are required. ``beside`` is the other text that the writer saw
    (dates, speakers, a title): it supports the output's statements, and nothing of it is required.
    A source lives no longer than the judging of the answers to one request, so no text is kept.
    """

    def __init__(self, inputs: Sequence[str], *, limit: int, beside: Sequence[str] = ()) -> None:
        self._inputs, self._limit, self._beside = tuple(inputs), limit, tuple(beside)

    @cached_property
    def prose_of_inputs(self) -> tuple[str, ...]:
        """Return the prose of each input."""
        return tuple(map(prose, self._inputs))

    @cached_property
    def _required(self) -> list[_Anchor]:
        return _weightiest(_anchors("\n".join(self._inputs)), self._limit)

    @cached_property
    def _seen(self) -> str:
        return "\n".join((*self._inputs, *self._beside))

    @cached_property
    def _numbers(self) -> frozenset[str]:
        """Return the keys of the numbers and dates that the writer saw, and of the dates' parts."""
        return _keys(self._seen)

    @cached_property
    def _days(self) -> list[int]:
        return [day for text in self._beside for day in map(_day, _ISO_DATE.findall(text)) if day]

    @cached_property
    def _years(self) -> frozenset[str]:
        """Return the years around the record's days, which claim little."""
        years = {date.fromordinal(day).year for day in self._days}
        return frozenset(str(year + n) for year in years for n in range(-_YEARS_BEFORE, 2))

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(words_of(self._seen.casefold()))

    def fidelity(self, output: str) -> Fidelity:
        """Return which of the weightiest anchors ``output`` keeps, and what it adds."""
        body = _untitled(output)[:_MOST_READ]
        own = list(_anchors(output))
        keys = {anchor.key for anchor in own} | _keys(output)
        folded = " ".join(output.casefold().split())
        stems = frozenset(_stems(folded)) if _DENIAL.search(output) else frozenset()
        claims = {key: each for key, each in _numbers(body).items() if key not in self._years}
        supported = tuple(each for key, each in claims.items() if self._supports(key, each))
        invented = tuple(each for each in claims.values() if each not in supported)
        named, strangers = self._names(body)
        return Fidelity(
            required=tuple(anchor.text for anchor in self._required),
            missing=tuple(
                anchor.text
                for anchor in self._required
                if not (anchor.key in keys or _stands(anchor, folded=folded, stems=stems))
            ),
            supported=supported,
            invented=invented[: self._limit],
            named=named,
            strangers=strangers[: self._limit],
            anchors=tuple(anchor.text for anchor in _weightiest(own, _MOST_FOUND)),
        )

    def _supports(self, key: str, written: str) -> bool:
        """Return whether the texts have a number, or a date or its parts, or a day near it."""
        # Numbers in Chinese signs are not read.
        if key in self._numbers or (key.isascii() and not all(map(str.isascii, self._numbers))):
            return True
        if not _ISO_DATE.fullmatch(written):
            return False
        day, (year, _, number) = _day(written), written.split("-")
        near = day is not None and any(abs(day - each) <= _NEAR_DAYS for each in self._days)
        return near or _numbers(f"{year} {int(number)}").keys() <= self._numbers

    def _names(self, body: str) -> tuple[int, tuple[str, ...]]:
        """Return how many names of ``body`` the texts have, and those that they do not have.

        German writes every noun with a capital, so there a capital marks no name.
        """
        names = {
            name
            for line in body.splitlines()
            if not _is_title(line)
            for name in _CAPITAL_INSIDE.findall(line)
            if not (name.isupper() or name.lower() in _LISTS["time"])
        }
        strangers = tuple(
            name
            for name in sorted(names)
            if not self._words.issuperset(words_of(name.casefold().removesuffix("'s")))
            and not stands_in(name, self._seen)
        )
        if strangers and "de" in (language.guess(self._seen), language.guess(body)):
            return 0, ()
        return len(names) - len(strangers), strangers


def _day(written: str) -> int | None:
    """Return the ordinal of a day; None if there is no such day."""
    try:
        return date.fromisoformat(written).toordinal()
    except ValueError:
        return None


def digits(number: str) -> str:
    """Return the digits of a number without separators, leading zeros and thousands.

    >>> [digits(each) for each in ("25.000", "120 000", "12", "2,5", "十五万")]
    ['25', '12', '12', '25', '十五万']
    """
    digits = number if number.isdecimal() else "".join(filter(str.isdecimal, number))
    bare = digits.lstrip("0")
    return (bare.rstrip("0") if bare.endswith("000") else bare) or number


def _numbers(text: str) -> dict[str, str]:
    """Return the numbers and ISO dates of ``text`` that claim something, by their keys."""
    stated = {match.group(): match.group() for match in _ISO_DATE.finditer(text)}
    for match in _NUMBER.finditer(_ISO_DATE.sub(" ", text)):
        written = match.group()
        if not (written.isdecimal() and len(written) < 9 and int(written) < _LEAST_CLAIM):
            stated.setdefault(digits(written), written)
    return stated


def _keys(text: str) -> frozenset[str]:
    """Return the keys of the numbers and ISO dates of ``text``, and of the dates' parts."""
    keys = _numbers(text).keys()
    parts = (part for key in keys if _ISO_DATE.fullmatch(key) for part in key.split("-"))
    return frozenset(keys | set(map(digits, parts)))


def _weightiest(anchors: Iterable[_Anchor], limit: int) -> list[_Anchor]:
    """Return the weightiest distinct anchors; weights grow with the square root of the count."""
    first: dict[str, _Anchor] = {}
    counts: Counter[str] = Counter()
    for anchor in anchors:
        first.setdefault(anchor.key, anchor)
        counts[anchor.key] += 1
    return sorted(
        first.values(), key=lambda each: each.weight * math.sqrt(counts[each.key]), reverse=True
    )[: max(0, limit)]


def _untitled(text: str) -> str:
    """Return the prose of ``text`` without titles, marks of items and numbers of steps."""
    text = prose(text)
    if "#" in text or "**" in text or ":\n" in text:
        text = _TITLE.sub("", text)
    return _STEP.sub(" ", _MARK.sub(" ", text))


def _anchors(text: str) -> Iterator[_Anchor]:
    """Yield the anchors of ``text``, one family after the other, each in order."""
    text = _untitled(text)
    for piece in _PIECE.findall(text) if _GROUPED.search(text) else text.split():
        bare = piece.lstrip(_OPENING).rstrip(_CLOSING)
        # Most words are plain.
        if not (bare.isalpha() and bare.isascii() and bare[1:] == bare[1:].lower()):
            for match in _TOKEN.finditer(piece if bare.isascii() else _UNSPACED.sub(" ", piece)):
                if (anchor := _read_token(match)) is not None:
                    yield anchor
    for match in _QUOTED.finditer(text):
        if quote := " ".join("".join(filter(None, match.groups())).split()).rstrip(",;:"):
            yield _Anchor(quote, 3.0, quote.casefold())
    for match in _DENIAL.finditer(text):
        denied = _stems(match.group(1))
        constrains = not (len(denied) < 3 and set(denied[:1]) <= _LISTS["no constraint"])
        begins = not text[max(0, match.start() - 1) : match.start()].isalnum()
        if constrains and begins and not _CONTRACTION.match(match.group()):
            yield _Anchor(match.group()[:ANCHOR_CAP], 3.0, " ".join(("not", *denied)))


def _read_token(match: re.Match[str]) -> _Anchor | None:
    """Return the anchor that a token is, or None for an ordinary word."""
    token = match.group()[:ANCHOR_CAP]
    if match["date"]:
        return _Anchor(token, 4.0, token)
    if match["url"]:
        # A mark at the end says that the address was cut: it is none.
        is_cut = match["url"].rstrip("]'\"").endswith("…")
        return None if is_cut else _Anchor(token := token.rstrip(".,;:!?"), 3.0, token.casefold())
    if token.isalpha() and token[1:] == token[1:].lower():
        return None
    bare = token.strip("$€£¥#%")
    if _NUMBER.fullmatch(bare):
        return _Anchor(token, 4.0, digits(bare)) if len(token) > 1 else None
    core = token.replace("'", "").replace("’", "")
    if "/" in token:
        stretches = token.count("/") > 1 or token[0] in "/.~" or "." in token.rsplit("/", 1)[-1]
        marked = stretches or any(map(str.isdigit, token))
    else:
        marked = (
            any(map(str.isdigit, core))
            or any(map(core.__contains__, ("_", "@", "::", "()", "#")))
            or ("." in core and len(core) > 4)
            or (core[1:] != core[1:].lower() and not core.isupper() and "-" not in core)
        )
    return _Anchor(token, 3.0, token.casefold().rstrip("()")) if marked else None


def _stems(clause: str) -> list[str]:
    """Return the stems of the words of a clause that carry its meaning."""
    return [stem(word) for word in _WORD.findall(clause.lower()) if word not in _LISTS["glue"]]


def _stands(anchor: _Anchor, *, folded: str, stems: frozenset[str]) -> bool:
    """Return whether an output holds an anchor as it is, or denies half of a constraint's words."""
    wanted = anchor.key.split()
    if wanted[0] == "not":
        return 2 * len(stems.intersection(wanted[1:])) >= len(wanted) - 1
    return anchor.weight < 4 and anchor.key in folded


def _is_title(line: str) -> bool:
    """Return whether most words of a line have capitals, as in titles."""
    capitals: list[bool] = [word[0].isupper() for word in _WORD.findall(line) if word.isalpha()]
    return 2 * sum(capitals) >= len(capitals)
