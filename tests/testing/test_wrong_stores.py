"""The suite is tested by wrong stores: the condition that each breaks rejects it, in one screen.

Each is a dict of rows, which is right, with one fault that an author could make. If one of them
gets through, the suite has a hole; a condition that rejects none of them has no use.
"""

import asyncio
import time
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from hiermem.errors import ClosedError
from hiermem.records.tables import TABLES, Commit, Found, Key
from hiermem.testing import StoreConformance
from hiermem.testing.rows import Model
from hiermem.types.transaction import Scrubbed

#: Rows or stores, the condition that rejects them, and what its failure says.
WRONG: list[tuple[type, str, tuple[str, ...]]] = []


def wrong(condition, *words):
    def registered(fault):
        WRONG.append((fault, f"test_{condition}", words))
        return fault

    return registered


class Rows(Model):
    """The dict of rows, with a place for each fault that one function makes."""

    sign = None

    def value(self, value):
        return value

    def asked(self, scan):
        return scan

    def written(self, change):
        return change

    def holds(self, key, guard):
        return self.guard(key) == guard

    def begins(self, columns, prefix):
        return columns[: len(prefix)] == prefix

    def commit(self, change):
        change = self.written(change)
        if not all(self.holds(key, guard) for key, guard in change.expect.items()):
            return False
        deletes = [
            key
            for key in self.rows
            for prefix in change.deletes
            if key.table == prefix.table and self.begins(key.columns, prefix.columns)
        ]
        puts = {
            table: [tuple(map(self.value, row)) for row in rows]
            for table, rows in change.puts.items()
        }
        return super().commit(replace(change, expect={}, deletes=deletes, puts=puts))

    def scan(self, scan):
        scan = self.asked(scan)
        if self.sign is None:
            return super().scan(scan)
        places = TABLES[scan.table].orders[scan.index]
        rows = super().scan(scan._replace(limit=None, reverse=False))
        rows.sort(key=lambda row: [self.sign(row[place]) for place in places])
        return (rows[::-1] if scan.reverse else rows)[: scan.limit]


class RightStore:
    """The dict of rows as a store; what is opened at a path again is the same."""

    kept: ClassVar[dict] = {}
    capabilities = frozenset({"durable"})
    rows_type = Rows

    def __init__(self, path):
        self.path, self.closed = path, False
        self.rows = self.kept.setdefault((type(self), path), self.rows_type())

    def check(self):
        if self.closed:
            raise ClosedError("closed")

    async def read(self, gets, scans):
        self.check()
        return Found([self.rows.rows.get(key) for key in gets], list(map(self.rows.scan, scans)))

    async def commit(self, change):
        self.check()
        for rows in change.puts.values():
            for row in rows:
                if not all(isinstance(value, str | int | float | bytes | None) for value in row):
                    raise TypeError("no value of a column")
        return self.rows.commit(change)

    async def now(self):
        self.check()
        return datetime.now(UTC)

    async def scrub(self):
        self.check()
        return Scrubbed(done=True)

    async def close(self):
        self.closed = True


class TestRightStore(StoreConformance):
    async def open_store(self, path):
        return RightStore(path)


# -- rows


def _text(change):
    """Return a function that changes text alone."""
    return lambda _, value: change(value) if isinstance(value, str) else value


def _begins_as_text(_, columns, prefix):
    """A name that merely begins with the last one is taken for it."""
    last = columns[len(prefix) - 1]
    same = columns[: len(prefix) - 1] == prefix[:-1]
    alike = isinstance(last, str) and last.startswith(prefix[-1])
    return same and (last == prefix[-1] or alike)


