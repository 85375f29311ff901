"""What only a store in PostgreSQL does: locks, round trips, errors, roles, scrubbing."""

import asyncio
import logging
import os
import pickle
import time
import uuid
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import postgres_server
import pytest

pytest.importorskip("psycopg", reason="the extra postgres is not installed")

import psycopg
from postgres_proxy import Proxy
from samples import node, run, said, write, writing

from hiermem import AsyncMemory, Memory, Message
from hiermem.errors import (
    ClosedError,
    ConfigError,
    ForkedProcessError,
    NotFoundError,
    ReadOnlyError,
    StoreCorruptError,
    StoreError,
    UsageError,
)
from hiermem.records import due
from hiermem.records.run import RecordStore
from hiermem.stores.postgres import PostgresStore, statements
from hiermem.stores.postgres import schema as schemas
from hiermem.stores.postgres.connections import refused_connection, shown, translate
from hiermem.testing import ScriptedLLM
from hiermem.types.transaction import Batch, NeedMessages, RecordWrite, Snapshot


@pytest.fixture
def schema():
    """Return the name of a schema that does not exist yet."""
    return postgres_server.schema_of(uuid.uuid4().hex)


@asynccontextmanager
async def opened(schema, **settings):
    store = RecordStore(
        await PostgresStore.open(
            settings.pop("dsn", None) or postgres_server.dsn(), schema=schema, **settings
        )
    )
    try:
        yield store
    finally:
        await store.close()


# -- locks


async def test_a_decision_that_waited_for_a_lock_reads_what_was_committed_meanwhile(schema):
    """A lock and a read in one statement would see the state from before the wait."""
    async with opened(schema) as one, opened(schema) as two:
        first, second = one.tenant("t"), two.tenant("t")
        await write(first, "s", [Message.user("0", key="k0")])
        for round_ in range(1, 6):
            waiting = None

            def deciding(round_=round_):
                nonlocal waiting
                yield "s", "session"
                # From here the session is locked; the other write waits, however long this takes.
                waiting = asyncio.ensure_future(
                    write(second, "s", [Message.user("late", key=f"l{round_}")], keys=["k0"])
                )
                for _ in range(20):
                    yield "s", NeedMessages(0, 1)
                changes = writing("s", [Message.user("early")])
                record = yield "s", "session"
                made = changes(Snapshot(record, {}))
                return Batch(None, (("s", replace(made, result=None)),))

            await first.transact(deciding)
            seen = await waiting
            assert seen.session.messages == 2 * round_
        assert len(await said(first, "s")) == 11


async def test_writers_in_several_stores_lose_nothing(schema):
    """Twelve writers over three pools: each message once, in the order of its writer."""
    async with opened(schema) as a, opened(schema) as b, opened(schema) as c:
        handles = [store.tenant("t") for store in (a, b, c)]

        async def writer(number):
            for n in range(15):
                await write(handles[number % 3], "s", [Message.user(f"{number}:{n}")])

        await asyncio.gather(*(writer(number) for number in range(12)))
        stored = await handles[0].messages("s", 0, 999)
        found = [str(one.content) for one in stored]
        assert len(found) == 180
        for number in range(12):
            own = [text for text in found if text.startswith(f"{number}:")]
            assert own == [f"{number}:{n}" for n in range(15)]


async def test_two_decisions_that_need_each_others_sessions_both_end(schema):
    """Each asks for a session that the other holds: one begins again; none waits for ever."""
    async with opened(schema, lock_timeout=20) as one, opened(schema, lock_timeout=20) as two:
        handles = one.tenant("t"), two.tenant("t")
        await write(handles[0], "a", [Message.user("x")])
        await write(handles[0], "b", [Message.user("x")])

        def both(first, second):
            def deciding():
                counts = []
                for name in (first, second):
                    for _ in range(5):
                        record = yield name, "session"
                    counts.append(record.messages)
                return Batch(counts)

            return deciding

        for _ in range(5):
            results = await asyncio.gather(
                handles[0].transact(both("a", "b")), handles[1].transact(both("b", "a"))
            )
            assert results == [[1, 1], [1, 1]]


