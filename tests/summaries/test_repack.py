"""P4, P5, P9, P10: a full re-pack gives the tree of a fresh start, whatever happens meanwhile."""

import asyncio
import contextlib
import itertools
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS, logs, messages_of
from sampling import drawn
from session_fixture import START, SessionFixture, messages

from hiermem import Limits
from hiermem.changes import change as changing
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.errors import ModelError
from hiermem.log import append as appending
from hiermem.log.trees import Build
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.update import reconfigure
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.types import Message
from hiermem.types.transaction import ViewRecord
from hiermem.upkeep import run_check as checking

AT = START + timedelta(seconds=1001)
SIXES = HierarchyConfig.by_tokens(max_messages=6)
FOURS = HierarchyConfig.by_tokens(max_messages=4)
ONE = UpdatePolicy(batch_delay=0, concurrency=1)


async def happen(fixture, log):
    """Let a log happen, one entry after the other."""
    for entry in log:
        if isinstance(entry, Message):
            await fixture.say([entry])
            continue
        kind, at = entry
        detail = at.isoformat() if kind == "tick" else ""
        await appending.happen(fixture.handle, "s", kind, detail)


async def played(log, config, *, store=None):
    fixture = SessionFixture(store, config=config)
    await happen(fixture, log)
    return fixture


async def begun(count=60, *, made=True, store=None):
    """Give a session with a conversation, and with all its summaries unless they are not made."""
    fixture = SessionFixture(store)
    await fixture.say(messages(count))
    if made:
        await fixture.update(ScriptedLLM())
    return fixture


async def full(fixture, config, llm=None, **how):
    return await fixture.update(llm or ScriptedLLM(), config=config, strategy="full", **how)


async def stored(fixture):
    """Give what the session is, without what only counts writes, and its measures."""
    record = await fixture.tenant.session("s")
    said = await fixture.tenant.messages("s", 0, record.messages)
    return (
        record.config,
        record.state,
        record.closed,
        [(each.index, each.size, each.tokens, each.slices) for each in said],
    )


async def bare(fixture):
    """Give the tree without the versions and histories of its nodes."""
    return {
        id_: (replace(node, revision=min(1, node.revision), since=None), said)
        for id_, (node, said) in (await fixture.image()).items()
    }


class Meddling(ScriptedLLM):
    """Lets something happen to the session before some of its answers, by their numbers."""

    def __init__(self, deeds):
        super().__init__()
        self.deeds, self.asked = deeds, itertools.count(1)

    async def complete(self, request):
        if deed := self.deeds.get(next(self.asked)):
            await deed()
        return await super().complete(request)


def reconfiguring(fixture, config):
    return Meddling({3: partial(reconfigure, fixture.handle, "s", config)})


# -- what comes out


@drawn(40)
@given(
    log=logs(),
    before=st.sampled_from(sorted(CONFIGS)),
    after=st.sampled_from(sorted(CONFIGS)),
    made=st.booleans(),
)
def test_a_re_packed_session_is_the_one_that_a_fresh_start_gives(log, before, after, made):
    """Broken, a re-pack leaves bounds, sizes or texts of the configuration before."""

    async def check():
        if not messages_of(log):
            return
        fixture = await played(log, CONFIGS[before])
        if made:
            await fixture.update()
        state = await fixture.tenant.session("s"), await fixture.tenant.runs()
        plan = await full(fixture, CONFIGS[after], ExtractiveLLM(), dry_run=True)
        assert (await fixture.tenant.session("s"), await fixture.tenant.runs()) == state
        report = await full(fixture, CONFIGS[after], ExtractiveLLM())
        assert report.swapped
        assert plan.calls == report.calls
        assert plan.by_level == report.by_level
        fresh = await played(log, CONFIGS[after])
        await fresh.update()
        assert await stored(fixture) == await stored(fresh)
        assert await bare(fixture) == await bare(fresh)
        again = await fixture.update(config=CONFIGS[after])
        assert (again.calls, again.made) == (0, 0), "nothing is left to make"

    asyncio.run(check())


