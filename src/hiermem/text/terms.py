"""Decides which terms a text is found by.

The same functions read what is indexed and what is asked, so a message is found by its own words in
any script. Text is folded (``text.folding``), words of letters and digits are stemmed, and English
stop words are dropped, except those of the first person. A word with an umlaut is also found as it
is written without one: "Müller" as "Muller" and "Mueller". Scripts without spaces between words
(Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan), and Korean, whose words take particles, are
read as pairs of neighbouring characters, so that a word inside a sentence is found without a
dictionary. An emoji is a word. A query is data like any other text: it has no operators. ``forms``
adds what else a word is found by, and ``ranking`` decides what a term is worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final
from zlib import crc32

from hiermem.data import word_lists
from hiermem.text.stemming import cased, fold, stem

#: Words that are not indexed; ``hiermem.data`` holds the lists and their reasons.
STOP_WORDS: Final = word_lists("stop_words")["index"]

#: The function words of other languages by Snowball's names, and the file's other lists; folded.
FUNCTION_WORDS: Final[Mapping[str, frozenset[str]]] = {
    title: frozenset(map(fold, members)) for title, members in word_lists("function_words").items()
}

#: Words by which speakers refer to themselves, in any language.
FIRST_PERSON: Final = word_lists("stop_words")["first person"].union(
    *(members for title, members in FUNCTION_WORDS.items() if title.endswith("first person"))
)

# Han with its extensions and signs, kana, Hangul, Thai, Lao, Tibetan, Burmese, Khmer.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uaa60-\uaa7f\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
# What is no word character to ``re`` and yet stands inside words: marks without a width, and the
# vowel signs and accents of scripts that use spaces.
_MARKS: Final = (
    "\u00ad\u0640\u200b-\u200f\u202a-\u202e\u2060-\u2064"
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
    "\u0981-\u0983\u09bc-\u09d7\u0a01-\u0a03\u0a3c-\u0a51\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57"
    "\u0b82\u0bbe-\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d57\u0d81-\u0ddf"
)
# Signs and pictures; flags are pairs. The colours of skin are left out.
_EMOJI: Final = (
    "[\U0001f1e6-\U0001f1ff]{2}|[\u231a\u231b\u23e9-\u23f3\u2600-\u2775\u2794-\u27bf\u2b50\u2b55"
    "\U0001f300-\U0001f3fa\U0001f400-\U0001faff]"
)
_TOKEN: Final = re.compile(f"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\\W_][{_MARKS}]*)+|{_EMOJI}")
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]+")
#: The bytes of ASCII text in lower case, with blanks for those that are no part of a word.
_LOWERED: Final = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() else ord(" ") for code in range(128)
).ljust(256)
#: A longer run of letters is no word; it is found by its beginning.
_LONGEST: Final = 64
#: Letters that are also written as two, if a keyboard or a document has no accents.
_AS_TWO: Final = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_UMLAUT: Final = re.compile("[äöüøå]")


def words(text: str) -> list[str]:
    """Return the words of a text, folded; pairs of characters in scripts without spaces.

    >>> words("Don't, the ＣＡＦÉ's 42!")
    ['don', 't', 'the', 'cafe', 's', '42']
    >>> words("東京タワー")
    ['東京', '京タ', 'タワ', 'ワー']
    """
    if text.isascii():
        return _ascii_words(text)
    found: list[str] = []
    for run in _TOKEN.findall(fold(text)):
        if len(run) == 1 or not _UNSPACED_RUN.match(run):
            found.append(run[:_LONGEST])
        else:
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
    return found


def _ascii_words(text: str) -> list[str]:
    # Bytes are translated several times as fast as a pattern finds words.
    found = text.encode("ascii").translate(_LOWERED).decode("ascii").split()
    if len(text) > _LONGEST and max(map(len, found), default=0) > _LONGEST:
        return [word[:_LONGEST] for word in found]
    return found


def written(text: str) -> list[str]:
    """Return the words of a text with their accents, in lower case, for display.

    >>> written("Ein Café in ZÜRICH")
    ['ein', 'café', 'in', 'zürich']
    """
    if text.isascii():
        return _ascii_words(text)
    return [word[:_LONGEST] for word in _TOKEN.findall(cased(text))]


def as_written(text: str) -> dict[str, str]:
    """Return the words that folding changed, each with its accents, by the folded ones.

    >>> as_written("Ein Café in ZÜRICH")
    {'cafe': 'café', 'zurich': 'zürich'}
    """
    if text.isascii():
        return {}
    pairs = ((fold(word), word) for word in written(text))
    return {folded: word for folded, word in pairs if folded != word}


def spellings(text: str) -> dict[str, str]:
    """Return the folded words of a text that had an umlaut, each with the spelling without one.

    >>> spellings("Frau Müller aus Zürich")
    {'muller': 'mueller', 'zurich': 'zuerich'}
    """
    if text.isascii() or not _UMLAUT.search(text := cased(text)):
        return {}
    pairs = zip(words(text), words(text.translate(_AS_TWO)), strict=True)
    return {one: other for one, other in pairs if one != other}


def terms(text: str) -> list[str]:
    """Return the terms of a text: its words without stop words, stemmed, then other spellings.

    >>> terms("We have been planning the trips"), terms("Müller")
    (['we', 'plan', 'trip'], ['muller', 'mueller'])
    """
    found = [stem(word) for word in words(text) if word not in STOP_WORDS]
    return found + [stem(word) for word in spellings(text).values()]


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the words of a text are in it; neighbouring pairs overlap by one character.

    >>> list(spans("two cats")), list(spans("天气好"))
    ([(0, 3), (4, 8)], [(0, 2), (1, 3)])
    """
    for found in _TOKEN.finditer(text):
        begin, end = found.span()
        if end - begin == 1 or not _UNSPACED_RUN.match(text, begin):
            yield begin, end
        else:
            yield from ((at, at + 2) for at in range(begin, end - 1))


@lru_cache(maxsize=65_536)
def number(term: str) -> int:
    """Return a term's number in the index, the CRC-32 of its UTF-8 form.

    There is no table of words, so an erasure need not remove words from one. Two terms of one
    session share a number once in some thousands of sessions; they then count as one.
    """
    return crc32(term.encode("utf-8", "surrogatepass"))
