"""What deleting a session with forks takes, and how long another process waits meanwhile.

Usage:  python benchmarks/erasing.py [--messages 20000] [--forks 2]

The other process appends one message after another to a session of its own in the same file, also
for some seconds before the deletion, so that it can be compared.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hiermem import Memory, Message

ALONE = 5.0


def talk(start: int, stop: int) -> list[Message]:
    """Return short messages of both sides."""
    kinds = (Message.user, Message.assistant)
    line = "The harbour master wrote entry {} of pier {}."
    return [kinds[n % 2](line.format(n, n % 37)) for n in range(start, stop)]


def append_meanwhile(path: str) -> None:
    """Append until a file says to stop; print when each append began and ended."""
    with Memory.open(path) as memory:
        session = memory.session("other")
        session.append(talk(0, 1))
        print("ready", flush=True)
        number = 1
        while not Path(f"{path}.stop").exists():
            began = time.time()
            session.append(talk(number, number + 1))
            number += 1
            print(began, time.time())
            time.sleep(0.01)


def main() -> None:
    """Delete the session and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--forks", type=int, default=2)
    parser.add_argument("--meanwhile")
    given = parser.parse_args()
    if given.meanwhile:
        append_meanwhile(given.meanwhile)
        return
    with tempfile.TemporaryDirectory() as root, Memory.open(Path(root) / "a.db") as memory:
        path = Path(root) / "a.db"
        session = memory.session("long")
        for start in range(0, given.messages, 1_000):
            session.append(talk(start, min(start + 1_000, given.messages)))
        for number in range(given.forks):
            session.fork(f"fork {number}")
        command = [sys.executable, __file__, "--meanwhile", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            time.sleep(ALONE)
            began, processor = time.time(), time.process_time()
            session.delete()
            ended, processor = time.time(), time.process_time() - processor
            Path(f"{path}.stop").touch()
            lines = [tuple(map(float, line.split())) for line in other.stdout]
    print(f"{given.messages:,} messages, {given.forks} forks: {processor:.2f} s of processor,")
    print(f"{ended - began:.2f} s of the clock\n")
    print("| an append of another process, ms | appends | median | longest |\n|---|---|---|---|")
    for name, found in (
        ("before", [after - before for before, after in lines if after < began]),
        ("meanwhile", [b - a for a, b in lines if a < ended and b > began]),
    ):
        took = sorted(1e3 * each for each in found)
        print(f"| {name} | {len(took)} | {took[len(took) // 2]:.0f} | {took[-1]:.0f} |")


if __name__ == "__main__":
    main()
