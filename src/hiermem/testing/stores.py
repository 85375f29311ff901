"""The conformance suite for stores: subclass it, say how yours is opened, and run pytest.

Each test holds one sentence of ``hiermem.records``, which its failure quotes. What a store answers
is compared with a dict of rows that was driven by the same steps. A store that passes can be given
to ``Memory(store=...)``; ``tests/testing/test_wrong_stores.py`` shows that wrong ones do not pass.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, ClassVar, Final

import pytest

from hiermem.errors import ClosedError, UsageError
from hiermem.records.store import Store
from hiermem.records.tables import TABLES, Commit, Copies, Key, Row, Scan
from hiermem.testing import beside
from hiermem.testing.checked import Checked, condition, rule_of
from hiermem.testing.rows import HOSTILE_NAMES, column, put, row
from hiermem.testing.steps import Step, drawn
from hiermem.types.transaction import Scrubbed

__all__ = ["StoreConformance"]

#: Names in the order of code points, which UTF-16, cases, normal forms and locales sort otherwise.
_ORDERED: Final = sorted(
    (
        "", " ", "!", "0", "00", "1", "10", "2", "A", "AA", "B", "Z", "_", "a", "a ", "a!", "aa",
        "ab", "b", "\x7f", "\x01", "a\x01", "\n", "a\tb", "\xe4", "a\u0301", "\xe1", "\u00df", "ss",
        "\u4e2d", "\ud7ff", "\ue000", "\uf8ff", "\uff21", "\uffff", "\U00010000", "\U0001f642",
        "\U0010ffff", "a\U00010000", "a\uffff",
    )
)  # fmt: skip
_INTEGERS: Final = (-(2**63), -(2**53) - 1, -256, -1, 0, 1, 255, 256, 2**53 + 1, 2**63 - 1)


def record(scope: str, name: str, tenant: str = "a", **columns: Any) -> tuple[str, Row]:
    """Return a row with a guard and two indexes."""
    return "records", row("records", tenant, scope, "k", name, **columns)


def record_key(scope: str, name: str, tenant: str = "a") -> Key:
    """Return the key of a record."""
    return Key("records", (tenant, scope, "k", name))


def made(table: str, *key: Any, **columns: Any) -> tuple[str, Row]:
    """Return a row of tenant a with its table."""
    return table, row(table, "a", *key, **columns)


def counter(name: str = "c", tenant: str = "a") -> Key:
    """Return the key of a counter."""
    return Key("counters", (tenant, "k", name))


class StoreConformance:
    """Everything that a store must do, one test for each condition.

    A subclass defines ``async def open_store(self, path)``; the path is fresh for each test, and a
    durable store must find there again what it left. ``patience`` are the seconds that a condition
    may take, ``longest_name`` the characters of the longest tenant or session, and ``histories``
    the random histories, of ``steps`` steps each, that are compared with a dict of rows.
    """

    checks = Checked
    patience: ClassVar[float] = 60.0
    longest_name: ClassVar[int] = 512
    histories: ClassVar[int] = 30
    steps: ClassVar[int] = 30

    async def open_store(self, path: Path) -> Store:
        """Open the store at ``path``, which does not exist before the first time."""
        raise NotImplementedError("a conformance suite must define open_store(self, path)")

    @condition("optional abilities")
    async def test_it_has_the_shape_of_a_store(self, check: Checked) -> None:
        """A store has five operations and names its abilities."""
        names = check.store.capabilities
        shaped = isinstance(check.store, Store)
        check.sure("its members", type(check.store), "those of Store", shaped)
        check.same("type of capabilities", type(names), frozenset)
        check.same("unknown capabilities", set(names) - {"durable", "shared", "on_thread"}, set())

    @condition("Return the rows with these")
    async def test_empty_calls_do_nothing(self, check: Checked) -> None:
        """A read of nothing and a commit of nothing are fine, and an empty store has no rows."""
        await check.read()
        for change in (Commit(), Commit(durable=False), Commit(puts={"records": []})):
            await check.commit(change)
        await check.delete(Key("records", ("a",)), record_key("s", "x"))
        check.touched = dict.fromkeys((table, "a") for table in TABLES)
        await check.look()

    @condition("compares text by code points")
    async def test_a_row_comes_back_as_it_was_put(self, check: Checked) -> None:
        """Text, integers, reals, bytes and None come back with their types, to the last sign."""
        texts = ["", " a ", "null", "0", "1e5", "'", '"', "\\", "\\n", "{}", "\r\n", "\u2028"]
        texts += _ORDERED
        blobs = (b"", b"\0", b"\n", b"a\0b\0", b"\xff" * 9, b"'", b"\\x41", bytes(range(256)))
        reals = (0.0, 0.1, -1.5, 1e308, 5e-324, 1 / 3, 2.0, 1e16, None)
        rows = [record("s", str(n), body=text, guard=1) for n, text in enumerate(texts)]
        rows += [record("i", str(n), version=n, record=-1 - n) for n in _INTEGERS]
        rows += [made("pages", 1, n, data=blob) for n, blob in enumerate(blobs)]
        rows += [made("revisions", 1, 0, "", n, fidelity=x) for n, x in enumerate(reals)]
        rows += [made("messages", 1, 0, name=None, zone=0, rest="", key="k")]
        await check.put(*rows)
        await check.look()

    @condition("compares text by code points")
    async def test_nul_is_a_character(self, check: Checked) -> None:
        """Text with NULs is refused, or kept whole and sorted by code points, in keys too."""
        for name in ("a", "a\0", "a\0\0", "a\0\x01", "\0", "a\x01", "a\0b", ""):
            await check.attempt(put(record(name, "x"), record("s", name)), UsageError)
            await check.attempt(put(record(name, "y", body=f"b\0{name}")), UsageError)
        await check.delete(Key("records", ("a", "a\0")))
        await check.look()

    @condition("compares text by code points")
    async def test_lone_surrogates_are_characters(self, check: Checked) -> None:
        """Lone surrogates are refused, or kept apart from what a pair of them would be."""
        pair = "\ud83d", "\ude42"
        for name in (*pair, "".join(pair), "\U0001f642", "\ud7ff", "\ue000", "\udfff"):
            await check.attempt(put(record(name, "x", body=name)), UsageError)

    @condition("``puts`` are")
    async def test_a_put_replaces_the_whole_row(self, check: Checked) -> None:
        """A put leaves nothing of the row before, in none of the columns."""
        await check.put(made("messages", 1, 0, name="n", zone=3, flags="f", rest="r", role="u"))
        await check.put(made("messages", 1, 0, role="x"))
        await check.look()
        await check.put(record("s", "x", body="one", version=1), record("s", "y"))
        await check.put(record("s", "x", body="two"))
        await check.look()

    @condition("``puts`` are")
    async def test_an_index_follows_a_replaced_row(self, check: Checked) -> None:
        """A row that is replaced leaves its old place in each index and stands in the new one."""
        for last in (5, 9, 1, 5, -3):
            places = [(name, last * at % 7) for at, name in enumerate("xyz")]
            await check.put(*(made("heads", x, last_activity=n, unindexed=n) for x, n in places))
            await check.look()

    @condition("``deletes`` are")
    async def test_an_index_loses_deleted_rows(self, check: Checked) -> None:
        """A deleted row is in no index, whether its key was given whole or its beginning."""
        for name in "uvwxyz":
            await check.put(made("heads", name, last_activity=3, unindexed=4))
            await check.put(record(name, "x", record=1), record(name, "y", record=2))
        await check.delete(Key("heads", ("a", "v")), record_key("w", "x"))
        await check.look()
        await check.delete(Key("records", ("a", "x")))
        await check.look()
        await check.put(record("x", "y", record=9))
        await check.look()
        await check.delete(Key("heads", ("a",)), Key("records", ("a",)))
        await check.look()

    @condition("a row with None in one")
    async def test_none_is_in_no_index(self, check: Checked) -> None:
        """A row enters an index when its column is set and leaves it when it becomes None."""
        for unindexed in (None, 3, None, 0, 7):
            await check.put(made("heads", "x", unindexed=unindexed), made("heads", "y"))
            await check.look()
        for reuse in ("h", "", None, "h"):
            rows = (made("revisions", 1, 0, "n", n, reuse=reuse if n else "h") for n in (0, 1))
            await check.put(*rows)
            await check.look()
        await check.delete(Key("heads", ("a", "x")), Key("revisions", ("a", 1, 0, "n", 1)))
        await check.look()

    @condition("``deletes`` are")
    async def test_a_deletion_takes_no_neighbour(self, check: Checked) -> None:
        """All rows whose key begins so go, and none whose name only begins alike."""
        scopes = ("a", "a.", "aa", "a ", "A", "", "a%", "%", "_", "a\x01", "a\U0010ffff", "b")
        for scope in scopes:
            await check.put(*(record(scope, name) for name in ("", "x", "y", "a")))
        for number in (-1, 0, 1, 2, 255, 256, 2**63 - 1):
            await check.put(*(made("messages", number, at) for at in (-1, 0, 1)))
        await check.delete(Key("records", ("a", "a")), Key("messages", ("a", 1)))
        await check.look()
        await check.delete(record_key("aa", ""), Key("messages", ("a", 0, 0)))
        await check.look()
        await check.delete(*(Key("records", ("a", scope)) for scope in ("%", "_", "", "a%")))
        await check.delete(Key("messages", ("a", 2**63 - 1)), Key("records", ("a", "kk")))
        await check.look()
        await check.delete(Key("records", ("a",)))
        await check.look()

    @condition("compares text by code points")
    async def test_text_is_ordered_by_code_points(self, check: Checked) -> None:
        """Keys and indexes sort text by code points: not by UTF-16, by case or by language."""
        await check.put(*(record(name, "x") for name in _ORDERED))
        await check.put(*(made("sessions", name, forked_from=name) for name in _ORDERED))
        await check.look()
        for low, high in (("A", "a"), ("\uf8ff", "\U00010000"), ("", "0"), ("a", "a\U00010000")):
            await check.scan("records", "a", after=(low,), below=(high,))
            await check.scan("sessions", "a", after=(low,), below=(high,), index="forked")
        await check.read([record_key(name, "x") for name in (*_ORDERED, "X", "\xc4", "\xe4 ")])

    @condition("compares text by code points")
    async def test_integers_are_ordered_by_value(self, check: Checked) -> None:
        """Keys and indexes sort all 64-bit integers by value, the negative first."""
        await check.put(*(made("messages", n, -n - 1) for n in _INTEGERS))
        await check.put(*(made("heads", str(n), last_activity=n, unindexed=n) for n in _INTEGERS))
        await check.look()
        for after in ((), *((n,) for n in _INTEGERS)):
            for below in ((), (-1,), (256,), (2**63 - 1,)):
                await check.scan("messages", "a", after=after, below=below)
                await check.scan("heads", "a", after=after, below=below, index="active")
                await check.scan("heads", "a", after=after, below=below, index="unindexed")

    @condition("``limit`` None is no limit")
    async def test_a_limit_counts_from_the_first_or_the_last(self, check: Checked) -> None:
        """A limited scan returns the first rows of its order, or the last ones if reversed."""
        for at in (7, 3, 9, 1, 5, 0, 8):
            await check.put(record("s", str(at)), made("due", str(at), due_at=-at))
        for limit in (None, 0, 1, 2, 6, 7, 8, 100):
            await check.scan("records", "a", "s", limit=limit)
            await check.scan("records", "a", "k", limit=limit, index="by_kind")
            await check.scan("due", "a", limit=limit, index="of_tenant")
            await check.scan("records", "a", "s", "k", limit=limit, after=("3",), below=("8",))

    @condition("above ``after``")
    async def test_bounds_are_exclusive_as_far_as_they_go(self, check: Checked) -> None:
        """Bounds exclude what equals them; with fewer columns, all rows that begin so."""
        for level in (0, 1, 2, 3):
            for at in (0, 1, 2):
                columns = {"level": level, "ordinal": at, "window": str(level), "stop": at}
                await check.put(made("nodes", 1, 0, f"{level}-{at}", **columns))
        bounds = [(), (1,), (2,), (1, 1), (2, 0), (2, 2), (9,), (-1,), (1, 1, "1-1"), (1, 1, "")]
        for after in bounds:
            for below in bounds:
                ends = {"after": after, "below": below, "index": "by_level"}
                await check.scan("nodes", "a", 1, 0, **ends)
                await check.scan("nodes", "a", 1, 0, **ends, limit=2)
                ends = {"after": after[1:], "below": below[1:], "index": "by_level"}
                await check.scan("nodes", "a", 1, 0, 1, **ends)
        for after in ((), (0,), (1,), (1, 0), (0, 5)):
            await check.scan("nodes", "a", after=after, index="by_level")
            await check.scan("nodes", "a", 1, after=after, index="by_level")
        for low in ("", "1-0", "1"):
            for high in ("1-2", "2", "2-0"):
                await check.scan("nodes", "a", 1, 0, after=(low,), below=(high,))
        await check.scan("nodes", "a", 1, 0, after=("1", 1), below=("3", 1), index="covering")

    @condition("A range of the rows")
    async def test_rows_alike_in_an_index_are_ordered_by_their_key(self, check: Checked) -> None:
        """Rows with the same columns of an index follow one another by key; none hides another."""
        for name in ("y", "x", "z", "Y"):
            await check.put(made("due", name, due_at=5), made("heads", name, unindexed=1))
            await check.put(record(name, "k", record=1), record("s", name, record=1))
        await check.look()
        await check.scan("due", after=(4,), below=(6,), index="next", limit=2)
        await check.scan("due", 5, "a", after=("x",), index="next")
        await check.scan("due", "a", 5, after=("Y",), index="of_tenant")

    @condition("``expect`` are")
    async def test_a_row_is_expected_with_its_guard(self, check: Checked) -> None:
        """A commit is applied with the guard that the row has, and with no other."""
        key = record_key("s", "x")
        for number in (1, 2, -5, 2**63 - 1, 0):
            await check.put(record("s", "x", guard=number, version=7))
            for wrong in (number - 1 if number else 1, 7, None, number ^ 2**32):
                await check.put(record("s", "y"), expect={key: wrong})
            await check.put(record("s", "z", guard=number), expect={key: number})
            await check.look()

    @condition("``expect`` are")
    async def test_a_row_is_expected_to_be_absent(self, check: Checked) -> None:
        """None is right while no such row exists, in any table, and a number is wrong then."""
        key, unguarded = record_key("s", "x"), Key("keys", ("a", 1, "m"))
        for wrong in (0, 1, -1):
            await check.put(record("s", "y"), expect={key: wrong})
        await check.put(record("s", "xx"), record("t", "x"), made("keys", 1, "mm"))
        both: dict[Key, int | None] = {key: None, unguarded: None}
        await check.put(record("s", "x", guard=0), made("keys", 1, "m"), expect=both)
        for each in both:
            await check.put(record("s", "y"), expect={each: None})
        await check.put(record("s", "y"), expect={counter(): 0})
        await check.put(record("s", "z"), expect={counter(): None})
        await check.look()

    @condition("``expect`` are")
    async def test_a_row_made_again_is_another(self, check: Checked) -> None:
        """A row that was deleted is absent; made again, it has the guard that it was put with."""
        key = record_key("s", "x")
        await check.put(record("s", "x", guard=1))
        await check.delete(key, expect={key: 1})
        await check.put(record("s", "y"), expect={key: 1})
        await check.put(record("s", "x", guard=2), expect={key: None})
        await check.put(record("s", "y"), expect={key: 1})
        await check.put(record("s", "x", guard=3), expect={key: 2}, deletes=[key])
        await check.put(record("s", "y", guard=4), expect={key: 3})
        await check.look()

    @condition("Apply all of ``change``")
    async def test_each_expectation_counts(self, check: Checked) -> None:
        """If one of several expectations fails, wherever it stands, nothing is applied."""
        names = [f"x{n}" for n in range(5)]
        there = [record("s", name, guard=3) for name in names]
        await check.put(*there, made("heads", "s", guard=3))
        right: dict[Key, int | None] = {record_key("s", name): 3 for name in names}
        right |= {record_key("s", "none"): None, Key("heads", ("a", "s")): 3, counter(): None}
        rows, adds = (record("s", "new"), record("s", "x0", guard=9)), {counter(): 1}
        deletes = [Key("records", ("a", "s"))]
        for key, guard in right.items():
            for wrong in (4, None if guard else 3):
                expect = {**right, key: wrong}
                await check.put(*rows, expect=expect, deletes=deletes, adds=adds)
                await check.look()
        await check.put(*rows, expect=right, deletes=deletes, adds=adds)
        await check.look()

    @condition("What is written together")
    async def test_deletes_come_before_puts_before_adds(self, check: Checked) -> None:
        """One commit may delete a range, put rows into it and add to a counter that it puts."""
        rows = [record("s", name, record=n) for n, name in enumerate("uvw")]
        await check.put(*rows, made("counters", "k", "c", guard=5))
        deletes = [Key("records", ("a", "s")), Key("counters", ("a", "k"))]
        rows = [record("s", "v", record=9), record("s", "n"), made("counters", "k", "d", guard=40)]
        await check.put(*rows, deletes=deletes, adds={counter("c"): 3, counter("d"): 2})
        await check.look()
        await check.delete(counter("d"), expect={counter("c"): 3, counter("d"): 42})
        await check.look()

    @condition("``copies`` are")
    async def test_copies_are_written_under_another_prefix(self, check: Checked) -> None:
        """Rows below a bound are copied with all columns; the others, and the originals, stay."""
        rows = (made("messages", 1, n, role=f"r{n}", flags=None) for n in range(-2, 6))
        nodes = (made("nodes", 1, 0, f"n{n}", level=n, window="w", stop=n) for n in range(4))
        await check.put(*rows, *nodes, made("messages", 11, 1), adds={counter(): 1})
        copies = [Copies("messages", ("a", 1), ("a", 7), "message", 3)]
        copies += [Copies("nodes", ("a", 1, 0), ("a", 7, 4), "level", 2)]
        marked = made("messages", 7, 1, role="marked"), made("messages", 7, 9)
        for guard in (2, 1):
            await check.put(*marked, expect={counter(): guard}, copies=copies)
            await check.look()

    @condition("``adds`` are")
    async def test_adds_add_up(self, check: Checked) -> None:
        """A counter is what was added to it, from 0, at any size and below it."""
        for n in (1, 1, 255, -300, 2**40, 0, 2**62, -(2**62) - 2**40, -(2**63) + 50):
            adds = {counter(): n, counter("C"): 1, counter("n"): -n // 2}
            await check.commit(Commit(adds=adds))
            await check.look()
        await check.commit(Commit(adds={counter(str(n)): n for n in range(200)}))
        await check.look()

    @condition("``adds`` are")
    async def test_an_add_changes_the_guard_that_others_expect(self, check: Checked) -> None:
        """An expectation of a counter fails after another's add, and holds beside one's own."""
        await check.commit(Commit({counter(): None}, adds={counter(): 1}))
        await check.commit(Commit({counter(): 1}, adds={counter(): 1}))
        await check.put(record("s", "x"), expect={counter(): 1})
        await check.commit(Commit(adds={counter(): 5}))
        await check.put(record("s", "x"), expect={counter(): 2})
        await check.put(record("s", "x"), expect={counter(): 7}, deletes=[counter()])
        await check.commit(Commit({counter(): None}, adds={counter(): 0}))
        await check.put(record("s", "y"), expect={counter(): None})
        await check.put(record("s", "z"), expect={counter(): 0})
        await check.look()

    @condition("Any other error means")
    async def test_a_commit_that_fails_applies_nothing(self, check: Checked) -> None:
        """If a commit raises, because one of its values is none, nothing of it was applied."""
        await check.put(record("s", "x", body="before"), record("t", "x"))
        rows = [record("s", "x", body="after"), *(record("s", f"n{n}") for n in range(50))]
        change = put(*rows, made("views", "s", "v", state=Lock()), adds={counter(): 1})
        change.deletes = [Key("records", ("a", "t"))]
        await check.attempt(change, Exception)
        await check.put(record("s", "later"))
        await check.look()

    @condition("name the same tenant")
    async def test_a_tenant_has_rows_of_its_own(self, check: Checked) -> None:
        """No read, expectation, add or deletion of one tenant meets a row of another."""
        for n, name in enumerate(HOSTILE_NAMES):
            due = ("due", row("due", name, "x", due_at=n % 3))
            absent, adds = {record_key("s", "x", name): None}, {counter("c", name): n}
            await check.put(record("s", "x", name, body=str(n)), due, expect=absent, adds=adds)
        await check.look()
        await check.scan("due", index="next")
        await check.scan("due", after=(0,), below=(2,), index="next", limit=5)
        for name in HOSTILE_NAMES[::2]:
            expect = {counter("c", name): check.model.guard(counter("c", name))}
            await check.delete(Key("records", (name,)), Key("due", (name,)), expect=expect)
        await check.look()
        await check.scan("due", index="next")

    @condition("A row of a table by")
    async def test_names_may_be_long(self, check: Checked) -> None:
        """Names of the greatest length, of characters of four bytes, differ by their last one."""
        long = "\U0001f642" * (self.longest_name - 1)
        for end in "abc":
            await check.put(("sessions", row("sessions", long, long + end, forked_from=long + end)))
            await check.put(("due", row("due", long + end, long)))
        await check.look()
        await check.delete(Key("sessions", (long, long + "b")))
        await check.look()

    @condition("Apply all of ``change``")
    async def test_a_commit_may_be_large(self, check: Checked) -> None:
        """Rows of a megabyte, and a commit of eight with thousands of rows, are kept."""
        rows = [made("messages", 1, n, rest=f"{n} " + "\xe9" * 1_000) for n in range(2_000)]
        rows += [made("pages", 1, n, data=bytes([n]) * 1_000_000) for n in range(2)]
        await check.put(*rows, made("revisions", 1, 0, "n", 1, text="\n'" * 1_000_000))
        await check.scan("messages", "a", 1)
        await check.scan("messages", "a", 1, limit=1_500)
        gets = [Key("messages", ("a", 1, n)) for n in range(0, 2_000, 2)]
        await check.read([*gets, Key("revisions", ("a", 1, 0, "n", 1))], [Scan("pages", ("a", 1))])
        await check.delete(Key("messages", ("a", 1)), Key("pages", ("a",)))
        await check.look()

    @condition("are of one state, in which")
    async def test_a_read_is_of_one_state(self, check: Checked) -> None:
        """Rows that every commit writes together are never read apart, in one call."""
        await beside.beside(check, beside.write_twins)

    @condition("strictly serialisable")
    async def test_no_update_is_lost(self, check: Checked) -> None:
        """Of those who read a row and write it anew, one at a time is applied."""
        await beside.beside(check, beside.update)

    @condition("strictly serialisable")
    async def test_no_two_decide_by_the_others_row(self, check: Checked) -> None:
        """Who writes one row because of another expects both, and nobody changes the other."""
        await beside.beside(check, beside.switch)

    @condition("strictly serialisable")
    async def test_no_row_appears_under_an_expected_counter(self, check: Checked) -> None:
        """Who scans and expects the counter that every writer adds to has seen every row."""
        await beside.beside(check, beside.sweep)

    @condition("strictly serialisable")
    async def test_no_row_outlives_the_deletion_of_one_expected(self, check: Checked) -> None:
        """Who puts rows under an expected one leaves none behind when others delete them all."""
        await beside.beside(check, beside.live)

    @condition("``adds`` are")
    async def test_no_add_is_lost(self, check: Checked) -> None:
        """Adds of many at once, which expect nothing, are all applied and all add up."""
        await beside.beside(check, beside.add)

    @condition("several processes may open", needs="shared")
    async def test_two_openers_share_one_store(self, check: Checked) -> None:
        """Each of two openers sees at once what the other wrote, and they have one time."""
        other = await check.open()
        try:
            stores = (check.store, other)
            for n in range(12):
                change = put(record("s", str(n), guard=n), adds={counter(): 1})
                change.expect = {counter(): n or None}
                await check.commit(change, stores[n % 2])
                await check.commit(change, stores[1 - n % 2])
                await check.look(stores[1 - n % 2])
            away = abs(await other.now() - await check.store.now())
            check.sure("now() of both", away, "within a minute", away < timedelta(minutes=1))
        finally:
            await other.close()

    def test_processes_share_one_store(self, tmp_path: Path) -> None:
        """Several processes at once lose no update and no add, and read single states."""
        said = f"test_processes_share_one_store: {self.test_processes_share_one_store.__doc__}"
        rule = rule_of("strictly serialisable")
        beside.in_processes(Checked(self, tmp_path / "store", said, rule))

    @condition("Apply all of ``change``", needs="durable")
    async def test_what_was_committed_survives(self, check: Checked) -> None:
        """Everything is there again after closing and opening, in every order."""
        await check.reopen()
        for n, name in enumerate(HOSTILE_NAMES[:10]):
            rows = record(name, "x", body=name, record=n, guard=n), made("pages", n, 0, data=b"p")
            await check.put(*rows, adds={counter(): n})
            await check.put(made("heads", name, unindexed=n % 3 or None), durable=False)
        await check.delete(Key("records", ("a", "a")), Key("heads", ("a", "aa")))
        for _ in range(2):
            await check.reopen()
            await check.look()
            await check.put(record("s", "x"), expect={record_key("A", "x"): 1}, adds={counter(): 1})
        await check.look()

    @condition("A commit that has begun")
    async def test_a_cancelled_commit_ends_before_its_caller_goes_on(self, check: Checked) -> None:
        """After a cancellation the commit was applied or it never will be."""
        for n, delay in enumerate((0, 0, 0, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)):
            before = check.model.guard(counter())
            change = put(record("s", str(n), body="x" * 300_000), adds={counter(): 1})
            change.expect = {counter(): before}
            check.touch(change)
            task = asyncio.ensure_future(check.store.commit(change))
            for _ in range(n):
                await asyncio.sleep(0)
            await asyncio.sleep(delay)
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            check.steps.append(f"commit, cancelled after {delay} s -> {outcome!r}")
            (was,), _ = await check.found([counter()])
            if outcome is True or column(was, "counters", "guard") == (before or 0) + 1:
                check.model.commit(change)
            await check.look()
            await asyncio.sleep(0.01)
            await check.look()

    @condition("End what is under way")
    async def test_closing_ends_what_was_begun(self, check: Checked) -> None:
        """Commits that wait when the store is closed are applied or refused; none hangs."""
        changes = [put(record("s", str(n))) for n in range(20)]
        tasks = [asyncio.ensure_future(check.store.commit(change)) for change in changes]
        await asyncio.sleep(0)
        await check.store.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for change, outcome in zip(changes, outcomes, strict=True):
            check.touch(change)
            if not isinstance(outcome, ClosedError):
                check.same("commit beside close(), not refused as closed", outcome, right=True)
                check.model.commit(change)
        if "durable" in check.store.capabilities:
            check.store = await check.open()
            await check.look()

    @condition("End what is under way")
    async def test_a_closed_store_says_so(self, check: Checked) -> None:
        """Closing twice is harmless, and every call after it raises ClosedError."""
        await check.put(record("s", "x"))
        for _ in range(2):
            with check.stated("close()"):
                await check.store.close()
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "read": lambda: check.store.read([record_key("s", "x")], ()),
            "commit": lambda: check.store.commit(put(record("s", "y"))),
            "now": check.store.now,
            "scrub": check.store.scrub,
        }
        for name, call in calls.items():
            answer: object = None
            try:
                answer = await call()
            except Exception as error:  # noqa: BLE001 - any but the right one is shown
                answer = type(error)
            check.same(f"{name} after close()", answer, ClosedError)

    @condition("timezone-aware; it is the same")
    async def test_a_store_has_a_time(self, check: Checked) -> None:
        """The time is aware of its zone and goes on."""
        times: list[datetime] = []
        for _ in range(5):
            times.append(await check.store.now())
            await asyncio.sleep(0.002)
        zoned = [isinstance(each, datetime) and each.utcoffset() is not None for each in times]
        check.same("now(), aware of its zone", zoned, [True] * 5)
        goes_on = times == sorted(times) and times[0] < times[-1]
        check.sure("now(), five times", times, "later each time", goes_on)

    @condition("Remove the bytes of deleted")
    async def test_scrubbed_bytes_are_gone(self, check: Checked) -> None:
        """After a scrub that says it is done, no file holds a deleted or replaced text."""
        mark = "q" + "zqx" * 40
        await check.put(record("s", "x", body=mark), record("s", mark), record("t", "x"))
        await check.put(record("s", "x", body="new"), deletes=[record_key("s", mark)])
        with check.stated("scrub()"):
            scrubbed = await check.store.scrub()
        check.same("type of scrub()", type(scrubbed), Scrubbed)
        check.sure("scrub()", scrubbed, "done, or a reason", scrubbed.done or scrubbed.reason)
        files = [each for each in check.path.parent.rglob("*") if each.is_file() and scrubbed.done]
        held = [file.name for file in files if mark.encode() in file.read_bytes()]
        check.same("scrub(), files that hold a deleted text", held, [])
        await check.put(record("s", "later"))
        await check.look()
        if "durable" in check.store.capabilities:
            await check.reopen()
            await check.look()

    def test_it_agrees_with_a_dict_of_rows(self, tmp_path: Path) -> None:
        """Driven by the same random steps, the store and a dict of rows give the same answers."""
        rule = rule_of("Return the rows with these")
        stated = self.test_it_agrees_with_a_dict_of_rows.__doc__
        stores = iter(range(10**9))

        async def play(steps: Sequence[Step] | Random, done: list[Step]) -> None:
            path, said = tmp_path / f"store{next(stores)}", "test_it_agrees_with_a_dict_of_rows"
            check = Checked(self, path, f"{said}: {stated}", rule)
            check.store = await check.open()
            try:
                for at in range(self.steps if isinstance(steps, Random) else len(steps)):
                    step = drawn(steps, check.model) if isinstance(steps, Random) else steps[at]
                    done.append(step)
                    if isinstance(step, Commit):
                        await check.commit(step)
                    elif step is not None:
                        await check.read(*step)
                    elif "durable" in check.store.capabilities:
                        await check.reopen()
                await check.look()
            finally:
                await check.store.close()

        def failure(steps: Sequence[Step] | Random, done: list[Step]) -> str:
            try:
                asyncio.run(play(steps, done))
            except pytest.fail.Exception as failed:
                return str(failed.msg)
            return ""

        for seed in range(self.histories):
            done: list[Step] = []
            text = failure(Random(seed), done)  # noqa: S311 - replayable steps, no secret
            # Left out one by one for a few seconds, the steps that matter remain.
            until = time.monotonic() + 5
            for step in list(done) if text else ():
                without = [each for each in done if each is not step]
                shorter = failure(without, []) if time.monotonic() < until else ""
                text, done = (shorter, without) if shorter else (text, done)
            if text:
                pytest.fail(text, pytrace=False)
