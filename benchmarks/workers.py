"""What a second worker process brings, over one file, with a remote model.

A number of sessions (200 by default), each of 50 messages and six summaries in two levels, wait in
one SQLite file. One, two and four processes, each with a background worker of three calls at once,
make them with a model whose answers take 200 ms; claims and the journal keep the workers apart. The
best possible result is (workers) times the first line: the processes wait for answers in parallel,
but all write one file, and share the cores that there are. Every model call is counted, so a node
that was requested twice would show.

    python benchmarks/workers.py [sessions] [latency in seconds]
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hiermem import AsyncMemory, Message, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import FunctionCounter

BEGIN = datetime(2024, 3, 1, tzinfo=UTC)
COUNTER = FunctionCounter(lambda text: len(text.split()), name="words")
POLICY = UpdatePolicy(concurrency=3, batch_delay=0)
SAID = "the ferry leaves harbour with forty seats and the price was agreed before Friday"
WORDS = tuple(word for word in SAID.split() if word)


def opened(
    path: Path, latency: float = 0.0
) -> tuple[ScriptedLLM, AbstractAsyncContextManager[AsyncMemory]]:
    """Open the file with a remote model of that latency."""
    llm = ScriptedLLM(remote=True, latency=latency, keep=0)
    memory = AsyncMemory.open(path, llm=llm, token_counter=COUNTER, update_policy=POLICY)
    return llm, memory


async def fill(path: Path, sessions: int) -> None:
    """Write the sessions, each with words of its own."""
    async with opened(path)[1] as memory:
        for number in range(sessions):
            said = [
                Message(
                    "assistant" if place % 2 else "user",
                    " ".join(WORDS[(place * 3 + n) % len(WORDS)] for n in range(40))
                    + f" case-{number}-{place}.",
                    created_at=BEGIN + timedelta(seconds=20 * place),
                )
                for place in range(50)
            ]
            await memory.session(f"s{number}").append(said)


async def labour(path: Path, latency: float) -> None:
    """Work until nothing is left, and tell how it went."""
    llm, opening = opened(path, latency)
    async with opening as memory:
        await asyncio.to_thread(input)  # All begin together.
        begun = time.time()
        async with memory.worker(poll=0.2) as worker:
            whole = await worker.drain()
            ended, status = time.time(), worker.status
        result = {"begun": begun, "ended": ended, "calls": llm.calls, "made": status.made}
        print(json.dumps({**result, "whole": whole, "busy": time.process_time()}))


def measure(path: Path, workers: int, latency: float) -> tuple[float, int, int, float]:
    """Let so many processes work; give seconds, summaries, calls and processor seconds."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", str(path), str(latency)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(workers)
    ]
    time.sleep(2)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [json.loads(process.communicate()[0]) for process in processes]
    if not all(each["whole"] for each in results):
        raise SystemExit("something was left")
    seconds = max(each["ended"] for each in results) - min(each["begun"] for each in results)
    made, calls = (sum(each[name] for each in results) for name in ("made", "calls"))
    return seconds, made, calls, sum(each["busy"] for each in results)


def main() -> None:
    """Print the table."""
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    latency = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
    print(f"{sessions} sessions, answers of {latency * 1000:.0f} ms, 3 calls at once per worker\n")
    print("| workers | seconds | summaries a second | against one | calls a summary | busy, s |")
    print("|---|---|---|---|---|---|")
    first = 0.0
    with tempfile.TemporaryDirectory() as place:
        for workers in (1, 2, 4):
            path = Path(place) / f"{workers}.db"
            asyncio.run(fill(path, sessions))
            seconds, made, calls, busy = measure(path, workers, latency)
            first = first or seconds
            print(
                f"| {workers} | {seconds:.1f} | {made / seconds:.1f} | {first / seconds:.2f} "
                f"| {calls / made:.3f} | {busy:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        asyncio.run(labour(Path(sys.argv[2]), float(sys.argv[3])))
    else:
        main()
