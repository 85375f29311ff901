"""Decides which words of a text reveal its subject, and whether another text has them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from hiermem.data import word_lists
from hiermem.text.terms import root

#: The most terms of an answer that are looked up.
MOST_TERMS: Final = 400
_TERM: Final = re.compile(r"\w+")
_UNSPACED: Final = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0e7f]+"
)
#: Letters from here on (Hebrew, Arabic, Indic, ...) form words that are short or take prefixes.
_COMPACT: Final = "\u0530"
#: Letters of a word that are compared: endings differ between a conversation and its summary.
_TERM_HEAD: Final = 5
#: Words of any conversation, and words of any remark about a summary.
_CONTENTLESS: Final = word_lists("answer_words")["contentless"]


def terms(text: str, *, most: int = MOST_TERMS) -> Iterator[str]:
    """Yield the first ``most`` terms of a text that could only come from its subject, each once.

    They are the heads of words of four letters or more, of names of three, figures, and the pairs
    of characters of scripts without spaces.
    """
    seen: set[str] = set()
    for term in _candidates(text):
        if term not in seen:
            seen.add(term)
            yield term
        if len(seen) == most:
            return


def _candidates(text: str) -> Iterator[str]:
    if not text.isascii():
        for run in _UNSPACED.findall(text):
            yield from (run[start : start + 2] for start in range(max(1, len(run) - 1)))
        text = _UNSPACED.sub(" ", text)
    for match in _TERM.finditer(text):
        word = match.group()
        plain = plain_text(word)
        figure = not word.isalpha() and any(map(str.isdigit, word))
        shortest = 2 if figure or word[0] >= _COMPACT else 3 if word[0].isupper() else 4
        if len(plain) >= shortest and plain not in _CONTENTLESS:
            yield plain if figure else root(plain)[:_TERM_HEAD]


def plain_text(text: str) -> str:
    """Return ``text`` in the form that is compared: whole code points, without case."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def begins_a_word(term: str, stated: str) -> bool:
    """Return whether a word of ``stated`` begins with ``term``.

    In a compact script the word may contain it anywhere.
    """
    start = stated.find(term)
    while start >= 0:
        if term[0] >= _COMPACT or start == 0 or not stated[start - 1].isalnum():
            return True
        start = stated.find(term, start + 1)
    return False
