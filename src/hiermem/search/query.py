"""Decides what a question asks for: its terms, whose words it wants, and what of a text matches it.

A question is data: it has no operators, and nothing is refused. Any text gives some terms, perhaps
none. Beside its own terms a question looks for their other forms, for parts of words, and for the
members of a kind. ``rank`` decides what all of them are worth.

A *form* is the stem of the word in a language of Latin letters other than English. It counts as the
word itself. A *part* counts for less:

- of a German or Dutch compound, the words at its edges, if the remainder can begin a word;
- of a run of Han, kana or Hangul, each character;
- of an Arabic word, its consonants, since plurals change the vowels inside ("مفتاح", "مفاتيح");
- of a Cyrillic word, and of any word of a text in an unknown language, the first letters.

Sessions have no language. The function words of each text tell which languages it may be in, so
conversations may mix them. English text has no forms and no parts: its terms alone are indexed and
looked for. A few bare nouns may be in any language that has their letters, or in any of the common
ones if they have no accents; they get the forms of all. The index and a question meet in these
terms. All but the characters hold a blank or a plus sign, as no word does.

A question names kinds: "the countries", "her pets". The messages that answer it say Portugal and
puppy, and share no word with it. That makes questions with several answers hard for an index
without a model, so ``hiermem.data`` holds the kinds of common English with the members that most
people would name. A text in another language matches none and loses nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from hiermem import data
from hiermem.text.terms import (
    FIRST_PERSON,
    FUNCTION_WORDS,
    STOP_WORDS,
    as_written,
    cased,
    fold,
    is_scripted,
    number,
    spans,
    spellings,
    stem,
    stem_as,
    terms,
    words,
)

#: Only the beginning of a longer question is read.
_LONGEST: Final = 100_000
#: The most terms of a query; a pasted document is reduced to its most frequent ones.
_MOST_TERMS: Final = 1_000
#: Kinds are not looked up for a query with more terms.
_MOST_FOR_KINDS: Final = 64
_WORDS: Final = data.word_lists("query_words")
#: Words about the answer's form, not its subject.
_OF_FORM: Final = frozenset(map(stem, _WORDS["form"]))
_OVERVIEW: Final = frozenset(map(stem, _WORDS["overview"]))
_ADVISING: Final = frozenset(map(stem, _WORDS["advising"]))
_BIDDING: Final = _WORDS["bidding"]
_WHEN: Final = frozenset(map(fold, _WORDS["when"]))
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
_LONG_WORD: Final = 7
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


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A term's number, how often it is asked for, and the numbers of terms that may replace it.

    ``forms`` are other terms of the same word, ``parts`` terms of parts of it or of words that it
    is a part of, ``members`` those of the kind that it names. ``word`` is the word as it was typed,
    folded. ``of_form``: it describes the form of the answer, or is only an ending. ``of_asker``: it
    says whose matter is asked about.
    """

    number: int
    word: str
    count: int
    of_form: bool
    of_asker: bool
    forms: tuple[int, ...]
    parts: tuple[int, ...]
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A question as ``rank`` reads it.

    ``numbers`` are all its terms. ``first_person``: it is about the asker's own matter.
    ``to_assistant``: it is about what the assistant once said. ``overview``: it asks for a summary
    of a whole matter, not for one fact. ``for_time``: it asks when something was.
    """

    terms: tuple[QueryTerm, ...]
    numbers: frozenset[int]
    first_person: bool
    to_assistant: bool
    overview: bool
    for_time: bool


def read_query(text: str) -> Query:
    """Read a question of any length and with any characters.

    Stop words count only if there is nothing else.

    >>> query = read_query("Can you summarise how my budget developed?")
    >>> len(query.terms), query.first_person, query.overview
    (4, True, True)
    """
    text = text[:_LONGEST]
    asked = words(text)
    codes = languages(text, asked, bare=LATIN)
    left_out = STOP_WORDS | function_words(codes)
    typed = {stem(word): word for word in asked if word not in left_out}
    typed = typed or {stem(word): word for word in asked}
    counts = Counter(term for term in map(stem, asked) if term in typed)
    of_form = {term for term in counts if term in _OF_FORM or is_weak(term)}
    all_of_form = len(of_form) == len(counts)
    spelled, accented = spellings(text), as_written(text)
    written = {word: accented.get(word, word) for word in typed.values()}
    broad = len(counts) <= _MOST_FOR_KINDS
    asked_for = tuple(
        QueryTerm(
            number=number(term),
            word=typed[term],
            count=count,
            of_form=term in of_form and not all_of_form,
            of_asker=typed[term] in FIRST_PERSON,
            forms=_numbers(_forms(written[typed[term]], codes, spelled.get(typed[term]))),
            parts=_numbers(looked_for(written[typed[term]], codes)) if broad else (),
            members=_numbers(members(term)) if broad else (),
        )
        for term, count in counts.most_common(_MOST_TERMS)
    )
    return Query(
        terms=asked_for,
        numbers=frozenset(n for term in asked_for for n in (term.number, *term.forms)),
        first_person=_is_of_asker(asked),
        to_assistant=_asks_assistant(asked),
        overview=not _OVERVIEW.isdisjoint(counts),
        for_time=not _WHEN.isdisjoint(asked)
        or not _WHEN.isdisjoint(map(" ".join, pairwise(asked))),
    )


def _forms(word: str, codes: tuple[str, ...], spelled: str | None) -> Iterator[str]:
    yield from forms_of(word, codes)
    if spelled is not None:
        yield stem(spelled)


def _numbers(others: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted(set(map(number, others))))


def _is_of_asker(asked: list[str]) -> bool:
    """Return whether a question is about the asker's own matter; "tell me" does not count."""
    return any(
        word in FIRST_PERSON and not (word == "me" and before in _BIDDING)
        for before, word in pairwise(["", *asked])
    )


