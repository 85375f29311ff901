"""Decides which vectors are valid, how they are packed, and how near they are to a question's.

No vector is used unchecked. A vector that is not finite, is zero, or has another dimension is
refused before it is stored, and a block that does not fit its units is made again. All vectors of a
session belong to the embedder that its record names; those of two embedders are never mixed. All
cosines are computed, exactly. ``embed`` reads, makes and stores vectors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from hiermem.search.index import Array, Index, opened, sealed, titled, untitled
from hiermem.search.rank import Leg

#: Rows processed at a time.
_AT_ONCE: Final = 8_192

_MAGIC: Final = b"hmV1"
_MAGIC_OF_SUMMARIES: Final = b"hmS1"
_LEAST_NORM: Final = 1e-6

#: A unit vector by node id and revision number.
SummaryVectors: TypeAlias = Mapping[tuple[str, int], Array]
#: By level, the names of summaries and a table of their vectors; NaN in a row without one.
SummaryTables: TypeAlias = Mapping[int, tuple[Sequence[tuple[str, int]], Array]]


#: The kind of the record that names a session's embedder; its scope is the session.
EMBEDDER: Final = "embedder"


@dataclass(frozen=True, slots=True)
class Identity:
    """The embedder that made a session's vectors."""

    name: str
    dimension: int

    @property
    def kind(self) -> str:
        """Return the kind of the blocks that hold vectors of messages."""
        return f"vectors/{self.dimension}/{self.name}"

    def kind_of(self, level: int) -> str:
        """Return the kind of the blocks that hold vectors of a level's summaries."""
        return f"vectors-L{level}/{self.dimension}/{self.name}"

    def to_json(self) -> str:
        """Write the identity as it is stored."""
        return json.dumps({"name": self.name, "dimension": self.dimension})

    @classmethod
    def from_json(cls, body: str) -> Identity | None:
        """Read a stored identity; None if it is damaged."""
        try:
            read = json.loads(body)
            return cls(str(read["name"]), int(read["dimension"]))
        except (ValueError, KeyError, TypeError):
            return None


def check(vectors: Any, *, many: int, dimension: int) -> Array:
    """Return an embedder's answer as ``many`` unit vectors of ``dimension`` in float32.

    Raises ValueError, saying what is wrong, for another shape, a value that is not finite, and a
    vector of length zero, which has no direction.
    """
    try:
        table = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("the embedder gave something that is no table of numbers") from None
    if table.size == 0 and many == 0:
        return np.empty((0, dimension), dtype=np.float32)
    if table.ndim != 2 or table.shape[0] != many:
        raise ValueError(f"the embedder gave shape {table.shape} for {many} texts")
    if table.shape[1] != dimension:
        raise ValueError(
            f"the embedder gave vectors of dimension {table.shape[1]} and says {dimension}"
        )
    if not np.isfinite(table).all():
        raise ValueError("the embedder gave a value that is not a finite number")
    # Scaled by its largest value first, so that no square overflows.
    scale = np.abs(table).max(axis=1, keepdims=True)
    table = table / np.where(scale > 0, scale, 1)
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    if (norms < _LEAST_NORM).any():
        raise ValueError("the embedder gave a vector of length zero")
    checked: Array = (table / norms).astype(np.float32)
    return checked


def pack(vectors: Array) -> bytes:
    """Write the unit vectors of a run of messages as one block, in float16."""
    many, dimension = vectors.shape
    head = int(many).to_bytes(4, "little") + int(dimension).to_bytes(4, "little")
    return sealed(_MAGIC, head + vectors.astype("<f2").tobytes())


def unpack(data: bytes, *, many: int, dimension: int) -> Array | None:
    """Read a block of ``many`` vectors; None if it is damaged or belongs to other units."""
    content = opened(_MAGIC, data) if len(data) == 16 + 2 * many * dimension else None
    if content is None or content[:8] != many.to_bytes(4, "little") + dimension.to_bytes(
        4, "little"
    ):
        return None
    table = np.frombuffer(content[8:], dtype="<f2").reshape(many, dimension).astype(np.float32)
    return table if np.isfinite(table).all() else None


def pack_summaries(vectors_of: SummaryVectors) -> bytes:
    """Write at least one vector of a summary, each valid for its revision alone.

    Summaries of a level that begin in the same stretch of messages share a block; the store drops
    it as soon as one of those messages is rewritten.
    """
    table = pack(np.stack(list(vectors_of.values())))
    return titled(_MAGIC_OF_SUMMARIES, list(vectors_of), table)


