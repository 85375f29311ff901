"""Taking a whole history: only what is new is appended, and a rewritten one is never mixed in."""

import asyncio
import inspect

import pytest
from kinds import of_kind

from hiermem import AsyncMemory, ClosedError, ConflictError, InvalidMessageError
from hiermem.convert import from_openai, from_responses
from hiermem.log import alignment
from hiermem.log import append as syncing
from hiermem.records.run import RecordStore
from hiermem.stores.memory import MemoryStore
from hiermem.stores.sqlite import SQLiteStore
from hiermem.types import Message, SyncReport, ToolCall


def turns(count, *, start=0):
    return [
        {"role": "assistant" if n % 2 else "user", "content": f"remark {n}"}
        for n in range(start, count)
    ]


@pytest.fixture(params=["memory", "sqlite"])
async def memory(request, tmp_path):
    if request.param == "memory":
        store = RecordStore(MemoryStore())
    else:
        store = RecordStore(await SQLiteStore.open(tmp_path / "chat.db"))
    async with AsyncMemory(store=store) as memory:
        yield memory


async def texts(session):
    return [each.content for each in await session.messages()]


async def test_a_chat_that_sends_all_of_it_each_time_is_stored_once(memory):
    session = memory.session("s")
    system = {"role": "system", "content": "Be brief."}
    for count in (1, 2, 4, 4, 9):
        report = await session.sync([system, *turns(count)])
        assert report.rewritten_at is None
        assert await texts(session) == [each["content"] for each in turns(count)]
        system = {"role": "system", "content": f"Be brief. There were {count} messages."}
    assert report == SyncReport("s", tuple(range(4, 9)))


async def test_a_client_that_keeps_the_newest_messages_only_adds_to_them(memory):
    session = memory.session("s")
    await session.sync(turns(300))
    assert (await session.sync(turns(303, start=280))).appended == (300, 301, 302)
    older = await session.sync(turns(300, start=290))
    assert (older.appended, older.ends_at) == ((), 300)
    assert await session.count() == 303


async def test_the_context_that_was_sent_may_come_back_in_the_history(memory):
    """Broken if the memory that hiermem rendered was stored as if it had been said."""
    session = memory.session("s")
    await session.sync(turns(60))
    context = await session.context(700, system="Be brief.")
    sent = context.to_openai()
    answer = {"role": "assistant", "content": "An answer."}
    report = await session.sync([*sent, {"role": "user", "content": "And now?"}, answer])
    assert report.appended == (60, 61)
    assert (await texts(session))[59:] == ["remark 59", "And now?", "An answer."]


async def test_a_rewritten_history_writes_nothing_unless_it_may_fork(memory):
    session = memory.session("s")
    await session.sync(turns(6))
    before = await session.messages()
    rewritten = [*turns(3), {"role": "assistant", "content": "other"}, *turns(6, start=4)]
    assert await session.sync(rewritten) == SyncReport("s", rewritten_at=3)
    with pytest.raises(ConflictError, match="message 3", check=of_kind("history")) as caught:
        await session.sync(rewritten, on_rewrite="error")
    assert caught.value.index == 3
    assert await session.messages() == before
    assert [record.id for record in await memory.sessions()] == ["s"]


async def test_a_rewritten_history_goes_on_in_one_fork(memory):
    """Broken if each further turn of a client that answered again made another fork."""
    session = memory.session("s")
    await session.sync(turns(6))
    rewritten = [*turns(3), {"role": "assistant", "content": "other"}]
    first = await session.sync(rewritten, on_rewrite="fork")
    assert first.rewritten_at == 3
    assert first.appended == (3,)
    again = await session.sync(rewritten, on_rewrite="fork")
    assert again == SyncReport(first.session_id, rewritten_at=3)
    more = await session.sync([*rewritten, *turns(7, start=5)], on_rewrite="fork")
    assert (more.session_id, more.appended) == (first.session_id, (4, 5))
    fork = memory.session(first.session_id)
    assert (await texts(fork))[2:] == ["remark 2", "other", "remark 5", "remark 6"]
    assert await session.count() == 6, "the session itself is as it was"
    # The fork may be rewritten in its turn; names do not grow.
    deeper = await session.sync(
        [*rewritten, {"role": "user", "content": "third"}], on_rewrite="fork"
    )
    assert deeper.session_id not in {"s", first.session_id}
    assert len(deeper.session_id) == len(first.session_id)
    assert (await memory.check()).ok


async def test_a_history_that_is_rewritten_with_every_turn_goes_on(memory, monkeypatch):
    """Broken if each fork of a fork took a stack frame, which ends in a RecursionError."""
    depths = []

    def align(*given):
        depths.append(len(inspect.stack(context=0)))
        return alignment.align(*given)

    monkeypatch.setattr(syncing, "align", align)
    session = memory.session("s")
    await session.sync(turns(4))
    history = turns(4)
    for turn in range(6):
        history = [*history[:-1], {"role": "assistant", "content": f"cleared {turn}"}]
        history += turns(2)
        depths.clear()
        report = await session.sync(history, on_rewrite="fork")
        assert await texts(memory.session(report.session_id)) == [h["content"] for h in history]
        assert report.rewritten_at == 3, "the place in the session that was asked for"
    assert len(depths) == 7, "the session, and a fork of each turn"
    assert len(set(depths)) == 1
    assert (await memory.check()).ok


