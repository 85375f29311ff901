"""A worker in a process of its own: ``python worker_process.py FILE LATENCY LEASE NAME [HOLD]``.

It works until nothing is left and then tells what it did, as one JSON line. NAME is its model's
name, by which the journal tells the calls of one process from those of another. Where HOLD is
given, the model says so once calls are in flight and answers none of them before the file HOLD
exists.
"""

import asyncio
import json
import sys
from pathlib import Path

from hiermem import AsyncMemory, HierarchyConfig, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM
from hiermem.tokens import FunctionCounter

COUNTER = FunctionCounter(lambda text: len(text.split()) + text.count("\n"), name="words")
CONFIG = HierarchyConfig.by_tokens()
CONCURRENCY = 3


class Held(ScriptedLLM):
    """Answers nothing before it may."""

    hold: Path

    async def complete(self, request):
        answer = await super().complete(request)
        if self.calls == CONCURRENCY:
            tell("held")
        while not self.hold.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        return answer


def tell(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def opened(path, llm=None, *, lease=60.0, **settings):
    policy = UpdatePolicy(batch_delay=0, concurrency=CONCURRENCY, lease=lease, **settings)
    return AsyncMemory.open(
        path, llm=llm, token_counter=COUNTER, config=CONFIG, update_policy=policy
    )


async def main(path, latency, lease, name, hold=None):
    if hold is None:
        llm = ScriptedLLM(name=name, remote=True, latency=latency, keep=0)
    else:
        llm = Held(name=name, remote=True, latency=latency, keep=0)
        llm.hold = Path(hold)
    async with opened(path, llm, lease=lease) as memory:
        tell("ready")
        async with memory.worker(poll=0.1) as worker:
            whole = await worker.drain(120)
            status = worker.status
    told = {
        "whole": whole,
        "calls": llm.calls,
        "made": status.made,
        "errors": status.last_error,
    }
    tell(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]))
