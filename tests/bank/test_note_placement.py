"""A note is live, or it is in a file that names it, or it was dropped by name with a reason.

If one of these tests failed, a note would be neither live nor in the bank, and nothing would say
it; or a model that answers nonsense would set healthy notes aside.
"""

import json

from bankwork import answer_of, grown

from hiermem import AsyncMemory, BankPolicy, UpdatePolicy
from hiermem.stores.memory import MemoryStore
from hiermem.testing.llms import ScriptedLLM

ONCE = UpdatePolicy(retries=0)
RULES = "- a.md: facts\n- b.md: questions"


def published(request):
    """Answer as published, naming no notes."""
    one = {"filename": "a.md", "content": grown(request, "a.md")["content"], "action": "updated"}
    return json.dumps({"bank_files": [one], "synthesis": "So it is."})


async def space_of(script, count=0, **settings):
    policy = BankPolicy(**settings)
    llm = ScriptedLLM(script=script, remote=True)
    memory = AsyncMemory(store=MemoryStore(), llm=llm, bank_policy=policy, update_policy=ONCE)
    space = memory.space("x", rules=RULES)
    for number in range(1, count + 1):
        await space.note(f"fact {number}")
    return memory, space, llm


async def texts(space, state="live"):
    return [note.text for note in await space.notes(state)]


async def test_a_note_that_no_file_names_stays_live_and_is_reported_as_unplaced():
    memory, space, _ = await space_of(lambda request: answer_of(grown(request, "a.md", [1])), 30)
    done = await space.consolidate()
    assert (done.status, done.notes_processed, done.notes_remaining) == ("partial", 1, 29)
    assert len(done.unplaced) == 29
    assert "29 unplaced by the model" in done.message
    assert await texts(space, "consumed") == ["fact 1"]
    (taken,) = await space.notes("consumed")
    assert (taken.files, taken.dropped_for) == (("a.md",), "")
    assert {note.unplaced for note in await space.notes()} == {1}
    assert (await memory.check()).findings == ()


async def test_a_file_that_is_not_there_yet_may_come_with_its_headings_alone():
    """It says nothing that a note could have said."""

    def script(request):
        empty = {"filename": "b.md", "content": "# B\n\n## Questions\n"}
        return answer_of(grown(request, "a.md"), empty)

    _, space, llm = await space_of(script, 2)
    assert (await space.consolidate()).status == "ok"
    assert llm.calls == 1
    assert await space.read("b.md") == "# B\n\n## Questions\n"


async def test_a_note_is_dropped_by_name_with_a_reason_which_is_kept_and_shown():
    def script(request):
        return answer_of(
            grown(request, "a.md", [1]), dropped=[{"note": 2, "reason": "a.md says so"}]
        )

    memory, space, _ = await space_of(script, 2)
    done = await space.consolidate()
    assert (done.status, done.notes_processed, done.notes_remaining) == ("ok", 2, 0)
    (dropped,) = done.dropped
    first, second = await space.notes("consumed")
    assert (dropped.note, dropped.reason) == (second.key, "a.md says so")
    assert (second.files, second.dropped_for) == ((), "a.md says so")
    assert first.dropped_for == ""
    assert "1 dropped" in done.message
    assert "a.md says so" not in done.message + str(await space.runs())
    assert (await memory.check()).findings == ()
    await space.rollback(to=0, restore_notes=True)
    assert [(note.state, note.dropped_for) for note in await space.notes()] == [("live", "")] * 2


async def test_a_note_left_unplaced_twice_queues_behind_newer_ones():
    def script(request):
        left = [n for n, note in enumerate(request.bank.notes, 1) if note.text != "fact 1"]
        return answer_of(grown(request, "a.md", left)) if left else "no"

    _, space, llm = await space_of(script, 1, max_notes=2)
    for number in range(2, 5):
        await space.note(f"fact {number}")
        await space.consolidate()
    shown = [[note.text for note in each.bank.notes] for each in llm.requests]
    assert shown[:2] == [["fact 1", "fact 2"], ["fact 1", "fact 3"]]
    assert shown[2] == ["fact 4"], "and by itself, after them"
    assert await texts(space) == ["fact 1"]


