"""A session and its engine: messages go in, updates run, and the tree is read."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hiermem.config import HierarchyConfig, UpdatePolicy
from hiermem.handle import Handle
from hiermem.log.append import About, append
from hiermem.models.offline.model import ExtractiveLLM
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.summaries.inputs import from_messages
from hiermem.summaries.node import Shared
from hiermem.summaries.update import update
from hiermem.text.measure import input_hash
from hiermem.tokens import FunctionCounter
from hiermem.types import Message

START = datetime(2024, 3, 1, 9, 0, tzinfo=UTC)
WORDS = tuple(
    word
    for line in (
        "the ferry leaves harbour and price we decided not to ship schema until Friday because",
        "Ada measured it in booking seats and Jonas prefers the plan never change of capacity",
    )
    for word in line.split()
)
#: Words are counted instead of tokens: exact enough for lengths, and instant.
COUNTER = FunctionCounter(lambda text: len(text.split()) + text.count("\n"), name="words")


def text(seed: int, words: int = 60) -> str:
    said = [WORDS[(seed * 7 + n * (1 + seed % 5) + n // 9) % len(WORDS)] for n in range(words)]
    said[::13] = [f"case-{seed}-{n}." for n in range(len(said[::13]))]
    return " ".join(said)


def messages(count: int, *, start: int = 0, words: int = 60, thread: str = "main"):
    for n in range(start, start + count):
        role = Message.user if n % 2 == 0 else Message.assistant
        at = START + timedelta(seconds=20 * n)
        yield role(text(n, words), created_at=at, thread=thread)


class _SameClock:
    """The clock of a store that goes by the clock of its handle."""

    def __init__(self, now):
        self.now = now

    async def compare(self, *, lease):
        """Find no difference."""


def set_clock(store, clock):
    """Set the clock of a store, whatever is wrapped around it."""
    while inner := getattr(store, "store", None) or getattr(store, "_store", None):
        store = inner
    store._clock = clock


async def until(condition):
    """Wait for something that a task or a thread of its own brings about."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class SessionFixture:
    """One tenant's store with what an update needs; every setting can be changed for one call."""

    def __init__(self, store=None, *, config=None, policy=None, tenant="t"):
        self.store = RecordStore(MemoryStore()) if store is None else store
        self.tenant = self.store.tenant(tenant)
        self.config = config or HierarchyConfig.by_tokens()
        self.policy = policy or UpdatePolicy(batch_delay=0, concurrency=4)
        self.now = START + timedelta(days=1)
        # Claims are judged by the store's time.
        set_clock(self.store, lambda: self.now)
        self.handle = Handle(self.tenant, COUNTER, self.config, clock=lambda: self.now)
        self.slept = 0.0

    async def sleep(self, seconds):
        """Let the clock run instead of waiting."""
        self.slept += seconds
        self.now += timedelta(seconds=seconds)
        await asyncio.sleep(0)

    def seconds(self):
        """Read the same clock as a number of seconds."""
        return self.now.timestamp()

    async def say(self, given, session="s"):
        return await append(self.handle, About(session, title="A title"), [list(given)])

    def handle_of(self, tenant=None, *, counter=COUNTER, config=None, policy=None, now=None):
        """Give a handle as a process of its own has one, whose clock is the store's."""
        handle = Handle(
            tenant or self.tenant, counter, config or self.config, policy or self.policy,
            clock=now or (lambda: self.now), configured=False,
        )  # fmt: skip
        handle.store_clock = _SameClock(handle.clock)
        return handle

    async def update(self, llm=None, session="s", *, handle=None, **settings):
        stand_in = ExtractiveLLM()
        own = {name: settings.pop(name, None) for name in ("tenant", "policy", "now")}
        settings = {"config": self.config, "sleep": self.sleep} | settings
        shared = {
            name: settings.pop(name) for name in ("prompts", "sleep", "clock") if name in settings
        }
        counter = settings.pop("counter", None)
        if counter is not None:  # counts as the session's counter does
            settings["record"] = await self.tenant.session(session)
        counter = counter or COUNTER
        handle = handle or self.handle_of(config=settings["config"], counter=counter, **own)
        return await update(
            handle, session, Shared(llm or stand_in, stand_in, **shared), **settings
        )

    async def nodes(self, session="s"):
        found, tree = [], self.tenant.tree(session)
        for level in await tree.levels():
            found += await tree.level(level, 0)
        return found

    async def tree(self, session="s"):
        """Give each node with the text that it serves."""
        nodes = await self.nodes(session)
        wanted = [(node.id, node.revision) for node in nodes]
        revisions = {r.node_id: r for r in await self.tenant.tree(session).revisions(wanted)}
        return {node.id: (node, revisions.get(node.id)) for node in nodes}

    async def untrue(self, session="s"):
        """Name the nodes that pass for made of what they cover now and are not."""
        tree = await self.tree(session)
        found = []
        for id_, (node, revision) in tree.items():
            if revision is None or node.dirty:
                continue
            if node.children:
                below = [tree[child][1] for child in node.children]
                outputs = [each.output_hash if each else "" for each in below]
            else:
                said = await self.tenant.messages(
                    session, node.span.start, node.span.stop, thread=node.thread
                )
                outputs = from_messages(node.span, said, count=COUNTER.count).outputs
            made = input_hash(level=node.level, strategy=revision.strategy, outputs=outputs)
            if made != revision.input_hash:
                found.append(id_)
        return found

    async def image(self, session="s"):
        """Give what must be the same however often a run was cut off."""
        return {
            id_: (
                replace(node, version=0, attempts=0),
                revision
                and (revision.text, revision.input_hash, revision.output_hash, revision.provenance),
            )
            for id_, (node, revision) in (await self.tree(session)).items()
        }
