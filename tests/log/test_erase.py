"""Erasure and quarantine: what goes, what stays, what is told, and who else is reached."""

import asyncio
import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from session_fixture import COUNTER, START, SessionFixture, messages, text
from tree_builder import check_tree, tree_of

from hiermem import AsyncMemory
from hiermem.changes import change
from hiermem.changes import erase as erasing
from hiermem.errors import NotFoundError, UsageError
from hiermem.log import append as ingest
from hiermem.log.append import fork
from hiermem.records import changes as record_changes
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM
from hiermem.text import fence
from hiermem.types import Message, ToolCall
from hiermem.types.transaction import Scrubbed, ViewRecord
from hiermem.upkeep import run_check as checking


async def made(fixture, count=60, **settings):
    await fixture.say(messages(count, **settings))
    await fixture.update()
    return fixture


async def test_a_tombstone_keeps_its_place_and_nothing_of_what_it_said():
    """Broken, an erased message leaves a field behind, or the log loses a place."""
    fixture = SessionFixture()
    said = Message.assistant(
        "Secret.",
        key="k",
        name="Ada",
        thread="side",
        created_at=START,
        tool_calls=[ToolCall("c1", "find")],
        metadata={"a": 1},
    )
    await fixture.say([Message.user("Hello."), said])
    await change.erase(fixture.handle, "s", [1])
    (stored,) = await fixture.tenant.messages("s", 1, 2)
    assert stored.message == Message("assistant", "", key="k", thread="side", created_at=START)
    assert (stored.state, stored.tokens, stored.size) == ("erased", 0, 0)
    state = (await fixture.tenant.session("s")).state
    assert "c1" not in state
    # The key stays reserved: appending it again is a no-op, whatever it says now.
    assert await fixture.say([said]) == [1]
    assert await fixture.say([Message.user("Other.", key="k")]) == [1]


async def test_everything_made_of_it_goes_and_children_stand_in_until_it_is_made_again():
    fixture = await made(SessionFixture(), 160)
    before = await tree_of(fixture.tenant, "s")
    receipt = await change.erase(fixture.handle, "s", [12])
    assert receipt.to_remake == {"s": ("L1.1", "L2.0", "L3.0")}
    assert receipt.removed["summaries"] == 3
    nodes = await tree_of(fixture.tenant, "s")
    for id_, node in nodes.items():
        if id_ in ("L1.1", "L2.0", "L3.0"):
            assert (node.status, node.revision) == ("pending", 0)
            assert node.version > before[id_].version
            assert not await fixture.tenant.tree("s").revisions([(id_, 1)])
        else:
            assert node == before[id_]
    report = await fixture.update()
    assert report.by_level == {1: 1, 2: 1, 3: 1}
    await check_tree(fixture.tenant, "s", COUNTER)
    texts = await fixture.tenant.tree("s").revisions([(i, 1) for i in nodes])
    assert not any("case-12-" in made_.text for made_ in texts)


async def test_a_second_erasure_changes_nothing_and_says_so():
    fixture = await made(SessionFixture())
    await change.erase(fixture.handle, "s", [3])
    before = await fixture.tenant.session("s")
    receipt = await change.erase(fixture.handle, "s", [3])
    assert (receipt.already, receipt.removed, receipt.run_id) == ((3,), {}, "")
    assert await fixture.tenant.session("s") == before
    receipt = await change.erase(fixture.handle, "s", [3, 4])
    assert (receipt.indices, receipt.already) == ((3, 4), (3,))
    (run,) = await fixture.tenant.runs(subject="s", limit=1)
    assert (run.id, run.kind, run.outcome) == (receipt.run_id, "erasure", "ok")


