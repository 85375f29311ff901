"""Loads the vectors of a session, as far as they are made, and identifies their embedder.

All vectors of a session belong to one embedder, and each to exactly the text that it was made from;
a vector that does not fit its units counts as missing. Vectors stay loaded as long as the index
that they belong to, so after an append only the new ones are read. ``embed`` makes vectors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from hiermem.errors import EmbedderMismatchError
from hiermem.handle import Handle
from hiermem.search import vectors as packed
from hiermem.search.embedding_state import EMBEDDER, Identity
from hiermem.search.index import Index
from hiermem.search.indexes import STRIDE, SessionIndex, stored_blocks
from hiermem.search.keep_summary_index import by_stretch, journal_mark
from hiermem.search.postings import Array
from hiermem.search.summary_index import SummaryLevel, name_of
from hiermem.search.vectors import Vectors
from hiermem.types import SessionRecord
from hiermem.types.transaction import Block

#: The key of the record with the state in which a session had all its vectors.
EMBEDDED_STATE: Final = "reached"
#: How many of the newest runs are searched for a run that is not an embedding pass.
_RUNS: Final = 8
#: Blocks of vectors read in one go.
_AT_ONCE: Final = 32


# ---------------------------------------------------------------------------------------------
# Identity


async def identity_of(handle: Handle, session_id: str) -> Identity | None:
    """Return the embedder of a session's vectors; None if it has none."""
    found = await handle.store.records(EMBEDDER, scope=session_id, key="identity")
    return Identity.from_json(found[0].body) if found else None


async def embedded_state(handle: Handle, record: SessionRecord) -> str:
    """Return the state of a session, as far as it decides which vectors it should have.

    A complete pass stores it. It holds 0 messages where messages get no vectors, and the newest run
    that may have made summaries, with its outcome.
    """
    runs = await handle.store.runs(subject=record.id, limit=_RUNS)
    made = next((f"{run.id} {run.outcome}" for run in runs if run.kind != "embedding"), "")
    messages = record.messages if handle.search_policy.embed_messages else 0
    return json.dumps([record.epoch, record.tree, messages, made])


async def lacks(handle: Handle, record: SessionRecord) -> bool:
    """Return whether a session may lack vectors of this handle's embedder.

    A session with another embedder's vectors lacks none: those are dropped on request only. The
    cost is two short reads.
    """
    client = handle.embedder_client
    if client is None or not record.messages or record.counter != handle.counter.name:
        return False
    found = await handle.store.records(EMBEDDER, scope=record.id)
    kept = {each.key: each.body for each in found}
    if "identity" in kept and Identity.from_json(kept["identity"]) != client.identity:
        return False
    return kept.get(EMBEDDED_STATE) != await embedded_state(handle, record)


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


async def load_vectors(handle: Handle, held: SessionIndex, record: SessionRecord) -> None:
    """Read the vectors of ``held``, or read them again if a pass may have made more since.

    Call it under the index's lock. Raises EmbedderMismatchError.
    """
    client = handle.embedder_client
    if client is None:
        return
    mark = (held.messages, await journal_mark(handle, record), held.summary_index)
    if held.vectors_mark == mark:
        return
    kept = await identity_of(handle, record.id)
    agree(record.id, kept, client.identity)
    if kept is None:
        held.vectors, held.summary_vectors = None, {}
    else:
        held.vectors = await _unit_vectors(handle, held, kept)
        held.summary_vectors = {
            level: await _summary_vectors(handle, held, kept, row)
            for level, row in held.summary_index.levels.items()
        }
    held.vectors_mark = mark


async def _unit_vectors(handle: Handle, held: SessionIndex, identity: Identity) -> Vectors:
    """Read what is not in memory of an index, which has grown from that of the known vectors."""
    index, known = held.index, held.vectors
    units = Vectors.none(identity.dimension) if known is None else known
    parts: list[tuple[int, Array]] = []
    for start, stop in _lacking(index, units):
        for block in await stored_blocks(handle.store, held.record.id, identity.kind, start, stop):
            part = vectors_in(index, block, identity)
            if part is not None:
                parts.append((place_of(index, block.start), part))
    # Over an index without units too, vectors have the levels of the index.
    if known is None or len(index) > len(units.present) or parts:
        units = await asyncio.to_thread(units.extended, index, parts)
    return units


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
    handle: Handle, held: SessionIndex, identity: Identity, row: SummaryLevel
) -> tuple[Sequence[tuple[str, int]], Array]:
    """Return the names and the vectors of a level's summaries: known ones, those in the store."""
    level = row.summaries[0].level
    names = [name_of(each) for each in row.summaries]
    table = np.full((len(names), identity.dimension), np.nan, dtype=np.float32)
    kept: dict[tuple[str, int], Array] = {}
    if level in held.summary_vectors:
        pairs = zip(*held.summary_vectors[level], strict=True)
        kept = {name: vector for name, vector in pairs if not np.isnan(vector[0])}
    lacking = [each for each in row.summaries if name_of(each) not in kept]
    if lacking:
        starts = [start for start, _ in by_stretch(lacking)]
        kept |= await stored_summaries(
            handle, held.record.id, identity, level, start=starts[0], stop=starts[-1] + 1
        )
    for place, name in enumerate(names):
        if name in kept:
            table[place] = kept[name]
    return names, table


async def stored_summaries(
    handle: Handle, session_id: str, identity: Identity, level: int, *, start: int, stop: int
) -> dict[tuple[str, int], Array]:
    """Return the vectors of a level's summaries in the blocks over a range of messages."""
    found: dict[tuple[str, int], Array] = {}
    for block in await stored_blocks(
        handle.store, session_id, identity.kind_of(level), start, stop
    ):
        found |= packed.unpack_summaries(block.data, dimension=identity.dimension)
    return found


def place_of(index: Index, message: int) -> int:
    """Return the first unit of a message, or where it would be."""
    return int(np.searchsorted(index.units.message, message))


def vectors_in(index: Index, block: Block, identity: Identity) -> Array | None:
    """Return a block's vectors; None if it does not fit its units."""
    many = place_of(index, block.stop) - place_of(index, block.start)
    return packed.unpack(block.data, many=many, dimension=identity.dimension)
