"""P9: what a dry run announces is what the run takes, and all counts of an update agree."""

import logging
import re
from datetime import timedelta

import pytest
from editing import regenerating
from hypothesis import example, given
from hypothesis import strategies as st
from sampling import drawn
from session_fixture import START, SessionFixture, messages, text

from hiermem import AsyncMemory, Limits
from hiermem.changes import change
from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.context import read as reading
from hiermem.errors import ConfigError, ModelError
from hiermem.models.function import FunctionLLM
from hiermem.protocols import LLMRequest
from hiermem.testing.llms import ScriptedLLM, write
from hiermem.tree.status import waits
from hiermem.types import Message
from hiermem.upkeep import read_metrics as measured


def refusing(request: LLMRequest) -> str:
    return "I cannot help."


def remote(answer, name="remote", **settings) -> FunctionLLM:
    """Return a model that reports no usage, so that the journal holds our own count."""
    return FunctionLLM(answer, name=name, **settings)


def chatter(draw) -> list[Message]:
    """Draw a conversation with speakers, days, long lines and code."""
    lines = draw(st.lists(st.integers(0, 120), min_size=12, max_size=50))
    code = draw(st.booleans())
    spoken = draw(st.booleans())
    step = draw(st.sampled_from([20, 4_000, 100_000]))
    return [
        (Message.assistant if n % 2 else Message.user)(
            text(n, words) + ("\n```\n    a = 1\n\n    b = 2\n```" if code and n % 3 == 0 else ""),
            name=("Caroline", "Melanie")[n % 2] if spoken else None,
            created_at=START + timedelta(seconds=step * n),
        )
        for n, words in enumerate(lines)
    ]


conversations = st.composite(chatter)()


# -- what a dry run announces


@drawn(25)
@given(
    history=conversations,
    again=st.booleans(),
    config=st.sampled_from([HierarchyConfig.by_tokens, HierarchyConfig]).map(
        lambda make: make(overlap=400)
    )
    | st.sampled_from([HierarchyConfig.by_tokens(), HierarchyConfig()]),
)
async def test_p9_a_plan_names_the_calls_the_answers_and_the_requests_to_10_percent(
    history, again, config
):
    """Broken, whoever agreed to a price pays another one."""
    fixture = SessionFixture(policy=UpdatePolicy(batch_delay=0), config=config)
    await fixture.say(history * (1 + again))
    asked: list[int] = []

    def answer(request: LLMRequest) -> str:
        asked.append(request.target_tokens)
        return write(request)

    plan = await fixture.update(remote(answer), dry_run=True)
    assert plan.calls_max == 2 * plan.calls
    report = await fixture.update(remote(answer))
    assert (plan.calls, plan.tokens_out) == (report.calls, sum(asked))
    assert abs(plan.tokens_in - report.tokens_in) <= 0.1 * report.tokens_in


# -- the counts of an update agree


def refusing_some(request: LLMRequest) -> str:
    """Refuse the windows of one topic."""
    said = request.messages[-1].content
    refused = request.level == 1 and ("case-7" in said or "case-33" in said)
    return "I cannot help." if refused else write(request)


def down(request: LLMRequest) -> str:
    raise ModelError("503", charged=False, kind="transient")


async def queue_of(fixture: SessionFixture) -> int:
    """Count what is to be made in every place that says it; all must say the same."""
    status = await reading.status(fixture.handle, "s")
    figures = await measured.metrics(fixture.handle, "s", None)
    stored = await fixture.nodes()
    counted = sum(waits(node) for node in stored)
    assert sum(status.queue.values()) == figures.queue == counted
    assert {level.level: level.queue for level in figures.levels} == status.queue
    assert {level.level: level.degraded for level in figures.levels} == status.degraded
    stand_ins = sum(node.degraded and not waits(node) for node in stored)
    assert sum(status.unfinished.values()) == counted + stand_ins
    for level in figures.levels:
        without = sum(not node.revision for node in stored if node.level == level.level)
        assert level.nodes == level.made + level.degraded + without
    return counted


LEVELS = HierarchyConfig.by_tokens()