async def test_the_swap_is_one_change_that_the_log_tells_of(store):
    fixture = await begun(store=store)
    before = await fixture.tenant.session("s")
    await fixture.tenant.put_view(ViewRecord("s", "default", "shown"), epoch=before.epoch)
    report = await full(fixture, SIXES)
    record = await fixture.tenant.session("s")
    assert report.swapped
    assert (record.epoch, record.tree, record.build) == (before.epoch + 1, before.tree + 1, "")
    assert record.config == SIXES.to_json()
    assert await fixture.tenant.view("s", "default") is None, "what it pinned is gone"
    assert not await fixture.tenant.tree("s", before.tree).levels()
    assert [event.kind for event in await fixture.tenant.events("s")] == ["repack"]
    run, _ = await fixture.tenant.runs(subject="s")
    assert (run.id, run.outcome) == (report.run_id, "ok")
    assert not await fixture.tenant.put_view(ViewRecord("s", "v", "old"), epoch=before.epoch)
    await store.close()


async def test_equal_windows_cost_nothing_again():
    fixture = SessionFixture()
    await fixture.say(messages(150))
    await fixture.update(ScriptedLLM())
    regrouped = HierarchyConfig.by_tokens(
        levels=(
            fixture.config.levels[0],
            fixture.config.levels[1].model_copy(update={"fan_in": 3}),
            *fixture.config.levels[2:],
        )
    )
    llm = ScriptedLLM()
    report = await full(fixture, regrouped, llm)
    assert report.by_level[1] == 15
    assert (report.reused, llm.calls) == (15, report.made), "only the groups are new"


# -- while the conversation goes on


async def test_messages_that_arrive_meanwhile_are_in_the_new_tree():
    """Broken, what was appended during a re-pack is in no window of the tree that serves."""
    fixture = await begun()
    said = {
        number: partial(fixture.say, list(messages(2, start=58 + 2 * number)))
        for number in range(1, 16)
    }
    report = await full(fixture, SIXES, Meddling(said))
    assert report.swapped
    await is_fresh_under(fixture, SIXES, 90)


async def test_until_the_swap_the_old_tree_serves_and_grows():
    fixture = await begun()
    report = await full(fixture, SIXES, limits=Limits(calls=4))
    assert (report.swapped, report.stopped, report.made) == (False, "max_calls", 4)
    assert await fixture.tenant.tree("s").levels() == {1: 6, 2: 1}
    await fixture.say(messages(60, start=60))
    report = await fixture.update(ScriptedLLM())
    assert report.by_level == {1: 6, 2: 1}, "an ordinary update knows of no re-pack"
    llm = ScriptedLLM()
    plan = await full(fixture, SIXES, llm, dry_run=True)
    report = await full(fixture, SIXES, llm)
    assert report.swapped
    assert (plan.calls, plan.by_level) == (report.calls, report.by_level)
    assert llm.calls == report.calls == 25 - 4, "what was made before the cap is there still"


async def test_a_re_pack_under_another_configuration_begins_anew():
    fixture = await begun(made=False)
    await full(fixture, SIXES, limits=Limits(calls=4))
    first = Build.from_json((await fixture.tenant.session("s")).build)
    await full(fixture, FOURS, limits=Limits(calls=2))
    second = Build.from_json((await fixture.tenant.session("s")).build)
    assert second.tree > first.tree, "a number is never given twice"
    assert await fixture.tenant.tree("s", first.tree).levels() == {}
    assert (await full(fixture, FOURS)).swapped
    assert (await fixture.tenant.session("s")).config == FOURS.to_json()


