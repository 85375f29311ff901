"""Loads the vectors of a session, as far as they are made, and identifies their embedder.

All vectors of a session belong to one embedder, and each to exactly the text that it was made from;
a vector that does not fit its units counts as missing. Vectors stay loaded as long as the index
that they belong to, so after an append only the new ones are read. ``embed`` makes vectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hiermem.core.search import vectors as packed
from hiermem.core.search.embedding_state import EMBEDDER, EmbeddedState, Identity
from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array
from hiermem.core.search.ranking import Leg
from hiermem.core.search.summary_index import SummaryLevel, name_of
from hiermem.core.search.vectors import Vectors
from hiermem.engine.handle import Handle
from hiermem.engine.index import STRIDE, SessionIndex
from hiermem.engine.search.summary_index import by_stretch, journal_mark
from hiermem.errors import EmbedderMismatchError, StoreCorruptError
from hiermem.types import SessionRecord
from hiermem.types.transaction import Block

#: The key of the record with the state in which a session had all its vectors.
EMBEDDED_STATE: Final = "reached"
#: How many of the newest runs are searched for one that was no embedding pass.
_RUNS: Final = 8
#: Blocks of vectors read in one go.
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class LoadedVectors:
    """The vectors of a session in memory: those of its index, and those of its summaries by level.

    ``names`` are the summaries of a level, by node and revision; a summary without a vector has NaN
    in its row.
    """

    units: Vectors
    summaries: Mapping[int, Array]
    names: Mapping[int, Sequence[tuple[str, int]]]

    @property
    def nbytes(self) -> int:
        """Return their approximate size in bytes."""
        return self.units.nbytes + sum(table.nbytes for table in self.summaries.values())

    def near(
        self, index: Index, question: Array, *, weight: float
    ) -> tuple[Leg, Mapping[int, Array]]:
        """Compare a question with every unit, and with the summaries by level."""
        summaries = {
            level: packed.spread(table @ question) for level, table in self.summaries.items()
        }
        return packed.compare(index, self.units, question, weight=weight), summaries


# ---------------------------------------------------------------------------------------------
# Identity


async def identity_of(handle: Handle, session_id: str) -> Identity | None:
    """Return the embedder of a session's vectors; None if it has none."""
    found = await handle.store.records(EMBEDDER, scope=session_id, key="identity")
    return Identity.from_json(found[0].body) if found else None


async def embedded_state(handle: Handle, record: SessionRecord) -> EmbeddedState:
    """Return the state of a session, as far as it decides which vectors it should have."""
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    made = next((f"{run.id} {run.outcome}" for run in runs if run.kind != "embedding"), "")
    messages = record.messages if handle.search_policy.embed_messages else 0
    return EmbeddedState(record.epoch, record.tree, messages, made)


