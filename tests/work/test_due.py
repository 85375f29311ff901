"""A fleet: what is to be made is in the store's list, whoever left it, and workers find it."""

import asyncio
from datetime import timedelta

import pytest
from editing import regenerating
from sampling import params
from session_fixture import COUNTER, START, messages, until
from stand_ins import Clock

from hiermem import AsyncMemory, HierarchyConfig, Limits, Message, UpdatePolicy
from hiermem.errors import UsageError
from hiermem.fleet import update_one
from hiermem.records.run import RecordStore
from hiermem.records.tables import TABLES, Commit, Key
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.faults import FaultPlan, FaultyStore
from hiermem.testing.llms import FaultyLLM, ScriptedLLM
from hiermem.tokens import FunctionCounter

LEVELS = HierarchyConfig.by_tokens()
POLICY = UpdatePolicy(batch_delay=0, concurrency=3)


def a_day_later():
    return Clock(START + timedelta(days=1))


def memory_over(store, clock, llm=None, config=LEVELS):
    return AsyncMemory(
        store=store, llm=llm or ScriptedLLM(), token_counter=COUNTER, config=config,
        update_policy=POLICY, clock=clock,
    )  # fmt: skip


async def listed(store):
    """What is due now and not claimed."""
    found = await store.claim_due(1000, lease=0.0)
    return {(one.tenant, one.session_id) for one in found if not one.claimed}


async def emptied(store):
    """Forget all entries, as if no writer had written one."""
    for one in await store.claim_due(1000, lease=0.0, ahead=None):
        held = await store.tenant(one.tenant).take_due(one.session_id, lease=1.0)
        await store.tenant(one.tenant).settle_due(held)


async def made(memory, session="s"):
    """A session with summaries, all of them made, and no entry."""
    one = memory.session(session)
    await one.append(*messages(60))
    await one.flush()
    await one.update()
    await emptied(memory._resources.store)
    return one


async def seal(memory):
    await memory.session("s").append(*messages(60))
    await memory.session("s").flush()


async def edit(memory):
    await regenerating(await made(memory)).edit(3, "another text than before")


async def erase(memory):
    await (await made(memory)).erase([3])


async def fork(memory):
    one = await made(memory, "source")
    await one.append(*messages(60, start=900))
    await one.flush()
    await emptied(memory._resources.store)
    await one.fork("s")


async def reconfigure(memory):
    one = await made(memory)
    await one.append(*messages(8, start=900))
    memory._handle.clock.at += timedelta(minutes=1)
    await emptied(memory._resources.store)
    await one.reconfigure(HierarchyConfig.by_tokens(max_messages=3))


async def failure(memory):
    await seal(memory)
    failing = memory_over(memory._resources.store, memory._handle.clock, llm=FaultyLLM(
        ScriptedLLM(), dict.fromkeys(range(99), "permanent")))  # fmt: skip
    await emptied(memory._resources.store)
    await failing.session("s").update()
    assert await listed(memory._resources.store) == set()
    memory._handle.clock.at += timedelta(hours=2)


async def silence(memory):
    await memory.session("s").append(*messages(3))
    assert await listed(memory._resources.store) == set()
    memory._handle.clock.at += timedelta(hours=2)


WRITERS = (seal, edit, erase, fork, reconfigure, failure, silence)


@pytest.mark.parametrize("writer", WRITERS)
async def test_every_writer_enters_the_session_and_a_check_does_without(writer):
    """Without its entry, what a session lacks would wait for somebody who looks at everything."""
    clock = a_day_later()
    store = RecordStore(MemoryStore(clock=clock))
    memory = memory_over(store, clock)
    await writer(memory)
    assert ("default", "s") in await listed(store)
    clock.at += timedelta(hours=1)
    await emptied(store)
    assert await listed(store) == set()
    await memory.check()
    assert ("default", "s") in await listed(store)


