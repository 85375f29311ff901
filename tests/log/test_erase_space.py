"""A whole space is taken back: what goes, what stays, and who is at work on it meanwhile."""

import asyncio
import json
import logging

import pytest
from kinds import of_kind

from hiermem import AsyncMemory, BankPolicy, Message, UpdatePolicy
from hiermem.bank import records as kept
from hiermem.bank import space as space_engine
from hiermem.bank.store import SpaceContext, bank_claim
from hiermem.errors import ConflictError, NotFoundError, StoreError, UsageError
from hiermem.remote.object_storage import open_storage
from hiermem.testing.llms import ScriptedLLM

RULES = "- progress.md: what works"
#: Names that a store may take for one another, or for a part of a kind of record.
ALIKE = ("a", "A", "a/b", "a%", "a_", "ab", "a/", "note/a", "space:a")


def answer(request) -> str:
    """Put all notes that were shown at the end of the one file."""
    held = dict(request.bank.files) or dict(request.bank.missing)
    text = held["progress.md"] + "\n".join(f"- {note.text}" for note in request.bank.notes)
    file = {
        "filename": "progress.md", "content": text,
        "notes": list(range(1, len(request.bank.notes) + 1)),
    }  # fmt: skip
    said = f"So far: {' '.join(note.text for note in request.bank.notes)}"
    return json.dumps({"bank_files": [file], "synthesis": said})


class Gated(ScriptedLLM):
    """A model whose call number ``at`` waits until it is let go."""

    def __init__(self, at=1):
        super().__init__(remote=True, script=answer)
        self.at, self.entered, self.go = at, asyncio.Event(), asyncio.Event()

    async def complete(self, request):
        if self.calls + 1 == self.at and not self.entered.is_set():
            self.entered.set()
            await self.go.wait()
        return await super().complete(request)


def opened(store, llm=None, **settings):
    return AsyncMemory(store=store, llm=llm or ScriptedLLM(script=answer, remote=True), **settings)


async def lived(memory, name, text, *, session="talk"):
    """Let a space have something of every kind that there is."""
    await memory.session(session).append(Message.user("it was said"))
    space = memory.space(name, rules=RULES)
    await space.note(f"{text} one", agent=text, tags=[text], sources=[(session, 0)])
    assert (await space.consolidate()).status == "ok"
    await space.note(f"{text} two", category=text)
    assert (await space.consolidate()).status == "ok"
    await space.rollback(1)
    await space.note(f"{text} waits", sources=[(session, 0)])
    return space


async def left(store, name):
    """Give what the store still has of a space, told by kind and key."""
    handle = store.tenant("default")
    kinds = [kept.kind_of(kind, name) for kind in kept.KINDS]
    found = [each for kind in kinds for each in await handle.records(kind)]
    found += await handle.records(kept.SPACE, key=name)
    sources = await handle.records("note-source")
    return found + [each for each in sources if each.key.split("/", 2)[2] == name]


# -- what goes


async def test_nothing_of_it_is_left_and_nothing_else_goes(store, tmp_path):
    """Notes, files, history, figures, lease, sources, journal: one that stayed would hold text."""
    memory = opened(store)
    space = await lived(memory, "x", "zebra")
    await lived(memory, "y", "camel")
    await space.export(tmp_path / "out")
    (tmp_path / "out" / "progress.md").write_text("- zebra by hand\n")
    await space.load(tmp_path / "out")
    others = [await left(store, "y"), await memory.space("y").runs()]
    receipt = await memory.space("x").delete()
    assert (receipt.kind, receipt.space, receipt.session_id) == ("erase_space", "x", None)
    assert {name: receipt.removed[name] for name in ("spaces", "notes", "files", "revisions")} == {
        "spaces": 1, "notes": 3, "files": 1, "revisions": 4,
    }  # fmt: skip
    assert receipt.unproven == (f"the export of space 'x' in {tmp_path / 'out'}",)
    assert await left(store, "x") == []
    assert await memory.spaces() == ["y"]
    assert [await left(store, "y"), await memory.space("y").runs()] == others
    (run,) = await store.tenant("default").runs(subject="space:x")
    assert (run.id, run.kind, run.outcome) == (receipt.run_id, "erasure", "ok")
    assert run.detail == {"kind": "erase_space", "removed": dict(receipt.removed)}
    assert await store.tenant("default").attempts(session_id="space:x") == []
    assert [one.content for one in await memory.session("talk").messages()] == ["it was said"] * 2
    told = (await memory.session("talk").erase([0])).unproven
    assert told, "what space y noted of the message is not named any more"
    assert not [name for name in told if "'x'" in name]
    assert (await memory.check()).findings == ()


