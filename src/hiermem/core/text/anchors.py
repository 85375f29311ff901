"""Decides which facts of a text must survive compression word for word, and which did.

An anchor is found by its form alone, without a model and in linear time: a number, date, path,
identifier, URL, quote or negated constraint. Fenced code counts by its digest, as in all modules.
This module accepts and refuses no text: ``validate`` does.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from hiermem.core.text.lexicon import stem, words
from hiermem.core.text.units import prose

#: The longest anchor, in code points. Longer matches are cut, because an index stores anchors.
ANCHOR_CAP: Final = 120

_Kind: TypeAlias = Literal["number", "date", "literal", "quote", "constraint"]
#: The weight of each kind. A lone digit is often only a list number and weighs least.
_WEIGHT: Final[dict[_Kind, float]] = {
    "number": 4.0,
    "date": 4.0,
    "literal": 3.0,
    "quote": 3.0,
    "constraint": 3.0,
}
_LONE_DIGIT: Final = 1.0

_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_MONTH_NAME: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_NAMED_DATE: Final = re.compile(
    r"\b(?=[jfmasond\d])"  # what a match begins with, looked at first: most words end here
    rf"(?:(?P<m1>{_MONTH_NAME})\.? (?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<y1>\d{{4}}))?\b"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?(?P<m2>{_MONTH_NAME})\b\.?"
    r"(?:,? (?P<y2>\d{4})\b)?)",
    re.IGNORECASE,
)
_ISO_DATE: Final = re.compile(r"\b(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)")
_UNSPACED_DATE: Final = re.compile(r"(?:(?P<y>\d{4})年)?(?P<m>\d{1,2})月(?P<d>\d{1,2})日")
#: The forms of dates, each with a text that every match of the form contains.
_DATES: Final = ((_NAMED_DATE, " "), (_ISO_DATE, ""), (_UNSPACED_DATE, "月"))
_URL: Final = re.compile(r"\b(?:https?|ftp|wss?)://[^\s<>\"'`)\]}]{1,500}")
_QUOTED: Final = re.compile(
    r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|`([^`\n]{2,80})`"
    r"|«([^»\n]{2,80})»|「([^」\n]{1,80})」"
)
_TOKEN: Final = re.compile(
    r"(?:(?<![\w/])(?:~|\.{1,2})?/)?"  # the root of a path
    r"[$€£¥#@]?\w+(?:[-.:@/'’+]\w+|,\d{3}(?!\d))*(?:\(\)|%)?"  # noqa: RUF001
)
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_CONSTRAINT: Final = re.compile(
    r"\b(?=[dmscwian])"  # as above: what a match begins with
    r"(?:(?:do|does|must|should|shall|may|can|will|would|is|are) not|never|cannot|without|avoid"
    r"|no longer|no more than|not allowed|(?:don|doesn|mustn|shouldn|can|won|isn|aren)['’]t)"  # noqa: RUF001
    r"((?: +[^\s.,;:!?()]{1,40}){1,6})",
    re.IGNORECASE,
)
#: "I don't know" and similar clauses constrain nothing.
_NO_CONSTRAINT: Final = frozenset(
    {"know", "think", "remember", "mind", "worry", "sure", "wait", "believe", "understand", "see"}
)
_GLUE: Final = words(
    """
    a an the to of in on at for with by from as if so and or but be is are it its this that any i
    you we he she they my your our have has been do
    """
)
_LIST_NUMBER: Final = re.compile(r"(?m)^[ \t]*(?:\d{1,3}[.)]|[-*•])[ \t]+")
_HEADING: Final = re.compile(
    r"(?m)^[ \t]*(?:#+[^\n]*|\[\d{4}-\d\d-\d\d\]|\*\*[^*\n]{1,80}\*\*:?|[^\n:]{1,60}:)[ \t]*$"
)
_CAPITAL_INSIDE: Final = re.compile(r"(?<=[a-z0-9,;] )[A-ZÀ-Þ][\w'’-]{2,60}")  # noqa: RUF001
_WORD: Final = re.compile(r"\w+")


class _Anchor(NamedTuple):
    """An anchor as written, and its key, which is equal for other spellings of the anchor."""

    text: str
    kind: _Kind
    key: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The degree to which an output keeps the facts of its inputs.

    ``value`` is kept / required, 1.0 where none was required. ``unsupported`` lists figures and
    names in the output that no input has: possible inventions of a model.
    """

    required: tuple[str, ...]
    missing: tuple[str, ...]
    unsupported: tuple[str, ...]
    value: float


