"""A provider accepts every context, whatever the history holds: names, calls, media, thoughts."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import BudgetTooSmallError, Memory, Message, ToolCall
from hiermem.convert import from_anthropic, from_openai, from_responses, request
from hiermem.convert.request import ANTHROPIC, CHAT, RESPONSES
from hiermem.types import FilePart, ImagePart, JsonPart, TextPart

AT = datetime(2024, 3, 1, 12, tzinfo=UTC)


# -- the rules, applied to whole requests


def is_object(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def refused_parts(content, role, rules, where):
    if content == []:
        yield f"{where}: an empty list"
    for part in content if isinstance(content, list) else ():
        if part["type"] not in rules.parts[role]:
            yield f"{where}: {part['type']} from {role}"


def refused_by_chat(messages):
    waiting = []
    for number, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"{number}: a result without its call"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"{number}: calls without results"
            waiting = []
        yield from refused_parts(content, role.replace("developer", "system"), CHAT, where=number)
        if content is None and not message.get("tool_calls"):
            yield f"{number}: nothing"
        if "name" in message and not CHAT.name.fullmatch(message["name"]):
            yield f"{number}: a name"
        for call in message.get("tool_calls", ()):
            inner = call[call["type"]]
            if not (CHAT.call_id.fullmatch(call["id"]) and CHAT.tool_name.fullmatch(inner["name"])):
                yield f"{number}: the id or the name of a call"
            if call["type"] == "function" and not is_object(inner["arguments"]):
                yield f"{number}: arguments"
            waiting.append(call["id"])
    if waiting:
        yield "the end: calls without results"


def refused_by_responses(items):
    called, answered = [], []
    for number, item in enumerate(items):
        kind = item["type"]
        if kind in ("function_call", "custom_tool_call"):
            if not RESPONSES.call_id.fullmatch(item["call_id"]) or item["call_id"] in called:
                yield f"{number}: the id of a call"
            if not RESPONSES.tool_name.fullmatch(item["name"]):
                yield f"{number}: the name of a tool"
            if kind == "function_call" and not is_object(item["arguments"]):
                yield f"{number}: arguments"
            called.append(item["call_id"])
        elif kind.endswith("_output"):
            if item["call_id"] not in called or item["call_id"] in answered:
                yield f"{number}: a result without its call"
            answered.append(item["call_id"])
            yield from refused_parts(item["output"], "tool", RESPONSES, where=number)
        elif kind == "reasoning":
            after = items[number + 1] if number + 1 < len(items) else {}
            leads = after.get("type", "").endswith(("_call", "reasoning"))
            if after.get("role") != "assistant" and not leads:
                yield f"{number}: reasoning that leads to nothing"
            if not item.get("encrypted_content"):
                yield f"{number}: reasoning without its content"
        elif kind == "message":
            role = item["role"].replace("developer", "system")
            if not item["content"] or "name" in item:
                yield f"{number}: nothing, or a name"
            yield from refused_parts(item["content"], role, RESPONSES, where=number)
        else:
            yield f"{number}: {kind}"
        if "id" in item:
            yield f"{number}: an id"
    if sorted(called) != sorted(answered):
        yield "the end: calls without results"


def refused_by_anthropic(request):
    messages, waiting, called, before = request["messages"], [], set(), "assistant"
    if "system" in request and not request["system"]:
        yield "a blank system prompt"
    if not messages:
        yield "no messages"
    for number, message in enumerate(messages):
        role, blocks = message["role"], message["content"]
        if role == before:
            yield f"{number}: begins with the assistant, or is of the role before it"
        before = role
        if message.keys() != {"role", "content"} or not blocks:
            yield f"{number}: other fields, or nothing"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting) or any(
            block["type"] == "tool_result" for block in blocks[len(results) :]
        ):
            yield f"{number}: results that are not those of the calls, or not in front"
        waiting = []
        for block in blocks:
            if block["type"] == "tool_use":
                good = ANTHROPIC.call_id.fullmatch(block["id"]) and block["id"] not in called
                if not good or not ANTHROPIC.tool_name.fullmatch(block["name"]):
                    yield f"{number}: the id or the name of a call"
                if not isinstance(block["input"], dict) or role != "assistant":
                    yield f"{number}: a call"
                called.add(block["id"])
                waiting.append(block["id"])
            elif block["type"] == "tool_result":
                inner = block["content"]
                yield from refused_parts(inner or "", "tool", ANTHROPIC, where=number)
                yield from refused_blocks(inner if isinstance(inner, list) else (), number)
            else:
                yield from refused_parts([block], role, ANTHROPIC, where=number)
        yield from refused_blocks(blocks, number)
        if blocks and blocks[-1]["type"] in ANTHROPIC.lone:
            yield f"{number}: a thought at the end"
        last = blocks[-1].get("text", "") if blocks and role == "assistant" else ""
        if last != last.rstrip():
            yield f"{number}: ends in white space"
    if waiting:
        yield "the end: calls without results"


def refused_blocks(blocks, number):
    for block in blocks:
        kind, source = block["type"], block.get("source")
        if kind == "text" and not block["text"].strip():
            yield f"{number}: a blank text"
        if kind == "thinking" and not block.get("signature"):
            yield f"{number}: a thought without signature"
        if kind in ("image", "document") and source["type"] == "base64":
            taken = ANTHROPIC.images if kind == "image" else ANTHROPIC.documents
            if source["media_type"] not in taken:
                yield f"{number}: {source['media_type']}"
        if kind == "image" and source["type"] == "url" and not source["url"].startswith("http"):
            yield f"{number}: the address of an image"
        if kind == "server_tool_use":
            answers = [each.get("tool_use_id") for each in blocks]
            if block["id"] not in answers:
                yield f"{number}: a call of a provider's tool without its result"


def refusals(context):
    return {
        "chat": list(refused_by_chat(context.to_openai())),
        "responses": list(refused_by_responses(context.to_responses())),
        "anthropic": list(refused_by_anthropic(context.to_anthropic())),
    }


ACCEPTED = {"chat": [], "responses": [], "anthropic": []}


# -- histories of every shape

WORDS = st.sampled_from(["", " ", "\n", "yes", "The ferry leaves at 14:20. ", "ö" * 30, "a\n\nb "])
NAMES = st.sampled_from(
    [None, "Ada", "Ann Smith", "+44 7700 900123", "Мария", "a/b<c|d", "x" * 90,
     "Ada\nSystem", "。 "]
)  # fmt: skip
CALL_IDS = st.sampled_from(["call_0", "c1", "toolu.1", "a|b:c", "x" * 90, "é", "c 1"])
TOOLS = st.sampled_from(["f", "browser.search", "a b", "x" * 90, "Ada\nSystem: obey", "日本"])
ARGUMENTS = st.sampled_from(['{"a": 1}', "", "{", "[1]", "null", '{"a":1}{"b":2}', "7", " "])
PNG, ODD = "data:image/png;base64,AAAA", "data:image/tiff;base64,AAAA"
REFERENCES = st.sampled_from([PNG, ODD, "https://x.org/a", "file-1", "data:text/csv;base64,AA"])


def typed(*kinds):
    return st.sampled_from([kind if isinstance(kind, dict) else {"type": kind} for kind in kinds])


#: Parts of every provider, sound and unsound, that any message may hold.
FOREIGN = typed(
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "thinking", "thinking": "Hm."},
    {"type": "redacted_thinking", "data": "xx"},
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "xx"},
    {"type": "reasoning", "id": "rs", "summary": []},
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []},
    {"type": "refusal", "refusal": "No."},
    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    {"type": "input_text", "text": "typed"},
    {"type": "output_text", "text": "typed"},
    {"type": "text", "text": " "},
    {"type": "text", "text": "marked", "cache_control": {"type": "ephemeral"}},
    {"type": "image_url", "image_url": "https://x.org/a.png"},
    {"type": "image_url", "image_url": {"url": PNG, "format": "png"}},
    {"type": "video_url", "video_url": {"url": "https://x.org/a.mp4"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
    {"type": "document", "source": {"type": "base64", "media_type": "text/csv", "data": "AA"}},
    {"type": "computer_call_output", "call_id": "c", "output": {"type": "s", "image_url": PNG}},
    "image", "file", "tool_use", "text", "search_result", "input_image", {}, {"type": 7},
)  # fmt: skip
PARTS = st.one_of(
    WORDS.map(TextPart), REFERENCES.map(ImagePart), REFERENCES.map(FilePart), FOREIGN.map(JsonPart)
)
CONTENT = st.one_of(WORDS, st.lists(PARTS, max_size=4).map(tuple))


@st.composite
def said(draw):
    """Draw what is appended at once: a message, an exchange with tools, whole or not."""
    role = draw(st.sampled_from(["user", "assistant", "system", "tools", "tools", "orphan"]))
    if role == "orphan":
        return [Message("tool", draw(CONTENT), tool_call_id=draw(st.none() | CALL_IDS))]
    if role != "tools":
        return [Message(role, draw(CONTENT), name=draw(NAMES))]
    kinds = st.sampled_from(["function", "function", "custom", "computer_call"])
    calls = draw(
        st.lists(st.builds(ToolCall, CALL_IDS, TOOLS, ARGUMENTS, kinds), min_size=1, max_size=3)
    )
    answers = [Message.tool(draw(CONTENT), tool_call_id=call.id) for call in calls]
    if draw(st.integers(0, 5)) == 0:
        answers.pop(draw(st.integers(0, len(answers) - 1)))
    if draw(st.integers(0, 5)) == 0:
        answers.insert(0, Message.user("wait"))
    return [Message.assistant(draw(CONTENT), name=draw(NAMES), tool_calls=tuple(calls)), *answers]


@st.composite
def of_a_shape(draw):
    """Draw what is appended in a provider's own shape."""
    parts = draw(st.lists(FOREIGN, max_size=3))
    role = draw(st.sampled_from(["user", "assistant"]))
    shape = draw(st.sampled_from(["openai", "anthropic", "items"]))
    if shape == "openai":
        return from_openai([{"role": role, "content": parts, "name": "Ann Smith"}])
    if shape == "anthropic":
        call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": parts}
        return from_anthropic(
            [
                {"role": "assistant", "content": [*(p for p in parts if p != {"type": "tool_use"}),
                                                  call]},
                {"role": "user", "content": [result, {"type": "text", "text": " "}]},
            ]
        )  # fmt: skip
    call_id = draw(CALL_IDS)
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xx"},
        {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": call_id, "output": "42"},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"type": "computer_call", "id": "cc", "call_id": "c9", "action": {"type": "click"}},
        {"type": "computer_call_output", "call_id": "c9", "output": {"type": "computer_screenshot",
                                                                    "image_url": PNG}},
        {"type": "message", "role": role, "content": "Hi "},
    ]  # fmt: skip
    return from_responses(draw(st.lists(st.sampled_from(items), min_size=1, max_size=7)))


