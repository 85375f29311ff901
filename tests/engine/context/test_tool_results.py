"""A coding agent's log: its own words and the failures stand in the context, the bulk does not."""

import re
from contextlib import suppress
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_context import Words, histories

from hiermem import AsyncMemory, BudgetTooSmallError, HierarchyConfig, Message, ToolCall
from hiermem.stores.memory import MemoryStore

STEPS = 30


def output(step: int, cases: int = 180) -> str:
    lines = [f"tests/test_{n}.py::test_{n} PASSED" for n in range(cases)]
    failed = f"FAILED tests/test_store.py::test_retry_{step} - AssertionError: {step} != 3"
    return "\n".join(["collected 181 items", *lines, failed, f"1 failed, {cases} passed"])


def turn(step: int, *, cases: int = 180) -> list[Message]:
    called = ToolCall(f"c{step}", "pytest", f'{{"n":{step}}}')
    note = f"Note {step}: hypothesis {step} is that the lock in module_{step}.py is held too long."
    result = Message.tool(output(step, cases), tool_call_id=called.id)
    return [Message.assistant(note, tool_calls=[called]), result]


async def log_of(steps: int = STEPS, **settings):
    memory = AsyncMemory(store=MemoryStore(), config=HierarchyConfig.by_tokens(**settings))
    session = memory.session("s")
    await session.append(Message.user("Fix the flaky retry. Never touch migrations/."))
    for step in range(steps):
        await session.append(turn(step))
    return memory, session


def told(selection):
    text = selection.to_text()
    notes = set(re.findall(r"hypothesis (\d+) is", text))
    failures = set(re.findall(r"FAILED tests/test_store.py::test_retry_(\d+)", text))
    return len(notes), len(failures), text.count("PASSED")


@pytest.mark.parametrize("budget", [4_000, 8_000, 16_000])
async def test_an_agents_words_and_failures_stand_in_a_context_and_its_tools_noise_does_not(budget):
    """Broken, 87,000 tokens of test logs leave room for three failures and six conclusions."""
    memory, session = await log_of()
    await session.append(Message.assistant("Done."))
    assert (await session.update(dry_run=True)).calls <= STEPS
    await session.update()
    notes, failures, noise = told(await session.context(budget))
    assert notes >= 0.9 * STEPS
    assert failures == STEPS
    assert noise <= STEPS + 1
    await memory.close()


async def test_the_newest_result_is_native_and_fits_whatever_its_length():
    """Broken, an agent cannot go on after a long output, or does not see how it ends."""
    memory, session = await log_of(4)
    await session.append(turn(99, cases=60_000))
    selection = await session.context(8_000)
    assert selection.total_tokens <= 8_000
    last = selection.to_openai()[-1]
    assert last["role"] == "tool"
    assert last["content"].startswith("collected 181 items")
    assert last["content"].endswith("1 failed, 60000 passed")
    assert "test_retry_99" in last["content"]
    await memory.close()


@drawn(120)
@given(
    steps=histories(most=25),
    cases=st.integers(1, 600),
    most=st.sampled_from([40, 300, None]),
    led=st.sampled_from([0, 20, 200]),
    budget=st.integers(50, 3_000),
    asked=st.fixed_dictionaries(
        {},
        optional={
            "query": st.sampled_from(["", "test_retry_7"]),
            "system": st.sampled_from(["Be brief.", "Be brief. " * 150]),
            "strategy": st.just("layered"),
        },
    ),
)
async def test_the_minimum_that_an_error_states_is_accepted_and_the_same_at_each_budget(
    steps, cases, most, led, budget, asked
):
    """Broken, a caller who asks again with the stated minimum is refused again."""
    config = HierarchyConfig.by_tokens(target=150, max_messages=6, tool_result_tokens=most)
    memory = AsyncMemory(store=MemoryStore(), token_counter=Words(), config=config)
    session = memory.session("s")
    await session.append(Message.system("Obey. " * led) if led else Message.user("Begin."))
    await session.pin(0)
    for kind, value in steps:
        if kind == "append":
            await session.append(value)
        elif kind.startswith("update"):
            await session.update(1 if kind == "update1" else None)
    await session.append(turn(7, cases=cases))
    try:
        await session.context(budget, **asked)
    except BudgetTooSmallError as error:
        least = error.minimum
        assert least > budget
        assert (await session.context(least, **asked)).total_tokens <= least
        # A plan that keeps more raw, and so needs a view of fewer roots, may do with less.
        try:
            assert (await session.context(least - 1, **asked)).total_tokens < least
        except BudgetTooSmallError as again:
            assert again.minimum == least
    await memory.close()


async def test_a_result_and_its_excerpt_are_no_common_prefix():
    """Broken, an application is told that its provider cached what was never sent."""
    memory, session = await log_of(0)
    before = ()
    for step in range(5):
        await session.append([*turn(step), Message.assistant("Done.")])
        found = await session.context(8_000)
        sent = [(block.message.content, block.seam) for block in found.blocks]
        pairs = zip(sent, before, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        shared = sum(block.tokens for block in found.blocks[:same])
        # What the last selection showed is compared as a whole.
        assert found.shared_prefix_tokens == (shared if same == len(before) else 0)
        before = sent
    assert told(found)[2] < 180, "the results are still whole"
    await memory.close()


@pytest.mark.parametrize("most", [None, 400])
async def test_a_history_that_fits_has_its_results_whole(most):
    """Broken, room is left empty while the line that matters is left out."""
    memory, session = await log_of(2, tool_result_tokens=most)
    await session.append(Message.assistant("Done."))
    for query in (None, "test_retry_1"):
        assert told(await session.context(16_000, query=query))[2] == 2 * 180
    await memory.close()


async def test_what_an_excerpt_leaves_out_is_found_by_a_question():
    """Broken, the line that answers is in no context, since its message counts as shown."""
    names = [f"berth {n} of the {word} line" for n in range(80) for word in ("red", "grey", "oak")]
    names[120] = "the Ottilie lies in Kopenhagen"
    memory, session = await log_of(2)
    called = ToolCall("ls", "list", "{}")
    await session.append(
        Message.assistant("I look.", tool_calls=[called]),
        Message.tool("\n".join(f"{n * n} {name} {n}" for n, name in enumerate(names)),
                     tool_call_id="ls"),
        Message.user("Where does the Ottilie lie?"),
    )  # fmt: skip
    shown = await session.context(3_000, query="Where does the Ottilie lie?")
    assert "Kopenhagen" in shown.to_text()
    # A history that is whole with excerpts may take the room of recall, down to the budget.
    for budget in range(200, 1_600, 35):
        with suppress(BudgetTooSmallError):
            shown = await session.context(budget, query="Where does the Ottilie lie?")
            assert shown.total_tokens <= budget
    await memory.close()
