"""The store in memory passes the conformance suite, and its sorted lists stay sorted when cut."""

from hiermem.stores.memory import MemoryStore
from hiermem.testing import StoreConformance


class TestMemory(StoreConformance):
    async def open_store(self, path):
        return MemoryStore()
