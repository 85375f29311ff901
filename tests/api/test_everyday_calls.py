"""The short calls that people try first: counts, summary, delete, and parts named by a text."""

import asyncio

import pytest

from hiermem import (
    AsyncMemory,
    HierarchyConfig,
    LevelConfig,
    Limits,
    Memory,
    Message,
    UpdatePolicy,
    UsageError,
)
from hiermem.models import model_by_name
from hiermem.models.anthropic import AnthropicChat
from hiermem.models.openai import OpenAIChat
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM

STYLES = ("detailed", "thematic", "executive")


def remarks(count):
    return [
        Message.user(f"Remark {n} on the pump of Ada. It leaks {n} drops.") for n in range(count)
    ]


async def test_the_summary_is_the_texts_of_the_roots():
    """Below a root that is not made yet, what is made stands in its place: nothing is left out."""
    config = HierarchyConfig(
        max_messages=2,
        verbatim_tokens=1,
        levels=tuple(LevelConfig(target_ratio=0.3, style=style) for style in STYLES),
    )
    memory = AsyncMemory(store=MemoryStore(), llm=ScriptedLLM(), config=config)
    session = memory.session("s")
    await session.append(remarks(24))
    assert await session.summary() == ""
    await session.update(1)
    lowest = [each.text for each in await session.summaries(1)]
    assert await session.summary() == "\n\n".join(lowest)
    await session.update()
    roots = [tree.summary.text for tree in await session.forest()]
    assert len(roots) < len(lowest)
    assert await session.summary() == "\n\n".join(roots)


def test_delete_erases_the_session_and_its_share_in_forks(tmp_path):
    with Memory.open(tmp_path / "chat.db") as memory:
        session = memory.session("s")
        session.append(remarks(4))
        fork = session.fork("f")
        receipt = session.delete()
        assert (receipt.kind, receipt.scrubbed) == ("erase_session", True)
        assert [each.state for each in fork.messages()] == ["erased"] * 4
        assert [record.id for record in memory.sessions()] == ["f"]
        assert session.append(Message.user("again")) == [0], "the name is free"
        assert memory.check().ok


def test_sessions_are_counted_without_reading_them():
    with Memory.open(":memory:") as memory:
        assert memory.count_sessions() == 0
        for number in range(7):
            user = {"user": "ada" if number % 3 else "bela", "app": "web"}
            memory.session(f"s{number}", metadata=user).append(Message.user("Hello"))
        with memory.for_tenant("other") as other:
            other.session("s0", metadata={"user": "ada"}).append(Message.user("Hello"))
            assert other.count_sessions() == other.count_sessions(metadata={"user": "ada"}) == 1
        for user in ("ada", "bela", "none"):
            for wanted in ({"user": user}, {"user": user, "app": "web"}):
                found = memory.count_sessions(metadata=wanted)
                assert found == len(memory.sessions(metadata=wanted))
        memory.session("s0").delete()
        assert memory.count_sessions() == memory.count_sessions(metadata={}) == 6


def test_a_model_may_be_given_by_its_name():
    model = model_by_name("openai:gpt-5-mini", base_url="http://127.0.0.1:9/v1", api_key="k")
    assert isinstance(model, OpenAIChat)
    assert model.name == OpenAIChat("gpt-5-mini", api_key="k").name
    assert isinstance(model_by_name("anthropic:claude-x", api_key="k"), AnthropicChat)
    for wrong in ("gpt-5-mini", "openai:", ":gpt", "bogus:gpt", ""):
        with pytest.raises(UsageError, match="openai:, anthropic:, ollama: or litellm:MODEL"):
            model_by_name(wrong)
        with pytest.raises(UsageError, match="openai:, anthropic:, ollama: or litellm:MODEL"):
            Memory.open(":memory:", llm=wrong)


def test_a_token_counter_may_be_given_by_its_name():
    with Memory.open(":memory:", token_counter="o200k_base") as memory:
        memory.session("s").append(Message.user("Hello"))
        assert memory.sessions()[0].counter == "tiktoken:o200k_base"
    with pytest.raises(UsageError, match="unknown to tiktoken"):
        Memory.open(":memory:", token_counter="o300k")


@pytest.mark.parametrize("closed", [False, True])
async def test_a_full_update_under_a_configuration_is_planned_resumed_and_kept(closed):
    """It is the tree of a session that had the configuration from its first message on."""
    config = HierarchyConfig.by_chars(window_chars=400, group_chars=600, verbatim_tokens=1)

    async def shape(session):
        return [(each.id, each.span) for each in await session.summaries()]

    async with (
        AsyncMemory.open(":memory:") as memory,
        AsyncMemory.open(":memory:", config=config) as other,
    ):
        session, fresh = memory.session("s"), other.session("s")
        for each in (session, fresh):
            await each.append(remarks(60))
            if closed:
                await each.close()
        await session.update()
        plan = await session.update(strategy="full", config=config, dry_run=True)
        cut = await session.update(strategy="full", config=config, limits=Limits(calls=3))
        assert (cut.swapped, (await session.status()).config) == (False, HierarchyConfig())
        report = await session.update(strategy="full", config=config)
        await fresh.update()
        assert report.swapped
        assert plan.calls == cut.calls + report.calls
        assert (await session.status()).config == config
        assert await shape(session) == await shape(fresh)
        assert (await memory.check()).ok


@pytest.mark.parametrize("most", [1, 2])
async def test_an_update_may_have_another_concurrency_than_the_memory(most):
    class Counting(ScriptedLLM):
        remote, now, seen = True, 0, 0
        enough = asyncio.Event()

        async def complete(self, request):
            self.now += 1
            self.seen = max(self.seen, self.now)
            if self.now == most:
                self.enough.set()
            await asyncio.wait_for(self.enough.wait(), 30)  # so many are in flight at once
            await asyncio.sleep(0.01)  # and there is time for more
            self.now -= 1
            return await super().complete(request)

    model = Counting()
    policy = UpdatePolicy(concurrency=3, batch_delay=30.0)
    async with AsyncMemory.open(":memory:", llm=model, update_policy=policy) as memory:
        session = memory.session("s")
        await session.append(Message.user(f"Remark {n}. " * 40) for n in range(60))
        await session.update(1, concurrency=most, batch_delay=0.0)
    assert model.seen == most
