"""Spaces: how they are opened, what becomes of a note, and what can be done to a bank by hand."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from hiermem import AsyncMemory, BankPolicy, Message
from hiermem.bank.store import SpaceContext
from hiermem.errors import InvalidMessageError, NotFoundError, StoreError, UsageError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.testing.faults import FaultPlan, FaultyStore

RULES = "# Files\n- progress.md: what works\n- decisions.md: why"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite"])
async def memory(request, tmp_path):
    if request.param == "memory":
        opened = AsyncMemory(store=MemoryStore())
    else:
        opened = await AsyncMemory.open(tmp_path / "m.db")
    async with opened:
        yield opened


async def filled(memory, *texts: str):
    """Give a space whose bank has taken these notes in, each by an answer of its own."""
    space = memory.space("x", rules=RULES)
    for text in texts:
        await space.note(text)
        assert (await space.consolidate()).status == "ok"
    return space


# -- opening


async def test_a_space_is_made_by_its_first_use_with_rules(memory):
    """Without rules a wrong name would make an empty space, and nobody would notice."""
    with pytest.raises(NotFoundError):
        await memory.space("x").notes()
    assert await memory.spaces() == []
    assert await memory.space("x", rules=RULES).notes() == []
    assert await memory.spaces() == ["x"]
    assert await memory.space("x").rules() == RULES


async def test_a_space_and_a_session_may_share_a_name(memory):
    """Erasing the session must not take the bank with it, nor be counted among its runs."""
    session = memory.session("x")
    await session.append(Message.user("hello"))
    space = await filled(memory, "one")
    assert await session.runs() == []
    await memory.session("x").delete()
    assert await space.files() == ["decisions.md", "progress.md"]
    assert len(await space.notes("consumed")) == 1
    assert len(await space.runs()) == 1
    assert (await memory.check()).findings == ()


async def test_spaces_and_tenants_do_not_see_each_other():
    """Names that look alike are different spaces, and a tenant's are its own."""
    store, names = (
        RecordStore(MemoryStore()),
        ["x", "X", "x/", "note/x", "x ", "é", "e\u0301", "%", "_"],
    )
    memories = [AsyncMemory(store=store, tenant=tenant) for tenant in ("a", "A", "a/x")]
    for memory in memories:
        for name in names:
            await memory.space(name, rules=RULES).note(f"{memory.tenant}: {name}")
    for memory in memories:
        assert sorted(await memory.spaces()) == sorted(names)
        for name in names:
            (note,) = await memory.space(name).notes()
            assert note.text == f"{memory.tenant}: {name}"
    await memories[0].erase_tenant()
    assert await memories[0].spaces() == []
    assert len(await memories[1].spaces()) == len(names)


# -- notes


async def test_a_note_is_kept_as_it_was_written(memory):
    """Whatever an agent is called, its notes are found again and are its own."""
    agents = ["dev-1", "", "a/b", "..", "con.md", "\u202eevil", "\U0001d56cgent", "a\nb", "%_"]
    agents.append("n" * 512)
    space = memory.space("x", rules=RULES)
    for agent in agents:
        await space.note(
            f"by {agent}", agent=agent, category=agent, tags=["t", "t", "u"],
            timestamp=NOON.astimezone(timezone(timedelta(hours=5))),
        )  # fmt: skip
    found = await space.notes()
    assert [note.agent for note in found] == agents
    assert {note.tags for note in found} == {("t", "u")}
    assert {note.timestamp for note in found} == {NOON}
    assert (await space.consolidate()).notes_processed == len(agents)
    consumed = await space.notes("consumed")
    assert [(note.agent, note.text) for note in consumed] == [(a, f"by {a}") for a in agents]
    assert {note.consolidation for note in consumed} == {1}


async def test_many_agents_at_once_lose_nothing(memory):
    """They race for the next place; each must get one, and only one."""
    spaces = [memory.space("x", rules=RULES) for _ in range(6)]
    await asyncio.gather(
        *(space.note(f"{at}-{number}", agent=str(at)) for number in range(10)
          for at, space in enumerate(spaces))
    )  # fmt: skip
    found = await spaces[0].notes()
    assert len({note.text for note in found}) == len(found) == 60
    assert len({note.key.split("-")[3] for note in found}) == 60, "two notes have one place"


