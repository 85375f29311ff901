"""Counting a megabyte holds up nobody: what is long is counted beside the event loop."""

import asyncio
import threading

import pytest

from hiermem import AsyncMemory, Limits, Message, UpdatePolicy
from hiermem.config import ExtractionOptions
from hiermem.models.function import FunctionLLM
from hiermem.protocols import LLMResponse, Usage
from hiermem.testing.llms import write
from hiermem.tokens import LONG, TiktokenCounter, default_counter, sizes_of, tokens_of

MEGABYTE = "The pump at the weir ran for 7 hours, and Ada wrote it down. " * 4_000


class Watching:
    """The default counter, which notes every long text that is counted on the loop's thread."""

    def __init__(self):
        self.name = default_counter().name
        self.held_up = []
        self.loop_thread = threading.get_ident()
        self.longest = 0

    def count(self, text):
        self.longest = max(self.longest, len(text))
        if len(text) > LONG and threading.get_ident() == self.loop_thread:
            self.held_up.append(len(text))
        return default_counter().count(text)


def answer(request):
    if request.task == "extract":
        return '{"summary": "The pump at the weir ran for 7 hours."}'
    return LLMResponse(write(request), Usage())


@pytest.mark.thorough
async def test_no_call_counts_a_long_text_on_the_event_loop():
    counter = Watching()
    memory = AsyncMemory.open(
        ":memory:",
        llm=FunctionLLM(answer),
        token_counter=counter,
        update_policy=UpdatePolicy(batch_delay=0),
    )
    async with memory as opened:
        session = opened.session("s")
        await session.append(Message.user("Is the pump on?"), Message.assistant(MEGABYTE))
        await session.append(Message.user("And now?"), Message.assistant("It is off."))
        await session.flush()
        await session.update(limits=Limits(calls=4))
        await session.edit(3, MEGABYTE)
        await session.update(dry_run=True)
        await session.update(limits=Limits(calls=2))
        await session.context(max_tokens=150_000, system=MEGABYTE, query="the pump")
        await session.context(
            max_tokens=150_000, tools=[{"name": "pump", "description": MEGABYTE}], query=MEGABYTE
        )
        await session.search("the weir", limit=3)
        await session.recall("who wrote it down", max_tokens=75_000)
        await session.extract(ExtractionOptions())
    assert counter.longest > 200_000
    assert counter.held_up == []


async def test_the_loop_turns_while_a_megabyte_is_counted():
    """The counter waits for the loop; counted on the loop, it would wait for ever."""
    turned = threading.Event()

    def patient(text):
        assert turned.wait(30), "the event loop stands still while a text is counted"
        return len(text) // 4

    async def heart():
        await asyncio.sleep(0)
        turned.set()

    beating = asyncio.create_task(heart())
    assert await tokens_of(patient, [MEGABYTE, "x" * 8]) == len(MEGABYTE) // 4 + 2
    await beating


@pytest.mark.parametrize("texts", [[], [""], ["one", "two three"], ["a " * LONG, "b"]])
async def test_texts_are_counted_alike_wherever_that_is_done(texts):
    count = TiktokenCounter().count
    assert await sizes_of(count, texts) == [count(text) for text in texts]
    assert await tokens_of(count, texts) == sum(map(count, texts))
