"""How much memory an update of a very long session takes.

A session of a million short messages is built in one process and brought up to date from nothing in
another, with the offline model. The peak of that process's resident memory is set against an
interpreter that does nothing, and against one that has the store open and the vocabulary loaded.

    python benchmarks/memory.py [messages]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AIM = 300
STATUS = Path("/proc/self/status")
SESSION = "long"


def peak() -> float:
    """Return the most resident memory that this process ever had, in MB."""
    if STATUS.exists():
        # getrusage would count what the parent had when it started this process.
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1024 * 1024 if sys.platform == "darwin" else 1024)


def child(task: str, path: str, messages: int) -> None:
    """Do one task in a process of its own and print its result and its peak."""
    began, result = time.perf_counter(), ""
    if task != "nothing":
        from long_chat import build

        from hiermem import Memory
        from hiermem.tokens import default_counter

        with Memory.open(path) as memory:
            default_counter().count("load the vocabulary")
            if task == "build":
                build(memory, SESSION, messages)
            elif task == "update":
                report = memory.session(SESSION).update()
                if report.failed or report.degraded:
                    raise SystemExit(f"the run was not clean: {report}")
                nodes = ", ".join(f"L{level} {n:,}" for level, n in report.by_level.items())
                result = f"{report.made + report.reused:,} nodes ({nodes})"
    print(f"{peak()}|{time.perf_counter() - began}|{result}")


def ask(task: str, path: Path, messages: int) -> tuple[float, float, str]:
    """Run a task in a fresh process; give its peak in MB, its seconds and what it said."""
    command = [sys.executable, __file__, task, str(path), str(messages)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    most, seconds, result = done.stdout.strip().split("|")
    return float(most), float(seconds), result


def main() -> None:
    """Run the processes and print the table."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "long.db"
        empty, _, _ = ask("nothing", path, 0)
        ready, _, _ = ask("open", path, 0)
        building, build_took, _ = ask("build", path, messages)
        size = path.stat().st_size / 1e6
        updating, took, result = ask("update", path, messages)
    print(f"{messages:,} messages, a file of {size:,.0f} MB; {result}.\n")
    print("| process | peak, MB | over the empty one, MB | took, s | aim |")
    print("|---|---|---|---|---|")
    print(f"| an interpreter that does nothing | {empty:.0f} | | | |")
    print(f"| store open, vocabulary loaded | {ready:.0f} | {ready - empty:.0f} | | |")
    print(f"| appending | {building:.0f} | {building - empty:.0f} | {build_took:.0f} | |")
    print(f"| updating | {updating:.0f} | {updating - empty:.0f} | {took:.0f} | < {AIM} |")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