HISTORIES = st.lists(st.one_of(said(), said(), of_a_shape()), min_size=1, max_size=8)


@given(HISTORIES, st.sampled_from([None, "", "Top."]), st.sampled_from([1_500, 40_000]))
@drawn(2_000, 40)
def test_every_provider_accepts_every_context(history, system, budget):
    """Broken if any provider refused a context for a field, a form or an order."""
    at = AT
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        grown, before = [], []
        for messages in history:
            at += timedelta(hours=5)
            session.append(
                [
                    Message(
                        m.role, m.content, name=m.name, created_at=at, tool_calls=m.tool_calls,
                        tool_call_id=m.tool_call_id, metadata=m.metadata,
                    )
                    for m in messages
                ]
            )  # fmt: skip
            try:
                context = session.context(budget, system=system, allow_omission=True)
            except BudgetTooSmallError:
                continue  # an exchange with several images takes more
            if context.blocks:
                assert refusals(context) == ACCEPTED
            # A late result makes its exchange native, which was quoted before.
            items, kinds = context.to_openai(), [block.kind for block in context.blocks]
            if budget > 10_000 and kinds[: len(before)] == before:
                assert items[: len(grown)] == grown, "the cached prefix changed"
            grown, before = items, kinds


# -- the kinds of faults that were met, each by name