@pytest.mark.parametrize("first", ["chat", "items"])
@pytest.mark.parametrize("rounds", [1, 90])
async def test_a_client_that_changes_between_chat_and_responses_goes_on(memory, first, rounds):
    """A chat message holds text and calls, which are two Responses items."""
    chat, items = [], []
    for n in range(rounds + 1):
        asked, said = {"role": "user", "content": f"Order {n}?"}, f"I look at {n}."
        names = [f"c{n}.{number}" for number in range(1 + n % 3)]
        chat += [asked, {"role": "assistant", "content": said, "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}}
            for name in names
        ]}]  # fmt: skip
        items += [asked, {"type": "message", "role": "assistant", "content": said}]
        for name in names:
            items.append(
                {"type": "function_call", "call_id": name, "name": "f", "arguments": '{"n": 1}'}
            )
        for name in names:
            chat.append({"role": "tool", "tool_call_id": name, "content": "sent"})
            items.append({"type": "function_call_output", "call_id": name, "output": "sent"})
    shapes = {"chat": from_openai(chat), "items": from_responses(items)}
    held, history = shapes.pop(first), *shapes.values()
    session = memory.session("s")
    last = [n for n, each in enumerate(held) if each.role == "user"][-1]
    await session.sync(held[:last])
    *_, before, begin = (n for n, each in enumerate(history) if each.role == "user")
    new = history[begin:]
    for given in (history[before:], history, history[before:]):
        report = await session.sync(given)
        assert report.rewritten_at is None
        assert report.appended in ((), tuple(range(last, last + len(new))))
    assert await session.count() == last + len(new)


async def test_a_session_of_many_more_messages_than_its_history_is_read_far_enough(memory):
    """Broken if the part of the session that a short history may reach were counted in messages."""
    session, whole = memory.session("s"), []
    for n in range(8):
        calls = [ToolCall(f"c{n}.{k}", "f", "{}") for k in range(40)]
        whole += [Message.user(f"Order {n}?"), Message.assistant("I look.", tool_calls=calls)]
        await session.append(Message.user(f"Order {n}?"), Message.assistant("I look."))
        await session.append(Message.assistant("", tool_calls=[call]) for call in calls)
    report = await session.sync([*whole, Message.user("Thanks.")])
    assert report == SyncReport("s", (8 * 42,))


async def test_what_was_erased_or_edited_does_not_come_back(memory):
    """The client does not know of it, and hands the old text over each time."""
    session = memory.session("s")
    await session.sync(turns(6))
    await session.erase([2])
    await session.edit(3, "a correction")
    await session.quarantine([0])
    assert (await session.sync(turns(8))).appended == (6, 7)
    stored = await session.messages()
    assert [each.state for each in stored[:3]] == ["quarantined", "live", "erased"]
    assert stored[3].content == "a correction"


async def test_two_clients_at_once_store_each_message_once(memory):
    session = memory.session("s")
    await session.sync(turns(4))
    reports = await asyncio.gather(*(memory.session("s").sync(turns(40)) for _ in range(6)))
    assert await texts(session) == [each["content"] for each in turns(40)]
    assert sorted(index for each in reports for index in each.appended) == list(range(4, 40))


async def test_nothing_and_bad_input(memory):
    session = memory.session("s")
    assert await session.sync([]) == SyncReport("s")
    assert await session.sync([{"role": "system", "content": "Be brief."}]) == SyncReport("s")
    assert await memory.sessions() == []
    with pytest.raises(InvalidMessageError):
        await session.sync([{"text": "Hello"}])
    with pytest.raises(ValueError, match="on_rewrite"):
        await session.sync(turns(2), on_rewrite="merge")
    await session.sync(turns(2))
    await session.close()
    assert (await session.sync(turns(2))).appended == ()
    with pytest.raises(ClosedError):
        await session.sync(turns(3))


async def test_a_long_session_is_not_read_for_a_short_history(memory, monkeypatch):
    session = memory.session("s")
    await session.append(Message.user(f"remark {n}") for n in range(3_000))
    read = []
    store = memory._handle.store
    plain = type(store).messages

    async def watched(self, session_id, start, stop, **more):
        read.append(stop - start)
        return await plain(self, session_id, start, stop, **more)

    monkeypatch.setattr(type(store), "messages", watched)
    history = [Message.user(f"remark {n}") for n in range(2_980, 3_002)]
    assert (await session.sync(history)).appended == (3_000, 3_001)
    assert sum(read) < 400
