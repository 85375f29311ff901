"""Exchange groups: when they open and end, what is flagged, and where a thread's end is safe."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hiermem.core.tree.turns import GROUP_LIMIT, LATE, Arrival, Slice, Turns, call_mark
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


def test_a_group_ends_when_every_call_has_its_result():
    calls = said(0, "assistant", "a", "b")
    turns, flags = told(calls, said(1, "tool", result_of="b"))
    assert turns.members == 2
    turns, flags = told(calls, said(1, "tool", result_of="b"), said(2, "tool", result_of="a"))
    assert turns.members == 0
    assert flags == []
    assert not turns.safe("turn"), "a result is not the assistant's word"
    assert turns.safe("message")


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_group_ends_before_the_next_user_or_call_less_assistant_message(role):
    turns, flags = told(said(0, "assistant", "a", "b"), said(1, "tool", result_of="a"))
    flags = []
    ended = turns.before(said(2, role), flags)
    assert ended.members == 0
    assert flags == [(0, "missing_result")]
    assert ended.late == ("b",)


def test_calls_and_system_messages_inside_a_group_go_with_it():
    turns, flags = told(
        said(0, "assistant", "a"),
        said(1, "system"),
        said(2, "assistant", "b"),
        said(3, "tool", result_of="a"),
    )
    assert (turns.members, turns.waiting) == (4, (("b", 2),))
    assert flags == []


def test_each_message_whose_call_is_unanswered_is_flagged_once():
    turns, flags = told(said(0, "assistant", "a", "b"), said(1, "assistant", "c"), said(2, "user"))
    assert flags == [(0, "missing_result"), (1, "missing_result")]
    assert turns.late == ("a", "b", "c")


def test_a_late_result_is_told_from_one_of_a_call_that_nobody_made():
    _, flags = told(
        said(0, "assistant", "a"),
        said(1, "user"),
        said(2, "tool", result_of="a"),
        said(3, "tool", result_of="a"),
        said(4, "tool", result_of="x"),
        said(5, "tool"),
    )
    assert flags[1:] == [
        (2, "late_result"), (3, "orphan_result"), (4, "orphan_result"), (5, "orphan_result"),
    ]  # fmt: skip


def test_a_result_that_answers_nothing_opens_no_group_and_stays_in_an_open_one():
    turns, flags = told(said(0, "tool", result_of="x"))
    assert turns.members == 0
    turns, flags = told(said(0, "assistant", "a"), said(1, "tool", result_of="x"))
    assert turns.members == 2
    assert flags == [(1, "orphan_result")]


def test_two_calls_of_one_id_need_two_results():
    calls = said(0, "assistant", "", "")
    assert told(calls, said(1, "tool", result_of=""))[0].members == 2
    results = (said(1, "tool", result_of=""), said(2, "tool", result_of=""))
    assert told(calls, *results) == (Turns(), [])


def test_a_result_without_an_id_answers_the_oldest_unanswered_call():
    turns, flags = told(said(0, "assistant", "a", "b"), said(1, "tool"))
    assert turns.waiting == (("b", 0),)
    assert flags == []


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


def test_system_messages_are_skipped_in_a_run_of_users_but_not_after_an_assistant():
    users = [said(n, "user") for n in range(10)]
    assert told(*users[:4], said(4, "system"), *users[4:])[0].safe("turn")
    assert told(*users, said(10, "system"))[0].safe("turn")
    assert told(said(0, "assistant"))[0].safe("turn")
    assert not told(said(0, "assistant"), said(1, "system"))[0].safe("turn")


def test_what_json_gives_back_is_the_same():
    turns, _ = told(said(0, "assistant", "a"), said(1, "user"), said(2, "assistant", "b", "c"))
    run, assistant, members, waiting, late = turns
    row = [run, assistant, members, [list(pair) for pair in waiting], list(late)]
    assert Turns.unpack(row) == turns


def test_an_arrival_is_taken_from_a_stored_message():
    message = Message.assistant("Look.", created_at=T0, tool_calls=[ToolCall("a", "find")])
    stored = StoredMessage(7, message, 12, 11, "sha256:0")
    piece = Slice(0, None, 11, 12)
    assert Arrival.of(stored, [piece]) == Arrival(
        7, "main", "assistant", 11, 12, T0, (call_mark("a"),), None, (piece,)
    )
    result = Message.tool("42", tool_call_id="a", created_at=T0, thread="side")
    assert Arrival.of(StoredMessage(8, result, 3, 3, "")).result_of == call_mark("a")
