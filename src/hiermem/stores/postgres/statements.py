"""Decides the SQL of the declared tables: what reads them, and what a commit does on the server.

A text has ``@`` before each of our tables and ``?`` for each value; ``sent`` makes of it what is
sent. Rows travel as JSON, so that one statement writes any number of them. Names come from the
declarations alone, values are always bound.
"""

# ruff: noqa: S608 - the statements are put together from the declarations alone
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from hiermem.records.tables import TABLES, Commit, Copies, Key, Row, Scan, Table, Value

TYPES: Final = {"i": "bigint", "s": "text", "f": "float8", "b": "bytea"}
#: What the id of a commit must be above to be kept: ten minutes, in milliseconds.
_KEPT: Final = 600_000
#: The name that a transaction gives itself which sees what is due of all tenants.
EVERY_TENANT: Final = "*"
#: The guards whose rows a refused commit brings along, so that the next try need not read them.
_BROUGHT: Final = ("heads", "sessions", "due")
#: Where a commit is more than one statement, whether its expectations hold stands in a setting.
_SETTING: Final = "current_setting('hiermem.ok') = 'true'"
_FREE: Final = "current_setting('hiermem.free') = 'true'"
_CTE: Final = "EXISTS (SELECT FROM ok)"


class Statement(NamedTuple):
    """A text and its values."""

    sql: str
    values: Sequence[Any] = ()


@lru_cache(2_000)
def sent(schema: str, sql: str) -> bytes:
    """Return the text with the names of the schema's tables and the numbers of the values."""
    first, *rest = sql.replace("@", f'"{schema}".').split("?")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def quoted(columns: Iterable[str], of: str = "") -> str:
    """Return the names of columns, some of which are words of SQL."""
    of = f"{of}." if of else ""
    return _listed(f'{of}"{column}"' for column in columns)


def _equal(columns: Iterable[str], to: str = "", *, alias: str = "t") -> str:
    """Return that these columns equal those of ``to``, or values."""
    pairs = [(f'{alias}."{column}"', f'{to}"{column}"' if to else "?") for column in columns]
    return " AND ".join(f"{one} = {other}" for one, other in pairs)


def _columns(table: Table) -> str:
    return quoted(table.columns, "t")


def _arrays(letters: Iterable[str]) -> str:
    return _listed(f"?::{TYPES[letter.lower()]}[]" for letter in letters)


@cache
def _matched(name: str, columns: tuple[str, ...]) -> tuple[str, str]:
    """Return what finds several rows by these columns, for FROM or USING and for WHERE."""
    table = TABLES[name]
    arrays = _arrays(table.letters[table.columns.index(column)] for column in columns)
    where = _equal(columns, "q.")
    return f"unnest({arrays}) q({quoted(columns)})", where


def _found(name: str, columns: tuple[str, ...], keys: Sequence[tuple[Value, ...]]) -> Statement:
    """Return FROM and WHERE for the rows with one of these values in these columns."""
    if len(keys) == 1:
        return Statement(f"FROM @{name} t WHERE {_equal(columns)}", keys[0])
    using, where = _matched(name, columns)
    return Statement(f"FROM @{name} t, {using} WHERE {where}", _turned(keys))


def _turned(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(values) for values in zip(*rows, strict=True)]


# -- reading


def may_exist(key: Key) -> bool:
    """Return whether a row can have this key: no text of PostgreSQL holds a NUL."""
    return not any(isinstance(value, str) and "\0" in value for value in key.columns)


def get(name: str, keys: Sequence[tuple[Value, ...]]) -> Statement:
    """Return the statement that reads the rows of a table with these keys."""
    table = TABLES[name]
    found = _found(name, table.key, keys)
    return Statement(f"SELECT {_columns(table)} {found.sql}", found.values)


def shape(scan: Scan) -> Scan:
    """Return what the scans have in common that one statement may answer together."""
    return scan._replace(
        prefix=(len(scan.prefix),), after=(len(scan.after),), below=(len(scan.below),)
    )


def ranged(scans: Sequence[Scan]) -> Statement:
    """Return the statement of ranges of one shape; of several, a row begins with which it is of."""
    first = scans[0]
    name, index = first.table, first.index
    counts = len(first.prefix), len(first.after), len(first.below)
    text = _ranged(name, index, counts, reverse=first.reverse, many=len(scans) > 1)
    if len(scans) == 1:
        return Statement(text, [*first.prefix, *first.after, *first.below, first.limit])
    values = _turned((*one.prefix, *one.after, *one.below) for one in scans)
    return Statement(text, [*values, first.limit])


