"""P1: what append returned for is durable and reads back verbatim, whatever happens around it."""

from dataclasses import replace
from itertools import chain
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logbook import (
    CONFIGS,
    Failing,
    happen,
    logs,
    long_logs,
    messages_of,
    opened,
    place,
    play,
    text,
    ways,
)
from message_strategies import histories, messages
from sampling import drawn

from hiermem import InvalidMessageError, Memory, Message, StoreError
from hiermem.testing.faults import FaultPlan

STORES = ["memory", "sqlite-memory", "sqlite"]


def same(stored, message):
    """Assert that a stored message is the one that was appended, field by field."""
    given = stored.message
    assert given == message
    # Equality of times and of numbers forgets the offset and the type; the bytes must not.
    assert given.created_at.utcoffset() == message.created_at.utcoffset()
    assert type(given.content) is type(message.content)
    assert dict(given.metadata) == dict(message.metadata)
    assert stored.state == "live"


async def reads_back(session, appended):
    """Assert that exactly ``appended`` is there, in order, however it is read."""
    stored = await session.messages()
    assert [each.index for each in stored] == list(range(len(appended)))
    for each, message in zip(stored, appended, strict=True):
        same(each, message)
    middle = len(appended) // 2
    assert await session.messages(middle, middle + 3) == stored[middle : middle + 3]
    assert (await session.status()).messages == len(appended)


@pytest.mark.parametrize("kind", STORES)
@drawn(40)
@given(log=logs(most=6), way=ways, name=st.sampled_from(sorted(CONFIGS)))
async def test_p1_sealing_updating_and_reopening_lose_nothing(kind, log, way, name):
    appended = messages_of(log)
    async with place(kind) as at:
        await play(log, at, CONFIGS[name], way, at_end=lambda s: reads_back(s, appended))
        if log and at.lasts:
            memory = await opened(at, CONFIGS[name])
            await reads_back(memory.session("s"), appended)
            await memory.close()


@pytest.mark.parametrize("kind", STORES[:2])
@drawn(60)
@given(
    given_=st.lists(st.lists(messages(), max_size=4), max_size=5),
    more=histories(max_size=20, threads=3, oversize=3_000),
)
async def test_p1_any_message_comes_back_as_it_was(kind, given_, more):
    """Texts of every size and alphabet, parts, calls, metadata, zones of time."""
    async with place(kind) as at:
        memory = await opened(at, CONFIGS["tokens"])
        session, appended = memory.session("s"), []
        for batch in [*given_, more]:
            try:
                indices = await session.append(batch)
            except InvalidMessageError:
                continue
            assert indices == list(range(len(appended), len(appended) + len(indices)))
            appended += batch
        await reads_back(session, appended)
        await memory.close()


@pytest.mark.parametrize("kind", STORES[:2])
@drawn(8, 2)
@given(log=long_logs(), way=ways)
async def test_p1_holds_for_thousands_of_messages(kind, log, way):
    way, appended = replace(way, batches=(1, 40, 400), updates=0.0), messages_of(log)
    async with place(kind) as at:
        await play(log, at, CONFIGS["preset"], way, at_end=lambda s: reads_back(s, appended))


@drawn(120)
@given(log=logs(events=False), seed=st.integers(0, 10_000), size=st.sampled_from([1, 3, 20]))
async def test_p1_an_append_that_raised_is_there_whole_or_not_at_all(log, seed, size):
    """The store fails before or after a commit: what was acknowledged stays, nothing is halved."""
    luck, appended = Random(seed), messages_of(log)
    async with place("memory") as at:
        plan = FaultPlan(
            {luck.randint(0, 40): luck.choice(["fail", "busy"]) for _ in range(4)},
            only=frozenset({"mutate.before", "mutate.after", "session.before"}),
        )
        memory = await opened(Failing(at, plan), CONFIGS["tokens"])
        session, kept = memory.session("s"), []
        for first in range(0, len(appended), size):
            batch = [replace(message, key=None) for message in appended[first : first + size]]
            try:
                indices = await session.append(batch)
            except StoreError as error:
                judge = await opened(at, CONFIGS["tokens"])
                there = (await judge.session("s").status()).messages - len(kept)
                assert there in (0, len(batch)), "half an append is stored"
                assert error.committed is not False or there == 0, "it said nothing was written"
                kept += batch[:there]
            else:
                assert indices == list(range(len(kept), len(kept) + len(batch)))
                kept += batch
        judge = await opened(at, CONFIGS["tokens"])
        await reads_back(judge.session("s"), kept)


BAD = [
    Message.user("a NUL \x00 inside"),
    Message.user("half a pair \ud83d"),
    Message.user("x", thread=""),
    Message.user("x", name="n" * 513),
    Message.assistant("y" * 4_194_305),
    Message.user("x", metadata={"n": float("nan")}),
]


@pytest.mark.parametrize("kind", STORES[:2])
@drawn(40)
@given(
    log=logs(most=4, longest=8),
    wrong=st.lists(st.tuples(st.sampled_from(BAD), st.integers(0, 3)), max_size=4),
)
async def test_p1_a_refused_append_writes_nothing_of_what_came_with_it(kind, log, wrong):
    async with place(kind) as at:
        memory = await opened(at, CONFIGS["tokens"])
        session, kept = memory.session("s"), []
        for entry in log:
            for bad, where in wrong:
                batch = [Message.user(text(n, 3)) for n in range(3)]
                batch.insert(where, bad)
                with pytest.raises(InvalidMessageError):
                    await session.append(batch)
            if isinstance(entry, Message):
                await session.append(entry)
                kept.append(entry)
            else:
                await happen(session, entry)
        await reads_back(session, kept)
        await memory.close()


def test_p1_many_threads_may_append_to_one_blocking_memory(tmp_path):
    """Every call that returned is in the file, each writer's messages in its own order."""
    from concurrent.futures import ThreadPoolExecutor

    with Memory.open(tmp_path / "m.db") as memory:

        def write(writer):
            session = memory.session("s")
            return [
                session.append(Message.user(f"{writer}/{n}", thread=f"t{writer}"))[0]
                for n in range(25)
            ]

        with ThreadPoolExecutor(8) as pool:
            acknowledged = list(pool.map(write, range(8)))
    assert sorted(chain.from_iterable(acknowledged)) == list(range(200))
    with Memory.open(tmp_path / "m.db", create=False) as memory:
        stored = memory.session("s").messages()
    for writer, indices in enumerate(acknowledged):
        assert [stored[index].content for index in indices] == [f"{writer}/{n}" for n in range(25)]


def test_p1_two_processes_worth_of_handles_on_one_file_lose_nothing(tmp_path):
    """Two memories open the same file; each sees what the other acknowledged."""
    path = tmp_path / "m.db"
    with Memory.open(path) as one, Memory.open(path) as two:
        for n in range(60):
            memory = (one, two)[n % 2]
            assert memory.session("s").append(Message.user(str(n))) == [n]
            other = (two, one)[n % 2]
            assert other.session("s").messages(n)[0].content == str(n)
        one.session("s").update()
        two.session("s").update()
        assert one.session("s").summaries() == two.session("s").summaries()