def find(text: str, *, limit: int = 64) -> tuple[str, ...]:
    """Return the ``limit`` weightiest anchors of ``text``, weightiest first, then in order.

    >>> find("Never deploy on Friday: v2.1 broke /etc/app.toml on 3 May 2024.")
    ('3 May 2024', 'v2.1', '/etc/app.toml', 'Never deploy on Friday')
    """
    return tuple(anchor.text for anchor in _weightiest(_anchors(text), limit))


def fidelity(
    *, inputs: Sequence[str], output: str, limit: int, beside: Sequence[str] = ()
) -> Fidelity:
    """Return which of the ``limit`` weightiest anchors of ``inputs`` the ``output`` keeps.

    ``beside`` is the other text that the writer saw (dates, speakers, a title): it supports the
    output's statements, and nothing of it is required.

    A number is the same with other thousands separators, a date in another usual notation, a path
    or quote in other case or spacing. A constraint is kept where the output denies at least half
    of its words.
    """
    source = "\n".join(inputs)
    present = list(_anchors(source))
    required = _weightiest(present, limit)
    keys, denied = _keys(_anchors(output)), _denied(output)
    folded = _fold(output)
    dates = _anchors("\n".join(beside))
    missing = tuple(
        anchor.text
        for anchor in required
        if not _is_kept(anchor, keys=keys, denied=denied, folded=folded)
    )
    return Fidelity(
        required=tuple(anchor.text for anchor in required),
        missing=missing,
        unsupported=_unsupported(
            output, source="\n".join((source, *beside)), known=_keys(present) | _keys(dates)
        )[:limit],
        value=1.0 - len(missing) / len(required) if required else 1.0,
    )


def _weightiest(anchors: Iterable[_Anchor], limit: int) -> list[_Anchor]:
    """Return the weightiest distinct anchors; weights grow with the square root of the count."""
    first: dict[str, _Anchor] = {}
    said: Counter[str] = Counter()
    for anchor in anchors:
        first.setdefault(anchor.key, anchor)
        said[anchor.key] += anchor.times

    def weight(anchor: _Anchor) -> float:
        lone = anchor.kind == "number" and len(anchor.key) == 1
        return (_LONE_DIGIT if lone else _WEIGHT[anchor.kind]) * math.sqrt(said[anchor.key])

    return sorted(first.values(), key=weight, reverse=True)[: max(0, limit)]


def _anchors(text: str) -> Iterator[_Anchor]:
    """Yield the anchors of ``text``, one family after the other, each in order."""
    text = _LIST_NUMBER.sub("", prose(text))
    for pattern, sign in _DATES:
        if sign in text:
            text = yield from _taken_out(_date, pattern, text)
    if "://" in text:
        text = yield from _taken_out(_url, _URL, text)
    for token, times in Counter(_TOKEN.findall(_spaced(text))).items():
        if not _is_plain(token) and (anchor := _read_token(token)) is not None:
            yield anchor._replace(times=times)
    for match in _QUOTED.finditer(text):
        quote = " ".join(next(part for part in match.groups() if part is not None).split())
        if quote:
            yield _Anchor(quote, "quote", quote.casefold())
    for match in _CONSTRAINT.finditer(text):
        denied = _content(match.group(1))
        if denied and not (len(denied) < 3 and denied[0] in _NO_CONSTRAINT):
            yield _Anchor(match.group()[:ANCHOR_CAP], "constraint", " ".join(denied))


def _spaced(text: str) -> str:
    """Replace each run of a script without spaces by a space."""
    return text if text.isascii() else _UNSPACED.sub(" ", text)


def _taken_out(
    read: Callable[[re.Match[str]], _Anchor | None], pattern: re.Pattern[str], text: str
) -> Generator[_Anchor, None, str]:
    """Yield the anchors that ``pattern`` finds, and return ``text`` with a space for each match."""
    kept: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        if (anchor := read(match)) is not None:
            yield anchor
        kept.append(text[at : match.start()])
        at = match.end()
    if not at:
        return text
    kept.append(text[at:])
    return " ".join(kept)


