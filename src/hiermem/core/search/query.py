"""Reads a question: which terms it looks for, and whose words it wants.

A question is data: it has no operators, and nothing is refused. Any text gives some terms, perhaps
none. ``ranking`` decides what the terms are worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from hiermem.core.search.forms import forms, function_words, is_weak, languages, looked_for
from hiermem.core.search.spelling import slips
from hiermem.core.search.stopwords import FIRST_PERSON, STOP_WORDS
from hiermem.core.search.terms import number, spellings, words
from hiermem.core.search.thesaurus import members, synonyms
from hiermem.core.text.folding import fold
from hiermem.core.text.stemming import stem
from hiermem.data import word_lists

#: The most terms of a query; of a pasted document the most frequent ones are used.
_MOST_TERMS: Final = 1_000
#: A query with more terms is no question that names kinds.
_MOST_FOR_KINDS: Final = 64

_WORDS: Final = word_lists("query_words")
#: Words about the answer's form, not its subject.
_OF_FORM: Final = frozenset(map(stem, _WORDS["form"]))
_OVERVIEW: Final = frozenset(map(stem, _WORDS["overview"]))
_ADVISING: Final = frozenset(map(stem, _WORDS["advising"]))
_BIDDING: Final = _WORDS["bidding"]
_WHEN: Final = frozenset(map(fold, _WORDS["when"]))


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A term's number, how often it is asked for, and the numbers of terms that may replace it.

    ``forms`` are other terms of the same word, ``synonyms`` words that mean the same and parts of
    it, ``members`` those of the kind that it names. ``word`` is the word as it was typed, folded.
    ``of_form``: it describes the form of the answer, or is only an ending. ``of_asker``: it says
    whose matter is asked about.
    """

    number: int
    word: str
    count: int
    of_form: bool
    of_asker: bool
    forms: tuple[int, ...]
    synonyms: tuple[int, ...]
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A question as the ranking sees it.

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
    """Read a question.

    Stop words count only if there is nothing else.

    >>> query = read_query("Can you summarise how my budget developed?")
    >>> len(query.terms), query.first_person, query.overview
    (4, True, True)
    """
    asked = words(text)
    codes = languages(text, asked)
    left_out = STOP_WORDS | function_words(codes)
    typed = {stem(word): word for word in asked if word not in left_out}
    typed = typed or {stem(word): word for word in asked}
    counts = Counter(term for term in map(stem, asked) if term in typed)
    of_form = {term for term in counts if term in _OF_FORM or is_weak(term)}
    all_of_form = len(of_form) == len(counts)
    spelled = spellings(text)
    broad = len(counts) <= _MOST_FOR_KINDS
    terms = tuple(
        QueryTerm(
            number=number(term),
            word=typed[term],
            count=count,
            of_form=term in of_form and not all_of_form,
            of_asker=typed[term] in FIRST_PERSON,
            forms=_numbers(frozenset(_forms(typed[term], codes, spelled))),
            synonyms=_numbers(synonyms(term).union(looked_for(typed[term], codes)))
            if broad
            else (),
            members=_numbers(members(term)) if broad else (),
        )
        for term, count in counts.most_common(_MOST_TERMS)
    )
    return Query(
        terms=terms,
        numbers=frozenset(n for one in terms for n in (one.number, *one.forms)),
        first_person=_is_of_asker(asked),
        to_assistant=_asks_assistant(asked),
        overview=not _OVERVIEW.isdisjoint(counts),
        for_time=not _WHEN.isdisjoint(asked)
        or not _WHEN.isdisjoint(map(" ".join, pairwise(asked))),
    )


@lru_cache(maxsize=256)
def corrections(terms: QueryTerm) -> tuple[int, ...]:
    """Return the terms that are one typing error away from the typed word."""
    return _numbers(frozenset(map(stem, slips(terms.word))))


def _forms(word: str, codes: tuple[str, ...], spelled: Mapping[str, str]) -> Iterator[str]:
    yield from forms(word, codes)
    if word in spelled:
        yield stem(spelled[word])


def _numbers(terms: frozenset[str]) -> tuple[int, ...]:
    return tuple(sorted(map(number, terms)))


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
