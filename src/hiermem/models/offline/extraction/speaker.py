"""Decides what speakers say of themselves and the entities that they name.

A relation counts only if the first person and its verb stand directly before the entity. ``links``
reads the text between two entities of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hiermem.models.offline.extraction.things import MarkedSentence
from hiermem.models.offline.extraction.worth import Thing

#: What a speaker says of themself, up to the entity.
_FIRST_PERSON: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(rf"\b(?:i|we)(?:['’](?:ve|m|re|ll|d))?(?: \w+ly| just| also| have| am| are| had| was| finally| recently| really| been)* (?:{verbs})\b(?: (?!(?:for|after|about|while|and|or|it|how|that|which|who|because|of|as)\b)[\w'’+-]+){{0,4}} $", re.IGNORECASE), name)  # noqa: E501, RUF001
    for verbs, name in (
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
#: "I'd like" does not mean "I like".
_WISH: Final = re.compile(r"^\w+(?:['’]d| would)\b", re.IGNORECASE)  # noqa: RUF001
#: What they decided for: only an entity directly after the verb.
_DECIDED_FOR: Final = re.compile(
    r"\b(?:i|we)(?:['’](?:ve|m|re))?(?: \w+ly| just| also| have| are| am| had| will)*"  # noqa: RUF001
    r" (?:(?:decided|opted|settled|agreed)(?: on| for| to (?:use|keep|adopt|buy|choose|pick|try"
    r"|(?:go|stay|stick) with|(?:switch|move|migrate) to))|chose|chosen|picked(?! up)"
    r"|(?:went|going|go|sticking|stick|staying|stay) with)"
    r"(?: (?:the|a|an|our|my|both|only|to use))* $",
    re.IGNORECASE,
)
#: Where they work.
_WORK_AT: Final = re.compile(
    r"\b(?:i|we)(?:['’](?:ve|m|re))?(?: \w+ly| just| also| have| are| am| been| still| now)*"  # noqa: RUF001
    r" (?:work|worked|working|employed) (?:at|for|by) (?:the )?$",
    re.IGNORECASE,
)


def of_themself(speaker: Thing, sentence: MarkedSentence) -> Iterator[tuple[str, Thing, float]]:
    """Yield what speakers say of themselves and the first entities of a sentence.

    Each is the relation, the entity and the weight.
    """
    said = sentence.said
    if said.text.rstrip().endswith("?"):
        return
    for start, _, thing in sentence.things[:4]:
        if thing is speaker or thing.type in ("number", "date"):
            continue
        before = said.text[max(0, start - 110) : start]
        if _DECIDED_FOR.search(before):
            yield "decided_for", thing, 0.7
            continue
        if thing.type == "organisation" and _WORK_AT.search(before):
            yield "works_at", thing, 0.75
            continue
        for pattern, relation in _FIRST_PERSON:
            if met := pattern.search(before):
                if relation == "likes" and _WISH.search(met.group()):
                    relation = "plans"  # noqa: PLW2901
                if relation == "plans" and thing.type in ("technology", "file", "identifier"):
                    relation = "works_with"  # noqa: PLW2901
                yield relation, thing, 0.65
                break
