"""The published calls that change, take back, fork, rebuild and look after, as written."""

import sqlite3
from contextlib import closing

import pytest
from kinds import of_kind
from stand_ins import talk as turns

from hiermem import (
    AsyncMemory,
    ClosedError,
    ConflictError,
    HierarchyConfig,
    Memory,
    Message,
    Prices,
    UpdatePolicy,
    UsageError,
)
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.types import BatchReport, Scrubbed, Span, UpdatePlan


def talk(count, first=0):
    return turns(count, lambda n: f"Pump {n} was set to {n * 7} rpm. " * 3, begin=first)


def test_changes_as_published(tmp_path):
    policy = UpdatePolicy(regenerate_on_edit=True)
    with Memory.open(tmp_path / "chat.db", update_policy=policy) as memory:
        session = memory.session("support-42")
        session.append(
            Message.user("My order 5512 never came."),
            Message.assistant("I am sorry. Shall I refund the 59.90 EUR?"),
            talk(60),
        )
        session.update()
        refund = "I am sorry. The refund of 59.90 EUR is on its way."
        report = session.edit(1, refund)
        assert (report.session_id, report.index, report.version) == ("support-42", 1, 1)
        assert report.dirty[0] == "L1.0"
        assert session.messages(1, 2)[0].content == refund
        assert [old.content for old in session.versions(1)] == [
            "I am sorry. Shall I refund the 59.90 EUR?"
        ]
        assert session.versions(0) == ()
        assert session.status().oldest_dirty_age is not None
        assert session.update().made >= 1
        assert session.status().oldest_dirty_age is None
        with Memory.open(tmp_path / "chat.db") as flagging:
            other = flagging.session("support-42")
            assert other.edit(3, "Pump 1 stopped.").dirty[0] == "L1.0"
            assert sum(other.status().dirty.values()) >= 1
            assert (other.status().queue[1], other.update().made) == (0, 0)

        assert session.recompress(level=1, span=(0, 2)) == ("L1.0",)
        session.update()
        session.reconfigure(HierarchyConfig.by_chars())

        other = session.fork("support-42-b", at=2)
        assert [message.content for message in other.messages()] == [
            "My order 5512 never came.",
            refund,
        ]
        assert (other.status().forked_from, other.status().forked_at) == ("support-42", 2)
        with pytest.raises(ConflictError, check=of_kind("exists")):
            session.fork("support-42-b")

        receipt = session.erase([0], forks="all")
        assert (receipt.kind, receipt.indices) == ("erase", (0,))
        assert receipt.forks_reached == ("support-42-b",)
        assert receipt.to_remake["support-42"]
        assert receipt.scrubbed or receipt.scrub_reason
        assert session.messages(0, 1)[0].state == other.messages(0, 1)[0].state == "erased"
        with pytest.raises(ConflictError, check=of_kind("withdrawn")):
            session.edit(0, "again")
        assert session.quarantine([2]).kind == "quarantine"
        assert session.messages(2, 3)[0].state == "quarantined"

        session.update()
        (first, *_) = session.summaries(level=1)
        session.feedback(first, score=0.9, note="kept the amount")
        assert session.metrics().feedback.mean == 0.9
        assert session.metrics(Prices(1.0, 4.0)).cost_spent == 0.0
        assert [run.kind for run in session.runs()].count("erasure") == 2
        assert memory.run(receipt.run_id).record.subject == "support-42"

        assert isinstance(session.update(strategy="full", dry_run=True), UpdatePlan)
        session.update(strategy="full")
        assert isinstance(memory.update_all(dry_run=True), UpdatePlan)
        report = memory.update_all(strategy="full", on_progress=print)
        assert isinstance(report, BatchReport)
        assert report.failures == {}
        assert memory.check().ok, memory.check().findings

        assert memory.session("support-42-b").delete().kind == "erase_session"
        assert other.messages() == []
        assert memory.erase_tenant().removed["sessions"] == 1
        assert memory.sessions() == []
        assert memory.check().ok


async def test_a_full_update_is_of_the_session_and_not_of_the_default():
    """Opened without a configuration, a memory must not re-pack sessions under the default one."""
    store = RecordStore(MemoryStore())

    async def windows(**parts):
        session = AsyncMemory(store=store, **parts).session("s")
        if parts:
            await session.append(talk(24) if not await store.tenant("default").sessions() else ())
        await session.update(strategy="full")
        return (await session.status()).nodes[1]

    assert await windows(config=HierarchyConfig.by_tokens(max_messages=4)) == 6
    assert await windows() == 6
    assert await windows(config=HierarchyConfig.by_tokens(max_messages=8)) == 3
    assert (await AsyncMemory(store=store).check()).ok


async def test_a_full_update_keeps_what_the_session_was_reconfigured_to():
    """Broken, the memory's configuration silently takes back what was said of this session."""
    store, given = RecordStore(MemoryStore()), HierarchyConfig.by_tokens(max_messages=4)

    async def windows():
        session = AsyncMemory(store=store, config=given).session("s")
        await session.update(strategy="full")
        return (await session.status()).nodes.get(1)

    session = AsyncMemory(store=store, config=given).session("s")
    await session.append(talk(24))
    await session.reconfigure(HierarchyConfig.by_tokens(max_messages=8))
    assert await windows() == await windows() == 3
    await AsyncMemory(store=store, config=given).update_all(strategy="full")
    assert await windows() == 3
    await session.reconfigure(given)
    assert await windows() == 6
    given = HierarchyConfig.by_tokens(enabled=False)
    assert await windows() == 6, "it has a configuration of its own"


