"""Claims go by the store's time: two machines whose clocks differ do not take each other's."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_ins import Clock

from hiermem import AsyncMemory, BusyError, Message, UpdatePolicy
from hiermem.handle import StoreClock
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.faults import FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM

NOON = datetime(2024, 3, 15, 12, tzinfo=UTC)
LEASE = 60.0


def clocks(*, apart=timedelta()):
    """Return the store's clock, a machine's, and what that machine knows of the store's."""
    server, machine = Clock(NOON), Clock(NOON + apart)
    plan = FaultPlan()
    store = FaultyStore(RecordStore(MemoryStore(clock=server)), plan).tenant("t")
    return server, machine, StoreClock(store, machine), plan


@given(st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_however_far_a_machine_is_off_it_knows_the_stores_time(apart):
    server, machine, clock, _ = clocks(apart=apart)

    async def run():
        assert clock.now() == machine.at  # nothing else is known yet
        await clock.compare(lease=LEASE)
        assert clock.now() == server.at
        for each in (server, machine):
            each.at += timedelta(minutes=5)
        assert clock.now() == server.at

    asyncio.run(run())


async def test_the_clocks_are_compared_once_an_hour():
    server, machine, clock, plan = clocks(apart=timedelta(seconds=7))
    for minutes, reads in ((0, 1), (1, 1), (58, 1), (1, 2), (59, 2), (1, 3), (600, 4)):
        for each in (server, machine):
            each.at += timedelta(minutes=minutes)
        await clock.compare(lease=LEASE)
        assert plan.visits["now.before"] == reads
    # A clock that was set back says nothing about how long ago that was.
    machine.at -= timedelta(minutes=1)
    server.at -= timedelta(minutes=1)
    await clock.compare(lease=LEASE)
    assert plan.visits["now.before"] == 5


@pytest.mark.parametrize("moved", [14.9, 15.0, 15.1, 3_600.0])
@pytest.mark.parametrize("sign", [1, -1])
async def test_no_claim_is_taken_where_the_clocks_moved_apart(moved, sign):
    server, machine, clock, _ = clocks(apart=timedelta(hours=3))
    await clock.compare(lease=LEASE)
    for each in (server, machine):
        each.at += timedelta(hours=2)
    server.at += sign * timedelta(seconds=moved)
    if moved <= LEASE / 4:
        await clock.compare(lease=LEASE)
    else:
        with pytest.raises(BusyError) as caught:
            await clock.compare(lease=LEASE)
        assert f"moved by {moved:.1f} seconds" in str(caught.value)
        assert caught.value.retryable
        # Clocks that go on moving are refused again; clocks that keep the new offset are not.
        server.at += timedelta(seconds=16)
        with pytest.raises(BusyError):
            await clock.compare(lease=LEASE)
        await clock.compare(lease=LEASE)
    assert clock.now() == server.at


async def test_the_way_to_the_store_is_no_difference_of_clocks():
    server, machine, _, _ = clocks()

    class Far:
        async def now(self):
            machine.at += timedelta(seconds=4)
            server.at += timedelta(seconds=4)
            found = server.at
            machine.at += timedelta(seconds=4)
            server.at += timedelta(seconds=4)
            return found

    clock = StoreClock(Far(), machine)
    await clock.compare(lease=LEASE)
    assert clock.now() == server.at


async def test_a_machine_that_is_an_hour_ahead_takes_nobodys_claim():
    """F19: by its own clock, the other's claim has long ended; by the store's, it has not."""
    server, ahead = Clock(NOON), Clock(NOON + timedelta(hours=1))
    store = RecordStore(MemoryStore(clock=server))
    entered, go = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedLLM):
        async def complete(self, request):
            entered.set()
            await go.wait()
            return await super().complete(request)

    policy = UpdatePolicy(batch_delay=0, lease=LEASE)
    slow, quick = Slow(remote=True), ScriptedLLM(remote=True)
    first = AsyncMemory(store=store, llm=slow, clock=server, update_policy=policy)
    other = AsyncMemory(store=store, llm=quick, clock=ahead, update_policy=policy)
    session = first.session("s")
    await session.append(
        Message.user(f"Pump {number} runs at {number * 7} rpm. " * 40) for number in range(30)
    )
    work = asyncio.create_task(session.update(level=1))
    await entered.wait()
    await asyncio.sleep(0.05)
    beside = asyncio.create_task(other.session("s").update(level=1))
    await asyncio.sleep(0.2)
    asked = {request.inputs for request in quick.requests}
    go.set()
    await asyncio.gather(work, beside)
    assert asked.isdisjoint({request.inputs for request in slow.requests})
    attempts = await store.tenant("default").attempts()
    assert all(each.outcome == "ok" for each in attempts)
    assert len({each.node_id for each in attempts}) == len(attempts)


async def test_an_update_is_refused_where_the_clocks_moved_and_made_by_the_next():
    server, machine = Clock(NOON), Clock(NOON)
    store = RecordStore(MemoryStore(clock=server))
    memory = AsyncMemory(
        store=store, llm=ScriptedLLM(remote=True), clock=machine,
        update_policy=UpdatePolicy(batch_delay=0, lease=LEASE),
    )  # fmt: skip
    session = memory.session("s")
    said = [Message.user(f"Pump {number} runs at {number * 7} rpm. " * 40) for number in range(30)]
    await session.append(said[:15])
    assert (await session.update()).made
    await session.append(said[15:])
    runs = await memory.runs()
    machine.at += timedelta(hours=2)
    with pytest.raises(BusyError):
        await session.update()
    assert len(await memory.runs()) == len(runs)
    assert (await session.update()).made
