"""Items of the Responses interface come back as they were; an append takes any shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiermem import InvalidMessageError, Memory, Message, ToolCall
from hiermem.convert import from_any, from_openai, from_responses, shape_of, to_openai, to_responses
from hiermem.text.policy import clean_message
from hiermem.types import FilePart, ImagePart, TextPart

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
ITEMS = {
    "easy": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
    "typed": [{"type": "message", "role": "developer", "content": "Be kind."}],
    "empty": [{"role": "user", "content": ""}, {"role": "user", "content": []}],
    "null": [{"role": "assistant", "content": None}],
    "output": [{"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
     "phase": "final_answer", "content": [{"type": "output_text", "text": "Yes.", "annotations": [],
     "logprobs": []}, {"type": "refusal", "refusal": "No."}]}],
    "parts": [{"role": "user", "content": [{"type": "input_text", "text": "See"},
     {"type": "input_image", "image_url": "https://x.org/a.png", "detail": "low"},
     {"type": "input_image", "image_url": "data:image/png;base64,AA"}, {"type": "input_image",
     "file_id": "file-1", "detail": "auto"}, {"type": "input_file", "file_id": "file-2"},
     {"type": "input_file", "file_url": "https://x.org/a.pdf"}, {"type": "input_file",
     "file_data": "data:a/b;base64,AA", "filename": "a.pdf"}, {"type": "input_file",
     "file_data": "AA"}, {"type": "output_text", "text": "not a user's"}, {"type": "input_image",
     "image_url": "u", "detail": None}, {}]}],
    "calls": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xx"},
     {**CALL, "id": "fc_1", "status": "completed"}, {**CALL, "call_id": "c2"},
     {"type": "custom_tool_call", "call_id": "c3", "name": "sh", "input": "ls", "id": "ct"}, RESULT,
     {**RESULT, "call_id": "c2", "output": [{"type": "input_text", "text": "2"}], "id": "o"},
     {"type": "custom_tool_call_output", "call_id": "c3", "output": "a.txt"}],
    "calls of built-in tools": [{"type": "web_search_call", "id": "ws", "status": "completed",
     "action": {"query": "q"}}, {"type": "local_shell_call", "id": "l", "call_id": "c1",
     "action": {"command": ["ls"]}}, {"type": "local_shell_call_output", "id": "l", "output": "{}"},
     {"type": "computer_call_output", "call_id": "c9", "output": {"type": "screenshot"}},
     {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
     {"type": "item_reference", "id": "msg_1"}, {"type": "function_call", "call_id": "c5",
     "name": "", "arguments": None}, {"type": "function_call", "name": "no id", "arguments": "{}"}],
}  # fmt: skip


@pytest.mark.parametrize("items", ITEMS.values(), ids=ITEMS.keys())
def test_items_come_back_as_they_were(items):
    """Broken if a round trip through memory changes what the model is shown."""
    read = from_responses(items)
    assert to_responses(read) == items
    assert to_responses([clean_message(message) for message in read]) == items


def test_items_become_what_they_mean():
    user = from_responses(ITEMS["parts"])[0]
    assert user.content[:3] == (
        TextPart("See"),
        ImagePart("https://x.org/a.png", "low"),
        ImagePart("data:image/png;base64,AA"),
    )
    assert user.content[4] == FilePart("file-2")
    _, call, one, two, three = from_responses(ITEMS["calls"])
    assert call.tool_calls == (
        ToolCall("c1", "f", '{"a": 1}'),
        ToolCall("c2", "f", '{"a": 1}'),
        ToolCall("c3", "sh", "ls", "custom"),
    )
    assert [m.tool_call_id for m in (one, two, three)] == ["c1", "c2", "c3"]
    assert (one.role, one.content) == ("tool", "42")
    assert from_responses(ITEMS["typed"])[0].role == "system"


def test_requests_and_responses_are_read_whole():
    asked = from_responses({"model": "m", "instructions": "Be kind.", "input": "Hi"})
    assert [(m.role, m.content) for m in asked] == [("system", "Be kind."), ("user", "Hi")]
    assert from_responses({"output": ITEMS["output"]}) == from_responses(ITEMS["output"])


def test_a_chat_becomes_items_and_parallel_calls_stay_one_message():
    """Broken if a session could not be continued at the other interface of the same provider."""
    chat = [
        {"role": "user", "content": "Both?"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "a"},
        {"role": "tool", "tool_call_id": "2", "content": "b"},
    ]
    items = to_responses(from_openai(chat))
    assert [item["type"] for item in items] == [
        "message", "message", "function_call", "custom_tool_call", "function_call_output",
        "custom_tool_call_output",
    ]  # fmt: skip
    back = to_openai(from_responses(items))
    assert [call["id"] for call in back[2]["tool_calls"]] == ["1", "2"]
    assert [message["role"] for message in back] == [
        "user", "assistant", "assistant", "tool", "tool",
    ]  # fmt: skip


part = st.sampled_from([*ITEMS["parts"][0]["content"], *ITEMS["output"][0]["content"]])
item = st.one_of(
    *(st.just(each) for items in ITEMS.values() for each in items),
    st.builds(
        lambda role, content, more: {"role": role, "content": content, **more},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        st.text(max_size=5) | st.lists(part, max_size=4),
        st.fixed_dictionaries({}, optional={"type": st.just("message"), "id": st.text(max_size=3)}),
    ),
)


@given(st.lists(item, max_size=8))
def test_any_order_of_items_comes_back_as_it_was(items):
    """Broken if neighbours of an item decided what of it is kept."""
    assert to_responses(from_responses(items)) == items


def test_a_context_bears_no_id_that_binds_it_to_an_item_it_may_lack():
    """Broken if a provider refused a context that begins between a call and its reasoning."""
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        search = ITEMS["calls of built-in tools"][0]
        session.append([*ITEMS["calls"], *ITEMS["output"], search])
        items = session.context(system="Be kind.").to_responses()[2:]
    assert items[0] == {"type": "reasoning", "summary": [], "encrypted_content": "xx"}
    assert items[1:3] == [CALL, {**CALL, "call_id": "c2"}]
    assert items[4:7] == [
        RESULT,
        {**RESULT, "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
        ITEMS["calls"][-1],
    ]
    answer = {"type": "message", "role": "assistant", "content": "Yes.No."}
    assert items[7:] == [
        {**answer, "phase": "final_answer"},
        {**answer, "content": "[web_search_call]"},
    ]


@pytest.mark.parametrize(
    "bad",
    ["x", 5, [5], [{"type": "message"}], [{"role": "wizard", "content": "x"}], [{"type": 5}], {},
     [{"role": "user", "content": 5}], {"input": 5}],
)  # fmt: skip
def test_other_shapes_are_refused_by_their_place(bad):
    with pytest.raises(InvalidMessageError):
        from_responses(bad)


def test_the_shape_is_seen_from_the_message():
    assert shape_of({"role": "user", "content": "Hi"}) == "openai"
    assert shape_of({"role": "user", "content": [{"type": "text", "text": "Hi"}]}) == "openai"
    assert (
        shape_of({"role": "user", "content": [{"type": "input_text", "text": ""}]}) == "responses"
    )
    assert shape_of(CALL) == shape_of({"type": "message", "role": "user", "content": "x"})
    assert shape_of({"role": "user", "content": [{"type": "tool_result"}]}) == "anthropic"
    reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}
    assert shape_of(reply) == "anthropic"
    marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    assert shape_of({"role": "user", "content": [marked]}) == "anthropic"


def test_append_takes_every_shape_mixed_with_our_own():
    """Broken if a provider's dicts had to be converted by hand, or lost their order."""
    use = {"type": "tool_use", "id": "t1", "name": "g", "input": {}}
    with Memory.open(":memory:") as memory:
        session = memory.session("s")
        session.append({"role": "user", "content": "Hi"}, CALL, RESULT)
        session.append(
            [{"role": "assistant", "content": [use]}],
            Message.tool("done", tool_call_id="t1"),
            ({"role": "user", "content": f"n{n}"} for n in range(2)),
        )
        kept = [(m.message.role, m.content, len(m.message.tool_calls)) for m in session.messages()]
        assert kept == [
            ("user", "Hi", 0), ("assistant", "", 1), ("tool", "42", 0), ("assistant", (), 1),
            ("tool", "done", 0), ("user", "n0", 0), ("user", "n1", 0),
        ]  # fmt: skip


@pytest.mark.parametrize("bad", ["text", 5, None, [None], [["nested"]], [{"role": "wizard"}], {}])
def test_append_refuses_what_is_no_message_and_writes_nothing(bad):
    with Memory.open(":memory:") as memory:
        with pytest.raises(InvalidMessageError):
            memory.session("s").append({"role": "user", "content": "Hi"}, bad)
        assert memory.sessions() == []


def test_a_library_object_is_appended_like_its_dict():
    class Item:
        def model_dump(self, **_options):
            return dict(CALL)

    assert from_any([Item()])[0].tool_calls[0].name == "f"
