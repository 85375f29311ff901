"""The frame of a run: cancelled anywhere, it leaves neither a claim nor a running entry."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from stand_ins import Intercepted

from hiermem import (
    AsyncMemory,
    BankPolicy,
    ExtractionOptions,
    HierarchyConfig,
    Message,
    UpdatePolicy,
)
from hiermem.bank import records
from hiermem.calls.run import JournalledRun
from hiermem.extraction.chunk import CLAIM
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM

SMALL = HierarchyConfig.by_tokens(target=200, min_flush=40)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Place:
    """Cancels ``task`` at the operation of the store that is the ``at``-th to begin or to end."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.task: asyncio.Task[Any] | None = None

    async def pass_by(self) -> None:
        if self.task is not None:
            if not self.left:
                self.task.cancel()
            self.left -= 1
        # The cancellation arrives here where this is the task itself.
        await asyncio.sleep(0)

    async def around(self, name: str, do: Any, *_: Any) -> Any:
        """Pass by before and after an operation."""
        await self.pass_by()
        result = await do()
        await self.pass_by()
        return result


def answer(request: Any) -> str:
    """Answer any task of the library with something fit."""
    if request.bank is None:
        return json.dumps(
            {"entities": [], "relations": [], "summary": "They spoke of the harbour."}
        )
    held = dict(request.bank.files) or dict(request.bank.missing)
    text = held["progress.md"] + "\n".join(f"- {note.text}" for note in request.bank.notes)
    notes = list(range(1, len(request.bank.notes) + 1))
    file = {"filename": "progress.md", "content": text, "notes": notes}
    return json.dumps({"bank_files": [file], "synthesis": "It works."})


def opened(store: Any, kind: str) -> AsyncMemory:
    llm = ScriptedLLM(remote=True) if kind == "update" else ScriptedLLM(remote=True, script=answer)
    return AsyncMemory(store=store, llm=llm, config=SMALL, bank_policy=BankPolicy())


async def begin(memory: AsyncMemory, kind: str) -> None:
    if kind == "consolidate":
        space = memory.space("work", rules="- progress.md: what works")
        for n in range(3):
            await space.note(f"The {n}th thing works.")
        return
    for n in range(12):
        said = f"The harbour crane number {n} was moved on Friday and costs {n}00 euros. " * 4
        await memory.session("s").append(Message(("user", "assistant")[n % 2], said))


async def work(memory: AsyncMemory, kind: str) -> Any:
    if kind == "consolidate":
        return await memory.space("work").consolidate()
    if kind == "extract":
        options = ExtractionOptions(safe_processing_tokens=4_000, output_tokens=256)
        return await memory.session("s").extract(options=options)
    return await memory.session("s").update()


async def claims(store: MemoryStore) -> list[str]:
    """Return what is still claimed, whoever holds it."""
    tenant = store.tenant("default")
    entries = await store.claim_due(9, lease=0.0, ahead=None)
    found = [one.session_id for one in entries if one.claimed]
    for kind in (CLAIM, records.kind_of(records.CLAIM, "work")):
        found += [record.kind for record in await tenant.records(kind)]
    return found


@pytest.mark.parametrize("kind", ["update", "extract", "consolidate"])
async def test_cancelled_at_any_operation_of_the_store_a_run_leaves_nothing_behind(
    kind: str, every: Callable[[int], int]
) -> None:
    """Broken: the space stayed claimed, or the run was shown as running until the claim ended."""
    at, ended = 0, False
    while not ended:
        store, place = RecordStore(MemoryStore()), Place(at)
        memory = opened(Intercepted(store, place.around), kind)
        await begin(memory, kind)
        place.task = asyncio.create_task(work(memory, kind))
        try:
            await place.task
            ended = place.left > 0
        except asyncio.CancelledError:
            pass
        place.task = None
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=60)
        tenant = store.tenant("default")
        runs = await tenant.runs()
        assert [run.outcome for run in runs if run.outcome == "running"] == [], at
        assert await claims(store) == [], at
        assert [one for one in await tenant.attempts() if one.outcome == "started"] == [], at
        again = await work(memory, kind)
        assert not getattr(again, "failed", 0), at
        await memory.close()
        at += every(2)
    assert at > 10


@pytest.mark.parametrize("kind", ["update", "consolidate"])
async def test_a_renewal_that_is_cut_off_is_known_to_the_release(kind: str) -> None:
    """Broken: the renewal took effect in the store, and the release missed the new version."""

    async def held(name: str, do: Any, *_: Any) -> Any:
        """Let the first write that comes while the model answers take effect and never return."""
        result = await do()
        if name in ("take_due", "put_records") and asked.is_set() and not renewed.is_set():
            renewed.set()
            await asyncio.sleep(0.2)
        return result

    asked, renewed = asyncio.Event(), asyncio.Event()

    class Waiting(ScriptedLLM):
        async def complete(self, request: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

    store = RecordStore(MemoryStore())
    memory = AsyncMemory(
        store=Intercepted(store, held),
        llm=Waiting(remote=True),
        config=SMALL,
        update_policy=UpdatePolicy(lease=0.3),
    )
    await begin(memory, kind)
    running = asyncio.create_task(work(memory, kind))
    await asyncio.wait_for(renewed.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await claims(store) == []


async def test_a_run_compares_the_clocks_before_its_claims_and_while_it_lasts() -> None:
    """Broken: a run of many hours took claims by a clock that nobody had looked at since."""
    store, compared, third = RecordStore(MemoryStore()).tenant("t"), [], asyncio.Event()

    async def compare() -> None:
        compared.append(await store.runs())
        if len(compared) == 3:
            third.set()

    run = JournalledRun(
        store=store,
        tree=store.tree("s"),
        kind="update",
        subject="s",
        lease=0.03,
        now=lambda: NOW,
        compare_clocks=compare,
    )
    async with run:
        assert compared == [[]]
        await run.begin()
        await asyncio.wait_for(third.wait(), 60)
