"""No field of a message is lost on its way into a store and back."""

from dataclasses import fields
from datetime import UTC, datetime

import pytest

from hiermem import Memory, Message
from hiermem.types import TextPart, ToolCall

ROLES = {"tool_calls": "assistant", "tool_call_id": "tool"}
#: A value for each field that is not its default; a new field needs one here.
VALUES = {
    "content": (TextPart("Pump 3 leaks."),),
    "key": "k1",
    "name": "Ada",
    "thread": "side",
    "created_at": datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    "tool_calls": (ToolCall("c1", "look", "{}"),),
    "tool_call_id": "c0",
    "metadata": {"source": "form", "n": 1},
}


@pytest.mark.parametrize("name", [each.name for each in fields(Message) if each.name != "role"])
def test_a_message_with_one_field_alone_is_read_back_with_it(tmp_path, name):
    role = ROLES.get(name, "user")
    values = {"content": "Pump 3 leaks.", name: VALUES[name]}
    with Memory.open(tmp_path / "fields.db") as memory:
        session = memory.session("s")
        if role == "tool":
            call = ToolCall("c0", "look", "{}")
            session.append(Message("assistant", "Wait.", tool_calls=(call,)))
        session.append(Message(role, **values))
        message = session.messages()[-1].message
    assert getattr(message, name) == VALUES[name]