async def test_an_update_that_a_swap_overtakes_writes_nothing_into_the_new_tree():
    """Broken, a node of the old tree is committed over the one of the same name in the new."""
    fixture = await begun(made=False)
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedLLM):
        async def complete(self, request):
            asked.set()
            await go_on.wait()
            return await super().complete(request)

    late = asyncio.ensure_future(fixture.update(Slow()))
    await asked.wait()
    assert (await full(fixture, SIXES)).swapped
    before = await fixture.tree()
    go_on.set()
    report = await late
    assert report.made == 0
    assert await fixture.tree() == before


async def test_two_re_packs_at_once_share_the_work_and_swap_once():
    fixture = await begun(made=False)
    reports = await asyncio.gather(full(fixture, SIXES), full(fixture, SIXES))
    assert sum(report.swapped for report in reports) == 1
    assert [event.kind for event in await fixture.tenant.events("s")] == ["repack"]
    fresh = SessionFixture(config=SIXES)
    await fresh.say(messages(60))
    await fresh.update(ScriptedLLM())
    assert {i: said for i, (_, said) in (await bare(fixture)).items()} == {
        i: said for i, (_, said) in (await bare(fresh)).items()
    }


# -- reconfigured meanwhile


@pytest.fixture
def fixture(store):
    return SessionFixture(store)


async def is_fresh_under(fixture, config, count):
    fresh = SessionFixture(config=config)
    await fresh.say(messages(count))
    await fresh.update(ScriptedLLM())
    assert await stored(fixture) == await stored(fresh)
    assert await bare(fixture) == await bare(fresh)
    assert (await checking.check(fixture.handle)).ok


@pytest.mark.thorough
async def test_p5_a_swap_does_not_undo_the_configuration_that_was_asked_for_last(fixture):
    """Broken, what was reconfigured during a re-pack goes on under the re-pack's configuration."""
    await fixture.say(messages(60))
    await fixture.update(ScriptedLLM())
    sealed = await bounds_of(fixture)
    report = await full(fixture, SIXES, reconfiguring(fixture, FOURS))
    assert not report.swapped
    record = await fixture.tenant.session("s")
    build = Build.from_json(record.build)
    assert (record.config, build.config, build.at) == (FOURS.to_json(), FOURS.to_json(), 0)
    assert await fixture.tenant.tree("s", build.tree - 1).levels() == {}, "what it had made is gone"
    assert await bounds_of(fixture) == sealed
    await fixture.say(messages(20, start=60))
    new = (await bounds_of(fixture)).keys() - sealed.keys()
    nodes = await fixture.tenant.tree("s").nodes(sorted(new))
    assert {node.messages for node in nodes if node.level == 1} == {4}
    assert (await full(fixture, FOURS)).swapped, "the next one goes on under it"
    assert [event.kind for event in await fixture.tenant.events("s")] == ["reconfigure", "repack"]
    await is_fresh_under(fixture, FOURS, 80)


async def test_a_re_pack_under_the_configuration_that_is_asked_for_goes_on(fixture):
    """Broken, a re-pack that gives just what is wanted is thrown away and paid for again."""
    await fixture.say(messages(60))
    await fixture.update(ScriptedLLM())
    assert (await full(fixture, SIXES, reconfiguring(fixture, SIXES))).swapped
    await is_fresh_under(fixture, SIXES, 60)


async def test_to_ask_for_the_configuration_that_there_is_ends_a_re_pack_under_another(fixture):
    """Broken, a session told to stay as it is becomes another one when the re-pack is done."""
    await fixture.say(messages(60))
    await fixture.update(ScriptedLLM())
    assert not (await full(fixture, SIXES, reconfiguring(fixture, fixture.config))).swapped
    record = await fixture.tenant.session("s")
    assert record.config == fixture.config.to_json()
    (event,) = await fixture.tenant.events("s")
    assert event.kind == "reconfigure", "that it stays so is on record"
    assert not await reconfigure(fixture.handle, "s", fixture.config)
    assert len(await fixture.tenant.events("s")) == 1, "once"
    assert (await full(fixture, fixture.config)).swapped
    await is_fresh_under(fixture, fixture.config, 60)


async def bounds_of(fixture):
    """Give what each sealed node covers."""
    return {node.id: node.span for node in await fixture.nodes()}


