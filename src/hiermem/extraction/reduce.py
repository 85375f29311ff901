"""Decides how the findings of a session's chunks become one graph, and the graph a result.

A ``Graph`` holds what is known from some chunks. It has no caps, can be merged, and is the same
kind of value for one chunk as for all of them. ``reduce`` merges any number in the order of their
chunk numbers; ``finish`` makes the user's ``TriVector`` of the last.

Three laws hold, each tested as a property: the order in which graphs are given does not matter;
merging a graph with itself changes nothing; merging neighbours is associative. They hold because
every field is a union, a maximum with ties to the earlier chunk, or the value of the last chunk
that has one.

Two entities are the same exactly if type and name agree after NFKC and case folding. So two things
that share both are merged, which is a documented limit, and a name with two types stays two.

Decisions that need all chunks are made once, by ``finish``, in fixed order. Relations are resolved
to entities; those with an undefined end are dropped. Open items that a later statement settles are
closed; statements that settled nothing are dropped. Then everything is sorted and cut to the
limits. The same graph gives the same result, and whatever is left out is counted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from hiermem.calls.answers import blank
from hiermem.data import word_lists
from hiermem.extraction.chunks import Chunk, chunk_number
from hiermem.text.terms import stem
from hiermem.types.ranges import ranges_of
from hiermem.types.trivector import (
    Answer,
    Delta,
    Entity,
    EntityKey,
    Provenance,
    Relation,
    Stats,
    Strategy,
    TriVector,
)

_Key: TypeAlias = tuple[str, ...]
_Item = TypeVar("_Item", Entity, Relation, Delta, Strategy)

_ENDING: Final = " .,;:!?…。！？"  # noqa: RUF001


class Graph(BaseModel):
    """What is known from some chunks of one session, before any cap.

    ``chunks`` are their ids by number; ``summaries`` the summary of each, with its number;
    ``features`` each feature with the numbers of the chunks that name it; ``dropped`` how many
    items of a chunk's answer could not be used, with its number; ``places`` everything that the
    chunks cover, which is the provenance of an item that named no message. Items are in the order
    of their first occurrence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    chunks: tuple[str, ...] = ()
    summaries: tuple[tuple[int, str], ...] = ()
    features: tuple[tuple[str, tuple[int, ...]], ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()
    places: tuple[Provenance, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    deltas: tuple[Delta, ...] = ()
    strategy: tuple[Strategy, ...] = ()


def normalise(name: str) -> str:
    r"""Return the form under which two spellings of a name are the same.

    >>> normalise("\uff33QLite  3")
    'sqlite 3'
    """
    # Case folding can undo a composition by NFKC, so it is done between two of them.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def _said(text: str) -> str:
    """Return the form under which two lines are the same."""
    return normalise(text).strip(_ENDING)


def ground(answer: Answer, chunk: Chunk, *, dropped: int = 0) -> Graph:
    """Add provenance to a model's answer for ``chunk``.

    Message numbers outside the chunk are ignored; an item left without any refers to the whole
    chunk. An item that names nothing is left out and counted, together with those ``dropped``
    before.
    """
    # The pieces of one sliced message are one place.
    covered = dict.fromkeys((span.start, span.stop) for span in chunk.spans)
    whole = tuple(Provenance(chunk=chunk.id, start=a, stop=b) for a, b in covered)
    spots = partial(_places, whole)
    entities = tuple(
        Entity(
            type=each.type,
            name=_spelt(each.name),
            aliases=_without(map(_spelt, each.aliases), _spelt(each.name)),
            description=" ".join(each.description.split()),
            tags=_distinct(filter(None, map(normalise, each.tags))),
            confidence=each.confidence,
            provenance=spots(each.messages),
        )
        for each in answer.entities
        if not blank(each.name)
    )
    relations = tuple(
        Relation(
            source=EntityKey(type=each.source.type, name=_spelt(each.source.name)),
            relation=normalise(each.relation).replace(" ", "_"),
            target=EntityKey(type=each.target.type, name=_spelt(each.target.name)),
            weight=each.weight,
            justification=" ".join(each.justification.split()),
            provenance=spots(each.messages),
        )
        for each in answer.relations
        if not any(
            map(blank, (each.relation, each.justification, each.source.name, each.target.name))
        )
    )
    deltas = tuple(
        Delta(
            kind=each.kind,
            text=" ".join(each.text.split()),
            open=each.open,
            closed_by=None if each.open else spots(each.messages)[-1],
            provenance=spots(each.messages),
        )
        for each in answer.deltas
        if not blank(_said(each.text))
    )
    strategy = tuple(
        Strategy(kind=each.kind, text=" ".join(each.text.split()), provenance=spots(each.messages))
        for each in answer.strategy
        if not blank(_said(each.text))
    )
    before = (answer.entities, answer.relations, answer.deltas, answer.strategy)
    after = (entities, relations, deltas, strategy)
    dropped += sum(map(len, before)) - sum(map(len, after))
    summary = answer.summary.strip()
    features = dict.fromkeys(map(normalise, answer.features))
    grounded = Graph(
        chunks=(chunk.id,),
        summaries=((chunk.number, summary),) if summary else (),
        features=tuple((name, (chunk.number,)) for name in features if not blank(name)),
        dropped=((chunk.number, dropped),) if dropped else (),
        places=whole,
        entities=entities,
        relations=relations,
        deltas=deltas,
        strategy=strategy,
    )
    # An answer may name one thing twice; a graph holds it once.
    return _gathered([grounded])


def _places(whole: tuple[Provenance, ...], messages: Sequence[int]) -> tuple[Provenance, ...]:
    """Return the contiguous runs of those ``messages`` within a chunk, or the ``whole`` of it."""
    inside = (n for n in messages if any(place.start <= n < place.stop for place in whole))
    return (
        tuple(Provenance(chunk=whole[0].chunk, start=a, stop=b) for a, b in ranges_of(inside))
        or whole
    )


def _spelt(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).split())


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _without(values: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(value for value in dict.fromkeys(values) if value and value != name)


def reduce(graphs: Iterable[Graph]) -> Graph:
    """Merge graphs in the order of their chunk numbers, whatever order they are given in."""

    def place(graph: Graph) -> tuple[int, int, str]:
        # Of two that begin alike the longer comes first, so a repeated graph changes nothing.
        return chunk_number(graph.chunks[0]), -len(graph.chunks), graph.model_dump_json()

    return _gathered(sorted((graph for graph in graphs if graph.chunks), key=place))


def _gathered(graphs: Sequence[Graph]) -> Graph:
    """Merge graphs in the given order, in one pass over all their items."""
    chunks = {name: chunk_number(name) for graph in graphs for name in graph.chunks}
    summaries: dict[int, str] = {}
    features: dict[str, set[int]] = {}
    dropped: dict[int, int] = {}
    for graph in graphs:
        dropped |= graph.dropped
        for number, text in graph.summaries:
            summaries.setdefault(number, text)
        for feature, numbers in graph.features:
            features.setdefault(feature, set()).update(numbers)
    return Graph(
        chunks=tuple(sorted(chunks, key=lambda name: (chunks[name], name))),
        summaries=tuple(sorted(summaries.items())),
        features=tuple((name, tuple(sorted(numbers))) for name, numbers in features.items()),
        dropped=tuple(sorted(dropped.items())),
        places=_union(graph.places for graph in graphs),
        entities=joined((entity_key(e), e) for g in graphs for e in g.entities),
        relations=joined((relation_key(r), r) for g in graphs for r in g.relations),
        deltas=joined(((_said(d.text),), d) for g in graphs for d in g.deltas),
        strategy=joined(((_said(s.text),), s) for g in graphs for s in g.strategy),
    )


def joined(items: Iterable[tuple[_Key, _Item]]) -> tuple[_Item, ...]:
    """Join the items of each key, in order; keys in the order of their first occurrence."""
    groups: dict[_Key, list[_Item]] = {}
    for key, item in items:
        groups.setdefault(key, []).append(item)
    return tuple(map(merged, groups.values()))


def merged(group: Sequence[_Item]) -> _Item:
    """Make one item of several that are the same, given in order."""
    first = group[0]
    if len(group) == 1:
        return first
    changes: dict[str, object] = {"provenance": _union(each.provenance for each in group)}
    if isinstance(first, Entity):
        changes |= _entity_changes([each for each in group if isinstance(each, Entity)])
    elif isinstance(first, Relation):
        # max gives the first of equals: ties go to the earlier chunk.
        heaviest = max((e for e in group if isinstance(e, Relation)), key=lambda e: e.weight)
        changes |= {"weight": heaviest.weight, "justification": heaviest.justification}
    elif isinstance(first, Delta):
        # The last statement holds; two in one place count as settled.
        last = max((e for e in group if isinstance(e, Delta)), key=_spoken)
        changes |= {"open": last.open, "closed_by": last.closed_by}
    return first.model_copy(update=changes)


def _entity_changes(group: Sequence[Entity]) -> dict[str, object]:
    names = (name for each in group for name in (each.name, *each.aliases))
    return {
        "aliases": _without(names, group[0].name),
        "description": max((each.description for each in group), key=len),
        "tags": _distinct(tag for each in group for tag in each.tags),
        "confidence": max(each.confidence for each in group),
    }


def _union(groups: Iterable[Sequence[Provenance]]) -> tuple[Provenance, ...]:
    places = {order(each): each for group in groups for each in group}
    return tuple(places[key] for key in sorted(places))


def order(provenance: Provenance) -> tuple[int, int, int, str]:
    """Return the sort key of a place: chunk number, message, then session id."""
    return chunk_number(provenance.chunk), provenance.start, provenance.stop, provenance.chunk


def _spoken(delta: Delta) -> tuple[tuple[int, int, int, str], bool]:
    return max(map(order, delta.provenance)), not delta.open


def entity_key(entity: Entity | EntityKey) -> _Key:
    """Return the key that is equal for two entities that are the same."""
    return entity.type, normalise(entity.name)


def relation_key(relation: Relation) -> _Key:
    """Return the key that is equal for two relations that are the same."""
    return (*entity_key(relation.source), relation.relation, *entity_key(relation.target))


_Item_finish = TypeVar("_Item_finish", Relation, Delta, Strategy)

_WORD: Final = re.compile(r"\w(?:[\w./-]*\w)?")
#: A later statement settles an open item if it has this share of its words, of at least three.
_SETTLES: Final = 0.7
#: Messages of an exchange: a question and its answer.
_EXCHANGE: Final = 2
#: Words that occur in more open items than this do not distinguish them.
_COMMON: Final = 64
_EMPTY: Final = word_lists("stop_words")["open items"]
#: The most entries of each kind in a result; the first ones in ``finish``'s order stay.
LIMITS: Final[Mapping[str, int]] = {
    "entities": 2000, "relations": 4000, "deltas": 500, "strategy": 500,
    "provenance": 64, "aliases": 16, "tags": 16, "namespace": 64,
}  # fmt: skip


def finish(
    graph: Graph,
    *,
    summary: str,
    limits: Mapping[str, int] = LIMITS,
    missing: Sequence[str] = (),
) -> TriVector:
    """Build the result: resolve relations, close settled items, apply ``limits``.

    ``summary`` is the one made of ``graph.summaries``; ``missing`` are the ids of failed chunks.
    Entities mentioned by more messages come first, then more certain ones, then earlier ones.
    """
    relations, dangling, loops = _pointed(graph)
    whole = {order(place) for place in graph.places}
    settled = _settled(graph.deltas)
    deltas = [delta for delta in settled if not _idle(delta, whole)]

    def mentions(entity: Entity) -> int:
        # A place as wide as its chunk counts once: it belongs to an entity whose messages are
        # unknown.
        return sum(1 if order(p) in whole else p.stop - p.start for p in entity.provenance)

    entities = sorted(graph.entities, key=lambda e: (-mentions(e), -e.confidence))
    entities_kept = entities[: limits["entities"]]
    keys = {entity_key(relation) for relation in entities_kept}
    within = [r for r in relations if {entity_key(r.source), entity_key(r.target)} <= keys]
    within.sort(key=lambda relation: (-relation.weight, -len(relation.provenance)))
    # Open items are worth more than settled ones, but both are listed in the order they came.
    deltas.sort(key=_first_place)
    ranked = sorted(range(len(deltas)), key=lambda at: (not deltas[at].open, -at))
    kept_deltas = [deltas[at] for at in sorted(ranked[: limits["deltas"]])]
    strategy = sorted(graph.strategy, key=_first_place)
    features = sorted(graph.features, key=lambda feature: -len(feature[1]))
    fields = {"entities": graph.entities, "deltas": deltas, "strategy": strategy}
    left_out = sum(max(0, len(items) - limits[kind]) for kind, items in fields.items())
    left_out += len(relations) - min(len(within), limits["relations"])
    return TriVector(
        summary=summary,
        namespace=tuple(name for name, _ in features[: limits["namespace"]]),
        entities=tuple(
            relation.model_copy(
                update={
                    "aliases": relation.aliases[: limits["aliases"]],
                    "tags": relation.tags[: limits["tags"]],
                    "provenance": relation.provenance[: limits["provenance"]],
                }
            )
            for relation in entities_kept
        ),
        relations=_cut(within[: limits["relations"]], limits),
        deltas=_cut(kept_deltas, limits),
        strategy=_cut(strategy[-limits["strategy"] :], limits),
        missing=tuple(missing),
        stats=Stats(
            chunks=len(graph.chunks),
            merged=sum(len({p.chunk for p in e.provenance}) - 1 for e in graph.entities),
            dropped=sum(number for _, number in graph.dropped),
            dangling=dangling,
            loops=loops,
            capped=left_out,
            idle=len(settled) - len(deltas),
        ),
    )


def _cut(items: Iterable[_Item_finish], limits: Mapping[str, int]) -> tuple[_Item_finish, ...]:
    return tuple(
        each.model_copy(update={"provenance": each.provenance[: limits["provenance"]]})
        for each in items
    )


def _first_place(item: Delta | Strategy) -> tuple[int, int, int, str]:
    return order(item.provenance[0])


def _pointed(graph: Graph) -> tuple[list[Relation], int, int]:
    """Resolve relations to entity names; return how many dangle, and how many are loops."""
    ends = {entity_key(entity): entity.key for entity in graph.entities}
    pointed: list[tuple[_Key, Relation]] = []
    dangling = loops = 0
    for relation in graph.relations:
        source = ends.get(entity_key(relation.source))
        target = ends.get(entity_key(relation.target))
        if source is None or target is None:
            dangling += 1
        elif source == target:
            loops += 1
        else:
            moved = relation.model_copy(update={"source": source, "target": target})
            pointed.append((relation_key(moved), moved))
    return list(joined(pointed)), dangling, loops


def _settled(deltas: Sequence[Delta]) -> list[Delta]:
    """Close open items that a later statement settles in other words, and drop that statement.

    A statement settles an item if it shares enough of its words. Among several items the one with
    most shared words is closed, then the latest.
    """
    words = [_words(delta.text) for delta in deltas]
    holders: dict[str, list[int]] = {}
    for at, delta in enumerate(deltas):
        if delta.open and len(words[at]) >= 3:
            for word in words[at]:
                holders.setdefault(word, []).append(at)
    result: list[Delta | None] = list(deltas)
    for at, closer in enumerate(deltas):
        if closer.open or closer.closed_by is None:
            continue
        shared: dict[int, int] = {}
        for word in words[at]:
            places = holders.get(word, ())
            for position in places if len(places) <= _COMMON else ():
                shared[position] = shared.get(position, 0) + 1
        settled = [
            position
            for position, number in shared.items()
            if number >= max(3, _SETTLES * len(words[position]))
            and (earlier := result[position]) is not None
            and earlier.open
            and order(earlier.provenance[-1]) < order(closer.closed_by)
        ]
        for position in settled:
            result[position] = deltas[position].model_copy(
                update={"open": False, "closed_by": closer.closed_by}
            )
        if settled:
            result[at] = None
    return [delta for delta in result if delta is not None]


def _idle(delta: Delta, whole: Collection[tuple[int, int, int, str]]) -> bool:
    """Return whether a delta is closed and was never open: a statement that settled nothing.

    An item that was open before it was settled has an earlier message too. A place as wide as its
    chunk mostly belongs to a statement whose message is unknown; in a chunk of two messages it may
    be either.
    """
    if delta.open or delta.closed_by is None:
        return False
    if any(order(place) < order(delta.closed_by) for place in delta.provenance):
        return False
    size = delta.closed_by.stop - delta.closed_by.start
    return size == 1 or (size > _EXCHANGE and order(delta.closed_by) in whole)


def _words(text: str) -> frozenset[str]:
    """Return the stems of a line's meaningful words."""
    words = (word.strip("./-") for word in _WORD.findall(normalise(text)))
    return frozenset(stem(word) for word in words if len(word) > 2 and word not in _EMPTY)
