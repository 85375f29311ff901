"""The facts that sealing takes from a message; ``test_fold`` holds the rules of exchange groups."""

from datetime import UTC, datetime

from hiermem.tree.turns import Arrival, Slice, mark
from hiermem.types import Message, StoredMessage, ToolCall

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)


def test_an_arrival_is_taken_from_a_stored_message():
    message = Message.assistant("Look.", created_at=T0, tool_calls=[ToolCall("a", "find")])
    stored = StoredMessage(7, message, 12, 11, "sha256:0")
    piece = Slice(0, 11, 12)
    assert Arrival.of(stored, [piece]) == Arrival(
        7, "main", "assistant", 11, 12, T0, (mark("call", "a"),), None, (piece,)
    )
    result = Message.tool("42", tool_call_id="a", created_at=T0, thread="side")
    assert Arrival.of(StoredMessage(8, result, 3, 3, "")).result_of == mark("call", "a")
