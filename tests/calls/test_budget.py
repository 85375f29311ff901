"""P9: caps are looked at before the call, limits a minute hold, whoever shares them."""

import asyncio
import gc
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from session_fixture import SessionFixture, messages

from hiermem import Limits
from hiermem.calls import rate_limit
from hiermem.calls.budget import Budget, CallJournal
from hiermem.calls.rate_limit import RateLimiter, state_of
from hiermem.config import UpdatePolicy
from hiermem.errors import SpendLimitError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import FaultyLLM, ScriptedLLM
from hiermem.types.transaction import Attempt, Cost

AT = datetime(2024, 3, 1, tzinfo=UTC)


class Clock:
    """A clock that moves when somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


def budget(clock, *, calls=None, tokens=None, deadline=None, parents=()):
    return Budget(
        limits=Limits(calls=calls, tokens=tokens, deadline=deadline), clock=clock, parents=parents
    )


# -- budgets


async def test_a_call_has_to_fit_every_budget_around_it():
    clock = Clock()
    outer = budget(clock, calls=3)
    first, second = budget(clock, parents=[outer]), budget(clock, calls=1, parents=[outer])
    await second.reserve(10)
    with pytest.raises(SpendLimitError):
        await second.reserve(10)
    assert (second.stopped, outer.stopped) == ("max_calls", None)
    for _ in range(2):
        (await first.reserve(10)).settle(Cost(1, 1, 2))
    with pytest.raises(SpendLimitError):
        await first.reserve(10)
    assert first.stopped == outer.stopped == "max_calls"
    assert (first.spent, outer.spent) == (Cost(2, 2, 4), Cost(3, 2, 4))


async def test_what_one_budget_refuses_costs_the_others_nothing():
    clock = Clock()
    outer = budget(clock, tokens=50)
    inner = budget(clock, parents=[outer])
    with pytest.raises(SpendLimitError):
        await inner.reserve(51)
    assert inner.spent == outer.spent == Cost()
    other = budget(clock, parents=[outer])
    assert other.stopped == "max_tokens"


async def test_a_budget_that_is_closed_or_out_of_time_ends_those_inside():
    clock = Clock()
    outer = budget(clock, deadline=5)
    inner = budget(clock, deadline=9, parents=[outer])
    assert inner.time_left() == 5
    clock.now += 5
    assert inner.stop_reason() == "deadline"
    other = budget(clock)
    inside = budget(clock, parents=[other])
    other.close("turn")
    assert inside.stopped == "turn"
    with pytest.raises(SpendLimitError):
        await inside.reserve(1)


# -- limits a minute


@dataclass
class Unhashable:
    name: str = "m"


@dataclass(frozen=True)
class Equal:
    name: str = "m"


@pytest.mark.parametrize("kind", [ScriptedLLM, Unhashable, Equal])
async def test_one_state_belongs_to_one_model_object_for_as_long_as_it_lives(kind):
    """Broken, models that are equal share their limits, or each model ever made stays in memory."""
    model, other = kind(), kind()
    assert state_of(model) is state_of(model)
    assert state_of(model) is not state_of(other)
    known = len(rate_limit._states)
    del model, other
    gc.collect()
    assert len(rate_limit._states) <= known - 2


async def test_a_model_without_weak_references_keeps_its_id_and_so_its_state():
    """Broken, a later model that happens to get the same id inherits the limits of another."""

    class Slotted:
        __slots__ = ()

    known = state_of(Slotted())
    gc.collect()
    others = [Slotted() for _ in range(100)]
    assert all(state_of(other) is not known for other in others)


@pytest.mark.parametrize("limits", [{"requests": 1}, {"tokens": 5}])
async def test_waiting_for_a_minute_ends_where_the_run_does(limits):
    limiter, spent = RateLimiter(ScriptedLLM(), **limits), budget(time.monotonic, deadline=0.1)
    assert await limiter.admit(10, spent.stop_reason), "a request of more counts as a minute's"
    assert not await limiter.admit(10, spent.stop_reason)
    assert spent.stopped == "deadline"


async def test_a_local_model_keeps_to_no_minute():
    fixture = SessionFixture(policy=UpdatePolicy(requests_per_minute=1, tokens_per_minute=1))
    await fixture.say(messages(50))
    assert (await fixture.update(ScriptedLLM())).made == 6
    assert fixture.slept == 0


# -- what a session and a tenant may spend in all


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("cap", [0, 1, 7])
async def test_runs_at_once_and_one_after_the_other_keep_to_the_tenants_cap(cap, remote):
    fixture = SessionFixture(policy=UpdatePolicy(batch_delay=0, tenant_calls=cap))
    handle = fixture.handle_of()
    for place, name in enumerate("abc"):
        await fixture.say(messages(50, start=1000 * place), name)
    llm = ScriptedLLM(remote=remote)
    reports = await asyncio.gather(*(fixture.update(llm, name, handle=handle) for name in "abc"))
    assert llm.calls == cap
    assert {report.stopped for report in reports} == {"tenant_calls"}
    assert (await fixture.update(llm, "a")).calls == 0
    assert (await fixture.tenant.spent()).calls == cap


async def test_a_sessions_cap_counts_what_earlier_runs_spent():
    fixture = SessionFixture(policy=UpdatePolicy(batch_delay=0, session_calls=5))
    await fixture.say(messages(50))
    first = await fixture.update(ScriptedLLM(remote=True), limits=Limits(calls=2))
    second = await fixture.update(ScriptedLLM(remote=True))
    assert (first.calls, first.stopped) == (2, "max_calls")
    assert (second.calls, second.stopped) == (3, "session_calls")


@pytest.mark.parametrize("faults", [[], ["timeout", "empty", "rate_limit", "server_error"] * 3])
async def test_a_cap_on_tokens_is_never_passed_whatever_the_answers(faults):
    fixture = SessionFixture(policy=UpdatePolicy(batch_delay=0, tenant_tokens=6000, retries=2))
    await fixture.say(messages(150))
    for _ in range(3):
        await fixture.update(FaultyLLM(ScriptedLLM(remote=True), faults))
    spent = await fixture.tenant.spent()
    assert 3000 < spent.tokens_in + spent.tokens_out <= 6000


async def test_a_call_cut_off_counts_as_the_most_that_it_may_have_cost():
    """Nobody knows what it took; a cap that took it for free would be passed."""
    fixture = SessionFixture()
    await fixture.say(messages(10))
    stuck = FaultyLLM(ScriptedLLM(remote=True), ["never"])
    task = asyncio.create_task(fixture.update(stuck))
    while not stuck.calls:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    before = await fixture.tenant.spent()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    after = await fixture.tenant.spent()
    assert before.calls == after.calls == 1
    assert after.unknown == 1
    assert after.tokens_in > 500
    assert after.tokens_out > 100
    assert after.tokens_in >= before.tokens_in


@drawn(40)
@given(st.data())
def test_what_is_set_aside_and_what_is_journalled_never_pass_the_cap(data):
    """Calls begin, are journalled and end in any order, at any price up to what was set aside."""
    cap = data.draw(st.integers(0, 300))

    async def play():
        tenant = RecordStore(MemoryStore()).tenant("t")
        whole = Budget(limits=Limits(tokens=cap), account=tenant.spent, scope="tenant")
        book = journal_of(tenant)
        open_, number = [], 0
        for _ in range(data.draw(st.integers(1, 25))):
            step = data.draw(st.sampled_from(["begin", "journal", "end", "back"]))
            if step == "begin":
                number += 1
                tokens = data.draw(st.integers(0, 100))
                run = Budget(parents=[whole])
                try:
                    hold = await asyncio.wait_for(run.reserve(tokens), 0.001)
                except (TimeoutError, SpendLimitError):
                    continue
                each = Attempt(f"a{number}", "r", "s", "L1.0", 1, "m", AT, tokens_in=tokens)
                book.charge(each, hold)
                open_.append([hold, each, False])
            elif open_:
                entry = open_[data.draw(st.integers(0, len(open_) - 1))]
                hold, each, begun = entry
                if step == "journal" and not begun:
                    await book.write([each])
                    entry[2] = True
                elif step == "end":
                    took = data.draw(st.integers(0, each.tokens_in))
                    hold.settle(Cost(1, took))
                    ended = Attempt(
                        each.id, "r", "s", "L1.0", 1, "m", AT, "ok", tokens_in=took, ended_at=AT
                    )
                    await book.write([ended])
                    open_.remove(entry)
                elif step == "back" and not begun:
                    hold.release()
                    open_.remove(entry)
            spent = await tenant.spent()
            waiting = sum(each.tokens_in for _, each, begun in open_ if not begun)
            assert spent.tokens_in + waiting <= cap

    asyncio.run(play())


def journal_of(tenant):
    return CallJournal(tenant.tree("s"), now=lambda: AT, sleep=asyncio.sleep)


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("late", ["the write", "the read"])
async def test_a_call_counts_while_its_end_is_written_whatever_a_read_shows(begun, late):
    """Broken, a call is let go while the end of another is written, and the cap is exceeded."""
    tenant = RecordStore(MemoryStore()).tenant("t")
    book, go_on = journal_of(tenant), asyncio.Event()

    async def account():
        found = await tenant.spent()
        if late == "the read" and asked:
            await go_on.wait()
        return found

    asked = False
    whole = Budget(limits=Limits(tokens=100), account=account, scope="tenant")
    held = await Budget(parents=[whole]).reserve(80)
    started = Attempt("a1", "r", "s", "L1.0", 1, "m", AT, tokens_in=80)
    ended = Attempt("a1", "r", "s", "L1.0", 1, "m", AT, "ok", tokens_in=40, ended_at=AT)
    book.charge(started, held)
    if begun:
        await book.write([started])
    asked = True
    held.settle(Cost(1, 40))
    asking = asyncio.create_task(Budget(parents=[whole]).reserve(61))

    async def write():
        if late == "the write":
            await tenant.tree("s").write_nodes([], attempts=[ended])
        for _ in range(5):
            await asyncio.sleep(0)
        if late == "the read":
            await tenant.tree("s").write_nodes([], attempts=[ended])
        return True

    await book.write_with([ended], write)
    go_on.set()
    with pytest.raises(SpendLimitError):
        await asking
    assert (await Budget(parents=[whole]).reserve(60)).tokens == 60


# -- slots


async def test_a_slot_given_to_a_task_that_gave_up_goes_to_the_next():
    limiter = RateLimiter(ScriptedLLM())
    assert await limiter.take_slot(bool)
    waiting = [asyncio.create_task(limiter.take_slot(bool)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    limiter.give_slot()
    waiting[1].cancel()
    await asyncio.wait(waiting[:2])
    assert await waiting[2]
    assert limiter.in_flight == 1
    over = asyncio.create_task(limiter.take_slot(lambda: "the end"))
    assert not await over
    limiter.give_slot()
    assert limiter.in_flight == 0
    assert await limiter.take_slot(bool)
