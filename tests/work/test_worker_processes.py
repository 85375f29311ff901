"""P10 with real processes: two workers over one file share the work and make no node twice."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from session_fixture import messages
from worker_process import CONCURRENCY, opened

from hiermem.handle import every_session

SCRIPT = Path(__file__).parent / "worker_process.py"
SESSIONS, KILLS = 200, 3
LEASE = 3.0

pytestmark = pytest.mark.timeout(280)


def start(path, *, latency=0.01, lease=60.0, name="scripted-1", hold=None):
    arguments = [str(path), str(latency), str(lease), name] + ([str(hold)] if hold else [])
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments], stdout=subprocess.PIPE, text=True
    )


def ended(process):
    """Give what a worker told at its end."""
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


async def filled(path, sessions, count=50):
    """Make a file of so many sessions, each speaking of other things."""
    async with opened(path) as memory:
        for n in range(sessions):
            said = list(messages(count, start=1000 * n, words=22))
            await memory.session(f"s{n}", title=f"s{n}").append(said)


async def examined(path):
    """Give all attempts, and by session its nodes with how many revisions each has."""
    async with opened(path) as memory:
        tenant = memory._resources.handle.store
        attempts = await tenant.attempts(limit=1_000_000)
        nodes = {}
        async for record in every_session(tenant):
            for level in await tenant.tree(record.id).levels():
                for node in await tenant.tree(record.id).level(level, 0):
                    nodes[record.id, node.id] = node
        store = memory._resources.store
        assert await store.claim_due(9, lease=0.0, ahead=None) == []
    with closing(sqlite3.connect(path)) as file, file:
        revisions = Counter(file.execute("SELECT session, tree, node_id FROM revisions").fetchall())
    return attempts, nodes, revisions


def check_order(attempts, nodes, hands):
    """Children before parents, and the windows of a session in order, as far as hands overlap."""
    begun, done = {}, {}
    for each in attempts:
        key = each.session_id, each.node_id
        begun[key] = min(each.started_at, begun.get(key, each.started_at))
        if each.outcome == "ok":
            done[key] = max(each.ended_at, done.get(key, each.ended_at))
    order = defaultdict(list)
    for (session, node_id), node in nodes.items():
        for child in node.children:
            if (session, child) in done:
                assert done[session, child] <= begun[session, node_id]
        if node.level == 1:
            order[session].append((begun[session, node_id], node.ordinal))
    for windows in order.values():
        for place, (_, ordinal) in enumerate(sorted(windows)):
            assert abs(place - ordinal) < hands


@pytest.mark.thorough
async def test_two_processes_over_one_file_with_many_sessions(tmp_path):
    """No node is committed twice, none is called for twice, and the order holds."""
    path = tmp_path / "m.db"
    await filled(path, SESSIONS)
    processes = [start(path, latency=0.05) for _ in range(2)]
    told = [ended(process) for process in processes]
    attempts, nodes, revisions = await examined(path)
    assert len(nodes) == SESSIONS * 6
    assert all(t["whole"] and t["errors"] is None for t in told)
    assert Counter(a.outcome for a in attempts) == {"ok": len(nodes)}
    assert len({(a.session_id, a.node_id) for a in attempts}) == len(attempts)
    assert sum(t["calls"] for t in told) == len(attempts)
    assert {node.revision for node in nodes.values()} == {1}
    assert len(revisions) == len(nodes)
    assert set(revisions.values()) == {1}
    assert sum(t["made"] for t in told) == len(nodes)
    # Neither of them did nearly all of it.
    assert min(t["made"] for t in told) > len(nodes) // 10
    # Two more nodes than calls may be in flight read their inputs.
    check_order(attempts, nodes, (CONCURRENCY + 2) * 2)


@pytest.mark.thorough
async def test_a_worker_that_was_stopped_and_returns_after_its_leases_were_given_away(tmp_path):
    """F18: it wakes up with answers in hand to nodes that another process made meanwhile."""
    path, hold = tmp_path / "x.db", tmp_path / "go"
    await filled(path, 6)
    sleeper = start(path, lease=1.5, hold=hold)
    assert sleeper.stdout.readline() == "ready\n"
    assert sleeper.stdout.readline() == "held\n"
    pause(sleeper, path)
    other = ended(start(path, lease=1.5))
    before = await examined(path)
    hold.touch()
    sleeper.send_signal(signal.SIGCONT)
    told = ended(sleeper)
    attempts, nodes, revisions = await examined(path)
    assert (other["made"], told["made"]) == (36, 0)
    assert nodes == before[1]
    assert revisions == before[2]
    twice = Counter((a.session_id, a.node_id) for a in attempts)
    assert sum(twice.values()) - len(twice) == CONCURRENCY
    assert told["calls"] == CONCURRENCY


def pause(process, path):
    """Stop a process where it stands, but not in the middle of a write."""
    for _ in range(50):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        file = sqlite3.connect(path, timeout=0.2, isolation_level=None)
        try:
            file.execute("BEGIN IMMEDIATE")
            file.execute("ROLLBACK")
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        else:
            return
        finally:
            file.close()
    raise AssertionError("the file was never free")


def calls_of(path, name):
    """Give the ids and sessions of the calls that a process has made, by their outcome."""
    found = defaultdict(set)
    asked = "SELECT outcome, id, session_id FROM attempts WHERE model = ?"
    with contextlib.closing(sqlite3.connect(path)) as file:
        for outcome, *call in file.execute(asked, (name,)):
            found[outcome].add(tuple(call))
    return found


@pytest.mark.thorough
async def test_workers_killed_at_random_lose_and_repeat_nothing_but_calls_in_flight(
    tmp_path, share
):
    """A kill costs the calls that the journal did not have the end of, and nothing else.

    They are reported as unknown and made once more. In one session they are no more than the calls
    that may be in flight; a worker has two sessions more in hand than that. The steady worker's
    leases outlast the test, so that none of its calls is ever taken over.
    """
    draw = random.Random(os.environ.get("HIERMEM_SEED", "3"))
    path, kills, sessions = tmp_path / "x.db", share(KILLS, 1), share(30, 14)
    await filled(path, sessions)
    steady, cut_off = start(path, lease=600.0, latency=0.15, name="steady"), set()
    for number in range(kills):
        begun, name = time.monotonic(), f"victim-{number}"
        victim = start(path, lease=LEASE, latency=0.15, name=name)
        assert victim.stdout.readline() == "ready\n"
        # On a slow machine the steady one may leave nothing for the last victims to do.
        while not calls_of(path, name) and steady.poll() is None:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.02)
        await asyncio.sleep(draw.uniform(0.1, 0.8))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        lived = time.monotonic() - begun
        victim.stdout.close()
        calls = calls_of(path, name)
        by_session = Counter(session for _, session in calls["started"])
        assert len(by_session) <= CONCURRENCY + 2
        assert max(by_session.values(), default=0) <= CONCURRENCY
        if lived < LEASE:  # nobody may take over what a process has claimed before
            assert not calls["unknown"]
        cut_off |= {id_ for id_, _ in calls["started"] | calls["unknown"]}
    assert calls_of(path, "victim-0"), "nobody was killed at work"
    told = ended(steady)
    assert told["whole"], told
    attempts, nodes, revisions = await examined(path)
    assert set(revisions.values()) == {1}
    assert {node.revision for node in nodes.values()} == {1}
    outcomes = Counter(a.outcome for a in attempts)
    assert outcomes["ok"] == len(nodes) == 6 * sessions
    assert set(outcomes) <= {"ok", "unknown"}
    assert {a.id for a in attempts if a.outcome == "unknown"} == cut_off
    check_order([a for a in attempts if a.outcome == "ok"], nodes, 100)
