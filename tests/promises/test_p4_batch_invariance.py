"""P4: bounds, grouping and texts are a function of the log, not of how or when it was processed."""

from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS, START, Failing, Way, finish, logs, long_logs, opened, place, play, ways
from sampling import drawn

from hiermem.testing.faults import DiedError, FaultPlan
from hiermem.testing.llms import ScriptedLLM


async def as_played(kind, log, config, way, **settings):
    async with place(kind) as at:
        return await play(log, at, config, way, **settings)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@drawn(25)
@given(log=logs(), way=ways)
async def test_p4_batching_updates_and_restarts_change_nothing(config, log, way):
    one_by_one = await as_played("memory", log, config, Way())
    assert await as_played("memory", log, config, way) == one_by_one


@drawn(25)
@given(log=logs(), way=ways, name=st.sampled_from(sorted(CONFIGS)))
async def test_p4_a_file_that_is_closed_and_opened_again_gives_the_same_tree(log, way, name):
    one_by_one = await as_played("memory", log, CONFIGS[name], Way())
    assert await as_played("sqlite", log, CONFIGS[name], way) == one_by_one


@pytest.mark.thorough
@drawn(5)
@given(log=long_logs(), way=ways, name=st.sampled_from(sorted(CONFIGS)))
async def test_p4_holds_for_thousands_of_messages(log, way, name):
    at_once = await as_played("memory", log, CONFIGS[name], Way(batches=(10_000,)))
    assert await as_played("sqlite-memory", log, CONFIGS[name], way) == at_once


@drawn(40)
@given(
    log=logs(events=False, most=6),
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["tokens", "chars"]),
)
async def test_p4_updates_that_die_anywhere_and_go_on_give_the_same_texts(log, seed, name):
    config, luck = CONFIGS[name], Random(seed)
    model = ScriptedLLM(remote=luck.random() < 0.5)
    whole = await as_played("memory", log, config, Way(), llm=model)
    if not log:
        return
    async with place("memory") as at:
        await play(log, at, config, Way(batches=(9,)), finished=False)
        for day in range(1, 5):
            # A day later every lease of the dead run has ended.
            clock = partial(later, day)
            plan = FaultPlan({luck.randint(0, 60): "die"})
            memory = await opened(Failing(at, plan), config, clock=clock, llm=model)
            with suppress(DiedError):
                await memory.session("s").update()
        memory = await opened(at, config, clock=partial(later, 9), llm=model)
        assert await finish(memory) == whole


def later(days):
    return START + timedelta(days=1000 + days)
