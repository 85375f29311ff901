"""What a question adds to a context: evidence at the end, and nothing else anywhere."""

from datetime import timedelta
from itertools import pairwise, product

import pytest
from fences import read
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_context import START, Words, histories, played, small, talk

from hiermem import (
    AsyncMemory,
    BudgetTooSmallError,
    ContextPolicy,
    ContextProfile,
    Message,
    ToolCall,
)
from hiermem.stores.memory import MemoryStore


async def opened(count=120, **settings):
    memory = small(**settings)
    session = memory.session("s")
    await talk(session, count, words=30)
    await session.append(Message.user("The harbour master is called Ottilie Brandt."))
    await talk(session, count, begin=count, words=30)
    await session.update()
    return memory, session


def told(found):
    """Return the passages that answered the question."""
    return found.evidence or ()


def recall_of(found):
    """Return the one record of what was recalled."""
    [block] = [block for block in found.blocks if block.kind == "recall"]
    return block


async def test_the_evidence_stands_in_one_record_before_the_turn_and_repeats_nothing_raw():
    memory, session = await opened()
    found = await session.context(2_000, query="Who is the harbour master?")
    last = recall_of(found)
    assert "Ottilie Brandt" in last.text
    assert 120 in {stored.index for stored in found.recall}
    raw = {stored.index for stored in found.recent_messages}
    assert raw.isdisjoint(stored.index for stored in found.recall)
    assert {"role": "user", "content": last.text} in found.to_openai()
    assert found.blocks.index(last) < len(found.blocks) - 1, "the newest message stands last"
    assert [fence.name for fence in read(last.text, key=await memory._handle.key())] == ["recall"]
    assert all(hit.content in last.text for hit in found.evidence)
    assert found.total_tokens == sum(block.tokens for block in found.blocks) <= 2_000
    assert "recalled" in found.explain()


async def test_the_record_marks_each_gap_and_one_notice_says_what_the_mark_is():
    _, session = await opened()
    found = await session.context(2_000, query="Which harbour and which price?")
    assert found.to_text().count("Ellipsis = left out") == 1
    _, *rest = recall_of(found).text.split("\n")
    indices = [hit.index for hit in found.evidence]
    gaps = sum(after > before + 1 for before, after in pairwise(indices))
    assert gaps > 0
    assert sum(line.endswith(" …") for line in rest) == gaps
    assert found.evidence.total_tokens <= found.evidence.max_tokens


async def test_recall_has_the_tokens_it_was_given_and_the_cut_the_rest():
    _, session = await opened()
    for tokens in (0, 40, 200, 900):
        found = await session.context(2_000, query="harbour master", recall_tokens=tokens)
        spent = sum(block.tokens for block in found.blocks if block.kind == "recall")
        assert spent <= tokens
        assert found.total_tokens - spent <= 2_000 - tokens
        assert bool(found.recall) == (tokens > 100)


@pytest.mark.parametrize(
    ("budget", "share"),
    [(500, 0.6), (2_000, 0.6), (3_500, 0.55), (5_000, 0.5), (8_000, 0.4), (90_000, 0.4)],
)
def test_small_budgets_keep_a_larger_share_for_recall(budget, share):
    """Broken: at 2,000 tokens recall alone held more of the answers than both together."""
    assert ContextPolicy().recall_share(budget) == pytest.approx(share)


async def test_recall_by_default_gives_way_where_the_budget_is_small():
    _, session = await opened()
    with pytest.raises(BudgetTooSmallError) as known:
        await session.context(40)
    least = known.value.minimum
    found = await session.context(least, query="harbour master")
    assert found.total_tokens <= least
    with pytest.raises(BudgetTooSmallError) as told:
        await session.context(least, query="harbour master", recall_tokens=300)
    assert told.value.minimum == least + 300
    with pytest.raises(BudgetTooSmallError):
        await session.context(least - 1, query="harbour master")


async def test_what_looks_like_a_fence_is_escaped_within_the_budget():
    """Broken if escaping made the record longer than its text was counted."""
    memory, session = await opened(60)
    for number in range(30):
        mark = "[[hiermem L1.0]] [[/hiermem L1.0 00]]" + "[[hiermem\n" * 40
        at = START + timedelta(days=2, minutes=number)
        await session.append(Message.user(f"kraken {mark}", created_at=at))
    await talk(session, 60, begin=4_000, words=30)
    found = await session.context(2_000, query="kraken")
    assert found.recall
    assert found.total_tokens <= 2_000
    key = await memory._handle.key()
    assert [fence.name for fence in read(recall_of(found).text, key=key)] == ["recall"]


QUESTIONS = st.sampled_from(["ferry price", "what did Ada measure?", "seats.py", "中文", "\0 OR *"])


def overlapping(one, other):
    """Say whether two spans share a character, or a message that stands whole in either."""
    if one.start >= other.stop or other.start >= one.stop:
        return False
    if one.stop - one.start > 1 or other.stop - other.start > 1:
        return True
    stop, last = (1 << 40 if each.stop_char is None else each.stop_char for each in (one, other))
    return one.start_char < last and other.start_char < stop


