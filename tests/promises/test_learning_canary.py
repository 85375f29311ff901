"""P11 in a space that learns: what goes from a conversation goes from all that was learnt of it.

Each message of a drawn history bears a canary. A model takes the messages into the space's files,
alone or several into one line. Then messages are erased, edited, forgotten, sessions deleted or
taken out, and the process dies now and then in the middle of it. From then on no call shows the
canary, and once the space was updated no record holds it.
"""

import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import postgres_server
import pytest
from sampling import counted, share
from stand_ins import store_of

from hiermem import AsyncMemory, Message, NotFoundError
from hiermem.protocols import LLMResponse
from hiermem.records.run import RecordStore
from hiermem.stores.postgres import PostgresStore
from hiermem.testing.faults import DiedError, FaultPlan, FaultyStore
from hiermem.types.transaction import RecordWrite

RULES = "# Files\n- person.md: who\n- others.md: what others said\n- past.md: what held before\n"
BEGIN = datetime(2026, 3, 3, tzinfo=UTC)
DEEDS = (
    *("append", "append", "append", "learn", "learn", "fork", "edit", "erase", "keep", "forget"),
    *("drop", "leave", "join", "back"),
)


@dataclass
class Writer:
    """Takes each note into a line of person.md, now and then two into one."""

    luck: random.Random
    name: str = "writer"
    context_window: int | None = None
    remote: bool = False
    asked: list[str] = field(default_factory=list)

    async def complete(self, request):
        if request.task != "consolidate":
            return LLMResponse("A talk.")
        notes = [note.text for note in request.bank.notes]
        self.asked += notes
        before = dict(request.bank.files).get("person.md", "# Person\n")
        lines = [line for line in before.splitlines() if line.startswith("- ")]
        if lines and notes and self.luck.random() < 0.4:
            old = lines.pop(self.luck.randrange(len(lines)))
            notes[0] += f" (since 2026-03-04; was {old[2:].partition(' (')[0]})"
        while notes:
            taken = [notes.pop() for _ in range(min(len(notes), self.luck.choice([1, 1, 2])))]
            lines.append(f"- {' And '.join(taken)}")
        content = "# Person\n\n" + "\n".join(lines) + "\n"
        numbers = list(range(1, len(request.bank.notes) + 1))
        return LLMResponse(
            json.dumps(
                {
                    "bank_files": [{"filename": "person.md", "content": content, "notes": numbers}],
                    "synthesis": "\n".join(lines),
                }
            )
        )


