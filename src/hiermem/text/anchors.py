"""Decides which facts of a text must survive compression word for word, and which did.

An anchor is found by its form alone, without a model and in linear time: a number, date, path,
identifier, URL, quote or negated constraint. Fenced code counts by its digest, as in all modules.
This module accepts and refuses no text: ``validate`` does.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from hiermem.data import word_lists
from hiermem.text import figures, language
from hiermem.text.policy import either, stands_in, words_of
from hiermem.text.terms import stem
from hiermem.text.units import leaves_open, prose

#: The longest anchor, in code points. Longer matches are cut, because an index stores anchors.
ANCHOR_CAP: Final = 120
#: The most anchors that are found in a text, where nothing else is asked.
_MOST_FOUND: Final = 64

_Kind: TypeAlias = Literal["number", "date", "literal", "quote", "constraint"]
#: The weight of each kind.
_WEIGHT: Final[dict[_Kind, float]] = {
    "number": 4.0,
    "date": 4.0,
    "literal": 3.0,
    "quote": 3.0,
    "constraint": 3.0,
}

_URL: Final = re.compile(r"\b(?:https?|ftp|wss?)://[^\s<>\"'`)\]}]{1,500}")
_QUOTED: Final = re.compile(
    r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|`([^`\n]{2,80})`"
    r"|«([^»\n]{2,80})»|「([^」\n]{1,80})」"
)
_TOKEN: Final = re.compile(
    rf"[$€£¥]?(?<![\w.,]){figures.NUMBER}%?(?![\w/@:+]|[-.,'’]\w)"  # noqa: RUF001 - a plain number
    r"|(?:(?<![\w/])(?:~|\.{1,2})?/)?"  # the root of a path
    r"[$€£¥#@]?\w+(?:[-.:@/'’+]\w+|,\d{3}(?!\d))*(?:\(\)|%)?"  # noqa: RUF001
)
#: Groups of a number with a space between them, and a piece of a text that has such numbers.
_SPACED_GROUP: Final = re.compile(r"\d[ \u00a0\u202f](?=\d{3})")
_PIECE: Final = re.compile(r"(?:\S|(?<=\d)[ \u00a0\u202f](?=\d{3}))+")
#: Marks around a word that are no part of a token: "()" after a word is one.
_OPENING: Final = "([{<\"'*"
_CLOSING: Final = ",.;:!?)]}>\"'*"
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_REST: Final = r"((?: +(?:[^\s.,;:!?()]|[.,:](?=\w)){1,40}){1,6})"
_CONSTRAINT: Final = re.compile(
    r"\b(?:(?:do|does|must|should|shall|may|can|will|would|is|are) not|never|cannot|without|avoid"
    rf"|no longer|no more than|not allowed|mustn['’]t){_REST}",  # noqa: RUF001
    re.IGNORECASE,
)
#: Contractions deny what they stand before, but in talk they seldom forbid it.
_CONTRACTION: Final = re.compile(
    rf"\b(?:don|doesn|shouldn|can|won|isn|aren)['’]t{_REST}",  # noqa: RUF001
    re.IGNORECASE,
)
#: What every match of both has in lower case, at most so far after its beginning.
_DENIALS: Final = tuple(
    map(re.compile, (r"n(?:ot|ever|o longer|o more than|['’]t)", "without", "avoid"))  # noqa: RUF001
)
_DENIAL_HEAD: Final = len("should ")
_LISTS: Final = word_lists("lexicon_words")
#: "I don't know" and similar clauses constrain nothing.
_NO_CONSTRAINT: Final = _LISTS["no constraint"]
_GLUE: Final = _LISTS["glue"]
#: What stands before the number of a step, in lower case, and the two together.
_STEP_WORDS: Final = tuple(f"{word}{end} " for word in _LISTS["steps"] for end in ("", "s"))
_STEP: Final = re.compile(rf"\b{either(_STEP_WORDS)}\d{{1,3}}\b", re.IGNORECASE)
#: A title, which the text under it says again.
_TITLE: Final = re.compile(
    r"(?m)^[ \t]*(?:#{1,6} [^\n]*|(?:\d{1,2}[.)] )?\*\*[^*\n]{1,80}\*\*:?)[ \t]*$"
)
_LIST_NUMBER: Final = re.compile(r"(?m)^[ \t]*(?:\d{1,3}[.)]|[-*•])[ \t]+")
_HEADING: Final = re.compile(
    r"(?m)^[ \t]*(?:#+[^\n]*|\[\d{4}-\d\d-\d\d\]|\*\*[^*\n]{1,80}\*\*:?|[^\n:]{1,60}:)[ \t]*$"
)
_CAPITAL_INSIDE: Final = re.compile(r"[A-ZÀ-Þ](?<=[a-z0-9,;] .)[\w'’-]{2,60}")  # noqa: RUF001
_WORD: Final = re.compile(r"\w+")
_FIGURE: Final = re.compile(rf"{figures.NUMBER}|\d{{1,2}}:\d\d")
#: A figure in code. Its unit may follow it, but it is no part of a name, or of a hash.
_CODED: Final = re.compile(r"(?<![^\Wv])(?<!\.)\d+(?:\.\d+)*(?!\.?\d|[^\W\d]+\d)")
_FULL_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


class _Anchor(NamedTuple):
    """An anchor as written, and its key, which is equal for other spellings of the anchor."""

    text: str
    kind: _Kind
    key: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The degree to which an output keeps the facts of its inputs.

    ``value`` is kept / required, None where none was required. ``invented`` are the figures and
    dates of the output that no input has, and ``supported`` counts those that one has;
    ``strangers`` are its names that no input has, and ``named`` counts those that one has.
    ``unsupported`` lists the invented figures and then the strangers. ``anchors`` are those of the
    output, as ``find`` returns them.
    """

    required: tuple[str, ...]
    missing: tuple[str, ...]
    unsupported: tuple[str, ...]
    value: float | None
    supported: int = 0
    invented: tuple[str, ...] = ()
    named: int = 0
    strangers: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()


