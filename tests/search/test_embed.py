"""Vectors: made once, in batches and within limits, of one embedder, never of what was erased."""

import asyncio
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from fast_loop import run_fast
from kinds import of_kind

from hiermem import AsyncMemory, ConflictError, Message, ModelError, SearchPolicy, UsageError
from hiermem.errors import SpendLimitError
from hiermem.records.run import RecordStore
from hiermem.search.embedder_client import EmbedderClient
from hiermem.search.indexes import STRIDE
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.tokens import ApproximateCounter

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
#: Words of one meaning: what an index of words cannot know.
MEANINGS = (("conveyance", "automobile"), ("medic", "physician"))


class Meanings:
    """An embedder that knows a few synonyms; every other word has a direction of its own."""

    def __init__(self, name="meanings", dimension=64, *, script=(), break_at=None):
        self.name, self.dimension = name, dimension
        self.sent: list[list[str]] = []
        self.kinds: list[str] = []
        self.script = list(script)
        self.break_at = break_at

    async def embed(self, texts, *, kind):
        self.kinds.append(kind)
        self.sent.append(list(texts))
        await asyncio.sleep(0)
        if self.break_at is not None and len(self.passages) > self.break_at:
            raise ModelError("no credit")
        if self.script:
            answer = self.script.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer(texts)
        return [self.vector(text) for text in texts]

    @property
    def passages(self):
        return [t for kind, sent in zip(self.kinds, self.sent, strict=True)
                if kind == "passage" for t in sent]  # fmt: skip

    def vector(self, text):
        vector = [0.0] * self.dimension
        vector[0] = 0.1
        for word in text.lower().replace(".", " ").replace("?", " ").split():
            known = [n for n, group in enumerate(MEANINGS) if word in group]
            place = 1 + known[0] if known else 8 + sum(word.encode()) % (self.dimension - 8)
            vector[place] += 3.0 if known else 0.3
        return vector


def memory_over(store, embedder, **parts):
    return AsyncMemory(store=store, embedder=embedder, token_counter=ApproximateCounter(), **parts)


def said(n, text=None):
    role = Message.user if n % 2 == 0 else Message.assistant
    return role(text or f"remark {n} on nothing", created_at=START + timedelta(minutes=n))


async def filled(store, embedder, count=30, **parts):
    memory = memory_over(store, embedder, **parts)
    session = memory.session("s")
    texts = {7: "My physician was glad.", 12: "The automobile is blue."}
    await session.append([said(n, texts.get(n)) for n in range(count)])
    return memory, session


async def begun(session):
    """Wait until a pass is in the journal."""
    while not await session.runs():  # noqa: ASYNC110 - the store has no way to call back
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_meaning_is_found_that_no_word_tells(is_plain):
    """An embedder may also answer at once, with an array of any floats."""
    embedder = Meanings()
    if is_plain:
        embedder.embed = lambda texts, *, kind: (
            embedder.kinds.append(kind) or np.array(list(map(embedder.vector, texts)), np.float16)
        )
    _, session = await filled(RecordStore(MemoryStore()), embedder)
    assert await session.search("conveyance") == []
    report = await session.embed()
    assert (report.messages, report.left, report.stopped) == (30, 0, None)
    assert (await session.search("conveyance"))[0].index == 12
    assert (await session.search("medic"))[0].index == 7
    assert 12 in {hit.index for hit in await session.recall("conveyance", 60)}
    assert embedder.kinds.count("query") == 2  # a question's vector is remembered


async def test_summaries_get_vectors_of_their_own_level_by_level():
    embedder = Meanings()
    memory, session = await filled(RecordStore(MemoryStore()), embedder, 60)
    assert (await session.embed()).summaries == 0
    await session.update()
    await asyncio.gather(*memory._resources.background)
    assert (await session.embed()).texts == 0
    made = [run for run in await session.runs() if run.kind == "embedding"]
    assert [(run.outcome, run.detail["summaries"]) for run in made] == [
        ("ok", len(await session.summaries())),
        ("ok", 0),
    ]
    hits = await session.search("conveyance", levels=[1])
    assert hits[0].found[0] == 12
    policy = SearchPolicy(embed_summaries=False)
    _, other = await filled(RecordStore(MemoryStore()), Meanings(), 60, search_policy=policy)
    await other.update()
    assert (await other.embed()).summaries == 0


