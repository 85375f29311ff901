"""The limits of exchange groups; ``test_fold`` holds the other rules against a slow reading."""

from datetime import UTC, datetime

from hiermem.tree.turns import GROUP_LIMIT, LATE, Arrival, Slice, Turns, mark
from hiermem.types import Message, StoredMessage, ToolCall

T0 = datetime(2024, 3, 15, 9, 0, tzinfo=UTC)


def said(index, role, *calls, result_of=None):
    return Arrival(index, "main", role, 5, 5, T0, calls, result_of)


def told(*arrivals, turns=None):
    """Take the arrivals in, as the rules do, and give the end with all flags."""
    turns, flags = turns or Turns(), []
    for arrival in arrivals:
        turns = turns.before(arrival, flags).after(arrival, flags)
    return turns, flags


def test_a_group_ends_at_its_hundredth_message():
    names = [f"c{n}" for n in range(119)]
    arrivals = [said(0, "assistant", *names)]
    arrivals += [said(n + 1, "tool", result_of=name) for n, name in enumerate(names)]
    turns, flags = told(*arrivals[: GROUP_LIMIT - 1])
    assert turns.members == GROUP_LIMIT - 1
    turns, flags = told(*arrivals[:GROUP_LIMIT])
    assert (turns.members, len(turns.late)) == (0, 20)
    assert flags == [(0, "missing_result")]
    _, flags = told(*arrivals)
    assert flags[1:] == [(n, "late_result") for n in range(100, 120)]


def test_only_the_newest_calls_given_up_are_remembered():
    names = [f"c{n}" for n in range(LATE + 5)]
    turns, _ = told(said(0, "assistant", *names), said(1, "user"))
    assert turns.late == tuple(names[5:])


def test_ten_users_in_a_row_are_safe_and_nine_are_not():
    users = [said(n, "user") for n in range(10)]
    assert not told(*users[:9])[0].safe("turn")
    assert told(*users)[0].safe("turn")
    assert told(*users, said(10, "user"))[0].safe("turn")
    assert not told(*users, said(10, "tool"))[0].safe("turn")
    assert not told(*users[:5], said(5, "assistant"), *users[:9])[0].safe("turn")


def test_an_arrival_is_taken_from_a_stored_message():
    message = Message.assistant("Look.", created_at=T0, tool_calls=[ToolCall("a", "find")])
    stored = StoredMessage(7, message, 12, 11, "sha256:0")
    piece = Slice(0, 11, 12)
    assert Arrival.of(stored, [piece]) == Arrival(
        7, "main", "assistant", 11, 12, T0, (mark("call", "a"),), None, (piece,)
    )
    result = Message.tool("42", tool_call_id="a", created_at=T0, thread="side")
    assert Arrival.of(StoredMessage(8, result, 3, 3, "")).result_of == mark("call", "a")