def find(text: str, *, limit: int = _MOST_FOUND) -> tuple[str, ...]:
    """Return the ``limit`` weightiest anchors of ``text``, weightiest first, then in order.

    >>> find("Never deploy on Friday: v2.1 broke /etc/app.toml on 3 May 2024.")
    ('3 May 2024', 'v2.1', '/etc/app.toml', 'Never deploy on Friday')
    """
    return tuple(anchor.text for anchor in _weightiest(_anchors(_untitled(text)), limit))


def fidelity(
    *, inputs: Sequence[str], output: str, limit: int, beside: Sequence[str] = ()
) -> Fidelity:
    """Return which of the ``limit`` weightiest anchors of ``inputs`` the ``output`` keeps.

    ``beside`` is the other text that the writer saw (dates, speakers, a title): it supports the
    output's statements, and nothing of it is required.

    A number is the same with other thousands separators or in words, a date in another usual
    notation, a path or quote in other case or spacing. A constraint is kept where the output denies
    at least half of its words.
    """
    return Source(inputs, limit=limit, beside=beside).fidelity(output)


class Source:
    """The texts that outputs are held to, and what is read in them: once, when it is asked for.

    The arguments are those of ``fidelity``. It lives no longer than the judging of the answers to
    one request, so no text is kept after that.
    """

    def __init__(self, inputs: Sequence[str], *, limit: int, beside: Sequence[str] = ()) -> None:
        self._inputs, self._limit, self._beside = tuple(inputs), limit, tuple(beside)

    def read(self) -> None:
        """Read what judging any output needs, ahead of the output."""
        _ = self._required, self.prose_of_inputs, self._prose

    @cached_property
    def _required(self) -> list[_Anchor]:
        return _weightiest(_anchors(_untitled("\n".join(self._inputs))), self._limit)

    @cached_property
    def _seen(self) -> str:
        return "\n".join((*self._inputs, *self._beside))

    @cached_property
    def prose_of_inputs(self) -> tuple[str, ...]:
        """Return the prose of each input."""
        return tuple(map(prose, self._inputs))

    @cached_property
    def _prose(self) -> str:
        # A code block that one text leaves open goes on in the next.
        if any(map(leaves_open, self._inputs)):
            return prose(self._seen)
        return "\n".join(
            (*self.prose_of_inputs, *([prose("\n".join(self._beside))] if self._beside else ()))
        )

    @cached_property
    def _support(self) -> figures.Support:
        return figures.Support(self._prose, days=self._beside)

    @cached_property
    def _words(self) -> frozenset[str]:
        # The digest of a code block may end inside a word, which then is a word of the digest.
        digests = set(self._prose.split("\n")).difference(self._seen.split("\n"))
        return frozenset(words_of("\n".join((self._seen, *digests)).casefold()))

    @cached_property
    def _is_german(self) -> bool:
        return language.guess(self._seen) == "de"

    def fidelity(self, output: str) -> Fidelity:
        """Return which of the weightiest anchors ``output`` keeps, and what it adds."""
        required, limit = self._required, self._limit
        body = _unstepped(_HEADING.sub("", _LIST_NUMBER.sub("", prose(output))))
        supported, found, stated = self._support.weigh(body[: figures.MOST_READ])
        # A figure that stands in code is none of the record's statements, but it is not invented.
        invented = tuple(each for each in found if not self._holds(each))
        supported += len(found) - len(invented)
        own = list(_anchors(_untitled(output)))
        titles = _anchors("\n".join(_TITLE.findall(output)))
        claimed = _keys((*own, *titles), stated)
        denied, folded = _denied(output), " ".join(output.casefold().split())
        missing = tuple(
            anchor.text
            for anchor in required
            if not _is_kept(anchor, keys=claimed, denied=denied, folded=folded)
        )
        named, strangers = self._names(body)
        return Fidelity(
            required=tuple(anchor.text for anchor in required),
            missing=missing,
            unsupported=(*invented, *strangers)[:limit],
            value=1.0 - len(missing) / len(required) if required else None,
            supported=supported,
            invented=invented[:limit],
            named=named,
            strangers=strangers[:limit],
            anchors=tuple(anchor.text for anchor in _weightiest(own, _MOST_FOUND)),
        )

    def _holds(self, figure: str) -> bool:
        """Return whether the code in the texts has a figure as it is written."""
        code, coded = self._code
        number = figure.strip("~≈$€£¥")
        # A search of the code for each number of a hostile answer would take minutes.
        return number in coded if _CODED.fullmatch(number) else figures.quotes(code, figure)

    @cached_property
    def _code(self) -> tuple[str, frozenset[str]]:
        """Return the lines of the texts that their prose lacks, and the figures there."""
        prose = set(self._prose.split("\n"))
        code = "\n".join(line for line in self._seen.split("\n") if line not in prose)
        return code, frozenset(_CODED.findall(code))

    def _names(self, body: str) -> tuple[int, tuple[str, ...]]:
        """Return how many names of ``body`` the texts have, and those that they do not have.

        German writes every noun with a capital, so there a capital marks no name.
        """
        found: dict[str, None] = {}
        for line in body.splitlines():
            inside = _CAPITAL_INSIDE.findall(line)
            if inside and not _is_title(line):
                found.update(dict.fromkeys(inside))
        names = [
            name
            for name in found
            if not (figures.is_month(name) or name.isupper() or name in _LISTS["weekdays"])
        ]
        strangers = tuple(
            name
            for name in names
            if not self._words.issuperset(words_of(name.casefold().removesuffix("'s")))
            and not stands_in(name, self._seen)
        )
        if strangers and (self._is_german or language.guess(body) == "de"):
            return 0, ()
        return len(names) - len(strangers), strangers


