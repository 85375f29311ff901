"""How calls are made: a provider that is down, deadlines, shared hands, prices, margins."""

import asyncio
from dataclasses import replace

import pytest
from session_fixture import COUNTER, SessionFixture, messages
from stand_ins import talk

from hiermem import AsyncMemory, Limits, Memory
from hiermem.calls import failures
from hiermem.calls.limits import Prices
from hiermem.calls.rate_limit import state_of
from hiermem.config import UpdatePolicy
from hiermem.errors import ModelError
from hiermem.models.function import FunctionLLM
from hiermem.protocols import LLMResponse, Usage
from hiermem.testing.llms import ScriptedLLM, write

POLICY = UpdatePolicy(batch_delay=0, concurrency=3, down_after=6)


class Weather:
    """A remote model whose provider is up or down, and counts what met it when it was down."""

    name, context_window, remote, prices = "weather", None, True, None

    def __init__(self):
        self.up, self.calls, self.missed, self.poison = True, 0, 0, "nowhere"

    async def complete(self, request):
        self.calls += 1
        poisoned = request.level == 1 and self.poison in request.inputs[0].text
        if not self.up or poisoned:
            self.missed += 1
            raise ModelError("503", charged=False, kind="transient")
        return LLMResponse(write(request), model=self.name)


async def told(count, **settings):
    """Give a session with a conversation."""
    fixture = SessionFixture(policy=POLICY.model_copy(update=settings))
    await fixture.say(messages(count))
    return fixture


# -- a provider that is down


async def test_a_run_ends_early_where_the_provider_is_down_and_the_next_one_finishes():
    """Else each of a thousand summaries would be asked for fifteen times and get a stand-in."""
    fixture, llm = await told(300), Weather()
    llm.up = False
    report = await fixture.update(llm, clock=fixture.seconds)
    assert report.stopped == "model_down"
    assert report.retry_after == pytest.approx(15, abs=5)
    assert llm.missed <= 6 + 3
    assert (report.degraded, report.failed, report.unknown) == (0, 0, 0)
    again = await fixture.update(llm, clock=fixture.seconds)
    assert (again.stopped, again.calls) == ("model_down", 0), "nobody is asked before the pause"
    assert llm.missed <= 6 + 3
    llm.up = True
    await fixture.sleep(60)
    last = await fixture.update(llm, clock=fixture.seconds)
    assert (last.stopped, last.failed, last.degraded) == (None, 0, 0)
    assert all(node.status == "active" for node in await fixture.nodes())


async def test_another_run_over_the_same_model_leaves_it_alone_too():
    fixture, llm = SessionFixture(policy=POLICY), Weather()
    for name in "abc":
        await fixture.say(messages(100, start=ord(name) * 1000), name)
    llm.up = False
    reports = await asyncio.gather(*(fixture.update(llm, name) for name in "abc"))
    assert {report.stopped for report in reports} == {"model_down"}
    assert llm.missed <= 6 + 3 * 3
    before = llm.calls
    assert (await fixture.update(llm, "a")).stopped == "model_down"
    assert llm.calls == before
    other = Weather()
    assert (await fixture.update(other, "a")).stopped is None, "another model is another provider"


async def test_one_summary_that_the_provider_cannot_bear_does_not_keep_the_others_from_it():
    """It fails again and again; the rest is made, and it gets the stand-in in the end."""
    fixture, llm = await told(100, retries=6, concurrency=1), Weather()
    llm.poison = "case-0-0."
    for _ in range(3):
        report = await fixture.update(llm)
        assert report.stopped is None
    assert (report.degraded, report.failed) == (1, 0)
    nodes = await fixture.nodes()
    assert all(node.status == "active" for node in nodes)
    assert sum(node.degraded for node in nodes) == 1


async def test_a_pause_that_is_too_long_to_wait_out_ends_the_run():
    fixture = await told(300)
    calls = []

    async def complete(request):
        calls.append(request)
        raise ModelError("429", charged=False, retry_after=3_600, kind="transient")

    report = await fixture.update(FunctionLLM(complete))
    assert report.stopped == "model_down"
    assert report.retry_after == pytest.approx(3_600, abs=60)
    assert len(calls) <= 3


async def test_a_call_that_pauses_keeps_its_slot():
    """Broken, every text of a session runs into the same refusal, one after the other."""
    fixture, begun = await told(100), []

    async def complete(request):
        begun.append(fixture.now.timestamp())
        if len(begun) <= POLICY.concurrency:
            raise ModelError("429", charged=False, retry_after=20, kind="transient")
        return LLMResponse(write(request))

    report = await fixture.update(FunctionLLM(complete), clock=fixture.seconds)
    assert report.failed == report.degraded == 0
    assert len([at for at in begun if at < begun[0] + 20]) == POLICY.concurrency


