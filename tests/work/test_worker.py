"""P7, P9, P10: a worker makes what there is to make, in order, and within its caps."""

import asyncio
import random
import time
from collections import Counter
from datetime import timedelta

import pytest
from sampling import params
from session_fixture import COUNTER, START, SessionFixture, messages, until

from hiermem import Limits
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import StoreError, UsageError
from hiermem.handle import Handle
from hiermem.log.append import About, append
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.node import Shared
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import FaultyLLM, ScriptedLLM
from hiermem.work.turns import enter_all, sessions_to_update
from hiermem.work.worker import AsyncWorker

LEVELS = HierarchyConfig.by_tokens()


class Office:
    """A tenant's sessions with a worker, or several, behind them."""

    def __init__(self, store=None, *, config=LEVELS, tenant="t", **policy):
        self.ahead = timedelta(0)
        self.store = store or RecordStore(MemoryStore(clock=self.now))
        self.tenant = self.store.tenant(tenant)
        self.policy = UpdatePolicy(**({"batch_delay": 0, "concurrency": 3} | policy))
        self.topics = {}
        self.handle = Handle(
            self.tenant, COUNTER, config, update_policy=self.policy, clock=self.now
        )

    @classmethod
    async def of(cls, session, count, **settings):
        """Give one with a session."""
        office = cls(**settings)
        await office.say(session, count)
        return office

    def now(self):
        return START + timedelta(days=1, seconds=time.monotonic()) + self.ahead

    async def say(self, session, count, *, start=0):
        """Let a session go on; each speaks of other things, so that no text serves for two."""
        first = 10_000 * self.topics.setdefault(session, len(self.topics)) + start
        return await append(
            self.handle, About(session, title=session), [list(messages(count, start=first))]
        )

    def worker(self, llm=None, **settings):
        settings = {"poll": 0.05} | settings
        handle = settings.pop("handle", self.handle)
        times = {name: settings.pop(name) for name in ("clock", "sleep") if name in settings}
        shared = Shared(llm or ScriptedLLM(), ExtractiveLLM(), **times)
        store = settings.pop("store", self.store)
        return AsyncWorker(handle, shared, store, **settings)

    async def nodes(self, session):
        found = []
        for level in await self.tenant.tree(session).levels():
            found += await self.tenant.tree(session).level(level, 0)
        return found

    async def left(self):
        return await sessions_to_update(self.handle, self.store)

    async def begun(self):
        """Give the (session, node) of every model call, in the order in which they were begun."""
        return [(each.session_id, each.node_id) for each in await self.tenant.attempts()]


async def test_what_kills_a_turn_ends_the_worker_and_is_raised_by_drain():
    """Broken, a worker that does nothing any more says that it is running, and drain() waits."""

    class Deadly(ScriptedLLM):
        async def complete(self, request):
            raise DiedError

    office = await Office.of("a", 50)
    async with office.worker(Deadly()) as worker:
        for _ in range(2):  # also when it was over before the call
            with pytest.raises(DiedError):
                await worker.drain(20)
        assert (worker.status.state, worker.status.last_error) == ("stopping", "DiedError")
    assert worker.status.state == "stopped"
    async with office.worker() as worker:
        assert await worker.drain(120)


# -- what is made


async def test_a_worker_makes_what_an_update_would():
    office, plain = Office(), SessionFixture()
    for place, (name, count) in enumerate((("a", 150), ("b", 50), ("c", 30))):
        await office.say(name, count)
        said = list(messages(count, start=10_000 * place))
        await append(plain.handle, About(name, title=name), [said])
        await plain.update(ScriptedLLM(), name)
    async with office.worker() as worker:
        assert await worker.drain(120)
        status = worker.status
    for name in "abc":
        made = await office.nodes(name)
        wanted = [(node.id, node.revision) for node in made]
        here = await office.tenant.tree(name).revisions(wanted)
        there = await plain.tenant.tree(name).revisions(wanted)
        assert [(r.node_id, r.text) for r in here] == [(r.node_id, r.text) for r in there]
    assert (status.made, status.failed, status.calls) == (19 + 6 + 3, 0, 28)
    assert worker.status.state == "stopped"


