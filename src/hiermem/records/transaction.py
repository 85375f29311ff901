"""Reads rows of one state, holds writes back, and commits them with what they rely on.

Nothing is locked between a read and the commit. Each guard that a decision relies on is verified at
every later read and expected by the commit; if one changed, the decision begins again. So at each
moment all that was read is of one state, and no decision sees a mixture of two.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from types import coroutine
from typing import Any, Final, Literal, TypeAlias, TypeVar

from hiermem.records.contract import Shape, check, decode, shape
from hiermem.records.store import Reading
from hiermem.records.tables import TABLES, Commit, Copies, Found, Key, Row, Scan, Value

T = TypeVar("T")
#: What a coroutine asks: rows by key and ranges, the store's time, the number of a new session.
_Request: TypeAlias = tuple[Sequence[Key], Sequence[Scan]] | Literal["now", "number"]

#: The number of guards that a process remembers.
_REMEMBERED: Final = 4096
_GUARD: Final[Mapping[str, int]] = {
    name: table.guard for name, table in TABLES.items() if table.guard is not None
}
_SHAPES: Final[Mapping[str, Shape]] = {name: shape(one.letters) for name, one in TABLES.items()}
#: The guards that are verified at every later read; the others guard one row each.
_VERIFIED: Final = frozenset(("heads", "sessions", "coverage", "counters", "store"))
_OWN: Final = int.from_bytes(os.urandom(2)) & 0x3FF
_last = 0
_numbering = threading.Lock()


def serial(above: int = 0) -> int:
    """Return a number above ``above`` and above all that this process drew, by time.

    Of two processes, the later one draws the greater number, if their clocks agree; ten bits, drawn
    at random, keep them apart within a microsecond.
    """
    global _last  # noqa: PLW0603 - one sequence for the whole process
    with _numbering:
        drawn = (time.time_ns() // 1000) << 10 | _OWN
        if drawn <= _last:
            drawn = _last + 1
        if drawn <= above:
            drawn = above + 1
        _last = drawn
        return drawn


class ConflictingWrite(Exception):  # noqa: N818 - it never leaves this package
    """A guard changed since it was read: decide again."""


class Remembered:
    """The rows of guards as this process saw them last: they save a read, and are verified."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Key, Row] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Row | None:
        """Return the row that was last seen under a key, or None."""
        return self._rows.get(key)

    def put(self, key: Key, row: Row | None) -> None:
        """Remember a row or, with None, forget it; of many, forget that of longest ago, too."""
        with self._lock:
            self._rows.pop(key, None)
            if row is not None:
                self._rows[key] = row
            if len(self._rows) > _REMEMBERED:
                self._rows.popitem(last=False)

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget the rows under these keys."""
        with self._lock:
            for key in keys:
                self._rows.pop(key, None)


@coroutine
def _ask(request: _Request) -> Generator[_Request, Any, Any]:
    """Ask whoever drives this coroutine, and return his answer."""
    return (yield request)


async def read(store: Reading, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
    """Read rows whose columns have the declared types, or raise StoreCorruptError."""
    found = await store.read(gets, scans)
    for key, row in zip(gets, found.rows, strict=True):
        if row is not None:
            _check(key.table, (row,))
    for scan, rows in zip(scans, found.ranges, strict=True):
        _check(scan.table, rows)
    return found


def _check(table: str, rows: Sequence[Row]) -> None:
    declared = _SHAPES[table]
    if not declared.seen.issuperset([tuple(map(type, row)) for row in rows]):
        decode(rows, partial(check, shape=declared), table)


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of coroutines that read; what they wait for is read together."""
    running = list(enumerate(coroutines))
    results: dict[int, T] = {}
    try:
        while running:
            gets: list[Key] = []
            scans: list[Scan] = []
            waiting = []
            for place, reading in running:
                try:
                    request = reading.send(None)
                    while request == "now" or request == "number":  # noqa: PLR1714 - it tells the type
                        request = reading.send(await _ask(request))
                except StopIteration as done:
                    results[place] = done.value
                else:
                    gets += request[0]
                    scans += request[1]
                    waiting.append((place, reading))
            running = waiting
            if running:
                await _ask((gets, scans))
    finally:
        for _, reading in running:
            reading.close()
    return [results[place] for place in range(len(results))]


