"""Decides the relations between the entities of a conversation.

Each relation rests on one sentence, or on one definition in code, which is its justification; on
two sentences if the second one continues about the entity of the first ("It uses ..."). Orders and
questions state nothing and give no relation. The text between two names decides the relation. If it
decides none, two entities that share sentences often enough are ``related_to`` each other, with
little weight. A fixed number of neighbours is examined in each sentence, so the cost is linear.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from hiermem.core.extraction.reduce import normalise
from hiermem.models.offline.extraction.clause import instructs
from hiermem.models.offline.extraction.speaker import of_themself
from hiermem.models.offline.extraction.speech import Definition
from hiermem.models.offline.extraction.things import MarkedSentence
from hiermem.models.offline.extraction.worth import Thing
from hiermem.types.trivector import EntityType

_GAP: Final = 70
_NEIGHBOURS: Final = 10
_SURE: Final = 0.8
#: Two entities are related if they share a sentence in this many messages.
_TOGETHER: Final = 2
#: Relations that even an order states, such as when something is due.
_REPORTED: Final = ("due_on", "dated", "measures")
_MOST_TOGETHER: Final = 60

_Kinds: TypeAlias = frozenset[EntityType]
_THING: Final[_Kinds] = frozenset(
    {"technology", "file", "function", "class", "identifier", "concept", "url", "event"}
)
_DATED: Final[_Kinds] = frozenset({"concept", "event", "file", "person", "organisation", "place"})
_CODE: Final[_Kinds] = frozenset({"file", "function", "class", "identifier"})
_WHO: Final[_Kinds] = frozenset({"person", "organisation", "place"})
_ANY: Final[_Kinds] = _THING | _WHO
_SOMEBODY: Final[_Kinds] = frozenset({"person", "organisation"})
#: The words between a person and the verb.
_HAS: Final = (
    r"(?:['’]s|,? (?:who|and|then|has|had|have|is|was|also|just|now|already|still|currently|first"  # noqa: RUF001
    r"|recently|finally|later)\b)*"
)
_MADE: Final[_Kinds] = _THING - {"concept", "event", "url"}

_DEPENDS: Final = re.compile(
    r"\b(?:depends on|relies on|requires|needs|built (?:on|with)|based on|powered by)\b",
    re.IGNORECASE,
)

_Rows: TypeAlias = tuple[tuple[str, _Kinds, _Kinds, str], ...]
#: The text between two names, the kinds that it may join, and the relation; in order.
_ROWS: Final[_Rows] = (
    (r"^(?: instead of| rather than| in place of| over) $", _THING, _THING, "replaces"),
    (r"\b(?:replaces|replaced|supersedes)\b", _THING, _THING, "replaces"),
    (_DEPENDS.pattern, _THING, _THING, "depends_on"),
    (r"^(?: \w+){0,3} (?:extends|inherits from|subclass of) ", _CODE, _CODE, "extends"),
    (
        r"^(?: \w+){0,2} (?:calls|invokes|imports|reads|writes(?: to)?) (?:the )?$",
        _CODE,
        _THING,
        "uses",
    ),
    (
        r"^(?: \w+){0,3} (?:in|inside|from|of|is (?:in|part of)) (?:the |your |my |our )?$",
        frozenset({"function", "class", "identifier"}),
        frozenset({"file", "class", "identifier"}),
        "defined_in",
    ),
    (
        r"^(?:[\w' ,-]{0,40}) (?:using|via|with|through) (?:the |a )?$",
        _THING,
        frozenset({"technology"}),
        "uses",
    ),
    (r"^ (?:uses|used|using|with) (?:the |a )?$", _THING, _THING, "uses"),
    (
        r"^(?: \w+){0,3} (?:for|to) (?:the |my |our |its )?$",
        frozenset({"technology"}),
        frozenset({"concept", "technology"}),
        "used_for",
    ),
    (
        rf"^{_HAS} (?:works?|worked|working|employed) (?:at|for|by) (?:the )?$",
        frozenset({"person"}),
        frozenset({"organisation"}),
        "works_at",
    ),
    (
        r"\b(?:works?|worked|working) (?:for|with)\b",
        frozenset({"person"}),
        frozenset({"organisation", "person"}),
        "works_with",
    ),
    (
        (
            rf"^{_HAS} (?:wrote|writes|writing|written|built|builds|building|created|creates|made"
            r"|implemented|added|designed|developed|develops|defined|maintains|maintained"
            r"|maintaining|owns|works on|worked on|working on|rewrote|refactored|started|finished)"
            r" (?:the |a |an |our |my |their |her |his )?$"
        ),
        _SOMEBODY,
        _MADE,
        "works_on",
    ),
    (
        (
            rf"^{_HAS} (?:uses|used|using|runs|switched to|moved to|migrated to|installed"
            r"|works with) (?:the |a |an |our )?$"
        ),
        _SOMEBODY,
        _MADE,
        "uses",
    ),
    (
        r"^(?:[\w' ,-]{0,30}) (?:in|to|from|at|near) $",
        frozenset({"person", "organisation", "event", "concept"}),
        frozenset({"place"}),
        "located_in",
    ),
    (r"^(?: and|,? my \w+,) $", frozenset({"person"}), frozenset({"person"}), "with"),
    (r"\b(?:fix(?:es|ed)?|resolves?|resolved|solves?)\b", _ANY, _THING, "fixes"),
)
_BETWEEN: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), left, right, name) for pattern, left, right, name in _ROWS
)
#: The author of something, named after it.
_MADE_BY: Final = re.compile(
    r"^(?:,? \w+){0,3} (?:written|built|created|made|implemented|designed|developed|maintained"
    r"|owned) by $",
    re.IGNORECASE,
)
#: A use in reverse order: "we use SQLite in src/store.py".
_USED_IN: Final = re.compile(r"\b(?:uses?|used|using) (?:the )?$", re.IGNORECASE)
_IN: Final = re.compile(r"^ (?:in|inside|within|for) (?:the |our |my )?$", re.IGNORECASE)
#: A sentence that continues about the only entity of the sentence before.
_IT: Final = re.compile(
    r"^It(?: (?:also|only|now|just|currently|mainly|still))*"
    r" (?:(?P<uses>uses|calls|imports|invokes|runs on|talks to)"
    r"|(?P<needs>needs|requires|depends on|relies on|is (?:built|based) (?:on|with)|builds on)"
    r"|(?P<old>replaces|replaced|supersedes))(?: the| a| an| only)? $"
)
#: Suppositions state nothing.
_SUPPOSED: Final = re.compile(
    r"\b(?:if|maybe|perhaps|unless|whether|suppose|imagine|wish)\b[^,]{0,40}$", re.IGNORECASE
)
#: From one entity to another, across a sentence: "switched from A to B".
_SWITCH: Final = re.compile(
    r"\b(?:switch(?:ed|ing)?|migrat(?:ed|ing|e)|mov(?:ed|ing|e)"
    r"|chang(?:ed|ing|e)) (?:\w+ ){0,3}?from $",
    re.IGNORECASE,
)
_SWAP: Final = re.compile(
    r"\b(?:replac(?:e|ed|ing)|swapp?(?:ed|ing)?) (?:the |our |my )?$", re.IGNORECASE
)
_REPLACED_BY: Final = re.compile(r"\b(?:replaced (?:by|with)|superseded by)\b", re.IGNORECASE)
_MEASURE: Final = re.compile(
    r"\b(?:time|load|latency|respon\w+|takes?|took|around|about|to|under|over|below|at|is|are|was|of|="
    r"|within|after|limit|costs?|budget|coverage|port|size|rate|than|in|for|every|by|from)\b|[:=(]",
    re.IGNORECASE,
)
_SIDE_BY_SIDE: Final = re.compile(
    r"^(?:[\w', -]{0,40}) ?(?:with|using|via|through|alongside|on) (?:the |a )?$", re.IGNORECASE
)
_DUE: Final = re.compile(
    r"\b(?:deadline|due|by|until|before|target\w*|complet\w+|finish\w*|ends?|launch|release|deliver)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Link:
    """One relation, with its justification and messages."""

    source: Thing
    relation: str
    target: Thing
    weight: float
    justification: str
    messages: dict[int, None] = field(default_factory=dict)


def links(
    sentences: Sequence[MarkedSentence],
    defined: Sequence[Definition],
    things: Sequence[Thing],
    people: Mapping[str, Thing],
) -> list[Link]:
    """Return the relations between ``things``, heaviest first.

    ``people`` are the entities that speakers are, by the speaker's name.
    """
    found: dict[tuple[int, str, int], Link] = {}
    for relation in (*_from_code(defined, things), *_from_speech(sentences, people)):
        key = id(relation.source), relation.relation, id(relation.target)
        known = found.setdefault(key, relation)
        if known is not relation:
            known.messages.update(relation.messages)
            # Each further message that says so removes a part of the doubt.
            known.weight = min(0.95, known.weight + 0.25 * (1 - known.weight))
    joined = {frozenset((id(each.source), id(each.target))) for each in found.values()}
    together = _together(sentences, joined)
    return sorted(
        (*found.values(), *together), key=lambda link: (-link.weight, -len(link.messages))
    )


def _from_code(defined: Sequence[Definition], things: Sequence[Thing]) -> Iterator[Link]:
    """Yield the relations in definitions: a file defines a name, a class extends another."""
    by_key = {(thing.type, normalise(name)): thing for thing in things for name in thing.spellings}
    for each in defined:
        thing = by_key.get((each.kind, normalise(each.name)))
        if thing is None:
            continue
        file = by_key.get(("file", normalise(each.file.removeprefix("./")))) if each.file else None
        if file is not None:
            why = f"{each.file} defines {each.kind} {each.name}"
            yield Link(file, "defines", thing, 0.9, why, {each.index: None})
        base = by_key.get(("class", normalise(each.base.rsplit(".", 1)[-1]))) if each.base else None
        if base is not None and base is not thing:
            why = f"class {each.name}({each.base})"
            yield Link(thing, "extends", base, 0.95, why, {each.index: None})


def _from_speech(
    sentences: Sequence[MarkedSentence], people: Mapping[str, Thing]
) -> Iterator[Link]:
    """Yield the relations between the entities of sentences, in order."""
    for number, sentence in enumerate(sentences):
        said, text = sentence.said, sentence.said.text
        places = sentence.things[:_NEIGHBOURS]
        if number:
            yield from _of_the_same(sentences[number - 1], sentence)
        for (start, stop, left), (begin, _, right) in pairwise(places):
            if left is right or begin - stop > _GAP:
                continue
            gap = text[stop:begin]
            read = _read_gap(left, right, gap, before=text[:start])
            is_reported = read is not None and read[1] in _REPORTED
            supposed = _SUPPOSED.search(text[:start]) or instructs(text, begin, asks=said.asks)
            if read is not None and (is_reported or not supposed):
                source, relation, target, weight = read
                yield Link(source, relation, target, weight, text, {said.index: None})
        speaker = people.get(said.speaker)
        if speaker is not None:
            for relation, thing, weight in of_themself(speaker, sentence):
                yield Link(speaker, relation, thing, weight, text, {said.index: None})


def _read_gap(  # noqa: PLR0911 - a row of cases, the first of which holds
    left: Thing, right: Thing, gap: str, *, before: str
) -> tuple[Thing, str, Thing, float] | None:
    """Return the relation in the text between two neighbours of a sentence, None for none."""
    if any(mark in gap for mark in ";?!") or ". " in gap:
        return None
    if gap.strip().lower() == "to" and _SWITCH.search(before):
        return right, "replaces", left, 0.85
    if gap.strip().lower() in ("with", "by", "for") and _SWAP.search(before):
        return right, "replaces", left, 0.85
    if "number" in (left.type, right.type):
        figure, other = (left, right) if left.type == "number" else (right, left)
        near = len(gap) <= 45 and _MEASURE.search(gap) and other.type not in ("number", "date")
        return (figure, "measures", other, 0.6) if near and other.type in _THING else None
    if "date" in (left.type, right.type):
        day, other = (left, right) if left.type == "date" else (right, left)
        if other.type not in _DATED or len(gap) > 50:
            return None
        due = _DUE.search(gap) or _DUE.search(before[-40:])
        return other, "due_on" if due else "dated", day, 0.6 if due else 0.5
    by_side = _SIDE_BY_SIDE.search(gap) and not _DEPENDS.search(gap)
    if left.type == right.type == "technology" and by_side:
        # "With" does not say which of two products uses the other.
        first, second = sorted((left, right), key=lambda thing: thing.name.lower())
        return first, "used_with", second, 0.7
    if left.type in _MADE and right.type in _SOMEBODY and _MADE_BY.search(gap):
        return right, "works_on", left, _SURE
    used = left.type == "technology" and right.type in _CODE and _IN.match(gap)
    if used and _USED_IN.search(before):
        return right, "uses", left, _SURE
    if _REPLACED_BY.search(gap) and left.type in _THING and right.type in _THING:
        return right, "replaces", left, 0.85
    for pattern, kinds, targets, relation in _BETWEEN:
        if left.type in kinds and right.type in targets and pattern.search(gap):
            return left, relation, right, _SURE
    return None


def _of_the_same(before: MarkedSentence, sentence: MarkedSentence) -> Iterator[Link]:
    """Yield what a sentence says of "it", if the sentence before names one possible referent."""
    said, first = sentence.said, before.said
    if (first.index, first.speaker) != (said.index, said.speaker) or first.asks or said.asks:
        return
    if not sentence.things or len(meant := _subjects(before)) != 1:
        return
    start, _, other = sentence.things[0]
    found = _IT.match(said.text[:start])
    if found is None or other is meant[0] or other.type not in _THING:
        return
    relation = {"uses": "uses", "needs": "depends_on", "old": "replaces"}[found.lastgroup or "uses"]
    why = f"{first.text} {said.text}"
    yield Link(meant[0], relation, other, _SURE, why, {said.index: None})


def _subjects(sentence: MarkedSentence) -> list[Thing]:
    """Return the entities of a sentence to which "it" may refer."""
    found = {id(thing): thing for _, _, thing in sentence.things if thing.type in _THING}
    return list(found.values())


def _together(sentences: Sequence[MarkedSentence], joined: set[frozenset[int]]) -> list[Link]:
    """Return the pairs that share sentences in several messages and have no other relation."""
    pairs: dict[frozenset[int], Link] = {}
    lengths: dict[frozenset[int], int] = {}
    for sentence in sentences:
        names = [
            thing
            for _, _, thing in sentence.things[:_NEIGHBOURS]
            if thing.type not in ("number", "date")
        ]
        for at, left in enumerate(names):
            for right in names[at + 1 : at + 4]:
                key = frozenset((id(left), id(right)))
                if left is right or key in joined:
                    continue
                link = pairs.get(key)
                text = sentence.said.text
                if link is None:
                    link = pairs[key] = Link(left, "related_to", right, 0.0, text)
                    lengths[key] = len(text)
                elif 40 <= len(text) < lengths[key]:
                    link.justification, lengths[key] = text, len(text)
                link.messages[sentence.said.index] = None
    counts: Counter[frozenset[int]] = Counter({key: len(p.messages) for key, p in pairs.items()})
    chosen: list[Link] = []
    for key, number in counts.most_common():
        if number < _TOGETHER or len(chosen) == _MOST_TOGETHER:
            break
        link = pairs[key]
        fewest = min(len(link.source.messages), len(link.target.messages))
        share = number / max(1, fewest)
        if share >= 0.2:
            link.weight = round(min(0.6, 0.2 + 0.4 * share), 3)
            chosen.append(link)
    return chosen
