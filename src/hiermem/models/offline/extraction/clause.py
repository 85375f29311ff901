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
_LABEL: Final = re.compile(
    r"\b(?:point|item|issue|task|ticket|question|bug|open\.md|todo\.md)s?:? ?"
    r"[#(]{0,2}(\d{1,6})\b|(?<![\w&])#(\d{1,6})\b",
    re.IGNORECASE,
)
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
_PARTICULAR: Final = (
    r"(?: (?:the|an?|all|any|each|both|every|my|your|our|its?|this|that|these|those|if|whether|for"
    r"|up|with)\b| [`\"\u201c]| \S*[A-Z./_]\S*)"
)
_ORDER: Final = re.compile(
    rf"^\W*to [a-z]+\b|(?:^[\W\d]*|[:;.,)] |\band |\bor |\bbut )(?:(?:please|then|now|first|next"
    rf"|finally|also|so|instead|carefully|simply|just),? )*"
    rf"(?:{either(_WORDS['orders'])}\b(?!['\u2019:-]|\.\w)"
    rf"|{either(_WORDS['orders or names'])}(?={_PARTICULAR}))"
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


def labels(text: str) -> frozenset[str]:
    """Return the numbers by which a text refers to points of a list, issues and the like."""
    return frozenset(number for pair in _LABEL.findall(text) for number in pair if number)


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


def instructs(text: str, at: int, *, asks: bool) -> bool:
    """Return whether the text at character ``at`` is an order or a question, not a statement.

    An order, a request, advice, a question: "replace Flask with Quart" does not say that anybody
    did. What the speaker then says of themself is a statement again.
    """
    reported = max((match.end() for match in _REPORTED.finditer(text, 0, max(0, at))), default=0)
    if asks and reported == 0 and (_ASKS.match(text) or not ASIDE.search(text)):
        return True
    return _ORDER.search(text, reported, max(0, at)) is not None


_GENERIC: Final = stems(" ".join(GENERIC | _WORDS["glue"]))
