"""Finds the words that a message may use where a question names a kind.

A question asks for "the countries" or "her pets"; the messages that answer it say Portugal and
puppy, and share no word with it. This is what makes questions with several answers hard for an
index without a model. For that purpose ``hiermem.data`` holds a small thesaurus of common English:
kinds with members that most people would name, and words of one meaning.

A text in another language matches no entry and loses nothing. ``ranking`` decides what a match is
worth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from hiermem import data
from hiermem.core.text.stemming import stem


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, frozenset[str]]:
    """Return, for each term that names a kind, the terms of its members."""
    found: dict[str, set[str]] = defaultdict(set)
    for names, things in data.thesaurus():
        stems = {stem(word) for word in things}
        for name in names:
            found[stem(name)] |= stems
    return {name: frozenset(stems - {name}) for name, stems in found.items()}


@lru_cache(maxsize=1)
def _synonyms() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for words in data.synonyms():
        stems = {stem(word) for word in words}
        for one in stems:
            found[one] |= stems - {one}
    return {one: frozenset(stems) for one, stems in found.items()}


def members(term: str) -> frozenset[str]:
    """Return the terms of the members of the kind that ``term`` names.

    >>> "taekwondo" in members(stem("martial")), members("xyzzy")
    (True, frozenset())
    """
    return _kinds().get(term, frozenset())


def synonyms(term: str) -> frozenset[str]:
    """Return the terms that mean the same as ``term``, without ``term`` itself.

    >>> sorted(synonyms(stem("mother")))
    ['mom', 'mum']
    """
    return _synonyms().get(term, frozenset())