@pytest.mark.parametrize("way", ["job", "worker"])
async def test_whoever_is_cut_off_leaves_no_claim(way):
    """Broken, nobody may work on the session until the claim ends, or as long as the loop lives."""
    store = RecordStore(MemoryStore())
    memory = memory_over(store, a_day_later(), ScriptedLLM(remote=True, latency=60))
    await seal(memory)
    for steps in range(40):
        if way == "job":
            job = asyncio.create_task(update_one(memory.for_tenant, "default", "s"))
        else:
            worker = memory.worker(poll=0.02)
            await worker.start()
        for _ in range(steps):
            await asyncio.sleep(0)
        if way == "job":
            job.cancel()
            await asyncio.wait([job])
        else:
            await worker.stop(0)
        entries = await store.claim_due(9, lease=0.0, ahead=None)
        assert [one.claimed for one in entries] == [False], steps
        running = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
        assert "SessionClaim._renew" not in running, steps


async def test_update_one_makes_what_is_left_and_writes_its_claim_alone_where_nothing_is():
    """It is run twice for each job that an engine repeats: the second time must cost a look."""
    clock, plan = a_day_later(), FaultPlan()
    store = RecordStore(MemoryStore(clock=clock))
    memory = memory_over(FaultyStore(store, plan), clock)
    await memory.for_tenant("a").session("s").append(*messages(60))
    await memory.for_tenant("a").session("s").flush()
    report = await update_one(memory.for_tenant, "a", "s")
    assert report.made > 3
    assert not report.more
    assert await listed(store) == set()
    plan.visits.clear()
    again = await update_one(memory.for_tenant, "a", "s")
    assert (again.made, again.more, again.run_id) == (0, False, None)
    writes = {"write_nodes", "put_run", "put_records", "put_blocks", "transact"}
    assert not {site.split(".")[0] for site in plan.visits} & writes
    assert not (await update_one(memory.for_tenant, "a", "never was")).more
    with pytest.raises(UsageError):
        await update_one(lambda _: None, "a", "s")


async def test_update_one_says_where_there_is_more():
    """An engine that did not learn of it would leave the rest to the next dispatch."""
    clock = a_day_later()
    store = RecordStore(MemoryStore(clock=clock))
    memory = memory_over(store, clock)
    await memory.session("s").append(*messages(200))
    await memory.session("s").flush()
    report = await update_one(memory.for_tenant, "default", "s", limits=Limits(deadline=0.0))
    assert report.stopped == "deadline"
    assert report.more
    assert await listed(store) == {("default", "s")}
    assert not (await update_one(memory.for_tenant, "default", "s")).more
    assert await listed(store) == set()


@pytest.mark.parametrize("kind", params(["sqlite", "memory"], 1))
async def test_workers_make_everything_of_all_tenants(kind, tmp_path):
    """Two of them over one store, with sessions of tenants that neither was asked for."""
    store = (
        RecordStore(MemoryStore())
        if kind == "memory"
        else RecordStore(await SQLiteStore.open(tmp_path / "m.db"))
    )
    memory = AsyncMemory(store=store, token_counter=COUNTER, llm=ScriptedLLM(), config=LEVELS,
                         update_policy=POLICY)  # fmt: skip
    names = [(f"t{place % 7}", f"s{place}") for place in range(20)]
    for tenant, name in names:
        await (
            memory.for_tenant(tenant).session(name).append(*messages(40, start=97 * int(name[1:])))
        )
        await memory.for_tenant(tenant).session(name).flush()
    other = AsyncMemory(store=store, token_counter=COUNTER, llm=ScriptedLLM(), config=LEVELS,
                        update_policy=POLICY)  # fmt: skip
    async with (
        memory.worker(all_tenants=True, poll=0.05) as one,
        other.worker(all_tenants=True, poll=0.05) as two,
    ):
        assert await one.drain(60)
        assert await two.drain(60)
    assert one.status.made + two.status.made + one.status.reused + two.status.reused >= len(names)
    assert one.status.last_error is None
    assert await listed(store) == set()
    with pytest.raises(UsageError, match="for all tenants"):
        memory.for_tenant("t1").worker(all_tenants=True)
    await memory.close()