#: What is wrong with one function: the condition that rejects it, the words, and the function.
FAULTS = {
    "value": [
        ("a_row_comes_back_as_it_was_put", ("was there  body = 'a'", "should be  body = ' a '"),
         _text(str.strip)),
        ("a_row_comes_back_as_it_was_put", ("e+18",),
         lambda _, v: float(v) if isinstance(v, int) and abs(v) > 2**53 else v),
        ("a_row_comes_back_as_it_was_put", ("was there  reuse = ''", "should be  reuse = None"),
         lambda _, value: "" if value is None else value),
        ("a_row_comes_back_as_it_was_put", ("bytearray",),
         lambda _, value: bytearray(value) if isinstance(value, bytes) else value),
        ("nul_is_a_character", ("was there  body = 'b'", "b\\x00a"),
         _text(lambda text: text.split("\0")[0])),
        ("lone_surrogates_are_characters", ("'\\ud83d\\ude42'", "no row"),
         _text(lambda text: text.encode("utf-16", "surrogatepass").decode(
             "utf-16", "surrogatepass"))),
        ("names_may_be_long", ("512 characters",),
         _text(lambda text: text[:255] if set(text[:9]) == {"\U0001f642"} else text)),
        ("a_commit_may_be_large", ("(65,536 characters)",), _text(lambda text: text[:65_536])),
    ],
    "sign": [
        ("text_is_ordered_by_code_points", ("\\uffff", "as row"),
         _text(lambda text: text.encode("utf-16-be", "surrogatepass"))),
        ("text_is_ordered_by_code_points", ("'A'", "as row"), _text(str.lower)),
        ("integers_are_ordered_by_value", ("-9223372036854775808",),
         lambda _, value: value % 2**64 if isinstance(value, int) else value),
        ("integers_are_ordered_by_value", ("as row",), lambda _, value: str(value)),
    ],
    "asked": [
        ("a_limit_counts_from_the_first_or_the_last", ("reverse True",),
         lambda _, scan: scan._replace(reverse=False)),
        ("a_limit_counts_from_the_first_or_the_last", ("limit 0", "should be  not there"),
         lambda _, scan: scan._replace(limit=scan.limit or None)),
        ("bounds_are_exclusive_as_far_as_they_go", ("after (1, 1)",),
         lambda _, scan: scan._replace(after=scan.after[:1])),
        ("it_agrees_with_a_dict_of_rows", ("reverse True", "steps"),
         lambda _, scan: scan._replace(
             after=() if scan.reverse and scan.below and scan.limit == 3 else scan.after)),
    ],
    "begins": [
        ("a_deletion_takes_no_neighbour", ("was there  no row", "records('a', 'a.', 'k', '')"),
         _begins_as_text),
        ("a_deletion_takes_no_neighbour", ("should be  not there",),
         lambda _, columns, prefix: columns[: len(prefix)] == prefix and columns[-1] != "y"),
    ],
    "holds": [
        ("a_row_is_expected_with_its_guard", ("has 1", "was there  True", "should be  False"),
         lambda rows, key, guard: (guard is None) == (rows.guard(key) is None)),
        ("a_row_is_expected_to_be_absent", ("has 0", "was there  True", "should be  False"),
         lambda rows, key, guard: guard is None or rows.guard(key) == guard),
        ("a_row_is_expected_to_be_absent", ("has None", "was there  True"),
         lambda rows, key, guard: (rows.guard(key) or 0) == (guard or 0)),
    ],
    "written": [
        ("each_expectation_counts", ("was there  True", "should be  False"),
         lambda _, change: replace(change, expect=dict(list(change.expect.items())[:1]))),
        ("adds_add_up", ("was there  guard = 1", "should be  guard = 2"),
         lambda _, change: replace(change, deletes=[*change.deletes, *change.adds])),
        ("adds_add_up", ("was there  no row",),
         lambda rows, change: replace(
             change, adds={key: n for key, n in change.adds.items() if key in rows.rows})),
        ("copies_are_written_under_another_prefix", ("was there  no row", "role='r-2'"),
         lambda _, change: replace(change, copies=[])),
        ("copies_are_written_under_another_prefix", ("was there  ('a', 7, 3)", "not there"),
         lambda _, change: replace(
             change, copies=[each._replace(below=2**63 - 1) for each in change.copies])),
        ("a_commit_may_be_large", (),
         lambda _, change: replace(
             change, puts={table: rows[:1_000] for table, rows in change.puts.items()})),
    ],
}  # fmt: skip
WRONG += [
    (type(f"{hook}_{n}", (Rows,), {hook: fault}), f"test_{condition}", words)
    for hook, faults in FAULTS.items()
    for n, (condition, words, fault) in enumerate(faults)
]


