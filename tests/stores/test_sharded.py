"""Tenants apart by database: each is found by its name, and the store is one all the same."""

import secrets
import uuid

import pytest
from conformance import Conformance
from kinds import of_kind

from hiermem import AsyncMemory
from hiermem.errors import ConflictError, NotFoundError, UsageError
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sharded import ShardedStore
from hiermem.stores.sqlite import SQLiteStore
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
    with pytest.raises(ConflictError, check=of_kind("secret")):
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


async def test_a_database_that_is_named_first_gets_the_secret_of_those_that_are_there():
    """Broken, it would draw one of its own, and could never be used with the others."""
    pytest.importorskip("psycopg")
    import postgres_server
    from psycopg.conninfo import make_conninfo

    dsn, schema = postgres_server.dsn(), postgres_server.schema_of(uuid.uuid4().hex)
    postgres_server.run(f"CREATE DATABASE {schema}")
    new = make_conninfo(dsn, dbname=schema)
    try:
        store = await ShardedStore.open({"old": dsn}, schema=schema)
        secret = await store.tenant("t").secret()
        await store.close()
        with pytest.raises(NotFoundError):
            await ShardedStore.open({"new": new, "old": dsn}, schema=schema, create=False)
        store = await ShardedStore.open({"new": new, "old": dsn}, schema=schema)
        assert {await one.tenant("t").secret() for one in store._stores.values()} == {secret}
        await store.close()
        with pytest.raises(UsageError, match="dsns"):
            await ShardedStore.open([dsn])
    finally:
        postgres_server.run(f"DROP DATABASE {schema} WITH (FORCE)")


async def test_what_a_tenant_left_behind_where_it_was_is_not_due():
    """Broken, a worker would claim it again for ever, and never find what is to make."""
    stores = shards("a", "b")
    name = next(n for n in map(str, range(99)) if ShardedStore(stores).place(n) == "a")
    for store in stores.values():
        await write(store.tenant(name), "s", [Message.user("x")], nodes=(node(1, 0),))
    moved = ShardedStore(stores, exceptions={name: "b"})
    assert len(await moved.claim_due(9, lease=60.0)) == 1
    assert await stores["a"].claim_due(9, lease=0.0) == []


async def test_a_store_over_several_is_scrubbed_and_named_as_they_are(tmp_path):
    """Broken, no call would clean a database, and a receipt would name no place."""
    stores = {name: await SQLiteStore.open(tmp_path / name) for name in "ab"}
    for store in stores.values():
        await store.tenant("t").erase_all()
    first = ShardedStore({"a": stores["a"]})
    async with AsyncMemory(store=ShardedStore({"b": stores["b"]})) as memory:
        assert (await memory.scrub()).done
        await memory.session("s").append(Message.user("hello"))
        await memory.copy_to(first)
        receipt = await memory.session("s").erase([0])
        assert [one.place for one in receipt.copies] == [str(tmp_path / "a")]
        with pytest.raises(UsageError, match="itself"):
            await memory.copy_to(stores["b"])
    await first.close()
