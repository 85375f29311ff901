"""Many tenants of one memory: what they share, what each has for itself, and what closes what."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest
from stand_ins import talk as turns

from hiermem import (
    AsyncMemory,
    ClosedError,
    HierarchyConfig,
    InvalidMessageError,
    Memory,
    Message,
    SearchPolicy,
    UpdatePolicy,
    UsageError,
)
from hiermem.errors import ReadOnlyError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM, write

CONFIG = HierarchyConfig.by_tokens(target=300, max_messages=4)
POLICY = UpdatePolicy(batch_delay=0, concurrency=2)


def talk(mark: str, count: int = 12) -> list[Message]:
    """Return messages with as many tokens as it takes to summarise them, each with ``mark``."""
    said = f"{mark} number {{n}} is what was said here: "
    return turns(count, said + " ".join(f"word{{n}}x{k} of {mark}" for k in range(8)))


def memory_over(store: MemoryStore, **how) -> AsyncMemory:
    settings = {"config": CONFIG, "update_policy": POLICY} | how
    return AsyncMemory(store=store, **settings)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors by /proc")
@pytest.mark.thorough
def test_tenants_cost_neither_threads_nor_descriptors(tmp_path: Path) -> None:
    """A server has one process and any number of tenants; each used to cost 4 threads and 8
    descriptors."""

    def use(memory: Memory, names: range) -> list[Memory]:
        opened = [memory.for_tenant(f"tenant {n}") for n in names]
        for n, child in zip(names, opened, strict=True):
            session = child.session("s")
            session.append(talk(f"mark{n}"))
            session.update()
            found = session.search("number 3")
            assert found
            assert all(f"mark{n} " in hit.text for hit in found)
        return opened

    def used() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    with Memory.open(tmp_path / "m.db", config=CONFIG, update_policy=POLICY) as memory:
        opened = use(memory, range(10))
        threads, descriptors = used()
        opened += use(memory, range(10, 60))
        more_threads, more_descriptors = used()
        lent = min(32, (os.cpu_count() or 1) + 4)  # threads of a loop for computations
        assert more_threads <= threads + lent
        assert more_descriptors <= descriptors + 8  # a reader that had not begun has four
        for child in opened:
            child.close()
        assert memory.for_tenant("tenant 3").session("s").messages()[0].content.startswith("mark3 ")


async def test_each_tenant_reads_its_own_and_none_another() -> None:
    """P12: sessions of one name, searched through one cache of indexes."""
    memory = memory_over(RecordStore(MemoryStore()), tenant="own")
    for name in ("own", "a", "A", "a."):
        one = memory.for_tenant(name)
        assert one.tenant == name
        await one.session("s").append(talk(f"mark-{name}"))
        await one.session("s").update()
    for name in ("own", "a", "A", "a."):
        session = memory.for_tenant(name).session("s")
        for seen in (
            [hit.text for hit in await session.search("number 3")],
            [stored.content for stored in await session.messages()],
            [summary.text for summary in await session.summaries()],
        ):
            assert seen
            assert {word for text in seen for word in text.split() if "mark" in word} == {
                f"mark-{name}"
            }
    await memory.for_tenant("a").erase_tenant()
    assert [record.id for record in await memory.for_tenant("A").sessions()] == ["s"]
    assert await memory.for_tenant("a").sessions() == []
    await memory.close()


async def test_the_child_has_the_settings_of_its_memory() -> None:
    llm = ScriptedLLM()
    memory = memory_over(RecordStore(MemoryStore()), llm=llm)
    child = memory.for_tenant("other")
    await child.session("s").append(talk("mark"))
    await child.session("s").update()
    assert llm.calls
    assert (await child.sessions())[0].config == CONFIG.to_json()
    own, other = memory._resources, child._resources
    assert other.store is own.store
    for name in ("llm", "fallback", "prompts", "bank_policy"):
        assert getattr(other, name) is getattr(own, name)
    await memory.close()


async def test_closing_a_child_leaves_its_memory_open() -> None:
    memory = memory_over(RecordStore(MemoryStore()))
    first, second = memory.for_tenant("a"), memory.for_tenant("a")
    session = first.session("s")
    await session.append(talk("mark"))
    await first.close()
    await first.close()
    for use in (
        session.messages,
        first.sessions,
        lambda: first.graph.entities("mark"),
        lambda: session.append(talk("more")),
    ):
        with pytest.raises(ClosedError):
            await use()
    with pytest.raises(ClosedError):
        first.for_tenant("b")
    assert len(await second.session("s").messages()) == 12
    await memory.session("s").append(talk("own"))
    await memory.close()


async def test_a_closed_memory_closes_its_children_with_what_they_do() -> None:
    """Broken, the store would be closed under a child's work, which its log would call failed."""
    memory = memory_over(RecordStore(MemoryStore()), llm=ScriptedLLM(latency=0.05), config=CONFIG)
    child = memory.for_tenant("a")
    grandchild = child.for_tenant("b")
    await child.session("s").append(talk("mark", 40))
    await child.session("s").update(wait=False)
    async with grandchild.worker(poll=0.01) as worker:
        await memory.close()
        assert worker.status.state == "stopped"
    assert not child._resources.background
    for one in (child, grandchild):
        with pytest.raises(ClosedError):
            await one.sessions()
        await one.close()


