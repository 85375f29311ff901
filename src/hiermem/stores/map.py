"""Runs the five operations over an ordered map of bytes: four functions that an author writes.

A row is an entry with the bytes of its key, and one more for each index that it is in, which holds
the row's key. The bytes sort as the columns do: integers are shifted to be positive, and text is
UTF-8, which sorts by code points; it ends with 00 01, and a NUL in it is 00 FF.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Protocol, runtime_checkable

from hiermem.errors import ClosedError, StoreError
from hiermem.records.tables import TABLES, Commit, Found, Key, Row, Scan, Table, Value
from hiermem.types.transaction import Scrubbed

__all__ = ["ByteMap", "MapStore", "ScrubbedMap"]


class ByteMap(Protocol):
    """An ordered map of bytes. It is never called by two threads at once."""

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the value of each key, or None."""
        ...

    def scan(
        self, low: bytes, high: bytes, *, limit: int | None, reverse: bool
    ) -> Iterable[tuple[bytes, bytes]]:
        """Return the entries with ``low <= key < high`` in the order of bytes.

        If ``reverse``, they begin with the last; at most ``limit`` are returned.
        """
        ...

    def write(self, batch: Mapping[bytes, bytes | None], *, durable: bool) -> None:
        """Put each value, and delete the keys whose value is None: all or, if it raises, nothing.

        If ``durable``, it returns when a power loss can no longer undo it.
        """
        ...

    def close(self) -> None:
        """Release what the map holds; called once."""
        ...


@runtime_checkable
class ScrubbedMap(Protocol):
    """A map that can remove the bytes of what was deleted."""

    def scrub(self) -> None:
        """Rewrite the map, so that it holds no bytes of deleted or replaced entries."""
        ...


