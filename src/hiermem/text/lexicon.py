"""Decides what a word is worth to a summary: its term, and whether it is an anchor or a filler.

Every function works on one sentence-like unit at a time and in one pass, so that its cost is linear
for any text. The lists are English; words of other languages count as plain words, and scripts
without spaces are read as pairs of characters. This module scores nothing: weights belong to
``salience``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hiermem.data import word_lists
from hiermem.text.stemming import stem

#: The kinds of terms, weakest first: an ordinary word; a word of deciding, promising or denying;
#: a name, number, date, path or identifier.
PLAIN: Final = 1
DECISION: Final = 2
ANCHOR: Final = 3


def words(text: str) -> frozenset[str]:
    """Read a list of words."""
    return frozenset(text.split())


def either(phrases: Iterable[str]) -> str:
    """Return a pattern for any of ``phrases``, for the longest that stands in a place.

    Phrases share their beginnings in it. A plain list of alternatives would be tried in full at
    every word of a text. An apostrophe stands for the curved one too.

    >>> either(["to", "do", "done", "door"])
    '(?:do(?:ne|or)?|to)'
    """
    rests: dict[str, list[str]] = {}
    for phrase in sorted(phrases):
        rests.setdefault(phrase[:1], []).append(phrase[1:])
    ends = rests.pop("", None)
    branches = [
        ("['\u2019]" if head == "'" else re.escape(head)) + either(rest)
        for head, rest in rests.items()
    ]
    if len(branches) == 1 and ends is None:
        return branches[0]
    return f"(?:{'|'.join(branches)})" + ("" if ends is None else "?") if branches else ""


_WORDS: Final = word_lists("lexicon_words")
_STOP: Final = _WORDS["stop"]
_TIME: Final = _WORDS["time"]
_DECISION: Final = _WORDS["decision"]
_FILLER: Final = _WORDS["filler"]
#: Words that may stand between a filler and its comma: "Thanks so much, ...".
_FILLER_TAIL: Final = frozenset({"so", "much", "a", "lot"})
_BACK_CHANNEL: Final = _FILLER | _WORDS["back channel"]

_WORD: Final = re.compile(
    r"https?://[^\s)>\]]+"  # a URL
    r"|(?:[\w.-]{1,80}/)+[\w.-]+"  # a path
    r"|[A-Za-z_]\w*(?:\.\w+)+"  # a dotted name
    r"|\w+(?:[-'’]\w+)*"  # noqa: RUF001 - the typographic apostrophe is meant
)
#: The last alternative alone: it finds the same words in a text without slashes and inner dots.
_PLAIN_WORD: Final = re.compile(r"\w+(?:[-'’]\w+)*")  # noqa: RUF001
_LETTERS: Final = re.compile(r"\w+")
#: The bytes of ASCII text, with blanks for those that are no part of a word.
_BLANKED: Final = bytes(
    code if chr(code).isalnum() or chr(code) == "_" else ord(" ") for code in range(128)
).ljust(256)
_DIGIT: Final = re.compile(r"\d")
_UNSPACED: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0e7f"
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]+")
_LEADING_FILLER: Final = re.compile(r"([A-Za-z]+)((?: [A-Za-z]+){0,3}?)\s*[,!.…—-]+\s+")
#: Somebody is addressed by name at the end: "No problem, John!"
_ADDRESS: Final = re.compile(r", [A-Z][a-z]+[.!…]*$")
#: A pronoun as subject, or a pronoun as object with no clause between it and the start; lower case.
_LEANING: Final = re.compile(
    rf"(?:{either(_WORDS['joining'])} )?(?:{either(_WORDS['pronouns'])}(?:['’]\w+)?\b"  # noqa: RUF001
    rf"|(?:that|this)(?:['’]s|['’]ll| {either(_WORDS['after a pronoun'])})\b"  # noqa: RUF001
    rf"|(?:(?!{either(_WORDS['between clauses'])} )[\w'’]+ ){{1,4}}"  # noqa: RUF001
    rf"{either(_WORDS['objects'])}(?=[ .!?…]|$))"
)
_THANKS: Final = re.compile(
    r"(?:many thanks|thanks|thank you|i? ?appreciate)(?: so much| very much| a lot)?"
    r"(?: for)? (?:all )?(?:the|your|that|this|these|those) (?:[\w-]+ ){0,2}"
    rf"{either(_WORDS['thanked'])}[.!\s]*\Z",
    re.IGNORECASE,
)
#: Two letters of a word, which are none of a formula's commands.
_ANY_WORD: Final = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2}|[^\W\d_A-Za-z]")
_CLOSING: Final = re.compile(rf"{either(_WORDS['closing'])}\b[^\d`]*$", re.IGNORECASE)
#: The longest word whose reading is kept, since longer strings are no words, and the most readings.
_LONGEST_KEPT: Final = 24
_MOST_KEPT: Final = 32_768


def words_of(text: str) -> list[str]:
    """Return the runs of letters, figures and underscores in ``text``.

    >>> words_of("It's 5 o'clock.")
    ['It', 's', '5', 'o', 'clock']
    """
    if text.isascii():
        # Bytes are translated several times as fast as text.
        return text.encode("ascii").translate(_BLANKED).decode("ascii").split()
    return _LETTERS.findall(text)


def stands_in(word: str, text: str) -> bool:
    """Return whether ``word`` stands in ``text`` as a word of its own."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(word, at + 1)
    return False


def _is_literal(word: str) -> bool:
    """Return whether ``word`` is a number, path, URL or identifier rather than a word."""
    if not word.isalpha() and (
        _DIGIT.search(word) is not None
        or "/" in word
        or "_" in word
        or ("." in word and len(word) > 3)
    ):
        return True
    return word[1:] != word[1:].lower() and not word.isupper()