async def test_a_session_held_by_another_is_busy_after_the_lock_timeout(schema):
    """The wait for a lock ends, with an error that says that nothing was written."""
    async with opened(schema, lock_timeout=0.2) as store:
        await write(store.tenant("t"), "s", [Message.user("x")])
        number = statements.lock_number(schema, "heads", "t", "s")
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn()) as other:
            await other.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            with pytest.raises(StoreError, match="55P03") as caught:
                await write(store.tenant("t"), "s", [Message.user("y")])
        assert caught.value.committed is False
        assert caught.value.retryable
        assert await said(store.tenant("t"), "s") == ["x"]


# -- round trips


async def test_a_write_and_a_read_wait_for_the_server_once(schema):
    """Counted at a socket: over a network, each more would be a millisecond or a hundred."""
    proxy = Proxy(postgres_server.dsn())
    try:
        async with opened(schema, dsn=proxy.dsn, pool_max=1) as store:
            tenant = store.tenant("t")

            async def waits(work):
                proxy.counted()
                await work
                return proxy.counted()

            await tenant.session("s")  # makes the connection
            many = [Message.user("x") for _ in range(100)]
            await write(tenant, "s", [Message.user("x")])
            assert await waits(write(tenant, "s", [Message.user("x")])) == 1
            assert await waits(write(tenant, "s", [Message.user("x", key="k")], keys=["k"])) == 1
            assert await waits(write(tenant, "s", many)) == 1
            assert await waits(tenant.messages("s", 0, 99)) == 1
            assert await waits(tenant.tree("s").nodes(["L1.0", "L1.1"])) == 1
            async with opened(schema) as other:
                await write(other.tenant("t"), "s", [Message.user("x")])
            # Refused; the guards as they are; what was decided again.
            assert await waits(write(tenant, "s", [Message.user("x")])) == 3
            # Others write there: it takes its turn at once, if the server limits turns.
            ((version,),) = postgres_server.run("SHOW server_version_num")
            turn = 2 if int(version) >= 170_000 else 1
            assert await waits(write(tenant, "s", [Message.user("x")])) == turn
            assert (await tenant.session("s")).messages == 106
    finally:
        proxy.close()


async def test_a_look_for_work_reads_nothing_that_is_due_later(schema):
    """Broken, every look reads all sessions with an open window that a limit of time will close."""
    async with opened(schema):
        looked = statements.ranged([due.page(None, ())])
        text = statements.sent(schema, looked.sql).decode()
        plan = postgres_server.run(
            f"INSERT INTO {schema}.due SELECT 't', n::text, n, 8000000000000000 + n, 1, 0 "
            "FROM generate_series(1, 5000) n",
            f"ANALYZE {schema}.due",
            f"EXPLAIN {text.replace('$1', '128')}",
        )
        assert "due_next" in "".join(line for (line,) in plan), plan


