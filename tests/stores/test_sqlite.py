"""SQLite meets the contract, in a file and in memory."""

from pathlib import Path

import pytest
from conformance import Conformance

from hiermem.protocols import Store
from hiermem.stores.sqlite import SQLiteStore


class TestSQLiteFile(Conformance):
    async def open_store(self, path: Path) -> Store:
        return await SQLiteStore.open(path)


@pytest.mark.thorough
class TestSQLiteInMemory(Conformance):
    async def open_store(self, path: Path) -> Store:
        return await SQLiteStore.open(":memory:")
