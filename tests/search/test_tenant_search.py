"""Search over all sessions: what it finds is what was said, whatever is indexed and by whom."""

import asyncio
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import AsyncMemory, Message, UsageError
from hiermem.errors import BusyError, ReadOnlyError
from hiermem.handle import Handle
from hiermem.records.run import RecordStore
from hiermem.search import segments, tenant_index
from hiermem.search.index import unpack
from hiermem.stores.memory import MemoryStore
from hiermem.testing import DiedError, FaultPlan, FaultyStore
from hiermem.text.terms import number, terms
from hiermem.tokens import ApproximateCounter
from hiermem.types.transaction import TERMS

START = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.fixture
def eager(monkeypatch):
    """Index at once whatever is not indexed, in the smallest pieces."""
    for name, value in (("_FEW_MESSAGES", 0), ("_FEW_BLOCKS", 0), ("_AT_ONCE", 2)):
        monkeypatch.setattr(tenant_index, name, value)
    monkeypatch.setattr(tenant_index, "_SMALL", 2)


def said(word, *, name="Ada", at=START):
    return Message.user(f"I saw the {word} there.", name=name, created_at=at)


async def words_found(memory, word):
    return [(hit.session_id, hit.index) for hit in await memory.search(word, 100)]


async def vocabulary(memory):
    """Return the numbers of all terms that a segment or a loose block holds."""
    state = await memory._handle.store.index_state(range(segments.HEAD + 1), limit=None)
    found = set()
    for one in state.segments:
        head = segments.read_head(one.number, one.pages)
        pages = segments.read_part(head, one.pages, one.dead).pages.values()
        found = found.union(*(page.terms.tolist() for page in pages))
    for one in state.loose:
        found |= set(unpack(one.block.data).terms.tolist())
    return found


@pytest.mark.parametrize("how", ["update", "worker", "update_all", "search_index"])
async def test_what_came_since_the_first_search_is_indexed_by_updates(how):
    """Broken, a search over all sessions indexes then all that was imported since the last one."""
    store = RecordStore(MemoryStore())
    memory = AsyncMemory(store=store, token_counter=ApproximateCounter())

    async def fill(name):
        for n in range(20):
            await memory.session(f"{name}{n}").append(
                [said(("heron", "kestrel")[m % 2]) for m in range(12)]
            )

    async def update(how):
        if how == "worker":
            async with memory.worker(poll=0.05) as worker:
                assert await worker.drain(timeout=60)
        elif how == "update":
            for record in await memory.sessions(limit=1000):
                await memory.session(record.id).update()
        else:
            await memory.update_all(search_index=how == "search_index")

    async def unindexed():
        state = await store.tenant("default").index_state([], limit=None)
        return sum(stop - start for _, gaps in state.unindexed for start, stop in gaps)

    await fill("a")
    await update("update_all" if how == "search_index" else how)
    assert await unindexed() == 240, "nobody has searched over all"
    if how == "search_index":
        await memory.update_all(search_index=True)
        assert await unindexed() == 0
    else:
        await memory.search("heron")
    # Another process knows it from the store.
    memory = AsyncMemory(store=store, token_counter=ApproximateCounter())
    await fill("b")
    await update("update_all" if how == "search_index" else how)
    assert await unindexed() <= 8 * 12, "an update looks at it at times, and update_all at its end"
    assert len(await memory.search("heron", 300, semantic_dedup=False)) == 240


async def test_the_whole_question_and_its_phrase_are_before_a_talk_about_a_part_of_it():
    """Broken, a talk full of one word of the question hides the message that holds all of them."""
    async with AsyncMemory.open(":memory:") as memory:
        for talk in range(60):
            for n in range(4):
                await memory.session(f"c{talk}").append(
                    Message.user(
                        f"Question {n} of talk {talk}: what about invoice {talk * 10 + n}?"
                    ),
                    Message.assistant(f"Answer {n} of talk {talk}: it is {talk * 7 + n}.50 EUR."),
                )
        for question in ("invoice 40", "What about invoice 40?"):
            for limit in (1, 10):
                hits = await memory.search(question, limit)
                assert hits[0].text == "Question 0 of talk 4: what about invoice 40?"
                assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
        assert all("invoice" in hit.text for hit in (await memory.search("invoice 40", 5)))


