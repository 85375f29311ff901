"""The reference meets the contract that it is the reference for."""

from pathlib import Path

from conformance import Conformance

from hiermem.protocols import Store
from hiermem.stores.memory import MemoryStore


class TestMemoryStore(Conformance):
    async def open_store(self, path: Path) -> Store:
        return MemoryStore()
