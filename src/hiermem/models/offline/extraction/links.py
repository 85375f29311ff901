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
from hiermem.models.offline.extraction.clause import instructs
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
_TOOL: Final[_Kinds] = _CODE | {"technology"}
_NAMED: Final[_Kinds] = _TOOL | {"concept"}
_TOPIC: Final[_Kinds] = frozenset({"concept", "event"})
_THING: Final[_Kinds] = _TOOL | _TOPIC | {"url"}
_PERSON: Final[_Kinds] = frozenset({"person"})
_WHO: Final[_Kinds] = frozenset({"person", "organisation"})
_WHERE: Final[_Kinds] = frozenset({"place", "organisation", "event", "concept"})
_PLACE: Final[_Kinds] = frozenset({"place"})

_DET: Final = r"(?:(?:the|a|an|my|our|its|their|her|his|some|both|another) )?"
#: Small words between a subject and its verb.
_ADVERBS: Final = (
    r"(?:['’](?:s|ve|m|re|d))?(?:,? (?:who|which|that|and|then|has|had|have|is|was|are|am|been|also|just|now"  # noqa: RUF001
    r"|already|still|currently|first|recently|finally|later|really|\w+ly)\b)*"
)
_USES: Final = r"(?:uses?|used|using|runs?(?: on)?|switched to|moved to|migrated to|installed)"
_MADE: Final = (
    r"(?:wrote|writes|writing|written|built|builds|building|created|creates|creating|made"
    r"|implemented|implementing|added|designed|designing|developed|develops|developing|defined"
    r"|maintains|maintained|maintaining|owns|works on|worked on|working on|rewrote|refactored"
    r"|started|finished|finishing|finalizing|completed|drafted|painted|baked|launched|organi[sz]ed)"
)
_EVENTS: Final = r"(?:deadline|interview|meeting|conference|workshop|session|launch|call|event)"


def _between(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"^{pattern}$", re.IGNORECASE)


#: The text between two neighbours, the kinds that it joins, and the relation; the first row that
#: matches counts. In rows with True, the second name is the source.
_ROWS: Final[tuple[_Row, ...]] = (
    (_between(r" (?:instead of|rather than|in place of) "), _TOOL, _TOOL, "replaces", False),
    (_between(rf"{_ADVERBS} (?:replaces|replaced|supersedes) {_DET}"), _THING, _THING, "replaces",
     False),
    (_between(rf"{_ADVERBS} (?:replaced|superseded) (?:by|with) {_DET}"), _THING, _THING,
     "replaces", True),
    (_between(rf"{_ADVERBS} (?:depends on|relies on|requires|needs|built (?:on|with)"
      rf"|built on top of|based on|powered by) {_DET}"), _THING, _THING, "depends_on", False),
    (_between(rf"{_ADVERBS} (?:extends|inherits from|(?:a )?subclass of) {_DET}"), _CODE | {"concept"},
     _CODE | {"concept"}, "extends", False),
    (_between(rf"{_ADVERBS} (?:calls|invokes|imports|reads|writes(?: to)?) {_DET}"), _CODE, _THING,
     "uses", False),
    (_between(rf"(?: function| method| class)?(?: is)? (?:in|inside|from) {_DET}"),
     frozenset({"function", "class", "identifier"}), frozenset({"file", "class"}), "defined_in",
     False),
    (_between(rf"(?: \w+)? (?:with|on|using|alongside) {_DET}"), frozenset({"technology"}),
     frozenset({"technology", "concept"}), "used_with", False),
    (_between(rf"(?: \w+){{0,2}} (?:(?:integrates|works)(?: \w+ly)?|is compatible) with {_DET}"), _NAMED,
     _NAMED, "works_with", False),
    (_between(rf"(?: (?:is|are) \w+| \w+){{0,2}} (?:using|via|with|through) {_DET}"), _TOPIC | _CODE,
     _TOOL | {"concept"}, "uses", False),
    (_between(rf"{_ADVERBS} {_USES} {_DET}"), _THING | _WHO, _NAMED, "uses", False),
    (_between(rf" for {_DET}"), frozenset({"technology"}), _TOPIC | {"technology"}, "used_for",
     False),
    (_between(rf"{_ADVERBS} (?:works?|worked|working|employed) (?:at|for|by) (?:the )?"), _PERSON,
     frozenset({"organisation"}), "works_at", False),
    (_between(rf"{_ADVERBS} (?:works?|worked|working) with "), _PERSON, _WHO, "works_with", False),
    (_between(rf"{_ADVERBS} {_MADE} {_DET}"), _WHO, _THING, "works_on", False),
    (_between(r"(?:,? \w+){0,2} (?:written|built|created|made|implemented|designed|developed"
      r"|maintained|owned|organi[sz]ed|led) by "), _THING, _WHO, "works_on", True),
    (_between(r" (?:in|at|near) "), _WHERE, _PLACE, "located_in", False),
    (_between(rf"{_ADVERBS} (?:lives?|lived|living|moved|based|born) (?:in|to) "), _WHO, _PLACE,
     "located_in", False),
)  # fmt: skip
#: From one thing to another: the words before both decide, and those between them.
_FROM: Final = re.compile(
    r"\b(?:switch|migrat|mov|chang|upgrad)(?:e|ed|es|ing)? (?:\w+ ){0,3}?from $", re.IGNORECASE
)
_SWAP: Final = re.compile(r"\b(?:replac|swapp?)(?:e|ed|es|ing) (?:the |our |my )?$", re.IGNORECASE)
_OVER: Final = re.compile(r"\b(?:use|used|chose|chosen|prefer|picked)\b[^,.;]{0,20}$", re.IGNORECASE)
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