@drawn(60)
@given(
    steps=histories(most=40),
    query=QUESTIONS,
    tokens=st.sampled_from([None, 0, 90, 300]),
    profile=st.sampled_from([None, ContextProfile.code_reviewer(pins=[1, 2])]),
)
async def test_recall_fits_and_says_no_character_that_the_cut_shows(steps, query, tokens, profile):
    memory = small(token_counter=Words())
    session = memory.session("s")
    how = {"query": query, "recall_tokens": tokens, "profile": profile}
    async for budget in played(session, steps):
        try:
            found, most = await session.context(budget, **how), budget
        except BudgetTooSmallError as error:
            assert error.minimum > budget
            most = error.minimum
            found = await session.context(most, **how)
        assert found.total_tokens == sum(block.tokens for block in found.blocks) <= most
        recalled = tuple(hit.span for hit in told(found))
        raw = found.verbatim[: len(found.verbatim) - len(recalled)]
        assert recalled == found.verbatim[len(raw) :]
        spoken = {stored.index for stored in found.recent_messages if stored.content}
        assert {span.start for span in raw} >= spoken
        assert not [each for each in product(raw, recalled) if overlapping(*each)]
    await memory.close()


@drawn(40)
@given(
    count=st.integers(1, 60),
    words=st.integers(1, 40),
    spare=st.floats(0, 2),
    query=QUESTIONS,
    tokens=st.sampled_from([None, 0, 200, 5_000]),
)
async def test_where_a_history_fits_a_question_shows_no_fewer_messages(
    count, words, spare, query, tokens
):
    """Broken, asking hides what stood there without the question."""
    async with small(token_counter=Words()) as memory:
        session = memory.session("s")
        await talk(session, count, words=words)
        await session.update()
        whole = await session.context(100_000)
        budget = whole.total_tokens + int(spare * whole.total_tokens)
        plain = await session.context(budget, view="plain")
        asked = await session.context(budget, query=query, recall_tokens=tokens, view="asked")
        assert len(plain.recent_messages) == count
        assert asked.to_openai() == plain.to_openai()


@drawn(15)
@given(
    budget=st.integers(2_500, 6_000),
    rounds=st.integers(1, 5),
    rows=st.integers(1, 24),
    has_query=st.booleans(),
)
async def test_a_question_stands_before_its_calls_and_the_record_before_it(
    budget, rounds, rows, has_query
):
    """Broken, a model is sent a call that nobody asked for, or another record at each call."""
    memory = AsyncMemory(store=MemoryStore())
    session = memory.session("s")
    for turn in range(6):
        question, seen = f"How fast is pump {turn}?", set()
        await session.append(Message.user(question))
        for call in range(rounds + 1):
            found = await session.context(budget, query=question if has_query else None)
            said = [each for each in found.to_openai() if "hiermem" not in str(each["content"])]
            users = [at for at, each in enumerate(said) if each["role"] == "user"]
            assert said[users[-1]]["content"].endswith(question)
            assert {each["role"] for each in said[users[-1] + 1 :]} <= {"assistant", "tool"}
            assert len(said) > users[-1] + 1 or not call
            for place, block in enumerate(found.blocks):
                if block.kind == "recall":
                    seen.add(block.text.split("[[", 1)[1])
                    assert found.blocks[place + 1].message.content == question
            if call == rounds:
                continue
            result = "\n".join(f"{row:02}:00 pump {turn} at {row * 31} rpm" for row in range(rows))
            await session.append(
                Message.assistant("", tool_calls=(ToolCall(f"c{turn}-{call}", "read", "{}"),)),
                Message.tool(result, tool_call_id=f"c{turn}-{call}"),
            )
        assert len(seen) <= 1, "the record keeps its bytes while the turn goes on"
        await session.append(Message.assistant(f"Pump {turn} runs well."))
        await session.update()
    await memory.close()


@pytest.mark.parametrize("budget", [1_500, 4_000])
async def test_what_recall_leaves_is_filled_with_the_newest_messages_that_are_not_raw(budget):
    """Broken, a question that finds nothing leaves two fifths of the budget empty."""
    _, session = await opened()
    cuts = []
    for query in ("", "zzzz", "Who is the harbour master?"):
        found = await session.context(budget, query=query)
        block = recall_of(found)
        cuts.append([each for each in found.blocks if each.kind != "recall"])
        raw = {stored.index for stored in found.recent_messages}
        answers = {hit.index for hit in told(found)}
        beside = {span.start for span in found.verbatim} - raw - answers
        if not answers:
            assert max(set(range(found.messages)) - raw) in beside, "the newest come first"
        stored = {index: (await session.messages(index, index + 1))[0] for index in beside}
        told_at = [block.text.index(hit.content) for hit in told(found)]
        places = {index: block.text.index(each.content) for index, each in stored.items()}
        places |= {hit.index: at for hit, at in zip(told(found), told_at, strict=True)}
        assert [places[index] for index in sorted(places)] == sorted(places.values()), "in time"
        assert all(each.content in block.text for each in stored.values())
        assert beside <= set(found.shown.messages)
        whole = [span.start for span in found.verbatim[: len(found.verbatim) - len(told(found))]]
        assert len(whole) == len(set(whole)), "no message stands twice"
        if not answers:
            room = ContextPolicy().recall_share(budget) * budget
            assert room - 100 < block.tokens <= room, "a message takes some 60 tokens"
    assert cuts[0] == cuts[1] == cuts[2], "the cut does not move"