# -- killed, capped, failed


@drawn(30)
@given(faults=st.lists(st.integers(0, 160), min_size=1, max_size=3), remote=st.booleans())
def test_killed_anywhere_the_next_re_pack_goes_on_and_pays_once(faults, remote):
    """Broken, a kill leaves a half tree, or answers that were paid for are asked for again."""

    async def check():
        kept = RecordStore(MemoryStore())
        base = SessionFixture(kept)
        await base.say(messages(44, words=36))
        await base.update(ScriptedLLM())
        llm = ScriptedLLM(remote=remote)
        for fault in faults:
            plan = FaultPlan({fault: "die"})
            fixture = SessionFixture(FaultyStore(kept, plan), policy=ONE)
            fixture.now = base.now
            with contextlib.suppress(DiedError):
                await full(fixture, SIXES, llm)
            base.now += timedelta(minutes=5)
        fixture = SessionFixture(kept, policy=ONE)
        fixture.now = base.now
        report = await full(fixture, SIXES, llm)
        assert report.swapped
        fresh = SessionFixture(config=SIXES)
        await fresh.say(messages(44, words=36))
        made = ScriptedLLM()
        await fresh.update(made)
        assert await stored(fixture) == await stored(fresh)
        hands = 1 if remote else 3
        assert llm.calls <= made.calls + hands * len(faults), "no more than was in flight"
        mine, other = await bare(fixture), await bare(fresh)
        assert {i: said for i, (_, said) in mine.items()} == {
            i: said for i, (_, said) in other.items()
        }

    asyncio.run(check())


async def test_a_node_that_cannot_be_made_keeps_the_old_tree_until_it_has_a_stand_in():
    fixture = await begun()
    report = await full(fixture, SIXES, ScriptedLLM(script=_transient))
    assert (report.swapped, report.stopped) == (False, "model_down")
    assert await fixture.tenant.tree("s").levels() == {1: 6, 2: 1}

    def refuse(request):
        raise ModelError("no", charged=False)

    report = await full(fixture, SIXES, ScriptedLLM(script=refuse))
    assert report.swapped, "stand-ins are texts; they are made anew later"
    assert report.degraded == 12
    llm = ScriptedLLM()
    await fixture.update(llm, config=SIXES)
    assert llm.calls == 12


def _transient(request):
    raise ModelError("busy", charged=False, kind="transient")


async def test_a_node_that_failed_is_left_to_the_next_re_pack():
    """Broken, the rest that was made meanwhile is a reason to ask for it again at once."""
    fixture, asked = await begun(), []

    def fail_once_known(request):
        asked.append(request.messages)
        if request.messages == asked[0]:
            _transient(request)

    report = await full(fixture, SIXES, ScriptedLLM(script=fail_once_known))
    assert (report.swapped, report.failed) == (False, 1)
    assert asked.count(asked[0]) == 1 + UpdatePolicy().retries


async def test_the_deadline_ends_a_re_pack_between_two_pages():
    fixture = await begun(made=False)
    report = await full(fixture, SIXES, limits=Limits(deadline=0))
    assert (report.swapped, report.stopped) == (False, "deadline")
    assert (await full(fixture, SIXES)).swapped


# -- what is changed or taken back meanwhile


async def test_an_erasure_during_a_re_pack_leaves_nothing_in_the_tree_that_is_built():
    """Broken, a word that was erased is in a text made before, which serves after the swap."""
    fixture = await begun()
    canary = "case-3-1"
    assert canary in (await fixture.tenant.messages("s", 3, 4))[0].content
    erase = partial(changing.erase, fixture.handle, "s", [3])
    report = await full(fixture, SIXES, Meddling({9: erase}))
    assert report.swapped
    assert (await fixture.tenant.messages("s", 3, 4))[0].state == "erased"
    for _, revision in (await fixture.tree()).values():
        assert canary not in revision.text
        assert canary not in revision.anchors