class MapStore:
    """A store over a ``map``; ``durable`` says whether the map survives the process."""

    def __init__(
        self,
        map: ByteMap,  # noqa: A002
        *,
        durable: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._map, self._clock = map, clock
        self.capabilities = frozenset({"on_thread", *(["durable"] if durable else [])})
        self._lock = threading.Lock()
        self._closed = False

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return the rows with these keys and of these ranges, under the lock of commits."""
        with self._in_use():
            rows = self._rows([(key.table, key_bytes(key)) for key in gets])
            return Found(rows, [self._range(scan) for scan in scans])

    async def commit(self, change: Commit) -> bool:
        """Write the change as one batch if every expectation holds; return whether."""
        with self._in_use():
            batch = self._batch(change)
            if batch:
                self._map.write(batch, durable=change.durable)
            return batch is not None

    async def now(self) -> datetime:
        """Return the time of the clock that the store was given."""
        with self._in_use():
            return self._clock()

    async def scrub(self) -> Scrubbed:
        """Have the map rewritten, if it can."""
        with self._in_use():
            if not isinstance(self._map, ScrubbedMap):
                return Scrubbed(done=False, reason="the map has no scrub()")
            self._map.scrub()
            return Scrubbed(done=True)

    async def close(self) -> None:
        """Close the map, once."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._map.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Hold the lock; raise StoreError if the map fails, which has then written nothing.

        A map that cannot know whether it wrote raises StoreError with ``committed=None`` itself.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the store is closed; open it again")
            try:
                yield
            except StoreError:
                raise
            except Exception as error:
                raise StoreError(f"the map failed: {type(error).__name__}: {error}") from error

    def _rows(self, keys: Sequence[tuple[str, bytes]]) -> list[Row | None]:
        values = self._map.get([key for _, key in keys]) if keys else ()
        return [
            None if value is None else _row(TABLES[table], value)
            for (table, _), value in zip(keys, values, strict=True)
        ]

    def _range(self, scan: Scan) -> list[Row]:
        if scan.limit == 0:
            return []
        entries = list(self._map.scan(*bounds(scan), limit=scan.limit, reverse=scan.reverse))
        if scan.index:
            found = self._rows([(scan.table, key) for _, key in entries])
            return [row for row in found if row is not None]
        return [_row(TABLES[scan.table], value) for _, value in entries]

    def _batch(self, change: Commit) -> dict[bytes, bytes | None] | None:
        """Return what to write, or None if an expectation does not hold."""
        expected = self._rows([(key.table, key_bytes(key)) for key in change.expect])
        for (key, guard), row in zip(change.expect.items(), expected, strict=True):
            if guard != (None if row is None else row[TABLES[key.table].guard or 0]):
                return None
        batch: dict[bytes, bytes | None] = {}
        for key in change.deletes:
            self._delete(batch, key)
        for copies in change.copies:
            table = TABLES[copies.table]
            column, first = table.columns.index(copies.column), len(copies.to)
            stored = self._range(Scan(copies.table, copies.prefix))
            taken = [(*copies.to, *row[first:]) for row in stored if row[column] < copies.below]
            self._put(batch, table, taken)
        for name, rows in change.puts.items():
            self._put(batch, TABLES[name], rows)
        for key, number in change.adds.items():
            place = key_bytes(key)
            value = batch[place] if place in batch else self._map.get([place])[0]
            row = (*key.columns, 0) if value is None else _row(TABLES[key.table], value)
            self._put(batch, TABLES[key.table], [(*row[:-1], row[-1] + number)])
        return batch

    def _delete(self, batch: dict[bytes, bytes | None], key: Key) -> None:
        table = TABLES[key.table]
        if len(key.columns) == table.keys:
            place = key_bytes(key)
            entries = [(place, value) for value in self._map.get([place]) if value is not None]
        else:
            entries = list(self._map.scan(*bounds(Scan(*key)), limit=None, reverse=False))
        for place, value in entries:
            batch[place] = None
            if table.indexes:
                batch.update(dict.fromkeys(_entries(table, _row(table, value))))

    def _put(self, batch: dict[bytes, bytes | None], table: Table, rows: Sequence[Row]) -> None:
        keys = [key_bytes(table.key_of(row)) for row in rows]
        stored = self._map.get(keys) if table.indexes else [None] * len(keys)
        for key, value, row in zip(keys, stored, rows, strict=True):
            before = batch.get(key, value)
            if before is not None and table.indexes:
                batch.update(dict.fromkeys(_entries(table, _row(table, before))))
            batch[key] = _value(row)
            batch.update(dict.fromkeys(_entries(table, row), key))


def key_bytes(key: Key) -> bytes:
    """Return the bytes of a row's key, or those that the keys beginning so begin with."""
    return b"%b.\0%b" % (key.table.encode(), _columns(key.columns))


def bounds(scan: Scan) -> tuple[bytes, bytes]:
    """Return the first bytes of a scan's range, and the first bytes above it."""
    prefix = f"{scan.table}.{scan.index}\0".encode() + _columns(scan.prefix)
    low = _above(prefix + _columns(scan.after)) if scan.after else prefix
    return low, prefix + _columns(scan.below) if scan.below else _above(prefix)


def _above(start: bytes) -> bytes:
    """Return the least bytes above all that begin with ``start``, which is not all FF."""
    start = start.rstrip(b"\xff")
    return start[:-1] + bytes([start[-1] + 1])


def _columns(values: Iterable[Value]) -> bytes:
    """Encode the columns of a key; each shows where it ends, so that order is kept."""
    return b"".join([_column(value) for value in values])


def _column(value: Value) -> bytes:
    if isinstance(value, int):
        return (value + 2**63).to_bytes(8, "big")
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    assert isinstance(value, bytes), "a key holds integers, text and bytes"
    return value.replace(b"\0", b"\0\xff") + b"\0\1"


def _entries(table: Table, row: Row) -> list[bytes]:
    """Return the keys of a row's entries in the indexes."""
    return [
        f"{table.name}.{index}\0".encode() + _columns([row[place] for place in places])
        for index, places in table.orders.items()
        if index and not any(row[place] is None for place in places)
    ]


def _value(row: Row) -> bytes:
    """Encode a row as a line of JSON, with its bytes, of which the line has the lengths, behind."""
    blobs: list[bytes] = []

    def length(value: Any) -> int:
        blobs.append(bytes(memoryview(value)))
        return len(blobs[-1])

    text = json.dumps(row, default=length, ensure_ascii=False, separators=(",", ":"))
    return b"\n".join(
        [text.encode("utf-8", "surrogatepass"), *([b"".join(blobs)] if blobs else [])]
    )


def _row(table: Table, value: bytes) -> Row:
    line, _, blobs = value.partition(b"\n")
    row = json.loads(line.decode("utf-8", "surrogatepass"))
    for place in _BLOBS[table.name]:
        length = row[place]
        if length is not None:
            row[place], blobs = blobs[:length], blobs[length:]
    return tuple(row)


#: The places of the columns of bytes, by table.
_BLOBS: Final = {
    name: [place for place, letter in enumerate(table.letters) if letter in "bB"]
    for name, table in TABLES.items()
}
