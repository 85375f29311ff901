"""Writes a result's graph in the notations that other tools draw: Mermaid and GraphML.

The one rule: everything that came from a conversation is escaped to the last character, so that no
name can end a label, add a node or bring markup of its own. What is left out is said in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from hiermem.errors import UsageError
from hiermem.trivector import Entity, EntityType, TriVector

__all__ = ["to_graphml", "to_mermaid"]

#: Characters that stand for themselves in a Mermaid label; every other one is written as a code.
_PLAIN: Final = re.compile(r"[^\w .,:/()+'=-]", re.UNICODE)
#: What XML 1.0 cannot hold at all.
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LABEL: Final = 48
#: A shape and a colour for each family of types; those not named are concepts.
_FAMILIES: Final[dict[str, tuple[tuple[EntityType, ...], str, str, str]]] = {
    "people": (("person", "organisation", "place"), "([", "])", "#cfe8ff"),
    "code": (("file", "function", "class", "identifier", "url"), "[", "]", "#e6e6e6"),
    "tools": (("technology",), "[[", "]]", "#d9f2d9"),
    "facts": (("number", "date", "event"), "[/", "/]", "#fff2cc"),
    "ideas": (("concept",), "(", ")", "#f0e0ff"),
}


def to_mermaid(vector: TriVector, *, most: int = 40, alone: bool = False) -> str:
    """Draw the ``most`` mentioned entities and the relations among them as a Mermaid flowchart.

    Entities without a relation to another one shown are left out, unless ``alone``. Raises
    UsageError for fewer than one entity.
    """
    if most < 1:
        raise UsageError(f"most is {most}; draw at least one entity")
    shown = list(_chosen(vector, most, alone=alone))
    places = {(entity.type, entity.name): place for place, entity in enumerate(shown)}
    lines = ["flowchart LR"]
    used: dict[str, list[str]] = {}
    for place, entity in enumerate(shown):
        family = _family(entity.type)
        _, left, right, _ = _FAMILIES[family]
        lines.append(f'    n{place}{left}"{_label(entity.name)}"{right}')
        used.setdefault(family, []).append(f"n{place}")
    drawn = 0
    for relation in vector.relations:
        source = places.get((relation.source.type, relation.source.name))
        target = places.get((relation.target.type, relation.target.name))
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


def _chosen(vector: TriVector, most: int, *, alone: bool) -> Iterable[Entity]:
    """Take the first entities, which are the most mentioned, that have a relation to draw."""
    if alone:
        return vector.entities[:most]
    ends: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for relation in vector.relations:
        source = (relation.source.type, relation.source.name)
        target = (relation.target.type, relation.target.name)
        ends.setdefault(source, set()).add(target)
        ends.setdefault(target, set()).add(source)
    linked = [each for each in vector.entities if (each.type, each.name) in ends][:most]
    kept = {(each.type, each.name) for each in linked}
    return [each for each in linked if ends[each.type, each.name] & kept]


def _family(type_: EntityType) -> str:
    return next((name for name, each in _FAMILIES.items() if type_ in each[0]), "ideas")


def _label(text: str) -> str:
    """Write a text as a label: one short line in which nothing has a meaning to Mermaid."""
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
    """Write the whole graph as GraphML 1.0, for Gephi, yEd, NetworkX and their like."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        *(
            f'  <key id="{name}" for="{of}" attr.name="{name}" attr.type="{kind}"/>'
            for of, name, kind in _KEYS
        ),
        '  <graph id="session" edgedefault="directed">',
    ]
    places: dict[tuple[str, str], int] = {}
    for place, entity in enumerate(vector.entities):
        places[entity.type, entity.name] = place
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
        source = places[relation.source.type, relation.source.name]
        target = places[relation.target.type, relation.target.name]
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
