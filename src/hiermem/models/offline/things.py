"""Decides which entities a conversation names, and the kind of each.

``entity_names`` finds the names in each sentence. Here they are counted over all sentences, each
name gets the kind of its surest form, and short and long names of a person are joined. A name is
kept only where its form proves it: a capital at the start of a sentence proves nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hiermem.data import word_lists
from hiermem.extraction.reduce import normalise
from hiermem.models.offline.speech import Sentence, phrases
from hiermem.text.entity_names import NameMention, find
from hiermem.types.trivector import EntityType

_WORDS: Final = word_lists("offline_words")
#: The value of one mention, by kind, and the most of each kind in one answer, so that no kind
#: crowds out the others.
_KINDS: Final[dict[EntityType, tuple[float, int]]] = {
    "person": (2.0, 40), "organisation": (1.8, 25), "technology": (1.6, 40), "file": (1.6, 40),
    "place": (1.5, 25), "event": (1.4, 20), "class": (1.3, 25), "function": (1.3, 30),
    "url": (1.0, 12), "identifier": (1.0, 25), "concept": (1.0, 60), "date": (0.9, 25),
}  # fmt: skip
#: Kinds whose form leaves no doubt.
_FORMAL: Final = frozenset({"file", "url", "date", "function"})
_CODE: Final = frozenset({"function", "class", "identifier"})
#: Certainties of a name. Below ``_LEAST`` it is dropped. A place below ``_PLACE`` needs one of the
#: words of ``_INTO`` before it. From ``_LISTED`` on a name needs no other proof. What code defines
#: has ``_DEFINED``.
_LEAST, _PLACE, _LISTED, _DEFINED = 0.3, 0.6, 0.8, 0.95
_INTO: Final = re.compile(rf"\b{phrases('before a place')} $", re.IGNORECASE)
_EVENT_ENDS: Final = _WORDS["event ends"]


@dataclass(slots=True)
class Thing:
    """One entity: its spellings, the messages that name it, and whose they are."""

    type: EntityType
    spellings: Counter[str] = field(default_factory=Counter)
    messages: dict[int, None] = field(default_factory=dict)
    own: dict[int, None] = field(default_factory=dict)
    sure: float = 0.0
    about: str = ""
    about_worth: float = -1.0
    #: The messages in which the form of the name is proof.
    proof: dict[int, bool] = field(default_factory=dict)
    #: Whether the name stands behind words of living somewhere or going there.
    visited: bool = False

    @property
    def name(self) -> str:
        """Return the most frequent spelling, the first of equals."""
        return max(self.spellings, key=lambda spelling: self.spellings[spelling])

    @property
    def worth(self) -> float:
        """Return the value of keeping it, to compare with others."""
        frequency = len(self.messages) + 2 * len(self.own)
        return _KINDS[self.type][0] * math.log1p(frequency) * (0.4 + self.sure)

    def meet(self, sentence: Sentence, mention: NameMention) -> None:
        """Count one mention."""
        self.spellings[mention.name] += 1
        self.messages[sentence.index] = None
        if sentence.own:
            self.own[sentence.index] = None
        if mention.sure > self.sure:
            self.type, self.sure = mention.type, mention.sure
        before = sentence.text[max(0, mention.start - 24) : mention.start]
        self.visited = self.visited or _INTO.search(before) is not None
        if mention.type in _FORMAL | _CODE or mention.sure > _LEAST:
            self.proof[sentence.index] = self.proof.get(sentence.index, False) or sentence.own
        worth = _telling(sentence)
        if worth > self.about_worth:
            self.about, self.about_worth = sentence.text, worth

    def absorb(self, other: Thing) -> None:
        """Add the occurrences under another name."""
        self.spellings.update(other.spellings)
        self.messages.update(other.messages)
        self.own.update(other.own)
        self.proof.update(other.proof)
        self.visited = self.visited or other.visited
        self.sure = max(self.sure, other.sure)
        if other.about_worth > self.about_worth:
            self.about, self.about_worth = other.about, other.about_worth


def collect(
    sentences: Sequence[Sentence],
    defined: Sequence[tuple[int, EntityType, str]],
    shown: Sequence[tuple[int, str]],
    speakers: Sequence[str],
) -> list[Thing]:
    """Return the entities worth keeping, best first.

    ``defined`` is what code defines, by message, kind and name, ``shown`` the (message, file) pairs
    that code and programs name, ``speakers`` the people who speak under names of their own.
    """
    table: dict[str, Thing] = {}
    for sentence in sentences:
        for mention in find(sentence.text):
            known = table.setdefault(normalise(mention.name), Thing(mention.type))
            known.meet(sentence, mention)
    for thing in table.values():
        thing.type = _kind_of(thing)
    _add_code(table, defined, shown)
    _join_people(table, speakers)
    things: list[Thing] = []
    room: Counter[EntityType] = Counter()
    for thing in sorted(table.values(), key=lambda t: (-t.worth, t.type, t.name)):
        if room[thing.type] < _KINDS[thing.type][1] and _is_worthy(thing):
            room[thing.type] += 1
            things.append(thing)
    return things


def _kind_of(thing: Thing) -> EntityType:
    """Return the kind of a name: that of its surest form, else by the words around it."""
    kind, name = thing.type, thing.name
    if kind == "concept" and " " in name and name.lower().rsplit(" ", 1)[-1] in _EVENT_ENDS:
        return "event"
    if kind == "concept" or (kind == "place" and thing.sure < _PLACE):
        return "place" if thing.visited else "concept"
    return kind


def _telling(unit: Sentence) -> float:
    """Return how well a sentence describes a name in it."""
    return (1.0 if 40 <= len(unit.text) <= 220 else 0.35) + 0.8 * unit.own - 0.5 * unit.asks


def _is_worthy(thing: Thing) -> bool:
    """Return whether it was named by the right people, in a form that proves the name."""
    own, proof = len(thing.own), len(thing.proof)
    name, kind = thing.name, thing.type
    if kind == "person" and thing.sure == 1.0:
        return True
    if not thing.messages:
        return False
    if kind in _FORMAL | _CODE:
        plain = kind in _CODE and thing.sure < _DEFINED and name.istitle() and name.isalpha()
        least = {"file": 2, "function": 3, "class": 3}.get(kind, 99)
        return not plain and (own > 0 or len(thing.messages) >= least)
    if name.islower():
        return kind != "technology"
    if own > 0 and thing.sure >= _LISTED:
        return True
    return thing.sure >= _LEAST and (any(thing.proof.values()) or proof >= 3)


def _join_people(table: dict[str, Thing], speakers: Iterable[str]) -> None:
    """Join the short and the long name of a person, if only one long name fits."""
    folded = {normalise(name): name for name in speakers}
    for lower, name in folded.items():
        person = table.setdefault(lower, Thing("person"))
        person.spellings[name] += 1_000
        person.type, person.sure = "person", 1.0
    people = [name for name, thing in table.items() if thing.type == "person"]
    for lower in sorted(table, key=len):
        thing = table[lower]
        if thing.type not in ("person", "concept") or lower in folded or len(lower) < 3:
            continue
        longer = [
            other
            for other in people
            if other in table
            and (other.startswith(lower + " ") or (other in folded and other.startswith(lower)))
            and other != lower
        ]
        if len(longer) == 1:
            table[longer[0]].absorb(table.pop(lower))


def _add_code(
    table: dict[str, Thing],
    defined: Sequence[tuple[int, EntityType, str]],
    shown: Sequence[tuple[int, str]],
) -> None:
    """Count occurrences in code, for names that speech has too, or that code defines repeatedly."""
    times = Counter(normalise(spelling) for _, _, spelling in defined)
    for index, kind, spelling in defined:
        name = normalise(spelling)
        thing = table.get(name)
        if thing is None and (times[name] < 2 or not re.search(r"_[a-z]|[a-z][A-Z]", spelling)):
            continue
        if thing is None or spelling in thing.spellings:
            thing = table.setdefault(name, Thing(kind))
            thing.type, thing.sure = kind, _DEFINED
            thing.spellings[spelling] += 1
            thing.messages[index] = None
    tails = {name.rsplit("/", 1)[-1]: name for name in table if table[name].type == "file"}
    for index, path in shown:
        name = normalise(path.removeprefix("./"))
        thing = table.get(name) or table.get(tails.get(name.rsplit("/", 1)[-1], ""))
        if thing is not None and thing.type == "file":
            thing.spellings[path.removeprefix("./")] += 1
            thing.messages[index] = None
