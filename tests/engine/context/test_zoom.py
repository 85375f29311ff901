"""Zooming shows what a question is about in full, and still everything else, inside the budget."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from cover_oracle import check_cover
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_context import Words, histories
from test_recalled import SMALL, opened

from hiermem import (
    AsyncMemory,
    BudgetTooSmallError,
    ContextBudget,
    ContextSelection,
    HierarchyConfig,
    Memory,
    Message,
    NotFoundError,
    UsageError,
)
from hiermem.core.text.measure import body
from hiermem.engine.context import select
from hiermem.engine.context.select import Request
from hiermem.engine.context.zoom import refined
from hiermem.engine.handle import state_from
from hiermem.stores.memory import MemoryStore


async def test_the_stretch_that_a_question_is_about_stands_word_for_word():
    _, session = await opened()
    plain = await session.context(2_000)
    near = await plain.zoom("Who is the harbour master?")
    assert "harbour master is called Ottilie Brandt" in near.to_text()
    assert 120 in {stored.index for stored in near.recall}
    assert near.total_tokens <= 2_000
    assert near.coverage == 1.0
    assert near.recent_messages == plain.recent_messages
    assert any(block.kind == "quote" and block.message is None for block in near.blocks)
    assert "in full" in near.explain()
    again = await near.zoom("2024-03-15")
    assert again.total_tokens <= 2_000


async def test_zooming_moves_nothing_for_the_next_selection():
    _, session = await opened()
    before = await session.context(2_000, query="ferry")
    await before.zoom("harbour master")
    after = await session.context(2_000, query="ferry")
    assert after.blocks == before.blocks


async def test_a_question_that_nothing_answers_changes_nothing():
    _, session = await opened()
    plain = await session.context(2_000)
    for query in ("", "qwxyz", "\0\0", "?" * 10_000):
        assert (await plain.zoom(query)).blocks == plain.blocks


async def test_where_all_stands_verbatim_nothing_is_to_be_zoomed():
    _, session = await opened(4)
    plain = await session.context(100_000)
    assert (await plain.zoom("harbour master")).blocks == plain.blocks


async def test_what_is_erased_after_the_selection_is_not_zoomed_into():
    _, session = await opened()
    plain = await session.context(2_000)
    await session.erase([120])
    assert "Ottilie" not in (await plain.zoom("harbour master Ottilie Brandt")).to_text()


def test_the_blocking_face_zooms_without_await():
    with Memory.open(":memory:", config=HierarchyConfig.by_tokens(**SMALL)) as memory:
        session = memory.session("s")
        session.append(Message.user("The harbour master is called Ottilie Brandt."))
        session.append(Message.user(f"Nothing of note happened, case {n}. " * 9) for n in range(90))
        selection = session.context(1_500, query="harbour")
        assert type(selection) is ContextSelection
        near = selection.zoom("Ottilie")
        assert type(near) is ContextSelection
        assert "is called Ottilie" in near.to_text()
        assert "is called Ottilie" in near.zoom("Ottilie").to_text()


def test_a_selection_of_nobody_cannot_be_zoomed():
    bare = ContextSelection("s", 10, 0, 0, 1.0, ())
    with pytest.raises(UsageError, match="zoom"):
        bare.zoom("x")


@drawn(40)
@given(
    steps=histories(most=40),
    query=st.sampled_from(["ferry price", "Ada measured seats.py", "schema.sql Friday"]),
    config=st.sampled_from(
        [
            HierarchyConfig.by_tokens(**SMALL),
            HierarchyConfig.by_tokens(**SMALL, boundary="message", open_groups="grow"),
        ]
    ),
)
async def test_a_zoom_still_covers_everything_exactly_once(steps, query, config):
    memory = AsyncMemory(store=MemoryStore(), token_counter=Words(), config=config)
    session = memory.session("s")
    handle, store = memory._handle, memory._handle.store
    begun = False
    for kind, value in steps:
        if kind == "append":
            await session.append(value)
            begun = True
        elif kind == "context" and begun:
            request = Request(ContextBudget(value, reserve_for_messages=None))
            try:
                decided, _ = await select.select(handle, "s", request)
            except BudgetTooSmallError:
                continue
            now = await refined(handle, request, decided, query)
            if now is None:
                continue
            assert now.cut.tokens <= value
            shown = select.chosen(handle, request, now)
            messages = shown.recall
            older = decided.cut.view
            raised = [m for m in messages if older.holds(m.index)]
            record = await store.session("s")
            check_cover(
                SimpleNamespace(recent_messages=[*shown.recent_messages, *raised]),
                view=now.cut.view,
                windows=await store.tree("s").level(1, 0),
                opened=state_from(record.state).open_windows(),
                messages=await store.messages("s", 0, record.messages),
            )
            text = shown.to_text()
            for stored in messages:
                assert stored.slices or body(stored.message) in text, "it is not there in full"
        elif kind.startswith("update") and begun:
            await session.update(1 if kind == "update1" else None)
    await memory.close()


async def test_a_semantic_search_fills_a_selection_from_all_levels():
    memory, _ = await opened()
    found = await memory.manager.semantic_search("s", "Who is the harbour master?", budget=1_000)
    assert found.total_tokens == sum(block.tokens for block in found.blocks) <= 1_000
    assert 120 in {stored.index for stored in found.recall}
    assert found.summaries[1] or found.summaries[2], "summaries are candidates too"
    kinds = [block.kind for block in found.blocks]
    assert kinds == sorted(kinds, key=["summary", "recall"].index), "summaries stand first"
    places = [block.span.start for block in found.blocks if block.kind == "summary"]
    assert places == sorted(places)
    assert 0 < found.coverage < 1
    assert found.omitted == ()
    with pytest.raises(UsageError, match="zoom"):
        await found.zoom("x")


async def test_a_semantic_search_keeps_the_best_summary_of_each_level():
    """Another summary above or below one that is shown would say the same again."""
    memory, session = await opened()
    levels = sorted({each.level for each in await session.summaries()})
    assert levels[-1] >= 3, "the history is too short for an L3"
    for query in ("ferry price capacity", "Who is the harbour master?", "ferry", "price of it"):
        found = await memory.manager.semantic_search("s", query, budget=8_000)
        hits = [hit for hit in await session.search(query, 1_000) if hit.level]
        best = {level: next(h.id for h in hits if h.level == level) for level in levels}
        taken = {shown.id for level in found.summaries.values() for shown in level}
        assert taken >= set(best.values()), f"{query}: a level has no hit"
        others = taken - set(best.values())
        for summary in await session.summaries():
            assert summary.id not in others or others.isdisjoint(summary.children)


async def test_a_semantic_search_obeys_budget_and_filters():
    memory, _ = await opened()
    search = memory.manager.semantic_search
    for budget in (1, 50, 120, 400):
        assert (await search("s", "harbour master", budget)).total_tokens <= budget
    assert not (await search("s", "harbour master", levels=[0])).summaries
    assert not (await search("s", "harbour master", levels=[1])).recall
    assert (await search("s", "", 500)).blocks == ()
    with_prompt = ContextBudget(600, system="Be brief.")
    found = await search("s", "harbour master", with_prompt)
    assert found.to_openai()[0] == {"role": "system", "content": "Be brief."}
    assert found.total_tokens <= 600
    assert (await search("nobody", "x")).blocks == ()
    with pytest.raises(UsageError, match="budget"):
        await search("s", "x", True)


async def test_a_hit_drills_down_to_what_was_said():
    memory, session = await opened()
    hits = await session.search("Who is the harbour master?")
    message = next(hit for hit in hits if hit.kind == "message")
    [whole] = await session.expand(message)
    assert whole.index == message.index == 120
    assert await session.expand("m120", None) == (whole,)
    summary = next(hit for hit in hits if hit.kind == "summary")
    assert await session.expand(summary) == await session.expand(summary.id)
    assert await memory.manager.expand(message) == (whole,)
    assert whole in await session.expand(summary, None)
    with pytest.raises(NotFoundError, match="message"):
        await session.expand("m9999")
    other = memory.session("other")
    await other.append(Message.user("Hello."))
    with pytest.raises(UsageError, match="another session"):
        await other.expand(message)
