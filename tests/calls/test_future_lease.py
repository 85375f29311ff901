"""F19: what a process left behind whose clock was a year ahead holds up nobody."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from stand_ins import Clock

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Dead(ScriptedLLM):
    """A model whose process never hears of the answer."""

    def __init__(self) -> None:
        super().__init__(remote=True)
        self.entered = asyncio.Event()

    async def complete(self, request):
        self.entered.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("kind", ["update", "extraction", "consolidation"])
async def test_leases_of_a_clock_a_year_ahead_do_not_last_a_year(kind: str) -> None:
    clock = Clock(NOON)
    store = RecordStore(MemoryStore(clock=clock))
    settings = {
        "store": store,
        "clock": clock,
        "update_policy": UpdatePolicy(batch_delay=0, lease=1),
    }
    dead = Dead()
    wrong = AsyncMemory(llm=dead, **settings)
    right = AsyncMemory(llm=ScriptedLLM(remote=True), **settings)
    await right.session("s").append(
        Message.user(f"Pump {number} runs at {number * 7} rpm. " * 40) for number in range(12)
    )
    await right.space("p", rules="- a.md: x").note("Pump 3 is on.")

    def work(memory: AsyncMemory):
        return {
            "update": lambda: memory.session("s").update(level=1),
            "extraction": lambda: memory.session("s").extract(),
            "consolidation": lambda: memory.space("p").consolidate(),
        }[kind]()

    clock.at = NOON + timedelta(days=365)
    left = asyncio.create_task(work(wrong))
    await dead.entered.wait()
    # The clock is set right, and the process is gone: nothing of it goes on.
    clock.at = NOON + timedelta(minutes=1)
    (shown,) = await right.runs()
    assert shown.outcome == "interrupted"
    done = await asyncio.wait_for(work(right), 30)
    if kind == "consolidation":
        assert done.status == "ok"
    elif kind == "extraction":
        assert done.calls > 0
    else:
        assert done.made > 0
        assert (await right.session("s").status()).unfinished[1] == 0
    left.cancel()
    await asyncio.wait([left])
    await right.close()


@pytest.mark.parametrize("apart", [timedelta(days=-365), timedelta(days=365)])
async def test_a_run_is_judged_by_the_stores_time_and_not_by_the_readers(apart: timedelta) -> None:
    """A machine whose clock is wrong would call a living run interrupted, or do its work twice."""
    server, machine = Clock(NOON), Clock(NOON)
    machine.at += apart
    store = RecordStore(MemoryStore(clock=server))
    slow = Dead()
    policy = UpdatePolicy(batch_delay=0)
    running = AsyncMemory(store=store, llm=slow, clock=server, update_policy=policy)
    await running.session("s").append(
        Message.user(f"Pump {number} runs at {number * 7} rpm. " * 40) for number in range(12)
    )
    task = asyncio.create_task(running.session("s").update(level=1))
    await slow.entered.wait()
    reader = AsyncMemory(store=store, clock=machine)
    (shown,) = await reader.runs()
    assert shown.outcome == (await reader.run(shown.id)).outcome == "running"
    server.at += timedelta(hours=2)
    assert (await reader.runs())[0].outcome == "interrupted"
    task.cancel()
    await asyncio.wait([task])
