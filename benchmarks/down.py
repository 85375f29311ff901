"""How often a model is called in an hour while it is down, slow, refusing or rate-limited.

A background worker has a number of sessions to summarise with a model that behaves badly for the
whole hour. The hour takes half a minute: clock and waits of the process go faster by that factor.
Printed are the calls, those that were refused for their rate, and the summaries that were made.

    python benchmarks/down.py [sessions] [factor]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from selectors import DefaultSelector

SESSIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
FACTOR = float(sys.argv[2]) if len(sys.argv) > 2 else 120.0
_real = time.monotonic
# Before the library is imported, which takes this function as the default of arguments.
time.monotonic = lambda: _real() * FACTOR

from hiermem import AsyncMemory, Message, ModelError  # noqa: E402
from hiermem.protocols import LLMRequest, LLMResponse  # noqa: E402
from hiermem.testing.llms import write  # noqa: E402

HOUR = 3_600.0
QUOTA = 10


class Selector(DefaultSelector):
    """Waits as much shorter as the clock is faster."""

    def select(self, timeout: float | None = None) -> list:
        """Wait for events."""
        return super().select(None if timeout is None else timeout / FACTOR)


class Model:
    """A remote model of one kind of bad behaviour; it counts its calls."""

    name, context_window, remote = "bad", None, True

    def __init__(self, kind: str) -> None:
        self.kind, self.calls, self.refused = kind, 0, 0
        self.answered: list[float] = []

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Behave badly."""
        self.calls += 1
        if self.kind == "down":
            raise ModelError("503", charged=False, kind="transient")
        if self.kind == "slow":
            await asyncio.sleep(HOUR)
        if self.kind == "refusing":
            return LLMResponse("", finish_reason="refusal")
        now = time.monotonic()
        self.answered = [at for at in self.answered if at > now - 60]
        if len(self.answered) >= QUOTA:
            self.refused += 1
            raise ModelError("429", charged=False, retry_after=20, kind="transient")
        self.answered.append(now)
        return LLMResponse(write(request))


async def hour(kind: str) -> tuple[Model, int]:
    """Let a worker work for an hour; return its model and how many summaries it made."""
    model, began, real = Model(kind), datetime.now(UTC), _real()

    def clock() -> datetime:
        return began + timedelta(seconds=(_real() - real) * FACTOR)

    async with AsyncMemory.open(":memory:", llm=model, clock=clock) as memory:
        for number in range(SESSIONS):
            make: tuple[Callable[[str], Message], ...] = (Message.user, Message.assistant)
            await memory.session(f"s{number}").append(
                make[n % 2](f"Step {n} of {number} took {n * 7} seconds at pump {n % 9}. " * 6)
                for n in range(60)
            )
        async with memory.worker() as worker:
            await asyncio.sleep(HOUR)
            made = worker.status.made
    return model, made


def main() -> None:
    """Run the hours and print the table."""
    print("| the model is | calls | refused for their rate | summaries made |")
    print("|---|---|---|---|")
    for kind in ("down", "slow", "refusing", "rate-limited"):
        loop = asyncio.SelectorEventLoop(Selector())
        model, made = loop.run_until_complete(hour(kind))
        loop.close()
        print(f"| {kind} | {model.calls} | {model.refused} | {made} |", flush=True)


if __name__ == "__main__":
    main()
