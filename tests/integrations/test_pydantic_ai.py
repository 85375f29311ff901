"""The capability for pydantic-ai: the history is untouched, the session whole, requests bounded."""

import asyncio
from dataclasses import replace

import pytest

pytest.importorskip("pydantic_ai")

from forged import FORGED, forged_in, texts_of
from pydantic_ai import Agent, BinaryContent, ImageUrl, ModelRetry
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    AudioUrl,
    CachePoint,
    DocumentUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models.function import FunctionModel

from hiermem import AsyncMemory, Memory, Message, UsageError
from hiermem.integrations.pydantic_ai import HiermemCapability


class Provider:
    """Calls the tool where it is asked to look, else answers; keeps what it was sent."""

    def __init__(self):
        self.sent = []

    def __call__(self, messages, info):
        self.sent.append(messages)
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart) and "look" in str(last.content):
            calls = [ToolCallPart("look", {"n": n}, f"c{len(self.sent)}-{n}") for n in range(2)]
            return ModelResponse([ThinkingPart("hm", signature="s"), TextPart("So."), *calls])
        if isinstance(last, ToolReturnPart) and "fail" in str(last.content):
            return ModelResponse([ToolCallPart("look", {"n": 0}, f"c{len(self.sent)}")])
        return ModelResponse([TextPart(f"Answer {len(self.sent)} to {str(last.content)[:20]}")])


@pytest.fixture
def memory():
    with Memory.open(":memory:") as opened:
        yield opened


def agent_of(memory, provider, **settings):
    agent = Agent(
        FunctionModel(provider),
        system_prompt="Be brief.",
        capabilities=[HiermemCapability(memory, **settings)],
    )

    @agent.tool_plain
    def look(n: int) -> str:
        """Look."""
        return f"seen {n}"

    return agent


def texts(session):
    return [each.content for each in session.messages()]


def prompts(messages):
    return [
        part.content
        for message in messages
        for part in message.parts
        if part.part_kind in ("user-prompt", "text")
    ]


async def ask(agent, text, history=None):
    result = await agent.run(text, conversation_id="t", message_history=history)
    return result.all_messages()


@pytest.mark.parametrize("given", ["history", "nothing"])
async def test_history_and_session_are_whole_while_requests_stay_within_the_budget(memory, given):
    """Broken if a message were lost or stored twice, or a call parted from its results."""
    provider = Provider()
    agent = agent_of(memory, provider, max_tokens=1_000)
    history = None
    for turn in range(30):
        text = f"{turn}: look at this. " + "There is more to it. " * 10
        new = await ask(agent, text, history)
        history = new if given == "history" else None
    assert len(new) == (30 * 4 if given == "history" else 4)
    session = memory.session("t")
    assert session.count() == 30 * 5
    assert session.context(1_000).coverage == 1.0
    assert [each.id for each in memory.sessions()] == ["t"]
    assert max(map(len, provider.sent)) < 40
    for sent in provider.sent:
        parts = [part for message in sent for part in message.parts]
        assert [p.content for p in parts if p.part_kind == "system-prompt"] == ["Be brief."]
        calls = [p.tool_call_id for p in parts if isinstance(p, ToolCallPart)]
        assert calls == [p.tool_call_id for p in parts if isinstance(p, ToolReturnPart)]
        thoughts = [p.signature for p in parts if isinstance(p, ThinkingPart)]
        assert len(thoughts) == len(calls) / 2, "what a provider reads stays with its call"


async def test_a_rewritten_history_goes_on_in_a_fork_that_the_metadata_name(memory):
    """Broken if the model were shown what the application took back, or the session lost it."""
    provider = Provider()
    agent = agent_of(memory, provider)
    history = await ask(agent, "two", await ask(agent, "one"))
    third = await ask(agent, "zwei", history[:2])
    assert prompts(provider.sent[-1]) == ["one", "Answer 1 to one", "zwei"]
    root = memory.session("t")
    assert texts(root) == ["one", "Answer 1 to one", "two", "Answer 2 to two"]
    fork = memory.session(root.get_metadata()["continues_in"])
    assert texts(fork)[2:] == ["zwei", "Answer 3 to zwei"]
    await ask(agent_of(memory, provider), "three", third)  # as another process would
    await ask(agent_of(memory, provider), "four")
    assert texts(fork)[4::2] == ["three", "four"]
    assert len(memory.sessions()) == 2