async def test_recall_names_the_sessions_and_keeps_to_its_budget():
    async with AsyncMemory.open(":memory:") as memory:
        for name, day in (("later", 9), ("sooner", 2)):
            at = START + timedelta(days=day)
            await memory.session(name).append([said("heron", at=at), said("heron again", at=at)])
        found = await memory.recall("heron", 200, semantic_dedup=False)
        assert found.session_id is None
        assert [hit.session_id for hit in found] == ["sooner"] * 2 + ["later"] * 2
        assert found.text == (
            "[2024-03-03, session sooner]\nAda: I saw the heron there.\n"
            "Ada: I saw the heron again there.\n[2024-03-10, session later]\n"
            "Ada: I saw the heron there.\nAda: I saw the heron again there."
        )
        assert len(found.sources) == len({(hit.session_id, hit.index) for hit in found})
        for budget in (0, 10, 25, 60):
            small = await memory.recall("heron", budget)
            assert small.total_tokens <= budget
            assert memory._handle.counter.count(small.text) == small.total_tokens
        with pytest.raises(UsageError):
            await memory.recall("heron", -1)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "search", "edit", "erase", "fork", "drop", "update"]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    min_size=3,
    max_size=14,
)


@drawn(25)
@given(steps=_STEPS, lazy=st.booleans())
def test_it_finds_exactly_what_stands(steps, lazy):
    """After any history, each word is found where it is said, and nowhere else."""

    async def run():
        kept = {"_FEW_MESSAGES": 0, "_FEW_BLOCKS": 0, "_AT_ONCE": 2, "_SMALL": 2}
        before = {name: getattr(tenant_index, name) for name in kept}
        for name, value in () if lazy else kept.items():
            setattr(tenant_index, name, value)
        stands: dict[str, list[str | None]] = {}
        made = 0
        try:
            async with AsyncMemory.open(":memory:") as memory:
                for act, which, place in steps:
                    name = f"s{which}"
                    own = stands.get(name, [])
                    made += 1
                    if act == "append":
                        new = [f"bird{made}x{n}" for n in range(place)]
                        await memory.session(name).append(said(word) for word in new)
                        if new:
                            stands.setdefault(name, []).extend(new)
                    elif act == "search":
                        await memory.search("bird")
                    elif act == "update":
                        await memory.update_all()
                    elif act == "fork" and own and f"f{made}" not in stands:
                        at = min(place, len(own))
                        await memory.session(name).fork(f"f{made}", at=at)
                        stands[f"f{made}"] = list(own[:at])
                    elif act == "drop" and own:
                        await memory.session(name).delete(forks="keep")
                        del stands[name]
                    elif place < len(own) and own[place] is not None:
                        if act == "edit":
                            await memory.session(name).edit(place, f"I saw the bird{made}e there.")
                            own[place] = f"bird{made}e"
                        else:
                            await memory.session(name).erase([place], forks="keep")
                            own[place] = None
                words = {word for own in stands.values() for word in own if word}
                for word in words | {"bird0"}:
                    expected = {
                        (name, index)
                        for name, own in stands.items()
                        for index, each in enumerate(own)
                        if each == word
                    }
                    hits = await memory.search(word, 100, semantic_dedup=False)
                    exact = {(h.session_id, h.index) for h in hits if f"the {word} " in h.text}
                    assert exact == expected
                    for hit in hits:
                        assert stands[hit.session_id][hit.index] in hit.text
                held = await vocabulary(memory)
                gone = {f"bird{n}x{m}" for n in range(made + 1) for m in range(6)} - words
                assert held.isdisjoint(number(term) for word in gone for term in terms(word))
        finally:
            for name, value in before.items():
                setattr(tenant_index, name, value)

    asyncio.run(run())


