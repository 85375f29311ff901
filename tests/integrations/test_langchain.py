"""The middleware for LangChain: the state is untouched, the session whole, the request bounded."""

import asyncio

import pytest

pytest.importorskip("langchain")

from forged import FORGED, forged_in, texts_of
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from hiermem import AsyncMemory, Memory, Message, UsageError
from hiermem.integrations.langchain import HiermemMiddleware

THREAD = {"configurable": {"thread_id": "t"}}


class Provider(BaseChatModel):
    """Calls the tool where it is asked to look, else answers; keeps what it was sent."""

    sent: list = []  # noqa: RUF012 - a field of a pydantic model

    @property
    def _llm_type(self):
        return "stand-in"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, *_, **__):
        self.sent.append(messages)
        last = messages[-1]
        if isinstance(last, HumanMessage) and "look" in last.text:
            number = len(self.sent)
            calls = [{"name": "look", "args": {"n": n}, "id": f"c{number}-{n}"} for n in range(2)]
            thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
            said = AIMessage([thought, {"type": "text", "text": "So."}], tool_calls=calls)
        else:
            said = AIMessage(f"Answer {len(self.sent)} to {last.text[:20]}")
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


class Forger(Provider):
    """Says what imitates a record, in words, in a call and as a result of its tool."""

    def _generate(self, messages, *_, **__):
        self.sent.append(messages)
        calls = []
        if isinstance(messages[-1], HumanMessage):
            arguments = {"text": FORGED, FORGED: [FORGED]}
            calls = [{"name": "fetch", "args": arguments, "id": f"c{len(self.sent)}"}]
        said = AIMessage(FORGED, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def fetch(text: str) -> str:
    """Fetch."""
    return text


@pytest.fixture
def memory():
    with Memory.open(":memory:") as opened:
        yield opened


def agent_of(memory, provider=None, saver=None, **settings):
    return create_agent(
        provider or Provider(sent=[]),
        [look],
        system_prompt="Be brief.",
        middleware=[HiermemMiddleware(memory, **settings)],
        checkpointer=saver or InMemorySaver(),
    )


def ask(agent, text):
    return agent.invoke({"messages": [HumanMessage(text)]}, THREAD)["messages"]


def texts(session):
    return [each.content if isinstance(each.content, str) else "So." for each in session.messages()]


async def test_state_and_session_are_whole_while_requests_stay_within_the_budget(memory):
    """Broken if a message were lost, a call parted from its results, or the state cut."""
    provider = Provider(sent=[])
    agent = agent_of(memory, provider, max_tokens=1_000)
    for turn in range(30):
        text = f"{turn}: look at this. " + "There is more to it. " * 10
        if turn % 2:
            await agent.ainvoke({"messages": [HumanMessage(text)]}, THREAD)
        else:
            ask(agent, text)
    state = agent.get_state(THREAD).values["messages"]
    assert len(state) == 30 * 5
    stored = memory.session("t").messages()
    assert [each.message.key for each in stored] == [each.id for each in state]
    assert memory.session("t").context(1_000).coverage == 1.0
    assert max(map(len, provider.sent)) < 40
    for sent in provider.sent:
        calls = [c["id"] for each in sent for c in getattr(each, "tool_calls", ())]
        assert calls == [each.tool_call_id for each in sent if isinstance(each, ToolMessage)]
    shown = [each for each in provider.sent[-1] if each in state]
    assert shown == state[-1 - len(shown) : -1], "the newest messages, as LangChain made them"
    assert any(isinstance(each.content, list) for each in shown), "and what only a provider reads"


def test_a_rewritten_state_goes_on_in_a_fork_that_the_metadata_name(memory):
    """Broken if the model were shown what the application took back, or the session lost it."""
    provider, saver = Provider(sent=[]), InMemorySaver()
    agent = agent_of(memory, provider, saver)
    ask(agent, "one")
    state = ask(agent, "two")
    agent.update_state(THREAD, {"messages": [RemoveMessage(state[3].id)]})
    agent.update_state(THREAD, {"messages": [HumanMessage("zwei", id=state[2].id)]})
    ask(agent, "three")
    assert [each.text for each in provider.sent[-1]][1:] == [
        "one", "Answer 1 to one", "zwei", "three",
    ]  # fmt: skip
    root = memory.session("t")
    assert texts(root) == ["one", "Answer 1 to one", "two", "Answer 2 to two"]
    fork = memory.session(root.get_metadata()["continues_in"])
    assert texts(fork)[2:] == ["zwei", "three", "Answer 3 to three"]
    # An answer that is asked for again is not shown; and another process reads the same state.
    state = agent.get_state(THREAD).values["messages"]
    agent.update_state(THREAD, {"messages": [RemoveMessage(state[-1].id)]})
    agent.invoke({"messages": []}, THREAD)
    assert [each.text for each in provider.sent[-1]][-1] == "three"
    fork = memory.session(root.get_metadata()["continues_in"])
    assert texts(fork)[2:] == ["zwei", "three", "Answer 4 to three"]
    ask(agent_of(memory, provider, saver), "four")
    assert texts(fork)[5:] == ["four", "Answer 5 to four"]
    assert len(memory.sessions()) == 3


def test_messages_removed_from_the_beginning_are_still_known(memory):
    """Broken if trimming the state, which bounds it, cost the history."""
    provider, saver = Provider(sent=[]), InMemorySaver()
    agent = agent_of(memory, provider, saver)
    state = [ask(agent, f"number {n}") for n in range(4)][-1]
    agent.update_state(THREAD, {"messages": [RemoveMessage(each.id) for each in state[:4]]})
    ask(agent, "last")
    assert [each.text for each in provider.sent[-1]][1:3] == ["number 0", "Answer 1 to number 0"]
    assert [each.id for each in memory.sessions()] == ["t"]


def test_what_was_edited_or_erased_in_the_session_is_not_sent(memory):
    """Broken if a correction, or an erasure, were undone by the copy in the framework's state."""
    provider, saver = Provider(sent=[]), InMemorySaver()
    agent = agent_of(memory, provider, saver)
    ask(agent, "my number is 555")
    ask(agent, "and my pin is 1234")
    memory.session("t").edit(0, "my number is secret")
    memory.session("t").erase([2])
    ask(agent, "go on")
    assert [each.text for each in provider.sent[-1]][1:] == [
        "my number is secret", "Answer 1 to my number is 555", "Answer 2 to and my pin is 1234",
        "go on",
    ]  # fmt: skip
    assert len(memory.sessions()) == 1


def test_a_change_for_one_request_is_no_rewrite(memory):
    """Broken if middleware before this one, which adds a reminder to each request, made forks.

    Middleware behind it sees the shorter request.
    """
    seen = []

    class Remind(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(messages=[*request.messages, HumanMessage("Hurry.")]))

    class Look(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            seen.append(len(request.messages))
            return handler(request)

    agent = create_agent(
        Provider(sent=[]),
        [look],
        middleware=[Remind(), HiermemMiddleware(memory, max_tokens=800), Look()],
        checkpointer=InMemorySaver(),
    )
    for turn in range(20):
        ask(agent, f"{turn}: look at this. " + "There is more to it. " * 10)
    assert [each.id for each in memory.sessions()] == ["t"]
    assert memory.session("t").count() == 100
    assert max(seen) < 30


def test_a_call_that_is_no_json_is_sent_with_the_result_that_says_so(memory):
    """Broken if a request had a call without a result: providers refuse it, each time again."""
    provider, saver = Provider(sent=[]), InMemorySaver()
    agent = agent_of(memory, provider, saver)
    wrong = {"name": "look", "args": "{", "id": "w1", "error": None}
    broken = AIMessage("So.", invalid_tool_calls=[{**wrong, "type": "invalid_tool_call"}])
    agent.update_state(THREAD, {"messages": [HumanMessage("Hi"), broken]})
    for text in ("one", "two"):
        ask(agent, text)
        said, result = provider.sent[-1][2:4]
        assert said.invalid_tool_calls[0]["id"] == result.tool_call_id == "w1"
        assert "could not be executed" in result.text
    assert [each.id for each in memory.sessions()] == ["t"]
    # The state is gone, and the session still knows of the call.
    state = agent.get_state(THREAD).values["messages"]
    agent = agent_of(memory, provider)
    agent.invoke({"messages": [*state[-2:], HumanMessage("three")]}, THREAD)
    said, result = provider.sent[-1][2:4]
    assert (said.invalid_tool_calls[0]["args"], result.tool_call_id) == ("{", "w1")


@pytest.mark.parametrize("name", ["look", ""])
@pytest.mark.parametrize("call_id", ["", None])
def test_a_call_that_a_server_did_not_name_does_not_end_a_run(memory, call_id, name):
    """Broken if an answer that has been paid for were refused: some servers name no call."""
    provider, saver = Provider(sent=[]), InMemorySaver()
    agent = agent_of(memory, provider, saver)
    calls = [{"name": name, "args": {"n": n}, "id": call_id} for n in range(2)]
    for _ in range(2):
        results = [ToolMessage(f"seen {n}", tool_call_id="") for n in range(2)]
        turn = [HumanMessage("Hi"), AIMessage("So.", tool_calls=calls), *results]
        agent.update_state(THREAD, {"messages": turn})
    for text in ("one", "two"):
        state = ask(agent, text)
        assert provider.sent[-1][1:] == state[:-1], "LangChain's own messages are sent"
    assert [each.id for each in memory.sessions()] == ["t"]
    sent = memory.session("t").context().to_anthropic()["messages"]
    uses = [b["id"] for m in sent for b in m["content"] if b["type"] == "tool_use"]
    answers = [b["tool_use_id"] for m in sent for b in m["content"] if b["type"] == "tool_result"]
    assert uses == answers
    assert len(set(uses)) == 4


@pytest.mark.parametrize(
    "block",
    [
        {"type": "video", "base64": "aGk=", "mime_type": "video/mp4"},
        {"type": "text-plain", "text": "x", "mime_type": "text/plain"},
        {"type": "media", "mime_type": "audio/wav", "data": b"hi"},
        {"cachePoint": {"type": "default"}},
    ],
)
def test_content_that_openai_does_not_have_is_kept(memory, block):
    """Broken if an answer that has been paid for ended the run."""
    agent = agent_of(memory)
    message = HumanMessage([{"type": "text", "text": "See this."}, block])
    agent.invoke({"messages": [message]}, THREAD)
    ask(agent, "again")
    first, *_ = memory.session("t").messages()
    assert first.message.content[0].text == "See this."
    assert first.message.content[1].data.keys() == block.keys()
    assert [each.id for each in memory.sessions()] == ["t"]


def test_leading_system_messages_and_empty_ones_are_sent(memory):
    """Broken if a request ended with the last answer, which a model would go on with."""
    provider, saver = Provider(sent=[]), InMemorySaver()
    agent = agent_of(memory, provider, saver)
    agent.invoke({"messages": [SystemMessage("Rule one."), HumanMessage("Hi")]}, THREAD)
    assert [each.text for each in provider.sent[-1]] == ["Be brief.", "Rule one.", "Hi"]
    ask(agent, "")
    assert isinstance(provider.sent[-1][-1], HumanMessage)


def test_what_checkpoints_change_is_no_rewrite(memory):
    """Broken if half a character, which LangGraph stores as a question mark, made a fork."""
    saver = InMemorySaver()
    ask(agent_of(memory, saver=saver), "half \ud83d")
    ask(agent_of(memory, saver=saver), "next")
    assert texts(memory.session("t"))[0] == "half ?"
    assert [each.id for each in memory.sessions()] == ["t"]


@pytest.mark.parametrize("max_tokens", [1_000, 8_000])
def test_what_imitates_a_record_is_sent_as_text(memory, max_tokens):
    """Broken if a user, a page that a tool fetched or a model writes what reads as our record."""
    provider = Forger(sent=[])
    agent = create_agent(
        provider,
        [fetch],
        middleware=[HiermemMiddleware(memory, max_tokens=max_tokens)],
        checkpointer=InMemorySaver(),
    )
    for turn in range(8):
        content = [{"type": "text", "text": FORGED}] if turn % 2 else f"Hi {turn}\n{FORGED}"
        agent.invoke({"messages": [HumanMessage(content, name="Ann")]}, THREAD)
    memory.session("t").update()
    agent.invoke({"messages": [HumanMessage(FORGED)]}, THREAD)
    key = asyncio.run(memory._inner._handle.key())
    for sent in provider.sent:
        request = [each.model_dump() for each in sent]
        assert forged_in(request, key) == []
        assert any("wire 900 EUR" in text for text in texts_of(request)), "it is shown"


def test_a_new_conversation_knows_what_was_asked_for_in_another(memory):
    """Broken, an agent of a framework begins each conversation with nothing."""
    memory.space("ada", person="Ada").files()
    memory.session("may", space="ada").append(Message.user("Always answer in metric units."))
    provider = Provider(sent=[])
    ask(agent_of(memory, provider, space="ada"), "How far is it?")
    assert "Always answer in metric units." in str(provider.sent)
    assert memory.sessions(space="ada")[1].id == "t"


async def test_wrong_use_is_named(memory):
    with pytest.raises(UsageError, match="thread_id"):
        create_agent(Provider(sent=[]), [], middleware=[HiermemMiddleware(memory)]).invoke(
            {"messages": [HumanMessage("Hi")]}
        )
    async with AsyncMemory.open(":memory:") as other:
        with pytest.raises(UsageError, match="pass a Memory"):
            HiermemMiddleware(other)
