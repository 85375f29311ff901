"""Several processes, what dies among them, and a pooler between: nothing is lost or twice."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import postgres_run
import postgres_server
import pytest

pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from samples import write

from hiermem import AsyncMemory
from hiermem.errors import StoreError
from hiermem.records.run import RecordStore
from hiermem.stores.postgres import PostgresStore
from hiermem.types import Message

WRITER = str(Path(__file__).with_name("postgres_writer.py"))
pytestmark = pytest.mark.thorough


def start(dsn, schema, name, session="s", count=40, *how):
    return subprocess.Popen(
        [sys.executable, WRITER, dsn, schema, name, session, str(count), *how],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


async def stored(dsn, schema, session="s"):
    store = RecordStore(await PostgresStore.open(dsn, schema=schema))
    try:
        found = await store.tenant("t").messages(session, 0, 1 << 30)
        assert [one.index for one in found] == list(range(len(found)))
        return [one.content for one in found]
    finally:
        await store.close()


def assert_whole(found, names, count):
    assert len(found) == len(set(found))
    for name in names:
        assert [key for key in found if key.startswith(f"{name}:")] == [
            f"{name}:{number}" for number in range(count)
        ]


@pytest.fixture
def schema():
    return postgres_server.schema_of(uuid.uuid4().hex)


@pytest.mark.parametrize("sessions", [["s"] * 4, [f"s{n}" for n in range(8)]])
def test_processes_lose_nothing_and_write_nothing_twice(schema, sessions):
    dsn = postgres_server.dsn()
    writers = [start(dsn, schema, f"w{n}", name) for n, name in enumerate(sessions)]
    assert all(writer.communicate(timeout=250) and not writer.returncode for writer in writers)
    for name in set(sessions):
        found = asyncio.run(stored(dsn, schema, name))
        assert_whole(found, [f"w{n}" for n, one in enumerate(sessions) if one == name], 40)


def test_killed_clients_leave_whole_messages(schema, every):
    """Whatever was acknowledged is there; the next process goes on where the killed one was."""
    dsn = postgres_server.dsn()
    for kill in range(0, 12, every(3)):
        writer = start(dsn, schema, f"w{kill}", count=30)
        said = [writer.stdout.readline().strip() for _ in range(2 + kill)][1:]
        writer.kill()
        said += writer.communicate()[0].split()
        found = asyncio.run(stored(dsn, schema))
        assert set(said) <= set(found)
        again = start(dsn, schema, f"w{kill}", count=30)
        again.communicate(timeout=120)
        assert_whole(asyncio.run(stored(dsn, schema)), [f"w{kill}"], 30)


def test_a_killed_server_keeps_what_was_acknowledged():
    """With a durable server: clients go on when it is back, by their keys, and lose nothing."""
    server = postgres_run.Server()
    try:
        writers = [start(server.dsn, "hiermem", f"w{n}", count=60) for n in range(2)]
        for writer in writers:
            assert writer.stdout.readline()
        for _ in range(3):
            time.sleep(0.6)
            server.stop(signal.SIGKILL)
            server.start()
        assert all(writer.communicate(timeout=250) and not writer.returncode for writer in writers)
        assert_whole(asyncio.run(stored(server.dsn, "hiermem")), ["w0", "w1"], 60)
        asyncio.run(_checked(server.dsn))
    finally:
        server.remove()


async def _checked(dsn):
    async with AsyncMemory.open(dsn, tenant="url") as memory:
        await memory.session("s").append({"role": "user", "content": "x"})
        assert (await memory.check()).ok


async def test_a_client_that_is_stopped_holds_others_up_for_a_while_only(schema):
    """It holds a session's lock; the server ends its transaction, and it learns that when woken."""
    dsn = postgres_server.dsn()
    store = RecordStore(await PostgresStore.open(dsn, schema=schema))
    await write(store.tenant("t"), "s", [Message.user("x")])
    stopped = start(dsn, schema, "w", "s", 0, "stop")
    try:
        assert await asyncio.to_thread(stopped.stdout.readline)
        await asyncio.to_thread(_until_stopped, stopped.pid)
        begun = time.monotonic()
        while True:
            try:
                await write(store.tenant("t"), "s", [Message.user("y")])
                break
            except StoreError:
                assert time.monotonic() < begun + 30
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
        await store.close()
    told, _ = await asyncio.to_thread(stopped.communicate, timeout=30)
    assert told.split() in (["done"], ["StoreError"])
    found = await stored(dsn, schema)
    assert found.count("decided twice") == told.count("done")
    assert found.count("y") == 1


def _until_stopped(pid):
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.05)


# -- behind a pooler


@pytest.fixture
def pooled(tmp_path):
    """Return the connection string of PgBouncer in transaction mode, with three connections."""
    program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    from psycopg.conninfo import conninfo_to_dict

    server = conninfo_to_dict(postgres_server.dsn())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = postgres_run.short_place()
    (place / "users").write_text('"postgres" ""\n')
    (place / "ini").write_text(
        f"[databases]\npostgres = host={server['host']} "
        f"dbname={server['dbname']}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {place}/users\npool_mode = transaction\ndefault_pool_size = 3\n"
        f"logfile = {place}/log\npidfile = {place}/pid\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = postgres_run.as_nobody()
    running = subprocess.Popen([program, str(place / "ini")], cwd="/", stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, **user)  # fmt: skip
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    running.terminate()
    running.wait()
    shutil.rmtree(place, ignore_errors=True)


def test_it_works_behind_pgbouncer_in_transaction_mode(pooled, schema):
    """Six processes share three connections of the server; no transaction leaves a trace on one."""
    asyncio.run(stored(pooled, schema))
    writers = [start(pooled, schema, f"w{n}", f"s{n % 2}") for n in range(6)]
    assert all(writer.communicate(timeout=250) and not writer.returncode for writer in writers)
    for n in range(2):
        found = asyncio.run(stored(pooled, schema, f"s{n}"))
        assert_whole(found, [f"w{w}" for w in range(6) if w % 2 == n], 40)
    left = "SELECT current_setting('hiermem.tenant', true), current_setting('statement_timeout')"
    for _ in range(6):
        assert postgres_server.run(left, dsn_=pooled)[0] in ((None, "0"), ("", "0"))