def unpack_summaries(data: bytes, *, dimension: int) -> SummaryVectors:
    """Read a block of summaries; {} if it is damaged or has another dimension."""
    try:
        title, block = untitled(_MAGIC_OF_SUMMARIES, data)
        names = [(str(node), int(number)) for node, number in title]
    except (ValueError, TypeError, RecursionError):
        return {}
    table = unpack(block, many=len(names), dimension=dimension)
    return {} if table is None else dict(zip(names, table, strict=True))


def mean(rows: Array) -> Array:
    """Return the direction of the sum of unit vectors, or the first of them if they cancel out."""
    total = rows.sum(axis=0)
    norm = float(np.linalg.norm(total))
    direction: Array = total / norm if norm > 1e-6 else rows[0]
    return direction.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """The vectors of an index: one row for each unit, zeros for a unit without a vector.

    ``norms`` are, for each level, the lengths of the summed vectors of each window: the cosine of a
    window's mean vector is the sum of its units' cosines divided by that. ``nodes`` are the index's
    windows, level by level. Vectors are immutable: ``extended`` returns more of them, for an index
    that has grown.
    """

    rows: Array
    present: Array
    nodes: tuple[Array, ...]
    norms: tuple[Array, ...]

    @classmethod
    def none(cls, dimension: int) -> Vectors:
        """Return the vectors of an index without units."""
        return cls(np.zeros((0, dimension), dtype=np.float32), np.zeros(0, dtype=bool), (), ())

    def extended(self, index: Index, parts: Iterable[tuple[int, Array]]) -> Vectors:
        """Return these vectors and those of ``parts`` over an index that begins with their units.

        A part is a run of vectors with the unit that it begins at. The result does not depend on
        the order in which the runs came; only the affected windows are computed.
        """
        more = len(index) - len(self.present)
        rows = np.pad(self.rows, ((0, more), (0, 0)))
        before = np.pad(self.present, (0, more))
        present = before.copy()
        for start, part in parts:
            rows[start : start + len(part)] = part
            present[start : start + len(part)] = True
        new = np.flatnonzero(present & ~before)
        norms = tuple(
            self._norms(level, rows, node, len(index.window_lengths[level]), new)
            for level, node in enumerate(index.windows)
        )
        return Vectors(rows, present, index.windows, norms)

    def _norms(self, level: int, rows: Array, node: Array, many: int, new: Array) -> Array:
        """Return the norms of the windows of a level; ``new`` are the units that got a vector.

        A window without new units has the members it had, except those that have no vector.
        """
        norms = np.zeros(many, dtype=np.float32)
        if self.norms:
            norms[node[: len(self.present)]] = self.norms[level][self.nodes[level]]
        touched = np.zeros(many, dtype=bool)
        touched[node[new]] = True
        members = np.flatnonzero(touched[node])
        # Sort by window, each in its order, so that a sum does not depend on its neighbours.
        members = members[np.argsort(node[members], kind="stable")]
        windows = node[members]
        bounds = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(members)]
        low = 0
        while len(members) and low < len(bounds) - 1:
            high = low + 1
            while high < len(bounds) - 1 and bounds[high + 1] - bounds[low] <= _AT_ONCE:
                high += 1
            some = rows[members[bounds[low] : bounds[high]]]
            sums = np.add.reduceat(some, np.array(bounds[low:high]) - bounds[low], axis=0)
            norms[windows[bounds[low:high]]] = np.linalg.norm(sums, axis=1)
            low = high
        return norms

    @property
    def nbytes(self) -> int:
        """Return the approximate size of these vectors in bytes."""
        return self.rows.nbytes + self.present.nbytes + sum(n.nbytes for n in self.norms)


def compare(index: Index, vectors: Vectors, query: Array, *, weight: float = 1.0) -> Leg:
    """Compare a question's unit vector with every unit and window."""
    cosines = (vectors.rows @ query.astype(np.float32)).astype(np.float64)
    cosines[~vectors.present] = np.nan
    levels = []
    for window, norms in zip(index.windows, vectors.norms, strict=True):
        total = np.bincount(window, np.nan_to_num(cosines), len(norms))
        with np.errstate(divide="ignore", invalid="ignore"):
            levels.append(spread(np.where(norms > _LEAST_NORM, total / norms, np.nan)))
    return Leg(spread(cosines), tuple(levels), weight)


def compare_summaries(tables: SummaryTables, query: Array) -> dict[int, Array]:
    """Compare a question's unit vector with the summaries of each level."""
    return {level: spread(table @ query) for level, (_, table) in tables.items()}


def spread(values: Array) -> Array:
    """Scale the known values to 0..1; NaN stays NaN."""
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return values
    low, high = numbers.min(), numbers.max()
    scaled: Array = (values - low) / max(high - low, 1e-9)
    return scaled
