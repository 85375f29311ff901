"""Turns the graph of all chunks into the result of an extraction.

Decisions that need all chunks happen here, once and in fixed order. Relations are resolved to
entities; those with an undefined end are dropped and counted. Open items that a later statement
settles are closed; statements that settled nothing are dropped and counted. Then everything is
sorted and cut to the limits.

The same graph gives the same result, and nothing is left out without being counted. ``reduce``
merges graphs; the engine makes one summary out of many.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from hiermem.data import word_lists
from hiermem.extraction.reduce import Graph, entity_key, joined, normalise, order, relation_key
from hiermem.text.stemming import stem
from hiermem.types.trivector import Delta, Entity, Relation, Stats, Strategy, TriVector

_Key: TypeAlias = tuple[str, ...]
_Item = TypeVar("_Item", Relation, Delta, Strategy)

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
    kept = entities[: limits["entities"]]
    known = {entity_key(each) for each in kept}
    within = [
        each for each in relations if {entity_key(each.source), entity_key(each.target)} <= known
    ]
    within.sort(key=lambda each: (-each.weight, -len(each.provenance)))
    # Open items are worth more than settled ones, but both are listed in the order they came.
    deltas.sort(key=_first_place)
    ranked = sorted(range(len(deltas)), key=lambda at: (not deltas[at].open, -at))
    kept_deltas = [deltas[at] for at in sorted(ranked[: limits["deltas"]])]
    strategy = sorted(graph.strategy, key=_first_place)
    features = sorted(graph.features, key=lambda feature: -len(feature[1]))
    held = {"entities": graph.entities, "deltas": deltas, "strategy": strategy}
    left_out = sum(max(0, len(items) - limits[kind]) for kind, items in held.items())
    left_out += len(relations) - min(len(within), limits["relations"])
    return TriVector(
        summary=summary,
        namespace=tuple(name for name, _ in features[: limits["namespace"]]),
        entities=tuple(
            each.model_copy(
                update={
                    "aliases": each.aliases[: limits["aliases"]],
                    "tags": each.tags[: limits["tags"]],
                    "provenance": each.provenance[: limits["provenance"]],
                }
            )
            for each in kept
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


def _cut(items: Iterable[_Item], limits: Mapping[str, int]) -> tuple[_Item, ...]:
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
            for place in places if len(places) <= _COMMON else ():
                shared[place] = shared.get(place, 0) + 1
        settled = [
            place
            for place, number in shared.items()
            if number >= max(3, _SETTLES * len(words[place]))
            and (held := result[place]) is not None
            and held.open
            and order(held.provenance[-1]) < order(closer.closed_by)
        ]
        for place in settled:
            result[place] = deltas[place].model_copy(
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
    found = (word.strip("./-") for word in _WORD.findall(normalise(text)))
    return frozenset(stem(word) for word in found if len(word) > 2 and word not in _EMPTY)
