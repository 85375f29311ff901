"""Decides by what else a word is found than by its own term: its forms, and its parts.

A *form* is the word with the endings of a language cut, for languages of Latin letters whose
endings Porter's algorithm does not know. It counts as the word itself. A *part* counts for less:

- of a German or Dutch compound, the words at its edges, wherever the remainder can begin a word;
- of a run of Han, kana or Hangul, each character;
- of an Arabic word, its consonants, since plurals change the vowels inside ("مفتاح", "مفاتيح");
- of a Cyrillic word, and of any word of a text in an unknown language, the first letters.

No session has a language. Which languages a text may be in is told by its function words, text by
text, so that conversations may mix them. English text has no forms and no parts: it is indexed and
found by its terms alone. A few bare nouns may be in any language, and have the forms of all.
What is asked and what is indexed meet in these terms; all but the characters hold a blank or a plus
sign, as no word does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

from hiermem.core.search.terms import FUNCTION_WORDS, STOP_WORDS, spellings
from hiermem.core.text.stemming import light, stem

#: Languages of Latin letters with endings in ``hiermem.data``, and those that write compounds.
_LATIN: Final = ("de", "es", "fr", "it", "nl", "pt")
_COMPOUNDING: Final = frozenset({"de", "nl"})
#: The language of a text without function words of any.
UNKNOWN: Final = "?"
#: A text is English where at least one word of so many is an English stop word.
_ENGLISH: Final = 8
#: A longer text without function words, in the letters of English, is code or a table.
_NOTE: Final = 16
#: The letters of a beginning, and the length from which a word has one.
_HEAD: Final = 5
_LONG: Final = 7
_WORD: Final = re.compile("[a-z]{3,40}")
_CHARACTER: Final = re.compile(
    "[\u3005-\u3007\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]"
)
_KANA: Final = re.compile("[\u3041-\u30ff]")
_HIRAGANA: Final = re.compile("[\u3041-\u309f\u30fc]+")
_CYRILLIC: Final = re.compile("[\u0400-\u052f]{6,40}")
_ARABIC: Final = re.compile("[\u0620-\u064a]{4,24}")
_WEAK: Final = str.maketrans("", "", "اويىءؤئ")
#: How a German or Dutch word may begin.
_ONSET: Final = re.compile(
    "(?:[bcdfghjklmnpqrstvwz]|[bcfgkp][lr]|[dtvw]r|ch|gn|kn|pf[lr]?|ph|qu|sch[lmnrw]?|s[kl]|sp[lr]?"
    "|str?|th|tsch|zw)?[aeiouy]"
)
_VOWEL: Final = re.compile("[aeiouy]")
#: The fewest letters of a compound's stem, and of a part of it.
_COMPOUND: Final = 6
_PART: Final = 3


def languages(text: str, spoken: Sequence[str]) -> tuple[str, ...]:
    """Return the codes of the languages that a text may be in; none for English and for code.

    ``spoken`` are its words. A text without function words may be in any; if it is long, it has
    only the code ``UNKNOWN``.

    >>> from hiermem.core.search.terms import words
    >>> [languages(text, words(text)) for text in ("Wo ist die Katze?", "Where is the cat?")]
    [('de',), ()]
    """
    telling = _telling()
    if telling.keys().isdisjoint(spoken):
        short = len(spoken) <= _NOTE
        if text.isascii() and not short:
            return ()
        if _ENGLISH * sum(map(STOP_WORDS.__contains__, spoken)) >= len(spoken):
            return ()
        return (*_LATIN, UNKNOWN) if short else (UNKNOWN,)
    telling_words = filter(telling.__contains__, spoken)
    said = Counter(code for word in telling_words for code in telling[word])
    most = max(*said.values(), sum(map(STOP_WORDS.__contains__, spoken)))
    return tuple(sorted(code for code, count in said.items() if 2 * count >= most))


def function_words(codes: Collection[str]) -> frozenset[str]:
    """Return the words of these languages that a question is not searched for."""
    if UNKNOWN in codes:
        return frozenset()
    return frozenset().union(*(FUNCTION_WORDS[code] for code in codes))


def indexed(text: str, spoken: Sequence[str]) -> list[str]:
    """Return the forms and parts of the words of a text, beside its terms.

    ``spoken`` are its words. A text in English has none.
    """
    codes = languages(text, spoken)
    if not codes and text.isascii():
        return []
    found = [stem(word) for word in spellings(text).values()]
    for word in spoken:
        found += held(word, codes)
    return found


def forms(word: str, codes: Collection[str]) -> Iterator[str]:
    """Yield the forms of a folded word in these languages."""
    if _WORD.fullmatch(word):
        for code in codes:
            if code in _LATIN:
                yield f"{code} {light(_plain(word, code), code)}"


def looked_for(word: str, codes: Collection[str]) -> Iterator[str]:
    """Yield the parts by which a word of a question is found, and those that it is found as."""
    yield from _common(word, codes)
    if _WORD.fullmatch(word):
        for code in _COMPOUNDING.intersection(codes):
            own = light(_plain(word, code), code)
            yield f"{code}+{own}"
            yield from (f"{code} {part}" for part in _edges(own, code))
    elif len(word) == 2:
        yield from (each for each in word if _CHARACTER.match(each) and not _KANA.match(each))


def is_weak(word: str) -> bool:
    """Return whether a pair of characters is probably an ending: both are hiragana."""
    return _HIRAGANA.fullmatch(word) is not None


@lru_cache(maxsize=16_384)
def held(word: str, codes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms and the parts of a word of a message."""
    found = [*forms(word, codes), *_common(word, codes)]
    if _WORD.fullmatch(word):
        for code in _COMPOUNDING.intersection(codes):
            found += (f"{code}+{part}" for part in _edges(light(_plain(word, code), code), code))
    elif len(word) == 2:
        found += filter(_CHARACTER.match, word)
    return tuple(found)


def _common(word: str, codes: Collection[str]) -> Iterator[str]:
    if _WORD.fullmatch(word):
        if codes and len(word) >= _LONG:
            yield f"+{word[:_HEAD]}"
    elif _CYRILLIC.fullmatch(word):
        yield f"+{word[:_HEAD]}"
    elif _ARABIC.fullmatch(word):
        bare = stem(word).translate(_WEAK)
        if len(bare) >= _PART:
            yield f"+{bare}"


def _plain(word: str, code: str) -> str:
    """Write an umlaut that was typed as two letters as it is folded."""
    return _TWO.sub(r"\1", word) if code == "de" else word


_TWO: Final = re.compile("(?<!q)([aou])e")


@lru_cache(maxsize=16_384)
def _edges(word: str, code: str) -> tuple[str, ...]:
    """Return the stems of the words that may begin or end a compound.

    >>> _edges("haustur", "de")
    ('hau', 'stur', 'tur')
    """
    found: dict[str, None] = {}
    if len(word) >= _COMPOUND:
        for at in range(_PART, len(word) - _PART + 1):
            if _ONSET.match(word, at) and _VOWEL.search(word, 0, at):
                found[light(word[:at], code)] = None
                found[word[at:]] = None
    return tuple(found)


@cache
def _telling() -> Mapping[str, tuple[str, ...]]:
    """Return the words that tell a language, with the languages that they may tell."""
    found: dict[str, tuple[str, ...]] = {}
    for title, members in FUNCTION_WORDS.items():
        code = title.partition(" ")[0]
        for word in members - FUNCTION_WORDS["english too"] - STOP_WORDS:
            if not (len(word) == 1 and word.isascii()):
                found[word] = (*found.get(word, ()), code)
    return found
