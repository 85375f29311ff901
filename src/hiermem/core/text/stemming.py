"""Decides which forms of a word count as the same term.

The stems are Snowball's (https://snowballstem.org), always in pure Python, so that they do not
depend on what else is installed. Latin letters are stemmed by Porter's algorithm, which Snowball
keeps frozen; Cyrillic, Greek, Arabic, Devanagari, Tamil and Armenian by the language that most
texts in the script are in. Search, summaries, anchors and the offline model all compare words by
``stem``; ``stem_as`` is for a caller that knows the language.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final
from zlib import crc32

from hiermem.core.text.folding import fold

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
