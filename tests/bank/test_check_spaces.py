"""``memory.check()`` finds what does not hang together in a space, and says where."""

import json
import pickle

import pytest

from hiermem import AsyncMemory
from hiermem.bank import records as kept
from hiermem.bank.store import SpaceContext
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.types.transaction import RecordWrite

RULES = "- progress.md: what works\n- decisions.md: why"
SECRET = "zebra-4711"


async def filled():
    """Give a memory with a space of two revisions and a waiting note, and the space's records."""
    store = RecordStore(MemoryStore())
    memory = AsyncMemory(store=store)
    space = memory.space("x", rules=RULES)
    for number in range(2):
        await space.note(f"{SECRET} {number} works")
        await space.consolidate()
    await space.note("waits")
    return memory, space._context


async def written(records, kind, key, body):
    await records.put([RecordWrite(kept.kind_of(kind, "x"), kept.SPACE_SCOPE, key, body)])


async def test_a_sound_space_has_nothing_to_find():
    memory, _ = await filled()
    report = await memory.check()
    assert report.findings == ()
    assert "bank" in report.checked


async def test_a_note_that_arrives_during_the_check_is_not_missed():
    memory, records = await filled()
    space, read = memory.space("x"), SpaceContext.of_kind

    async def of_kind(self, kind):
        found = await read(self, kind)
        if kind in (kept.SEQUENCE, kept.NOTE):
            await space.note("one more")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SpaceContext, "of_kind", of_kind)
        assert (await memory.check()).findings == ()
    assert len(await records.of_kind(kept.NOTE)) > 2


async def changed(records, kind, change):
    """Change the value of the first record of a kind."""
    record = (await records.of_kind(kind))[0]
    value = json.loads(record.body)
    change(value)
    await written(records, kind, record.key, json.dumps(value))


async def consumed_twice(records):
    first, second = await records.of_kind(kept.REVISION)
    both = json.loads(second.body)
    both["notes"] += json.loads(first.body)["notes"]
    await written(records, kept.REVISION, second.key, json.dumps(both))


async def live_again(records):
    note = (await records.of_kind(kept.CONSUMED))[0]
    value = json.loads(note.body) | {"consolidation": None}
    await written(records, kept.NOTE, note.key, json.dumps(value))


async def other_text(records):
    await written(records, kept.BANK, "progress.md", "# other")


async def lost_revision(records):
    await written(records, kept.REVISION, (await records.of_kind(kept.REVISION))[0].key, None)


async def wrong_figures(records):
    await changed(records, kept.META, lambda value: value.update(notes_processed=7))


async def gone(records):
    """The waiting note is in no list any more."""
    await written(records, kept.NOTE, (await records.of_kind(kept.NOTE))[0].key, None)


async def restored_and_gone(records):
    """A rollback made it live again, and then it vanished."""
    note = (await records.of_kind(kept.CONSUMED))[0]
    await written(records, kept.CONSUMED, note.key, None)
    await changed(records, kept.REVISION, lambda value: value.update(restored=[note.key]))


async def damaged_meta(records):
    await written(records, kept.META, "", "{")


async def damaged_note(records):
    await written(records, kept.NOTE, (await records.of_kind(kept.NOTE))[0].key, '{"text": 5}')


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (consumed_twice, "more than once"), (live_again, "still waits"),
        (other_text, "history gives"), (lost_revision, "figures say"),
        (wrong_figures, "figures say"),
        (gone, "note number 3 arrived, and is neither live nor consumed"),
        (restored_and_gone, "note number 1 arrived, and is neither live nor consumed"),
        (damaged_meta, "damaged"), (damaged_note, "damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
async def test_what_does_not_hang_together_is_found(spoil, told):
    """Each fault is named by what it is; no finding holds a word of a note."""
    memory, records = await filled()
    await spoil(records)
    findings = (await memory.check()).findings
    assert any(told in finding.what for finding in findings), findings
    assert {(finding.promise, finding.session_id) for finding in findings} == {("bank", "space:x")}
    assert SECRET.encode() not in pickle.dumps(findings)
