"""What a search waits for while calls of a blocking model hang in another session.

Usage:  python benchmarks/hanging.py [--calls 8] [--messages 2000] [--rounds 25]

The model is a plain function that does not return. The same questions are asked in session B twice:
while nothing else runs, and while ``--calls`` calls hang in session A. The median times and their
ratio are printed. A search that shared its threads with the model would take as long as the model.
The two take turns, so that other load on the machine meets both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Iterator

from hiermem import Memory, Message, Session, UpdatePolicy
from hiermem.protocols import LLMRequest, LLMResponse
from hiermem.testing.llms import write


class Model:
    """A blocking function whose calls return when they are let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Semaphore(0)

    def __call__(self, request: LLMRequest) -> LLMResponse:
        """Answer once the calls are let go."""
        self.began.release()
        self.go.wait()
        return write(request)


def talk(count: int) -> Iterator[Message]:
    for n in range(count):
        make = Message.assistant if n % 2 else Message.user
        yield make(f"Step {n} takes {n * 7} seconds on pump {n % 11}. " * 8)


def opened(calls: int, messages: int) -> tuple[Memory, Model]:
    """Return a memory with two sessions, whose model hangs."""
    model = Model()
    policy = UpdatePolicy(concurrency=calls, batch_delay=0, drain=0, down_after=None)
    memory = Memory.open(":memory:", llm=model, update_policy=policy)
    memory.session("a").append(talk(10 * calls + 20))
    memory.session("b").append(talk(messages))
    return memory, model


def search(session: Session, number: int) -> float:
    """Append a message, so that the index has to be extended, and search; return the seconds."""
    session.append(Message.user(f"Round {number}: pump {number % 11} again. " * 8))
    begin = time.perf_counter()
    found = session.search(f"pump {number % 11} step {number}")
    seconds = time.perf_counter() - begin
    assert found
    return seconds


def main() -> None:
    """Measure both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=25)
    given = parser.parse_args()
    alone, _ = opened(given.calls, given.messages)
    beside, model = opened(given.calls, given.messages)
    update = threading.Thread(target=beside.session("a").update, daemon=True)
    update.start()
    for _ in range(given.calls):
        model.began.acquire()
    times: dict[str, list[float]] = {"alone": [], "beside": []}
    for number in range(given.rounds):
        both = [("alone", alone), ("beside", beside)]
        for name, memory in both if number % 2 else reversed(both):
            times[name].append(search(memory.session("b"), number))
    medians = {name: statistics.median(found) for name, found in times.items()}
    result = {
        "calls hanging": given.calls,
        "alone ms": round(1000 * medians["alone"], 2),
        "while they hang ms": round(1000 * medians["beside"], 2),
        "ratio": round(medians["beside"] / medians["alone"], 2),
        "longest ms": round(1000 * max(times["beside"]), 2),
    }
    print(json.dumps(result))
    model.go.set()
    update.join()
    alone.close()
    beside.close()


if __name__ == "__main__":
    main()