async def test_that_a_model_is_down_is_told_by_a_batch_and_kept_by_a_worker():
    llm = Weather()
    llm.up = False
    async with AsyncMemory.open(":memory:", llm=llm, update_policy=POLICY) as memory:
        for name in "ab":
            await memory.session(name).append(*messages(100, start=ord(name) * 1000))
        report = await memory.update_all()
        assert (report.stopped, report.failures) == ("model_down", {})
        assert report.retry_after is not None
        seen = llm.calls
        async with memory.worker() as worker:
            assert not await worker.drain(timeout=5)
        assert llm.calls == seen, "its sessions are due when the model may be asked again"


async def test_a_worker_goes_on_by_itself_when_the_provider_is_back(monkeypatch):
    """Left to whoever watches it, a backlog would wait for the morning."""
    monkeypatch.setattr(failures, "DOWN", (0.2, 600.0))
    llm = Weather()
    llm.up = False
    async with AsyncMemory.open(":memory:", llm=llm, update_policy=POLICY) as memory:
        for name in "ab":
            await memory.session(name).append(*messages(60, start=ord(name) * 1000, words=300))
        async with asyncio.timeout(120), memory.worker(poll=0.05) as worker:
            while worker.status.stopped != "model_down":  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            llm.up = True
            while not await worker.drain(timeout=30):  # noqa: ASYNC110 - it may rest at first
                await asyncio.sleep(0.05)
            assert worker.status.stopped is None
        for name in "ab":
            levels = (await memory.session(name).metrics()).levels
            assert levels
            assert all(level.made == level.nodes and not level.degraded for level in levels)


# -- deadlines


@pytest.mark.parametrize("remote", [True, False])
async def test_a_call_that_hangs_is_cut_off_by_the_runs_deadline(remote):
    """With only its own timeout, of minutes, it would hold the run far beyond its end.

    The run's clock stands still (``float()`` is 0), so that all of its calls begin in time.
    """
    fixture = await told(100, call_timeout=3_000.0)
    stuck = asyncio.Event()

    async def complete(request):
        await stuck.wait()

    llm = FunctionLLM(complete, remote=remote, prices=Prices(1, 1))
    async with asyncio.timeout(60):
        report = await fixture.update(llm, limits=Limits(deadline=0.3), clock=float)
    assert (report.stopped, report.failed, report.degraded) == ("deadline", 0, 0)
    assert report.unknown == (3 if remote else 0)
    nodes = await fixture.nodes()
    assert {node.status for node in nodes} == {"pending"}, "no lease is left behind"
    assert {node.attempts for node in nodes} == {0}
    tried = await fixture.tenant.attempts()
    if remote:
        assert {(each.outcome, each.reason) for each in tried} == {("unknown", "deadline")}
        spent = await fixture.tenant.spent()
        assert (spent.calls, spent.unknown) == (3, 3)
        assert spent.tokens_in + spent.tokens_out == report.tokens
        assert spent.cost == pytest.approx(report.cost)
    assert (await fixture.update(ScriptedLLM())).failed == 0


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("whose", ["ours", "the client's"])
async def test_a_call_that_is_not_answered_in_time_is_unknown(remote, whose):
    """The provider may have charged for it (P10); taken for an error, nobody would look it up."""
    fixture, calls = await told(10, call_timeout=0.05), []

    async def complete(request):
        calls.append(request)
        if len(calls) > 1:
            return LLMResponse(write(request))
        if whose == "ours":
            await asyncio.Event().wait()
        raise ModelError("late", kind="timeout")

    report = await fixture.update(FunctionLLM(complete, remote=remote, prices=Prices(1, 1)))
    assert (report.made, report.calls, report.unknown) == (1, 2, int(remote))
    if remote:
        first, second = sorted(await fixture.tenant.attempts(), key=lambda each: each.number)
        assert (first.outcome, second.outcome) == ("unknown", "ok")
        assert first.tokens_out >= calls[0].max_tokens
        assert (await fixture.tenant.spent()).unknown == 1


