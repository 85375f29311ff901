"""A session without messages is read as an empty one: a new chat needs no case of its own."""

import pytest

from hiermem import AsyncMemory, Message, NotFoundError
from hiermem.embedders import HashingEmbedder
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore


@pytest.fixture(params=["memory", "sqlite", "embedder"])
async def memory(request, tmp_path):
    store = (
        RecordStore(await SQLiteStore.open(tmp_path / "chat.db"))
        if request.param == "sqlite"
        else RecordStore(MemoryStore())
    )
    embedder = HashingEmbedder(32) if request.param == "embedder" else None
    async with AsyncMemory(store=store, embedder=embedder) as memory:
        yield memory


@pytest.mark.parametrize("erased", [False, True])
async def test_every_reading_call_answers(memory, erased):
    session = memory.session("s", metadata={"user": "ada"})
    if erased:
        await session.append(Message.user("a pump"))
        await session.delete()
    assert await session.search("pump") == []
    assert await session.search("pump", levels=[1], entities=["Ada"]) == []
    evidence = await session.recall("pump")
    assert (evidence.text, evidence.messages, evidence.total_tokens) == ("", (), 0)
    assert await session.messages() == []
    assert await session.summaries() == []
    assert await session.forest() == ()
    assert await session.summary() == ""
    assert await session.count() == 0
    assert await session.pins() == ()
    assert await session.runs() == [] or erased
    assert await session.tri_vector() is None
    assert await session.get_metadata() == {"user": "ada"}
    status = await session.status()
    assert (status.messages, status.nodes, status.unfinished) == (0, {}, {})
    assert (await session.metrics()).compression is None


@pytest.mark.parametrize("strategy", ["cut", "layered"])
async def test_its_context_holds_what_the_caller_gives(memory, strategy):
    session = memory.session("s")
    context = await session.context(2_000, query="pump", system="Be brief.", strategy=strategy)
    assert context.to_openai() == [{"role": "system", "content": "Be brief."}]
    assert (context.coverage, context.omitted, context.messages) == (1.0, (), 0)
    assert "no messages yet" in context.explain()
    assert await memory.manager.semantic_search("s", "pump", budget=500)
    assert await memory.sessions() == [], "reading makes no session"


async def test_the_first_append_ends_it(memory):
    session = memory.session("s")
    await session.context(2_000)
    await session.search("pump")
    await session.append(Message.user("The pump leaks."))
    assert (await session.context(2_000)).recent_messages
    assert [hit.text for hit in await session.search("pump")] == ["The pump leaks."]
    assert (await memory.check()).ok


async def test_calls_that_change_something_say_that_there_is_nothing(memory):
    session = memory.session("s")
    for call in (
        session.update(),
        session.edit(0, "x"),
        session.erase([0]),
        session.close(),
        session.fork("f"),
        session.versions(0),
        session.delete(),
    ):
        with pytest.raises(NotFoundError):
            await call
    assert await memory.sessions() == []