async def test_a_quarantined_message_stays_for_the_record_and_in_nothing_made():
    """Broken, poisoned input goes on speaking through summaries."""
    fixture = await made(SessionFixture())
    receipt = await change.erase(fixture.handle, "s", [12], kind="quarantine")
    assert receipt.to_remake == {"s": ("L1.1", "L2.0")}
    (stored,) = await fixture.tenant.messages("s", 12, 13)
    assert (stored.state, stored.content) == ("quarantined", text(12))
    await fixture.update()
    for id_ in await tree_of(fixture.tenant, "s"):
        (node,) = await fixture.tenant.tree("s").nodes([id_])
        (revision,) = await fixture.tenant.tree("s").revisions([(id_, node.revision)])
        assert "case-12-" not in revision.text
    await check_tree(fixture.tenant, "s", COUNTER)
    again = await change.erase(fixture.handle, "s", [12], kind="quarantine")
    assert again.already == (12,)
    assert (await change.erase(fixture.handle, "s", [12])).already == ()
    assert (await change.erase(fixture.handle, "s", [12], kind="quarantine")).already == (12,)
    await change.edit(fixture.handle, "s", 14, text(501))
    await quarantine(fixture.handle, "s", [14])
    assert [old.content for old in await fixture.tenant.versions("s", 14)] == [text(14)]


quarantine = partial(change.erase, kind="quarantine")


async def remembering(fixture, covered):
    """Give a message that a user sends with memory of some messages pasted into it."""
    record = fence.fence("L1.0", f"They spoke of case-{covered}-0.", key=await fixture.handle.key())
    return Message.user(f"You told me:\n{record}\nIs that right?", created_at=START)


@pytest.mark.parametrize("take", [change.erase, quarantine])
async def test_messages_in_which_memory_came_back_are_named(take):
    """Broken, memory that was pasted into a message quotes on what was erased, and nobody knows."""
    fixture = await made(SessionFixture(), 12)
    await fixture.say([await remembering(fixture, 3)])  # 12
    await fixture.say(messages(12, start=13))
    await fixture.say([await remembering(fixture, 15), await remembering(fixture, 15)])  # 25, 26
    await fork(fixture.handle, "s", "a", at=14)
    await fork(fixture.handle, "s", "b")
    await fixture.say([await remembering(fixture, 3)], session="a")  # 14
    await change.edit(fixture.handle, "s", 1, (await remembering(fixture, 20)).content)
    await change.edit(fixture.handle, "s", 26, "Nothing.")
    everywhere = {"s:message:12", "s:message:25", "s:message:26", "s:message:1"}
    there = {"b:message:12", "b:message:25", "b:message:26"}
    receipt = await take(fixture.handle, "s", [3], forks="keep")
    assert set(receipt.unproven) == everywhere
    receipt = await take(fixture.handle, "b", [3])
    assert set(receipt.unproven) == everywhere | there | {"a:message:12", "a:message:14"}
    # What came before it and was not edited cannot quote it; one that goes itself is no matter.
    receipt = await take(fixture.handle, "s", [20, 25])
    assert set(receipt.unproven) == {"s:message:26", "s:message:1", "b:message:26"}
    again = await take(fixture.handle, "s", [20])
    assert again.run_id == ""
    assert "s:message:26" in again.unproven
    assert (await take(fixture.handle, "s", [26])).unproven == ("s:message:1",)


async def test_memory_of_a_session_that_goes_is_looked_for_in_its_forks():
    """Broken, a fork quotes on what was erased with the session that it came from."""
    fixture = await made(SessionFixture(), 20)
    await fork(fixture.handle, "s", "f", at=15)
    await fixture.say([await remembering(fixture, 3)], session="f")
    await fixture.say([await remembering(fixture, 3)])
    receipt = await change.erase_session(fixture.handle, "s")
    assert receipt.unproven == ("f:message:15",)


async def test_an_erasure_in_a_closed_session_keeps_its_one_root():
    fixture = await made(SessionFixture())
    await ingest.happen(fixture.handle, "s", "close")
    await fixture.update()
    await change.erase(fixture.handle, "s", range(0, 60, 3))
    await check_tree(fixture.tenant, "s", COUNTER)
    nodes = await tree_of(fixture.tenant, "s")
    assert sum(node.parent is None for node in nodes.values()) == 1


async def test_all_of_a_window_can_go():
    fixture = await made(SessionFixture(), 30)
    await change.erase(fixture.handle, "s", range(10, 20))
    report = await fixture.update()
    assert report.failed == 0
    nodes = await tree_of(fixture.tenant, "s")
    assert nodes["L1.1"].status == "active"
    assert nodes["L1.1"].input_tokens == 0
    assert (await checking.check(fixture.handle)).ok


# -- the family


