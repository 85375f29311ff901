"""The published calls of search and recall, as written."""

from datetime import UTC, datetime

from hiermem import AsyncMemory, ContextBudget, ContextProfile, ContextWindowManager, Memory
from hiermem.embedders import HashingEmbedder
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types import Message

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)


def conversation():
    yield Message.user("My order 5512 never came; I want a refund.", created_at=START)
    yield Message.assistant("I am sorry. Shall I refund the 59.90 EUR?", created_at=START)
    for n in range(2, 80):
        make = Message.assistant if n % 2 else Message.user
        yield make(f"Of case {n} the clerk said that it would be settled. " * 5, created_at=START)
    long = "\n".join(f"Rule {n} tells what is done with parcels of kind {n}." for n in range(200))
    yield Message.assistant(f"{long}\nA refund takes three days.\n{long}", created_at=START)


def test_search_recall_and_drill_down_as_published(tmp_path):
    with Memory.open(tmp_path / "chat.db") as memory:
        session = memory.session("support-42")
        session.append(conversation())
        session.update()

        hits = session.search("refund", limit=10)
        assert {hits[0].kind, hits[-1].kind} <= {"message", "summary"}
        assert all(isinstance(hit.level, int) for hit in hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert 0 in {hit.span.start for hit in hits}
        assert "refund" in hits[0].text.lower()
        assert session.search("refund", levels={0}, span=(0, 1), roles=["user"])[0].index == 0

        evidence = session.recall("refund", max_tokens=1_000)
        assert 0 < evidence.total_tokens <= 1_000
        whole = {stored.index: stored.content for stored in session.messages()}
        places = [(each.index, each.span.start_char) for each in evidence.messages]
        assert places == sorted(places)
        for each in evidence.messages:
            sliced = whole[each.index][each.span.start_char : each.span.stop_char]
            assert each.content == sliced
        [part] = [each for each in evidence.messages if each.index == 80]
        assert "A refund takes three days." in part.content
        assert len(part.content) < len(whole[80]) / 5

        below = session.expand(hits[0], depth=1)
        assert isinstance(below, tuple)
        assert all(hasattr(each, "content") for each in session.expand(hits[0], depth=None))
        session.feedback(hits[0], score=0.9, note="kept the amount")

        context = session.context(max_tokens=8_000, query="order 5512", recall_tokens=1_500)
        assert context.total_tokens <= 8_000
        assert {stored.index for stored in context.recall} == {
            each.index for each in context.evidence.messages
        }
        assert session.context(3_000, profile=ContextProfile.code_reviewer()).recent_messages
        memory.rebuild_index()
        assert session.search("refund", limit=10)[0].id == hits[0].id


def test_an_embedder_as_published(tmp_path):
    with Memory.open(tmp_path / "chat.db", embedder=HashingEmbedder()) as memory:
        session = memory.session("support-42")
        session.append(conversation())
        session.update()
        memory.reembed()
        assert session.search("refunding", limit=1)[0].score == 1.0


async def test_the_manager_searches_by_itself_as_published():
    store = RecordStore(MemoryStore())
    async with AsyncMemory(store=store) as memory:
        await memory.session("support-42").append(conversation())
        await memory.session("support-42").update()
        manager = ContextWindowManager(
            store, tenant="default", config=None, token_counter=None, embedder=None
        )
        selection = await manager.select_optimal_context(
            "support-42", ContextBudget(max_tokens=8_000, reserve_for_messages=2_000)
        )
        assert selection.total_tokens <= 8_000
        found = await manager.semantic_search("support-42", "refund", budget=1_000)
        assert 0 < found.total_tokens <= 1_000
        assert found.recall or found.summaries
        assert (await memory.manager.semantic_search("support-42", "refund")).blocks
