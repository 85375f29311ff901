"""Readings that run side by side: they read what each would read alone, in fewer rounds."""

from hypothesis import given
from hypothesis import strategies as st

from hiermem.needs import inside, together
from hiermem.types.transaction import NeedMessages


def reading(name, length):
    """Ask ``length`` times in a row and give all answers."""
    found = []
    for at in range(length):
        found += [(yield NeedMessages(name, at))]
    return found


def run(asking):
    """Answer each need with itself; give the result and the needs of each round."""
    rounds, reply = [], None
    while True:
        try:
            asked = asking.send(reply)
        except StopIteration as done:
            return done.value, rounds
        one = isinstance(asked[0], str)
        assert all(name == "s" for name, _ in ([asked] if one else asked))
        reply = asked[1] if one else tuple(need for _, need in asked)
        rounds.append(1 if one else len(asked))


@given(st.lists(st.integers(0, 5), max_size=6))
def test_each_reading_gets_its_own_answers_and_rounds_are_those_of_the_longest(lengths):
    """Broken, a reading is sent what another one asked for, or rounds are asked one by one."""
    alone = [[NeedMessages(n, at) for at in range(length)] for n, length in enumerate(lengths)]
    for n, length in enumerate(lengths):
        assert run(inside("s", reading(n, length))) == (alone[n], [1] * length)
    found, rounds = run(together("s", [reading(n, length) for n, length in enumerate(lengths)]))
    assert found == alone
    assert len(rounds) == max(lengths, default=0)
    assert sum(rounds) == sum(lengths)