@pytest.mark.parametrize("confined", [False, True])
async def test_a_context_and_an_update_wait_for_the_server_a_few_times(schema, confined):
    """Reads that do not depend on one another are sent together, whoever asks for them."""
    proxy = Proxy(postgres_server.dsn())
    user = {"user": f"{schema}_app"} if confined else {}
    if confined:
        postgres_server.roles(schema)

    async def memory_of(model=None, **settings):
        dsn = psycopg.conninfo.make_conninfo(proxy.dsn, **user)
        store = RecordStore(
            await PostgresStore.open(
                dsn,
                schema=schema,
                pool_max=1,
                create=not confined,
                row_security=confined,
                **settings,
            )
        )
        await store.tenant("default").session("none")  # makes the connection
        return AsyncMemory(store=store, llm=model)

    async def waits(work):
        proxy.counted()
        await work
        return proxy.counted()

    def days(*numbers):
        return [Message.user(f"On day {n} we paid {7 * n} euros for ticket {n}. " * 3)
                for n in numbers]  # fmt: skip

    try:
        async with await memory_of() as memory:
            session = memory.session("s")
            await session.append(days(0))
            await session.append(days(1))
            assert await waits(session.append(days(2))) == 1
            assert await waits(session.append(Message.user("x", key="k"))) == 1
            assert await waits(session.append(days(*range(3, 103)))) <= 2
            await session.append(days(*range(103, 163)))
            await session.update()
            assert await waits(session.update()) <= 4
            await session.context(max_tokens=1800)  # reads the secret, once
            assert await waits(session.context(max_tokens=1700)) <= 9
            assert await waits(session.context(max_tokens=1700)) <= 2
            counts = []
            for number in range(163, 168):
                await session.append(days(number))
                counts.append(await waits(session.context(max_tokens=1700)))
            assert sorted(counts)[-2] <= 3, counts  # of five, one meets a window's edge
        async with await memory_of(ScriptedLLM(remote=True)) as memory:
            # The secret is of no tenant, so a confined role reads it apart.
            assert await waits(memory.session("s").append(days(500))) == 3 + confined
            session, made = memory.session("t"), 0
            while made != 1:  # of an update, 9 are the run's own, and 6 its claim's
                await session.append(days(*range(8)))
                proxy.counted()
                made = (await session.update()).made
                counted = proxy.counted()
            assert counted - 15 <= 10
            await session.append(days(*range(40)))
            async with memory.worker(poll=0.05) as worker:  # also as a role that sees one tenant
                assert await worker.drain(60)
        async with await memory_of(read_only=True) as memory:  # so that a write would fail
            assert (await memory.session("t").update()).made == 0
    finally:
        proxy.close()


# -- search over all sessions


# -- errors

CANARY = "canary-4711"


async def test_no_error_and_no_log_repeats_a_password_a_key_or_a_text(schema, caplog):
    """PostgreSQL quotes rows in its details, and drivers quote connection strings."""
    caplog.set_level(logging.DEBUG)
    raised = []

    async def fails(work):
        with pytest.raises((UsageError, StoreError, ConfigError)) as caught:
            await work
        raised.append(caught.value)

    server = psycopg.conninfo.conninfo_to_dict(postgres_server.dsn())
    for dsn in (
        f"postgresql://u:{CANARY}@127.0.0.1:1/db",
        f"host={server.get('host')} user=nobody-{CANARY} password={CANARY} dbname=postgres",
        f"postgresql://postgres:{CANARY}@/none?host={server.get('host')}",
        f"postgresql://{CANARY}@[::bad/{CANARY}",
        f"password={CANARY} nonsense",
    ):
        await fails(PostgresStore.open(dsn))
    async with opened(schema) as store:
        tenant = store.tenant("t")
        text = Message.user(CANARY, key=CANARY)
        await write(tenant, "s", [text], nodes=(node(0),))
        await fails(write(tenant, "s", [text]))  # the key is taken
        await fails(write(tenant, "s", parents=((CANARY, CANARY),)))
        await fails(write(tenant, "s", [Message.user("x")], flags=((99, CANARY),)))
        await fails(tenant.put_records([RecordWrite("k", "s", "v", CANARY + "\ud800")]))
    shown = [repr(one) + str(one) + repr(pickle.dumps(one)) for one in raised]
    shown += [repr(one.__cause__) + repr(one.__suppress_context__) for one in raised]
    shown += [record.getMessage() for record in caplog.records]
    assert not [one for one in shown if CANARY in one]
    assert all(one.__cause__ is None for one in raised)
    assert len(raised) == 9


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"host": "127.0.0.1", "port": "1"}, StoreError),
        ({"dbname": "none"}, ConfigError),
        ({"user": "nobody-here"}, ConfigError),
    ],
)
async def test_a_connection_that_is_refused_says_what_to_check(named, error):
    dsn = psycopg.conninfo.make_conninfo(postgres_server.dsn(), **named)
    with pytest.raises(error) as caught:
        await PostgresStore.open(dsn)
    assert "PostgreSQL" in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_lost_connection_is_made_anew_for_reads_and_for_what_was_not_committed(schema):
    """The server ends every connection: a read, and a write with a key, go on with fresh ones."""
    ended = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' "
        f"AND application_name = '{schema}'"
    )
    named = psycopg.conninfo.make_conninfo(postgres_server.dsn(), application_name=schema)
    async with opened(schema, dsn=named) as store:
        tenant = store.tenant("t")
        await write(tenant, "s", [Message.user("a", key="a")])
        await asyncio.to_thread(postgres_server.run, ended)
        assert await said(tenant, "s") == ["a"]
        await asyncio.to_thread(postgres_server.run, ended)
        await write(tenant, "s", [Message.user("b", key="b")], keys=["b"])
        assert await said(tenant, "s") == ["a", "b"]