async def test_no_byte_of_it_is_left_in_the_file(tmp_path):
    """P11: notes, files, synthesis, history, rules and file names, in the database and its log."""
    path, canary = tmp_path / "m.db", "zq7canary3391"
    rules = f"- progress.md: what works with {canary}rules"
    async with AsyncMemory.open(path, llm=ScriptedLLM(script=answer, remote=True)) as memory:
        space = memory.space("x", rules=rules)
        for number in range(30):
            await space.note(f"{canary} {number} " * 40, agent=canary, sources=[])
            if number % 10 == 9:
                assert (await space.consolidate()).status == "ok"
        await space.note(f"{canary} waits")
        await space.consolidate(dry_run=True)
        await memory.space("other", rules=RULES).note("this stays")
        assert canary.encode() in b"".join(one.read_bytes() for one in tmp_path.iterdir())
        receipt = await memory.space("x").delete()
        assert receipt.scrubbed, receipt.scrub_reason
        for name in sorted(tmp_path.iterdir()):
            assert canary.encode() not in name.read_bytes(), name
        assert [note.text for note in await memory.space("other").notes()] == ["this stays"]


async def test_one_that_is_not_there_is_said_and_nothing_is_written(store):
    """As with a session; to be told of success would hide a name that was mistyped."""
    memory = opened(store)
    with pytest.raises(NotFoundError, match="'x'"):
        await memory.space("x").delete()
    await memory.space("x", rules=RULES).note("one")
    await memory.space("x").delete()
    with pytest.raises(NotFoundError):
        await memory.space("x").delete()
    assert len(await memory.runs()) == 1
    for wrong in ("", 5, None, "\0"):
        with pytest.raises(UsageError):
            await memory.space(wrong).delete()


async def test_what_cannot_be_read_can_be_erased(store):
    """Damage must not keep what somebody wants gone."""
    memory = opened(store)
    await lived(memory, "x", "zebra")
    handle = store.tenant("default")
    damage = [
        kept.RecordWrite(each.kind, each.scope, each.key, "{")
        for each in await left(store, "x")
        if each.kind != "note-source"
    ]
    assert await handle.put_records(damage)
    await memory.space("x").delete()
    assert await left(store, "x") == []


async def test_names_that_look_alike_are_other_spaces(store):
    """A pattern, a folded letter or a prefix would take the bank of somebody else."""
    memory = opened(store)
    for name in ALIKE:
        await lived(memory, name, "text")
    before = {name: await left(store, name) for name in ALIKE}
    gone: set[str] = set()
    for name in ("a%", "a_", "a", "a/b", "A"):
        await memory.space(name).delete()
        gone.add(name)
        assert await memory.spaces() == sorted(set(ALIKE) - gone)
        for other in ALIKE:
            assert await left(store, other) == ([] if other in gone else before[other])
        runs = {run.subject for run in await memory.runs() if run.kind == "consolidation"}
        assert runs == {f"space:{other}" for other in ALIKE if other not in gone}


async def test_a_space_of_the_name_starts_empty_and_may_have_other_rules(store):
    """Rules never change; a space that was erased is no reason to keep to its rules."""
    memory = opened(store)
    old = await lived(memory, "x", "zebra")
    await memory.space("x").delete()
    with pytest.raises(NotFoundError):
        await memory.space("x").notes()
    new = memory.space("x", rules="- other.md: all else")
    assert await new.notes() == await new.notes("consumed") == await new.history() == []
    assert (await new.files(), await new.synthesis()) == ([], "")
    assert (await new.meta()).revision == 0
    with pytest.raises(ConflictError, check=of_kind("rules")):
        await old.note("for the old one")
    assert (await memory.check()).findings == ()


async def test_a_session_that_is_named_like_its_journal_keeps_all_but_that(store):
    """Nobody can tell whose a call is; of what was said nothing may go."""
    memory = opened(store)
    session = memory.session("space:x")
    await session.append(Message.user("hello"))
    await memory.space("x", rules=RULES).note("one")
    await memory.space("x").delete()
    assert [one.content for one in await session.messages()] == ["hello"]


