"""Whose turn it is: level 1 first, sessions in turns, first in first out within one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hiermem.core.calls.fairness import FairQueue, SessionQueue, shard_order

tickets = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.integers(0, 9)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(tickets)
def test_lowest_level_first_then_in_turns_then_in_order(asked):
    """Any other order would let an upper level, a long session or a late node go ahead."""
    queue = FairQueue()
    left = [(*each, number) for number, each in enumerate(asked)]
    for session, level, ordinal, number in left:
        queue.join(number, session, level, ordinal)
    turns: Counter[str] = Counter()
    last = dict.fromkeys("abcd", 0)
    for turn in range(1, len(asked) + 1):
        number = queue.next()
        (given_,) = [waiter for waiter in left if waiter[3] == number]
        session, level, *place = given_
        assert level == min(waiter[1] for waiter in left)
        rivals = [waiter for waiter in left if waiter[1] == level]
        assert last[session] == min(last[waiter[0]] for waiter in rivals)
        assert place == min([*waiter[2:]] for waiter in rivals if waiter[0] == session)
        left.remove(given_)
        turns[session] += 1
        last[session] = turn
    assert queue.next() is None


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(1, 60))
def test_while_all_have_work_none_has_two_turns_more_than_another(sessions, rounds):
    queue = FairQueue()
    for name in range(sessions):
        for place in range(rounds):
            queue.join((str(name), place), str(name), 1, place)
    served: Counter[str] = Counter({str(name): 0 for name in range(sessions)})
    for _ in range(rounds):
        served[queue.next()[0]] += 1
        assert max(served.values()) - min(served.values()) <= 1


def test_who_leaves_is_passed_over():
    queue = FairQueue()
    queue.join("first", "a", 1, 0)
    queue.join("second", "b", 1, 0)
    assert queue.leave("first")
    assert not queue.leave("first")
    assert queue.next() == "second"
    assert len(queue) == 0


def test_a_session_that_comes_back_is_not_remembered_for_ever():
    queue = FairQueue()
    queue.serve("a")
    queue.forget("a")
    queue.serve("b")
    queue.join("other", "b", 1, 0)
    queue.join("back", "a", 1, 0)
    assert queue.next() == "back"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.booleans()), max_size=30)
)
def test_sessions_wait_once_and_come_by_level_then_uncontested_then_longest_unserved(puts):
    queue = SessionQueue("w")
    waiting, served, turn = {}, dict.fromkeys("abcdef", 0), 0
    for number, (name, level, contested) in enumerate(puts):
        queue.put(name, level, contested=contested)
        waiting[name] = (level, contested, served[name], shard_order("w", name))
        if number % 3 == 2:
            first = min(waiting, key=waiting.__getitem__)
            assert queue.head == waiting[first][:2]
            assert queue.take() == first
            del waiting[first]
            turn += 1
            served[first] = turn
        assert len(queue) == len(waiting)
    while waiting:
        first = min(waiting, key=waiting.__getitem__)
        assert queue.take() == first
        del waiting[first]
    assert queue.take() is None
    assert queue.head is None


def test_two_workers_begin_at_different_sessions():
    """With the same order both would ask for the same nodes at the same time, all the way."""
    orders = []
    for worker in ("one", "two"):
        queue = SessionQueue(worker)
        for n in range(50):
            queue.put(f"s{n}", 1)
        orders.append([queue.take() for _ in range(50)])
    assert sorted(orders[0]) == sorted(orders[1])
    assert len(set(orders[0][:10]) & set(orders[1][:10])) < 8


def test_a_dropped_session_is_gone():
    queue = SessionQueue("w")
    queue.put("a", 1)
    queue.drop("a")
    assert queue.take() is None
    assert "a" not in queue
