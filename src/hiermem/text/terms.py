# ruff: noqa: RUF001, RUF002  # the letters of other languages are meant
"""Decides which terms a text is found by, and which spellings and forms of a word are one term.

The same functions read what is indexed and what is asked, so a message is found by its own words in
any script. Text is folded, words of letters and digits are stemmed, and English stop words are
dropped, except those of the first person. A word with an umlaut is also found as it is written
without one: "Müller" as "Muller" and "Mueller". Scripts without spaces between words (Chinese,
Japanese, Thai, Lao, Khmer, Burmese, Tibetan), and Korean, whose words take particles, are read as
pairs of neighbouring characters, so that a word inside a sentence is found without a dictionary. An
emoji is a word. A query is data like any other text: it has no operators. ``search.query`` adds
what else a word is found by, and ``search.rank`` decides what a term is worth.

Folding writes case, width, accents, vowel points and the digits of other scripts in one way, so
that "Société" is found as "Societe" and "١٨" as "18". What tells two words of a script apart is
kept: й and и, が and か. Marks without a width (direction, joining, soft hyphens) are dropped.

The stems are Snowball's (https://snowballstem.org), always in pure Python, so that they do not
depend on what else is installed. Latin letters are stemmed by Porter's algorithm, which Snowball
keeps frozen; Cyrillic, Greek, Arabic, Devanagari, Tamil and Armenian by the language that most
texts in the script are in. Search, summaries, anchors and the offline model all compare words by
``stem``; ``stem_as`` is for a caller that knows the language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final
from zlib import crc32

from hiermem.data import word_lists

#: Latin letters that have no accent to drop, the forms of Arabic letters that many write alike
#: (Larkey, Ballesteros and Connell 2007), and the long vowels of Devanagari that many write short.
_LETTERS: Final = {
    "ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i",
    "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه", "ٱ": "ا",
    "ी": "ि", "ू": "ु", "ँ": "ं",
}  # fmt: skip
#: What is dropped: soft hyphen, zero-width and direction marks, variation selectors, the middle dot
#: of katakana; Hebrew and Arabic points, tatweel; the nukta of Devanagari; stress marks.
_DROPPED: Final = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\u30fb"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u093c"
    "\u0300\u0301]"
)
#: Accents of Latin and Greek letters, and the dots of the Russian ё.
_ACCENTS: Final = re.compile(
    "(?<=[a-z\u0370-\u03ff])[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0]+"
    "|(?<=\u0435)\u0308"
)
#: A nasal before another consonant of Devanagari is written as a dot, too.
_NASAL: Final = re.compile("[ङञणनम]\u094d(?=[\u0915-\u0939])")
_ZEROS: Final = (
    "\u0660\u06f0\u07c0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0e50\u0ed0\u0f20"
    "\u1040\u17e0\u1810"
)
_TABLE: Final = str.maketrans(
    _LETTERS | {chr(ord(zero) + digit): str(digit) for zero in _ZEROS for digit in range(10)}
)
_BEYOND: Final = re.compile("[^\x00-\x7f\u2010-\u2027\u2030-\u205e]")


def fold(text: str) -> str:
    """Return a text in the one spelling under which it is compared. Folding twice changes nothing.

    >>> fold("Ｚürich, L'ÉCOLE, Ёлка"), fold("مُحَمَّد ٢٠٢٤")
    ("zurich, l'ecole, елка", 'محمد 2024')
    """
    if text.isascii():
        return text.lower()
    text = cased(text)
    if not _BEYOND.search(text):
        return text
    text = unicodedata.normalize("NFD", text).translate(_TABLE)
    text = _ACCENTS.sub("", _DROPPED.sub("", text))
    text = _NASAL.sub("\u0902", text)
    return unicodedata.normalize("NFC", text)


def cased(text: str) -> str:
    """Return a text without differences of case and width; accents stay.

    >>> cased("Ｃafé")
    'café'
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


_ENGLISH: Final = re.compile("[a-z]{3,40}")
#: Scripts with endings of their own: the first and the last letter, and the language.
_BY_SCRIPT: Final = (
    ("\u0370", "\u03ff", "greek"), ("\u0400", "\u052f", "russian"),
    ("\u0531", "\u0587", "armenian"), ("\u0620", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"), ("\u0b80", "\u0bff", "tamil"),
)  # fmt: skip
_HA: Final = re.compile("\u0647$")
#: A longer run of letters is no word.
_LONGEST: Final = 40


def is_scripted(language: str) -> bool:
    """Return whether a language is told by its script, so that ``stem`` stems it."""
    return any(language == name for *_, name in _BY_SCRIPT)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Strip a folded ``word`` to its stem, as English if its letters are Latin.

    A word of a script without a stemmer, or with figures, is returned as it is.

    >>> stem("relational"), stem("adoption"), stem("hopping"), stem("2023"), stem("заводах")
    ('relat', 'adopt', 'hop', '2023', 'завод')
    """
    if _ENGLISH.fullmatch(word):
        return _stemmed(word, "porter")
    for first, last, language in _BY_SCRIPT:
        if first <= word[:1] <= last:
            # Folding writes ta marbuta as ha, and only the former is an ending of every noun.
            return stem_as(_HA.sub("\u0629", word), language)
    return word


@lru_cache(maxsize=65_536)
def stem_as(word: str, language: str) -> str:
    """Stem a lower-case ``word`` of a language, given by Snowball's name for it, and fold the stem.

    Accents count before the endings go, and no longer afterwards.

    >>> stem_as("häusern", "german"), stem_as("haus", "german"), stem_as("kitaplar", "turkish")
    ('haus', 'haus', 'kitap')
    """
    return fold(_stemmed(word, language)) if len(word) <= _LONGEST else word


def root(word: str) -> str:
    """Return the beginning of a word by which its forms are found in a text.

    It is the stem where the word begins with it, and the word itself elsewhere.

    >>> root("points"), root("clay"), root("cities")
    ('point', 'clay', 'citi')
    """
    cut = stem(word)
    return cut if word.startswith(cut) else word


def _stemmed(word: str, language: str) -> str:
    found: str = _stemmer(language)().stemWord(word)
    return found or word


@cache
def _stemmer(language: str) -> Any:
    """Return the class of a language's stemmer. An instance holds the word that it works on."""
    module = import_module(f"snowballstemmer.{language}_stemmer")
    return getattr(module, "".join(part.title() for part in language.split("_")) + "Stemmer")


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
_LONGEST_TERMS: Final = 64
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
            found.append(run[:_LONGEST_TERMS])
        else:
            found.extend(run[at : at + 2] for at in range(len(run) - 1))
    return found


def _ascii_words(text: str) -> list[str]:
    # Bytes are translated several times as fast as a pattern finds words.
    found = text.encode("ascii").translate(_LOWERED).decode("ascii").split()
    if len(text) > _LONGEST_TERMS and max(map(len, found), default=0) > _LONGEST_TERMS:
        return [word[:_LONGEST_TERMS] for word in found]
    return found


def written(text: str) -> list[str]:
    """Return the words of a text with their accents, in lower case, for display.

    >>> written("Ein Café in ZÜRICH")
    ['ein', 'café', 'in', 'zürich']
    """
    if text.isascii():
        return _ascii_words(text)
    return [word[:_LONGEST_TERMS] for word in _TOKEN.findall(cased(text))]


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