class Transaction:
    """One try of one operation of a tenant: what it read, relies on and is about to write.

    ``decides``: a decision about what to write may rely on all that is read, so that ranges are
    guarded against additions; a mere read is guarded against removals alone.
    """

    def __init__(
        self,
        store: Reading,
        tenant: str,
        *,
        decides: bool,
        remembered: Remembered | None,
        numbers: Callable[[], Awaitable[int]],
        parsed: dict[Any, Any],
        token: str = "",
    ) -> None:
        self.store, self.tenant, self.decides = store, tenant, decides
        self._remembered = remembered
        self._numbers = numbers
        #: Values by the guards of their rows, which this process has parsed.
        self.parsed = parsed
        self._rows: dict[Key, Row | None] = {}
        self._ranges: dict[Scan, Sequence[Row]] = {}
        #: The number of each guard that the decision relies on; those that were not read are bets.
        self.relied: dict[Key, int | None] = {}
        self._bets: set[Key] = set()
        self._reads = 0
        #: What is written and deleted, by table and key, and the prefixes that are deleted before.
        self._writes: dict[str, dict[tuple[Value, ...], Row | None]] = {}
        self._wiped: dict[str, list[tuple[Value, ...]]] = {}
        self._copies: list[Copies] = []
        self._adds: dict[Key, int] = {}
        self.durable = True
        #: What this writer's turns on sessions are marked with, "" if it has none.
        self.token = token
        #: A number above which all that is written must be numbered.
        self.above = 0
        #: The sessions that were found, as they are after the writes.
        self.found: dict[str, Any] = {}
        self._now: datetime | None = None

    async def number(self) -> int:
        """Return a number that no session has or had."""
        number: int = await _ask("number")
        return number

    async def now(self) -> datetime:
        """Return the store's time, the same for the whole transaction."""
        now: datetime = self._now or await _ask("now")
        self._now = now
        return now

    # -- reading

    async def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that reads through this transaction, and return its result."""
        answer: Any = None
        try:
            while True:
                request: _Request = work.send(answer)
                if request == "number":
                    answer = await self._numbers()
                elif request == "now":
                    answer = await self.store.now()
                else:
                    answer = None
                    await self._fetch(*request)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            work.close()

    async def _fetch(self, keys: Sequence[Key], ranges: Sequence[Scan]) -> None:
        """Read what is asked for and not known, and verify the guards in the same state."""
        gets = [key for key in dict.fromkeys(keys) if key not in self._rows]
        scans = [scan for scan in dict.fromkeys(ranges) if scan not in self._ranges]
        if not gets and not scans:
            return
        expected = self._expected()
        verified = [
            key for key in expected if key in self._bets or (self._reads and key.table in _VERIFIED)
        ]
        found = await read(self.store, [*verified, *gets], scans)
        self._reads += 1
        for key, row in zip(verified, found.rows, strict=False):
            if _number(key, row) != expected[key]:
                raise ConflictingWrite
        self._bets.clear()
        self._rows.update(zip(gets, found.rows[len(verified) :], strict=True))
        self._ranges.update(zip(scans, found.ranges, strict=True))

    def _expected(self) -> dict[Key, int | None]:
        """Return the guards that show that all relied on is so.

        Whoever writes a session's row in ``sessions`` writes the one in ``heads``, too.
        """
        relied = self.relied
        return {
            key: number
            for key, number in relied.items()
            if key.table != "sessions" or Key("heads", key.columns) not in relied
        }

    def guess(self, *keys: Key) -> None:
        """Take guards as they were last seen, unread; a later read or the commit verifies them."""
        if self._remembered is None:
            return
        for key in keys:
            if key not in self._rows and (row := self._remembered.get(key)) is not None:
                self._bet(key, row)

    def bet_absent(self, *keys: Key) -> bool:
        """Take it that rows do not exist, unread; return False in a later try, which reads."""
        if self._remembered is None:
            return False
        for key in keys:
            if key not in self._rows:
                self._bet(key, None)
        return True

    def is_bet(self, guard: Key) -> bool:
        """Return whether a guard was taken unread."""
        return guard in self._bets

    def _bet(self, key: Key, row: Row | None) -> None:
        self._rows[key] = row
        self.relied[key] = _number(key, row)
        self._bets.add(key)

    async def want(self, keys: Iterable[Key], scans: Iterable[Scan] = ()) -> None:
        """Read together what is asked for one by one afterwards."""
        gets = [key for key in keys if key not in self._rows]
        ranges = [scan for scan in scans if scan not in self._ranges]
        if gets or ranges:
            await _ask((gets, ranges))

    async def get(self, key: Key, guard: Key | None = None) -> Row | None:
        """Return a row, or None. The decision relies on it, or on ``guard`` if the row has none."""
        name, columns = key
        if name in self._writes and columns in self._writes[name]:
            return self._writes[name][columns]
        if name in self._wiped and _is_wiped(columns, self._wiped[name]):
            return None
        if key not in self._rows:
            wanted = [key] if guard is None or guard in self._rows else [guard, key]
            await _ask((wanted, []))
        row = self._rows[key]
        if key.table in _GUARD:
            self.relied.setdefault(key, _number(key, row))
        elif guard is not None:
            await self.rely(guard)
        return row

    def release(self, guard: Key) -> None:
        """Rely on a guard no longer."""
        self.relied.pop(guard, None)
        self._bets.discard(guard)

    async def rely(self, guard: Key) -> None:
        """Rely on a guard."""
        if guard not in self.relied:
            if guard not in self._rows:
                await _ask(([guard], []))
            self.relied[guard] = _number(guard, self._rows[guard])

    async def scan(self, scan: Scan, guard: Key | None = None) -> Sequence[Row]:
        """Return the rows of a range with the writes of this transaction; rely on ``guard``."""
        table = TABLES[scan.table]
        written = self._writes.get(scan.table, {})
        wiped = self._wiped.get(scan.table, [])
        asked = scan._replace(limit=None) if written or wiped else scan
        if asked not in self._ranges:
            wanted = [guard] if guard is not None and guard not in self._rows else []
            await _ask((wanted, [asked]))
        if guard is not None:
            await self.rely(guard)
        found = self._ranges[asked]
        if self.decides and scan.table in _GUARD:
            for row in found:
                key = table.key_of(row)
                self._rows.setdefault(key, row)
                self.relied.setdefault(key, _number(key, row))
        if asked is scan:
            return found
        order = table.orders[scan.index]
        rows = [
            row
            for row in found
            if (columns := row[: table.keys]) not in written and not _is_wiped(columns, wiped)
        ]
        rows += [row for row in written.values() if row is not None and _within(row, scan, order)]
        rows.sort(key=lambda row: [row[place] for place in order], reverse=scan.reverse)
        return rows[: scan.limit]

    # -- writing

    def serial(self) -> int:
        """Return a number above those that were drawn for the sessions that were read."""
        return serial(self.above)

    def put(self, table: str, row: Row) -> None:
        """Write a row, which replaces the one of the same key."""
        self._writes.setdefault(table, {})[row[: TABLES[table].keys]] = row

    def written(self, key: Key) -> Row | None:
        """Return a row that this transaction writes, or None."""
        return self._writes.get(key.table, {}).get(key.columns)

    def delete(self, key: Key) -> None:
        """Delete a row, if it exists."""
        self._writes.setdefault(key.table, {})[key.columns] = None

    def wipe(self, prefix: Key) -> None:
        """Delete all rows whose key begins so."""
        written = self._writes.get(prefix.table, {})
        for columns in [one for one in written if _is_wiped(one, [prefix.columns])]:
            del written[columns]
        self._wiped.setdefault(prefix.table, []).append(prefix.columns)

    def copy(self, rows: Copies) -> None:
        """Write copies of stored rows; they are not seen by this transaction."""
        self._copies.append(rows)

    def count(self, kind: str, name: str) -> None:
        """Add to a counter, as whoever writes below it must.

        What is added varies, so that a counter that was deleted does not repeat its numbers.
        """
        self._adds[Key("counters", (self.tenant, kind, name))] = serial() >> 10 & 0xFFFF | 1

    def forget_counts(self, prefix: Key) -> None:
        """Delete counters, and add nothing to them."""
        gone = [prefix.columns]
        self._adds = {
            key: number for key, number in self._adds.items() if not _is_wiped(key.columns, gone)
        }
        self.wipe(prefix)

    @property
    def changes(self) -> bool:
        """Return whether there is anything to commit."""
        return bool(self._writes or self._wiped or self._adds)

    async def holds(self) -> bool:
        """Return whether all that was relied on is so still: asked before an error is raised."""
        if not self.relied or (not self._bets and self._reads <= 1):
            return True
        expected = self._expected()
        found = await self.store.read(list(expected), [])
        return all(
            _number(key, row) == expected[key]
            for key, row in zip(expected, found.rows, strict=True)
        )

    async def verify(self) -> None:
        """Verify what a transaction that writes nothing took unread, or decided by."""
        if (self._bets or self.decides) and not await self.holds():
            raise ConflictingWrite

    def commit(self, *, again: bool = False) -> Commit:
        """Return the commit of the writes, which expects that all that was relied on is so.

        With ``again`` it expects those guards, too, for which others stand.
        """
        expected = dict(self.relied) if again else self._expected()
        change = Commit(expected, [], self._copies, {}, self._adds, self.durable)
        for name, prefixes in self._wiped.items():
            change.deletes += [Key(name, prefix) for prefix in prefixes]
        for name, written in self._writes.items():
            is_wiped = name in self._wiped
            puts: list[Row] = []
            for columns, row in written.items():
                known = self._rows.get(Key(name, columns), ())
                if row is None:
                    if known is not None:
                        change.deletes.append(Key(name, columns))
                elif known != row or is_wiped:
                    puts.append(row)
            if puts:
                change.puts[name] = puts
        return change

    def seen(self) -> Iterator[tuple[Key, Row | None]]:
        """Yield the guards of sessions and claims as they are after the commit."""
        for name in ("heads", "sessions", "due"):
            written = self._writes.get(name, {})
            for columns, row in written.items():
                yield Key(name, columns), row
            for columns in self._wiped.get(name, ()):
                yield Key(name, columns), None
        for key in self.relied:
            is_guard = key.table in ("heads", "sessions", "due")
            if is_guard and key.columns not in self._writes.get(key.table, ()):
                yield key, self._rows[key]


def _number(key: Key, row: Row | None) -> int | None:
    """Return the number of a guard; of a row without one, only whether it exists counts."""
    if row is None:
        return None
    number: int = row[_GUARD[key.table]] if key.table in _GUARD else 1
    return number


def _is_wiped(columns: tuple[Value, ...], prefixes: Sequence[tuple[Value, ...]]) -> bool:
    """Return whether a key begins with one of these prefixes."""
    return any(columns[: len(prefix)] == prefix for prefix in prefixes)


def _within(row: Row, scan: Scan, order: Sequence[int]) -> bool:
    """Return whether a row belongs to a scan."""
    columns: tuple[Value, ...] = tuple(row[place] for place in order)
    if None in columns or columns[: len(scan.prefix)] != scan.prefix:
        return False
    rest: Any = columns[len(scan.prefix) :]
    after, below = scan.after, scan.below
    return (not after or rest[: len(after)] > after) and (not below or rest[: len(below)] < below)
