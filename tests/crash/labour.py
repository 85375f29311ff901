"""What a process does before it is killed: it takes a conversation in, updates, and tells.

Run as a program it is a nursery: for each line ``<job> <path> <seed>`` on its standard input it
forks a child that does the job on the file and writes what it has done to the shared output. So a
killed process costs milliseconds, not an interpreter's start.
"""

import asyncio
import json
import os
import sys
from datetime import timedelta
from random import Random

from bank_labour import keep_a_bank
from logbook import VOCABULARY
from stand_ins import START, WordCounter

from hiermem import AsyncMemory, Message, ToolCall
from hiermem.config import ExtractionOptions, HierarchyConfig, LevelConfig, UpdatePolicy
from hiermem.testing.llms import ScriptedLLM

COUNT = 360
LEASE = 1.2
CONFIG = HierarchyConfig.by_tokens(
    target=150,
    max_messages=6,
    verbatim_tokens=20,
    levels=(
        LevelConfig(target_ratio=0.5, style="detailed"),
        LevelConfig(target_ratio=0.3, style="thematic", fan_in=3),
        LevelConfig(target_ratio=0.2, style="executive", fan_in=3, floor=20, cap=60),
    ),
)


def conversation(seed: int, count: int = COUNT) -> list[Message]:
    """Write the messages that every process of one line of them sends, keys and times included."""
    luck, at, found = Random(seed), START, []
    while len(found) < count:
        at += timedelta(seconds=luck.choice([5, 60, 4000, -30]))
        number = len(found)

        def said(words: int, number: int = number) -> str:
            return " ".join(luck.choices(VOCABULARY, k=words)) + f" case-{number}"

        thread = luck.choice(["main", "main", "side"])
        kind = luck.choice(
            ["user", "assistant", "assistant", "tools", "huge"][: 4 + (number % 9 == 0)]
        )
        common = {"thread": thread, "created_at": at}
        if kind == "tools":
            call = ToolCall(f"c{number}", "look_up")
            found.append(Message.assistant("", tool_calls=(call,), key=f"k{number}", **common))
            key = f"k{number + 1}"
            found.append(Message.tool(said(9), tool_call_id=call.id, key=key, **common))
        else:
            role = "user" if kind == "huge" else kind
            words = 400 if kind == "huge" else luck.randint(1, 40)
            found.append(Message(role, said(words), key=f"k{number}", **common))
    return found[:count]


def tell(line: str) -> None:
    """Acknowledge; one write is one line, even of two processes."""
    os.write(1, f"{line}\n".encode())


def open_memory(path: str, **settings) -> object:
    parts = {"config": CONFIG, "token_counter": WordCounter()} | settings
    return AsyncMemory.open(path, **parts)


async def work(path: str, seed: int) -> None:
    """Send the conversation in batches, from where this process believes it stands, and update."""
    messages, luck = conversation(seed), Random(os.getpid())
    async with open_memory(path) as memory:
        session = memory.session("s", title="Ferry")
        tell("open")
        try:
            done = (await session.status()).messages
        except LookupError:
            done = 0
        # Some of what is there already is sent again, as a client does that was not answered.
        done = max(0, done - luck.randint(0, 5))
        while done < len(messages):
            size = luck.choice([1, 1, 2, 5, 20])
            await session.append(messages[done : done + size])
            done = min(done + size, len(messages))
            tell(f"stored {done}")
            if luck.random() < 0.15:
                await session.update(on_progress=lambda p: tell(f"made {p.done}"))
        await session.update(on_progress=lambda p: tell(f"made {p.done}"))
        tell("finished")


class Telling(ScriptedLLM):
    """A slow remote model that tells when a call begins."""

    def __init__(self, latency: float, script=None):
        super().__init__(name="slow", remote=True, latency=latency, script=script)

    async def complete(self, request):
        tell(f"call {self.calls}")
        response = await super().complete(request)
        tell(f"answered {self.calls}")
        return response


def found(request) -> str | None:
    """Answer a chunk with something of each of its messages, and a join as the model likes."""
    if request.task != "extract":
        return "- " + " ".join(source.text.split()[0] for source in request.inputs)
    things = [
        {"type": "event", "name": f"message {source.index}", "confidence": 1.0,
         "messages": [source.index]}
        for source in request.inputs
    ]  # fmt: skip
    said = " ".join(f"m{source.index}" for source in request.inputs)
    return json.dumps({"summary": f"{said} " * 5, "entities": things})


def remote_policy() -> UpdatePolicy:
    return UpdatePolicy(batch_delay=0, concurrency=3, lease=LEASE)


async def pay(path: str, seed: int) -> None:
    """Make summaries with a slow remote model."""
    messages = conversation(seed, 60)
    async with open_memory(path, llm=Telling(0.15), update_policy=remote_policy()) as memory:
        session = memory.session("s")
        await session.append(messages)
        tell("stored 60")
        await session.update()
        tell("finished")


def extraction() -> ExtractionOptions:
    return ExtractionOptions(
        safe_processing_tokens=1300, output_tokens=256, summary_tokens=60, oversized="slice",
    )  # fmt: skip


async def extract(path: str, seed: int) -> None:
    """Extract the conversation with a slow remote model."""
    async with open_memory(path, llm=Telling(0.15, found), update_policy=remote_policy()) as memory:
        session = memory.session("s")
        await session.append(conversation(seed, 60))
        tell("stored 60")
        await session.extract(extraction())
        tell("finished")


def main() -> None:
    jobs = {"work": work, "pay": pay, "extract": extract, "bank": keep_a_bank}
    for line in sys.stdin:
        job, path, seed = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            try:
                asyncio.run(jobs[job](path, int(seed)))
            except BaseException as error:  # noqa: BLE001 - the parent is told and fails
                tell(f"error {type(error).__name__}: {error}".replace("\n", " "))
            os._exit(0)
        tell(f"child {child}")
        _, status = os.waitpid(child, 0)
        tell(f"end {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
