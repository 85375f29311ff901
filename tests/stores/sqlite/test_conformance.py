"""The suite of all stores, over a file and over a database in memory."""

from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing import StoreConformance


class TestFile(StoreConformance):
    async def open_store(self, path):
        return await SQLiteStore.open(path)


class TestMemory(StoreConformance):
    async def open_store(self, path):
        return await SQLiteStore.open(":memory:")
