"""Notes survive whatever ends a consolidation, and each of them goes in once.

Four agents write 1,200 notes while a model that errs at 30 % of its calls consolidates them, and
all of it is killed 50 times: at any operation of the store, before or after it, in the middle of a
call or right after it; ten of the times by SIGKILL. An agent that was not answered looks whether
its note is there and writes it again where it is not. An ordinary run has fewer of each.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from stand_ins import Clock

from hiermem import AsyncMemory, BankPolicy, UpdatePolicy
from hiermem.bank import records as kept
from hiermem.stores.memory import MemoryStore
from hiermem.testing.faults import SITES, DiedError, FaultPlan, FaultyStore
from hiermem.testing.llms import BANK_FAULTS, RETURNING, FaultyLLM, ScriptedLLM

sys.path.insert(0, str(Path(__file__).parent))
from bank_labour import COUNT, FILES, LEASE, RULES, SPACE, START, consolidated, drawn, texts_in
from test_sigkill import kill, nursery  # noqa: F401 - a fixture

NOTES, DEATHS, KILLS = 1_200, 40, 10
POLICY, ONCE = BankPolicy(max_notes=15), UpdatePolicy(retries=0)
#: What is wrong with answers. One that names all notes and writes out none is not among them: no
#: check can see it in a short file.
GARBLED = (*RETURNING, *(fault for fault in BANK_FAULTS if fault != "lost_lines"))
#: Where something is written, and how often a life comes by there, or a little less.
WRITES = [
    (f"{name}.{when}", often)
    for name, often in (("put_records", 20), ("put_run", 4), ("write_nodes", 4))
    for when in ("before", "after")
]


class MortalLLM:
    """A model during whose ``at``-th call from now the process dies, before or after it."""

    remote, context_window = True, None

    def __init__(self, inner, plan: FaultPlan):
        self.inner, self.plan, self.name = inner, plan, inner.name
        self.at, self.after = 0, False

    async def complete(self, request):
        self.at -= 1
        if self.at == 0 and not self.after:
            self.die()
        response = await self.inner.complete(request)
        if self.at == 0:
            self.die()
        return response

    def die(self):
        self.plan.dead = True
        raise DiedError("model")


class Agent:
    """An agent with notes to write; ``unsure``: nobody told it whether its last one was written."""

    def __init__(self, notes):
        self.notes, self.unsure = notes, False

    async def write(self, space, most):
        if self.unsure and self.notes and self.notes[0]["text"] in await texts_in(space):
            self.notes.pop(0)
        self.unsure = False
        for note in self.notes[:most]:
            self.unsure = True
            await space.note(**note)
            self.unsure = False
            self.notes.pop(0)


async def life(store, llm, clock, agents) -> bool:
    """Let all of them work for a while; say whether they died."""
    memory = AsyncMemory(store=store, llm=llm, clock=clock, bank_policy=POLICY, update_policy=ONCE)
    space = memory.space(SPACE, rules=RULES)

    async def consolidate():
        for _ in range(3):
            await space.consolidate()

    work = (agent.write(memory.space(SPACE, rules=RULES), 6) for agent in agents)
    ended = await asyncio.gather(*work, consolidate(), return_exceptions=True)
    errors = [error for error in ended if isinstance(error, BaseException)]
    assert all(isinstance(error, DiedError) for error in errors), errors
    return bool(errors)


async def check(memory, said) -> None:
    """Hold the end to all that was promised."""
    space = memory.space(SPACE)
    assert await space.notes() == [], "a note waits, or was set aside"
    assert await texts_in(space) == dict.fromkeys(said, 1), "a note is lost, or there twice"
    consumed = await space.notes("consumed")
    meta = await space.meta()
    history = await space.history(limit=10_000)
    entered = [key for revision in history for key in revision.notes]
    assert sorted(entered) == sorted(note.key for note in consumed), "a note went in twice"
    assert meta.notes_processed == len(said)
    assert meta.revision == meta.consolidations == len(history)
    files = {name: await space.read(name) for name in await space.files()}
    assert set(files) == set(FILES.values())
    everything = "\n".join(files.values())
    assert [text for text in said if text not in everything] == [], "a fact is in no file"
    assert (await memory.check()).findings == ()
    assert await memory.space(SPACE)._context.one(kept.CLAIM) is None, (
        "a run did not let go of the bank"
    )


@pytest.mark.thorough
async def test_every_note_goes_in_once_however_often_it_is_killed(share):
    luck, clock, plan = Random(6), Clock(START, timedelta(milliseconds=1)), FaultPlan()
    store = FaultyStore(MemoryStore(clock=clock), plan)
    model = ScriptedLLM(script=consolidated)
    llm = MortalLLM(FaultyLLM(model, rate=0.3, seed=6, faults=GARBLED), plan)
    agents = [Agent(notes) for notes in drawn(6, share(NOTES, 400))]
    said = [note["text"] for agent in agents for note in agent.notes]
    deaths, in_calls = 0, 0
    while deaths < share(DEATHS, 20):
        assert any(agent.notes for agent in agents), "they finished before they were killed"
        llm.at, plan.faults, plan.only = 0, {}, frozenset(SITES)
        how = luck.choice(("call", "any", "write"))
        if how == "call":
            llm.at, llm.after = luck.randint(1, 3), luck.random() < 0.5
        else:
            # Reads are most of what a store is asked for; so half of the deaths are at the others.
            soon = 200
            if how == "write":
                left = [each for each in WRITES if each[0] not in dict(plan.hits)] or WRITES
                site, soon = left[deaths % len(left)]
                plan.only = frozenset({site})
            plan.faults = {plan.arrivals + luck.randrange(soon): "die"}
        if await life(store, llm, clock, agents):
            deaths += 1
            in_calls += how == "call"
            plan.revive()
        # Whoever died holds the bank until its lease has ended.
        clock.at += timedelta(seconds=ONCE.lease + 1)
    llm.at, plan.faults = 0, {}
    memory = AsyncMemory(store=store, llm=llm, clock=clock, bank_policy=POLICY, update_policy=ONCE)
    for agent in agents:
        await agent.write(memory.space(SPACE, rules=RULES), NOTES)
    space = memory.space(SPACE)
    for _ in range(NOTES):
        if (await space.consolidate()).status == "nothing_to_do":
            break
    await check(memory, said)
    assert in_calls > 3, "hardly anything died in a call"
    assert {site for site, _ in plan.hits} >= {site for site, _ in WRITES}, (
        "it died in the same few places"
    )
    calls = await memory._handle.store.attempts(limit=100_000)
    assert not [call for call in calls if call.outcome == "started"], "a call is told as open"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_process_that_is_killed_loses_no_note(nursery, tmp_path, share):  # noqa: F811
    """SIGKILL, at random moments, over one file; the next process goes on."""
    luck, kills, lines = Random(7), 0, [tmp_path / "bank-0.db"]
    while kills < share(KILLS, 2):
        pid = nursery.begin("bank", lines[-1], len(lines))
        for _ in range(luck.randint(1, 12)):
            line = nursery.line(60)
            assert line is not None, "the child hangs"
            if line.startswith(("end", "finished")):
                break
        await asyncio.sleep(luck.random() * 0.02)
        kill(pid)
        if line.startswith("end") or nursery.rest()[-1] == "end 0":
            # It was done before it could be killed; the next ones work on another file.
            lines.append(tmp_path / f"bank-{len(lines)}.db")
            continue
        kills += 1
        await asyncio.sleep(LEASE)
    nursery.begin("bank", lines[-1], len(lines))
    assert "finished" in nursery.rest()
    for seed, path in enumerate(lines, start=1):
        async with AsyncMemory.open(path) as memory:
            await check(memory, [note["text"] for notes in drawn(seed, COUNT) for note in notes])
