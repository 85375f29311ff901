"""A session's metadata and its last activity, through the public calls."""

from datetime import UTC, datetime, timedelta

import pytest
from samples import deciding, write
from stand_ins import Clock

from hiermem import AsyncMemory, Message, NotFoundError
from hiermem.handle import every_session
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types.tree import SessionFilter

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)


async def test_metadata_are_kept_with_the_session_from_its_first_append():
    async with AsyncMemory.open(":memory:") as memory:
        given = {"user": "ada"}
        session = memory.session("s", metadata=given)
        assert await session.get_metadata() == given
        with pytest.raises(NotFoundError):
            await session.set_metadata({"user": "bela"})
        given["user"] = "changed by the caller"
        await session.append(Message.user("Hello"))
        assert await session.get_metadata() == {"user": "ada"}
        # What a handle was opened with begins a session; it never takes back what was set since.
        await session.set_metadata({"user": "bela", "app": "web"})
        await session.append(Message.user("Hello again"))
        assert await session.get_metadata() == {"user": "bela", "app": "web"}
        await memory.session("s", metadata={"user": "chris"}).append(Message.user("And again"))
        found = await session.get_metadata()
        assert found == {"user": "bela", "app": "web"}
        found.clear()
        assert len(await session.get_metadata()) == 2
        (before,) = await memory.sessions()
        await session.set_metadata(dict(before.metadata))
        assert await memory.sessions() == [before], "equal ones write nothing"
        fork = await session.fork("f")
        await session.set_metadata({})
        assert await session.get_metadata() == {}
        (after, _) = await memory.sessions()
        assert (after.epoch, after.last_activity) == (before.epoch, before.last_activity)
        assert await fork.get_metadata() == dict(before.metadata)
        labelled = await memory.sessions(metadata={"app": "web"})
        assert [record.id for record in labelled] == ["f"]
        report = await memory.check()
        assert report.ok


async def test_a_title_is_replaced_and_makes_no_summary_outdated():
    """Broken, a title could be changed by appending only, or another one would cost calls."""
    async with AsyncMemory.open(":memory:") as memory:
        session = memory.session("s", title="Before")
        with pytest.raises(NotFoundError):
            await session.set_title("After")
        await session.append([Message.user(f"Pump {n} is set to {n * 7} rpm.") for n in range(40)])
        await session.update()
        other = memory.session("s")
        for title in ("After", None, "Now"):
            await session.set_title(title)
            assert (await other.status()).title == title
            (before,) = await memory.sessions()
            await session.set_title(title)
            assert await memory.sessions() == [before], "an equal title writes nothing"
        assert (await session.update(dry_run=True)).by_level == {}
        # What this handle was opened with does not come back with its next message.
        await session.append(Message.user("And pump 41?"))
        assert (await other.status()).title == "Now"
        assert (await memory.check()).ok


async def test_an_append_is_an_activity_and_nothing_else_is():
    clock = Clock(NOON)
    async with AsyncMemory.open(":memory:", clock=clock) as memory:
        first, second = memory.session("first"), memory.session("second")

        async def latest():
            return [one.id for one in await memory.sessions(order_by="last_activity")]

        await first.append(Message.user("Hello", created_at=NOON + timedelta(days=9)))
        clock.at += timedelta(minutes=1)
        await second.append(Message.user("Hello", key="k", created_at=NOON - timedelta(days=9)))
        assert await latest() == ["second", "first"]
        clock.at += timedelta(minutes=1)
        await first.flush()
        await first.edit(0, "Good day")
        await first.set_metadata({"user": "ada"})
        await first.update()
        assert await latest() == ["second", "first"]
        await first.append(Message.user("Again"))
        assert await latest() == ["first", "second"]
        clock.at += timedelta(minutes=1)
        await second.append(Message.user("Hello", key="k", created_at=NOON - timedelta(days=9)))
        assert await latest() == ["first", "second"]
        # A clock that is set back takes no session back.
        clock.at -= timedelta(hours=1)
        await first.append(Message.user("Yet again"))
        assert await latest() == ["first", "second"]


async def test_every_session_comes_once_whatever_is_created_and_erased_meanwhile(monkeypatch):
    monkeypatch.setattr("hiermem.handle._PAGE", 4)
    store = RecordStore(MemoryStore())
    tenant = store.tenant("t")
    for number in range(20):
        await write(tenant, f"s{number}", record={"metadata": {"odd": str(number % 2)}})
    found = []
    async for record in every_session(tenant):
        found.append(record.id)
        if record.id in ("s3", "s10"):  # the last of a page, and one within a page
            await tenant.transact(deciding(delete=[record.id]))
        if record.id == "s5":
            await write(tenant, "late")
            await tenant.transact(deciding(delete=["s18"]))
    assert found == [f"s{number}" for number in range(20) if number != 18] + ["late"]
    odd = [record.id async for record in every_session(tenant, SessionFilter({"odd": "1"}))]
    assert odd == [f"s{number}" for number in range(1, 20, 2) if number != 3]
