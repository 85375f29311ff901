"""Drawn logs of a session, the ways to play one into a memory, and the image of what became of it.

A log is what a session's structure may depend on: messages with their times, flush, tick, close and
reopen. A way of playing is what it may not depend on: how appends are batched, when updates run,
when the store is opened anew. Logs are drawn as a short list of stretches and written out here, so
that thousands of messages cost a handful of drawn values.
"""

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from hiermem import AsyncMemory, HierarchyConfig, LevelConfig, Message, ToolCall, UpdatePolicy
from hiermem.process import utc_now
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.faults import FaultPlan, FaultyStore

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
_PROSE = (
    "the ferry leaves harbour 14:20 price 37.50 EUR deck B/12. We decided not to ship schema.sql "
    "until Friday because Ada measured 212 ms in booking/seats.py. Jonas prefers SQLite; never "
    "change https://example.org/plan v2.1 rollback on 2024-03-15. Capacity is 180 cars?"
)
VOCABULARY = _PROSE.split()
_SMALL = (
    LevelConfig(target_ratio=0.5, style="concise"),
    LevelConfig(target_ratio=0.3, style="chronological", fan_in=4, max_size=200, max_messages=60),
    LevelConfig(target_ratio=0.2, style="technical", fan_in=2, max_size=100, floor=20, cap=40),
)
CONFIGS = {
    "tokens": HierarchyConfig.by_tokens(
        target=120, max_messages=6, verbatim_tokens=20, levels=_SMALL
    ),
    "message": HierarchyConfig.by_tokens(
        target=120,
        max_messages=None,
        boundary="message",
        seal_policy="size",
        verbatim_tokens=20,
        levels=_SMALL,
    ),
    "chars": HierarchyConfig.by_chars(
        window_chars=900, min_flush_chars=200, group_chars=700, overlap_chars=80
    ),
    "preset": HierarchyConfig.by_tokens(),
}
QUICK = UpdatePolicy(batch_delay=0.0, concurrency=4)


