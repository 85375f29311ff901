"""Decides which entities of a conversation are worth keeping, and in which order.

An entity is kept if people mention it more than once, or in a significant form. Names that occur
only in a program's output or in one piece of advice are dropped. No kind crowds out the others.
``things`` finds and counts them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hiermem.data import word_lists
from hiermem.types.trivector import EntityType

#: The value of one mention, by kind.
_WORTH: Final[dict[EntityType, float]] = {
    "person": 2.0,
    "organisation": 1.8,
    "technology": 1.6,
    "file": 1.6,
    "class": 1.3,
    "function": 1.3,
    "place": 1.5,
    "event": 1.4,
    "url": 1.0,
    "identifier": 1.0,
    "concept": 1.0,
    "date": 0.9,
    "number": 0.8,
}
#: The most of each kind in one answer, so that no kind crowds out the others. Concepts that are
#: names have the same number in addition: recurring phrases must not crowd them out.
_MOST: Final[dict[EntityType, int]] = {
    "person": 40,
    "organisation": 25,
    "technology": 40,
    "file": 40,
    "class": 25,
    "function": 30,
    "place": 25,
    "event": 20,
    "url": 12,
    "identifier": 25,
    "concept": 40,
    "date": 25,
    "number": 25,
}
_EVENT_ENDS: Final = word_lists("offline_words")["event ends"]


@dataclass(slots=True)
class Thing:
    """One entity: its spellings, the messages that name it, and whose they are."""

    type: EntityType
    spellings: Counter[str] = field(default_factory=Counter)
    messages: dict[int, None] = field(default_factory=dict)
    own: dict[int, None] = field(default_factory=dict)
    details: Counter[str] = field(default_factory=Counter)
    sure: float = 0.0
    about: str = ""
    about_worth: float = -1.0
    company: bool = False

    @property
    def name(self) -> str:
        """Return the most frequent spelling, the first of equals."""
        return max(self.spellings, key=lambda spelling: self.spellings[spelling])

    @property
    def worth(self) -> float:
        """Return the value of keeping it, to compare with others."""
        said = len(self.messages) + 2 * len(self.own)
        return _WORTH[self.type] * math.log1p(said) * (0.4 + self.sure)

    def absorb(self, other: Thing) -> None:
        """Add the occurrences under another name or kind."""
        self.spellings.update(other.spellings)
        self.messages.update(other.messages)
        self.own.update(other.own)
        self.details.update(other.details)
        self.sure = max(self.sure, other.sure)
        self.company = self.company or other.company
        if other.about_worth > self.about_worth:
            self.about, self.about_worth = other.about, other.about_worth


def keep(things: Iterable[Thing], speakers: frozenset[str], plain: Counter[str]) -> list[Thing]:
    """Return the entities worth keeping, best first, within the maximum of each kind.

    ``speakers`` are the words of the names of those who speak; ``plain`` says how often each word
    is written in lower case.
    """
    room: Counter[tuple[EntityType, bool]] = Counter()
    kept: list[Thing] = []
    for thing in sorted(things, key=lambda t: (-t.worth, t.type, t.name)):
        _name_event(thing)
        if _is_plain(thing, plain):
            continue
        table = thing.type, thing.type == "concept" and thing.name != thing.name.lower()
        if room[table] < _MOST[thing.type] and _is_worthy(thing, speakers):
            room[table] += 1
            kept.append(thing)
    return kept


def _name_event(thing: Thing) -> None:
    last = thing.name.lower().rsplit(" ", 1)[-1]
    if thing.type == "concept" and " " in thing.name and last in _EVENT_ENDS:
        thing.type = "event"


def _is_plain(thing: Thing, plain: Counter[str]) -> bool:
    """Return whether a seeming name is a word that is written in lower case as often."""
    name = thing.name
    if thing.type not in ("concept", "organisation", "place") or not name[1:].islower():
        return False
    return name[0].isupper() and plain[name.lower()] >= thing.spellings[name]


def _is_worthy(  # noqa: PLR0911 - a row of cases, the first of which holds
    thing: Thing, speakers: frozenset[str]
) -> bool:
    """Return whether it was named by the right people, often enough or with enough certainty."""
    own, spread = len(thing.own), len(thing.messages)
    if not thing.messages:
        return thing.type == "person" and thing.sure == 1.0
    if thing.type == "number":
        # A figure alone says nothing; it has to measure something.
        return own > 0 and thing.company and thing.name not in ("100%", "100 %")
    if thing.type == "date":
        return own > 0
    if thing.type == "concept" and any(part in speakers for part in thing.name.lower().split()):
        return False
    if thing.type in ("file", "person", "place", "organisation"):
        return own > 0 or spread > 1
    if thing.type in ("url", "function", "class", "technology"):
        return own > 0 or spread > 2
    if thing.type == "identifier":
        return own > 0 and (spread > 1 or thing.sure > 0.8)
    capital = thing.name != thing.name.lower()
    if capital and thing.sure < 0.6 and " " not in thing.name:
        return own > 1 or (own > 0 and spread > 3)
    return (own > 0 and spread > 1) or (own > 0 and " " in thing.name and capital)
