"""The published calls, as written: names, arguments and results that applications rely on."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from hiermem import AsyncMemory, ContextBudget, ContextWindowManager, HierarchyConfig, Memory
from hiermem.errors import ClosedError, UsageError
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import TiktokenCounter
from hiermem.types import Message, Summary


def test_the_main_job_as_published(tmp_path):
    with Memory.open(tmp_path / "chat.db") as memory:
        session = memory.session("support-42", title="Refunds", participants=["Ada", "assistant"])
        indices = session.append(
            Message.user("My order 5512 never came."),
            Message.assistant("I am sorry. Shall I refund the 59.90 EUR?"),
        )
        assert indices == [0, 1]
        assert session.append(Message.user("Yes please.", key="client-uuid-3")) == [2]
        assert session.append(Message.user("Yes please.", key="client-uuid-3")) == [2]
        session.append(Message.from_openai({"role": "assistant", "content": "Done."}))
        session.append(
            Message.user(f"And what of order {n}?") if n % 2 else Message.assistant(f"It is {n}.")
            for n in range(1, 61)
        )

        plan = session.update(dry_run=True)
        assert plan.calls <= plan.calls_max
        assert plan.tokens_in >= plan.tokens_out >= 0
        assert isinstance(plan.reused, int)
        assert session.summaries(level=1)[0].text == "", "a dry run writes nothing"
        seen = []
        report = session.update(on_progress=seen.append)
        assert report.made + report.reused == sum(plan.by_level.values())
        assert report.by_level == plan.by_level
        assert (report.failed, report.degraded) == (0, 0)
        assert report.calls == plan.calls
        assert report.tokens == report.tokens_in + report.tokens_out
        assert isinstance(report.run_id, str)
        assert seen[-1].done == seen[-1].total
        session.flush()
        session.tick(datetime.now(UTC) + timedelta(hours=2))

        context = session.context(max_tokens=8_000)
        assert context.total_tokens <= 8_000
        assert context.coverage == 1.0
        assert not context.omitted
        assert isinstance(context.trimmed, tuple)
        assert context.blocks
        assert context.recent_messages
        assert isinstance(context.summaries[1], tuple)
        assert context.summaries[99] == ()
        assert context.recall == ()
        assert context.shared_prefix_tokens == 0
        assert all(isinstance(message, dict) for message in context.to_openai())
        assert context.to_anthropic()["messages"]
        assert "My order 5512 never came." in context.to_text()
        assert "tokens" in context.explain()
        full = session.context(
            max_tokens=8_000,
            system="Be brief.",
            tools=(),
            view="default",
            strategy="cut",
            sticky=True,
            cache_cold=False,
            allow_omission=False,
        )
        assert full.to_openai()[0] == {"role": "system", "content": "Be brief."}
        assert full.to_anthropic()["system"] == "Be brief."

        (first, *_) = session.summaries(level=1)
        assert isinstance(session.expand(first, depth=1), tuple)
        assert session.expand(first.id, depth=None)[0].content == "My order 5512 never came."
        assert session.messages(0, 10)[2].key == "client-uuid-3"
        assert session.forest()
        assert session.status().messages == 64
        assert session.runs()[0].outcome == "ok"
        session.close()
        with pytest.raises(ClosedError):
            session.append(Message.user("late"))
        session.reopen()
        assert session.append(Message.user("not late any more")) == [64]
        assert [record.id for record in memory.sessions()] == ["support-42"]
        assert memory.runs()


async def test_the_async_twin_has_the_same_calls(tmp_path):
    async with AsyncMemory.open(tmp_path / "chat.db") as memory:
        session = memory.session("support-42", title="Refunds", participants=["Ada", "assistant"])
        assert await session.append(Message.user("My order 5512 never came.")) == [0]
        await session.append(Message.assistant(f"and {n}") for n in range(30))
        assert (await session.update(dry_run=True)).by_level == (await session.update()).by_level
        assert (await session.update(wait=False)).made == 0
        context = await session.context(8_000)
        assert context.coverage == 1.0
    memory = await AsyncMemory.open(tmp_path / "chat.db", create=False)
    assert len(await memory.session("support-42").messages()) == 31
    await memory.close()
    await memory.close()


def test_a_memory_that_keeps_nothing():
    with Memory.open(":memory:") as memory:
        memory.session("s").append(Message.user("hello"))
        assert memory.session("s").context().coverage == 1.0


def test_construction_with_parts_of_ones_own():
    memory = Memory(
        store=MemoryStore(),
        llm=ScriptedLLM(),
        token_counter=TiktokenCounter(),
        config=HierarchyConfig.by_tokens(),
        tenant="acme",
    )
    assert memory.tenant == "acme"
    memory.session("s").append(Message.user("hello"))
    memory.close()
    assert HierarchyConfig.by_chars(window_chars=4_000).target == 4_000
    with pytest.raises(Exception, match="frozen"):
        HierarchyConfig.by_tokens().target = 3


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_plain_function_is_a_model(kind):
    asked = []

    def answer(request: LLMRequest) -> str:
        asked.append(request)
        return "## Overview\n" + " ".join(request.inputs[0].text.split()[:20])

    async def answer_later(request: LLMRequest) -> str:
        return answer(request)

    with Memory(store=MemoryStore(), llm=answer if kind == "function" else answer_later) as memory:
        session = memory.session("s")
        said = "the ferry of {n} costs 37.50 EUR and leaves at 14:20 from the harbour " * 3
        session.append(Message.assistant(said.format(n=n)) for n in range(10))
        session.update()
        (summary,) = session.summaries(1)
        assert isinstance(summary, Summary)
        assert summary.made
    assert asked


def test_the_manager_of_a_memory_as_published():
    """Broken, the class that the plan names could be called from asynchronous code alone."""
    with Memory.open(":memory:") as memory:
        session = memory.session("support-42")
        session.append(Message.user(f"Remark {n} is about valve {n}. " * 20) for n in range(60))
        session.update()
        for budget in (
            ContextBudget(max_tokens=3_000, reserve_for_messages=1_000),
            ContextBudget(3_000, 1_000, available_for_summaries=1_500),
            ContextBudget(reserve_for_messages=1_000, available_for_summaries=2_000),
        ):
            assert budget.max_tokens == 3_000
            for strategy in ("cut", "layered"):
                selection = memory.manager.select_optimal_context(
                    "support-42", budget, strategy=strategy
                )
                room = budget.max_tokens - budget.reserve_for_output
                assert 0 < selection.total_tokens <= room
        found = memory.manager.semantic_search("support-42", "valve 7", budget=1_000)
        assert found.total_tokens <= 1_000
        (summary, *_) = found.summaries[1]
        messages = memory.manager.expand(summary, session_id="support-42")
        assert [each.index for each in messages] == [*range(summary.span.start, summary.span.stop)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_tokens": 8_000, "available_for_summaries": 6_001}, "leaves only 6000 tokens"),
        ({"max_tokens": 900, "reserve_for_messages": 901}, "leaves only 900 tokens"),
        ({"available_for_summaries": -1}, "available_for_summaries must be 0 or more"),
        ({"available_for_summaries": None}, "available_for_summaries is NoneType"),
    ],
)
def test_a_budget_holds_its_parts(given, named):
    with pytest.raises(UsageError, match=named):
        ContextBudget(**given)


async def test_the_manager_on_its_own_as_published():
    store = RecordStore(MemoryStore())
    memory = AsyncMemory(store=store)
    await memory.session("support-42").append(Message.user(f"remark {n}") for n in range(40))
    config = HierarchyConfig.by_tokens()
    manager = ContextWindowManager(store, tenant="default", config=config, token_counter=None)
    budget = ContextBudget(max_tokens=8_000, reserve_for_messages=2_000)
    assert budget.available_for_summaries == 6_000
    selection = await manager.select_optimal_context("support-42", budget)
    assert selection.coverage == 1.0
    assert isinstance(memory.manager, ContextWindowManager)
    assert isinstance(await manager.expand("L1.0", session_id="support-42"), tuple)


async def test_an_update_that_does_not_wait_returns_before_a_remote_model_answers(tmp_path):
    """Broken, a web handler waits for a slow provider before it sends its answer."""
    may_answer, asked = asyncio.Event(), []

    class Slow:
        name, context_window, remote = "slow", 32_000, True

        async def complete(self, request):
            asked.append(request)
            await may_answer.wait()
            return LLMResponse("Ada set pump 7 to 70 rpm; it leaked, and she phoned the vet.")

    async with AsyncMemory.open(tmp_path / "chat.db", llm=Slow()) as memory:
        session = memory.session("pumps")
        await session.append(Message.user(f"Pump {n} leaks, says Ada. " * 60) for n in range(24))
        report = await asyncio.wait_for(session.update(wait=False), 2)
        assert (report.calls, report.run_id) == (0, None)
        may_answer.set()
        until = time.monotonic() + 20
        while not (asked and not sum((await session.status()).queue.values())):
            assert time.monotonic() < until, "the rest follows in the background"
            await asyncio.sleep(0.02)