class Words:
    """A counter that is cheap and exact in its own terms."""

    name = "words"

    def count(self, text: str) -> int:
        return sum(1 + len(word) // 8 for word in text.split())


def text(seed: int, words: int) -> str:
    """Say something; another seed says something else."""
    step = 1 + seed % 11
    said = [VOCABULARY[(seed * 7 + n * step + n // 13) % len(VOCABULARY)] for n in range(words)]
    return " ".join([*said, f"case-{seed}."])


# -- drawing

Event = tuple[str, datetime | None]
_KINDS = (
    ["turns"] * 8
    + ["people", "tools", "tools", "broken", "late", "loop", "huge", "empty", "system", "orphan"]
    + ["flush", "tick", "close"]
)


@st.composite
def logs(draw, *, most: int = 8, longest: int = 24, events: bool = True):
    """Draw a log: messages, and (kind, time) events of the session between them."""
    stretches = draw(
        st.lists(
            st.tuples(
                st.sampled_from(_KINDS),
                st.sampled_from(["main"] * 4 + ["side", "aside"]),
                st.integers(0, longest),
                st.sampled_from([2, 5, 12, 30, 90]),
                st.sampled_from([1, 20, 20, 20, 400, 5_000, -7, -90_000]),
                st.integers(0, 3),
            ),
            max_size=most,
        )
    )
    writer = _Writer()
    for kind, thread, count, words, pace, shape in stretches:
        if kind in ("flush", "tick", "close"):
            if events and any(isinstance(entry, Message) for entry in writer.log):
                writer.event(kind, pace)
            continue
        getattr(writer, kind)(thread, count, words, pace, shape)
    return writer.log


def long_logs():
    """Draw a log of up to a few thousand messages."""
    return logs(most=6, longest=900)


class _Writer:
    """Writes a log, one stretch after the other, on a clock that jumps and runs backwards."""

    def __init__(self):
        self.log: list[Message | Event] = []
        self.at = START
        self.number = 0

    def say(self, role, words, thread, pace, **fields):
        self.number += 1
        self.at += timedelta(seconds=pace)
        content = fields.pop("content", None)
        said = text(self.number, words) if content is None else content
        self.log.append(
            Message(role, said, thread=thread, created_at=self.at, key=f"k{self.number}", **fields)
        )

    def event(self, kind, pace):
        if kind == "tick":
            self.log.append(("tick", self.at + timedelta(seconds=pace)))
        else:
            self.log.append((kind, None))
        if kind == "close":
            self.log.append(("reopen", None))

    def turns(self, thread, count, words, pace, shape):
        for n in range(count):
            role = "user" if n % 2 == 0 else "assistant"
            self.say(role, 1 + (words * (1 + n % 3)) // 2, thread, pace)

    def people(self, thread, count, words, pace, shape):
        for n in range(count):
            self.say(
                "user", words, thread, pace, name=("Ada", "Jonas", "Mika", None)[n % (1 + shape)]
            )

    def tools(self, thread, count, words, pace, shape, *, answered=None, rounds=1):
        self.say("user", 4, thread, pace)
        for _ in range(rounds):
            calls = tuple(
                ToolCall(f"c{self.number}-{n}", "run", f'{{"x":{n}}}') for n in range(1 + shape)
            )
            self.say("assistant", 2 * (shape % 2), thread, pace, tool_calls=calls)
            for call in calls[:answered]:
                self.say("tool", words, thread, pace, tool_call_id=call.id)

    def broken(self, thread, count, words, pace, shape):
        self.tools(thread, count, words, pace, shape, answered=shape)
        self.say("user", words, thread, pace)

    def late(self, thread, count, words, pace, shape):
        call = ToolCall(f"late{self.number}", "run")
        self.say("assistant", 0, thread, pace, tool_calls=(call,))
        self.say("user", words, thread, pace)
        self.say("tool", words, thread, pace, tool_call_id=call.id)

    def loop(self, thread, count, words, pace, shape):
        self.tools(thread, count, min(words, 12), pace, shape % 2, rounds=1 + count % 60)
        self.say("assistant", words, thread, pace)

    def huge(self, thread, count, words, pace, shape):
        if shape == 0:
            self.say("user", 0, thread, pace, content="x" * (words * 40))
        elif shape == 1:
            call = ToolCall(f"h{self.number}", "read")
            self.say("assistant", 3, thread, pace, tool_calls=(call,))
            self.say("tool", words * 20, thread, pace, tool_call_id=call.id)
        else:
            lines = "\n\n".join(text(n, words) for n in range(6 + count % 9))
            self.say("user", 0, thread, pace, content=lines)

    def empty(self, thread, count, words, pace, shape):
        self.say(("user", "assistant", "system", "user")[shape], 0, thread, pace, content="")

    def system(self, thread, count, words, pace, shape):
        self.say("system", words, thread, pace)

    def orphan(self, thread, count, words, pace, shape):
        self.say("tool", words, thread, pace, tool_call_id=f"lost{self.number}" if shape else None)


def messages_of(log):
    return [entry for entry in log if isinstance(entry, Message)]


# -- playing


@dataclass(frozen=True)
class Way:
    """How a log is played; all of it follows from ``seed``."""

    seed: int = 0
    batches: tuple[int, ...] = (1,)
    updates: float = 0.0
    restarts: float = 0.0


ways = st.builds(
    Way,
    seed=st.integers(0, 10_000),
    batches=st.sampled_from([(1,), (1, 2, 3), (7,), (1, 100), (10_000,)]),
    updates=st.sampled_from([0.0, 0.0, 0.1, 0.5]),
    restarts=st.sampled_from([0.0, 0.0, 0.1]),
)


class Place:
    """A store that can be closed and opened again, in memory or in a file."""

    def __init__(self, kind: str, root: Path | None = None):
        self.kind, self._root = kind, root
        self._kept = Lasting() if kind == "memory" else None

    async def open(self, clock=utc_now):
        if self._kept is not None:
            self._kept._clock = clock
            return RecordStore(self._kept)
        if self._root is None:
            return RecordStore(await SQLiteStore.open(":memory:", clock=clock))
        return RecordStore(await SQLiteStore.open(self._root / "memory.db", clock=clock))

    @property
    def lasts(self):
        return self._kept is not None or self._root is not None


class Failing:
    """A place whose store meets the faults of a plan."""

    lasts = True

    def __init__(self, at: Place, plan: FaultPlan):
        self._at, self._plan = at, plan

    async def open(self, clock=utc_now):
        return FaultyStore(await self._at.open(clock), self._plan)


class Lasting(MemoryStore):
    """The in-memory store, as if a file kept what it holds."""

    async def close(self):
        pass


@asynccontextmanager
async def place(kind: str):
    """Give a fresh place: "memory", "sqlite" (in a file) or "sqlite-memory"."""
    if kind != "sqlite":
        yield Place(kind)
        return
    with tempfile.TemporaryDirectory() as root:
        yield Place(kind, Path(root))


async def opened(at: Place, config: HierarchyConfig, **settings) -> AsyncMemory:
    """Open a memory at the place, with the cheap counter."""
    parts = {"token_counter": Words(), "update_policy": QUICK} | settings
    store = await at.open(parts.get("clock", utc_now))
    return AsyncMemory(store=store, config=config, **parts)


async def happen(session, event) -> None:
    """Let one event of the log happen."""
    kind, at = event
    if kind == "tick":
        await session.tick(at)
    else:
        await getattr(session, kind)()


async def play(
    log,
    at: Place,
    config,
    way: Way = Way(),
    *,
    session="s",
    look=None,
    at_end=None,
    finished=True,
    **settings,
):
    """Play a log and give its image, all summaries made.

    ``look`` is called after every step, ``at_end`` once before the memory is closed.
    """
    luck = Random(way.seed)
    memory = await opened(at, config, **settings)
    place = 0
    while place < len(log):
        target = memory.session(session)
        if isinstance(log[place], Message):
            size, batch = luck.choice(way.batches), []
            while len(batch) < size and place < len(log) and isinstance(log[place], Message):
                batch.append(log[place])
                place += 1
            await target.append(batch)
        else:
            await happen(target, log[place])
            place += 1
        if luck.random() < way.updates:
            await target.update(luck.choice([None, None, 1, 2]))
        if at.lasts and luck.random() < way.restarts:
            await memory.close()
            memory = await opened(at, config, **settings)
        if look is not None:
            await look(memory, memory.session(session))
    found = await finish(memory, session) if log and finished else None
    if at_end is not None:
        await at_end(memory.session(session))
    await memory.close()
    return found


async def finish(memory: AsyncMemory, session: str = "s"):
    """Update until nothing is left to make, and give the image."""
    await memory.session(session).update()
    return await image(memory, session)


# -- looking


async def image(memory: AsyncMemory, session: str = "s"):
    """Give all that must not depend on how a log was played: structure, flags, texts and hashes."""
    handle = memory.session(session)
    summaries = {summary.id: summary for summary in await handle.summaries()}
    nodes = {}
    for summary in summaries.values():
        made = summary.revision
        nodes[summary.id] = (
            replace(summary.node, version=0),
            made
            and (
                made.text, made.tokens, made.input_hash, made.output_hash, made.strategy,
                made.provenance, made.anchors, made.fidelity, made.trust, made.degraded,
            ),
        )  # fmt: skip
    status = await handle.status()
    messages = [replace(stored) for stored in await handle.messages()]
    return {
        "nodes": nodes,
        "messages": messages,
        "open": status.open_windows,
        "closed": status.closed,
        "events": [(event.kind, event.at, event.detail) for event in status.events],
    }


def bounds(node):
    """Give what is fixed for ever once a node is sealed."""
    return (
        node.level, node.ordinal, node.thread, node.span, node.windows, node.children,
        node.messages, node.input_size, node.allotted, node.input_tokens, node.allotted_tokens,
        node.verbatim, node.first_at, node.last_at, node.linked,
    )  # fmt: skip
