"""Decides the random steps by which a store is compared with a dict of rows."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, TypeAlias, TypeVar

from hiermem.records.tables import TABLES, Commit, Copies, Key, Row, Scan, Value
from hiermem.testing.rows import Model

T = TypeVar("T")

#: A step: a commit, a read of keys and ranges, or None: close and open again.
Step: TypeAlias = Commit | tuple[list[Key], list[Scan]] | None
_NAMES: Final = ("", "a", "A", "aa", "a\x01", "a ", "\xe1", "a\u0301", "\uffff", "\U0001f642")
_NUMBERS: Final = (0, 1, 2, -1, 300, 2**63 - 1, -(2**63))
_VALUES: Final[dict[str, Sequence[Value]]] = {
    "s": _NAMES,
    "i": _NUMBERS,
    "f": (0.0, 0.1, -1e300),
    "b": (b"", b"\0", b"\n'\xff"),
}
#: The tables of every shape; the last is written by adds alone.
_DRAWN: Final = (
    "records", "heads", "due", "messages", "revisions", "nodes", "labels", "keys", "pages",
    "counters",
)  # fmt: skip


def drawn(rng: Random, model: Model) -> Step:
    """Draw a step that has to do with the rows of ``model`` most of the time."""
    tenant = rng.choice(("a", "a "))
    keys = [key for key in model.rows if key.columns[0] == tenant]

    def some() -> list[Key]:
        return [
            rng.choice(keys) if keys and rng.random() < 0.7 else _key(rng, tenant)
            for _ in range(rng.randrange(3))
        ]

    kind = rng.random()
    if kind < 0.05:
        return None
    if kind < 0.5:
        return some(), [_scan(rng, model, tenant) for _ in range(rng.randrange(4))]
    change = Commit(durable=rng.random() < 0.5)
    for key in some():
        guard = model.guard(key)
        if rng.random() < 0.15:
            guard = rng.choice((None, 0, 1))
        # Of a row without a guard, only that it is absent can be expected.
        change.expect[key] = None if TABLES[key.table].guard is None else guard
    for key in some():
        change.deletes.append(Key(key.table, key.columns[: rng.randint(1, len(key.columns))]))
    if not change.deletes and rng.random() < 0.3:
        of, to = rng.choice(_NUMBERS), rng.randrange(1_000, 2**40)
        change.copies += [Copies("messages", (tenant, of), (tenant, to), "message", 2)]
    for table in rng.sample(_DRAWN[:-1], rng.randrange(4)):
        rows = [_row(rng, table, tenant) for _ in range(rng.randrange(4))]
        change.puts[table] = list({row[: TABLES[table].keys]: row for row in rows}.values())
    for name in rng.sample(_NAMES, rng.randrange(3)):
        change.adds[Key("counters", (tenant, "k", name))] = rng.randint(-3, 300)
    return change


def _row(rng: Random, table: str, tenant: str) -> Row:
    letters = TABLES[table].letters
    return (
        tenant,
        *(
            None if letter.isupper() and rng.random() < 0.3 else rng.choice(_VALUES[letter.lower()])
            for letter in letters[1:]
        ),
    )


def _key(rng: Random, tenant: str) -> Key:
    table = rng.choice(_DRAWN)
    return TABLES[table].key_of(_row(rng, table, tenant))


def _scan(rng: Random, model: Model, tenant: str) -> Scan:
    """Draw a range whose prefix and bounds are mostly those of rows that are there."""
    there = sorted({key.table for key in model.rows if key.columns[0] == tenant})
    table = rng.choice(there or _DRAWN)
    index, places = rng.choice(sorted(TABLES[table].orders.items()))
    rows = [row for key, row in model.rows.items() if key[0] == table and row[0] == tenant]
    drawn_rows = [rng.choice([*rows, _row(rng, table, tenant)]) for _ in range(3)]
    start, *ends = (tuple(row[place] for place in places) for row in drawn_rows)
    least = int(TABLES[table].columns[places[0]] == "tenant")
    length = min(rng.randint(least, len(places)) for _ in range(3)) if None not in start else least
    after, below = (
        end[length : length + rng.randint(1, 3)] if rng.random() < 0.4 and None not in end else ()
        for end in ends
    )
    limit = rng.choice((None, None, None, 0, 1, 3))
    return Scan(table, start[:length], after, below, index, limit, rng.random() < 0.5)
