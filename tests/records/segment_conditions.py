"""The conditions on the index over all sessions: segments, loose blocks, and what is in none.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.

``condition`` makes the tests of all suites: a test's docstring is the condition. It needs only
pytest's ``tmp_path``, no plugin for async tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samples import delete, keyed, rewriting, write

from hiermem.protocols import Store, TenantStore
from hiermem.types.transaction import TERMS, Block, Copy, IndexState, PlacedBlock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class DecisionError(Exception):
    """The error of a decision under test; it must come out unchanged."""


class Conditions:
    """A group of conditions; ``open_store`` opens the store that they test."""

    async def open_store(self, path: Path) -> Store:
        """Open the store at ``path``, which does not exist before the first time.

        Opening the same path again after ``close`` must return the same store, if it is durable.
        """
        raise NotImplementedError("a conformance suite must define open_store(self, path)")

    @asynccontextmanager
    async def opened(self, path: Path) -> AsyncGenerator[Store]:
        """Open the store and close it at the end."""
        store = await self.open_store(path)
        try:
            yield store
        finally:
            await store.close()


def path_condition(
    body: Callable[[Any, Path], Awaitable[None]],
) -> Callable[[Conditions, Path], None]:
    """Make a test of ``body``, which receives a path and opens the store itself."""

    def test(self: Conditions, tmp_path: Path) -> None:
        async def run() -> None:
            await body(self, tmp_path / "store")

        asyncio.run(run())

    update_wrapper(test, body)
    del test.__wrapped__  # type: ignore[attr-defined] # pytest would request the body's arguments
    return test


def store_condition(
    body: Callable[[Any, Store], Awaitable[None]],
) -> Callable[[Conditions, Path], None]:
    """Make a test of ``body``, which receives a fresh store."""

    async def with_store(self: Conditions, path: Path) -> None:
        async with self.opened(path) as store:
            await body(self, store)

    return path_condition(update_wrapper(with_store, body))


def condition(
    body: Callable[[Any, TenantStore], Awaitable[None]],
) -> Callable[[Conditions, Path], None]:
    """Make a test of ``body``, which receives the handle of one tenant of a fresh store."""

    async def with_tenant(self: Conditions, store: Store) -> None:
        await body(self, store.tenant("tenant"))

    return store_condition(update_wrapper(with_tenant, body))


_EMPTY = IndexState((), (), ())


class SegmentConditions(Conditions):
    """Segments of blocks of terms."""

    @condition
    async def test_a_segment_is_put_of_what_stands_alone(self, tenant: TenantStore) -> None:
        """Of what changed since it was read, nothing is put, and nothing is dissolved."""
        for name in ("s", "t"):
            await write(tenant, name, keyed(*"0123456789"))
            await _put(tenant, name, (0, 5), (5, 10))
        loose = (await tenant.index_state()).loose
        assert await tenant.put_segment(loose[:1], {0: b"x"}) is True
        (kept,) = (await tenant.index_state()).segments
        late = loose[1:]
        assert await tenant.put_segment(loose[:2], {}) is False, "in another segment"
        assert await tenant.put_segment(late, {}, replaces=[kept.number + 1]) is False
        shorter = PlacedBlock(loose[1].session, Block(TERMS, 5, 9, b""))
        assert await tenant.put_segment([shorter], {}, replaces=[kept.number]) is False
        await write(tenant, "t", record={"epoch": 1})
        assert await tenant.put_segment(late, {}, replaces=[kept.number]) is False, "an epoch"
        await delete(tenant, "t")
        assert await tenant.put_segment(late, {}, replaces=[kept.number]) is False, "gone"
        state = await tenant.index_state([0])
        assert state.segments == (kept.__class__(kept.number, 1, (), {0: b"x"}),)
        assert _names(state.loose) == [("s", 5)]
        # Replaced by one of both, under a number of its own.
        assert await tenant.put_segment(loose[:2], {1: b"y"}, replaces=[kept.number]) is True
        (both,) = (await tenant.index_state([0, 1])).segments
        assert both.number != kept.number
        assert (both.blocks, dict(both.pages)) == (2, {1: b"y"})
        assert await tenant.segment_blocks([(kept.number, 0)]) == []
        assert await tenant.put_segment([], {2: b"z"}, replaces=[both.number]) is True
        state = await tenant.index_state([0, 1, 2])
        assert state.segments == ()
        assert _names(state.loose) == [("s", 0), ("s", 5)]
        assert await tenant.put_segment(state.loose, {}) is True
        (last,) = (await tenant.index_state()).segments
        assert last.number not in (kept.number, both.number), "a number is never used again"

    @condition
    async def test_a_block_that_is_replaced_is_dead_in_its_segment(
        self, tenant: TenantStore
    ) -> None:
        """The new one is loose, and what the segment says of the old one is known to be late."""
        await write(tenant, "s", keyed(*"0123456789"))
        await _put(tenant, "s", (0, 4), (5, 10))
        assert await tenant.put_segment((await tenant.index_state()).loose, {}) is True
        await tenant.put_blocks("s", [Block(TERMS, 0, 5, b"new")], epoch=0)
        state = await tenant.index_state()
        (segment,) = state.segments
        assert (segment.blocks, segment.dead) == (2, (0,))
        assert [one.block for one in state.loose] == [Block(TERMS, 0, 5, b"new")]
        assert state.unindexed == ()
        places = [(segment.number, place) for place in (0, 1)]
        assert _names(await tenant.segment_blocks(places)) == [("s", 5)]
        await tenant.drop_blocks("none", TERMS)
        # Dissolved, it leaves its live blocks alone.
        assert await tenant.put_segment([], {}, replaces=[segment.number]) is True
        assert _names((await tenant.index_state()).loose) == [("s", 0), ("s", 5)]
        assert [one.data for one in await tenant.blocks("s", TERMS)] == [b"new", b"s 5"]

    @condition
    async def test_no_page_outlives_what_it_was_made_of(self, tenant: TenantStore) -> None:
        """A rewrite, a deletion and dropped blocks dissolve each segment that held them."""
        for kind in ("edit", "erase", "mark"):
            for dead in (False, True):
                for name in ("s", "t"):
                    await write(tenant, name, keyed(*"0123456789"))
                    await _put(tenant, name, (0, 5), (5, 10))
                loose = (await tenant.index_state()).loose
                for one in loose:
                    assert await tenant.put_segment([one], {0: one.block.data}) is True
                if dead:
                    await _put(tenant, "s", (5, 10))
                await write(tenant, "s", rewrites=rewriting(7, "", kind))
                state = await tenant.index_state([0])
                assert [dict(one.pages)[0] for one in state.segments] == [b"s 0", b"t 0", b"t 5"]
                assert state.loose == ()
                assert [gaps for _, gaps in state.unindexed] == [((5, 10),)]
                assert await tenant.put_segment([], {}, replaces=[state.segments[0].number])
                await tenant.drop_blocks("t", TERMS)
                state = await tenant.index_state([0])
                assert state.segments == ()
                assert _names(state.loose) == [("s", 0)]
                assert await tenant.erase_all() == 2
        for name in ("s", "t"):
            await write(tenant, name, keyed(*"0123456789"))
            await _put(tenant, name, (0, 10))
        assert await tenant.put_segment((await tenant.index_state()).loose, {0: b"both"}) is True
        await write(tenant, "f", copy=Copy("s", 10), record={"forked_from": "s", "forked_at": 10})
        assert await _gaps(tenant) == [("f", [(0, 10)])], "a fork begins without blocks"
        await delete(tenant, "s")
        state = await tenant.index_state([0])
        assert (state.segments, _names(state.loose)) == ((), [("t", 0)])
        assert await tenant.put_segment(state.loose, {0: b"t"}) is True
        assert await tenant.erase_all() == 2
        assert await tenant.index_state([0]) == _EMPTY

    @path_condition
    async def test_segments_belong_to_their_tenant(self, path: Path) -> None:
        """Neither reads nor writes of one tenant reach the segments of another."""
        async with self.opened(path) as store:
            for name in ("one", "two"):
                tenant = store.tenant(name)
                await write(tenant, "s", keyed(*"0123456789"))
                await _put(tenant, "s", (0, 10))
                loose = (await tenant.index_state()).loose
                assert await tenant.put_segment(loose, {0: name.encode()}) is True
            one, two, other = (store.tenant(name) for name in ("one", "two", "other"))
            before = await two.index_state([0])
            (mine,) = (await one.index_state()).segments
            (theirs,) = before.segments
            assert dict(theirs.pages) == {0: b"two"}
            assert await other.index_state([0]) == _EMPTY
            assert await other.segment_blocks([(theirs.number, 0), (mine.number, 0)]) == []
            blocks = await one.segment_blocks([(mine.number, 0)])
            assert await other.put_segment(blocks, {}) is False
            assert await other.put_segment([], {}, replaces=[theirs.number]) is False
            assert await one.put_segment([], {}, replaces=[mine.number]) is True
            assert await one.erase_all() == 1
            assert await two.index_state([0]) == before
            if "durable" not in store.capabilities:
                return
        async with self.opened(path) as store:
            assert await store.tenant("two").index_state([0]) == before


async def _put(tenant: TenantStore, session: str, *spans: tuple[int, int]) -> None:
    blocks = [Block(TERMS, low, high, f"{session} {low}".encode()) for low, high in spans]
    assert await tenant.put_blocks(session, blocks, epoch=0) is True


async def _gaps(
    tenant: TenantStore, limit: int | None = 100
) -> list[tuple[str, list[tuple[int, int]]]]:
    found = (await tenant.index_state(limit=limit)).unindexed
    assert [record for record, _ in found] == [await tenant.session(one.id) for one, _ in found]
    return [(record.id, list(gaps)) for record, gaps in found]


def _names(blocks: Iterable[PlacedBlock]) -> list[tuple[str, int]]:
    return [(one.session.id, one.block.start) for one in blocks]
