"""Converters: what was read from a provider's shape is given back as it was."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import Memory
from hiermem.convert import from_anthropic, from_any, from_openai, to_anthropic, to_openai
from hiermem.errors import InvalidMessageError
from hiermem.text.policy import clean_message
from hiermem.types import FilePart, ImagePart, Message, TextPart, ToolCall

OPENAI = {
    "text": {"role": "user", "content": "Hi"},
    "empty": {"role": "user", "content": ""},
    "system": {"role": "system", "content": "Be kind."},
    "developer": {"role": "developer", "content": "Be kind."},
    "name": {"role": "user", "content": "Hi", "name": "Ada"},
    "null name": {"role": "user", "content": "Hi", "name": None},
    "null content": {"role": "assistant", "content": None},
    "calls": {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function",
     "function": {"name": "f", "arguments": '{"a": 1}'}}, {"id": "c2", "type": "function",
     "function": {"name": "g", "arguments": "broken {"}}]},
    "calls and text": {"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "c1",
     "type": "function", "function": {"name": "f", "arguments": ""}}]},
    "custom call": {"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
     "type": "custom", "custom": {"name": "sh", "input": "ls"}}]},
    "call with more fields": {"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
     "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}", "strict": True},
     "extra_content": {"google": {"thought_signature": "x"}}}]},
    "call without type": {"role": "assistant", "content": "", "tool_calls": [{"id": "c1",
     "function": {"name": "f", "arguments": "{}"}}]},
    "null calls": {"role": "assistant", "content": "x", "tool_calls": None, "function_call": None},
    "empty calls": {"role": "assistant", "content": "x", "tool_calls": []},
    "result": {"role": "tool", "content": "42", "tool_call_id": "c1"},
    "result of parts": {"role": "tool", "content": [{"type": "text", "text": "42"}],
     "tool_call_id": "c1"},
    "result without call": {"role": "tool", "content": "42"},
    "function call": {"role": "assistant", "content": None, "function_call": {"name": "f",
     "arguments": "{}"}},
    "function": {"role": "function", "name": "f", "content": "42"},
    "refusal": {"role": "assistant", "content": None, "refusal": "No."},
    "audio": {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
    "annotations": {"role": "assistant", "content": "x", "annotations": [{"type": "url_citation"}]},
    "call id on a user": {"role": "user", "content": "x", "tool_call_id": "c1"},
    "parts": {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url",
     "image_url": {"url": "https://x.org/a.png"}}, {"type": "image_url",
     "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}, {"type": "file",
     "file": {"file_id": "file-1"}}, {"type": "file",
     "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a"}}, {"type": "file",
     "file": {"file_data": "AA"}}, {"type": "input_audio", "input_audio": {"data": "AA",
     "format": "wav"}}, {"type": "text", "text": "marked", "cache_control": {"type": "ephemeral"}},
     {"type": "image_url", "image_url": {"url": "u", "detail": None}}, {"type": "refusal",
     "refusal": "No."}, {}]},
    "no parts": {"role": "user", "content": []},
}  # fmt: skip


@pytest.mark.parametrize("data", OPENAI.values(), ids=OPENAI.keys())
def test_openai_messages_come_back_as_they_were(data):
    """Broken if a round trip through memory changes what the model is shown."""
    message = Message.from_openai(data)
    assert message.to_openai() == data
    assert clean_message(message).to_openai() == data


def test_openai_messages_become_what_they_mean():
    user, assistant, tool = from_openai(
        [OPENAI["parts"], OPENAI["calls"], {"role": "tool", "content": "42", "tool_call_id": "c1"}]
    )
    assert user.content[:4] == (
        TextPart("See"),
        ImagePart("https://x.org/a.png"),
        ImagePart("data:image/png;base64,AA", "low"),
        FilePart("file-1"),
    )
    assert user.content[7] == TextPart("marked"), "its mark is kept beside it"
    assert assistant.content == ""
    assert assistant.tool_calls == (
        ToolCall("c1", "f", '{"a": 1}'),
        ToolCall("c2", "g", "broken {"),
    )
    assert (tool.role, tool.tool_call_id) == ("tool", "c1")
    assert to_openai([user, assistant]) == [OPENAI["parts"], OPENAI["calls"]]


def test_an_old_function_call_and_its_result_belong_together():
    """Broken if an exchange in the old shape could be parted."""
    call, result = from_openai([OPENAI["function call"], OPENAI["function"]])
    assert call.tool_calls[0].id == result.tool_call_id


def test_an_edit_stands_over_what_was_kept():
    """Broken if the old null content came back over the new text."""
    message = Message.from_openai({"role": "assistant", "content": None, "refusal": "No."})
    assert replace(message, content="Yes.").to_openai()["content"] == "Yes."


def test_our_own_messages_are_written_in_the_openai_shape():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    written = to_openai([Message.assistant("x", tool_calls=(ToolCall("1", "f", "{}"),), key="k")])
    assert written == [{"role": "assistant", "content": "x", "tool_calls": [call]}]


def test_a_library_object_that_dumps_itself_is_read():
    class Reply:
        def model_dump(self, **_options):
            return {"role": "assistant", "content": "Done."}

    assert Message.from_openai(Reply()).content == "Done."
    assert Message.from_openai({"role": "user", "content": "Hi"}, key="k").key == "k"
    assert Message.user("Hi").to_openai() == {"role": "user", "content": "Hi"}


EPHEMERAL = {"type": "ephemeral"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
ANTHROPIC = {
    "text": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
    "blocks": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    "empty": [{"role": "user", "content": []}, {"role": "assistant", "content": ""}],
    "cache marks": [{"role": "user", "content": [{"type": "text", "text": "Long",
     "cache_control": EPHEMERAL}, {**IMAGE, "cache_control": EPHEMERAL}, {"type": "text",
     "text": "Short"}]}],
    "images and documents": [{"role": "user", "content": [IMAGE, {"type": "image",
     "source": {"type": "url", "url": "https://x.org/a.png"}}, {"type": "image",
     "source": {"type": "file", "file_id": "file_1"}}, {"type": "document",
     "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}, "title": "Report",
     "context": "c", "citations": {"enabled": True}}, {"type": "document", "source": {"type": "url",
     "url": "https://x.org/a.pdf"}}, {"type": "document", "source": {"type": "file",
     "file_id": "file_2"}, "title": None}, {"type": "document", "source": {"type": "text",
     "media_type": "text/plain", "data": "words"}}, {"type": "image", "source": {"type": "url",
     "url": "data:image/png;base64,AA"}}]}],
    "tool use": [{"role": "user", "content": "What is 6 x 7, and 1 + 1?"}, {"role": "assistant",
     "content": [{"type": "thinking", "thinking": "Hm.", "signature": "sig"},
     {"type": "redacted_thinking", "data": "xx"}, {"type": "text", "text": "Computing."},
     {"type": "tool_use", "id": "t1", "name": "mul", "input": {"b": 7, "a": 6}},
     {"type": "tool_use", "id": "t2", "name": "add", "input": {}, "cache_control": EPHEMERAL}]},
     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"},
     {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "2",
     "cache_control": EPHEMERAL}, IMAGE], "is_error": True, "cache_control": EPHEMERAL},
     {"type": "text", "text": "And thanks."}]}, {"role": "assistant", "content": "42 and 2."}],
    "odd orders": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f",
     "input": {"q": "ü"}}, {"type": "text", "text": "between"}, {"type": "tool_use", "id": "t2",
     "name": "f", "input": {}}]}, {"role": "user", "content": [{"type": "text", "text": "first"},
     {"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "second"},
     {"type": "tool_result", "tool_use_id": "t2", "content": []}, {"type": "tool_result",
     "tool_use_id": "t3", "content": "", "is_error": False}]}],
    "only a call": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f",
     "input": {}}]}],
    "neighbours of one role": [{"role": "user", "content": "one"}, {"role": "user",
     "content": [{"type": "text", "text": "two"}]}, {"role": "user", "content": "three"},
     {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
    "unknown blocks": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s",
     "name": "web", "input": {}}, {}]}],
    "more fields": [{"role": "user", "content": "x", "custom": {"a": 1}}],
}  # fmt: skip


@pytest.mark.parametrize("messages", ANTHROPIC.values(), ids=ANTHROPIC.keys())
@pytest.mark.parametrize(
    "system", [None, "Be kind.", [{"type": "text", "text": "Be kind.", "cache_control": EPHEMERAL}]]
)
def test_anthropic_requests_come_back_as_they_were(messages, system):
    """Broken if a round trip through memory changes what the model is shown."""
    payload = {"messages": messages} | ({} if system is None else {"system": system})
    read = from_anthropic(payload)
    assert to_anthropic(read) == payload
    assert to_anthropic([clean_message(message) for message in read]) == payload
    assert from_anthropic(messages) == [m for m in read if m.role != "system"]


def test_anthropic_messages_become_what_they_mean():
    _, assistant, one, two, text, _ = from_anthropic(ANTHROPIC["tool use"])
    assert [call.id for call in assistant.tool_calls] == ["t1", "t2"]
    assert assistant.tool_calls[0].arguments == '{"b": 7, "a": 6}'
    assert assistant.content[2] == TextPart("Computing.")
    assert (one.role, one.content, one.tool_call_id) == ("tool", "42", "t1")
    assert two.content == (TextPart("2"), ImagePart("data:image/png;base64,AA"))
    assert (text.role, text.content) == ("user", (TextPart("And thanks."),))
    document = from_anthropic(ANTHROPIC["images and documents"])[0].content[3]
    assert document == FilePart("data:application/pdf;base64,AA", "Report", "application/pdf")


def test_an_envelope_is_kept_but_not_sent_back():
    """Broken if a response put into a request made the provider refuse it."""
    reply = {"id": "m", "type": "message", "model": "c", "role": "assistant", "content": "x",
             "stop_reason": "end_turn", "stop_sequence": None, "usage": {}}  # fmt: skip
    (message,) = from_anthropic([reply])
    assert message.metadata["anthropic"]["fields"]["id"] == "m"
    assert to_anthropic([message])["messages"] == [{"role": "assistant", "content": "x"}]


def test_our_own_messages_are_written_in_the_anthropic_shape():
    """Broken if a conversation kept in the other shape could not be shown to this provider."""
    written = to_anthropic(
        [
            Message.system("One."),
            Message.user("Hi"),
            Message.user(""),
            Message.user("there"),
            Message.assistant(
                tool_calls=(ToolCall("1", "f", '{"a":1}'), ToolCall("2", "g", "broken"))
            ),
            Message.tool("42", tool_call_id="1"),
            Message("tool", "orphan"),
            Message.user((FilePart("file-1", "a.pdf"),)),
            Message.system("Two."),
        ],
        system="Zero.",
    )
    assert written == {
        "system": [{"type": "text", "text": t} for t in ("Zero.", "One.", "Two.")],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("Hi", "there")]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "2", "name": "g", "input": {"arguments": "broken"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "42"},
                {"type": "text", "text": "orphan"},
                {"type": "document", "source": {"type": "file", "file_id": "file-1"},
                 "title": "a.pdf"},
            ]},
        ],
    }  # fmt: skip
    assert to_anthropic([Message.user("x")], system="S")["system"] == "S"
    assert "system" not in to_anthropic([Message.user("x")])


GOOD_CALL = {"id": "1", "function": {"name": "f", "arguments": ""}}
GOOD_USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
GOOD_RESULT = {"type": "tool_result", "tool_use_id": "1"}

json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "id",
             "input", "image_url", "url", "file", "source", "tool_use_id", "function_call",
             "messages", "system", "data", "media_type", "custom"]
        ) | st.text(max_size=3) | st.integers(),
        inner | st.sampled_from(
            ["user", "assistant", "tool", "function", "tool_use", "tool_result", "image",
             "document", "base64", "url", "custom", "text"]
        ),
        max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip


@given(json_like)
def test_any_shape_is_read_or_refused_with_a_typed_error(value):
    """Broken if an odd message ends in a KeyError."""
    for read in (Message.from_openai, from_openai, from_anthropic):
        for shape in (
            value,
            [value],
            {"messages": value},
            {"role": "user", "content": value},
            [{"role": "user", "content": [value]}],
            [{"role": "assistant", "content": [value], "tool_calls": [value]}],
        ):
            with suppress(InvalidMessageError):
                found = read(shape)
                given_back = [found] if isinstance(found, Message) else found
                assert all(isinstance(each, Message) for each in given_back)


WRONG_OPENAI = [
    None, 7, "text", {}, {"content": "x"}, {"role": "narrator", "content": "x"},
    {"role": ["user"], "content": "x"}, {"role": "user", "content": 7},
    {"role": "user", "content": "x", "tool_calls": [GOOD_CALL]},
    {"role": "assistant", "tool_calls": "canary"}, {"role": "assistant", "tool_calls": [{}]},
    {"role": "assistant", "tool_calls": [{**GOOD_CALL, "id": 1}]},
    {"role": "assistant", "function_call": {"name": "canary"}}, {"role": "user", 1: 2},
]  # fmt: skip
WRONG_ANTHROPIC = [
    None, 7, "text", {}, {"messages": 7}, {"messages": [], "system": 7}, [7], [{"role": "user"}],
    [{"role": "system", "content": "x"}], [{"role": "user", "content": [7]}],
    [{"role": "assistant", "content": [{"type": "tool_use"}]}],
    [{"role": "assistant", "content": [{**GOOD_USE, "input": 7}]}],
    [{"role": "assistant", "content": [{**GOOD_USE, "input": {"a": b"x"}}]}],
    [{"role": "user", "content": [{"type": "tool_result"}]}],
    [{"role": "user", "content": [{**GOOD_RESULT, "content": 7}]}],
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        *((Message.from_openai, wrong) for wrong in WRONG_OPENAI),
        *((from_anthropic, wrong) for wrong in WRONG_ANTHROPIC),
    ],
)
def test_wrong_shapes_are_typed_errors_without_content(read, wrong):
    with pytest.raises(InvalidMessageError) as caught:
        read(wrong)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "user", "text": "canary"}, {"role": "user"}, {"role": "assistant"},
        {"role": "user", "message": "canary"}, {"role": "tool", "parts": ["canary"]},
        {"role": "system", "content": None}, {"role": "assistant", "tool_calls": None},
        {"type": "message", "role": "user", "text": "canary"},
    ],
)  # fmt: skip
def test_a_message_without_content_is_refused_by_the_names_of_its_fields(wrong):
    """Broken, a text under a wrong name is stored as an empty message, and nobody notices."""
    with Memory.open(":memory:") as memory, pytest.raises(InvalidMessageError) as caught:
        memory.session("s").append(wrong)
    assert f"messages[0].content is missing; the message has {', '.join(wrong)}" in str(
        caught.value
    ).replace("items[", "messages[")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["Hi", [{"type": "image", "source": {"type": "url", "url": "u"}}],
     [{"type": "input_text", "text": "Hi"}]],
)  # fmt: skip
def test_the_time_of_a_message_is_read_in_every_shape(content):
    """Broken, an old conversation is dated today."""
    for time in ("2024-01-01T10:00:00Z", datetime(2024, 1, 1, 10, tzinfo=UTC), 1_704_103_200):
        (message,) = from_any([{"role": "user", "content": content, "created_at": time}])
        assert message.created_at == datetime(2024, 1, 1, 10, tzinfo=UTC)
    for wrong in ("2024-01-01T10:00:00", "canary", True, float("nan")):
        with pytest.raises(InvalidMessageError, match="created_at must be") as caught:
            from_any([{"role": "user", "content": content, "created_at": wrong}])
        assert "canary" not in str(caught.value)