@wrong("a_tenant_has_rows_of_its_own", "records('a\\u0301', 's', 'k', 'x')", "should be  True")
class Normalises(Rows):
    def commit(self, change):
        def normal(columns):
            return tuple(
                unicodedata.normalize("NFC", v) if isinstance(v, str) else v for v in columns
            )

        expect = {Key(key.table, normal(key.columns)): v for key, v in change.expect.items()}
        puts = {table: list(map(normal, rows)) for table, rows in change.puts.items()}
        return super().commit(replace(change, expect=expect, puts=puts))


@wrong("rows_alike_in_an_index_are_ordered_by_their_key", "of 1:", "of 4:")
class AlikeHidden(Rows):
    def scan(self, scan):
        rows = super().scan(scan)
        columns = TABLES[scan.table].indexes.get(scan.index, TABLES[scan.table].key)
        at = [TABLES[scan.table].columns.index(column) for column in columns]
        return list({tuple(row[place] for place in at): row for row in rows[::-1]}.values())[::-1]


@wrong("a_limit_counts_from_the_first_or_the_last", "limit 1 reverse True")
class LimitBeforeOrder(Rows):
    def scan(self, scan):
        rows = super().scan(scan._replace(reverse=False))
        return rows[::-1] if scan.reverse else rows


@wrong("bounds_are_exclusive_as_far_as_they_go", "after (1,)", "'1-0'")
class AfterIncluded(Rows):
    def scan(self, scan):
        rows = super().scan(scan._replace(after=(), limit=None))
        places = TABLES[scan.table].orders[scan.index][len(scan.prefix) :]
        entries = [(tuple(row[place] for place in places[: len(scan.after)]), row) for row in rows]
        return [row for entry, row in entries if entry >= scan.after][: scan.limit]


@wrong("a_put_replaces_the_whole_row", "was there  name = 'n'", "should be  name = None")
class Merges(Rows):
    def commit(self, change):
        before = dict(self.rows)
        done = super().commit(change)
        for key, row in self.rows.items():
            old = before.get(key, row)
            self.rows[key] = tuple(a if b is None else b for a, b in zip(old, row, strict=True))
        return done


class OldIndexes(Rows):
    """Answers by index from other rows than there are."""

    def __init__(self):
        super().__init__()
        self.index = Model()

    def scan(self, scan):
        if not scan.index:
            return super().scan(scan)
        table = TABLES[scan.table]
        rows = [self.rows.get(table.key_of(row), row) for row in self.index.scan(scan)]
        return [row for row in rows if row is not None]


@wrong("an_index_follows_a_replaced_row", "index 'active'", "as row")
class IndexKeepsItsPlace(OldIndexes):
    def commit(self, change):
        done = super().commit(change)
        self.index.rows = {key: self.index.rows.get(key, row) for key, row in self.rows.items()}
        return done


@wrong("an_index_loses_deleted_rows", "index", "should be  not there")
class IndexKeepsDeleted(OldIndexes):
    def commit(self, change):
        done = super().commit(change)
        self.index.rows |= self.rows
        return done


@wrong("none_is_in_no_index", "index 'unindexed'", "should be  not there")
class NoneIndexed(OldIndexes):
    def commit(self, change):
        done = super().commit(change)
        rows = self.rows.items()
        self.index.rows = {
            key: tuple(0 if value is None else value for value in row)
            if key.table == "heads"
            else row
            for key, row in rows
        }
        return done


@wrong("deletes_come_before_puts_before_adds", "was there  no row")
class DeletesLast(Rows):
    def commit(self, change):
        done = super().commit(replace(change, deletes=[]))
        return done and super().commit(Commit(deletes=change.deletes))


