"""A consolidation as a run: paused, cancelled, capped, cut off, with nothing lost or double."""

import asyncio
from datetime import timedelta

import pytest
from bankwork import answer_of, grown
from sampling import params
from stand_ins import Clock

from hiermem import AsyncMemory, BankPolicy, UpdatePolicy
from hiermem.bank import records as kept
from hiermem.calls import call as calling
from hiermem.calls import run as frame
from hiermem.calls.claim import read_claim
from hiermem.calls.run import RecordClaim
from hiermem.errors import BusyError
from hiermem.protocols import LLMResponse
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.faults import FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM

RULES = "- progress.md: what works"


def answer(request) -> str:
    """Put all notes that were shown at the end of the one file."""
    return answer_of(grown(request, "progress.md"))


class Gated(ScriptedLLM):
    """A model whose first call waits until it is let go."""

    def __init__(self):
        super().__init__(remote=True, script=answer)
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    async def complete(self, request):
        if not self.entered.is_set():
            self.entered.set()
            await self.go.wait()
        return await super().complete(request)


@pytest.fixture(params=params(["memory", "sqlite"], 1))
async def store(request, tmp_path):
    """A store of either kind."""
    from hiermem.stores.sqlite import SQLiteStore

    clock = Clock()
    opened = (
        RecordStore(MemoryStore(clock=clock))
        if request.param == "memory"
        else RecordStore(await SQLiteStore.open(tmp_path / "m", clock=clock))
    )
    yield opened
    await opened.close()


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_run_that_was_paused_until_its_lease_ended_commits_nothing(store, is_done):
    """F18: it comes back with an answer to notes that another run has taken in meanwhile.

    Or will: the other run has paid for its answer too, and nothing else has changed yet.
    """
    clock, slow, later = store.store._clock, Gated(), Gated()
    first = AsyncMemory(store=store, llm=slow, clock=clock)
    other = AsyncMemory(store=store, llm=later, clock=clock)
    space = first.space("x", rules=RULES)
    await space.note("one")
    work = asyncio.create_task(space.consolidate())
    await slow.entered.wait()
    assert (await other.space("x").consolidate()).status == "busy"
    clock.at += timedelta(seconds=UpdatePolicy().lease + 1)
    second = asyncio.create_task(other.space("x").consolidate())
    await later.entered.wait()
    if is_done:
        later.go.set()
        await second
    slow.go.set()
    done = await work
    assert is_done or await space.files() == []
    later.go.set()
    assert (await second).status == "ok"
    assert (done.status, done.notes_processed) == ("error", 0)
    assert "claim" in done.message
    assert (await space.read("progress.md")).count("- one") == 1
    assert [len(each.notes) for each in await space.history()] == [1]
    assert (await first.check()).findings == ()
    outcomes = [(run.outcome, run.detail.get("status")) for run in await space.runs()]
    assert sorted(outcomes) == [("error", "error"), ("ok", "ok")]
    calls = await store.tenant("default").attempts()
    assert len(calls) == 2
    assert not [call for call in calls if call.outcome == "started"]


async def test_nobody_rolls_back_under_a_consolidation(store):
    """Both write the bank; the second must wait, or what was paid for would be lost."""
    slow = Gated()
    space = AsyncMemory(store=store, llm=slow).space("x", rules=RULES)
    await space.note("one")
    work = asyncio.create_task(space.consolidate())
    await slow.entered.wait()
    with pytest.raises(BusyError):
        await space.rollback(to=0)
    assert (await space.consolidate()).status == "busy"
    await space.note("two")
    slow.go.set()
    done = await work
    assert (done.status, done.notes_processed, done.notes_remaining) == ("ok", 1, 1)


async def held_until(space):
    """Return when the claim on the space ends."""
    return read_claim((await space._context.one(kept.CLAIM)).body)[1]


async def test_a_lease_is_renewed_while_a_model_thinks(store, monkeypatch):
    """A call may take many times as long as the lease; the bank stays this run's."""
    slow, clock, policy = Gated(), store.store._clock, UpdatePolicy()
    monkeypatch.setattr(frame, "_BEATS", 50 * policy.lease)  # so often a second
    memory = AsyncMemory(store=store, llm=slow, clock=clock)
    space = memory.space("x", rules=RULES)
    await space.note("one")
    work = asyncio.create_task(space.consolidate())
    await slow.entered.wait()
    for _ in range(4):
        clock.at += timedelta(seconds=0.7 * policy.lease)
        while await held_until(space) < clock.at + timedelta(seconds=policy.lease / 2):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert (await memory.space("x").consolidate()).status == "busy"
    slow.go.set()
    assert (await work).status == "ok"
    assert (await space.runs())[0].outcome == "ok"


async def test_an_answer_whose_count_is_cut_off_costs_the_most_that_it_may(store, monkeypatch):
    """Without usage it would be journalled at nothing out, and a cap be passed by it."""
    counting, inner = asyncio.Event(), calling.tokens_of

    async def tokens_of(count, texts):
        if list(texts) == ["a long answer"]:
            counting.set()
            await asyncio.Event().wait()
        return await inner(count, texts)

    monkeypatch.setattr(calling, "tokens_of", tokens_of)
    monkeypatch.setattr(frame, "_FINISHING", 0.05)
    llm = ScriptedLLM(remote=True, script=lambda _: LLMResponse("a long answer"))
    memory = AsyncMemory(store=store, llm=llm)
    space = memory.space("x", rules=RULES)
    await space.note("one")
    work = asyncio.create_task(space.consolidate())
    await counting.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    (made,) = await store.tenant("default").attempts()
    assert made.outcome == "ok"
    assert made.tokens_out >= llm.requests[0].max_tokens


