"""Notes survive whatever kills a consolidation, and each of them goes in once.

Agents write notes while a model consolidates them, and all of it is killed. An agent looks which of
its notes are there, and writes the others again.
"""

import asyncio
import os
from random import Random

import pytest
from bank_labour import COUNT, FILES, LEASE, SPACE, drawn, texts_in
from test_sigkill import kill, nursery  # noqa: F401 - a fixture

from hiermem import AsyncMemory
from hiermem.bank import records as kept

KILLS = 10


async def check(memory, said) -> None:
    """Hold the end to all that was promised."""
    space = memory.space(SPACE)
    assert await space.notes() == [], "a note waits, or was set aside"
    assert await texts_in(space) == dict.fromkeys(said, 1), "a note is lost, or there twice"
    consumed = await space.notes("consumed")
    meta = await space.meta()
    history = await space.history(limit=10_000)
    entered = [key for revision in history for key in revision.notes]
    assert sorted(entered) == sorted(note.key for note in consumed), "a note went in twice"
    assert meta.notes_processed == len(said)
    assert meta.revision == meta.consolidations == len(history)
    files = {name: await space.read(name) for name in await space.files()}
    assert set(files) == set(FILES.values())
    everything = "\n".join(files.values())
    assert [text for text in said if text not in everything] == [], "a fact is in no file"
    assert (await memory.check()).findings == ()
    assert await memory.space(SPACE)._context.one(kept.CLAIM) is None, (
        "a run did not let go of the bank"
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_process_that_is_killed_loses_no_note(nursery, tmp_path, share):  # noqa: F811
    """SIGKILL, at random moments, over one file; the next process goes on."""
    luck, kills, lines = Random(7), 0, [tmp_path / "bank-0.db"]
    while kills < share(KILLS, 2):
        pid = nursery.begin("bank", lines[-1], len(lines))
        for _ in range(luck.randint(1, 12)):
            line = nursery.line(60)
            assert line is not None, "the child hangs"
            if line.startswith(("end", "finished")):
                break
        await asyncio.sleep(luck.random() * 0.02)
        kill(pid)
        if line.startswith("end") or nursery.rest()[-1] == "end 0":
            # It was done before it could be killed; the next ones work on another file.
            lines.append(tmp_path / f"bank-{len(lines)}.db")
            continue
        kills += 1
        await asyncio.sleep(LEASE)
    nursery.begin("bank", lines[-1], len(lines))
    assert "finished" in nursery.rest()
    for seed, path in enumerate(lines, start=1):
        async with AsyncMemory.open(path) as memory:
            await check(memory, [note["text"] for notes in drawn(seed, COUNT) for note in notes])
