"""Decides which entities a conversation names, and the kind of each.

``entity_names`` finds the names in each sentence. Here they are counted over all sentences, each
name gets the kind of its surest form, short and long names of a person are joined, and recurring
phrases of two or three words are added as concepts. A name is kept only where its form proves it: a
capital at the start of a sentence or of a heading proves nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hiermem.data import word_lists
from hiermem.extraction.reduce import normalise
from hiermem.models.offline.speech import Definition, Sentence, phrases
from hiermem.text import language
from hiermem.text.entity_names import (
    CALENDAR,
    FUNCTION_WORDS,
    GENERIC,
    TECHNOLOGIES,
    NameMention,
    find,
)
from hiermem.text.terms import FUNCTION_WORDS as FUNCTION_WORDS_OF
from hiermem.text.terms import fold, stem
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
#: words of ``_INTO`` before it. From ``_CERTAIN`` on the neighbours are not looked at. From
#: ``_LISTED`` on a name needs no other proof. ``_DEFINED`` is the certainty of what code defines.
_LEAST, _PLACE, _CERTAIN, _LISTED, _DEFINED = 0.3, 0.6, 0.7, 0.8, 0.95
_INTO: Final = re.compile(rf"\b{phrases('before a place')} $", re.IGNORECASE)
#: Where a capital letter proves nothing, and neighbours by which a word is a part of a longer name.
_OPENS: Final = re.compile(r"(?:^|[.!?:;…—–|>]|[-*•] )[\s\"“'‘(\[]*$")  # noqa: RUF001
_PART_BEFORE: Final = re.compile(
    r"(?:\b(?!(?:The|A|An|I|In|At|On|And|But|My|Our|To|For|With|From) )[A-Z][\w.']*"
    r"(?:[- ]| of (?:the )?)|[\"“&/])$"
)
_PART_AFTER: Final = re.compile(r"(?:['’]s)? (?:[A-Z]|of the [A-Z]|& )|[\"”&/]|-[A-Za-z]")  # noqa: RUF001
_MIXED: Final = re.compile(r".*[a-z\d][A-Z].*|.*\d.*")
_TOKEN: Final = re.compile(r"[^\W\d_][\w'’-]*|[.,!?;:)]|\S")  # noqa: RUF001
#: A phrase recurs in this many messages, and in this many of people.
_SPREAD, _OWN = 3, 2
#: From this share of its occurrences behind "to", "can" and the like on, a word is a verb.
_VERB: Final = 0.2
_MOST_PHRASES: Final = 40
_EVENT_ENDS: Final = _WORDS["event ends"]
_ORDERS: Final = _WORDS["orders"]
_NO_PART: Final = FUNCTION_WORDS | CALENDAR | _WORDS["weak"]
_NO_HEAD: Final = TECHNOLOGIES | _WORDS["vague"]
#: Words that are no part of a phrase in another language, by its code.
_FOREIGN: Final = {
    code: FUNCTION_WORDS_OF[name]
    | FUNCTION_WORDS_OF[f"{name} first person"]
    | frozenset(map(fold, _WORDS[f"no part {code}"]))
    for code, name in (
        ("de", "german"), ("fr", "french"), ("es", "spanish"), ("it", "italian"),
        ("nl", "dutch"), ("pt", "portuguese"),
    )
}  # fmt: skip
_ANY_FOREIGN: Final = frozenset().union(*_FOREIGN.values())
#: Words of other languages that stand in an English conversation.
_IN_ENGLISH: Final = {"en": _ANY_FOREIGN - FUNCTION_WORDS_OF["english too"]}
_NO_NOUN: Final = ("ed", "using", "ous", "ful", "able", "ible", "ive", "ish", "less")


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
        if mention.type in _FORMAL | _CODE or _is_proof(sentence.text, mention):
            self.proof[sentence.index] = self.proof.get(sentence.index, False) or sentence.own
        worth = _telling(sentence)
        if worth > self.about_worth:
            self.about, self.about_worth = sentence.text, worth

    def absorb(self, other: Thing) -> None:
        """Add the occurrences under another name."""
        self.spellings.update(other.spellings)
        for mine, more in ((self.messages, other.messages), (self.own, other.own)):
            mine.update(more)
        self.proof.update(other.proof)
        self.visited = self.visited or other.visited
        self.sure = max(self.sure, other.sure)
        if other.about_worth > self.about_worth:
            self.about, self.about_worth = other.about, other.about_worth


def collect(
    sentences: Sequence[Sentence],
    defined: Sequence[Definition],
    shown: Sequence[tuple[int, str]],
    speakers: Sequence[str],
) -> list[Thing]:
    """Return the entities worth keeping, best first.

    ``defined`` is what code defines, ``shown`` the (message, file) pairs that code and programs
    name, ``speakers`` the people who speak under names of their own.
    """
    mentions = [find(sentence.text) for sentence in sentences]
    table: dict[str, Thing] = {}
    for sentence, sentence_mentions in zip(sentences, mentions, strict=True):
        for mention in sentence_mentions:
            known = table.setdefault(normalise(mention.name), Thing(mention.type))
            known.meet(sentence, mention)
    for thing in table.values():
        thing.type = _kind_of(thing)
    _add_code(table, defined, shown)
    _join_people(table, speakers)
    for phrase, thing in _phrases(sentences, mentions).items():
        if phrase in table and _is_worthy(table[phrase]):
            table[phrase].absorb(thing)
        else:
            table[phrase] = thing
    things: list[Thing] = []
    room: Counter[tuple[EntityType, bool]] = Counter()
    for thing in sorted(table.values(), key=lambda t: (-t.worth, t.type, t.name)):
        of = thing.type, thing.name.islower()
        if room[of] < _KINDS[thing.type][1] and _is_worthy(thing):
            room[of] += 1
            things.append(thing)
    return things


def _is_proof(text: str, mention: NameMention) -> bool:
    """Return whether the form of a name here proves that it is a name, and all of it."""
    before, after = text[max(0, mention.start - 24) : mention.start], text[mention.stop :][:12]
    if mention.sure <= _LEAST or _OPENS.search(before) or after.startswith(":"):
        return False
    if before.endswith("["):
        return False
    if mention.type == "person" or mention.sure >= _CERTAIN:
        return True
    return _MIXED.fullmatch(mention.name) is not None or not (
        _PART_BEFORE.search(before) or _PART_AFTER.match(after)
    )


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
    table: dict[str, Thing], defined: Sequence[Definition], shown: Sequence[tuple[int, str]]
) -> None:
    """Count occurrences in code, for names that speech has too, or that code defines repeatedly."""
    times = Counter(normalise(code.name) for code in defined)
    for code in defined:
        name = normalise(code.name)
        thing = table.get(name)
        if thing is None and (times[name] < 2 or not re.search(r"_[a-z]|[a-z][A-Z]", code.name)):
            continue
        if thing is None or code.name in thing.spellings:
            thing = table.setdefault(name, Thing(code.kind))
            thing.type, thing.sure = code.kind, _DEFINED
            thing.spellings[code.name] += 1
            thing.messages[code.index] = None
    bases = [name for name, thing in table.items() if thing.type == "file"]
    tails = {name.rsplit("/", 1)[-1]: name for name in bases}
    for index, path in shown:
        name = normalise(path.removeprefix("./"))
        target = name if name in table else tails.get(name.rsplit("/", 1)[-1])
        if target is not None and table[target].type == "file":
            table[target].spellings[path.removeprefix("./")] += 1
            table[target].messages[index] = None


def _phrases(
    sentences: Sequence[Sentence], mentions: Sequence[Sequence[NameMention]]
) -> dict[str, Thing]:
    """Return the phrases of two or three words that recur, the weightiest first.

    German writes nouns with a capital, so what it names is found as names.
    """
    spoken = language.guess("\n".join(sentence.text for sentence in sentences))
    if spoken == "de":
        return {}
    foreign = (_FOREIGN | _IN_ENGLISH).get(spoken or "", _ANY_FOREIGN)
    met: dict[str, Thing] = {}
    words: Counter[str] = Counter()
    as_verb: Counter[str] = Counter()
    for one, sentence_mentions in zip(sentences, mentions, strict=True):
        covered = [(m.start, m.stop) for m in sentence_mentions if m.sure > _LEAST]
        tokens = [
            "." if any(a <= t.start() < b for a, b in covered) else t.group().lower()
            for t in _TOKEN.finditer(one.text)
        ]
        tokens = ["." if fold(token) in foreign else token for token in tokens]
        tokens.append(".")
        for at, token in enumerate(tokens):
            words[token] += 1
            as_verb[token] += tokens[at - 1] in _WORDS["before a verb"]
            for size in (2, 3):
                gram = tokens[at : at + size]
                if at + size >= len(tokens) or not _is_phrase(gram):
                    continue
                phrase = " ".join(gram)
                thing = met.setdefault(phrase, Thing("concept"))
                thing.meet(one, NameMention("concept", phrase, 0, 0, 0.35))
    verbs = {word for word, number in as_verb.items() if number >= _VERB * words[word]}
    total = len({one.index for one in sentences})
    scored: list[tuple[float, str]] = []
    for phrase, thing in met.items():
        spread, own = len(thing.messages), len(thing.own)
        if spread < _SPREAD or own < _OWN:
            continue
        first, last = phrase.split()[0], phrase.split()[-1]
        if first in verbs or last in verbs:
            continue
        weight = (
            (spread + 2 * own) ** 0.5 * math.log(1 + total / spread) * (1 + phrase.count(" ") / 2)
        )
        scored.append((weight, phrase))
        thing.sure = min(0.75, 0.35 + 0.04 * (spread + own))
        if last in _EVENT_ENDS:
            thing.type = "event"
    chosen: dict[str, Thing] = {}
    parts: list[str] = []
    for _, phrase in sorted(scored, key=lambda pair: (-pair[0], pair[1])):
        whole = f" {' '.join(map(stem, phrase.split()))} "
        # A phrase inside a chosen one, or around it, adds nothing.
        if not any(whole in other or other in whole for other in parts):
            parts.append(whole)
            chosen[phrase] = met[phrase]
        if len(chosen) == _MOST_PHRASES:
            break
    return chosen


@lru_cache(maxsize=1 << 14)
def _use(word: str) -> tuple[bool, bool, bool]:
    """Return whether a word may be a part of a phrase that names something, begin it and end it."""
    part = (
        len(word) > 2
        and word.replace("-", "").isalpha()
        and word not in _NO_PART
        and (not word.endswith("ly") or word in _WORDS["in -ly"])
    )
    verbal = word.endswith(("ing", "ed")) and "-" not in word
    begins = word not in _ORDERS and (not verbal or word in _WORDS["nouns in -ing"])
    return part, part and begins, part and word not in _NO_HEAD and not word.endswith(_NO_NOUN)


def _is_phrase(gram: Sequence[str]) -> bool:
    """Return whether words may be a phrase that names something, whatever their frequency."""
    if not (_use(gram[0])[1] and _use(gram[-1])[2] and all(_use(word)[0] for word in gram)):
        return False
    generic = sum(word in GENERIC for word in gram)
    return generic <= (len(gram) > 2 or gram[-1] not in GENERIC)