#: The first person, its verb, and what may stand before the name; then whether the name has to be
#: the whole object: "a Flask extension" is no Flask.
_I: Final = r"\b(?:i|we)" + _ADVERBS + " "
_WANT: Final = r"(?:trying|want|need|going|planning|hoping|plan) to "
_MAKE: Final = (
    r"(?:implement|build|create|write|finish|complete|improve|design|add|optimi[sz]e|structure"
    r"|develop|finali[sz]e|refactor|update|prepare|deploy|document|organi[sz]e|integrate)"
)
_SOME: Final = r" (?:(?:the|a|an|my|our|another|this|some|both|first|new|own|only) ){0,3}"
_ADJECTIVES: Final = (
    r"(?:(?!(?:and|or|of|in|on|for|with|to|at|it|your|their|about|that|how|\w+ing)\b)[a-z\d-]+ ){0,2}"
)
_Said: TypeAlias = tuple[re.Pattern[str], _Kinds, str, bool]


def _said(verbs: str, *, loose: bool = True) -> re.Pattern[str]:
    return re.compile(
        rf"{_I}(?:{verbs}){_SOME}(?:(?:\w+ ){{1,3}}(?:called|titled|like) |"
        rf"{_ADJECTIVES if loose else ''})[\"“`]?$",
        re.IGNORECASE,
    )


