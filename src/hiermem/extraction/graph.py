"""Decides how results are stored by name, and how those of many sessions form one graph.

A session's result is stored twice: whole, and as one small document for each name in it (names
compare after NFKC and case folding). A query about a name reads that name's documents, one for each
session, and joins them here by the laws of ``reduce``. The tenant's graph therefore needs no second
copy that could fall behind, and erasing a session's documents removes the session from the graph.

Entities of different types stay apart; an alias is told and finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

from hiermem.extraction.reduce import entity_key, merge_entities, normalise, relation_key
from hiermem.types.brief import Brief
from hiermem.types.trivector import (
    MOST_MENTIONS,
    Entity,
    EntityKey,
    EntityType,
    Relation,
    TriVector,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NameRecord:
    """What one session says under one name.

    ``entities`` have the name, ``relations`` have one of them at an end.
    """

    session_id: str
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphEntity(Brief):
    """An entity of the tenant's graph: what all sessions say of it, and which of them do."""

    entity: Entity
    sessions: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the entity's name."""
        return self.entity.name

    @property
    def type(self) -> EntityType:
        """Return the entity's type."""
        return self.entity.type

    @property
    def description(self) -> str:
        """Return the entity's longest description."""
        return self.entity.description


@dataclass(frozen=True, slots=True)
class Neighbour(Brief):
    """A relation as seen from one of its ends: the entity at the other end, and the direction."""

    entity: EntityKey
    relation: Relation
    outgoing: bool
    sessions: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the other entity's name."""
        return self.entity.name

    @property
    def weight(self) -> float:
        """Return the relation's weight."""
        return self.relation.weight


@dataclass(frozen=True, slots=True)
class Mention(Brief):
    """A place where an entity is mentioned: messages ``start`` up to before ``stop``."""

    session_id: str
    chunk: str
    start: int
    stop: int
    entity: EntityKey


# ---------------------------------------------------------------------------------------------
# Records


@dataclass(frozen=True, slots=True)
class ResultBasis:
    """What a session's result was made from, which decides whether another result may replace it.

    ``messages`` is how many the session had and ``input`` is the hash of their content; ``tokens``
    counts what was read of it, and ``whole`` says that this was everything. ``degraded``: the
    summary was put together without the model.
    """

    messages: int
    input: str
    tokens: int
    whole: bool
    degraded: bool

    def worth(self) -> tuple[bool, bool, int]:
        """Return a value that is greater for a better result of the same input."""
        # Slicing changes the token count of a message, so the count only compares partial results.
        return self.whole, not self.degraded, 0 if self.whole else self.tokens


def write_result(vector: TriVector, basis: ResultBasis) -> str:
    """Write a session's whole result, with its basis."""
    return json.dumps({"of": asdict(basis), "vector": vector.model_dump_json()})


