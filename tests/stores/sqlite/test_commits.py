"""Commits on the threads that call: shared, undone alone, held up, on a full disk, interrupted."""

import sqlite3
import threading
import time
from collections import Counter

import pytest
from driven import Threads, Watched, adding, count, counter, put, run, texts, together, wait_for

from hiermem.errors import ClosedError, InvalidMessageError, StoreError, UsageError
from hiermem.records.tables import Commit
from hiermem.stores.sqlite import SQLiteStore
from hiermem.stores.sqlite.connections import translate
from hiermem.stores.sqlite.transactions import Job


@pytest.fixture
async def store(tmp_path):
    opened = await SQLiteStore.open(tmp_path / "x.db", busy_timeout=0.2)
    yield opened
    await opened.close()


@pytest.fixture(params=["file", "memory"])
async def either(request, tmp_path):
    opened = await SQLiteStore.open(tmp_path / "x.db" if request.param == "file" else ":memory:")
    yield opened
    await opened.close()


async def test_commits_that_wait_together_share_one_transaction(either):
    """Broken, each of ten writers waits for ten syncs."""
    watched = Watched(either)
    assert together(either, [adding(n) for n in range(10)]) == [True] * 10
    assert [sql for sql in watched.statements if sql in {"BEGIN IMMEDIATE", "COMMIT"}] == [
        "BEGIN IMMEDIATE", "COMMIT",
    ]  # fmt: skip
    assert count(either) == 45


async def test_in_a_shared_transaction_each_expectation_sees_what_was_before_it(either):
    """Broken, two writers that read the same state both apply."""
    outcomes = together(
        either, [adding(1), put("a", expect=1), adding(1), put("b", expect=1), put("c", expect=2)]
    )
    assert outcomes == [True, True, True, False, True]
    assert texts(either) == {"v": "c"}


async def test_a_refused_commit_writes_nothing(either):
    watched = Watched(either)
    assert not run(either.commit(put("a", expect=7)))
    assert "COMMIT" not in watched.statements
    assert texts(either) == {}


async def test_of_a_shared_transaction_only_the_failing_commit_is_undone(either):
    """Also where it fails half-way through its statements, and where the next one depends on it."""
    broken = [
        Commit(puts={"views": [("t", "s", "first", "x"), ("t", "s", "v", "\ud800")]}),
        Commit(puts={"views": [("t", "s", "first", "x"), ("t", "s", "v", None)]}),
        Commit(adds={counter(): 1}, puts={"views": [("t", "s", "v", 2**70)]}),
    ]
    outcomes = together(either, [adding(), *broken, put("a", expect=1), put("b", "w", expect=1)])
    assert [type(one) for one in outcomes] == [
        bool, InvalidMessageError, UsageError, UsageError, bool, bool,
    ]  # fmt: skip
    assert texts(either) == {"v": "a", "w": "b"}
    assert count(either) == 1


async def test_reads_run_side_by_side_and_beside_a_commit(store):
    """A slow read holds up nobody."""
    inside, go = threading.Event(), threading.Event()

    def slow(connection):
        inside.set()
        return go.wait(30)

    reader = threading.Thread(target=lambda: store._read(slow))
    reader.start()
    assert inside.wait(30)
    assert run(store.commit(adding()))
    with store._my_turn():  # as if a commit lasted
        assert count(store) == 1
    go.set()
    reader.join()


async def test_more_reads_at_once_than_connections_stay_open(store):
    store._readers = 2
    gate = threading.Barrier(6)
    readers = [
        threading.Thread(target=lambda: store._read(lambda _: gate.wait(30))) for _ in range(6)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not gate.broken
    assert len(store._idle) == 2


# -- what is in the way


async def test_a_held_lock_is_busy_and_nothing_is_written(store, tmp_path):
    run(store.commit(adding()))
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes = together(store, [adding()] * 3)
    assert [type(one) for one in outcomes] == [StoreError] * 3
    assert all(one.retryable and one.committed is False for one in outcomes)
    assert len({id(one) for one in outcomes}) == 3
    assert count(store) == 1, "reads go on meanwhile"
    other.execute("ROLLBACK")
    other.close()
    run(store.commit(adding()))
    assert count(store) == 2


def _limit(store, room):
    connection = store._writer.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + room}")


async def test_a_full_disk_fails_the_commit_and_keeps_the_rest(either):
    run(either.commit(put("x")))
    _limit(either, 2)
    with pytest.raises(StoreError) as caught:
        run(either.commit(put("y" * 100_000, "w")))
    assert caught.value.committed is False
    assert texts(either) == {"v": "x"}
    run(either.commit(put("z")))
    _limit(either, 1_000)
    run(either.commit(put("y" * 100_000, "w")))
    assert texts(either) == {"v": "z", "w": "y" * 100_000}


async def test_a_full_disk_in_a_shared_transaction_fails_those_that_need_the_room(store):
    """SQLite may undo the whole transaction; then each commit is tried alone."""
    _limit(store, 2)
    sizes = [1, 100_000, 1, 100_000, 1]
    outcomes = together(store, [put("x" * size, f"v{n}") for n, size in enumerate(sizes)])
    assert [type(one) for one in outcomes] == [bool, StoreError, bool, StoreError, bool]
    assert all(one.committed is False for one in outcomes if isinstance(one, StoreError))
    assert list(texts(store)) == ["v0", "v2", "v4"]


