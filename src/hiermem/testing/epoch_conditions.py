"""The conditions on epochs and blocks: results of reads must not outlive what was read.

Each test holds one sentence of ``hiermem.protocols.TenantStore``; its name says what would break.
"""

from __future__ import annotations

import pytest

from hiermem.errors import UsageError
from hiermem.protocols import TenantStore
from hiermem.testing.conditions import Conditions, condition
from hiermem.testing.samples import deciding, write
from hiermem.testing.strategies import HOSTILE_NAMES
from hiermem.types import Message
from hiermem.types.transaction import Block, Record, RecordWrite, ViewRecord


class EpochConditions(Conditions):
    """Guarded writes, and blocks."""

    @condition
    async def test_a_write_of_an_earlier_epoch_does_not_land(self, tenant: TenantStore) -> None:
        """Views, records and blocks are refused if the epoch moved or the session is gone."""
        await write(tenant, "s", [Message.user("x")], record={"epoch": 2})
        await write(tenant, "t", [Message.user("x")])
        view, block = ViewRecord("s", "v", "1"), Block("index", 0, 1, b"1")
        record = RecordWrite("k", "s", "a", "1")

        async def tried(epoch: int, *, other: int = 0) -> list[bool]:
            epochs = {"s": epoch, "t": other}
            return [
                await tenant.put_view(view, epoch=epoch),
                await tenant.put_records([record], epochs=epochs),
                await tenant.put_blocks("s", [block], epoch=epoch),
            ]

        for epoch in (1, 3, -1):
            assert await tried(epoch) == [False] * 3
        assert await tenant.view("s", "v") is None
        assert await tenant.records("k") == []
        assert await tenant.blocks("s", "index") == []
        assert await tried(2) == [True] * 3
        assert await tried(2, other=1) == [True, False, True]
        await write(tenant, "s", record={"epoch": 3})
        assert await tried(2) == [False] * 3
        assert await tenant.records("k") == [Record("k", "s", "a", "1", 1)]
        await tenant.transact(deciding(delete=["s"]))
        for epoch in (0, 3):
            assert await tried(epoch) == [False] * 3
        assert await tenant.put_records([record], epochs={"none": 0}) is False
        assert await tenant.view("s", "v") is None

    @condition
    async def test_a_write_without_an_epoch_is_not_guarded(self, tenant: TenantStore) -> None:
        """Without an epoch none is compared; the session need not exist."""
        view = ViewRecord("none", "v", "1")
        assert await tenant.put_view(view) is True
        assert await tenant.put_records([RecordWrite("k", "none", "a", "1")]) is True
        assert await tenant.put_records([RecordWrite("k", "none", "b", "1")], epochs={}) is True
        assert await tenant.view("none", "v") == view
        assert len(await tenant.records("k")) == 2

    @condition
    async def test_a_guarded_call_is_still_checked(self, tenant: TenantStore) -> None:
        """Impossible writes of records are refused whatever the epoch is."""
        await write(tenant, "s")
        twice = [RecordWrite("k", "s", "a", "1")] * 2
        for epoch in (0, 1):
            with pytest.raises(UsageError):
                await tenant.put_records(twice, epochs={"s": epoch})
        expected = [RecordWrite("k", "s", "a", "1", 4)]
        assert await tenant.put_records(expected, epochs={"s": 0}) is False

    @condition
    async def test_blocks_come_by_start_in_a_range(self, tenant: TenantStore) -> None:
        """Of one kind and session, those that begin in the range; each byte as it came."""
        await write(tenant, "s")
        await write(tenant, "t")
        data = [bytes(range(256)), b"", b"\x00" * 70_000]
        blocks = [Block("index", n * 10, n * 10 + 10, data[n % 3]) for n in range(12)]
        assert await tenant.put_blocks("s", blocks[::-1], epoch=0) is True
        assert await tenant.put_blocks("t", [Block("index", 5, 6, b"t")], epoch=0) is True
        for start, stop in (
            (0, None),
            (0, 0),
            (10, 20),
            (11, 20),
            (9, 31),
            (110, None),
            (200, None),
        ):
            found = await tenant.blocks("s", "index", start, stop)
            end = 10**9 if stop is None else stop
            assert found == [block for block in blocks if start <= block.start < end]
        assert await tenant.blocks("none", "index") == []
        assert await tenant.put_blocks("none", blocks, epoch=0) is False

    @condition
    async def test_a_block_is_known_by_kind_and_start(self, tenant: TenantStore) -> None:
        """A block with the same key replaces it whole; a kind is its exact name."""
        await write(tenant, "s")
        blocks = [Block(name, 0, 9, name.encode()) for name in HOSTILE_NAMES]
        assert await tenant.put_blocks("s", blocks, epoch=0) is True
        for block in blocks:
            assert await tenant.blocks("s", block.kind) == [block]
        other = Block(HOSTILE_NAMES[0], 0, 3, b"new")
        twice = [Block(HOSTILE_NAMES[0], 0, 5, b"first"), other]
        assert await tenant.put_blocks("s", twice, epoch=0) is True
        assert await tenant.blocks("s", HOSTILE_NAMES[0]) == [other]
        assert await tenant.put_blocks("s", [], epoch=0) is True
        await tenant.drop_blocks("s", HOSTILE_NAMES[1])
        await tenant.drop_blocks("none", HOSTILE_NAMES[2])
        left = [name for name in HOSTILE_NAMES if await tenant.blocks("s", name)]
        assert left == [HOSTILE_NAMES[0], *HOSTILE_NAMES[2:]]
