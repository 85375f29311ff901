"""Cuts the statement out of a sentence, and decides when two statements have the same subject.

An item is one clause that somebody said, verbatim except for what is cut off at its ends, so it can
be checked against its messages. Two clauses have the same subject by the stems of their significant
words, or by a number that both use ("open point 5", "#12"). ``open_items`` and its neighbours
decide which sentences give an item.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from hiermem.core.text.entity_words import FUNCTION_WORDS, GENERIC
from hiermem.core.text.lexicon import stem
from hiermem.data import word_lists
from hiermem.models.offline.extraction import signs
from hiermem.types.trivector import DeltaKind

#: The longest item, in code points.
CAP: Final = 240
_WORD: Final = re.compile(r"\w[\w./-]*\w|\w")
_LABEL: Final = re.compile(
    r"\b(?:point|item|issue|task|ticket|question|bug|open\.md|todo\.md)s?:? ?"
    r"[#(]{0,2}(\d{1,6})\b|(?<![\w&])#(\d{1,6})\b",
    re.IGNORECASE,
)
#: Numbers in brackets, if the text refers to a list of points: "closing (1) and (2)".
_LISTED: Final = re.compile(r"\b(?:clos\w+|open|list|points?|todo)\b", re.IGNORECASE)
_BRACKETED: Final = re.compile(r"\((\d{1,3})\)")
#: Verbs that tell somebody to do something where they open a clause.
_ORDERS: Final = word_lists("offline_words")["orders"]
#: Verbs that are as often nouns: an order only if something particular follows.
_ORDERS_OR_NAMES: Final = word_lists("offline_words")["orders or names"]
_PARTICULAR: Final = (
    r"(?: (?:the|an?|all|any|each|both|every|my|your|our|its?|this|that|these|those|if|whether|for"
    r"|up|with)\b| [`\"\u201c]| \S*[A-Z./_]\S*)"
)
_ORDER: Final = re.compile(
    rf"^\W*to [a-z]+\b|(?:^[\W\d]*|[:;.,)] |\band |\bor |\bbut )(?:(?:please|then|now|first|next"
    rf"|finally|also|so|instead|carefully|simply|just),? )*"
    rf"(?:(?:{'|'.join(sorted(_ORDERS))})\b(?!['\u2019:-])"
    rf"|(?:{'|'.join(sorted(_ORDERS_OR_NAMES))})(?={_PARTICULAR}))"
    r"|\b(?:please|let us|let['\u2019]s|(?<!to )(?:make|be) sure|recommended|recommend|suggest)\b"
    r"|\byou(?:['\u2019]ll| will)? (?:can|could|should|might|may|must|ought|need|have to|want to)\b"
    r"|\bhow (?:you can|to)\b|\b(?:can|could|would|will) you\b",
    re.IGNORECASE,
)
#: Where speakers continue about themselves.
_REPORTED: Final = re.compile(
    r"\b(?:I['\u2019](?:m|ve)|I (?:am|was|have|had|use|used)|we['\u2019](?:re|ve)|we (?:are|have"
    r"|had|use|used)|(?:I|we)(?: just| already| also)? (?:decided|chose|switched|built|wrote|added"
    r"|deployed|implemented|moved|migrated))\b"
)
#: A question states nothing; a statement followed by a request does.
_ASKS: Final = re.compile(
    r"\W*(?:(?:so|and|but|also|hmm),? )*(?:can|could|would|will|do|does|did|should|shall|is|are|was"
    r"|were|has|have|what|which|who|where|when|why|how)\b",
    re.IGNORECASE,
)
#: How far around a report its words describe what was done.
_NEAR: Final = 70


@dataclass(frozen=True, slots=True)
class OpenItem:
    """One open item, or a statement that settles one (``open`` False).

    ``report`` marks such a statement while it has settled nothing. A ``slight`` report is dropped
    unless it settles something; a ``hedged`` one mentions a problem too. ``labels`` are the numbers
    of the item.
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
    """Return the stems of a text's meaningful words."""
    found = _WORD.findall(text.lower())
    return frozenset(_stem(word) for word in found if len(word) > 2 and word not in FUNCTION_WORDS)


def _stem(word: str) -> str:
    """Return the common stem of forms such as "update" and "updated"."""
    cut = stem(word)
    return cut[:-1] if len(cut) > 3 and cut[-1] == "e" else cut


def telling(words: frozenset[str]) -> frozenset[str]:
    """Return the stems that distinguish one subject from another."""
    return words - _GENERIC


def labels(text: str) -> frozenset[str]:
    """Return the numbers by which a text refers to points of a list, issues and the like."""
    found = {number for pair in _LABEL.findall(text) for number in pair if number}
    if _LISTED.search(text):
        found.update(_BRACKETED.findall(text))
    return frozenset(found)


def clause(text: str, at: int = 0) -> str:
    """Return the statement around character ``at``, without a request for help after it."""
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


def instructs(text: str, at: int, *, asks: bool) -> bool:
    """Return whether the text at character ``at`` is an order or a question, not a statement.

    An order, a request, advice, a question: "replace Flask with Quart" does not say that anybody
    did. What the speaker then says of themself is a statement again.
    """
    reported = max((match.end() for match in _REPORTED.finditer(text, 0, max(0, at))), default=0)
    if asks and reported == 0 and (_ASKS.match(text) or not signs.ASIDE.search(text)):
        return True
    return _ORDER.search(text, reported, max(0, at)) is not None


def around(text: str, start: int, stop: int, *, before: bool) -> str:
    """Return the text shortly after a stretch of a sentence and, with ``before``, before it."""
    begin = start
    if before:
        first = max(0, start - _NEAR)
        ends = [m.end() for m in signs.CLAUSE.finditer(text, first, start)]
        begin = ends[-1] if ends else first
    return text[begin : stop + _NEAR]


_GENERIC: Final = stems(" ".join(GENERIC))
