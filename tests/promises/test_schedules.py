"""Schedules of faults: a store that fails or a process that dies, at any place, up to four times.

A client sends a short conversation in batches and updates after each. It does again what raised an
error, and begins anew after a death. When it is through, the session equals one without a fault.
"""

from collections import Counter
from datetime import timedelta
from itertools import product
from random import Random

import pytest
from logbook import QUICK, START, Failing, Place, finish, image, opened, text
from stand_ins import Clock, talk

from hiermem import HierarchyConfig, LevelConfig
from hiermem.errors import StoreError
from hiermem.testing.faults import DiedError, FaultPlan
from hiermem.testing.llms import ScriptedLLM

CONFIG = HierarchyConfig.by_tokens(
    target=60,
    max_messages=2,
    verbatim_tokens=10,
    levels=(
        LevelConfig(target_ratio=0.5, style="concise"),
        LevelConfig(target_ratio=0.5, style="thematic", fan_in=2, max_size=200, max_messages=4),
        LevelConfig(target_ratio=0.5, style="executive", fan_in=2, max_size=200),
    ),
)
SAID = talk(6, lambda n: text(n, 30), key="k{n}", seconds=60)
KINDS = ("fail", "busy", "die")
#: After a day every lease has ended.
LATER, DAY = START + timedelta(days=1000), timedelta(days=1)
#: What an update writes.
WRITES = {"put_run", "transact", "settle_due", "take_due", "write_nodes"}


async def step(session, number):
    """Do one step of the client: two messages are sent, then what they sealed is summarised."""
    if number % 2:
        await session.update()
    else:
        await session.append(SAID[number : number + 2])


async def lived(plan, at, llm):
    """Do all steps over the faults of ``plan``; each is done again, a day later, until it succeeds.

    What failed may hold claims still: whether they were given back, nobody knows where that failed
    as well.
    """
    clock, number = Clock(LATER), 0
    memory = await opened(Failing(at, plan), CONFIG, llm=llm, clock=clock)
    while number < len(SAID):
        try:
            await step(memory.session("s"), number)
        except StoreError:
            clock.at += DAY
        except DiedError:
            plan.revive()
            clock.at += DAY
            memory = await opened(Failing(at, plan), CONFIG, llm=llm, clock=clock)
        else:
            number += 1
    clock.at += DAY
    return await opened(at, CONFIG, llm=llm, clock=clock)


async def ends_like(whole, faults):
    """Assert that the session ends like the whole one; return the sites and kinds that were hit."""
    plan, llm = FaultPlan(faults), ScriptedLLM(remote=True, keep=0)
    memory = await lived(plan, Place("memory"), llm)
    assert await finish(memory) == whole, f"not the same after {plan.hits}"
    assert (await memory.check()).ok, f"not sound after {plan.hits}"
    tried = await memory._handle.store.attempts(limit=1_000)
    assert "started" not in {attempt.outcome for attempt in tried}, f"open after {plan.hits}"
    assert llm.calls <= len(tried), f"a call is not on record after {plan.hits}"
    made = sum(revision is not None for _, revision in whole["nodes"].values())
    lost = sum(kind == "die" for _, kind in plan.hits) * QUICK.concurrency
    assert llm.calls <= made + lost, f"calls were made again without need after {plan.hits}"
    return plan.hits


async def undisturbed():
    """Return the session without a fault, and how often it came by each site."""
    plan = FaultPlan()
    memory = await lived(plan, Place("memory"), ScriptedLLM(remote=True))
    return await finish(memory), plan


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_at_any_place_changes_nothing(kind, every):
    """Broken, one place of the work does not bear an error, a busy store or a death."""
    whole, clean = await undisturbed()
    assert len(whole["nodes"]) == 4, "the work is too small to show anything"
    # The ordinary run tries some places with each kind of fault.
    places = range(KINDS.index(kind) % every(5), clean.arrivals, every(5))
    hits = [await ends_like(whole, {place: kind}) for place in places]
    assert sum(map(len, hits)) >= len(places) // 2


async def bank_of(memory):
    """Return the files of the bank, by name."""
    space = memory.space("team")
    return {name: await space.read(name) for name in await space.files()}


#: What a run does, and how what it made is read.
RUNS = {
    "update": (lambda memory: memory.session("s").update(), image),
    "extract": (
        lambda memory: memory.session("s").extract(),
        lambda memory: memory.session("s").tri_vector(),
    ),
    "consolidate": (lambda memory: memory.space("team").consolidate(), bank_of),
}


async def ran(name, plan):
    """Do a run over a store that meets the plan's faults; return what it made, and its calls."""
    at, clock, llm = Place("memory"), Clock(LATER), ScriptedLLM(remote=True, keep=0)
    run, look = RUNS[name]
    memory = await opened(at, CONFIG, clock=clock)
    await memory.session("s").append(SAID)
    await memory.space("team", rules="# Files\n- a.md: all\n").note("The pump is set to 7 rpm.")
    clock.at += DAY
    await run(await opened(Failing(at, plan), CONFIG, llm=llm, clock=clock))
    return await look(memory), llm.calls


@pytest.mark.parametrize("name", RUNS)
async def test_a_store_that_fails_four_times_in_a_row_ends_no_run(name, every):
    """Broken, a write of a run, or a read of one that goes on for long, is not tried again."""
    clean = FaultPlan()
    whole = await ran(name, clean)
    assert whole[0]
    assert whole[1]
    # An update is as well done again; and nobody can ask twice whether it was given the claim.
    sites = [
        site
        for site in sorted(clean.visits)
        if site != "take_due.after" and (name != "update" or site.split(".")[0] in WRITES)
    ]
    assert len(sites) >= 7
    for turn, site in enumerate(sites):
        for place in range(turn % min(every(3), clean.visits[site]), clean.visits[site], every(3)):
            plan = FaultPlan(dict.fromkeys(range(place, place + 4), "fail"), frozenset({site}))
            assert await ran(name, plan) == whole, f"not the same after {plan.hits}"
            assert plan.hits


async def test_drawn_schedules_of_one_to_four_faults_change_nothing(share):
    """Broken, some schedule loses a message, makes a summary twice or leaves a call open.

    A schedule that reached no site says nothing about it: of ten thousand, each site is hit by each
    kind at least twenty times.
    """
    luck, hit = Random(11), Counter()
    whole, clean = await undisturbed()
    for _ in range(share(10_000, 20)):
        count = luck.randint(1, 4)
        faults = {luck.randrange(clean.arrivals + 20): luck.choice(KINDS) for _ in range(count)}
        hit.update(await ends_like(whole, faults))
    least = share(20, 0)
    for site, kind in product(clean.visits, KINDS):
        if kind != "busy" or site.endswith(".before"):
            assert hit[site, kind] >= least, f"{site} was hardly ever hit by {kind}"