def _untitled(text: str) -> str:
    """Return ``text`` without titles and the numbers of its steps, which are no facts."""
    if "#" in text or "**" in text:
        text = _TITLE.sub("", text)
    return _unstepped(text)


def _unstepped(text: str) -> str:
    """Return ``text`` with a blank for each number of a step."""
    begins: list[int] = []
    for place in figures.places(text):
        if text[place - 1 : place] == " ":
            before = text[max(0, place - len("schritts ")) : place].lower()
            if before.endswith(_STEP_WORDS):
                begins += range(place - len(before), place)
    return figures.blanked(text, figures.matches(_STEP, text, begins), width=1)


def _weightiest(anchors: Iterable[_Anchor], limit: int) -> list[_Anchor]:
    """Return the weightiest distinct anchors; weights grow with the square root of the count."""
    first: dict[str, _Anchor] = {}
    said: Counter[str] = Counter()
    for anchor in anchors:
        first.setdefault(anchor.key, anchor)
        said[anchor.key] += anchor.times

    def weight(anchor: _Anchor) -> float:
        return _WEIGHT[anchor.kind] * math.sqrt(said[anchor.key])

    return sorted(first.values(), key=weight, reverse=True)[: max(0, limit)]


def _anchors(text: str) -> Iterator[_Anchor]:
    """Yield the anchors of ``text``, one family after the other, each in order."""
    whole = text = _LIST_NUMBER.sub("", prose(text))
    begins = figures.places(text)
    for form in figures.DATES:
        found = list(figures.dates(form, text, begins))
        for match in found:
            if keys := figures.date_keys(match):
                yield _Anchor(match.group().strip(), "date", " ".join(keys))
        text = figures.blanked(text, found)
    if "://" in text:
        found = list(_URL.finditer(text))
        # A mark at the end says that the address was cut: it is none.
        for match in [each for each in found if not each.group().rstrip("]'\"").endswith("…")]:
            url = match.group().rstrip(".,;:!?")[:ANCHOR_CAP]
            yield _Anchor(url, "literal", url.casefold())
        text = figures.blanked(text, found)
    if not text.isascii():
        text = _UNSPACED.sub(" ", text)
    for token, times in _tokens(text).items():
        if (anchor := _read_token(token)) is not None:
            yield _Anchor(anchor.text, anchor.kind, anchor.key, times)
    for match in _QUOTED.finditer(whole):
        quote = " ".join(next(part for part in match.groups() if part is not None).split())
        quote = quote.rstrip(",;:")
        if quote:
            yield _Anchor(quote, "quote", quote.casefold())
    for match in figures.matches(_CONSTRAINT, whole, _denial_places(whole)):
        denied = _content(match.group(1))
        if denied and not (len(denied) < 3 and denied[0] in _NO_CONSTRAINT):
            yield _Anchor(match.group()[:ANCHOR_CAP], "constraint", " ".join(denied))