async def test_a_cap_that_was_met_before_does_not_hide_that_the_deadline_cut_a_call_off():
    """Taken for a timeout of its own, the call would cost its summary an attempt."""
    fixture = await told(100, call_timeout=3_000.0)
    stuck = asyncio.Event()

    async def complete(request):
        await stuck.wait()

    report = await fixture.update(
        FunctionLLM(complete), limits=Limits(calls=1, deadline=0.3), clock=float
    )
    assert (report.stopped, report.calls, report.unknown) == ("max_calls", 1, 1)
    assert {(node.status, node.attempts) for node in await fixture.nodes()} == {("pending", 0)}


async def test_no_pause_reaches_beyond_the_deadline():
    """Neither between two tries, nor between two batches, nor for the provider's own wish."""
    fixture, slept = await told(300, batch_delay=500.0), []
    begin = fixture.now

    async def sleep(seconds):
        slept.append(seconds)
        await fixture.sleep(seconds)

    async def complete(request):
        raise ModelError("429", charged=False, retry_after=9, kind="transient")

    llm = FunctionLLM(complete)
    report = await fixture.update(
        llm, limits=Limits(deadline=20), clock=fixture.seconds, sleep=sleep
    )
    assert report.stopped in ("deadline", "model_down")
    assert (fixture.now - begin).total_seconds() <= 21
    assert max(slept) <= 20


# -- hands that runs share


async def test_calls_in_flight_are_counted_over_all_runs_of_one_model():
    fixture, llm = SessionFixture(policy=POLICY), ScriptedLLM(remote=True, latency=0.01)
    for name in "abc":
        await fixture.say(messages(80, start=ord(name) * 1000), name)
    reports = await asyncio.gather(*(fixture.update(llm, name) for name in "abc"))
    assert sum(report.made for report in reports) == llm.calls > 20
    assert llm.peak <= 3
    assert llm.peak > 1


# -- money


def paid(request, *, cached=0, reasoning=0, prices=None):
    text = write(request)
    usage = Usage(1_000, 200 + reasoning, cached_tokens=cached, reasoning_tokens=reasoning)
    return LLMResponse(text, usage)


async def test_each_attempt_has_its_price_and_the_books_agree():
    prices = Prices(input=2.0, output=8.0, cached=0.5)
    llm = FunctionLLM(lambda request: paid(request, cached=400, reasoning=50), prices=prices)
    fixture = await told(100)
    plan = await fixture.update(llm, dry_run=True)
    report = await fixture.update(llm)
    assert plan.calls == report.calls
    assert plan.cost is not None
    assert 0 < plan.cost < plan.calls * 0.05
    each = (600 * 2.0 + 400 * 0.5 + 250 * 8.0) / 1e6
    tried = await fixture.tenant.attempts()
    assert [one.cost for one in tried] == pytest.approx([each] * report.calls)
    assert {(one.cached_tokens, one.reasoning_tokens) for one in tried} == {(400, 50)}
    assert report.cost == pytest.approx(each * report.calls)
    spent = await fixture.tenant.spent("s")
    assert spent.cost == pytest.approx(report.cost)
    assert spent.cached_tokens == 400 * report.calls
    (run,) = await fixture.tenant.runs()
    assert run.detail["cost"] == pytest.approx(report.cost)


async def test_without_prices_there_is_no_cost_and_none_is_guessed():
    fixture = await told(50)
    llm = FunctionLLM(paid)
    assert (await fixture.update(llm, dry_run=True)).cost is None
    assert (await fixture.update(llm)).cost is None
    assert (await fixture.tenant.spent()).cost is None


async def test_a_provider_that_reports_no_usage_is_counted_for():
    fixture = await told(50)
    llm = ScriptedLLM(remote=True, script=lambda request: LLMResponse(write(request)))
    report = await fixture.update(llm)
    wanted = sum(
        COUNTER.count(message.content) + 4 for each in llm.requests for message in each.messages
    )
    assert report.tokens_in == wanted
    assert report.tokens_out == sum(COUNTER.count(write(each)) for each in llm.requests)


@pytest.mark.parametrize(
    "told",
    [
        Usage(-500, -500), Usage(1.5, 2.5), Usage("12", True), Usage(float("nan"), 1e9),
        Usage(10**30, 2**63), Usage(2**62, 2**62, cached_tokens=10**25), None,
    ],
    ids=repr,
)  # fmt: skip
def test_counts_and_names_that_cannot_be_are_taken_as_none(told, tmp_path):
    """One below zero would give back what was spent, another make the stored row unreadable."""
    policy = UpdatePolicy(batch_delay=0)
    llm = FunctionLLM(lambda request: LLMResponse(write(request), told, model="\ud800"))
    path = tmp_path / "counts.db"
    with Memory.open(path, llm=llm, update_policy=policy) as memory:
        session = memory.session("talk")
        session.append(messages(30))
        report = session.update()
        assert report.made == report.calls == 3
        assert 500 < report.tokens < 10_000
    with Memory.open(path) as memory:
        run = memory.run(report.run_id)
        assert sum(item.tokens_in + item.tokens_out for item in run.items) == report.tokens
        assert memory.session("talk").metrics().cost_spent is None
        assert memory.check().ok


