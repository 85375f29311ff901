"""Reads all rows of a dump before a store writes the first one.

A store writes them in one transaction. While the rows arrive, that transaction has not begun, so it
waits for no other store and no network. The rows are kept in a temporary file without a name, so
that a session larger than memory can be restored.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Final

from hiermem.errors import StoreError
from hiermem.stores.dump import Item, RowReader, held_items
from hiermem.types.transaction import StoredRow

#: Compressed bytes that are kept in memory; more go to a temporary file.
_IN_MEMORY: Final = 1 << 24
_SIZE_BYTES: Final = 8


class Received:
    """The complete rows of one dump; ``reader`` knows the session, the tenant and the secret."""

    def __init__(self, reader: RowReader, file: IO[bytes]) -> None:
        self.reader = reader
        self._file = file

    def pages(self) -> Iterator[list[Item]]:
        """Yield the items in their order, some hundred at a time; the record is the reader's."""
        self._file.seek(0)
        while size := self._file.read(_SIZE_BYTES):
            data = self._file.read(int.from_bytes(size))
            yield list(held_items(json.loads(zlib.decompress(data))))


@asynccontextmanager
async def received(
    rows: AsyncIterable[Sequence[StoredRow]], tenant: str
) -> AsyncGenerator[Received]:
    """Read all rows of a dump of ``tenant``, and keep them until the block ends.

    Raises UsageError if they are no complete dump of this format, or are of another tenant, and
    StoreError if the temporary file cannot be written.
    """
    reader = RowReader(tenant)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:

        def take(page: Sequence[StoredRow]) -> None:
            taken = [(row, reader.take(row)) for row in page]
            items = [row for row, item in taken if item and item[0] != "session"]
            data = zlib.compress(json.dumps(items).encode(), 1)
            try:
                file.write(len(data).to_bytes(_SIZE_BYTES) + data)
            except OSError as error:
                raise StoreError(
                    f"a restore keeps its rows in {tempfile.gettempdir()}, which cannot be "
                    f"written ({error.strerror}); nothing was restored"
                ) from None

        async for page in rows:
            await asyncio.to_thread(take, page)
        reader.end()
        yield Received(reader, file)
