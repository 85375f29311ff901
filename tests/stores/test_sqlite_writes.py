"""The writer thread: shared commits, a write undone alone, a held lock, a full disk, cancelling."""

import asyncio
import sqlite3
import threading

import pytest

from hiermem.errors import (
    ClosedError,
    InvalidMessageError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.stores.sqlite import SQLiteStore
from hiermem.stores.sqlite.connections import translate
from hiermem.testing.samples import contents, node, remade, write, writing
from hiermem.types import Message
from hiermem.types.transaction import Changes


@pytest.fixture
async def store(tmp_path):
    opened = await SQLiteStore.open(tmp_path / "x.db", busy_timeout=0.2)
    yield opened
    await opened.close()


class _Watched:
    """Stands before the writer's connection and counts its statements."""

    def __init__(self, inner, statements):
        self.inner, self.statements = inner, statements

    def execute(self, sql, *args):
        self.statements.append(sql)
        return self.inner.execute(sql, *args)

    def __getattr__(self, name):
        return getattr(self.inner, name)


def _watch(store):
    statements = []
    transaction = store._writer._transaction
    transaction.connection = _Watched(transaction.connection, statements)
    return statements


async def _hold(store):
    """Keep the writer busy until the returned event is set; it is busy when this returns."""
    go, inside = threading.Event(), threading.Event()

    def wait(snapshot):
        inside.set()
        go.wait(60)
        return Changes(None)

    held = asyncio.ensure_future(store.tenant("t").mutate("hold", wait))
    while not inside.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return go, held


async def test_writes_that_wait_together_share_one_commit(store):
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("first")])
    statements = _watch(store)
    go, held = await _hold(store)
    writes = [asyncio.ensure_future(write(tenant, "s", [Message.user(str(n))])) for n in range(100)]
    await asyncio.sleep(0.05)
    go.set()
    await asyncio.gather(held, *writes)
    assert statements.count("COMMIT") == 2
    assert len(await tenant.messages("s", 0, 999)) == 101


async def test_an_append_is_few_statements(store):
    """The hot path: lock, look whether others wrote, head, message, commit."""
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("x")])
    statements = _watch(store)
    await write(tenant, "s", [Message.user("y")])
    assert [sql.split()[0] for sql in statements] == [
        "BEGIN", "PRAGMA", "UPDATE", "INSERT", "COMMIT",
    ]  # fmt: skip


async def test_of_a_shared_commit_only_the_failing_write_is_undone(store):
    """Also where it fails half-way through its statements, and where the next one depends on it."""
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("x", key="taken")])
    go, held = await _hold(store)
    tasks = [
        asyncio.ensure_future(one)
        for one in (
            write(tenant, "s", [Message.user("a")]),
            write(tenant, "s", [Message.user("b", key="new"), Message.user("c", key="taken")]),
            write(tenant, "new", [Message.user("d")], flags=((9, "lost"),)),
            write(tenant, "s", [Message.user("\ud800")]),
            write(tenant, "s", [Message.user("e", key="new")]),
            write(tenant, "new", [Message.user("f")]),
        )
    ]
    await asyncio.sleep(0.05)
    go.set()
    outcomes = await asyncio.gather(held, *tasks, return_exceptions=True)
    assert [type(one).__name__ for one in outcomes[2:5]] == [
        "UsageError", "UsageError", "InvalidMessageError",
    ]  # fmt: skip
    assert not any(isinstance(one, Exception) for one in (outcomes[1], *outcomes[5:]))
    assert [one.content for one in await tenant.messages("s", 0, 9)] == ["x", "a", "e"]
    assert [one.content for one in await tenant.messages("new", 0, 9)] == ["f"]


