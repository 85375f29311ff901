"""Decides how the things of a conversation stand to each other.

The one rule: each relation rests on one sentence, or on one definition in code, that is its
justification. What two names have between them tells the relation; where it tells none, two things
that share sentences often enough are ``related_to`` each other, with little weight. At most a fixed
number of neighbours is looked at in each sentence, so the cost is linear.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from hiermem.core.extract_text import Definition
from hiermem.core.extract_things import Sentence
from hiermem.core.extract_worth import Thing
from hiermem.core.reduce import normalise
from hiermem.trivector import EntityType

__all__ = ["Link", "links"]

_GAP: Final = 70
_NEIGHBOURS: Final = 10
_SURE: Final = 0.8
#: So many messages in which two things share a sentence make them related.
_TOGETHER: Final = 2
_MOST_TOGETHER: Final = 60

_Kinds: TypeAlias = frozenset[EntityType]
_THING: Final[_Kinds] = frozenset(
    {"technology", "file", "function", "class", "identifier", "concept", "url", "event"}
)
_DATED: Final[_Kinds] = frozenset({"concept", "event", "file", "person", "organisation", "place"})
_CODE: Final[_Kinds] = frozenset({"file", "function", "class", "identifier"})
_WHO: Final[_Kinds] = frozenset({"person", "organisation", "place"})
_ANY: Final[_Kinds] = _THING | _WHO

_Rows: TypeAlias = tuple[tuple[str, _Kinds, _Kinds, str], ...]
#: What stands between two names, which kinds it may join, and what it says of them. In order.
_ROWS: Final[_Rows] = (
    (r"^(?: instead of| rather than| in place of| over) $", _THING, _THING, "replaces"),
    (r"\b(?:replaces|replaced|supersedes)\b", _THING, _THING, "replaces"),
    (
        r"\b(?:depends on|relies on|requires|needs|built (?:on|with)|based on|powered by)\b",
        _THING,
        _THING,
        "depends_on",
    ),
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
        r"\b(?:works?|worked|working) (?:at|for|with)\b",
        frozenset({"person"}),
        frozenset({"organisation", "person"}),
        "works_with",
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
#: From one thing to another, across a sentence: "switched from A to B".
_SWITCH: Final = re.compile(
    r"\b(?:switch(?:ed|ing)?|migrat(?:ed|ing|e)|mov(?:ed|ing|e)"
    r"|chang(?:ed|ing|e)) (?:\w+ ){0,3}?from $",
    re.IGNORECASE,
)
#: What a speaker says of themself, up to the thing it is about.
_FIRST_PERSON: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(rf"\b(?:i|we)(?:['’](?:ve|m|re|ll|d))?(?: \w+ly| just| also| have| am| are| had| was| finally| recently| really| been)* (?:{verbs})\b(?: (?!(?:for|after|about|while|and|or|it|how|that|which|who|because|of|as)\b)[\w'’+-]+){{0,4}} $", re.IGNORECASE), name)  # noqa: E501, RUF001
    for verbs, name in (
        (r"decided|chose|chosen|picked|opted|settled|went with|going with", "decided_for"),
        (r"us(?:e|ed|ing)|set up|configured|installed|upgraded|integrated|switched", "uses"),
        (r"need|want|plan|planning|hope|hoping|trying|looking|going to|thinking of", "plans"),
        ((r"built|made|created|wrote|implemented|developed|completed|finished|painted|building|making"
         r"|working on|designed|defined|started|cooked|baked|planted"), "works_on"),
        ((r"went|visited|attended|joined|travel(?:l)?ed|took|saw|ran|signed up|volunteered|met|been"
         r"|going|hiked|watched|played|participated"), "took_part_in"),
        (r"love|loved|like|liked|enjoy|enjoyed|prefer|adore|into", "likes"),
        (r"(?:got|bought|own|adopted|received)(?: (?:a|an|my|our|another|some|this|two))", "has"),
        (r"read|reading|learn(?:ed|ing)|stud(?:y|ied|ying)|research(?:ed|ing)", "studies"),
    )
)  # fmt: skip
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
    """One relation as it was met."""

    source: Thing
    relation: str
    target: Thing
    weight: float
    justification: str
    messages: dict[int, None] = field(default_factory=dict)


def links(
    sentences: Sequence[Sentence],
    defined: Sequence[Definition],
    things: Sequence[Thing],
    people: Mapping[str, Thing],
) -> list[Link]:
    """Give the relations between ``things``, heaviest first.

    ``people`` are the things that speakers are, by the speaker's name.
    """
    found: dict[tuple[int, str, int], Link] = {}
    for relation in (*_from_code(defined, things), *_from_speech(sentences, people)):
        key = id(relation.source), relation.relation, id(relation.target)
        known = found.setdefault(key, relation)
        if known is not relation:
            known.messages.update(relation.messages)
            # Every further message that says so takes away a part of the doubt.
            known.weight = min(0.95, known.weight + 0.25 * (1 - known.weight))
    joined = {frozenset((id(each.source), id(each.target))) for each in found.values()}
    together = _together(sentences, joined)
    return sorted(
        (*found.values(), *together), key=lambda link: (-link.weight, -len(link.messages))
    )


def _from_code(defined: Sequence[Definition], things: Sequence[Thing]) -> Iterator[Link]:
    """Yield what definitions tell: which file defines a name, which class extends another."""
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


def _from_speech(sentences: Sequence[Sentence], people: Mapping[str, Thing]) -> Iterator[Link]:
    """Yield what sentences say of the things in them, in order."""
    for sentence in sentences:
        said, text = sentence.said, sentence.said.text
        places = sentence.things[:_NEIGHBOURS]
        for (start, stop, left), (begin, _, right) in pairwise(places):
            if left is right or begin - stop > _GAP:
                continue
            gap = text[stop:begin]
            if (read := _read_gap(left, right, gap, before=text[:start])) is not None:
                source, relation, target, weight = read
                yield Link(source, relation, target, weight, text, {said.index: None})
        speaker = people.get(said.speaker)
        if speaker is not None:
            yield from _of_speaker(speaker, sentence)


def _read_gap(  # noqa: PLR0911 - a row of cases, the first of which holds
    left: Thing, right: Thing, gap: str, *, before: str
) -> tuple[Thing, str, Thing, float] | None:
    """Give what stands between two neighbours in a sentence says of them, None for nothing."""
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
    if left.type == right.type == "technology" and _SIDE_BY_SIDE.search(gap):
        # Which of two products uses the other is not said by "with".
        first, second = sorted((left, right), key=lambda thing: thing.name.lower())
        return first, "used_with", second, 0.7
    if _REPLACED_BY.search(gap) and left.type in _THING and right.type in _THING:
        return right, "replaces", left, 0.85
    for pattern, kinds, targets, relation in _BETWEEN:
        if left.type in kinds and right.type in targets and pattern.search(gap):
            return left, relation, right, _SURE
    return None


def _of_speaker(speaker: Thing, sentence: Sentence) -> Iterator[Link]:
    """Yield what a speaker with a name says of themself and the things in a sentence."""
    said = sentence.said
    if said.text.rstrip().endswith("?"):
        return
    for start, _, thing in sentence.things[:4]:
        if thing is speaker or thing.type in ("number", "date"):
            continue
        before = said.text[max(0, start - 110) : start]
        for pattern, relation in _FIRST_PERSON:
            if pattern.search(before):
                if relation == "plans" and thing.type in ("technology", "file", "identifier"):
                    relation = "works_with"  # noqa: PLW2901
                yield Link(speaker, relation, thing, 0.65, said.text, {said.index: None})
                break


def _together(sentences: Sequence[Sentence], joined: set[frozenset[int]]) -> list[Link]:
    """Give the pairs that share sentences in several messages and are not joined otherwise."""
    pairs: dict[frozenset[int], Link] = {}
    told: dict[frozenset[int], int] = {}
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
                    told[key] = len(text)
                elif 40 <= len(text) < told[key]:
                    link.justification, told[key] = text, len(text)
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
