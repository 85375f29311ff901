"""What many tenants in one process cost: threads, file descriptors and memory.

Usage:  python benchmarks/tenants.py [--tenants 1000] [--messages 24]

One memory is opened, and ``for_tenant`` is called for each tenant. Each appends a session of
``--messages`` messages and searches it, and stays open; a worker of the memory summarises them all.
The figures of the process are printed at 10 tenants and at all of them, then when all are closed.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from hiermem import Memory, Message

FEW = 10
#: What 10 tenants may use less than all of them, in threads and in descriptors.
CONSTANT = 8


def talk(tenant: int, count: int) -> Iterator[Message]:
    for n in range(count):
        make = Message.assistant if n % 2 else Message.user
        yield make(f"Pump {tenant}: step {n} takes {n * 7 + tenant} seconds. " * 4)


def used() -> tuple[int, int, float]:
    """Return the threads and descriptors of this process, and its memory in MB."""
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return (
        threading.active_count(),
        len(list(Path("/proc/self/fd").iterdir())),
        int(resident.split()[1]) / 1024,
    )


def row(name: str, seconds: float) -> tuple[int, int]:
    threads, descriptors, memory = used()
    print(f"| {name} | {threads} | {descriptors} | {memory:.0f} | {seconds:.1f} |")
    return threads, descriptors


def main() -> None:
    """Open, append, search, summarise and close; print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=24)
    given = parser.parse_args()
    opened: list[Memory] = []

    def use(stop: int) -> None:
        for tenant in range(len(opened), stop):
            child = memory.for_tenant(f"tenant {tenant}")
            session = child.session("talk")
            session.append(talk(tenant, given.messages))
            found = session.search("step 7")
            assert found
            assert all(f"Pump {tenant}:" in hit.text for hit in found)
            opened.append(child)

    print("| state | threads | descriptors | memory, MB | took, s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        memory = Memory.open(Path(root) / "tenants.db")
        row("opened", 0.0)
        with memory.worker() as worker:
            figures = []
            for tenants in (FEW, given.tenants):
                began = time.perf_counter()
                use(tenants)
                assert worker.drain(timeout=600)
                took = time.perf_counter() - began
                figures.append(row(f"{tenants:,} tenants, summarised", took))
        began = time.perf_counter()
        for child in opened:
            child.close()
        row("all tenants closed", time.perf_counter() - began)
        memory.close()
    row("closed", 0.0)
    (threads, descriptors), (most_threads, most_descriptors) = figures
    if most_threads > threads + CONSTANT or most_descriptors > descriptors + CONSTANT:
        raise SystemExit(f"more than {CONSTANT} threads or descriptors over those of {FEW} tenants")


if __name__ == "__main__":
    main()