async def test_a_held_lock_is_busy_and_nothing_is_written(store, tmp_path):
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("x")])
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    tasks = [write(tenant, "s", [Message.user("y")]) for _ in range(3)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in outcomes] == [StoreError] * 3
    assert all(one.retryable and one.committed is False for one in outcomes)
    assert len({id(one) for one in outcomes}) == 3
    assert len(await tenant.messages("s", 0, 9)) == 1, "reads go on meanwhile"
    other.execute("ROLLBACK")
    other.close()
    await write(tenant, "s", [Message.user("z")])
    assert len(await tenant.messages("s", 0, 9)) == 2


async def test_a_full_disk_fails_the_write_and_keeps_the_rest(store):
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("x")])

    def limit(transaction):
        (pages,) = transaction.connection.execute("PRAGMA page_count").fetchone()
        transaction.connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    await store.write(limit)
    before = await contents(tenant)
    with pytest.raises(StoreError) as caught:
        await write(tenant, "s", [Message.user("y" * 100_000)])
    assert caught.value.committed is False
    assert await contents(tenant) == before
    await write(tenant, "s", [Message.user("z")])
    await store.write(
        lambda transaction: transaction.connection.execute("PRAGMA max_page_count = 100000")
    )
    await write(tenant, "s", [Message.user("y" * 100_000)])
    assert [one.index for one in await tenant.messages("s", 0, 9)] == [0, 1, 2]


async def test_a_full_disk_in_a_shared_commit_is_told_to_each(store):
    """SQLite may undo the whole group; then every write in it says so, and later ones go on."""
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("x")])

    def limit(transaction):
        (pages,) = transaction.connection.execute("PRAGMA page_count").fetchone()
        transaction.connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    await store.write(limit)
    go, held = await _hold(store)
    texts = ["a", "y" * 100_000, "b", "z" * 100_000, "c"]
    tasks = [asyncio.ensure_future(write(tenant, "s", [Message.user(text)])) for text in texts]
    await asyncio.sleep(0.05)
    go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await held
    stood = [t for t, one in zip(texts, outcomes, strict=True) if not isinstance(one, Exception)]
    assert all(one.committed is False for one in outcomes if isinstance(one, Exception))
    assert isinstance(outcomes[1], StoreError)
    assert isinstance(outcomes[3], StoreError)
    found = [one.content for one in await tenant.messages("s", 0, 9)]
    assert found == ["x", *stood]
    assert "c" in found


async def test_a_failed_commit_is_of_unknown_outcome(store):
    """Where the commit itself fails other than for a full disk, ``committed`` is None."""
    tenant = store.tenant("t")
    transaction = store._writer._transaction
    real = transaction.connection

    class FailsToCommit(_Watched):
        def execute(self, sql, *args):
            if sql == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return self.inner.execute(sql, *args)

    transaction.connection = FailsToCommit(real, [])
    with pytest.raises(StoreError) as caught:
        await write(tenant, "s", [Message.user("x")])
    assert caught.value.committed is None
    transaction.connection = real
    assert await tenant.session("s") is None
    await write(tenant, "s", [Message.user("y")])
    assert len(await tenant.messages("s", 0, 9)) == 1


async def test_a_cancelled_write_in_the_queue_is_left_out(store):
    tenant = store.tenant("t")
    go, held = await _hold(store)
    waiting = asyncio.ensure_future(write(tenant, "s", [Message.user("x")]))
    await asyncio.sleep(0.02)
    waiting.cancel()
    go.set()
    await held
    await write(tenant, "s", [Message.user("y")])
    assert [one.content for one in await tenant.messages("s", 0, 9)] == ["y"]


async def test_a_cancelled_write_that_began_is_whole(store):
    tenant = store.tenant("t")
    go, started = threading.Event(), threading.Event()

    def slow(snapshot):
        started.set()
        go.wait(10)
        return writing("s", [Message.user("x"), Message.user("y")])(snapshot)

    task = asyncio.ensure_future(tenant.mutate("s", slow))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await write(tenant, "t")
    assert len(await tenant.messages("s", 0, 9)) == 2