async def test_a_commit_whose_answer_is_lost_is_found_out(schema):
    """The store asks whether it took effect, so that nothing is said twice and nothing lost."""
    proxy = Proxy(postgres_server.dsn())
    try:
        async with opened(schema, dsn=proxy.dsn, pool_max=1) as store:
            tenant = store.tenant("t")
            for text in "abc":
                await write(tenant, "s", [Message.user(text)])
            proxy.cut_after(1)
            await write(tenant, "s", [Message.user("d")])
            proxy.cut_after(1)
            await write(tenant, "s", [Message.user("e", key="e")], keys=["e"])
            proxy.cut_after(1)
            assert await said(tenant, "s") == ["a", "b", "c", "d", "e"]
    finally:
        proxy.close()


@pytest.mark.parametrize("tcp", [False, True])
async def test_a_commit_of_eight_megabytes_ends(schema, tcp):
    """Over a socket and over TCP: what the buffers do not take at once is sent all the same."""
    proxy = Proxy(postgres_server.dsn(), tcp=tcp)
    try:
        async with opened(schema, dsn=proxy.dsn) as store:
            tenant = store.tenant("t")
            for _ in range(5):
                many = [Message.user("x" * 4_000) for _ in range(2_000)]
                await asyncio.wait_for(write(tenant, "s", many), 30)
            assert (await tenant.session("s")).messages == 10_000
    finally:
        proxy.close()


async def test_a_server_that_does_not_answer_is_given_up_after_a_limit(schema):
    """Neither a read nor a write waits for ever, and a commit that was sent is unknown."""
    proxy = Proxy(postgres_server.dsn())
    limits = {"statement_timeout": 1.5, "idle_timeout": 0.5, "pool_max": 1}
    try:
        async with opened(schema, dsn=proxy.dsn, **limits) as store:
            tenant = store.tenant("t")
            for text in "abc":
                await write(tenant, "s", [Message.user(text)])
            proxy.be_silent()
            with pytest.raises(StoreError, match=r"did not answer within 2 seconds") as caught:
                await asyncio.wait_for(write(tenant, "s", [Message.user("d")]), 20)
            assert caught.value.committed is None
        async with opened(schema) as store:
            assert await said(store.tenant("t"), "s") == ["a", "b", "c"]
    finally:
        proxy.close()


async def test_a_store_is_closed_for_another_loop_and_after_a_fork(schema):
    async with opened(schema) as store:
        await store.tenants()

        async def elsewhere():
            await store.tenants()

        with pytest.raises(UsageError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())
        store.store._connections._home = -1
        with pytest.raises(ForkedProcessError):
            await store.tenants()
        store.store._connections._home = os.getpid()
    with pytest.raises(ClosedError):
        await store.tenants()


# -- the schema


async def test_several_may_create_one_store(schema):
    """Ten openers of an empty database: one creates the schema, and all get its secret."""
    opened_ = await asyncio.gather(
        *(PostgresStore.open(postgres_server.dsn(), schema=schema) for _ in range(10))
    )
    stores = [RecordStore(store) for store in opened_]
    secrets = {await store.tenant("t").secret() for store in stores}
    await asyncio.gather(*(store.close() for store in stores))
    assert len(secrets) == 1


@pytest.mark.parametrize("name", ["select", "_", "a" * 48])
async def test_every_plain_name_is_quoted(name):
    try:
        async with opened(name) as store:
            await write(store.tenant("t"), "s", [Message.user("x")])
            assert await store.tenants() == ["t"]
    finally:
        postgres_server.run(
            "SET client_min_messages TO warning", f'DROP SCHEMA IF EXISTS "{name}" CASCADE'
        )


