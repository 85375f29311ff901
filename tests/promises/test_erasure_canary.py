"""P11: after an erasure its content is in no row, in no backup and in no byte of the files.

Every message of a drawn history bears a canary of its own. The history is lived through: summaries,
contexts whose views are kept, edits, forks, extractions, a re-pack that stops half-way. Then some
messages are erased, and the bytes of every file beside the store are searched.
"""

import tempfile
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
from editing import regenerating
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS, START, Place, happen, logs, opened
from sampling import drawn

from hiermem import ALL, Limits
from hiermem.config import ExtractionOptions
from hiermem.errors import BudgetTooSmallError, NotFoundError
from hiermem.types import Message, TextPart, ToolCall

#: Parts a session for its extraction, so that some chunks hold what is erased and others do not.
SMALL = ExtractionOptions(safe_processing_tokens=2_100, output_tokens=256, oversized="slice")


class Living:
    """One session, its forks, and where each canary is."""

    def __init__(self, memory, seed):
        self.memory, self.luck = memory, Random(seed)
        self.number = 0
        self.names = ["s"]
        #: The canaries of each message of each session, those of its versions included.
        self.marks: dict[str, list[set[str]]] = {"s": []}
        self.closed: set[str] = set()
        self.gone: set[str] = set()

    def canary(self):
        self.number += 1
        return f"zq{self.number}canary{self.number * 7919 % 1000}"

    def marked(self, message):
        mark = self.canary()
        fields = {"metadata": {"note": mark}, "name": f"Ada {mark}"}
        if message.tool_calls:
            fields["tool_calls"] = tuple(
                ToolCall(call.id, f"find{mark}", f'{{"q":"{mark}"}}') for call in message.tool_calls
            )
        said = f"{message.content} The code is {mark}, due 2024-05-01 for 59.90 EUR."
        content = said if self.luck.random() < 0.8 else (TextPart(said), TextPart(f"Also {mark}."))
        return replace(message, content=content, **fields), mark

    async def append(self, name, message):
        if name in self.closed:
            await self.memory.session(name).reopen()
            self.closed.discard(name)
        message, mark = self.marked(message)
        await self.memory.session(name).append(message)
        self.marks[name].append({mark})

    async def event(self, entry):
        await happen(self.memory.session("s"), entry)

    async def something(self):
        """Do something that makes more of what is there, or says it elsewhere."""
        name = self.luck.choice(self.names)
        if not self.marks[name]:
            return
        session = self.memory.session(name)
        what = self.luck.choice(
            ["update", "update", "context", "context", "edit", "edit", "fork", "full", "extract"]
        )
        if what == "update":
            await session.update(self.luck.choice([None, None, 1]))
        elif what == "context":
            for budget in (self.luck.choice([450, 700]), 2_000):
                try:
                    await session.context(max_tokens=budget, view=self.luck.choice("ab"))
                except BudgetTooSmallError:
                    continue
        elif what == "edit":
            index = self.luck.randrange(len(self.marks[name]))
            mark = self.canary()
            words = " ".join([f"Now it is {mark}."] * self.luck.choice([1, 3, 60]))
            how = self.luck.choice([False, True])
            (stored,) = await session.messages(index, index + 1)
            if stored.state == "live" and not (await session.status()).closed:
                await regenerating(session, how).edit(index, words)
                self.marks[name][index].add(mark)
        elif what == "fork" and len(self.names) < 3:
            at = self.luck.randint(1, len(self.marks[name]))
            new = f"f{len(self.names)}"
            await session.fork(new, at=at)
            self.names.append(new)
            self.marks[new] = [set(marks) for marks in self.marks[name][:at]]
        elif what == "full":
            # Half of a re-pack stays beside the tree that serves.
            await session.update(
                strategy="full", limits=Limits(calls=self.luck.choice([0, 2, None]))
            )
        elif what == "extract" and self.luck.random() < 0.3:
            await session.extract(self.luck.choice([None, SMALL]))

    async def erase(self):
        """Take messages back everywhere; their canaries must be nowhere then."""
        name = self.luck.choice(self.names)
        count = len(self.marks[name])
        if not count:
            return None
        indices = sorted({self.luck.randrange(count) for _ in range(self.luck.randint(1, 3))})
        session = self.memory.session(name)
        if self.luck.random() < 0.3:
            await session.quarantine(indices[:1])
        receipt = await session.erase(indices)
        assert receipt.indices == tuple(indices)
        for index in indices:
            marks = self.marks[name][index]
            for other in self.names:
                if index < len(self.marks[other]) and marks & self.marks[other][index]:
                    stored = (await self.memory.session(other).messages(index, index + 1))[0]
                    assert stored.state == "erased"
                    assert stored.content == ""
                    self.gone |= self.marks[other][index]
        return receipt


def found_in(root, gone):
    """Name the canaries that are in some file under ``root``."""
    found = {}
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for mark in gone:
            if mark.encode() in data or mark.encode("utf-16-le") in data:
                found.setdefault(mark, []).append(path.name)
    return found