async def test_what_was_paid_for_is_kept_though_the_run_is_cancelled(store):
    """A cancellation that comes while the answer is being written must not lose it."""
    memory = AsyncMemory(store=store, llm=ScriptedLLM(script=answer, remote=True))
    space = memory.space("x", rules=RULES)
    await space.note("one")
    commit = RecordClaim.commit
    caught = asyncio.Event()

    async def slowly(self, writes, **how):
        if writes:
            caught.set()
            await asyncio.sleep(0.05)
        return await commit(self, writes, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordClaim, "commit", slowly)
        work = asyncio.create_task(space.consolidate())
        await caught.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert await space.notes() == []
    assert "- one" in await space.read("progress.md")
    assert (await memory.check()).findings == ()


async def test_the_caps_of_session_and_tenant_hold_for_a_space():
    """A space costs what it costs; the caps that guard the money must know of it."""
    store = RecordStore(MemoryStore())
    for policy, what in (
        (UpdatePolicy(session_calls=1), "session_calls"),
        (UpdatePolicy(tenant_calls=2), "tenant_calls"),
    ):
        llm = ScriptedLLM(script=answer, remote=True)
        memory = AsyncMemory(store=store, llm=llm, update_policy=policy)
        space = memory.space(what, rules=RULES)
        await space.note("one")
        assert (await space.consolidate()).status == "ok"
        await space.note("two")
        done = await space.consolidate()
        assert (done.status, llm.calls) == ("error", 1)
        assert what in done.message
        assert [note.text for note in await space.notes()] == ["two"]


async def test_nothing_to_do_asks_nothing_and_writes_nothing():
    """A job that runs every minute must cost nothing while nobody writes notes."""
    plan, llm = FaultPlan(), ScriptedLLM(script=answer, remote=True)
    memory = AsyncMemory(store=FaultyStore(RecordStore(MemoryStore()), plan), llm=llm)
    space = memory.space("x", rules=RULES)
    await space.note("one")
    await space.consolidate()
    plan.visits.clear()
    for dry_run in (False, True):
        told = await space.consolidate(dry_run=dry_run)
        assert (told.status, told.message) == ("nothing_to_do", "No new notes to consolidate")
        assert told.metrics["notes_processed"] == told.metrics["llm_tokens_used"] == 0
    assert llm.calls == 1
    assert {site.partition(".")[0] for site in plan.visits} == {"records"}


async def test_a_run_that_was_cut_off_is_seen_and_settled_by_the_next():
    """Killed between the call and its end: told as unknown, and not as running for ever."""
    clock, plan, slow = Clock(), FaultPlan(), Gated()
    store = FaultyStore(RecordStore(MemoryStore(clock=clock)), plan)
    memory = AsyncMemory(store=store, llm=slow, clock=clock)
    space = memory.space("x", rules=RULES)
    await space.note("one")
    work = asyncio.create_task(space.consolidate())
    await slow.entered.wait()
    plan.dead = True
    work.cancel()
    with pytest.raises(BaseException):  # noqa: B017 - dead processes raise no errors of ours
        await work
    plan.revive()
    assert [run.outcome for run in await space.runs()] == ["running"]
    assert (await space.consolidate()).status == "busy"
    clock.at += timedelta(seconds=UpdatePolicy().lease + 1)
    assert [run.outcome for run in await space.runs()] == ["interrupted"]
    assert (await space.consolidate()).status == "ok"
    assert sorted(run.outcome for run in await space.runs()) == ["interrupted", "ok"]
    outcomes = [call.outcome for call in await store.tenant("default").attempts()]
    assert sorted(outcomes) == ["ok", "unknown"]


@pytest.mark.parametrize("body", ["", "{", '{"run": 1}', '{"run": "r", "until": "2030-01-01"}'])
async def test_a_damaged_lease_is_nobodys(body):
    """A record that nobody can read must not close the bank for good."""
    store = RecordStore(MemoryStore())
    memory = AsyncMemory(store=store, llm=ScriptedLLM(script=answer))
    space = memory.space("x", rules=RULES)
    await space.note("one")
    kind = kept.kind_of(kept.CLAIM, "x")
    await space._context.put([kept.RecordWrite(kind, kept.SPACE_SCOPE, "", body)])
    assert (await space.consolidate()).status == "ok"


async def test_no_try_begins_when_the_time_of_its_request_is_over(monkeypatch):
    """It would be cut off as it is sent, and paid for all the same."""
    monkeypatch.setattr("tenacity.wait.random.uniform", lambda least, most: least)
    asked = []

    async def never(request):
        asked.append(request)
        await asyncio.sleep(60)

    memory = AsyncMemory(
        store=MemoryStore(),
        llm=never,
        bank_policy=BankPolicy(call_timeout=0.1),
        update_policy=UpdatePolicy(retries=3),
    )
    space = memory.space("x", rules=RULES)
    await space.note("It works.")
    assert (await space.consolidate()).status == "error"
    assert len(asked) == 1
    assert len(await space.notes()) == 1
