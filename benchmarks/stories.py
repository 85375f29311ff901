"""How many files and functions of the library one call runs through.

A story is one call of the public face on a SQLite store. Counted are the library's files that run,
without those that only hold values (types, errors, configuration, data) and without what the
stand-in for a remote model runs, the functions, and the stays: a stay is an unbroken stretch of
calls inside one file, a return is a stay in a file that was left before. With ``--list`` the files
are printed in the order of first entry.

    python benchmarks/stories.py [--list]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from types import FrameType

import hiermem
from hiermem import AsyncMemory, LLMRequest, LLMResponse, Message, UpdatePolicy
from hiermem.testing.llms import write

ROOT = f"{Path(hiermem.__file__).parent}/"
#: Files of values, which every other file passes on, and the ground below the library.
VALUES = (
    "types/", "errors.py", "config.py", "data/", "protocols.py", "process.py", "tracing.py",
    "tokens.py", "testing/", "prompts/",
)  # fmt: skip
#: What the remote model of these stories answers with: at a provider it is not the library's work.
ANSWERS = "testing/llms.py"
START = datetime(2024, 3, 15, tzinfo=UTC)


class Trace:
    """Notes the file of each function of the library that is entered or returned to."""

    def __init__(self) -> None:
        self.on = False
        self.answering = 0
        self.files: list[str] = []
        self.functions: set[tuple[str, str]] = set()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Note one event of the interpreter; the signature is that of ``sys.setprofile``."""
        if not self.on or event not in ("call", "return") or not _is_ours(frame):
            return
        if _file(frame) == ANSWERS and frame.f_code.co_name == write.__name__:
            self.answering += 1 if event == "call" else -1
        if self.answering:
            return
        if event == "call":
            self.functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))
            self.files.append(_file(frame))
            return
        back = frame.f_back
        while back is not None and not _is_ours(back):
            back = back.f_back
        if back is not None:
            self.files.append(_file(back))

    async def story(self, title: str, call: Callable[[], Awaitable[object]]) -> None:
        """Run ``call`` and print what it ran through."""
        self.files.clear()
        self.functions.clear()
        self.on = True
        try:
            await call()
        finally:
            self.on = False
        stays = [file for file, _ in groupby(f for f in self.files if not f.startswith(VALUES))]
        files = list(dict.fromkeys(stays))
        print(
            f"{title:36}{len(files):6}{len(self.functions):11}{len(stays):7}"
            f"{len(stays) - len(files):9}"
        )
        if "--list" in sys.argv:
            print("    " + " > ".join(files))


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(ROOT)


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(ROOT)


class Remote:
    """A model that counts as remote and answers at once, from the record."""

    name = "remote"
    remote = True
    context_window = None
    supports_schema = True

    async def complete(self, request: LLMRequest) -> LLMResponse:
        """Answer a request."""
        answer = write(request)
        return answer if isinstance(answer, LLMResponse) else LLMResponse(answer)


def messages(begin: int, end: int) -> Iterator[Message]:
    """Yield messages that name figures, days and files."""
    for number in range(begin, end):
        said = (
            f"On 3 March Ada set pump {number} to {400 + 7 * number} rpm because valve V-{number} "
            f"leaked; the file /srv/pumps/{number}.yaml holds it. "
        )
        make = Message.assistant if number % 2 else Message.user
        yield make(3 * said, created_at=START + timedelta(minutes=number))


async def tell(trace: Trace, folder: Path) -> None:
    """Print each story: first those with a remote model, then those with the offline one."""
    at_once = UpdatePolicy(batch_delay=0)
    async with AsyncMemory.open(folder / "a.db", llm=Remote(), update_policy=at_once) as memory:
        session = memory.session("a")
        await session.append(messages(0, 30))
        await session.update()
        await session.context(max_tokens=2_000)
        await session.search("pump 7")
        later = START + timedelta(minutes=40)
        one = Message.user("Pump 31 leaks again, 900 rpm.", created_at=later)
        await trace.story("append of one message", lambda: session.append(one))
        await session.append(messages(40, 51))
        await trace.story("update of one window, remote model", session.update)
        await session.append(messages(60, 90))
        await session.update()
        await trace.story("context", lambda: session.context(max_tokens=1_500))
        await trace.story(
            "context for a query", lambda: session.context(max_tokens=3_000, query="valve 12")
        )
        await trace.story("search", lambda: session.search("valve 12"))
        await trace.story("erasure of one message", lambda: session.erase([12]))
    async with AsyncMemory.open(folder / "b.db") as memory:
        space = memory.space("x", rules="- progress.md: what works\n- decisions.md: why")
        for number in range(4):
            said = f"Chose SQLite for store {number}."
            await space.note(said, agent="dev", category="decision")
        await trace.story("consolidation, offline model", space.consolidate)
        session = memory.session("q")
        await session.append(messages(0, 30))
        await trace.story("fork", lambda: session.fork("r", at=20))
        await trace.story("extraction, offline model", session.extract)


def main() -> None:
    trace = Trace()
    print(f"{'story':36}{'files':>6}{'functions':>11}{'stays':>7}{'returns':>9}")
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(trace.note)
        threading.setprofile(trace.note)
        asyncio.run(tell(trace, Path(folder)))


if __name__ == "__main__":
    main()
