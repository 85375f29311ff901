"""Searching a session: what is found, in which state of it, and what is never found."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import AsyncMemory, Message, SearchPolicy, UsageError
from hiermem.records.run import RecordStore
from hiermem.search.indexes import KIND, STRIDE
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.text.fence import indented
from hiermem.text.measure import body
from hiermem.tokens import ApproximateCounter
from hiermem.types.transaction import Block

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
WORDS = (
    "ferry", "harbour", "price", "schema", "friday", "ada", "jonas", "booking", "seats",
    "capacity", "refund", "invoice", "garden", "lemon", "bicycle", "violin",
)  # fmt: skip
SOON = drawn(20, 7)


def memory_over(store, **parts):
    return AsyncMemory(store=store, token_counter=ApproximateCounter(), **parts)


def said(number, text=None, *, thread="main", role=None, at=None):
    return Message(
        role or ("user" if number % 2 == 0 else "assistant"),
        text or f"remark {number} about the {WORDS[number % len(WORDS)]}",
        thread=thread,
        created_at=at or START + timedelta(minutes=number),
    )


async def filled(store, count=40, **parts):
    memory = memory_over(store, **parts)
    session = memory.session("s")
    await session.append([said(number) for number in range(count)])
    return memory, session


def told(hits):
    return [(hit.id, hit.span, hit.score, hit.text) for hit in hits]


# -- what is found


async def test_the_first_message_is_found_before_anything_is_summarised():
    _, session = await filled(RecordStore(MemoryStore()), 0)
    await session.append(Message.user("Order 5512 arrived broken; I want a refund."))
    (hit,) = await session.search("refunds")
    assert (hit.kind, hit.level, hit.index, hit.score) == ("message", 0, 0, 1.0)
    assert (await session.recall("refunds")).hits == (hit,)
    assert hit.message.content == hit.text


async def test_the_best_score_says_how_much_of_the_question_was_found():
    """Broken, what nobody said is answered as surely as what somebody did."""
    _, session = await filled(RecordStore(MemoryStore()))
    await session.append(
        Message.user("My sister bought a greenhouse in Lisbon.", name="Ada"),
        Message.user("I repaired the old tractor.", name="Ben"),
    )

    async def best(question):
        return (await session.search(question, 1))[0].score

    assert await best("Who bought a greenhouse in Lisbon?") == 1.0
    assert await best("Ada's sister and the greenhouse in Lisbon") > 0.9
    assert await best("the price of a helicopter in Lisbon") < 0.6
    assert await best("Did the violin orchestra tour Patagonia on horseback?") < 0.4
    # Asked of a speaker, the words of another one are no answer.
    assert await best("Did Ben repair the tractor?") > 0.9
    assert await best("Did Ada repair the tractor?") < 0.1


async def test_summaries_are_hits_and_name_the_messages_that_say_it():
    _, session = await filled(RecordStore(MemoryStore()), 60)
    await session.update()
    hits = await session.search("What about the violin?", 20)
    levels = {hit.level for hit in hits}
    assert {0, 1} <= levels
    for hit in hits:
        if hit.kind == "summary":
            assert hit.text == hit.summary.text
            assert hit.id == hit.summary.id
            assert all(hit.span.start <= index < hit.span.stop for index in hit.found)
    first = next(hit for hit in hits if hit.level == 1)
    (message,) = await session.messages(first.found[0], first.found[0] + 1)
    assert "violin" in message.content
    assert all(hit.level == 1 for hit in await session.search("violin", levels=[1]))


async def test_a_long_message_is_given_as_the_passage_that_matters():
    _, session = await filled(RecordStore(MemoryStore()))
    filler = "\n".join(
        f"Line {n} speaks of nothing much at all, at some length." for n in range(99)
    )
    whole = f"{filler}\nThe zeppelin departs at dawn.\n{filler}"
    await session.append(Message.assistant(whole, created_at=START + timedelta(hours=1)))
    (hit,) = await session.search("zeppelin", levels=0)
    assert hit.span.start_char > 0
    assert hit.text == whole[hit.span.start_char : hit.span.stop_char]
    assert "zeppelin" in hit.text
    assert len(hit.text) < len(whole) / 5
    evidence = await session.recall("zeppelin", 200)
    assert evidence.total_tokens <= 200
    assert "\nAssistant: … " in evidence.text
    assert evidence.text.endswith(" …")
    assert "zeppelin" in evidence.text


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("昨日、東京タワーの近くで美味しいラーメンを食べました。", "東京タワー"),
        ("我们下个星期去上海出差,请帮我订一张火车票。", "火车票"),
        ("เมื่อวานนี้ฉันไปซื้อของที่ตลาดน้ำกับแม่", "ตลาดน้ำ"),
        ("ខ្ញុំចង់ទៅលេងសមុទ្រនៅថ្ងៃអាទិត្យ", "សមុទ្រ"),
        ("Ich fahre über die Brücke nach Zürich.", "brücke"),
        ("Мы поехали на озеро Байкал", "БАЙКАЛ"),
        ("هذا هو الكتاب الذي قرأته", "الكتاب"),
    ],
)
async def test_a_word_inside_a_sentence_is_found_in_any_script(text, query):
    _, session = await filled(RecordStore(MemoryStore()), 20)
    await session.append(Message.user(text, created_at=START))
    assert (await session.search(query))[0].text == text


async def test_what_hiermem_rendered_itself_is_not_found_as_if_it_had_been_said():
    _, session = await filled(RecordStore(MemoryStore()), 120)
    await session.update()
    shown = next(
        block.text for block in (await session.context(500)).blocks if block.kind != "message"
    )
    await session.append(Message.user(f"You told me:\n{shown}\nIs the zeppelin in it?"))
    hits = await session.search("violin lemon garden", 50, levels=[0])
    assert 120 not in {hit.index for hit in hits}
    (hit,) = await session.search("zeppelin", levels=[0])
    assert hit.index == 120


async def test_repetitions_are_left_out_unless_wanted():
    """Nearly the same counts as the same, whoever says it; what differs in the matter does not."""
    _, session = await filled(RecordStore(MemoryStore()), 0)
    again = (
        "The invoice for the garden bicycle is due on the last Friday of March, with postage paid "
        "by cheque to the workshop beside the old station, whose owner signs every receipt twice"
    )
    other = "The invoice for the violin lessons was paid in advance to the old music school"
    await session.append([said(n, f"{again} {WORDS[n]}.") for n in range(6)])
    await session.append([said(6, other), said(7, "invoice"), said(8, "invoice")])
    assert sum(again in hit.text for hit in await session.search("invoice due", 20)) == 1
    found = {hit.index for hit in await session.search("invoice due", 20)}
    # Short texts may agree by chance: they are given all.
    assert {6, 7, 8} <= found
    assert len(found) == 4
    everything = await session.search("invoice due", 20, semantic_dedup=False)
    assert {hit.index for hit in everything} == set(range(9))
    assert {hit.index for hit in await session.recall("invoice due", 2_000)} == found
    every = await session.recall("invoice due", 2_000, semantic_dedup=False)
    assert {hit.index for hit in every} == set(range(9))


# -- a question is data


@drawn(1_000, 10)
@given(st.lists(st.text(st.characters(), max_size=200), min_size=20, max_size=20))
async def test_no_drawn_text_is_an_error(queries):
    """Twenty texts at a time, 20,000 in all: whatever is asked for, it is looked for."""
    _, session = await filled(RecordStore(MemoryStore()), 30)
    for query in queries:
        assert all(hit.text for hit in await session.search(query))
        assert (await session.recall(query, 100)).total_tokens <= 100


# -- one state of the session


async def both(first, second, query, filters):
    found = [await each.search(query, 50, **filters) for each in (first, second)]
    return told(found[0]), told(found[1])


@SOON
@given(
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    seed=st.integers(0, 99),
    queries=st.lists(
        st.lists(st.sampled_from([*WORDS, "remark", "I", "you"]), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    changes=st.lists(
        st.tuples(st.sampled_from(["erase", "edit", "quarantine", "update"]), st.integers(0, 500)),
        max_size=3,
    ),
    threads=st.integers(1, 3),
    filters=st.fixed_dictionaries(
        {},
        optional={
            "threads": st.sampled_from(["main", "t1", ["t1", "t2"]]),
            "roles": st.sampled_from(["user", "assistant"]),
            "span": st.sampled_from([(0, 40), (30, 200)]),
            "tags": st.sampled_from(["violin", "ferry"]),
        },
    ),
)
def test_both_stores_rank_alike_however_the_messages_came(
    sizes, seed, queries, changes, threads, filters
):
    """The warm index of one store, extended bit by bit, and a cold one over the other agree."""

    async def run():
        stores = RecordStore(MemoryStore()), RecordStore(await SQLiteStore.open(":memory:"))
        one, two = (memory_over(store).session("s") for store in stores)
        number = seed
        for size in sizes:
            batch = [
                said(
                    n,
                    f"{WORDS[n % 16]} {WORDS[(n * seed + 3) % 16]} {n}",
                    thread=f"t{n % threads}" if n % threads else "main",
                    at=START + timedelta(hours=n // 20 * 5, minutes=n),
                )
                for n in range(number, number + size)
            ]
            number += size
            await one.append(batch)
            for message in batch:
                await two.append(message)
            assert await one.search("remark ferry") is not None
        total = number - seed
        for what, place in changes:
            for session in (one, two):
                if what == "update":
                    await session.update()
                elif what == "edit":
                    with suppress(UsageError):  # what was taken back takes no edit
                        await session.edit(place % total, "the lemon was a violin")
                else:
                    await getattr(session, what)([place % total])
            await one.search("lemon")
        for words in queries:
            query = " ".join(words)
            # A fresh handle: nothing of it was kept in memory.
            cold = memory_over(stores[1]).session("s")
            for narrowed in ({}, filters):
                first, second = await both(one, cold, query, narrowed)
                assert first == second
                recalled = [await each.recall(query, 200, **narrowed) for each in (one, cold)]
                assert recalled[0].text == recalled[1].text
        for store in stores:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("how", ["erase", "quarantine", "edit", "delete"])
async def test_what_is_taken_back_is_gone_from_the_next_search_of_every_process(how, tmp_path):
    store = RecordStore(await SQLiteStore.open(tmp_path / "chat.db"))
    _, session = await filled(store, STRIDE + 40)
    await session.append(Message.user("the zeppelin departs", created_at=START))
    await session.update()
    index = STRIDE + 40
    other = memory_over(RecordStore(await SQLiteStore.open(tmp_path / "chat.db"))).session("s")
    for each in (session, other):
        assert index in {hit.index for hit in await each.search("zeppelin")}
    if how == "edit":
        await session.edit(index, "the yacht departs")
    elif how == "delete":
        await session.delete()
        await session.append(said(n, "the yacht departs") for n in range(30))
    else:
        await getattr(session, how)([index])
    for each in (session, other):
        assert await each.search("zeppelin") == []
        assert len(await each.recall("zeppelin")) == 0
        assert bool(await each.search("yacht")) == (how in ("edit", "delete"))


@pytest.mark.parametrize("how", ["erase", "quarantine"])
async def test_an_index_that_says_otherwise_shows_nothing_that_was_taken_back(how):
    """The index is derived: evidence is what the messages are now, whatever a block holds."""
    store = RecordStore(MemoryStore())
    memory, session = await filled(store, STRIDE)
    told_of = {hit.index for hit in await session.search("violin", 50)}
    tenant = memory._handle.store
    before = await tenant.blocks("s", KIND)
    await getattr(session, how)([15])
    epoch = (await tenant.session("s")).epoch
    assert await tenant.put_blocks("s", before, epoch=epoch)
    again = memory_over(store).session("s")
    assert 15 in told_of
    assert {hit.index for hit in await again.search("violin", 50)} == told_of - {15}
    recalled = await again.recall("violin", 4_000)
    assert 15 not in {hit.index for hit in recalled}
    assert "remark 15 " not in recalled.text


async def test_a_search_overtaken_by_an_erasure_is_done_again():
    """What was read before the erasure and shown after it would be what was taken back."""
    store = RecordStore(MemoryStore())
    memory, session = await filled(store, 20)
    await session.search("violin")
    tenant = memory._handle.store
    read = tenant.messages
    erased = []

    async def late(*args, **named):
        found = await read(*args, **named)
        if not erased:
            erased.append(True)
            await session.erase([15])
        return found

    tenant.messages = late
    try:
        assert [hit.index for hit in await session.search("violin")] == []
    finally:
        del tenant.messages


async def test_a_fork_is_searched_by_itself():
    _, session = await filled(RecordStore(MemoryStore()), 40)
    fork = await session.fork("f", at=20)
    await fork.append(said(20, "the zeppelin departs"))
    assert await session.search("zeppelin") == []
    assert [hit.index for hit in await fork.search("zeppelin")] == [20]
    assert [hit.index for hit in await fork.search("violin")] == [15]
    assert {hit.index for hit in await session.search("violin", levels=0)} == {15, 31}


# -- blocks


async def test_searches_at_once_build_one_index_and_a_damaged_block_is_made_again():
    store = RecordStore(MemoryStore())
    memory, session = await filled(store, 2 * STRIDE)
    tenant, reads = memory._handle.store, []
    plain = tenant.messages

    async def watched(session_id, start, stop, **named):
        reads.append(stop - start)
        return await plain(session_id, start, stop, **named)

    tenant.messages = watched
    before, *others = await asyncio.gather(*(session.search("violin") for _ in range(20)))
    assert all(told(other) == told(before) for other in others)
    assert reads.count(STRIDE) == 2
    first, second = await tenant.blocks("s", KIND)
    damaged = Block(KIND, 0, STRIDE, first.data[:-1])
    misplaced = Block(KIND, STRIDE, 2 * STRIDE, first.data)
    await tenant.put_blocks("s", [damaged, misplaced], epoch=(await tenant.session("s")).epoch)
    assert told(await memory_over(store).session("s").search("violin")) == told(before)
    assert await tenant.blocks("s", KIND) == [first, second]


async def test_the_memory_that_indexes_take_is_bounded():
    memory = memory_over(RecordStore(MemoryStore()), search_policy=SearchPolicy(cache_bytes=60_000))
    for name in "abcdefgh":
        await memory.session(name).append([said(n) for n in range(100)])
        assert await memory.session(name).search("violin")
    held = memory._handle.index_cache
    assert 1 <= len(held) < 8
    assert ("default", "h") in held
    assert await memory.session("a").search("violin")


# -- filters


async def test_filters_let_pass_what_a_plain_scan_would():
    """A message has the labels of its window's summary; a summary passes if it covers one."""
    memory = memory_over(RecordStore(MemoryStore()), search_policy=SearchPolicy(candidates=(50,)))
    session = memory.session("s")
    topics = ("Postgres indexes", "Berlin museums", "the tax return")
    await session.append(
        said(n, f"remark {n} on {topics[n // 30]}", thread="side" if n % 3 == 0 else "main")
        for n in range(90)
    )
    await session.update()
    everything, made = await session.messages(), await session.summaries()

    def borne(what, wanted):
        """Give the messages whose window's summary bears ``wanted``, by a scan of all windows."""
        return {
            m.index
            for each in made
            for m in everything
            if each.level == 1
            and each.span.start <= m.index < each.span.stop
            and m.thread == each.thread
            and wanted in map(str.casefold, getattr(each, what))
        }

    tagged, named = borne("tags", "museums"), borne("entities", "berlin")
    assert tagged
    assert named
    soon = START + timedelta(minutes=30)
    for filters, passes in (
        ({"span": (10, 20)}, lambda m: 10 <= m.index < 20),
        ({"since": soon}, lambda m: m.index >= 30),
        ({"until": soon}, lambda m: m.index < 30),
        ({"threads": ["side"]}, lambda m: m.thread == "side"),
        ({"roles": ["user"]}, lambda m: m.role == "user"),
        ({"tags": ["Museums", "no such"]}, lambda m: m.index in tagged),
        ({"entities": "BERLIN"}, lambda m: m.index in named and "Berlin" in m.content),
        ({"threads": ["side"], "span": (10, 20)}, lambda m: m.index in (12, 15, 18)),
        ({"threads": "nowhere"}, lambda _: False),
        ({"span": (10**12, 10**13)}, lambda _: False),
    ):
        wanted = {m.index for m in everything if passes(m)}
        every = {**filters, "semantic_dedup": False}
        hits = await session.search("remark", 100, levels=[0], **every)
        assert {hit.index for hit in hits} == wanted, filters
        assert {hit.index for hit in await session.recall("remark", 5_000, **every)} == wanted
    for filters, passes in (
        ({"levels": [1]}, lambda s: s.level == 1),
        ({"levels": [1, 2]}, lambda s: s.level in (1, 2)),
        ({"levels": 1, "span": (10, 20)}, lambda s: s.span.start < 20 and s.span.stop > 10),
        ({"levels": 1, "since": soon}, lambda s: s.time_range[1] >= soon),
        ({"levels": 1, "until": soon}, lambda s: s.time_range[0] < soon),
        ({"levels": 1, "threads": "side"}, lambda s: s.thread == "side"),
        ({"levels": 1, "entities": "berlin"}, lambda s: "Berlin" in s.entities),
        ({"levels": [1], "roles": ["user"]}, lambda _: False),
    ):
        levels = filters["levels"]
        of = made if isinstance(levels, list) else [s for s in made if s.level == levels]
        hits = await session.search("remark", 100, **filters)
        assert {hit.id for hit in hits} == {s.id for s in of if passes(s)}, filters


