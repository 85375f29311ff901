"""A worker goes on while its sessions are edited, erased, forked and re-packed."""

import asyncio
import random

import pytest
from editing import regenerating
from sampling import params
from session_fixture import COUNTER, messages

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM

CANARY = "quetzal-9917-canary"
POLICY = UpdatePolicy(batch_delay=0, concurrency=3)


@pytest.mark.parametrize("seed", params(range(3), 1))
async def test_what_is_changed_under_a_worker_is_made_again_and_nothing_erased_returns(store, seed):
    """An answer that was under way when its message was erased would bring the erased text back."""
    draw = random.Random(seed)
    llm = ScriptedLLM(remote=True, latency=0.003)
    async with AsyncMemory(
        store=store, llm=llm, token_counter=COUNTER, update_policy=POLICY
    ) as memory:
        sessions = [memory.session(f"s{n}", title=f"s{n}") for n in range(3)]
        for n, session in enumerate(sessions):
            said = list(messages(60, start=1000 * n))
            at = said[5 * n + 3].created_at
            said[5 * n + 3] = Message.assistant(f"The code is {CANARY}.", created_at=at)
            await session.append(said)
        async with memory.worker(poll=0.05) as worker:
            for _ in range(12):
                await asyncio.sleep(draw.uniform(0, 0.03))
                session = draw.choice(sessions)
                index = draw.randrange(60)
                step = draw.choice(["edit", "erase", "append", "wake"])
                if step == "edit" and (await session.messages(index, index + 1))[0].state == "live":
                    await regenerating(session).edit(index, f"Changed to {draw.random()}.")
                elif step == "erase":
                    await session.erase([index])
                elif step == "append":
                    await session.append(messages(10, start=draw.randrange(9) * 100))
                else:
                    worker.wake()
            for n, session in enumerate(sessions):
                await session.erase([5 * n + 3])
            assert await worker.drain(60)
        for session in sessions:
            summaries = await session.summaries()
            assert all(s.status == "active" and not s.node.dirty for s in summaries)
            assert not any(CANARY in s.text for s in summaries)
        report = await memory.check()
        assert report.ok, report


async def test_a_repack_beside_a_worker_swaps_and_leaves_nothing_undone(store):
    llm = ScriptedLLM(remote=True, latency=0.003)
    async with AsyncMemory(
        store=store, llm=llm, token_counter=COUNTER, update_policy=POLICY
    ) as memory:
        session = memory.session("s", title="s")
        await session.append(messages(90))
        async with memory.worker(poll=0.05) as worker:
            await asyncio.sleep(0.02)
            repack = asyncio.create_task(session.update(strategy="full"))
            for n in range(6):
                await asyncio.sleep(0.01)
                await session.append(messages(10, start=90 + 10 * n))
            report = await repack
            assert report.swapped
            assert await worker.drain(60)
        summaries = await session.summaries()
        assert all(s.status == "active" and not s.node.dirty for s in summaries)
        assert sum(s.messages for s in summaries if s.level == 1) == 150
        assert (await memory.check()).ok