async def test_what_another_process_wrote_is_seen_by_the_next_decision(store, tmp_path):
    """The writer remembers heads; a commit by another connection makes it forget them."""
    other = await SQLiteStore.open(tmp_path / "x.db")
    for number in range(10):
        which = (store, other)[number % 2].tenant("t")
        seen = await write(which, "s", [Message.user(str(number))])
        assert (seen.session.messages if seen.session else 0) == number
    await other.close()


async def test_a_decision_may_raise_anything(store):
    """Even what is not an Exception reaches the caller, and the writer lives on."""

    class Odd(BaseException):
        pass

    for kind in (
        Odd, StopIteration, asyncio.CancelledError, UsageError, OverflowError, sqlite3.DatabaseError
    ):  # fmt: skip

        def decide(snapshot, kind=kind):
            raise kind

        with pytest.raises(RuntimeError if kind is StopIteration else kind):
            await store.tenant("t").mutate("s", decide)
    await write(store.tenant("t"), "s", [Message.user("x")])


async def test_a_store_serves_several_event_loops(store):
    """The synchronous face has a loop of its own; so may any thread."""
    tenant = store.tenant("t")

    def elsewhere(number):
        async def go():
            for _ in range(10):
                await write(tenant, "s", [Message.user(str(number))])
                await tenant.messages("s", 0, 3)

        asyncio.run(go())

    await asyncio.gather(*(asyncio.to_thread(elsewhere, n) for n in range(4)))
    assert len(await tenant.messages("s", 0, 99)) == 40


async def test_an_event_loop_that_ends_early_harms_nobody(store):
    """A loop may be closed while its write waits; the writer goes on."""
    go, held = await _hold(store)

    def leave():
        loop = asyncio.new_event_loop()
        task = loop.create_task(write(store.tenant("t"), "s", [Message.user("x")]))
        loop.run_until_complete(asyncio.sleep(0.01))
        task.add_done_callback(lambda _: None)
        task._log_destroy_pending = False
        loop.close()

    await asyncio.to_thread(leave)
    go.set()
    await held
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("y")])
    assert [each.content for each in await tenant.messages("s", 0, 9)] == ["x", "y"]


async def test_reads_run_side_by_side(store):
    """A slow read does not hold up the others."""
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("x")])
    go = threading.Event()
    slow = asyncio.ensure_future(store.read(lambda connection: go.wait(10)))
    await asyncio.sleep(0.02)
    assert len(await asyncio.wait_for(tenant.messages("s", 0, 9), 5)) == 1
    go.set()
    assert await slow is True


async def test_a_read_after_an_error_sees_the_present(store):
    """An error half-way through rows must not hold the connection to an old state."""
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user(str(n)) for n in range(50)], nodes=(node(0),))
    await tenant.tree("s").write_nodes([remade(node(0))])

    def set_role(transaction, role):
        transaction.connection.execute(
            "UPDATE messages SET role = ? WHERE message & 31 = 3", (role,)
        )

    for _ in range(6):
        await store.write(lambda transaction: set_role(transaction, "nobody"))
        with pytest.raises(StoreCorruptError):
            await tenant.messages("s", 0, 99)
        await store.write(lambda transaction: set_role(transaction, "user"))
        assert len(await tenant.messages("s", 0, 99)) == 50


async def test_a_pool_closed_while_reading_finishes_the_reads(tmp_path):
    opened = await SQLiteStore.open(tmp_path / "y.db", readers=2)
    reads = [asyncio.ensure_future(opened.tenant("t").sessions()) for _ in range(20)]
    await asyncio.sleep(0)
    await opened.close()
    assert await asyncio.gather(*reads) == [[]] * 20
    with pytest.raises(ClosedError):
        await opened.tenant("t").sessions()


def test_errors_say_nothing_of_the_values():
    """Neither the message nor the cause of an error may hold stored text."""
    try:
        "CANARY\ud800".encode()
    except UnicodeEncodeError as error:
        told = translate(error)
    assert isinstance(told, InvalidMessageError)
    assert told.__cause__ is None
    assert "CANARY" not in repr(told)
