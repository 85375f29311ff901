"""Writes on the calling thread: as durable, as whole and as exclusive as those of the writer's."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kinds import of_kind

from hiermem import ClosedError, ConflictError, Memory, Message
from hiermem.stores.sqlite import files
from hiermem.stores.sqlite.schema import current
from hiermem.stores.sqlite.workers import Transaction, Writer


@pytest.fixture
def writer() -> Iterator[Writer]:
    connection = files.connect(files.MEMORY, busy_timeout=1.0)
    files.create_in(connection, current())
    found = Writer(connection)
    yield found
    found.close()


def insert(transaction: Transaction) -> int:
    transaction.writing()
    transaction.connection.execute(
        "INSERT INTO heads (session, tenant, messages, closed, version, state, epoch, tree, build, "
        "last_activity) "
        "SELECT count(*) + 1, 't', 0, 0, 0, '', 0, 0, '', 0 FROM heads"
    )
    return rows(transaction)


def rows(transaction: Transaction) -> int:
    found: int = transaction.connection.execute("SELECT count(*) FROM heads").fetchone()[0]
    return found


def test_a_write_that_fails_leaves_nothing_and_no_open_transaction(writer: Writer) -> None:
    def broken(transaction: Transaction) -> int:
        insert(transaction)
        raise LookupError

    with pytest.raises(LookupError):
        writer.run_here(broken)
    assert writer.run_here(rows) == 0
    assert writer.run_here(insert) == 1


def test_an_interrupt_between_two_lines_leaves_no_open_transaction(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every later write would fail, since a transaction cannot begin inside another one."""
    keep = Transaction.keep

    def interrupted(transaction: Transaction) -> None:
        keep(transaction)
        monkeypatch.setattr(Transaction, "keep", keep)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.run_here(insert)
    assert writer.run_here(insert) == 1


def test_it_steps_back_while_another_thread_writes(writer: Writer) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(transaction: Transaction) -> int:
        inside.set()
        assert go_on.wait(10)
        return insert(transaction)

    other = threading.Thread(target=lambda: writer.run_here(slow))
    other.start()
    assert inside.wait(10)
    assert writer.run_here(insert) is None
    go_on.set()
    other.join()
    assert writer.run_here(insert) == 2


def test_a_closed_writer_refuses(writer: Writer) -> None:
    writer.close()
    with pytest.raises(ClosedError):
        writer.run_here(insert)


def test_blocking_appends_of_many_threads_are_all_there_once(tmp_path: Path) -> None:
    """Whichever way each one took, through the writer's thread or past it."""
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory:
        session = memory.session("chat")
        given: list[list[int]] = []

        def work(name: str) -> None:
            given.extend(session.append(Message.user(f"{name} {n}")) for n in range(40))

        threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(index for indices in given for index in indices) == list(range(160))
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT count(DISTINCT content) FROM messages").fetchone() == (160,)


def test_keys_hold_and_a_second_handle_sees_what_the_first_wrote(tmp_path: Path) -> None:
    """What a session object remembers of its record must never stand in for the record."""
    path = tmp_path / "chat.db"
    with Memory.open(path) as one, Memory.open(path) as two:
        first, second = one.session("chat"), two.session("chat")
        for n in range(30):
            assert first.append(Message.user(f"a {n}", key=f"a{n}")) == [2 * n]
            assert second.append(Message.user(f"b {n}", key=f"b{n}")) == [2 * n + 1]
        assert first.append(Message.user("b 7", key="b7")) == [15]
        with pytest.raises(ConflictError, check=of_kind("key")):
            second.append(Message.user("other", key="a3"))
        assert [m.content for m in first.messages(0, 4)] == ["a 0", "b 0", "a 1", "b 1"]
