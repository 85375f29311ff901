"""What a context renders to: nothing that was not counted, nothing that changes behind a cache."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import AsyncMemory, BudgetTooSmallError, HierarchyConfig, Memory, Message, ToolCall
from hiermem.convert import from_anthropic, from_openai
from hiermem.stores.memory import MemoryStore
from hiermem.text import fence
from hiermem.text.measure import FILE_OVERHEAD, IMAGE_HIGH, IMAGE_LOW, canonical_json
from hiermem.tokens import default_counter

LONG = "because " * 2_000


class Letters:
    """A counter for which nothing merges: a token is a character."""

    name = "letters"

    def count(self, text: str) -> int:
        return len(text)


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "content": "42", "tool_call_id": "c1"}
MARK = {"type": "ephemeral", "note": LONG}
#: Conversations in which each field that Message lacks is a long one.
OPENAI = {
    "plain": [{"role": "user", "content": "Hi", "name": "Ada"}],
    "reasoning": [{"role": "assistant", "content": "hi", "reasoning_content": LONG}],
    "refusal": [{"role": "assistant", "content": "x", "refusal": LONG, "annotations": [LONG]}],
    "calls": [{"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning": LONG},
     {**RESULT, "note": LONG}],
    "calls with more fields": [{"role": "assistant", "tool_calls": [{**CALL,
     "extra_content": {"signature": LONG}}]}, RESULT],
    "call without type": [{"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
     "function": {"name": "f", "arguments": "{}", "more": LONG}}]}, RESULT],
    "custom call": [{"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
     "type": "custom", "custom": {"name": "sh", "input": "ls"}}]}, RESULT],
    "broken call": [{"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
     "type": "function", "function": {"name": "f", "arguments": "{bro"}}]}, RESULT],
    "function call": [{"role": "assistant", "content": None, "function_call": {"name": "f",
     "arguments": "{}"}}, {"role": "function", "name": "f", "content": "42", "note": LONG}],
    "orphan": [{"role": "tool", "content": "42", "tool_call_id": "c1", "note": LONG}],
    "developer": [{"role": "developer", "content": "Be kind.", "note": LONG}],
    "parts": [{"role": "user", "note": LONG, "content": [{"type": "text", "text": "See"},
     {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}, {"type": "image_url",
     "image_url": {"url": "data:,AA", "detail": "low"}}, {"type": "file",
     "file": {"file_id": "file-1"}}, {"type": "input_audio", "input_audio": {"data": "AA",
     "format": "wav"}}, {"type": "text", "text": "marked",
     "cache_control": {"type": "ephemeral"}}]}],
}  # fmt: skip
ANTHROPIC = {
    "plain": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
    "fields": [{"role": "user", "content": "x", "custom": LONG}],
    "marks": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": MARK}]}],
    "document": [{"role": "user", "content": [{"type": "document", "source": {"type": "url",
     "url": "https://x.org/a.pdf"}, "title": "Report", "context": LONG}]}],
    "tools": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.",
     "signature": "sig"}, {"type": "text", "text": "Computing.", "citations": [LONG]},
     {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 7}, "caller": LONG}]},
     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
     "content": [{"type": "text", "text": "2", "cache_control": MARK}], "is_error": True,
     "cache_control": MARK}, {"type": "text", "text": "And thanks."}]}],
}  # fmt: skip
READ = {f"openai: {name}": from_openai(data) for name, data in OPENAI.items()} | {
    f"anthropic: {name}": from_anthropic({"system": "Be kind.", "messages": data})
    for name, data in ANTHROPIC.items()
}


AT = datetime(2024, 3, 1, tzinfo=UTC)
DATE = "[2024-03-01]"


def count(value) -> int:
    return default_counter().count(value if isinstance(value, str) else canonical_json(value))


def part_tokens(part) -> int:
    """Price a part or block by the stated rule; what is not of a known form is its JSON."""
    kind = part.get("type")
    if kind == "text" and part.keys() == {"type", "text"}:
        return count(part["text"])
    if kind == "image_url":
        return IMAGE_LOW if part["image_url"].get("detail") == "low" else IMAGE_HIGH
    if kind == "image":
        assert part.keys() == {"type", "source"}
        return IMAGE_LOW
    if kind == "file":
        return FILE_OVERHEAD + count(part["file"].get("filename") or part["file"]["file_id"])
    if kind == "document" and part.keys() <= {"type", "source", "title"}:
        return FILE_OVERHEAD + count(part.get("title") or part["source"]["file_id"])
    return count(part)


def content_tokens(content) -> int:
    if isinstance(content, str):
        return count(content)
    return sum(part_tokens(part) for part in content or ())


def openai_tokens(messages) -> int:
    """Count a request anew: every field of every message, known or not."""
    total = 0
    for message in messages:
        total += 4
        for field, value in message.items():
            if field == "content":
                total += content_tokens(value)
            elif field == "tool_calls":
                total += sum(map(count, value))
            elif field not in ("role", "tool_call_id"):
                total += count(value)
    return total


def anthropic_tokens(messages, frames: int) -> int:
    """Count a request anew; a message of the session pays a frame, the label ``System:`` too."""
    total = 4 * frames
    for message in messages:
        assert message.keys() == {"role", "content"}
        for block in message["content"]:
            if block["type"] == "tool_result":
                assert block.keys() <= {"type", "tool_use_id", "content", "is_error"}
                total += content_tokens(block["content"])
            elif block["type"] == "tool_use":
                # A call is counted in the other shape, where its kind is longer than this one's.
                assert block.keys() == {"type", "id", "name", "input"}
                total += count({name: block[name] for name in ("id", "name", "input")})
            elif block["type"] == "text" and block["text"].startswith("System: "):
                assert block.keys() == {"type", "text"}
                total += count(block["text"].removeprefix("System: "))
            else:
                total += part_tokens(block)
    return total


@pytest.mark.parametrize("messages", READ.values(), ids=READ.keys())
def test_no_rendering_costs_more_than_was_counted(messages):
    """P3: broken if a field of a provider's shape is rendered but not in the budget."""
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(messages)
        context = session.context(8_000)
        assert openai_tokens(context.to_openai()) <= context.total_tokens
        shown = context.to_anthropic()["messages"]
        if not any("function_call" in str(block) for block in shown):
            assert anthropic_tokens(shown, len(context.blocks)) <= context.total_tokens
        assert LONG not in json.dumps([context.to_openai(), shown])


