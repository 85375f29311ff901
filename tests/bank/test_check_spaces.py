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


async def consumed_twice(records):
    first, second = await records.of_kind(kept.REVISION)
    both = json.loads(second.body)
    both["notes"] += json.loads(first.body)["notes"]
    await written(records, kept.REVISION, second.key, json.dumps(both))


async def restored_and_gone(records):
    """A rollback made it live again, and then it vanished."""
    note, revision = [(await records.of_kind(kind))[0] for kind in (kept.CONSUMED, kept.REVISION)]
    await written(records, kept.CONSUMED, note.key, None)
    value = json.loads(revision.body) | {"restored": [note.key]}
    await written(records, kept.REVISION, revision.key, json.dumps(value))


async def live_again(records):
    note = (await records.of_kind(kept.CONSUMED))[0]
    value = json.loads(note.body) | {"consolidation": None}
    await written(records, kept.NOTE, note.key, json.dumps(value))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (consumed_twice, "more than once"), (live_again, "still waits"),
        (restored_and_gone, "note number 1 arrived, and is neither live nor consumed"),
        # The first record of a kind has another body, or none.
        ((kept.BANK, "# other"), "history gives"), ((kept.REVISION, None), "figures say"),
        ((kept.NOTE, None), "note number 3 arrived, and is neither live nor consumed"),
        ((kept.META, "{"), "damaged"), ((kept.NOTE, '{"text": 5}'), "damaged"),
        ((kept.META, '{"last_consolidation": null}'), "figures say"),
    ],
)  # fmt: skip
async def test_what_does_not_hang_together_is_found(spoil, told):
    """Each fault is named by what it is; no finding holds a word of a note."""
    memory, records = await filled()
    if callable(spoil):
        await spoil(records)
    else:
        kind, body = spoil
        await written(records, kind, (await records.of_kind(kind))[0].key, body)
    findings = (await memory.check()).findings
    assert any(told in finding.what for finding in findings), findings
    assert {(finding.promise, finding.session_id) for finding in findings} == {("bank", "space:x")}
    assert SECRET.encode() not in pickle.dumps(findings)