async def test_what_was_edited_or_erased_in_the_session_is_not_sent(memory):
    """Broken if a correction, or an erasure, were undone by the history that comes back."""
    provider = Provider()
    agent = agent_of(memory, provider)
    history = await ask(agent, "and my pin is 1234", await ask(agent, "my number is 555"))
    memory.session("t").edit(0, "my number is secret")
    memory.session("t").erase([2])
    await ask(agent, "go on", history)
    assert prompts(provider.sent[-1]) == [
        "my number is secret", "Answer 1 to my number is 555", "Answer 2 to and my pin is 1234",
        "go on",
    ]  # fmt: skip
    assert len(memory.sessions()) == 1


async def test_a_run_that_ends_in_an_error_can_be_repeated(memory):
    """Broken if the question of a run that failed were stored twice, or cost the history."""
    provider = Provider()
    history = await ask(agent_of(memory, provider), "one")

    def fails(messages, info):
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        await ask(agent_of(memory, fails), "two", history)
    await ask(agent_of(memory, provider), "two", history)
    assert texts(memory.session("t")) == ["one", "Answer 1 to one", "two", "Answer 2 to two"]
    assert len(memory.sessions()) == 1


async def test_a_processor_that_rewrites_a_run_leads_to_a_fork(memory):
    """Broken if messages that another capability took out of a run were shown to the model."""
    provider = Provider()
    agent = agent_of(memory, provider)
    await ask(agent, "before")

    @agent.tool
    def forget(ctx) -> str:
        """Forget."""
        ctx.messages[0].parts = [UserPromptPart("[redacted]")]
        return "done"

    def model(messages, info):
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return provider(messages, info)
        return ModelResponse([ToolCallPart("forget", {}, "f1")])

    with agent.override(model=FunctionModel(model)):
        await ask(agent, "a secret")
    assert "a secret" not in str(provider.sent[-1])
    assert prompts(provider.sent[-1])[:3] == ["before", "Answer 1 to before", "[redacted]"]
    root = memory.session("t")
    assert texts(root)[2] == "a secret"
    assert root.get_metadata()["continues_in"] in {each.id for each in memory.sessions()}


async def test_a_change_for_one_request_is_no_rewrite(memory):
    """Broken if a capability before this one, which changes each request, made forks."""

    class Remind(AbstractCapability):
        async def before_model_request(self, ctx, request_context):
            reminder = ModelRequest([UserPromptPart("Hurry.")])
            return replace(request_context, messages=[reminder, *request_context.messages])

    model = FunctionModel(Provider())
    agent = Agent(model, capabilities=[Remind(), HiermemCapability(memory)])
    history = None
    for turn in range(3):
        history = await ask(agent, f"{turn}", history)
    assert [each.id for each in memory.sessions()] == ["t"]
    assert memory.session("t").count() == 6


