"""What a search costs: what its session holds, and nothing of the sessions beside it.

The steps of SQLite's machine and the rows that are read are counted, not the time.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from hiermem import AsyncMemory, HierarchyConfig, LevelConfig, Message
from hiermem.embedders import HashingEmbedder
from hiermem.errors import StoreError
from hiermem.log import append as forking
from hiermem.search.ahead import share_index
from hiermem.search.indexes import KIND, STRIDE, Indexes
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore, files
from hiermem.tokens import ApproximateCounter
from hiermem.types.transaction import Changes

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
WORDS = ("ferry", "harbour", "price", "schema", "friday", "ada", "jonas", "booking")


@pytest.fixture
def steps(monkeypatch):
    """Count the steps, in hundreds, of every connection that is opened from here on."""
    counted = [0]

    def count():
        counted[0] += 1
        return 0

    plain = files.connect

    def connect(*args, **named):
        connection = plain(*args, **named)
        connection.set_progress_handler(count, 100)
        return connection

    monkeypatch.setattr(files, "connect", connect)
    return counted


def chat(count):
    return [
        Message(
            "assistant" if n % 2 else "user",
            f"remark {n} about the {WORDS[n % 8]} and the {WORDS[(3 * n + 1) % 8]}",
            created_at=START + timedelta(minutes=n),
        )
        for n in range(count)
    ]


async def memory_of(path, sessions, *, per_session=40):
    """Open a memory of one session of two strides and so many others of the same words."""
    memory = AsyncMemory(
        store=await SQLiteStore.open(path),
        token_counter=ApproximateCounter(),
        embedder=HashingEmbedder(32),
    )
    names = [f"s{n}" for n in range(sessions)]
    for name in names:
        await memory.session(name).append(chat(2 * STRIDE if name == "s0" else per_session))
    session = memory.session("s0")
    await session.update()
    await session.embed()
    return memory


@pytest.mark.thorough
async def test_a_search_costs_the_same_beside_three_and_beside_a_hundred_sessions(tmp_path, steps):
    """Cold, as in a new process, and warm; by words, by vectors, into evidence, into a context."""
    counts = []
    for sessions in (3, 100):
        path = tmp_path / f"{sessions}.db"
        await (await memory_of(path, sessions)).close()
        memory = AsyncMemory(
            store=await SQLiteStore.open(path),
            token_counter=ApproximateCounter(),
            embedder=HashingEmbedder(32),
        )
        session = memory.session("s0")
        await memory.sessions()  # the schema is read once
        found = []
        for ask in (
            lambda: session.search("ferry harbour"),  # noqa: B023
            lambda: session.search("ferry jonas"),  # noqa: B023
            lambda: session.recall("price booking"),  # noqa: B023
            lambda: session.context(2_000, query="price booking"),  # noqa: B023
        ):
            before = steps[0]
            assert await ask()
            found.append(steps[0] - before)
        counts.append(found)
        await memory.close()
    for few, many in zip(*counts, strict=True):
        assert many <= 1.2 * few + 3, counts


async def test_a_search_after_an_append_reads_what_is_new(tmp_path):
    """Cost proportional to what was appended: neither messages nor vectors are read again."""
    memory = await memory_of(tmp_path / "chat.db", 1)
    session, tenant = memory.session("s0"), memory._handle.store
    await session.search("ferry")
    read = []
    for name in ("messages", "blocks"):
        plain = getattr(tenant, name)

        async def watched(*args, _plain=plain, _name=name, **named):
            found = await _plain(*args, **named)
            read.append((_name, len(found)))
            return found

        setattr(tenant, name, watched)
    await session.append(Message.user("The zeppelin departs.", created_at=START))
    read.clear()
    assert (await session.search("zeppelin", 1))[0].index == 2 * STRIDE
    assert sum(many for name, many in read if name == "messages") <= 4
    assert sum(many for name, many in read if name == "blocks") <= 1
    await memory.close()


async def test_a_search_long_after_the_last_one_reads_what_updates_stored(tmp_path):
    """Broken, a process that searched before reads all messages since, and indexes them again."""
    memory = await memory_of(tmp_path / "chat.db", 1)
    session, tenant = memory.session("s0"), memory._handle.store
    await session.append(chat(9))
    await session.search("ferry")
    await session.append([Message.user(f"The zeppelin departs, {n}.") for n in range(4 * STRIDE)])
    await session.update()
    await session.embed()  # the pass that the update began would be watched, too
    watched = memory._handle.store = memory._handle.indexes._store = Watched(tenant)
    memory._handle.indexes._read = watched.messages
    found = await session.search("zeppelin departs", 3)
    assert found
    read = sum(stop - start for start, stop in watched.read)
    assert read < STRIDE + 20, "a stride that was begun, the last one, and the hits"
    assert watched.written == []
    await memory.close()


class Watched:
    """A tenant's store that notes what is read and which blocks are written."""

    def __init__(self, inner):
        self._inner, self.read, self.written = inner, [], []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def messages(self, session_id, start, stop, **more):
        self.read.append((start, stop))
        return await self._inner.messages(session_id, start, stop, **more)

    async def put_blocks(self, session_id, blocks, **more):
        self.written += [(block.kind, block.start) for block in blocks]
        return await self._inner.put_blocks(session_id, blocks, **more)


