"""The places of a pool: no more turns than places, and a place is free when its turn has ended."""

import asyncio

import pytest
from session_fixture import COUNTER

from hiermem.calls.budget import Budget
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.handle import Handle
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.run import Shared
from hiermem.work.due import UpdatePool


class Queue:
    """Sessions that wait for a place, and what their turns did."""

    def __init__(self, count, fails=None):
        policy = UpdatePolicy(concurrency=2)
        llm = ExtractiveLLM()
        self.handle = Handle(MemoryStore().tenant("t"), COUNTER, HierarchyConfig.by_tokens())
        self.pool = UpdatePool(policy, Shared(llm, llm), Budget())
        self.waiting = [f"s{n}" for n in range(count)]
        self.fails, self.ended, self.go_on = fails, [], asyncio.Event()

    async def turn(self, session_update):
        await self.go_on.wait()
        self.ended.append((session_update.session_id, session_update.budget.stopped))
        if session_update.session_id == self.fails:
            raise KeyError(self.fails)

    def fill(self):
        while self.waiting and self.pool.free:
            begun = self.pool.begin(self.handle, self.waiting.pop(0))
            self.pool.run(begun, self.turn)
        return [each.task for each in self.pool.updates]


async def test_no_more_turns_than_places_and_each_session_has_one():
    queue, most = Queue(11, fails="s1"), 0
    queue.go_on.set()
    while tasks := queue.fill():
        most = max(most, len(tasks))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [type(task.exception()) for task in done if task.exception()] in ([], [KeyError])
    assert most == queue.pool.places == 4
    assert sorted(queue.ended) == sorted((f"s{n}", None) for n in range(11))


async def test_turns_that_are_to_end_are_waited_for():
    queue = Queue(3)
    queue.fill()
    ending = asyncio.create_task(queue.pool.end("pause"))
    await asyncio.sleep(0.01)
    assert not ending.done()
    queue.go_on.set()
    await ending
    assert queue.ended == [("s0", "pause"), ("s1", "pause"), ("s2", "pause")]
    assert not queue.pool.updates


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_turn_that_is_cut_off_gives_its_place_back_even_if_it_had_not_begun(steps):
    """Broken, a stopped worker says for ever that it works on a session."""
    queue = Queue(3)
    tasks = queue.fill()
    for _ in range(steps):
        await asyncio.sleep(0)
    await queue.pool.cut_off()
    assert all(task.cancelled() for task in tasks)
    assert not queue.pool.updates
