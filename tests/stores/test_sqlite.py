"""SQLite meets the contract, in a file and in memory."""

from pathlib import Path

from hiermem.protocols import Store
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing import StoreConformance


class TestSQLiteFile(StoreConformance):
    async def open_store(self, path: Path) -> Store:
        return await SQLiteStore.open(path)


class TestSQLiteInMemory(StoreConformance):
    async def open_store(self, path: Path) -> Store:
        return await SQLiteStore.open(":memory:")
