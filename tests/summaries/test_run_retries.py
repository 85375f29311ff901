"""P9: what a model refuses is asked for six times in all, through forks, re-packs and outages."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from editing import regenerating
from sampling import crossed
from stand_ins import talk

from hiermem import AsyncMemory, Limits, UpdatePolicy
from hiermem.errors import ModelError
from hiermem.prompts import load
from hiermem.protocols import LLMResponse
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.assess import RETRY
from hiermem.testing.llms import write

START = datetime(2026, 1, 2, 9, tzinfo=UTC)
#: The most calls for one text: two prompts, and one more after 1, 4, 16 and 64 hours.
MOST = 6


class Sulky:
    """A model that refuses what ``refuses`` says; it counts the calls for each text."""

    context_window = None

    def __init__(self, refuses=lambda request: True, *, name="sulky", remote=True):
        self.name, self.remote, self.refuses = name, remote, refuses
        self.asked = Counter()

    @property
    def calls(self):
        return self.asked.total()

    async def complete(self, request):
        said = tuple(each.text for each in request.inputs)
        # What every request holds beside its inputs stands before them and is the same.
        self.asked[request.level, said] += 1
        await asyncio.sleep(0)
        if self.refuses(request):
            return LLMResponse("I cannot help with that.")
        return LLMResponse(write(request))


class Desk:
    """A memory with a clock that the test moves, in a store that can be opened by another model."""

    def __init__(self, **policy):
        self.now = START
        self.store = RecordStore(MemoryStore(clock=lambda: self.now))
        self.policy = UpdatePolicy(**{"batch_delay": 0, "retries": 0} | policy)

    def open(self, llm):
        return AsyncMemory(
            store=self.store, llm=llm, update_policy=self.policy, clock=lambda: self.now
        )

    async def say(self, session, start, stop):
        said = "Message {n}: pump {n} was set to {n}7 rpm. " * 3
        await session.append(talk(stop - start, said, begin=start, created_at=START))

    async def wait(self, session, *, updates=20, hours=70.0):
        """Let so much time pass that all that may be asked for again is due."""
        for _ in range(updates):
            self.now += timedelta(hours=hours)
            await session.update()


def on_pump_4(request):
    return any("pump 4" in each.text for each in request.inputs)


REFUSALS = {"everything": lambda request: True, "one topic": on_pump_4}


@pytest.mark.parametrize(
    ("what", "concurrency", "remote"), crossed(REFUSALS, [1, 8], [True, False])
)
async def test_p9_over_a_hundred_turns_no_text_is_asked_for_more_than_six_times(
    what, concurrency, remote
):
    desk, llm = Desk(concurrency=concurrency), Sulky(REFUSALS[what], remote=remote)
    async with desk.open(llm) as memory:
        session = memory.session("s")
        for turn in range(100):
            await desk.say(session, 2 * turn, 2 * turn + 2)
            desk.now += timedelta(minutes=30)
            plan = await session.update(dry_run=True)
            before = llm.calls
            report = await session.update()
            assert report.calls == llm.calls - before
            assert report.calls <= plan.calls_max
            if turn == 40:
                session = await session.fork("other")
            if turn == 70:
                await session.update(strategy="full")
        assert max(llm.asked.values()) <= MOST
        await desk.wait(session)
        assert max(llm.asked.values()) == MOST
        before = llm.calls
        await desk.wait(session, updates=3)
        await memory.session("s").update()
        await memory.session("s").update(strategy="full")
        await (await session.fork("third")).update()
        assert llm.calls == before, "it is asked for ever"
        for name in ("s", "other", "third"):
            summaries = await memory.session(name).summaries()
            assert all(each.status == "active" for each in summaries)
            assert any(each.degraded for each in summaries)
        assert (await memory.check()).ok


@pytest.mark.parametrize("together", [True, False])
async def test_p9_forks_that_are_updated_at_once_share_one_count(together):
    desk, llm = Desk(), Sulky()
    async with desk.open(llm) as memory:
        first = memory.session("s")
        await desk.say(first, 0, 40)
        sessions = [first, *[await first.fork(f"fork {number}") for number in range(4)]]
        for _ in range(30):
            desk.now += timedelta(hours=24)
            if together:
                await asyncio.gather(*(each.update() for each in sessions))
            else:
                await memory.update_all()
        assert set(llm.asked.values()) == {MOST}


async def test_p9_a_plan_counts_a_refused_text_when_it_is_due():
    desk, llm = Desk(), Sulky(on_pump_4)
    async with desk.open(llm) as memory:
        session = memory.session("s")
        await desk.say(session, 0, 30)
        plan = await session.update(dry_run=True)
        assert plan.calls == 3
        assert (await session.update()).degraded == 1
        assert (await session.update(dry_run=True)).calls == 0, "it is not due yet"
        desk.now += timedelta(hours=1)
        await desk.say(session, 30, 40)
        plan = await session.update(dry_run=True)
        assert (plan.calls, plan.by_level) == (2, {1: 2})
        assert (await memory.update_all(dry_run=True)).calls == 2
        report = await session.update()
        assert (report.calls, report.made, report.degraded) == (2, 1, 1)


@pytest.mark.parametrize("what", ["model", "prompt", "inputs", "request"])
async def test_p9_a_text_left_alone_is_asked_for_where_something_changed(what):
    """Left alone for ever it would be, if a better model could not have it."""
    desk, llm = Desk(), Sulky()
    async with desk.open(llm) as memory:
        session = memory.session("s")
        await desk.say(session, 0, 20)
        await session.update()
        await desk.wait(session)
        assert llm.calls == 2 * MOST
        if what == "inputs":
            await regenerating(session).edit(3, "Message 3 was about the valve.")
        elif what == "request":
            await session.recompress(1, (0, 10))
        if what in ("inputs", "request"):
            for _ in range(3):
                await session.update()
            assert llm.calls == 2 * MOST + 2
            return
        better = Sulky(lambda request: False, name="better" if what == "model" else llm.name)
        ours = load(1, "detailed")
        other = AsyncMemory(
            store=desk.store,
            llm=better,
            prompts={ours.name: replace(ours, version="9")} if what == "prompt" else None,
            update_policy=desk.policy,
            clock=lambda: desk.now,
        )
        report = await other.session("s").update()
        assert (report.made, report.degraded) == (2, 0)


async def test_a_text_that_another_session_got_is_taken_at_once():
    """No call is due for an hour, but none is needed."""
    desk, llm = Desk(), Sulky()
    async with desk.open(llm) as memory:
        session = memory.session("s")
        await desk.say(session, 0, 10)
        await session.update()
        other = await session.fork("other")
        llm.refuses = lambda request: False
        await other.recompress(1)
        assert (await other.update()).made == 1
        calls = llm.calls
        assert (await session.update()).reused == 1
        assert llm.calls == calls


@pytest.mark.parametrize(("concurrency", "from_call"), crossed([1, 8], [0, 7]))
async def test_an_outage_costs_no_attempt_and_no_summary(concurrency, from_call):
    """Down from the start, or from the middle of a run; then back, and everything is made."""
    desk, llm, down = Desk(concurrency=concurrency, down_after=None), None, True

    def fate(request):
        if down and llm.calls > from_call:
            raise ModelError("connection refused", charged=False, kind="transient")
        return False

    llm = Sulky(fate)
    async with desk.open(llm) as memory:
        session = memory.session("s")
        await desk.say(session, 0, 200)
        for _ in range(8):
            desk.now += timedelta(minutes=1)
            report = await session.update()
            assert report.degraded == 0
        nodes = [each.node for each in await session.summaries()]
        assert {node.attempts for node in nodes} == {0}
        assert {node.status for node in nodes} <= {"active", "pending", "failed"}
        down = False
        report = await session.update()
        assert (report.failed, report.degraded) == (0, 0)
        assert all(each.made for each in await session.summaries())
        assert not await memory._handle.store.records(RETRY)


@pytest.mark.parametrize("others", [True, False])
async def test_an_answer_that_is_late_counts_only_where_others_are_in_time(others):
    """A server that is slow for all is no reason to take an extract; one poisonous text is."""
    desk, llm = Desk(concurrency=1, down_after=None), None

    def fate(request):
        if on_pump_4(request) or not others:
            raise ModelError("late", kind="timeout")
        return False

    llm = Sulky(fate)
    async with desk.open(llm) as memory:
        session = memory.session("s")
        for turn in range(8):
            await desk.say(session, 10 * turn, 10 * turn + 10)
            desk.now += timedelta(minutes=1)
            await session.update()
        degraded = [each for each in await session.summaries() if each.degraded]
        assert bool(degraded) == others
        poisoned = max(llm.asked.values())
        assert poisoned <= (2 * MOST if others else 2 * 8 + 2)


async def test_a_cap_in_the_middle_of_the_prompts_does_not_begin_the_count_again():
    """Else a session with a cap of one call would be asked for the same window for ever."""
    desk, llm = Desk(), Sulky()
    async with desk.open(llm) as memory:
        session = memory.session("s")
        await desk.say(session, 0, 10)
        for _ in range(6):
            await session.update(limits=Limits(calls=1))
        assert llm.calls == 2
        (summary,) = await session.summaries(1)
        assert summary.degraded


async def test_p11_an_erasure_takes_the_counts_of_what_it_reaches():
    desk, llm = Desk(), Sulky()
    async with desk.open(llm) as memory:
        session = memory.session("s")
        await desk.say(session, 0, 20)
        await session.update()
        assert len(await memory._handle.store.records(RETRY)) == 2
        await session.erase([3])
        (kept,) = await memory._handle.store.records(RETRY)
        assert '"span":[10,20]' in kept.body
        await memory.session("s").delete()
        assert not await memory._handle.store.records(RETRY)
