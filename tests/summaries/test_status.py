"""A text that serves goes on serving, and what waits is said to wait."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

from stand_ins import talk

from hiermem import AsyncMemory
from hiermem.tree import status
from hiermem.types import Node, Revision, Span

NOW = datetime(2024, 3, 1, tzinfo=UTC)


def node(**fields):
    return Node(
        **(
            {
                "id": "L1.0",
                "level": 1,
                "ordinal": 0,
                "thread": "main",
                "span": Span(0, 10),
                "windows": (0, 1),
                "children": (),
                "messages": 10,
                "input_size": 900,
                "allotted": 450,
                "input_tokens": 900,
                "allotted_tokens": 450,
                "verbatim": False,
                "first_at": NOW,
                "last_at": NOW,
            }
            | fields
        )
    )


def revision(number=1, *, degraded=False):
    return Revision(
        node_id="L1.0",
        number=number,
        text="said",
        tokens=1,
        input_hash="i",
        output_hash="o",
        strategy="s",
        style="detailed",
        model="m",
        created_at=NOW,
        degraded=degraded,
    )


def test_a_good_text_takes_the_flags_off_and_a_stand_in_keeps_the_record_of_failures():
    marked = node(attempts=3, error="empty", dirty=True)
    good = status.succeed(marked, revision())
    assert (good.attempts, good.error, good.dirty, good.degraded) == (0, None, False, False)
    poor = status.succeed(marked, revision(degraded=True))
    assert (poor.attempts, poor.error, poor.degraded) == (3, "empty", True)
    assert status.is_unfinished(poor), "a stand-in is made anew later"


def test_a_node_that_an_edit_alone_made_dirty_serves_and_is_not_pending():
    """Broken, an edit costs a call that nobody asked for, or a changed input costs none."""
    made = node(status="active", revision=1)
    flagged = status.flag(made)
    assert flagged.dirty
    assert not status.waits(flagged)
    assert not status.is_unfinished(flagged)
    asked = status.mark_dirty(flagged, now=NOW)
    assert status.waits(asked)
    assert status.flag(asked) == asked, "an edit does not take back what was asked for"
    assert not status.succeed(asked, revision()).dirty
    below = status.succeed(asked, revision(), flagged=True)
    assert status.is_flagged(below), "a text below still says what was edited"


def test_a_commit_is_carried_over_a_new_parent_and_nothing_else():
    before = node(version=4)
    after = status.succeed(before, revision())
    carried = status.rebase(before, replace(before, parent="L2.0", version=5), after)
    assert carried is not None
    assert carried.parent == "L2.0"
    for change in (
        {"status": "active"},
        {"dirty": True},
        {"revision": 1},
        {"version": 5},
        {"parent": "L2.0", "version": 6},
    ):
        assert status.rebase(before, replace(before, **change), after) is None


KILLED = """
import os, sys
from hiermem import Memory

def asked(text):
    os.kill(os.getpid(), 9)

with Memory.open(sys.argv[1], llm=asked) as memory:
    memory.session("s").update()
"""


async def test_a_pending_summary_is_generating_while_a_run_holds_the_session(tmp_path):
    """Broken, an application cannot tell a summary that is being made from one that waits."""
    path, asked, go = tmp_path / "m.db", asyncio.Event(), asyncio.Event()

    async def model(text):
        asked.set()
        await go.wait()
        return "The pump was set to many rates, from 3 to 200 rpm, and nothing else was said of it."

    async def seen(reader):
        session = reader.session("s")
        listed = {each.status for each in await session.summaries()}
        root = (await session.forest())[0]
        found = await session.status()
        return (
            listed,
            root.summary.status,
            sum(found.generating.values()) == sum(found.queue.values()),
        )

    async with AsyncMemory.open(path, llm=model) as memory, AsyncMemory.open(path) as other:
        session = memory.session("s")
        await session.append(talk(50, "Message {n}: the pump was set to {n}7 rpm. " * 8))
        for reader in (memory, other):
            assert await seen(reader) == ({"pending"}, "pending", False)
        update = asyncio.create_task(session.update())
        await asyncio.wait_for(asked.wait(), 30)
        for reader in (memory, other):
            assert await seen(reader) == ({"generating"}, "generating", True)
        go.set()
        await update
        assert await seen(other) == ({"active"}, "active", True), "0 of 0"


async def test_a_run_whose_process_was_killed_generates_nothing(tmp_path, scripts):
    """Broken, a summary that nobody makes is said to be under way for the rest of a lease."""
    path = tmp_path / "m.db"
    async with AsyncMemory.open(path) as memory:
        session = memory.session("s")
        await session.append(talk(50, "Message {n}: the pump was set to {n}7 rpm. " * 8))
        assert scripts.run("-c", KILLED, str(path), cwd=tmp_path).returncode == -9
        assert (await memory.runs(limit=1))[0].detail["claim"]
        assert {each.status for each in await session.summaries()} == {"pending"}
        assert not any((await session.status()).generating.values())
