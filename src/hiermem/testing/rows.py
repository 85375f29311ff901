"""Decides what a store must answer: a dict of rows, driven by the same steps, and what differs.

The dict is brute force on purpose: a scan looks at every row, so that it is plainly right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from hiermem.records.tables import TABLES, Commit, Found, Key, Row, Scan, Value

#: What a column holds of which nothing is said, by its letter.
_PLAIN: Final[dict[str, Value]] = {"s": "", "i": 0, "f": 0.0, "b": b""}
#: Names that a store confuses if it compares by prefix, pattern, case, normal form or quoting.
HOSTILE_NAMES = (
    "a", "A", "a.", "a%", "a_", "a ", " a", "aa",
    "\N{LATIN SMALL LETTER A WITH ACUTE}", "a\N{COMBINING ACUTE ACCENT}",
    "\N{FULLWIDTH LATIN SMALL LETTER A}", "ß", "ss", "%", "_", "'", '"',
    "a'; DROP TABLE messages; --", "0", "00", "null", "🙂",
)  # fmt: skip
#: The longest text that a failure shows whole.
_LONGEST: Final = 48


def row(table: str, *key: Value, **columns: Value) -> Row:
    """Return a row with this key and these columns; the others are empty, or None if they may."""
    made = TABLES[table]
    assert len(key) == made.keys, made
    letters = zip(made.columns, made.letters, strict=True)
    return key + tuple(
        columns.get(column, _PLAIN.get(letter)) for column, letter in list(letters)[made.keys :]
    )


def column(of: Row | None, table: str, name: str) -> Value:
    """Return one column of a row, or None if there is no row."""
    return None if of is None else of[TABLES[table].columns.index(name)]


def put(*rows: tuple[str, Row], **rest: Any) -> Commit:
    """Return a commit that puts rows, each with its table, and has these other fields."""
    change = Commit(**rest)
    for table, one in rows:
        change.puts.setdefault(table, []).append(one)
    return change


class Model:
    """A dict of rows by key, which does what the contract says."""

    def __init__(self, rows: dict[Key, Row] | None = None) -> None:
        self.rows = dict(rows or {})

    def commit(self, change: Commit) -> bool:
        """Apply the change if every expectation holds; return whether."""
        if any(self.guard(key) != guard for key, guard in change.expect.items()):
            return False
        for prefix in change.deletes:
            for key in [key for key in self.rows if _begins(key, prefix)]:
                del self.rows[key]
        for name, of, to, column, below in change.copies:
            place = TABLES[name].columns.index(column)
            for key, one in list(self.rows.items()):
                if _begins(key, Key(name, of)) and one[place] < below:
                    copy = (*to, *one[len(to) :])
                    self.rows[TABLES[name].key_of(copy)] = copy
        for table, rows in change.puts.items():
            for one in rows:
                self.rows[TABLES[table].key_of(one)] = one
        for key, number in change.adds.items():
            self.rows[key] = (*key.columns, (self.guard(key) or 0) + number)
        return True

    def guard(self, key: Key) -> int | None:
        """Return a row's guard, -1 if its table has none, or None if there is no such row."""
        place = TABLES[key.table].guard
        if key not in self.rows:
            return None
        return -1 if place is None else int(self.rows[key][place] or 0)

    def read(self, gets: Sequence[Key], scans: Sequence[Scan]) -> Found:
        """Return the rows with these keys and of these ranges."""
        return Found([self.rows.get(key) for key in gets], [self.scan(scan) for scan in scans])

    def scan(self, scan: Scan) -> list[Row]:
        """Return the rows of a range, found by looking at every row."""
        places = TABLES[scan.table].orders[scan.index]
        found = []
        for one in [one for key, one in self.rows.items() if key.table == scan.table]:
            entry = tuple(one[place] for place in places)
            rest = entry[len(scan.prefix) :]
            if (
                None not in entry
                and entry[: len(scan.prefix)] == scan.prefix
                and (not scan.after or rest[: len(scan.after)] > scan.after)
                and (not scan.below or rest[: len(scan.below)] < scan.below)
            ):
                found.append((entry, one))
        found.sort(key=lambda pair: pair[0], reverse=scan.reverse)
        return [one for _, one in found][: scan.limit]


