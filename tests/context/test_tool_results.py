"""A coding agent's log: its own words and the failures stand in the context, the bulk does not."""

import re
from contextlib import suppress
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_context import SMALL, Words, histories, played

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
    config = HierarchyConfig.by_tokens(**settings)
    session = AsyncMemory(store=MemoryStore(), config=config).session("s")
    await session.append(Message.user("Fix the flaky retry. Never touch migrations/."))
    for step in range(steps):
        await session.append(turn(step))
    return session


def told(selection):
    text = selection.to_text()
    notes = set(re.findall(r"hypothesis (\d+) is", text))
    failures = set(re.findall(r"FAILED tests/test_store.py::test_retry_(\d+)", text))
    return len(notes), len(failures), text.count("PASSED")


async def test_an_agents_words_and_failures_stand_in_a_context_and_the_newest_results_whole():
    """Broken, 87,000 tokens of test logs leave room for three failures and six conclusions.

    Or no result stands whole while one does not fit, and most of the budget is empty.
    """
    session = await log_of()
    await session.append(Message.assistant("Done."))
    assert (await session.update(dry_run=True)).calls <= STEPS
    await session.update()
    for budget in (4_000, 8_000, 16_000, 40_000):
        found = await session.context(budget, view=str(budget))
        notes, failures, noise = told(found)
        assert notes >= 0.9 * STEPS
        assert failures == STEPS
        results = [str(each.content) for each in found.recent_messages if each.role == "tool"]
        whole = [result == output(step) for step, result in enumerate(results[-STEPS:])]
        assert whole == sorted(whole), "they are the newest"
        assert noise - 180 * sum(whole) <= STEPS + 1
        assert found.total_tokens >= 0.75 * budget, budget
    assert sum(whole) > STEPS // 2


@drawn(25)
@given(
    cases=st.lists(st.sampled_from([1, 20, 180, 400]), min_size=3, max_size=50),
    asks=st.sampled_from([5, 10, 100]),
    budgets=st.lists(st.integers(2_500, 60_000), min_size=2, max_size=6),
)
async def test_a_larger_budget_shows_no_fewer_of_an_agents_words_and_failures(cases, asks, budgets):
    """Broken, a log that all but fits is shown worse than in half of the room."""
    session = await log_of(0)
    for step, number in enumerate(cases):
        asked = [Message.user(f"Go on with part {step}.")] if step % asks == asks - 1 else []
        await session.append([*asked, *turn(step, cases=number)])
    await session.update()
    before = (0, 0)
    for budget in sorted(budgets):
        found = await session.context(budget, view=str(budget))
        assert found.total_tokens <= budget
        notes, failures, _ = told(found)
        assert notes >= before[0]
        assert failures >= before[1]
        before = (notes, failures)


async def test_results_stay_whole_until_they_do_not_fit_and_then_give_up_most_of_their_room():
    """Broken, each new message of a tool loop changes an old one, and no prefix is kept."""
    session = await log_of(0)
    changed, before = [], []
    for step in range(STEPS):
        await session.append(turn(step))
        found = await session.context(12_000)
        assert found.total_tokens <= 12_000
        sent = [block.text or str(block.message.content) for block in found.blocks]
        if before and sent[: len(before)] != before:
            changed.append(step)
        before = sent
    assert 2 <= len(changed) <= STEPS // 4


TABLES = {
    "csv": ("id,day,amount", lambda n: f"{n},2024-01-{n % 28 + 1:02},{n % 90}.50"),
    "log": ("started", lambda n: f"10:{n // 60 % 60:02}:{n % 60:02} worker-{n % 7} did job {n}"),
    "listing": ("total 9", lambda n: f"-rw-r--r-- root {n * 13} Jan {n % 28 + 1} file_{n}.txt"),
    "chinese": ("编号,城市", lambda n: f"{n},北京,客户{n % 9},已付款"),
    "one line": ('{"items": [', lambda n: f'{{"id": {n}, "price": {n * 3}}}'),
}