async def test_what_comes_up_later_is_made_too():
    office = Office()
    async with office.worker() as worker:
        assert await worker.drain(120)
        await office.say("a", 50)
        assert await worker.drain(120)
        assert not await office.left()
        await office.say("a", 50, start=50)
        # Nobody wakes it: it looks for itself.
        await until(lambda: worker.status.made == 12)


async def test_a_worker_closes_the_windows_of_a_session_that_fell_silent():
    """Broken, the last window of a session is never summarised, however long it is silent."""
    office = await Office.of("s", 14)
    await office.say("u", 1)
    async with office.worker() as worker:
        assert await worker.drain(timeout=120)
        assert len(await office.nodes("s")) == 1, "it was appended to only now"
        office.ahead = timedelta(minutes=61)
        assert await worker.drain(timeout=120)
        assert [node.span.stop for node in await office.nodes("s")] == [10, 14]
        nodes = await office.nodes("s")
        assert all(node.revision for node in nodes)
        (event,) = await office.tenant.events("s")
        last = (await office.tenant.messages("s", 13, 14))[0].created_at
        # The time is the messages' own: the same log, played later, seals the same windows.
        assert (event.kind, event.detail) == ("tick", (last + LEVELS.max_age).isoformat())
        (event,) = await office.tenant.events("u")
        assert event.kind == "tick", "a question alone becomes due"
        for _ in range(3):
            office.ahead += timedelta(hours=5)
            assert await worker.drain(timeout=120)
        assert len(await office.tenant.events("s")) == len(await office.tenant.events("u")) == 1
        await office.say("s", 3, start=14)
        office.ahead += timedelta(minutes=61)
        assert await worker.drain(timeout=120)
        assert len(await office.tenant.events("s")) == 2


@pytest.mark.thorough
async def test_what_another_model_made_is_followed_in_the_background():
    """Broken, a worker that follows another model leaves old texts as they are after a check."""
    office = Office(follow_strategy=True)
    for name, count in (("a", 150), ("b", 50), ("c", 5)):
        await office.say(name, count)
    async with office.worker(ScriptedLLM(name="old")) as worker:
        assert await worker.drain(120)
    await enter_all(office.handle)  # as memory.check() does
    async with office.worker(ScriptedLLM(name="new")) as worker:
        assert await worker.drain(120)
        assert worker.status.made == 19 + 6
        for name in "ab":
            made = [(node.id, node.revision) for node in await office.nodes(name)]
            models = {each.model for each in await office.tenant.tree(name).revisions(made)}
            assert models == {"new"}
        assert await worker.drain(120)
        await office.say("a", 20, start=150)
        assert await worker.drain(120)
        assert worker.status.made == 19 + 6 + 2


# -- order


# -- several workers


def held_back(llm):
    """Hold the model's answers back until the event is set that is returned."""
    gate, inner = asyncio.Event(), llm.complete

    async def late(request):
        answer = await inner(request)
        await gate.wait()
        return answer

    llm.complete = late
    return gate


class Asleep:
    """The store of a worker that finds nothing to do while it is ``asleep``."""

    asleep = False

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def claim_due(self, limit, **how):
        return [] if self.asleep else await self._store.claim_due(limit, **how)


async def test_a_worker_whose_leases_were_given_away_commits_nothing_over_the_other():
    """It slept through its leases, another one made the nodes, and then its answers came."""
    # Within the test nothing is renewed, however slow the machine is.
    office = await Office.of("s", 50, concurrency=3, lease=3600)
    slow, quick = ScriptedLLM(remote=True), ScriptedLLM(remote=True, name="quick-1")
    gate, store = held_back(slow), Asleep(office.store)
    async with office.worker(slow, store=store) as first:
        await until(lambda: slow.calls >= 3)
        # Otherwise it may take its own session again before the other one does.
        store.asleep = True
        office.ahead += timedelta(seconds=3601)
        async with office.worker(quick) as second:
            assert await second.drain(120)
        before = await texts(office, "s")
        gate.set()
        store.asleep = False
        assert await first.drain(120)
        assert first.status.made == 0
    assert await texts(office, "s") == before
    assert quick.calls == 6
    outcomes = Counter(each.outcome for each in await office.tenant.attempts())
    # Nobody can say whether the three slept-through calls were paid for, until they came back.
    assert outcomes["ok"] + outcomes["unknown"] == 9