@wrong("a_row_made_again_is_another", "was there", "should be")
class RemembersDeleted(Rows):
    def __init__(self):
        super().__init__()
        self.first = {}

    def holds(self, key, guard):
        was = self.guard(key)
        return guard == (was if was is None else self.first.setdefault(key, was))


@wrong("each_expectation_counts", "was there  no row")
class DeletesAnyway(Rows):
    def commit(self, change):
        done = super().commit(change)
        return done or not super().commit(Commit(deletes=change.deletes))


@wrong("an_add_changes_the_guard_that_others_expect", "counters", "should be")
class AddsThenExpects(Rows):
    def commit(self, change):
        before = dict(self.rows)
        super().commit(Commit(adds=change.adds))
        done = super().commit(replace(change, adds={}))
        self.rows = self.rows if done else before
        return done


@wrong("copies_are_written_under_another_prefix", "marked")
class CopiesLast(Rows):
    def commit(self, change):
        done = super().commit(replace(change, copies=[]))
        return done and super().commit(Commit(copies=change.copies))


@wrong("a_commit_that_fails_applies_nothing", "body = 'after'", "body = 'before'")
class HalfApplied(RightStore):
    async def commit(self, change):
        if all(self.rows.guard(key) == guard for key, guard in change.expect.items()):
            for table, rows in change.puts.items():
                await super().commit(Commit(puts={table: rows}))
        return await super().commit(change)


@wrong("empty_calls_do_nothing", "ValueError: min()", "should be  no error")
class FailsOnNothing(RightStore):
    async def commit(self, change):
        min([*change.puts, *change.deletes, *change.adds])
        return await super().commit(change)


@wrong("a_tenant_has_rows_of_its_own", "scan due", "as row")
class OneTenantDue(Rows):
    def scan(self, scan):
        rows = super().scan(scan)
        return [row for row in rows if row[0] == rows[0][0]] if scan.index == "next" else rows


# -- several at once


@wrong("a_read_is_of_one_state", "was there", "should be")
class ReadsTwice(RightStore):
    async def read(self, gets, scans):
        rows, _ = await super().read(gets, ())
        await asyncio.sleep(0)
        _, ranges = await super().read((), scans)
        return Found(rows, ranges)


@wrong("a_read_is_of_one_state", "after its commit returned")
class ReadsTheStateBefore(RightStore):
    async def commit(self, change):
        self.before = dict(self.rows.rows)
        return await super().commit(change)

    async def read(self, gets, scans):
        before = Model(getattr(self, "before", self.rows.rows))
        await asyncio.sleep(0)
        self.before = dict(self.rows.rows)
        return before.read(gets, scans)


class ChecksFirst(RightStore):
    """Checks these expectations, goes away, and then applies."""

    def early(self, key, change):
        return True

    async def commit(self, change):
        early = {key: guard for key, guard in change.expect.items() if self.early(key, change)}
        late = {key: guard for key, guard in change.expect.items() if key not in early}
        if any(self.rows.guard(key) != guard for key, guard in early.items()):
            return False
        await asyncio.sleep(0)
        return await super().commit(replace(change, expect=late))


@wrong("no_update_is_lost", "was there", "should be")
class ChecksAllFirst(ChecksFirst):
    pass


@wrong("no_two_decide_by_the_others_row", "[1, 1]", "not both 1")
class LocksWhatItWrites(ChecksFirst):
    def early(self, key, change):
        return all(TABLES[key.table].key_of(row) != key for row in change.puts.get(key.table, ()))


@wrong("no_row_appears_under_an_expected_counter", "rows", "was there", "should be")
class ChecksCountersFirst(ChecksFirst):
    def early(self, key, change):
        return key.table == "counters"


