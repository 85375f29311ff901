"""Three things about a fleet of workers on PostgreSQL; DSN names a server that runs, as an owner.

``claims``: four processes claim sessions that are due, 16 at a time, through the library, and then
with the bare statement on a table of the same shape, in turns; the ratio is that of the medians,
1.00 the bare rate. No session may be claimed twice.

``idle``: the statements that a worker for all tenants sends in a second of nothing to do, with a
look every 0.1 s, at 10 and at 10,000 tenants.

``kill``: worker processes run the jobs of procrastinate over many sessions of 50 tenants, with a
scripted model of which 5 % of the calls fail, and every three seconds one of them is killed and
another started, until everything is made. Then the journal is read: a text may have been asked for
again only after a call that failed, or of which nobody knows how it ended.

The schemas of the benchmark are dropped at the end. ``kill`` needs the extra ``procrastinate``.

    python benchmarks/fleet.py claims DSN
    python benchmarks/fleet.py idle DSN
    python benchmarks/fleet.py kill DSN [sessions [workers]]
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from statistics import median
from typing import Any

import psycopg

from hiermem import AsyncMemory, Limits, Message, UpdatePolicy
from hiermem.errors import ModelError
from hiermem.records.run import RecordStore
from hiermem.stores.postgres import PostgresStore
from hiermem.stores.postgres.connections import Connections
from hiermem.testing.llms import ScriptedLLM

OURS, BARE = "bench_fleet", "bench_fleet_bare"
CLAIMERS, BATCH, DUE, ROUNDS = 4, 16, 24_000, 3
TENANTS, EACH, FAILING, KILL_EVERY = 50, 14, 0.05, 3.0
CLAIM = (
    f"UPDATE {BARE}.due d SET due_at = %s, claimed = 1 FROM (SELECT tenant, id "
    f"FROM {BARE}.due WHERE due_at <= %s ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED) f "
    "WHERE d.tenant = f.tenant AND d.id = f.id RETURNING d.tenant, d.id"
)


def dropped(dsn: str) -> None:
    """Remove what an earlier run left."""
    with psycopg.connect(dsn, autocommit=True) as base:
        for schema in (OURS, BARE):
            base.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def started(*words: Any) -> subprocess.Popen[bytes]:
    """Start a process of this script."""
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr)


# -- claims


def filled(dsn: str) -> None:
    """Put sessions of 100 tenants that are all due into both schemas."""
    for schema in (OURS, BARE):
        asyncio.run(_created(dsn, schema))
        with psycopg.connect(dsn, autocommit=True) as base:
            base.execute(f"SET search_path TO {schema}")
            for number in range(100):
                base.execute(
                    "INSERT INTO due SELECT %s, 's' || n, n, 0, 1, 0 FROM generate_series(1, %s) n",
                    (f"t{number}", DUE // 100),
                )
            base.execute("ANALYZE")


async def _created(dsn: str, schema: str) -> None:
    await (await PostgresStore.open(dsn, schema=schema)).close()


def claimer(dsn: str, side: str) -> None:
    """Claim until nothing is due; print what was claimed, and in how many seconds."""
    names: list[str] = []
    sys.stdin.readline()
    if side == "bare":
        with psycopg.connect(dsn, autocommit=True) as base:
            base.execute(CLAIM, (0, -1, 1))
            begun = time.perf_counter()
            while True:
                now = int(time.time() * 1e6)
                found = base.execute(CLAIM, (now + 10**9, now, BATCH)).fetchall()
                names += [str(row) for row in found]
                if not found:
                    break
            seconds = time.perf_counter() - begun
    else:
        seconds = asyncio.run(_claim_all(dsn, names))
    print(f"{seconds}")
    print("\n".join(names))


async def _claim_all(dsn: str, names: list[str]) -> float:
    store = RecordStore(await PostgresStore.open(dsn, schema=OURS, create=False))
    await store.tenants(limit=1)
    begun = time.perf_counter()
    while found := await store.claim_due(BATCH, lease=1000.0):
        names += [f"{one.tenant}/{one.session_id}" for one in found]
    seconds = time.perf_counter() - begun
    await store.close()
    return seconds


def claims(dsn: str) -> None:
    """Compare the rates."""
    dropped(dsn)
    filled(dsn)
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    doubles = 0
    for _ in range(ROUNDS):
        for side, schema in (("ours", OURS), ("bare", BARE)):
            with psycopg.connect(dsn, autocommit=True) as base:
                base.execute(f"UPDATE {schema}.due SET due_at = 0, claimed = 0")
                base.execute(f"VACUUM {schema}.due")
            command = [sys.executable, __file__, "claimer", dsn, side]
            running = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in range(CLAIMERS)
            ]
            time.sleep(3.0)
            for one in running:
                one.stdin.write("go\n")
                one.stdin.flush()
            answers = [one.communicate()[0].splitlines() for one in running]
            names = [name for answer in answers for name in answer[1:] if name]
            doubles += len(names) - len(set(names))
            assert len(set(names)) == DUE, f"{len(set(names))} of {DUE} were claimed"
            rates[side].append(DUE / max(float(answer[0]) for answer in answers))
    dropped(dsn)
    ratio = median(rates["ours"]) / median(rates["bare"])
    print(f"claims of {BATCH} by {CLAIMERS} processes: {ratio:.2f} of the bare statement's rate")
    print(f"doubles: {doubles}")


# -- idle


async def idle(dsn: str) -> None:
    """Count the statements of a worker that finds nothing."""
    for count in (10, 10_000):
        dropped(dsn)
        await _created(dsn, OURS)
        with psycopg.connect(dsn, autocommit=True) as base:
            base.execute(f"SET search_path TO {OURS}")
            base.execute(
                "INSERT INTO sessions SELECT 't' || n, 's', n, n, NULL, '[]', '{}', 'x', 0, NULL, "
                "NULL, 0, 0, '{}', n FROM generate_series(1, %s) n",
                (count,),
            )
        store = await PostgresStore.open(dsn, schema=OURS)
        looks, sent = 0, 0
        memory = AsyncMemory(store=store)
        send = Connections.send

        async def counting(*of: Any, send: Any = send, **how: Any) -> Any:
            nonlocal looks, sent
            looks, sent = looks + 1, sent + len(of[1])
            return await send(*of, **how)

        Connections.send = counting
        async with memory.worker(all_tenants=True, poll=0.1):
            await asyncio.sleep(1.0)
        Connections.send = send
        await memory.close()
        print(f"{count} tenants, nothing due: {sent / looks:.1f} statements a look, {looks} looks")
    dropped(dsn)


# -- kill


class Model(ScriptedLLM):
    """A remote model of which some calls fail."""

    remote = True

    async def complete(self, request: Any) -> Any:
        """Answer, or fail."""
        await asyncio.sleep(0.02)
        if random.random() < FAILING:
            raise ModelError("a planned failure", kind="transient")
        return await super().complete(request)


def policy() -> UpdatePolicy:
    """Return a policy with short claims, so that what a killed worker held is soon free."""
    return UpdatePolicy(batch_delay=0, concurrency=4, lease=5.0)


async def opened(dsn: str) -> AsyncMemory:
    """Open the memory of the benchmark."""
    store = await PostgresStore.open(dsn, schema=OURS)
    return AsyncMemory(store=store, llm=Model(), update_policy=policy())


async def job_worker(dsn: str) -> None:
    """Run jobs until the process is killed."""
    import procrastinate

    from hiermem.integrations.procrastinate import add_tasks

    logging.disable(logging.CRITICAL)
    memory = await opened(dsn)
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=dsn, kwargs={"options": f"-c search_path={BARE}"}
        )
    )
    add_tasks(app, memory, limits=Limits(deadline=10.0), every="* * * * * */2", most=60)
    async with app.open_async():
        await app.run_worker_async(
            concurrency=8,
            listen_notify=False,
            fetch_job_polling_interval=0.5,
            delete_jobs="always",
        )


async def said(dsn: str, sessions: int) -> None:
    """Fill the sessions: two windows each."""
    memory = await opened(dsn)
    waiting = iter(range(sessions))

    async def some() -> None:
        for number in waiting:
            one = memory.for_tenant(f"t{number % TENANTS}").session(f"s{number}")
            await one.append(
                *(
                    Message.user(
                        f"Visit {number}, note {place}: pump {number * 31 + place} of hall "
                        f"{number % 97} ran at {40 + place} bar, and Ada will look at it again."
                    )
                    for place in range(EACH)
                )
            )
            await one.flush()

    await asyncio.gather(*(some() for _ in range(6)))
    await memory.close()


def kill(dsn: str, sessions: int, workers: int) -> None:
    """Have everything made while workers are killed, and read the journal."""
    import procrastinate

    dropped(dsn)
    with psycopg.connect(dsn, autocommit=True) as base:
        base.execute(f"CREATE SCHEMA {BARE}")
    jobs = procrastinate.App(
        connector=procrastinate.SyncPsycopgConnector(
            conninfo=dsn, kwargs={"options": f"-c search_path={BARE}"}
        )
    )
    with jobs.open():
        jobs.schema_manager.apply_schema()
    asyncio.run(said(dsn, sessions))
    begun, kills = time.monotonic(), 0
    running = [started("worker", dsn) for _ in range(workers)]
    with psycopg.connect(dsn, autocommit=True) as base:
        base.execute(f"SET search_path TO {OURS}")
        left = 1
        while left and time.monotonic() - begun < 480:
            time.sleep(KILL_EVERY)
            victim = random.randrange(workers)
            running[victim].send_signal(signal.SIGKILL)
            running[victim].wait()
            running[victim] = started("worker", dsn)
            kills += 1
            (left,) = base.execute(
                "SELECT count(*) FROM nodes WHERE status <> 'active' OR degraded = 1 OR dirty = 1"
            ).fetchone()
        seconds = time.monotonic() - begun
        for one in running:
            one.kill()
        counts = base.execute(
            "SELECT (SELECT count(*) FROM nodes), "
            "(SELECT count(*) FROM revisions), (SELECT count(*) FROM due)"
        ).fetchone()
        calls = base.execute(
            "SELECT tenant, session_id, node_id, outcome FROM attempts ORDER BY attempt"
        ).fetchall()
    report(sessions, workers, seconds, kills, left, counts, calls)
    dropped(dsn)


def report(
    sessions: int, workers: int, seconds: float, kills: int, left: int, counts: Any, calls: Any
) -> None:
    """Print what was made, and how often it was asked for."""
    by_text: dict[tuple[Any, ...], list[str]] = {}
    for *text, outcome in calls:
        by_text.setdefault(tuple(text), []).append(outcome)
    repeated = {text: tuple(found) for text, found in by_text.items() if len(found) > 1}
    wrong = [found for found in repeated.values() if "ok" in found[:-1]]
    print(f"{sessions} sessions of {TENANTS} tenants, {workers} workers, {kills} kills: ", end="")
    print(f"{seconds:.0f} s, {left} summaries left to make")
    print(f"summaries {counts[0]}, texts {counts[1]}, calls {len(calls)}, in the list {counts[2]}")
    print(f"calls by outcome: {dict(Counter(outcome for *_, outcome in calls))}")
    print(f"asked for again: {len(repeated)}; after an answer that was taken: {len(wrong)}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    what, dsn, *rest = sys.argv[1:]
    if what == "claims":
        claims(dsn)
    elif what == "idle":
        asyncio.run(idle(dsn))
    elif what == "claimer":
        claimer(dsn, rest[0])
    elif what == "worker":
        asyncio.run(job_worker(dsn))
    else:
        kill(dsn, *map(int, [*rest, *("2000", "3")[len(rest) :]]))