def read_result(body: str) -> TriVector | None:
    """Read what ``write_result`` wrote; None if the record is damaged."""
    try:
        return TriVector.model_validate_json(json.loads(body)["vector"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def replaces(basis: ResultBasis, standing: str) -> bool:
    """Return whether a result with this basis may replace the ``standing`` one.

    It may not if the standing result covers more messages, or the same messages better. A damaged
    result is always replaced.
    """
    try:
        found = json.loads(standing)["of"]
        before = ResultBasis(
            int(found["messages"]),
            str(found["input"]),
            int(found["tokens"]),
            found["whole"] is True,
            found["degraded"] is True,
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return True
    if before.input == basis.input:
        stays = before.worth() > basis.worth()
    else:
        stays = before.messages > basis.messages
    return not stays or read_result(standing) is None


def graph_records(vector: TriVector) -> dict[str, str]:
    """Return one document for each name of the result, by the name's normal form."""
    entities: dict[str, list[Entity]] = {}
    for entity in vector.entities:
        entities.setdefault(normalise(entity.name), []).append(entity)
    relations: dict[str, list[Relation]] = {}
    for relation in vector.relations:
        for end in {normalise(relation.source.name), normalise(relation.target.name)}:
            relations.setdefault(end, []).append(relation)
    documents: dict[str, str] = {}
    for name in sorted(entities):
        value = {
            "entities": [each.model_dump(mode="json") for each in entities[name]],
            "relations": [each.model_dump(mode="json") for each in relations.get(name, ())],
        }
        documents[name] = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return documents


def read_name_record(session_id: str, body: str) -> NameRecord:
    """Read a name's document; an empty one if the record is damaged."""
    try:
        found = json.loads(body)
        return NameRecord(
            session_id,
            tuple(Entity.model_validate(each) for each in found["entities"]),
            tuple(Relation.model_validate(each) for each in found["relations"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return NameRecord(session_id)


# ---------------------------------------------------------------------------------------------
# Questions


def _joined(
    items: Iterable[tuple[str, T]],
    *,
    key: Callable[[T], tuple[str, ...]],
    join: Callable[[T, T], T],
) -> list[tuple[T, tuple[str, ...]]]:
    """Join the items of one key; return each with the sessions of which it is, in order."""
    joined: dict[tuple[str, ...], T] = {}
    sessions: dict[tuple[str, ...], dict[str, None]] = {}
    for session_id, item in items:
        name = key(item)
        joined[name] = join(joined[name], item) if name in joined else item
        sessions.setdefault(name, {})[session_id] = None
    return [(item, tuple(sessions[name])) for name, item in joined.items()]


def _entities(
    named: Iterable[NameRecord], type_: EntityType | None
) -> Iterator[tuple[str, Entity]]:
    """Yield the entities of a type, or of all, each with its session."""
    for each in named:
        for entity in each.entities:
            if type_ in (None, entity.type):
                yield each.session_id, entity


def entities_named(
    named: Iterable[NameRecord], type_: EntityType | None
) -> tuple[GraphEntity, ...]:
    """Join what sessions say into one entity for each type and name, most mentioned first."""
    joined = _joined(_entities(named, type_), key=entity_key, join=merge_entities)
    found = [GraphEntity(entity, sessions) for entity, sessions in joined]
    return tuple(sorted(found, key=lambda one: (-_mentions(one.entity), one.type, one.name)))


def _mentions(entity: Entity) -> int:
    """Count the messages that mention an entity.

    A place wider than the list of messages that an answer can give is a whole chunk, whose messages
    are unknown.
    """
    wide = (place.stop - place.start for place in entity.provenance)
    return sum(1 if each > MOST_MENTIONS else each for each in wide)


def neighbours_of(named: Sequence[NameRecord], type_: EntityType | None) -> tuple[Neighbour, ...]:
    """Join the relations of the entities in ``named``, as seen from them; heaviest first."""
    mine = {entity_key(entity) for _, entity in _entities(named, type_)}
    relations = ((each.session_id, relation) for each in named for relation in each.relations)
    found: list[Neighbour] = []
    for relation, sessions in _joined(relations, key=relation_key, join=_heavier):
        for end, other, outgoing in (
            (relation.source, relation.target, True),
            (relation.target, relation.source, False),
        ):
            if entity_key(end) in mine:
                found.append(Neighbour(other, relation, outgoing, sessions))
    found.sort(key=lambda one: (-one.weight, one.relation.relation, one.name, not one.outgoing))
    return tuple(found)


def _heavier(left: Relation, right: Relation) -> Relation:
    """Join one relation of two sessions: the text of the heavier one, the places of both."""
    best = right if right.weight > left.weight else left
    places = dict.fromkeys((*left.provenance, *right.provenance))
    return best.model_copy(update={"provenance": tuple(places)})


def mentions_of(named: Iterable[NameRecord], type_: EntityType | None) -> tuple[Mention, ...]:
    """List where the entities are mentioned, by session, then place."""
    found = {
        Mention(session_id, place.chunk, place.start, place.stop, entity.key)
        for session_id, entity in _entities(named, type_)
        for place in entity.provenance
    }
    return tuple(sorted(found, key=lambda m: (m.session_id, m.start, m.stop, m.entity.type)))
