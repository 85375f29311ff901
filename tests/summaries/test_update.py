"""P4, P7, P8, P9, P10: what an update makes, spends and leaves behind, whatever happens to it."""

import asyncio
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS
from sampling import drawn
from session_fixture import START, SessionFixture, messages, text, until
from stand_ins import Intercepted, counted

from hiermem import AsyncMemory, Limits
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import ModelError
from hiermem.log import append as appending
from hiermem.models.function import FunctionLLM
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.protocols import LLMResponse
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.summaries import claim
from hiermem.summaries import node as making_node
from hiermem.summaries.assess import judge
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import FaultyLLM, ScriptedLLM, write
from hiermem.text.units import unpack
from hiermem.types import Message, Unit

QUICK = UpdatePolicy(batch_delay=0, concurrency=4)
#: Windows of six short messages, four a group: for what is lived through hundreds of times.
SHORT = CONFIGS["tokens"]


async def told(fixture, count, **how):
    await fixture.say(messages(count, **how))
    return fixture


# -- what is made


@pytest.mark.parametrize("regenerate", [False, True])
async def test_an_update_with_nothing_to_do_calls_nobody_and_writes_nothing(regenerate):
    plan = FaultPlan()
    policy = UpdatePolicy(batch_delay=0, regenerate_on_edit=regenerate)
    fixture = SessionFixture(FaultyStore(RecordStore(MemoryStore()), plan), policy=policy)
    await told(fixture, 50)
    await fixture.update(ScriptedLLM())
    again = ScriptedLLM()
    plan.visits.clear()
    report = await fixture.update(again)
    writes = {"mutate", "transact", "write_nodes", "take_due", "put_run", "put_records"}
    assert not {site.split(".")[0] for site in plan.visits} & writes
    assert (report.made, report.calls, again.calls) == (0, 0, 0)
    assert report.run_id is None
    outcomes = [run.outcome for run in await fixture.tenant.runs(subject="s")]
    assert outcomes == ["ok"]


async def test_a_window_without_any_text_is_made_empty_and_without_a_call():
    fixture = SessionFixture(config=HierarchyConfig.by_tokens(max_messages=60))
    at = iter(range(100))
    await fixture.say(
        role("", created_at=START + timedelta(seconds=next(at)))
        for _ in range(30)
        for role in (Message.user, Message.assistant)
    )
    llm = ScriptedLLM()
    await fixture.update(llm)
    (node, revision) = (await fixture.tree())["L1.0"]
    assert (node.status, revision.text, llm.calls) == ("active", "", 0)


async def test_level_one_alone_is_made_when_asked_for():
    fixture = await told(SessionFixture(), 150)
    report = await fixture.update(ScriptedLLM(), level=1)
    assert report.by_level == {1: 15}
    assert (await fixture.update(ScriptedLLM())).by_level == {2: 3, 3: 1}


async def test_the_same_conversation_elsewhere_is_made_without_a_call():
    fixture = SessionFixture()
    await fixture.say(messages(150))
    await fixture.update(ExtractiveLLM())
    await fixture.say(messages(150), "copy")
    plan = await fixture.update(ExtractiveLLM(), "copy", dry_run=True)
    report = await fixture.update(ExtractiveLLM(), "copy")
    assert (plan.calls, report.calls, report.reused) == (0, 0, 19)
    assert plan.reused == 19
    first, second = await fixture.tree(), await fixture.tree("copy")
    for id_, (_, revision) in first.items():
        copied = second[id_][1]
        assert copied.text == revision.text
        assert copied.reused
        assert copied.provenance == revision.provenance


async def test_an_error_in_the_progress_callback_ends_the_run_and_loses_nothing():
    fixture = await told(SessionFixture(), 100)

    def burst(progress):
        if progress.done:
            raise RuntimeError("the screen is gone")

    llm = ScriptedLLM()
    with pytest.raises(RuntimeError):
        await fixture.update(llm, on_progress=burst)
    await fixture.update(llm)
    assert llm.calls <= 12 + 4
    assert all(node.revision == 1 for node in await fixture.nodes())


# -- the dry run


@st.composite
def histories(draw):
    sizes = draw(st.lists(st.sampled_from([0, 3, 30, 90, 200, 700]), max_size=60))
    threads = draw(st.sampled_from([("main",), ("main", "side")]))
    return [
        (Message.user if n % 2 == 0 else Message.assistant)(
            text(n % 7 if draw(st.booleans()) else n, size) if size else "",
            thread=threads[n % 3 % len(threads)],
            created_at=START + timedelta(seconds=n),
        )
        for n, size in enumerate(sizes)
    ]


