"""Whose turn it is: level 1 first, then sessions in turns."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hiermem.core.calls.fairness import SessionQueue, shard_order


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