async def test_summaries_are_embedded_before_messages_and_may_be_all():
    """With ``embed_messages=False`` messages get no vectors, until it is set."""
    texts = [f"Reading {n} of pump {n}: {n * 7} rpm, and the conveyance waits." for n in range(99)]
    store, embedder = RecordStore(MemoryStore()), Meanings()
    policy = SearchPolicy(embed_messages=False)
    memory = memory_over(store, embedder, search_policy=policy)
    session = memory.session("s")
    await session.append(Message.user(text, created_at=START) for text in texts)
    await session.update()
    report = await session.embed()
    assert (report.left, report.messages, report.stopped) == (0, 0, None)
    assert embedder.passages
    assert await memory._handle.store.blocks("s", "vectors/64/meanings") == []
    assert await session.search("automobile"), "a summary is near, and no word is shared"
    assert await session.recall("conveyance", 200)
    # Appended messages give such a session nothing to do.
    sent = len(embedder.sent)
    await session.append(Message.user("One more.", created_at=START))
    await session.embed()
    assert len(embedder.sent) == sent
    # All vectors anew: those of summaries first, level by level.
    other = memory_over(store, Meanings("other"))
    tenant, kinds = other._handle.store, []
    plain = tenant.put_blocks

    async def watched(session_id, blocks, **more):
        kinds.extend(block.kind.partition("/")[0] for block in blocks)
        return await plain(session_id, blocks, **more)

    tenant.put_blocks = watched
    [report] = await other.reembed()
    assert report.messages == 100
    made = list(dict.fromkeys(kind for kind in kinds if kind.startswith("vectors")))
    assert made == ["vectors-L1", "vectors-L2", "vectors"]


async def test_a_pass_that_broke_off_is_gone_on_with():
    store = RecordStore(MemoryStore())
    broken = Meanings(break_at=STRIDE + 10)
    _, session = await filled(store, broken, 2 * STRIDE + 10)
    with pytest.raises(ModelError, check=of_kind("permanent")):
        await session.embed()
    (run,) = await session.runs()
    assert (run.kind, run.outcome) == ("embedding", "error")
    embedder = Meanings()
    again = memory_over(store, embedder).session("s")
    await again.embed()
    assert len(embedder.passages) == STRIDE + 10
    assert (await again.runs(limit=1))[0].outcome == "ok"


@pytest.mark.parametrize("how", ["erase", "quarantine", "edit"])
async def test_vectors_of_what_was_taken_back_are_gone(how):
    store = RecordStore(MemoryStore())
    memory, session = await filled(store, Meanings(), 60)
    await session.update()
    await asyncio.gather(*memory._resources.background)
    await session.embed()
    assert (await session.search("conveyance"))[0].index == 12
    change = (12, "Nothing here.") if how == "edit" else ([12],)
    await getattr(session, how)(*change)
    tenant = memory._handle.store
    kinds = ("vectors/64/meanings", "vectors-L1/64/meanings")
    for kind in kinds:
        assert all(not b.start <= 12 < b.stop for b in await tenant.blocks("s", kind))
    for _ in range(2):
        hits = await session.search("conveyance", 60, levels=[0])
        assert all("automobile" not in hit.text for hit in hits)
        assert how == "edit" or 12 not in {hit.index for hit in hits}
        await session.embed()


