"""Restores a dump in batches, each in a transaction of its own, and shows it when it is whole.

The rows that have arrived are kept where nothing reads them. A restore of the same rows resumes an
interrupted one after its last batch; a restore of other rows starts over. Only one batch of a dump
is in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from hiermem.core.log.row_digest import RowDigest, row_bytes
from hiermem.errors import SessionChangedError, StoreBusyError, UsageError
from hiermem.stores.dump import OWNER, Item, RowReader
from hiermem.types.transaction import TERMS, StoredRow

#: The number of rows in a batch.
BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a restore has come: ``rows`` were taken, which have the digest ``chain``.

    ``first`` is the digest of the first one, which is that of the session's record.
    """

    rows: int = 0
    chain: bytes = b""
    first: bytes = b""


class Receiver(Protocol):
    """The operations that ``receive`` needs of a store, for a session or the rows of no session.

    A receiver is made with the reader of the rows, which knows the session from its first row on.
    Each call is one transaction. The calls after ``begin`` raise StoreBusyError if another call has
    changed the progress.
    """

    async def begin(self, first: bytes) -> Progress:
        """Return how far the restore of this record has come, and reserve the session's place.

        ``first`` is the digest of the record. Rows that arrived with another one are dropped.
        Raises what ``TenantStore.restore`` does.
        """
        ...

    async def add(
        self, before: Progress, after: Progress, items: Sequence[Item], held: Sequence[StoredRow]
    ) -> None:
        """Keep the items where nothing reads them, and the rows ``held`` as they are."""
        ...

    async def finish(self, before: Progress, digest: str) -> None:
        """Show all of it, with the rows that were held. Raises what ``restore`` does."""
        ...

    async def drop(self) -> None:
        """Remove what came so far."""
        ...


def is_held(row: StoredRow) -> bool:
    """Return whether a row must wait for the end, because it would be found before."""
    if row["kind"] == "block":
        return bool(row["value"]["kind"] == TERMS)
    return row["kind"] in OWNER


def taken_over(session_id: str) -> StoreBusyError:
    """Return the error for a restore of which another one changed what had come."""
    what = f"session {session_id!r}" if session_id else "what belongs to no session"
    return StoreBusyError(f"another call restores {what} at the same time; call again")


async def receive(
    rows: AsyncIterable[Sequence[StoredRow]], reader: RowReader, receiver: Receiver
) -> None:
    """Restore the rows of a dump; ``receiver`` is for the session that ``reader`` finds in them.

    Raises what ``TenantStore.restore`` does.
    """
    try:
        await _receive(rows, reader, receiver)
    except (UsageError, SessionChangedError):
        if reader.count:  # before the first row it is not known whose rows these are
            await receiver.drop()
        raise


async def _receive(
    rows: AsyncIterable[Sequence[StoredRow]], reader: RowReader, receiver: Receiver
) -> None:
    chain, content = RowDigest(every=True), RowDigest()
    came = Progress()
    items: list[Item] = []
    held: list[StoredRow] = []
    async for page in rows:
        for row in page:
            item = reader.take(row)
            if item is None:
                continue
            said = row_bytes(row)
            chain.add(row, said)
            content.add(row, said)
            if reader.count == 1:
                came = await receiver.begin(chain.value)
            if reader.count <= came.rows:
                if reader.count == came.rows and chain.value != came.chain:
                    raise SessionChangedError(reader.session_id)
                continue
            if is_held(row):
                held.append(row)
            elif item[0] != "session":
                items.append(item)
            if reader.count - came.rows == BATCH:
                after = replace(came, rows=reader.count, chain=chain.value)
                await receiver.add(came, after, items, held)
                came, items, held = after, [], []
    reader.end()
    if not reader.count:
        came = await receiver.begin(chain.value)
    if reader.count < came.rows:
        raise SessionChangedError(reader.session_id)
    if reader.count > came.rows:
        after = replace(came, rows=reader.count, chain=chain.value)
        await receiver.add(came, after, items, held)
        came = after
    await receiver.finish(came, content.text)