async def test_what_is_no_store_of_this_version_is_left_alone(schema):
    with pytest.raises(NotFoundError):
        await PostgresStore.open(postgres_server.dsn(), schema=schema, create=False)
    postgres_server.run(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.mine (a int)")
    with pytest.raises(StoreCorruptError, match="holds tables"):
        await PostgresStore.open(postgres_server.dsn(), schema=schema)
    postgres_server.run(f"DROP TABLE {schema}.mine")
    async with opened(schema):
        pass
    postgres_server.run(f"UPDATE {schema}.format SET version = {schemas.VERSION + 1}")
    with pytest.raises(StoreCorruptError, match="upgrade"):
        await PostgresStore.open(postgres_server.dsn(), schema=schema)
    postgres_server.run(f"UPDATE {schema}.format SET version = {schemas.VERSION - 1}")
    with pytest.raises(StoreError, match="development version"):
        await PostgresStore.open(postgres_server.dsn(), schema=schema)


async def test_a_store_that_is_only_read_writes_nothing(schema):
    async with opened(schema) as store:
        await write(store.tenant("t"), "s", [Message.user("x")])
    async with opened(schema, read_only=True) as store:
        tenant = store.tenant("t")
        assert await said(tenant, "s") == ["x"]
        for work in (
            write(tenant, "s", [Message.user("y")]),
            tenant.put_run(run("r")),
            tenant.erase_all(),
            store.scrub(),
        ):
            with pytest.raises(ReadOnlyError):
                await work

        def deciding():
            record = yield "s", "session"
            return Batch(record.messages)

        assert await tenant.transact(deciding) == 1
        assert await said(tenant, "s") == ["x"]


# -- roles


@pytest.fixture
def confined(schema):
    """Return the connection strings of the roles of the documentation, for a new store."""
    return schema, postgres_server.roles(schema)


async def test_the_database_itself_confines_a_statement_to_its_tenant(confined):
    """A SELECT without WHERE sees one tenant, and none where none is named."""
    schema, of = confined
    async with opened(schema, dsn=of["app"], create=False, row_security=True) as store:
        for name in ("a", "b"):
            await write(store.tenant(name), "s", [Message.user(name)])
            assert await said(store.tenant(name), "s") == [name]
        bare, name_a = f"SELECT content FROM {schema}.messages", "SET hiermem.tenant TO '=a'"
        assert postgres_server.run(bare, dsn_=of["app"]) == []
        assert postgres_server.run(name_a, bare, dsn_=of["app"]) == [("a",)]
        move = f"UPDATE {schema}.messages SET tenant = 'b'"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres_server.run(name_a, move, dsn_=of["app"])
        forged = f"UPDATE {schema}.store SET value = '' WHERE name = 'secret'"
        secret = f"SELECT value FROM {schema}.store WHERE name = 'secret'"
        await store.tenant("a").secret()
        before = postgres_server.run(secret)
        postgres_server.run(forged, dsn_=of["app"])
        assert postgres_server.run(secret) == before
        assert await store.tenants() == ["a", "b"]
        found = await store.scrub()
        assert not found.done
        assert "owner" in found.reason
    with pytest.raises(ConfigError, match="row_security=True"):
        await PostgresStore.open(postgres_server.dsn(), schema=schema, row_security=True)


async def test_a_dispatcher_lists_what_is_due_of_all_tenants_and_sees_nothing_else(confined):
    schema, of = confined
    async with opened(schema) as store:
        await write(store.tenant("a"), "s", [Message.user("a")], nodes=(node(1, 0),))
        await write(store.tenant("b"), "idle", [Message.user("a")])
    async with opened(schema, dsn=of["dispatcher"], create=False) as store:
        assert await store.tenants() == ["a", "b"]
        async with AsyncMemory(store=store) as memory:
            (due,) = await memory.list_due()
        assert (due.tenant, due.session_id) == ("a", "s")
    async with opened(schema, dsn=of["dispatcher"], create=False) as store:
        for work in (
            store.tenant("a").messages("s", 0, 9),
            store.tenant("a").secret(),
            write(store.tenant("a"), "s", [Message.user("b")]),
        ):
            with pytest.raises(ConfigError, match="denies"):
                await work


# -- erasure


async def test_scrubbing_takes_removed_text_out_of_the_tables(schema):
    """An erasure leaves the bytes and says so; scrub() writes the tables anew and proves it."""
    async with AsyncMemory(
        store=RecordStore(await PostgresStore.open(postgres_server.dsn(), schema=schema))
    ) as memory:
        session = memory.session("s")
        for n in range(30):
            await session.append(Message.user(f"{CANARY} number {n} " * 20))
        await session.update()
        receipt = await session.erase(list(range(30)))
        assert not receipt.scrubbed
        assert "vacuumed" in receipt.scrub_reason
        found = await memory.scrub()
        assert not found.done
        assert "backups" in found.reason
    if "HIERMEM_TEST_POSTGRES" not in os.environ:
        assert CANARY.encode() not in files_of(schema)
    async with opened(schema, backups_expire=timedelta(days=30)) as store:
        found = await store.scrub()
        assert found.done
        assert "expires by" in found.reason


def files_of(schema):
    """Return the bytes of all files of the schema's tables and indexes, as they are on disk."""
    postgres_server.run("CHECKPOINT")
    (data,) = postgres_server.run("SHOW data_directory")[0]
    files = postgres_server.run(
        "SELECT pg_relation_filepath(c.oid) FROM pg_class c WHERE relnamespace = "
        f"'{schema}'::regnamespace AND relkind IN ('r', 'i') UNION ALL "
        "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relnamespace = "
        f"'{schema}'::regnamespace AND reltoastrelid <> 0"
    )
    return b"".join((Path(data) / path).read_bytes() for (path,) in files)


async def test_row_security_refuses_a_policy_that_is_not_the_stores(confined):
    """Broken, a report role's policy without TO shows each tenant the rows of all."""
    schema, roles = confined
    for policy in (
        "CREATE POLICY reporting ON {}.messages USING (true)",
        "ALTER POLICY one_tenant ON {}.messages USING (true)",
    ):
        postgres_server.run(policy.format(schema))
        with pytest.raises(ConfigError, match="foreign policy"):
            await PostgresStore.open(roles["app"], schema=schema, create=False, row_security=True)
        postgres_server.run(f"DROP POLICY IF EXISTS reporting ON {schema}.messages")


def test_the_grants_of_the_page_keep_the_store_itself_from_the_application(confined):
    """Broken, the role of the application deletes the secret, and nobody opens the store again."""
    schema, roles = confined
    for statement in (
        f"UPDATE {schema}.format SET version = 9",
        f"DELETE FROM {schema}.format",
        f"INSERT INTO {schema}.format VALUES (9)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres_server.run(statement, dsn_=roles["app"])


async def test_an_empty_schema_of_another_role_is_refused(schema):
    """Broken, whoever made it first may drop every table of the store."""
    postgres_server.run(
        f"CREATE ROLE {schema}_x", f"CREATE SCHEMA {schema} AUTHORIZATION {schema}_x"
    )
    with pytest.raises(ConfigError, match="belongs to another role"):
        await PostgresStore.open(postgres_server.dsn(), schema=schema)
    postgres_server.run(f"DROP SCHEMA {schema}", f"DROP ROLE {schema}_x")


async def test_the_schema_public_is_that_of_the_databases_owner(schema):
    """Broken, nobody who owns the database may keep a store in the schema that comes with it."""
    role, fresh = (
        f"{schema}_x",
        psycopg.conninfo.make_conninfo(postgres_server.dsn(), dbname=schema),
    )
    postgres_server.run(f"CREATE ROLE {role}", f"CREATE DATABASE {schema} TEMPLATE template0")
    try:
        postgres_server.run(f"ALTER DATABASE {schema} OWNER TO {role}")
        with pytest.raises(ConfigError, match="belongs to another role"):
            await PostgresStore.open(fresh, schema="public")
        postgres_server.run(f"ALTER DATABASE {schema} OWNER TO CURRENT_USER")
        await (await PostgresStore.open(fresh, schema="public")).close()
    finally:
        postgres_server.run(f"DROP DATABASE {schema} WITH (FORCE)", f"DROP ROLE {role}")


def test_a_full_disk_is_named_with_what_may_help():
    full = translate(psycopg.errors.DiskFull(), "host/db")
    assert "disk is full" in str(full)
    assert full.committed is False


async def test_a_table_in_use_is_not_said_to_be_clean(schema):
    """An older transaction still sees what was removed, or holds a table."""
    async with opened(schema, backups_expire=timedelta(days=1), lock_timeout=0.3) as store:
        await write(store.tenant("t"), "s", [Message.user(CANARY)])
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn()) as other:
            await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await other.execute("SELECT 1")
            await store.tenant("t").erase_all()
            found = await store.scrub()
            assert not found.done
            assert "older transaction" in found.reason
            await other.execute(f"LOCK TABLE {schema}.messages IN ACCESS SHARE MODE")
            found = await store.scrub()
            assert "in use" in found.reason
        assert (await store.scrub()).done


# -- the public face


def test_a_memory_opens_a_database_by_its_url(monkeypatch):
    """Broken, ``Memory.open`` takes a URL for a file."""
    dsn = postgres_server.dsn()
    try:
        with Memory.open(dsn, tenant="url") as memory:
            session = memory.session("s")
            session.append(Message.user("hello"))
            session.append(Message.user("once", key="k"), Message.assistant("yes"))
            session.append(Message.user("once", key="k"))
            assert len(session.messages(0, 9)) == 3
            assert memory.check().ok
            with pytest.raises(UsageError, match="pg_dump"):
                memory.backup("nowhere.db")
        with Memory.open(dsn, tenant="url", read_only=True) as memory:
            assert len(memory.session("s").messages(0, 9)) == 3
    finally:
        postgres_server.run("SET client_min_messages TO warning", "DROP SCHEMA hiermem CASCADE")


@pytest.mark.parametrize(
    "wrong",
    [
        {"pool_max": 1.5},
        {"lock_timeout": float("nan")},
        {"lock_timeout": 0.0001},  # the server would take 0 milliseconds for no limit
        {"statement_timeout": 1e9},
        {"idle_timeout": "10"},
        {"secret": "x" * 32},
        {"backups_expire": 30},
        {"backups_expire": timedelta(days=10**8)},
        {"schema": None},
        {"schema": "pg_mine"},
        *({"schema": name} for name in ("", "A", "1a", 'a"b', "a b", "é", "a" * 49, "a;--")),
        {"dsn": None},
        {"dsn": f"postgresql://u:{CANARY}\ud800@h/d"},
        {"dsn": f"postgresql://u:{CANARY}@localhost:99999/d"},
        {"dsn": f"postgresql://u:{CANARY}@localhost/d?sslmode={CANARY}"},
    ],
)
async def test_an_argument_that_cannot_work_is_refused_when_it_is_given(wrong):
    dsn = wrong.pop("dsn", "") if "dsn" in wrong else postgres_server.dsn()
    with pytest.raises((UsageError, ConfigError)) as caught:
        await PostgresStore.open(dsn, **wrong)
    assert CANARY not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_a_place_in_no_database_we_know_is_no_file(tmp_path, monkeypatch):
    """Broken, it would become a file, and errors would repeat the password in its name."""
    monkeypatch.chdir(tmp_path)
    for wrong in (
        f"mysql://u:{CANARY}@h/d",
        f"postgresql+psycopg://u:{CANARY}@h/d",
        f"PostgreSQL://u:{CANARY}@h/d",
        f"host=h password={CANARY}",
        f"postgres:{CANARY}@h/d",
        f"me:{CANARY}@h",
    ):
        with pytest.raises(UsageError, match="postgresql://") as caught:
            Memory.open(wrong)
        assert CANARY not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_port_tells_two_servers_apart():
    """Broken, a copy from an old server to a new one beside it would be refused as its own."""
    assert {shown(f"postgresql://u:p@h{port}/d") for port in ("", ":5432", ":5433")} == {
        "h/d",
        "h:5433/d",
    }


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ('FATAL:  database "my role" does not exist', "3D000"),
        ("FATAL:  the database system is in recovery mode", "57P03"),
        ("FATAL:  the database system is not yet accepting connections", "57P03"),
        ('FATAL:  role "database" does not exist', "28000"),
        ('FATAL:  permission denied for database "x"', "42501"),
        ('FATAL:  password authentication failed for user "too many"', "28P01"),
    ],
)
def test_a_name_in_a_refusal_is_not_taken_for_its_reason(said, state):
    assert refused_connection(psycopg.OperationalError(said)) == state