@pytest.mark.parametrize("charged", [None, True, False])
async def test_no_cap_is_passed_by_calls_that_fail_after_they_were_charged(charged):
    """A call that times out may have written its whole answer; the provider bills that as well."""
    billed, fixture = 0, SessionFixture(policy=POLICY.model_copy(update={"down_after": None}))
    await fixture.say(messages(200))

    async def complete(request):
        nonlocal billed
        billed += sum(COUNTER.count(message.content) + 4 for message in request.messages)
        billed += request.max_tokens
        raise ModelError("the connection broke", charged=charged, kind="transient")

    llm = FunctionLLM(complete, prices=Prices(1, 1))
    report = await fixture.update(llm, limits=Limits(tokens=20_000))
    spent = await fixture.tenant.spent()
    assert spent.tokens_in + spent.tokens_out == report.tokens
    if charged is False:
        assert report.tokens == 0
    else:
        assert report.stopped == "max_tokens"
        assert 10_000 < billed == report.tokens <= 20_000
        assert report.cost == pytest.approx(billed / 1e6)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"units": units} for units in (("a",), None, 7)),
        *({"text": text} for text in (None, b"said", 7, "\ud800")),
        *({"finish_reason": word} for word in ("max_tokens", "MAX_TOKENS", "tool_use", "", None)),
    ],
    ids=str,
)
async def test_an_answer_of_another_shape_costs_an_attempt_and_not_the_run(wrong):
    """Broken, what a provider cut off in its own words becomes memory, or ends the update."""
    fixture = await told(50)
    script = lambda request: replace(LLMResponse(write(request)), **wrong)  # noqa: E731
    report = await fixture.update(ScriptedLLM(remote=True, script=script))
    assert (report.made, report.failed) == (0, 5)
    nodes = [node for node in await fixture.nodes() if node.level == 1]
    assert {node.attempts for node in nodes} == {1}
    if "finish_reason" in wrong:
        assert all("'stop', 'length', 'refusal', 'error'" in str(node.error) for node in nodes)


async def test_what_a_call_may_take_beside_its_answer_is_set_aside():
    """A model that thinks before it writes would else pass the cap by what it thought."""

    class Thinker(ScriptedLLM):
        overhead_tokens = 5_000

    fixture = await told(50)
    assert (await fixture.update(Thinker(remote=True), limits=Limits(tokens=5_000))).calls == 0
    assert (await fixture.update(ScriptedLLM(remote=True), limits=Limits(tokens=5_000))).calls > 0


async def test_a_turn_that_ended_leaves_nothing_behind():
    """A call that never ended would hold its slot for ever."""
    loop = asyncio.get_running_loop()
    fixture, stuck = await told(100), asyncio.Event()

    async def complete(request):
        await stuck.wait()

    llm = FunctionLLM(complete)
    task = asyncio.create_task(fixture.update(llm))
    by_loop = state_of(llm).by_loop
    while not any(slots.locked() for slots, _ in by_loop.get(loop, {}).values()):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [slots._value for slots, _ in by_loop[loop].values()] == [3]


@pytest.mark.parametrize("window", [2_048, 3_000, 4_096, 8_192])
async def test_a_model_with_a_small_window_on_ones_own_machine_makes_every_summary(window):
    """Broken, windows are cut into crumbs, or into parts whose answers do not fit beside them."""
    sizes = []

    def script(request):
        count = request.counter.count
        prompt = sum(count(message.content) + 4 for message in request.messages)
        assert prompt + request.max_tokens <= window
        sizes.append(sum(count(source.text) for source in request.inputs))

    llm = ScriptedLLM(context_window=window, script=script)
    async with AsyncMemory.open(":memory:", llm=llm, update_policy=POLICY) as memory:
        session = memory.session("s")
        await session.append(
            talk(60, lambda n: f"Step {n} took {n * 7} seconds at pump {n % 9}. " * 16)
        )
        report = await session.update()
        assert (report.failed, report.degraded) == (0, 0)
        assert all(level.made == level.nodes for level in (await session.metrics()).levels)
    assert min(sizes) >= 64
    assert report.calls <= 4 * report.made