def _tokens(text: str) -> dict[str, int]:
    """Return how often each token of ``text`` stands there, without tokens that are plain words.

    Most words have white space around them and stand there often, so each is looked at once.
    """
    found: dict[str, int] = {}
    # Only the groups of a number are joined by spaces.
    pieces = _PIECE.findall(text) if _SPACED_GROUP.search(text) else text.split()
    for piece, times in Counter(pieces).items():
        if piece.isalpha() and piece.islower():
            continue
        if not _is_plain(piece.lstrip(_OPENING).rstrip(_CLOSING)):
            for token in _TOKEN.findall(piece):
                if not _is_plain(token):
                    found[token] = found.get(token, 0) + times
    return found


def _denial_places(text: str) -> list[int]:
    """Return the places at which a constraint or a contraction may begin in ``text``."""
    text = figures.lowered(text)
    ends = sorted(match.start() for each in _DENIALS for match in each.finditer(text))
    return [place for end in ends for place in range(max(0, end - _DENIAL_HEAD), end + 1)]


def _is_plain(token: str) -> bool:
    """Return, cheaply, whether ``token`` is a plain word in lower case, title case or capitals."""
    return token.isalpha() and (token.islower() or token.istitle() or token.isupper())


def _read_token(token: str) -> _Anchor | None:
    """Return the anchor that one token is, or None for an ordinary word."""
    token = token[:ANCHOR_CAP]
    bare = token.strip("$€£¥#%")
    if bare.isdecimal() and len(bare) == 1 and bare == token:
        return None  # most often the number of a thing in a list
    if _FIGURE.fullmatch(bare):
        return _Anchor(token, "number", figures.number_key(bare))
    if "/" in token:
        stretches = token.count("/") > 1 or token[0] in "/.~" or "." in token.rsplit("/", 1)[-1]
        marked = stretches or any(char.isdigit() for char in token)
    else:
        core = token.replace("'", "").replace("’", "")  # noqa: RUF001
        marked = (
            any(map(str.isdigit, core))
            or any(map(core.__contains__, ("_", "@", "::", "()", "#")))
            or ("." in core and len(core) > 4)
            or (core[1:] != core[1:].lower() and not core.isupper() and "-" not in core)
        )
    return _Anchor(token, "literal", token.casefold().rstrip("()")) if marked else None


def _keys(found: Iterable[_Anchor], stated: Iterable[str]) -> frozenset[str]:
    """Return the keys of an output's anchors, those that it ``stated``, and those of its days."""
    keys = set(stated)
    for anchor in found:
        keys.update((anchor.key, *(anchor.key.split() if anchor.kind == "date" else ())))
    return frozenset(keys | {key[5:] for key in keys if _FULL_DATE.fullmatch(key)})


def _content(clause: str) -> list[str]:
    """Return the stems of the words of a clause that carry its meaning."""
    return [stem(word) for word in _WORD.findall(clause.lower()) if word not in _GLUE]


def _denied(text: str) -> frozenset[str]:
    """Return the stems of all words that ``text`` denies."""
    begins = _denial_places(text)
    return frozenset(
        word
        for pattern in (_CONSTRAINT, _CONTRACTION)
        for match in figures.matches(pattern, text, begins)
        for word in _content(match.group(1))
    )


def _is_kept(anchor: _Anchor, *, keys: frozenset[str], denied: frozenset[str], folded: str) -> bool:
    """Return whether the output described by the other arguments holds ``anchor``."""
    if anchor.key in keys:
        return True
    if anchor.kind == "date":
        return all(_is_stated(key, keys) for key in anchor.key.split())
    if anchor.kind == "constraint":
        wanted = anchor.key.split()
        return 2 * sum(word in denied for word in wanted) >= len(wanted)
    return anchor.kind in ("literal", "quote") and anchor.key in folded


def _is_stated(key: str, keys: frozenset[str]) -> bool:
    """Return whether a day is among ``keys``, or the day and elsewhere its year."""
    years = {key[:4], key[:5]}
    return key in keys or (
        key[5:] in keys and any(each in years or each[:5] in years for each in keys)
    )


def _is_title(line: str) -> bool:
    """Return whether most words of a line have capitals, as in titles."""
    found: list[str] = [word for word in _WORD.findall(line) if word.isalpha()]
    return 2 * sum(word[0].isupper() for word in found) >= len(found)