async def test_a_database_that_does_not_hold_every_text_is_refused(schema):
    """Broken, texts would be refused one by one, or come back as bytes."""
    postgres_server.run(f"CREATE DATABASE {schema} ENCODING SQL_ASCII TEMPLATE template0 "
                        "LC_COLLATE 'C' LC_CTYPE 'C'")  # fmt: skip
    dsn = psycopg.conninfo.make_conninfo(postgres_server.dsn(), dbname=schema)
    with pytest.raises(ConfigError, match="UTF8"):
        await PostgresStore.open(dsn)
    postgres_server.run(f"DROP DATABASE {schema} WITH (FORCE)")


async def test_a_role_may_own_its_schema_alone_and_have_defaults_of_its_own(schema):
    """Who may create no schema may have been given one; nothing depends on a role's settings."""
    role = f"{schema}_app"
    postgres_server.run(
        f"CREATE ROLE {role} LOGIN", f"CREATE SCHEMA {schema} AUTHORIZATION {role}",
        *(f"ALTER ROLE {role} SET {setting}" for setting in (
            "client_encoding = 'LATIN1'", "search_path = 'nowhere'", "bytea_output = 'escape'",
            "DateStyle = 'German'", "standard_conforming_strings = off",
            "default_transaction_isolation = 'serializable'",
        )),
    )  # fmt: skip
    dsn = psycopg.conninfo.make_conninfo(postgres_server.dsn(), user=role)
    async with opened(schema, dsn=dsn) as store:
        await write(store.tenant("t"), "s", [Message.user("日本語 \\ 😀")])
        assert await said(store.tenant("t"), "s") == ["日本語 \\ 😀"]
        postgres_server.run(f"DROP TABLE {schema}.messages CASCADE")
        with pytest.raises(StoreCorruptError, match="missing"):
            await said(store.tenant("t"), "s")
    postgres_server.run(f"DELETE FROM {schema}.format")
    with pytest.raises(StoreCorruptError, match="foreign table format"):
        await PostgresStore.open(dsn, schema=schema)
    postgres_server.run(f"DROP SCHEMA {schema} CASCADE", f"DROP ROLE {role}")


