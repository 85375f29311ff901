"""Tenants apart by database: each is found by its name, and the store is one all the same."""

from __future__ import annotations

import secrets
import uuid

import pytest
from conformance import Conformance

from hiermem.errors import SecretMismatchError, UsageError
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sharded import ShardedStore
from hiermem.testing.samples import node, write
from hiermem.types import Message


def shards(*names):
    stores, secret = {name: MemoryStore() for name in names}, secrets.token_bytes(32)
    for store in stores.values():
        store._secret = secret
    return stores


@pytest.mark.thorough
class TestShardedStore(Conformance):
    """It keeps what any store does; what a tenant does, its database does."""

    async def open_store(self, path):
        return ShardedStore(shards("a", "b", "c"))


def test_a_store_that_is_added_takes_a_share_of_each_and_moves_nothing_else():
    """Broken, a new database would make most tenants look empty."""
    tenants = [f"tenant {number}" for number in range(3000)]
    before, after = ShardedStore(shards("a", "b")), ShardedStore(shards("a", "b", "c"))
    moved = [name for name in tenants if before.place(name) != after.place(name)]
    assert {after.place(name) for name in moved} == {"c"}
    assert 850 < len(moved) < 1150
    for shard in "ab":
        assert 400 < sum(before.place(name) == shard for name in moved) < 600
    kept = ShardedStore(shards("a", "b", "c"), exceptions={n: before.place(n) for n in moved})
    assert [kept.place(name) for name in tenants] == [before.place(name) for name in tenants]
    with pytest.raises(UsageError, match="'z'"):
        ShardedStore(shards("a"), exceptions={"t": "z"})
    with pytest.raises(UsageError):
        ShardedStore({})


async def test_databases_of_one_store_have_one_secret():
    """Otherwise a tenant could not move between them."""
    pytest.importorskip("psycopg")
    import postgres_server

    from hiermem.stores.postgres import PostgresStore

    dsn, schema = postgres_server.dsn(), postgres_server.schema_of(uuid.uuid4().hex)
    second = postgres_server.schema_of(uuid.uuid4().hex)
    first = await PostgresStore.open(dsn, schema=schema)
    secret = await first.tenant("t").secret()
    other = await PostgresStore.open(dsn, schema=second, secret=secret)
    store = ShardedStore({"one": first, "two": other}, exceptions={"t": "two"})
    for name in ("t", "u", "v", "w"):
        await write(store.tenant(name), "s", [Message.user("x")], nodes=(node(1, 0),))
        assert await store.tenant(name).secret() == secret
    assert "t" in await other.tenants()
    assert len(await store.claim_due(3, lease=60.0)) == 3
    assert len(await store.claim_due(3, lease=60.0)) == 1
    await store.close()
    with pytest.raises(SecretMismatchError):
        await PostgresStore.open(dsn, schema=second, secret=b"x" * 32)
    with pytest.raises(UsageError, match="secret"):
        await PostgresStore.open(dsn, schema=second, secret=b"x")
    again = await ShardedStore.open({"one": dsn}, schema=second)
    assert await again.tenants() == await other_names(dsn, second)
    await again.close()


async def other_names(dsn, schema):
    from hiermem.stores.postgres import PostgresStore

    store = await PostgresStore.open(dsn, schema=schema, create=False)
    try:
        return await store.tenants()
    finally:
        await store.close()