_FIRST_PERSON: Final[tuple[_Said, ...]] = (
    (_said(r"(?:decided|opted|settled|agreed)(?: on| for| to (?:use|keep|adopt|buy|choose|pick|try"
           r"|(?:go|stay|stick) with|(?:switch|move|migrate) to))|chose|chosen|picked(?! up)"
           r"|(?:went|going|go|sticking|stick|staying|stay) with", loose=False),
     _THING, "decided_for", False),
    (_said(r"(?:work|worked|working|employed) (?:at|for|by)", loose=False),
     frozenset({"organisation"}), "works_at", True),
    (_said(r"us(?:e|ed|ing)|set(?:ting)? up|configured|installed|upgraded(?: to)?|integrated"
           r"|switched to|moved to|migrated to|running|adopted"), _TOOL | {"concept"}, "uses", False),
    (_said(rf"{_WANT}(?:use|integrate|set up|configure|install|initiali[sz]e|switch to|move to"
           r"|migrate to|deploy (?:to|on|with)|try)|working with"
           r"|thinking of using"), _TOOL | {"concept"}, "works_with", False),
    (_said(rf"{_MADE}|trying to {_MAKE}"), _THING - {"technology"}, "works_on", True),
    (_said("added"), frozenset({"technology"}), "uses", False),
    (_said(rf"{_WANT}{_MAKE}"), _TOPIC | _CODE, "plans", True),
    (_said(r"stud(?:y|ied|ying)|learn(?:ed|ing)|research(?:ed|ing)|read|(?:re)?reading|finished"
           rf" (?:re)?reading|{_WANT}(?:learn|understand(?: why)?|study|read)"),
     _TOPIC | {"technology"}, "studies", True),
    (_said(rf"{_WANT}(?:visit|see|go to|travel to|attend|join|watch|move to)"
           r"|planning (?:a|my|our|the) (?:\w+ )?(?:trip|visit|move) to"), _WHERE, "plans", True),
    (_said(r"went to|visited|travell?ed to|flew to|been to"), _WHERE | _PLACE, "visited", True),
    (_said(r"attended|joined|took part in|signed up for|volunteer(?:ed|ing)? (?:at|for)"
           r"|participated in|ran|competed in"), _WHERE, "took_part_in", True),
    (_said(r"watched|saw|(?:re)?watching|finished watching", loose=False), _TOPIC, "watched", True),
    (_said(r"love|loved|like|liked|enjoy|enjoyed|prefer|adore|(?:love|loved|enjoy|enjoyed|like)"
           r" (?:reading|watching|playing|visiting)", loose=False), _WHERE | _TOOL, "likes", True),
    (_said(r"(?:got|bought|own|adopted|have|has) (?:a|an|another|my|our|two|this)(?: \w+){0,3}"
           r" (?:named|called)", loose=False), _THING | _PERSON, "has", True),
)  # fmt: skip
_WISH: Final = re.compile(r"^\w+(?:['’]d| would) (?:like|love)\b", re.IGNORECASE)  # noqa: RUF001
#: Where the object of a verb ends.
_WHOLE: Final = re.compile(
    r"[\"”`)]*(?:\s*(?:[.,;:!?)(–—…]|-\s|$)"  # noqa: RUF001
    r"| (?:and|or|of|with|for|to|in|on|at|from|by|using|that|which|who|because|but|as|since|so|when"
    r"|while|via|today|yesterday|recently|last|this|next|now|too|again|before|after|during|through"
    r"|where|if|is|was|one|some|instead|once|twice|often|all|early|already|yet|v?\d)\b)"
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
    for sentence in sentences:
        said, text = sentence.said, sentence.said.text
        where = {said.index: None}
        for (start, stop, left), (begin, _, right) in pairwise(sentence.things[:_NEIGHBOURS]):
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
            for relation, thing in _of_themself(speaker, sentence):
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
            if relation in ("uses", "used_with", "works_with") and right.name.islower() and (
                right.type == "concept"
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


def _of_themself(speaker: Thing, sentence: MarkedSentence) -> Iterator[tuple[str, Thing]]:
    """Yield what speakers say of themselves and the first entities of a sentence."""
    text = sentence.said.text
    listed = ""
    end = 0
    for start, stop, thing in sentence.things[:_NEIGHBOURS]:
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
            if relation in ("uses", "works_with") and thing.type == "concept" and not (
                whole or _PRODUCT.search(thing.name)
            ):
                continue
            event = relation == "visited" and thing.type == "event"
            yield "took_part_in" if event else relation, thing
            listed, end = (relation if thing.type == "technology" else ""), stop
            break
