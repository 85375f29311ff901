"""The reference meets the contract that it is the reference for."""

from pathlib import Path

from hiermem.protocols import Store
from hiermem.stores.memory import MemoryStore
from hiermem.testing import StoreConformance


class TestMemoryStore(StoreConformance):
    async def open_store(self, path: Path) -> Store:
        return MemoryStore()