async def family(fixture):
    """Make s <- a (at 30) <- b (at 20), and s <- c (at 10)."""
    await made(fixture, 40)
    await fork(fixture.handle, "s", "a", at=30)
    await fixture.say(messages(10, start=30), session="a")
    await fork(fixture.handle, "a", "b", at=20)
    await fork(fixture.handle, "s", "c", at=10)


@pytest.mark.parametrize("asked", ["s", "a", "b"])
async def test_an_erasure_reaches_everyone_who_shares_the_index(asked):
    """Broken, a fork, a fork's fork or the source keeps what was erased in another."""
    fixture = SessionFixture()
    await family(fixture)
    receipt = await change.erase(fixture.handle, asked, [15])
    reached = {"s", "a", "b"} - {asked}
    assert set(receipt.forks_reached) == reached
    assert receipt.kept_in == ()
    assert set(receipt.to_remake) >= {asked}
    for name in ("s", "a", "b"):
        (stored,) = await fixture.tenant.messages(name, 15, 16)
        assert stored.state == "erased"
        await check_tree(fixture.tenant, name, COUNTER)
    assert (await change.erase(fixture.handle, "c", [3])).forks_reached == ("s", "a", "b")


async def test_forks_keep_what_they_may_keep_and_are_named():
    fixture = SessionFixture()
    await family(fixture)
    receipt = await change.erase(fixture.handle, "a", [15], forks="keep")
    assert receipt.forks_reached == ()
    assert set(receipt.kept_in) == {"s", "b"}
    for name in ("s", "b"):
        (stored,) = await fixture.tenant.messages(name, 15, 16)
        assert stored.content == text(15)
        await check_tree(fixture.tenant, name, COUNTER)


class ErasesMeanwhile(ScriptedLLM):
    """Takes its time over the first request: the session goes, and is begun anew."""

    def __init__(self, fixture):
        super().__init__(remote=True)
        self._desk = fixture

    async def complete(self, request):
        response = await super().complete(request)
        if self.calls == 1:
            await change.erase_session(self._desk.handle, "s")
            anew = [replace(m, content=f"Fresh {m.content[5:]}") for m in messages(20, start=100)]
            await self._desk.say(anew)
        return response


async def test_what_was_made_of_a_session_that_goes_is_not_taken_for_one_begun_under_its_name():
    """Broken where the clock stands still, a text made of what was erased serves in its place."""
    fixture = SessionFixture()
    await fixture.say(messages(20))
    before = await fixture.tenant.session("s")
    llm = ErasesMeanwhile(fixture)
    await fixture.update(llm)
    after = await fixture.tenant.session("s")
    assert after.created_at == before.created_at
    assert after.tree != before.tree
    assert not await fixture.tenant.put_view(ViewRecord("s", "v", "case-3-0"), epoch=before.epoch)
    assert all(revision is None for _, revision in (await fixture.tree()).values())
    await fixture.update()
    assert await fixture.untrue() == []
    texts = [revision.text for _, revision in (await fixture.tree()).values()]
    assert texts
    assert not any("case-3-" in said for said in texts)


async def test_a_source_that_goes_leaves_its_forks_whole_and_related():
    """Broken, erasing a session breaks its forks, or they forget whom they share with."""
    fixture = SessionFixture()
    await family(fixture)
    receipt = await change.erase_session(fixture.handle, "s", forks="keep")
    assert set(receipt.kept_in) == {"a", "b", "c"}
    assert await fixture.tenant.session("s") is None
    assert [m.content for m in await fixture.tenant.messages("c", 0, 2)] == [text(0), text(1)]
    # What a and c share is shared still, now through one another.
    assert set((await change.erase(fixture.handle, "c", [3])).forks_reached) == {"a", "b"}
    assert (await change.erase(fixture.handle, "a", [25])).forks_reached == ()
    # A new session of the old name is no kin.
    await fixture.say(messages(20))
    assert (await change.erase(fixture.handle, "s", [5])).forks_reached == ()


async def test_a_fork_that_goes_leaves_its_source_alone():
    """Broken, throwing a variant away erases the conversation that it came from."""
    fixture = SessionFixture()
    await family(fixture)
    receipt = await change.erase_session(fixture.handle, "a")
    assert receipt.kept_in == ("s",)
    assert [m.state for m in await fixture.tenant.messages("s", 0, 40)] == ["live"] * 40
    assert [m.state for m in await fixture.tenant.messages("b", 0, 20)] == ["live"] * 20
    assert set((await change.erase(fixture.handle, "s", [15])).forks_reached) == {"b"}


