"""Updates as jobs of a queue: whatever the queue loses or repeats, everything is made once."""

import asyncio
import random

import pytest

from hiermem import AsyncMemory, Message, UsageError
from hiermem.fleet import update_one
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.types import DueSession


async def talk(memory, tenants=3, sessions=4):
    """Fill sessions of several tenants; no two of them say the same."""
    for number in range(tenants):
        for place in range(sessions):
            one = memory.for_tenant(f"t{number}").session(f"s{place}")
            said = f"In room {number}, {place} they spoke of pump {number * 97 + place} "
            await one.append(*(Message.user(f"{said} for the {n}th time.") for n in range(25)))
            await one.flush()


async def behind(memory):
    """Return the sessions of which something is left to make."""
    store = memory._resources.store
    return {(one.tenant, one.session_id) for one in await store.claim_due(99, lease=0.0)}


async def asked(memory):
    """Return for each text how often the model was asked for it."""
    calls = {}
    store = memory._resources.store
    for tenant in await memory.tenants():
        for one in await store.tenant(tenant).attempts(limit=10_000):
            key = tenant, one.session_id, one.node_id
            calls[key] = calls.get(key, 0) + 1
    return calls


class Paid(ScriptedLLM):
    """A scripted model that counts as remote, so that its calls are claimed and journalled."""

    remote = True


@pytest.mark.parametrize("seed", range(3))
async def test_an_engine_that_loses_and_repeats_jobs_makes_everything_once(seed):
    """Jobs are dropped, doubled, run at once and out of order; no text is asked for twice."""
    drawn = random.Random(seed)
    memory = AsyncMemory(store=MemoryStore(), llm=Paid())
    await talk(memory)
    jobs: list[DueSession] = []
    while await behind(memory):
        jobs += await memory.list_due(5)
        kept = [one for one in jobs if drawn.random() > 0.3]
        kept += [one for one in kept if drawn.random() > 0.5]
        drawn.shuffle(kept)
        jobs = [one for one in kept if drawn.random() > 0.8]
        await asyncio.gather(
            *(update_one(memory.for_tenant, one.tenant, one.session_id) for one in kept)
        )
        await asyncio.sleep(0.02)
    assert set((await asked(memory)).values()) == {1}
    await memory.close()


async def test_procrastinate_makes_what_is_due():
    """Its jobs hold ids alone, one waits for each session, and a job that failed is sent again."""
    procrastinate = pytest.importorskip("procrastinate")
    from procrastinate.testing import InMemoryConnector

    from hiermem.integrations.procrastinate import add_tasks

    memory = AsyncMemory(store=MemoryStore(), llm=Paid())
    with pytest.raises(UsageError):
        add_tasks(procrastinate.App(connector=InMemoryConnector()), None)
    await talk(memory)
    connector = InMemoryConnector()
    app = procrastinate.App(connector=connector)
    add_tasks(app, memory)
    for wrong, setting in (
        (memory, {"most": 0}),
        (memory.for_tenant("a"), {}),
    ):
        with pytest.raises(UsageError):
            add_tasks(procrastinate.App(connector=InMemoryConnector()), wrong, **setting)
    async with app.open_async():
        for _ in range(2):  # what is sent again while it waits is no second job
            await app.tasks["hiermem.dispatch"](timestamp=0)
            await asyncio.sleep(0.06)
        jobs = list(connector.jobs.values())
        assert len(jobs) == 12
        assert all(set(job["args"]) == {"tenant", "session"} for job in jobs)
        assert not any(name in str(job["queueing_lock"]) for job in jobs for name in ("t0", "s0"))
        # A worker died with some of them: they stay "doing" for ever, and nobody retries them.
        for job in jobs[:5]:
            job["status"] = "doing"
        await asyncio.sleep(0.06)
        await app.tasks["hiermem.dispatch"](timestamp=0)
        await app.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)
    assert not await behind(memory)
    assert set((await asked(memory)).values()) == {1}
    assert set(app.tasks) >= {"hiermem.update_session", "hiermem.dispatch"}
    await memory.close()


def test_celery_makes_what_is_due(tmp_path):
    """A task of a blocking engine opens its own memory; it acknowledges late, and may run twice."""
    celery = pytest.importorskip("celery")
    from celery.contrib.testing.worker import start_worker

    path = tmp_path / "chat.db"
    app = celery.Celery("jobs", broker="memory://", backend="cache+memory://")

    @app.task(acks_late=True)
    def update_session(tenant, session):
        async def run():
            async with AsyncMemory.open(path, llm=Paid()) as memory:
                report = await update_one(memory.for_tenant, tenant, session)
            return report.more

        if asyncio.run(run()):
            update_session.delay(tenant, session)

    async def fill():
        async with AsyncMemory.open(path) as memory:
            await talk(memory, tenants=2, sessions=2)
            return await memory.list_due()

    async def left():
        async with AsyncMemory.open(path) as memory:
            return await behind(memory), await asked(memory)

    due = asyncio.run(fill())
    assert len(due) == 4
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
        sent = [update_session.delay(one.tenant, one.session_id) for one in [*due, *due]]
        for one in sent:
            one.get(timeout=60, disable_sync_subtasks=False)
    rest, calls = asyncio.run(left())
    assert not rest
    assert set(calls.values()) == {1}
