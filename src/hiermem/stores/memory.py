"""Runs the five operations in memory: a dict of rows a table, and a sorted list for each order."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, cast

from hiermem.errors import ClosedError
from hiermem.records.tables import TABLES, Commit, Copies, Found, Key, Row, Scan, Table
from hiermem.types.transaction import Scrubbed

#: The columns of an order; an end of a range may have one more, which is above every value.
_Entry = tuple[Any, ...]
#: A list is cut in two above this length, so that an insertion moves little.
_LONGEST: Final = 2_000


class _Above:
    """Is above every value, so that a tuple that ends with it is above all that begin alike."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return True


_ABOVE: Final = _Above()


class _Order:
    """A sorted list in pieces, with the last entry of each piece."""

    def __init__(self) -> None:
        self.pieces: list[list[_Entry]] = [[]]
        self.lasts: list[_Entry] = [(_ABOVE,)]

    def insert(self, entry: _Entry) -> None:
        at = bisect_left(self.lasts, entry)
        piece = self.pieces[at]
        insort(piece, entry)
        if len(piece) > _LONGEST:
            half = len(piece) // 2
            self.pieces[at : at + 1] = piece[:half], piece[half:]
            self.lasts.insert(at, piece[half - 1])

    def remove(self, entry: _Entry) -> None:
        at = bisect_left(self.lasts, entry)
        piece = self.pieces[at]
        del piece[bisect_left(piece, entry)]
        if not piece and at + 1 < len(self.pieces):
            del self.pieces[at], self.lasts[at]

    def range(self, low: _Entry, high: _Entry, *, reverse: bool) -> Iterator[_Entry]:
        """Yield the entries from ``low`` up to ``high``; the order must not change meanwhile."""
        first, last = bisect_left(self.lasts, low), bisect_left(self.lasts, high)
        for at in range(last, first - 1, -1) if reverse else range(first, last + 1):
            piece = self.pieces[at]
            start = bisect_left(piece, low) if at == first else 0
            places = range(start, bisect_left(piece, high) if at == last else len(piece))
            yield from map(piece.__getitem__, reversed(places) if reverse else places)


class _Rows:
    """The rows of one table by key, and its orders by name."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.by_key: dict[_Entry, Row] = {}
        self.orders = {name: _Order() for name in table.orders}
        #: Where in an entry of each order the columns of the key stand.
        self.key_places = {
            name: [places.index(place) for place in range(table.keys)]
            for name, places in table.orders.items()
        }

    def put(self, row: Row) -> None:
        key = row[: self.table.keys]
        before = self.by_key.get(key)
        self.by_key[key] = row
        for name, places in self.table.orders.items():
            old = None if before is None else tuple([before[place] for place in places])
            new = tuple([row[place] for place in places])
            if old != new:
                if old is not None and None not in old:
                    self.orders[name].remove(old)
                if None not in new:
                    self.orders[name].insert(new)

    def delete(self, prefix: _Entry) -> None:
        whole = len(prefix) == self.table.keys
        for key in [prefix] if whole else list(self.range(Scan(self.table.name, prefix))):
            row = self.by_key.pop(key, None)
            if row is not None:
                for name, places in self.table.orders.items():
                    entry = tuple([row[place] for place in places])
                    if None not in entry:
                        self.orders[name].remove(entry)

    def range(self, scan: Scan) -> Iterator[_Entry]:
        """Yield the keys of a scan, in its order, whatever its limit."""
        low = (*scan.prefix, *scan.after, _ABOVE) if scan.after else scan.prefix
        high = (*scan.prefix, *scan.below) if scan.below else (*scan.prefix, _ABOVE)
        places = self.key_places[scan.index]
        for entry in self.orders[scan.index].range(low, high, reverse=scan.reverse):
            yield tuple([entry[place] for place in places])


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
