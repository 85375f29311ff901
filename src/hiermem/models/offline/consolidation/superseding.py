"""Decides, without a model, which earlier statement a later one replaces.

Two kinds of later statements are recognised. One gives another value for the same thing: "The port
is 8080", "The port is 9090". The other says that something changed ("instead", "no longer", "moved
to") and shares most of its words with the earlier statement.

Nothing is removed. A superseded statement is struck through in its place, with the day; a reader
sees both.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from hiermem.core.text.lexicon import Lexicon
from hiermem.data import word_lists

#: A statement of a value: group 1 is the subject, group 2 the value.
_IS: Final = re.compile(
    r"(?P<thing>[^.!?]{2,120}?)\s+(?:is|are|=|equals|runs on|costs|takes|lasts|lives in)\s+"
    r"(?:now\s+)?(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_CHANGE: Final = re.compile(
    r"\b(?:instead|no longer|not any ?more|changed|moved (?:to|from)|switched|replaced|replaces"
    r"|superseded|supersedes|renamed|corrected|correction|dropped|was wrong|reverted)\b",
    re.IGNORECASE,
)
#: The most words of a value; a longer text says more than one thing.
_MOST_WORDS: Final = 8
#: Stems of words of changing, which say nothing of what is changed.
_CUES: Final = word_lists("offline_words")["change"]
#: The share of a statement's words that its replacement has, and their least number.
_SHARED: Final = 0.6
_FEWEST: Final = 2
_MARKS: Final = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
#: The day before a line and the agent after it, which are not part of its content.
_DAY: Final = re.compile(r"^\d{4}-\d\d-\d\d:\s+")
_AGENT: Final = re.compile(r"\s+\([^()]{1,120}\)$")


@dataclass(slots=True)
class Statements:
    """The statements so far, indexed by their words."""

    lexicon: Lexicon
    _things: dict[frozenset[str], int] = field(default_factory=dict[frozenset[str], int])
    _terms: list[frozenset[str]] = field(default_factory=list[frozenset[str]])
    _with: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    _said: list[str] = field(default_factory=list[str])
    _gone: set[int] = field(default_factory=set[int])

    def add(self, line: str) -> int:
        """Add a statement, as a line of a list or as it was said; return its number."""
        said = bare(line)
        number = len(self._said)
        self._said.append(said)
        terms = frozenset(self.lexicon.terms(said))
        self._terms.append(terms)
        for term in terms:
            self._with.setdefault(term, []).append(number)
        if (thing := self._thing(said)) is not None:
            self._things[thing] = number
        return number

    def standing(self) -> list[tuple[int, str]]:
        """Return the statements that still hold, each with its number, in order."""
        return [(at, said) for at, said in enumerate(self._said) if at not in self._gone]

    def rival(self, said: str) -> int | None:
        """Return the number of the standing statement that this one contradicts, or None."""
        found = self._same_thing(said)
        if found is None and _CHANGE.search(said):
            found = self._changed(said)
        return found

    def drop(self, number: int) -> None:
        """Note that a statement no longer holds; it contradicts nothing from then on."""
        self._gone.add(number)

    def _same_thing(self, said: str) -> int | None:
        thing = self._thing(said)
        number = None if thing is None else self._things.get(thing)
        if number is None or number in self._gone or _same(self._said[number], said):
            return None
        return number

    def _changed(self, said: str) -> int | None:
        terms = frozenset(self.lexicon.terms(said)) - _CUES
        shared = Counter(number for term in terms for number in self._with.get(term, ()))
        best, most = None, 0.0
        for number, count in shared.items():
            of = len(self._terms[number] - _CUES)
            share = count / of if of else 0.0
            if number in self._gone or count < _FEWEST or share < _SHARED:
                continue
            if share > most and not _same(self._said[number], said):
                best, most = number, share
        return best

    def _thing(self, said: str) -> frozenset[str] | None:
        """Return the words of the subject of which a statement gives one value.

        Much can be said of a subject of one word; there only figures can contradict.
        """
        found = _IS.match(said)
        if found is None or len(found["what"].split()) > _MOST_WORDS:
            return None
        thing = frozenset(self.lexicon.terms(found["thing"]))
        enough = len(thing) > 1 or any(map(str.isdigit, found["what"]))
        return thing if thing and enough else None


def bare(line: str) -> str:
    """Return the content of a line, without its mark, its day and its agent.

    >>> bare("- 2026-01-02: The port is 8080. (dev-1)")
    'The port is 8080.'
    """
    return _AGENT.sub("", _DAY.sub("", _MARKS.sub("", line.strip()))).strip()


def day_of(line: str) -> str:
    """Return the day of a line, "" if it has none.

    >>> day_of("- 2026-03-01: The port is 8080. (dev-1)")
    '2026-03-01'
    """
    found = _DAY.match(_MARKS.sub("", line.strip()))
    return found.group().rstrip(": ") if found else ""


def struck(line: str, *, day: str) -> str:
    """Strike a line through, with the day of the replacement.

    >>> struck("- The port is 8080.", day="2026-02-01")
    '- ~~The port is 8080.~~ (superseded 2026-02-01)'
    """
    found = _MARKS.match(line)
    lead = found.group() if found else ""
    return f"{lead}~~{line[len(lead) :].rstrip()}~~ (superseded {day})"


def _same(a: str, b: str) -> bool:
    return a.casefold().split() == b.casefold().split()