async def test_what_has_no_end_is_left_at_the_first_that_cannot_be():
    """Broken, a range that was mistyped, or an endless iterator, fills the memory."""
    fixture = await made(SessionFixture())
    before = await fixture.tenant.session("s")
    for act in (change.erase, quarantine):
        for endless in (itertools.count(), range(10**12)):
            with pytest.raises(NotFoundError, match="no message 60"):
                await act(fixture.handle, "s", endless)
        with pytest.raises(UsageError, match="more than the session's 60"):
            await act(fixture.handle, "s", itertools.repeat(3))
    assert await fixture.tenant.session("s") == before
    assert (await change.erase(fixture.handle, "s", [3, 3])).indices == (3,)


async def test_all_that_waits_for_a_text_is_named_whatever_it_had():
    """Broken, a second erasure before the update says that less is to be made than is."""
    fixture = await made(SessionFixture(), 160)
    await change.erase(fixture.handle, "s", [12])
    again = await change.erase(fixture.handle, "s", [13])
    assert again.to_remake == {"s": ("L1.1", "L2.0", "L3.0")}
    assert "summaries" not in again.removed
    fresh = SessionFixture()
    await fresh.say(messages(60))
    assert (await change.erase(fresh.handle, "s", [12])).to_remake["s"] == ("L1.1", "L2.0")
    await fresh.say(messages(3), session="open")
    assert (await change.erase(fresh.handle, "open", [1])).to_remake == {}


async def test_a_session_that_goes_is_counted_and_its_run_says_the_same():
    fixture = await made(SessionFixture(), 60)
    await change.edit(fixture.handle, "s", 3, text(501))
    await fork(fixture.handle, "s", "b", at=30)
    receipt = await change.erase_session(fixture.handle, "s")
    assert receipt.removed["sessions"] == 1
    assert receipt.removed["messages"] == 60 + 30
    assert receipt.removed["summaries"] >= 7
    assert receipt.removed["versions"] == 2
    run = await fixture.tenant.run(receipt.run_id)
    assert run.detail["removed"] == receipt.removed
    assert (await change.erase_tenant(fixture.handle)).removed == {"sessions": 1, "messages": 30}
    assert (await change.erase_tenant(fixture.handle)).removed == {}


async def test_a_session_that_goes_counts_nothing_that_had_gone_before():
    """Broken, the receipts of a message and of its session together tell of more than there was."""
    fixture = await made(SessionFixture(), 20)
    for number, index in enumerate((3, 3, 4)):
        await change.edit(fixture.handle, "s", index, text(500 + number))
    await fork(fixture.handle, "s", "b", at=10)
    assert (await change.erase(fixture.handle, "s", [3])).removed["versions"] == 2 * 2
    await change.erase(fixture.handle, "s", [5], kind="quarantine")
    for session, left in (("b", 9), ("s", 19)):
        receipt = await change.erase_session(fixture.handle, session, forks="keep")
        assert (receipt.removed["messages"], receipt.removed["versions"]) == (left, 1)


async def test_a_scrub_that_failed_is_told_with_what_to_do_about_it(monkeypatch):
    fixture = await made(SessionFixture())

    async def busy():
        return Scrubbed(done=False, reason="another process is writing to the file")

    monkeypatch.setattr(fixture.handle.store, "scrub", busy, raising=False)
    receipt = await change.erase(fixture.handle, "s", [3])
    assert not receipt.scrubbed
    assert receipt.scrub_reason.startswith("another process is writing to the file;")
    assert "memory.scrub()" in receipt.scrub_reason


async def test_what_cannot_be_erased_is_refused_and_nothing_is_written():
    fixture = await made(SessionFixture())
    before = await fixture.tenant.session("s")
    for wrong, error in (
        ([60], NotFoundError),
        ([3, 60], NotFoundError),
        ([-1], UsageError),
        (["3"], UsageError),
        ("3", UsageError),
    ):
        with pytest.raises(error):
            await change.erase(fixture.handle, "s", wrong)
        with pytest.raises(error):
            await change.erase(fixture.handle, "s", wrong, kind="quarantine")
    with pytest.raises(UsageError):
        await change.erase(fixture.handle, "s", [3], forks="some")
    with pytest.raises(NotFoundError):
        await change.erase_session(fixture.handle, "t")
    assert await fixture.tenant.session("s") == before
    assert (await change.erase(fixture.handle, "s", [])).removed == {}


