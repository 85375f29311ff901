"""A real process, killed with SIGKILL: nothing acknowledged is lost, the tree comes out whole."""

import asyncio
import contextlib
import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from labour import COUNT, START, conversation, extraction, found, open_memory, remote_policy
from sampling import params

from hiermem import NotFoundError
from hiermem.testing.llms import ScriptedLLM

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
#: Lines of lives on one file, and how often each is killed: 100 kills in all in a thorough run.
LINES, KILLS = 10, 10


class Nursery:
    """A program that forks a child for each job and passes on what the child tells."""

    def __init__(self):
        self._program = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("labour.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._buffer = b""

    def close(self):
        self._program.stdin.close()
        self._program.wait(10)
        self._program.stdout.close()

    def begin(self, job: str, path: Path, seed: int) -> int:
        self._program.stdin.write(f"{job}\t{path}\t{seed}\n".encode())
        return int(self.line(20).removeprefix("child "))

    def line(self, timeout: float) -> str | None:
        """Give the next line that was told, or None where none comes in time."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._program.stdout], [], [], timeout)
            if not ready:
                return None
            read = os.read(self._program.stdout.fileno(), 65_536)
            assert read, "the nursery died"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        told = line.decode()
        assert not told.startswith("error"), told
        return told

    def rest(self) -> list[str]:
        """Wait for the child's end and give all that it told until then."""
        told = []
        while not told or not told[-1].startswith("end"):
            line = self.line(60)
            assert line is not None, f"the child hangs after {told[-3:]}"
            told.append(line)
        return told


@pytest.fixture
def nursery():
    program = Nursery()
    yield program
    program.close()


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def stored_counts(told) -> list[int]:
    return [int(line.split()[1]) for line in told if line.startswith("stored")]


async def portrait(memory):
    """Give texts, hashes and structure: all that must be equal byte for byte."""
    session = memory.session("s")
    nodes = {
        summary.id: (
            replace(summary.node, version=0),
            summary.revision
            and replace(summary.revision, created_at=START, duration_ms=0, reused=False),
        )
        for summary in await session.summaries()
    }
    status = await session.status()
    return nodes, await session.messages(), status.open_windows


async def uninterrupted(path: Path, seed: int, **settings):
    """Do the same work without a break, one append and one update."""
    async with open_memory(path, **settings) as memory:
        session = memory.session("s", title="Ferry")
        await session.append(conversation(seed))
        await session.update()
        return await portrait(memory)


async def check_acknowledged(path: Path, seed: int, acknowledged: int) -> int:
    """Assert that what was acknowledged reads back, and nothing else than was sent."""
    async with open_memory(path) as memory:
        try:
            messages = await memory.session("s").messages()
        except NotFoundError:
            messages = []
        assert len(messages) >= acknowledged, "an acknowledged message is missing"
        assert [stored.message for stored in messages] == conversation(seed)[: len(messages)]
        if messages:
            for summary in await memory.session("s").summaries():
                assert summary.made == (summary.status == "active")
        return len(messages)


def integrity(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute("PRAGMA integrity_check").fetchone()[0]


@pytest.mark.parametrize("seed", params(range(LINES), 1))
def test_a_process_killed_at_random_moments_loses_nothing(nursery, tmp_path, seed, share):
    """Each life goes on where the last was killed, on a new file where the work was over first."""
    luck, kills, lives, files, most = Random(seed), 0, 0, 0, share(KILLS, 3)
    whole = asyncio.run(uninterrupted(tmp_path / "whole.db", seed))
    while kills < most:
        assert files < 5 * KILLS, "the work is always over too soon to be killed"
        path, acknowledged, over = tmp_path / f"killed{files}.db", 0, False
        files += 1
        while kills < most and not over:
            told = one_life(nursery, path, seed, luck, most=3 + 3 * lives)
            lives = (lives + 1) % KILLS
            kills += told[-1] == "end -9"
            over = told[-1] != "end -9"
            acknowledged = max([acknowledged, *stored_counts(told)])
            asyncio.run(check_acknowledged(path, seed, acknowledged))
        nursery.begin("work", path, seed)
        assert nursery.rest()[-2:] == ["finished", "end 0"]
        assert integrity(path) == "ok"
        assert asyncio.run(check_acknowledged(path, seed, COUNT)) == COUNT
        assert asyncio.run(finished(path)) == whole


def one_life(nursery, path: Path, seed: int, luck: Random, *, most: int) -> list[str]:
    """Let a child work for some lines and a moment, kill it, and give all that it told."""
    child = nursery.begin("work", path, seed)
    # A few lines on, and a moment: so every kind of step is hit somewhere inside.
    told = []
    for _ in range(luck.randint(0, most)):
        line = nursery.line(30)
        assert line is not None, "the child hangs"
        told.append(line)
        if line.startswith(("finished", "end")):
            break
    if not told or not told[-1].startswith("end"):
        # No line in this time is as good as one: the child is inside a step.
        select.select([], [], [], luck.choice([0, 0, 0.001, 0.004, 0.02]))
        kill(child)
        told += nursery.rest()
    return told


async def finished(path: Path):
    """Give the portrait of a session in which nothing is left to be made."""
    async with open_memory(path) as memory:
        plan = await memory.session("s").update(dry_run=True)
        assert not plan.by_level, "the finished tree is not finished"
        return await portrait(memory)


# -- a remote model, where a call costs money


def cut_off(nursery, path: Path, answered: int, job: str = "pay") -> int:
    """Kill a paying process while calls are in flight; give how many were."""
    child = nursery.begin(job, path, 7)
    told = []
    while sum(line.startswith("answered") for line in told) < answered or not in_flight(told):
        line = nursery.line(30)
        assert line is not None
        assert not line.startswith(("finished", "end")), "the work was over too soon to be killed"
        told.append(line)
    kill(child)
    told += nursery.rest()
    assert told[-1] == "end -9"
    assert "stored 60" in told
    return in_flight(told)


def in_flight(told) -> int:
    return sum(line.startswith("call") for line in told) - sum(
        line.startswith("answered") for line in told
    )


async def judge(memory, report, llm, flying):
    """Assert that each node was committed once and that the journal owns up to the lost calls."""
    session, store = memory.session("s"), memory._handle.store
    summaries = await session.summaries()
    assert summaries
    assert all(summary.status == "active" and not summary.degraded for summary in summaries)
    assert {summary.node.revision for summary in summaries} == {1}, "a node was committed twice"
    attempts = await store.attempts(session_id="s")
    outcomes = Counter(attempt.outcome for attempt in attempts)
    assert not outcomes["started"], "an attempt that was cut off is still open"
    # A call may have been journalled and not begun, or answered and not committed.
    assert flying <= outcomes["unknown"] <= flying + 3
    assert report.unknown == outcomes["unknown"]
    paid = Counter(attempt.node_id for attempt in attempts if attempt.outcome == "ok")
    assert set(paid.values()) <= {1}, "a result was asked for again although it was known"
    asked_again = Counter(attempt.node_id for attempt in attempts)
    assert sum(n - 1 for n in asked_again.values()) <= 3, "more than the calls in flight is lost"
    assert llm.calls == report.calls
    # The dead run beat when this one began; that it took over from one that died, it journals too.
    runs = await store.runs(subject="s")
    assert [run.outcome for run in runs] == ["ok", "interrupted"]
    assert runs[1].ended_at is None, "nobody knows when it ended"


@pytest.mark.parametrize("known", params([True, False], 1))
def test_a_session_of_a_dead_process_is_taken_over(nursery, tmp_path, monkeypatch, known):
    """At once where its end is known, and otherwise when its claim has ended."""
    if not known:
        monkeypatch.setattr("hiermem.summaries.claim.has_ended", lambda mark: False)
    path = tmp_path / "paid.db"
    flying = cut_off(nursery, path, 3)

    async def go_on():
        llm = ScriptedLLM(name="slow", remote=True)
        async with open_memory(path, llm=llm, update_policy=remote_policy()) as memory:
            report = await memory.session("s").update()
            await judge(memory, report, llm, flying)
            return await portrait(memory)

    killed = asyncio.run(go_on())

    async def whole():
        llm = ScriptedLLM(name="slow", remote=True)
        path = tmp_path / "whole.db"
        async with open_memory(path, llm=llm, update_policy=remote_policy()) as memory:
            await memory.session("s").append(conversation(7, 60))
            await memory.session("s").update()
            return await portrait(memory)

    assert killed == asyncio.run(whole())


@pytest.mark.parametrize("answered", params([2, 0, 5, 8], 1))
@pytest.mark.thorough
def test_an_extraction_that_was_killed_is_gone_on_with(nursery, tmp_path, answered):
    """The next run pays only for what was in flight, and gets the same."""
    path = tmp_path / "extracted.db"
    flying = cut_off(nursery, path, answered, "extract")

    async def result(path: Path):
        llm = ScriptedLLM(name="slow", remote=True, script=found)
        async with open_memory(path, llm=llm) as memory:
            session = memory.session("s")
            if not path.name.startswith("extracted"):
                await session.append(conversation(7, 60))
            report = await session.extract(extraction())
            again = await session.extract(extraction())
            journal = Counter(a.outcome for a in await memory._handle.store.attempts(limit=999))
            runs = [run.outcome for run in await session.runs()]
        assert (report.outcome, again.calls) == ("ok", 0)
        assert again.tri_vector == report.tri_vector
        assert llm.calls == report.calls
        assert len({request.messages for request in llm.requests}) == llm.calls
        return report, journal, runs

    report, journal, runs = asyncio.run(result(path))
    whole, calls, _ = asyncio.run(result(tmp_path / "whole.db"))
    assert len(whole.chunks) >= 5
    assert whole.reduce.calls >= 1
    assert report.tri_vector == whole.tri_vector
    assert runs == ["ok", "ok", "interrupted"]
    # An answer is on record before its call's end is: killed in between, that end is not known.
    assert not journal["started"], "a call that was cut off is still open"
    # A call may have been journalled and not begun, or answered and not committed.
    assert flying <= journal["unknown"] == report.unknown <= flying + 3
    assert journal["ok"] <= calls["ok"]
    assert report.calls <= calls["ok"] - answered + 3