class WatchedStore:
    """The store around it."""

    capabilities = frozenset()

    def __init__(self, inner):
        self._inner, self.tenants_ = inner, {}

    def tenant(self, name):
        return self.tenants_.setdefault(name, Watched(self._inner.tenant(name)))

    async def tenants(self, **how):
        return await self._inner.tenants(**how)

    async def claim_due(self, limit, **how):
        return await self._inner.claim_due(limit, **how)

    async def close(self):
        pass


@pytest.mark.parametrize("by", ["update", "worker"])
async def test_the_first_search_after_an_update_finds_its_index_built(by):
    """Broken, the first search of a long session takes as long as reading all of it."""
    store, many = MemoryStore(), 3 * STRIDE + 40
    memory = AsyncMemory(store=store, token_counter=ApproximateCounter())
    await memory.session("s").append(
        [
            (Message.assistant if n % 2 else Message.user)(f"remark {n} on pumps")
            for n in range(many)
        ]
    )
    await memory.session("short").append([Message.user("a remark on pumps")])
    if by == "update":
        await memory.session("s").update()
    else:
        async with memory.worker(poll=0.05) as worker:
            assert await worker.drain(timeout=60)
    watched = WatchedStore(store)
    searching = AsyncMemory(store=watched, token_counter=ApproximateCounter())
    found = await searching.session("s").search("remark 300 pumps")
    tenant = watched.tenants_["default"]
    assert tenant.written == [], "everything is kept already"
    assert sum(stop - start for start, stop in tenant.read) < STRIDE, "the hits, and the rest"
    assert await store.tenant("default").blocks("short", KIND) == []
    # What was kept says what is built where nothing was kept.
    other = AsyncMemory(store=store, token_counter=ApproximateCounter())
    await store.tenant("default").mutate("s", _next_epoch)
    assert _told(await other.session("s").search("remark 300 pumps")) == _told(found)


def _next_epoch(snapshot):
    record = snapshot.session
    return Changes(
        None, session=replace(record, epoch=record.epoch + 1, version=record.version + 1)
    )


def _told(hits):
    return [(hit.id, hit.span, round(hit.score, 9), hit.text) for hit in hits]


async def test_an_update_keeps_what_came_since_the_last_one_and_reads_no_more():
    """Broken, each update of a long session reads its whole index, or keeps none of its growth."""
    store = MemoryStore()
    watched = WatchedStore(store)
    memory = AsyncMemory(store=watched, token_counter=ApproximateCounter())
    session, tenant = memory.session("s"), watched.tenant("default")
    await session.append([Message.user(f"remark {n}") for n in range(2 * STRIDE + 9)])
    await session.update()
    assert [start for kind, start in tenant.written if kind == KIND] == [0, STRIDE]
    tenant.written.clear()
    await session.update()
    assert tenant.written == []
    await session.append([Message.user(f"remark {n}") for n in range(STRIDE)])
    await session.update()
    assert [start for kind, start in tenant.written if kind == KIND] == [2 * STRIDE]
    assert {start for _, start in tenant.written} <= {STRIDE, 2 * STRIDE}
    # After an edit the next search makes the index again, and no update reads the session for it.
    await session.edit(5, "another remark")
    tenant.read.clear()
    tenant.written.clear()
    await session.update()
    assert [start for kind, start in tenant.written if kind == KIND] == []
    assert {hit.index for hit in await session.search("another remark", limit=50)} >= {5}
    assert {start for kind, start in tenant.written if kind == KIND} == {0}
    # From then on the updates store again what is new.
    tenant.written.clear()
    await session.append([Message.user(f"remark {n}") for n in range(STRIDE)])
    await session.update()
    assert [start for kind, start in tenant.written if kind == KIND] == [3 * STRIDE]


async def test_an_update_that_makes_many_summaries_stores_their_index():
    """Broken, a backlog that is made after its messages were indexed is indexed by a search."""
    store = MemoryStore()
    watched = WatchedStore(store)
    styles = ("detailed", "thematic", "executive")
    levels = tuple(LevelConfig(target_ratio=0.3, style=style) for style in styles)
    config = HierarchyConfig(max_messages=2, levels=levels, verbatim_tokens=1)
    memory = AsyncMemory(store=watched, token_counter=ApproximateCounter(), config=config)
    session, tenant = memory.session("s"), watched.tenant("default")
    await session.append([Message.user(f"remark {n} on pumps") for n in range(2 * STRIDE + 9)])
    await session.update(max_calls=0)
    tenant.written.clear()
    assert (await session.update()).made >= STRIDE
    assert {kind for kind, _ in tenant.written} - {KIND}


