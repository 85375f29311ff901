"""Decides, without a model, which earlier statement a later one replaces.

A statement is replaced only where the later one is about the same subject and the same attribute:
"The port is 8080", "The port is 9090", with the same words around the values. "80 % for the api
package" says nothing about "60 % for the holds package". A statement that names the old value
itself ("switched from Redis to Valkey for the cache", "no longer") replaces an earlier one of which
it repeats every word. In doubt both stand.

Nothing is removed. A superseded statement is struck through in its place, with the day; a reader
sees both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from hiermem.core.text.lexicon import terms_of
from hiermem.core.text.stemming import stem
from hiermem.data import word_lists

_LISTS: Final = word_lists("offline_words")
#: A statement of a value: the subject, the value, and what narrows it down ("for the api package").
#: Why or since when the value holds does not narrow it down.
_IS: Final = re.compile(
    r"(?P<thing>[^.!?;:]{2,120}?)\s+(?:is|are|=|equals|runs on|costs|takes|lasts|lives in)\s+"
    r"(?:now\s+|set to\s+)?(?P<what>[^.!?;\n]{1,60}?(?:\d\.\d[^.!?;\n]{0,40})?)"
    r"(?P<narrow>\s(?:for|of|in|on|at|per|with|by|from|to|during|under|between|when|if)\s[^.!?;\n]*?)?"
    r"(?:[\s,]+(?:since|because|as of|after|until|due to|now|again|instead)\b[^.!?;\n]*)?[.!]?\s*",
    re.IGNORECASE,
)
_CHANGE: Final = re.compile(
    r"\b(?:instead of|no longer|not any ?more|(?:changed|moved|switched|migrated|renamed) from"
    r"|replaced|replaces|supersedes|dropped|reverted)\b",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(r"\b(?:is|are|was|were|does|do|did|will|can|may)(?: not\b|n['’]t\b)")  # noqa: RUF001
#: The most words of a value; a longer text says more than one thing.
_MOST_WORDS: Final = 4
#: Words of changing and of having, which say nothing of what is changed.
_CUES: Final = frozenset(map(stem, _LISTS["change"]))
#: States of one kind, of which a thing has one at a time.
_STATES: Final = tuple(_LISTS[name] for name in _LISTS if name.startswith("state "))
_FEWEST: Final = 2
_MARKS: Final = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+")
#: The day before a line and the agent after it, which are not part of its content.
_DAY: Final = re.compile(r"^\d{4}-\d\d-\d\d:\s+")
_AGENT: Final = re.compile(r"\s+\([^()]{1,120}\)$")


@dataclass(slots=True)
class Statements:
    """The statements so far, indexed by their words."""

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
        terms = frozenset(terms_of(said)) - _CUES
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
        thing = self._thing(said)
        found = None if thing is None else self._things.get(thing)
        if (
            found is not None
            and found not in self._gone
            and self._said[found].casefold().split() != said.casefold().split()
        ):
            return found
        return self._changed(said) if _CHANGE.search(said) or _DENIED.search(said) else None

    def drop(self, number: int) -> None:
        """Note that a statement no longer holds; it contradicts nothing from then on."""
        self._gone.add(number)

    def _changed(self, said: str) -> int | None:
        """Return the statement of which every word is repeated, with what became of it."""
        terms = frozenset(terms_of(said)) - _CUES
        denied = _CHANGE.search(said) is None
        held = {number for term in terms for number in self._with.get(term, ())}
        for number in sorted(held - self._gone, reverse=True):
            old = self._terms[number]
            whole = old == terms if denied else old <= terms
            # Two denials do not contradict each other, and what was a change is no old value.
            again = _CHANGE.search(self._said[number]) or _DENIED.search(self._said[number])
            if whole and len(old) >= _FEWEST and not again:
                return number
        return None

    def _thing(self, said: str) -> frozenset[str] | None:
        """Return the words of the subject and attribute of which a statement gives one value.

        Much can be said of a subject of one word; there only figures can contradict, and states of
        one kind.
        """
        found = _IS.fullmatch(said)
        if found is None or len(found["what"].split()) > _MOST_WORDS:
            return None
        thing = frozenset(terms_of(f"{found['thing']} {found['narrow'] or ''}"))
        what = found["what"].lower()
        states = [str(at) for at, kind in enumerate(_STATES) if what in kind]
        figure = any(map(str.isdigit, what))
        kind = ["#"] if figure else [f"={state}" for state in states[:1]]
        if not thing or (len(thing) < _FEWEST and not kind):
            return None
        return thing | frozenset(kind)


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
