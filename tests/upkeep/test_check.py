"""``check`` says nothing of what is sound, and names the promise that a store ceased to keep."""

from dataclasses import replace

import pytest
from editing import regenerating
from hypothesis import given
from hypothesis import strategies as st
from logbook import CONFIGS, START, Words, happen, logs, text
from sampling import drawn
from stand_ins import Intercepted, talk

from hiermem import AsyncMemory, Message
from hiermem.errors import StoreCorruptError
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types import Span
from hiermem.types.transaction import KeyEntry, NeedMessages, RecordWrite, RunRecord
from hiermem.upkeep.check import CHECKED, NOT_SHOWN

COUNT = 90


def conversation(count=COUNT):
    """Write messages of two threads, each with a key, one of them long enough to be sliced."""
    return talk(
        count, lambda n: text(n, 400 if n == 31 else 30), key="k{n}",
        thread=lambda n: "side" if n % 9 == 8 else "main",
    )  # fmt: skip


def lying(store, name, lie, times=10**9):
    """Return a store that tells one thing wrongly, where much is read at once too."""
    left = [times]

    def is_of(need):
        return need == name or (name == "messages" and isinstance(need, NeedMessages))

    async def around(called, do, *args):
        answer = await do()
        if left[0] <= 0 or called not in (name, "read"):
            return answer
        left[0] -= 1
        if called == name:
            return lie(answer)
        return [
            lie(list(each)) if is_of(need) else each
            for (_, need), each in zip(args[0], answer, strict=True)
        ]

    return Intercepted(store, around)


@pytest.fixture(scope="module")
def sound():
    """A store that holds a session with two threads, slices, summaries and stored views."""
    import asyncio

    store = RecordStore(MemoryStore())

    async def fill():
        memory = AsyncMemory(store=store, config=CONFIGS["tokens"], token_counter=Words())
        session = memory.session("s")
        await session.append(conversation()[:50])
        await session.flush()
        await session.append(conversation()[50:])
        await session.update()
        await session.context(2_500)

    asyncio.run(fill())
    return store


async def found(store, **parts):
    memory = AsyncMemory(store=store, token_counter=parts.pop("counter", Words()), **parts)
    return await memory.check()


async def test_what_is_sound_is_found_sound(sound):
    """A check that accuses a sound store is of no use."""
    report = await found(sound)
    assert report.ok, report.findings
    assert (report.sessions, report.messages) == (1, COUNT)
    assert report.nodes > 20
    assert not report.skipped


async def test_it_says_what_it_cannot_see(sound):
    """Silence about what stored data cannot show must not be taken for a clean bill."""
    report = await found(sound)
    assert set(report.not_shown) == {"P4", "P5", "P6", "P9", "P10", "P13"}
    assert not set(report.checked) & set(report.not_shown)
    assert set(CHECKED) | set(NOT_SHOWN) >= {f"P{number}" for number in range(1, 14)}


@given(log=logs(most=6), config=st.sampled_from(["tokens", "message", "chars"]))
@drawn(12)
def test_whatever_was_appended_and_made_is_found_sound(log, config):
    """A drawn history that the library itself wrote is never accused."""
    import asyncio

    async def run():
        store = RecordStore(MemoryStore())
        memory = AsyncMemory(store=store, config=CONFIGS[config], token_counter=Words())
        session = memory.session("s")
        for entry in log:
            await (session.append(entry) if isinstance(entry, Message) else happen(session, entry))
        assert (await memory.check()).findings == ()
        if log:
            await session.update()
            await session.context(4_000, allow_omission=True)
        assert (await memory.check()).findings == ()

    asyncio.run(run())


def of(kind):
    """Make a lie about the first item of a list for which ``kind`` gives something else."""

    def lie(items):
        changed = list(items)
        for place, item in enumerate(items):
            other = kind(item)
            if other is not None and other != item:
                changed[place] = other
                return changed
        return changed

    return lie


def when(condition, **fields):
    """Give a changed copy of what the condition holds for."""
    return lambda item: replace(item, **fields) if condition(item) else None


def message(place, /, **fields):
    return of(when(lambda stored: stored.index == place, **fields))


def node(name, **fields):
    return of(when(lambda each: each.id == name, **fields))


