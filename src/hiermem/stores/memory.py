"""Runs the five operations in memory: a dict of rows a table, and a sorted list for each order."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import Any, cast

from hiermem.errors import ClosedError
from hiermem.records.tables import TABLES, Commit, Copies, Found, Key, Row, Scan, Table
from hiermem.types.transaction import Scrubbed

#: The columns of an order.
_Entry = tuple[Any, ...]


class _Rows:
    """The rows of one table by key, and a sorted list of entries for each of its orders."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.by_key: dict[_Entry, Row] = {}
        self._orders: dict[str, list[_Entry]] = {name: [] for name in table.orders}

    def put(self, row: Row) -> None:
        key = row[: self.table.keys]
        before = self.by_key.get(key)
        self.by_key[key] = row
        for name, places in self.table.orders.items():
            old = None if before is None else tuple([before[place] for place in places])
            new = tuple([row[place] for place in places])
            if old != new:
                if old is not None:
                    self._remove(name, old)
                if None not in new:
                    insort(self._orders[name], new)

    def _remove(self, name: str, entry: _Entry) -> None:
        if None not in entry:
            del self._orders[name][bisect_left(self._orders[name], entry)]

    def delete(self, prefix: _Entry) -> None:
        keys = self._orders[""]
        low, high = bisect_left(keys, prefix), _end(keys, prefix)
        rows = [self.by_key.pop(key) for key in keys[low:high]]
        del keys[low:high]
        for index in self.table.indexes:
            for row in rows:
                self._remove(index, tuple([row[place] for place in self.table.orders[index]]))

    def range(self, scan: Scan) -> Iterator[_Entry]:
        """Yield the keys of a scan, in its order, whatever its limit."""
        order, places = self._orders[scan.index], self.table.orders[scan.index]
        after, below = (*scan.prefix, *scan.after), (*scan.prefix, *scan.below)
        low = _end(order, after) if scan.after else bisect_left(order, scan.prefix)
        high = bisect_left(order, below) if scan.below else _end(order, scan.prefix)
        at = range(low, high)
        columns = [places.index(place) for place in range(self.table.keys)]
        for place in reversed(at) if scan.reverse else at:
            yield tuple([order[place][column] for column in columns])


def _end(order: list[_Entry], prefix: _Entry) -> int:
    """Return the place after the last entry that begins so, or would."""
    return bisect_right(order, prefix, key=itemgetter(slice(len(prefix))))


class MemoryStore:
    """A store that keeps its rows in this process."""

    capabilities = frozenset[str]()

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._rows = {name: _Rows(table) for name, table in TABLES.items()}
        self._lock = threading.Lock()
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed; open it again")

    async def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return the rows with these keys and of these ranges."""
        self._check()
        with self._lock:
            rows = [self._rows[key.table].by_key.get(key.columns) for key in gets]
            return Found(rows, [self._range(scan) for scan in scans])

    def _range(self, scan: Scan) -> list[Row]:
        rows = self._rows[scan.table]
        return [rows.by_key[key] for key in islice(rows.range(scan), scan.limit)]

    async def commit(self, change: Commit) -> bool:
        """Apply the change if every expectation holds; return whether."""
        self._check()
        with self._lock:
            if any(self._guard(key) != guard for key, guard in change.expect.items()):
                return False
            for key in change.deletes:
                self._rows[key.table].delete(key.columns)
            for copies in change.copies:
                self._copy(copies)
            for name, rows in change.puts.items():
                for row in rows:
                    self._rows[name].put(row)
            for key, number in change.adds.items():
                self._rows[key.table].put((*key.columns, (self._guard(key) or 0) + number))
            return True

    def _copy(self, copies: Copies) -> None:
        table = TABLES[copies.table]
        place = table.columns.index(copies.column)
        for row in self._range(Scan(copies.table, copies.prefix)):
            if row[place] < copies.below:
                self._rows[copies.table].put((*copies.to, *row[len(copies.to) :]))

    def _guard(self, key: Key) -> int | None:
        """Return a row's guard, -1 if its table has none, or None if there is no such row."""
        row, place = self._rows[key.table].by_key.get(key.columns), TABLES[key.table].guard
        number = -1 if place is None else row and row[place]
        return None if row is None else cast("int", number)

    async def now(self) -> datetime:
        """Return the time of the clock that the store was given."""
        self._check()
        return self._clock()

    async def scrub(self) -> Scrubbed:
        """Return that nothing is left: what is deleted here is in no file."""
        self._check()
        return Scrubbed(done=True)

    async def close(self) -> None:
        """Refuse every later call."""
        self._closed = True
