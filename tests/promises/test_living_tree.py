"""The whole life of a session, drawn: appended to, edited, erased, forked, re-packed, killed.

A plain model (lists of what each session holds) says what must be readable. After every step the
library is compared with it; at the end everything is brought up to date, nothing may be dirty, and
every tree must say what one says that is generated from scratch over the same windows and groups.
"""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from editing import regenerating
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from logbook import CONFIGS, START, Lasting, Words, text
from sampling import chosen

from hiermem import AsyncMemory, ClosedError, Message, UpdatePolicy
from hiermem.errors import BudgetTooSmallError, HiermemError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.types.transaction import Changes

_CONFIG = st.sampled_from(["tokens", "chars"])
_PICK = st.integers(0, 10_000)
#: What was made under an earlier configuration is made anew, so that one strategy made all.
_POLICY = UpdatePolicy(batch_delay=0.0, follow_strategy=True)


@dataclass
class Plain:
    """What one session must hold: (content, state) by index, and whose prefix it shares."""

    entries: list[tuple[str, str]] = field(default_factory=list)
    parent: str | None = None
    shared: int = 0
    closed: bool = False


class Life(RuleBasedStateMachine):
    """Drives one memory over one store, beside the plain model."""

    kind = "memory"

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp())
        self.lives = 0
        self.plain: dict[str, Plain] = {}
        self.number = 0
        self.gone: set[str] = set()
        self.touched: set[str] = set()
        self.memory: AsyncMemory | None = None

    # -- the ground

    @initialize(config=_CONFIG)
    def begin(self, config):
        self.config = CONFIGS[config]
        self.kept = Lasting()
        self.memory = self.run(self.open())

    def run(self, work):
        return self.runner.run(work)

    async def store(self):
        if self.kind == "memory":
            return RecordStore(self.kept)
        return RecordStore(await SQLiteStore.open(self.root / f"{self.lives}.db"))

    async def open(self, plan=None):
        store = await self.store()
        if plan is not None:
            store = FaultyStore(store, plan)
        return AsyncMemory(
            store=store, config=self.config, token_counter=Words(), update_policy=_POLICY
        )

    def session(self, pick):
        names = sorted(self.plain)
        name = names[pick % len(names)]
        self.touched = {name}
        return name, self.plain[name], self.memory.session(name)

    def family(self, name, index):
        """Name the sessions that share message ``index`` with ``name``."""
        found, waiting = {name}, [name]
        while waiting:
            one = waiting.pop()
            kin = [
                other
                for other, plain in self.plain.items()
                if plain.parent == one and index < plain.shared
            ]
            mine = self.plain[one]
            if mine.parent is not None and index < mine.shared:
                kin.append(mine.parent)
            waiting += [other for other in kin if other not in found]
            found.update(kin)
        return found

    def say(self, count, words):
        messages = []
        for n in range(count):
            self.number += 1
            role = "user" if n % 2 == 0 else "assistant"
            # A long message now and then is sliced; its canary is its last word.
            said = text(self.number, words * (9 if self.number % 23 == 0 else 1))
            at = START + timedelta(seconds=20 * self.number)
            messages.append(Message(role, said, created_at=at, key=f"k{self.number}"))
        return messages

    # -- what happens

    @rule(pick=_PICK, count=st.integers(1, 30), words=st.sampled_from([4, 12, 40]))
    def append(self, pick, count, words):
        name, plain, session = ("s", self.plain.get("s"), self.memory.session("s"))
        if self.plain:
            name, plain, session = self.session(pick)
        messages = self.say(count, words)
        if plain is not None and plain.closed:
            with pytest.raises(ClosedError):
                self.run(session.append(messages))
            return
        self.run(session.append(messages))
        self.touched = {name}
        self.plain.setdefault(name, Plain()).entries += [(m.content, "live") for m in messages]

    @precondition(lambda self: self.plain)
    @rule(pick=_PICK, at=_PICK, words=st.sampled_from([0, 3, 12, 200]), how=st.booleans())
    def edit(self, pick, at, words, how):
        _, plain, session = self.session(pick)
        index = at % len(plain.entries)
        self.number += 1
        content = text(self.number, words)
        change = regenerating(session, how).edit(index, content)
        if plain.closed or plain.entries[index][1] != "live":
            with pytest.raises(HiermemError):
                self.run(change)
            return
        self.run(change)
        plain.entries[index] = (content, "live")

    @precondition(lambda self: self.plain)
    @rule(
        pick=_PICK,
        at=st.lists(_PICK, min_size=1, max_size=4),
        forks=st.sampled_from(["all", "keep"]),
    )
    def erase(self, pick, at, forks):
        name, plain, session = self.session(pick)
        indices = sorted({index % len(plain.entries) for index in at})
        receipt = self.run(session.erase(indices, forks=forks))
        assert receipt.scrubbed or receipt.scrub_reason
        for index in indices:
            reached = self.family(name, index) if forks == "all" else {name}
            self.touched |= reached
            for one in reached:
                content, _ = self.plain[one].entries[index]
                self.plain[one].entries[index] = ("", "erased")
                self.gone.update(word for word in content.split() if word.startswith("case-"))
        self.gone -= self._said()

    @precondition(lambda self: self.plain)
    @rule(pick=_PICK, at=_PICK)
    def quarantine(self, pick, at):
        name, plain, session = self.session(pick)
        index = at % len(plain.entries)
        self.run(session.quarantine([index]))
        self.touched |= self.family(name, index)
        for one in self.family(name, index):
            content, state = self.plain[one].entries[index]
            if state == "live":
                self.plain[one].entries[index] = (content, "quarantined")

    @precondition(lambda self: self.plain and len(self.plain) < 4)
    @rule(pick=_PICK, at=_PICK)
    def fork(self, pick, at):
        name, plain, session = self.session(pick)
        place = 1 + at % len(plain.entries)
        new = f"f{len(self.plain)}"
        self.run(session.fork(new, at=place))
        self.plain[new] = Plain(list(plain.entries[:place]), name, place)

    @precondition(lambda self: self.plain)
    @rule(pick=_PICK, kind=st.sampled_from(["flush", "flush", "close", "reopen"]))
    def event(self, pick, kind):
        _, plain, session = self.session(pick)
        if kind == "flush" and plain.closed:
            with pytest.raises(ClosedError):
                self.run(session.flush())
            return
        self.run(getattr(session, kind)())
        if kind != "flush":
            plain.closed = kind == "close"

    @precondition(lambda self: self.plain)
    @rule(
        pick=_PICK,
        level=st.sampled_from([None, None, 1, 2]),
        strategy=st.sampled_from(["incremental"] * 3 + ["full"]),
    )
    def update(self, pick, level, strategy):
        _, _, session = self.session(pick)
        self.run(session.update(None if strategy == "full" else level, strategy=strategy))

    @precondition(lambda self: self.plain)
    @rule(pick=_PICK, level=st.integers(1, 3), at=_PICK)
    def recompress(self, pick, level, at):
        _, plain, session = self.session(pick)
        start = at % (len(plain.entries) + 1)
        self.run(session.recompress(level=level, span=(start, len(plain.entries))))

    @precondition(lambda self: self.plain)
    @rule(pick=_PICK, config=_CONFIG)
    def reconfigure(self, pick, config):
        _, plain, session = self.session(pick)
        if not plain.closed:
            self.run(session.reconfigure(CONFIGS[config]))

    @precondition(lambda self: self.plain)
    @rule(pick=_PICK, after=st.integers(0, 60), strategy=st.sampled_from(["incremental", "full"]))
    def killed(self, pick, after, strategy):
        """An update is killed at some operation of the store; the store is opened anew."""
        name, _, _ = self.session(pick)
        self.run(self.memory.close())
        plan = FaultPlan({after: "die"})

        async def work():
            memory = await self.open(plan)
            try:
                await memory.session(name).update(strategy=strategy)
            except DiedError:
                pass
            finally:
                plan.revive()
                await memory.close()

        self.run(work())
        self.memory = self.run(self.open())

    @precondition(lambda self: self.kind == "sqlite")
    @rule()
    def crash(self):
        """The process dies with the file open: what it left behind is opened by another one."""
        old, new = self.lives, self.lives + 1
        for beside in ("", "-wal"):
            path = self.root / f"{old}.db{beside}"
            if path.exists():
                shutil.copy(path, self.root / f"{new}.db{beside}")
        self.run(self.memory.close())
        self.lives = new
        self.memory = self.run(self.open())

    # -- what must hold

    def _said(self):
        return {
            word
            for plain in self.plain.values()
            for content, _ in plain.entries
            for word in content.split()
            if word.startswith("case-")
        }

    @invariant()
    def reads_as_the_model(self):
        for name in sorted(self.touched):
            plain = self.plain[name]
            stored = self.run(self.memory.session(name).messages())
            assert [(m.content, m.state) for m in stored] == plain.entries

    @invariant()
    def covers_exactly_and_shows_nothing_that_was_taken_back(self):
        for name in sorted(self.touched):
            plain = self.plain[name]
            try:
                context = self.run(self.memory.session(name).context(max_tokens=3_000))
            except BudgetTooSmallError:
                continue
            assert context.coverage == 1.0
            assert not context.omitted
            assert context.total_tokens <= 3_000
            shown = set(context.to_text().split())
            hidden = {
                word
                for content, state in plain.entries
                if state == "quarantined"
                for word in content.split()
                if word.startswith("case-")
            }
            live = {
                word
                for content, state in plain.entries
                if state == "live"
                for word in content.split()
            }
            assert not shown & (self.gone - live)
            assert not shown & (hidden - live)

    def teardown(self):
        try:
            if self.memory is not None:
                for name, plain in self.plain.items():
                    if plain.entries:
                        self.run(self._ends_true(name))
                report = self.run(self.memory.check())
                assert report.ok, report
                self.run(self.memory.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.root, ignore_errors=True)

    async def _ends_true(self, name):
        """Bring a session up to date and compare its tree with one that is made from scratch."""
        session, store = self.memory.session(name), self.memory._handle.store
        for level in range(1, 1 + max((await store.tree(name).levels()).keys(), default=0)):
            # Edits that were only flagged are asked for now.
            for summary in await session.summaries(level=level):
                if summary.node.dirty:
                    span = (summary.span.start, summary.span.stop)
                    await session.recompress(level=level, span=span)
        await session.update()
        found = await session.summaries()
        for summary in found:
            node = summary.node
            assert (node.status, node.dirty, node.forced) == ("active", False, False)
        scratch = await _from_scratch(store, name, self.config)
        odd = {
            summary.id: (_says(summary), scratch.get(summary.id))
            for summary in found
            if _says(summary) != scratch.get(summary.id)
        }
        assert not odd


