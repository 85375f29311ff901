"""Loads the vectors of a session, as far as they are made, and says whose they are.

The one rule: a session's vectors are all of one embedder, and each belongs to the very text that it
was made from: what does not fit its units is as good as missing. What was read once is kept for as
long as the index is that it lies over, so that after an append only what is new is read. Who makes
vectors is ``embedding``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hiermem.core.search import summary_vectors
from hiermem.core.search import vectors as packed
from hiermem.core.search.embedding_state import EMBEDDER, Identity, Reached
from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array
from hiermem.core.search.ranking import Dense
from hiermem.core.search.summary_index import Row
from hiermem.core.search.vectors import Vectors
from hiermem.engine.handle import Handle
from hiermem.engine.index import STRIDE, SessionIndex
from hiermem.engine.search.summary_index import by_stretch, journal_mark
from hiermem.errors import EmbedderMismatchError, StoreCorruptError
from hiermem.types import SessionRecord
from hiermem.types.transaction import Block

#: The key of the record that says in which state a session had all its vectors.
REACHED: Final = "reached"
#: Of the newest runs, so many are looked at for one that was no embedding pass.
_RUNS: Final = 8
#: Blocks of vectors read at a time.
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The vectors of a session in memory: those of its index, and those of its shelf by level.

    ``names`` are the summaries of a level, by node and revision; one without a vector has NaN in
    its row.
    """

    units: Vectors
    told: Mapping[int, Array]
    names: Mapping[int, Sequence[tuple[str, int]]]

    @property
    def nbytes(self) -> int:
        """Give about how many bytes they take."""
        return self.units.nbytes + sum(table.nbytes for table in self.told.values())

    def near(
        self, index: Index, question: Array, *, weight: float
    ) -> tuple[Dense, Mapping[int, Array]]:
        """Compare a question with every unit, and with the summaries by level."""
        told = {level: packed.spread(table @ question) for level, table in self.told.items()}
        return packed.compare(index, self.units, question, weight=weight), told


# ---------------------------------------------------------------------------------------------
# Identity


async def identity_of(handle: Handle, session_id: str) -> Identity | None:
    """Give whose vectors a session has; None where it has none."""
    found = await handle.store.records(EMBEDDER, scope=session_id, key="identity")
    return Identity.from_json(found[0].body) if found else None


async def reached_by(handle: Handle, record: SessionRecord) -> Reached:
    """Name the state of a session, as far as it says which vectors it should have."""
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    made = next((f"{run.id} {run.outcome}" for run in runs if run.kind != "embedding"), "")
    return Reached(record.epoch, record.tree, record.messages, made)


async def lacks(handle: Handle, record: SessionRecord) -> bool:
    """Say whether a session may lack vectors of this handle's embedder.

    One that has another embedder's lacks none: those are dropped on request only. It costs two
    short reads.
    """
    asker = handle.embedder_client
    if asker is None or not record.messages or record.counter != handle.counter.name:
        return False
    found = await handle.store.records(EMBEDDER, scope=record.id)
    kept = {each.key: each.body for each in found}
    if "identity" in kept and Identity.from_json(kept["identity"]) != asker.identity:
        return False
    return kept.get(REACHED) != (await reached_by(handle, record)).to_json()


def agree(session_id: str, kept: Identity | None, given: Identity) -> None:
    """Refuse to mix. Raises EmbedderMismatchError."""
    if kept is not None and kept != given:
        raise EmbedderMismatchError(
            session_id,
            made=f"{kept.name!r} ({kept.dimension} dimensions)",
            given=f"{given.name!r} ({given.dimension} dimensions)",
        )


# ---------------------------------------------------------------------------------------------
# Loading


