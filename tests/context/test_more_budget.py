"""A larger budget shows no less, and a window is cut only where the budget is too small for it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_live_context import minutes, reports

from hiermem import AsyncMemory, HierarchyConfig
from hiermem.stores.memory import MemoryStore

BUDGETS = range(1_200, 6_200, 400)


async def told(messages, *, target=400, llm=minutes):
    config = HierarchyConfig.by_tokens(target=target)
    memory = AsyncMemory(store=MemoryStore(), config=config, llm=llm)
    session = memory.session("s")
    await session.append(messages)
    await session.update()
    return session


def days_in(selection):
    """Return the numbers of the reports of which a line or the message itself stands."""
    return set(map(int, re.findall(r"day (\d+)", selection.to_text())))


@drawn(10)
@given(count=st.integers(40, 120), target=st.sampled_from([200, 400, 700]), data=st.data())
async def test_what_stands_under_a_line_stands_at_a_larger_budget_too(count, target, data):
    """Broken: 5 of 18 facts that a chat's questions need stood at 4,000 tokens and not at 8,000."""
    session = await told(reports(count), target=target)
    small, large = sorted(data.draw(st.lists(st.integers(900, 4_000), min_size=2, max_size=2)))
    less = await session.context(small, sticky=False)
    more = await session.context(large, sticky=False)
    raw = {stored.index for stored in more.recent_messages}
    nodes = {each.id: each for each in await session.summaries()}
    lines = {
        line.split(": ", 1)[1]: each.span
        for each in nodes.values()
        for line in each.text.splitlines()
        if "painted" in line
    }

    def under(selection):
        spans = [span for line, span in lines.items() if line in selection.to_text()]
        return {index for span in spans for index in range(span.start, span.stop)}

    assert under(less) <= under(more) | raw
    assert set(less.shown.messages) <= set(more.shown.messages)


async def test_a_level_stands_whole_and_what_is_left_says_something_new():
    """Broken: two thirds of a level's lines, chosen one by one, said less than the level above."""
    session = await told(reports(160))
    before: set[int] = set()
    for budget in BUDGETS:
        found = await session.context(budget, sticky=False)
        now = days_in(found)
        assert len(before - now) <= 1, f"{sorted(before - now)} stood in less than {budget} tokens"
        before = now
        [view] = [block for block in found.blocks if block.kind == "view"]
        said = [line for line in view.text.splitlines() if "painted" in line]
        numbers = [line.split("day ")[1].split()[0] for line in said]
        assert len(numbers) == len(set(numbers)), "a finer line repeats the coarser one"
        told_days = [line for line in view.text.splitlines() if re.fullmatch(r"\[[\d-]+\]", line)]
        assert told_days == sorted(set(told_days)), "each day once, in order"


async def test_the_assistants_lists_go_before_the_users_words():
    """Broken: of a text that did not fit, decisions went and 65 of 81 lists stayed."""

    def both(request):
        numbers = dict.fromkeys(
            re.findall(r"door (\d+)", "\n".join(i.text for i in request.inputs))
        )
        words = [f"- On day {n} door {n} was painted red." for n in numbers]
        lists = [f"- The assistant listed what they had painted: door {n}." for n in numbers]
        least = max(1, request.target_tokens // 30)
        return "\n".join(["## Key points", *words[:least], *lists[:least]])

    session = await told(reports(120), llm=both)
    shown = []
    for budget in (650, 750, 850):
        text = (await session.context(budget, sticky=False)).to_text()
        shown.append((text.count("was painted"), text.count("The assistant listed")))
    assert all(words > 2 * lists for words, lists in shown), shown


@pytest.mark.parametrize("llm", [None, minutes], ids=["extracts", "model"])
async def test_the_verbatim_part_begins_with_a_whole_window(llm):
    """Broken: of a window that the budget cut, two sentences stood."""
    session = await told(reports(120), llm=llm)
    edges = {each.span.start for each in await session.summaries(1)}
    opened = (await session.status()).open_windows
    edges |= {each.begin.index for each in opened}
    for budget in BUDGETS[2:]:
        found = await session.context(budget, sticky=False)
        assert found.recent_messages[0].index in edges
