"""Decides what of a sentence is the statement itself, and by what another one is about the same.

The one rule: an item is one clause that somebody said, word for word but for what is cut off at its
ends, so it can be checked against the messages that it names. Two clauses are about the same by the
stems of their telling words, or by a number that both give the thing ("open point 5", "#12").
Which sentences are worth an item is decided by ``extract_open`` and its neighbours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hiermem.core import extract_signs as signs
from hiermem.core.extract_words import FUNCTION_WORDS, GENERIC
from hiermem.core.lexicon import stem
from hiermem.trivector import DeltaKind

__all__ = ["CAP", "Open", "around", "clause", "labels", "stems", "telling"]

#: The longest item, in code points.
CAP: Final = 240
_WORD: Final = re.compile(r"\w[\w./-]*\w|\w")
_LABEL: Final = re.compile(
    r"\b(?:point|item|issue|task|ticket|question|bug|open\.md|todo\.md)s?:? ?"
    r"[#(]{0,2}(\d{1,6})\b|(?<![\w&])#(\d{1,6})\b",
    re.IGNORECASE,
)
#: A list of numbers in brackets, where a list of points is spoken of: "closing (1) and (2)".
_LISTED: Final = re.compile(r"\b(?:clos\w+|open|list|points?|todo)\b", re.IGNORECASE)
_BRACKETED: Final = re.compile(r"\((\d{1,3})\)")
#: How far around a report of something done its words stand for what was done.
_NEAR: Final = 70


@dataclass(frozen=True, slots=True)
class Open:
    """One open end, or a statement that settles one (``open`` False).

    ``report`` marks such a statement while it has settled nothing; a ``slight`` one is worth
    nothing beside what it settles, a ``hedged`` one tells of trouble too. ``labels`` are the
    numbers by which the thing is known.
    """

    kind: DeltaKind
    text: str
    messages: tuple[int, ...]
    words: frozenset[str]
    open: bool = True
    labels: frozenset[str] = frozenset()
    report: bool = False
    slight: bool = False
    hedged: bool = False


def stems(text: str) -> frozenset[str]:
    """Give the stems of the words of a text that carry its meaning."""
    found = _WORD.findall(text.lower())
    return frozenset(_stem(word) for word in found if len(word) > 2 and word not in FUNCTION_WORDS)


def _stem(word: str) -> str:
    """Give what "update" and "updated" have in common."""
    cut = stem(word)
    return cut[:-1] if len(cut) > 3 and cut[-1] == "e" else cut


def telling(words: frozenset[str]) -> frozenset[str]:
    """Give those stems that tell one thing from another."""
    return words - _GENERIC


def labels(text: str) -> frozenset[str]:
    """Give the numbers by which a text calls points of a list, issues and the like."""
    found = {number for pair in _LABEL.findall(text) for number in pair if number}
    if _LISTED.search(text):
        found.update(_BRACKETED.findall(text))
    return frozenset(found)


def clause(text: str, at: int = 0) -> str:
    """Give the statement around character ``at``, without a request for help behind it."""
    aside = signs.ASIDE.search(text, max(at + 8, 0))
    end = aside.start() if aside and aside.start() - at >= 24 else len(text)
    start = 0
    if end - start > CAP:
        starts = [m.end() for m in signs.CLAUSE.finditer(text, 0, max(at, 0) + 1) if m.end() <= at]
        start = starts[-1] if starts else 0
    if end - start > CAP:
        ends = [m.start() for m in signs.CLAUSE.finditer(text, at + 40, min(end, start + CAP))]
        end = ends[-1] if ends else text.rfind(" ", start, start + CAP)
    cut = text[start:end].strip(" ,;:-")
    # The name of a file or a function stays as it is written.
    plain = cut.partition(" ")[0].rstrip(",;:.!?\u2019'").isalpha()
    return cut[:1].upper() + cut[1:] if plain else cut


def around(text: str, start: int, stop: int, *, before: bool) -> str:
    """Give what stands close behind a stretch of a sentence, and ``before`` it in its clause."""
    begin = start
    if before:
        first = max(0, start - _NEAR)
        ends = [m.end() for m in signs.CLAUSE.finditer(text, first, start)]
        begin = ends[-1] if ends else first
    return text[begin : stop + _NEAR]


_GENERIC: Final = stems(" ".join(GENERIC))
