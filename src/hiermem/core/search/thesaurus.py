"""Which words a message may use for what a question calls by its kind.

A question asks for "the countries" or "her pets"; the messages that answer it say Portugal, and
puppy, and share no word with it. That is what makes questions with several answers hard for an
index without a model. This is a small thesaurus of common English for that one purpose: kinds with
members that most people would name, and words of one meaning.

The one rule: general knowledge only. A word is here because it belongs to its kind anywhere, never
because some measured conversation holds it. A text in another language meets no entry and loses
nothing. What a match is worth is decided in ``ranking``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from hiermem import data
from hiermem.core.search.stem import stem


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, frozenset[str]]:
    """Give, for each term that names a kind, the terms of its members."""
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
    """Return the terms of what belongs to the kind that ``term`` names.

    >>> "taekwondo" in members(stem("martial")), members("xyzzy")
    (True, frozenset())
    """
    return _kinds().get(term, frozenset())


def synonyms(term: str) -> frozenset[str]:
    """Return the terms that mean the same as ``term``, without it.

    >>> sorted(synonyms(stem("mother")))
    ['mom', 'mum']
    """
    return _synonyms().get(term, frozenset())