class History:
    """The sessions of a space, where each canary is, and the memory that they live in."""

    def __init__(self, store, seed):
        self.store, self.luck, self.number = store, random.Random(seed), 0
        self.plan = FaultPlan()
        self.writer = Writer(random.Random(seed))
        #: The canary of each message by session, None once it is erased; and who is a member.
        self.marks: dict[str, list[str | None]] = {}
        self.members: set[str] = set()
        self.gone: set[str] = set()
        self.memory = self.opened()

    def opened(self):
        self.plan = FaultPlan()
        return AsyncMemory(store=FaultyStore(self.store, self.plan), llm=self.writer)

    @property
    def space(self):
        return self.memory.space("ada", rules=RULES, person="Ada", learn=True)

    @property
    def alive(self):
        """The canaries that the space may show."""
        held = {mark for name in self.members for mark in self.marks[name] if mark}
        return held - self.gone

    def canary(self):
        self.number += 1
        return f"zq{self.number}canary"

    async def step(self):
        what = self.luck.choice(DEEDS)
        names = sorted(self.marks)
        name = self.luck.choice(names) if names else ""
        live = [index for index, mark in enumerate(self.marks.get(name, ())) if mark]
        session = self.memory.session(name) if name else None
        if what == "append" or not name:
            name, mark = self.luck.choice("stuv"), self.canary()
            session = self.memory.session(name, space=None if name in self.marks else "ada")
            if name not in self.marks:
                self.marks[name] = []
                self.members.add(name)
                await self.space.files()
            await session.append(
                Message.user(f"My code is {mark} and I like it well.", created_at=BEGIN)
            )
            self.marks[name].append(mark)
        elif what == "learn":
            await self.space.consolidate()
        elif what == "fork" and f"{name}f" not in self.marks:
            await session.fork(f"{name}f")
            self.marks[f"{name}f"] = list(self.marks[name])
            self.members |= {f"{name}f"} if name in self.members else set()
        elif what == "leave":
            await session.leave()
            self.members.discard(name)
        elif what == "join":
            await session.join("ada")
            self.members.add(name)
        elif what == "back" and (await self.space.meta()).revision:
            await self.space.rollback(to=self.luck.randint(0, (await self.space.meta()).revision))
        elif live:
            await self.take_back(what, name, self.luck.choice(live))

    async def take_back(self, what, name, index):
        """Take a message back, and perhaps die in the middle of it."""
        mark, session = self.marks[name][index], self.memory.session(name)
        if self.luck.random() < 0.4:
            self.plan.faults = {self.plan.arrivals + self.luck.randrange(40): "die"}
        try:
            if what == "edit":
                await session.edit(index, f"My code is {self.canary()} and I like it.")
            elif what == "keep":
                await session.erase([index], forks="keep")
            elif what == "forget":
                await self.space.forget(mark, authors="all")
            elif what == "drop":
                await self.memory.session(name).delete()
            elif what == "erase":
                await session.erase([index])
        except DiedError:
            self.plan.revive()
            self.memory = self.opened()
            # The claim of a process that has ended holds nobody up.
            ended = RecordWrite("bank-claim/ada", "", "", None)
            await self.store.tenant("default").put_records([ended])
        self.plan.faults = {}
        await self.look()

    async def look(self):
        """Read again what each session holds, and so which canaries are gone."""
        before = {mark for marks in self.marks.values() for mark in marks if mark}
        for name in list(self.marks):
            held = await self.memory.session(name).messages()
            if not held:
                del self.marks[name]
                self.members.discard(name)
                continue
            texts = [str(stored.content) for stored in held]
            self.marks[name] = [text.split()[3] if "canary" in text else None for text in texts]
        after = {mark for marks in self.marks.values() for mark in marks if mark}
        self.gone |= before - after

    async def shown(self):
        """Return all that calls show of the space's bank, and the record of a new conversation."""
        space, texts = self.space, []
        for revision in [None, *range(1, (await space.meta()).revision + 1)]:
            with suppress(NotFoundError):
                texts.append(await space.read("person.md", revision=revision))
            with suppress(NotFoundError):
                texts.append(await space.read("past.md", revision=revision))
        texts += [await space.synthesis(), await space.diff(0)]
        texts += [line.text for line in await space.about()]
        new = self.memory.session("new", space="ada")
        await new.append(Message.user("Hello."))
        texts.append((await new.context(4_000)).to_text())
        await self.memory.session("new").delete()
        return "\n".join(texts)

    async def stored(self):
        """Return all that is stored and belongs to no session."""
        pages = await self.store.tenant("default").dump("")
        return "".join([json.dumps(rows) async for rows in pages])


def marks_in(text):
    return {word.strip(".,;()\"'") for word in text.replace("\\n", " ").split() if "canary" in word}


async def live_through(store, seed, steps):
    history = History(store, seed)
    try:
        for _ in range(steps):
            await history.step()
            shown = marks_in(await history.shown())
            assert shown <= history.alive, "a call shows what is gone"
        await history.memory.update_all()
        assert marks_in(await history.shown()) <= history.alive
        stored = await history.stored()
        assert not {mark for mark in history.gone if mark in stored}, "a record holds what is gone"
        assert (await history.memory.check()).findings == ()
        asked = len(history.writer.asked)
        await history.memory.update_all()
        assert len(history.writer.asked) == asked, "something is learnt twice"
    finally:
        await history.memory.close()


@counted
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    "kind", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.thorough)]
)
async def test_nothing_learnt_outlives_its_message(kind, tmp_path):
    """Broken, what a user has deleted is told in the next conversation, or stays on the disk."""
    for seed in range(share(20 if kind == "postgres" else 100, 8)):
        if kind == "postgres":
            postgres_server.run("DROP SCHEMA IF EXISTS hiermem CASCADE")
            store = RecordStore(await PostgresStore.open(postgres_server.dsn()))
        else:
            store = await store_of(kind, tmp_path / f"{seed}.db")
        await live_through(store, seed, 6 + seed * 7 % 20)