async def test_the_published_answer_format_takes_in_the_whole_request():
    memory, space, llm = await space_of(published, 15)
    done = await space.consolidate()
    assert (done.status, done.notes_processed, done.unplaced) == ("ok", 15, ())
    assert done.files_created == ("a.md", "b.md")
    assert "- fact 15" in await space.read("a.md")
    assert llm.calls == 1
    assert {note.files for note in await space.notes("consumed")} == {("a.md",)}
    await space.note("one more")
    done = await space.consolidate()
    assert (done.status, done.files_updated, done.files_unchanged) == ("ok", ("a.md",), ("b.md",))
    assert (await memory.check()).findings == ()


async def test_a_note_that_fails_alone_while_others_succeed_is_blocked():
    """And it holds nothing up on the way."""

    def script(request):
        poisoned = any("poison" in note.text for note in request.bank.notes)
        return "no" if poisoned else answer_of(grown(request, "a.md"))

    _, space, llm = await space_of(script)
    await space.note("poison")
    for number in range(9):
        await space.note(f"fact {number}")
        await space.consolidate()
    assert [(n.text, n.state, n.blocked_for) for n in await space.notes()] == [
        ("poison", "blocked", "failed")
    ]
    assert len(await space.notes("consumed")) == 9
    assert llm.calls < 30
    assert await space.unblock() == 1
    (note,) = await space.notes()
    assert (note.state, note.failures, note.unplaced) == ("live", 0, 0)


async def test_a_small_consolidation_of_500_notes_is_one_request():
    llm = ScriptedLLM(
        script=lambda r: answer_of(grown(r, "a.md")), remote=True, context_window=128_000
    )
    space = AsyncMemory(store=MemoryStore(), llm=llm).space("x", rules=RULES)
    for number in range(500):
        await space.note(f"Part {number} works.", agent="dev")
    done = await space.consolidate()
    assert (done.status, done.notes_processed, llm.calls) == ("ok", 500, 1)
    assert llm.requests[0].max_tokens <= 16_384


async def test_a_consolidation_is_undone_with_its_notes_live_again():
    memory, space, _ = await space_of(lambda request: answer_of(grown(request, "a.md")), 2)
    await space.consolidate()
    await space.note("fact 3")
    await space.consolidate()
    before = await space.read("a.md", revision=1)
    back = await space.rollback(to=1, restore_notes=True)
    (third,) = await space.notes()
    assert (back.kind, back.to, back.restored) == ("rollback", 1, (third.key,))
    assert (third.text, third.state, third.consolidation, third.files) == (
        "fact 3", "live", None, (),
    )  # fmt: skip
    assert await space.read("a.md") == before
    assert await texts(space, "consumed") == ["fact 1", "fact 2"]
    assert (await space.meta()).notes_processed == 2
    assert (await memory.check()).findings == ()
    done = await space.consolidate()
    assert (done.status, done.notes_processed) == ("ok", 1)
    assert (await space.read("a.md")).count("fact 3") == 1
    assert (await space.meta()).notes_processed == 3
    assert (await memory.check()).findings == ()


async def test_notes_stay_consumed_where_nobody_asks_and_can_come_back_later():
    memory, space, _ = await space_of(lambda request: answer_of(grown(request, "a.md")), 2)
    await space.consolidate()
    first = await space.rollback(to=0)
    assert (first.restored, await space.notes()) == ((), [])
    again = await space.rollback(to=0, restore_notes=True)
    assert len(again.restored) == 2
    assert again.number == first.number + 1
    assert await texts(space) == ["fact 1", "fact 2"]
    nothing = await space.rollback(to=0, restore_notes=True)
    assert nothing.number == again.number
    assert (await memory.check()).findings == ()
