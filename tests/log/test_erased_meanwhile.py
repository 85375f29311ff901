"""A session that is erased while a call reads or changes it, before each access to the store."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sampling import params
from stand_ins import Intercepted, talk

from hiermem import AsyncMemory, HierarchyConfig, Message, NotFoundError
from hiermem.errors import BusyError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.tokens import ApproximateCounter

CONFIG = HierarchyConfig.by_tokens(max_messages=4)


def remarks(count):
    return talk(count, lambda n: f"Remark {n}: the pump costs {7 * n} EUR.")


REWRITTEN = [*remarks(5), Message.user("something else")]
CALLS = {
    "messages": lambda session: session.messages(),
    "search": lambda session: session.search("pump"),
    "recall": lambda session: session.recall("pump"),
    "context": lambda session: session.context(2_000, query="pump"),
    "summaries": lambda session: session.summaries(),
    "summary": lambda session: session.summary(),
    "forest": lambda session: session.forest(),
    "expand": lambda session: session.expand("L2.0"),
    "status": lambda session: session.status(),
    "metrics": lambda session: session.metrics(),
    "sync": lambda session: session.sync(remarks(30)),
    "fork by sync": lambda session: session.sync(REWRITTEN, on_rewrite="fork"),
    "fork": lambda session: session.fork("f"),
    "append": lambda session: session.append(remarks(2)),
    "edit": lambda session: session.edit(3, "a correction"),
    "erase": lambda session: session.erase([3]),
    "flush": lambda session: session.flush(),
    "tick": lambda session: session.tick(datetime.now(UTC) + timedelta(days=1)),
    "close": lambda session: session.close(),
    "reopen": lambda session: session.reopen(),
    "extract": lambda session: session.extract(),
    "update": lambda session: session.update(),
    "dry run": lambda session: session.update(dry_run=True),
    "re-pack": lambda session: session.update(strategy="full"),
    "recompress": lambda session: session.recompress(1),
}


@pytest.mark.parametrize("again", [False, True], ids=["gone", "begun anew"])
@pytest.mark.parametrize("name", params(CALLS, 9))
async def test_nothing_says_that_the_store_is_damaged(name, again, every):
    """Broken, an alarm is raised over a store that is sound, or an assertion fails."""
    place = 0
    while True:
        store, left = RecordStore(MemoryStore()), [place]
        plain = AsyncMemory(store=store, config=CONFIG, token_counter=ApproximateCounter())
        session = plain.session("s")
        await session.append(remarks(24))
        await session.update()
        if name == "reopen":
            await session.close()

        async def around(name, do, *_, session=session, left=left):
            left[0] -= 1
            if left[0] == -1:
                await session.delete()
                if again:
                    await session.append(remarks(6))
            return await do()

        memory = AsyncMemory(
            store=Intercepted(store, around), config=CONFIG, token_counter=ApproximateCounter()
        )
        try:
            async with asyncio.timeout(30):
                await CALLS[name](memory.session("s"))
        except (NotFoundError, BusyError):
            pass
        report = await plain.check()
        assert report.ok, report.findings
        if left[0] >= 0:
            break
        place += every(3)
    assert place > 1