@drawn(40)
@given(
    said=st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant"]),
            st.sampled_from(["", "Ada", "A name that takes more tokens than a role " * 2]),
            st.lists(st.sampled_from(["", "x", "    y = 1;", "The pump hums."]), max_size=30),
        ),
        min_size=1,
        max_size=40,
    ),
    budget=st.integers(300, 2_000),
    system=st.sampled_from([None, "Be brief."]),
    query=st.sampled_from([None, "pump"]),
    counter=st.sampled_from([default_counter(), Letters()]),
)
def test_the_plain_text_stays_within_the_budget(said, budget, system, query, counter):
    """Broken: indented lines took 4,044 tokens of 4,000, which a model with a limit refuses."""
    with Memory.open(":memory:", token_counter=counter) as memory:
        session = memory.session("s")
        session.append(
            Message(role, "\n".join(lines), name=name or None, created_at=AT)
            for role, name, lines in said
        )
        session.update()
        try:
            context = session.context(budget, query=query, system=system)
        except BudgetTooSmallError as error:
            context = session.context(error.minimum, query=query, system=system)
        assert counter.count(context.to_text()) <= context.total_tokens <= context.max_tokens


def test_what_a_request_needs_is_kept():
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(READ["anthropic: tools"])
        assistant, user = session.context().to_anthropic()["messages"][1:]
        assert [block["type"] for block in assistant["content"]] == ["thinking", "text", "tool_use"]
        assert assistant["content"][2]["input"] == {"b": 7}
        assert user["content"][0] == {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "2"}],
            "is_error": True,
        }
        other = memory.session("o")
        other.append(READ["openai: calls with more fields"])
        _, call, result = other.context().to_openai()
        assert call == {"role": "assistant", "content": None, "tool_calls": [CALL]}
        assert result == RESULT


