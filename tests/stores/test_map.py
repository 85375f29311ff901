"""The bytes of keys sort as their columns do, and a map that fails leaves the store usable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem.errors import StoreError
from hiermem.records.tables import Commit, Key, Scan
from hiermem.stores.map import MapStore, bounds, key_bytes
from hiermem.testing.rows import put, row

TEXTS = st.text(st.characters(), max_size=4) | st.text("\0\x01\x02\xff", max_size=4)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)
COLUMNS = st.tuples(TEXTS, NUMBERS, TEXTS, st.binary(max_size=3), NUMBERS)


@given(COLUMNS, COLUMNS)
def test_bytes_sort_as_the_columns_do(one, other):
    first, second = key_bytes(Key("t", one)), key_bytes(Key("t", other))
    assert (first < second, first == second) == (one < other, one == other)


@given(COLUMNS, COLUMNS, st.integers(0, 4))
def test_bounds_hold_what_begins_so_and_what_is_above_alone(one, other, length):
    low, high = bounds(Scan("t", one[:length]))
    assert (low <= key_bytes(Key("t", other)) < high) == (other[:length] == one[:length])
    low, high = bounds(Scan("t", (), after=one[: length + 1]))
    assert (low <= key_bytes(Key("t", other)) < high) == (other[: length + 1] > one[: length + 1])


class DistantMap:
    """A map on a server that is gone after it was written to."""

    def get(self, keys):
        return [None for _ in keys]

    def scan(self, low, high, *, limit=None, reverse=False):
        return []

    def write(self, batch, *, durable):
        raise StoreError("the server is gone", committed=None)

    def close(self):
        pass


async def test_a_map_says_itself_that_it_may_have_written():
    """Broken, a caller takes for unwritten what is there, and appends it twice."""
    with pytest.raises(StoreError) as failure:
        await MapStore(DistantMap()).commit(
            put(("counters", row("counters", "a", "k", "c", guard=1)))
        )
    assert failure.value.committed is None


class FullMap:
    """Holds nothing and takes nothing."""

    def get(self, keys):
        return [None] * len(keys)

    def scan(self, low, high, *, limit, reverse):
        return []

    def write(self, batch, *, durable):
        raise OSError(28, "No space left on device")

    def close(self):
        pass


async def test_a_map_that_fails_raises_a_store_error_and_holds_no_lock():
    store = MapStore(FullMap())
    change = put(("counters", row("counters", "a", "k", "c", guard=1)))
    for _ in range(2):
        with pytest.raises(StoreError, match="No space left") as failure:
            await store.commit(change)
        assert failure.value.committed is False
    assert await store.read([Key("counters", ("a", "k", "c"))], ()) == ([None], [])
    assert await store.commit(Commit()) is True