async def test_images_retries_and_native_calls_are_kept(memory):
    """Broken if what is no text was lost, or sent as something else to the next run."""
    native = [
        NativeToolCallPart("web_search", {"query": "q"}, tool_call_id="n1"),
        NativeToolReturnPart("web_search", "it", tool_call_id="n1"),
    ]
    answers = [
        ModelResponse([ToolCallPart("check", {"n": 1}, "c1")]),
        ModelResponse([ToolCallPart("draw", {}, "c2")]),
        ModelResponse([*native, TextPart("Two pictures.")]),
        ModelResponse([TextPart("Yes.")]),
    ]
    sent = []

    def model(messages, info):
        sent.append(messages)
        return answers[len(sent) - 1]

    agent = Agent(FunctionModel(model), capabilities=[HiermemCapability(memory)])

    @agent.tool_plain
    def check(n: int) -> str:
        """Check."""
        raise ModelRetry("not like this")

    image, picture = (
        ImageUrl("https://example.org/a.png"),
        BinaryContent(b"\x89PNG", media_type="image/png"),
    )

    @agent.tool_plain
    def draw():
        return picture

    await ask(agent, ["What?", image, picture])
    await ask(agent, "Sure?")
    first, call, retry, drawing, drawn, answer, last = sent[-1]
    assert first.parts[0].content[:2] == ["What?", image]
    assert drawing.parts[0].tool_call_id == drawn.parts[0].tool_call_id == "c2"
    assert (drawn.parts[0].tool_name, drawn.parts[0].files[0].data) == ("draw", b"\x89PNG")
    assert first.parts[0].content[2].data == b"\x89PNG"
    assert call.parts[0].tool_call_id == retry.parts[0].tool_call_id == "c1"
    assert (retry.parts[0].content, retry.parts[0].outcome) == ("not like this", "retried")
    assert [type(part) for part in answer.parts[:2]] == [type(part) for part in native]
    assert (answer.parts[1].content, answer.parts[2].content) == ("it", "Two pictures.")
    assert prompts([last]) == ["Sure?"]


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("retry", ["not like this", '{"error": 1}', ""])
async def test_a_later_run_is_sent_the_very_bytes_of_an_earlier_one(memory, edited, retry):
    """Broken if a retry came back as a success, or arguments in another spelling: the provider
    would read its cached prompt again from there on. What was edited is sent as edited.
    """
    sent = []

    def model(messages, info):
        sent.append(messages)
        if len(sent) == 1:
            spelt = ['{"n":  1}', {"n": 2}, '{"n": "x"}', "{", ""]
            return ModelResponse([ToolCallPart("check", a, f"c{n}") for n, a in enumerate(spelt)])
        return ModelResponse([TextPart("good" if len(sent) > 2 else "bad")])

    agent = Agent(FunctionModel(model), capabilities=[HiermemCapability(memory)])

    @agent.tool_plain(retries=3)
    def check(n: int) -> str:
        """Check."""
        if n == 1:
            raise ModelRetry(retry)
        return f"seen {n}"

    @agent.output_validator
    def judge(text: str) -> str:
        if text == "bad":
            raise ModelRetry("a better one")
        return text

    await ask(agent, "What?")
    if edited:
        memory.session("t").edit(2, "[removed]")
    await ask(agent, "Sure?")
    before, after = (
        [part for message in messages for part in message.parts] for messages in sent[-2:]
    )
    assert "a better one" in str(before[-1].content), "feedback that answers no call"
    after = after[: len(before)]
    if edited:
        place = next(n for n, part in enumerate(before) if part.part_kind == "tool-return")
        assert (after[place].content, after[place].tool_call_id) == ("[removed]", "c0")
        del before[place], after[place]
    for one, other in zip(before, after, strict=True):
        same_time = {"timestamp": one.timestamp} if hasattr(one, "timestamp") else {}
        assert replace(other, **same_time) == one


@pytest.mark.parametrize(
    "item",
    [
        BinaryContent(b"%PDF", media_type="application/pdf"),
        DocumentUrl("https://example.org/a.pdf"),
        DocumentUrl("https://example.org/a"),
        AudioUrl("https://example.org/a.mp3"),
        VideoUrl("https://example.org/a"),
        UploadedFile(file_id="f", provider_name="openai"),
        TextContent(content="a note", metadata={"source": "x"}),
    ],
)
async def test_files_are_sent_to_the_next_run_too(memory, item):
    """Broken if what a person attached were gone from the conversation with the run."""
    provider = Provider()
    agent = agent_of(memory, provider)
    await ask(agent, ["Read this.", CachePoint(), item])
    await ask(agent, "And?")
    [found] = [
        part.content
        for message in provider.sent[-1]
        for part in message.parts
        if part.part_kind == "user-prompt" and part.content != "And?"
    ]
    assert found[0] == "Read this."
    if isinstance(item, TextContent):
        assert found[1:] == ["a note"]
    else:
        [back] = found[1:]
        assert type(back) is type(item)
        assert all(
            getattr(back, name) == getattr(item, name)
            for name in ("url", "data", "file_id")
            if hasattr(item, name)
        )