@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_an_erasure_in_forks_asks_for_ranges_and_not_for_messages(how, monkeypatch):
    """Broken, a session with forks is deleted in minutes, and nobody else can write meanwhile."""
    asked, plain = [], record_changes.answer

    async def answer(t, session_id, need):
        asked.append(need)
        return await plain(t, session_id, need)

    memory = AsyncMemory(store=MemoryStore(), token_counter=COUNTER)
    session = memory.session("s")
    await session.append([Message.user(f"entry {n} on the pier") for n in range(1_000)])
    await session.update()
    for name in ("f", "g"):
        await session.fork(name)
    monkeypatch.setattr(record_changes, "answer", answer)
    await (session.delete() if how == "delete" else session.erase(range(1_000)))
    assert 10 < len(asked) < 500, "questions about three sessions of 1,000 messages"


async def test_another_store_of_the_file_writes_between_two_transactions_of_an_erasure(
    tmp_path, monkeypatch
):
    """Broken, another process waits for the whole erasure."""
    monkeypatch.setattr(erasing, "STEPS", (100, 100, 100))
    async with (
        AsyncMemory.open(tmp_path / "a.db") as one,
        AsyncMemory.open(tmp_path / "a.db") as other,
    ):
        session, elsewhere = one.session("s"), other.session("other")
        await session.append([Message.user(f"entry {n} on the pier") for n in range(1_500)])
        await session.fork("f")
        await session.fork("g")
        deletion = asyncio.ensure_future(session.delete())
        written = 0
        while not deletion.done():
            await elsewhere.append(Message.user("Hello."))
            written += 1
        await deletion
    assert written >= 10, "of over 30 pauses"


@pytest.mark.parametrize("whole", [True, False], ids=["session", "messages"])
async def test_a_large_erasure_lets_others_write_and_goes_on_where_it_was_cut_off(
    whole, monkeypatch
):
    """Broken, all other writers wait for it, or a call that is repeated leaves something."""
    fixture = SessionFixture()
    await family(fixture)

    async def erase():
        if whole:
            return await change.erase_session(fixture.handle, "s")
        return await change.erase(fixture.handle, "s", range(5, 25))

    async def erasures():
        return [run for run in await fixture.tenant.runs(limit=100) if run.kind == "erasure"]

    steps = 0
    cut = 3

    async def between(_):
        nonlocal steps
        steps += 1
        for name in ("s", "a", "b", "c"):
            await check_tree(fixture.tenant, name, COUNTER)
        await fixture.say(messages(1, start=50 + steps), session="other")
        if steps == 2:  # a fork that is made meanwhile is reached too
            await fork(fixture.handle, "a", "late", at=12)
        if steps == cut:
            raise asyncio.CancelledError

    monkeypatch.setattr(erasing, "STEPS", (7, 7, 7))
    monkeypatch.setattr(change, "asyncio", SimpleNamespace(sleep=between))
    with pytest.raises(asyncio.CancelledError):
        await erase()
    begun = await erasures()
    assert {run.outcome for run in begun} == {"running"}
    done = [stop - start for run in begun for start, stop in run.detail.get("erased", ())]
    assert sum(done) == 7 * cut
    assert len(await fixture.tenant.messages("s", 0, 60)) == 40
    cut = 0
    receipt = await erase()
    assert steps > 5
    own = range(40) if whole else range(5, 25)
    for name, stop in (("a", 30), ("b", 20), ("c", 10), ("late", 12)):
        for stored in await fixture.tenant.messages(name, 0, stop):
            assert (stored.state == "erased") == (stored.index in own), (name, stored.index)
        await check_tree(fixture.tenant, name, COUNTER)
    gone = await fixture.handle.store.session("s")
    assert (gone is None) == whole
    assert receipt.run_id
    assert "ok" in {run.outcome for run in await erasures()}
