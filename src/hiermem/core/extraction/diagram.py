"""Writes a result's graph in the notations that other tools draw: Mermaid and GraphML.

Every character from a conversation is escaped, so no name can end a label, add a node or insert
markup. The text says what was left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from hiermem.errors import UsageError
from hiermem.types.trivector import Entity, EntityType, TriVector

#: Characters that are literal in a Mermaid label; all others are written as codes.
_PLAIN: Final = re.compile(r"[^\w .,:/()+'=-]", re.UNICODE)
#: Characters that XML 1.0 cannot contain.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
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
    """Draw the ``most`` mentioned entities and the relations among them as a Mermaid flowchart.

    Entities without a relation to another drawn entity are left out, unless ``alone`` is True or no
    entity has one. Raises UsageError for fewer than one entity.
    """
    if most < 1:
        raise UsageError(f"most is {most}; draw at least one entity")
    shown = _chosen(vector, most, alone=alone)
    places = {entity.key: place for place, entity in enumerate(shown)}
    lines = ["flowchart LR"]
    used: dict[str, list[str]] = {}
    for place, entity in enumerate(shown):
        family = _family(entity.type)
        _, left, right, _ = _FAMILIES[family]
        lines.append(f'    n{place}{left}"{_label(entity.name)}"{right}')
        used.setdefault(family, []).append(f"n{place}")
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
    """Choose the most mentioned entities that have a relation to another chosen entity.

    Entities are visited from the most mentioned on. An entity with a neighbour among the earlier
    ones is chosen together with it; the first of a group waits until a neighbour comes.
    """
    ranks = {entity.key: rank for rank, entity in enumerate(vector.entities)}
    near: dict[int, set[int]] = {}
    for relation in vector.relations:
        source, target = ranks.get(relation.source), ranks.get(relation.target)
        if source is not None and target is not None:
            near.setdefault(source, set()).add(target)
            near.setdefault(target, set()).add(source)
    taken: set[int] = set()
    for rank in range(0 if alone else len(vector.entities)):
        before = sorted(other for other in near.get(rank, ()) if other < rank)
        # It is chosen with a neighbour, so it takes two places if that is not chosen yet.
        needed = 1 if taken.intersection(before) else 2
        if before and len(taken) + needed <= most:
            waiting = [other for other in before if other not in taken]
            taken |= {rank, *waiting[: most - len(taken) - 1]}
    # A graph without relations is drawn as it is.
    return [vector.entities[rank] for rank in sorted(taken)] or vector.entities[:most]


def _family(type_: EntityType) -> str:
    return next((name for name, each in _FAMILIES.items() if type_ in each[0]), "ideas")


def _label(text: str) -> str:
    """Write a text as a label: one short line in which no character has a meaning to Mermaid."""
    flat = " ".join(text.split())
    short = flat if len(flat) <= _LABEL else flat[: _LABEL - 1] + "…"
    return _PLAIN.sub(lambda match: f"#{ord(match[0])};", short)


_KEYS: Final = (
    ("node", "name", "string"),
    ("node", "type", "string"),
    ("node", "description", "string"),
    ("node", "aliases", "string"),
    ("node", "tags", "string"),
    ("node", "confidence", "double"),
    ("node", "mentions", "int"),
    ("node", "provenance", "string"),
    ("edge", "relation", "string"),
    ("edge", "weight", "double"),
    ("edge", "justification", "string"),
    ("edge", "source_messages", "string"),
)


def to_graphml(vector: TriVector) -> str:
    """Write the whole graph as GraphML 1.0, for Gephi, yEd, NetworkX and similar tools."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        *(
            f'  <key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>'
            for of, name, kind in _KEYS
        ),
        '  <graph id="session" edgedefault="directed">',
    ]
    places = {entity.key: place for place, entity in enumerate(vector.entities)}
    for place, entity in enumerate(vector.entities):
        lines.append(f'    <node id="n{place}">')
        lines += _data(
            name=entity.name,
            type=entity.type,
            description=entity.description,
            aliases="; ".join(entity.aliases),
            tags="; ".join(entity.tags),
            confidence=entity.confidence,
            mentions=len(entity.provenance),
            provenance="; ".join(f"{p.chunk}[{p.start}:{p.stop}]" for p in entity.provenance),
        )
        lines.append("    </node>")
    for number, relation in enumerate(vector.relations):
        source, target = places[relation.source], places[relation.target]
        lines.append(
            f'    <edge id={quoteattr(f"e{number}")} source="n{source}" target="n{target}">'
        )
        lines += _data(
            relation=relation.relation,
            weight=relation.weight,
            justification=relation.justification,
            source_messages="; ".join(
                f"{p.chunk}[{p.start}:{p.stop}]" for p in relation.provenance
            ),
        )
        lines.append("    </edge>")
    lines += ["  </graph>", "</graphml>"]
    return "\n".join(lines) + "\n"


def _data(**values: object) -> list[str]:
    return [
        f'      <data key="{name}">{escape(_NOT_XML.sub(" ", str(value)))}</data>'
        for name, value in values.items()
        if value != ""
    ]