@drawn(40)
@given(history=histories(), window=st.sampled_from([None, 3000]), close=st.booleans())
async def test_p9_a_dry_run_says_exactly_what_the_run_calls_and_writes_nothing(
    history, window, close
):
    fixture = SessionFixture()
    await fixture.say(history)
    if close and history:
        await appending.happen(fixture.handle, "s", "close")
    if not history:
        return
    before = await fixture.image()
    llm = ScriptedLLM(context_window=window)
    plan = await fixture.update(llm, dry_run=True)
    assert (await fixture.image(), llm.calls) == (before, 0)
    assert not await fixture.tenant.runs()
    report = await fixture.update(llm)
    assert (plan.by_level, plan.reused) == (report.by_level, report.reused)
    assert report.calls == llm.calls <= plan.calls_max
    assert plan.calls == report.calls


async def test_p9_a_dry_run_reads_each_window_of_threads_that_are_interleaved():
    """Broken, a window that begins before the one that comes before it seems to be empty."""
    fixture = SessionFixture()
    main, side = list(messages(40)), list(messages(10, start=40, thread="side"))
    log = [main[0], *side, *main[1:]]
    await fixture.say([replace(each, created_at=None) for each in log])
    plan = await fixture.update(ExtractiveLLM(), dry_run=True)
    report = await fixture.update(ExtractiveLLM())
    assert plan.by_level[1] > 1
    assert plan.calls == report.calls


# -- caps


@pytest.mark.parametrize("cap", [0, 1, 5, 12])
async def test_p9_no_more_calls_than_the_cap(cap):
    fixture = await told(SessionFixture(), 100)
    llm = ScriptedLLM(latency=0.001)
    report = await fixture.update(llm, limits=Limits(calls=cap))
    assert llm.calls == report.calls == report.made == cap
    assert report.stopped == ("max_calls" if cap < 12 else None)
    assert {node.status for node in await fixture.nodes()} <= {"pending", "active"}


# -- order and concurrency


async def test_remote_calls_are_paced_and_local_ones_are_not():
    policy = UpdatePolicy(concurrency=4, batch_delay=2.0)
    for remote, slept in ((True, 4.0), (False, 0.0)):
        fixture = await told(SessionFixture(), 100)
        await fixture.update(ScriptedLLM(remote=remote), policy=policy)
        assert fixture.slept == pytest.approx(slept, abs=0.5), "12 calls are three batches"


# -- failures


async def test_p7_a_failed_node_is_tried_up_to_its_attempts_then_stood_in_for_then_made_anew():
    policy = replace_policy(max_attempts=4)
    fixture = await told(SessionFixture(policy=policy), 50)
    broken = FaultyLLM(ScriptedLLM(), rate=1, faults=["empty"])
    report = await fixture.update(broken)
    assert (report.failed, report.made, report.calls) == (5, 0, 10)
    tree = await fixture.tree()
    assert {tree[f"L1.{n}"][0].attempts for n in range(5)} == {2}
    assert tree["L1.0"][0].status == "failed"
    assert tree["L2.0"][0].status == "pending", "a parent waits for its children"
    report = await fixture.update(broken)
    assert (report.failed, report.degraded, report.calls) == (1, 5, 12)
    tree = await fixture.tree()
    assert tree["L1.0"][0].degraded
    assert tree["L1.0"][1].model == "extractive-2"
    fixture.now += timedelta(hours=1)
    report = await fixture.update(ScriptedLLM())
    assert (report.made, report.degraded) == (6, 0)
    tree = await fixture.tree()
    assert all(not node.degraded and node.error is None for node, _ in tree.values())
    assert tree["L1.0"][1].number == 2


async def test_a_parent_is_made_anew_when_a_better_child_replaces_the_stand_in():
    fixture = await told(SessionFixture(), 150)
    one = [None] * 3 + ["permanent"]
    await fixture.update(FaultyLLM(ScriptedLLM(), one), policy=UpdatePolicy(concurrency=1))
    (bad,) = [node for node in await fixture.nodes() if node.degraded]
    plan = await fixture.update(ScriptedLLM(), dry_run=True)
    report = await fixture.update(ScriptedLLM())
    tree = await fixture.tree()
    path = [bad.id]
    while (parent := tree[path[-1]][0].parent) is not None:
        path.append(parent)
    remade = {id_ for id_, (node, _) in tree.items() if node.revision == 2}
    assert remade == set(path), "dirt travels up the one path, and no further"
    assert (report.calls, plan.calls) == (3, 3)
    assert not any(node.dirty for node, _ in tree.values())