# -- evidence

HERBS = [
    "thyme", "sage", "basil", "mint", "dill", "rue", "leek", "kale", "chard", "cress", "sorrel",
    "beet", "turnip", "radish", "bean", "pea", "corn", "squash", "okra", "fennel",
]  # fmt: skip


@SOON
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    budget=st.integers(0, 400),
    neighbours=st.integers(0, 3),
    query=st.sampled_from(
        [
            "violin", "word3 word5", "about garden", "User said Friday 1 March",
            "a summary of violin and word9",
        ]
    ),
)  # fmt: skip
def test_evidence_is_verbatim_in_order_and_within_its_budget(sizes, budget, neighbours, query):
    async def run():
        memory = memory_over(RecordStore(MemoryStore()))
        session = memory.session("s")
        await session.append(
            [
                said(n, " ".join(f"word{k}" if k % 9 else "violin\n" for k in range(n, n + size)))
                for n, size in enumerate(sizes)
            ]
        )
        evidence = await session.recall(query, budget, neighbours=neighbours)
        assert evidence.total_tokens <= budget
        assert evidence.total_tokens == ApproximateCounter().count(evidence.text)
        places = [(hit.span.start, hit.span.start_char) for hit in evidence]
        assert places == sorted(set(places))
        for hit in evidence:
            whole = body(hit.message.message)
            assert hit.text == whole[hit.span.start_char : hit.span.stop_char]
            assert indented(hit.text) in evidence.text
        assert [m.index for m in evidence.sources] == sorted({hit.index for hit in evidence})

    asyncio.run(run())


