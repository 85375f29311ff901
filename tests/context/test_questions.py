"""A question at every door: it is data, it waits for nothing, and it never says a thing twice."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn
from test_context import START, Words, histories, played, small, talk, text
from test_recalled import opened, overlapping
from test_search import WORDS as SUBJECTS
from test_search import filled, memory_over, said

from hiermem import AsyncMemory, ContextProfile, HierarchyConfig, Message, SearchPolicy
from hiermem.errors import BudgetTooSmallError
from hiermem.records.run import RecordStore
from hiermem.search.query import matched
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import ApproximateCounter

QUESTIONS = st.sampled_from(["ferry price", "what did Ada measure?", "seats.py harbour", "x"])
QUICK = drawn(25)
NASTY = (
    '"', "'", "' OR 1=1 --", '"a" NEAR/2 "b"', "a AND (b OR", "col:word^2", "*", "a*", "-x +y",
    "NOT", "\0", "a\0b", "\ud800", "x\udfff y", "🙂🙃", "\u202eabc", "%s {0} {x}", "]]]", "\\",
    "\n\n", "a" * 100_000, "word " * 10_000, "。、", "ﬁ ß İ", "\U0010ffff",
)  # fmt: skip


# -- a question is data


async def test_no_text_is_an_error_at_any_door():
    memory, session = await opened(30)
    await memory.close()
    memory = memory_over(RecordStore(await SQLiteStore.open(":memory:")))
    session = memory.session("s")
    await talk(session, 60, words=30)
    await session.update()
    plain = await session.context(1_500, recall_tokens=400)
    for query in NASTY:
        found = await session.context(1_500, query=query, recall_tokens=400)
        assert found.total_tokens <= 1_500
        assert [b for b in found.blocks if b.kind != "recall"] == list(plain.blocks)
        assert (await memory.manager.semantic_search("s", query, 300)).total_tokens <= 300
        assert all(0 <= begin < end for begin, end in matched("the ferry\0\ud800🙂", query))
    await memory.close()


SCRIPTS = {
    "Chinese": ("我们昨天在码头上看到了许多船只和渔民。", "最后我们把小提琴卖给了邻居。", "小提琴"),
    "Japanese": (
        "昨日は港でたくさんの船を見ました。",
        "結局バイオリンは隣人に売りました。",
        "バイオリン",
    ),
    "Thai": ("เมื่อวานเราเห็นเรือมากมายที่ท่าเรือ ", "สุดท้ายเราขายไวโอลินให้เพื่อนบ้าน ", "ไวโอลิน"),
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("sqlite", [False, True])
async def test_without_spaces_the_passage_of_a_long_message_is_found_and_marked(script, sqlite):
    """Cut by spaces, all of it would be one word, and one passage."""
    filler, told, word = SCRIPTS[script]
    store = RecordStore(await SQLiteStore.open(":memory:") if sqlite else MemoryStore())
    memory = AsyncMemory(store=store)
    session = memory.session("s")
    await session.append([Message.user(filler, created_at=START) for _ in range(5)])
    whole = f"{filler * 40}\n{told}\n{filler * 40}"
    await session.append(Message.user(whole, created_at=START))
    hit = (await session.search(word, levels=0))[0]
    assert (hit.index, hit.text) == (5, whole[hit.span.start_char : hit.span.stop_char])
    assert told.strip() in hit.text
    assert len(hit.text) < len(whole) / 2
    [(begin, end)] = matched(told, word)
    assert word in told[begin:end]
    evidence = await session.recall(word, 400)
    assert told.strip() in evidence.text
    assert evidence.total_tokens <= 400
    await memory.close()


# -- beside the cut


async def test_a_long_message_that_stands_in_part_is_recalled_from_its_other_part():
    """The passage across the seam is given as far as it does not stand there already."""
    memory = AsyncMemory(store=MemoryStore(), token_counter=ApproximateCounter())
    session = memory.session("s")
    await session.append(said(n) for n in range(50))
    text = " ".join(f"Hall {n} holds the violins of hall {n}." for n in range(900))
    await session.append(Message.user(text, created_at=START + timedelta(days=1)))
    plain = await session.context(6_000, recall_tokens=1_000)
    [shown] = [span for span in plain.verbatim if span.start == 50]
    assert shown.start_char > 400
    seam = text[shown.start_char - 150 : shown.start_char + 150]
    found = await session.context(6_000, query=seam, recall_tokens=1_000)
    assert found.verbatim[: len(plain.verbatim)] == plain.verbatim
    parts = [hit for hit in found.evidence if hit.index == 50]
    assert max(hit.span.stop_char for hit in parts) == shown.start_char, "up to the seam"
    for hit in parts:
        assert hit.text == text[hit.span.start_char : hit.span.stop_char]
        assert hit.text in found.evidence.text
    assert found.evidence.total_tokens <= 1_000


@QUICK
@given(steps=histories(most=30), queries=st.lists(QUESTIONS, min_size=2, max_size=3))
async def test_a_question_changes_nothing_before_its_evidence_in_any_rendering(steps, queries):
    """What a provider has cached is bytes: the prefix is compared as it is sent."""
    memory = small(token_counter=Words())
    session = memory.session("s")
    async for _ in played(session, steps):
        pass
    if not await memory.sessions():
        return
    try:
        plain = await session.context(1_500, recall_tokens=300)
    except BudgetTooSmallError:
        return
    for query in queries:
        found = await session.context(1_500, query=query, recall_tokens=300)
        told = [block.text for block in found.blocks if block.kind == "recall"]
        asked = [message for message in found.to_openai() if message.get("content") not in told]
        assert asked == plain.to_openai(), query
        assert found.blocks[-1:] == plain.blocks[-1:], "the question stands last"
        # Without evidence, its room is filled all the same.
        assert len(found.blocks) - len(plain.blocks) == len(told) in (bool(found.recall), 1)
    await memory.close()


# -- while others work


async def test_search_answers_while_the_worker_is_half_way():
    """Some windows are told, a call hangs, the rest waits: nothing of that is waited for."""
    reached, gate = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedLLM):
        async def complete(self, request):
            if self.calls >= 3:
                reached.set()
                await gate.wait()
            return await super().complete(request)

    config = HierarchyConfig.by_tokens(target=400)
    memory = memory_over(RecordStore(MemoryStore()), llm=Slow(), config=config)
    session = memory.session("s")
    long = [f"remark {n} about the {SUBJECTS[n % 16]}. {text(n, 40)}." for n in range(120)]
    await session.append([said(n, each) for n, each in enumerate(long)])
    await session.append(Message.user("The zeppelin departs.", created_at=START))
    working = asyncio.create_task(session.update())
    async with asyncio.timeout(20):
        await reached.wait()
        made: list[str] = []
        while not made:  # the first answers are committed beside the call that hangs
            await asyncio.sleep(0.01)
            told = await session.summaries(1)
            made = [each.id for each in told if each.made]
        assert len(made) < len(told)
        hits = await session.search("zeppelin violin lemon", 40)
        assert {120, 13} <= {hit.index for hit in hits}
        assert {hit.id for hit in hits if hit.level} <= set(made)
        assert "zeppelin" in (await session.recall("zeppelin")).text
        found = await session.context(3_000, query="violin")
        assert found.recall
    gate.set()
    await working
    assert {hit.level for hit in await session.search("SQLite", 40)} > {0, 1}
    await memory.close()


# -- forks


@pytest.mark.parametrize("sqlite", [False, True])
async def test_what_is_taken_back_is_gone_from_forks_too_unless_they_keep_it(sqlite):
    store = RecordStore(await SQLiteStore.open(":memory:") if sqlite else MemoryStore())
    _, session = await filled(store, 40)
    await session.update()
    forks = [await session.fork(name, at=30) for name in ("one", "two")]
    for each in (session, *forks):
        assert [h.index for h in await each.search("violin", levels=0, span=(0, 20))] == [15]
    await session.quarantine([15], forks="keep")
    assert not await session.search("violin", levels=0, span=(0, 20))
    for fork in forks:
        assert [hit.index for hit in await fork.search("violin", levels=0)] == [15]
    await forks[0].erase([14], forks="all")
    for each in (session, *forks):
        for query in ("invoice", "remark 14"):
            assert 14 not in {hit.index for hit in await each.search(query, 50, levels=0)}
            assert 14 not in {hit.index for hit in await each.recall(query, 4_000)}
    await store.close()


async def test_a_fork_is_recalled_into_its_context_from_the_shared_prefix_once():
    _, session = await opened()
    fork = await session.fork("f", at=130)
    await talk(fork, 120, begin=7_000, words=30)
    found = await fork.context(2_000, query="Who is the harbour master?")
    assert [stored.index for stored in found.recall].count(120) == 1
    [record] = [block for block in found.blocks if block.kind == "recall"]
    assert record.text.count("harbour master is called Ottilie") == 1


# -- settings that shape an answer


async def test_the_policy_says_how_many_candidates_of_each_level_there_are():
    """The published numbers are 10 messages, 5 L1, 3 L2 and 1 L3; another policy has others."""
    store = RecordStore(MemoryStore())
    for candidates, most in (((10, 5, 3, 1), {0: 10, 1: 5, 2: 3, 3: 1}), ((2, 1), {0: 2, 1: 1})):
        memory = memory_over(
            store,
            config=HierarchyConfig.by_tokens(target=60, max_messages=4),
            search_policy=SearchPolicy(candidates=candidates),
        )
        session = memory.session("s")
        if not await memory.sessions():
            await session.append([said(n) for n in range(400)])
            await session.update()
        found = await memory.manager.semantic_search("s", "remark violin lemon ferry", 100_000)
        assert len(found.recall) == most[0]
        for level, shown in found.summaries.items():
            assert 0 < len(shown) <= most.get(level, most[max(most)])
        hits = await session.search("remark violin lemon ferry", 1_000)
        for level in {hit.level for hit in hits} - {0}:
            many = sum(hit.level == level for hit in hits)
            assert many == min(most.get(level, most[max(most)]), many)
    await memory.close()


# -- what repeats itself


@pytest.mark.parametrize("dedup", [False, True])
async def test_what_is_said_a_thousand_times_leaves_room_for_the_rest(dedup):
    """Candidates are counted after repetitions are dropped: a limit or a budget is still filled."""
    session = memory_over(RecordStore(MemoryStore())).session("s")
    again = "Please check the status of the deployment pipeline for the payment service again."
    once = [
        f"{name} took the payment service back, and nobody at all saw it but {name}, said {name}."
        for name in ("wanda", "oscar", "jim", "ottilie", "kanne")
    ]
    await session.append([said(n, again, at=START) for n in range(1_000)])
    await session.append([said(1_000 + n, each, at=START) for n, each in enumerate(once)])
    query = "status of the deployment pipeline for the payment service"
    hits = await session.search(query, 6, semantic_dedup=dedup)
    evidence = await session.recall(query, 1_000, semantic_dedup=dedup)
    found = [hit.index for hit in hits]
    if dedup:
        assert found[0] < 1_000
        assert sorted(found[1:]) == list(range(1_000, 1_005))
        assert {hit.index for hit in evidence} == set(found)
    else:
        assert all(index < 1_000 for index in found)
        assert 800 < evidence.total_tokens <= 1_000


@pytest.mark.parametrize("profile", [None, ContextProfile(name="p", pins=[0, 3])])
async def test_what_is_packed_beside_a_context_says_nothing_of_it_again(profile):
    """An application that asks twice, for a context and for evidence, pays for nothing twice."""
    _, session = await opened()
    context = await session.context(3_000, query="harbour master", profile=profile)
    query = "Who is the harbour master of the ferry, and what is the price?"
    alone = await session.recall(query, 2_000)
    recalled = await session.recall(query, 2_000, beside=context)
    shown = context.verbatim
    assert any(overlapping(one, hit.span) for one in shown for hit in alone)
    assert recalled.hits
    assert not any(overlapping(one, hit.span) for one in shown for hit in recalled)
