# ruff: noqa: RUF001, RUF002  # the letters of other languages are meant
"""Decides which spellings are the same text, and which forms of a word the same term.

Case, width, accents, vowel points and the digits of other scripts are written in one way, so that
"Société" is found as "Societe" and "١٨" as "18". What tells two words of a script apart is kept:
й and и, が and か. Marks without a width (direction, joining, soft hyphens) are dropped.

The stems are Snowball's (https://snowballstem.org), always in pure Python, so that they do not
depend on what else is installed. Latin letters are stemmed by Porter's algorithm, which Snowball
keeps frozen; Cyrillic, Greek, Arabic, Devanagari, Tamil and Armenian by the language that most
texts in the script are in. Search, summaries, anchors and the offline model all compare words by
``stem``; ``stem_as`` is for a caller that knows the language.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final
from zlib import crc32

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
#: Two bytes for the version of the stemmers: what holds other stems is made again.
STEMS: Final = crc32(version("snowballstemmer").encode()).to_bytes(4, "big")[:2]


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