async def test_the_index_of_messages_is_stored_while_the_model_answers():
    """Broken, an update ends later by the time that indexing its session takes."""
    watched, seen = WatchedStore(MemoryStore()), []

    async def model(request):
        for _ in range(200):  # as long as it takes on a slow machine
            await asyncio.sleep(0.1)
            written = [start for kind, start in watched.tenant("default").written if kind == KIND]
            if written:
                break
        seen.append(written)
        return "Ada and Jonas made remarks on the ferry, the harbour and the price."

    counter = ApproximateCounter()
    memory = AsyncMemory(store=watched, llm=model, token_counter=counter)
    session = memory.session("s")
    await session.append([Message.user(f"remark {n} " + 30 * "ferry ") for n in range(STRIDE)])
    report = await session.update(1, max_calls=4)
    assert report.stopped == "max_calls"
    assert seen[-1] == [0]


async def test_an_update_does_not_fail_for_the_index_of_its_session(monkeypatch):
    """Broken, an update that has made all its summaries raises, and its report is lost."""
    memory = AsyncMemory(store=MemoryStore(), token_counter=ApproximateCounter())
    session, tenant = memory.session("s"), memory._handle.store
    await session.append([Message.user(f"remark {n} on pumps") for n in range(2 * STRIDE)])
    plain, failed = type(tenant).session, []

    async def read(self, session_id):
        if asyncio.current_task() is not update:
            failed.append(session_id)
            raise StoreError("the disk does not answer")
        return await plain(self, session_id)

    update = asyncio.create_task(session.update())
    monkeypatch.setattr(type(tenant), "session", read)
    report = await update
    assert failed
    assert report.stopped is None
    monkeypatch.undo()
    assert set((await session.status()).queue.values()) == {0}
    assert await session.search("remark 300")


@pytest.mark.parametrize("by", ["update", "update_all"])
async def test_the_deadline_of_an_update_holds_for_the_index_too(by, monkeypatch):
    """Broken, the first update of a long session takes as long as it takes to index it."""
    memory = AsyncMemory(store=MemoryStore(), token_counter=ApproximateCounter())
    session = memory.session("s")
    await session.append([Message.user(f"remark {n} on pumps") for n in range(2 * STRIDE)])
    began = asyncio.Event()

    async def store_ahead(self, record):
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Indexes, "store_ahead", store_ahead)
    async with asyncio.timeout(30):
        update = session.update if by == "update" else memory.update_all
        report = await update(deadline=2)
    assert began.is_set()
    assert report.stopped is None, "all summaries were made"
    assert set((await session.status()).queue.values()) == {0}


async def test_a_fork_takes_over_the_index_of_what_it_shares():
    """Broken, the first search of a fork reads again what its source has indexed."""
    store = MemoryStore()
    memory = AsyncMemory(store=store, token_counter=ApproximateCounter())
    session, tenant = memory.session("s"), store.tenant("default")
    await session.append([Message.user(f"remark {n} on pumps") for n in range(3 * STRIDE)])
    await session.update()
    fork = await session.fork("f", at=2 * STRIDE + 9)
    assert [block.start for block in await tenant.blocks("f", KIND)] == [0, STRIDE]
    watched = WatchedStore(store)
    searching = AsyncMemory(store=watched, token_counter=ApproximateCounter())
    found = await searching.session("f").search("remark 300 pumps")
    read = watched.tenants_["default"].read
    assert sum(stop - start for start, stop in read) < STRIDE
    await tenant.mutate("f", _next_epoch)
    assert _told(await fork.search("remark 300 pumps")) == _told(found)
    await session.fork("short", at=9)
    assert await tenant.blocks("short", KIND) == []


async def test_a_fork_takes_no_index_of_a_source_that_changed_meanwhile():
    """Broken, a search of the fork finds words that only its source says."""
    store = MemoryStore()
    memory = AsyncMemory(store=store, token_counter=ApproximateCounter())
    session, tenant = memory.session("s"), store.tenant("default")
    await session.append([Message.user(f"remark {n} on pumps") for n in range(2 * STRIDE)])
    await session.update()
    source = await memory._handle.record("s")
    await forking.fork(memory._handle, "s", "f")
    await session.edit(300, "the violin of Ada")
    await session.search("violin")
    await share_index(memory._handle, source, "f")
    assert await tenant.blocks("f", KIND) == []
    assert await memory.session("f").search("violin") == []