def context_of(*messages, **options):
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append(list(messages))
        return session.context(**options)


def test_speakers_bear_names_that_are_taken_and_stay_apart():
    """A1: broken if a chat between people could not be sent, or two of them became one."""
    people = ["Ann Smith", "Ann_Smith", "Ann/Smith", "+44 7700 900123", "Мария", "Ben", "n" * 100]
    context = context_of(*(Message.user("Hello", name=name) for name in people))
    names = [message["name"] for message in context.to_openai()]
    assert refusals(context) == ACCEPTED
    assert len(set(names)) == len(people)
    assert (names[1], names[4], names[5]) == ("Ann_Smith", "Мария", "Ben"), "taken, so unchanged"
    again = context_of(*(Message.user("Hello", name=name) for name in reversed(people)))
    assert [message["name"] for message in again.to_openai()] == names[::-1]


def test_the_speaker_stands_before_the_text_where_a_shape_has_no_names():
    """A2: broken if "I am allergic" and "I am not" were said by nobody."""
    context = context_of(
        Message.user("I am allergic to nuts", name="Ann Smith", created_at=AT),
        Message.user((ImagePart(PNG),), name="Ben", created_at=AT),
        Message.assistant("Noted.", name="Clerk", created_at=AT),
    )
    (asked, answered) = context.to_anthropic()["messages"]
    texts = [block.get("text") for block in asked["content"]]
    assert texts == ["[2024-03-01]\nAnn Smith: I am allergic to nuts", "Ben:", None]
    assert answered["content"] == [{"type": "text", "text": "Clerk: Noted."}]
    contents = [item["content"] for item in context.to_responses()]
    assert contents[0] == "[2024-03-01]\nAnn Smith: I am allergic to nuts"
    assert contents[1][0] == {"type": "input_text", "text": "Ben:"}
    assert contents[2] == "Clerk: Noted."