@cache
def _ranged(
    name: str, index: str, counts: tuple[int, int, int], *, reverse: bool, many: bool
) -> str:
    prefix, after, below = counts
    table = TABLES[name]
    places = table.orders[index]
    order = [f't."{table.columns[place]}"' for place in places]
    bound = [*places[:prefix], *places[prefix : prefix + after], *places[prefix : prefix + below]]
    marks = [f"q.v{n}" if many else "?" for n in range(len(bound))]
    conditions = [f"{one} = {mark}" for one, mark in zip(order, marks[:prefix], strict=False)]
    for count, sign, values in (
        (after, ">", marks[prefix:]),
        (below, "<", marks[prefix + after :]),
    ):
        if count:
            names = _listed(order[prefix : prefix + count])
            conditions.append(f"({names}) {sign} ({_listed(values[:count])})")
    conditions += [
        f't."{table.columns[place]}" IS NOT NULL'
        for place in places[prefix:]
        if table.letters[place].isupper()
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    direction = " DESC" if reverse else ""
    rest = [f"{one}{direction}" for one in order[prefix:]]
    ordered = f" ORDER BY {_listed(rest)}" if rest else ""
    text = f"SELECT {_columns(table)} FROM @{name} t{where}{ordered} LIMIT ?::bigint"
    if not many:
        return text
    arrays = _arrays(table.letters[place] for place in bound)
    names = _listed(f"v{n}" for n in range(len(bound)))
    return (
        f"SELECT q.n, t.* FROM unnest({arrays}) WITH ORDINALITY q({names}, n) "
        f"CROSS JOIN LATERAL ({text}) t ORDER BY {_listed(['q.n', *rest])}"
    )


def tenants(scan: Scan) -> Statement:
    """Return the statement of a range over all tenants for a role that may see their names only."""
    text = f"SELECT t.tenant FROM @{scan.table}_tenants t"
    if scan.after:
        text += " WHERE t.tenant > ?"
    direction = " DESC" if scan.reverse else ""
    limit = "?::bigint"
    return Statement(
        f"{text} ORDER BY t.tenant{direction} LIMIT {limit}", [*scan.after[:1], scan.limit]
    )


# -- writing


def locks(schema: str, change: Commit) -> list[tuple[int, bool]]:
    """Return the numbers of the locks of a commit in the order to take them; True: alone.

    A lock is that of all rows of a table whose keys begin with the same two columns. What is
    expected is held alone, what is written otherwise together with others who only write; so a
    commit waits for each that expects what it writes. To delete all of a tenant's rows of a table
    takes the tenant's lock alone, which every other commit holds together.
    """
    wanted: dict[tuple[Value, ...], bool] = {}
    for copies in change.copies:
        wanted[copies.table, *copies.to[:2]] = False
    for name, rows in change.puts.items():
        for row in rows:
            wanted[name, *row[: min(2, TABLES[name].keys)]] = False
    for key in (*change.adds, *change.deletes):
        wanted[key.table, *key.columns[:2]] = False
    for key in change.expect:
        wanted[key.table, *key.columns[:2]] = True
    for table, tenant, *_ in list(wanted):
        if TABLES[str(table)].key[0] == "tenant":
            wanted["", tenant] = False
    for key in change.deletes:
        if len(key.columns) == 1 < TABLES[key.table].keys:
            wanted["", *key.columns] = True
    return sorted((lock_number(schema, *names), alone) for names, alone in wanted.items())


@lru_cache(4096)
def lock_number(*names: Value) -> int:
    """Return the number of the advisory lock of these names."""
    text = json.dumps(names, ensure_ascii=True).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big", signed=True)


def prologue(settings: Mapping[str, str], wanted: Sequence[tuple[int, bool]] = ()) -> Statement:
    """Return the statement that limits a transaction and then waits for its locks, in order."""
    parts = [f"set_config('{name}', ?, true)" for name in settings]
    parts += [
        f"pg_advisory_xact_lock{'' if alone else '_shared'}(?::bigint)" for _, alone in wanted
    ]
    return Statement(
        f"SELECT {_listed(parts)}", [*settings.values(), *(number for number, _ in wanted)]
    )


def commit(change: Commit, id_: str, *, tidy: bool = False, tried: bool = False) -> list[Statement]:
    """Return the statements of a commit after its locks; the first one says whether it holds.

    What does not depend on the order is one statement. ``id_`` is written with the rest, so that
    whoever has lost the answer finds out. ``tidy`` deletes ids of older commits, and ``tried`` says
    that ``try_locks`` comes before.
    """
    parts = [_put(name, rows) for name, rows in sorted(change.puts.items()) if rows]
    parts += [_add(name, adds) for name, adds in _by_table(change.adds.items()).items()]
    parts.append(
        lambda ok: Statement(f"INSERT INTO @commits SELECT ?::uuid, true WHERE {ok}", [id_])
    )
    if tidy:
        parts.append(lambda _: Statement(_TIDY))
    first = [_delete(*group) for group in _by_prefix(change.deletes)]
    first += [_copy(copies) for copies in change.copies]
    holds = _conditions(change.expect)
    if tried:
        holds = Statement(f"{holds.sql} AND {_FREE}", holds.values)
    brought = _brought(change.expect)
    parts = [*first, *parts]
    # A row is written once by one statement, and none sees what another one of its parts wrote.
    written = [*change.puts, *{key.table for key in change.adds}]
    if change.copies or len({*written, *(key.table for key in change.deletes)}) < len(
        [*written, *{key.table for key in change.deletes}]
    ):
        sql = f"SELECT set_config('hiermem.ok', ok::text, true) = 'true', {brought.sql}"
        check = Statement(
            f"{sql} FROM (SELECT {holds.sql} AS ok) o", [*brought.values, *holds.values]
        )
        return [check, *(part(_SETTING) for part in parts)]
    made = [part(_CTE) for part in parts]
    named = [f"ok AS MATERIALIZED (SELECT WHERE {holds.sql})"]
    named += [f"p{n} AS ({part.sql})" for n, part in enumerate(made)]
    values = [value for part in (holds, *made, brought) for value in part.values]
    sql = f"WITH {_listed(named)} SELECT ok, {brought.sql} FROM (SELECT {_CTE} AS ok) o"
    return [Statement(sql, values)]


#: Tells whether a commit was applied whose answer was lost; if it was not, it can no longer be.
RESOLVE: Final = (
    "INSERT INTO @commits AS t VALUES (?::uuid, false) "
    "ON CONFLICT (id) DO UPDATE SET applied = t.applied RETURNING applied"
)
_OLD: Final = f"(extract(epoch FROM clock_timestamp()) * 1000)::bigint - {_KEPT}"
_TIDY: Final = (
    "DELETE FROM @commits WHERE id IN (SELECT id FROM @commits WHERE id < "
    f"(lpad(to_hex({_OLD}), 12, '0') || repeat('0', 20))::uuid "
    "ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED)"
)


def _by_table(keys: Iterable[tuple[Key, Any]]) -> dict[str, list[tuple[tuple[Value, ...], Any]]]:
    groups: dict[str, list[tuple[tuple[Value, ...], Any]]] = {}
    for (name, columns), value in sorted(keys):
        groups.setdefault(name, []).append((columns, value))
    return groups


def _by_prefix(keys: Iterable[Key]) -> list[tuple[str, int, list[tuple[Value, ...]]]]:
    groups: dict[tuple[str, int], list[tuple[Value, ...]]] = {}
    for name, columns in sorted(set(filter(may_exist, keys))):
        groups.setdefault((name, len(columns)), []).append(columns)
    return [(name, count, columns) for (name, count), columns in groups.items()]


def _conditions(expect: Mapping[Key, int | None]) -> Statement:
    """Return the condition that every expectation holds."""
    conditions: list[str] = []
    values: list[Any] = []
    there: dict[str, list[tuple[Any, ...]]] = {}
    absent: dict[str, list[tuple[Any, ...]]] = {}
    for (name, columns), number in expect.items():
        if number is None:
            absent.setdefault(name, []).append(columns)
        else:
            there.setdefault(name, []).append((*columns, number))
    for name, keys in there.items():
        table = TABLES[name]
        if table.guard is None:  # such a row has no number
            return Statement("false")
        found = _found(name, (*table.key, "guard"), keys)
        conditions.append(f"(SELECT count(*) {found.sql}) = {len(keys)}")
        values += found.values
    for name, keys in absent.items():
        found = _found(name, TABLES[name].key, keys)
        conditions.append(f"NOT EXISTS (SELECT {found.sql})")
        values += found.values
    return Statement(" AND ".join(conditions) or "true", values)


def _brought(expect: Mapping[Key, int | None]) -> Statement:
    """Return what a refused commit brings along: guards that it expected, as JSON by table."""
    parts: list[str] = []
    values: list[Any] = []
    for name in _BROUGHT:
        keys = [key.columns for key, number in expect.items() if key.table == name and number]
        if keys:
            found, table = _found(name, TABLES[name].key, keys), TABLES[name]
            rows = f"SELECT json_agg(json_build_array({_columns(table)})) {found.sql}"
            parts.append(f"'{name}', ({rows})")
            values += found.values
    if not parts:
        return Statement("NULL")
    return Statement(f"CASE WHEN NOT ok THEN json_build_object({_listed(parts)})::text END", values)


def guards(expect: Mapping[Key, int | None]) -> Statement:
    """Return the statement that brings the guards along that a refused commit would."""
    rows = _brought(expect)
    return Statement(f"SELECT {rows.sql} FROM (SELECT false AS ok) o", rows.values)


def try_locks(wanted: Sequence[tuple[int, bool]]) -> Statement:
    """Return the statement that tries more locks, where to wait for one could be without end.

    If another has one of them, the commit that follows does not hold.
    """
    tried = (
        f"pg_try_advisory_xact_lock{'' if alone else '_shared'}(?::bigint)" for _, alone in wanted
    )
    free = " AND ".join(tried) or "true"
    return Statement(
        f"SELECT set_config('hiermem.free', ({free})::text, true)", [one for one, _ in wanted]
    )


def brought(text: str | None) -> dict[Key, Row]:
    """Return the rows that a refused commit brought along, by key."""
    return {
        TABLES[name].key_of(tuple(row)): tuple(row)
        for name, rows in json.loads(text or "{}").items()
        for row in rows or ()
    }


_Part = Callable[[str], Statement]


def _json(table: Table, rows: Iterable[Row]) -> str:
    columns, binary = table.columns, "b" in table.letters.lower()
    made = [dict(zip(columns, row, strict=True)) for row in rows]
    for row in made if binary else ():
        for column, value in row.items():
            if isinstance(value, bytes):
                row[column] = f"\\x{value.hex()}"
    # A lone surrogate has no bytes in UTF-8; escaped, two would become one character.
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


@cache
def _insert(name: str, changed: tuple[str, ...]) -> str:
    table = TABLES[name]
    sets = _listed(changed)
    return (
        f"INSERT INTO @{name} AS t ({quoted(table.columns)}) SELECT "
        f"{quoted(table.columns, 'r')} "
        f"FROM json_populate_recordset(NULL::@{name}, ?::json) r WHERE {{}} "
        f"ON CONFLICT ({quoted(table.key)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"
    )


@cache
def _replaced(name: str) -> tuple[str, ...]:
    table = TABLES[name]
    return tuple(f'"{column}" = excluded."{column}"' for column in table.columns[table.keys :])


def _put(name: str, rows: Sequence[Row]) -> _Part:
    table = TABLES[name]
    if len(rows) > 1:  # one statement writes a row once, and all write them in one order
        last = {row[: table.keys]: row for row in rows}
        rows = [last[key] for key in sorted(last)]
    text = _insert(name, _replaced(name))
    return lambda ok: Statement(text.format(ok), [_json(table, rows)])


def _add(name: str, adds: Iterable[tuple[tuple[Value, ...], int]]) -> _Part:
    text = _insert(name, ("guard = t.guard + excluded.guard",))
    rows = [(*columns, number) for columns, number in adds]
    return lambda ok: Statement(text.format(ok), [_json(TABLES[name], rows)])


def _delete(name: str, count: int, keys: Sequence[tuple[Value, ...]]) -> _Part:
    columns = TABLES[name].key[:count]
    if len(keys) == 1:
        where = _equal(columns)
        return lambda ok: Statement(f"DELETE FROM @{name} t WHERE {where} AND {ok}", keys[0])
    using, where = _matched(name, columns)
    text = f"DELETE FROM @{name} t USING {using} WHERE {where} AND "
    return lambda ok: Statement(text + ok, _turned(keys))


def _copy(copies: Copies) -> _Part:
    table = TABLES[copies.table]
    count = len(copies.prefix)
    casts = [f"?::{TYPES[letter.lower()]}" for letter in table.letters[:count]]
    rest = _listed([*casts, *(f't."{column}"' for column in table.columns[count:])])
    where = _equal(table.key[:count])
    sets = _listed(_replaced(copies.table))
    text = (
        f"INSERT INTO @{copies.table} SELECT {rest} FROM @{copies.table} t WHERE {where} "
        f"AND t.{copies.column} < ? AND {{}} ON CONFLICT ({quoted(table.key)}) DO "
        f"{f'UPDATE SET {sets}' if sets else 'NOTHING'}"
    )
    return lambda ok: Statement(text.format(ok), [*copies.to, *copies.prefix, copies.below])
