"""The session for the OpenAI Agents SDK behaves as the SDK's own does, and forgets nothing."""

import asyncio
import copy
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("agents")

from agents import Session, SessionSettings, SQLiteSession
from agents.models.chatcmpl_converter import Converter

from hiermem import AsyncMemory, Memory, Message, UsageError
from hiermem.convert import to_responses
from hiermem.integrations.openai_agents import HiermemSession

QUESTION = {"role": "user", "content": "How fast?"}
CALLS = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xx"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}", "id": "fc_2"},
]
RESULTS = [
    {"type": "function_call_output", "call_id": "c1", "output": "1"},
    {"type": "function_call_output", "call_id": "c2", "output": "2"},
]
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Fast.", "annotations": []}],
}
TURN = [QUESTION, *CALLS, *RESULTS, ANSWER]


def bare(items):
    """Return items as a context shows them."""
    found = [{k: v for k, v in item.items() if k not in ("id", "status")} for item in items]
    found = [{"type": "message", **item} if "role" in item else item for item in found]
    return [{**i, "content": "Fast."} if i.get("role") == "assistant" else i for i in found]


def undated(items):
    """Return the items of a context without the dates in front of messages."""
    seam = re.compile(r"^\[\d{4}-\d\d-\d\d\]\n")
    return [{**i, "content": seam.sub("", i["content"])} if "role" in i else i for i in items]


operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.sampled_from(TURN), max_size=4)),
        st.tuples(st.just("add"), st.just(TURN)),
        st.tuples(st.just("pop"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["clear", "reopen", "read"]), st.none()),
    ),
    max_size=10,
)


