"""``memory.check()`` finds what does not hang together in a space, and says where."""

from __future__ import annotations

import asyncio
import json

import pytest

from hiermem import AsyncMemory
from hiermem.core.spaces import record as kept
from hiermem.engine.spaces.records import SpaceBooks
from hiermem.stores.memory import MemoryStore
from hiermem.types.transaction import RecordWrite

RULES = "- progress.md: what works\n- decisions.md: why"
SECRET = "zebra-4711"


async def filled():
    """Give a memory with a space of two revisions and a waiting note, and the space's records."""
    store = MemoryStore()
    memory = AsyncMemory(store=store)
    space = memory.space("x", rules=RULES)
    for number in range(2):
        await space.note(f"{SECRET} {number} works")
        await space.consolidate()
    await space.note("waits")
    return memory, SpaceBooks(store.tenant("default"), "x", sleep=asyncio.sleep)


async def written(books, kind, key, body):
    await books.put([RecordWrite(kept.kind_of(kind, "x"), kept.SPACE_SCOPE, key, body)])


async def test_a_sound_space_has_nothing_to_find():
    memory, _ = await filled()
    report = await memory.check()
    assert report.findings == ()
    assert "bank" in report.checked


async def changed(books, kind, change):
    """Change the value of the first record of a kind."""
    record = (await books.records(kind))[0]
    value = json.loads(record.body)
    change(value)
    await written(books, kind, record.key, json.dumps(value))


async def consumed_twice(books):
    entry = (await books.records(kept.CONSOLIDATION))[0]
    value = json.loads(entry.body)
    other = (await books.records(kept.CONSOLIDATION))[1]
    both = json.loads(other.body)
    both["notes"] += value["notes"]
    await written(books, kept.CONSOLIDATION, other.key, json.dumps(both))


async def live_again(books):
    note = (await books.records(kept.CONSUMED))[0]
    value = json.loads(note.body) | {"consolidation": None}
    await written(books, kept.NOTE, note.key, json.dumps(value))


async def never_entered(books):
    note = (await books.records(kept.CONSUMED))[0]
    await written(books, kept.CONSUMED, note.key + "9", note.body)


async def other_text(books):
    await written(books, kept.BANK, "progress.md", "# other")


async def lost_revision(books):
    await written(books, kept.REVISION, (await books.records(kept.REVISION))[0].key, None)


async def wrong_figures(books):
    await changed(books, kept.META, lambda value: value.update(notes_processed=7))


async def damaged_meta(books):
    await written(books, kept.META, "", "{")


async def damaged_note(books):
    await written(books, kept.NOTE, (await books.records(kept.NOTE))[0].key, '{"text": 5}')


async def damaged_journal(books):
    await written(books, kept.CONSOLIDATION, (await books.records(kept.CONSOLIDATION))[0].key, "")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (consumed_twice, "more than once"),
        (live_again, "still waits"),
        (never_entered, "no journal says so"),
        (other_text, "history gives"),
        (lost_revision, "numbered"),
        (wrong_figures, "figures say"),
        (damaged_meta, "damaged"),
        (damaged_note, "damaged"),
        (damaged_journal, "damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_what_does_not_hang_together_is_found(spoil, told):
    """Each fault is named by what it is; no finding holds a word of a note."""
    memory, books = await filled()
    await spoil(books)
    findings = (await memory.check()).findings
    assert any(told in finding.what for finding in findings), findings
    assert {(finding.promise, finding.session_id) for finding in findings} == {("bank", "space:x")}
    assert SECRET not in repr(findings)