@drawn(25)
@given(
    count=st.sampled_from([12, 30, 52, 60]),
    steps=st.lists(
        st.tuples(
            st.sampled_from([write, write, refusing, refusing_some, down]),
            st.sampled_from(["", "edit", "append", "hours", "hours"]),
            st.sampled_from([None, None, None, 3]),
        ),
        min_size=1,
        max_size=4,
    ),
)
@example(count=52, steps=[(refusing_some, "", None), (write, "hours", None)])
async def test_all_counts_of_an_update_agree(count, steps):
    """Broken, the plan, the progress, the report and the journal tell different stories."""
    fixture = SessionFixture(
        config=LEVELS, policy=UpdatePolicy(batch_delay=0, concurrency=2, retries=0, down_after=3)
    )
    await fixture.say(messages(count))
    for answer, before, most in steps:
        if before == "edit":
            await change.edit(regenerating(fixture.handle), "s", count // 2, text(3))
        elif before == "append":
            await fixture.say(messages(12, start=count))
            count += 12
        elif before == "hours":
            fixture.now += timedelta(hours=2)
        waited = await queue_of(fixture)
        llm = remote(answer)
        plan = await fixture.update(llm, dry_run=True)
        seen = []
        report = await fixture.update(llm, limits=Limits(calls=most), on_progress=seen.append)
        done = {level: done for level, (done, _) in seen[-1].by_level.items()}
        assert all(done[level] >= made for level, made in report.by_level.items())
        assert sum(report.by_level.values()) == report.made + report.reused + report.degraded
        assert [each.done for each in seen] == sorted(each.done for each in seen)
        if not report.failed and report.stopped is None:
            assert (seen[-1].done, report.by_level) == (seen[-1].total, plan.by_level)
        if report.run_id is not None:
            detail = (await fixture.tenant.run(report.run_id)).detail
            assert detail["queue"] == waited
            told = {int(level): made for level, made in detail["by_level"].items()}
            assert (told, detail["degraded"]) == (report.by_level, report.degraded)
        left = await queue_of(fixture)
        if not report.failed and report.stopped is None:
            assert left == 0


# -- a model whose code is broken


def two_arguments(request: LLMRequest, other: object) -> str:
    return "never"


def no_answer(request: LLMRequest) -> None:
    return None


def own_words(request: LLMRequest) -> str:
    raise ValueError(f"no file of model {request.task!r} is found")


def wrong_name(request: LLMRequest) -> str:
    return request.prompt  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "said", "place"),
    [
        (two_arguments, "missing 1 required positional argument: 'other'", "function.py:"),
        (no_answer, "returned NoneType; return text", "function.py:"),
        (own_words, "ValueError: no file of model … is found", "in own_words"),
        (wrong_name, "'LLMRequest' object has no attribute 'prompt'", "in wrong_name"),
    ],
)
async def test_a_broken_function_says_what_is_wrong_and_where(function, said, place, caplog):
    """Broken, whoever wrote it sees extracts and "permanent", and nothing to mend it by."""
    fixture = SessionFixture(policy=UpdatePolicy(batch_delay=0, retries=0))
    await fixture.say(messages(30))
    with caplog.at_level(logging.DEBUG):
        report = await fixture.update(remote(function))
    assert report.made == 0
    error = (await reading.status(fixture.handle, "s")).last_error
    assert said in error
    assert place in error
    assert report.run_id is not None
    for item in (await reading.run(fixture.handle, report.run_id)).items:
        assert said in item.reasons[0]
    told = [record.getMessage() for record in caplog.records if said in record.getMessage()]
    assert len(told) == 1, "it is told once in a run, not for each summary"
    assert place in told[0]
    for said_of_users in (text(n)[:20] for n in range(30)):
        assert said_of_users not in caplog.text


async def test_each_task_says_what_is_wrong_with_a_function():
    """Broken, only an update does."""
    async with AsyncMemory.open(":memory:", llm=remote(wrong_name)) as memory:
        session = memory.session("s")
        await session.append(messages(30))
        said = "'LLMRequest' object has no attribute 'prompt'"
        failure = (await session.extract()).failures[0]
        assert said in failure.detail
        space = memory.space("b", rules="# Rules\n\n## `facts.md`\n\nFacts.\n")
        await space.note("Valve 4 is open.")
        assert said in (await space.consolidate()).message


# -- a window that is too small


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_window_with_no_room_beside_the_prompt_is_refused(dry_run):
    """Broken, a summary of ten messages takes ten calls, or every summary is an extract."""
    fixture = SessionFixture(policy=UpdatePolicy(batch_delay=0, retries=0))
    await fixture.say(messages(30))
    small = ScriptedLLM(context_window=300)
    with pytest.raises(ConfigError, match="context_window 300 is too small") as refused:
        await fixture.update(small, dry_run=dry_run)
    assert small.calls == 0
    least = int(re.search(r"at least ([\d,]+)", str(refused.value))[1].replace(",", ""))
    with pytest.raises(ConfigError):
        await fixture.update(ScriptedLLM(context_window=least - 1), dry_run=dry_run)
    enough = ScriptedLLM(context_window=least)
    report = await fixture.update(enough)
    assert (report.made, report.degraded, report.failed) == (3, 0, 0)