async def test_a_vector_worked_out_before_an_erasure_does_not_land_after_it():
    memory, session = await filled(RecordStore(MemoryStore()), None)
    embedder = Meanings()
    erasing = []
    plain = embedder.embed

    async def late(texts, *, kind):
        found = await plain(texts, kind=kind)
        if not erasing:
            erasing.append(await session.erase([12]))
        return found

    embedder.embed = late
    other = memory_over(memory._resources.store, embedder).session("s")
    report = await other.embed()
    assert report.left == 0
    assert 12 not in {hit.index for hit in await other.search("conveyance")}
    assert sum("automobile" in text for text in embedder.passages) == 1


# -- one embedder


async def test_another_embedder_is_refused_and_never_mixed():
    store = RecordStore(MemoryStore())
    _, session = await filled(store, Meanings())
    await session.embed()
    for other in (Meanings("other"), Meanings(dimension=32)):
        stranger = memory_over(store, other).session("s")
        for call in (
            stranger.embed(),
            stranger.search("conveyance"),
            stranger.recall("conveyance"),
        ):
            with pytest.raises(ConflictError, match="reembed", check=of_kind("embedder")):
                await call
        assert other.passages == []
    without = memory_over(store, None).session("s")
    assert [hit.index for hit in await without.search("automobile")] == [12]


async def test_reembedding_drops_the_old_ones_and_makes_the_new():
    store = RecordStore(MemoryStore())
    memory, session = await filled(store, Meanings(), 60)
    await memory.session("t").append(said(0))
    await session.update()
    await session.embed()
    new = memory_over(store, Meanings("new", 32))
    reports = await new.reembed()
    assert [report.session_id for report in reports] == ["s", "t"]
    assert reports[0].messages == 60
    assert reports[0].summaries > 0
    tenant = memory._handle.store
    for kind in ("vectors/64/meanings", "vectors-L1/64/meanings", "vectors-L2/64/meanings"):
        assert await tenant.blocks("s", kind) == []
    assert (await new.session("s").search("conveyance"))[0].index == 12
    with pytest.raises(ConflictError, check=of_kind("embedder")):
        await session.search("conveyance")
    assert sum(report.texts for report in await new.reembed()) == 0


async def test_without_an_embedder_there_is_nothing_to_embed():
    memory, session = await filled(RecordStore(MemoryStore()), None)
    for call in (session.embed, memory.reembed):
        with pytest.raises(UsageError, match="embedder"):
            await call()
    await session.update()
    assert [run.kind for run in await session.runs()] == ["update"]


# -- answers


@pytest.mark.parametrize(("asked", "stops"), [(86_400.0, False), (1e308, False), (100.0, True)])
async def test_nothing_is_held_up_by_an_embedder_that_asks_for_a_long_pause(asked, stops):
    """A quota that is spent for the day would hold an update, and its memory's end, for a day."""
    now, slept = 0.0, []

    async def sleep(seconds):
        nonlocal now
        slept.append(seconds)
        now += seconds
        await asyncio.sleep(0)

    embedder = Meanings(
        script=[ModelError("429", charged=False, retry_after=asked, kind="transient")]
    )
    client = EmbedderClient(embedder, SearchPolicy(), clock=lambda: now, sleep=sleep)
    made = client.passages(["a"], len, lambda: stops and now > 2)
    async with asyncio.timeout(30):
        if stops:
            assert await made is None
        else:
            with pytest.raises(ModelError, check=of_kind("transient")):
                await made
            with pytest.raises(SpendLimitError):
                await client.passages(["a"], len, lambda: None)
    assert len(embedder.sent) == 1
    assert max(slept, default=0) <= 2
    assert now < 5


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda texts: [[math.nan] * 64 for _ in texts], "invalid"),
        (lambda texts: [[1.0] * 64 for _ in texts[1:]], "invalid"),
        (ModelError("bad key"), "permanent"),
    ],
)
async def test_a_bad_answer_is_refused_by_embed_and_costs_a_search_its_vectors_alone(
    answer, kind, caplog
):
    store = RecordStore(MemoryStore())
    memory, session = await filled(store, Meanings(script=[answer]))
    with pytest.raises(ModelError, check=of_kind(kind)):
        await session.embed()
    assert await memory._handle.store.blocks("s", "vectors/64/meanings") == []
    await session.embed()
    for ask in (
        lambda session: session.search("automobile"),
        lambda session: session.recall("automobile"),
        lambda session: session.context(800, query="automobile", recall_tokens=300),
    ):
        caplog.clear()
        assert await ask(memory_over(store, Meanings(script=[answer])).session("s"))
        assert "words alone" in caplog.text


