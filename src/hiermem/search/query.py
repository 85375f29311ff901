"""Decides what a question asks for: its terms, whose words it wants, and what of a text matches it.

A question is data: it has no operators, and nothing is refused. Any text gives some terms, perhaps
none. Beside its own terms a question looks for their other forms, for parts of words (``forms``),
and for the members of a kind. ``rank`` decides what all of them are worth.

A question names kinds: "the countries", "her pets". The messages that answer it say Portugal and
puppy, and share no word with it. That makes questions with several answers hard for an index
without a model, so ``hiermem.data`` holds the kinds of common English with the members that most
people would name. A text in another language matches none and loses nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from hiermem import data
from hiermem.search import forms
from hiermem.text.terms import (
    FIRST_PERSON,
    STOP_WORDS,
    as_written,
    fold,
    number,
    spans,
    spellings,
    stem,
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
    codes = forms.languages(text, asked, bare=forms.LATIN)
    left_out = STOP_WORDS | forms.function_words(codes)
    typed = {stem(word): word for word in asked if word not in left_out}
    typed = typed or {stem(word): word for word in asked}
    counts = Counter(term for term in map(stem, asked) if term in typed)
    of_form = {term for term in counts if term in _OF_FORM or forms.is_weak(term)}
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
            parts=_numbers(forms.looked_for(written[typed[term]], codes)) if broad else (),
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
    yield from forms.forms(word, codes)
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
    for before, after in pairwise(asked):
        if before == "did" and after == "you":
            return True
        if before in ("you", "your") and stem(after) in _ADVISING:
            return True
    return False


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
    """Return the stretches of ``text`` that match ``query``, in order.

    They are (begin, end) in characters, so that ``text[begin:end]`` can be shown as a match.

    >>> matched("We planned the trips.", "trip plans")
    ((3, 10), (15, 20))
    """
    return marks(text, read_query(query))


def marks(text: str, query: Query) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``text`` with a query term, in order, joined where they touch.

    A word is marked by the terms under which the index holds it; offsets are of the text itself.

    >>> marks("Two kittens and a car", read_query("What pets are there?"))
    ((4, 11),)
    """
    wanted = query.numbers.union(*((*term.parts, *term.members) for term in query.terms))
    codes = forms.languages(text, words(text))
    marked: list[tuple[int, int]] = []
    for begin, end in spans(text):
        piece = text[begin:end]
        others = forms.of_words(piece, words(piece), codes)
        alone = {other for other in others if len(other) == 1}
        if any(number(term) in wanted for term in [*terms(piece), *others] if term not in alone):
            stretches = [(begin, end)]
        else:
            # A single character of a run is marked only if the question asks for it alone.
            asked = {character for character in alone if number(character) in query.numbers}
            stretches = [
                (place, place + 1) for place in range(begin, end) if fold(text[place]) in asked
            ]
        for low, high in stretches:
            if marked and low <= marked[-1][1]:
                marked[-1] = (marked[-1][0], max(high, marked[-1][1]))
            else:
                marked.append((low, high))
    return tuple(marked)