async def test_evidence_marks_where_messages_are_left_out():
    """Without the mark a question and the answer to another one read as neighbours."""
    session = memory_over(RecordStore(MemoryStore())).session("s")
    late = START + timedelta(days=3)
    await session.append(
        Message.user("Shall we cancel the Zephyr contract?", created_at=START),
        Message.assistant("Let me look at Zephyr…", created_at=START),
        Message.user("Is it all right to paint the office?", created_at=START),
        Message.assistant("Yes, do it, and tell the Zephyr people.", created_at=START),
        Message.user("Zephyr called.", created_at=late),
        Message.user("The roses need water.", created_at=late),
        Message.user("Zephyr called again.", created_at=late + timedelta(days=1)),
    )
    assert (await session.recall("Zephyr", 100, semantic_dedup=False)).text == (
        "[2024-03-01]\nUser: Shall we cancel the Zephyr contract?\n"
        "Assistant: Let me look at Zephyr… …\n"
        "Assistant: Yes, do it, and tell the Zephyr people.\n"
        "[2024-03-04]\nUser: Zephyr called. …\n[2024-03-05]\nUser: Zephyr called again."
    )


async def test_an_overview_is_wide_and_a_question_is_deep():
    """A summary of a whole matter needs a little of everything; a fact needs its whole passage."""
    memory = memory_over(RecordStore(MemoryStore()))
    session = memory.session("s")
    steps = [f"Step {n} of the garden: {HERBS[n]} is planted in bed {n}." for n in range(20)]
    padding = "We then talk about the garden and the garden and all of its beds for a while. " * 5
    await session.append(said(n, f"{padding}\n\n{step}") for n, step in enumerate(steps))

    asked = await session.recall("where is the garden planted?", 800)
    overview = await session.recall("give me a summary of the garden", 800)
    assert len(overview.sources) >= 1.5 * len(asked.sources)
    assert sum(step in overview.text for step in steps) > sum(step in asked.text for step in steps)
    best = max(overview, key=lambda hit: hit.score)
    assert padding.strip() in best.text  # the best stand whole

    whole = await session.recall("give me a summary of the garden", 10_000)
    assert [hit.text for hit in whole] == [body(m.message) for m in whole.sources]
    assert len(whole) == 20