def _asks_assistant(asked: list[str]) -> bool:
    """Return whether a question is about what "you" said: "did you suggest", "your advice"."""
    return any(
        (before == "did" and after == "you")
        or (before in ("you", "your") and stem(after) in _ADVISING)
        for before, after in pairwise(asked)
    )


def members(term: str) -> frozenset[str]:
    """Return the terms of the members of the kind that ``term`` names.

    >>> "taekwondo" in members(stem("martial")), members("xyzzy")
    (True, frozenset())
    """
    return _kinds().get(term, frozenset())


@cache
def _kinds() -> Mapping[str, frozenset[str]]:
    """Return, for each term that names a kind, the terms of its members."""
    members_of: dict[str, set[str]] = defaultdict(set)
    for names, things in data.thesaurus():
        stems = {stem(word) for word in things}
        for name in names:
            members_of[stem(name)] |= stems
    return {name: frozenset(stems - {name}) for name, stems in members_of.items()}


def matched(text: str, query: str) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``text`` that match ``query``, in order, joined where they touch.

    They are (begin, end) in characters, so that ``text[begin:end]`` can be shown as a match. A word
    is marked by the terms under which the index holds it.

    >>> matched("We planned the trips.", "trip plans")
    ((3, 10), (15, 20))
    """
    asked_for = read_query(query)
    wanted = asked_for.numbers.union(*((*term.parts, *term.members) for term in asked_for.terms))
    codes = languages(text, words(text))
    marked: list[tuple[int, int]] = []
    for begin, end in spans(text):
        piece = text[begin:end]
        others = of_words(piece, words(piece), codes)
        alone = {other for other in others if len(other) == 1}
        if any(number(term) in wanted for term in [*terms(piece), *others] if term not in alone):
            stretches = [(begin, end)]
        else:
            # A single character of a run is marked only if the question asks for it alone.
            asked = {character for character in alone if number(character) in asked_for.numbers}
            stretches = [
                (place, place + 1) for place in range(begin, end) if fold(text[place]) in asked
            ]
        for low, high in stretches:
            if marked and low <= marked[-1][1]:
                marked[-1] = (marked[-1][0], max(high, marked[-1][1]))
            else:
                marked.append((low, high))
    return tuple(marked)


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


def forms_of(word: str, names: Collection[str]) -> Iterator[str]:
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
    entries = [*forms_of(word, names), *_parts_by_script(plain, names)]
    if _WORD.fullmatch(plain):
        for name in _COMPOUNDING.intersection(names):
            entries += (f"{name}+{part}" for part in _edges(plain, name))
    elif len(plain) == 2:
        entries += filter(_CHARACTER.match, plain)
    return tuple(entries)


def _parts_by_script(word: str, names: Collection[str]) -> Iterator[str]:
    """Yield the beginning of a word, or the consonants of an Arabic one."""
    if _WORD.fullmatch(word):
        if names and len(word) >= _LONG_WORD:
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
    ['hau', 'haus', 'stur', 'tur']
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
        for title, members in data.word_lists("function_words").items()
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