async def test_an_unfit_answer_is_shown_with_what_was_wrong_and_asked_for_once_more():
    """Broken, a model mends what it cannot see, or the provider's cache is lost."""
    fixture = await told(SessionFixture(), 10)
    answers = iter(["Ada measured the ferry for 77,123 EUR and Jonas booked seats for 5,551 EUR."])
    llm = ScriptedLLM(script=lambda request: next(answers, None))
    report = await fixture.update(llm)
    assert (report.made, report.failed, llm.calls) == (1, 0, 2)
    first, second = (request.messages for request in llm.requests)
    assert second[:2] == first
    assert [each.role for each in second[2:]] == ["assistant", "user"]
    assert "77,123" in second[2].content
    assert "not in the record" in second[3].content


def replace_policy(**settings):
    return QUICK.model_copy(update=settings)


async def test_errors_and_journal_hold_no_word_of_the_conversation(caplog):
    caplog.set_level("DEBUG")
    canary = "kingfisher-7731"

    def leak(request):
        raise ModelError(f"cannot read {canary} with key sk-{canary}")

    fixture = SessionFixture()
    await fixture.say(Message.user(f"{canary} {text(n)}", created_at=START) for n in range(40))
    await fixture.update(ScriptedLLM(script=leak))
    for node in await fixture.nodes():
        assert canary not in str(node.error)
    assert canary not in str(await fixture.tenant.attempts())
    assert canary not in str(await fixture.tenant.runs())
    assert canary not in caplog.text


# -- cut off and resumed


async def finished_calls(count, remote, *, words=30, **how):
    fixture = await told(SessionFixture(**how), count, words=words)
    llm = ScriptedLLM(remote=remote)
    await fixture.update(llm)
    return llm.calls, await fixture.image()


@pytest.mark.parametrize("remote", [False, True])
async def test_p10_cancelled_at_any_call_a_run_resumes_and_makes_nothing_twice(remote, every):
    clean, tree = await finished_calls(60, remote, words=12, config=SHORT)
    assert clean == 13
    for at in range(1, clean + 1, every(2)):
        fixture = await told(SessionFixture(config=SHORT), 60, words=12)
        stop = asyncio.Event()

        llm = ScriptedLLM(remote=remote, latency=0.0005)
        llm._script = lambda request, llm=llm, at=at, stop=stop: (
            stop.set() if llm.calls == at else None
        )
        run = asyncio.create_task(fixture.update(llm))
        await stop.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        states = {node.status for node in await fixture.nodes()}
        assert states <= {"pending", "active"}, "claims are let go of"
        done = sum(node.status == "active" for node in await fixture.nodes())
        cut_off = llm.calls - done
        assert cut_off <= 4, "more than the calls in flight"
        report = await fixture.update(llm)
        assert report.made + done == clean
        assert llm.calls == clean + cut_off
        assert await fixture.image() == tree
        if remote:
            unknown = [a for a in await fixture.tenant.attempts() if a.outcome == "unknown"]
            assert len(unknown) == cut_off
            assert not [a for a in await fixture.tenant.attempts() if a.outcome == "started"]


# -- several workers


async def test_a_long_call_keeps_its_claim(monkeypatch):
    """Broken, another run pays for the text that this one waits for."""
    monkeypatch.setattr(claim, "_BEATS", 3_000)  # the claim of a minute is renewed at once
    fixture = await told(SessionFixture(), 10)
    entered, go, renewals, take = asyncio.Event(), asyncio.Event(), [], fixture.tenant.take_due

    async def counted(session_id, *, lease, held=None):
        found = await take(session_id, lease=lease, held=held)
        renewals.append(held)
        return found

    async def answered(request):
        entered.set()
        await go.wait()
        return LLMResponse(write(request))

    monkeypatch.setattr(fixture.tenant, "take_due", counted)
    first = asyncio.create_task(fixture.update(FunctionLLM(answered, remote=True)))
    await entered.wait()
    for _ in range(3):
        fixture.now += timedelta(seconds=40)
        seen = len(renewals)
        await until(lambda seen=seen: len(renewals) > seen + 1)
    quick = ScriptedLLM(remote=True)
    second = await fixture.update(
        quick, limits=Limits(deadline=0.3), clock=time.monotonic, sleep=asyncio.sleep
    )
    go.set()
    assert ((await first).made, second.made, quick.calls) == (1, 0, 0)


async def test_a_result_survives_that_its_group_is_sealed_meanwhile():
    fixture = await told(SessionFixture(), 45)

    class Meddling(ScriptedLLM):
        async def complete(self, request):
            if self.calls == 2:
                await fixture.say(messages(10, start=45))
            return await super().complete(request)

    llm = Meddling(remote=True)
    report = await fixture.update(llm, policy=replace_policy(concurrency=1))
    assert (report.made, llm.calls) == (4, 4)
    await fixture.update(llm)
    assert llm.calls == 6
    tree = await fixture.tree()
    assert tree["L1.2"][0].parent == "L2.0"
    assert all(node.revision == 1 for node, _ in tree.values())