async def test_a_server_that_is_gone_is_said_so_and_soon(schema):
    """Broken, each call would wait as long as for a busy server, and then call it busy."""
    proxy = Proxy(postgres_server.dsn())
    async with opened(schema, dsn=proxy.dsn, statement_timeout=60.0) as store:
        proxy.close()
        begun = time.monotonic()
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                await store.tenants()
            assert not caught.value.retryable
            assert "was lost or not made" in str(caught.value)
        assert time.monotonic() - begun < 50


async def test_an_outage_is_logged_once(schema, caplog):
    """Broken, hundreds of lines stand on the error stream while a server is restarted."""
    proxy = Proxy(postgres_server.dsn())
    try:
        with caplog.at_level(logging.INFO):
            async with opened(schema, dsn=proxy.dsn) as store:
                tenant = store.tenant("t")
                for outage in (1, 2):
                    await write(tenant, "s", [Message.user("a")])
                    proxy.go_away()
                    for _ in range(3):
                        with pytest.raises(StoreError):
                            await tenant.session("s")
                    proxy.come_back()
                    await written_when_it_answers(tenant)
                    told = [each.message for each in caplog.records if each.name == "hiermem.store"]
                    assert len(told) == 2 * outage
                    assert "is away" in told[-2]
                    assert "answers again" in told[-1]
    finally:
        proxy.close()


async def written_when_it_answers(tenant):
    for _ in range(100):
        with suppress(StoreError):
            return await write(tenant, "s", [Message.user("b")])
        await asyncio.sleep(0.05)
    raise AssertionError("it does not answer again")