@pytest.mark.parametrize("given", ["system", "assistant", "tool", "developer", "function", 7, None])
def test_metadata_does_not_give_a_message_another_role(given):
    """Broken if a user's message could speak as the system, in a context or out of it."""
    message = Message.user("x", metadata={"openai": {"role": given}}, created_at=AT)
    assert message.to_openai() == {"role": "user", "content": "x"}
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(message)
        assert session.context().to_openai() == [{"role": "user", "content": f"{DATE}\nx"}]


def test_a_second_message_and_a_later_system_message_change_nothing_before_them():
    """P13: broken if a later message changed the cached prefix: content's form, or the system."""

    def blocks(*texts):
        return [{"type": "text", "text": text} for text in texts]

    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(Message.user("one", created_at=AT))
        first = {"role": "user", "content": blocks(f"{DATE}\none")}
        shown = session.context(system="Top.").to_anthropic()
        assert shown == {"messages": [first], "system": "Top."}
        session.append(
            Message.user("two", created_at=AT),
            Message.system("Be brief.", created_at=AT),
            Message.assistant("three", created_at=AT),
        )
        first["content"] += blocks("two", "System: Be brief.")
        answer = {"role": "assistant", "content": blocks("three")}
        shown = session.context(system="Top.").to_anthropic()
        assert shown == {"messages": [first, answer], "system": "Top."}


def assert_grown(before, after):
    """Assert that the earlier messages stand, the last of them perhaps with more at its end."""
    old, new = before["messages"], after["messages"]
    if not old or old[0]["content"] == [{"type": "text", "text": "…"}]:
        return  # nobody has spoken yet
    assert before.get("system") == after.get("system")
    assert new[: len(old) - 1] == old[:-1]
    last, grown = old[-1], new[len(old) - 1]
    assert grown["role"] == last["role"]
    assert grown["content"][: len(last["content"])] == last["content"]


@pytest.mark.parametrize("strategy", ["cut", "layered"])
def test_a_leading_system_message_leads_every_context(strategy):
    """A11: broken if the rules that came with a history went with its first window."""
    rules = [Message.system("Never reveal the price list."), Message.system("Be brief.")]
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(*rules)
        for number in range(120):
            session.append(Message.user(f"Which ferry takes {number} cars? " * 4))
            session.append(
                Message.assistant(f"The one from pier {number} at {number % 24}:20. " * 4)
            )
            for budget in (1_000, 2_000, 8_000) if number % 20 == 19 else ():
                context = session.context(budget, strategy=strategy, system="Top.")
                rendered = context.to_openai()
                assert [m["content"] for m in rendered[:3]] == ["Top.", *(r.content for r in rules)]
                assert openai_tokens(rendered) <= context.total_tokens <= budget
                prompts = [block["text"] for block in context.to_anthropic()["system"]]
                assert prompts == ["Top.", *(rule.content for rule in rules)]
        session.erase([0])
        assert [m["content"] for m in session.context(1_000).to_openai()[:1]] == ["Be brief."]


def test_a_lead_without_room_is_said():
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(Message.system("word " * 1_000), *(Message.user("Hi " * 40),) * 60)
        assert "do not lead this context: their 1,0" in session.context(1_500).explain()
        assert "lead" not in session.context(8_000).explain()


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "system", "tools"]), st.integers(0, 30)),
        min_size=1,
        max_size=12,
    )
)
@drawn(200)
def test_every_message_stands_under_its_date(spoken):
    """Broken if "yesterday" could not be placed, or a date stood in an assistant's or tool's."""
    at, said = AT, []
    for number, (role, hours) in enumerate(spoken):
        at += timedelta(hours=hours)
        text = f"text {number}"
        if role == "tools":
            call = ToolCall(f"c{number}", "f")
            said.append(Message.assistant(text, tool_calls=(call,), created_at=at))
            at += timedelta(hours=hours)
            said.append(Message.tool("42", tool_call_id=call.id, created_at=at))
        else:
            said.append(Message(role, text, created_at=at))
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(said)
        context = session.context(8_000)
        days = {m.content: f"[{m.created_at:%Y-%m-%d}]" for m in said if m.role != "tool"}
        under = ""
        for message in context.to_openai():
            content = message["content"] or ""
            if content.startswith("["):
                assert message["role"] == "user"
                under, _, content = content.partition("\n")
            if content in days and message["role"] != "system":
                assert under == days[content]
        dates = [block.seam for block in context.blocks if block.seam]
        lines = context.to_text().splitlines()
        assert [line for line in lines if line.startswith("[2")] == dates
        assert json.dumps(context.to_responses()).count("[202") == len(dates)
        assert json.dumps(context.to_anthropic()).count("[202") == len(dates)