async def test_a_run_without_a_prompt_is_a_run(memory):
    """Broken if a context that shows nothing of it ended the run: instructions alone suffice."""
    provider = Provider()
    agent = Agent(
        FunctionModel(
            lambda messages, _: provider.sent.append(messages) or ModelResponse([TextPart("So.")])
        ),
        instructions="Say something.",
        capabilities=[HiermemCapability(memory)],
    )
    for prompt in (None, "", None):
        await agent.run(prompt, conversation_id="t")
        assert isinstance(provider.sent[-1][-1], ModelRequest)
    assert [each.content for each in memory.session("t").messages()] == ["So.", "", "So.", "So."]


async def test_two_runs_of_one_conversation_at_once(memory):
    """Broken if the answer to one run ended the other, or a call lost its result."""
    provider = Provider()
    agent = agent_of(memory, provider)
    await asyncio.gather(*(ask(agent, f"{number} look") for number in range(5)))
    await ask(agent, "End.")
    assert memory.session("t").count() == 5 * 5 + 2
    parts = [part for message in provider.sent[-1] for part in message.parts]
    calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    assert calls == [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]


async def test_a_run_is_shown_what_came_before_it_and_its_own(memory, monkeypatch):
    """Broken if a model answered the prompt of another run, or a call stood without its result."""
    session, keep = memory.session("t"), HiermemCapability._keep
    session.append(Message.user("Before."))

    def keep_while_another_speaks(self, ctx, messages):
        kept = keep(self, ctx, messages)
        session.append(Message.assistant("Another answer."), Message.user("Another prompt."))
        return kept

    monkeypatch.setattr(HiermemCapability, "_keep", keep_while_another_speaks)
    provider = Provider()
    await ask(agent_of(memory, provider), "Now look.")
    first, second = provider.sent
    assert prompts(first) == ["Before.", "Now look."]
    assert prompts(second) == ["Before.", "Now look.", "So."]
    parts = [part for message in second for part in message.parts]
    calls = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    assert calls == ["c1-0", "c1-1"]
    assert calls == [part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)]
    assert texts(session).count("Another prompt.") == 3
    assert texts(session)[-3] == "Answer 2 to seen 1"


@pytest.mark.parametrize("max_tokens", [1_000, 8_000])
async def test_what_imitates_a_record_is_sent_as_text(memory, max_tokens):
    """Broken if a user, a page that a tool fetched or a model writes what reads as our record."""
    sent = []

    def forge(messages, info):
        sent.append(messages)
        calls = []
        if isinstance(messages[-1].parts[-1], UserPromptPart):
            arguments = {"text": FORGED}
            calls = [ToolCallPart("fetch", arguments, f"c{len(sent)}")]
        return ModelResponse([TextPart(FORGED), *calls])

    capability = HiermemCapability(memory, max_tokens=max_tokens)
    agent = Agent(FunctionModel(forge), capabilities=[capability])

    @agent.tool_plain
    def fetch(text: str) -> str:
        """Fetch."""
        return text

    history = None
    for turn in range(8):
        prompt = [TextContent(FORGED)] if turn % 2 else f"Hi {turn}\n{FORGED}"
        history = await ask(agent, prompt, history)
    await memory._inner.session("t").update()
    await ask(agent, FORGED, history)
    await ask(agent, FORGED)
    key = await memory._inner._handle.key()
    for messages in sent:
        request = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        assert forged_in(request, key) == []
        assert any("wire 900 EUR" in text for text in texts_of(request)), "it is shown"


async def test_a_new_conversation_knows_what_was_asked_for_in_another(memory):
    """Broken, an agent of a framework begins each conversation with nothing."""
    memory.space("ada", person="Ada").files()
    memory.session("may", space="ada").append(Message.user("Always answer in metric units."))
    provider = Provider()
    await ask(agent_of(memory, provider, space="ada"), "How far is it?")
    assert "Always answer in metric units." in str(provider.sent)
    assert memory.sessions(space="ada")[1].id == "t"


async def test_wrong_use_is_named():
    async with AsyncMemory.open(":memory:") as other:
        with pytest.raises(UsageError, match="pass a Memory"):
            HiermemCapability(other)
