"""Decides the relations between the entities of a conversation.

Each relation rests on one sentence, or on one definition in code, which is its justification. The
words directly between two names decide it, or the words directly between the first person and a
name. What only stands in the same sentence is not related. Orders, requests and suppositions state
nothing and give no relation. The patterns are English. A fixed number of neighbours is examined in
each sentence, so the cost is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from hiermem.core.extraction.reduce import normalise
from hiermem.models.offline.extraction.clause import instructs, phrases
from hiermem.models.offline.extraction.speech import Definition
from hiermem.models.offline.extraction.things import MarkedSentence, Thing
from hiermem.types.trivector import EntityType

_GAP: Final = 70
_NEIGHBOURS: Final = 10
#: The text before an entity in which the first person and its verb are looked for.
_BEFORE: Final = 110

_Kinds: TypeAlias = frozenset[EntityType]
_Row: TypeAlias = tuple[re.Pattern[str], _Kinds, _Kinds, str, bool]
_CODE: Final[_Kinds] = frozenset({"file", "function", "class", "identifier"})
_TECHNOLOGY: Final[_Kinds] = frozenset({"technology"})
_TOOL: Final[_Kinds] = _CODE | _TECHNOLOGY
_CONCEPT: Final[_Kinds] = frozenset({"concept"})
_FUNCTION: Final[_Kinds] = frozenset({"function"})
_FILE: Final[_Kinds] = frozenset({"file"})
_NAMED: Final[_Kinds] = _TOOL | _CONCEPT
_TOPIC: Final[_Kinds] = frozenset({"concept", "event"})
_URL: Final[_Kinds] = frozenset({"url"})
_THING: Final[_Kinds] = _TOOL | _TOPIC | _URL
_PERSON: Final[_Kinds] = frozenset({"person"})
_WHO: Final[_Kinds] = frozenset({"person", "organisation"})
_WHERE: Final[_Kinds] = frozenset({"place", "organisation", "event", "concept"})
_PLACE: Final[_Kinds] = frozenset({"place"})

_DET: Final = r"(?:(?:the|a|an|my|our|its|their|her|his|some|both|another) )?"
#: Small words between a subject and its verb.
_ADVERBS: Final = rf"(?:['’](?:s|ve|m|re|d))?(?:,? (?:{phrases('before a relation')}|\w+ly)\b)*"  # noqa: RUF001
_EVENTS: Final = r"(?:deadline|interview|meeting|conference|workshop|session|launch|call|event)"


def _between(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^{pattern}$", re.IGNORECASE)


def _row(
    words: str,
    sources: _Kinds,
    targets: _Kinds,
    relation: str,
    *,
    free: int = 0,
    turned: bool = False,
) -> _Row:
    """Return a row for the list of ``words``; ``free`` words may stand before them."""
    before = rf"(?: \w+){{0,{free}}}" if free else _ADVERBS
    gap = _between(rf"{before} {phrases(f'between {words}')} {_DET}")
    return gap, sources, targets, relation, turned


#: The text between two neighbours, the kinds that it joins, and the relation; the first row that
#: matches counts. In rows with ``turned``, the second name is the source.
_ROWS: Final[tuple[_Row, ...]] = (
    _row("replaces", _THING, _THING, "replaces"),
    _row("replaced by", _THING, _THING, "replaces", turned=True),
    _row("depends on", _THING, _THING, "depends_on"),
    _row("extends", _CODE | _CONCEPT, _CODE | _CONCEPT, "extends"),
    _row("calls", _CODE, _THING, "uses"),
    _row("in", _CODE - _FILE, _CODE - _FUNCTION, "defined_in"),
    _row("with", _TECHNOLOGY, _TECHNOLOGY | _CONCEPT, "used_with", free=1),
    _row("works with", _NAMED, _NAMED, "works_with", free=2),
    _row("using", _CODE | _CONCEPT, _NAMED, "uses", free=4),
    _row("with a tool", _CODE | _CONCEPT, _TOOL, "uses", free=2),
    _row("uses", _THING | _WHO, _NAMED, "uses"),
    _row("for", _TECHNOLOGY, _TOPIC | _TECHNOLOGY, "used_for"),
    _row("works at", _PERSON, frozenset({"organisation"}), "works_at"),
    _row("works with", _PERSON, _WHO, "works_with"),
    _row("made", _WHO, _THING, "works_on"),
    _row("made by", _THING, _WHO, "works_on", free=2, turned=True),
    _row("at", _WHERE, _PLACE, "located_in"),
    _row("lives in", _WHO, _PLACE, "located_in"),
)
#: From one thing to another: the words before both decide, and those between them.
_FROM: Final = re.compile(
    r"\b(?:switch|migrat|mov|chang|upgrad)(?:e|ed|es|ing)? (?:\w+ ){0,3}?from $", re.IGNORECASE
)
_SWAP: Final = re.compile(r"\b(?:replac|swapp?)(?:e|ed|es|ing) (?:the |our |my )?$", re.IGNORECASE)
_OVER: Final = re.compile(
    r"\b(?:use|used|chose|chosen|prefer|picked)\b[^,.;]{0,20}$", re.IGNORECASE
)
#: What is due, and when: the words before and between.
_DUE_BEFORE: Final = re.compile(
    r"\b(?:complet|finish|submit|deliver|finali[sz]|launch|releas|publish|ship|deploy)\w* "
    rf"{_DET}(?:\w+ )?$",
    re.IGNORECASE,
)
_DUE: Final = _between(
    r"(?:,? (?:is|are|was|which is) (?:due|planned|expected)(?: on| by| for| until)?"
    r"|(?: is| of|:)? (?:due(?: on| by)?|by|before|until|on)) "
)
_DEADLINE: Final = re.compile(r"\bdeadline$", re.IGNORECASE)
_DEADLINE_FOR: Final = re.compile(r"\bdeadline (?:of|is|on) $", re.IGNORECASE)
_HELD: Final = _between(r"(?: is| was| are)?(?: scheduled| planned)?(?: for| on),? ")
_TRIP: Final = re.compile(r"\b(?:trip|vacation|flight|move|visit|holiday|retreat)$", re.IGNORECASE)
_EVENT: Final = re.compile(rf"\b{_EVENTS}s?$", re.IGNORECASE)
#: Suppositions state nothing.
_SUPPOSED: Final = re.compile(
    r"\b(?:if|maybe|perhaps|unless|whether|suppose|imagine|wish|not|never)\b[^,]{0,40}$"
    r"|\b(?:how|what|why|where|which|when|can|could|should|do|did|would) $"
    r"|n['’]t\b[^,]{0,40}$",  # noqa: RUF001
    re.IGNORECASE,
)

#: The first person, its verb, and what may stand before the name.
_I: Final = r"\b(?:i|we)" + _ADVERBS + " "
_SOME: Final = r" (?:(?:the|a|an|my|our|another|this|some|both|first|new|own|only) ){0,3}"
_ADJECTIVES: Final = (
    r"(?:(?!(?:and|or|of|in|on|for|with|to|at|it|your|their|about|that|how|\w+ing)\b)[a-z\d-]+ )"
    r"{0,2}"
)
_Said: TypeAlias = tuple[re.Pattern[str], _Kinds, str, bool]


def _said(
    words: str, kinds: _Kinds, relation: str, *, whole: bool = True, loose: bool = True
) -> _Said:
    """Return a row for the list of ``words`` after "I".

    With ``whole`` the name has to be the whole object: "a Flask extension" is no Flask. With
    ``loose`` adjectives may stand before it. What somebody has is told by its name only.
    """
    adjectives = _ADJECTIVES if loose else ""
    called = r"(?:\w+ ){1,3}(?:named|called|titled|like) "
    called = called if words == "have" else rf"(?:{called}|{adjectives})"
    verb = phrases(f"I {words}")
    if words in _WANTED:
        verb += rf"|(?:{_WANTED[words]}) to {phrases(f'I want to {words}')}"
    pattern = re.compile(rf"{_I}(?:{verb}){_SOME}{called}[\"“`]?$", re.IGNORECASE)
    return pattern, kinds, relation, whole


_WANT: Final = "trying|want|need|going|planning|hoping|plan"
#: The words of wanting that may stand before some of the verbs.
_WANTED: Final = {
    "work with": _WANT, "work on": "trying", "plan": _WANT, "study": _WANT, "see": _WANT,
}  # fmt: skip
_FIRST_PERSON: Final[tuple[_Said, ...]] = (
    _said("decide for", _THING, "decided_for", whole=False, loose=False),
    _said("work at", frozenset({"organisation"}), "works_at", loose=False),
    _said("use", _NAMED, "uses", whole=False),
    _said("work with", _NAMED, "works_with", whole=False),
    _said("work on", _THING - _TECHNOLOGY, "works_on"),
    _said("add", _TECHNOLOGY, "uses", whole=False),
    _said("plan", _TOPIC | _CODE, "plans"),
    _said("study", _TOPIC | _TECHNOLOGY, "studies"),
    _said("see", _WHERE, "plans"),
    _said("visit", _WHERE, "visited"),
    _said("join", _WHERE, "took_part_in"),
    _said("watch", _TOPIC, "watched", loose=False),
    _said("like", _WHERE | _TOOL, "likes", loose=False),
    _said("have", _THING | _PERSON, "has", loose=False),
)
_WISH: Final = re.compile(r"^\w+(?:['’]d| would) (?:like|love)\b", re.IGNORECASE)  # noqa: RUF001
#: Where the object of a verb ends.
_WHOLE: Final = re.compile(
    r"[\"”`)]*(?:\s*(?:[.,;:!?)(–—…]|-\s|$)"  # noqa: RUF001
    r"| (?:and|or|of|with|for|to|in|on|at|from|by|using|that|which|who|because|but|as|since|so|when"
    r"|while|via|today|yesterday|recently|last|this|next|now|too|again|before|after|during|through"
    r"|together|there|here|where|if|is|was|one|some|instead|once|twice|often|all|early|already|yet|v?\d)\b)"
)
_PRODUCT: Final = re.compile(r"[a-z\d][A-Z]")
_LISTED: Final = re.compile(r"(?:,|,? and|,? plus) (?:the )?")


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
    for link in (*_from_code(defined, things), *_from_speech(sentences, people)):
        if link.source is link.target:
            continue
        known = found.setdefault((id(link.source), link.relation, id(link.target)), link)
        if known is not link:
            known.messages.update(link.messages)
            # Each further message that says so removes a part of the doubt.
            known.weight = min(0.95, known.weight + 0.25 * (1 - known.weight))
    return sorted(found.values(), key=lambda link: (-link.weight, -len(link.messages)))


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
        if base is not None:
            why = f"class {each.name}({each.base})"
            yield Link(thing, "extends", base, 0.95, why, {each.index: None})


def _from_speech(
    sentences: Sequence[MarkedSentence], people: Mapping[str, Thing]
) -> Iterator[Link]:
    """Yield the relations between the entities of sentences, in order."""
    for said, named in sentences:
        text, where = said.text, {said.index: None}
        for (start, stop, left), (begin, _, right) in pairwise(named[:_NEIGHBOURS]):
            if begin - stop > _GAP:
                continue
            read = _read_gap(left, right, text[stop:begin], before=text[:start])
            if read is None:
                continue
            source, relation, target = read
            stated = relation in ("due_on", "dated") or not (
                _SUPPOSED.search(text[:begin]) or instructs(text, begin, asks=said.asks)
            )
            if stated and (said.own or relation not in ("used_with", "dated")):
                yield Link(source, relation, target, 0.8, text, where)
        if (speaker := people.get(said.speaker)) is not None:
            for relation, thing in _of_themself(speaker, said.text, named):
                yield Link(speaker, relation, thing, 0.7, text, where)


def _read_gap(  # noqa: PLR0911 - a row of cases, the first of which holds
    left: Thing, right: Thing, gap: str, *, before: str
) -> tuple[Thing, str, Thing] | None:
    """Return the relation in the text between two neighbours of a sentence, None for none."""
    if right.type == "date":
        return (left, found, right) if (found := _when(left, gap, before)) else None
    if left.type == "date":
        due = right.type in _THING and re.fullmatch(rf",? (?:for|to \w+) {_DET}(?:\w+ )?", gap)
        return (right, "due_on", left) if due and _DEADLINE_FOR.search(before) else None
    bare = gap.strip().lower()
    if left.type in _THING and right.type in _THING:
        if bare == "to" and _FROM.search(before):
            return right, "replaces", left
        if bare in ("with", "by", "for") and _SWAP.search(before):
            return right, "replaces", left
        if bare == "over" and _OVER.search(before):
            return left, "replaces", right
    if right.type == "place" and bare == "to" and _TRIP.search(left.name):
        return left, "located_in", right
    if left.type == "technology" and right.type in _CODE and re.search(r"\buse[sd]? $", before):
        return (right, "uses", left) if re.fullmatch(r" (?:in|inside) (?:the )?", gap) else None
    for pattern, kinds, targets, relation, turned in _ROWS:
        if left.type in kinds and right.type in targets and pattern.match(gap):
            if (
                relation in ("uses", "used_with", "works_with")
                and right.name.islower()
                and (right.type == "concept")
            ):
                continue
            return (right, relation, left) if turned else (left, relation, right)
    return None


def _when(thing: Thing, gap: str, before: str) -> str:
    """Return how a thing and the date after it are related, "" if they are not."""
    if thing.type not in _THING:
        return ""
    if _DEADLINE.search(thing.name):
        return "due_on" if re.fullmatch(r" (?:of|is|on|is on|for) ", gap) else ""
    if _DUE.match(gap) and ("due" in gap or _DUE_BEFORE.search(before)):
        return "due_on"
    event = thing.type == "event" or _EVENT.search(thing.name)
    return "dated" if event and _HELD.match(gap) else ""


def _of_themself(
    speaker: Thing, text: str, named: Sequence[tuple[int, int, Thing]]
) -> Iterator[tuple[str, Thing]]:
    """Yield what speakers say of themselves and the first entities of a sentence."""
    listed = ""
    end = 0
    for start, stop, thing in named[:_NEIGHBOURS]:
        if listed and thing.type == "technology" and _LISTED.fullmatch(text[end:start]):
            end = stop
            yield listed, thing
            continue
        listed = ""
        if thing is speaker:
            continue
        before = text[max(0, start - _BEFORE) : start]
        whole = _WHOLE.match(text[stop:]) is not None
        for pattern, kinds, relation, needs in _FIRST_PERSON:
            if thing.type not in kinds or (needs and not whole):
                continue
            found = pattern.search(before)
            if found is None or _SUPPOSED.search(before[: found.start()]):
                continue
            if relation == "likes" and _WISH.search(found.group()):
                continue
            if (
                relation in ("uses", "works_with")
                and thing.type == "concept"
                and not (whole or _PRODUCT.search(thing.name))
            ):
                continue
            event = relation == "visited" and thing.type == "event"
            yield "took_part_in" if event else relation, thing
            listed, end = (relation if thing.type == "technology" else ""), stop
            break