@pytest.mark.parametrize("how", ["update", "re-pack", "extract", "worker"])
async def test_a_tenant_that_is_erased_while_its_sessions_are_updated(how: str) -> None:
    """Broken, every check from then on finds a journalled call of no session."""
    asked = asyncio.Event()

    async def llm(request) -> str:
        asked.set()
        await asyncio.sleep(0.1)
        return write(request)

    memory = memory_over(RecordStore(MemoryStore()), llm=llm)
    child = memory.for_tenant("a")
    session = child.session("s")
    await session.append(talk("mark", 24))
    worker = memory.worker(poll=0.01)
    working = {
        "update": session.update,
        "re-pack": lambda: session.update(strategy="full"),
        "extract": session.extract,
        "worker": worker.start,
    }
    work = asyncio.create_task(working[how]())
    await asked.wait()
    await child.erase_tenant()
    await asyncio.wait([work])
    await worker.stop()
    assert {run.subject for run in await child.runs()} == {""}
    assert await child._handle.store.attempts(), "the calls were paid for"
    report = await child.check()
    assert report.ok, report.findings
    await memory.close()


@pytest.mark.parametrize("steps", [1, 2, 4, 16, 64])
async def test_a_close_that_is_cancelled_closes_all_the_same(steps: int) -> None:
    """Broken, the store stays open for ever: another close() finds the memory closed."""
    closed = []

    class Store(MemoryStore):
        async def close(self) -> None:
            closed.append(True)
            await super().close()

    policy = UpdatePolicy(batch_delay=0, drain=3600)
    llm = ScriptedLLM(latency=3600)
    memory = AsyncMemory(store=Store(), llm=llm, config=CONFIG, update_policy=policy)
    child = memory.for_tenant("a")
    for one in (memory, child):
        await one.session("s").append(talk("mark", 40))
    worker = memory.worker(poll=0.01)
    await worker.start()
    child._resources.behind(child.session("s").update())
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(memory.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(closing, 30)
    assert closed == [True]
    assert worker.status.state == "stopped"
    assert len(asyncio.all_tasks()) == 1, "nothing works on"
    for one in (memory, child):
        with pytest.raises(ClosedError):
            await one.sessions()
    await memory.close()
    assert closed == [True]


def test_the_blocking_child_shares_the_thread(tmp_path: Path) -> None:
    with Memory.open(tmp_path / "m.db", config=CONFIG) as memory:
        with memory.for_tenant("a") as child:
            child.session("s").append(talk("mark"))
            assert child._thread is memory._thread
        with pytest.raises(ClosedError):
            child.session("s").messages()
        child.close()
        again = memory.for_tenant("a")
        assert len(again.session("s").messages()) == 12
        with pytest.raises(InvalidMessageError):
            memory.for_tenant("")
    for use in (again.sessions, lambda: again.for_tenant("b")):
        with pytest.raises(ClosedError):
            use()
    again.close()


def test_a_child_is_not_made_from_the_memorys_own_thread() -> None:
    """There the call would wait for itself."""
    found: list[BaseException] = []

    def watch(progress: object) -> None:
        try:
            memory.for_tenant("b")
        except UsageError as error:
            found.append(error)

    with Memory.open(":memory:", config=CONFIG, update_policy=POLICY) as memory:
        memory.session("s").append(talk("mark"))
        memory.session("s").update(on_progress=watch)
    assert found


def test_children_of_a_read_only_memory_only_read(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with Memory.open(path, tenant="a", config=CONFIG) as memory:
        memory.session("s").append(talk("mark"))
    with Memory.open(path, read_only=True) as memory:
        child = memory.for_tenant("a")
        assert len(child.session("s").messages()) == 12
        with pytest.raises(ReadOnlyError):
            child.session("s").append(talk("more"))


def test_a_childs_backup_is_the_whole_store_and_its_erasure_names_it(tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with Memory.open(tmp_path / "m.db", config=CONFIG) as memory:
        memory.session("s").append(talk("own"))
        child = memory.for_tenant("a")
        child.session("s").append(talk("mark"))
        child.backup(copy)
        assert [one.place for one in child.erase_tenant().copies] == [str(copy)]
    with Memory.open(copy) as memory:
        for tenant in ("default", "a"):
            assert len(memory.for_tenant(tenant).session("s").messages()) == 12


# -- what they share


async def test_one_worker_works_for_every_tenant_and_shares_its_slots() -> None:
    """A worker for each of 1,000 tenants would ask the store 1,000 times a second for work."""
    llm = ScriptedLLM(remote=True, latency=0.005)
    memory = memory_over(RecordStore(MemoryStore()), llm=llm)
    names = [f"t{n}" for n in range(6)]
    for name in names[:3]:
        await memory.for_tenant(name).session("s").append(talk(f"mark-{name}"))
    async with memory.worker(poll=0.01) as worker:
        for name in names[3:]:
            async with memory.for_tenant(name) as child:  # closed while the worker has work for it
                await child.session("s").append(talk(f"mark-{name}"))
        assert await worker.drain(120)
        assert worker.status.failed == worker.status.degraded == 0
    for name in names:
        session = memory.for_tenant(name).session("s")
        assert sum((await session.status()).unfinished.values()) == 0
        assert all(f"mark-{name}" in summary.text for summary in await session.summaries(1))
    assert 1 < llm.peak <= POLICY.concurrency
    await memory.close()


async def test_the_worker_of_a_child_works_for_its_tenant_alone() -> None:
    memory = memory_over(RecordStore(MemoryStore()))
    for name in ("default", "a", "b"):
        await memory.for_tenant(name).session("s").append(talk(f"mark-{name}"))
    async with memory.for_tenant("a").worker(poll=0.01) as worker:
        assert await worker.drain(120)
    left = {
        name: sum((await memory.for_tenant(name).session("s").status()).unfinished.values())
        for name in ("default", "a", "b")
    }
    assert left["a"] == 0
    assert left["default"] == left["b"] > 0
    await memory.close()


async def test_sessions_of_one_name_back_off_each_for_itself() -> None:
    """A failure of tenant a's first summary says nothing about tenant b's."""

    async def llm(request):
        if any("mark-a" in part.text for part in request.inputs):
            raise ValueError("this one fails")
        return write(request)

    memory = memory_over(RecordStore(MemoryStore()), llm=llm)
    for name in ("a", "b"):
        await memory.for_tenant(name).session("s").append(talk(f"mark-{name}"))
    async with memory.worker(poll=0.01) as worker:
        await worker.drain(30)
    status = {name: await memory.for_tenant(name).session("s").status() for name in ("a", "b")}
    assert status["a"].last_error is not None
    assert status["b"].last_error is None
    assert sum(status["a"].unfinished.values()) > sum(status["b"].unfinished.values()) == 0
    await memory.close()


async def test_the_cap_of_a_tenant_holds_over_all_its_memories() -> None:
    """Two requests of one tenant each have a memory of it; together they spend no more."""
    policy = UpdatePolicy(batch_delay=0, concurrency=4, tenant_calls=3)
    llm = ScriptedLLM(remote=True, latency=0.002)
    memory = memory_over(RecordStore(MemoryStore()), llm=llm, update_policy=policy)
    first, second = memory.for_tenant("a"), memory.for_tenant("a")
    assert first._handle.caps("s")[0] is second._handle.caps("s")[0]
    for name in ("s", "t"):
        await first.session(name).append(talk(f"mark-{name}", 48))
    await memory.for_tenant("b").session("s").append(talk("mark-b", 48))
    await asyncio.gather(
        *(one.session(name).update() for name in ("s", "t") for one in (first, second)),
        return_exceptions=True,
    )
    assert llm.calls == 3
    await memory.for_tenant("b").session("s").update()
    assert llm.calls == 6
    await memory.close()


async def test_the_indexes_of_all_tenants_keep_to_one_bound() -> None:
    """Otherwise each of 1,000 tenants could hold as much as a whole process may."""
    memory = memory_over(RecordStore(MemoryStore()), search_policy=SearchPolicy(cache_bytes=60_000))
    for n in range(12):
        session = memory.for_tenant(f"t{n}").session("s")
        await session.append(talk(f"mark{n}", 60))
        assert await session.search("number 3")
    held = memory._resources.handle.index_cache
    assert 1 <= len(held) < 12
    assert ("t11", "s") in held
    sizes = [index.nbytes for index, _ in held._held.values()]
    assert sum(sizes) == held._total <= 60_000
    assert await memory.for_tenant("t0").session("s").search("number 3")
    await memory.close()


async def test_erasing_drops_the_index_that_an_earlier_handle_left() -> None:
    memory = memory_over(RecordStore(MemoryStore()))
    await memory.for_tenant("a").session("s").append(talk("mark"))
    assert await memory.for_tenant("a").session("s").search("number 3")
    gc.collect()
    held = memory._resources.handle.index_cache
    assert ("a", "s") in held
    await memory.for_tenant("a").session("s").delete()
    assert ("a", "s") not in held
    assert held._total == 0
    await memory.close()


async def test_a_tenant_that_nobody_uses_leaves_only_its_name() -> None:
    """A server asks for a tenant in each request, and most do not close it."""
    memory = memory_over(RecordStore(MemoryStore()))
    for n in range(50):
        await memory.for_tenant(f"t{n}").session("s").append(talk("mark", 1))
    gc.collect()
    assert len(memory._resources.children) == 0
    assert len(memory._resources.handles._used) == 1
    assert len(memory._resources.handles) == 51
    await memory.close()
