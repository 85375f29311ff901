"""What was removed is in none of the bytes: the files are searched for it after drawn histories.

A canary is a text that stands nowhere else. It is put into everything that can hold a text, removed
in one of the ways there are, and after ``scrub`` every file beside the store is read whole. Halves
of it are looked for, since a text may lie across two pages.
"""

import asyncio
import hashlib
import random
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import (
    attempt,
    contents,
    deciding,
    node,
    remade,
    run,
    stored,
    write,
    writing,
)
from sampling import drawn

from hiermem.errors import ClosedError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.types import Message, TextPart, ToolCall
from hiermem.types.transaction import Block, Copy, RecordWrite, Rewrite, Scrubbed, ViewRecord

SIZES = (1, 3, 40, 200, 1_000, 4_000, 20_000)
WAYS = ("erase", "delete", "tenant")


def canary_of(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def traces(folder, canary):
    """Give the names of the files in which a half of the canary stands."""
    half = len(canary) // 2
    needles = [canary[:half].encode(), canary[half:].encode()]
    return [
        path.name
        for path in sorted(folder.iterdir())
        if any(needle in path.read_bytes() for needle in needles)
    ]


class Life:
    """A store whose session "s" holds the canary wherever a text can be, among others' texts."""

    def __init__(self, tenant, canary):
        self.tenant = tenant
        self.canary = canary
        self.holders = []
        self.other = 0

    def message(self, text, size, shape):
        text = (text + " ") * size
        if shape == "parts":
            return Message("user", (TextPart(text), TextPart("x")), name=text[:200])
        if shape == "call":
            return Message.assistant("", tool_calls=(ToolCall("1", "f", f'{{"a": "{text}"}}'),))
        if shape == "metadata":
            return Message.user("x", metadata={"said": text})
        return Message.user(text)

    async def noise(self, count, size):
        """Say something else, in this session and another."""
        for session in ("s", "t"):
            texts = [f"{canary_of('noise', self.other, n)} " * size for n in range(count)]
            self.other += count
            await write(self.tenant, session, [Message.user(text) for text in texts])

    async def say(self, size, shape, neighbours):
        """Say the canary among others."""
        before = await self.tenant.session("s")
        index = (before.messages if before else 0) + neighbours
        around = [Message.user(f"{index} {n} beside " * 9) for n in range(2 * neighbours)]
        said = self.message(self.canary, size, shape)
        await write(
            self.tenant, "s", [*around[:neighbours], said, *around[neighbours:]],
            nodes=(node(index),),
        )  # fmt: skip
        self.holders.append(index)

    async def edit(self, size):
        """Replace what was said last by something that holds the canary still."""
        if self.holders:
            (old,) = await self.tenant.messages("s", self.holders[-1], self.holders[-1] + 1)
            new = replace(old, message=replace(old.message, content=f"{self.canary} " * size))
            await write(self.tenant, "s", rewrites=(Rewrite(new, "edit"),))

    async def derive(self, size):
        """Make summaries, views, records, blocks and journal entries that repeat it."""
        text = f"{self.canary} " * size
        if not self.holders:
            return
        if not await self.tenant.tree("s").nodes([f"L1.{self.holders[-1]}"]):
            await write(self.tenant, "s", nodes=(node(self.holders[-1]),))
        (own,) = await self.tenant.tree("s").nodes([f"L1.{self.holders[-1]}"])
        made = remade(own, text=text, anchors=(self.canary,), provenance=text, extras={"a": text})
        tried = attempt(f"a{own.revision}", reason=text[:400])
        await self.tenant.tree("s").write_nodes([made, remade(made.node)], attempts=[tried])
        await self.tenant.put_view(ViewRecord("s", f"v{size}", text))
        await self.tenant.put_records([RecordWrite("k", "s", f"r{size}", text)])
        await self.tenant.put_blocks("s", [Block("index", 0, 9**9, text.encode())], epoch=0)
        await self.tenant.put_run(run(f"run{size}", detail={"said": text[:300]}))

    async def churn(self, seed, count):
        """Write and rewrite records in any order and size, the canary in some of them.

        Pages split and merge, and what moves from one to another leaves copies in their gaps.
        """
        await self.noise(1, 1)
        drawn = random.Random(seed)
        for _ in range(count):
            key = f"c{drawn.randrange(count)}"
            mine = drawn.random() < 0.2
            text = f"{self.canary if mine else canary_of(drawn.random())} "
            body = text * drawn.choice((1, 3, 12, 36, 70, 200))
            write_ = RecordWrite("k" if mine else "other", "s", key, body)
            await self.tenant.put_records([write_])

    async def mix(self, seed, count):
        """Say things of any size in several sessions by turns, the canary in some of them.

        All of them share one tree of pages, which split in the middle; what moves from one to
        another leaves a copy in the gap of the first.
        """
        drawn = random.Random(seed)
        for _ in range(count):
            session = drawn.choice("rst")
            mine = session == "s" and drawn.random() < 0.5
            text = f"{self.canary if mine else canary_of(drawn.random())} "
            seen = await write(
                self.tenant, session, [Message.user(text * drawn.choice((1, 3, 12, 36, 70, 200)))]
            )
            if mine:
                self.holders.append(seen.session.messages if seen.session else 0)

    async def fork(self):
        """Copy the session."""
        record = await self.tenant.session("s")
        if record and not await self.tenant.session("f"):
            await write(self.tenant, "f", copy=Copy("s", record.messages))

    async def remove(self, way):
        """Remove the canary from everywhere, the way that a decision about it does."""
        if way == "tenant":
            await self.tenant.erase_all()
            return
        if way == "delete":
            await self.tenant.transact(deciding(delete=["s", "f"]))
            return
        record = await self.tenant.session("s")
        if record is None:
            return
        ids = tuple(f"L1.{index}" for index in self.holders)
        nodes = await self.tenant.tree("s").nodes(ids)
        plain = tuple(replace(one, revision=0, version=one.version + 1) for one in nodes)
        views = tuple(f"v{size}" for size in SIZES)
        gone = tuple(("k", one.key) for one in await self.tenant.records("k", scope="s"))
        steps = []
        for name in ("s", "f"):
            known = await self.tenant.session(name)
            if known is not None:
                tombs = tuple(
                    Rewrite(replace(stored(Message.user("")), index=index), "erase")
                    for index in self.holders
                    if index < known.messages
                )
                step = writing(
                    name, rewrites=tombs, forget=ids, nodes=plain if name == "s" else (),
                    drop_views=views, drop_records=gone,
                )  # fmt: skip
                steps.append((name, step))
        runs = [run(f"run{size}") for size in SIZES]
        await self.tenant.transact(deciding(*steps, runs=runs))
        # The journal keeps reasons by design; here they hold the canary only for the search's sake.
        tried = await self.tenant.attempts()
        await self.tenant.tree("s").write_nodes([], attempts=[replace(a, reason="") for a in tried])


STEPS = st.one_of(
    st.tuples(st.just("noise"), st.integers(1, 30), st.sampled_from(SIZES[:5])),
    st.tuples(
        st.just("say"), st.sampled_from(SIZES),
        st.sampled_from(("plain", "parts", "call", "metadata")), st.integers(0, 6),
    ),
    st.tuples(st.just("edit"), st.sampled_from(SIZES)),
    st.tuples(st.just("derive"), st.sampled_from(SIZES)),
    st.tuples(st.just("churn"), st.integers(0, 2**32), st.integers(20, 90)),
    st.tuples(st.just("mix"), st.integers(0, 2**32), st.integers(20, 90)),
    st.tuples(st.just("fork")),
)  # fmt: skip


async def live(path, steps, way, canary):
    """Live through ``steps`` and remove the canary; give the store and where it stood before."""
    store = RecordStore(await SQLiteStore.open(path))
    life = Life(store.tenant("t"), canary)
    for name, *args in steps:
        await getattr(life, name)(*args)
    seen = traces(path.parent, canary)
    await life.remove(way)
    return store, seen


@drawn(60)
@given(steps=st.lists(STEPS, min_size=2, max_size=9), way=st.sampled_from(WAYS))
def test_nothing_of_what_was_removed_is_in_the_bytes(tmp_path_factory, steps, way):
    """After drawn histories, not half of a canary is left in the file, its log or beside it."""
    folder = tmp_path_factory.mktemp("scrub")
    canary = canary_of(steps, way)

    async def run_it():
        store, _ = await live(folder / "x.db", steps, way, canary)
        before = await contents(store.tenant("t"))
        assert await store.tenant("t").scrub() == Scrubbed(done=True)
        assert traces(folder, canary) == []
        assert await contents(store.tenant("t")) == before
        assert await store.check() == []
        await store.close()
        assert traces(folder, canary) == []

    asyncio.run(run_it())


async def test_the_search_finds_what_is_there_before(tmp_path):
    """The canaries stand in the bytes until then, else their absence would mean nothing."""
    steps = [("say", 40, "plain", 2), ("derive", 40), ("edit", 3)]
    for number, way in enumerate(WAYS):
        folder = tmp_path / way
        folder.mkdir()
        canary = canary_of(number)
        store, seen = await live(folder / "x.db", steps, way, canary)
        assert seen == ["x.db-wal"]
        # The rows are gone and the bytes are not.
        assert traces(folder, canary) == ["x.db-wal"]
        await store.tenant("t").scrub()
        assert traces(folder, canary) == []
        await store.close()


async def test_what_is_erased_leaves_the_gaps_of_pages_too(tmp_path):
    """Copies are left in the gaps of pages that were split."""
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        canary = canary_of("gap", number)
        store, _ = await live(folder / "x.db", [("mix", number, 200)], "erase", canary)
        assert await store.tenant("t").scrub() == Scrubbed(done=True)
        assert traces(folder, canary) == []
        await store.close()


async def test_somebody_who_reads_is_told(tmp_path):
    """A reader's state keeps old pages alive: not done, and done when it has ended."""
    path = tmp_path / "x.db"
    store = RecordStore(await SQLiteStore.open(path, busy_timeout=0.2))
    tenant = store.tenant("t")
    canary = canary_of("reader")
    await write(tenant, "s", [Message.user(canary)])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchone()
    await tenant.transact(deciding(delete=["s"]))
    found = await tenant.scrub()
    assert not found.done
    assert "reading" in found.reason
    assert traces(tmp_path, canary) != []
    reader.execute("COMMIT")
    assert await tenant.scrub() == Scrubbed(done=True)
    assert traces(tmp_path, canary) == []
    reader.close()
    await store.close()


async def test_somebody_who_writes_is_told(tmp_path):
    """Another process in the middle of a write is in the way; afterwards it is done."""
    path = tmp_path / "x.db"
    store = RecordStore(await SQLiteStore.open(path, busy_timeout=0.2))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    found = await store.tenant("t").scrub()
    assert not found.done
    assert "writing" in found.reason
    other.execute("ROLLBACK")
    assert await store.tenant("t").scrub() == Scrubbed(done=True)
    # One who has it open and does nothing is not in the way.
    assert other.execute("SELECT count(*) FROM messages").fetchone() == (0,)
    assert await store.tenant("t").scrub() == Scrubbed(done=True)
    other.close()
    await store.close()


async def test_writes_wait_while_the_file_is_written_anew(tmp_path):
    """Appends, reads and scrubs at once: none fails, none is lost."""
    store = RecordStore(await SQLiteStore.open(tmp_path / "x.db"))
    tenant = store.tenant("t")
    await write(tenant, "s", [Message.user("text " * 4_000) for _ in range(50)])
    outcomes = await asyncio.gather(
        *(write(tenant, "s", [Message.user(str(n))]) for n in range(20)),
        *(tenant.scrub() for _ in range(3)),
        *(tenant.messages("s", 0, 9) for _ in range(10)),
    )
    assert all(one.done for one in outcomes if isinstance(one, Scrubbed))
    assert len(await tenant.messages("s", 0, 999)) == 70
    await store.close()
    with pytest.raises(ClosedError):
        await tenant.scrub()


async def test_scrubbing_in_memory_is_done_at_once():
    """There is no file, and nothing in the way."""
    for store in (RecordStore(MemoryStore()), RecordStore(await SQLiteStore.open(":memory:"))):
        assert await store.tenant("t").scrub() == Scrubbed(done=True)
        await store.close()
        with pytest.raises(ClosedError):
            await store.tenant("t").scrub()