def spoken(words):
    def say(stored):
        if stored.index != 7:
            return None
        return replace(stored, message=replace(stored.message, content=words))

    return say


def strayed(stored):
    elsewhere = replace(stored, message=replace(stored.message, thread="x"))
    return elsewhere if stored.index == 7 else None


def of_text(**fields):
    return of(when(lambda revision: revision.node_id == "L1.4", **fields))


LIES = {
    "a message is gone": ("messages", lambda page: [m for m in page if m.index != 12], "P1"),
    "a message was altered": ("messages", of(spoken("clandestine words")), "P1"),
    "a message is counted wrongly": ("messages", message(7, tokens=3), "P1"),
    "a message stands elsewhere": ("messages", message(7, index=8), "P1"),
    "slices lie outside": ("messages", message(31, slices=(10**6,)), "P1"),
    "slices cross": ("messages", message(31, slices=(90, 30)), "P1"),
    "an echo lies outside": ("messages", message(7, echoes=((5, 10**6),)), "P1"),
    "a tombstone holds text": ("messages", message(7, state="erased"), "P11"),
    "made from what is quarantined": ("messages", message(7, state="quarantined"), "P11"),
    "quoted although quarantined": (
        "messages", lambda page: [replace(m, state="quarantined") for m in page], "P11"
    ),
    "a message in another thread": ("messages", of(strayed), "P3"),
    "a window is gone": ("level", lambda page: [n for n in page if n.id != "L1.3"], "P3"),
    "a group is gone": ("level", lambda page: [n for n in page if n.id != "L2.1"], "P3"),
    "a window was moved": ("level", node("L1.2", span=Span(1, 5)), "P3"),
    "a window counts wrongly": ("level", node("L1.2", messages=77), "P3"),
    "a window of nobody": ("level", node("L1.2", thread="nobody"), "P3"),
    "a group lost a child": ("level", node("L2.0", children=("L1.0",)), "P3"),
    "a group has a stranger": ("level", node("L2.0", children=("L1.0", "L1.9", "L1.2")), "P3"),
    "a child lost its parent": ("level", node("L1.0", parent=None), "P3"),
    "a child has another parent": ("level", node("L1.0", parent="L2.3"), "P3"),
    "a group is as large as its inputs": ("level", node("L2.0", allotted_tokens=10**6), "P8"),
    "a level is short": ("levels", lambda levels: {**levels, 1: levels[1] - 1}, None),
    "a text is gone": ("revisions", lambda page: [r for r in page if r.node_id != "L1.4"], "P7"),
    "a text was altered": ("revisions", of_text(text="No."), "P7"),
    "a text is counted wrongly": ("revisions", of_text(tokens=2), "P7"),
    "anchors were added": ("revisions", of_text(anchors=("42",)), "P7"),
    "degraded in secret": ("revisions", of_text(degraded=True), "P7"),
    "provenance of another text": ("revisions", of_text(provenance='[[],[],[[1,0,0,0,9]]]'), "P7"),
    "made from something else": ("revisions", of_text(input_hash="sha256:0"), "dirt"),
    "a key of nobody": ("mutate", lambda keys: {**keys, "k5": KeyEntry(6, "x")}, "P2"),
    "a key of another text": ("mutate", lambda keys: {**keys, "k5": KeyEntry(5, "x")}, "P2"),
    "a key is forgotten": (
        "mutate", lambda keys: {key: value for key, value in keys.items() if key != "k5"}, "P2"
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
async def test_each_damage_is_found(sound, lie):
    """Damage of that kind went unseen."""
    name, told, promise = LIES[lie]
    report = await found(lying(sound, name, told))
    if promise is None:
        assert report.ok, "the number of nodes is asked of the state, not of a count"
        return
    assert promise in {finding.promise for finding in report.findings}, report.findings
    assert all(finding.session_id == "s" for finding in report.findings)
    assert not report.ok


@pytest.mark.thorough
async def test_a_finding_holds_no_text_of_a_message(sound):
    """Findings are printed and logged; content is not for there."""
    for name, told, _ in LIES.values():
        report = await found(lying(sound, name, told))
        for finding in report.findings:
            words = set(str(finding).replace(":", " ").replace(",", " ").split())
            assert not words & {"harbour", "ferry", "clandestine", "case-7."}


async def test_what_was_only_seen_once_is_no_finding(sound):
    """A session that is written to while it is read would be accused of what is on its way."""
    for lie in ("a message was altered", "a text is gone", "a window is gone"):
        name, told, _ = LIES[lie]
        report = await found(lying(sound, name, told, times=1))
        assert report.ok, report.findings


async def test_rows_that_cannot_be_read_are_a_finding_and_not_the_end_of_the_check(sound):
    """One damaged session must not keep the others from being looked at."""

    def broken(_):
        raise StoreCorruptError("a row of messages is not what hiermem wrote")

    report = await found(lying(sound, "messages", broken))
    assert [finding.promise for finding in report.findings] == ["P1"]
    assert "cannot be read" in report.findings[0].what


async def test_what_belongs_to_no_session_is_found():
    """Left behind by an erasure, or written through another tenant's handle."""
    store = RecordStore(MemoryStore())
    handle = store.tenant("default")
    await handle.put_records([RecordWrite("chunk", "ghost", "0", "{}", 0)])
    await handle.put_run(RunRecord("r", "update", "phantom", START))
    await handle.put_run(RunRecord("e", "erasure", "phantom-too", START))
    report = await found(store)
    assert {(each.promise, each.session_id) for each in report.findings} == {
        ("P12", "ghost"),
        ("P12", "phantom"),
    }


async def test_another_counter_is_said_and_not_taken_for_damage(sound):
    """Counts of another counter differ by right; what does not count is still checked."""
    from hiermem.tokens import ApproximateCounter

    report = await found(sound, counter=ApproximateCounter())
    assert report.ok, report.findings
    assert len(report.skipped) == 1
    name, told, _ = LIES["a message was altered"]
    report = await found(lying(sound, name, told), counter=ApproximateCounter())
    assert "P1" in {finding.promise for finding in report.findings}


async def test_a_check_writes_nothing(sound):
    """A check that changes what it checks proves nothing."""
    handle = sound.tenant("default")
    before = (await handle.session("s"), await handle.tree("s").level(1, 0), await handle.runs())
    await found(sound)
    assert before == (
        await handle.session("s"),
        await handle.tree("s").level(1, 0),
        await handle.runs(),
    )


async def test_nodes_of_one_tree_are_not_looked_for_in_the_next():
    """Broken, a re-pack that is swapped in during each reading is accused of missing texts."""

    store = RecordStore(MemoryStore())
    memory = AsyncMemory(store=store, config=CONFIGS["tokens"], token_counter=Words())
    session = memory.session("s")
    await session.append(conversation())
    await session.update()
    turns = []

    async def edit():
        turns.append(len(turns))
        await regenerating(session).edit(0, text(3_000 + len(turns), 30))
        await session.update()

    async def swap():
        assert (await session.update(strategy="full")).swapped

    async def turning(name, do, *_):
        """Let the tree change after its nodes were read and before its texts are."""
        if name in ("levels", "revisions") and turnings[0]:
            turnings[0] -= 1
            await (edit() if name == "levels" else swap())
        return await do()

    turnings = [100]
    report = await found(Intercepted(store, turning))
    assert report.ok, report.findings
    assert "written to all the time" in report.skipped[0]
    assert len(turns) > 2
    assert (await memory.check()).ok


async def test_a_session_that_is_being_changed_is_not_accused():
    """Appends, edits, erasures and updates go on while it is read; none of that is damage."""
    import asyncio

    memory = AsyncMemory(store=MemoryStore(), config=CONFIGS["tokens"], token_counter=Words())
    session = memory.session("s")
    await session.append(conversation())
    busy = True

    async def change():
        turn = 0
        while busy:
            turn += 1
            await session.append(Message.user(text(1000 + turn, 20)))
            await regenerating(session).edit(turn % COUNT, text(2000 + turn, 20))
            if turn % 5 == 0:
                await session.update()
            if turn == 7:
                await session.erase([COUNT])
            if turn % 11 == 0:
                await session.update(strategy="full")
            await asyncio.sleep(0)

    changing = asyncio.ensure_future(change())
    try:
        for _ in range(4):
            report = await memory.check()
            assert report.ok, report.findings
    finally:
        busy = False
        await changing
    assert (await memory.check()).ok
