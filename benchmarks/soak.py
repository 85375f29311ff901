"""Whether a store keeps its promises while the processes that share it are killed again and again.

Worker processes append, edit, erase, fork, delete, update, search and read contexts in one store.
Each tells its parent of every call before it begins and after it returned. Every second or two the
parent kills a worker (SIGKILL) and starts another. Every few minutes, and at the end, it kills all,
repeats the calls that were cut off until they return, and verifies:

- a call that was cut off has taken effect as a whole or not at all, and never twice;
- every message and version is where the calls that returned say, once, in their order in time;
- each message bears a word of its own: no word of what was erased or deleted, and no id of a fork
  that was deleted, is in the files after a scrub (in PostgreSQL: in the rows and their blocks);
- all sessions update to the end, no summary quotes what an edit replaced, and contexts render;
- ``memory.check()`` finds nothing.

PLACE is an SQLite file that does not exist yet, or a server of PostgreSQL, where the schema of the
benchmark is dropped first. The exit code is 1 if anything is wrong. What is stored stays there.

    python benchmarks/soak.py PLACE [--minutes 20] [--processes 4] [--seed 1] [--schema bench_soak]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from math import inf
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

from soak_calls import Call, attempt, chosen, insist, opened
from soak_checks import compare, erased_bytes, everything, unfinished

from hiermem.testing.llms import ScriptedLLM

READS = ("context", "update", "search")
PHASE = 150.0
WRONG = ("lost", "doubled", "torn", "misplaced", "bytes of erased text", "deleted ids",
         "quoted after an edit", "unfinished", "findings", "errors")  # fmt: skip


@dataclass
class Worker:
    """A process, what it tells, and the call that it is in the middle of."""

    slot: int
    process: BaseProcess
    pipe: Any
    doing: Call | None = None


class Soak:
    """The parent; a worker has a copy of it, as it was when the worker began."""

    def __init__(self, place: str, schema: str, processes: int, seed: int) -> None:
        self.place, self.schema, self.processes, self.seed = place, schema, processes, seed
        self.luck, self.lives, self.kills = Random(seed), count(), 0
        self.calls: list[Call] = []
        self.cut_off: list[Call] = []
        self.owners: dict[str, int] = {}
        self.counts, self.wrong = Counter[str](), Counter[str]()
        self.longest: dict[str, float] = {}

    def take(self, call: Call) -> None:
        """Remember a call that returned."""
        self.counts[call.kind] += 1
        self.counts["refused"] += call.refused
        if not call.killed:
            took = call.ended - call.begun
            self.longest[call.kind] = max(took, self.longest.get(call.kind, 0.0))
        if call.kind not in READS:
            self.calls.append(call)
        if call.kind == "fork" and not call.refused:
            self.owners[call.word] = call.slot
        elif call.kind == "delete":
            self.owners.pop(call.session, None)

    # -- a worker

    def live(self, slot: int, life: int, pipe: Any) -> None:
        """Be a worker."""
        asyncio.run(self.work(slot, life, pipe))

    async def work(self, slot: int, life: int, pipe: Any) -> None:
        """Make calls until the process is killed."""
        self.calls.clear()
        luck, llm = Random(f"{self.seed} {life}"), ScriptedLLM(remote=True, latency=0.01)
        memory = await insist(lambda: opened(self.place, self.schema, llm if life % 2 else None))
        async with memory, nullcontext() if life % 3 else memory.worker():
            for number in count():
                mine = [one for one, owner in self.owners.items() if owner == slot]
                kept = {one.session for one in self.cut_off}
                others = [one for one in self.owners if one not in mine or one in kept]
                mine = [one for one in mine if one not in kept]
                call = await chosen(memory, luck, mine, others, self.calls)
                call.name, call.slot = call.name or f"{life}x{number}", slot
                call.begun = time.monotonic()
                pipe.send(call)
                await attempt(memory, call)
                pipe.send(call)
                self.take(call)

    # -- the parent

    def start(self, slot: int) -> Worker:
        """Start a worker."""
        ours, theirs = connection.Pipe(duplex=False)
        given = (slot, next(self.lives), theirs)
        process = get_context("fork").Process(target=self.live, args=given, daemon=True)
        process.start()
        theirs.close()
        return Worker(slot, process, ours)

    def hear(self, worker: Worker) -> bool:
        """Take in what a worker tells; return False where it has ended."""
        try:
            call: Call = worker.pipe.recv()
        except (EOFError, OSError):
            return False
        worker.doing = call if call.ended == inf else None
        if call.ended < inf:
            self.take(call)
        return True

    def kill(self, worker: Worker) -> None:
        """Kill a worker, and note what it told last."""
        self.kills += 1
        worker.process.kill()
        worker.process.join()
        while self.hear(worker):
            pass
        worker.pipe.close()
        if worker.doing is not None and worker.doing.kind not in READS:
            self.cut_off.append(worker.doing)

    def aimed(self, workers: list[Worker]) -> Worker:
        """Choose whom to kill: now, or a moment after its next call that writes begins."""
        worker, until = self.luck.choice(workers), time.monotonic() + self.luck.choice([0.0, 2.0])
        while (worker.doing is None or worker.doing.kind in READS) and time.monotonic() < until:
            if worker.pipe.poll(0.1) and not self.hear(worker):
                break
        time.sleep(self.luck.choice([0.0, 0.001, 0.004, 0.02]))
        return worker

    def load(self, seconds: float) -> None:
        """Let workers work and kill them."""
        began = now = time.monotonic()
        strike, workers = now + 1.0, [self.start(slot) for slot in range(self.processes)]
        while now < began + seconds:
            heard = connection.wait([one.pipe for one in workers], max(0.0, strike - now))
            dead = [one for one in workers if one.pipe in heard and not self.hear(one)]
            self.wrong["errors"] += len(dead)
            now = time.monotonic()
            if now >= strike:
                dead, strike = [self.aimed(workers)], now + self.luck.uniform(0.7, 2.0)
            for one in dead:
                self.kill(one)
                workers[workers.index(one)] = self.start(one.slot)
        for one in workers:
            self.kill(one)
        time.sleep(1.0)  # a server may still be writing for them

    def say(self, what: str, *details: object, **wrong: int) -> None:
        """Print the line of a check, and count what is wrong."""
        found = Counter({name.replace("_", " "): n for name, n in wrong.items() if n})
        self.wrong |= found  # what stays is found again
        lines = [f"{'WRONG' if found else 'ok   '} {what} {dict(found) or ''}", *details[:5]]
        print(*lines, sep="\n      ", flush=True)

    async def verify(self) -> None:
        """Repeat what was cut off, and check everything; no worker runs meanwhile."""
        async with await opened(self.place, self.schema) as memory:
            before, torn = await everything(memory), 0
            for call in self.cut_off:
                have = [str(one.message.key) for one in before.get(call.session, ())]
                have = [key for key in have if key.rpartition("-")[0] == call.name]
                torn += call.kind == "append" and have not in ([], call.keys)
                call.killed = True
                await attempt(memory, call)
                if call.kind == "fork":  # what it was made of may be gone since
                    call.refused &= call.word not in before
                self.take(call)
            self.say(f"{len(self.cut_off)} calls were cut off: each whole or not at all", torn=torn)
            self.counts["cut off"] += len(self.cut_off)
            self.cut_off.clear()
            what, words, wrong = await compare(memory, self.calls)
            self.say(what, **wrong)
            for when in ("before", "after"):
                scrubbed = await memory.scrub()
                if not (scrubbed.done or self.place.startswith("postgresql:")):
                    self.say(f"scrub: {scrubbed.reason}", errors=1)
                ids = {call.word for call in self.calls if call.kind == "fork"}
                wrong, where = erased_bytes(self.place, self.schema, words, ids)
                self.say(f"no erased word is stored {when} an update", *where, **wrong)
                if when == "before":
                    what, wrong = await unfinished(memory)
                    self.say(what, **wrong)
            found = (await memory.check()).findings
            self.say("memory.check()", *found, findings=len(found))

    def summary(self) -> int:
        """Print what was done and what is wrong; return the exit code."""
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(self.counts.items()))
        print(f"calls that returned: {kinds}")
        took = (f"{kind} {seconds:.2f}" for kind, seconds in sorted(self.longest.items()))
        print(f"the longest, in seconds: {', '.join(took)}")
        print(f"kills: {self.kills}")
        print(", ".join(f"{name}: {self.wrong[name]}" for name in WRONG))
        return int(self.wrong.total() > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("place")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schema", default="bench_soak")
    given = parser.parse_args()
    if given.place.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(given.place) as base:
            base.execute(f"DROP SCHEMA IF EXISTS {given.schema} CASCADE")
    elif Path(given.place).exists():
        parser.error("the file exists already")
    soak = Soak(given.place, given.schema, given.processes, given.seed)
    asyncio.run(soak.verify())  # makes the store, and loads what the workers need
    left = given.minutes * 60
    while left > 0:
        phase = min(left, PHASE, given.minutes * 20)
        soak.load(phase)
        left -= phase
        print(f"\n{given.minutes - left / 60:.1f} minutes, {soak.kills} kills", flush=True)
        asyncio.run(soak.verify())
    return soak.summary()


if __name__ == "__main__":
    sys.exit(main())