def _date(match: re.Match[str]) -> _Anchor | None:
    key = _date_key(match)
    return _Anchor(match.group().strip(), "date", key) if key else None


def _url(match: re.Match[str]) -> _Anchor:
    url = match.group().rstrip(".,;:!?")[:ANCHOR_CAP]
    return _Anchor(url, "literal", url.casefold())


def _is_plain(token: str) -> bool:
    """Return, cheaply, whether ``token`` is a plain word in lower case, title case or capitals."""
    return token.isalpha() and (token.islower() or token.istitle() or token.isupper())


def _read_token(token: str) -> _Anchor | None:
    """Return the anchor that one token is, or None for an ordinary word."""
    token = token[:ANCHOR_CAP]
    bare = token.strip("$€£¥#%")
    digits = bare.replace(",", "").replace(":", "", 1)
    if digits.replace(".", "", 1).isdigit():
        return _Anchor(token, "number", bare.replace(",", ""))
    if "/" in token:
        stretches = token.count("/") > 1 or token[0] in "/.~" or "." in token.rsplit("/", 1)[-1]
        marked = stretches or any(char.isdigit() for char in token)
    else:
        core = token.replace("'", "").replace("’", "")  # noqa: RUF001
        marked = (
            any(char.isdigit() for char in core)
            or any(mark in core for mark in ("_", "@", "::", "()", "#"))
            or ("." in core and len(core) > 4)
            or (core[1:] != core[1:].lower() and not core.isupper() and "-" not in core)
        )
    return _Anchor(token, "literal", token.casefold().rstrip("()")) if marked else None


def _date_key(match: re.Match[str]) -> str:
    """Return the key of a written date: ``year-month-day``, or ``month-day``; "" for no date."""
    parts = {name[0]: part for name, part in match.groupdict().items() if part}
    written = parts["m"].lower()
    month = int(written) if written.isdigit() else _MONTHS.index(written[:3]) + 1
    day = int(parts["d"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return ""
    year = f"{parts['y']}-" if "y" in parts else ""
    return f"{year}{month:02}-{day:02}"


def _keys(anchors: Iterable[_Anchor]) -> frozenset[str]:
    """Return the keys of ``anchors``, and the month-day keys that full dates imply."""
    keys = {anchor.key for anchor in anchors}
    return frozenset(keys | {key[5:] for key in keys if _ISO_DATE.fullmatch(key)})


def _content(clause: str) -> list[str]:
    """Return the stems of the words of a clause that carry its meaning."""
    return [stem(word) for word in _WORD.findall(clause.lower()) if word not in _GLUE]


def _denied(text: str) -> frozenset[str]:
    """Return the stems of all words that ``text`` denies."""
    return frozenset(
        word for match in _CONSTRAINT.finditer(text) for word in _content(match.group(1))
    )


def _fold(text: str) -> str:
    """Return ``text`` in one case and with single spaces."""
    return " ".join(text.casefold().split())


def _is_kept(anchor: _Anchor, *, keys: frozenset[str], denied: frozenset[str], folded: str) -> bool:
    """Return whether the output described by the other arguments holds ``anchor``."""
    if anchor.key in keys:
        return True
    if anchor.kind == "constraint":
        wanted = anchor.key.split()
        return 2 * sum(word in denied for word in wanted) >= len(wanted)
    return anchor.kind in ("literal", "quote") and anchor.key in folded


def _unsupported(output: str, *, source: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return the figures and names of ``output`` that are not in ``source``, figures first.

    ``known`` are the keys of the anchors of ``source``. Headings and rendered days claim nothing.
    """
    said = frozenset(_WORD.findall(source.casefold()))
    body = _HEADING.sub("", output)
    found: dict[str, None] = {}
    for anchor in _anchors(body):
        figure = anchor.kind == "date" or (anchor.kind == "number" and len(anchor.key) > 1)
        if figure and anchor.key not in known and anchor.key not in said:
            found[anchor.text] = None
    for match in _CAPITAL_INSIDE.finditer(body):
        name = match.group()
        if not all(part in said for part in _WORD.findall(name.casefold().removesuffix("'s"))):
            found[name] = None
    return tuple(found)
