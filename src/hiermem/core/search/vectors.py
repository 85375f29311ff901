"""Vectors of units: checked, packed into blocks, and compared with a question's.

The one rule: no vector is used unchecked. One that is not finite, is zero, or has another dimension
is refused before it is stored, and a block that does not fit its units is made again. Up to some
hundred thousand units cosines are exact; beyond, one bit a dimension finds the likely ones and only
those are compared exactly. Who makes vectors, and when, is decided in the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np

from hiermem.core.search.inverted import Index
from hiermem.core.search.postings import Array
from hiermem.core.search.ranking import Dense

__all__ = ["EXACT", "Vectors", "check", "compare", "pack", "spread", "unpack"]

#: Up to this many units every cosine is computed.
EXACT: Final = 200_000
#: Beyond, so many of the nearest by sign are.
NEAREST: Final = 4_000

_MAGIC: Final = b"hmV1"
_LEAST_NORM: Final = 1e-6


def check(vectors: Any, *, many: int, dimension: int) -> Array:
    """Give an embedder's answer as ``many`` unit vectors of ``dimension`` in float32.

    Raises ValueError, saying what is wrong, for another shape, a value that is not finite, and a
    vector of length zero, which has no direction.
    """
    try:
        found = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("the embedder gave something that is no table of numbers") from None
    if found.size == 0 and many == 0:
        return np.empty((0, dimension), dtype=np.float32)
    if found.ndim != 2 or found.shape[0] != many:
        raise ValueError(f"the embedder gave shape {found.shape} for {many} texts")
    if found.shape[1] != dimension:
        raise ValueError(
            f"the embedder gave vectors of dimension {found.shape[1]} and says {dimension}"
        )
    if not np.isfinite(found).all():
        raise ValueError("the embedder gave a value that is not a finite number")
    # Scaled by its largest value first, so that no square overflows.
    scale = np.abs(found).max(axis=1, keepdims=True)
    found = found / np.where(scale > 0, scale, 1)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    if (norms < _LEAST_NORM).any():
        raise ValueError("the embedder gave a vector of length zero")
    checked: Array = (found / norms).astype(np.float32)
    return checked


# ---------------------------------------------------------------------------------------------
# Blocks


def pack(vectors: Array) -> bytes:
    """Write the unit vectors of a run of messages as one block, in float16."""
    many, dimension = vectors.shape
    head = _MAGIC + int(many).to_bytes(4, "little") + int(dimension).to_bytes(4, "little")
    data = head + vectors.astype("<f2").tobytes()
    return data + crc32(data).to_bytes(4, "little")


def unpack(data: bytes, *, many: int, dimension: int) -> Array | None:
    """Read a block of ``many`` vectors; None where it is damaged or of other units."""
    if len(data) != 16 + 2 * many * dimension or data[:4] != _MAGIC:
        return None
    if crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
        return None
    if data[4:12] != many.to_bytes(4, "little") + dimension.to_bytes(4, "little"):
        return None
    found = np.frombuffer(data[12:-4], dtype="<f2").reshape(many, dimension).astype(np.float32)
    return found if np.isfinite(found).all() else None


# ---------------------------------------------------------------------------------------------
# Comparing


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """The vectors of an index: one row a unit, zeros where a unit has none yet.

    ``norms`` are, for each level, the lengths of the summed vectors of each window: the cosine of
    a window's mean vector is the sum of its units' cosines divided by that. ``signs`` are the one
    bit codes, kept where there are many units.
    """

    rows: Array
    present: Array
    norms: tuple[Array, ...]
    signs: Array | None

    @classmethod
    def of(cls, index: Index, parts: Iterable[tuple[int, Array]], *, dimension: int) -> Vectors:
        """Place runs of vectors, each with the unit that it begins at, over an index."""
        rows = np.zeros((len(index), dimension), dtype=np.float32)
        present = np.zeros(len(index), dtype=bool)
        for start, part in parts:
            rows[start : start + len(part)] = part
            present[start : start + len(part)] = True
        norms = tuple(_window_norms(rows, level.node, len(level.length)) for level in index.levels)
        signs = np.packbits(rows > 0, axis=1) if len(index) > EXACT else None
        return cls(rows, present, norms, signs)

    @property
    def nbytes(self) -> int:
        """Give about how many bytes these vectors take."""
        signs = 0 if self.signs is None else self.signs.nbytes
        return self.rows.nbytes + self.present.nbytes + signs + sum(n.nbytes for n in self.norms)


def _window_norms(rows: Array, node: Array, many: int) -> Array:
    total = np.zeros((many, rows.shape[1]), dtype=np.float32)
    np.add.at(total, node, rows)
    norms: Array = np.linalg.norm(total, axis=1)
    return norms


def compare(
    index: Index, vectors: Vectors, query: Array, *, weight: float = 1.0, exact: bool | None = None
) -> Dense:
    """Compare a question's unit vector with every unit and window.

    ``exact`` overrides the rule by size.
    """
    if exact is None:
        exact = vectors.signs is None
    cosines = _exact(vectors, query) if exact else _nearest(vectors, query)
    cosines[~vectors.present] = np.nan
    levels = []
    for level, norms in zip(index.levels, vectors.norms, strict=True):
        total = np.bincount(level.node, np.nan_to_num(cosines), len(norms))
        with np.errstate(divide="ignore", invalid="ignore"):
            levels.append(spread(np.where(norms > _LEAST_NORM, total / norms, np.nan)))
    return Dense(spread(cosines), tuple(levels), weight)


def _exact(vectors: Vectors, query: Array) -> Array:
    found: Array = (vectors.rows @ query.astype(np.float32)).astype(np.float64)
    return found


def _nearest(vectors: Vectors, query: Array) -> Array:
    """Estimate all cosines by the signs that agree, and compute those of the nearest."""
    signs = vectors.signs
    if signs is None:
        signs = np.packbits(vectors.rows > 0, axis=1)
    asked = np.packbits(query > 0)
    dimension = vectors.rows.shape[1]
    apart = np.bitwise_count(signs ^ asked).sum(axis=1, dtype=np.int32)
    # The angle between two vectors is about pi times the share of signs that differ.
    found: Array = np.cos(np.pi * np.minimum(apart, dimension) / dimension)
    many = min(NEAREST, len(apart))
    near = np.argpartition(apart, many - 1)[:many]
    found[near] = vectors.rows[near] @ query.astype(np.float32)
    return found


def spread(values: Array) -> Array:
    """Scale what is known to 0..1; what is not is NaN and stays so."""
    known = values[~np.isnan(values)]
    if not len(known):
        return values
    low, high = known.min(), known.max()
    found: Array = (values - low) / max(high - low, 1e-9)
    return found