async def test_nothing_is_written_before_the_first_search_over_all(tmp_path):
    async with AsyncMemory.open(tmp_path / "x.db") as memory:
        for name in "abc":
            await memory.session(name).append(said(f"heron{n}") for n in range(50))
            await memory.session(name).search("heron3")
        store = memory._handle.store
        state = await store.index_state()
        assert (state.segments, state.loose) == ((), ())
        assert len(await memory.search("heron7", semantic_dedup=False)) == 3
        state = await store.index_state()
        assert (sum(one.blocks for one in state.segments), state.unindexed) == (3, ())
        # A few messages more are read at each search; many are indexed by the next one.
        await memory.session("a").append(said("osprey"))
        assert await words_found(memory, "osprey") == [("a", 50)]
        assert [gaps for _, gaps in (await store.index_state()).unindexed] == [((50, 51),)]
        await memory.session("a").append(said(f"tern{n}") for n in range(300))
        assert await words_found(memory, "tern299") == [("a", 350)]
        assert (await store.index_state()).unindexed == ()
        assert [b.stop for b in await store.blocks("a", TERMS)] == [256, 351]
        assert len(await memory.search("heron7", semantic_dedup=False)) == 3, "a block was replaced"


async def test_a_first_search_that_is_killed_is_continued(eager):
    """Wherever it dies, what is written is right, and the next search finds everything."""
    sites = frozenset(
        f"{operation}.{moment}"
        for operation in ("put_blocks", "put_segment")
        for moment in ("before", "after")
    )
    place, reached = 0, True
    while reached:
        store, plan = RecordStore(MemoryStore()), FaultPlan({place: "die"}, only=sites)
        async with AsyncMemory(store=store) as memory:
            for one in range(6):
                await memory.session(f"s{one}").append(said(f"heron{one}"))
            with suppress(DiedError):
                await AsyncMemory(store=FaultyStore(store, plan)).search("heron3")
            for one in range(6):
                assert await words_found(memory, f"heron{one}") == [(f"s{one}", 0)]
        place, reached = place + 1, bool(plan.hits)
    assert place > 6


async def test_a_store_that_is_only_read_is_searched_too(tmp_path):
    async with AsyncMemory.open(tmp_path / "x.db") as memory:
        for number_ in range(3):
            await memory.session(f"s{number_}").append(said(f"heron{n}") for n in range(60))
    async with AsyncMemory.open(tmp_path / "x.db", read_only=True) as memory:
        assert len(await memory.search("heron59", semantic_dedup=False)) == 3
        with pytest.raises(ReadOnlyError):
            await memory.session("s0").append(said("x"))


async def test_a_damaged_index_is_made_again(tmp_path, eager):
    """Pages and blocks are data of the store, which is not trusted."""
    path = tmp_path / "x.db"
    for table in ("pages", "blocks"):
        async with AsyncMemory.open(path) as memory:
            for number_ in range(4):
                await memory.session(f"{table}{number_}").append(said(f"heron{number_}"))
            await memory.search("heron")
        with closing(sqlite3.connect(path)) as base, base:
            base.execute(
                f"UPDATE {table} SET data = CAST(substr(data, 1, length(data) - 1) AS BLOB)"
            )
        async with AsyncMemory.open(path) as memory:
            for number_ in range(4):
                assert (f"{table}{number_}", 0) in {
                    (hit.session_id, hit.index)
                    for hit in await memory.search(f"heron{number_}", semantic_dedup=False)
                }


