"""A slow server on this machine, behind llama.cpp for example: one call at a time, and patience."""

import pytest
from provider import Provider
from stand_ins import talk as turns

from hiermem import AsyncMemory, ExtractionOptions, UpdatePolicy
from hiermem.config import for_model
from hiermem.errors import ModelError
from hiermem.models.anthropic import AnthropicChat
from hiermem.models.function import FunctionLLM
from hiermem.models.openai import OpenAIChat


def talk(windows):
    return turns(10 * windows, "Message {n}: pump {n} was set to {n}7 rpm. " * 3)


@pytest.mark.parametrize("kind", [OpenAIChat, AnthropicChat])
async def test_an_address_of_this_machine_gets_one_call_at_a_time_and_ten_minutes(kind):
    with Provider(latency=0.05) as provider:
        url = provider.openai_url if kind is OpenAIChat else provider.url
        model = kind("tiny", base_url=url, api_key=provider.key)
        async with AsyncMemory.open(
            ":memory:", llm=model, update_policy=UpdatePolicy(batch_delay=0)
        ) as memory:
            policy = memory._handle.update_policy
            assert (policy.concurrency, policy.call_timeout, model._timeout) == (1, 600.0, 600.0)
            session = memory.session("s")
            await session.append(*talk(4))
            assert (await session.update()).made == 4
            await session.extract(ExtractionOptions())
            assert provider.peak == 1


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:11434/v1", True), ("http://127.0.0.1:8080", True),
        ("http://127.3.2.1/v1", True), ("http://[::1]:8000/v1", True),
        ("http://192.168.1.4:8000/v1", False), ("https://api.example.com/v1", False),
        ("https://localhost.example.com/v1", False), (None, False),
    ],
)  # fmt: skip
def test_what_was_set_is_kept_and_other_addresses_are_not_slow(url, local):
    model = OpenAIChat("m", base_url=url, api_key="k" * 20)
    assert model.local_server is local
    assert model._timeout == (600.0 if local else 120.0)
    assert OpenAIChat("m", base_url=url, api_key="k" * 20, timeout=30.0)._timeout == 30.0
    plain = for_model(UpdatePolicy(), model)
    assert (plain.concurrency, plain.call_timeout) == ((1, 600.0) if local else (3, 120.0))
    chosen = UpdatePolicy(concurrency=3, call_timeout=120.0)
    assert for_model(chosen, model) == chosen, "what was set to the default was set"
    half = for_model(UpdatePolicy(concurrency=5), model)
    assert (half.concurrency, half.call_timeout) == (5, 600.0 if local else 120.0)
    options = for_model(ExtractionOptions(), model)
    assert options.call_timeout == (600.0 if local else 300.0)


async def test_a_call_that_was_late_is_repeated_once_and_given_twice_the_time():
    """The same patience again would end the same way, and again after that."""
    asked = []

    async def late(request):
        asked.append(request.patience)
        raise ModelError("late", kind="timeout")

    policy = UpdatePolicy(batch_delay=0, retries=9)
    async with AsyncMemory.open(":memory:", llm=FunctionLLM(late), update_policy=policy) as memory:
        session = memory.session("s")
        await session.append(*talk(1))
        report = await session.update()
        assert (report.failed, asked) == (1, [1.0, 2.0])