async def loaded(handle: Handle, held: SessionIndex, record: SessionRecord) -> Loaded | None:
    """Give the vectors of ``held``, read again where a pass may have made more since.

    Call it under the index's lock. Raises EmbedderMismatchError.
    """
    asker = handle.embedder_client
    if asker is None:
        return None
    mark = (held.messages, await journal_mark(handle, record), held.shelf)
    if held.vectors_mark != mark:
        kept = await identity_of(handle, record.id)
        agree(record.id, kept, asker.identity)
        known = held.vectors if isinstance(held.vectors, Loaded) else None
        held.vectors = (
            None if kept is None else await _load(handle, held, record, asker.identity, known)
        )
        held.vectors_mark = mark
    found = held.vectors
    return found if isinstance(found, Loaded) else None


async def _load(
    handle: Handle,
    held: SessionIndex,
    record: SessionRecord,
    identity: Identity,
    known: Loaded | None,
) -> Loaded:
    """Read what ``known`` lacks, which lies over an index that this one has grown from."""
    index, dimension = held.index, identity.dimension
    units = Vectors.none(dimension) if known is None else known.units
    parts: list[tuple[int, Array]] = []
    for start, stop in _lacking(index, units):
        for block in await read_blocks(handle, record.id, identity.kind, start, stop):
            part = vectors_in(index, block, identity)
            if part is not None:
                parts.append((place_of(index, block.start), part))
    if len(index) > len(units.present) or parts:
        units = await asyncio.to_thread(units.extended, index, parts)
    names: dict[int, list[tuple[str, int]]] = {}
    told: dict[int, Array] = {}
    for level, row in held.shelf.rows.items():
        names[level] = [(each.id, each.node.revision) for each in row.summaries]
        told[level] = await _told(handle, record, identity, row, known)
    return Loaded(units, told, names)


def _lacking(index: Index, units: Vectors) -> list[tuple[int, int]]:
    """Give the runs of strides, in messages, in which a unit has no vector yet."""
    known = len(units.present)
    without = np.append(~units.present, np.ones(len(index) - known, dtype=bool))
    found: list[tuple[int, int]] = []
    for stride in np.unique(index.units.message[without] // STRIDE).tolist():
        start = stride * STRIDE
        if found and found[-1][1] == start and start - found[-1][0] < _AT_ONCE * STRIDE:
            found[-1] = (found[-1][0], start + STRIDE)
        else:
            found.append((start, start + STRIDE))
    return found


async def _told(
    handle: Handle, record: SessionRecord, identity: Identity, row: Row, known: Loaded | None
) -> Array:
    """Give the vectors of a level's summaries: those that are known, and those in the store."""
    level = row.summaries[0].level
    table = np.full((len(row.summaries), identity.dimension), np.nan, dtype=np.float32)
    kept: dict[tuple[str, int], Array] = {}
    if known is not None and level in known.told:
        kept = dict(zip(known.names[level], known.told[level], strict=True))
        kept = {name: vector for name, vector in kept.items() if not np.isnan(vector[0])}
    lacking = [each for each in row.summaries if (each.id, each.node.revision) not in kept]
    if lacking:
        starts = [start for start, _ in by_stretch(lacking)]
        kind = identity.kind_of(level)
        for block in await read_blocks(handle, record.id, kind, starts[0], starts[-1] + 1):
            kept |= summary_vectors.unpack(block.data, dimension=identity.dimension)
    for place, each in enumerate(row.summaries):
        vector = kept.get((each.id, each.node.revision))
        if vector is not None:
            table[place] = vector
    return table


async def read_blocks(
    handle: Handle, session_id: str, kind: str, start: int, stop: int | None
) -> list[Block]:
    """Read blocks; those that cannot be read are missing, and made again."""
    try:
        return await handle.store.blocks(session_id, kind, start, stop)
    except StoreCorruptError:
        return []


def place_of(index: Index, message: int) -> int:
    """Give the first unit of a message, or where it would stand."""
    return int(np.searchsorted(index.units.message, message))


def vectors_in(index: Index, block: Block, identity: Identity) -> Array | None:
    """Give a block's vectors; None where it does not fit the units that it should be of."""
    many = place_of(index, block.stop) - place_of(index, block.start)
    return packed.unpack(block.data, many=many, dimension=identity.dimension)
