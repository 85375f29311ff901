"""Decides how a result's graph is drawn as a Mermaid flowchart.

Every character from a conversation is escaped, so no name can end a label, add a node or insert
markup. The text says what was left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hiermem.errors import UsageError
from hiermem.types.trivector import Entity, EntityType, TriVector

#: Characters that are literal in a Mermaid label; all others are written as codes.
_PLAIN: Final = re.compile(r"[^\w .,:/()+'=-]", re.UNICODE)
_LABEL: Final = 48
#: A shape and a colour for each family of types; all other types are concepts.
_FAMILIES: Final[dict[str, tuple[tuple[EntityType, ...], str, str, str]]] = {
    "people": (("person", "organisation", "place"), "([", "])", "#cfe8ff"),
    "code": (("file", "function", "class", "identifier", "url"), "[", "]", "#e6e6e6"),
    "tools": (("technology",), "[[", "]]", "#d9f2d9"),
    "facts": (("number", "date", "event"), "[/", "/]", "#fff2cc"),
    "ideas": (("concept",), "(", ")", "#f0e0ff"),
}


def to_mermaid(vector: TriVector, *, most: int = 40, alone: bool = False) -> str:
    """Draw ``most`` entities and the relations among them as a Mermaid flowchart.

    They are the ends of the heaviest relations. Entities without a relation to another drawn entity
    are left out, unless ``alone`` is True or no entity has one: the most mentioned are drawn then.
    Raises UsageError for fewer than one entity.
    """
    if most < 1:
        raise UsageError(f"most is {most}; draw at least one entity")
    shown = _chosen(vector, most, alone=alone)
    places = {entity.key: number for number, entity in enumerate(shown)}
    lines = ["flowchart LR"]
    used: dict[str, list[str]] = {}
    for number, entity in enumerate(shown):
        family = _family(entity.type)
        _, opening, right, _ = _FAMILIES[family]
        lines.append(f'    n{number}{opening}"{_label(entity.name)}"{right}')
        used.setdefault(family, []).append(f"n{number}")
    drawn = 0
    for relation in vector.relations:
        source, target = places.get(relation.source), places.get(relation.target)
        if source is not None and target is not None:
            drawn += 1
            lines.append(f'    n{source} -->|"{_label(relation.relation)}"| n{target}')
    for family, ids in used.items():
        colour = _FAMILIES[family][3]
        lines.append(f"    classDef {family} fill:{colour},stroke:#555,color:#111")
        lines.append(f"    class {','.join(ids)} {family}")
    lines.append(
        f"    %% {len(shown)} of {len(vector.entities)} entities, "
        f"{drawn} of {len(vector.relations)} relations"
    )
    return "\n".join(lines) + "\n"


def _chosen(vector: TriVector, most: int, *, alone: bool) -> Sequence[Entity]:
    """Choose the entities of the first relations, as far as both ends have a place."""
    ranks = {entity.key: rank for rank, entity in enumerate(vector.entities)}
    chosen: set[int] = set()
    for relation in () if alone else vector.relations:
        source, target = ranks.get(relation.source), ranks.get(relation.target)
        if source is None or target is None or source == target:
            continue
        if len(chosen | {source, target}) <= most:
            chosen |= {source, target}
    # A graph without relations is drawn as it is.
    return [vector.entities[rank] for rank in sorted(chosen)] or vector.entities[:most]


def _family(type_: EntityType) -> str:
    return next((name for name, each in _FAMILIES.items() if type_ in each[0]), "ideas")


def _label(text: str) -> str:
    """Write a text as a label: one short line in which no character has a meaning to Mermaid."""
    flat = " ".join(text.split())
    short = flat if len(flat) <= _LABEL else flat[: _LABEL - 1] + "…"
    return _PLAIN.sub(lambda match: f"#{ord(match[0])};", short)
