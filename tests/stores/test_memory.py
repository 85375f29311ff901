"""The store in memory passes the conformance suite, and its sorted lists stay sorted when cut."""

from random import Random

from hiermem.records.tables import Commit, Key, Scan
from hiermem.stores.memory import MemoryStore
from hiermem.testing import StoreConformance
from hiermem.testing.rows import put, row


class TestMemory(StoreConformance):
    async def open_store(self, path):
        return MemoryStore()


async def test_a_scan_finds_its_rows_however_the_lists_were_cut_and_emptied():
    store, rng, there = MemoryStore(), Random(7), set()
    for at in range(200):
        there |= (new := {rng.randrange(40_000) for _ in range(60)})
        change = put(*(("messages", row("messages", "a", 1, number)) for number in new))
        assert await store.commit(change)
        start = rng.randrange(40_000)
        doomed = {number for number in there if start < number < start + 900 * (at % 2)}
        there -= doomed
        keys = [Key("messages", ("a", 1, number)) for number in sorted(doomed)]
        assert await store.commit(Commit(deletes=keys))
        scan = Scan("messages", ("a", 1), (start,), (39_000,), reverse=at % 3 == 0)
        _, (rows,) = await store.read((), [scan])
        right = [number for number in there if start < number < 39_000]
        assert [found[2] for found in rows] == sorted(right, reverse=scan.reverse)