async def lacks(handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session may lack vectors of this handle's embedder.

    A session with another embedder's vectors lacks none: those are dropped on request only. The
    cost is two short reads.
    """
    asker = handle.embedder_client
    if asker is None or not record.messages or record.counter != handle.counter.name:
        return False
    found = await handle.store.records(EMBEDDER, scope=record.id)
    kept = {each.key: each.body for each in found}
    if "identity" in kept and Identity.from_json(kept["identity"]) != asker.identity:
        return False
    return kept.get(EMBEDDED_STATE) != (await embedded_state(handle, record)).to_json()


def agree(session_id: str, kept: Identity | None, given: Identity) -> None:
    """Refuse to mix embedders. Raises EmbedderMismatchError."""
    if kept is not None and kept != given:
        raise EmbedderMismatchError(
            session_id,
            made=f"{kept.name!r} ({kept.dimension} dimensions)",
            given=f"{given.name!r} ({given.dimension} dimensions)",
        )


# ---------------------------------------------------------------------------------------------
# Loading


async def load_vectors(
    handle: Handle, held: SessionIndex, record: SessionRecord
) -> LoadedVectors | None:
    """Return the vectors of ``held``; read them again if a pass may have made more since.

    Call it under the index's lock. Raises EmbedderMismatchError.
    """
    asker = handle.embedder_client
    if asker is None:
        return None
    mark = (held.messages, await journal_mark(handle, record), held.summary_index)
    if held.vectors_mark != mark:
        kept = await identity_of(handle, record.id)
        agree(record.id, kept, asker.identity)
        known = held.vectors if isinstance(held.vectors, LoadedVectors) else None
        held.vectors = (
            None if kept is None else await _load(handle, held, record, asker.identity, known)
        )
        held.vectors_mark = mark
    found = held.vectors
    return found if isinstance(found, LoadedVectors) else None


async def _load(
    handle: Handle,
    held: SessionIndex,
    record: SessionRecord,
    identity: Identity,
    known: LoadedVectors | None,
) -> LoadedVectors:
    """Read what ``known`` lacks, which belongs to an index that this one has grown from."""
    index, dimension = held.index, identity.dimension
    units = Vectors.none(dimension) if known is None else known.units
    parts: list[tuple[int, Array]] = []
    for start, stop in _lacking(index, units):
        for block in await read_blocks(handle, record.id, identity.kind, start, stop):
            part = vectors_in(index, block, identity)
            if part is not None:
                parts.append((place_of(index, block.start), part))
    # Over an index without units too, vectors have the levels of the index.
    if known is None or len(index) > len(units.present) or parts:
        units = await asyncio.to_thread(units.extended, index, parts)
    names: dict[int, list[tuple[str, int]]] = {}
    summaries: dict[int, Array] = {}
    for level, row in held.summary_index.levels.items():
        names[level] = [name_of(each) for each in row.summaries]
        summaries[level] = await _summary_vectors(handle, record, identity, row, known)
    return LoadedVectors(units, summaries, names)


def _lacking(index: Index, units: Vectors) -> list[tuple[int, int]]:
    """Return the runs of strides, in messages, in which a unit has no vector yet."""
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


async def _summary_vectors(
    handle: Handle,
    record: SessionRecord,
    identity: Identity,
    row: SummaryLevel,
    known: LoadedVectors | None,
) -> Array:
    """Return the vectors of a level's summaries: known ones, and those in the store."""
    level = row.summaries[0].level
    table = np.full((len(row.summaries), identity.dimension), np.nan, dtype=np.float32)
    kept: dict[tuple[str, int], Array] = {}
    if known is not None and level in known.summaries:
        kept = dict(zip(known.names[level], known.summaries[level], strict=True))
        kept = {name: vector for name, vector in kept.items() if not np.isnan(vector[0])}
    lacking = [each for each in row.summaries if name_of(each) not in kept]
    if lacking:
        starts = [start for start, _ in by_stretch(lacking)]
        kind = identity.kind_of(level)
        for block in await read_blocks(handle, record.id, kind, starts[0], starts[-1] + 1):
            kept |= packed.unpack_summaries(block.data, dimension=identity.dimension)
    for place, each in enumerate(row.summaries):
        vector = kept.get(name_of(each))
        if vector is not None:
            table[place] = vector
    return table


async def read_blocks(
    handle: Handle, session_id: str, kind: str, start: int, stop: int | None
) -> list[Block]:
    """Read blocks; unreadable ones count as missing, and are made again."""
    try:
        return await handle.store.blocks(session_id, kind, start, stop)
    except StoreCorruptError:
        return []


def place_of(index: Index, message: int) -> int:
    """Return the first unit of a message, or where it would be."""
    return int(np.searchsorted(index.units.message, message))


def vectors_in(index: Index, block: Block, identity: Identity) -> Array | None:
    """Return a block's vectors; None if it does not fit its units."""
    many = place_of(index, block.stop) - place_of(index, block.start)
    return packed.unpack(block.data, many=many, dimension=identity.dimension)
