"""What a store says of a commit is what the caller hears: nothing is done twice, nothing lost."""

import asyncio

import pytest
from samples import said, write

from hiermem.errors import StoreError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore


class Unsure(MemoryStore):
    """Applies the next commit and says that it does not know."""

    unsure = False

    async def commit(self, change):
        applied = await super().commit(change)
        if self.unsure:
            self.unsure = False
            error = StoreError("the connection was lost")
            error.committed = None
            raise error
        return applied


async def test_a_commit_of_unknown_outcome_is_not_made_again():
    """Broken, a message is there twice after the connection was lost."""
    store = Unsure()
    tenant = RecordStore(store).tenant("a")
    await write(tenant, "s", ["one"])
    store.unsure = True
    with pytest.raises(StoreError):
        await write(tenant, "s", ["two"])
    await write(tenant, "s", ["three"])
    assert await said(tenant) == ["one", "two", "three"]


class Contended(MemoryStore):
    """Lets another append come before each commit, so often as it is told."""

    def __init__(self):
        super().__init__()
        self.left, self.other, self.inside = 0, None, False

    async def commit(self, change):
        if self.left and not self.inside and "messages" in change.puts:
            self.left, self.inside = self.left - 1, True
            try:
                await asyncio.wait_for(self.other(), 0.2)
            except TimeoutError:
                self.left = 0  # it waits for the turn of the first
            finally:
                self.inside = False
        return await super().commit(change)


async def test_who_is_overtaken_three_times_has_a_turn():
    """Broken, an erasure beside a busy chat is tried without end."""
    store = Contended()
    tenant = RecordStore(store).tenant("a")
    await write(tenant, "s", ["begin"])
    others = RecordStore(store).tenant("a")
    store.left, store.other = 50, lambda: write(others, "s", ["beside"])
    await write(tenant, "s", ["mine"])
    texts = await said(tenant)
    assert texts.count("mine") == 1
    assert texts.count("beside") <= 4
    await write(others, "s", ["later"])
    assert (await said(tenant))[-1] == "later"