async def test_nothing_is_recalled_that_stands_in_the_context_beside():
    """A caller who puts evidence behind a context of their own would else pay for it twice."""
    memory, session = await filled(RecordStore(MemoryStore()), 120)
    await session.update()
    context = await session.context(1_500)
    standing = {message.index for message in context.recent_messages}
    alone = {hit.index for hit in await session.recall("violin", 4_000)}
    assert alone & standing
    beside = {hit.index for hit in await session.recall("violin", 4_000, beside=context)}
    assert beside == alone - standing
    other = memory.session("other")
    await other.append(said(0))
    with pytest.raises(UsageError, match="another session"):
        await other.recall("violin", beside=context)


async def test_what_was_read_of_summaries_serves_a_new_process_unless_damaged(tmp_path):
    store = RecordStore(await SQLiteStore.open(tmp_path / "chat.db"))
    memory, session = await filled(store, STRIDE + 100)
    await session.update()
    before = told(await session.search("violin ferry", 40))
    tenant = memory._handle.store
    blocks = await tenant.blocks("s", f"{KIND}-L1")
    assert [block.start for block in blocks] == [0, STRIDE]
    assert told(await memory_over(store).session("s").search("violin ferry", 40)) == before
    spoilt = [replace(block, data=block.data[:-9]) for block in blocks]
    epoch = (await tenant.session("s")).epoch
    assert await tenant.put_blocks("s", spoilt, epoch=epoch)
    assert told(await memory_over(store).session("s").search("violin ferry", 40)) == before
    assert await tenant.blocks("s", f"{KIND}-L1") == blocks
    await memory.rebuild_index()
    assert await tenant.blocks("s", f"{KIND}-L1") == blocks
    await session.erase([3])
    assert [block.start for block in await tenant.blocks("s", f"{KIND}-L1")] == [STRIDE]
    await memory.close()


async def test_a_name_in_a_question_does_not_hide_what_another_one_answers():
    """Broken, the answer stands below a sent file, because the question names who sent it."""
    _, session = await filled(RecordStore(MemoryStore()))
    await session.append(
        Message.user("The boat cost 340 francs.", name="Tom"),
        Message.user("[media]", name="Tom"),
        Message.user("I pay you back on Friday.", name="Anna"),
        Message.user("[file: boat.jpg]", name="Tom"),
        Message.user("Never call me before ten.", name="Tom"),
    )
    hits = await session.search("who pays Tom back", 5)
    assert hits[0].text == "I pay you back on Friday."
    assert hits[0].score >= 0.05
    assert "[media]" not in [hit.text for hit in hits]
    called = [hit.text for hit in await session.search("when can I call Tom", 5)]
    assert called[0] == "Never call me before ten."
    assert not {"[media]", "[file: boat.jpg]"}.intersection(called)
    assert "[file: boat.jpg]" in [hit.text for hit in await session.search("boat.jpg", 5)]