# -- the journal


# -- bounded memory, speed


async def test_p6_what_is_in_hand_does_not_grow_with_the_session():
    fixture = SessionFixture()
    for start in range(0, 3000, 1000):
        await fixture.say(messages(1000, start=start, words=3))
    reads = []

    async def watched(name, do, *_):
        found = await do()
        if name in ("unfinished", "nodes", "messages", "revisions"):
            reads.append(len(found))
        return found

    report = await fixture.update(tenant=Intercepted(fixture.tenant, watched))
    assert report.by_level[1] == 300
    assert max(reads) <= 256


# -- answers that claim to be extracted


def claimed(text, **how):
    """Give an answer that says of itself to be one unit of the conversation."""
    return LLMResponse(text, units=(Unit(0, 0, "user", "", "", text),), **how)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "lorem ipsum " * 9 + "dolor",
        "Sure! Here is the summary:",
        "Request timed out.",
    ],
)
async def test_p7_units_do_not_make_an_answer_an_extract(text, remote):
    fixture = await told(SessionFixture(), 10)
    report = await fixture.update(ScriptedLLM(remote=remote, script=lambda request: claimed(text)))
    assert (report.made, report.degraded) == (0, 1)


async def test_p7_units_of_the_record_do_not_vouch_for_another_text():
    fixture = await told(SessionFixture(), 10)

    def answer(request):
        said = request.inputs[0].text.split(". ")[0]
        text = f"{said}, case-1-0: the ferry leaves the harbour, lorem ipsum."
        return LLMResponse(text, units=(Unit(0, 0, "user", "", "", said),))

    await fixture.update(ScriptedLLM(script=answer))
    node, revision = (await fixture.tree())["L1.0"]
    # Its words are of the record, so it may serve; but as a written text, without provenance.
    assert node.status == "active"
    assert revision.provenance == ""


async def test_extracts_of_code_of_cut_and_of_capitalised_pieces_keep_their_provenance():
    fixture = SessionFixture()
    fence = "```python\ndef ferry_price(seats):\n    return seats * 12\n```"
    said = [
        Message.user(f"thanks, we decided on case {n}. {text(n, 50)}\n{fence}\n**Bold** {n} it is.")
        for n in range(150)
    ]
    await fixture.say(said)
    report = await fixture.update(ExtractiveLLM())
    assert report.failed == report.degraded == 0
    tree = (await fixture.tree()).values()
    assert {node.level for node, _ in tree} >= {1, 2, 3}
    for _, revision in tree:
        assert unpack(revision.provenance, revision.text)


async def test_a_run_that_died_after_the_first_look_is_journalled_as_interrupted():
    store = RecordStore(MemoryStore())
    fixture = await told(SessionFixture(store), 60)
    plan = FaultPlan({55: "die"})
    with pytest.raises(DiedError):
        await fixture.update(ScriptedLLM(remote=True), tenant=FaultyStore(store, plan).tenant("t"))
    # No time has passed: the dead run still seems alive, and its leases are waited out.
    await fixture.update(ScriptedLLM(remote=True))
    assert fixture.slept > 0
    assert [run.outcome for run in await fixture.tenant.runs()] == ["ok", "interrupted"]


async def test_a_dry_run_reads_the_windows_of_a_long_session_together():
    """Broken, a dry run takes a turn of the store's threads for each window and each group."""
    fixture = SessionFixture()
    await fixture.say(messages(300, words=40))
    tenant, asked = counted(fixture.tenant)
    plan = await fixture.update(ScriptedLLM(), tenant=tenant, dry_run=True)
    assert plan.by_level[1] == 30
    assert asked["messages"] <= 3
    assert asked["nodes"] + asked["revisions"] <= 3
    report = await fixture.update(ScriptedLLM())
    assert (report.calls, report.by_level) == (plan.calls, plan.by_level)


@pytest.mark.parametrize(
    ("llm", "in_place"), [(None, True), (ScriptedLLM(remote=False, latency=0.01), False)]
)
async def test_a_model_that_is_waited_for_finds_the_loop_free(monkeypatch, llm, in_place):
    """Broken, judging one answer holds up the next calls of a slow local model."""
    threads = set()

    def noting(*arguments, **settings):
        threads.add(threading.current_thread() is threading.main_thread())
        return judge(*arguments, **settings)

    monkeypatch.setattr(making_node, "judge", noting)
    memory = AsyncMemory(store=MemoryStore(), llm=llm)
    session = memory.session("s")
    await session.append(
        [Message.user(f"Ada saw ship {n} in the harbour. " * 9) for n in range(30)]
    )
    report = await session.update()
    assert report.made
    assert threads == {in_place}