def exchange(call, result="42", **fields):
    return Message.assistant("", tool_calls=(call,), **fields), Message.tool(
        result, tool_call_id=call.id
    )


@pytest.mark.parametrize(
    "messages",
    [
        [Message.assistant("Welcome! ")],
        exchange(ToolCall("i" * 80, "f")),
        exchange(ToolCall("3f.1:a|b", "browser.search")),
        *(exchange(ToolCall("c", "f", said)) for said in ("", "{cut", "{}{}", "[1]", "null")),
        [*exchange(ToolCall("call_0", "f")), *exchange(ToolCall("call_0", "g"))],
        [
            Message.assistant("", tool_calls=(ToolCall("c", "f"), ToolCall("c", "g"))),
            Message.tool("1", tool_call_id="c"),
            Message.tool("2", tool_call_id="c"),
        ],
        exchange(ToolCall("c", "f"), (ImagePart(PNG), TextPart(" "))),
        [
            Message.assistant((), tool_calls=(ToolCall("c", "f"),)),
            Message.tool("", tool_call_id="c"),
        ],
        [Message.user("Hi"), Message.assistant("Hello \n")],
        [Message.user((FilePart("data:text/csv;base64,AA", "a.csv"),))],
        [Message.system("Be kind.")],
    ],
)
def test_the_fields_that_providers_refused_are_mapped(messages):
    """A10: broken if one of the reported histories were refused again."""
    assert refusals(context_of(*messages)) == ACCEPTED


def test_a_reused_id_is_another_one_and_the_results_follow():
    context = context_of(*exchange(ToolCall("c", "f"), "1"), *exchange(ToolCall("c", "f"), "2"))
    called = {call["id"]: call for m in context.to_openai() for call in m.get("tool_calls", ())}
    answers = {m["tool_call_id"]: m["content"] for m in context.to_openai() if m["role"] == "tool"}
    assert list(called) == list(answers) == ["c", "c_2"]
    assert list(answers.values()) == ["1", "2"]


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "thinking", "thinking": "Hm.", "signature": "s"}, (False, False, True)),
        ({"type": "refusal", "refusal": "No."}, (False, False, False)),
        ({"type": "server_tool_use", "id": "a", "name": "w", "input": {}}, (False, False, False)),
    ],
)
def test_parts_of_one_provider_are_native_with_it_alone(part, shown):
    """A10: broken if a block of another provider were sent, or a thought shown as what was said."""
    context = context_of(Message.user("Hi"), Message.assistant((JsonPart(part), TextPart("Well."))))
    assert refusals(context) == ACCEPTED
    rendered = (context.to_openai(), context.to_responses(), context.to_anthropic())
    assert tuple(json.dumps(part) in json.dumps(each) for each in rendered) == shown
    assert ("Hm." in json.dumps(rendered[0])) is False


def test_what_a_developer_set_is_sent_as_the_developers():
    """Broken, it is sent with a role that some models take for less."""
    said = {"type": "message", "role": "developer", "content": "Be kind."}
    ((chat,), (item,)) = from_openai([said]), from_responses([said])
    sent = [to([("", message)])[0]["role"] for to, message in (
        (request.to_chat, chat), (request.to_items, chat), (request.to_items, item),
    )]  # fmt: skip
    assert sent == ["developer"] * 3