@drawn(20)
@given(
    kind=st.sampled_from(sorted(TABLES)),
    budget=st.integers(900, 20_000),
    after=st.integers(0, 3),
    live=st.booleans(),
    options=st.sampled_from(
        [{}, {"sticky": False}, {"reserve_for_messages": 300}, {"query": "zebra quantum"}]
    ),
)
async def test_an_excerpt_counts_as_one_and_takes_the_room_that_is_free(
    kind, budget, after, live, options
):
    """Broken, 32 of 113,000 characters stand in an empty context and count as the whole."""
    head, row = TABLES[kind]
    text = (", " if kind == "one line" else "\n").join([head, *map(row, range(9_000)), "the end"])
    session = await log_of(0)
    if live:
        await session.context(budget)
    call = ToolCall("read", "read", "{}")
    said = Message.assistant("I read it.", tool_calls=[call])
    await session.append([said, Message.tool(text, tool_call_id="read")])
    for n in range(after):
        await session.append(Message.user(f"And {n}?") if n % 2 else Message.assistant("It is so."))
    found = await session.context(budget, **options)
    assert 0.7 * budget <= found.total_tokens <= budget
    (short,) = [block for block in found.blocks if block.kind == "excerpt"]
    shown = str(short.message.content)
    assert shown.count("\n") > 5, "the rows are no sample"
    assert head in shown
    assert "the end" in shown
    assert "excerpts: 1 messages, 2, " in found.explain()
    assert 2 not in {span.start for span in found.verbatim}
    assert sum(each.excerpted for each in found.shown.by_quarter) == 1
    assert sum(each.verbatim for each in found.shown.by_quarter) == 2 + after
    again = await session.context(budget, **options)
    assert again.to_openai() == found.to_openai()


async def test_results_that_are_longer_than_the_budget_share_it_and_seldom_change():
    """Broken, the first takes all the room for good, or each new one changes those before."""
    session = await log_of(0)
    changed, before = 0, []
    for step in range(16):
        await session.append(turn(step, cases=1_500))
        found = await session.context(12_000)
        assert found.total_tokens <= 12_000
        shown = [len(str(each.content)) for each in found.recent_messages if each.role == "tool"]
        assert shown[-1] > 3_000
        sent = [block.text or str(block.message.content) for block in found.blocks]
        changed += bool(before) and sent[: len(before)] != before
        before = sent
    assert changed <= 16 // 3 + 1


async def test_the_newest_result_is_native_and_fits_whatever_its_length():
    """Broken, an agent cannot go on after a long output, or does not see how it ends."""
    session = await log_of(4)
    await session.append(turn(99, cases=60_000))
    selection = await session.context(8_000)
    assert selection.total_tokens <= 8_000
    last = selection.to_openai()[-1]
    assert last["role"] == "tool"
    assert last["content"].startswith("collected 181 items")
    assert last["content"].endswith("1 failed, 60000 passed")
    assert "test_retry_99" in last["content"]


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
    config = HierarchyConfig.by_tokens(**SMALL, tool_result_tokens=most)
    memory = AsyncMemory(store=MemoryStore(), token_counter=Words(), config=config)
    session = memory.session("s")
    await session.append(Message.system("Obey. " * led) if led else Message.user("Begin."))
    await session.pin(0)
    async for _ in played(session, steps):
        pass
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


async def test_a_result_and_its_excerpt_are_no_common_prefix():
    """Broken, an application is told that its provider cached what was never sent."""
    session = await log_of(0)
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
    assert told(found)[2] < 2 * 180, "the results are still whole"


@pytest.mark.parametrize("most", [None, 400])
async def test_a_history_that_fits_has_its_results_whole(most):
    """Broken, room is left empty while the line that matters is left out."""
    session = await log_of(2, tool_result_tokens=most)
    await session.append(Message.assistant("Done."))
    for query in (None, "test_retry_1"):
        assert told(await session.context(16_000, query=query))[2] == 2 * 180


async def test_what_an_excerpt_leaves_out_is_found_by_a_question():
    """Broken, the line that answers is in no context, since its message counts as shown."""
    names = [f"berth {n} of the {word} line" for n in range(80) for word in ("red", "grey", "oak")]
    names[120] = "the Ottilie lies in Kopenhagen"
    session = await log_of(2)
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
