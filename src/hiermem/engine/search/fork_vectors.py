"""Takes over the vectors of a fork's parent session, so that none is made twice.

A vector belongs to a text. It is taken over if both sessions have the same text at the same place
now, and the source did not change while that was checked; all others are made again. This module
sends nothing to an embedder and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hiermem.core.search import vectors as packed
from hiermem.core.search.embedding_state import Identity
from hiermem.core.search.index import Index
from hiermem.core.search.postings import Array
from hiermem.core.search.summary_index import name_of
from hiermem.core.text.measure import body, speaker
from hiermem.engine.handle import Handle
from hiermem.engine.index import STRIDE
from hiermem.engine.search.vectors import place_of, read_blocks, vectors_in
from hiermem.errors import HiermemError
from hiermem.types import SessionRecord, StoredMessage, Summary


class ForkSource:
    """The part of the parent session that ``record``'s session shares."""

    def __init__(self, handle: Handle, record: SessionRecord, identity: Identity) -> None:
        self._handle, self._record, self._identity = handle, record, identity
        self._found: tuple[SessionRecord, Index] | None = None
        self._gone = record.forked_from is None

    async def _source(self) -> tuple[SessionRecord, Index] | None:
        """Return the source and its index; None if it is gone, or cannot be read."""
        if self._found is None and not self._gone:
            try:
                other = await self._handle.record(str(self._record.forked_from))
                async with self._handle.indexes.lock(other.id):
                    self._found = other, (await self._handle.indexes.get(other)).index
            except HiermemError:
                # Whatever is wrong with the source, the fork can do without it.
                self._gone = True
        return self._found

    async def _unchanged(self, source: SessionRecord) -> bool:
        now = await self._handle.store.session(source.id)
        return now is not None and (now.created_at, now.epoch) == (source.created_at, source.epoch)

    async def messages(self, index: Index, start: int, stop: int) -> Array:
        """Return the vectors of the messages from ``start``, as far as the source has them.

        ``index`` is the fork's; ``start`` and ``stop`` are in one stride.
        """
        nothing = np.empty((0, self._identity.dimension), dtype=np.float32)
        first = start // STRIDE * STRIDE
        stop = min(stop, self._record.forked_at or 0)
        found = await self._source() if start < stop else None
        if found is None:
            return nothing
        source, theirs = found
        kind = self._identity.kind
        for block in await read_blocks(self._handle, source.id, kind, first, first + 1):
            rows = vectors_in(theirs, block, self._identity)
            if rows is None:
                continue
            stop = await self._same_until(source, first, min(stop, block.stop))
            low, high = (place_of(index, at) - place_of(index, first) for at in (start, stop))
            if high > low and await self._unchanged(source):
                return rows[low:high]
        return nothing

    async def _same_until(self, source: SessionRecord, first: int, stop: int) -> int:
        """Return the index up to which the two have the same text, from ``first``."""
        both = zip(
            await self._handle.store.messages(source.id, first, stop),
            await self._handle.messages(self._record.id, first, stop),
            strict=False,
        )
        return next((own.index for other, own in both if _content(other) != _content(own)), stop)

    async def summaries(
        self, level: int, start: int, wanted: Sequence[Summary]
    ) -> Mapping[tuple[str, int], Array]:
        """Return the vectors of those ``wanted`` summaries that the source has with the same text.

        ``start`` is the start of their stretch of messages.
        """
        found = await self._source()
        if found is None:
            return {}
        source, _ = found
        kind, kept = self._identity.kind_of(level), dict[tuple[str, int], Array]()
        for block in await read_blocks(self._handle, source.id, kind, start, start + 1):
            kept |= packed.unpack_summaries(block.data, dimension=self._identity.dimension)
        names = [name_of(each) for each in wanted]
        shared = [name for name in names if name in kept]
        if not shared:
            return {}
        revisions = await self._handle.store.tree(source.id, source.tree).revisions(shared)
        texts = {(revision.node_id, revision.number): revision.text for revision in revisions}
        same = {
            name: kept[name]
            for name, each in zip(names, wanted, strict=True)
            if name in kept and texts.get(name) == each.text
        }
        return same if await self._unchanged(source) else {}


def _content(stored: StoredMessage) -> tuple[object, ...]:
    """Return everything that a message's passages and their vectors depend on."""
    message = stored.message
    return stored.index, stored.state, stored.echoes, speaker(message), body(message)
