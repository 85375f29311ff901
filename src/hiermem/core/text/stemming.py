"""Decides which forms of a word count as the same term.

It is a pure function of the word, the same in every process, so that a query today finds what was
indexed long ago. For Latin letters it is Porter's algorithm (M. F. Porter, "An algorithm for suffix
stripping", Program 14(3), 1980) in its published form, without later amendments. Cyrillic, Arabic
and Devanagari words lose their endings step by step (``hiermem.data``, "endings"). Search,
summaries, anchors and the offline model all compare words by it. ``light`` does the same by the
endings of a language that the caller knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

from hiermem.data import word_lists

_ENGLISH: Final = re.compile("[a-z]{3,40}")
#: Scripts with endings of their own: the first and the last letter, and the language of most texts.
_BY_SCRIPT: Final = (
    ("\u0400", "\u052f", "ru"), ("\u0620", "\u06ff", "ar"), ("\u0900", "\u097f", "hi"),
)  # fmt: skip
_LONGEST_ENDING: Final = 8


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Strip a folded ``word`` to its stem, as English if its letters are Latin.

    A word of another script, with figures, or without an ending is returned as it is.

    >>> stem("relational"), stem("adoption"), stem("hopping"), stem("2023"), stem("заводах")
    ('relat', 'adopt', 'hop', '2023', 'завод')
    """
    if not _ENGLISH.fullmatch(word):
        for first, last, language in _BY_SCRIPT:
            if first <= word[:1] <= last:
                return light(word, language)
        return word
    word = _plural(word)
    word = _past_and_participle(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_longest(word, _DOUBLE_SUFFIXES, least=1)
    word = _replace_longest(word, _SINGLE_SUFFIXES, least=1)
    word = _drop_suffix(word)
    return _tidy(word)


@lru_cache(maxsize=65_536)
def light(word: str, language: str) -> str:
    """Cut the endings of a folded ``word`` of a language, given by its code.

    >>> light("hausern", "de"), light("haus", "de"), light("vendieron", "es")
    ('hau', 'hau', 'vend')
    """
    for least, endings in _steps()[language]:
        word = _cut(word, least, endings)
    return word


def _cut(word: str, least: int, endings: Mapping[str, str]) -> str:
    """Cut the longest of the endings, or of the beginnings, that leaves ``least`` letters."""
    for size in range(min(_LONGEST_ENDING, len(word) - 1), 0, -1):
        if word[-size:] in endings:
            rest = word[:-size] + endings[word[-size:]]
        elif word[:size] + "-" in endings:
            rest = word[size:]
        else:
            continue
        # Two Cyrillic letters are a stem only with a vowel: "дн" is none.
        if len(rest) >= least and not _NO_VOWEL.fullmatch(rest):
            return rest
    return word


_NO_VOWEL: Final = re.compile("[бвгджзйклмнпрстфхцчшщъь]{2}")


def _replaced(endings: Iterable[str]) -> Mapping[str, str]:
    """Return what stands in the place of each ending of a list: "", or what follows its ">"."""
    pairs = (ending.partition(">") for ending in endings)
    return {ending: instead for ending, _, instead in pairs}


@cache
def _steps() -> Mapping[str, Sequence[tuple[int, Mapping[str, str]]]]:
    """Return the steps of each language: the fewest letters left, and what endings become."""
    found: dict[str, list[tuple[int, Mapping[str, str]]]] = {}
    for title, members in sorted(word_lists("endings").items()):
        language, _, least = title.split()
        found.setdefault(language, []).append((int(least), _replaced(members)))
    return found


def root(word: str) -> str:
    """Return the beginning of a word by which its forms are found in a text.

    It is the stem where the word begins with it, and the word itself elsewhere.

    >>> root("points"), root("clay"), root("cities")
    ('point', 'clay', 'citi')
    """
    cut = stem(word)
    return cut if word.startswith(cut) else word


# ---------------------------------------------------------------------------------------------
# The shape of a word


def _shape(word: str) -> str:
    """Write a word as consonants and vowels; y is a vowel behind a consonant.

    >>> _shape("trouble"), _shape("toy"), _shape("syzygy")
    ('ccvvccv', 'cvc', 'cvcvcv')
    """
    shape = ""
    for letter in word:
        if letter in "aeiou" or (letter == "y" and shape.endswith("c")):
            shape += "v"
        else:
            shape += "c"
    return shape


def _measure(word: str) -> int:
    """Count the vowel-consonant sequences, Porter's m.

    >>> _measure("tree"), _measure("trouble"), _measure("oaten")
    (0, 1, 2)
    """
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("c")


def _ends_short(word: str) -> bool:
    """Return whether a word ends consonant, vowel, consonant, the last not being w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


# ---------------------------------------------------------------------------------------------
# The steps


def _plural(word: str) -> str:
    """Step 1a."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _past_and_participle(word: str) -> str:
    """Step 1b."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return _repair(rest) if _has_vowel(rest) else word
    return word


def _repair(word: str) -> str:
    """Restore the e that a participle lost, or remove the consonant that it doubled."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word) and word[-1] not in "lsz":
        return word[:-1]
    if _measure(word) == 1 and _ends_short(word):
        return word + "e"
    return word


_SUFFIXES: Final = word_lists("suffixes")
_DOUBLE_SUFFIXES: Final = _replaced(_SUFFIXES["step 2"])
_SINGLE_SUFFIXES: Final = _replaced(_SUFFIXES["step 3"])
_DROPPED: Final = _replaced(_SUFFIXES["step 4"])


def _longest(word: str, suffixes: Mapping[str, str]) -> str | None:
    """Return the longest of the suffixes that the word ends in; none of them has over 7 letters."""
    for start in range(max(0, len(word) - 7), len(word)):
        if word[start:] in suffixes:
            return word[start:]
    return None


def _replace_longest(word: str, suffixes: Mapping[str, str], *, least: int) -> str:
    suffix = _longest(word, suffixes)
    if suffix is None:
        return word
    rest = word[: -len(suffix)]
    return rest + suffixes[suffix] if _measure(rest) >= least else word


def _drop_suffix(word: str) -> str:
    """Step 4, where -ion goes only behind s or t."""
    if _longest(word, _DROPPED) == "ion" and not word.endswith(("sion", "tion")):
        return word
    return _replace_longest(word, _DROPPED, least=2)


def _tidy(word: str) -> str:
    """Step 5: a final e goes, and one of two final l."""
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
