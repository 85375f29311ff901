"""What `import hiermem` costs beside `import pydantic`, which it stands on, and a first hello.

Each import runs in a fresh interpreter, the two sides taking turns; the figures are medians, with
the interpreter's own start in them. Compiled modules are cached in a temporary folder that every
run shares, as an installed package has them. The second row imports what one uses rather than the
package alone, on both sides, because either package loads most of itself only when asked. Below the
table stands a first hello: a file is opened, one message appended, and a context read.

    python benchmarks/imports.py [rounds]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from statistics import median

#: The most that each import of ours may cost, as a multiple of the import beside it.
PAIRS = (
    ("import hiermem", "import pydantic", 1.5),
    ("from hiermem import Memory, Message", "from pydantic import BaseModel, Field", 3.0),
)

HELLO = """
from tempfile import TemporaryDirectory
from hiermem import Memory, Message
with TemporaryDirectory() as place, Memory.open(f"{place}/chat.db") as memory:
    session = memory.session("first")
    session.append(Message.user("Hello, the budget is 40 EUR."))
    session.context()
"""


def run(code: str, environment: dict[str, str]) -> tuple[float, float, float]:
    """Run ``code`` in a fresh interpreter; give its seconds by wall and processor, its MB."""
    began = time.perf_counter()
    process = os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment)
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{code!r} failed")
    megabytes = used.ru_maxrss / (1_000_000 if sys.platform == "darwin" else 1_000)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, megabytes


def main() -> None:
    """Measure all imports and print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    codes = ["pass", HELLO, *(code for ours, theirs, _ in PAIRS for code in (ours, theirs))]
    took: dict[str, list[tuple[float, float, float]]] = {code: [] for code in codes}
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": place}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(-1, rounds):
            for code in codes:
                figures = run(code, environment)
                if number >= 0:
                    took[code].append(figures)

    def processor(code: str) -> float:
        return 1000 * median(seconds for _, seconds, _ in took[code])

    print(f"An interpreter that does nothing: {processor('pass'):.0f} ms of the processor.\n")
    print("| ours | beside | ours, ms | beside, ms | ratio | by the wall | aim |")
    print("|---|---|---|---|---|---|---|")
    for ours, theirs, aim in PAIRS:
        mine, other = processor(ours), processor(theirs)
        walls = median(one[0] / two[0] for one, two in zip(took[ours], took[theirs], strict=True))
        print(
            f"| `{ours}` | `{theirs}` | {mine:.0f} | {other:.0f} | {mine / other:.2f} "
            f"| {walls:.2f} | ≤ {aim} |"
        )
    size = median(megabytes for _, _, megabytes in took[HELLO])
    print(f"\nA first hello: {processor(HELLO):.0f} ms of the processor, {size:.0f} MB.")


if __name__ == "__main__":
    main()
