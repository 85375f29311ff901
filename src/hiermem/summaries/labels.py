"""Decides the labels of a summary: the entities that its messages name, and a few tags.

Labels are read from what was said, by form and count. They are never invented and never requested
from a model, so the same messages have the same labels whoever summarises them. A summary of
summaries takes the labels of its children, the first of each first, so that a search can be
filtered at every level. ``entity_names`` decides what a name is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Final

from hiermem.protocols import SourceText
from hiermem.summaries.inputs import Inputs, Labels
from hiermem.text import entity_names
from hiermem.text.entity_names import GENERIC
from hiermem.text.stemming import fold, stem
from hiermem.text.terms import STOP_WORDS, written
from hiermem.text.units import of_source

#: The most labels of a window's summary; above, ``_ABOVE`` times as many.
_ENTITIES: Final = 24
_TAGS: Final = 12
_ABOVE: Final = 2
#: Kinds of names that say when or where, and are no entities.
_NO_ENTITY: Final = frozenset({"date", "url"})
#: A name with an ambiguous form is an entity only if it occurs again.
_SURE: Final = 0.6
#: A word is a tag if at least this many messages of a window use it, and it has this many letters.
_SAID_BY: Final = 3
_LETTERS: Final = 4
_LONGEST: Final = 64


def of_inputs(inputs: Inputs) -> Labels:
    """Return the labels for these inputs: read from messages, or taken over from summaries."""
    if inputs.tags is None or inputs.entities is None:
        return of_messages(inputs.sources)
    return Labels(inputs.tags[: _ABOVE * _TAGS], inputs.entities[: _ABOVE * _ENTITIES])


def of_messages(sources: Iterable[SourceText]) -> Labels:
    """Return the labels of a window: entities and tags, the most frequent first.

    Tags also name what there is besides prose: "code", "tool".
    """
    named: dict[str, int] = {}
    written: dict[str, str] = {}
    said: dict[str, int] = {}
    forms: dict[str, dict[str, int]] = {}
    kinds: dict[str, None] = {}
    for source in sources:
        if source.role == "tool":
            kinds["tool"] = None
        if "```" in source.text:
            kinds["code"] = None
        for unit in of_source(source):
            if unit.code:
                continue
            for mention in entity_names.find(unit.text, prose=source.role != "tool"):
                if mention.type in _NO_ENTITY or len(mention.name) > _LONGEST:
                    continue
                key = mention.name.casefold()
                named[key] = named.get(key, 0) + (2 if mention.sure >= _SURE else 1)
                written.setdefault(key, mention.name)
        if source.role != "tool":
            for root in _topics(source.text, forms):
                said[root] = said.get(root, 0) + 1
    by_count = sorted(named.items(), key=itemgetter(1), reverse=True)
    entities = [written[key] for key, count in by_count if count > 1]
    topics = [
        min(forms[root], key=lambda form: (-forms[root][form], form))
        for root, count in sorted(said.items(), key=itemgetter(1), reverse=True)
        if count >= _SAID_BY
    ]
    return Labels(tuple([*kinds, *topics][:_TAGS]), tuple(entities[:_ENTITIES]))


def _topics(text: str, forms: dict[str, dict[str, int]]) -> dict[str, None]:
    """Return the stems of a message's longer words, each once; count their forms in ``forms``."""
    found: dict[str, None] = {}
    for word, times in Counter(written(text)).items():
        if root := _root(word):
            found[root] = None
            own = forms.setdefault(root, {})
            own[word] = own.get(word, 0) + times
    return found


@lru_cache(maxsize=32_768)
def _root(word: str) -> str:
    """Return the stem of a word that may be a tag, "" for any other."""
    if len(word) < _LETTERS or word in STOP_WORDS or word in GENERIC or not word.isalpha():
        return ""
    return stem(fold(word))