async def test_a_note_is_written_once_though_the_store_lies():
    """An answer that is lost after the commit must not make the note again."""
    plan = FaultPlan()
    space = AsyncMemory(store=FaultyStore(RecordStore(MemoryStore()), plan)).space("x", rules=RULES)
    await space.note("first")
    plan.only = frozenset({"put_records.after"})
    for failures in (1, 2, 3):
        plan.faults = {plan.arrivals + n: "fail" for n in range(failures)}
        await space.note(f"after {failures}")
    assert [note.text for note in await space.notes()] == [
        "first",
        *(f"after {n}" for n in (1, 2, 3)),
    ]
    plan.faults = {plan.arrivals + n: "fail" for n in range(5)}
    with pytest.raises(StoreError):
        await space.note("nobody knows")


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": ""}, {"text": " \n"}, {"text": "\ud800"}, {"text": 5}, {"agent": "\0"},
        {"agent": None}, {"category": 5}, {"tags": "abc"}, {"tags": [""]}, {"tags": ["x"] * 65},
        {"timestamp": NOON.replace(tzinfo=None)}, {"sources": "s"}, {"sources": [("s",)]},
        {"sources": [("s", -1)]}, {"sources": [("s", True)]}, {"sources": [("", 0)]},
        {"agent": "a" * 513},
    ],
)  # fmt: skip
async def test_a_wrong_note_writes_nothing(wrong):
    """A refused note leaves no space, no number and no trace behind."""
    memory = AsyncMemory(store=MemoryStore())
    with pytest.raises((UsageError, InvalidMessageError)):
        await memory.space("x", rules=RULES).note(**{"text": "fine", **wrong})
    assert await memory.spaces() == []


# -- provenance


async def test_an_erasure_names_what_was_noted_from_the_message(memory, tmp_path):
    """The library cannot clean prose that others wrote; it must say where it stands (P11)."""
    session = memory.session("s")
    await session.append(*(Message.user(f"secret {n}") for n in range(4)))
    space = memory.space("x", rules=RULES)
    note = await space.note("secret 1, noted", sources=[("s", 1), ["s", 1], ("s", 2)])
    waiting = await session.erase([2])
    assert waiting.unproven == (f"note {note.key} of space 'x'",)
    await space.consolidate()
    await space.export(tmp_path / "out")
    told = (await session.erase([1])).unproven
    assert f"note {note.key} of space 'x'" in told
    assert "file decisions.md of space 'x'" in told
    assert f"the export of space 'x' in {tmp_path / 'out'}" in told
    assert (await session.erase([0])).unproven == ()
    assert (await session.erase([1])).unproven == (), "the trace is still on record"


async def test_a_fork_a_quarantine_and_an_erased_session_name_it_too(memory):
    """A fork shares the message; what was poisoned once may have to be erased later."""
    session = memory.session("s")
    await session.append(Message.user("one"), Message.user("two"))
    fork = await session.fork("t")
    space = memory.space("a/b", rules=RULES)
    one = await space.note("one", sources=[("s", 0)])
    assert one.key in (await session.quarantine([0])).unproven[0]
    assert (await fork.erase([0])).unproven == (f"note {one.key} of space 'a/b'",)
    two = await space.note("two", sources=[("s", 1)])
    assert two.key in (await session.delete()).unproven[0]
    assert (await memory.check()).findings == ()


async def test_a_source_must_be_there(memory):
    """A trace of a message that there is not would never be found."""
    space = memory.space("x", rules=RULES)
    with pytest.raises(NotFoundError):
        await space.note("n", sources=[("s", 0)])
    await memory.session("s").append(Message.user("one"))
    with pytest.raises(NotFoundError):
        await space.note("n", sources=[("s", 1)])
    assert await space.notes() == []


async def test_an_erasure_in_the_same_moment_is_not_missed(memory, monkeypatch):
    """Between the look at a source and the note, the message goes: its receipt knows of no note."""
    session = memory.session("s")
    await session.append(Message.user("one"), Message.user("two"))
    space = memory.space("x", rules=RULES)
    await space.notes()
    put = SpaceContext.put

    async def after_an_erasure(records, writes, **more):
        monkeypatch.setattr(SpaceContext, "put", put)
        assert (await session.erase([0])).unproven == ()
        return await put(records, writes, **more)

    monkeypatch.setattr(SpaceContext, "put", after_an_erasure)
    with pytest.raises(NotFoundError, match="erased"):
        await space.note("one, noted", sources=[("s", 0)])
    assert await space.notes() == []


