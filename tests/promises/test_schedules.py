"""Schedules of faults: a store that fails or a process that dies, at any place, up to four times.

A client sends a short conversation in batches and updates after each. It does again what raised an
error, and begins anew after a death. When it is through, the session equals one without a fault.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import product
from random import Random

import pytest
from logbook import START, Failing, Place, finish, opened

from hiermem import HierarchyConfig, Message
from hiermem.errors import StoreError
from hiermem.testing.faults import DiedError, FaultPlan

CONFIG = HierarchyConfig.by_tokens(target=40, max_messages=2, open_groups="grow")
SAID = [
    Message("assistant" if n % 2 else "user", f"On deck {n} Ada measured {n}12 ms.", key=f"k{n}",
            created_at=START + timedelta(minutes=n))
    for n in range(6)
]  # fmt: skip
KINDS = ("fail", "busy", "die")


def later(days):
    return START + timedelta(days=1000 + days)


async def step(session, number):
    """Do one step of the client: two messages are sent, then what they sealed is summarised."""
    if number % 2:
        await session.update()
    else:
        await session.append(SAID[number : number + 2])


async def lived(plan, at):
    """Do all steps over the faults of ``plan``; each is done again until it succeeds."""
    lives, number = 0, 0
    memory = await opened(Failing(at, plan), CONFIG, clock=partial(later, lives))
    while number < len(SAID):
        try:
            await step(memory.session("s"), number)
        except StoreError:
            continue
        except DiedError:
            plan.revive()
            lives += 1
            # A day later every lease of the dead process has ended.
            memory = await opened(Failing(at, plan), CONFIG, clock=partial(later, lives))
            continue
        number += 1
    return await opened(at, CONFIG, clock=partial(later, lives + 1))


async def ends_like(whole, faults):
    """Assert that the session ends like the whole one; return the sites and kinds that were hit."""
    plan = FaultPlan(faults)
    memory = await lived(plan, Place("memory"))
    assert await finish(memory) == whole, f"not the same after {plan.hits}"
    assert (await memory.check()).ok, f"not sound after {plan.hits}"
    tried = await memory._handle.store.attempts(limit=1_000)
    assert "started" not in {attempt.outcome for attempt in tried}, f"open after {plan.hits}"
    return plan.hits


async def undisturbed():
    """Return the session without a fault, and how often it came by each site."""
    plan = FaultPlan()
    memory = await lived(plan, Place("memory"))
    return await finish(memory), plan


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_at_any_place_changes_nothing(kind):
    """Broken, one place of the work does not bear an error, a busy store or a death."""
    whole, clean = await undisturbed()
    assert len(whole["nodes"]) >= 3
    hits = [await ends_like(whole, {place: kind}) for place in range(clean.arrivals)]
    assert sum(map(len, hits)) >= clean.arrivals // 2


@pytest.mark.thorough
@pytest.mark.parametrize("kinds", [*product(("fail", "die"), repeat=2)], ids="-".join)
async def test_two_faults_at_any_places_change_nothing(kinds):
    """Broken, what mends one fault does not bear another."""
    whole, clean = await undisturbed()
    for first in range(clean.arrivals):
        for second in range(first + 1, clean.arrivals + 20):
            await ends_like(whole, {first: kinds[0], second: kinds[1]})


async def test_drawn_schedules_of_one_to_four_faults_change_nothing(share):
    """Broken, some schedule loses a message, makes a summary twice or leaves a call open.

    A schedule that reached no site says nothing about it: each is hit twenty times by each kind.
    """
    luck, hit = Random(11), Counter()
    whole, clean = await undisturbed()
    for _ in range(share(10_000, 200)):
        count = luck.randint(1, 4)
        faults = {luck.randrange(clean.arrivals + 20): luck.choice(KINDS) for _ in range(count)}
        hit.update(await ends_like(whole, faults))
    least = share(20, 1)
    for site, kind in product(clean.visits, KINDS):
        if kind != "busy" or site.endswith(".before"):
            assert hit[site, kind] >= least, f"{site} was hardly ever hit by {kind}"