async def test_a_worker_that_slept_past_its_leases_goes_on_with_what_it_has_in_hand():
    """It claims its own session anew; broken, it then pays once more for the calls in flight."""
    office = await Office.of("s", 50, concurrency=3, lease=3600)
    llm = ScriptedLLM(remote=True)
    gate = held_back(llm)
    async with office.worker(llm) as worker:
        await until(lambda: llm.calls >= 3)
        office.ahead += timedelta(seconds=3601)
        while await office.store.claim_due(1, lease=0.0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        gate.set()
        assert await worker.drain(120)
        assert worker.status.made == 6
    assert llm.calls == 6
    assert {each.outcome for each in await office.tenant.attempts()} == {"ok"}


async def texts(office, session):
    nodes = await office.nodes(session)
    found = await office.tenant.tree(session).revisions(
        [(node.id, node.revision) for node in nodes]
    )
    return [(r.node_id, r.number, r.text, r.model) for r in found]


# -- pause, stop, drain


async def test_stopping_waits_for_calls_in_flight_and_commits_them():
    office = await Office.of("s", 150, concurrency=3, drain=60)
    llm = ScriptedLLM(remote=True)
    gate = held_back(llm)
    worker = office.worker(llm)
    await worker.start()
    await until(lambda: llm.calls >= 3)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    gate.set()
    await stopping
    made = [node for node in await office.nodes("s") if node.status == "active"]
    assert len(made) == llm.calls == 3
    assert {each.outcome for each in await office.tenant.attempts()} == {"ok"}


async def test_stopping_cuts_off_what_takes_too_long_and_tells_so():
    office = await Office.of("s", 50, concurrency=2, drain=3600)
    stuck = FaultyLLM(ScriptedLLM(remote=True), ["never"] * 2)
    worker = office.worker(stuck)
    await worker.start()
    await until(lambda: stuck.calls >= 2)
    # The drain of the policy is an hour: only the one given here lets it end.
    await asyncio.wait_for(worker.stop(0.1), 60)
    assert worker.status.state == "stopped"
    assert {each.outcome for each in await office.tenant.attempts()} == {"unknown"}
    assert {node.status for node in await office.nodes("s")} == {"pending"}
    async with office.worker(ScriptedLLM(remote=True)) as again:
        assert await again.drain(120)
    assert {node.revision for node in await office.nodes("s")} == {1}


async def test_a_stop_that_is_not_waited_for_cuts_off_what_is_in_flight():
    """Broken, a worker that says it is stopped calls on, and its store is closed under it."""
    office = await Office.of("s", 50, concurrency=2, drain=3600)
    stuck = FaultyLLM(ScriptedLLM(remote=True), ["never"] * 2)
    worker = office.worker(stuck)
    await worker.start()
    await until(lambda: stuck.calls >= 2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.stop(), 0.1)
    status = worker.status
    assert (status.state, status.active, status.resting) == ("stopped", 0, 0)
    assert {each.outcome for each in await office.tenant.attempts()} == {"unknown"}
    assert len(asyncio.all_tasks()) == 1


async def test_a_drain_that_takes_too_long_says_so():
    office = await Office.of("s", 50)
    async with office.worker(FaultyLLM(ScriptedLLM(remote=True), ["never"] * 9)) as worker:
        assert await worker.drain(0.2) is False
        await worker.stop(0)


async def test_a_worker_is_used_in_order():
    office = Office()
    worker = office.worker()
    with pytest.raises(UsageError):
        await worker.drain(1)
    await worker.start()
    with pytest.raises(UsageError):
        await worker.start()
    await worker.stop()
    await worker.stop()
    with pytest.raises(UsageError):
        await worker.drain(1)


# -- caps


@pytest.mark.parametrize(
    ("limits", "stopped"),
    [
        (Limits(calls=11), "max_calls"),
        (Limits(tokens=9_000), "max_tokens"),
        (Limits(deadline=0.4), "deadline"),
    ],
)
async def test_a_workers_own_limits_hold_for_all_sessions_together(limits, stopped):
    office = Office()
    for n in range(5):
        await office.say(f"s{n}", 50)
    llm = ScriptedLLM(remote=True, latency=0.2)
    async with office.worker(llm, limits=limits) as worker:
        assert not await worker.drain(20)
        assert worker.status.stopped == stopped
    assert 0 < llm.calls < 30
    assert llm.calls == (limits.calls or llm.calls)
    spent = await office.tenant.spent()
    assert spent.tokens <= (limits.tokens or spent.tokens)


@pytest.mark.parametrize("remote", [True, False])
async def test_the_tenants_cap_holds_over_sessions_and_over_workers(remote):
    office = Office(tenant_calls=17)
    for n in range(5):
        await office.say(f"s{n}", 50)
    for _ in range(2):
        async with office.worker(ScriptedLLM(remote=remote)) as worker:
            assert not await worker.drain(20)
            assert worker.status.stopped == "tenant_calls"
        office.ahead += timedelta(minutes=6)
    assert (await office.tenant.spent()).calls == 17


# -- trouble


async def test_a_session_erased_meanwhile_is_forgotten():
    office = await Office.of("s", 150)
    llm = ScriptedLLM(remote=True, latency=0.02)
    async with office.worker(llm) as worker:
        await until(lambda: llm.calls >= 3)
        await office.tenant.erase_all()
        assert await worker.drain(120)
        assert await worker.drain(120)
        assert worker.status.last_error is None


async def test_a_failing_node_is_not_asked_for_again_and_again():
    """A worker without patience would spend a whole budget on one text that will not come."""
    office = Office()
    await office.say("bad", 10)
    await office.say("good", 50)

    def picky(request):
        return "" if any("bad" in message.content for message in request.messages) else None

    llm = ScriptedLLM(remote=True, script=picky)
    async with office.worker(llm) as worker:
        assert not await worker.drain(10)
        await asyncio.sleep(0.6)
        calls = Counter(session for session, _ in await office.begun())
    assert calls["good"] == 6
    # One run's two prompts; the next try comes a quarter of a minute later.
    assert calls["bad"] == 2
    assert len(await office.tenant.runs(subject="bad")) == 1


async def test_a_parent_of_a_failing_child_writes_no_endless_runs():
    office = await Office.of("s", 50)
    llm = ScriptedLLM(
        remote=True,
        script=lambda r: "" if "case-4-" in r.messages[-1].content and r.level == 1 else None,
    )
    async with office.worker(llm) as worker:
        await worker.drain(10)
        await asyncio.sleep(0.5)
    assert len(await office.tenant.runs(subject="s")) <= 2


async def test_a_store_that_fails_for_a_while_is_outlived():
    office = Office()
    await office.say("s", 50)
    fails = iter([True, True])
    real = office.store.claim_due

    async def claim_due(*args, **how):
        if next(fails, False):
            raise StoreError("busy", retryable=True)
        return await real(*args, **how)

    office.store.claim_due = claim_due
    async with office.worker() as worker:
        assert await worker.drain(20)
        assert worker.status.last_error == "StoreError"
    assert worker.status.made == 6


@pytest.mark.parametrize("seed", params(range(6), 1))
async def test_faults_of_the_store_cost_time_and_nothing_else(seed):
    """Everything is made once; only a call whose end could not be written is made again."""
    draw = random.Random(seed)
    office = Office(lease=3)  # what a claim takes that could not be given back
    for n in range(4):
        await office.say(f"s{n}", 50)
    plan = FaultPlan({draw.randrange(400): draw.choice(["fail", "busy"]) for _ in range(25)})
    faulty = FaultyStore(office.store, plan)
    handle = Handle(
        faulty.tenant("t"), COUNTER, LEVELS, update_policy=office.policy, clock=office.now
    )
    llm = ScriptedLLM(remote=True)
    async with office.worker(llm, handle=handle, sleep=lambda _: asyncio.sleep(0)) as worker:
        for _ in range(50):
            try:
                if await worker.drain(10) and not await office.left():
                    break
            except StoreError:
                pass
            # What is left alone for a while is tried again.
            office.ahead += timedelta(minutes=6)
    assert plan.hits
    assert not await office.left()
    nodes = [node for n in range(4) for node in await office.nodes(f"s{n}")]
    assert {(node.status, node.revision) for node in nodes} == {("active", 1)}
    attempts = await office.tenant.attempts()
    # What was paid for was committed; only a call whose end could not be written may be unknown.
    repeated = len(attempts) - len({(a.session_id, a.node_id) for a in attempts})
    assert repeated <= sum(a.outcome != "ok" for a in attempts)
    assert llm.calls == sum(a.outcome == "ok" for a in attempts) + sum(
        a.outcome in ("unknown", "started") for a in attempts
    )