async def test_a_session_that_is_told_to_stay_as_it_is_stays_so():
    """Broken, ``reconfigure`` with what holds already is forgotten by the next full update."""
    store, four = RecordStore(MemoryStore()), HierarchyConfig.by_tokens(max_messages=4)
    await AsyncMemory(store=store, config=four).session("s").append(talk(24))
    session = AsyncMemory(store=store, config=HierarchyConfig.by_tokens()).session("s")
    await session.reconfigure(four)
    await session.update(strategy="full")
    assert (await session.status()).nodes[1] == 6


def test_what_a_full_update_does_not_go_with_is_refused():
    with Memory(store=MemoryStore()) as memory:
        session = memory.session("s")
        session.append(talk(4))
        with pytest.raises(UsageError, match="level"):
            session.update(1, strategy="full")
        with pytest.raises(UsageError, match="requires wait=True"):
            session.update(strategy="full", wait=False)


def test_the_blocking_worker_as_published():
    with Memory(store=MemoryStore()) as memory:
        session = memory.session("s")
        with memory.worker(poll=0.05) as worker:
            session.append(talk(60))
            assert worker.drain(timeout=120)
            assert worker.status.made == sum(session.status().nodes.values())
            session.append(talk(60, 60))
            worker.wake()
            assert worker.drain(timeout=120)
            assert sum(session.status().unfinished.values()) == 0
        assert worker.status.state == "stopped"
        with pytest.raises(UsageError):
            worker.start()
        assert memory.check().ok


async def test_a_memory_that_is_closed_stops_its_workers():
    """A worker that outlived its memory would work on a store that is closed."""
    memory = AsyncMemory(store=MemoryStore())
    await memory.session("s").append(talk(30))
    worker = memory.worker(poll=0.05)
    await worker.start()
    idle = memory.worker()
    await memory.close()
    assert (worker.status.state, idle.status.state) == ("stopped", "stopped")
    with pytest.raises(ClosedError):
        memory.worker()
    for expired in (idle, worker):
        with pytest.raises(ClosedError):
            await expired.start()
    for call in (memory.update_all, memory.check, memory.erase_tenant, memory.scrub):
        with pytest.raises(ClosedError):
            await call()


def test_a_worker_outlived_by_nothing_is_left_quietly():
    """Leaving ``with`` after the memory was closed inside it is no error."""
    memory = Memory(store=MemoryStore())
    with memory.worker() as worker:
        assert worker.status.last_error is None
        memory.close()
    with pytest.raises(ClosedError):
        worker.drain(1)


def test_a_scrub_that_somebody_was_in_the_way_of_is_made_up_for(tmp_path, monkeypatch):
    """Broken, what an erasure could not clean stays in the file until the next erasure."""
    monkeypatch.setitem(SQLiteStore.open.__func__.__kwdefaults__, "busy_timeout", 0.2)
    path = tmp_path / "chat.db"
    with Memory.open(path) as memory:
        session = memory.session("s")
        session.append(talk(12), Message.user("the code is zebra-4711"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN")
            assert other.execute("SELECT count(*) FROM messages").fetchone() == (13,)
            assert not memory.scrub().done
            assert "reading the file" in memory.scrub().reason
        session.erase([12])
        assert memory.scrub() == Scrubbed(done=True)
        files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
        assert b"zebra-4711" not in files


def test_a_span_is_taken_for_one():
    with Memory(store=MemoryStore()) as memory:
        session = memory.session("s")
        session.append(talk(60))
        session.update()
        assert session.recompress(1, Span(25, 30, 3)) == ("L1.2",)
        assert session.recompress(1, [25, 30]) == ("L1.2",)
        assert session.recompress(1, (25, 25)) == ()


def test_only_who_gave_a_configuration_is_told_that_another_is_in_force(caplog, tmp_path):
    path = tmp_path / "chat.db"
    wide = HierarchyConfig.by_tokens(target=1_000)
    with Memory.open(path, config=wide) as memory:
        memory.session("s").append(talk(3))
        memory.session("s").reconfigure(HierarchyConfig.by_tokens(target=3_000))
        assert memory.session("s").status().messages == 3
    with Memory.open(path) as memory:
        assert memory.session("s").status().messages == 3
        memory.session("s").context()
    assert not caplog.records, "nobody asked for another one, or whoever asked knows"
    with Memory.open(path, config=wide) as memory:
        memory.session("s").status()
        memory.session("s").messages()
    (told,) = [record.getMessage() for record in caplog.records]
    assert "the configuration stored with it" in told


async def test_the_async_twin_forks_and_erases(tmp_path):
    async with AsyncMemory.open(tmp_path / "chat.db") as memory:
        session = memory.session("s", on_bad_text="replace")
        await session.append(talk(30))
        await session.update()
        other = await session.fork("t", title="What if")
        status = await other.status()
        assert (status.title, status.messages) == ("What if", 30)
        assert (await other.update()).calls == 0, "texts of what is shared are shared"
        report = await session.edit(5, "a lone \ud800 surrogate")
        assert report.version == 1
        assert (await session.messages(5, 6))[0].content == "a lone \ufffd surrogate"
        assert (await other.messages(5, 6))[0].content == talk(6)[5].content
        await other.append(Message.user("And then?"))
        assert (await session.status()).messages == 30
        receipt = await memory.session("s").delete(forks="keep")
        assert receipt.kept_in == ("t",)
        assert (await memory.check()).ok