async def test_an_embedder_that_fails_for_the_moment_is_asked_again():
    embedder = Meanings(script=[ModelError("busy", kind="transient"), OSError("reset"), None])
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    client = EmbedderClient(embedder, SearchPolicy(), sleep=sleep)
    assert (await client.passages(["a conveyance"], len, lambda: None)).shape == (1, 64)
    assert len(embedder.sent) == 3
    assert 0 < sum(slept) <= 1.5, "two pauses, of at most half a second and one"
    always = EmbedderClient(Meanings(script=[OSError("reset")] * 9), SearchPolicy(), sleep=sleep)
    with pytest.raises(ModelError, check=of_kind("transient")):
        await always.passages(["a conveyance"], len, lambda: None)


@pytest.mark.parametrize("query", ["\0", "\ud800", "", " ", "🙂" * 20_000, "car\0\udfff"])
async def test_any_question_can_be_sent(query):
    embedder = Meanings()
    _, session = await filled(RecordStore(MemoryStore()), embedder)
    await session.embed()
    await session.search(query)
    for text in embedder.sent[-1]:
        text.encode()
        assert "\0" not in text


# -- limits


def test_requests_and_tokens_a_minute_hold():
    """Passages keep to the rate; questions do too, and do not wait for it."""
    sent = []

    class Timed(Meanings):
        async def embed(self, texts, *, kind):
            sent.append((asyncio.get_running_loop().time(), len(texts)))
            return await super().embed(texts, kind=kind)

    async def run():
        clock = asyncio.get_running_loop().time
        policy = SearchPolicy(requests_per_minute=3, tokens_per_minute=10, embed_batch=4)
        client = EmbedderClient(Timed(), policy, clock=clock)
        assert (await client.passages(["x"] * 41, lambda _: 1, lambda: None)).shape == (41, 64)
        minutes = (sent[-1][0] - sent[0][0]) / 60
        assert len(sent) <= 3 * (1 + minutes) + 0.01
        assert sum(many for _, many in sent) <= 10 * (1 + minutes) + 4
        assert max(many for _, many in sent) == 4
        assert await client.question("automobile", lambda _: 1) is None, "passages count with them"

    run_fast(run())


async def test_a_pass_ends_between_requests_when_the_memory_closes(tmp_path):
    class Slow(Meanings):
        async def embed(self, texts, *, kind):
            await asyncio.sleep(0.05)
            return await super().embed(texts, kind=kind)

    memory, session = await filled(
        RecordStore(await SQLiteStore.open(tmp_path / "chat.db")), Slow(), 2 * STRIDE
    )
    await session.update()
    await memory.close()
    again = memory_over(RecordStore(await SQLiteStore.open(tmp_path / "chat.db")), Meanings())
    (run,) = [run for run in await again.session("s").runs() if run.kind == "embedding"]
    assert (run.outcome, run.detail["stopped"]) == ("partial", "closing")
    await again.session("s").embed()
    assert (await again.session("s").search("conveyance"))[0].index == 12
    await again.close()


@pytest.mark.parametrize(("break_at", "outcome"), [(None, "ok"), (0, "error")])
async def test_a_worker_embeds_once_what_it_has_summarised(break_at, outcome):
    """Whatever an embedder refuses for good must not be sent again at every look."""
    memory, session = await filled(RecordStore(MemoryStore()), Meanings(break_at=break_at), 60)
    async with memory.worker(poll=0.02) as worker:
        await worker.drain(20)
        await worker.drain(20)
    assert [run.outcome for run in await session.runs() if run.kind == "embedding"] == [outcome]