def everything(tables: Iterable[str], tenant: str) -> list[Scan]:
    """Return scans of every order of these tables, and of their last rows."""
    return [
        scan
        for name in tables
        for index, places in TABLES[name].orders.items()
        for prefix in [(tenant,) if TABLES[name].columns[places[0]] == "tenant" else ()]
        for scan in (Scan(name, prefix, index=index), Scan(name, prefix, (), (), index, 3, True))  # noqa: FBT003
    ]


def _begins(key: Key, prefix: Key) -> bool:
    return key.table == prefix.table and key.columns[: len(prefix.columns)] == prefix.columns


def difference(table: str, found: Sequence[Any], right: Sequence[Row | None]) -> str | None:
    """Say which row is the first that is not right, what was there and what should be."""
    for at in range(max(len(found), len(right))):
        was, want = (rows[at] if at < len(rows) else None for rows in (found, right))
        if _typed(was) != _typed(want):
            break
    else:
        return None
    keys = TABLES[table].keys
    there, wanted = ([tuple(row or ())[:keys] for row in rows] for rows in (found, right))
    of = (wanted + there)[at if at < len(wanted) else len(wanted) + at]
    stated = [_row_text(table, was), _row_text(table, want)]
    if was and there[at] not in wanted:
        of, stated[1] = there[at], "not there"
    elif was and of not in there:
        stated[0] = "not there"
    elif was and want and len(was) == len(want) and there[at] == wanted[at]:
        pairs = zip(TABLES[table].columns, was, want, strict=True)
        wrong = [pair for pair in pairs if _typed(pair[1:2]) != _typed(pair[2:])]
        stated = [", ".join(f"{pair[0]} = {brief(pair[n])}" for pair in wrong[:4]) for n in (1, 2)]
    if max(len(found), len(right)) > 1:
        for n, listed in enumerate((there, wanted)):
            near = ", ".join(map(brief, listed[max(at - 1, 0) : at + 4]))
            stated[n] += f"\n           as row {at + 1} of {len(listed)}: … {near} …"
    return f"key        {key(Key(table, of))}\nwas there  {stated[0]}\nshould be  {stated[1]}"


def _typed(row: Row | None) -> object:
    """Return a row so that 1, 1.0 and True differ, and a list is no row."""
    return None if row is None else (type(row), [(type(value), value) for value in row])


def _row_text(table: str, of: Row | None) -> str:
    if not of:
        return "no row"
    keys, columns = TABLES[table].keys, TABLES[table].columns
    stated = [f"{name}={brief(value)}" for name, value in zip(columns, of, strict=False) if value]
    columns_missing = "" if len(of) == len(columns) else f" ({len(of)} columns)"
    return f"{brief(tuple(of)[:keys])} {' '.join(stated[keys:])}"[:200].strip() + columns_missing


def brief(value: object) -> str:
    """Show a value in a few ASCII characters, so that none looks like another."""
    if isinstance(value, str | bytes) and len(value) > _LONGEST:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:8]!a}…{value[-2:]!a} ({len(value):,} {unit})"
    if isinstance(value, tuple):
        return f"({', '.join(map(brief, value))}{',' * (len(value) == 1)})"
    return ascii(value)[: 4 * _LONGEST]


def key(of: Key) -> str:
    """Show a key as its table and its columns."""
    return f"{of.table}({', '.join(map(brief, of.columns))})"


def scan(of: Scan) -> str:
    """Show a scan by what it states."""
    pairs = zip(of._fields[1:], of[1:], Scan("", ("-",))[1:], strict=True)
    stated = [f"{name} {brief(value)}" for name, value, plain in pairs if value != plain]
    return f"{of.table} {' '.join(stated)}"


def commit(of: Commit) -> str:
    """Show a commit by what is in it, in the order in which it is done."""
    puts = [TABLES[table].key_of(row) for table, rows in of.puts.items() for row in rows]
    parts = {
        "expect": [f"{key(each)} = {guard}" for each, guard in of.expect.items()],
        "delete": [key(each) for each in of.deletes],
        "copy": [f"{key(Key(*each[:2]))} to {key(Key(each[0], each.to))}" for each in of.copies],
        "put": [key(each) for each in puts],
        "add": [f"{key(each)} + {number}" for each, number in of.adds.items()],
    }
    stated = [
        f"{name} {', '.join(items[:3])}{f' … ({len(items):,})' if len(items) > 3 else ''}"
        for name, items in parts.items()
        if items
    ]
    return ("; ".join(stated) or "nothing") + ("" if of.durable else "; not durable")