def _read(word: str) -> tuple[str, int, int] | None:
    """Return the term of ``word``, its kind as the first word of a piece, and its kind inside one.

    A capital at the start of a sentence proves nothing, so only a capital inside it marks a name.
    Returns None for a word without meaning of its own.
    """
    lower = word.lower().replace("’", "'")  # noqa: RUF001
    if _is_literal(word):
        return lower, ANCHOR, ANCHOR
    if lower in _TIME:
        return stem(lower), ANCHOR, ANCHOR
    if lower in _DECISION:
        return stem(lower), DECISION, DECISION
    if lower in _STOP or len(lower) < 2:
        return None
    return stem(lower.removesuffix("'s")), PLAIN, ANCHOR if word[0].isupper() else PLAIN


class _Readings(dict[str, tuple[str, int, int] | None]):
    """The readings of words of letters alone, which a language repeats in every text.

    No number, path or identifier of a conversation stays in memory in it.
    """

    def __missing__(self, word: str) -> tuple[str, int, int] | None:
        found = _read(word)
        if word.isalpha() and len(word) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[word] = found
        return found


_readings: Final = _Readings()


def terms_of(text: str) -> dict[str, int]:
    """Return the terms of one piece of text, each with its strongest kind in the piece.

    >>> terms_of("We never met Ana in Porto")
    {'never': 2, 'met': 1, 'ana': 3, 'porto': 3}
    """
    found: dict[str, int] = {}
    if not text.isascii() and _UNSPACED_RUN.search(text):
        for run in _UNSPACED_RUN.findall(text):
            for at in range(max(1, len(run) - 1)):
                found[run[at : at + 2]] = PLAIN
        text = _UNSPACED_RUN.sub(" ", text)
    readings = list(map(_readings.__getitem__, _words(text)))
    if readings and (first := readings[0]) is not None:
        term, kind, _ = first
        readings[0] = term, kind, kind
    for term, _, kind in filter(None, readings):
        if kind > found.get(term, 0):
            found[term] = kind
    return found


def _words(text: str) -> list[str]:
    """Return the words, paths and URLs of a text."""
    if "/" in text or "." in text[:-1]:
        return _WORD.findall(text)
    if "-" in text or "'" in text or not text.isascii():
        return _PLAIN_WORD.findall(text)
    return words_of(text)


def is_back_channel(text: str, names: frozenset[str] = frozenset()) -> bool:
    """Return whether ``text`` only keeps a conversation going ("Wow, thanks!"), without content.

    The ``names``, in lower case, are those of the speakers, who are only addressed.

    >>> [is_back_channel(text) for text in ("Sounds good!", "No worries, John!", "No new bugs.")]
    [True, True, False]
    """
    if len(text) >= 90 or "?" in text:
        return False
    if _THANKS.match(text):
        return True
    words = words_of(text.lower())
    if len(words) > 1 and _ADDRESS.search(text) and words[-1] not in _TIME:
        del words[-1]
    if names:
        words = [word for word in words if word not in names]
    return 0 < len(words) <= 10 and _BACK_CHANNEL.issuperset(words)


def is_heading(text: str) -> bool:
    """Return whether ``text`` only announces the text under it.

    >>> is_heading("Tuning Parameters:"), is_heading("Ratio: 3")
    (True, False)
    """
    return text.endswith((":", "："))  # noqa: RUF001


def is_closing(text: str) -> bool:
    """Return whether ``text`` only offers more help, as answers do at their end.

    >>> is_closing("Let me know if you need more!"), is_closing("Let me know by 18:00.")
    (True, False)
    """
    return _CLOSING.match(text) is not None


def is_item(text: str) -> bool:
    """Return whether ``text`` is an item of a list.

    >>> is_item("- Response format: JSON"), is_item("-3 degrees")
    (True, False)
    """
    return text.startswith("- ")


def leans(text: str) -> bool:
    """Return whether ``text`` refers to a thing that only the text before it names.

    This is so where ``text`` begins with a pronoun, or has a pronoun as object before any other
    clause could have named the thing.

    >>> leans("A friend made it for me."), leans("I bought a lamp and put it here.")
    (True, False)
    """
    return _LEANING.match(text.lower()) is not None


def has_word(text: str) -> bool:
    """Return whether ``text`` has a word: a formula or a mark has none.

    >>> has_word("It costs 3."), has_word("a + b = 3"), has_word("1,20")
    (True, False, False)
    """
    return _ANY_WORD.search(text) is not None


def strip_fillers(text: str) -> str:
    """Drop leading fillers, but only those that punctuation sets off.

    "Thanks Mel, we won." becomes "We won.", and "Thanks, Mel." becomes "". "No new bugs" keeps its
    "No", because every word that is part of a clause is kept.
    """
    whole = text
    while match := _LEADING_FILLER.match(text):
        opening, tail = match.groups()
        if opening.lower() not in _FILLER or len(text) - match.end() < 3:
            break
        if not all(
            word[0].isupper() or word.lower() in _FILLER or word.lower() in _FILLER_TAIL
            for word in tail.split()
        ):
            break
        text = text[match.end() :]
        text = text[0].upper() + text[1:]
    return "" if text is not whole and _is_name_alone(text) else text


def _is_name_alone(text: str) -> bool:
    """Return whether only a name is left, of somebody who was thanked or greeted."""
    word = text.rstrip(".!…")
    return word.isalpha() and word.istitle() and word.lower() not in _TIME