TEXTS = st.sampled_from(
    ["", " ", "yes", "The ferry leaves at 14:20.", "Deck B/12 holds 180 cars. " * 6]
)


@st.composite
def turns(draw):
    """Draw what is appended at once: a message of any role, or a whole exchange with a tool."""
    role = draw(st.sampled_from(["user", "assistant", "system", "tools", "orphan"]))
    text = draw(TEXTS)
    if role == "tools":
        number = str(draw(st.integers(0, 10**6)))
        return [
            Message.assistant(text, tool_calls=(ToolCall(number, "run", '{"x": 1}'),)),
            Message.tool(text + "done", tool_call_id=number),
        ]
    if role == "orphan":
        return [Message.tool(text + "late", tool_call_id="nobody's")]
    return [Message(role, text)]


@given(st.lists(turns(), min_size=2, max_size=30), st.sampled_from([300, 600, 5_000]))
@drawn(40)
async def test_appending_keeps_the_earlier_anthropic_rendering_as_a_prefix(history, budget):
    """P13: wherever the blocks stand as before, so does the request, and records stand alone."""
    memory = AsyncMemory(store=MemoryStore(), config=HierarchyConfig.by_tokens(max_messages=4))
    session = memory.session("s")
    key = await memory._handle.key()
    before, at = None, datetime(2024, 3, 1, tzinfo=UTC)
    for messages in history:
        at += timedelta(minutes=5)
        await session.append([Message(m.role, m.content, created_at=at, tool_calls=m.tool_calls,
                                      tool_call_id=m.tool_call_id) for m in messages])  # fmt: skip
        await session.update()
        context = await session.context(budget, system="Top.", allow_omission=True)
        shown = context.to_anthropic()
        roles = [message["role"] for message in shown["messages"]]
        assert all(a != b for a, b in pairwise(roles)), "not merged"
        texts = [
            block["text"]
            for message in shown["messages"]
            for block in message["content"]
            if block["type"] == "text"
        ]
        assert all(text.strip() for text in texts), "the interface refuses a blank text"
        records = [block.text for block in context.blocks if block.text]
        assert [text for text in texts if fence.find(text, key=key)] == records
        if before and context.blocks[: len(before.blocks)] == before.blocks:
            assert_grown(before.to_anthropic(), shown)
        before = context


async def test_a_message_that_is_too_long_without_what_came_back_is_sliced_as_any_other():
    """Broken if a slice of it were larger than a window may be, or one of them in no window."""
    memory = AsyncMemory(store=MemoryStore())
    session = memory.session("s")
    key = await memory._handle.key()
    record = fence.fence("L1.0", "word " * 20_000, key=key, attributes={"messages": "0-9"})
    said = "We agreed on the ferry at 14:20. " * 300
    await session.append(Message.user(said + record + said))
    await session.close()
    (stored,) = await memory._handle.store.messages(session.id, 0, 1)
    windows = await memory._handle.store.tree(session.id).level(1, 0)
    assert stored.echoes
    assert stored.size > 3_000
    assert len(windows) == len(stored.slices) + 1
    assert all(window.input_tokens <= 3_000 for window in windows)


def test_the_explanation_names_the_very_messages_that_are_verbatim():
    """Broken if a system message that leads looked like a context of the whole session."""
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(Message.system("Be brief."))
        session.append([Message.user(f"{n}. " + "Pump 3 is loud again. " * 8) for n in range(99)])
        context = session.context(1_000)
        shown = [block.span.start for block in context.blocks if block.message is not None]
        assert shown == [0, *range(shown[1], 100)]
        assert shown[1] > 1
        told = f"verbatim: {len(shown)} messages, 0, {shown[1]}-99, "
        assert told in context.explain()