# -- history


async def test_the_history_gives_every_state_back(memory):
    """Each revision can be read, compared and gone back to."""
    space = await filled(memory, "alpha works", "beta works", "gamma works")
    states = [{name: await space.read(name, revision=n) for name in await space.files()}
              for n in (1, 2, 3)]  # fmt: skip
    assert {name: await space.read(name) for name in await space.files()} == states[-1]
    found = await space.history()
    assert [each.number for each in found] == [3, 2, 1]
    assert [len(each.notes) for each in found] == [1, 1, 1]
    assert "gamma works" in await space.diff()
    assert "beta works" in await space.diff(1, 2)
    assert "gamma" not in await space.diff(1, 2)
    assert await space.diff(2, 2) == ""
    assert (await space.diff(0, 3)).count("+++ b/") == 2

    back = await space.rollback(to=1)
    assert (back.number, back.kind, back.to) == (4, "rollback", 1)
    assert {name: await space.read(name) for name in await space.files()} == states[0]
    assert "-" in await space.diff()
    assert (await space.rollback(to=4)).number == 4, "nothing changed, and a revision was made"
    assert (await space.rollback(to=0)).number == 5
    assert await space.files() == []
    assert (await space.rollback(to=3)).number == 6
    assert {name: await space.read(name) for name in await space.files()} == states[2]
    assert len(await space.notes("consumed")) == 3
    assert (await memory.check()).findings == ()
    await space.note("delta works")
    assert (await space.consolidate()).status == "ok"
    assert (await space.meta()).revision == 7


async def test_there_is_nothing_to_go_back_to(memory):
    """A revision that there is not is no empty bank."""
    space = memory.space("x", rules=RULES)
    for call in (space.rollback(to=0), space.rollback(to=1), space.read("progress.md"),
                 space.read("progress.md", revision=1), space.diff(0, 1)):  # fmt: skip
        with pytest.raises(NotFoundError):
            await call
    assert await space.diff() == ""
    with pytest.raises(UsageError):
        await space.read("../progress.md")


# -- what is set aside


async def test_notes_that_were_set_aside_can_be_tried_again(memory):
    """A larger model may take what a smaller one could not."""
    parts = {"bank_policy": BankPolicy(safe_processing_tokens=3_000, output_tokens=256)}
    small = AsyncMemory(store=memory._resources.store, **parts)
    space = small.space("x", rules=RULES)
    await space.note("word " * 9_000, agent="long")
    await space.note("short")
    done = await space.consolidate()
    assert [(each.agent, each.reason) for each in done.blocked] == [("long", "too_large")]
    assert (done.status, done.notes_processed) == ("partial", 1)
    assert [note.state for note in await space.notes()] == ["blocked"]
    assert (await space.consolidate()).status == "nothing_to_do"
    assert await space.unblock() == 1
    assert await space.notes("blocked") == []
    done = await memory.space("x").consolidate()
    assert (done.status, done.notes_processed) == ("ok", 1)


@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("change", ["rollback", "load"])
async def test_a_cancelled_change_of_a_bank_leaves_no_lease(
    memory, tmp_path, monkeypatch, change, write
):
    """F21: cut off while the store's answer is on its way, the lease would be held till it ends."""
    space = await filled(memory, "Pump 3 is on.", "Pump 4 is off.")
    folder = tmp_path / "bank"
    await space.export(folder)
    (folder / "progress.md").write_text("Pump 5 is new.\n")
    put, asked, answer = SpaceContext.put, asyncio.Event(), asyncio.Event()
    count = 0

    async def slow(self, writes, **settings):
        nonlocal count
        done = await put(self, writes, **settings)
        count += 1
        if count == write:
            asked.set()
            await answer.wait()
        return done

    monkeypatch.setattr(SpaceContext, "put", slow)
    work = asyncio.ensure_future(
        space.rollback(to=1) if change == "rollback" else space.load(folder)
    )
    await asked.wait()
    work.cancel()
    await asyncio.sleep(0)
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    monkeypatch.undo()
    assert (await space.rollback(to=1)).number > 0
