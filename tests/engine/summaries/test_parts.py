"""P8: what was paid for is kept, also where a node takes several requests and a run ends early."""

from __future__ import annotations

import pytest
from editing import regenerating
from session_fixture import SessionFixture, messages, text

from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.core.summaries.parts import PART
from hiermem.engine.log import change
from hiermem.testing.llms import FaultyLLM, ScriptedLLM

#: Its windows hold six messages; a message of many words takes several requests.
SIXES = HierarchyConfig.by_tokens(max_messages=6)
OUTGROWN = 2


async def outgrown(store=None):
    """Give a session of one made window that an edit made too large for one request."""
    fixture = SessionFixture(
        store, config=SIXES, policy=UpdatePolicy(batch_delay=0, concurrency=1, retries=0)
    )
    await fixture.say(messages(7))
    await fixture.update(ScriptedLLM(remote=True))
    await change.edit(regenerating(fixture.handle), "s", OUTGROWN, text(7, 12000))
    return fixture


def requests_of(llm):
    return [tuple(message.content for message in request.messages) for request in llm.requests]


async def kept(fixture):
    return await fixture.tenant.records(PART, scope="s")


async def test_parts_are_paid_for_once_however_often_a_cap_ends_the_run():
    """Broken, a node of n parts is never made under a cap of less than n calls, and always paid."""
    fixture, llm = await outgrown(), ScriptedLLM(remote=True)
    report = await fixture.update(llm, max_calls=1)
    while not report.made:
        assert report.calls == 1
        report = await fixture.update(llm, max_calls=1)
    assert llm.calls == len(set(requests_of(llm))) > 2
    assert await kept(fixture) == []
    again = await fixture.update(llm)
    assert (again.calls, again.made) == (0, 0)
    assert await fixture.untrue() == []


async def test_a_failure_in_the_last_part_costs_only_that_part():
    counted, llm = await outgrown(), ScriptedLLM(remote=True)
    whole = (await counted.update(llm)).calls
    fixture = await outgrown()
    inner = ScriptedLLM(remote=True)
    llm = FaultyLLM(inner, [None] * (whole - 1) + ["server_error"])
    first = await fixture.update(llm)
    assert first.failed == 1
    await fixture.update(llm)
    assert inner.calls == len(set(requests_of(inner))) == whole
    assert await kept(fixture) == []


@pytest.mark.parametrize("way", ["erase", "quarantine"])
async def test_what_is_taken_out_takes_the_parts_with_it(way):
    """Broken, an answer that tells of an erased message stays in the store."""
    fixture, llm = await outgrown(), ScriptedLLM(remote=True)
    await fixture.update(llm, max_calls=2)
    assert len(await kept(fixture)) == 2
    await change.erase(fixture.handle, "s", [OUTGROWN], kind=way)
    assert await kept(fixture) == []


async def test_an_answer_that_comes_after_the_erasure_is_not_kept():
    fixture = await outgrown()

    class Erasing(ScriptedLLM):
        async def complete(self, request):
            response = await super().complete(request)
            if self.calls == 1:
                await change.erase(fixture.handle, "s", [OUTGROWN])
            return response

    await fixture.update(Erasing(remote=True), max_calls=2)
    assert await kept(fixture) == []


async def test_a_part_of_what_was_edited_since_is_not_taken():
    fixture, llm = await outgrown(), ScriptedLLM(remote=True)
    await fixture.update(llm, max_calls=1)
    await change.edit(regenerating(fixture.handle), "s", OUTGROWN, text(8, 12000))
    await fixture.update(llm)
    assert await fixture.untrue() == []
    assert await kept(fixture) == []
