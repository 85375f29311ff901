"""Decides by which forms and parts a word is found, beside its own term.

A *form* is the stem of the word in a language of Latin letters other than English. It counts as the
word itself. A *part* counts for less:

- of a German or Dutch compound, the words at its edges, if the remainder can begin a word;
- of a run of Han, kana or Hangul, each character;
- of an Arabic word, its consonants, since plurals change the vowels inside ("مفتاح", "مفاتيح");
- of a Cyrillic word, and of any word of a text in an unknown language, the first letters.

Sessions have no language. The function words of each text tell which languages it may be in, so
conversations may mix them. English text has no forms and no parts: its terms alone are indexed and
looked for. A few bare nouns may be in any language that has their letters, or in any of the common
ones if they have no accents; they get the forms of all. The index and ``query`` meet in these
terms. All but the characters hold a blank or a plus sign, as no word does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

from hiermem.data import word_lists
from hiermem.text.terms import (
    FUNCTION_WORDS,
    STOP_WORDS,
    as_written,
    cased,
    fold,
    is_scripted,
    spellings,
    stem,
    stem_as,
)

#: Languages of Latin letters that a text may be in, by their names in ``hiermem.data``; those
#: assumed for a few words without function words; and those that write compounds.
LATIN: Final = tuple(
    title for title in FUNCTION_WORDS if " " not in title and not is_scripted(title)
)
_COMMON: Final = (
    "german", "spanish", "french", "italian", "dutch", "portuguese", "polish", "turkish",
)  # fmt: skip
_COMPOUNDING: Final = frozenset({"german", "dutch"})
#: The language of a text without function words of any.
UNKNOWN: Final = "?"
#: A text is English if at least one of this many words is an English stop word.
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
#: The fewest letters of a compound, and of a part of it.
_COMPOUND: Final = 6
_PART: Final = 3


def languages(
    text: str, spoken: Sequence[str], *, bare: Sequence[str] = _COMMON
) -> tuple[str, ...]:
    """Return the names of the languages that a text may be in; () for English and for code.

    ``spoken`` are its words. A text without function words may be in any of ``bare``; if it is
    long, it has only the name ``UNKNOWN``.

    >>> from hiermem.text.terms import words
    >>> [languages(text, words(text)) for text in ("Wo ist die Katze?", "Where is the cat?")]
    [('german',), ()]
    """
    telling = _telling()
    english = sum(map(STOP_WORDS.__contains__, spoken))
    short = len(spoken) <= _NOTE
    unknown = (*(_in_letters_of(text) or bare), UNKNOWN) if short else (UNKNOWN,)
    if telling.keys().isdisjoint(spoken):
        if (text.isascii() and not short) or _ENGLISH * english >= len(spoken):
            return ()
        return unknown
    telling_words = filter(telling.__contains__, spoken)
    counts = Counter(name for word in telling_words for name in telling[word])
    most = max(*counts.values(), english)
    likely = {name for name, count in counts.items() if 2 * count >= most}
    # One word alone may be a word of another language, too.
    return tuple(sorted(likely))


def function_words(names: Collection[str]) -> frozenset[str]:
    """Return the words of these languages that a question is not searched for."""
    if UNKNOWN in names:
        return frozenset()
    return frozenset().union(*(FUNCTION_WORDS[name] for name in names))


def indexed(text: str, spoken: Sequence[str]) -> list[str]:
    """Return the forms and parts of the words of a text, beside its terms; [] for English.

    ``spoken`` are its words.
    """
    names = languages(text, spoken)
    if not names and text.isascii():
        return []
    return [stem(word) for word in spellings(text).values()] + of_words(text, spoken, names)


def of_words(text: str, spoken: Sequence[str], names: tuple[str, ...]) -> list[str]:
    """Return the forms and parts of the words of a text in these languages."""
    written = as_written(text)
    return [form for word in spoken for form in _entries(written.get(word, word), names)]


def forms(word: str, names: Collection[str]) -> Iterator[str]:
    """Yield the forms of a word, as it is written, in these languages."""
    if _WORD.fullmatch(fold(word)):
        for name in names:
            if name in LATIN:
                yield f"{name} {stem_as(word, name)}"


def looked_for(word: str, names: Collection[str]) -> Iterator[str]:
    """Yield the parts of a question's word, and the compounds that it may be a part of."""
    plain = fold(word)
    yield from _parts_by_script(plain, names)
    if _WORD.fullmatch(plain):
        for name in _COMPOUNDING.intersection(names):
            yield f"{name}+{stem_as(word, name)}"
            yield from (f"{name} {part}" for part in _edges(plain, name))
    elif len(plain) == 2:
        yield from (
            character
            for character in plain
            if _CHARACTER.match(character) and not _KANA.match(character)
        )


def is_weak(word: str) -> bool:
    """Return whether a pair of characters is probably an ending: both are hiragana."""
    return _HIRAGANA.fullmatch(word) is not None


@lru_cache(maxsize=16_384)
def _entries(word: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms and the parts of a word of a message, as it is written."""
    plain = fold(word)
    entries = [*forms(word, names), *_parts_by_script(plain, names)]
    if _WORD.fullmatch(plain):
        for name in _COMPOUNDING.intersection(names):
            entries += (f"{name}+{part}" for part in _edges(plain, name))
    elif len(plain) == 2:
        entries += filter(_CHARACTER.match, plain)
    return tuple(entries)


def _parts_by_script(word: str, names: Collection[str]) -> Iterator[str]:
    """Yield the beginning of a word, or the consonants of an Arabic one."""
    if _WORD.fullmatch(word):
        if names and len(word) >= _LONG:
            yield f"+{word[:_HEAD]}"
    elif _CYRILLIC.fullmatch(word):
        yield f"+{word[:_HEAD]}"
    elif _ARABIC.fullmatch(word):
        bare = stem(word).translate(_WEAK)
        if len(bare) >= _PART:
            yield f"+{bare}"


@lru_cache(maxsize=16_384)
def _edges(word: str, name: str) -> frozenset[str]:
    """Return the stems of the words that may begin or end a compound.

    >>> sorted(_edges("haustur", "german"))
    ['haus', 'haust', 'tur', 'ur']
    """
    edges: dict[str, None] = {}
    if len(word) >= _COMPOUND:
        for cut in range(_PART, len(word) - _PART + 1):
            if _ONSET.match(word, cut) and _VOWEL.search(word, 0, cut):
                edges |= dict.fromkeys((word[:cut], word[cut:]))
    return frozenset(stem_as(part, name) for part in edges.keys() - FUNCTION_WORDS[name])


def _in_letters_of(text: str) -> tuple[str, ...]:
    """Return the languages that have all accented letters of a text; () if it has none."""
    accented = {
        character
        for character in cased(text)
        if not character.isascii() and fold(character).isascii()
    }
    letters = {character for character in accented if character.isalpha()}
    return tuple(name for name in LATIN if letters <= _letters()[name]) if letters else ()


@cache
def _letters() -> Mapping[str, frozenset[str]]:
    """Return the letters of each language, as its function words show them."""
    return {
        title: frozenset("".join(members))
        for title, members in word_lists("function_words").items()
    }


@cache
def _telling() -> Mapping[str, tuple[str, ...]]:
    """Return the words that reveal a language, each with the languages it may reveal."""
    telling: dict[str, tuple[str, ...]] = {}
    for title, members in FUNCTION_WORDS.items():
        name = title.partition(" ")[0]
        for word in members - FUNCTION_WORDS["english too"] - STOP_WORDS:
            if not (len(word) == 1 and word.isascii()):
                telling[word] = (*telling.get(word, ()), name)
    return telling