async def test_filters_leave_out_and_never_change_the_order(eager):
    async with AsyncMemory.open(":memory:") as memory:
        for number_ in range(20):
            session = memory.session(f"s{number_}", metadata={"user": "ab"[number_ % 2], "x": "1"})
            at = START + timedelta(days=number_)
            await session.append(
                said("heron", at=at),
                Message.assistant(f"A heron, Zenobia says. {number_}", created_at=at),
                Message.user("heron!", thread="side", created_at=at),
            )
        every = await memory.search("heron", 100, semantic_dedup=False)
        assert len(every) == 60

        async def with_filters(**filters):
            found = await memory.search("heron", 100, semantic_dedup=False, **filters)
            assert found == [hit for hit in every if hit in found]
            return {(hit.session_id, hit.index) for hit in found}

        mine = {(f"s{n}", i) for n in range(0, 20, 2) for i in range(3)}
        assert await with_filters(metadata={"user": "a"}) == mine
        assert await with_filters(metadata={"user": "a", "x": "2"}) == set()
        assert await with_filters(roles="assistant") == {(f"s{n}", 1) for n in range(20)}
        assert await with_filters(threads=["side"]) == {(f"s{n}", 2) for n in range(20)}
        assert await with_filters(entities="zenobia") == {(f"s{n}", 1) for n in range(20)}
        since, until = START + timedelta(days=3), START + timedelta(days=5)
        between = {(f"s{n}", i) for n in (3, 4) for i in range(3)}
        assert await with_filters(since=since, until=until) == between
        for wrong in ({"tags": "x"}, {"span": (0, 1)}, {"levels": [0]}, {"metadata": 3}):
            with pytest.raises(UsageError):
                await memory.search("heron", **wrong)
        found = await memory.recall("heron", 60, metadata={"user": "b"}, roles=["assistant"])
        assert {hit.session_id for hit in found} <= {f"s{n}" for n in range(1, 20, 2)}
        assert found.hits


async def test_an_entity_filter_of_a_session_gives_only_messages_that_name_it():
    """The summary of their window names it, and so do they; who speaks, and when, is no name."""
    async with AsyncMemory.open(":memory:") as memory:
        session = memory.session("s")
        for _ in range(10):
            await session.append(
                Message.user("We met Zenobia Marsh at the harbour.", name="Ada"),
                Message.user("The harbour was full.", name="Zenobia Marsh"),
            )
        await session.update()
        alike = {"levels": 0, "semantic_dedup": False}
        assert len(await session.search("harbour", 50, **alike)) == 20
        named = await session.search("harbour", 50, entities="Zenobia Marsh", **alike)
        assert {hit.index for hit in named} == set(range(0, 20, 2))


async def test_a_search_that_is_always_overtaken_names_no_session(monkeypatch):
    """Broken, an application looks for a session 'of this tenant'."""

    async def changed(*_):
        return False

    async with AsyncMemory.open(":memory:") as memory:
        await memory.session("s").append(Message.user("The pump stands in Kiel."))
        monkeypatch.setattr(Handle, "is_unchanged", changed)
        with pytest.raises(BusyError, match=r"^a session changed") as raised:
            await memory.search("pump")
    assert raised.value.session_id is None


async def test_beside_an_old_statement_stands_a_later_one_of_change_about_the_same(tmp_path):
    """Broken, what no longer holds is told alone: the news shares no word with the question."""
    async with AsyncMemory.open(tmp_path / "m.db") as memory:
        memory.space("ada", person="Ada")
        texts = ["Our piano tuner is Yolanda Quist."]
        texts += [f"The piano in room {number} is dusty." for number in range(20)]
        texts += ["Yolanda Quist quit, and now Bertram does it.", "Yolanda Quist likes tea."]
        for number, text in enumerate(texts):
            said = Message.user(text, created_at=datetime(2026, 5, 1 + number, tzinfo=UTC))
            await memory.session(f"s{number:02}", space="ada").append(said)
        await memory.session("s21").append(Message.user("Who plays the piano in room 9?"))
        found = await memory.recall("Who tunes our piano?", 90, space="ada")
        assert found.total_tokens <= 90
        first, last = found.text.splitlines()[1], found.text.splitlines()[-1]
        assert first == "User: Our piano tuner is Yolanda Quist."
        assert last == "later: User: Yolanda Quist quit, and now Bertram does it."
        assert found.hits[-1].text == texts[-2], "a passage is verbatim"
        await memory.session("s21").erase([0])
        again = await memory.recall("Who tunes our piano?", 90, space="ada")
        assert "later" not in again.text