def _says(summary):
    revision = summary.revision
    return revision.text, revision.input_hash, revision.output_hash


async def _from_scratch(store, name, config):
    """Generate every text of a session's tree anew, over the same messages, windows and groups."""
    record = await store.session(name)
    nodes = [
        n
        for level in await store.tree(name).levels()
        for n in await store.tree(name).level(level, 0)
    ]
    fresh = RecordStore(MemoryStore())
    handle = fresh.tenant("default")
    bare = [
        replace(
            node, status="pending", revision=0, version=0, attempts=0, error=None, degraded=False,
            dirty=False, forced=False, since=None,
        )
        for node in nodes
    ]  # fmt: skip
    messages = tuple(await store.messages(name, 0, record.messages))
    changes = Changes(
        None,
        session=replace(record, version=1, build="", tree=0, forked_from=None, forked_at=0),
        messages=messages,
        nodes=tuple(bare),
    )
    await handle.mutate(name, lambda _: changes)
    memory = AsyncMemory(store=fresh, config=config, token_counter=Words())
    await memory.session(name).update()
    made = {summary.id: _says(summary) for summary in await memory.session(name).summaries()}
    await memory.close()
    return made


class LifeInAFile(Life):
    """The same over SQLite, where a crash leaves a file and its log behind."""

    kind = "sqlite"


@pytest.mark.parametrize("machine", [Life, LifeInAFile], ids=["memory", "sqlite"])
def test_whatever_happens_the_tree_ends_true(machine, share):
    """Broken, an edit, erasure, fork, re-pack or kill leaves a tree that lies about the log."""
    # Without shrinking: it would live hundreds of lives again before it says what went wrong.
    lives = share(30, 6) if machine is Life else share(12, 3)
    run_state_machine_as_test(
        machine,
        settings=settings(
            chosen(lives), max_examples=lives, stateful_step_count=25, phases=[Phase.generate]
        ),
    )
