"""The vectors of summaries, packed for the store over the messages that they cover.

A vector belongs to one revision of a node and is used for no other. Summaries of a level that begin
in the same stretch of messages share a block; the store drops it as soon as one of those messages
is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np

from hiermem.core.search import vectors
from hiermem.core.search.postings import Array

_MAGIC: Final = b"hmS1"

#: A unit vector by node id and revision number.
SummaryVectors: TypeAlias = Mapping[tuple[str, int], Array]


def pack(vectors_of: SummaryVectors) -> bytes:
    """Write vectors with the revisions that they belong to; there is at least one."""
    names = json.dumps([list(name) for name in vectors_of], separators=(",", ":")).encode()
    table = vectors.pack(np.stack(list(vectors_of.values())))
    return _MAGIC + len(names).to_bytes(4, "little") + names + table


def unpack(data: bytes, *, dimension: int) -> SummaryVectors:
    """Read a block; nothing if it is damaged or has another dimension."""
    size = int.from_bytes(data[4:8], "little")
    if data[:4] != _MAGIC or len(data) < 8 + size:
        return {}
    try:
        names = [(str(node), int(number)) for node, number in json.loads(data[8 : 8 + size])]
    except (ValueError, TypeError, RecursionError):
        return {}
    table = vectors.unpack(data[8 + size :], many=len(names), dimension=dimension)
    return {} if table is None else dict(zip(names, table, strict=True))


def mean(rows: Array) -> Array:
    """Return the direction of the sum of unit vectors, or the first of them if they cancel out."""
    total = rows.sum(axis=0)
    norm = float(np.linalg.norm(total))
    found: Array = total / norm if norm > 1e-6 else rows[0]
    return found.astype(np.float32)
