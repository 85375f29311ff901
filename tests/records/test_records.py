"""Sessions kept in a store of five operations meet every condition, whatever the store is."""

from pathlib import Path

from record_conformance import RecordConformance

from hiermem.protocols import Store
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore


class TestInMemory(RecordConformance):
    async def open_store(self, path: Path) -> Store:
        return RecordStore(MemoryStore())


class TestInSQLite(RecordConformance):
    async def open_store(self, path: Path) -> Store:
        return RecordStore(await SQLiteStore.open(path))