async def test_the_update_of_all_embeds_too_and_looks_at_a_session_once():
    store = RecordStore(MemoryStore())
    await filled(store, None, 60)
    assert (await memory_over(store, None).update_all()).sessions == 1
    embedder = Meanings()
    memory = memory_over(store, embedder)
    session = memory.session("s")
    report = await memory.update_all()
    assert (report.sessions, report.updated, report.made) == (1, 1, 0)
    assert len(embedder.passages) > 60
    assert (await session.embed()).texts == 0
    assert (await memory.update_all()).sessions == 0
    await session.append(said(60))
    assert (await memory.update_all()).sessions == 1
    await session.erase([3])
    assert (await memory.update_all()).sessions == 1
    assert (await memory.update_all()).sessions == 0
    # Another embedder's vectors are nobody's to complete.
    assert (await memory_over(store, Meanings("other", 32)).update_all()).sessions == 0


async def test_the_pass_of_another_process_is_not_done_twice():
    store = RecordStore(MemoryStore())
    _, session = await filled(store, Meanings(), clock=lambda: START)
    one, two = Meanings(), Meanings()
    gate = asyncio.Event()
    plain = one.embed

    async def waiting(texts, *, kind):
        await gate.wait()
        return await plain(texts, kind=kind)

    one.embed = waiting
    first, second = (
        memory_over(store, each, clock=lambda: START).session("s") for each in (one, two)
    )
    task = asyncio.create_task(first.embed())
    await begun(session)
    assert (await second.embed()).stopped == "busy"
    gate.set()
    await task
    assert two.passages == []
    assert (await second.search("conveyance"))[0].index == 12


async def test_a_damaged_vector_block_is_made_again():
    from hiermem.types.transaction import Block

    store = RecordStore(MemoryStore())
    memory, session = await filled(store, Meanings())
    await session.embed()
    tenant = memory._handle.store
    (block,) = await tenant.blocks("s", "vectors/64/meanings")
    epoch = (await tenant.session("s")).epoch
    spoilt = Block(block.kind, 0, 30, block.data[:-2] + b"xx")
    assert await tenant.put_blocks("s", [spoilt], epoch=epoch)
    again = memory_over(store, Meanings()).session("s")
    assert await again.search("conveyance") == []
    await again.embed()
    assert (await again.search("conveyance"))[0].index == 12
    assert await tenant.blocks("s", block.kind) == [block]


async def test_an_embedder_that_keeps_failing_is_left_alone_by_passes_and_questions():
    """Else every session of an update of all waits for it, and so does every search."""
    now = 100.0

    async def sleep(seconds):
        nonlocal now
        now += seconds

    embedder = Meanings(script=[ModelError("503", kind="transient")] * 1_000)
    client = EmbedderClient(embedder, SearchPolicy(embed_batch=2), clock=lambda: now, sleep=sleep)
    texts = [f"{word} {n}" for n in range(40) for word in ("conveyance", "medic")]
    for start in range(0, 40, 2):
        with pytest.raises((ModelError, SpendLimitError)):
            await client.passages(texts[start : start + 2], len, lambda: None)
    met = len(embedder.sent)
    assert met <= 12
    assert await client.question("where is the automobile", len) is None
    assert len(embedder.sent) == met, "a question was sent to an embedder that is left alone"
    embedder.script = []
    now += 1_000
    assert await client.passages(texts[:2], len, lambda: None) is not None
    assert await client.question("where is the automobile", len) is not None


async def test_a_session_without_words_is_searched_and_finds_what_comes():
    """Broken, a search of a fork that shares no message raises."""
    _, session = await filled(RecordStore(MemoryStore()), Meanings())
    await session.embed()
    fork = await session.fork("fork", at=0)
    await fork.embed()
    assert await fork.search("conveyance") == []
    await fork.append([said(0, "The automobile is blue."), said(1)])
    await fork.embed()
    assert (await fork.search("conveyance"))[0].index == 0
