"""Cuts the statement out of a sentence, and decides when two statements have the same subject.

An item is one clause that somebody said, verbatim except for what is cut off at its ends, so it can
be checked against its messages. Two clauses have the same subject by the stems of their significant
words, or by a number that both use ("open point 5", "#12"). ``open_items`` and ``strategy`` decide
which sentences give an item.
"""

from __future__ import annotations

import re
from typing import Final

from hiermem.core.text.entity_names import FUNCTION_WORDS, GENERIC
from hiermem.core.text.lexicon import either
from hiermem.core.text.stemming import stem
from hiermem.data import word_lists

#: The longest item, in code points, and the shortest piece that a boundary leaves.
CAP: Final = 240
_LEAST: Final = 24
_WORDS: Final = word_lists("offline_words")
_WORD: Final = re.compile(r"\w[\w./-]*\w|\w")
#: Where a statement ends and another one begins.
_BOUNDARY: Final = re.compile(
    r"; |,? (?:and|but|so|because|since|although|(?:[-–—] )?(?:even )?though)"  # noqa: RUF001
    r" (?=(?:I|i|we|it|he|she|they|you|my)\b)|, (?:considering|given|especially since)(?: that)? "
    r"(?=(?:I|we|my)\b)|, (?=(?:can|could|how|what|would|do|please|I|we|any)\b)"
)
#: A request for help, which the next answer serves and which is no part of a statement.
ASIDE: Final = re.compile(
    r"[,;]?\s*(?:\b(?:and|but|so|or)\s+)?(?:\b(?:can|could|would|will) (?:you|anyone|someone"
    r"|I get)\b|\bplease\b|\bhere(?:['\u2019]s| is| are) (?:my|the|what|an?|some)\b"
    r"|\bany (?:tips|ideas|advice|thoughts|suggestions)\b|\b(?:do|did) you (?:think|know|have)\b"
    r"|\bwhat do you think\b|\b(?:how|what else) (?:can|do|could|should) I\b).*$",
    re.IGNORECASE | re.DOTALL,
)


def phrases(name: str) -> str:
    """Return a pattern for any member of a list of the offline models."""
    return either(_WORDS[name])


def signs(*patterns: str) -> re.Pattern[str]:
    """Return the pattern of which one of ``patterns`` is found, in any case."""
    return re.compile("|".join(patterns), re.IGNORECASE)


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text's meaningful words."""
    found = _WORD.findall(text.lower())
    return frozenset(stem(word) for word in found if len(word) > 2 and word not in FUNCTION_WORDS)


def telling(words: frozenset[str]) -> frozenset[str]:
    """Return the stems that distinguish one subject from another."""
    return words - _GENERIC


def clause(text: str, at: int = 0) -> str:
    """Return the statement around character ``at``, without what stands before and after it.

    >>> clause("I like it, but we decided to keep SQLite, can you help me?", 15)
    'We decided to keep SQLite'
    """
    aside = ASIDE.search(text, max(at + 8, 0))
    end = aside.start() if aside and aside.start() - at >= _LEAST else len(text)
    bounds = list(_BOUNDARY.finditer(text, 0, end))
    start = max((one.end() for one in bounds if one.end() <= at), default=0)
    end = min((one.start() for one in bounds if one.start() >= at + _LEAST), default=end)
    if end - start > CAP:
        end = start + max(text[start : start + CAP].rfind(" "), CAP // 2)
    cut = text[start:end].strip(" ,;:-")
    # The name of a file or a function stays as it is written.
    plain = cut.partition(" ")[0].rstrip(",;:.!?\u2019'").isalpha()
    return cut[:1].upper() + cut[1:] if plain else cut


_GENERIC: Final = stems(" ".join(GENERIC | _WORDS["glue"]))
