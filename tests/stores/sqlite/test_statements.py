"""The SQL of the declared tables: what it costs is what it returns."""

import sqlite3
from contextlib import closing
from itertools import product

import pytest

from hiermem.records.tables import TABLES
from hiermem.stores.sqlite import statements


@pytest.fixture(scope="module")
def base():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in statements.schema():
            connection.execute(statement)
        yield connection


def _plan(base, sql):
    rows = base.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?"))
    return [row[3] for row in rows]


@pytest.mark.parametrize("name", TABLES)
def test_every_range_is_one_search_of_its_index_and_sorts_nothing(base, name):
    """Broken, a list of a session's rows reads those of all sessions, or sorts them."""
    table = TABLES[name]
    for index, order in table.orders.items():
        rest = range(len(order) + 1)
        for counts in product(rest, repeat=3):
            prefix, after, below = counts
            if prefix + max(after, below) not in range(1, len(order) + 1):
                continue
            for limited, reverse in product((False, True), repeat=2):
                sql = statements.ranged(name, index, counts, limited=limited, reverse=reverse)
                (step,) = _plan(base, sql)
                assert step.startswith(f"SEARCH {name} USING"), (sql, step)
                # The bounds are those of the search, not a filter over what it passes.
                column = table.columns[order[prefix + max(after, below) - 1]]
                assert column in step.partition("(")[2], (sql, step)


@pytest.mark.parametrize("name", TABLES)
def test_keys_are_searched_whatever_is_read_or_deleted(base, name):
    table = TABLES[name]
    found = [statements.get(name), statements.expected(name)]
    found += [statements.delete(name, count) for count in range(1, table.keys + 1)]
    for sql in found:
        (step,) = _plan(base, sql)
        assert step.startswith(f"SEARCH {name} USING"), (sql, step)


def test_a_person_reads_columns_by_their_declared_names(base):
    for name, table in TABLES.items():
        columns = base.execute(f"PRAGMA table_info({name})").fetchall()
        assert tuple(column[1] for column in columns) == table.columns
