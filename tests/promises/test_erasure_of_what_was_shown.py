"""P11 and P4 of edits with a model that says again all it was shown, the overlap included.

A summariser may repeat what stood before its window. So a text has to go, or to be flagged, with
every message that it was shown, whatever the configuration, the slices and the lengths are by then;
and nothing that stood for an open window or group may outlast it.
"""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from editing import regenerating
from logbook import _SMALL, START, Words, text

from hiermem import AsyncMemory, HierarchyConfig, Message, UpdatePolicy
from hiermem.records.run import RecordStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.testing.llms import ScriptedLLM

MARK = re.compile(r"zq\w+")


def config(**fields):
    return HierarchyConfig.by_tokens(
        **({"target": 120, "max_messages": 6, "verbatim_tokens": 20, "levels": _SMALL} | fields)
    )


class Echo(ScriptedLLM):
    """A model that repeats the marks of all it was shown; ``meanwhile`` runs at its first call."""

    def __init__(self, meanwhile=None):
        super().__init__(remote=True)
        self._meanwhile = meanwhile

    async def complete(self, request):
        shown = "\n".join(message.content for message in request.messages)
        if self._meanwhile is not None and await self._meanwhile(shown):
            self._meanwhile = None
        made = await super().complete(request)
        marks = list(dict.fromkeys(MARK.findall(shown)))
        return replace(made, text=made.text + ("\n- " + " ".join(marks) if marks else ""))


def said(number, words=40, extra=""):
    return Message(
        "user" if number % 2 == 0 else "assistant",
        f"{text(number, words)} {extra}",
        created_at=START + timedelta(seconds=20 * number),
    )


def memory_of(store, settings, llm=None):
    return AsyncMemory(
        store=store,
        config=settings,
        token_counter=Words(),
        update_policy=UpdatePolicy(batch_delay=0.0),
        llm=llm,
    )


async def opened(folder, settings, llm=None):
    return memory_of(RecordStore(await SQLiteStore.open(folder / "x.db")), settings, llm)


def left_in(folder, mark="zqcanary"):
    return [each.name for each in folder.rglob("*") if mark.encode() in each.read_bytes()]


async def spoken(memory):
    """Return a session whose fourth message bears the canary."""
    session = memory.session("s")
    await session.append([said(n, extra="zqcanary" if n == 3 else "") for n in range(14)])
    return session


async def marked(session, level=1):
    return [one.id for one in await session.summaries(level=level) if "zqcanary" in one.text]


async def nothing_is_left(memory, folder):
    """Assert it at once, and after all was made anew."""
    assert not left_in(folder)
    await memory.update_all()
    assert not left_in(folder)
    assert (await memory.check()).findings == ()
    await memory.close()


@pytest.mark.parametrize("kind", ["erase", "quarantine"])
async def test_a_fork_knows_of_an_overlap_that_came_after_it(tmp_path, kind):
    """Broken, a fork keeps what its texts were shown, for its own log never had that overlap."""
    memory = await opened(tmp_path, config(), Echo())
    session = await spoken(memory)
    await session.reconfigure(config(overlap=400))
    await session.update()
    await session.fork("f", at=12)
    fork = memory.session("f")
    assert await marked(fork) == ["L1.1", "L1.2"]
    assert (await memory.check()).findings == ()
    await getattr(session, kind)([3])
    assert not await marked(session)
    assert not await marked(fork)
    if kind == "erase":
        await nothing_is_left(memory, tmp_path)
    else:
        await memory.close()


async def test_an_edit_that_moves_slices_hides_no_overlap(tmp_path):
    """Broken, a later slice's window keeps what it was shown when that slice began earlier."""
    memory = await opened(tmp_path, config(target=60, overlap=400), Echo())
    session = memory.session("s")
    at = START + timedelta(minutes=2)
    await session.append([said(n, 20) for n in range(2)])
    await session.append(Message("user", "Order zqcanary costs 5 EUR.", created_at=at))
    await session.append(Message("assistant", text(3, 30), created_at=at))
    letters = " ".join("ab" if n % 2 else "c" for n in range(400))
    await session.append(Message("user", letters, created_at=at + timedelta(minutes=1)))
    await session.append([said(n) for n in range(5, 9)])
    await session.update()
    assert await marked(session) == ["L1.1", "L1.2", "L1.3"]
    await session.edit(4, " ".join("abcdefg" for _ in range(400)))
    await session.erase([2])
    await nothing_is_left(memory, tmp_path)


async def test_an_earlier_text_that_was_shown_more_goes_too(tmp_path):
    """Broken, only what serves is looked at, and an earlier revision keeps the overlap."""
    memory = await opened(tmp_path, config(overlap=400), Echo())
    session = await spoken(memory)
    await session.update()
    await session.reconfigure(config())
    await session.recompress(1)
    await session.update()
    assert await marked(session) == ["L1.1"]
    await session.fork("f")
    await session.erase([3])
    await nothing_is_left(memory, tmp_path)


async def test_an_edit_reaches_the_overlaps_of_before(tmp_path):
    """Broken, a text goes on saying what was edited, because the overlap is another one now."""
    memory = await opened(tmp_path, config(overlap=400), Echo())
    session = await spoken(memory)
    await session.update()
    assert await marked(session) == ["L1.1", "L1.2"]
    await session.reconfigure(config())
    report = await regenerating(session).edit(3, "Quite another thing. " * 20)
    assert report.dirty[:2] == ("L1.1", "L1.2")
    await session.update()
    assert not await marked(session)
    assert (await memory.check()).findings == ()
    await memory.close()


async def test_an_edit_stops_what_is_being_made_with_the_overlap_of_before(tmp_path):
    """Broken, a run that began before a reconfiguration commits the overlap as it was."""
    sessions = []

    async def meanwhile(shown):
        if "zqcanary" not in shown or "case-4." not in shown:
            return False
        await sessions[0].reconfigure(config())
        await sessions[0].edit(3, "Quite another thing. " * 20)
        return True

    memory = await opened(tmp_path, config(overlap=400), Echo(meanwhile))
    session = memory.session("s")
    sessions.append(session)
    await session.append([said(n, extra="zqcanary" if n == 3 else "") for n in range(14)])
    await session.update()
    found = [one for one in await session.summaries(level=1) if "zqcanary" in one.text]
    assert all(one.node.dirty for one in found)
    await session.erase([3])
    await nothing_is_left(memory, tmp_path)
