"""A store of one's own: an ordered map that is there already, LMDB."""

import pytest

from hiermem.stores.map import MapStore
from hiermem.testing import StoreConformance

lmdb = pytest.importorskip("lmdb")


class Lmdb:
    def __init__(self, path):
        self.env = lmdb.open(str(path), map_size=2**34)

    def get(self, keys):
        with self.env.begin() as reading:
            return [reading.get(key) for key in keys]

    def scan(self, low, high, *, limit, reverse):
        found = []
        with self.env.begin() as reading:
            cursor = reading.cursor()
            if reverse:
                more = cursor.prev() if cursor.set_range(high) else cursor.last()
            else:
                more = cursor.set_range(low)
            while more and low <= cursor.key() < high and len(found) != limit:
                found.append(cursor.item())
                more = cursor.prev() if reverse else cursor.next()
        return found

    def write(self, batch, *, durable):
        with self.env.begin(write=True) as writing:
            for key, value in batch.items():
                if value is None:
                    writing.delete(key)
                else:
                    writing.put(key, value)
        if durable:
            self.env.sync(True)

    def close(self):
        self.env.close()


class TestLmdb(StoreConformance):
    # A key of LMDB has at most 511 bytes: names are shorter than elsewhere.
    longest_name = 32

    async def open_store(self, path):
        return MapStore(Lmdb(path))
