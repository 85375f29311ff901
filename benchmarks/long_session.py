"""The processor time of the dry run, the update and the first search of one very long session.

Usage:  python benchmarks/long_session.py [--messages 200000] [--keep FILE]

Each step is a process of its own, so that nothing is warm. The dry run comes before the update,
when all summaries have to be planned; the first search comes after it, when it has stored its
index. The answer of the search is compared with that of a search that builds the index from the
messages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from long_chat import batches

from hiermem import Memory, Message

SESSION = "long"
QUESTION = "Which invoice waits for new tyres, number 7001?"
AIMS = {"dry run": 5.0, "first search": 2.0, "second search": None, "update": None}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of ``work`` and the processor seconds of this process that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def append(memory: Memory, messages: int) -> None:
    """Append messages that are long enough for a window of them to be summarised."""
    session = memory.session(SESSION)
    index = 0
    for batch in batches(0, messages):
        longer: list[Message] = []
        for message in batch:
            index += 1
            text = (
                f"{message.content} Order {index * 7} went out on day {index % 28 + 1} with "
                f"driver {index % 37} and costs {index * 3} euros; shelf {index % 411} is empty."
            )
            longer.append(replace(message, content=text))
        session.append(longer)


def found(memory: Memory) -> list[list[Any]]:
    hits = memory.session(SESSION).search(QUESTION, limit=20)
    return [[str(hit.span), hit.score] for hit in hits]


def step(name: str, path: str, messages: int) -> dict[str, Any]:
    """Run one step and return its figures."""
    with Memory.open(path) as memory:
        session = memory.session(SESSION)
        if name == "append":
            _, seconds = timed(lambda: append(memory, messages))
            return {"append": seconds}
        if name == "dry run":
            plan, seconds = timed(lambda: session.update(dry_run=True))
            return {name: seconds, "calls": plan.calls}
        if name == "update":
            report, seconds = timed(session.update)
            return {name: seconds, "made": report.made}
        if name == "rebuild":
            memory.rebuild_index()
        hits, seconds = timed(lambda: found(memory))
        _, again = timed(lambda: found(memory))
        return {name: seconds, "second search": again, "hits": hits}


def run(name: str, path: Path, messages: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", name, "--keep", str(path)]
    done = subprocess.run(
        [*command, "--messages", str(messages)], check=True, capture_output=True, text=True
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Run the steps and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--step")
    given = parser.parse_args()
    if given.step:
        print(json.dumps(step(given.step, str(given.keep), given.messages)))
        return
    with tempfile.TemporaryDirectory() as root:
        path = given.keep or Path(root) / "long.db"
        figures: dict[str, Any] = {}
        if not path.exists():
            figures |= run("append", path, given.messages)
            figures |= run("dry run", path, given.messages)
            figures |= run("update", path, given.messages)
        figures |= run("first search", path, given.messages)
        hits = figures.pop("hits")
        if hits != run("rebuild", path, given.messages)["hits"]:
            raise SystemExit("the stored index answers otherwise than one that was built anew")
    print(f"{given.messages:,} messages; {figures.get('calls')} calls planned\n")
    print("| step | processor, s | aim |\n|---|---|---|")
    for name in ("append", *AIMS):
        if name in figures:
            aim = AIMS.get(name)
            print(f"| {name} | {figures[name]:.2f} | {'' if aim is None else f'≤ {aim:.0f}'} |")


if __name__ == "__main__":
    main()