async def test_a_failed_sync_is_of_unknown_outcome_to_all_that_share_it(store):
    """Where the commit itself fails other than for a full disk, ``committed`` is None."""

    def fail(sql):
        if sql == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

    watched = Watched(store, fail)
    outcomes = together(store, [put("x"), put("y", "w")])
    assert [one.committed for one in outcomes] == [None, None]
    watched.failing = None
    assert texts(store) == {}
    assert run(store.commit(put("z")))


# -- interrupts


@pytest.mark.parametrize("at", ["BEGIN IMMEDIATE", "INSERT", "COMMIT"])
async def test_an_interrupted_commit_fails_none_that_shares_its_transaction(either, at):
    """Broken, one Ctrl-C leaves an open transaction, or a thread that waits for ever."""
    interrupted = []

    def interrupt(sql):
        if sql.startswith(at) and not interrupted:
            interrupted.append(sql)
            raise KeyboardInterrupt

    Watched(either, interrupt)
    outcomes = together(either, [adding(), adding(), adding()])
    assert sorted(map(str, map(type, outcomes))) == sorted(
        map(str, (KeyboardInterrupt, bool, bool))
    )
    assert count(either) == 2


async def test_an_interrupt_right_after_the_commit_doubles_nothing(either):
    """Those that shared the transaction are told that they were applied."""

    class After(Watched):
        def execute(self, sql, *args):
            found = self.inner.execute(sql, *args)
            if sql == "COMMIT" and not self.statements:
                self.statements.append(sql)
                raise KeyboardInterrupt
            return found

    After(either)
    outcomes = together(either, [adding(), adding(), adding()])
    assert sorted(map(str, outcomes)) == ["", "True", "True"]
    assert count(either) == 3


async def test_who_is_interrupted_while_waiting_leaves_the_queue(either, monkeypatch):
    """Broken, a commit is applied after its caller was told that it was not, or others hang."""
    wait = Job.wait

    def interrupted(job):
        if job is first:
            raise KeyboardInterrupt
        wait(job)

    monkeypatch.setattr(Job, "wait", interrupted)
    threads = Threads(either, [adding()]), Threads(either, [adding(5)])
    with either._my_turn():
        for number, each in enumerate(threads):
            first = either._queue[0] if number else None
            each.start()
            wait_for(lambda number=number: len(either._queue) == number + 1)
        either._queue[0].wake()
    outcomes = [each.join()[0] for each in threads]
    assert isinstance(outcomes[0], KeyboardInterrupt) is (count(either) == 5)
    assert outcomes[1] is True


# -- closing


async def test_closing_ends_what_is_under_way_and_refuses_the_rest(store):
    inside, go = threading.Event(), threading.Event()
    answers = []

    def slow(connection):
        inside.set()
        go.wait(30)
        return connection.execute("SELECT count(*) FROM views").fetchone()

    reader = threading.Thread(target=lambda: answers.append(store._read(slow)))
    reader.start()
    assert inside.wait(30)
    closing = threading.Thread(target=lambda: run(store.close()))
    closing.start()
    wait_for(lambda: store._closed)
    for use in (store.commit(adding()), store.read([], []), store.now(), store.check(),
                store.scrub()):  # fmt: skip
        with pytest.raises(ClosedError):
            run(use)
    assert closing.is_alive()
    go.set()
    reader.join()
    closing.join()
    assert answers == [(0,)]
    await store.close()


async def test_commits_that_wait_at_the_close_are_applied_or_refused_each_as_a_whole(tmp_path):
    store = await SQLiteStore.open(tmp_path / "x.db")
    with store._my_turn():
        waiting = Threads(store, [adding()] * 5)
        waiting.start()
        wait_for(lambda: len(store._queue) == 5)
        closing = threading.Thread(target=lambda: run(store.close()))
        closing.start()
    outcomes = waiting.join()
    closing.join()
    assert all(one is True or isinstance(one, ClosedError) for one in outcomes)
    again = await SQLiteStore.open(tmp_path / "x.db")
    assert count(again) == outcomes.count(True)
    await again.close()


async def test_what_is_refused_at_the_close_is_not_applied_by_it(tmp_path, monkeypatch):
    """Broken, a commit raises ClosedError and is there: its caller appends it twice."""
    store = await SQLiteStore.open(tmp_path / "x.db")
    turns, my_turn = Counter(), store._my_turn

    def late():
        # The close comes after the commit that sees it, and before that takes its job back.
        name = threading.current_thread().name
        turns[name] += 1
        time.sleep({"closing": 0.2}.get(name, 0.6 * (turns[name] > 1)))
        return my_turn()

    with my_turn():
        waiting = Threads(store, [adding()])
        waiting.start()
        wait_for(lambda: len(store._queue) == 1)
        monkeypatch.setattr(store, "_my_turn", late)
        closing = threading.Thread(target=lambda: run(store.close()), name="closing")
        closing.start()
        wait_for(lambda: store._closed)
    (outcome,) = waiting.join()
    closing.join()
    again = await SQLiteStore.open(tmp_path / "x.db")
    assert count(again) == (outcome is True)
    await again.close()


def test_errors_say_nothing_of_the_values():
    """Neither the message nor the cause of an error may hold stored text."""
    try:
        "CANARY\ud800".encode()
    except UnicodeEncodeError as error:
        told = translate(error)
    assert isinstance(told, InvalidMessageError)
    assert told.__cause__ is None
    assert "CANARY" not in repr(told)