# -- who is at work on it


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("at", [1, 2])
async def test_a_consolidation_under_way_writes_nothing_more(store, anew, at, caplog):
    """Its answer is of notes that are gone, and the space of the name may be another by then."""
    slow, limit = Gated(at), BankPolicy(max_notes=500)
    first, other = (
        opened(store, slow, bank_policy=limit, update_policy=UpdatePolicy(lease=0.3)),
        opened(store),
    )
    space = first.space("x", rules=RULES)
    if at == 2:
        await space.note("zebra before")
        assert (await space.consolidate()).status == "ok"
    await space.note("zebra")
    work = asyncio.create_task(space.consolidate())
    await slow.entered.wait()
    await other.space("x").delete()
    expected = []
    if anew:
        # The new space stands where the old one stood, version by version.
        new = other.space("x", rules=RULES)
        if at == 2:
            await new.note("camel before")
            await new.consolidate()
        await new.note("camel")
        handle = new._resources.opened()
        lease = SpaceContext(handle, "x", None, limit)
        await lease.rules()
        assert await bank_claim(lease, "other run").take()
        expected = await left(store, "x")
    await asyncio.sleep(0.25)  # a beat of the run falls into this
    slow.go.set()
    with caplog.at_level(logging.INFO):
        done = await work
    assert (done.status, done.notes_processed) == ("error", 0)
    assert "erased" in done.message
    assert await left(store, "x") == expected
    if not anew:
        assert await other.spaces() == []
    ended = [run for run in await other.runs() if run.id == done.run_id]
    assert [(run.outcome, set(run.detail)) for run in ended] == [("error", {"model", "reason"})]
    calls = await store.tenant("default").attempts(run_id=done.run_id)
    assert [call.outcome for call in calls] == ["ok"], "what was paid for is told all the same"
    assert (await other.check()).findings == ()


async def test_a_dry_run_under_way_ends_and_leaves_no_name(store):
    """It writes nothing of a bank, but its record names files."""
    slow = Gated()
    memory = opened(store, slow)
    space = memory.space("x", rules=RULES)
    await space.note("zebra")
    work = asyncio.create_task(space.consolidate(dry_run=True))
    await slow.entered.wait()
    await memory.space("x").delete()
    slow.go.set()
    done = await work
    (run,) = [run for run in await memory.runs() if run.id == done.run_id]
    assert set(run.detail) == {"model", "reason"}


@pytest.mark.parametrize("anew", [False, True])
async def test_a_call_that_saw_the_space_before_writes_nothing_after(store, anew, tmp_path):
    """Notes, loads, rollbacks, exports and releases that were worked out before the erasure."""
    memory = opened(store)
    await lived(memory, "x", "zebra")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "progress.md").write_text("- zebra by hand\n")

    async def space_context():
        made = SpaceContext(memory.space("x")._resources.opened(), "x", None, BankPolicy())
        await made.rules()
        return made

    seen = [await space_context() for _ in range(5)]
    await memory.space("x").delete()
    if anew:
        await memory.space("x", rules=RULES).rules()
    before = await left(store, "x")
    for call in (
        space_engine.load(seen[0], folder, False, None, open_storage),
        space_engine.rollback(seen[1], 0),
        space_engine.export(seen[2], tmp_path / "out", False, None, open_storage),
    ):
        with pytest.raises(NotFoundError, match="erased"):
            await call
    assert not (tmp_path / "out").exists()
    assert not await bank_claim(seen[3], "late").take()
    assert await left(store, "x") == before
    if anew:
        await space_engine.note(seen[4], "late")
        assert [note.text for note in await memory.space("x").notes()] == ["late"]
    else:
        with pytest.raises(NotFoundError):
            await space_engine.note(seen[4], "late")
        assert await left(store, "x") == []


async def test_notes_that_arrive_meanwhile_are_gone_or_in_a_space(store):
    """Whichever comes first; none may be left where nobody can reach or erase it."""
    memory = opened(store)

    async def writer(number):
        told = []
        for n in range(12):
            try:
                told.append(await memory.space("x", rules=RULES).note(f"{number}.{n}"))
            except (NotFoundError, StoreError):  # it was removed again and again meanwhile
                await asyncio.sleep(0)
        return told

    async def eraser():
        for _ in range(6):
            await asyncio.sleep(0.005)
            try:
                await memory.space("x").delete()
            except NotFoundError:
                await asyncio.sleep(0)

    await asyncio.gather(*(writer(n) for n in range(3)), eraser())
    if await memory.spaces():
        notes = await memory.space("x").notes()
        assert len({note.key for note in notes}) == len(notes)
        await memory.space("x").delete()
    assert await left(store, "x") == []