async def test_an_idle_worker_costs_the_same_for_any_number_of_tenants():
    """A look at each tenant would cost a hundred thousand statements a second."""
    costs = []
    for count in (3, 30):
        calls, plan = [], FaultPlan()

        class Counting(FaultyStore):
            async def claim_due(self, limit, *, calls=calls, **how):
                calls.append(limit)
                return await super().claim_due(limit, **how)

        clock = a_day_later()
        memory = memory_over(Counting(RecordStore(MemoryStore(clock=clock)), plan), clock)
        for place in range(count):
            await memory.for_tenant(f"t{place}").session("s").append(Message.user("quiet"))
        plan.visits.clear()
        async with memory.worker(all_tenants=True, poll=0.02) as worker:
            await until(lambda calls=calls: len(calls) > 3)
            assert worker.status.state == "running"
        costs.append(sum(plan.visits.values()))
    assert costs == [0, 0]


async def test_waiting_for_another_run_costs_as_little_as_looking_for_work():
    """Broken once: ``drain`` asked the store fifty times a second how far the other one was."""
    store, clock, calls = RecordStore(MemoryStore()), a_day_later(), []

    class Counting(FaultyStore):
        async def claim_due(self, limit, **how):
            calls.append(limit)
            return await super().claim_due(limit, **how)

    memory = memory_over(Counting(store, FaultPlan()), clock)
    await seal(memory)
    assert await store.tenant("default").take_due("s", lease=60)
    async with memory.worker(poll=0.2) as worker:
        assert not await worker.drain(1.0)
    assert len(calls) < 40
    await memory.close()


async def ready(memory, clock, *names):
    """Sessions with something to make, entered long ago."""
    for place, name in enumerate(names):
        await memory.session(name).append(*messages(20, start=97 * place))
        await memory.session(name).flush()
    clock.at += timedelta(hours=1)


async def test_a_worker_keeps_nothing_of_a_session_that_has_nothing_to_make():
    """A fleet's workers run for months: what they kept of each such session would fill them, and
    ``drain`` would wait for a session that nobody works on."""
    clock = a_day_later()
    store = RecordStore(MemoryStore(clock=clock))
    memory = memory_over(store, clock)
    for place in range(3):
        one = memory.session(f"s{place}")
        await one.append(*messages(40, start=97 * place))
        await one.flush()
        await one.update()
        await memory._handle.store.put_due([one.id])
    clock.at += timedelta(hours=1)
    async with memory.worker(all_tenants=True, poll=0.02) as worker:
        assert await worker.drain(120)
        assert worker.status.made == 0
        assert not worker._turns.failed
    assert await listed(store) == set()
    await memory.close()


async def test_a_session_that_fails_again_and_again_waits_longer_each_time():
    """Otherwise one broken session would be tried every two seconds by every worker, for ever."""
    clock = a_day_later()
    store = RecordStore(MemoryStore(clock=clock))
    memory = memory_over(store, clock)
    foreign = AsyncMemory(store=store, token_counter=FunctionCounter(len, name="other"),
                          llm=ScriptedLLM(), config=LEVELS, clock=clock)  # fmt: skip
    await ready(foreign, clock, "odd")
    async with memory.worker(all_tenants=True, poll=0.02) as worker:
        for times, pause in ((1, 2), (2, 4), (3, 8)):
            await until(lambda times=times: worker.status.turns == times)
            ahead = [len(await store.claim_due(9, lease=0.0, ahead=s)) for s in (pause - 1, pause)]
            assert ahead == [0, 1]
            clock.at += timedelta(seconds=pause)
    await memory.close()