@wrong("no_row_outlives_the_deletion_of_one_expected", "None alone, or no row")
class ForgetsDeletionsMeanwhile(ChecksFirst):
    async def commit(self, change):
        early = dict(change.expect)
        if any(self.rows.guard(key) != guard for key, guard in early.items()):
            return False
        await asyncio.sleep(0)
        gone = {key for key in early if self.rows.guard(key) is None}
        late = {key: guard for key, guard in early.items() if key not in gone}
        return await RightStore.commit(self, replace(change, expect=late))


@wrong("no_add_is_lost", "counters after all adds")
class AddsByReading(RightStore):
    async def commit(self, change):
        sums = {key: (self.rows.guard(key) or 0) + n for key, n in change.adds.items()}
        await asyncio.sleep(0)
        return await super().commit(
            replace(change, deletes=[*change.deletes, *change.adds], adds=sums)
        )


@wrong("no_add_is_lost", "counters after all adds")
class NoLockOfThreads(RightStore):
    capabilities = frozenset({"on_thread"})

    async def commit(self, change):
        sums = {key: (self.rows.guard(key) or 0) + n for key, n in change.adds.items()}
        time.sleep(1e-4)  # noqa: ASYNC251
        return await super().commit(
            replace(change, deletes=[*change.deletes, *change.adds], adds=sums)
        )


@wrong("two_openers_share_one_store", "was there", "should be")
@wrong("processes_share_one_store", "was there", "should be")
class OnlyClaimsToBeShared(RightStore):
    capabilities = frozenset({"shared"})

    def __init__(self, path):
        super().__init__(path)
        self.rows = Rows()


# -- lives


@wrong("what_was_committed_survives", "no row", "close, open again")
class NotDurable(RightStore):
    async def close(self):
        await super().close()
        self.kept.pop((type(self), self.path), None)


@wrong("a_cancelled_commit_ends_before_its_caller_goes_on", "cancelled after", "not there")
class GoesOnAlone(RightStore):
    async def commit(self, change):
        async def later():
            await asyncio.sleep(0.005)
            return await RightStore.commit(self, change)

        return await asyncio.shield(asyncio.ensure_future(later()))


@wrong("closing_ends_what_was_begun", "was there  no row")
class DropsWhatWaits(RightStore):
    async def commit(self, change):
        await asyncio.sleep(0)
        return True if self.closed else await super().commit(change)


@wrong("a_closed_store_says_so", "operation  read after close()", "ClosedError")
class NeverCloses(RightStore):
    def check(self):
        pass


@wrong("a_store_has_a_time", "aware of its zone")
class NaiveTime(RightStore):
    async def now(self):
        return (await super().now()).replace(tzinfo=None)


@wrong("scrubbed_bytes_are_gone", "store.log", "files that hold a deleted text")
class KeepsALog(RightStore):
    async def commit(self, change):
        with self.path.with_suffix(".log").open("a", encoding="utf-8") as log:
            print(change, file=log)
        return await super().commit(change)


@wrong("it_has_the_shape_of_a_store", "those of Store")
class NoScrub(RightStore):
    scrub = None


def suite_of(fault):
    store = fault
    if issubclass(fault, Rows):
        store = type(fault.__name__, (RightStore,), {"rows_type": fault})

    class Suite(StoreConformance):
        async def open_store(self, path):
            return store(path)

    return Suite()


CONDITIONS = sorted(name for name in dir(StoreConformance) if name.startswith("test_"))


@pytest.mark.parametrize(
    ("fault", "condition", "words"), WRONG, ids=[f"{each[0].__name__}" for each in WRONG]
)
def test_a_wrong_store_is_rejected_in_one_screen(fault, condition, words, tmp_path):
    with pytest.raises(pytest.fail.Exception) as rejected:
        getattr(suite_of(fault), condition)(tmp_path)
    text = str(rejected.value)
    assert condition in text
    assert not rejected.value.pytrace
    for word in (*words, "operation", "was there", "should be", "rule"):
        assert word in text, text
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 330


def test_each_condition_rejects_some_wrong_store():
    assert {condition for _, condition, _ in WRONG} == set(CONDITIONS)