@settings(max_examples=40, deadline=None)
@given(operations)
async def test_it_answers_as_the_sdk_s_own_session_does(tmp_path_factory, steps):
    """Broken if a rewound item came back, a call of several was lost, or a restart undid either."""
    path = tmp_path_factory.mktemp("s") / "chat.db"
    memory = Memory.open(path)
    own, ours = SQLiteSession("s"), HiermemSession(memory, "s")
    added = []
    for step, value in steps:
        if step == "add":
            added += value
            await own.add_items(copy.deepcopy(value))
            await ours.add_items(copy.deepcopy(value))
        elif step == "pop":
            for _ in range(value):
                assert await ours.pop_item() == await own.pop_item()
        elif step == "clear":
            await own.clear_session()
            await ours.clear_session()
        elif step == "reopen":
            memory.close()
            memory = Memory.open(path)
            ours = HiermemSession(memory, "s")
        elif (items := await own.get_items()) == TURN * (len(items) // len(TURN)):
            # A call without a result has no such form.
            assert undated(await ours.get_items()) == bare(items)
        for limit in (0, 1, 3, 100):
            assert await ours.get_items(limit) == await own.get_items(limit)
    kept = []
    for record in memory.sessions():
        stored = memory.session(record.id).messages()
        kept += to_responses(each.message for each in stored)
    assert all(item in kept for item in added), "something that was added is nowhere"
    own.close()
    memory.close()


async def test_what_was_taken_back_goes_on_in_a_fork_that_the_metadata_name():
    """Broken if an application could not find the conversation, or lost what was rewound."""
    with Memory.open(":memory:") as memory:
        root = memory.session("s", metadata={"user": "ada"})
        root.append({"role": "user", "content": "Hi"})
        session = HiermemSession(memory, "s")
        assert isinstance(session, Session)
        await session.add_items(TURN)
        for _ in range(4):
            await session.pop_item()
        assert root.get_metadata()["rewound_to"] == "3+1", "durable before anything else"
        assert root.count() == 7
        await session.add_items([RESULTS[0]])
        fork = session.current()
        assert root.get_metadata() == {"user": "ada", "continues_in": fork.id}
        assert fork.get_metadata() == {"user": "ada"}
        record = next(each for each in memory.sessions() if each.id == fork.id)
        assert (record.forked_from, record.forked_at) == ("s", 3)
        assert await session.get_items(4) == [QUESTION, CALLS[0], CALLS[1], RESULTS[0]]
        assert root.count() == 7, "the old end is kept"


async def test_a_long_conversation_is_sent_within_its_budget_and_any_model_of_the_sdk_reads_it():
    """Broken if a context grew with the conversation, or held what the SDK's models refuse."""
    with Memory.open(":memory:") as memory:
        session = HiermemSession(memory, "s", max_tokens=1_000)
        for turn in range(60):
            ids = {"call_id": f"a{turn}"}, {"call_id": f"b{turn}"}
            await session.add_items(
                [
                    {**QUESTION, "content": f"How fast is pump {turn}? " + "Really now. " * 5},
                    CALLS[0],
                ]
                + [{**call, **own} for call, own in zip(CALLS[1:], ids, strict=True)]
            )
            await session.add_items([{**r, **own} for r, own in zip(RESULTS, ids, strict=True)])
            await session.add_items([ANSWER])
        memory.session("s").update()
        context = memory.session("s").context(1_000)
        assert (context.coverage, context.total_tokens <= 1_000) == (1.0, True)
        items = await session.get_items()
        assert items == context.to_responses()
        called = [item["call_id"] for item in items if item.get("type") == "function_call"]
        answered = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
        assert called == answered != []
        assert len(Converter.items_to_messages(items)) > 5


async def test_what_was_erased_is_not_given_back_and_any_output_has_a_place():
    """Broken if an output that is no text, or has none, ended a run or left its call alone."""
    silent = {"type": "function_call_output", "call_id": "c1", "output": ""}
    with Memory.open(":memory:") as memory:
        session = HiermemSession(memory, "s")
        await session.add_items(TURN)
        memory.session("s").erase([5])
        assert await session.get_items(1) == RESULTS[1:]
        assert await session.pop_item() == RESULTS[1]
        await session.add_items([{"role": "user", "content": "a\0b\ud800"}])
        assert await session.get_items(1) == [{"role": "user", "content": "a\ufffdb\ufffd"}]
        other = HiermemSession(memory, "silent")
        await other.add_items([QUESTION, CALLS[1], silent])
        assert undated(await other.get_items()) == bare([QUESTION, CALLS[1], silent])


async def test_requests_of_one_conversation_at_once_lose_nothing():
    """Broken if two objects of one session, as two requests make, forked or rewound at cross."""

    async def use(session, name):
        for number in range(12):
            await session.add_items([{"role": "user", "content": f"{name}{number}"}])
            if number % 3 == 0:
                await session.pop_item()
            await session.get_items()

    with Memory.open(":memory:") as memory:
        one, other = HiermemSession(memory, "s"), HiermemSession(memory, "s")
        await asyncio.gather(use(one, "a"), use(other, "b"))
        stored = {
            each.message.content
            for record in memory.sessions()
            for each in memory.session(record.id).messages()
        }
        assert stored == {f"{name}{number}" for name in "ab" for number in range(12)}
        assert one.current().count() == other.current().count() == 16


@pytest.mark.parametrize("name", ["s~7", "x" * 512])
async def test_any_session_id_has_room_for_its_forks(name):
    """Broken if a conversation with a long id could not go on once an item was taken back."""
    with Memory.open(":memory:") as memory:
        session = HiermemSession(memory, name)
        for text in "abc":
            await session.add_items([{"role": "user", "content": text}, QUESTION])
            await session.pop_item()
        assert [item["content"] for item in undated(await session.get_items())] == ["a", "b", "c"]


@pytest.mark.parametrize("given", [SessionSettings(limit=2), {"limit": 2}])
async def test_the_limit_of_its_settings_holds_as_in_the_sdk_s_own_sessions(given):
    """Broken if an application that bounds its sessions by settings were given a context."""
    items = [{"role": "user", "content": f"m{number}"} for number in range(5)]
    with Memory.open(":memory:") as memory:
        session = HiermemSession(memory, "s", session_settings=given)
        await session.add_items(items)
        assert await session.get_items() == items[-2:]
        assert await session.get_items(limit=3) == items[-3:]
        session.session_settings = SessionSettings()
        assert len(undated(await session.get_items())) == 5


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_call_ends_once_its_outcome_is_certain(monkeypatch, fails):
    """Broken if a caller that repeats a cancelled call stored a turn twice."""
    started, go_on = threading.Event(), threading.Event()

    def slowly(session, items):
        started.set()
        go_on.wait()
        if fails:
            raise OSError
        add(session, items)

    add = HiermemSession._add
    monkeypatch.setattr(HiermemSession, "_add", slowly)
    with Memory.open(":memory:") as memory:
        session = HiermemSession(memory, "s")
        task = asyncio.create_task(session.add_items([QUESTION]))
        await asyncio.to_thread(started.wait)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert memory.session("s").count() == (0 if fails else 1)


async def test_a_call_that_a_server_did_not_name_does_not_end_a_run():
    """Broken if an answer that has been paid for were refused for its empty ids."""
    call = {"type": "function_call", "call_id": "", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "", "output": "1"}
    with Memory.open(":memory:") as memory:
        session = HiermemSession(memory, "s")
        await session.add_items([QUESTION, call, result, QUESTION, call, result])
        made = [item["call_id"] for item in await session.get_items() if "call_id" in item]
        assert made[::2] == made[1::2]
        assert len(set(made)) == 2, "each call is sent with an id of its own"


async def test_a_new_conversation_knows_what_was_asked_for_in_another():
    """Broken, an agent of the SDK begins each conversation with nothing."""
    with Memory.open(":memory:") as memory:
        memory.space("ada", person="Ada").files()
        memory.session("may", space="ada").append(Message.user("Always answer in metric units."))
        for space, knows in (("ada", True), (None, False)):
            session = HiermemSession(memory, f"in {space}", space=space)
            await session.add_items([QUESTION])
            assert ("Always" in str(await session.get_items())) == knows


async def test_a_memory_of_the_wrong_kind_is_named():
    async with AsyncMemory.open(":memory:") as memory:
        with pytest.raises(UsageError, match="pass a Memory"):
            HiermemSession(memory, "s")