@drawn(200, 15)
@given(
    log=logs(most=4, longest=10),
    config=st.sampled_from(["tokens", "chars"]),
    seed=st.integers(0, 1_000_000),
)
async def test_an_erasure_leaves_no_byte_behind(log, config, seed):
    """Broken, a row, a view, a version, a journal, the write-ahead log or a free page keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        memory = await opened(Place("sqlite", root), CONFIGS[config])
        life = Living(memory, seed)
        try:
            for entry in log:
                if isinstance(entry, Message):
                    await life.append("s", entry)
                elif life.marks["s"]:
                    await life.event(entry)
                if life.luck.random() < 0.25:
                    await life.something()
                if life.luck.random() < 0.05:
                    await life.append(
                        life.luck.choice(life.names), Message.user("On we go.", created_at=START)
                    )
            for _ in range(4):
                await life.something()
            for _ in range(2):
                receipt = await life.erase()
                if receipt is None:
                    return
                assert receipt.scrubbed, receipt.scrub_reason
                assert not found_in(root, life.gone)
                await life.something()
            for name in life.names:
                session = memory.session(name)
                await session.update()
                if life.marks[name]:
                    shown = (await session.context(max_tokens=20_000)).to_text()
                    assert not [mark for mark in life.gone if mark in shown]
        finally:
            await memory.close()
        assert not found_in(root, life.gone)


@pytest.mark.parametrize("forks", ["all", "keep"])
async def test_a_session_that_is_erased_leaves_no_byte_behind(forks, tmp_path):
    """Broken, erasing a session forgets a table, or takes from a fork what is its own."""
    memory = await opened(Place("sqlite", tmp_path), CONFIGS["tokens"])
    life = Living(memory, 1)
    for n in range(30):
        await life.append("s", Message.user(f"Message {n}.", created_at=START))
    session = memory.session("s")
    await session.update()
    await session.context(max_tokens=600)
    await session.extract()
    await session.edit(3, "Edited zqeditedcanary.")
    await session.fork("f", at=12)
    await memory.session("f").append(Message.user("Own zqowncanary.", created_at=START))
    receipt = await memory.session("s").delete(forks=forks)
    assert receipt.scrubbed
    assert (receipt.forks_reached, receipt.kept_in) == (
        (("f",), ()) if forks == "all" else ((), ("f",))
    )
    shared = set().union(*life.marks["s"][:12]) | {"zqeditedcanary"}
    own = set().union(*life.marks["s"][12:])
    assert not found_in(tmp_path, own)
    assert set(found_in(tmp_path, shared)) == (set() if forks == "all" else shared)
    assert found_in(tmp_path, {"zqowncanary"})
    assert (await memory.session("f").messages())[12].content == "Own zqowncanary."
    receipt = await memory.erase_tenant()
    assert receipt.scrubbed
    assert receipt.removed["sessions"] == 1
    assert not found_in(tmp_path, shared | own | {"zqowncanary"})
    await memory.close()


NAME = "zq-ada-lovelace-7731"


async def _live(memory, luck, name):
    """Do what leaves a session's id somewhere."""
    session, other = memory.session(name), memory.session("other")

    async def beside():
        await session.join("sp")
        await other.join("sp")
        await other.context(max_tokens=2_000)

    doing = {
        "update": session.update,
        "full": lambda: session.update(strategy="full"),
        "all": lambda: memory.update_all(strategy="full"),
        "context": lambda: session.context(max_tokens=900, query="codes"),
        "search": lambda: memory.search("codes", space=ALL),
        "extract": session.extract,
        "erase": lambda: session.erase([luck.randrange(12)]),
        "quarantine": lambda: session.quarantine([luck.randrange(12)]),
        "fork": lambda: session.fork(f"f{luck.random()}", at=luck.randrange(1, 12)),
        "other": lambda: other.erase([luck.randrange(6)]),
        "note": lambda: memory.space("sp").note("A note.", sources=[(name, 14), ("other", 5)]),
        "consolidate": lambda: memory.space("sp").consolidate(),
        "pin": lambda: session.pin(13),
        "beside": beside,
        "leave": session.leave,
        "feedback": lambda: session.feedback("L1.0", score=0.5),
    }
    for what in luck.sample(sorted(doing), 7):
        with suppress(NotFoundError):  # the message was erased, the text is not made yet
            await doing[what]()


@drawn(60, 12)
@given(seed=st.integers(0, 1_000_000), forks=st.sampled_from(["all", "keep"]), child=st.booleans())
async def test_the_id_of_a_deleted_session_is_nowhere(seed, forks, child):
    """Broken, a file that is handed on names a person whose conversation was deleted."""
    luck = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        memory = await opened(Place("sqlite", root), CONFIGS["tokens"])
        said = [Message.user(f"The code {n} is for Ada. " * 9, created_at=START) for n in range(16)]
        await memory.session("other").append(said[:15])
        if child:
            await memory.session("other").fork(NAME, at=9)
            await memory.session(NAME).append(said[9:])
        else:
            await memory.session(NAME).append(said)
        await memory.space("sp", rules="- progress.md: what happened").note("First.")
        await _live(memory, luck, NAME)
        kept = await memory.space("sp").notes()
        receipt = await memory.session(NAME).delete(forks=forks)
        assert receipt.scrubbed
        assert not found_in(root, {NAME})
        assert NAME not in str([asdict(run) for run in await memory.runs()])
        assert (await memory.run(receipt.run_id)).record.detail["kind"] == "erase_session"
        for note in await memory.space("sp").notes():
            assert note.sources in ((), (("other", 5),))
        assert len(await memory.space("sp").notes()) == len(kept)
        await memory.update_all()
        assert (await memory.check()).ok
        await memory.close()
        assert not found_in(root, {NAME})