async def test_a_turn_that_fails_loses_no_session():
    """A session that was claimed and not settled would wait until the claim ends."""
    clock, plan = (
        a_day_later(),
        FaultPlan({0: "fail"}, only=frozenset({"session.before"})),
    )
    store = RecordStore(MemoryStore(clock=clock))
    names = [f"s{place}" for place in range(9)]
    await ready(memory_over(store, clock), clock, *names)
    memory = memory_over(FaultyStore(store, plan), clock)
    async with memory.worker(all_tenants=True, poll=0.02) as worker:
        assert not await worker.drain(20)
        assert worker.status.last_error == "StoreError"
        clock.at += timedelta(seconds=10)
        assert await worker.drain(120)
    assert plan.hits
    assert await listed(store) == set()
    await memory.close()


async def test_a_session_that_cannot_be_read_stops_no_other():
    """It is claimed again and again: whatever was claimed with it would wait for ever."""
    clock = a_day_later()
    store = RecordStore(MemoryStore(clock=clock))
    memory = memory_over(store, clock)
    names = [f"s{place}" for place in range(9)]
    await ready(memory, clock, *names)
    (row,) = (await store.store.read([Key("sessions", ("default", "s0"))], [])).rows
    columns = TABLES["sessions"].columns
    changed = dict(zip(columns, row, strict=True)) | {"guard": row[2] + 1, "config": "{"}
    await store.store.commit(Commit(puts={"sessions": [tuple(changed.values())]}))
    async with memory.worker(all_tenants=True, poll=0.02) as worker:
        await worker.drain(5)
        assert worker.status.last_error == "StoreCorruptError"
        assert worker.status.turns == 9
    assert not await store.claim_due(9, lease=0.0)
    assert [one.session_id for one in await store.claim_due(9, lease=0.0, ahead=9)] == ["s0"]
    await memory.close()


async def test_a_limit_of_time_closes_a_window_at_its_time():
    """Broken once: a limit of two seconds took effect a minute later."""
    clock = a_day_later()
    store = RecordStore(MemoryStore(clock=clock))
    limits = HierarchyConfig.by_tokens(max_age=timedelta(seconds=2))
    memory = memory_over(store, clock, config=limits)
    said = ("When does the pump run? " * 9, "It runs at noon. " * 9)
    await memory.session("s").append(Message.user(said[0]), Message.assistant(said[1]))
    async with memory.worker(poll=0.02) as worker:
        clock.at += timedelta(seconds=1)
        assert await worker.drain(120)
        assert worker.status.made == 0
        clock.at += timedelta(seconds=2)
        await until(lambda: worker.status.made)
        assert worker.status.made == 1
    await memory.close()


async def test_an_update_waits_for_another_run_until_what_waited_is_made():
    """Broken, it pays for what another run makes, or waits for what came later too."""
    store = RecordStore(MemoryStore())
    gate, asked = asyncio.Event(), asyncio.Event()

    class Gated(ScriptedLLM):
        async def complete(self, request):
            asked.set()
            if self.calls >= 1:
                await gate.wait()
            return await super().complete(request)

    slow, quick = Gated(remote=True), ScriptedLLM(remote=True)
    policy = UpdatePolicy(batch_delay=0, concurrency=1)
    settings = {"store": store, "token_counter": COUNTER, "config": LEVELS, "update_policy": policy}
    first, second = AsyncMemory(llm=slow, **settings), AsyncMemory(llm=quick, **settings)
    await first.session("s").append(*messages(30))
    await first.session("s").flush()
    running = asyncio.create_task(first.session("s").update())
    await asked.wait()
    late = await second.session("s").update(limits=Limits(deadline=0.3))
    assert (late.stopped, late.calls, late.made) == ("deadline", 0, 0)
    waiting = asyncio.create_task(second.session("s").update())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    gate.set()
    assert (await running).made > 1
    assert (await waiting).made == quick.calls == 0
    await first.close()
    await second.close()
